"""Code mode: the calls that a Python cell makes, each run as a call of the run.

A cell's call is validated, judged, recorded and announced by `run_call`, as a reply's is. Only a
call that needs no person runs while the cell does. The first other one stops the cell: it and those
that the code asked for at the same moment (`asyncio.gather`) run when the cell has ended, in
`run_calls_left`, where a person can be asked. No cell runs a second time. Its calls have keys of
their own in the ledger, so that the same code, sent again, does not repeat their effects.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import reduce
from typing import Any, cast

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langgraph.errors import GraphInterrupt

from openmanus_graph.backends.persistence.ledger import CellCall, EffectKey
from openmanus_graph.conversation.history import canonical_args, inner_call, inner_messages
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.budget import shared_budget
from openmanus_graph.prompts import render
from openmanus_graph.runtime import limits, output
from openmanus_graph.safety.destinations import leaves
from openmanus_graph.safety.information_flow import add_questions, is_tainted
from openmanus_graph.safety.unquoted_text import without_mark
from openmanus_graph.state.context import Effect
from openmanus_graph.state.manus import PendingCall, Usage, add_usage, no_usage
from openmanus_graph.state.tool_traits import Observation, Traits
from openmanus_graph.tool_calls.arguments import as_meant
from openmanus_graph.tool_calls.context import CallExecution, ToolCallContext
from openmanus_graph.tool_calls.permission import evaluate, prepare, request_permissions
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.toolset import tool_call_request

RunCall = Callable[[PendingCall, ToolCallContext], Awaitable[ToolMessage]]
"""`run_call`, which imports this module."""
MOST_CALLS = 200
"""Of one cell."""
MOST_RESULT_CHARS = 1_000_000
"""Of one result that code gets. Longer ones are cut, and stored whole in a file."""
_AT_ONCE = 8
_SHOWN_CHARS = 500
_DECIDED = ("edited", "trusted_text", "said")
"""What is noted of a call that a person has decided about."""
_OWN_RESOURCES = ("python", "person", "ending", "planning")
"""Of tools that code is not given: they are Python itself, or belong to the conversation."""


def is_offered(name: str, traits: Traits) -> bool:
    """Return True if code may call a tool."""
    own = traits.resource in _OWN_RESOURCES or name == "search_tools"
    return not (own or traits.runs_agent or traits.calls_tools)


class _NobodyAsked(Questions):
    """The questions of a call inside a cell: each means that the call must wait for a person."""

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        raise GraphInterrupt


class Cell:
    """The calls of one cell, from its start to its observation. See `CellCalls`."""

    def __init__(self, execution: CallExecution, run_call: RunCall) -> None:
        self._execution, self._call, self._run_call = execution, execution.call, run_call
        self._context = replace(
            execution.context,
            questions=_NobodyAsked(None),
            decisions={},
            subagents=None,
            handle_state=dict(execution.context.handle_state),  # the cell's outcome records its own
            for_our_model=False,
        )
        self.stopped = ""
        self._left: dict[int, PendingCall] = {}
        """The calls that run when the cell has ended, by their numbers."""
        self._admitted = 0
        self._record: _CellRecord | None = None
        self._inner: list[dict[str, Any]] = []
        self._usage = no_usage()
        self._conversation: Sequence[AnyMessage] | None = None
        self._read: list[AnyMessage] = []
        """What the code has read, for the rules: each call with its result."""
        self._reads_files = False
        """Whether the code has used a value that is neither in it nor in a result."""
        self._opening, self._in_order = asyncio.Lock(), asyncio.Lock()
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def described(self) -> Sequence[Mapping[str, Any]]:
        """The tools: `name`, `doc`, and `parameters` as a JSON schema."""
        toolset = self._context.toolset
        return [
            {"name": name, "doc": tool.description, "parameters": toolset.schemas[name]}
            for name, tool in toolset.tools.items()
            if is_offered(name, toolset.traits[name])
        ]

    def admit(self, tool: str, args: dict[str, Any]) -> Awaitable[Mapping[str, Any] | None] | None:
        self._admitted += 1
        if self._admitted > MOST_CALLS:
            self.stopped = self.stopped or f"it made more than {MOST_CALLS} calls"
            return None
        if limits.is_stopping():
            self.stopped = self.stopped or "the run was asked to stop"
        if self.stopped and not self._left:
            return None
        return self._run(self._admitted, tool, args)

    async def _run(self, number: int, tool: str, args: dict[str, Any]) -> Mapping[str, Any] | None:
        """Run a call and return its result for the code; None: the cell is stopped."""
        try:
            execution, settled = await self._prepared(tool, args)
            call, effect = execution.call, execution.traits.effect
            verdict = await evaluate(execution, call["args"])
        except ToolError as error:
            return {"text": str(error), "error": True}
        if verdict.decision == "ask" and not settled:
            self._leave(number, call, f"{tool} needs a person's approval")
            return None
        async with self._slots if effect == "read_only" else self._in_order:
            if self.stopped:
                self._leave(number, call)
                return None
            try:
                message = await self._run_call(call, self._context)
            except GraphInterrupt:
                self._leave(number, call, f"{tool} has a question for a person")
                return None
            except asyncio.CancelledError:  # perhaps in the middle of its effect
                if effect != "read_only":
                    self._leave(number, call)
                raise
        if settled:  # a person may have said that it took place
            message = message.model_copy(update={"status": "success"})
        return self._taken(call, message)

    async def _prepared(self, tool: str, args: dict[str, Any]) -> tuple[CallExecution, bool]:
        """Return a valid call, and whether it was made before and is settled.

        ToolError: it is not valid.
        """
        toolset = self._context.toolset
        if not is_offered(tool, toolset.traits.get(tool, Traits())):
            raise ToolError(f"{tool} cannot be called in code. Call it by itself.")
        meant = as_meant(toolset.find(tool), args)
        async with self._opening:
            self._record = self._record or await _CellRecord.find(self._execution)
        call, settled = self._record.next_call(tool, meant)
        execution = CallExecution(call, self._context)
        await prepare(execution)
        await self._judge(execution.call)
        return execution, settled

    def _leave(self, number: int, call: PendingCall, why: str = "") -> None:
        self.stopped = self.stopped or why
        self._left[number] = call

    async def _judge(self, call: PendingCall) -> None:
        """Add to a call what a person must approve, after what the conversation and code read."""
        context, (name, cell) = self._context, (self._call["name"], self._call["id"])
        if self._conversation is None:
            request = await tool_call_request(self._call, context.config)
            self._conversation = list(request.state["messages"])
        if not (self._reads_files or self._knows_origin(call["args"])):
            # A value comes from a file, say: it is as if the cell's output had been read.
            self._reads_files = True
            self._read.append(ToolMessage("", name=name, tool_call_id=cell))
        asked = tool_call(name=call["name"], args=call["args"], id=call["id"])
        reply = context.judged([
            *self._conversation, *self._read, AIMessage("", tool_calls=[asked])
        ])  # fmt: skip
        budget = shared_budget()
        shared = None if budget is None else budget.openings
        await asyncio.to_thread(add_questions, call, reply, shared)
        if context.toolset.traits[call["name"]].outlasts_thread:
            call["tainted"] = await asyncio.to_thread(is_tainted, reply)

    def _knows_origin(self, args: Mapping[str, Any]) -> bool:
        """Return True if each value is in the code, or in a result that the code was given."""
        code = str(self._call["args"]["code"])
        values = [value for _, value in leaves(args) if value not in code]
        results = [one.text for one in self._read if isinstance(one, ToolMessage)]
        return all(any(value in text for text in results) for value in values)

    def _taken(self, call: PendingCall, message: ToolMessage) -> Mapping[str, Any]:
        """Note a call that has run; return its result for the code."""
        traits, noted = self._context.toolset.traits[call["name"]], dict(message.artifact or {})
        if traits.untrusted:  # then what the code prints is, too
            self._execution.traits = replace(self._execution.traits, untrusted=True)
        plain = message.model_copy(update={"content": without_mark(message.text)})
        self._inner.append(inner_call(call, plain, keeps_text=_shows_values(traits)))
        self._read += inner_messages([inner_call(call, plain, keeps_text=True)])
        self._usage = add_usage(self._usage, noted.get("usage", no_usage()))
        return {
            "text": plain.text,
            "error": message.status == "error",
            "structured": noted.get("structured"),
            "files": list(noted.get("images", ())),
        }

    async def observed(self, observation: Observation, *, complete: bool) -> Observation:
        """Add the calls to the code's observation. `complete`: it came to its end."""
        if not self._admitted:
            return observation
        if self._record is not None and complete and not self.stopped:
            await self._record.close(self._execution)
        text = observation.text
        if self.stopped:
            text = f"{text}\n{render('cell_stopped', why=self.stopped)}"
        elif not complete:
            made = Counter(one["name"] for one in self._inner if one["status"] != "error")
            shown = ", ".join(f"{name} ({count})" for name, count in made.items())
            text = f"{text}\n[Calls that had succeeded before: {shown or 'none'}.]"
        return replace(
            observation,
            text=text,
            failed=observation.failed or bool(self.stopped),
            usage=self._usage if self._usage["model_calls"] else None,
            inner=self._inner,
            calls=[self._left[number] for number in sorted(self._left)],
        )


