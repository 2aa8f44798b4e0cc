"""Damages a copy of a data directory, and checks that a server on it reports the damage or has everything."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

from headway import Client
from headway.errors import HeadwayError

START_SECONDS = 60.0
LEFT_OUT = ("nodes", "fences", "checkpoints", "url", "lock", "services")
"""What is not copied: the nodes go on with the server that was copied from, and their instances on its socket."""


def copy(data: Path, to: Path) -> None:
    """Copy what a server has on disk, without its nodes."""
    shutil.copytree(data, to, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)


def damage(data: Path, chance: random.Random) -> str:
    """Delete, cut or empty one file, or flip a part of it. Returns what was done, in words."""
    files = sorted(
        path
        for path in data.iterdir()
        if path.is_file() and path.name not in ("token", "secret") and path.stat().st_size
    )
    path = chance.choice([path for path in files if path.name.startswith("journal")] * 3 + files)
    size = path.stat().st_size
    match chance.choice(["delete", "empty", "cut", "flip", "flip"]):
        case "delete":
            path.unlink()
            return f"{path.name} deleted"
        case "empty":
            path.write_bytes(b"")
            return f"{path.name} emptied"
        case "cut":
            left = chance.randrange(size)
            with path.open("r+b") as file:
                file.truncate(left)
            return f"{path.name} cut from {size} to {left} bytes"
        case _:
            place = chance.randrange(size)
            with path.open("r+b") as file:
                file.seek(place)
                byte = file.read(1)[0]
                file.seek(place)
                file.write(bytes([byte ^ (1 << chance.randrange(8))]))
            return f"{path.name}, byte {place} of {size} changed"


def start(data: Path, folder: Path) -> set[int] | None:
    """Start a server on it. Returns the ids of all jobs that it knows, or None if it refuses and says why.

    Raises:
        RuntimeError: it refuses and does not say why, or neither starts nor ends.
    """
    log = folder / "damaged.log"
    command = [sys.executable, "-m", "headway", "up", "--json", "--data", str(data), "--slots", "1"]
    with log.open("wb") as err:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=err, text=True)
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                process.wait(START_SECONDS)
                said = log.read_text(errors="replace")
                if "Traceback" in said or "rror" not in said:
                    raise RuntimeError(f"a damaged directory is not refused as it should be:\n{said[-2000:]}")
                return None
            assert json.loads(line)["url"]
            try:
                with Client(data=data, patience=0) as client:
                    return {job.id for job in client.jobs()}
            except HeadwayError as error:
                if getattr(error, "status", 500) < 500:
                    raise RuntimeError(f"damage is told of as the caller's fault: {error}") from error
                return None
        finally:
            process.terminate()
            try:
                process.wait(START_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
