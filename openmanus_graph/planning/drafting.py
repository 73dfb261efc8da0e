"""Makes a plan with the model, or the part of a plan that replaces failed steps.

The state holds the conversation after each turn. So a crash loses only the current turn: one reply,
or calls that change nothing.
"""

import asyncio
import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import islice
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.backends.files.file_content import content_head
from openmanus_graph.backends.files.overview import workspace_overview
from openmanus_graph.backends.persistence.steering import steering_reader
from openmanus_graph.conversation.history import calls_in_order, is_steering, with_environment
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.call_model import ModelCall, call_model
from openmanus_graph.model_calls.recorder import fact_of_run, recorded_fact
from openmanus_graph.model_calls.summaries import cut_middle
from openmanus_graph.planning import flow
from openmanus_graph.planning.executor_run import ExecutorSet, StepOutcome, doubts_of, names_in
from openmanus_graph.planning.plan import MARKS, PlanError, ancestors_of, make_steps, plan_files
from openmanus_graph.prompts import render
from openmanus_graph.runtime.artifacts import DRAFTS_FOLDER
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress
from openmanus_graph.runtime.output import MIN_OBSERVATION_CHARS
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, find, opened_file
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.manus import PendingCall, Step, Usage, add_usage, no_usage
from openmanus_graph.state.planning import PlanningState, StepRun
from openmanus_graph.tool_calls.context import open_call_context
from openmanus_graph.tool_calls.run_call import run_call
from openmanus_graph.tool_calls.sequential_groups import open_groups
from openmanus_graph.tool_calls.toolset import Toolset

PLAN_TOOL = "planning"
MAX_DRAFTS = 3
"""Replies that the model has for one plan."""
MAX_LOOKS = 3
"""Further replies in which it may look at files before it plans."""
MAX_LOOK_CALLS = 6
"""Calls of one such reply; so many results fit into any request."""


@dataclass(frozen=True)
class Drafting:
    """What a plan is made from."""

    state: PlanningState
    messages: Sequence[AnyMessage]
    """The conversation about the plan so far."""
    executors: ExecutorSet
    toolset: Toolset
    """`planning`, and the tools by which the model looks at files."""
    failed: Sequence[str] = ()
    """The steps whose part is planned again; none in a new plan."""

    @property
    def replies(self) -> list[AIMessage]:
        return [message for message in self.messages if isinstance(message, AIMessage)]

    @property
    def look_tools(self) -> set[str]:
        """Names of the tools by which the model looks at files."""
        return self.toolset.tools.keys() - {PLAN_TOOL}

    @property
    def looks(self) -> int:
        """How often the model has looked, instead of planning."""
        called = ({call.name for call in calls_in_order(one)} for one in self.replies)
        return min(MAX_LOOKS, sum(bool(self.look_tools & names) for names in called))


@dataclass(frozen=True)
class Draft:
    messages: Sequence[AnyMessage] = ()
    """The conversation about the plan so far."""
    title: str = ""
    steps: list[Step] | None = None
    """The plan; None as long as there is none."""
    over: bool = False
    """Whether the model gets no other turn: it has planned, gave up, or used up its replies."""
    saw_files: bool = False
    """Whether it was shown contents of files, which may have written what the plan says."""
    usage: Usage = field(default_factory=no_usage)
    model_calls: int = 0