class _CellRecord:
    """What the ledger knows of a cell: whether its code came to its end, and the calls it made."""

    def __init__(self, cell: str, parent: str) -> None:
        self._cell, self._parent = cell, parent
        """The ids of the calls that ran the code, first and now."""
        self._number = 0
        self._counts = Counter[tuple[str, str]]()
        self._settled: dict[tuple[str, str], list[int]] = {}
        """The occurrences of effects that are not to be repeated."""
        self.earlier: Sequence[CellCall] = ()

    @classmethod
    async def find(cls, execution: CallExecution, *, begin: bool = True) -> "_CellRecord":
        ledger, parent = execution.context.ledger, execution.call["id"]
        if ledger is None:
            return cls(parent, parent)
        key = _record_key(execution)
        known = await ledger.find(key)
        outcome = (known and known.outcome) or {}
        if not outcome.get("open"):
            if begin:
                await ledger.intend(key, {}, parent)
                await ledger.conclude(key, {}, {"cell": parent, "open": True})
            return cls(parent, parent)
        record = cls(outcome["cell"], parent)
        record.earlier = await ledger.calls_of(key, record._cell)
        for one in record.earlier:
            record._add(one, execution)
        return record

    def _add(self, call: CellCall, execution: CallExecution) -> None:
        number, tool, occurrence, entry = call
        key, outcome = (tool, canonical_args(entry.args)), entry.outcome
        self._number = max(self._number, number)
        self._counts[key] = max(self._counts[key], occurrence + 1)
        again = outcome is not None and outcome["failed"] and "settled" not in outcome
        if not again and _effect(execution, call) != "read_only":
            self._settled.setdefault(key, []).append(occurrence)

    async def close(self, execution: CallExecution) -> None:
        if (ledger := execution.context.ledger) is not None:
            await ledger.conclude(_record_key(execution), {}, {"open": False})

    def next_call(self, tool: str, args: dict[str, Any]) -> tuple[PendingCall, bool]:
        """Return a call of the code, and whether it was made before and is settled."""
        self._number += 1
        key = (tool, canonical_args(args))
        if settled := self._settled.get(key):
            return self.call(self._number, tool, args, settled.pop(0)), True
        self._counts[key] += 1
        return self.call(self._number, tool, args, self._counts[key] - 1), False

    def call(self, number: int, tool: str, args: dict[str, Any], occurrence: int) -> PendingCall:
        return PendingCall(
            id=f"{self._cell}.{number}",
            name=tool,
            args=args,
            occurrence=occurrence,
            problem=None,
            cell=self._cell,
            parent=self._parent,
        )


