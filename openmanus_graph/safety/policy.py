"""Evaluates the policy: which calls are allowed, which need approval, and why, or are denied.

A rule names a tool and patterns of arguments. Any matching `deny` denies. Of the other rules the
first match counts. Without a matching rule a call needs approval if its tool declares so. The mode
then decides about the calls that need approval.

Symbolic links are resolved and shell scripts in the workspace are read, which blocks.
"""

import difflib
import json
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.conversation.history import NOTES_KEY, ORIGIN_KEY, STEP_KEY, canonical_args
from openmanus_graph.safety import destinations
from openmanus_graph.safety.open_beneath import named, open_beneath
from openmanus_graph.safety.shell_commands import ShellText, one_line, read_shell_text
from openmanus_graph.safety.unquoted_text import without_mark
from openmanus_graph.state.context import RuleDecision
from openmanus_graph.state.interrupts import REACH_HOST
from openmanus_graph.state.manus import UnverifiedValue, ValueSource
from openmanus_graph.state.setting_declaration import Rule
from openmanus_graph.state.settings import Settings
from openmanus_graph.state.tool_traits import FILE, Traits

MAX_SCRIPT_BYTES = 64_000
_WILD = frozenset("*?[")


@dataclass(frozen=True)
class PolicyDecision:
    decision: RuleDecision
    why: str
    """The reason, for the model (`deny`) or the person (`ask`). May be empty."""
    remembered_approval: str = ""
    """Key of an approval for the rest of the thread; empty if there can be none."""


@dataclass(frozen=True)
class ProposedCall:
    name: str
    args: Mapping[str, Any]
    """Arguments, with defaults filled in."""
    traits: Traits
    unverified: str = ""
    """Why an address that it would open is unverified; empty if all are verified."""


def evaluate_policy(
    call: ProposedCall, settings: Settings, remembered_approvals: Sequence[str] = ()
) -> PolicyDecision:
    """Decide whether a call is allowed, needs approval, or is denied."""
    decision, reason, covers = _applying_rule(call, settings)
    if decision == "deny":
        return PolicyDecision("deny", reason)
    asks = decision == "ask"
    if decision is None:
        asks = call.traits.approval and not _sends_as_allowed(call, settings)
    if settings.policy == "auto" or not (asks or call.unverified):
        return PolicyDecision("allow", "")
    if call.name == REACH_HOST:
        covers = {"address": call.args.get("address")}
    remembered_approval = canonical_args({"tool": call.name, "args": dict(covers)})
    if remembered_approval in remembered_approvals and not call.unverified:
        return PolicyDecision("allow", "")
    why = call.unverified or reason
    if settings.policy == "never":
        return PolicyDecision("deny", why or "The policy refuses calls with external effects.")
    return PolicyDecision("ask", why, "" if call.unverified else remembered_approval)


def _sends_as_allowed(call: ProposedCall, settings: Settings) -> bool:
    """Return True if a call sends something, and all its destinations are allowed by name."""
    allowed = {destinations.approval_key(one) for one in settings.may_send_to}
    if not allowed or call.traits.destructive or call.traits.effect != "external":
        return False
    test = destinations.destination_test(call.traits, external=True)
    found = destinations.destinations(call.args, test)
    parts = [part for one in found for part in destinations.parts_of(one.value)]
    return bool(parts) and all(" ".join(part.tokens) in allowed for part in parts)


def _applying_rule(
    call: ProposedCall, settings: Settings
) -> tuple[RuleDecision | None, str, Mapping[str, Any]]:
    """Return the decision of the rule that counts, its reason, and what an approval covers.

    A `deny` counts before all others. A rule that denies or asks becomes a question if a shell text
    may run what it names without showing it. Rules that allow commands of a shell text are
    combined: the last of them matches. Without a rule, the decision is None.
    """
    covered: set[int] = set()
    denials_first = sorted(settings.rules, key=lambda rule: rule.decision != "deny")
    matches = [(one, _match(one, call, settings.workspace, covered)) for one in denials_first]
    for rule, match in matches:
        if match == "whole" and rule.decision == "deny":
            return "deny", f"A rule of the policy forbids it ({rule}).", {}
    for rule, match in matches:
        if match == "whole":
            what = ", ".join(rule.args.values()) or rule.tool
            number, _, file = rule.source.partition(" of ")
            place = f"{Path(file).name} {number}" if file else number
            return rule.decision, f"A rule asks first ({what}, {place}).", rule.args
        if match == "perhaps":
            why = f"A rule of the policy is about commands that this text may run unseen ({rule})."
            return "ask", why, {"unseen": dict(rule.args)}
    return None, "", {}


