"""The request of an agent step: system prompt, environment, reminder, live state."""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.runtime import Runtime

from openmanus_graph.backends.browser.action_specs import HANDLE as BROWSER_HANDLE
from openmanus_graph.backends.desktop.desktop import HANDLE as DESKTOP_HANDLE
from openmanus_graph.backends.files.overview import made_files, workspace_listing
from openmanus_graph.backends.persistence.steering import SteeringReader
from openmanus_graph.backends.sandbox.choose import backend_name, reaches_network
from openmanus_graph.backends.sandbox.confinement import usual_libraries
from openmanus_graph.conversation import history, replies
from openmanus_graph.conversation.announcements import named_files
from openmanus_graph.conversation.history import ENVIRONMENT_KEY, LISTING, with_environment
from openmanus_graph.model_calls import budget, call_model, compaction, recorder, run_models
from openmanus_graph.prompts import render
from openmanus_graph.runtime.events import Emit
from openmanus_graph.runtime.limits import Progress, sleep_unless_stopped
from openmanus_graph.runtime.output import copy_skills
from openmanus_graph.runtime.session import Session, lost_state
from openmanus_graph.safety import provenance, urls, value_labels
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.context import Context
from openmanus_graph.state.manus import ManusState
from openmanus_graph.state.settings import SandboxSettings, Settings
from openmanus_graph.tool_calls.agent import Agent, ResolvedTools

if TYPE_CHECKING:
    from openmanus_graph.model_calls.model_middleware import ModelCallHooks

BROWSER, DESKTOP, MEMORY, READ_FILE = "browser_use", "computer_use", "memory", "read_file"
FILE_TOOLS = frozenset({READ_FILE, "str_replace_editor", "python_execute", "bash"})
_RULES = {
    "rules_tools": {"bash", "python_execute", "str_replace_editor", READ_FILE},
    "rules_web": {BROWSER, "web_search", "fetch_page", "crawl4ai"},
    "rules": set[str](),
}
"""Prompts that an agent gets if it has all of these tools."""
MOST_REMINDED_CHARS = 600
"""Of the task, which a small model gets again with each result."""
RECENT_MESSAGES = 3
"""As long as one of these used the browser or the desktop, requests carry its state."""

ManusUpdate = dict[str, Any]  # an update may hold `Overwrite`, which no TypedDict can say


@dataclass(frozen=True)
class AgentStep:
    """The shared values of one pass of `think`; `begin_step` makes it."""

    agent: Agent
    session: Session
    runtime: Runtime[Context]
    emit: Emit
    started: float
    """On the monotonic clock."""
    saved: ManusState
    """The checkpoint's."""
    begun: ManusUpdate
    """What a new run resets; empty if the run has begun before."""
    state: ManusState
    """Both together."""
    progress: Progress
    """Of the run before this agent step."""
    live_handles: frozenset[str]
    """Identities of this process's handles as the step begins."""
    browser_restorable: bool
    """Whether the browser has ended, and opens again with its cookies and tabs."""
    steering: SteeringReader
    read_before: Sequence[str]
    """Ids of the steering messages in earlier requests."""
    unread: Sequence[HumanMessage]
    """The steering messages of this request."""
    reported: Sequence[AnyMessage] = ()
    """The run's user message, if its environment is new."""


async def with_new_environment(
    step: AgentStep, tools: ResolvedTools, told_by_hooks: str = ""
) -> AgentStep:
    """Add what is new in the agent's environment to the run's user message.

    An agent with the caller's own system prompt gets only what hooks tell.
    """
    settings, messages = step.session.settings, step.state["messages"]
    user = history.last_user_message(messages)
    own_prompt = settings.prompts.get("system") or step.agent.prompts.get("system")
    facts = {"hooks": render("told_by_hooks", text=told_by_hooks)} if told_by_hooks else {}
    heads: list[str] = []
    if user is None or (own_prompt is not None and not facts):
        return step
    if own_prompt is None:
        own, heads = await _own_facts(step, tools, user)
        facts = own | facts
    known = with_environment(messages, recorder.with_recorded_folders(facts, step.session), heads)
    if known is None:
        return step
    reported = [one for one in known if one.id == user.id]
    return replace(step, state={**step.state, "messages": known}, reported=reported)


async def _own_facts(
    step: AgentStep, tools: ResolvedTools, user: HumanMessage
) -> tuple[dict[str, str], list[str]]:
    """Return what an agent of ours is told, by name, and the files whose content it is shown."""
    settings, heads = step.session.settings, list[str]()
    facts = await environment(step.session, step.agent.tools, step.state["run_date"])
    if READ_FILE in step.agent.tools and settings.skills:
        copy = partial(copy_skills, settings.skills, step.session.workspace)
        where = await recorder.fact_of_run(step.session, "skills folder", copy, str)
        facts["skills"] = render("skills_folder", folder=str(where))
    if ENVIRONMENT_KEY not in user.additional_kwargs:  # the run begins
        if MEMORY in tools.toolset.tools:
            from openmanus_graph.tools.memory import memory_prompt  # which few runs have

            facts["memory"] = await memory_prompt(step.session)
        is_part = history.STEP_KEY in user.additional_kwargs  # its author names the files
        if settings.listing and not is_part and not FILE_TOOLS.isdisjoint(step.agent.tools):
            run = step.state["run_message"]
            words = provenance.person_words(user)
            facts[LISTING], heads = await file_listing(step.session, run, words)
    return facts, heads


