"""What makes a field of `state.settings` a setting, and the functions that read its values.

One declaration makes the keys of files, environment variables, fields of `Context`, options of
the command, the trust a value needs, and the tables of `docs/configuration.md`.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from pydantic import SecretStr

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import parse_allowed, parse_domain
from openmanus_graph.state.context import PolicyRule, RuleDecision


@dataclass(frozen=True)
class Trust:
    """A value in the working folder counts only after the user trusts that folder."""

    risky: Callable[[Any], Any] = lambda value: value
    """Returns the part of the value that needs trust; empty or false if none does."""
    harmless: Callable[[Any], Any] = lambda _: None
    """Returns the part of a risky value that counts without trust. None: it is not set."""
    words: str = ""
    """Which values are risky, for the documentation. Empty: all."""
    also_left_out: tuple[str, ...] = ()
    """Keys that are left out together with this one."""


ALWAYS = Trust()


@dataclass(frozen=True)
class AlternativeKey:
    """Another key that sets the same field: OpenManus's name, or one entry of a table."""

    key: str
    part: str = ""
    """The table's entry that it sets. Empty: the whole field."""
    env: tuple[str, ...] = ()
    moved: str = ""
    """For a key of OpenManus: how it is written here."""


@dataclass(frozen=True)
class Setting:
    """How a user sets a field. The field has the default, its docstring is the text."""

    key: str | None = ""
    """In the table of the field's class. Empty: the field's name; None: only alternatives."""
    written: Any = None
    """The type in a file, if it is not the field's."""
    alternative_keys: tuple[AlternativeKey, ...] = ()
    context: str | None = ""
    """The field of `Context`. Empty: the same name, or none if the field is in a table; None:
    there is none."""
    passed: Any = None
    """The type in `Context`, if it is not the one in a file."""
    option: str = ""
    """The command's option."""
    label: str = ""
    """What the page's form calls it. Empty: it is not in the form."""
    help: str = ""
    """The option's help, if it is not the first sentence of the field's text."""
    env: tuple[str, ...] = ()
    """Environment variables; the first that is not empty counts."""
    env_prefix: str = ""
    """Each variable with this prefix is an entry of this table, by the rest of its name."""
    trust: Trust | None = None
    merged: bool = False
    """Whether the entries of a table are collected from all layers; else the first layer counts."""
    parse: Callable[[Any], Any] | None = None
    """Makes the field's value from what is written. ConfigError says what is wrong with it."""
    join: Callable[[Sequence[tuple[str, Any]]], Any] | None = None
    """Makes it from all layers: pairs of a layer's name and its value, the most important first.
    ConfigError as `parse`."""
    shown: str = ""
    """The default in texts, if it is more than a value."""
    accepts: tuple[str, ...] = ()
    """The values, for the documentation, if the type does not list them."""
    moved: str = ""
    """For a key of OpenManus: how it is written here."""


TUNING_OPTIONS = frozenset({
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop",
    "frequency_penalty", "presence_penalty", "reasoning", "reasoning_effort", "verbosity",
})  # fmt: skip
"""Anything else (`base_url`, `default_headers` ...) may send the key elsewhere."""

EndState = Literal["finished", "failed", "stopped", "cancelled", "interrupted"]
"""How a thread's newest run ended; an interrupted one has lost its process."""
CENTURY_S = 36_500 * 86_400.0
"""Time before which no thread was used."""
_SECRET_NAME = re.compile(r"[A-Za-z][\w-]*")
_SSH_NAME = re.compile(r"[\w.:%][\w.:%@\\-]*")
"""Never the beginning of an option."""
_SECRET_DOMAIN = re.compile(r"[\w.-]+(:\d{1,5})?|\[[0-9a-f:]+\](:\d{1,5})?")


def megabytes(value: Any) -> Any:
    """Read OpenManus's `512m` and `2g`."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+)([mg])b?", value.strip().lower())
    if match is None:
        raise ValueError(f"{value!r} is not a number of megabytes; write it like 512, 512m or 2g")
    return int(match[1]) * (1024 if match[2] == "g" else 1)


def network_access(value: Any) -> Any:
    """Read true as `ask`, and false as `off`."""
    return {True: "ask", False: "off"}.get(value, value) if isinstance(value, bool) else value


def seconds(text: str) -> float:
    """Return the seconds of a time such as `12h`, `90d` or `2w`. ConfigError: it is not one."""
    match = re.fullmatch(r"(\d{1,9}) ?([mhdw])", text.strip())
    if match is None:
        raise ConfigError(f"{text!r} is no time. Write it like 30m, 12h, 90d or 2w.")
    unit_s = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}[match[2]]
    return min(int(match[1]) * unit_s, CENTURY_S)


def times_by_state(given: str | Mapping[str, str]) -> Mapping[str, float]:
    """Return seconds by a thread's status, from one time or a table. ConfigError as `seconds`."""
    table = dict.fromkeys(get_args(EndState), given) if isinstance(given, str) else given
    known = {**table, "running": table.get("interrupted", "")}  # as it is stored
    return {state: seconds(text) for state, text in known.items() if text}


