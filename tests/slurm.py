"""A Slurm of our own: real daemons in a folder, with ports of their own, and four nodes of four processors."""

from __future__ import annotations

import getpass
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil

from .apart import Apart
from .waiting import free_port, until

NODES = ("n", "a", "b", "m")

CPUS = 4

MEMORY = 8000
"""MiB of each node."""

_PATH = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"))

_CONF = """
ClusterName=test
SlurmctldHost=localhost({host})
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={port}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=2,max_rpc_cnt=150
SlurmdTimeout=3
MessageTimeout=2
TCPTimeout=1
KillWait=2
MinJobAge=60
ReturnToService=1
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
MpiDefault=none
MailProg=/bin/true
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=10
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100
PartitionName=brief Nodes={last} MaxTime=1 State=UP PriorityTier=10
"""


def lacking() -> str:
    """What of Slurm is not installed here; empty if nothing is missing."""
    needed = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "scontrol", "sinfo")
    missing = [name for name in needed if shutil.which(name, path=_PATH) is None]
    hint = "on Debian: apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge"
    return f"{', '.join(missing)} not installed; {hint}" if missing else ""


def _ports(count: int) -> list[int]:
    """Several free ports."""
    with ExitStack() as held:
        found = []
        for _ in range(count):
            found.append(free_port())
            held.enter_context(socket.create_server(("127.0.0.1", found[-1])))
    return found


def tried(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str] | None:
    """What a command of Slurm did; None if it failed."""
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=20, check=False, cwd="/")
    return None if done.returncode else done


def mark(node: str, state: str) -> None:
    """Let an administrator change the state of a node: `down`, `drain`, `resume`."""
    reason = () if state == "resume" else ("Reason=test",)
    assert tried("scontrol", "update", f"NodeName={node}", f"State={state.upper()}", *reason)


