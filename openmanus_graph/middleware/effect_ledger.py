"""`EffectLedger`: the effect ledger for the tool calls of any LangChain agent.

For apps; nothing of ours imports it.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.runtime import RunControl, get_runtime
from langgraph.types import Command
from typing_extensions import override

from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger, open_ledger
from openmanus_graph.config.resolve import database_url
from openmanus_graph.conversation.history import canonical_args
from openmanus_graph.errors import RefusedDataError
from openmanus_graph.runtime.checkpoint_lineage import (
    REPLAY_KEY,
    checkpointed_thread,
    fork_id_of,
    outer_namespace,
    require_shared_ledger,
)
from openmanus_graph.runtime.serializer import StrictSerializer
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.context import Effect, EffectName, as_effect
from openmanus_graph.state.tool_traits import Reconcile
from openmanus_graph.tool_calls.call_ledger import LedgerCall, exception_of, exception_record
from openmanus_graph.tool_calls.declaration import traits_of, with_idempotency_key
from openmanus_graph.tool_calls.questions import Questions

Result = ToolMessage | Command[Any]
log = logging.getLogger(__name__)

_LIBRARIES = frozenset({"deepagents", "langchain"})
_LIBRARY_EFFECTS: Mapping[str, Effect] = {
    "write_todos": "read_only",
    "ls": "read_only",
    "read_file": "read_only",
    "glob": "read_only",
    "grep": "read_only",
    "task": "read_only",  # an agent with its own checkpoints, which resumes where it was
    "write_file": "workspace",
    "edit_file": "workspace",
}
"""Effects of the tools that these libraries bring along."""
_MOST_BRANCHES = 1000
_executions: ContextVar[dict[str, int]] = ContextVar("executions")
"""How often the task at work executed each call: a middleware around ours may repeat it."""


class EffectLedger(AgentMiddleware[Any, Any, Any]):
    """Lets no tool call of a `create_agent` or deepagents graph take effect twice unnoticed.

    Each call with an effect is recorded before it runs, and its result afterwards. When a run
    resumes after a crash, a call with a result gets that result. If a call was cut off, the other
    side is asked (`reconcile`), or else a person: an interrupt as in docs/approvals.md, kind
    `unknown_outcome`, whose `respond` is the result. It needs a checkpointer and a `thread_id`.

    Put it last in `middleware`, so that it is directly around the tool.
    """

    def __init__(
        self,
        ledger: str = "",
        *,
        effects: Mapping[str, EffectName] | None = None,
        reconcile: Mapping[str, Reconcile] | None = None,
        stored_types: Iterable[type[Any]] = (),
    ) -> None:
        """Choose the database; it is opened by the first call.

        Args:
            ledger: `sqlite:///FILE` or `postgresql://...`; by default `OPENMANUS_DATABASE_URL`, or
                the file in `OPENMANUS_HOME`.
            effects: Of tools by name: `read_only` calls change nothing, `workspace` calls change
                files that the agent can look at, `external` calls change the outside world. The
                effect of other tools is their `metadata["effect"]`, or external without it.
            reconcile: For tools by name, an async function of a call's arguments and its key that
                returns the call's result if the other side knows it, else None.
            stored_types: Your own types that results may hold: pydantic models, dataclasses,
                enums and named tuples. Other types are neither stored nor read.
        """
        super().__init__()
        self.tools = []
        self._url = ledger
        self._effects: dict[str, Effect] = {
            tool: as_effect(name) for tool, name in (effects or {}).items()
        }
        self._reconcile = dict(reconcile or {})
        self._serializer = StrictSerializer(stored_types)
        self._ledger: Ledger | None = None
        self._branches: dict[str, tuple[RunControl | None, str]] = {}
        """Of threads at work, with what identifies the run."""
        self._warned = False

    @override
    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        effect, config = self._effect_of(request), get_config()
        thread = checkpointed_thread(config)
        if thread is None:
            if effect != "read_only" and not self._warned:
                self._warned = True
                log.warning(
                    "EffectLedger records nothing: this graph has no checkpointer. If the run is "
                    "cut off and made again, tool calls that have taken effect are made again too. "
                    "Compile the graph with a checkpointer and run it with a thread_id."
                )
            return await handler(request)
        call = _Call.of(request, outer_namespace(config))
        if effect == "read_only":
            return call.answered(await handler(request))
        ledger = await asyncio.to_thread(self._open, config)
        key = await call.key(thread, await self._branch_of(thread, config), ledger)
        recorded = LedgerCall(
            key,
            call.id,
            ledger,
            Questions(ledger, config),
            effect,
            self._reconcile.get(key.tool),
            idempotency_key=key.digest,
        )
        return call.answered(await _run_once(request, handler, recorded, self._serializer))

    @override
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Do the same in a graph that is invoked synchronously, which runs its tools in threads."""
        _executions_so_far()  # else counted in the loop's context, which ends with it

        async def run(request: ToolCallRequest) -> Result:
            return handler(request)

        return asyncio.run(self.awrap_tool_call(request, run))

    async def _branch_of(self, thread: str, config: RunnableConfig) -> str:
        """Return the fork that the run is on. It is looked up once in a run: that reads history."""
        control = get_runtime().control
        known = self._branches.get(thread)
        if known and known[0] is control and config.get("configurable", {}).get(REPLAY_KEY) is None:
            return known[1]
        branch = await fork_id_of(config)
        self._branches[thread] = control, branch
        if len(self._branches) > _MOST_BRANCHES:
            del self._branches[next(iter(self._branches))]
        return branch

    def _effect_of(self, request: ToolCallRequest) -> Effect:
        name, tool = request.tool_call["name"], request.tool
        if name in self._effects:
            return self._effects[name]
        if tool is None:
            return "external"
        run = getattr(tool, "coroutine", None) or getattr(tool, "func", None)
        if getattr(run, "__module__", "").partition(".")[0] in _LIBRARIES:
            return _LIBRARY_EFFECTS.get(name, "external")
        return traits_of(tool).effect_of(request.tool_call["args"])

    def _open(self, config: RunnableConfig) -> Ledger:
        """Open the ledger. Blocks. ConfigError: its address is wrong, or too local for the run."""
        if self._ledger is None:
            url = DatabaseUrl.parse(self._url) if self._url else database_url()
            require_shared_ledger(config, url)
            self._ledger = open_ledger(url)
        return self._ledger


