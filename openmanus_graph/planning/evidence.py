"""What there is to judge a step by: its report, what its tools and the person said, its files.

All of it is marked as text from outside: a page that was read in a step must not talk its judge
round, nor the model that plans it anew.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.backends.files.file_content import content_head
from openmanus_graph.conversation.history import is_interjection
from openmanus_graph.errors import ToolError
from openmanus_graph.model_calls.condensed import cut_middle
from openmanus_graph.model_calls.flight_recorder import recorded_fact
from openmanus_graph.planning.step_outcome import names_in
from openmanus_graph.prompts import render
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, find, opened_file
from openmanus_graph.safety.untrusted_text import mark_untrusted
from openmanus_graph.state.planning import StepRun

SHOWN_RESULT_CHARS, RESULTS_CHARS = 2000, 8000
"""Of one tool's result, and of all that are kept: the newest."""
PERSON_CHARS = 3000
FILES_CHARS = 12_000
"""For the heads of all files."""
_ARGS_CHARS = 300
_MOST_FILES = 12
_MOST_NAMES = 500
_ASK_TOOL, _QUESTION = "ask_human", "inquire"


def run_evidence(messages: Sequence[AnyMessage]) -> str:
    """Return what the person and the tools said in a step's run; empty if they said nothing.

    Args:
        messages: Of the run.
    """
    calls = {
        str(call["id"]): call["args"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in message.tool_calls
    }
    person = "\n".join(_person_lines(messages, calls))
    results = [
        f"{one.name} {cut_middle(str(calls.get(one.tool_call_id, '')), _ARGS_CHARS)}\n"
        f"{cut_middle(one.text, SHOWN_RESULT_CHARS)}"
        for one in messages
        if isinstance(one, ToolMessage) and one.name != _ASK_TOOL
    ]
    parts = (
        ("What the person said in it:", cut_middle(person, PERSON_CHARS)),
        ("What its tools said, the newest last:", "\n\n".join(_newest(results))),
    )
    return "\n\n".join(f"{head}\n{mark_untrusted(text)}" for head, text in parts if text)


def _person_lines(
    messages: Sequence[AnyMessage], calls: Mapping[str, Mapping[str, object]]
) -> Iterator[str]:
    for message in messages:
        if is_interjection(message):
            yield message.text
        elif isinstance(message, ToolMessage) and message.name == _ASK_TOOL:
            question = calls.get(message.tool_call_id, {}).get(_QUESTION, "")
            yield f"Asked {question!r}: {message.text}"


def _newest(results: Sequence[str]) -> list[str]:
    """Return the last results that fit together."""
    left, first = RESULTS_CHARS, len(results)
    while first and len(results[first - 1]) <= left:
        first -= 1
        left -= len(results[first])
    return list(results[first:])


def attempt_text(step_run: StepRun) -> str:
    """Return why a step's newest attempt failed, with its report and what its tools said."""
    notes, result = step_run["notes"], step_run["result"]
    parts = [mark_untrusted(notes)]
    if result not in notes:
        parts.append(f"Its executor had reported:\n{mark_untrusted(result)}")
    return "\n\n".join(filter(None, (*parts, step_run.get("evidence", ""))))


async def evidence_text(step_run: StepRun, session: Session) -> str:
    """Return all that there is to judge a step by."""

    def read() -> str:
        return file_heads(_named_files(step_run, session.workspace), session.workspace)

    return render(
        "plan_evidence",
        report=mark_untrusted(step_run["result"]),
        run=step_run.get("evidence", ""),
        files=await recorded_fact(session, f"files to judge {attempt_name(step_run)} by", read),
    )


def attempt_name(step_run: StepRun) -> str:
    """Name an attempt at a step in the flight record."""
    return f"step {step_run['id']}, attempt {step_run['attempt']}"


def _named_files(step_run: StepRun, workspace: Workspace) -> list[str]:
    """Return the files that a step's check names, that it changed, and that it speaks of."""
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
    """Return how files begin, marked as text from outside. Blocks."""
    chars = FILES_CHARS // max(1, len(paths))
    heads: list[str] = []
    for path in paths:
        try:
            with opened_file(workspace, path) as file:
                heads.append(content_head(file, path, chars))
        except (OSError, ToolError) as error:
            heads.append(f"{path}: {error}")
    return mark_untrusted("\n\n".join(heads)) if heads else "none that are there"