async def build_call(
    step: AgentStep, tools: ResolvedTools, middleware: "ModelCallHooks | None"
) -> call_model.ModelCall:
    """Return the model call of this agent step: from the state, with its reminder."""
    messages = step.state["messages"]
    suffix = reminder(step, tools)
    if history.last_results(messages) and await run_models.asks_small_model(step.session):
        # Small models lose sight of the task, and of the files that were made. Files are shown only
        # after the run has read any, because reading restricts what it may do.
        made = ""
        if value_labels.labels_of(messages, tools.toolset.traits).read_private:
            read = partial(made_files, step.session.workspace, step.state["run_message"])
            made = await recorder.recorded_fact(step.session, "made files", read)
        task = replies.task_of(messages)[:MOST_REMINDED_CHARS]
        again = render("task_again", task=task, made=mark_untrusted(made) if made else "none")
        suffix = "\n\n".join(filter(None, (suffix, again)))
    return call_model.ModelCall(
        system=await system_prompt(step),
        history=[*messages, *step.unread] if step.unread else messages,
        reminder=suffix,
        tools=tools.toolset.loaded_definitions(step.state.get("loaded_tools", ())),
        progress=step.progress,
        step=step.progress.steps + 1,
        traits=tools.toolset.traits,
        untrusted_prompt=tools.toolset.untrusted_prompt,
        counts_as_step=True,
        live_state=live_state(step.session, step.state),
        sleep=sleep_unless_stopped,
        middleware=middleware,
        keeps_reserve=budget.keeps_summary_reserve(step.progress.steps),
        resamples=replies.asks_again(messages),
        says_what_is_left=True,
    )


async def system_prompt(step: AgentStep) -> str:
    """Return the agent's system prompt, or the caller's own. It is the same in all threads."""
    settings = step.session.settings
    own = settings.prompts.get("system") or step.agent.prompts.get("system")
    if own is not None:
        return f"{own}\n\n{render('text_from_outside')}"
    asked = history.last_user_message(step.state["messages"])
    hands_over = asked is not None and asked.additional_kwargs.get(history.HANDOVER_KEY, False)
    small = step.agent.name == "manus" and await run_models.asks_small_model(step.session)
    said = render("small_system") if small else own_prompt(step.agent, hands_over=hands_over)
    parts = [said, render("text_from_outside")]
    instructions = await recorder.fact_of_run(
        step.session, recorder.INSTRUCTIONS, lambda: settings.instructions
    )
    if instructions:
        parts.append(render("project_instructions", instructions=instructions))
    if READ_FILE in step.agent.tools:
        lines = "\n".join(f"- {skill.name}: {skill.description}" for skill in settings.skills)
        skills = render("skills", skills=lines) if lines else ""
        parts.append(await recorder.fact_of_run(step.session, recorder.SKILLS, lambda: skills))
    return "\n\n".join(filter(None, parts))


def own_prompt(agent: Agent, *, hands_over: bool = False) -> str:
    """Return what an agent does, the rules for the tools that it has, and how it ends."""
    rules = (name for name, tools in _RULES.items() if tools <= agent.tools.keys())
    ending = "step_ending" if hands_over else agent.ending
    role = agent.text or render(agent.system_prompt)
    return "\n".join((role, *map(render, (*rules, ending))))


def reminder(step: AgentStep, tools: ResolvedTools) -> str:
    """Return the end of this request only; later requests do not include it."""
    prompts = step.session.settings.prompts
    next_step = prompts.get("next_step") or step.agent.prompts.get("next_step", "")
    known = step.state.get("handle_state", {})
    if step.browser_restorable:
        known = {
            name: one for name, one in known.items() if not name.startswith(f"{BROWSER_HANDLE}:")
        }
    lost = lost_state(known, step.live_handles)
    parts = (
        next_step,
        step.state.get("hint", ""),
        render("resumed") if compaction.is_closed(step.state["messages"]) else "",
        render("lost_handle_state", lost_state=_listed(lost)) if lost else "",
        render("kept_browser") if step.browser_restorable else "",
        render("server_changes", changes=_listed(tools.changes)) if tools.changes else "",
    )
    return "\n\n".join(filter(None, parts))


def _listed(items: Iterable[str]) -> str:
    return mark_untrusted("\n".join(f"- {item}" for item in items))