async def next_draft(drafting: Drafting, session: Session, emit: Emit) -> Draft:
    """Run the calls by which the model looks at files, or ask it. Raises as `call_model`."""
    groups = await open_groups(drafting.toolset.tools, drafting.toolset.traits, drafting.messages)
    if groups:
        return await _look(drafting, groups, session, emit)
    messages, saw_files = drafting.messages, False
    if not drafting.replies and (shown := await _shown_workspace(session)):
        messages, saw_files = [shown, *messages], True
    said = await (await steering_reader(session)).read_by_steps()
    tools = ", ".join(sorted(drafting.look_tools))
    date = await fact_of_run(session, "date", lambda: datetime.date.today().isoformat())
    reported = with_environment(drafting.state["messages"], {"date": f"Date: {date}"})
    call = ModelCall(
        system=render(
            "plan_create",
            roster=await asyncio.to_thread(drafting.executors.roster),  # agents of files
            look=render("plan_look", tools=tools, most=str(MAX_LOOKS)) if tools else "",
            marks=render("text_from_outside"),
        ),
        history=[*(reported or drafting.state["messages"]), *said, *messages],
        reminder=render("plan_looked") if drafting.looks == MAX_LOOKS else "",
        tools=drafting.toolset.definitions,
        progress=flow.progress_of(drafting.state, session.settings),
        step=max(drafting.state["step_count"], len(drafting.replies)) + 1,
        role="plan",
        counts_as_step=True,
    )
    reply, usage = await call_model(call, session, emit)
    draft = read_draft(reply, replace(drafting, messages=messages))
    return replace(draft, saw_files=saw_files, usage=usage, model_calls=1)


async def _shown_workspace(session: Session) -> HumanMessage | None:
    """Return what the model is shown of the workspace; None if there are no files."""

    def read() -> str:
        workspace = session.workspace
        return workspace_overview(workspace, without=plan_files(workspace))

    if not (overview := await recorded_fact(session, "workspace overview", read)):
        return None
    return HumanMessage(render("plan_workspace", overview=mark_untrusted(overview)))


async def _look(
    drafting: Drafting, groups: Sequence[Sequence[PendingCall]], session: Session, emit: Emit
) -> Draft:
    state = drafting.state
    progress = Progress(0, state["usage"], state["elapsed_s"])
    context = await open_call_context(session, drafting.toolset, emit, progress, recorded=False)
    session.max_observation_chars = MIN_OBSERVATION_CHARS  # a glance is enough
    results = [await run_call(call, context) for group in groups for call in group]
    spent = (result.artifact["usage"] for result in results if "usage" in (result.artifact or ()))
    return Draft(
        messages=[*drafting.messages, *results],
        saw_files=True,
        usage=reduce(add_usage, spent, no_usage()),
    )


def read_draft(reply: AIMessage, drafting: Drafting) -> Draft:
    """Return the first plan of a reply, or what is wrong. Calls that look get no answer yet."""
    may_look = MAX_LOOK_CALLS if drafting.looks < MAX_LOOKS else 0
    looking = 0
    answers: list[AnyMessage] = []
    for call in calls_in_order(reply):
        if call.name in drafting.look_tools and looking < may_look:
            looking += 1
            continue
        try:
            if call.broken is not None:
                raise PlanError(call.broken["error"] or "the arguments are not a JSON object")
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
    """Return title and steps of a call's plan. PlanError, ToolError: it makes no plan."""
    if name in drafting.look_tools:
        raise PlanError("you have looked at files often enough")
    if name != PLAN_TOOL:
        raise PlanError(f"there is no tool {name!r} here")
    args = {"command": "create", **args}
    drafting.toolset.check(name, args)
    if args["command"] not in ("create", "update"):
        raise PlanError(f"the command {args['command']!r} makes no plan")
    given, state = args.get("steps") or (), drafting.state
    if not drafting.failed:
        title = str(args.get("title") or flow.task_of(state)[:80])
        return title, make_steps(given, drafting.executors.names)
    replaced = flow.steps_to_replace(flow.step_runs_of(state), drafting.failed)
    kept = [step_run for step_run in flow.step_runs_of(state) if step_run["id"] not in replaced]
    prefix = f"r{state['replans'] + 1}."
    return state["title"], make_steps(given, drafting.executors.names, kept=kept, prefix=prefix)


RESULT_CHARS = 6000
"""Limit of a step's result in the requests of other steps and of the summary."""
RESULTS_CHARS = 60_000
STEPS_AROUND = 12
"""Steps before and after one that its request shows of a long plan, and so many ancestors."""
LINE_CHARS = 200
"""Of the result of a step on which another one depends only by way of others."""
HEAD_CHARS = 80
"""Of the text of another step."""
FILES_IN_LINE = 8


