"""Policies from files, for simulations: `my_policies.py:WidestFit,most=64`."""

from __future__ import annotations

import importlib.util
import inspect
import re
import sys
import traceback
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from headway.errors import HeadwayError, InvalidInput, did_you_mean
from headway.model.policy import Policy
from headway.policies import registry

_FORM: Final = re.compile(r"(?P<file>[^:]+?\.py)(?::(?P<rest>.*))?", re.DOTALL)
"""No colon stands before the file: `sites:each=my.py` is a text of the policy `sites`."""


def find(text: str) -> Policy:
    """The policy of a text: `NAME[:KEY=VALUE,...]` of an installed one, or `FILE.py[:NAME][,KEY=VALUE,...]`.

    A file is run as a program is: what stands at its top level happens. The name may be left out where the file has
    only one policy.

    Raises:
        InvalidInput: there is no such policy, or it has no such parameter or value.
        HeadwayError: the file cannot be read or run, or what it has under the name is not a policy.
    """
    form = _FORM.fullmatch(text.strip())
    if form is None:
        return registry.find(text)
    path = Path(form["file"]).expanduser()
    arguments = form["rest"] or ""
    name, *others = (part.strip() for part in re.split("[,:]", arguments, maxsplit=1))
    if "=" in name:
        name = ""
    else:
        arguments = "".join(others)
    module = _module(path)
    found = {known: value for known, value in vars(module).items() if _is_policy(value, module)}
    if not name:
        if not found:
            hint = "A class of the file is a policy if it has the attribute `per_instant`."
            raise HeadwayError(f"there is no policy in {path}", hint)
        if len(found) != 1:
            raise InvalidInput(f"policies in {path}", ", ".join(found), f"one, or say which: {path}:NAME")
        (name,) = found
    factory = getattr(module, name, None)
    if not callable(factory):
        allowed = ", ".join(found) or "the name of a policy; there is none in this file"
        raise InvalidInput(f"policy in {path}", name, allowed, hint=did_you_mean(name, found))
    return registry.made(f"{path}:{name}", factory, arguments)


def _is_policy(value: Any, module: ModuleType) -> bool:
    """Whether something that a file has looks like a policy of its own."""
    return inspect.isclass(value) and value.__module__ == module.__name__ and hasattr(value, "per_instant")


def _module(path: Path) -> ModuleType:
    try:
        changed = path.stat().st_mtime_ns
    except OSError as error:
        hint = "A policy from a file is named FILE.py:NAME, relative to the current folder."
        raise HeadwayError(f"cannot read the policy file {path}: {error.strerror or error}", hint) from error
    return _run(path.resolve(), changed)


@lru_cache
def _run(path: Path, changed: int) -> ModuleType:
    """A file as a module, run once for each time that it was changed."""
    name = f"headway_policy_file_{path.stem}_{changed}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))  # what it imports may lie beside it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        place = f"{path}:{line}" if line else str(path)
        raise HeadwayError(f"the policy file cannot be run: {place}: {type(error).__name__}: {error}") from error
    return module
