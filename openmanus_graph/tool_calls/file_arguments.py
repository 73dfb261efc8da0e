"""What the tools that take a path have in common."""

import os
from collections.abc import Mapping
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import WithJsonSchema

# Left out or null, a parameter is not given; the schema need not spend tokens on saying so.
MaybeText = Annotated[str | None, WithJsonSchema({"type": "string"})]
MaybeNumber = Annotated[int | None, WithJsonSchema({"type": "integer"})]
MaybeNumbers = Annotated[
    list[int] | None, WithJsonSchema({"type": "array", "items": {"type": "integer"}})
]


def file_resource(args: Mapping[str, Any]) -> str:
    """Name the file a call uses, so that calls on one file run in order.

    By the last part of its path: it is the same for an absolute and a relative path, and a
    declaration does not know the workspace that would tell more.
    """
    path = os.path.normpath(str(args.get("path", "")))
    return "file:" + PurePath(path).name.casefold()
