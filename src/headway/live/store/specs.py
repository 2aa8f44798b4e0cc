"""Reads the terms of jobs from rows, and remembers those of large jobs: to read these takes a while."""

from __future__ import annotations

from typing import Final

import msgspec

from headway.model.job import AnyJob, JobSpec
from headway.wire.reading import any_form, is_packed

REMEMBERED_TASKS: Final = 300_000
"""Jobs of so many tasks together are remembered; the last one in any case."""

_decode = msgspec.msgpack.Decoder(AnyJob, dec_hook=any_form).decode


class Specs:
    """What the column `spec` says. Equal bytes are equal terms, so what is remembered is never out of date."""

    def __init__(self) -> None:
        self._large: dict[bytes, JobSpec] = {}

    def of(self, body: bytes) -> JobSpec:
        """The terms of a job."""
        if not is_packed(body):
            spec: JobSpec = _decode(body)
            return spec
        found = self._large.pop(body, None)
        self.remember(body, _decode(body) if found is None else found)
        return self._large[body]

    def remember(self, body: bytes, spec: JobSpec) -> None:
        """Remember the terms of a large job; those that nobody read for the longest time are forgotten for it."""
        self._large[body] = spec
        tasks = sum(each.tasks for each in self._large.values())
        for oldest, other in list(self._large.items())[:-1]:
            if tasks <= REMEMBERED_TASKS:
                break
            tasks -= other.tasks
            del self._large[oldest]
