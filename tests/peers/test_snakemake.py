"""A real Snakemake runs workflows on a real server, through our plugin. `make snakemake` installs what this needs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headway import Client
from headway.wire import JobReport

from ..waiting import LIMIT, until
from .conftest import serving

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = ROOT / "integrations" / "snakemake-executor-plugin-headway" / "src"
SNAKEMAKE = Path(os.environ.get("HEADWAY_SNAKEMAKE", ROOT / ".venv-snakemake" / "bin" / "snakemake"))

PATIENCE = 240.0
"""Seconds. A workflow takes longer than a job."""

pytestmark = [
    pytest.mark.peers,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SNAKEMAKE.exists(), reason=f"{SNAKEMAKE} is not there; `make snakemake` installs it"),
]

THIRTY = """
FIRST, SECOND = range(20), range(9)

rule all:
    input: "last"

for number in FIRST:
    rule:
        name: f"first{number}"
        output: f"first/{number}"
        params: number=number
        priority: number
        resources: runtime=1, due=600 + number
        shell: "date +%s.%N > {output}; echo {params.number} >> {output}; date +%s.%N >> {output}"

for number in SECOND:
    rule:
        name: f"second{number}"
        input: [f"first/{other}" for other in FIRST if other % 9 == number]
        output: f"second/{number}"
        threads: 2 if number % 4 == 0 else 1
        shell:
            "date +%s.%N > {output}; for one in {input}; do sed -n 2p $one; done >> {output};"
            "date +%s.%N >> {output}"

rule last:
    input: [f"second/{number}" for number in SECOND]
    output: "last"
    resources: priority=50, runtime="2m"
    shell: "for one in {input}; do sed '1d;$d' $one; done | sort -n > {output}"
"""

FAILS = """
rule all:
    input: "fails", "goes-on"

rule fails:
    output: "fails"
    resources: runtime=lambda wildcards, attempt: attempt
    shell: "echo the reason >&2; exit 3"

rule goes_on:
    output: "goes-on"
    shell: "echo done > {output}"
"""

SLEEPS = """
rule all:
    input: expand("slept/{number}", number=range(3))

rule sleeps:
    output: "slept/{number}"
    shell: "touch began{wildcards.number}; sleep 600; touch {output}"
"""

WAITS = """
rule waits:
    output: "waited"
    shell: "touch began; until [ -e go ]; do sleep 0.1; done; echo once >> {output}"
"""


@pytest.fixture
def client(data: Path) -> Iterator[Client]:
    with Client(data=data) as client:
        yield client


def command(*options: str) -> list[str]:
    return [str(SNAKEMAKE), "--executor", "headway", "--jobs", "unlimited", "--latency-wait", "20", *options]


def environment(data: Path) -> dict[str, str]:
    """The environment variables of a user with Snakemake's environment active, and the plugin from the sources."""
    path = f"{SNAKEMAKE.parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(PLUGIN), "HEADWAY_DATA_DIR": str(data)}


def run(folder: Path, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*options), cwd=folder, env=environment(data), capture_output=True, text=True)


def jobs_of(client: Client, folder: Path) -> list[JobReport]:
    """The jobs of a workflow, by their names."""
    return [job for job in client.jobs() if job.name.startswith(f"{folder.name}: ")]


def while_it_runs(process: subprocess.Popen[str], holds: Callable[[], bool]) -> None:
    """Wait until this is so, while a process runs."""

    def held() -> bool:
        assert process.poll() is None, process.communicate()
        return holds()

    until(held, PATIENCE)


@pytest.mark.parametrize("policy", ["sites:top=rr,each=heft", "sites:top=fill,each=heft"])
def test_a_workflow_uses_both_sites(tmp_path: Path, policy: str) -> None:
    folder, flow = tmp_path / "up", tmp_path / "flow"
    folder.mkdir()
    flow.mkdir()
    (flow / "Snakefile").write_text(THIRTY)
    with serving(folder, 2, sites=("east", "west"), policy=policy) as data, Client(data=data) as client:
        assert client.policy() == policy
        ran = run(flow, data)
        assert ran.returncode == 0, ran.stderr
        jobs = {job.name.split(": ")[1]: job for job in jobs_of(client, flow)}
        assert {job.status.value for job in jobs.values()} == {"succeeded"}
        ran_on = {name: sites_of(client, job) for name, job in jobs.items()}
    assert (flow / "last").read_text().split() == [str(number) for number in range(20)]
    assert len(ran_on) == 30
    assert all(len(sites) == 1 for sites in ran_on.values()), "the slots of a job are all at one site"
    dealt = Counter(site for sites in ran_on.values() for site in sites)
    assert dealt.keys() == {"east", "west"}
    if "top=rr" in policy:
        assert dealt == {"east": 15, "west": 15}


def sites_of(client: Client, job: JobReport) -> set[str]:
    """Where a job ran; each site has one node, of its name."""
    return {slot.split("/")[0] for result in client.results(job.id) for slot in result.slots}


