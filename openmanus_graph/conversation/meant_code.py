"""Reads code as small models write it where Python is wanted. Pure."""

import ast
import csv
import glob
import json
import math
import os
import re
import shutil

Call = tuple[str, dict[str, str]]

_PYTHON_C = re.compile(r"""python3? -c (['"])(.*)\1""", re.DOTALL)
_SHELL = re.compile(
    r"(?:awk|bash|cat|cd|chmod|cp|curl|cut|diff|echo|find|git|grep|head|ls|mkdir|mv|pip3?|printf"
    r"|pytest|python3?|rm|sed|sh|sort|tail|tar|test|touch|tr|uniq|unzip|wc|wget|zip) .*",
    re.DOTALL,
)

_MODULES = {one.__name__: one for one in (csv, glob, json, math, os, re, shutil)}
_IMPORTS = {
    **{name: f"import {name}" for name in _MODULES},
    "np": "import numpy as np",
    "pd": "import pandas as pd",
    "plt": "import matplotlib.pyplot as plt",
}
"""The lines that bring well-known modules, by the name that code has for them."""


def meant_call(code: str) -> Call | None:
    """Return the tool and the arguments that are meant by code that lacks something.

    They are `bash` for a shell's command. Line breaks within a string are escaped again: JSON took
    the escapes that the model wrote. Well-known modules are imported that are used without it.
    None if it lacks nothing, or is nothing that is known.
    """
    code = code.strip()
    mended = _with_escapes(code)
    if mended is not None:
        mended = _with_imports(mended)
        return None if mended == code else ("python_execute", {"code": mended})
    inner = _PYTHON_C.fullmatch(code)
    if inner and _with_escapes(inner[2]) == inner[2]:
        return "python_execute", {"code": inner[2]}
    return ("bash", {"command": code}) if _SHELL.fullmatch(code) else None


def _with_escapes(code: str) -> str | None:
    """Return code that compiles, with line breaks in its strings escaped; None if it does not."""
    for _ in range(code.count("\n") + 1):
        try:
            compile(code, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            cut = getattr(error, "lineno", None) or 0
            lines = code.split("\n")
            if "unterminated" not in str(error) or not 0 < cut < len(lines):
                return None
            joined = f"{lines[cut - 1]}\\n{lines[cut]}"
            code = "\n".join([*lines[: cut - 1], joined, *lines[cut + 1 :]])
        else:
            return code
    return None


def _with_imports(code: str) -> str:
    """Return code with the imports that it lacks."""
    nodes = [*ast.walk(ast.parse(code))]
    own = {one.arg for one in nodes if isinstance(one, ast.arg)}
    own |= {one.id for one in nodes if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    for one in nodes:
        if isinstance(one, ast.Import | ast.ImportFrom):
            own |= {(name.asname or name.name).partition(".")[0] for name in one.names}
    used = {
        one.value.id
        for one in nodes
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)
        # A variable of an earlier cell may have the module's name.
        if hasattr(_MODULES.get(one.value.id), one.attr) or one.value.id not in _MODULES
    }
    lacking = [line for name, line in _IMPORTS.items() if name in used - own]
    if "__future__" in code:  # which has to come first
        return code
    return "\n".join([*lacking, code])
