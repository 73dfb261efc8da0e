"""LangChain's `AgentMiddleware` in our loop: further nodes, their edges, and keys of the state.

Each hook between the calls is a node of its own, so that an interrupt in it repeats no model call.
The hooks around a call stand in `model_calls.model_middleware` and `tool_calls.wrapped_call`.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import (
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    Required,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from langchain.agents.middleware import AgentMiddleware, AgentState, HumanInTheLoopMiddleware
from langchain.agents.middleware.types import OmitFromSchema
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt, is_invalid_resume
from langgraph.graph import StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite, Send
from typing_extensions import TypedDict

from openmanus_graph.conversation.history import last_reply
from openmanus_graph.conversation.replies import read_reply
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.model_calls.budget import counting_external_calls
from openmanus_graph.nodes.think import begin, route_after_think
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.middleware import (
    NodeHook,
    call_node_hook,
    changed_messages,
    checked_update,
    command_update,
    with_hook,
)
from openmanus_graph.runtime.run_observer import plan_step_of
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_keeper import GraphRouter, graph_node
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import as_approval
from openmanus_graph.state.manus import ManusInput, ManusOutput, ManusState
from openmanus_graph.state.settings import Settings
from openmanus_graph.tool_calls.agent import Agent
from openmanus_graph.tool_calls.context import ledger_of
from openmanus_graph.tool_calls.questions import Questions
from openmanus_graph.tool_calls.resolve_tools import resolve_tools

Middleware = AgentMiddleware[Any, Any, Any]
HOOKS: tuple[NodeHook, ...] = ("before_agent", "before_model", "after_model", "after_agent")
JUMPS = ("end", "model", "tools")
EDITED_CALLS_KEY = "hitl_edited_tool_calls"
"""State key of `HumanInTheLoopMiddleware`: what a person edited, by the call's id."""
Schemas = tuple[type[Any], type[Any], type[Any]]
"""Of the state, of what callers pass, of what they get."""


def check_middleware(middleware: Sequence[Any]) -> None:
    """Look for what cannot work in our graphs. ConfigError: there is something, and why."""
    names: set[str] = set()
    for one in middleware:
        if not isinstance(one, AgentMiddleware):
            raise ConfigError(
                f"{one!r} is no AgentMiddleware. Pass instances of LangChain's class or of yours "
                "that is derived from it."
            )
        if one.name in names:
            raise ConfigError(
                f"Two middlewares are named {one.name!r}, and so would their nodes be. Leave one "
                "out, or give it another `name`."
            )
        names.add(one.name)
        _check(cast("Middleware", one))


def _check(middleware: Middleware) -> None:
    if set(middleware.name) & set("|:"):
        raise ConfigError(f"The middleware {middleware.name!r} needs a name without '|' and ':'.")
    for hook in HOOKS:
        if unknown := [place for place in jumps_of(middleware, hook) if place not in JUMPS]:
            raise ConfigError(
                f"{middleware.name}.{hook} declares jumps to {', '.join(map(str, unknown))}. "
                f"There are: {', '.join(JUMPS)}."
            )
    ours = get_type_hints(ManusState)
    for key, hint in _hints(middleware).items():
        if key in ours and key != "messages" and _plain(hint) != ours[key]:
            raise ConfigError(
                f"The state of {middleware.name} has a key {key!r}, which is the graph's own "
                "and of another type. Give it another name."
            )


def jumps_of(middleware: Middleware, hook: NodeHook) -> list[str]:
    """Return where a hook may jump to, as `hook_config(can_jump_to=...)` declares it."""
    methods = [getattr(type(middleware), name) for name in (hook, f"a{hook}")]
    return list(
        dict.fromkeys(
            place for method in methods for place in getattr(method, "__can_jump_to__", ())
        )
    )


def schemas_of(middleware: Sequence[Middleware]) -> Schemas:
    """Return the schemas of the state with the keys of the middlewares. Ours count where both do.

    The `messages` channel has to stay ours, which is incremental.
    """
    hints: dict[str, Any] = {}
    for one in middleware:
        hints |= _hints(one)
    # Where a structured answer is wanted, it is ours: `structured`.
    hints.pop("structured_response", None)
    return (
        _schema("ManusState", hints, ManusState),
        _schema("ManusInput", _shown(hints, "input"), ManusInput),
        _schema("ManusOutput", _shown(hints, "output"), ManusOutput),
    )


def _hints(middleware: Middleware) -> dict[str, Any]:
    schema = getattr(middleware, "state_schema", AgentState)
    return get_type_hints(schema, include_extras=True)


def _schema(name: str, hints: dict[str, Any], ours: type[Any]) -> type[Any]:
    every = hints | get_type_hints(ours, include_extras=True)
    return cast("type[Any]", TypedDict(name, every))  # type: ignore[operator]  # made at run time


