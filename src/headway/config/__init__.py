"""The cluster file: which sites and nodes there are and the lines between them, in TOML.

```toml
[[site]]           # a place under one engine; sites of this machine need no table
name = "cellar"
engine = "local"   # what runs tasks there: local, dask, slurm, or what a package adds; default "local"
startup = 0        # how long a task holds its slots there before it begins: seconds, or "2m"; default 0

[[node]]
name = "big"       # unique in the cluster
slots = 8          # shares of the node that a task can hold; default 1
speed = 1.5        # work per second relative to a reference node; default 1
cores = 16         # default one a slot
site = "cellar"    # default "local"; one whose engine does not find its nodes by itself
kind = "xeon-2014" # class of machines on which a task runs alike; default: all of one speed are
lease = 30         # silence after which it counts as lost: seconds, or "1m"; default that of `up --lease`
idle_watts = 75    # what it draws when nothing runs there, and when all its slots are busy; both or none
peak_watts = 94
count = 3          # that many alike, named big-1, big-2, big-3; default one, named big

[power]            # switch idle nodes off; without it, they stay on
off_after = "10m"  # idle for so long: seconds, or a duration in quotes; without it, only by `headway node off`
off_seconds = 30   # how long it takes until a node is off, and until it is on
on_seconds = 120
off_watts = 5      # what it draws when it is off; default 0
switch_joules = 0  # what switching on takes beyond its idle power; default 0
min_on = 1         # so many nodes of the site stay on; default 0
off_command = ["/usr/local/bin/node-off"]   # on a server: run with the node's name as the last argument
on_command = ["/usr/local/bin/node-on"]
limit = "10m"      # on a server: a node that is not off, or on, after this counts as stuck

[network]          # what data that tasks send takes; without it, it costs nothing
within = { bandwidth = 1.25e9, latency = "50us" }   # between nodes of one site
between = { bandwidth = 125e6, latency = "20ms" }   # between nodes of different sites

[[link]]           # other than that
between = ["big-1", "big-3"]   # two nodes, or two sites
bandwidth = 12.5e6 # bytes per second; default: any number of bytes in no time
latency = 0.1      # seconds, or a duration in quotes; default 0
```

Machines that can be rented, and what they may cost in all:

```toml
[[offer]]
site = "public"    # where; no [[node]] need be there
type = "c5.large"  # its name there
slots = 2          # of the node that it is; also speed, cores and kind, as of a [[node]]
price = 0.085      # of an hour, in whatever currency
billed = 1         # in whole periods of this: seconds, or a duration in quotes such as "1h"; default 1
minimum = 60       # billed at least; default 60
start = "90s"      # from asking for it until it is a node, by estimate; default 0
limit = 20         # so many at once; 0: no more than there are; default 1
spot = true        # can be taken back at any time; default false

[[prices]]         # more offers, from a price list (docs/reference/price-lists.md)
site = "public"
file = "ec2.csv"   # a relative path counts from the cluster file
region = "us-east-1"
types = ["c5.large", "m5.large"]   # default: all of the region
spot = true        # also machines that can be taken back, as "c5.large/spot"; default false
reference = "m5.large"   # the type of speed 1; default: speeds as in the list
start = "90s"      # of all of them, instead of what the list says; also limit
limit = 20

[renting]
budget_day = 20    # what is paid in one day, by UTC; default: any amount
budget_job = 5     # for one job; default: any amount
limit = "10m"      # a machine that has not joined so long after it should have is given back; default 10 min
margin = "60s"     # given back so long before more would have to be paid; default 60 s
```

Who rents machines out on a server (a simulation needs none), once for each site with offers:

```toml
[[provider]]
site = "public"
provider = "aws"   # aws, slurm or processes; what else its table has is said in `headway.renting.registry`
region = "eu-west-1"
image = "ami-0123456789abcdef0"
```

Where sites differ, write [[power]] instead, once for each site, with `site = "cellar"`; one without it is for all
others.

The sites are preferred in the order of their tables, by a policy that prefers sites (`sites:top=prefer`). Those without
a table come last.

Dask and Slurm find their nodes by themselves: no [[node]] names such a site. What else its table has is said by the
engine (`headway.engines.registry`); a relative folder counts from the file's own.

```toml
[[site]]
name = "attic"
engine = "dask"
address = "tls://10.0.0.1:8786"   # of the scheduler
tls = "/etc/headway/tls"          # folder with ca.crt, node.crt and node.key

[[site]]
name = "desk"
engine = "dask"
start = "local"                   # start a cluster: "local", "ssh", or a class such as "dask_jobqueue.PBSCluster"
options = { threads_per_worker = 4 }   # the arguments of that class
workers = 2

[[site]]
name = "hpc"
engine = "slurm"
partition = "main"
folder = "/shared/headway"        # which the server and the site's nodes share
```
"""

# ruff: noqa: F401  # the names of its modules are imported from here

from __future__ import annotations

from headway.config.nodes import uniform_cluster
from headway.config.reading import (
    parse_cluster,
    parse_network,
    parse_renting,
    parse_sites,
    parse_switching,
    parse_terms,
    read_cluster,
    read_network,
    read_providers,
    read_renting,
    read_sites,
    read_switching,
    read_terms,
    with_line,
)
from headway.config.tables import CLUSTER_FILE_MAX
from headway.config.writing import write_cluster
