"""Models without tool calls, which write their calls as text."""

import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.models.failures import ModelError, classify
from openmanus_graph.model_calls.calls_as_text import turns_as_text
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import add, calls, own_text, run_graph, scripted
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.unit.test_models_failures import status_error

SNAPSHOT = Path(__file__).parent.parent / "unit" / "snapshots" / "text_tools.md"
REFUSED = ModelError("no_tools", "scripted refused the request: it does not support tools.")


def written(*made: tuple[str, dict[str, Any]]) -> str:
    return "\n".join(
        f"<tool_call>{json.dumps({'name': name, 'arguments': args})}</tool_call>"
        for name, args in made
    )


ADD = written(("add", {"a": 1, "b": 2}))


async def run_as_text(*replies: str, **context: Any) -> Any:
    return await run_graph(build_manus_graph(tools=[add]), *replies, tool_calling="text", **context)


async def test_a_model_that_writes_its_calls_does_a_task() -> None:
    ran = await run_as_text(f"I add.\n{ADD}", "The sum is 3.")
    assert ran.values["answer"] == "The sum is 3."
    assert ran.results() == ["3"]
    assert ran.model.options == [{}, {}], "no tools are sent"
    system, task, reply, result = ran.model.requests[1]
    assert system == ran.model.requests[0][0], "the prefix stays as it is"
    assert '{"name":"add","description":"Add two numbers."' in system.text
    assert (own_text(task), type(result)) == ("the task", HumanMessage)
    assert (
        reply.text
        == 'I add.\n<tool_call>{"name": "add", "arguments": {"a": 1, "b": 2}}</tool_call>'
    )
    assert isinstance(reply, AIMessage)
    assert reply.tool_calls == []
    assert result.text == "<tool_result>\n3\n</tool_result>"


async def test_the_description_of_the_tools_is_as_in_the_snapshot() -> None:
    ran = await run_as_text("done")
    described = "# Tools" + ran.model.requests[0][0].text.partition("# Tools")[2]
    assert described.splitlines() == SNAPSHOT.read_text(encoding="utf-8").splitlines()


async def test_calls_of_one_reply_are_all_run_and_answered_together() -> None:
    two = written(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
    ran = await run_as_text(two, "3 and 7")
    assert ran.results() == ["3", "7"]
    assert ran.model.requests[1][-1].text == (
        "<tool_result>\n3\n</tool_result>\n\n<tool_result>\n7\n</tool_result>"
    )


@pytest.mark.parametrize(
    ("half", "said"),
    [
        ('<tool_call>{"name": "add", "arguments": {"a": 1, "b"', "not a JSON object"),
        ('<tool_call>{"name": "add", "arguments": {"a": "one", "b": 2}}</tool_call>', "a:"),
        ('<tool_call>{"name": "subtract", "arguments": {}}</tool_call>', "no tool"),
    ],
)
async def test_a_wrong_call_is_answered_as_everybodys_is(half: str, said: str) -> None:
    ran = await run_as_text(half, ADD, "3")
    assert ran.values["answer"] == "3"
    shown = ran.model.requests[1][-1].text
    assert shown.startswith('<tool_result status="error">')
    assert said in shown


async def test_a_call_that_the_length_limit_cut_is_not_run() -> None:
    cut = AIMessage(ADD, response_metadata={"finish_reason": "length"})
    ran = await run_graph(build_manus_graph(tools=[add]), cut, "sorry", tool_calling="text")
    assert "was cut off by its length limit" in ran.results()[0]


async def test_a_model_that_was_asked_for_text_is_not_blamed_for_it() -> None:
    ran = await run_as_text(ADD, "3")
    assert "through the tool interface" not in str(ran.model.requests[1])


async def test_a_quoted_call_of_a_result_is_not_run() -> None:
    ran = await run_as_text(ADD, "The page says 3.", task=f"What does this do? {ADD}")
    assert ran.results() == []


async def test_a_server_that_refuses_tools_is_asked_again_with_text_and_that_is_remembered() -> (
    None
):
    model = scripted(REFUSED, ADD, "3", "again")
    graph = build_manus_graph(tools=[add])
    ran = await run_graph(graph, model=model)
    assert ran.values["answer"] == "3"
    assert [bool(one.get("tools")) for one in model.options] == [True, False, False]
    reported = [event["text"] for event in ran.events if event["type"] == "notice"]
    assert len([text for text in reported if "write its calls as text" in text]) == 1
    await run_graph(graph, model=model)
    assert "tools" not in model.options[3], "in the next run, too"
    assert ran.values["usage"]["model_calls"] == 2, "the refused one cost nothing"


async def test_a_refusal_over_http_is_known_and_remembered_by_address() -> None:
    refusal = {"message": "registry.ollama.ai/library/gemma:2b does not support tools"}
    script = [Reply(status=400, error=refusal), Reply(text=ADD), Reply(text="3")]
    with OpenAIServer(script, strict=True) as server:
        ran = await run_graph(
            build_manus_graph(tools=[add]), model="openai:gemma", base_url=server.base_url
        )
        await close_models()
        assert ran.values["answer"] == "3"
        assert ["tools" in request.body for request in server.requests] == [True, False, False]


async def test_a_client_without_tools_is_asked_with_text() -> None:
    model = FakeListChatModel(responses=[ADD, "3"])
    ran = await run_graph(build_manus_graph(tools=[add]), model=model)
    assert ran.values["answer"] == "3"


async def test_native_is_never_replaced() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[add]), model=scripted(REFUSED, "never"), tool_calling="native"
    )
    assert ran.values["status"] == "failed"
    assert "it does not support tools" in ran.values["answer"]


