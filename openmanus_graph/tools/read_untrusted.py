"""`read_untrusted`: typed answers out of a text that the conversation never holds."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, cast

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.prebuilt import ToolRuntime
from pydantic import WithJsonSchema

from openmanus_graph.conversation.answer_sources import unsupported
from openmanus_graph.errors import TrustedToolError
from openmanus_graph.prompts import render
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import Converse, call_runtime
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.state.tool_traits import InformationFlow, Observation
from openmanus_graph.state.validation import schema_defect, schema_problems
from openmanus_graph.tool_calls.declaration import manus_tool
from openmanus_graph.tools.files import text_of_file

MOST_READ_CHARS = 2_000_000
"""Of a text; the model gets the parts that share the most words with the question."""
MOST_VALUE_CHARS = 200
"""Of a text in the answer, so that an answer cannot carry a whole page."""
MOST_ANSWER_CHARS = 6000
_TRIES = 2


AnswerSchema = Annotated[dict[str, Any], WithJsonSchema({"type": "object"})]


def _addresses(args: Mapping[str, Any]) -> Sequence[str]:
    source = str(args.get("source", ""))
    return [source] if _is_url(source) else []


def _is_url(source: str) -> bool:
    return source.strip().lower().startswith(("http://", "https://"))


@manus_tool(
    effect="read_only",
    timeout_s=240,
    untrusted=True,
    reads_files=True,
    flow=InformationFlow(addresses=_addresses, guarded=True, composed=True),
)
async def read_untrusted(  # the model is not shown `runtime`
    source: str,
    question: str,
    answer_schema: AnswerSchema,
    runtime: ToolRuntime[Any, Any],
) -> Observation:
    """Have a text read that may hold orders of others: you get typed fields, never the text.

    Args:
        source: URL, or path of a file.
        question: What to find out.
        answer_schema: JSON schema of the answer: an object with named properties (numbers, dates,
            enums, short texts).
    """
    if defect := _defect_of(answer_schema):
        raise TrustedToolError(f"Nothing was read. {defect}")
    call = call_runtime(runtime)
    text = await _text_of(call.session, source)
    fitted = await asyncio.to_thread(_fitted, text, question)
    answer = await _ask(call.converse, fitted, question, answer_schema)
    said = json.dumps(answer, ensure_ascii=False)
    made_up = await asyncio.to_thread(unsupported, said, fitted)
    return Observation(said, bounded=True, unsupported=made_up)


def _defect_of(schema: Mapping[str, Any]) -> str:
    """Return why an answer in a schema would not be typed fields; empty if it would."""
    if defect := schema_defect(dict(schema)):
        return f"The schema {defect}."
    if schema.get("type") != "object" or not schema.get("properties"):
        return 'The schema must have "type": "object" and name its "properties".'
    return ""


async def _text_of(session: Session, source: str) -> str:
    """Return the text of a page, a document or a file. ToolError: it cannot be read, and why."""
    if not _is_url(source):
        found = await asyncio.to_thread(text_of_file, session, source, MOST_READ_CHARS)
        return found.text
    await asyncio.to_thread(import_module, "openmanus_graph.backends.web.reading")  # slow
    from openmanus_graph.backends.web.reading import page_text_of

    return await page_text_of(session, source.strip(), MOST_READ_CHARS)


def _fitted(text: str, question: str) -> str:
    from openmanus_graph.backends.web.page_text import choose_parts

    return "\n\n".join(choose_parts(text, question)[0])


async def _ask(
    converse: Converse, text: str, question: str, schema: dict[str, Any]
) -> dict[str, Any]:
    """Have the model answer, once more if its answer does not fit.

    ToolError: it could not be asked, or no answer fits; no word of the text is in it.
    """
    system = render("read_untrusted_system", schema=json.dumps(schema, ensure_ascii=False))
    request = render("read_untrusted_request", question=question, text=mark_untrusted(text))
    messages: list[AnyMessage] = [HumanMessage(request)]
    for _ in range(_TRIES):
        reply = await converse(system, messages)
        answer, problems = read_answer(reply.text, schema)
        if not problems:
            return cast("dict[str, Any]", answer)
        again = render("read_untrusted_again", problems="; ".join(problems))
        messages += [AIMessage(reply.text), HumanMessage(again)]
    raise TrustedToolError(
        "The text was read, but no answer to that question fits the schema. Let fields be null, "
        "allow fewer or other types, or ask another question."
    )


def read_answer(reply: str, schema: dict[str, Any]) -> tuple[Any, list[str]]:
    """Read a model's answer, JSON or a fenced block of it; also return what is wrong with it."""
    start, end = reply.find("{"), reply.rfind("}")
    try:
        answer: Any = json.loads(reply[start : end + 1])
    except (ValueError, RecursionError):
        return None, ["it is not a JSON object"]
    problems = schema_problems(schema, answer)
    described: list[Any] = [one.get("properties") for one in _nested(schema)[0]]
    known = {str(name) for one in described if isinstance(one, dict) for name in cast("Any", one)}
    objects, texts = _nested(answer)
    if unknown := {name for one in objects for name in one} - known:
        problems.append(f"the schema has no property {', '.join(sorted(unknown))}")
    if any(len(text) > MOST_VALUE_CHARS for text in texts):
        problems.append(f"a text has more than {MOST_VALUE_CHARS} characters")
    if len(json.dumps(answer, ensure_ascii=False)) > MOST_ANSWER_CHARS:
        problems.append(f"it has more than {MOST_ANSWER_CHARS} characters")
    return answer, problems


def _nested(value: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """Return all objects and all texts in JSON, at any depth."""
    objects, texts, pending = list[dict[str, Any]](), list[str](), [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            objects.append(cast("dict[str, Any]", one))
            pending += objects[-1].values()
        elif isinstance(one, list):
            pending += cast("list[Any]", one)
        elif isinstance(one, str):
            texts.append(one)
    return objects, texts
