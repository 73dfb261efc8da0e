"""Replays a thread's runs: the graph runs again, and its recording and ledger answer.

Each request is compared with the recorded one, byte for byte. If they differ, the recorded reply is
given all the same, so that the first difference is found together with its consequences.
"""

import asyncio
import difflib
import inspect
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from langchain_core.messages import AIMessage

from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.ledger import EffectKey, LedgerEntry
from openmanus_graph.backends.persistence.recording import FOLDERS, Part, RecordedCall, Recording
from openmanus_graph.model_calls.projection import CUT_OFF
from openmanus_graph.model_calls.recorder import MACHINE_FACTS, recorded_answer, run_path
from openmanus_graph.runtime.replaying import (
    KnownReply,
    ReplayEndedError,
    RunLeftError,
    SteeringMessage,
)
from openmanus_graph.safety.unquoted_text import without_mark
from openmanus_graph.state.context import Policy


@dataclass(frozen=True)
class WhatIf:
    """What is tried. The recording answers everything else, as long as the requests are equal."""

    asks_model: bool = False
    """The model is really asked: another one, or with another prompt."""
    policy_before: Policy | None = None
    """The recorded run's policy, if another one is tried."""
    tools: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])
    """Functions that are called in place of tools, by the tools' names."""
    repeats: frozenset[str] = frozenset()
    """Tools whose recorded calls are made again, with their effects."""
    on_repeat: Callable[[str], None] = lambda _: None
    """Receives the result of each of these calls."""


@dataclass(frozen=True)
class Divergence:
    """The first thing that differs, at which a what-if replay stops."""

    position: int
    """Of the recorded model call before it in its thread, from 1."""
    step: int
    what: str
    recorded: str
    now: str
    run_path: str
    """Of the run inside the thread's; empty if it is the thread's own."""
    reply: KnownReply | None = None
    answered: Sequence[tuple[EffectKey, LedgerEntry]] = ()
    """The calls of the same reply that the recording had answered before."""
    earlier: Sequence[EffectKey] = ()
    """The calls of earlier replies."""

    def diff(self) -> str:
        return _diff(self.recorded.splitlines(), self.now.splitlines())


def _diff(before: Sequence[str], now: Sequence[str]) -> str:
    return "\n".join(difflib.unified_diff(before, now, "recorded", "now", lineterm=""))


def _reply_text(reply: AIMessage) -> str:
    """Return the calls of a reply, or its text if it has none."""
    calls = [
        f"{call['name']} {json.dumps(call['args'], ensure_ascii=False, sort_keys=True, indent=1)}"
        for call in reply.tool_calls
    ]
    return "\n".join(calls) or reply.text


async def _tool_text(function: Callable[..., Any], args: Mapping[str, Any]) -> str:
    """Return a function's result as text, or the type and text of what it raises."""
    try:
        if inspect.iscoroutinefunction(function):
            found = await function(**args)
        else:
            found = await asyncio.to_thread(function, **args)
    except Exception as error:  # noqa: BLE001  # whatever it raises is its result
        return f"{type(error).__name__}: {error}"
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)


SHOWN_CHARS = 200


@dataclass(frozen=True)
class Difference:
    position: int
    call: RecordedCall
    sent: Sequence[Part]
    """What the model would be sent now."""

    def diff(self) -> str:
        return _diff(list(_lines(self.call.request)), list(_lines(self.sent)))


