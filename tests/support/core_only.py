"""Runs a script as after an install without extras: `python core_only.py SCRIPT ARGUMENT...`.

Modules that only extras and the development group bring cannot be imported.
"""

import importlib.abc
import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from types import ModuleType

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def core_distributions() -> set[str]:
    """Return what `pip install openmanus-graph` installs, without any extra."""
    found, todo = set[tuple[str, str]](), [("openmanus-graph", "")]
    while todo:
        name, extra = one = todo.pop()
        if one in found:
            continue
        found.add(one)
        try:
            needed = map(Requirement, requires(name) or [])
        except PackageNotFoundError:  # of another platform
            continue
        for requirement in needed:
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                dependency = canonicalize_name(requirement.name)
                todo += [(dependency, wanted) for wanted in ("", *requirement.extras)]
    return {name for name, _ in found}


class ExtrasMissing(importlib.abc.MetaPathFinder):
    """Finds no module that none of the core's distributions has."""

    def __init__(self) -> None:
        core = core_distributions()
        self.missing = {
            module
            for module, names in packages_distributions().items()
            if not core & set(map(canonicalize_name, names))
        }

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] in self.missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, ExtrasMissing())
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