def _match(
    rule: Rule, call: ProposedCall, workspace: Path, covered: set[int]
) -> Literal["whole", "perhaps", "no"]:
    """Return whether a rule matches a call. Each of its patterns must match.

    `covered` has the parts of a shell text that earlier rules allow; those of this rule are added.
    """
    shell = call.traits.shell
    others = [name for name in rule.args if name != shell]
    if not (
        fnmatchcase(call.name, rule.tool)
        and set(rule.args) <= set(call.args)
        and all(_argument_matches(rule, name, call, workspace) for name in others)
    ):
        return "no"
    if shell not in rule.args:
        return "whole"
    text, pattern = str(call.args[shell]), one_line(rule.args[shell])
    found = read_shell_text(text)
    if rule.decision != "allow":
        texts = (found, *_files_of(found, workspace))
        if fnmatchcase(one_line(text), pattern) or any(one.runs(pattern) for one in texts):
            return "whole"
        return "perhaps" if found.may_run(pattern) else "no"
    covered |= found.allowed_by(pattern)
    return "whole" if not found.hidden and found.parts <= covered else "no"


def _files_of(found: ShellText, workspace: Path) -> Iterator[ShellText]:
    """Yield what the files run that a shell text starts: links to programs, and shell scripts.

    Paths are relative to the workspace. Other folders that the text enters are unknown.
    """
    for path, arguments in found.paths:
        with suppress(OSError, ValueError):
            name = Path(os.path.realpath(workspace / path)).name
            yield ShellText(found=[one_line(f"{name} {arguments}")])
    for path in found.scripts:
        with suppress(OSError, ValueError):
            with open_beneath(Path(os.path.realpath(workspace)), path) as script:
                text = script.read(MAX_SCRIPT_BYTES).decode("utf-8", "replace")
            if not text.startswith("#!") or "sh" in text.partition("\n")[0]:
                yield read_shell_text(text)


def _argument_matches(rule: Rule, name: str, call: ProposedCall, workspace: Path) -> bool:
    value, pattern = call.args[name], one_line(rule.args[name])
    is_file = name == "path" and (call.traits.resource_of(call.args) or "").startswith(FILE)
    if is_file and isinstance(value, str):
        match = all if rule.decision == "allow" else any
        return match(
            any(fnmatchcase(path, pattern) for path in paths) for paths in _paths(value, workspace)
        )
    return fnmatchcase(one_line(value if isinstance(value, str) else written(value)), pattern)


