"""Calls the function of a `python:` check. Runs in the sandbox, where only Python itself is sure.

Arguments: module and function.
"""

import importlib
import sys
import traceback
from pathlib import Path

FAILED, FAULTY = 65, 70
"""Exit codes: the check does not hold; the check itself is wrong."""
ANSWER = "answer.txt"
"""What the agent answered, in the folder of this file."""


def main(module: str, function: str) -> int:
    answer = (Path(__file__).parent / ANSWER).read_text(encoding="utf-8")
    try:
        verdict = getattr(importlib.import_module(module), function)(answer, Path.cwd())
    except BaseException as error:  # noqa: BLE001  # whatever it raises is shown, exits too
        sys.stdout.write("".join(traceback.format_exception_only(error)))
        sys.stdout.write("".join(traceback.format_tb(error.__traceback__)[1:]))
        return FAULTY
    if verdict is True:
        return 0
    if verdict is False or (isinstance(verdict, str) and verdict):
        said = verdict or f"{module}:{function} returned False."
        sys.stdout.write(f"{said}\n")
        return FAILED
    sys.stdout.write(f"It returned {verdict!r}, which is neither True, False nor a text.\n")
    return FAULTY


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
