"""Write the tables of `docs/configuration.md` from the declarations of the settings."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin

from docs.declared_texts import default_text, texts_of
from openmanus_graph.config.files import (
    Declared,
    bare_type,
    declared,
    declared_fields,
    sections,
)
from openmanus_graph.state.context import MCPServer
from openmanus_graph.state.model_settings import (
    LlmKeys,
    ModelKeys,
    ModelUseKeys,
    ProfileKeys,
    RoleKeys,
)
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.triggers import Channel, Trigger

_REGION = re.compile(r"<!-- keys: (.*?) -->\n.*?<!-- /keys -->", re.DOTALL)


def configuration_page(text: str) -> str:
    """Return the page with its tables as the declarations are now.

    Args:
        text: The page; each table stands between `<!-- keys: NAME -->` and `<!-- /keys -->`.
    """

    def renewed(region: re.Match[str]) -> str:
        table = _TABLES[region[1]]()
        return f"<!-- keys: {region[1]} -->\n{table}\n<!-- /keys -->"

    return _REGION.sub(renewed, text)


def _settings(table: str, *kinds: type[Any]) -> Callable[[], str]:
    return lambda: _table(("key", "default", "option", "meaning"), _rows(table, *kinds))


def _rows(table: str, *kinds: type[Any]) -> Iterator[tuple[str, ...]]:
    for one in declared_fields():
        keys = [key for key in declared().values() if key.of == one]
        if one.table == table and one.owner in kinds and keys and keys[0].name != "mcp.servers":
            names = ", ".join(f"`{key.name.removeprefix(f'{table}.')}`" for key in keys)
            option = f"`{one.setting.option}`" if one.setting.option else ""
            yield names, default_text(one), option, _meaning(keys, texts_of(one.owner)[one.name])


def _meaning(keys: list[Declared], text: str) -> str:
    setting = keys[0].setting
    said = [text if text.endswith(("...", ".")) else f"{text}."]
    accepted = setting.accepts or _choices(keys[0].kind)
    if accepted:
        said.append(f"Values: {', '.join(f'`{value}`' for value in accepted)}.")
    other = [f"`{each.key}`" for each in setting.alternative_keys if not each.part]
    if other:
        said.append(f"Also read as {', '.join(other)}.")
    variables = [f"`{key.env[0]}`" for key in keys if key.env]
    if variables:
        said.append(f"Environment variable{'s' * (len(variables) > 1)}: {', '.join(variables)}.")
    if setting.trust is not None:
        words = f" if {setting.trust.words}" if setting.trust.words else ""
        said.append(f"Needs [trust](#trust){words}.")
    return " ".join(said)


def _choices(kind: Any) -> tuple[str, ...]:
    plain = bare_type(kind)
    return get_args(plain) if get_origin(plain) is Literal else ()


def _record(kind: type[Any]) -> Callable[[], str]:
    """Return what writes the table of a record that stands under names of people's own."""

    def table() -> str:
        texts = {name: text for one in kind.__mro__[:-1] for name, text in texts_of(one).items()}
        own = sorted(fields(kind), key=lambda one: one.name not in kind.__annotations__)
        keys = ((f"`{one.name}`", texts[one.name]) for one in own if one.name != "name")
        return _table(("key", "meaning"), keys)

    return table


def _needing_trust() -> str:
    """Write a table of the keys that need trust: always, or for some of their values."""
    always: dict[str, list[str]] = {}
    rows: list[tuple[str, str]] = []
    for one in declared().values():
        if one.setting.trust is None or one.of.table == "browser":
            continue
        if words := one.setting.trust.words:
            rows.append((f"`{one.name}`", f"if {words}"))
        else:
            always.setdefault(one.name.rpartition(".")[0], []).append(f"`{one.name}`")
    free = [
        f"`{one.name.partition('.')[2]}`"
        for one in declared().values()
        if one.of.table == "browser" and one.setting.trust is None
    ]
    groups = [(", ".join(names), "always") for names in always.values()]
    browser = (f"all keys of `[browser]`, except {', '.join(free)}", "always")
    return _table(("key", "needs trust"), iter([*groups, browser, *rows]))


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Write a table, without the columns that are empty in all rows."""
    every = [head, *rows]
    used = [index for index in range(len(head)) if any(row[index] for row in every[1:])]
    lines = [[row[index] for index in used] for row in every]
    lines.insert(1, ["---"] * len(used))
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_TABLES: Mapping[str, Callable[[], str]] = {
    "openmanus.toml": _settings("", ModelKeys, Settings),
    **{name: _settings(name, kind) for name, kind in sections().items()},
    "llm": _settings("llm", LlmKeys),
    "llm.use": _settings("llm", ModelUseKeys),
    "llm.roles": _settings("llm.roles", RoleKeys),
    "llm.profiles": _record(ProfileKeys),
    "mcp.servers": _record(MCPServer),
    "triggers": _record(Trigger),
    "channels": _record(Channel),
    "trust": _needing_trust,
}