def ssh_name(value: str) -> str:
    """Return a host's or an account's name as it is written. ConfigError: it is not a name."""
    if value and not _SSH_NAME.fullmatch(value):
        raise ConfigError(f"{value!r} is not a name of a host or an account.")
    return value


def rerouting_options(options: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the client's options if they could do more than tune the model's replies."""
    return options if set(options) - TUNING_OPTIONS else None


def outside_folder(workspace: str) -> str | None:
    leaves = Path(workspace).is_absolute() or ".." in Path(workspace).parts
    return workspace if leaves else None


def checked_hosts(entries: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts as they are written. ConfigError: one is not a `HOST[:PORT]`."""
    for entry in entries:
        parse_allowed(entry)
    return tuple(entries)


def domains(entries: Sequence[str]) -> tuple[str, ...]:
    """Return the domains in normal form. ConfigError: one is not a domain."""
    return tuple(map(parse_domain, entries))


def all_domains(places: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(domain for _, entries in places for domain in domains(entries)))


@dataclass(frozen=True)
class SiteSecret:
    """A value that the model types only by its name, and only on one site."""

    name: str
    value: SecretStr
    domain: str
    """A host, with a port where it matters; its subdomains count as well."""


def parse_secret(text: SecretStr, name: str | None = None) -> SiteSecret:
    """Read `NAME=VALUE@DOMAIN`, or `VALUE@DOMAIN` of a known name. ConfigError shows no value."""
    given = text.get_secret_value()
    if name is None:
        name, _, given = given.partition("=")
    value, _, domain = given.rpartition("@")
    domain = domain.strip().lower()
    # A wrong name or domain may be a piece of the value, and is not shown.
    if not (_SECRET_NAME.fullmatch(name) and value and _SECRET_DOMAIN.fullmatch(domain)):
        raise ConfigError(
            "A secret of the browser is not written as NAME=VALUE@DOMAIN, for example "
            "password=hunter2@example.com."
        )
    return SiteSecret(name, SecretStr(value), domain)


def site_secrets(places: Sequence[tuple[str, Any]]) -> tuple[SiteSecret, ...]:
    """Collect secrets by name and site; what comes first wins."""
    found: dict[tuple[str, str], SiteSecret] = {}
    for _, given in places:
        is_table = isinstance(given, Mapping)
        entries: Any = cast("Any", given).items() if is_table else ((None, one) for one in given)
        for name, text in entries:
            secret = parse_secret(text, name)
            found.setdefault((secret.name, secret.domain), secret)
    return tuple(found.values())


@dataclass(frozen=True)
class Rule:
    """What happens with some calls of a tool; `evaluate_policy` says how rules combine."""

    tool: str
    """A name or pattern."""
    args: Mapping[str, str]
    """Patterns by argument."""
    decision: RuleDecision
    source: str = "Context"
    """Where it was written."""

    def __str__(self) -> str:
        patterns = "".join(f" {name}={pattern!r}" for name, pattern in self.args.items())
        return f"{self.decision} {self.tool}{patterns}, {self.source}"


def policy_rules(places: Sequence[tuple[str, Sequence[PolicyRule]]]) -> tuple[Rule, ...]:
    """Return the rules of all places, the most important first. ConfigError names a wrong one."""
    found: list[Rule] = []
    for source, rules in places:
        for number, rule in enumerate(rules, 1):
            tool, given = rule["tool"].strip(), rule.get("args", {})
            if not tool:
                raise ConfigError(
                    f"{source}: rule {number} names no tool; write * for all of them."
                )
            args = {
                name: pattern if isinstance(pattern, str) else json.dumps(pattern)
                for name, pattern in given.items()
            }
            found.append(Rule(tool, args, rule["decision"], f"rule {number} of {source}"))
    return tuple(found)