def _record_key(execution: CallExecution) -> EffectKey:
    code = canonical_args({"code": execution.call["args"]["code"]})
    return replace(execution.key, args=code, occurrence=0, execution="cell")


def _effect(execution: CallExecution, call: CellCall) -> Effect:
    declared = execution.context.toolset.traits.get(call[1], Traits())
    return declared.effect_of(call[3].args)


async def add_calls_of(execution: CallExecution, cut_off: Observation) -> Observation:
    """Add to the observation of a cell that a crash cut off which calls it had made.

    Those whose effect is unknown run like those of a stopped cell: a person may be asked.
    """
    if not execution.traits.calls_tools:
        return cut_off
    record = await _CellRecord.find(execution, begin=False)
    inner, calls = list[dict[str, Any]](), list[PendingCall]()
    for one in record.earlier:
        number, tool, occurrence, entry = one
        call = record.call(number, tool, entry.args, occurrence)
        if (outcome := entry.outcome) is not None:
            execution.context.handle_state.update(outcome.get("handle_state", {}))
            status = "error" if outcome["failed"] else "success"
            said = ToolMessage(outcome["text"], tool_call_id=call["id"], status=cast("Any", status))
            inner.append(inner_call(call, said, keeps_text=True))
        elif _effect(execution, one) != "read_only":
            calls.append(call)
    if not (inner or calls):
        return cut_off
    text = f"{cut_off.text}\n{render('cell_cut_off', calls=_listed(inner))}"
    return replace(cut_off, text=text, inner=inner, calls=calls)


