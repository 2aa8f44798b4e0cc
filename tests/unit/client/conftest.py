"""A fake server that speaks the protocol and runs every task at once in its own thread. Tests can make it fail."""

from __future__ import annotations

import pickle
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from headway import Client, wire
from headway.model.actions import JobStatus
from headway.model.events import Outcome

TOKEN = "right"


class FakeServer:
    """Jobs, messages and results in memory.

    Attributes:
        asked: how often each route was requested, by name.
        submissions: all bodies that came, also repeated ones.
        cleared, cancelled: ids of jobs; cancelled_tasks: with numbers of tasks.
        acknowledged: all acknowledgements that came.
        uploads: files by name.
        drop: names of routes whose next answer is lost, after the server has done its work.
        cut: routes whose next answer breaks off after this many bytes.
        refuse: what to answer to the next submission or upload instead of accepting it.
        inline_max: results with more bytes do not come with their messages.
        forgets_blobs: whether it keeps no function of an earlier submission.
        held: whether tasks wait for `run_held`.
    """

    def __init__(self, port: int = 0) -> None:
        self.asked: Counter[str] = Counter()
        self.submissions: list[wire.Submission] = []
        self.cleared: list[int] = []
        self.cancelled: list[int] = []
        self.cancelled_tasks: list[tuple[int, int]] = []
        self.acknowledged: list[wire.Acknowledgement] = []
        self.uploads: dict[str, bytes] = {}
        self.drop: list[str] = []
        self.cut: dict[str, int] = {}
        self.refuse: tuple[int, wire.ErrorBody] | None = None
        self.inline_max = 1 << 16
        self.forgets_blobs = False
        self.held = False
        self.page = 1000
        self._jobs: list[wire.NewJob] = []
        self._clients: list[str] = []
        self._ended: set[int] = set()
        self._results: dict[tuple[int, int], wire.TaskResult] = {}
        self._messages: list[wire.Message] = []
        self._keys: dict[str, wire.Submitted] = {}
        self._blobs: dict[str, bytes] = {}
        self._news = threading.Condition()
        self._sockets: set[socket.socket] = set()
        self._http: ThreadingHTTPServer | None = None
        self.port = port
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen on the same port as before, with everything that was there before."""
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                super().setup()
                fake._sockets.add(self.connection)

            def finish(self) -> None:
                super().finish()
                fake._sockets.discard(self.connection)

            def respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                name, status, answer = fake.answer(self.command, self.path, self.headers, body)
                if name in fake.drop:
                    fake.drop.remove(name)
                    self.close_connection = True
                    return
                content = answer if isinstance(answer, bytes) else wire.encode(answer)
                whole = len(content)
                if name in fake.cut:
                    content = content[: fake.cut.pop(name)]
                    self.close_connection = True
                self.send_response(status)
                self.send_header("Content-Length", str(whole))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_PATCH = respond

            def log_message(self, *_: object) -> None:
                pass

        class Listener(ThreadingHTTPServer):
            allow_reuse_address = True
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a connection that this server cut itself

        self._http = Listener(("127.0.0.1", self.port), Handler)
        self.port = self._http.server_port
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self) -> None:
        """Cut every connection and stop listening, like a server that was killed."""
        assert self._http is not None
        self._http.shutdown()
        self._http.server_close()
        for connection in list(self._sockets):
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # closed by the other side already

    def answer(self, method: str, target: str, headers: Any, body: bytes) -> tuple[str, int, Any]:
        """The name of the route, and the status and body of the answer."""
        parts = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        numbers = [int(part) for part in parts.path.split("/") if part.isdigit()]
        long = [part for part in parts.path.split("/") if len(part) == 64]
        shape = "/".join("{job}" if part.isdigit() and part not in long else part for part in parts.path.split("/"))
        for part in long:
            shape = shape.replace(part, "{upload}")
        route = next(r for r in wire.ROUTES if r.method == method and r.path == shape)
        self.asked[route.name] += 1
        if headers.get("Authorization") != f"Bearer {TOKEN}":
            return route.name, 401, wire.ErrorBody("wrong token", "Look into DATA/token.")
        decoded: Any = body if route.body is bytes else None
        if route.body not in (None, bytes):
            decoded = msgspec.msgpack.decode(body, type=route.body)
        with self._news:
            status, answer = getattr(self, f"_on_{route.name}")(decoded, query, long or numbers)
        return route.name, status, answer

    @property
    def tasks(self) -> list[tuple[int, int]]:
        """Job and number of each task that was ever submitted."""
        return [(number, task) for number, job in enumerate(self._jobs, 1) for task in range(job.tasks)]

    def run_held(self) -> None:
        """Run what was held back."""
        with self._news:
            self.held = False
            for job in range(1, len(self._jobs) + 1):
                self._run(job)

    def _on_nodes(self, *_: Any) -> tuple[int, Any]:
        return 200, wire.NodeList(())

    def _on_policy(self, *_: Any) -> tuple[int, Any]:
        return 200, wire.PolicyText("fcfs")

    def _on_submit(self, body: wire.Submission, *_: Any) -> tuple[int, Any]:
        self.submissions.append(body)
        if body.key in self._keys:
            return 200, self._keys[body.key]
        if self.refuse is not None:
            (status, error), self.refuse = self.refuse, None
            return status, error
        if self.forgets_blobs:
            self.forgets_blobs = False
            self._blobs.clear()
        known = self._blobs | body.blobs
        missing = {
            name
            for job in body.jobs
            if isinstance(job.work, wire.Calls)
            for name in job.work.functions
            if name not in known
        }
        if missing:
            return 422, wire.ErrorBody("functions are missing", missing=tuple(missing))
        self._blobs = known
        first = len(self._jobs) + 1
        self._jobs += body.jobs
        self._clients += [body.client] * len(body.jobs)
        answer = wire.Submitted(tuple(range(first, len(self._jobs) + 1)), len(self._messages))
        self._keys[body.key] = answer
        if not self.held:
            for job in answer.jobs:
                self._run(job)
        return 200, answer

    def run_one(self, job: int, task: int) -> None:
        """Run one of the tasks that were held back; its job ends if it was the last."""
        with self._news:
            self._run_task(job, task)
            self._end_if_done(job, JobStatus.SUCCEEDED)

    def _run(self, job: int) -> None:
        if job in self._ended:
            return
        tasks = range(self._jobs[job - 1].tasks)
        for task in tasks:
            if (job, task) not in self._results:  # else it was cancelled
                self._run_task(job, task)
        failed = any(self._results[job, task].ending.outcome is not Outcome.SUCCEEDED for task in tasks)
        self._end(job, JobStatus.FAILED if failed else JobStatus.SUCCEEDED)

    def _run_task(self, job: int, task: int) -> None:
        new = self._jobs[job - 1]
        ending = self._ending(new.work, task)
        members = tuple([ending] * new.width) if new.width > 1 else ()
        if members and ending.outcome is Outcome.SUCCEEDED:
            ending = wire.TaskEnding(Outcome.SUCCEEDED)
        result = self._results[job, task] = wire.TaskResult(job, task, 1, ending, members)
        self._tell(job, task=task, outcome=ending.outcome, result=result)

    def _ending(self, work: wire.Work, task: int) -> wire.TaskEnding:
        if isinstance(work, wire.Commands):
            command = work.commands[task if len(work.commands) > 1 else 0]
            text = " ".join(command.argv[1:]).replace("{i}", str(task)).encode()
            if command.argv[0] == "false":
                return wire.TaskEnding(Outcome.EXITED, detail="exit status 1", exit_code=1, stderr=text)
            return wire.TaskEnding(Outcome.SUCCEEDED, stdout=text, exit_code=0)
        try:
            function = pickle.loads(self._blobs[work.functions[work.chosen[task] if work.chosen else 0]])
            args, kwargs = pickle.loads(work.args[task])
            return wire.TaskEnding(Outcome.SUCCEEDED, value=pickle.dumps(function(*args, **kwargs)))
        except Exception as error:  # noqa: BLE001  # whatever a task raises is its result
            return wire.TaskEnding(Outcome.RAISED, value=pickle.dumps(error), detail="Traceback: it was there\n")

    def _tell(self, job: int, **what: Any) -> None:
        self._messages.append(wire.Message(len(self._messages) + 1, job, **what))
        self._news.notify_all()

    def _end_if_done(self, job: int, status: JobStatus) -> None:
        done = all((job, task) in self._results for task in range(self._jobs[job - 1].tasks))
        if done and job not in self._ended:
            self._end(job, status)

    def _end(self, job: int, status: JobStatus) -> None:
        self._ended.add(job)
        self._tell(job, status=status)

    def _on_messages(self, _: Any, query: dict[str, str], *__: Any) -> tuple[int, Any]:
        after = int(query.get("after", 0))

        def mine() -> list[wire.Message]:
            wanted = query.get("job")
            return [
                message
                for message in self._messages[after:]
                if (
                    message.job == int(wanted)
                    if wanted is not None
                    else self._clients[message.job - 1] == query["client"]
                )
            ]

        self._news.wait_for(mine, float(query.get("wait", 0)))
        found = mine()[: self.page]
        shown = [
            msgspec.structs.replace(m, result=None)
            if m.result and len(m.result.ending.value or b"") > min(self.inline_max, int(query["results"]))
            else m
            for m in found
        ]
        return 200, wire.Messages(tuple(shown), found[-1].number if found else after)

    def _on_results(self, body: wire.ResultsWanted, *_: Any) -> tuple[int, Any]:
        found = [
            self._results[job, task]
            for part in body.wanted
            for job, task in sorted(self._results)
            if job == part.job and part.first <= task and (part.last is None or task < part.last)
        ]
        return 200, wire.Results(tuple(found[:2]), more=len(found) > 2)

    def _on_cancel(self, body: wire.JobsNamed, *_: Any) -> tuple[int, Any]:
        going = [job for job in body.jobs if job not in self._ended]
        for job in going:
            self._end(job, JobStatus.CANCELLED)
        self.cancelled += going
        return 200, wire.Done(len(going))

    def _on_cancel_tasks(self, body: wire.TasksNamed, _: Any, numbers: list[int]) -> tuple[int, Any]:
        job = numbers[0]
        going = [task for task in body.tasks if job not in self._ended and (job, task) not in self._results]
        self.cancelled_tasks += [(job, task) for task in going]
        for task in going:
            result = self._results[job, task] = wire.TaskResult(job, task, 0, wire.TaskEnding(Outcome.CANCELLED))
            self._tell(job, task=task, outcome=Outcome.CANCELLED, result=result)
        self._end_if_done(job, JobStatus.CANCELLED)
        return 200, wire.Done(len(going))

    def _on_acknowledge(self, body: wire.Acknowledgement, *_: Any) -> tuple[int, Any]:
        self.acknowledged.append(body)
        if any(self._clients[tasks.job - 1] != body.client for tasks in body.results):
            return 403, wire.ErrorBody("which another client submitted")
        return 200, wire.Done(1)

    def _on_upload(self, body: bytes, _: Any, names: list[str]) -> tuple[int, Any]:
        if self.refuse is not None:
            (status, error), self.refuse = self.refuse, None
            return status, error
        self.uploads[names[0]] = body
        return 200, wire.Upload(names[0], len(body))

    def _on_uploaded(self, _: Any, __: Any, names: list[str]) -> tuple[int, Any]:
        if names[0] not in self.uploads:
            return 404, wire.ErrorBody("there is no such upload")
        return 200, wire.Upload(names[0], len(self.uploads[names[0]]))

    def _on_download(self, _: Any, __: Any, names: list[str]) -> tuple[int, Any]:
        if names[0] not in self.uploads:
            return 404, wire.ErrorBody("there is no such upload")
        return 200, self.uploads[names[0]]

    def _on_clear(self, body: wire.JobsNamed, *_: Any) -> tuple[int, Any]:
        self.cleared += body.jobs
        return 200, wire.Done(len(body.jobs))

    def _on_job(self, _: Any, __: Any, numbers: list[int]) -> tuple[int, Any]:
        if not 0 < numbers[0] <= len(self._jobs):
            return 404, wire.ErrorBody(f"there is no job {numbers[0]}")
        return 200, wire.JobDetail(self._report(numbers[0]), (), (), None)

    def _on_jobs(self, _: Any, query: dict[str, str], *__: Any) -> tuple[int, Any]:
        after = int(query.get("after", 0))
        jobs = range(after + 1, len(self._jobs) + 1)
        return 200, wire.JobList(tuple(self._report(job) for job in jobs[:2]), more=len(jobs) > 2)

    def _report(self, job: int) -> wire.JobReport:
        new = self._jobs[job - 1]
        ended = job in self._ended
        return wire.JobReport(
            id=job,
            name=new.name,
            user="me",
            kind=new.kind,
            status=JobStatus.SUCCEEDED if ended else JobStatus.WAITING,
            tasks=new.tasks,
            width=new.width,
            done=new.tasks if ended else 0,
            failed=0,
            running=0,
            priority=new.priority,
            rate=new.rate,
            shape=new.shape,
            estimate=new.estimate,
            submitted=1,
            release=new.release or 1,
            due=new.due,
            started=None,
            ended=2 if ended else None,
        )


@pytest.fixture
def server() -> Iterator[FakeServer]:
    """A server that works properly unless a test changes that."""
    fake = FakeServer()
    yield fake
    fake.stop()


@pytest.fixture
def client(server: FakeServer) -> Iterator[Client]:
    """A client of that server."""
    with Client(server.url, token=TOKEN) as client:
        yield client