class Cluster:
    """The daemons, while the context lasts.

    Args:
        names: of the nodes that have a slurmd each.
        more: further lines of slurm.conf.
        apart: where the last node is, if not here.

    Attributes:
        conf: the path of slurm.conf; commands find the cluster by SLURM_CONF.
    """

    def __init__(self, names: Sequence[str] = NODES, more: str = "", apart: Apart | None = None) -> None:
        self.names = names
        self._apart = apart
        self._more = more
        self.folder = Path(tempfile.mkdtemp(prefix="headway-slurm-"))
        self.conf = self.folder / "slurm.conf"
        self._environment = {**os.environ, "PATH": _PATH, "SLURM_CONF": str(self.conf)}
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Cluster:
        try:
            self._begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> None:
        controller, *ports = _ports(1 + len(self.names))
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        of_nodes = f"NodeHostname=localhost CPUs={CPUS} RealMemory={MEMORY} State=UNKNOWN"
        here, far = ("127.0.0.1", "127.0.0.1") if self._apart is None else (self._apart.near, self._apart.far)
        lines = [
            f"NodeName={name} NodeAddr={far if name == self.names[-1] else here} Port={port} {of_nodes}"
            for name, port in zip(self.names, ports, strict=True)
        ]
        nodes = "\n".join([*lines, self._more])
        terms = {"host": here, "user": getpass.getuser(), "port": controller, "folder": self.folder, "nodes": nodes}
        terms["last"] = self.names[-1]
        self.conf.write_text(_CONF.format(**terms))
        places = [f"--{word}={self.folder}/munge.{word.split('-')[0]}" for word in ("socket", "key-file", "seed-file")]
        logs = [f"--log-file={self.folder}/munged.log", f"--pid-file={self.folder}/munged.pid"]
        self._start("munged", "munged", "--foreground", "--force", *places, *logs)
        until((self.folder / "munge.socket").exists)
        self.start_controller()
        for name in self.names:
            self.start_node(name)
        until(lambda: all(self.state(name) == "idle" for name in self.names))

    def __exit__(self, *_: object) -> None:
        for daemon in self._daemons.values():
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(2)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        while left := self._processes():  # what dies may just have started more
            for process in left:
                with suppress(psutil.Error):
                    process.kill()
            psutil.wait_procs(left, 5)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """All processes that know this cluster, except this one.

        A slurmstepd writes its title over the first of its variables, where psutil then stops reading.
        """
        known, found = f"SLURM_CONF={self.conf}".encode(), []
        for process in psutil.process_iter():
            with suppress(OSError):
                environment = Path(f"/proc/{process.pid}/environ").read_bytes()
                if known in environment.split(b"\0") and process.pid != os.getpid():
                    found.append(process)
        return found

    def _start(self, name: str, *words: str, apart: Apart | None = None) -> None:
        program = shutil.which(words[0], path=_PATH)
        assert program is not None
        keeper = shutil.which("setpriv")  # so that nothing stays if the tests are killed
        prefix = () if keeper is None else (keeper, "--pdeathsig", "KILL")
        with (self.folder / f"{name}.printed").open("ab") as printed:
            self._daemons[name] = subprocess.Popen(
                [*prefix, program, *words[1:]] if apart is None else apart.within(*prefix, program, *words[1:]),
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                start_new_session=True,
            )

    def _kill(self, name: str) -> None:
        daemon = self._daemons.pop(name)
        daemon.kill()
        daemon.wait()

    def start_controller(self) -> None:
        """Start slurmctld, and wait until it answers."""
        self._start("slurmctld", "slurmctld", "-D", "-i", "-f", str(self.conf))
        until(lambda: self.tried("scontrol", "ping") and "UP" in self.run("scontrol", "ping"))

    def stop_controller(self) -> None:
        """End slurmctld in order: killed, it would have forgotten the last seconds, with the jobs of a short test."""
        daemon = self._daemons.pop("slurmctld")
        daemon.terminate()
        daemon.wait()

    def kill_controller(self) -> None:
        """Kill slurmctld: it forgets the last seconds."""
        self._kill("slurmctld")

    def pause(self, name: str) -> None:
        """Stop a daemon, until `resume`."""
        self._daemons[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a stopped daemon go on."""
        self._daemons[name].send_signal(signal.SIGCONT)

    def steps(self) -> list[psutil.Process]:
        """The slurmstepd of each job that runs, which watches over it."""
        return [process for process in self._processes() if process.name() == "slurmstepd"]

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        apart = self._apart if name == self.names[-1] else None
        self._start(name, "slurmd", "-D", "-f", str(self.conf), "-N", name, apart=apart)

    def kill_node(self, name: str) -> None:
        """Kill a slurmd. What it has started goes on, as on a node that the network has lost."""
        self._kill(name)

    def tried(self, *words: str) -> subprocess.CompletedProcess[str] | None:
        """What a command of Slurm did; None if it failed."""
        return tried(*words, environment=self._environment)

    def run(self, *words: str) -> str:
        """What a command of Slurm prints."""
        done = self.tried(*words)
        assert done is not None, f"{words} failed"
        return done.stdout

    def state(self, node: str) -> str:
        """The state of a node in Slurm. (`sinfo` calls it mixed for a while after a job has left it.)"""
        done = self.tried("scontrol", "show", "node", node, "--oneliner")
        found = None if done is None else re.search(r" State=(\S+)", done.stdout)
        return "" if found is None else found[1].lower()

    def jobs(self, *more: str) -> Sequence[str]:
        """Names of the jobs in the queue."""
        return self.run("squeue", "--noheader", "--format=%j", *more).split()

    def mend(self) -> None:
        """After a test: no job, all nodes idle."""
        self.tried("scancel", f"--user={getpass.getuser()}")
        for name in self.names:
            if name not in self._daemons:
                self.start_node(name)
            if self.state(name) not in ("idle", "completing"):
                self.tried("scontrol", "update", f"NodeName={name}", "State=RESUME")
        until(lambda: all(self.state(name) == "idle" for name in self.names))
