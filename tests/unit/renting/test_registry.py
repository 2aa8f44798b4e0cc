"""Providers by name, and what each is told."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from headway.errors import HeadwayError, InvalidInput
from headway.renting import registry
from headway.renting.processes import Processes

AWS = {"region": "eu-west-1", "image": "ami-12345678"}


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        ("azure", {}, "provider is 'azure'; allowed: processes or slurm or aws"),
        ("process", {}, r"provider is 'process'; .*\nDid you mean processes"),
        ("processes", {"folder": "/x"}, "command is None; allowed: a list of words"),
        ("processes", {"folder": "", "command": ["a"]}, "folder is ''; allowed: a text"),
        ("processes", {"folder": "/x", "command": "sleep 1"}, "command is 'sleep 1'; allowed: a list of words"),
        ("processes", {"folder": "/x", "command": []}, r"command is \[\]; allowed: a list of words"),
        ("aws", {"region": "eu-west-1"}, "image is None; allowed: a text"),
        (
            "aws",
            AWS | {"imge": "x"},
            r"imge is 'x'; .* option of provider aws: region, .*\nDid you mean image",
        ),
        ("aws", AWS | {"user_data": "x" * 16_385}, "user_data is 'x.*; allowed: a script, at most 16384 bytes"),
        ("aws", AWS | {"security_groups": "sg"}, "security_groups is 'sg'; allowed: a list of names"),
        ("aws", AWS | {"endpoint": "here"}, "endpoint is 'here'; allowed: an address"),
    ],
)
def test_what_is_not_allowed_is_named(kind: str, options: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        registry.make(kind, "cloud", options, "c")


def test_processes_are_made(tmp_path: Path) -> None:
    assert isinstance(
        registry.make("processes", "here", {"folder": str(tmp_path), "command": ["true"]}, "c"), Processes
    )
    (tmp_path / "file").touch()
    with pytest.raises(HeadwayError, match=r"folder .* for rented processes: File exists"):
        registry.make("processes", "here", {"folder": str(tmp_path / "file"), "command": ["true"]}, "c")


def test_without_boto3_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None if name == "boto3" else find_spec(name))
    with pytest.raises(HeadwayError, match=r"site 'cloud' rents machines of AWS, .*\n.*headway\[aws\]"):
        registry.make("aws", "cloud", AWS, "c")


def test_credentials_that_are_not_there_are_named() -> None:
    with pytest.raises(HeadwayError, match=r"site 'cloud' cannot rent machines of AWS: .*nobody"):
        registry.make("aws", "cloud", AWS | {"profile": "nobody"}, "c")