async def run_calls_left(
    execution: CallExecution, ended: Observation, run_call: RunCall
) -> Observation:
    """Run the calls that an ended cell has left, and add their results to its observation.

    A person is asked about all of them at once.
    """
    context = replace(execution.context, for_our_model=False, decisions={})
    await request_permissions(ended.calls, context)
    messages = [await _run_left(call, context, run_call) for call in ended.calls]
    made = zip(ended.calls, messages, strict=True)
    inner = [inner_call(call, message, keeps_text=True) for call, message in made]
    text, session = f"{ended.text}\n{render('cell_calls', calls=_listed(inner))}", context.session
    noted: list[dict[str, Any]] = [message.artifact or {} for message in messages]
    spent: list[Usage] = [one["usage"] for one in noted if "usage" in one]
    usage = reduce(add_usage, spent, ended.usage or no_usage())
    return replace(
        ended,
        text=await asyncio.to_thread(
            output.shorten, text, session.workspace, session.max_observation_chars
        ),
        usage=usage if usage["model_calls"] else None,
        inner=[*ended.inner, *inner],
    )


async def _run_left(call: PendingCall, context: ToolCallContext, run_call: RunCall) -> ToolMessage:
    """Run a call that was left. What a person decided instead is recorded, too, for a replay."""
    message, key = await run_call(call, context), CallExecution(call, context).key
    if context.ledger is not None and await context.ledger.find(key) is None:
        noted: dict[str, Any] = message.artifact or {}
        decided = {key: one for key, one in noted.items() if key in _DECIDED}
        outcome = asdict(Observation(message.text, failed=message.status == "error", **decided))
        await context.ledger.intend(key, call["args"], call["id"])
        await context.ledger.conclude(key, call["args"], outcome)
    return message


def _listed(inner: Sequence[Mapping[str, Any]]) -> str:
    """Return the calls with their results, for the model."""
    lines = [
        f"{number}. {one['name']} {canonical_args(one['args'])[:_SHOWN_CHARS]}"
        f"{' failed' if one['status'] == 'error' else ''}: {one['text']}"
        for number, one in enumerate(inner, 1)
    ]
    return "\n".join(lines) or "none"


def _shows_values(traits: Traits) -> bool:
    """Return True if a result's text matters to the rules about values and links."""
    if traits.private or traits.trusted or traits.addresses is not None:
        return True
    return not traits.reads_files and traits.effect != "workspace"
