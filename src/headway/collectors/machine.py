"""Headway's own collectors: the machine that nodes are on, and what each node itself uses of it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import psutil

from headway.collectors.base import Measures, Node


class Rates:
    """Counters that only grow, turned into rates from one look to the next."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[float, Mapping[str, float]]] = {}

    def per_second(self, of: str, counters: Mapping[str, float], now: float | None = None) -> dict[str, float]:
        """How fast counters have grown since the last look; nothing at the first.

        Args:
            of: the name of the process or device that has the counters; a new one starts from nothing.
            counters: by name. One that fell (its process ended) counts as unchanged.
            now: seconds on any clock that does not go back; None: the machine's.
        """
        now = time.monotonic() if now is None else now
        before = self._before.get(of)
        self._before[of] = (now, counters)
        if before is None or before[0] >= now:
            return {}
        since, earlier = before
        return {
            name: max(0.0, value - earlier[name]) / (now - since) for name, value in counters.items() if name in earlier
        }

    def forget_all_but(self, of: Sequence[str]) -> None:
        """Let go of the counters of others."""
        self._before = {name: kept for name, kept in self._before.items() if name in of}


class MachineUse:
    """The machine: the same for all its nodes. `load` (processes, over a minute), `cpu_share`, memory, disks, network.

    `disk_busy_share` is of the busiest disk: the part of the time in which it had something to do.
    """

    def __init__(self) -> None:
        self._rates = Rates()

    def __call__(self, nodes: Sequence[Node]) -> Measures:
        """Measure the machine once, for all nodes that are on it."""
        here = [node.name for node in nodes if node.pid]
        return dict.fromkeys(here, self._measure()) if here else {}

    def _measure(self) -> dict[str, float]:
        memory = psutil.virtual_memory()
        found = {
            "load": psutil.getloadavg()[0],
            "memory_share": memory.percent / 100,
            "memory_available_bytes": float(memory.available),
        }
        times = psutil.cpu_times()
        spent = self._rates.per_second("cpu", {"idle": times.idle + times.iowait, "all": sum(times[:8])})
        if spent.get("all"):
            found["cpu_share"] = max(0.0, 1 - spent["idle"] / spent["all"])
        counters: dict[str, float] = {}
        if disks := psutil.disk_io_counters():
            counters |= {"disk_read": disks.read_bytes, "disk_write": disks.write_bytes}
        if network := psutil.net_io_counters():
            counters |= {"network_received": network.bytes_recv, "network_sent": network.bytes_sent}
        rates = self._rates.per_second("bytes", counters)
        found |= {f"{name}_bytes_per_second": rate for name, rate in rates.items()}
        each = psutil.disk_io_counters(perdisk=True)
        busy = self._rates.per_second("busy", {name: disk.busy_time / 1000 for name, disk in each.items()})
        if busy:
            found["disk_busy_share"] = min(1.0, max(busy.values()))
        return found


class NodeProcesses:
    """Each node's own processes, tasks among them: `processes`, `processors` that they keep busy, memory, disk traffic.

    Of processes that have ended what is known to those that waited for them is counted, so that short ones are not
    missed.
    """

    def __init__(self) -> None:
        self._rates = Rates()

    def __call__(self, nodes: Sequence[Node]) -> Measures:
        """Measure every node of this machine."""
        here = {f"{node.name} {node.pid}": node for node in nodes if node.pid}  # a new process is a new name
        self._rates.forget_all_but(list(here))
        return {node.name: self._measure(of, node.processes()) for of, node in here.items()}

    def _measure(self, of: str, pids: Sequence[int]) -> dict[str, float]:
        counters = {"cpu": 0.0, "read": 0.0, "write": 0.0}
        found = {"processes": 0.0, "memory_bytes": 0.0}
        for pid in pids:
            try:
                process = psutil.Process(pid)
                with process.oneshot():
                    counters["cpu"] += sum(process.cpu_times()[:4])
                    found["memory_bytes"] += process.memory_info().rss
                io = process.io_counters()
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue  # it has ended meanwhile, or belongs to another user
            found["processes"] += 1
            counters["read"] += io.read_bytes
            counters["write"] += io.write_bytes
        rates = self._rates.per_second(of, counters)
        if rates:
            found["processors"] = rates["cpu"]
            found["disk_read_bytes_per_second"] = rates["read"]
            found["disk_write_bytes_per_second"] = rates["write"]
        return found
