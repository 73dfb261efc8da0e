"""Reads what people write as a setting's value: numbers, hosts, domains, secrets, rules.

The declarations in `state.settings` name these functions.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.addresses import parse_allowed, parse_domain
from openmanus_graph.state.context import PolicyRule, RuleDecision
from openmanus_graph.state.places import parse_place

TUNING_OPTIONS = frozenset({
    "temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "seed", "stop",
    "frequency_penalty", "presence_penalty", "reasoning", "reasoning_effort", "verbosity",
})  # fmt: skip
"""Anything else (`base_url`, `default_headers` ...) may send the key elsewhere."""

_SECRET_NAME = re.compile(r"[A-Za-z][\w-]*")
_SECRET_DOMAIN = re.compile(r"[\w.-]+(:\d{1,5})?|\[[0-9a-f:]+\](:\d{1,5})?")


def megabytes(value: Any) -> Any:
    """Read OpenManus's `512m` and `2g`."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"(\d+)([mg])b?", value.strip().lower())
    if match is None:
        raise ValueError(f"{value!r} is no number of megabytes; write it like 512, 512m or 2g")
    return int(match[1]) * (1024 if match[2] == "g" else 1)


def rerouting_options(options: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the client's options if they could do more than tune the model's replies."""
    return options if set(options) - TUNING_OPTIONS else None


def outside_folder(workspace: str) -> str | None:
    """Return a workspace that is not below the working folder."""
    leaves = Path(workspace).is_absolute() or ".." in Path(workspace).parts
    return workspace if leaves else None


def allowing_rules(rules: Sequence[PolicyRule]) -> list[PolicyRule]:
    """Return the rules that need trust: they `allow`."""
    return [rule for rule in rules if rule["decision"] == "allow"]


def other_rules(rules: Sequence[PolicyRule]) -> tuple[PolicyRule, ...]:
    """Return the rules that need no trust: they `ask` or `deny`."""
    return tuple(rule for rule in rules if rule["decision"] != "allow")


def checked_hosts(entries: Sequence[str]) -> tuple[str, ...]:
    """Return the hosts as they are written. ConfigError: one is no `HOST[:PORT]`."""
    for entry in entries:
        parse_allowed(entry)
    return tuple(entries)


def domains(entries: Sequence[str]) -> tuple[str, ...]:
    """Return the domains in the form in which they are compared. ConfigError: one is none."""
    return tuple(map(parse_domain, entries))


def all_domains(places: Sequence[tuple[str, Sequence[str]]]) -> tuple[str, ...]:
    """Return the domains of all places, each once."""
    return tuple(dict.fromkeys(domain for _, entries in places for domain in domains(entries)))


def search_language(lang: str) -> str:
    """Return the code as it is written. ConfigError: it is no language's."""
    _check_place(lang)
    return lang


def search_country(country: str) -> str:
    """Return the code as it is written. ConfigError: it is no country's."""
    _check_place("en", country)
    return country


def _check_place(lang: str, country: str = "") -> None:
    try:
        parse_place(lang, country)
    except ValueError as error:
        raise ConfigError(f"[search] {error}.") from error


@dataclass(frozen=True)
class SiteSecret:
    """What the model types by its name only, and only on one site."""

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
        for secret in _secrets_in(given):
            found.setdefault((secret.name, secret.domain), secret)
    return tuple(found.values())


def _secrets_in(given: Sequence[SecretStr] | Mapping[str, SecretStr]) -> Iterator[SiteSecret]:
    if isinstance(given, Mapping):
        yield from (parse_secret(text, name) for name, text in given.items())
    else:
        yield from map(parse_secret, given)


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
        """Write the rule as it can be found again."""
        patterns = "".join(f" {name}={pattern!r}" for name, pattern in self.args.items())
        return f"{self.decision} {self.tool}{patterns}, {self.source}"


def policy_rules(places: Sequence[tuple[str, Sequence[PolicyRule]]]) -> tuple[Rule, ...]:
    """Return the rules of all places, the most important first. ConfigError names a wrong one."""
    found: list[Rule] = []
    for source, rules in places:
        for number, rule in enumerate(rules, 1):
            if not rule["tool"].strip():
                raise ConfigError(
                    f"{source}: rule {number} names no tool; write * for all of them."
                )
            args = {
                name: pattern if isinstance(pattern, str) else json.dumps(pattern)
                for name, pattern in rule.get("args", {}).items()
            }
            where = f"rule {number} of {source}"
            found.append(Rule(rule["tool"].strip(), args, rule["decision"], where))
    return tuple(found)
