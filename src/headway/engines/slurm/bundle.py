"""All modules of a runner of commands in one file of the shared folder: it is read in one go, not module by module.

The server makes the file when it starts, in a Python that imports what a runner does. A runner uses it only if the file
is whole, this is the very same Python, and no module's own file has changed since (`install`). In any other case, it
imports as usual. So a file that is old, damaged or missing costs time, and nothing else.

The file: a hash of the rest (`_imp.source_hash`), the modules by name (`marshal`), the version of Python. The code of
this module is in it too: the program of a job runs it before it can import anything (`jobs`).
"""

# No annotation is a name here that is not there when this runs: `__future__` would be one more import.

import _imp
import marshal
import os
import sys
from _frozen_importlib_external import ExtensionFileLoader, SourceFileLoader, spec_from_file_location

TYPE_CHECKING = False  # as far as a type checker knows, it is true: see `start`
if TYPE_CHECKING:
    from collections.abc import Iterable
    from importlib.machinery import ModuleSpec
    from types import CodeType, ModuleType
    from typing import Any

    Kept = tuple[str, int, int, bool, CodeType | None]
    """Path of a module's file, when it was changed last, its size, whether it is a package; the code, if not in C."""

HASH_SIZE = 8


class _Finder:
    """Finds and loads modules whose code is known."""

    def __init__(self, known: "dict[str, Kept]") -> None:
        self._known = known

    def find_spec(self, name: str, path: object = None, target: object = None) -> "ModuleSpec | None":
        """Where a module comes from; None: it is not one of these."""
        if name not in self._known:
            return None
        file, _, _, is_package, code = self._known[name]
        loader: Any = ExtensionFileLoader(name, file) if code is None else self
        places = [os.path.dirname(file)] if is_package else None
        return spec_from_file_location(name, file, loader=loader, submodule_search_locations=places)

    def create_module(self, spec: "ModuleSpec") -> "ModuleType | None":
        """As usual."""

    def exec_module(self, module: "ModuleType") -> None:
        """Run the code of a module."""
        code = self._known[module.__name__][-1]
        assert code is not None
        exec(code, module.__dict__)


def install(known: "dict[str, Kept]") -> None:
    """Import these modules from here, unless the file of one of them is another one now.

    Raises:
        OSError: the file of a module is gone.
    """
    for path, changed, size, _, _ in known.values():
        status = os.stat(path)
        if status.st_mtime_ns != changed or status.st_size != size:
            return
    sys.meta_path.insert(0, _Finder(known))


def write(path: str, but: "Iterable[str]") -> None:
    """Keep what this process has imported, in a file that everybody may read.

    Args:
        but: modules that each Python has before it runs a program.

    Raises:
        OSError: it cannot be written.
    """
    known: dict[str, Kept] = {}
    for name in sys.modules.keys() - set(but):
        loader = getattr(sys.modules[name], "__loader__", None)
        if isinstance(loader, SourceFileLoader | ExtensionFileLoader):
            status = os.stat(loader.path)
            code = loader.get_code(name)
            known[name] = loader.path, status.st_mtime_ns, status.st_size, loader.is_package(name), code
    body = marshal.dumps(known) + sys.version.encode()
    draft = f"{path}.draft"
    try:
        with open(draft, "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(_imp.source_hash(0, body) + body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
