"""The texts, types and defaults of declared settings, as they are in the source."""

import ast
import inspect
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any, cast

from openmanus_graph.config.files import DeclaredField


def texts_of(kind: type[Any]) -> Mapping[str, str]:
    """Return the docstring of each field of a class."""
    body = _body(kind)
    found: dict[str, str] = {}
    for named, said in zip(body, body[1:], strict=False):
        target = named.target if isinstance(named, ast.AnnAssign) else None
        value = said.value if isinstance(said, ast.Expr) else None
        if isinstance(target, ast.Name) and isinstance(value, ast.Constant):
            found[target.id] = " ".join(str(value.value).split())
    return found


def source_of(one: DeclaredField) -> str:
    """Return the type that `Context` takes for a field, as it is written in the declaration."""
    (annotation,) = (
        node.annotation
        for node in _body(one.owner)
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == one.name
    )
    kind, *metadata = cast("ast.Tuple", cast("ast.Subscript", annotation).slice).elts
    for call in metadata:
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "Setting":
            given = {each.arg: each.value for each in call.keywords}
            kind = given.get("passed") or given.get("written") or kind
    return ast.unparse(kind)


def default_text(one: DeclaredField) -> str:
    """Return a field's default for a text; empty if it has none."""
    default = one.field.default
    value = None if default is MISSING else default
    if one.setting.shown or value is None or value in ((), ""):
        return one.setting.shown
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, int | float) else f"`{value}`"


def _body(kind: type[Any]) -> list[ast.stmt]:
    (node,) = ast.parse(inspect.getsource(kind)).body
    return cast("ast.ClassDef", node).body