def written(value: Any) -> str:
    """Serialize a value that is not text as rules match it: `true`, `3`, compact JSON."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=str)


def _paths(value: str, workspace: Path) -> Iterator[tuple[str, str]]:
    """Yield a path as given and resolved, each absolute and relative to the workspace."""
    value = named(value)
    whole = os.path.normpath(workspace / value)
    yield whole, os.path.relpath(whole, workspace)
    with suppress(OSError, ValueError):  # no valid path, with a NUL byte say: the tool refuses it
        real = os.path.realpath(workspace / value)
        yield real, os.path.relpath(real, os.path.realpath(workspace))


def wrong_arguments(rules: Sequence[Rule], schemas: Mapping[str, Mapping[str, Any]]) -> str:
    """Describe a rule with an argument that its tool, by its schema, lacks; empty if none has."""
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
    """Yield a warning for each rule whose tool does not exist. Patterns may match later tools."""
    for rule in rules:
        if rule.tool in known or _WILD & set(rule.tool):
            continue
        close = difflib.get_close_matches(rule.tool, known, n=1)
        meant = f" Did you mean {close[0]}?" if close else ""
        yield f"The policy's rule {rule} is about a tool that does not exist here.{meant}"


MOST_SHOWN = 10
"""Values that a question names. It only counts the others."""
_CONTEXT_CHARS, _DESCRIPTION_CHARS = 120, 600
_SENTENCE_END = re.compile(r"(?<=[.!?])\s|\n")


def source_of(
    value: str, messages: Sequence[AnyMessage], calls: Mapping[str, tuple[str, Mapping[str, Any]]]
) -> ValueSource | None:
    """Return the first text that contains a value; None if the model composed the value."""
    wanted = value.casefold()
    for message in messages:
        artifact: Any = message.artifact if isinstance(message, ToolMessage) else None
        if isinstance(message, AIMessage) or "trusted_text" in (artifact or ()):
            continue
        text = without_mark(message.text)
        start = text.casefold().find(wanted)
        if start < 0 or not value:
            continue
        name, args = "a text that you quoted", ""
        if isinstance(message, ToolMessage):
            name, given = calls.get(message.tool_call_id, (message.name or "", {}))
            args = canonical_args(given)
        elif STEP_KEY in message.additional_kwargs:
            name = "the text of the step"
        elif NOTES_KEY in message.additional_kwargs:
            name = "the notes of what was said before"
        elif ORIGIN_KEY in message.additional_kwargs:
            name = "what was sent with your message"
        end = start + len(value)
        before = _SENTENCE_END.split(text[max(0, start - _CONTEXT_CHARS) : start])[-1]
        after = _SENTENCE_END.split(text[end : end + _CONTEXT_CHARS])[0]
        around = _readable(f"{before}{text[start:end]}{after}")
        return ValueSource(tool=name, args=args, text=around)
    return None


def _readable(text: str) -> str:
    kept = "".join(char if unicodedata.category(char)[0] != "C" else " " for char in text)
    return " ".join(kept.split())


def explain_values(name: str, description: str, values: Sequence[UnverifiedValue]) -> str:
    """Explain which values of a call are unverified, and their sources. There must be some."""
    does = _SENTENCE_END.split(_readable(description).strip() or name)[0][:_CONTEXT_CHARS]
    shown = "; ".join(map(_explain, values[:MOST_SHOWN]))
    more = f"; and {len(values) - MOST_SHOWN} more like these" if len(values) > MOST_SHOWN else ""
    untrusted = f"values that came from neither you nor a trusted tool: {shown}{more}"
    return f"{name} ({does.rstrip('.')}) would use {untrusted}."


def _explain(one: UnverifiedValue) -> str:
    # ASCII, so that look-alike letters of other scripts are visible.
    value = json.dumps(one["value"], ensure_ascii=True)
    what = {
        "destination": f"{one['argument']} {value}",
        "address": f"the address {value} in {one['argument']}",
        "private": f"your private {value} in {one['argument']}",
        "destructive": f"it cannot be undone, and you did not name {one['argument']} {value}",
        "page": f"it enters what you did not say into a page of {value}, which you did not name",
        "download": f"it runs {value}, which was downloaded, with the network on",
        "no_destination": f"you asked for none of it, {one['argument']} {value} for example",
    }[one["rule"]]
    if not one["argument"]:
        what = "it has no argument that you named"
    source = one["source"]
    if source is None:
        return f"{what}, which the model made up"
    args = source["args"] if len(source["args"]) <= _CONTEXT_CHARS else "{...}"
    around = json.dumps(source["text"], ensure_ascii=False)
    place = f"{source['tool']} {args}".strip()
    return f"{what}, which came from {place}: {around}"


def explain_change(name: str, description: str) -> str:
    """Explain that a server's description of a tool has changed."""
    says = json.dumps(_readable(description)[:_DESCRIPTION_CHARS], ensure_ascii=False)
    return (
        f"What its server says of {name} has changed since you added the server or last allowed a "
        f"call. Now it says: {says}"
    )


def explain_unverified(addresses: Sequence[str]) -> str:
    """Explain why a call that would open these addresses needs approval."""
    return (
        f"It would open {_listed(addresses)}, which neither the person named nor a page linked to, "
        "after files or pages were read: data could leave this way."
    )


def explain_excess(addresses: Sequence[str]) -> str:
    """Explain why a call that would open so many links needs approval."""
    return (
        f"It would open {_listed(addresses)} or act in a page there. You named no such site, and "
        "files or other private data were read before. Which links are opened and what is clicked, "
        "and in which order, can spell the data out to whoever has the site."
    )


def _listed(addresses: Sequence[str]) -> str:
    # ASCII, so that look-alike letters of other scripts are visible.
    return ", ".join(json.dumps(url, ensure_ascii=True) for url in addresses)