async def _run_once(
    request: ToolCallRequest,
    handler: Callable[[ToolCallRequest], Awaitable[Result]],
    recorded: LedgerCall,
    serializer: StrictSerializer,
) -> Result:
    """Run a call, or return or raise its recorded outcome.

    A middleware around ours may repeat the call: each execution has its own key.
    """
    args, first, so_far = request.tool_call["args"], recorded.key, _executions_so_far()
    number = so_far.get(first.digest, 0)
    so_far[first.digest] = number + 1
    recorded = replace(recorded, key=_numbered(first, number))
    entry = await recorded.look_up(args, begin=not number)
    outcome = (entry and entry.outcome) or {}
    if "result" in outcome:
        await recorded.questions.skip(recorded.key)
        stored: object = serializer.from_text(outcome["result"])
        if not isinstance(stored, ToolMessage | Command):
            raise RefusedDataError(f"a result of {first.tool} that no tool may return")
        return cast(Result, stored)
    if "raised" in outcome:
        following = replace(recorded, key=_numbered(first, number + 1))
        if await following.look_up(args, begin=False):  # a middleware has made the call again
            raise exception_of(tuple(outcome["raised"]))
    unknown = entry if entry is not None and entry.stage != "waiting" else None
    # The other side may know an earlier execution.
    settled = await recorded.settle(args, unknown) if unknown or number else None
    if settled is not None:
        result: Result = ToolMessage(
            settled.text,
            tool_call_id=request.tool_call["id"],
            name=first.tool,
            status="error" if settled.failed else "success",
        )
    else:
        await recorded.intend(args)
        keyed = with_idempotency_key(request, recorded.idempotency_key)
        try:
            result = await recorded.run(args, partial(handler, keyed))
        except Exception as error:
            if not (isinstance(error, GraphBubbleUp) or is_invalid_resume(error)):
                await recorded.conclude(args, {"raised": exception_record(error)})
            raise
    await recorded.conclude(args, {"result": serializer.to_text(result)})
    return result


