"""Dask for tests: a real scheduler and real workers, all in one process or each in its own, over TCP or TLS.

    python tests/dask_site.py FOLDER TLS NAME=THREADS...

is the one process: it writes the scheduler's address into FOLDER/address and serves until it is killed.
"""

from __future__ import annotations

import asyncio
import datetime
import ipaddress
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.reproduce.kim12.dask import QUIET, scheduler_words, worker_words

if TYPE_CHECKING:  # this file is also a program, without its package
    from .apart import Apart

PATIENCE = 60.0


def certificates(folder: Path, *, host: str = "127.0.0.1") -> Path:
    """A folder with a new authority, and a certificate of it that is good for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.datetime.now(datetime.UTC)
    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    base = x509.CertificateBuilder().not_valid_before(now - datetime.timedelta(days=2))
    signed = (
        base.subject_name(name("authority"))
        .issuer_name(name("authority"))
        .public_key(authority.public_key())
        .serial_number(1)
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(authority, hashes.SHA256())
    )
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host)), x509.DNSName("localhost")])
    node = (
        base.subject_name(name("node"))
        .issuer_name(name("authority"))
        .public_key(key.public_key())
        .serial_number(2)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(authority, hashes.SHA256())
    )
    folder.joinpath("ca.crt").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    folder.joinpath("node.crt").write_bytes(node.public_bytes(serialization.Encoding.PEM))
    folder.joinpath("node.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


def security(tls: Path | None) -> Any:
    """How scheduler and workers are secured."""
    from distributed.security import Security

    if tls is None:
        return Security()
    files = {role: str(tls / name) for role, name in (("cert", "node.crt"), ("key", "node.key"))}
    terms = {f"tls_{who}_{what}": path for who in ("scheduler", "worker", "client") for what, path in files.items()}
    return Security(tls_ca_file=str(tls / "ca.crt"), require_encryption=True, **terms)


async def serve(folder: Path, tls: Path | None, threads: dict[str, int]) -> None:
    """Be a scheduler and its workers, until killed."""
    from distributed import Scheduler, Worker

    terms: dict[str, Any] = {"security": security(tls), "dashboard": False, "protocol": "tls" if tls else "tcp"}
    async with Scheduler(host="127.0.0.1", port=0, **terms) as scheduler:
        started = [
            Worker(scheduler.address, name=name, nthreads=count, memory_limit=0, local_directory=str(folder), **terms)
            for name, count in threads.items()
        ]
        await asyncio.gather(*started)
        folder.joinpath("address.draft").write_text(scheduler.address)
        folder.joinpath("address.draft").rename(folder / "address")
        await asyncio.Event().wait()


class Processes:
    """Processes of a test that are killed with all that they started.

    Args:
        host: the address of the scheduler.
    """

    def __init__(self, folder: Path, tls: Path | None = None, host: str = "127.0.0.1") -> None:
        self.folder = folder
        self.tls = tls
        self.host = host
        self.address = ""
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        folder.mkdir(parents=True, exist_ok=True)

    def one(self, **threads: int) -> Processes:
        """Scheduler and workers in one process."""
        words = [f"{name}={count}" for name, count in threads.items()]
        self._start("all", [__file__, str(self.folder), str(self.tls or ""), *words])
        self.address = self._wait("all", self.folder / "address")
        return self

    def scheduler(self, port: int = 0) -> Processes:
        """A scheduler by itself."""
        (self.folder / "scheduler.json").unlink(missing_ok=True)
        words = scheduler_words(self.folder / "scheduler.json", self.host, port)
        self._start("scheduler", [*words, *self._certificates()])
        import json

        self.address = json.loads(self._wait("scheduler", self.folder / "scheduler.json"))["address"]
        return self

    def worker(
        self, name: str, threads: int = 2, *, nanny: bool = False, preload: str = "", apart: Apart | None = None
    ) -> None:
        """A worker by itself.

        Args:
            preload: what it runs first.
            apart: where it runs, if not here.
        """
        words = self.worker_words(name, threads, nanny=nanny, apart=apart)
        if preload:
            (self.folder / f"{name}.py").write_text(preload)
            words += ["--preload", str(self.folder / f"{name}.py")]
        self._start(name, words, apart)

    def worker_words(
        self, name: str, threads: int = 2, *, nanny: bool = False, apart: Apart | None = None
    ) -> list[str]:
        """What Python is to run as a worker of the scheduler."""
        host = self.host if apart is None else apart.far
        words = worker_words(self.address, name, threads, self.folder, host, nanny=nanny)
        return [*words, *self._certificates()]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        """Send a signal to one of them."""
        os.kill(self.running[name].pid, number)
        if number == signal.SIGKILL:
            self.running.pop(name).wait()

    def end_or_kill(self, name: str, seconds: float) -> None:
        """Wait until one of them has ended by itself; if it has not by then, kill it."""
        try:
            self.running[name].wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill(name)

    def end(self) -> None:
        """Kill all."""
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()
        self.running.clear()

    def _certificates(self) -> list[str]:
        if self.tls is None:
            return []
        files = {"--tls-ca-file": "ca.crt", "--tls-cert": "node.crt", "--tls-key": "node.key"}
        return ["--protocol", "tls", *(word for flag, file in files.items() for word in (flag, str(self.tls / file)))]

    def _start(self, name: str, words: list[str], apart: Apart | None = None) -> None:
        if name in self.running:
            self.running.pop(name).wait(PATIENCE)
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, *words] if apart is None else apart.within(sys.executable, *words),
                env=os.environ | QUIET,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )

    def _wait(self, name: str, file: Path) -> str:
        until = time.monotonic() + PATIENCE
        while not (file.exists() and (text := file.read_text())):
            log = (self.folder / f"{name}.log").read_text("utf-8", "replace")
            assert self.running[name].poll() is None, log
            assert time.monotonic() < until, log
            time.sleep(0.02)
        return text


if __name__ == "__main__":
    given = dict(word.split("=") for word in sys.argv[3:])
    certified = Path(sys.argv[2]) if sys.argv[2] else None
    asyncio.run(serve(Path(sys.argv[1]), certified, {name: int(count) for name, count in given.items()}))