def step_prompt(step_run: StepRun, state: PlanningState) -> str:
    """Return an executor's request: a step of the plan, or the task if the plan is one step."""
    text, needed = step_run["text"], [state["steps"][name] for name in step_run["depends_on"]]
    chars = _chars_per_result(len(needed))
    parts = [f"Result of step {one['id']}:\n{cut_middle(one['result'], chars)}" for one in needed]
    if step_run["failures"]:
        parts.append(render("plan_retry", failure=attempt_text(step_run)))
    if step_run["done_when"]:
        parts.append(f"It counts as done when: {step_run['done_when']}")
    given = "\n\n".join(parts)
    if flow.is_whole_plan(state):
        return render("plan_only_step", task=flow.task_of(state), text=text, given=given)
    last = flow.answering_step(flow.step_runs_of(state))
    is_last = last is not None and last["id"] == step_run["id"]
    return render(
        "plan_step",
        task=flow.task_of(state),
        plan=steps_text(flow.step_runs_of(state), step_run),
        step=step_run["id"],
        text=text,
        given=given,
        drafts=DRAFTS_FOLDER,
        reply=render("plan_step_answer" if is_last else "plan_step_result"),
    )


def steps_text(step_runs: Sequence[StepRun], current: StepRun | None = None) -> str:
    """List the steps of a plan by their ids, one per line.

    `current` is the step that the list is for. Its own text, and the results of the steps that it
    depends on, are given elsewhere; of other steps it needs no more than the first line. A long
    plan is cut to near steps and its ancestors.
    """
    direct = current["depends_on"] if current else []
    ancestors = ancestors_of(step_runs, current["id"]) if current else []
    far = [name for name in ancestors if name not in direct]
    ids = [step_run["id"] for step_run in step_runs]
    shown: Sequence[int] = range(len(ids))
    own = current["id"] if current else None
    if own is not None:
        here, needed = ids.index(own), {*direct, *far[-STEPS_AROUND:]}
        shown = [n for n in shown if abs(n - here) <= STEPS_AROUND or ids[n] in needed]
    lines: list[str] = []
    before = -1
    for n in shown:
        if n > before + 1:
            lines.append(f"... ({n - before - 1} more)")
        before, step_run = n, step_runs[n]
        text = "your step" if ids[n] == own else step_run["text"]
        if current:
            text = _cut_end(text.splitlines()[0], HEAD_CHARS)
        outcome = _outcome_line(step_run) if ids[n] in far else ""
        lines.append(f"- {ids[n]} {MARKS[step_run['status']]} {text}{outcome}")
    if left := len(step_runs) - 1 - before:
        lines.append(f"... ({left} more)")
    return "\n".join(lines)


def _cut_end(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} …"


def _outcome_line(step_run: StepRun) -> str:
    cut = _cut_end(" ".join(step_run["result"].split()), LINE_CHARS)
    files = ", ".join(step_run["files"][:FILES_IN_LINE])
    more = ", …" if len(step_run["files"]) > FILES_IN_LINE else ""
    said = f" -> {cut}" if cut else ""
    return f"{said} [files: {files}{more}]" if files else said


def results_text(step_runs: Sequence[StepRun], *, with_errors: bool) -> str:
    """Return all steps with their results.

    `with_errors` includes how steps failed, in the words of tools and checks: for a model that
    writes about it, not for an answer.
    """
    chars = _chars_per_result(len(step_runs))
    parts: list[str] = []
    for step_run in step_runs:
        failed = step_run["failures"] and not with_errors
        outcome = "It was not done." if failed else step_run["notes"]
        if step_run["status"] == "completed":
            outcome = step_run["result"]
        if step_run["paused_run"] is not None:
            outcome = "Not done yet; it continues where it stopped when the run is resumed."
        head = f"Step {step_run['id']} ({step_run['status'].replace('_', ' ')}): {step_run['text']}"
        parts.append(f"{head}\n{cut_middle(outcome, chars)}".strip())
    return "\n\n".join(parts)