def _shown(hints: dict[str, Any], flag: str) -> dict[str, Any]:
    """Leave out what is private, by LangChain's annotations."""
    return {
        key: hint
        for key, hint in hints.items()
        if not any(
            getattr(one, flag) for one in _annotations(hint) if isinstance(one, OmitFromSchema)
        )
    }


def _annotations(hint: Any) -> Sequence[Any]:
    if get_origin(hint) in (Required, NotRequired):
        hint = get_args(hint)[0]
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _plain(hint: Any) -> Any:
    while get_origin(hint) in (Required, NotRequired, Annotated):
        hint = get_args(hint)[0]
    return hint


class LoopEntries(NamedTuple):
    """The nodes that the loop's own edges lead to: its own, or the hooks that come before them."""

    start: str
    before_model: str
    after_model: str
    """Where a new reply goes before its calls are run; empty without such a hook."""
    end: str


def add_hooks(builder: StateGraph[Any, Context, Any, Any], agent: Agent) -> LoopEntries:
    """Add a node for each hook that a middleware has, and the edges between them.

    Args:
        builder: Has the loop's nodes already.
        agent: With its middlewares.

    Returns:
        Where the loop's own edges lead.
    """
    return _Wiring(builder, agent).entries


class _Wiring:
    def __init__(self, builder: StateGraph[Any, Context, Any, Any], agent: Agent) -> None:
        self._builder, self._agent = builder, agent
        before_agent, before_model, after_model, after_agent = (
            with_hook(agent.middleware, hook) for hook in HOOKS
        )
        after_model, after_agent = after_model[::-1], after_agent[::-1]
        loop_entry = _first("before_model", before_model) or "think"
        self.entries = LoopEntries(
            start="begin" if before_agent or before_model else loop_entry,
            before_model=loop_entry,
            after_model=_first("after_model", after_model),
            end=_first("after_agent", after_agent) or "terminate",
        )
        if self.entries.start == "begin":
            self._add_begin(_first("before_agent", before_agent) or loop_entry)
        self._add_chain("before_agent", before_agent, loop_entry)
        self._add_chain("before_model", before_model, "think")
        self._add_chain("after_model", after_model, "")
        self._add_chain("after_agent", after_agent, "terminate")

    def _add_begin(self, first_node: str) -> None:
        loop_entry = self.entries.before_model
        node = graph_node(
            partial(begin, agent=self._agent, first_node=first_node, loop_entry=loop_entry)
        )
        destinations = tuple(dict.fromkeys([first_node, loop_entry]))
        self._builder.add_node("begin", node, destinations=destinations)

    def _add_chain(self, hook: NodeHook, middleware: Sequence[Middleware], last: str) -> None:
        """Add the nodes of one kind of hook, in the order in which they run.

        Args:
            hook: The kind.
            middleware: Those that have it.
            last: The node after them; empty after a reply, whose calls decide.
        """
        names = [f"{one.name}.{hook}" for one in middleware]
        for one, name, then in zip(middleware, names, [*names, last][1:], strict=True):
            node = graph_node(partial(run_hook, middleware=one, hook=hook, agent=self._agent))
            self._builder.add_node(name, node, trace_policy=one.trace_policy)
            targets = self._targets(hook, jumps_of(one, hook), then)
            if list(targets) == ["next"]:
                self._builder.add_edge(name, then)
                continue
            route = GraphRouter(partial(route_after_hook, agent=self._agent, decides=not then))
            self._builder.add_conditional_edges(name, route, cast("Any", targets))

    def _targets(self, hook: NodeHook, jumps: Sequence[str], then: str) -> dict[str, str]:
        """Return where a hook's node may lead, by what `route_after_hook` returns."""
        targets = {"next": then} if then else {}
        if "end" in jumps:
            targets["end"] = "terminate" if hook == "after_agent" else self.entries.end
        if "model" in jumps:
            targets["model"] = self.entries.before_model
        if "tools" in jumps or not then:
            targets |= {"act": "act", "stuck_check": "stuck_check", "terminate": self.entries.end}
        return targets


def _first(hook: NodeHook, middleware: Sequence[Middleware]) -> str:
    return f"{middleware[0].name}.{hook}" if middleware else ""


async def route_after_hook(
    state: Any, config: RunnableConfig, *, agent: Agent, decides: bool
) -> list[Send] | str:
    """Follow the jump of a hook; else the calls of a reply decide, where no node comes next."""
    jump = state.get("jump_to")
    if jump in ("end", "model"):
        return str(jump)
    if not decides and jump != "tools":
        return "next"
    return await route_after_think(state, config, agent=agent)


