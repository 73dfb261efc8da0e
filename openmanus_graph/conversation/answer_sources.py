"""Finds where the claims of an answer come from in its run. Pure.

They are not checked if the question is not about files or pages.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolCall, ToolMessage

from openmanus_graph.conversation import history
from openmanus_graph.conversation.announcements import NamedFiles, named_files, names_things
from openmanus_graph.conversation.authorship import (
    CALCULATING,
    NOTES,
    PLACES,
    SEARCHING,
    Authorship,
    opened_by,
    without,
)
from openmanus_graph.conversation.evidence import UNTRUSTED_MARK, has_succeeded, shows_content
from openmanus_graph.conversation.passages import Finding, Passage
from openmanus_graph.conversation.sources import Evidence
from openmanus_graph.state.manus import ClaimSource

LIVE_TOOLS = {"browser_use", "computer_use"}
"""Requests after these tools show what no message has."""
_LISTS = re.compile(r"\s*(?:ls|find|tree|du|stat|file)\b[^|;&\n]*$")
_MANY_FILES = re.compile(r"\*\.|glob|listdir|scandir|walk|grep -r|rg ")
"""A command that reads files without naming them."""
_RUNS_TESTS = re.compile(
    r"\b(?:pytest|unittest|tox|nox|jest|vitest|rspec|ctest|(?:npm|make|go|cargo|mvn|gradle)"
    r"(?: run)? test)\b|\btests?[/_.]\w|\w_test\b"
)
_EXCERPT = 240
_PATH = re.compile(r"\S*[/\\]\S*")


def _shows_unread(message: AnyMessage) -> bool:
    """Return True if a message shows what is not text."""
    artifact: Any = message.artifact if isinstance(message, ToolMessage) else None
    noted = cast("dict[str, Any]", artifact) if isinstance(artifact, dict) else {}
    seen = {key for key, held in {**noted, **message.additional_kwargs}.items() if held}
    blocks = [] if isinstance(message.content, str) or message.type == "ai" else message.content
    others = any(isinstance(one, dict) and one.get("type") != "text" for one in blocks)
    return others or "images" in seen or message.name in LIVE_TOOLS


@dataclass(frozen=True)
class Observations:
    """Results at full length, where the conversation has only a part of them."""

    whole: Mapping[str, str] = field(default_factory=dict[str, str])
    """By the id of the call."""
    earlier: Sequence[AnyMessage] = ()
    """Messages that a compaction has replaced."""
    complete: bool = True
    """False if some cannot be read any more. Then no claim is known to be false."""


def judged_claims(
    text: str,
    task: str,
    messages: Sequence[AnyMessage],
    files: NamedFiles,
    shown: str = "",
    observations: Observations = Observations(),
    *,
    is_report: bool = False,
) -> list[Finding]:
    """Return where the claims of an answer come from, or of a report that the run wrote.

    They are judged if files were given, or calls worked on files or pages. Pictures and the live
    browser cannot be read here, so that only what was found is returned. `shown` has the texts of
    the system prompt that are not ours. A program has computed what is in a report and in no call.
    """
    seen = [
        inner for one in (*observations.earlier, *messages) for inner in history.with_inner(one)
    ]
    replies = [one for one in seen if isinstance(one, AIMessage)]
    calls = {call["id"]: call for one in replies for call in one.tool_calls}
    worked = {getattr(one, "tool_call_id", "") for one in seen if has_succeeded(one)}
    made = [call for call in calls.values() if call["id"] in worked]
    about = names_things(task) or any(
        call["name"] not in CALCULATING or named_files(str(call["args"])) for call in made
    )
    outside = (one for one in seen if history.STEP_KEY not in one.additional_kwargs)
    if not (files.given or any(map(shows_content, outside)) or (made and about)):
        return []
    facts = history.environment_of(seen)["facts"]
    keys = (one.additional_kwargs for one in seen)
    # The words of a model that hands over work are no evidence.
    handed = [str(one[history.GIVEN_KEY]) for one in keys if history.GIVEN_KEY in one]
    said = [facts.pop(history.LISTING, ""), shown, "" if is_report else files.text]
    said += handed or [task]
    said += [
        str(history.as_said(one).text)
        for one in seen
        if one.type == "human" and history.GIVEN_KEY not in one.additional_kwargs
    ]
    passages = [Passage(UNTRUSTED_MARK.sub("", one), tool="user") for one in said]
    # Digits of paths mean nothing.
    passages += [Passage(_PATH.sub(" ", one), tool="run", is_stated=True) for one in facts.values()]
    author = Authorship(text, [*calls.values()])
    author.reads("\n".join(one.text for one in passages))
    passages += _results(seen, calls, observations, author)
    passages += [
        Passage("\n".join(str(call["args"][key]) for key in PLACES if key in call["args"]),
                call["id"] or "", call["name"], is_stated=True) for call in made
    ]  # fmt: skip
    opened = [*files.given, *history.listed_heads(seen)]
    results = {one.call_id: one.text for one in passages}
    for call, given in ((call, opened_by(call)) for call in made):
        if not (call["name"] in SEARCHING or _LISTS.match(given)):
            many = call["name"] in CALCULATING and _MANY_FILES.search(given)
            opened += [given, results.get(call["id"] or "", "") if many else ""]
    evidence = Evidence(
        [one for one in passages if one.text.strip()],
        task,
        {*files.given, *files.there},
        "\n".join(opened),
        any(call["name"] in CALCULATING and _RUNS_TESTS.search(str(call["args"])) for call in made),
    )
    whole = observations.complete and not any(map(_shows_unread, messages))
    found = [one for one in evidence.check(text) if whole or one.kind != "not_found"]
    if not is_report:
        return found
    by_model = "\n".join(str(call["args"]) for call in calls.values())
    return [
        replace(one, kind="computed")
        if one.kind == "not_found" and one.claim.text not in by_model
        else one
        for one in found
    ]


def _results(
    seen: Sequence[AnyMessage],
    calls: Mapping[str | None, ToolCall],
    observations: Observations,
    author: Authorship,
) -> Iterator[Passage]:
    """Yield the results of the calls, without what the model itself wrote in them."""
    for message in seen:
        if isinstance(message, AIMessage):
            for one in message.tool_calls:
                author.writes(one)
        if not isinstance(message, ToolMessage) or message.name in NOTES:
            continue
        text = observations.whole.get(message.tool_call_id, str(message.text))
        artifact: Any = message.artifact
        noted = cast("dict[str, Any]", artifact) if isinstance(artifact, dict) else {}
        text = without(UNTRUSTED_MARK.sub("", text), noted.get("unsupported", ()))
        call = calls.get(message.tool_call_id)
        args = call["args"] if call else {}
        yield Passage(
            author.found_in(text, call),
            message.tool_call_id,
            message.name or "",
            next((str(args[key]) for key in PLACES if key in args), ""),
            is_printed=message.name in CALCULATING,
        )


def unsupported(answer: str, text: str) -> list[str]:
    """Return the figures and quotations of an answer that the text it is about does not have."""
    found = Evidence([Passage(text)]).check(answer)
    kinds = ("number", "year", "date", "quotation")
    return [one.claim.text for one in found if one.kind == "not_found" and one.claim.kind in kinds]


def sources_of_plan(
    answer: str, task: str, results: Sequence[tuple[str, str, Sequence[ClaimSource]]]
) -> list[ClaimSource]:
    """Return where the claims of a plan's answer come from: the results of its steps, and the task.

    Each result has the step's id and the sources of its claims. None if no step has any. Whether
    files were made and read is known to the steps only.
    """
    known = dict[str, ClaimSource]()
    for one in (one for *_, sources in results for one in sources if not one["file"]):
        if one["text"] not in known or known[one["text"]]["kind"] == "not_found":
            known[one["text"]] = one
    passages = [Passage(task, tool="user")]
    for name, text, _ in results:
        passages.append(Passage(supported(text, [*known.values()]), tool="step", name=name))
    found = list[ClaimSource]()
    for finding in Evidence(passages, task).check(answer) if known else ():
        claim, missing = finding.claim, finding.kind == "not_found"
        own = known.get(claim.text)
        if own is not None and (own["kind"] != "not_found" or missing):
            found.append({**own, "start": claim.start, "end": claim.end})
        elif not missing or claim.kind not in ("file", "url", "tests"):
            found.append(source_of(finding))
    return found


def supported(text: str, sources: Sequence[ClaimSource]) -> str:
    """Return a report without the claims that its run has no source for."""
    return without(text, [one["text"] for one in sources if one["kind"] == "not_found"])


def source_of(finding: Finding, file: str = "") -> ClaimSource:
    """Return a finding as the state keeps it."""
    claim, passage = finding.claim, finding.passage
    text = passage.text if passage else ""
    first = max(text.rfind("\n", 0, finding.start) + 1, finding.start - _EXCERPT // 2)
    excerpt = text[first : first + _EXCERPT].partition("\n")[0].strip()
    return ClaimSource(
        text=claim.text,
        kind=finding.kind,
        start=claim.start,
        end=claim.end,
        file=file,
        call_id=passage.call_id if passage else "",
        source=(passage.name or passage.tool) if passage else "",
        source_start=finding.start,
        source_end=finding.end,
        excerpt=": ".join(filter(None, (finding.how, excerpt))),
    )