def _numbered(first: EffectKey, number: int) -> EffectKey:
    return replace(first, execution=f"{first.execution} {number}") if number else first


@dataclass(frozen=True)
class _Call:
    id: str
    name: str
    args: str
    """Canonical JSON: what it runs with, which a middleware may have changed."""
    namespace: str
    """Of the graph, in its checkpoints."""
    reply: str = ""
    """Id of the model's message that makes it; empty if there is none."""
    parent: str = ""
    """Id of the message before that; empty if there is none."""
    made: tuple[str, str, int] = ("", "", 0)
    """The tool, the digest of the arguments, and the position among equal calls of the reply."""
    others: frozenset[str] = frozenset()
    """Ids of all other messages."""

    @classmethod
    def of(cls, request: ToolCallRequest, namespace: str) -> "_Call":
        call = request.tool_call
        known = cls(str(call["id"]), call["name"], canonical_args(call["args"]), namespace)
        state = request.state  # a mapping, or an object of the app's own
        messages: Sequence[AnyMessage] = getattr(state, "messages", None) or state["messages"]
        for index in range(len(messages) - 1, -1, -1):
            reply = messages[index]
            if isinstance(reply, AIMessage) and (made := _made_in(reply, known.id)):
                parent = (messages[index - 1].id or "") if index else ""
                others = frozenset(str(one.id) for one in messages if one is not reply)
                return replace(known, reply=reply.id or "", parent=parent, made=made, others=others)
        return known

    async def key(self, thread: str, branch: str, ledger: Ledger) -> EffectKey:
        made_by = (self.reply, self.id)
        if self.parent:
            place = (branch, self.namespace, self.parent, *self.made)
            first = await ledger.first_at(thread, place, *made_by)
            if first[0] not in self.others:  # its reply was lost with its checkpoint
                made_by = first
        line = f"{branch}|{self.namespace}"
        return EffectKey(thread, line, self.name, self.args, 0, " ".join(made_by))

    def answered(self, result: Result) -> Result:
        """Make a result the answer to this call, with an id that is the same after a crash.

        The keys of the next reply's calls depend on it, and LangGraph would give it another id each
        time. A recorded result may have answered a lost reply, whose call had another id.
        """
        parts = (self.namespace, self.parent, *map(str, self.made))
        answer_id = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
        changed = {"tool_call_id": self.id}
        if self.parent and answer_id not in self.others:
            changed["id"] = answer_id
        if not isinstance(result, Command):
            return result.model_copy(update=changed)
        if not isinstance(result.update, dict):
            return result
        given = cast(dict[str, Any], result.update)  # its type does not say so
        messages: list[Any] = given.get("messages") or []  # of all kinds that LangGraph takes
        answers = [one for one in messages if isinstance(one, ToolMessage)]
        if not answers:
            return result
        answer = min(answers, key=lambda one: one.tool_call_id != self.id)
        new = [one.model_copy(update=changed) if one is answer else one for one in messages]
        return replace(result, update={**given, "messages": new})


def _made_in(reply: AIMessage, call_id: str) -> tuple[str, str, int] | None:
    """Return tool, digest of the arguments and position among its equals of a reply's call."""
    seen: Counter[tuple[str, str]] = Counter()
    for call in reply.tool_calls:
        digest = hashlib.sha256(canonical_args(call["args"]).encode()).hexdigest()
        if call["id"] == call_id:
            return call["name"], digest, seen[call["name"], digest]
        seen[call["name"], digest] += 1
    return None


def _executions_so_far() -> dict[str, int]:
    if (so_far := _executions.get(None)) is None:
        _executions.set(so_far := {})
    return so_far
