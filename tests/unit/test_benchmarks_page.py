"""docs/benchmarks.md has only what `make bench` prints, so that the next one deletes nothing."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAD, *SECTIONS = (ROOT / "docs" / "benchmarks.md").read_text("utf-8").strip().split("\n\n## ")


def pattern(text: ast.expr) -> str:
    """What a text of a script may become: any figures where it fills some in, any white space for its own.

    A text without a letter of its own, such as `f"{name}, {figure}"`, tells nothing.
    """
    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
    words = "".join(str(part.value) if isinstance(part, ast.Constant) else "\0" for part in parts)
    if "\0" in words and not re.search("[a-z]", words):
        return "(?!)"
    return r"\s+".join(re.escape(word) for word in words.split()).replace("\\\x00", "\0").replace("\0", ".*?")


@cache
def texts(script: str) -> dict[str, list[str]]:
    """The patterns of a script's arguments of `section`, `paragraph` and `table`, by where they come on the page."""
    found: dict[str, list[str]] = {"title": [], "paragraph": [], "head": []}
    for call in ast.walk(ast.parse((ROOT / "bench" / script).read_text("utf-8"))):
        match call:
            case ast.Call(ast.Attribute(attr="section"), [title, text, *_]):
                found["title"].append(pattern(title))
                found["paragraph"].append(pattern(text))
            case ast.Call(ast.Attribute(attr="paragraph"), [text]):
                found["paragraph"].append(pattern(text))
            case ast.Tuple([ast.Constant() | ast.JoinedStr() as first, *_]):  # among them the heads of all tables
                found["head"].append(pattern(first))
    return found


def kind(block: str) -> str:
    """Where a block of a section comes."""
    return "head" if block.startswith("|") else "paragraph"


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.partition("\n")[0])
def test_a_section_has_only_what_its_script_prints(section: str) -> None:
    title, *blocks, measured, command = section.split("\n\n")
    assert re.fullmatch(r"Measured on \d{1,2} [A-Z][a-z]+ \d{4} by", measured), "see section() in bench/measure.py"
    script = command.removeprefix("    python bench/")
    printed = texts(script)
    shown = [("title", title), *((kind(block), block.split("|")[1] if block[0] == "|" else block) for block in blocks)]
    for where, text in shown:
        assert any(re.fullmatch(one, text.strip(), re.DOTALL) for one in printed[where]), (
            f"bench/{script} does not print this, so the next `make bench` deletes it. What holds for every run "
            f"belongs into the script, what tells of one day into docs/benchmarks-notes.md:\n{text}"
        )


def test_the_page_begins_as_make_bench_begins_it() -> None:
    (form,) = re.findall(
        r'^HEAD = """(.*?)"""', (ROOT / "bench" / "run.py").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    assert re.fullmatch(re.sub(r"\\\{.*?\\\}", ".*?", re.escape(form)), HEAD)
