"""The texts that models read: one Markdown file each, rendered by one typed function."""

from collections.abc import Iterable
from importlib import resources
from string import Template
from typing import Protocol

from openmanus_graph.stuck import Verdict


class SystemPrompt(Protocol):
    """Renders an agent's own system prompt."""

    def __call__(self, *, workspace: str, date: str, instructions: str) -> str:
        """Render it.

        Args:
            workspace: Absolute path of the run's folder.
            date: ISO date on which the run began.
            instructions: The project's AGENTS.md, or nothing.
        """
        ...


def _system_prompt(name: str) -> SystemPrompt:
    def render(*, workspace: str, date: str, instructions: str) -> str:
        text = _render(name, workspace=workspace, date=date)
        if not instructions:
            return text
        return f"{text}\n\n{_render('project_instructions', instructions=instructions.strip())}"

    return render


manus_system_prompt = _system_prompt("manus_system")
browser_system_prompt = _system_prompt("browser_system")
planner_system_prompt = _system_prompt("planner_system")
data_analysis_system_prompt = _system_prompt("data_analysis_system")
swe_system_prompt = _system_prompt("swe_system")
mcp_system_prompt = _system_prompt("mcp_system")


def stuck_hint(verdict: Verdict) -> str:
    """Render what the next request says to an agent that repeats itself."""
    if verdict.level == "hint":
        return _render("stuck_hint", repeats=str(verdict.repeats))
    return _render("stuck_change", repeats=str(verdict.repeats))


def empty_reply_hint() -> str:
    """Render the observation on a reply without text and without calls."""
    return _render("empty_reply")


def structured_answer_hint() -> str:
    """Render the reminder that the caller wants a structured answer."""
    return _render("structured_answer")


def terminate_refused(*, failed: str) -> str:
    """Render why a call of `terminate` did not end the run.

    Args:
        failed: Names of the calls beside it that failed.
    """
    return _render("terminate_refused", failed=failed)


def lost_hint(lost: Iterable[str]) -> str:
    """Render what went with the processes of tools.

    Args:
        lost: What each of them held.
    """
    return _render("lost", lost="\n".join(f"- {held}" for held in lost))


def servers_news(news: Iterable[str]) -> str:
    """Render what happened to MCP servers.

    Args:
        news: A sentence each.
    """
    return _render("servers_news", news="\n".join(f"- {item}" for item in news))


def compaction_system() -> str:
    """Render the system prompt of the call that writes notes."""
    return _render("compaction_system")


def compaction_request(*, task: str, transcript: str, words: str) -> str:
    """Render what that call is asked.

    Args:
        task: The user's words.
        transcript: What was said and done.
        words: How many words the notes may have.
    """
    return _render("compaction_request", task=task, transcript=transcript, words=words)


def compacted_task(*, task: str, notes: str) -> str:
    """Render the user message that a compacted conversation begins with.

    Args:
        task: The user's words.
        notes: What the model wrote down.
    """
    return _render("compacted_task", task=task, notes=notes)


def extract_system() -> str:
    """Render the system prompt of the call that answers a question from a page."""
    return _render("extract_system")


def extract_request(*, goal: str, url: str, part: str, text: str) -> str:
    """Render the question about a page.

    Args:
        goal: What the agent wants to know.
        url: Of the page.
        part: Which part of how many this is.
        text: Its Markdown.
    """
    return _render("extract_request", goal=goal, url=url, part=part, text=text)


def extract_merge(*, goal: str, url: str, answers: str) -> str:
    """Render the request to make one answer of those from several parts of a page.

    Args:
        goal: What the agent wants to know.
        url: Of the page.
        answers: One after another.
    """
    return _render("extract_merge", goal=goal, url=url, answers=answers)


def plan_create(*, roster: str, date: str) -> str:
    """Render the system prompt of the call that makes a plan.

    Args:
        roster: The executors, a line each.
        date: ISO date.
    """
    return _render("plan_create", roster=roster, date=date)


def plan_missing(*, problem: str) -> str:
    """Render why a reply was no plan."""
    return _render("plan_missing", problem=problem)


def plan_mend(*, plan: str, failures: str, replaced: str, completed: str) -> str:
    """Render the request to replace a part of a plan.

    Args:
        plan: As it stands.
        failures: What went wrong, a line per step.
        replaced: Ids of the steps that new ones take the place of.
        completed: Ids that new steps may depend on.
    """
    return _render(
        "plan_mend", plan=plan, failures=failures, replaced=replaced, completed=completed
    )


def plan_rejected(*, plan: str, reason: str) -> str:
    """Render what a person wants of a plan that they sent back."""
    return _render("plan_rejected", plan=plan, reason=reason)


def plan_step(*, task: str, plan: str, step: str, text: str, given: str, scratch: str) -> str:
    """Render what an executor is asked.

    Args:
        task: The user's words.
        plan: As it stands.
        step: The step's id.
        text: What it says.
        given: Results of the steps before it, and what went wrong the last time.
        scratch: Folder of its own.
    """
    return _render(
        "plan_step", task=task, plan=plan, step=step, text=text, given=given, scratch=scratch
    )


def plan_check() -> str:
    """Render the system prompt of the call that checks a step."""
    return _render("plan_check")


def plan_evidence(*, text: str, done_when: str, result: str, files: str) -> str:
    """Render what that call is shown.

    Args:
        text: The step's.
        done_when: The question.
        result: What the step's run answered.
        files: What it changed.
    """
    return _render("plan_evidence", text=text, done_when=done_when, result=result, files=files)


def plan_summary() -> str:
    """Render the system prompt of the call that writes the answer."""
    return _render("plan_summary")


def plan_results(*, task: str, results: str) -> str:
    """Render what that call is shown.

    Args:
        task: The user's words.
        results: Of all steps.
    """
    return _render("plan_results", task=task, results=results)


def _render(name: str, **values: str) -> str:
    template = _TEMPLATES[name]
    if set(template.get_identifiers()) != set(values):
        raise ValueError(f"prompt {name} takes {template.get_identifiers()}, not {list(values)}")
    return template.substitute(values).strip()


# Read with the module, as code is: a read at first use would block the event loop.
_TEMPLATES = {
    file.name.removesuffix(".md"): Template(file.read_text("utf-8"))
    for file in resources.files("openmanus_graph.prompts").iterdir()
    if file.name.endswith(".md")
}
