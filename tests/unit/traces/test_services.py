"""Tables of services, and files of their requests: what they say, and what is refused with its place."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from headway import NodeSpec, ServiceLoad, simulate, workload_of
from headway.errors import InvalidInput
from headway.metrics import penalty_by_service, service_measures, write_services
from headway.model.job import PenaltyShape
from headway.traces.services import read_requests, read_services

LOG = """\
local - - [24/Oct/1994:13:41:41 -0600] "GET index.html HTTP/1.0" 200 150
local - - [24/Oct/1994:13:41:43 -0600] "GET 1.gif HTTP/1.0" 200 1210
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "web.csv").write_text("processing,arrival\n50ms,1\n0.1,1.5\n")
    (tmp_path / "plain.csv").write_text("arrival\n1\n1\n3\n")
    (tmp_path / "log.gz").write_bytes(gzip.compress(LOG.encode()))
    return tmp_path


def services(folder: Path, *lines: str) -> list[dict[str, Any]]:
    (folder / "s.csv").write_text("\n".join(lines))
    return read_services(folder / "s.csv").terms


def test_cells_that_are_empty_have_their_defaults(folder: Path) -> None:
    (found,) = services(folder, "service,requests,max", "web,web.csv,")
    assert (found.pop("arrivals").tolist(), found.pop("processing").tolist()) == ([1.0, 1.5], [0.05, 0.1])
    assert found == {
        "name": "web",
        "threshold": 1.0,
        "fraction": 0.9,
        "rate": 1.0,
        "shape": PenaltyShape.LINEAR,
        "least": 1,
        "most": None,
        "window": 20.0,
        "begin": 0.0,
        "warm_up": 0.0,
    }


def test_each_column_is_a_term_of_the_service(folder: Path) -> None:
    heading = "shape,service,requests,processing,threshold,fraction,rate,min,max,window,release,warm_up"
    _, found = services(folder, heading, ",a,plain.csv,1,,,,,,,,", "sqrt,log,log.gz,80ms,200ms,0.5,7,2,3,1m,2m,3")
    assert found.pop("arrivals").tolist() == [41 * 60 + 41, 41 * 60 + 43], "from the hour of the first one"
    assert found == {
        "name": "log",
        "processing": 0.08,
        "threshold": 0.2,
        "fraction": 0.5,
        "rate": 7.0,
        "shape": PenaltyShape.SQUARE_ROOT,
        "least": 2,
        "most": 3,
        "window": 60.0,
        "begin": 120.0,
        "warm_up": 3.0,
    }


def test_a_simulation_runs_them_and_measures_them(folder: Path) -> None:
    """One request takes 50 ms and is in time, the other one 100 ms and is late: half of the share is missing."""
    loads = [ServiceLoad(**one) for one in services(folder, "service,requests,threshold,rate", "w,web.csv,60ms,10")]
    jobs = workload_of(release=[0], runtime=[30], estimate=[30])
    done = simulate(jobs, [NodeSpec("n", slots=2)], "services:top=sf", services=loads)
    (measured,) = map(service_measures, done.services)
    assert (measured["arrivals"], measured["share_in_time"], measured["penalty"]) == (2, 0.5, pytest.approx(4.0))
    assert penalty_by_service(done) == {"w": pytest.approx(4.0)}
    write_services(done, folder / "out.csv")
    lines = (folder / "out.csv").read_text().splitlines()
    assert lines[0] == "service,start,length,arrivals,in_time,queued,instances,penalty"
    assert lines[1].startswith("w,0.0,20.0,2,1,0,1.0,4.0")


def test_broken_lines_of_a_log_are_left_out_and_told(folder: Path) -> None:
    (folder / "log").write_text(f"{LOG}x [y] z\n")
    (folder / "s.csv").write_text("service,requests,processing\na,log,1\nb,log,2\n")
    found = read_services(folder / "s.csv")
    assert [len(one["arrivals"]) for one in found.terms] == [2, 2]
    (note,) = found.notes
    assert note.startswith("log: broken lines left out: 1, the first: ")
    assert "log:3: time is 'x [y] z'" in note