class RecordReplay:
    """Answers the runs of one thread from its recording.

    If `elsewhere`, also the texts that the machine adds to prompts (`MACHINE_FACTS`) are from
    there.
    """

    def __init__(
        self, record: Recording, *, elsewhere: bool, what_if: WhatIf | None = None
    ) -> None:
        self._what_if = what_if or WhatIf()
        self.policy_before: Policy | None = self._what_if.policy_before
        self.divergence: Divergence | None = None
        """Where it stopped, if the trial makes a difference."""
        self._facts: dict[str, deque[Any]] = {}
        for name, value in record.facts:
            if elsewhere or name not in MACHINE_FACTS:
                self._facts.setdefault(name, deque()).append(value)
        self.differences: list[Difference] = []
        self.ended = ""
        """What a run asked for that the recording does not hold; empty if there is nothing."""
        self.tool_calls: list[str] = []
        """The answered ones, as `NAME ARGUMENTS`."""
        self._answered: list[tuple[EffectKey, LedgerEntry]] = []
        """The tool calls since the newest model call."""
        self._earlier: list[EffectKey] = []
        """Those before it."""
        self.repeated = 0
        self._record = record
        lost = {one.number for one in _lost_to_crashes(record.calls)}
        calls = enumerate(record.calls, 1)
        self._left = {position: one for position, one in calls if one.number not in lost}
        self._newest = 1, record.calls[0]
        """The model call that was answered last, with its position."""

    @property
    def unused(self) -> list[int]:
        """Positions of the recorded calls that no run has made again, without those of tools.

        Tools do not run in a replay, so they ask no model.
        """
        return [position for position, call in self._left.items() if not call.is_of_tool]

    async def answer(
        self,
        caller: str,
        request: Sequence[Mapping[str, Any]],
        folders: Mapping[str, str],
        ask: Callable[[], Awaitable[AIMessage]],
    ) -> AIMessage:
        """Return the recorded reply of a model call, or ask the model if that is tried.

        Parallel calls may come in another order, so an equal request is preferred. The folders had
        other names when the run was recorded. ReplayEndedError: no recorded call is left for it, or
        the model's reply differs. ModelError: the call failed, then or now.
        """
        self._earlier += [effect for effect, _ in self._answered]
        self._answered.clear()
        sent: list[Part] = json.loads(self.with_recorded_folders(json.dumps(request), folders))
        of_caller = [position for position, call in self._left.items() if call.caller == caller]
        same = (position for position in of_caller if self._left[position].request == sent)
        position = next(same, next(iter(of_caller), None))
        if self._what_if.asks_model:
            now = await ask()
            self._compare(position, KnownReply(caller, now))
            return now
        if position is None:
            raise self._end(
                f"The run makes a model call that is not in the record ({caller}), after all that "
                "are."
            )
        call = self._left.pop(position)
        self._newest = position, call
        if call.request != sent:
            self.differences.append(Difference(position, call, sent))
        answer = recorded_answer(call.facts)
        if isinstance(answer, ModelError):
            raise answer
        return answer

    def _compare(self, position: int | None, found: KnownReply) -> None:
        """Compare a reply with the recorded one. ReplayEndedError: they differ."""
        now = _reply_text(found.reply)
        if position is None:
            raise self._diverge("The run continues after the recorded one's end.", "", now, found)
        self._newest = position, self._left.pop(position)
        before = recorded_answer(self._newest[1].facts)
        text = str(before) if isinstance(before, ModelError) else _reply_text(before)
        if text != now:
            raise self._diverge("The model replies differently.", text, now, found)

    def _diverge(
        self, what: str, recorded: str, now: str, reply: KnownReply | None = None
    ) -> ReplayEndedError:
        """Note the first difference; return what ends the replay."""
        position, call = self._newest
        if self.divergence is None:
            self.divergence = Divergence(
                position=position,
                step=call.facts["step"],
                what=what,
                recorded=recorded,
                now=now,
                run_path=run_path(),
                reply=reply,
                answered=tuple(self._answered),
                earlier=tuple(self._earlier),
            )
        return self._end(what)

    def check_decision(self, call: str, recorded: str, now: str) -> None:
        """Compare a policy's decisions on a call. ReplayEndedError: they differ."""
        if recorded.partition(":")[0] != now.partition(":")[0]:
            what = f"The policy decides differently on {call[:SHOWN_CHARS]}."
            raise self._diverge(what, recorded, now)

    def repeats(self, tool: str) -> bool:
        return tool in self._what_if.repeats

    def refuse_repeat(self, call: str, why: str, recorded: str = "") -> NoReturn:
        """End the replay at a call that may not be made again, or failed. ReplayEndedError."""
        what = f"Step {self.repeated + 1}, {call[:SHOWN_CHARS]}, was not done."
        raise self._diverge(what, recorded, why)

    def record_repeat(self, call: str, recorded: str, now: str, *, failed: bool) -> None:
        """Note a call that was made again. ReplayEndedError: it failed."""
        if failed:
            self.refuse_repeat(call, now, recorded)
        self.repeated += 1
        self._what_if.on_repeat(f"{self.repeated}. {call[:SHOWN_CHARS]}\n{now}")

    def with_recorded_folders(self, text: str, folders: Mapping[str, str]) -> str:
        """Replace the folders' present names in a JSON text with the recorded ones."""
        recorded: Mapping[str, str] = self._facts[FOLDERS][0] if FOLDERS in self._facts else {}
        for name, now in sorted(folders.items(), key=lambda one: -len(one[1])):
            text = text.replace(json.dumps(now)[1:-1], json.dumps(recorded.get(name, now))[1:-1])
        return text

    def live_handles(self) -> set[str]:
        """Return the identities of the handles that were open at the run's next model call."""
        return set(self._next_fact("handles", ()))

    def _next_call(self) -> RecordedCall | None:
        """Return the next model call of the run that asks, not one of a tool."""
        path = run_path()
        coming = (one for one in self._left.values() if not one.is_of_tool)
        return next((one for one in coming if one.facts["place"] == path), None)

    def _next_fact(self, name: str, default: Any) -> Any:
        following = self._next_call()
        return default if following is None else following.facts[name]

    def limits_changed(self) -> dict[str, Any]:
        """Return the limits of the next run that differ from the newest run's, by setting."""
        none: dict[str, Any] = {}
        coming, newest = (
            next((one.facts["limits"] for one in calls if "limits" in one.facts), none)
            for calls in (self._left.values(), reversed(self._record.calls))
        )
        return {name: one for name, one in coming.items() if newest.get(name) != one}

    def elapsed_s(self) -> float:
        return float(self._next_fact("elapsed_s", 0.0))

    def server_tools(self) -> dict[str, Any] | None:
        """Return the tools of MCP servers at the run's next model call; None without servers."""
        following = self._next_call()
        name = "" if following is None else following.facts.get("server_tools", "")
        return self.fact(name) if name else None

    def profile(self, model: str) -> dict[str, Any] | None:
        """Return the recorded facts about a model, which is not asked now."""
        if self._what_if.asks_model:
            return None
        known = self._facts.get(f"profile of {model}")
        return None if known is None else known[0]

    def has_fact(self, name: str) -> bool:
        return name in self._facts

    def fact(self, name: str) -> Any:
        """Return the next recorded value of a fact; the last one can be read again.

        ReplayEndedError: no run had recorded it.
        """
        if not self.has_fact(name):
            raise self._end(f"The run looks at what is not in the record: {name}")
        known = self._facts[name]
        return known.popleft() if len(known) > 1 else known[0]

    async def outcome(self, effect: EffectKey, call_id: str) -> LedgerEntry:
        """Return the outcome of a tool call.

        A call that is not in the ledger, such as a refused one, is looked for in later requests.
        ReplayEndedError: it is not in the recording, or the run was left before it had a result.
        """
        entry = self._record.outcomes.get(effect.digest) or self._outcome_in_requests(
            effect, call_id
        )
        shown = f"{effect.tool} {effect.args[:SHOWN_CHARS]}"
        if entry is None:
            if not self.unused:
                raise self._end(f"The record ends before this call did: {shown}")
            raise self._end(f"The run makes a call that is not in the record: {shown}")
        self.tool_calls.append(shown)
        if function := self._what_if.tools.get(effect.tool):
            recorded = without_mark(str((entry.outcome or {}).get("text", "")))
            now = await _tool_text(function, entry.args)
            if now != recorded:
                raise self._diverge(f"The tool's result differs for {shown}.", recorded, now)
        self._answered.append((effect, entry))
        return entry

    def _outcome_in_requests(self, effect: EffectKey, call_id: str) -> LedgerEntry | None:
        for call in self._record.calls:
            for part in call.request:
                if part.get("call") == call_id:
                    if part.get("content") == CUT_OFF:
                        raise RunLeftError(CUT_OFF)
                    outcome = {"text": part.get("content", ""), "images": ()}
                    failed = part["status"] == "error"
                    args = json.loads(effect.args)
                    return LedgerEntry("done", {**outcome, "failed": failed}, args, 1)
        return None

    def fetch_soon(self, thread: str) -> None:
        """Do nothing: the recording is loaded."""

    async def of(self, thread: str) -> list[SteeringMessage]:
        """Return the steering messages that the run's next model call had read."""
        del thread
        given: list[list[str]] = self._next_fact("steering", [])
        return [SteeringMessage(name, text, read=True) for name, text in given]

    async def mark_read(self, thread: str, steering: Sequence[str]) -> None:
        """Leave the thread's steering messages as they are."""

    async def forget_read(self, thread: str) -> None:
        """Leave the thread's steering messages as they are."""

    def _end(self, why: str) -> ReplayEndedError:
        self.ended = self.ended or why
        return ReplayEndedError(why)


def _lost_to_crashes(calls: Sequence[RecordedCall]) -> Iterator[RecordedCall]:
    """Yield the agent steps' calls whose replies were lost in a crash and requested again."""
    newest: dict[str, RecordedCall] = {}
    for call in calls:
        if not call.is_agent_step:
            continue
        before = newest.get(call.caller)
        if before and before.request == call.request and "reply" in before.facts:
            yield before
        newest[call.caller] = call


def _lines(parts: Sequence[Part]) -> Iterator[str]:
    """Yield a request as lines: the text of each part, the rest as JSON."""
    for number, part in enumerate(parts):
        yield f"--- {number} {part['role']} ---"
        for key, value in part.items():
            if key == "content" and isinstance(value, str):
                yield from value.splitlines()
            elif key != "role":
                text = json.dumps(value, ensure_ascii=False, indent=1, sort_keys=True)
                yield from f"{key}: {text}".splitlines()
