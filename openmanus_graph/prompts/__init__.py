"""The texts that models read: one Markdown file each, rendered by one typed function."""

from collections.abc import Iterable
from importlib import resources
from string import Template

from openmanus_graph.stuck import Verdict


def manus_system_prompt(*, workspace: str, date: str, instructions: str) -> str:
    """Render the system prompt of manus.

    Args:
        workspace: Absolute path of the run's folder.
        date: ISO date on which the run began.
        instructions: The project's AGENTS.md, or nothing.
    """
    text = _render("manus_system", workspace=workspace, date=date)
    return _with_instructions(text, instructions)


def browser_system_prompt(*, workspace: str, date: str, instructions: str) -> str:
    """Render the system prompt of the browser agent; takes what manus's takes."""
    text = _render("browser_system", workspace=workspace, date=date)
    return _with_instructions(text, instructions)


def _with_instructions(text: str, instructions: str) -> str:
    """Add the project's AGENTS.md to a system prompt."""
    if not instructions:
        return text
    return f"{text}\n\n{_render('project_instructions', instructions=instructions.strip())}"


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