def test_thirty_rules(tmp_path: Path, data: Path, client: Client) -> None:
    (tmp_path / "Snakefile").write_text(THIRTY)
    ran = run(tmp_path, data, "--headway-due", "3h")
    assert ran.returncode == 0, ran.stderr
    assert (tmp_path / "last").read_text().split() == [str(number) for number in range(20)]
    jobs = {job.name.split(": ")[1]: job for job in jobs_of(client, tmp_path)}
    assert len(jobs) == 30
    assert {job.status.value for job in jobs.values()} == {"succeeded"}
    for number in range(20):
        job = jobs[f"first{number}"]
        assert job.due is not None
        assert (job.priority, job.estimate) == (number, 60)
        assert 600 + number - LIMIT < job.due - job.submitted <= 600 + number
    assert (jobs["last"].priority, jobs["last"].estimate) == (50, 120)
    dues = [jobs[f"second{number}"].due for number in range(9)]
    assert dues[0] is not None
    assert all(due is not None and abs(due - dues[0]) < 1 for due in dues), "one due date, for all of the workflow"
    assert 2.5 * 3600 < dues[0] - jobs["first0"].submitted <= 3 * 3600
    assert [jobs[f"second{number}"].kind for number in (0, 1)] == ["workflow", "bag"]
    times = {}
    for part, count in (("first", 20), ("second", 9)):
        for number in range(count):
            lines = (tmp_path / part / str(number)).read_text().split()
            times[part, number] = float(lines[0]), float(lines[-1])
    for wide in (0, 4, 8):
        begin, end = times.pop(("second", wide))
        assert all(other[1] <= begin or end <= other[0] for other in times.values()), "it has both slots to itself"


def test_a_rule_that_fails_is_retried_by_snakemake_and_the_others_go_on(
    tmp_path: Path, data: Path, client: Client
) -> None:
    (tmp_path / "Snakefile").write_text(FAILS)
    ran = run(tmp_path, data, "--retries", "1", "--keep-going")
    assert ran.returncode == 1
    assert (tmp_path / "goes-on").read_text() == "done\n"
    jobs = [job for job in jobs_of(client, tmp_path) if job.name.endswith(": fails")]
    assert [(job.status.value, job.estimate) for job in jobs] == [("failed", 60), ("failed", 120)]
    assert f"Job {jobs[0].id} of Headway: exit status 1." in ran.stderr
    logs = re.findall(r"log: (\S+headway_logs\S+)", ran.stderr)
    assert len(set(logs)) == 2
    assert all("the reason\n" in Path(log).read_text() for log in logs)


def test_ctrl_c_cancels_what_runs_and_what_waits(tmp_path: Path, data: Path, client: Client) -> None:
    (tmp_path / "Snakefile").write_text(SLEEPS)
    process = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(data), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        while_it_runs(process, lambda: len(list(tmp_path.glob("began*"))) == 2)
        while_it_runs(process, lambda: len(jobs_of(client, tmp_path)) == 3)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 1, said
    assert [job.status.value for job in jobs_of(client, tmp_path)] == ["cancelled"] * 3, said
    until(lambda: not client.jobs(status="open"))


def test_jobs_are_taken_up_again_after_snakemake_was_killed(tmp_path: Path, data: Path, client: Client) -> None:
    (tmp_path / "Snakefile").write_text(WAITS)
    process = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(data), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        while_it_runs(process, (tmp_path / "began").exists)
    finally:
        process.kill()
        process.communicate()
    assert run(tmp_path, data, "--unlock").returncode == 0
    again = subprocess.Popen(
        command(), cwd=tmp_path, env=environment(data), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    (job,) = jobs_of(client, tmp_path)
    assert again.stderr is not None
    said = []
    with again.stderr:
        for line in again.stderr:
            said.append(line)
            if " of Headway" in line:
                (tmp_path / "go").touch()
    assert again.wait(timeout=PATIENCE) == 0, said
    assert f"Job 0 is job {job.id} of Headway, from an earlier run.\n" in said
    assert (tmp_path / "waited").read_text() == "once\n"
    assert [known.id for known in jobs_of(client, tmp_path)] == [job.id]
    assert not list((tmp_path / ".snakemake" / "headway_jobs").iterdir())


def test_what_cannot_be_scheduled_is_told(tmp_path: Path, data: Path) -> None:
    (tmp_path / "Snakefile").write_text('rule wide:\n    output: "a"\n    threads: 64\n    shell: "touch a"\n')
    ran = run(tmp_path, data)
    assert ran.returncode == 1
    assert "Headway does not accept the job:" in ran.stderr
    (tmp_path / "Snakefile").write_text(
        'rule late:\n    output: "a"\n    resources: due="tomorow"\n    shell: "touch a"\n'
    )
    ran = run(tmp_path, data)
    assert "Headway does not accept the job: due is 'tomorow'; allowed: " in ran.stderr
    ran = run(tmp_path, data, "--headway-due", "soon")
    assert ran.returncode == 1
    assert "--headway-due is 'soon'; allowed: " in ran.stderr
    ran = run(tmp_path, data, "--headway-data", str(tmp_path / "nothing"))
    assert ran.returncode == 1
    assert "no server is known" in ran.stderr


def test_the_plugin_is_a_package_of_its_own(data: Path) -> None:
    env = {name: value for name, value in environment(data).items() if name != "PYTHONPATH"}
    said = subprocess.run([str(SNAKEMAKE), "--help"], env=env, capture_output=True, text=True, check=True).stdout
    assert "--headway-due WHEN" in said
    assert re.search(r"--executor.*\{[^}]*\bheadway\b", said, re.DOTALL)
