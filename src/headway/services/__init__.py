"""Requests to services: they wait in the server's process and are answered by instances. The core never sees them.

An *instance* is a task that runs `python -m headway.services.instance`. It connects to a Unix socket of the server,
says which service it belongs to, loads the handler, and answers one request at a time. The *broker* has a queue for
each service. It hands the oldest request to the instance that has been idle the longest, and its answer to the caller.

**Each request ends exactly once**: answered, failed, timed out, rejected because the queue is full, or gone with its
caller. It is handed out at most twice: again only if the instance that had it died. Only the instance that holds a
request now can answer it. An instance that works longer than the time limit gets nothing more, and whoever started it
is asked to kill it.

**An instance** goes through these states:

    stranger --Hello--> loading --Ready--> idle <--Request, Answer--> busy
                           |                 |                         |
                        Broken            Goodbye <-- its last answer -- leaving

It leaves when it is asked to (SIGTERM), when the broker drains it, and when another version of the handler has
replaced its own. It always finishes the request that it has.

| module | what it has |
| --- | --- |
| `terms` | what a service and an instance are told |
| `frames` | messages on the socket |
| `windows` | measures |
| `queue` | requests and instances of one service |
| `broker` | all queues, and the socket |
| `handlers`, `instance` | the other side: the program of an instance |
"""