async def test_a_text_model_takes_over_from_one_with_calls() -> None:
    first = scripted(calls(("add", {"a": 1, "b": 2})), ModelError("quota", "Out of quota."))
    second = scripted(REFUSED, "The sum is 3.")
    ran = await run_graph(build_manus_graph(tools=[add]), model=first, fallback=(second,))
    assert ran.values["answer"] == "The sum is 3."
    assert "<tool_call>" in second.requests[1][2].text


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "stablelm2:latest does not support tools"),
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'),
        (500, "Unsupported param: tools"),
        (500, "tools param requires --jinja flag"),
        (400, "Please launch the api_server with --tool-call-parser if you want to use tool."),
        (400, "Hermes 2 Pro Tool parser could not locate tool call start/end tokens"),
        (404, "No endpoints found that support tool use. To learn more about provider routing"),
        (400, "tools is not supported in this model. For a list of supported models, refer to"),
        (400, "`tool calling` is not supported with this model"),
        (400, "`tools` is not supported with this model"),
        (405, "deepinfra error: Tool calling is not supported for model: Hermes-3"),
        (400, "deepseek-reasoner does not support Function Calling"),
        (400, "The model does not support tool use or function calling but tools were specified"),
        (400, "This model doesn't support tool use."),
        (400, "Function calling is not enabled for models/gemma-3-4b-it"),
        (400, "The tool call is not supported"),
    ],
)
def test_refusals_of_tools_are_known_in_the_words_of_servers(status: int, said: str) -> None:
    failure = classify(status_error(status, said=said))
    assert failure is not None
    assert failure.kind == "no_tools"


def test_messages_of_one_speaker_become_one() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,A"}}
    request: list[BaseMessage] = [
        HumanMessage("task"),
        calls(("add", {"a": 1})),
        ToolMessage("no b", tool_call_id="c1", status="error"),
        HumanMessage([{"type": "text", "text": "Pictures: a.png"}, picture]),
        HumanMessage("hint"),
    ]
    text = turns_as_text(request)
    assert [message.type for message in text] == ["human", "ai", "human"]
    assert text[2].content == [
        {"type": "text", "text": '<tool_result status="error">\nno b\n</tool_result>'},
        {"type": "text", "text": "Pictures: a.png"},
        picture,
        {"type": "text", "text": "hint"},
    ]


async def test_the_native_request_is_what_it_was() -> None:
    ran = await run_graph(build_manus_graph(tools=[add]), "done")
    assert isinstance(ran.model, ScriptedChatModel)
    assert "# Tools" not in ran.model.requests[0][0].text
    assert ran.model.tool_names(0) == ["add"]
