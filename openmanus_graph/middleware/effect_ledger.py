"""`EffectLedger`: the effect ledger for the tool calls of any LangChain agent."""

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

from openmanus_graph.backends.persistence.ledger import (
    CallPlace,
    EffectKey,
    Ledger,
    LedgerEntry,
    open_ledger,
)
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
from openmanus_graph.state.mcp_server import Effect, EffectName, as_effect
from openmanus_graph.state.tool_traits import Reconcile
from openmanus_graph.tool_calls.call_ledger import (
    ask_elsewhere,
    decide_unknown_outcome,
    exception_of,
    exception_record,
)
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
    "task": "read_only",  # an agent with checkpoints of its own, which goes on where it was
    "write_file": "workspace",
    "edit_file": "workspace",
}
"""Effects of the tools that these libraries bring along."""
_MOST_BRANCHES = 1000
_executions: ContextVar[dict[str, int]] = ContextVar("executions")
"""How often the task at work executed each call: a middleware around ours may repeat it."""


class EffectLedger(AgentMiddleware[Any, Any, Any]):
    """Lets no tool call of a `create_agent` or deepagents graph take effect twice unnoticed.

    Each call with an effect is written down before it runs, and its result after. When a run goes
    on after a crash, a call with a result gets that result; of one that was cut off the other side
    is asked (`reconcile`), else a person: an interrupt as in docs/approvals.md, kind
    `unknown_outcome`, whose `respond` is the result. It needs a checkpointer and a `thread_id`.

    Put it last in `middleware`, where it stands around nothing but the tool.
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
            effects: Of tools by name: `read_only` calls change nothing, `workspace` ones
                change files that the agent can look at, `external` ones the outer world. Others
                count as `metadata["effect"]` of the tool says, else as external.
            reconcile: For tools by name, an async function of a call's arguments and its key that
                returns the call's result if the other side knows it, else None.
            stored_types: Types of your own that results may hold: pydantic models, dataclasses,
                enums and named tuples. Others are neither written down nor read.
        """
        super().__init__()
        self.tools = []
        self._url = ledger
        self._effects = {tool: as_effect(name) for tool, name in (effects or {}).items()}
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
        """Run a call, or return what came of it before."""
        effect, config = self._effect_of(request), get_config()
        thread = checkpointed_thread(config)
        if thread is None:
            if effect != "read_only":
                self._warn()
            return await handler(request)
        call = _Call.of(request, outer_namespace(config))
        if effect == "read_only":
            return call.answered(await handler(request))
        ledger = await asyncio.to_thread(self._open, config)
        key = await call.key(thread, await self._branch_of(thread, config), ledger)
        execution = _Execution(
            key,
            request,
            effect,
            ledger,
            Questions(ledger, config),
            self._reconcile.get(key.tool),
            self._serializer,
        )
        return call.answered(await execution.run(handler))

    @override
    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Do the same in a graph that is invoked synchronously; it runs its tools in threads."""
        _executions_so_far()  # else counted in the loop's context, which ends with it

        async def run(request: ToolCallRequest) -> Result:
            return handler(request)

        return asyncio.run(self.awrap_tool_call(request, run))

    async def _branch_of(self, thread: str, config: RunnableConfig) -> str:
        """Return the fork that the run is on; it is looked up once in a run: that reads history."""
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

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "EffectLedger writes nothing down: this graph has no checkpointer. If the run is "
                "cut off and made again, tool calls that have taken effect are made again too. "
                "Compile the graph with a checkpointer and run it with a thread_id."
            )


class _Execution:
    """One execution of a call that has an effect."""

    def __init__(
        self,
        key: EffectKey,
        request: ToolCallRequest,
        effect: Effect,
        ledger: Ledger,
        questions: Questions,
        reconcile: Reconcile | None,
        serializer: StrictSerializer,
    ) -> None:
        self._first, self._request, self._effect = key, request, effect
        self._ledger, self._questions, self._reconcile = ledger, questions, reconcile
        self._serializer = serializer
        so_far = _executions_so_far()
        self._number = so_far.get(key.digest, 0)
        so_far[key.digest] = self._number + 1
        self._key = self._numbered(self._number)

    async def run(self, handler: Callable[[ToolCallRequest], Awaitable[Result]]) -> Result:
        """Run the call, or return or raise what came of it before."""
        call = self._request.tool_call
        if self._number:  # what came of it may be known elsewhere
            entry = await self._ledger.find(self._key)
        else:
            entry = await self._ledger.begin(self._key, call["args"], str(call["id"]))
        outcome = (entry and entry.outcome) or {}
        if "result" in outcome:
            await self._questions.skip(self._key)
            return self._stored(outcome["result"])
        if "raised" in outcome and await self._ledger.find(self._numbered(self._number + 1)):
            raise exception_of(tuple(outcome["raised"]))  # a middleware around ours had it again
        is_unknown = entry is not None and entry.stage != "waiting"
        if (is_unknown or self._number) and (known := await self._known_elsewhere()):
            return await self._concluded(known)
        if entry is not None and is_unknown and (reported := await self._settled_unknown(entry)):
            return await self._concluded(reported)
        if entry is not None or self._number:
            await self._ledger.intend(self._key, call["args"], str(call["id"]))
        return await self._executed(handler)

    async def _executed(self, handler: Callable[[ToolCallRequest], Awaitable[Result]]) -> Result:
        call = self._request.tool_call
        run = partial(handler, with_idempotency_key(self._request, self._first.digest))
        try:
            result = await self._questions.run_with_answers(self._key, run)
        except Exception as error:
            if isinstance(error, GraphBubbleUp) or is_invalid_resume(error):
                await self._ledger.wait(self._key, call["args"])
            else:
                await self._conclude({"raised": exception_record(error)})
            raise
        return await self._concluded(result)

    def _stored(self, text: str) -> Result:
        result: object = self._serializer.from_text(text)
        if not isinstance(result, ToolMessage | Command):
            raise RefusedDataError(f"a result of {self._first.tool} that no tool may return")
        return cast(Result, result)

    async def _concluded(self, result: Result) -> Result:
        await self._conclude({"result": self._serializer.to_text(result)})
        return result

    async def _conclude(self, outcome: dict[str, Any]) -> None:
        await self._ledger.conclude(self._key, self._request.tool_call["args"], outcome)

    async def _known_elsewhere(self) -> ToolMessage | None:
        """Return what the other side knows of the call; None if nothing, or it cannot be asked."""
        args, key = dict(self._request.tool_call["args"]), self._first.digest
        found = await ask_elsewhere(self._reconcile, self._first.tool, args, key)
        return None if found is None else self._message(found)

    async def _settled_unknown(self, entry: LedgerEntry) -> ToolMessage | None:
        """Return what became of a call, as far as it may be known; None: it is to run again."""
        if self._effect == "workspace" and entry.stage == "done":
            return None  # it raised, in this process or another
        call_id = str(self._request.tool_call["id"])
        external = self._effect == "external"
        outcome = await decide_unknown_outcome(
            self._key, entry, call_id, self._questions, external=external
        )
        return None if outcome is None else self._message(outcome.text, failed=outcome.failed)

    def _message(self, text: str, *, failed: bool = False) -> ToolMessage:
        call = self._request.tool_call
        status = "error" if failed else "success"
        return ToolMessage(text, tool_call_id=call["id"], name=call["name"], status=status)

    def _numbered(self, number: int) -> EffectKey:
        """Return the key of one of several executions of the call."""
        if not number:
            return self._first
        return replace(self._first, execution=f"{self._first.execution} {number}")


@dataclass(frozen=True)
class _Call:
    """A tool call, and where in the conversation the model made it."""

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
        """Find a call in its graph's state."""
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
        """Return what the ledger knows the call by."""
        made_by = (self.reply, self.id)
        if self.parent:
            place = CallPlace(thread, branch, self.namespace, self.parent, *self.made)
            first = await ledger.first_at(place, *made_by)
            if first[0] not in self.others:  # its reply was lost with its checkpoint
                made_by = first
        line = f"{branch}|{self.namespace}"
        return EffectKey(thread, line, self.name, self.args, 0, " ".join(made_by))

    def answered(self, result: Result) -> Result:
        """Make a result the answer to this call, with an id that stays if its checkpoint is lost.

        Calls of the next reply are known by it. LangGraph would give it another one each time.
        A result that was kept may have answered a reply that was lost, whose call had another id.
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
    """Return how often the task at work has executed each call."""
    if (so_far := _executions.get(None)) is None:
        _executions.set(so_far := {})
    return so_far
