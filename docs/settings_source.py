"""Writes the fields of `Context` and the options of the command from the declared settings."""

import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import SecretStr

from docs.declared_texts import default_text, source_of, texts_of
from openmanus_graph.config.files import DeclaredField, bare_type, declared_fields

PACKAGE = Path(__file__).parent.parent / "openmanus_graph"
CONTEXT = PACKAGE / "state" / "context.py"
OPTIONS = PACKAGE / "interfaces" / "service" / "options.py"
_LINK = re.compile(r"\[([^\]]+)\]\([^)]*\)")


def context_source(text: str) -> str:
    """Return the text of `state/context.py` with its fields as they are declared now."""
    fields = {one.context: _context_field(one) for one in declared_fields() if one.context}
    return _formatted(_renewed(text, "fields", fields))


def options_source(text: str) -> str:
    """Return the text of `service/options.py` with its options as they are declared now."""
    given = [one for one in declared_fields() if one.option]
    of_run = {one.option: _option(one) for one in given if one.table != "storage"}
    of_storage = {one.option: _option(one) for one in given if one.table == "storage"}
    return _formatted(_renewed(_renewed(text, "options", of_run), "storage options", of_storage))


def _renewed(text: str, mark: str, fields: dict[str, str]) -> str:
    """Replace the fields between two marks. Those that are there keep their order."""
    match = re.search(rf"^    # {mark}:.*\n((?:.*\n)*?)(?=    # /{mark}\n)", text, re.MULTILINE)
    assert match is not None, mark
    known = [name for name in re.findall(r"^    (\w+):", match[1], re.MULTILINE) if name in fields]
    lines = "".join(fields[name] for name in dict.fromkeys([*known, *fields]))
    return text[: match.start(1)] + lines + text[match.end(1) :]


def _context_field(one: DeclaredField) -> str:
    kind = source_of(one).removesuffix(" | None")
    text = _LINK.sub(r"\1", texts_of(one.owner)[one.name])
    default = default_text(one)
    said = f"{text} Default{'' if one.setting.shown == '' else ':'} {default}." if default else text
    docstring = textwrap.fill(f'"""{said}"""', 96, break_long_words=False, break_on_hyphens=False)
    return f"    {one.context}: {kind} | None = None\n{textwrap.indent(docstring, '    ')}\n"


def _option(one: DeclaredField) -> str:
    kind = _option_kind(one.setting.passed or one.written)
    flags = f'"{one.setting.option}/--no-{one.setting.option[2:]}", ' if kind == "bool" else ""
    lines = textwrap.wrap(_help(one), 80, drop_whitespace=False, break_on_hyphens=False)
    arguments = f"{flags}help={' '.join(map(repr, lines))}"
    return f"    {one.option}: Annotated[{kind} | None, typer.Option({arguments})] = None\n"


def _help(one: DeclaredField) -> str:
    if one.setting.help:
        return one.setting.help
    first = re.split(r"(?<=\.) ", _LINK.sub(r"\1", texts_of(one.owner)[one.name]))[0]
    is_said = one.setting.shown == "" and not isinstance(one.field.default, bool)
    default = default_text(one) if is_said else ""
    return f"{first}{f' Default {default}.' if default else ''}".replace("`", "")


def _option_kind(kind: Any) -> str:
    """Return the type of an option in source: of what a file may hold, its first form."""
    plain = bare_type(kind)
    if get_origin(plain) in (Union, UnionType):
        return _option_kind(next(part for part in get_args(plain) if part is not NoneType))
    if get_origin(plain) is tuple:
        return "list[str]"
    if get_origin(plain) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(plain)))}]"
    return "str" if plain is SecretStr else str(plain.__name__)


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--quiet"]
    command += ["--stdin-filename", str(OPTIONS), "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True)
    return done.stdout


def sources() -> Iterator[tuple[Path, str]]:
    """Yield each generated file and its text as it should be."""
    yield CONTEXT, context_source(CONTEXT.read_text("utf-8"))
    yield OPTIONS, options_source(OPTIONS.read_text("utf-8"))