@pytest.mark.parametrize(
    ("heading", "row", "words"),
    [
        ("", "", "s.csv:1: heading is ''; allowed: service, requests"),
        ("service", "a", "s.csv:1: columns is 'service'; allowed: requests among them"),
        ("service,requests,rates", "", "s.csv:1: column is 'rates'; allowed: service"),
        ("service,requests", "", "s.csv: number of services is 0; allowed: 1 or more"),
        ("service,requests", ",web.csv", "s.csv:2: service is ''; allowed: a name"),
        ("service,requests", "a,", "s.csv:2: requests is ''; allowed: the name of a file"),
        ("service,requests", "a", "s.csv:2: number of cells is 1; allowed: 2, as in the heading"),
        ("service,requests", "a,web.csv\na,web.csv", "s.csv:3: service is 'a'; allowed: a name that no other line has"),
        ("service,requests", "a,plain.csv", "s.csv:2: processing is ''; allowed: seconds.*: plain.csv does not say it"),
        ("service,requests,processing", "a,web.csv,1", "s.csv:2: processing is '1'; allowed: nothing: web.csv says it"),
        ("service,requests,threshold", "a,web.csv,0", "s.csv:2: threshold is '0'; allowed: seconds, above 0"),
        ("service,requests,threshold", "a,web.csv,-1s", "s.csv:2: threshold is '-1s'; allowed: seconds, above 0"),
        ("service,requests,window", "a,web.csv,nan", "s.csv:2: window is 'nan'; allowed: seconds, above 0"),
        ("service,requests,fraction", "a,web.csv,1.1", "s.csv:2: fraction is '1.1'; allowed: a number above 0"),
        ("service,requests,fraction", "a,web.csv,nan", "s.csv:2: fraction is 'nan'; allowed: a number above 0"),
        ("service,requests,rate", "a,web.csv,-1", "s.csv:2: rate is '-1'; allowed: a number, 0 or more"),
        ("service,requests,shape", "a,web.csv,cubic", "s.csv:2: shape is 'cubic'; allowed: linear, sqrt, square"),
        ("service,requests,min", "a,web.csv,-1", "s.csv:2: min is '-1'; allowed: a whole number, 0 or more"),
        ("service,requests,min,max", "a,web.csv,3,2", "s.csv:2: min is 3; allowed: at most 2, which is max"),
        ("service,requests,max", "a,web.csv,0", "s.csv:2: max is '0'; allowed: a whole number from 1"),
        ("service,requests,release", "a,web.csv,2", "s.csv:2: release is '2'; allowed: no later than .* at 1 s"),
    ],
)
def test_wrong_tables_are_refused_with_their_place(folder: Path, heading: str, row: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        services(folder, heading, row)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "r.csv:1: heading is ''; allowed: arrival, processing"),
        ("processing\n1", "r.csv:1: columns is 'processing'; allowed: arrival among them"),
        ("arrival\n", "r.csv: number of requests is 0; allowed: 1 or more"),
        ("arrival\n2\n1\n", "r.csv:3: arrival is '1'; allowed: seconds, no less than in the line before"),
        ("arrival,processing\n,1\n", "r.csv:2: arrival is ''; allowed: seconds, no less"),
        ("arrival\nx\n", "r.csv:2: arrival is 'x'; allowed: seconds, 0 or more"),
        ("arrival,processing\n1,1\n2,\n", "r.csv:3: processing is ''; allowed: a time in each line, or in none"),
        ("arrival,processing\n1,-1\n", "r.csv:2: processing is '-1'; allowed: seconds, 0 or more"),
        ("a [1] b\n", "r.csv: log is 'empty'; allowed: one request or more"),
    ],
)
def test_wrong_requests_are_refused_with_their_place(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "r.csv").write_text(text)
    with pytest.raises(InvalidInput, match=words):
        read_requests(tmp_path / "r.csv")
