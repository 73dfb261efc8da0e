"""What the model would lose with a kernel or a shell, in words for the model.

Everything read here comes out of the sandbox: it is bounded, and shown as names only.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

MOST_NAMES, LONGEST_NAME, LONGEST_FOLDER = 20, 60, 500
_JOB = re.compile(r"^\[\d+\][ +-] +Running +(?P<command>.*?) ?&?$", re.MULTILINE)
_BASH_VARIABLES = {"_", "OLDPWD", "BASH_REMATCH", "COLUMNS", "LINES", "PIPESTATUS", "OPTARG"}
"""Variables that bash sets by itself while commands run."""
_LABELS = {"variables": "variables", "definitions": "functions and classes", "imports": "imports"}


def describe_kernel(reply: Any) -> str:
    """Describe what a kernel's memory holds.

    Args:
        reply: As the kernel program reports it: per sort how many names, and the first of them;
            `folder` if it left the workspace. Code in the kernel may have changed it.
    """
    parts: list[str] = []
    reported = cast("dict[str, Any]", reply) if isinstance(reply, dict) else {}
    for sort, label in _LABELS.items():
        match reported.get(sort):
            case [int(count), [*names]]:
                parts.append(f"{label} {_listed(names, count)}")
            case _:
                pass
    if folder := reported.get("folder"):
        parts.append(f"its folder {_name(folder, LONGEST_FOLDER)}")
    return f"Python: {'; '.join(parts)}." if parts else ""


@dataclass(frozen=True)
class ShellState:
    """A snapshot of a shell's state after a command."""

    jobs: tuple[str, ...] = ()
    """Commands that run in the background."""
    folder: str = ""
    path: str = ""
    variables: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


SHELL_STATE_COMMAND = (
    r"""{ jobs -r; builtin printf '\036%s' "$PWD" "$PATH" '';"""
    r" builtin compgen -v; builtin printf '\036'; builtin compgen -A function || :;"
    r" builtin printf '\036'; builtin compgen -a || :; }"
)
"""The command that prints what `read_shell_state` reads; of builtins only: it starts no program."""


def read_shell_state(text: str) -> ShellState:
    """Read what `SHELL_STATE_COMMAND` printed."""
    jobs, folder, path, *names = (text.split("\x1e") + [""] * 5)[:6]
    found = tuple(match["command"] for match in _JOB.finditer(jobs))
    return ShellState(found, folder, path, *(tuple(part.split()) for part in names))


def describe_shell(now: ShellState, fresh: ShellState) -> str:
    """Describe the diff of a shell's state to that of a new shell."""
    parts = (
        [f"its folder {_name(now.folder, LONGEST_FOLDER)}"] if now.folder != fresh.folder else []
    )
    variables = [n for n in now.variables if n not in {*fresh.variables, *_BASH_VARIABLES}]
    variables += ["PATH"] if now.path != fresh.path else []
    for label, names in (
        ("variables", variables),
        ("functions", now.functions),
        ("aliases", now.aliases),
        ("running in the background:", now.jobs),
    ):
        if names:
            parts.append(f"{label} {_listed(names, len(names))}")
    return f"Shell: {'; '.join(parts)}." if parts else ""


def _listed(names: Sequence[Any], count: int) -> str:
    shown = [_name(name) for name in names[:MOST_NAMES]]
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more


def _name(name: Any, longest: int = LONGEST_NAME) -> str:
    plain = "".join(c if c.isprintable() else "?" for c in str(name))
    return plain if len(plain) <= longest else f"{plain[: longest - 1]}…"
