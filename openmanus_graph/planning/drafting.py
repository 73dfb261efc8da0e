"""Makes a plan with the model, or the part of one that replaces what failed.

A turn at a time, and what was said stands in the state after each. So a crash loses no more than
the turn under way: one reply, or calls that change nothing.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.backends.files.overview import workspace_overview
from openmanus_graph.backends.persistence.interjections import interjection_reader
from openmanus_graph.conversation.history import calls_in_order
from openmanus_graph.conversation.stuck import with_environment
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.flight_recorder import fact_of_run, recorded_fact
from openmanus_graph.planning.executors import ExecutorSet
from openmanus_graph.planning.flow import progress_of, step_runs_of, steps_to_replace, task_of
from openmanus_graph.planning.plan import PlanError, make_steps
from openmanus_graph.planning.plan_view import plan_files
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.untrusted_text import mark_untrusted
from openmanus_graph.state.manus import PendingCall, Usage, add_usage, no_usage
from openmanus_graph.state.plan import Step
from openmanus_graph.state.planning import PlanningState
from openmanus_graph.tool_calls.chains import open_chains
from openmanus_graph.tool_calls.context import open_unrecorded_context
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.toolset import Toolset

PLAN_TOOL = "planning"
MAX_DRAFTS = 3
"""Replies that the model has for one plan."""
MAX_LOOKS = 3
"""Replies beside these in which it may look at files before it plans."""
MAX_LOOK_CALLS = 6
"""Calls of one such reply; so many results fit into any request."""


@dataclass(frozen=True)
class Drafting:
    """What a plan is made from."""

    state: PlanningState
    """The task, and the plan as it stands if there is one."""
    messages: Sequence[AnyMessage]
    """What was said about the plan so far."""
    executors: ExecutorSet
    toolset: Toolset
    """`planning`, and the tools by which the model looks at files."""
    failed: Sequence[str] = ()
    """The steps whose part is planned anew; none in a new plan."""

    @property
    def replies(self) -> list[AIMessage]:
        """What the model said."""
        return [message for message in self.messages if isinstance(message, AIMessage)]

    @property
    def look_tools(self) -> set[str]:
        """Names of the tools by which the model looks at files."""
        return self.toolset.tools.keys() - {PLAN_TOOL}

    @property
    def looks(self) -> int:
        """How often the model has looked, instead of planning."""
        looked = [one for one in self.replies if self.look_tools & called_names(one)]
        return min(MAX_LOOKS, len(looked))


@dataclass(frozen=True)
class Draft:
    """What a turn came to."""

    messages: Sequence[AnyMessage] = ()
    """What was said about the plan so far."""
    title: str = ""
    steps: list[Step] | None = None
    """The plan; None as long as there is none."""
    over: bool = False
    """Whether the model gets no other turn: it has planned, says that there is no way, or its
    replies are used up."""
    saw_files: bool = False
    """Whether it was shown what files hold, so that a file may have written what it says."""
    usage: Usage = field(default_factory=no_usage)
    model_calls: int = 0


async def next_draft(drafting: Drafting, session: Session, emit: Emit) -> Draft:
    """Take one turn: run the calls by which the model looks at files, or ask it.

    Raises:
        LimitReached: The run's limits forbid the model call.
        ModelError: That call failed after all retries.
    """
    chains = await open_chains(drafting.toolset.tools, drafting.toolset.traits, drafting.messages)
    if chains:
        return await _look(drafting, chains, session, emit)
    messages, saw_files = drafting.messages, False
    if not drafting.replies and (shown := await _shown_workspace(session)):
        messages, saw_files = [shown, *messages], True
    said = await (await interjection_reader(session)).read_by_steps()
    date = await fact_of_run(session, "date", lambda: datetime.date.today().isoformat())
    told = with_environment(drafting.state["messages"], {"date": f"Date: {date}"})
    call = ModelCall(
        system=render(
            "plan_create",
            roster=drafting.executors.roster(),
            look=_how_to_look(drafting),
            marks=render("text_from_outside"),
        ),
        history=[*(told or drafting.state["messages"]), *said, *messages],
        request_suffix=render("plan_looked") if drafting.looks == MAX_LOOKS else "",
        tools=drafting.toolset.definitions,
        progress=progress_of(drafting.state, session.settings),
        step=max(drafting.state["step_count"], len(drafting.replies)) + 1,
        role="plan",
        counts_as_step=True,
    )
    reply, usage = await call_model(call, session, emit)
    draft = read_draft(reply, replace(drafting, messages=messages))
    return replace(draft, saw_files=saw_files, usage=usage, model_calls=1)


def _how_to_look(drafting: Drafting) -> str:
    tools = ", ".join(sorted(drafting.look_tools))
    return render("plan_look", tools=tools, most=str(MAX_LOOKS)) if tools else ""


async def _shown_workspace(session: Session) -> HumanMessage | None:
    """Return what the model is shown of the workspace; None if there are no files."""

    def read() -> str:
        workspace = session.workspace
        return workspace_overview(workspace, without=plan_files(workspace))

    if not (overview := await recorded_fact(session, "workspace overview", read)):
        return None
    return HumanMessage(render("plan_workspace", overview=mark_untrusted(overview)))


async def _look(
    drafting: Drafting, chains: Sequence[Sequence[PendingCall]], session: Session, emit: Emit
) -> Draft:
    """Run the calls by which the model looks at files, and answer them."""
    state = drafting.state
    progress = Progress(0, state["usage"], state["elapsed_s"])
    context = await open_unrecorded_context(session, drafting.toolset, emit, progress)
    session.max_observation_chars = MIN_OBSERVATION_CHARS  # a glance is enough
    results = [await run_call(call, context) for chain in chains for call in chain]
    spent = (result.artifact["usage"] for result in results if "usage" in (result.artifact or ()))
    return Draft(
        messages=[*drafting.messages, *results],
        saw_files=True,
        usage=reduce(add_usage, spent, no_usage()),
    )


def read_draft(reply: AIMessage, drafting: Drafting) -> Draft:
    """Take the first plan of a reply; else say what is wrong with it, unless it wants to look.

    Calls by which it looks are left without an answer: the next turn runs them.

    Args:
        reply: The model's.
        drafting: As it was before the reply.
    """
    may_look = MAX_LOOK_CALLS if drafting.looks < MAX_LOOKS else 0
    looking = 0
    answers: list[AnyMessage] = []
    for call in calls_in_order(reply):
        if call.name in drafting.look_tools and looking < may_look:
            looking += 1
            continue
        try:
            if call.broken is not None:
                raise PlanError(call.broken["error"] or "the arguments are no JSON object")
            title, steps = _plan_of_call(call.name, call.args, drafting)
        except (PlanError, ToolError) as error:
            answer = render("plan_invalid", problem=str(error).rstrip("."))
            answers.append(ToolMessage(answer, tool_call_id=call.id, status="error"))
        else:
            return Draft(title=title, steps=steps, over=True)
    replies = len(drafting.replies) + 1 - drafting.looks
    gives_up = bool(drafting.failed and reply.text.strip()) and not looking and not answers
    if gives_up or (replies >= MAX_DRAFTS and not looking):
        return Draft(over=True)
    if not looking and not answers:
        answers = [HumanMessage(render("plan_invalid", problem="it has no call of planning"))]
    return Draft(messages=[*drafting.messages, reply, *answers])


def _plan_of_call(name: str, args: Mapping[str, Any], drafting: Drafting) -> tuple[str, list[Step]]:
    """Return title and steps of a call that plans. PlanError, ToolError: it makes no plan."""
    if name in drafting.look_tools:
        raise PlanError("you can look no further")
    if name != PLAN_TOOL:
        raise PlanError(f"there is no tool {name!r} here")
    drafting.toolset.check(name, args)
    if args["command"] not in ("create", "update"):
        raise PlanError(f"the command {args['command']!r} makes no plan")
    given, state = args.get("steps") or (), drafting.state
    if not drafting.failed:
        title = str(args.get("title") or task_of(state)[:80])
        return title, make_steps(given, drafting.executors.names)
    replaced, _ = steps_to_replace(step_runs_of(state), drafting.failed)
    kept = [step_run for step_run in step_runs_of(state) if step_run["id"] not in replaced]
    prefix = f"r{state['replans'] + 1}."
    return state["title"], make_steps(given, drafting.executors.names, kept=kept, prefix=prefix)


def called_names(reply: AIMessage) -> set[str]:
    """Return the names of the tools that a reply calls."""
    return {call.name for call in calls_in_order(reply)}
