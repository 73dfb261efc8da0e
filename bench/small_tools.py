"""The tools that other agents get for the small tasks. Runs in their environments, too."""

import ast
import contextlib
import io
import os
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

MOST_CHARS = 10_000
TIMEOUT_S = 120
_variables: dict[str, Any] = {"__name__": "__main__"}
_lock = threading.Lock()  # output is caught for the whole process


def python(code: str) -> str:
    """Run Python code in the working folder. Variables are kept between calls.

    Args:
        code: The code. What it prints and the value of its last expression are returned.
    """
    printed = io.StringIO()
    with _lock, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        if os.getcwd() not in sys.path:  # noqa: PTH109  # a text
            sys.path.append(os.getcwd())  # noqa: PTH109  # modules beside the task's files
        try:
            _execute(code)
        except BaseException:  # noqa: BLE001  # whatever it is, the model is shown it
            traceback.print_exc(limit=-1)
    return _cut(printed.getvalue())


def _execute(code: str) -> None:
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<code>", "exec"), _variables)
    if isinstance(last, ast.Expr):
        value = eval(compile(ast.Expression(last.value), "<code>", "eval"), _variables)
        if value is not None:
            print(repr(value))  # noqa: T201  # as an interactive Python


def bash(command: str) -> str:
    """Run a shell command in the working folder.

    Args:
        command: The command. Its output and errors are returned.
    """
    try:
        done = subprocess.run(
            ["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"Stopped after {TIMEOUT_S} seconds."
    status = f"\nExit status {done.returncode}." if done.returncode else ""
    return _cut(done.stdout + status)


def read_file(path: str) -> str:
    """Read a text file.

    Args:
        path: Its path, from the working folder.
    """
    try:
        return _cut(Path(path).read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        return f"{type(error).__name__}: {error}"


def write_file(path: str, text: str) -> str:
    """Write a text file; folders are made, and a file that is there is replaced.

    Args:
        path: Its path, from the working folder.
        text: The whole content.
    """
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    return f"Wrote {path}."


def _cut(text: str) -> str:
    left_out = len(text) - MOST_CHARS
    if left_out <= 0:
        return text or "(no output)"
    half = MOST_CHARS // 2
    return f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"