def _chars_per_result(results: int) -> int:
    return min(RESULT_CHARS, RESULTS_CHARS // max(1, results))


SHOWN_RESULT_CHARS, EVIDENCE_CHARS = 2000, 8000
"""Limits of one tool's result, and of all results that are kept (the newest)."""
PERSON_CHARS = 3000
FILES_CHARS = 12_000
_ARGS_CHARS = 300
_MOST_FILES = 12
_MOST_NAMES = 500
_ASK_TOOL, _QUESTION = "ask_human", "inquire"


def run_evidence(outcome: StepOutcome) -> str:
    """Return the user's messages and the tools' results in a step's run; empty without any.

    What its report claims and nothing of them has is named.
    """
    messages = outcome.messages
    calls = {
        str(call["id"]): call["args"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    lines: list[str] = []
    for message in messages:
        if is_steering(message):
            lines.append(message.text)
        elif isinstance(message, ToolMessage) and message.name == _ASK_TOOL:
            question = calls.get(message.tool_call_id, {}).get(_QUESTION, "")
            lines.append(f"Asked {question!r}: {message.text}")
    person = cut_middle("\n".join(lines), PERSON_CHARS)
    results = [
        f"{one.name} {cut_middle(str(calls.get(one.tool_call_id, '')), _ARGS_CHARS)}\n"
        f"{cut_middle(one.text, SHOWN_RESULT_CHARS)}"
        for one in messages
        if isinstance(one, ToolMessage) and one.name != _ASK_TOOL
    ]
    left, first = EVIDENCE_CHARS, len(results)
    while first and len(results[first - 1]) <= left:
        first -= 1
        left -= len(results[first])
    parts = (
        ("What the person said in it:", person),
        ("What its tools said, the newest last:", "\n\n".join(results[first:])),
    )
    said = [f"{head}\n{mark_untrusted(text)}" for head, text in parts if text]
    return "\n\n".join(filter(None, (*said, doubts_of(outcome))))


def attempt_text(step_run: StepRun) -> str:
    """Return why a step's newest attempt failed, with its report and what its tools said."""
    notes, result = step_run["notes"], step_run["result"]
    parts = [mark_untrusted(notes)]
    if result not in notes:
        parts.append(f"Its executor had reported:\n{mark_untrusted(result)}")
    return "\n\n".join(filter(None, (*parts, step_run.get("evidence", ""))))


async def evidence_text(step_run: StepRun, session: Session) -> str:
    """Return all evidence about a step: its report, its run and its files."""

    def read() -> str:
        return file_heads(_named_files(step_run, session.workspace), session.workspace)

    return render(
        "plan_evidence",
        report=mark_untrusted(step_run["result"]),
        run=step_run.get("evidence", ""),
        files=await recorded_fact(session, f"files to judge {attempt_name(step_run)} by", read),
    )


def attempt_name(step_run: StepRun) -> str:
    return f"step {step_run['id']}, attempt {step_run['attempt']}"


def _named_files(step_run: StepRun, workspace: Workspace) -> list[str]:
    """Return the files that a step's check, its changes and its texts name."""
    texts = (step_run["done_when"], *step_run["files"], step_run["result"], step_run["text"])
    named = dict.fromkeys(name for text in texts for name in islice(names_in(text), _MOST_NAMES))
    files: dict[str, None] = {}
    for name in named:
        try:
            found = find(workspace, name)
        except ToolError:
            continue
        if found is not None and found.is_file:
            files[found.path] = None
    return list(files)[:_MOST_FILES]


def file_heads(paths: Sequence[str], workspace: Workspace) -> str:
    """Return the beginnings of files, marked as text from outside. Blocks."""
    chars = FILES_CHARS // max(1, len(paths))
    heads: list[str] = []
    for path in paths:
        try:
            with opened_file(workspace, path) as file:
                heads.append(content_head(file, path, chars))
        except (OSError, ToolError) as error:
            heads.append(f"{path}: {error}")
    return mark_untrusted("\n\n".join(heads)) if heads else "none that are there"
