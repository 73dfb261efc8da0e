"""`stuck_check`: snapshots changed files, ends a run that is over or stuck, hints at problems.

`terminate`: every run ends here, whether or not the tool of that name ended it.
"""

import asyncio
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import PurePath
from typing import Any, Literal

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.runtime import Runtime
from langgraph.types import Send

from openmanus_graph.backends.files.file_content import content_head
from openmanus_graph.backends.persistence.steering import steering_reader
from openmanus_graph.backends.snapshots.shared_files import put_files_back
from openmanus_graph.backends.snapshots.thread_snapshots import snapshot_files
from openmanus_graph.conversation import answer_sources, history, replies
from openmanus_graph.conversation.replies import (
    ToolEnding,
    asked_to_end_before,
    failure,
    tool_ending,
    tool_outcome,
)
from openmanus_graph.conversation.stuck import StuckLevel, detect_stuck
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.run_models import asks_small_model
from openmanus_graph.nodes.think import sends_of_calls
from openmanus_graph.nodes.user_hooks import hooks_at_stop
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import changed_files, find_named_files
from openmanus_graph.runtime.events import notice
from openmanus_graph.runtime.observations import observations_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.runtime.workspace import opened_file
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import Artifact, ClaimSource, ManusState, add_claims, no_claims
from openmanus_graph.tool_calls.agent import Agent

UNANSWERED = (
    "The model ended the run as a success without any answer, also when it was asked for one."
)


PROBLEMS: dict[replies.ReplyKind, tuple[str, str]] = {
    "announcement": ("reply_announced", "The reply announces work and does none"),
    "unread_call": (
        "reply_unread_call",
        "The reply seems to make a tool call as text, in a form that is not read",
    ),
    "cut": ("reply_cut", f"The reply was cut off by {history.LENGTH_LIMIT}"),
    "empty": ("empty_reply", "The reply was empty"),
    "unstructured": ("structured_answer", "The reply is not in the form that was asked for"),
    "hollow": ("reply_hollow", "The reply does not answer the task"),
    "echo": (
        "reply_hollow",
        "The reply repeats the task or the model's instructions, or holds nothing",
    ),
    "figures": (
        "reply_figures",
        "Figures of the answer occur neither in the task nor in any result: {what}",
    ),
    "unmade": (
        "reply_unmade",
        "Files that the task asks for were not made or changed, or are not valid: {what}",
    ),
    "unread": ("reply_unread", "No call has read the files that the task is about: {what}"),
    "unproven": ("reply_unproven", "Nothing shows that the work is done: {what}"),
}
"""Replies that are neither calls nor the answer: the prompt that asks the model about one, and what
is wrong with it."""
FAILED: dict[replies.ReplyKind, str] = {
    "announcement": "The model announced work and did not do it, also when it was asked to.",
    "unread_call": "The model writes its tool calls as text in a form that is not read, also when "
    "it was asked about it; turn on the parser of tool calls at its server.",
    "cut": f"The reply was cut off by {history.LENGTH_LIMIT} again and again.",
}
"""Why a run fails that gets no answer, if that is more than the problem."""


