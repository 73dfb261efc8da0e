"""Git for the sandbox: the user's name and e-mail."""

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

_VARIABLES = {"user.name": "GIT_AUTHOR_NAME", "user.email": "GIT_AUTHOR_EMAIL"}
_OWN_SCOPES = ("system", "global", "command")
"""Parts of the configuration that belong to the user, and not to the repository."""
_ASKS_FOR_IDENTITY = re.compile(r'^ *git config --global user\.(?:name|email) "', re.MULTILINE)
"""In git's message in every language, if it knows no name or no e-mail."""
_NO_IDENTITY = (
    "[git does not know the user's name and e-mail. Do not invent them. Ask the user, then run "
    "`git -c user.name=NAME -c user.email=EMAIL commit ...`, or leave the changes uncommitted and "
    "say so.]"
)
_READ_S = 10.0


def identity(folder: Path, *, repositorys: bool = False) -> dict[str, str]:
    """Return the user's name and e-mail, as far as git knows them in a folder. Blocks.

    Reading a configuration runs no program. The repository's own counts only with `repositorys`:
    programs of the sandbox may have written it, and git reads it there anyway.
    """
    found, printed = dict[str, str](), b""
    command = ["git", "-C", str(folder), "config", "-z", "--show-scope", "--get-regexp"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        printed = subprocess.run(
            [*command, r"^user\.(name|email)$"],
            capture_output=True,
            timeout=_READ_S,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ).stdout
    words = printed.decode("utf-8", "replace").split("\0")
    for scope, entry in zip(words[::2], words[1::2], strict=False):
        key, _, value = entry.partition("\n")
        found |= {key: value} if repositorys or scope in _OWN_SCOPES else {}
    found |= {key: os.environ[name] for key, name in _VARIABLES.items() if name in os.environ}
    return {key: value for key, value in found.items() if value.strip()}


def identity_file(known: Mapping[str, str]) -> str:
    """Return a configuration of git with a name and an e-mail, which git then never invents."""
    lines = ["[user]", "\tuseConfigOnly = true"]
    for key, value in known.items():
        quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines.append(f'\t{key.partition(".")[2]} = "{quoted}"')
    return "\n".join([*lines, ""])


def with_advice(output: str) -> str:
    """Return a program's output; if git asks there for a name and an e-mail, with what to do."""
    return f"{output}\n{_NO_IDENTITY}" if _ASKS_FOR_IDENTITY.search(output) else output
