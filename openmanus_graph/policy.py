"""Which calls run, which are asked about, and which never run: the rules of a person's policy.

Pure. A rule names a tool and patterns of arguments. Any matching `deny` denies, whatever else
stands there; of the others the first that matches counts; a call that none matches is asked about
where its tool says so. The mode then says what becomes of the calls that would be asked about.
"""

import difflib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from openmanus_graph.canonical import canonical
from openmanus_graph.settings import Rule, Settings
from openmanus_graph.shell_text import commands_in
from openmanus_graph.state.context import RuleDecision
from openmanus_graph.tools.declaration import Traits

_WILD = frozenset("*?[")


@dataclass(frozen=True)
class Ruling:
    """What the policy says of one call."""

    decision: RuleDecision
    why: str
    """For the model where it is denied, and for the person where they are asked; may be empty."""
    grant: str = ""
    """Names what an approval for the rest of the run would allow; empty if there is no such."""


@dataclass(frozen=True)
class Proposal:
    """A call that is looked at."""

    name: str
    args: Mapping[str, Any]
    """With the defaults of arguments that were left out."""
    traits: Traits
    strange: str = ""
    """Why an address that it would open is suspicious; empty if none is."""


def judge(call: Proposal, settings: Settings, granted: Sequence[str] = ()) -> Ruling:
    """Rule on a call.

    Args:
        call: What the model wants.
        settings: With the rules and the mode.
        granted: What a person approved for the rest of the run.
    """
    matching = [rule for rule in settings.rules if matches(rule, call, settings.workspace)]
    denied = next((rule for rule in matching if rule.decision == "deny"), None)
    if denied is not None:
        return Ruling("deny", f"A rule of the policy forbids it ({denied}).")
    rule = matching[0] if matching else None
    asks = rule.decision == "ask" if rule else call.traits.approval
    if settings.policy == "auto" or not (asks or call.strange):
        return Ruling("allow", "")
    grant = canonical({"tool": call.name, "args": dict(rule.args) if rule else {}})
    if grant in granted and not call.strange:
        return Ruling("allow", "")
    why = call.strange or (f"A rule of the policy asks first ({rule})." if rule else "")
    if settings.policy == "never":
        return Ruling("deny", why or "The policy refuses calls with external effects.")
    return Ruling("ask", why, "" if call.strange else grant)


def matches(rule: Rule, call: Proposal, workspace: Path) -> bool:
    """Say whether a rule is about a call; each of its patterns must match."""
    return fnmatchcase(call.name, rule.tool) and all(
        name in call.args and _fits(rule, name, pattern, call, workspace)
        for name, pattern in rule.args.items()
    )


def _fits(rule: Rule, name: str, pattern: str, call: Proposal, workspace: Path) -> bool:
    value, wanted = call.args[name], _even(pattern)
    if isinstance(value, str) and name == call.traits.shell:
        found = commands_in(value)
        if rule.decision == "allow":  # what cannot be seen through is allowed by nobody
            return not found.hidden and all(fnmatchcase(one, wanted) for one in found.commands)
        return any(fnmatchcase(one, wanted) for one in (_even(value), *found.every_name()))
    if isinstance(value, str) and _is_file(name, call):
        return any(fnmatchcase(path, wanted) for path in _paths(value, workspace))
    return fnmatchcase(_even(value if isinstance(value, str) else written(value)), wanted)


def written(value: Any) -> str:
    """Write a value that is no text, as rules know it: `true`, `3`, compact JSON."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def _even(text: str) -> str:
    return " ".join(text.split())


def _is_file(name: str, call: Proposal) -> bool:
    return name == "path" and (call.traits.resource_of(call.args) or "").startswith("file:")


def _paths(value: str, workspace: Path) -> Iterator[str]:
    """Yield a path from the root and from the workspace, both without detours."""
    whole = os.path.normpath(workspace / value)
    yield whole
    yield os.path.relpath(whole, workspace)


def wrong_arguments(rules: Sequence[Rule], schemas: Mapping[str, Mapping[str, Any]]) -> str:
    """Say which rule names an argument that its tool does not have; empty if none does.

    Args:
        rules: Of the run.
        schemas: JSON schemas of the arguments, by tool.
    """
    for rule in rules:
        schema = schemas.get(rule.tool)
        known = (schema or {}).get("properties", {})
        unknown = [name for name in rule.args if name not in known]
        if schema is not None and unknown and not schema.get("additionalProperties"):
            return (
                f"The policy's rule {rule} names {', '.join(unknown)}, but {rule.tool} has only "
                f"the arguments {', '.join(known) or 'none'}. Correct or remove the rule."
            )
    return ""


def unknown_tools(rules: Sequence[Rule], known: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each rule whose tool does not exist; patterns may wait for theirs."""
    for rule in rules:
        if rule.tool in known or _WILD & set(rule.tool):
            continue
        close = difflib.get_close_matches(rule.tool, known, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        yield f"The policy's rule {rule} is about a tool that does not exist here.{meant}"