async def stuck_check(state: ManusState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Take a snapshot of changed files, and end a run that is over or repeats itself."""
    if calls_are_left(state["messages"]):
        return {}
    session = await enter_session(runtime)
    snapshot = await snapshot_files(session, state, runtime.stream_writer)
    return {**snapshot, **await end_or_steer(state, session, runtime)}


async def end_or_steer(
    state: ManusState, session: Session, runtime: Runtime[Context]
) -> dict[str, Any]:
    """End a run that is over, has failed or repeats itself; else steer it with a hint."""
    messages, hint_before = state["messages"], state.get("hint", "")
    ending, stuck = tool_ending(messages), detect_stuck(messages)
    files, seen = replies.NO_FILES, answer_sources.Observations()
    if ending is not None or replies.replies_without_calls(
        messages
    ):  # this may search the workspace
        run, task = state["run_message"], replies.task_of(messages)
        newest = history.last_text(messages)
        files = await asyncio.to_thread(find_named_files, session.workspace, run, task, newest)
        seen = await observations_of(messages, session.workspace, get_config())
    small = await asks_small_model(session)
    rules = replies.answer_rules(session.settings, files, seen, small=small)
    reading = await asyncio.to_thread(
        replies.read_reply, messages, session.settings.response_format, rules
    )
    said = replies.answer_beside_calls(messages, files) if ending else ""
    if said and ending is not None and ending.ending == "success":
        asked = replies.asked_about_ending(messages)
        reading = await asyncio.to_thread(replies.judge_answer, said, said, messages, rules, asked)
    ended = ended_by_reply(said or history.last_text(messages), reading)
    ended = ended or ended_by_tool(messages, ending, reading, said)
    steering = await steering_reader(session)
    # An unread steering message keeps the run from ending.
    if ended is not None and not await steering.unread(state.get("steering", [])):
        goes_on = ended["status"] == "finished" and await hooks_at_stop(
            session, messages, runtime.stream_writer
        )
        return {"messages": goes_on, "hint": ""} if goes_on else ended
    if stuck.level == "stop":
        runtime.stream_writer({"type": "limit", "reason": "stuck"})
        return {"status": "stopped", "stop_reason": "stuck"}
    if reading.kind in PROBLEMS:
        problem = PROBLEMS[reading.kind][1].format(what=reading.what)
        notice(runtime.stream_writer, f"{problem}; the model is asked about it.")
    steering.fetch_soon()
    hint = "\n\n".join(hints_for(reading, ending, said, stuck))
    return {} if hint == hint_before else {"hint": hint}


def ended_by_tool(
    messages: Sequence[AnyMessage],
    ending: ToolEnding | None,
    reading: replies.ReplyReading,
    said: str,
) -> dict[str, Any] | None:
    """Return how a tool's request ends the run; None if it does not, or the model is asked."""
    if ending is None or ending.failed or reading.kind in PROBLEMS:
        return None
    outcome = tool_outcome(ending, reading.answer or said)
    if outcome is None and asked_to_end_before(messages):
        return failure(UNANSWERED)
    if outcome and reading.gives_up:
        outcome["status"] = "failed"
    checked = {"claims": reading.claims, "sources": [*reading.sources]}
    return outcome and {**checked, **outcome}


def ended_by_reply(said: str, reading: replies.ReplyReading) -> dict[str, Any] | None:
    """Return how a reply fails the run if it is not an answer, even after the model was asked."""
    if not reading.failed:
        return None
    problem = PROBLEMS[reading.kind][1].format(what=reading.what)
    text = FAILED.get(reading.kind, f"{problem}, also when it was asked about.")
    return failure(f"{text} Its last words: {said}")


def hints_for(
    reading: replies.ReplyReading, ending: ToolEnding | None, said: str, stuck: StuckLevel
) -> Iterator[str]:
    if reading.kind in PROBLEMS:
        what = {"what": reading.what} if reading.what else {}
        yield render(PROBLEMS[reading.kind][0], **what)
    if ending is not None and ending.failed:
        yield render("terminate_refused", failed=", ".join(ending.failed))
    elif ending is not None and ending.ending == "success" and not said:
        yield render("terminate_unanswered")
    if stuck.level != "ok":
        name = "stuck_hint" if stuck.level == "hint" else "stuck_change"
        yield render(name, repeats=str(stuck.repeats))


def calls_are_left(messages: Sequence[AnyMessage]) -> bool:
    """Return True if some calls of the reply have run, and others come after them."""
    return bool(history.last_results(messages) and history.pending_calls(messages))


async def route_after_stuck_check(
    state: ManusState, config: RunnableConfig, *, agent: Agent
) -> list[Send] | Literal["think", "terminate"]:
    """Think again, unless the run is over, or the reply has calls that waited for others."""
    if state.get("stop_reason"):
        return "terminate"
    if calls_are_left(state["messages"]):
        return await sends_of_calls(state, config, agent)
    return "think"


TABLES = {".xlsx", ".csv", ".tsv"}
REPORTS = {".md", ".txt", ".html", ".htm", ".docx", *TABLES}
MOST_REPORTS, MOST_REPORT_CHARS, MOST_TABLE_ROWS = 5, 200_000, 30
"""Of a run: reports whose claims are checked, and characters of each. Longer tables are data."""
UNSUPPORTED = (
    "The answer was delivered, but {not_found} of {checked} figures in it and in the run's reports "
    "occur neither in the task nor in any result: {named}. Check them yourself."
)
MOST_NAMED, LONGEST_NAMED = 5, 40
"""Figures without a source that are named, and characters of each."""


def route_after_terminate(
    state: Mapping[str, Any], config: RunnableConfig
) -> Literal["new_message", "end"]:
    """End the run. `update_state` on a thread that has ended may have added a user message."""
    if "langgraph_node" in config.get("metadata", {}):  # in a run
        return "end"
    newest: Sequence[AnyMessage] = state["messages"][-1:]
    is_new = any(one.type == "human" and one.id != state.get("run_message") for one in newest)
    return "new_message" if is_new else "end"


async def terminate(state: ManusState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Collect the files and set the answer; at a limit it is the last text."""
    session = await enter_session(runtime)
    await (await steering_reader(session)).end_run(state.get("steering", []), runtime.stream_writer)
    await put_files_back(session, runtime.stream_writer)
    artifacts = await asyncio.to_thread(changed_files, session.workspace, state["run_message"])
    answer = state.get("answer")
    if not answer:
        why = "The run stopped because its last steps repeated themselves without any result."
        stuck = state.get("stop_reason") == "stuck"
        answer = "\n\n".join(
            filter(None, (history.last_text(state["messages"]), why if stuck else ""))
        )
    reported = await sources_of_reports(state, session, artifacts)
    sources = [*(state.get("sources") or ()), *reported]
    claims = add_claims(state.get("claims") or no_claims(), reported)
    if claims["not_found"]:
        notice(runtime.stream_writer, UNSUPPORTED.format(**claims, named=_named(sources)))
    ended = {"answer": answer, "artifacts": artifacts}
    return {**ended, "claims": claims, "sources": sources} if sources else ended


def _named(sources: Sequence[ClaimSource]) -> str:
    missing = [one for one in sources if one["kind"] == "not_found"]
    named = [
        textwrap.shorten(one["text"], LONGEST_NAMED, placeholder="…")
        + (f" (in {one['file']})" if one.get("file") else "")
        for one in missing[:MOST_NAMED]
    ]
    more = len(missing) - len(named)
    return ", ".join([*named, f"{more} more"] if more else named)


async def sources_of_reports(
    state: ManusState, session: Session, artifacts: Sequence[Artifact]
) -> list[ClaimSource]:
    """Return where the claims in the reports that a successful run wrote come from."""
    names = [one["path"] for one in artifacts if PurePath(one["path"]).suffix.lower() in REPORTS]
    if state.get("status") != "finished" or session.settings.answer_check == "off" or not names:
        return []
    messages, settings = state["messages"], session.settings
    seen = await observations_of(messages, session.workspace, get_config())

    def read() -> list[ClaimSource]:
        files = replace(replies.NO_FILES, there=[one["path"] for one in artifacts])
        known = replies.task_of(messages), messages, files, settings.instructions, seen
        found, checked = list[ClaimSource](), 0
        for name in names:
            with suppress(ToolError, OSError), opened_file(session.workspace, name) as file:
                text = content_head(file, name, MOST_REPORT_CHARS).partition("\n")[2]
                is_table = PurePath(name).suffix.lower() in TABLES
                if checked >= MOST_REPORTS or (is_table and text.count("\n") > MOST_TABLE_ROWS):
                    continue
                checked += 1
                findings = answer_sources.judged_claims(text, *known, is_report=True)
                kept = findings[: replies.MOST_SOURCES]
                found += [answer_sources.source_of(one, name) for one in kept]
        return found

    return await asyncio.to_thread(read)
