"""The hooks of LangChain's `AgentMiddleware` between the calls: each is a separate node.

So an interrupt in a hook repeats no model call. Hooks around a call are in
`model_calls.model_middleware` and `tool_calls.wrapped_call`.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NotRequired, Required, cast, get_args, get_origin, get_type_hints

from langchain.agents.middleware import AgentMiddleware, AgentState, HumanInTheLoopMiddleware
from langchain.agents.middleware.types import OmitFromSchema
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt, is_invalid_resume
from langgraph.runtime import Runtime
from langgraph.types import Command, Overwrite, Send
from typing_extensions import TypedDict

from openmanus_graph.conversation.history import last_reply
from openmanus_graph.conversation.replies import read_reply
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.model_calls.budget import counting_external_calls
from openmanus_graph.nodes.think import route_after_think
from openmanus_graph.runtime.events import Emit, notice, plan_step_of
from openmanus_graph.runtime.middleware import (
    NodeHook,
    call_node_hook,
    changed_messages,
    checked_update,
    command_update,
)
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.session_registry import enter_session
from openmanus_graph.state.context import Context
from openmanus_graph.state.interrupts import as_approval
from openmanus_graph.state.manus import ManusInput, ManusOutput, ManusState
from openmanus_graph.state.settings import Settings
from openmanus_graph.tool_calls.agent import Agent, resolve_tools
from openmanus_graph.tool_calls.context import ledger_of
from openmanus_graph.tool_calls.questions import Questions

Middleware = AgentMiddleware[Any, Any, Any]
HOOKS: tuple[NodeHook, ...] = ("before_agent", "before_model", "after_model", "after_agent")
JUMPS = ("end", "model", "tools")
EDITED_CALLS_KEY = "hitl_edited_tool_calls"
"""State key of `HumanInTheLoopMiddleware`: the calls that a user edited, by id."""


def check_middleware(middleware: Sequence[Any]) -> None:
    """Refuse middleware that cannot work in our graphs. ConfigError says why."""
    names: set[str] = set()
    for one in middleware:
        if not isinstance(one, AgentMiddleware):
            raise ConfigError(
                f"{one!r} is not an AgentMiddleware. Pass instances of LangChain's class or of "
                "yours that is derived from it."
            )
        if one.name in names:
            raise ConfigError(
                f"Two middlewares are named {one.name!r}, and so would their nodes be. Leave one "
                "out, or give it another `name`."
            )
        names.add(one.name)
        _check(cast("Middleware", one))


def _check(middleware: Middleware) -> None:
    name, ours = middleware.name, get_type_hints(ManusState)
    if set(name) & set("|:"):
        raise ConfigError(f"The middleware {name!r} needs a name without '|' and ':'.")
    for hook in HOOKS:
        if unknown := [place for place in jumps_of(middleware, hook) if place not in JUMPS]:
            raise ConfigError(
                f"{name}.{hook} declares jumps to {', '.join(map(str, unknown))}. "
                f"Available: {', '.join(JUMPS)}."
            )
    for key, hint in _hints(middleware).items():
        if key in ours and key != "messages" and _plain(hint) != ours[key]:
            raise ConfigError(
                f"The state of {name} has a key {key!r}, which is the graph's own "
                "and of another type. Give it another name."
            )


def jumps_of(middleware: Middleware, hook: NodeHook) -> list[str]:
    """Return where a hook may jump to, as `hook_config(can_jump_to=...)` declares it."""
    methods = [getattr(type(middleware), name) for name in (hook, f"a{hook}")]
    places = (place for method in methods for place in getattr(method, "__can_jump_to__", ()))
    return list(dict.fromkeys(places))


def schemas_of(middleware: Sequence[Middleware]) -> tuple[type[Any], type[Any], type[Any]]:
    """Return the schemas of the state, the input and the output with the middlewares' keys.

    Our keys take precedence: the `messages` channel has to be ours, which is incremental.
    """
    hints: dict[str, Any] = {}
    for one in middleware:
        hints |= _hints(one)
    hints.pop("structured_response", None)  # ours is `structured`
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
    """Leave out what LangChain's annotations make private."""
    shown: dict[str, Any] = {}
    for key, hint in hints.items():
        plain = get_args(hint)[0] if get_origin(hint) in (Required, NotRequired) else hint
        notes = get_args(plain)[1:] if get_origin(plain) is Annotated else ()
        if not any(getattr(one, flag) for one in notes if isinstance(one, OmitFromSchema)):
            shown[key] = hint
    return shown


def _plain(hint: Any) -> Any:
    while get_origin(hint) in (Required, NotRequired, Annotated):
        hint = get_args(hint)[0]
    return hint


async def route_after_hook(
    state: Any, config: RunnableConfig, *, agent: Agent, decides: bool
) -> list[Send] | str:
    """Follow the jump of a hook. If no node comes next, the calls of the reply decide."""
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
    """Call a hook, and return its update, with the time and the usage of the hook."""
    started, emit = time.monotonic(), runtime.stream_writer
    session = await enter_session(runtime)
    # LangChain's own middleware raises after its question only if the answer is wrong.
    reviews = isinstance(middleware, HumanInTheLoopMiddleware)

    async def ask() -> Any:
        try:
            result = await call_node_hook(middleware, hook, state, runtime)
        except GraphInterrupt as asked:
            plan_step = plan_step_of(get_config())
            raise GraphInterrupt([as_approval(one, plan_step) for one in asked.args[0]]) from None
        if reviews:
            await _check_edits(cast("Mapping[str, Any]", result or {}), agent, session, emit)
        return result

    with counting_external_calls() as calls:
        questions = Questions(await ledger_of(session, get_config()), get_config())
        result = await questions.run_with_answers(
            None, ask, lambda error: reviews or is_invalid_resume(error)
        )
    given: dict[str, Any] = (
        command_update(cast("Command[Any]", result))
        if isinstance(result, Command)
        else checked_update(result or {})
    )
    update = changed_messages(given, state)
    usage = await calls.spent(session, emit)
    if usage["model_calls"]:
        update["usage"] = usage
    update["elapsed_s"] = state.get("elapsed_s", 0.0) + time.monotonic() - started
    if update.get("jump_to") is not None:
        return update | jump_of(update, state, runtime, middleware, hook)
    if hook == "after_model":
        return outcome_of_change(update, state, session.settings) | update
    return update


async def _check_edits(
    update: Mapping[str, Any], agent: Agent, session: Session, emit: Emit
) -> None:
    """Raise ToolError if a user edited calls so that they cannot be run."""
    edits: dict[str, Any] = update.get(EDITED_CALLS_KEY, {})
    if not edits:
        return
    toolset = (await resolve_tools(agent, session, emit)).toolset
    for edited in edits.values():
        toolset.find(edited["name"])
        if not isinstance(edited["args"], dict):
            raise ToolError("the arguments of an edited call are not an object")
        if problems := toolset.problems(edited["name"], edited["args"]):
            raise ToolError("; ".join(problems))


def jump_of(
    update: Mapping[str, Any],
    state: ManusState,
    runtime: Runtime[Context],
    middleware: Middleware,
    hook: NodeHook,
) -> dict[str, Any]:
    """Return the update for a jump: the run ends, or its earlier end is cancelled."""
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
        notice(runtime.stream_writer, f"{middleware.name} wanted to continue, but the run is over.")
        return {"jump_to": None}
    return {}


def outcome_of_change(
    update: Mapping[str, Any], state: ManusState, settings: Settings
) -> dict[str, Any]:
    """Return the update for a changed reply: whether it is the answer now."""
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