def live_state(session: Session, state: ManusState) -> call_model.LiveState | None:
    """Return the view of the browser or the desktop, whichever was used last."""
    messages = state["messages"]
    open_handles = {identity.partition(":")[0] for identity in session.identities()}
    for last in range(1, RECENT_MESSAGES + 1):
        if history.recently_called(messages, BROWSER, last) and BROWSER_HANDLE in open_handles:
            # Only here: a run that needs no browser loads nothing of it.
            from openmanus_graph.backends.browser.pages import state_for_request

            read = partial(state_for_request, session, after_observation=last == 1)
            return call_model.LiveState("The browser shows now:", _recorded_state(session, read))
        if history.recently_called(messages, DESKTOP, last) and DESKTOP_HANDLE in open_handles:
            from openmanus_graph.backends.desktop.actions import state_for_request

            read = partial(state_for_request, session, after_observation=last == 1)
            shown = _recorded_state(session, read)
            return call_model.LiveState("The screen shows now:", shown, needs_pictures=True)
    return None


def _recorded_state(session: Session, read: call_model.ReadState) -> call_model.ReadState:
    """Record what a live handle shows."""

    async def recorded(picture: bool) -> tuple[str, str | None]:
        text, shown = await recorder.awaited_fact(
            session, "live state", partial(read, picture), recorder.without_data
        )
        return text, shown

    return recorded


async def browser_restorable(state: ManusState, session: Session) -> bool:
    """Return True if the browser has ended, and opens again with the tabs that it had."""
    states, live = state.get("handle_state", {}), session.identities()
    if not lost_state(states, live, f"{BROWSER_HANDLE}:"):
        return False
    # A thread imports it, and only here: a run that needs no browser loads nothing of it.
    kept = await asyncio.to_thread(import_module, "openmanus_graph.backends.browser.kept_state")
    return await recorder.recorded_fact(
        session, "kept browser", partial(kept.has_kept_tabs, session)
    )


_NETWORK = "reach the network"
_ASKS = (
    "reach, by http and https only, the hosts that the person named; the person is asked about "
    "others"
)
_NO_NETWORK = "have no network: nothing can be installed"
_PYTHON_TOOLS = frozenset({"python_execute", "bash"})


async def environment(session: Session, tools: Collection[str], date: str) -> dict[str, str]:
    """Return the facts for all agents, by name.

    None of them changes within a run, unless it is resumed elsewhere or with other settings.
    """
    settings = session.settings
    shown = await run_models.run_models(session).see_pictures()
    models = await run_models.run_models(session).configured()
    free = await recorder.fact_of_run(
        session, "free models", lambda: all(one.is_free(settings.prices) for one in models)
    )
    limits = [one for one in _limits(settings) if not (free and one.startswith("$"))]
    facts = {
        "environment": render(
            "environment",
            workspace=str(settings.workspace),
            date=date,
            pictures="shown" if shown else "not shown",
            limits=" and ".join(limits),
        )
    }
    if not _PYTHON_TOOLS.isdisjoint(tools):
        libraries, reachable = await recorder.fact_of_run(
            session, "python", partial(_python, settings.sandbox)
        )
        facts["python"] = render(
            "environment_python",
            libraries=libraries or "the libraries of its image",
            network=_ASKS if reachable == "ask" else _NETWORK if reachable else _NO_NETWORK,
        )
        if settings.sandbox.mode == "ssh":
            facts["elsewhere"] = render("environment_elsewhere", host=settings.sandbox.ssh_host)
    return facts


def _limits(settings: Settings) -> Iterator[str]:
    yield f"{settings.max_steps} steps"
    yield f"${settings.max_cost_usd:g}"
    if settings.max_total_tokens is not None:
        yield f"{settings.max_total_tokens} tokens"
    if settings.timeout_s is not None:
        yield f"{settings.timeout_s:.0f} seconds"


async def file_listing(session: Session, run: str, task: str) -> tuple[str, list[str]]:
    """Return the list of the workspace's files as a run begins, and those whose content it shows.

    After a file's content is shown, more needs approval. So if the user's words are about a site,
    only the files that they name are shown.
    """
    is_about_site = any(urls.urls_in(task)) or any(urls.named_domains(task))
    only = named_files(task) if is_about_site else None
    small = await run_models.asks_small_model(session)
    read = partial(workspace_listing, session.workspace, only, small=small)
    text, heads = await recorder.recorded_fact(session, f"listing of {run}", read, list)
    return (render("listing", files=mark_untrusted(text)), heads) if text else ("", heads)


@cache
def _python(sandbox: SandboxSettings) -> list[Any]:
    """Return the libraries, and if programs reach the network, or `ask`. Blocks at first."""
    name = backend_name(sandbox)
    is_asked = name == "bwrap" and sandbox.network == "ask"
    reachable = "ask" if is_asked else reaches_network(name, sandbox)
    return [", ".join(usual_libraries(sandbox)), reachable]