async def run_hook(
    state: ManusState,
    runtime: Runtime[Context],
    *,
    middleware: Middleware,
    hook: NodeHook,
    agent: Agent,
) -> dict[str, Any]:
    """Call a hook, and return the update that it wants, with what it took and cost."""
    started = time.monotonic()
    session = await enter_session(runtime)
    with counting_external_calls() as calls:
        check = partial(_check_edits, agent=agent, session=session, emit=runtime.stream_writer)
        questions = Questions(await ledger_of(session, get_config()), get_config())
        result = await _answered(middleware, hook, state, runtime, check, questions)
    given: dict[str, Any] = (
        command_update(cast("Command[Any]", result))
        if isinstance(result, Command)
        else checked_update(result or {})
    )
    update = changed_messages(given, state)
    usage = await calls.spent(session, runtime.stream_writer)
    if usage["model_calls"]:
        update["usage"] = usage
    update["elapsed_s"] = state.get("elapsed_s", 0.0) + time.monotonic() - started
    if update.get("jump_to") is not None:
        return update | jump_of(update, state, runtime, middleware, hook)
    if hook == "after_model":
        return outcome_of_change(update, state, session.settings) | update
    return update


async def _answered(
    middleware: Middleware,
    hook: NodeHook,
    state: ManusState,
    runtime: Runtime[Context],
    check: Callable[[Any], Awaitable[None]],
    questions: Questions,
) -> Any:
    """Call a hook, with the answers to its questions; one that it cannot use is asked for again.

    Args:
        middleware: Has the hook.
        hook: Which.
        state: The graph's.
        runtime: LangGraph's.
        check: Raises ToolError for an update that holds calls which cannot be run.
        questions: Those of the node.
    """
    # What LangChain's own raises behind its question is always about the answer.
    reviews = isinstance(middleware, HumanInTheLoopMiddleware)

    async def ask() -> Any:
        try:
            result = await call_node_hook(middleware, hook, state, runtime)
        except GraphInterrupt as asked:
            plan_step = plan_step_of(get_config())
            raise GraphInterrupt([as_approval(one, plan_step) for one in asked.args[0]]) from None
        if reviews:
            await check(result)
        return result

    return await questions.run_with_answers(
        None, ask, lambda error: reviews or is_invalid_resume(error)
    )


async def _check_edits(
    update: Mapping[str, Any] | None, *, agent: Agent, session: Session, emit: Emit
) -> None:
    """Raise ToolError if a person edited calls into such as cannot be run."""
    edits: dict[str, Any] = (update or {}).get(EDITED_CALLS_KEY, {})
    if edits:
        toolset = (await resolve_tools(agent, session, emit)).toolset
        for edited in edits.values():
            toolset.find(edited["name"])
            if not isinstance(edited["args"], dict):
                raise ToolError("the arguments of an edited call are no object")
            if problems := toolset.problems(edited["name"], edited["args"]):
                raise ToolError("; ".join(problems))


def jump_of(
    update: dict[str, Any],
    state: ManusState,
    runtime: Runtime[Context],
    middleware: Middleware,
    hook: NodeHook,
) -> dict[str, Any]:
    """Return what a jump means for the run: it ends, or what had ended it does not count."""
    jump, ended = update["jump_to"], state.get("stop_reason")
    if jump not in jumps_of(middleware, hook):
        raise ConfigError(
            f"{middleware.name}.{hook} jumps to {jump!r}, which it does not declare. Put "
            f"@hook_config(can_jump_to=[{jump!r}]) above it."
        )
    if jump == "end":
        return {} if ended else {"status": "finished", "stop_reason": "middleware"}
    if ended in ("answer", "terminate", "middleware"):
        return {"status": None, "stop_reason": None, "answer": "", "structured": None}
    if ended:
        notice(runtime.stream_writer, f"{middleware.name} wanted to go on, but the run is over.")
        return {"jump_to": None}
    return {}


def outcome_of_change(
    update: dict[str, Any], state: ManusState, settings: Settings
) -> dict[str, Any]:
    """Return what a changed reply means for the run: it is the answer now, or no longer."""
    reply = last_reply(state["messages"])
    messages = update.get("messages", [])
    given = messages.value if isinstance(messages, Overwrite) else messages
    changed = [one for one in given if isinstance(one, AIMessage) and reply and one.id == reply.id]
    if not changed:
        return {}
    now = [changed[-1] if one is reply else one for one in state["messages"]]
    reading = read_reply(now, settings.response_format)
    if reading.kind == "answer":
        return {"status": "finished", "stop_reason": "answer", "structured": reading.structured}
    answered = state.get("stop_reason") == "answer"
    return {"status": None, "stop_reason": None, "structured": None} if answered else {}
