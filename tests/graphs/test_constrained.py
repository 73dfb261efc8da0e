"""Models whose steps a schema constrains: the conversation is as everybody's."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.backends.models.resolved import instance_model
from openmanus_graph.backends.models.server_facts import ServerFacts
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.tools.closing import terminate
from tests.support.graphs import add, run_graph, scripted
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

TOOLS = [add, terminate]
ARGS = {"a": 1, "b": 2}
WRITTEN = f"<tool_call>{json.dumps({'name': 'add', 'arguments': ARGS})}</tool_call>"


def step(action: str, given: Any, thought: str = "so", **more: Any) -> str:
    return json.dumps({"thought": thought, "action": action, "input": given, **more})


ADD = step("add", {"a": 1, "b": 2}, "I add.")
DONE = step("answer", "The sum is 3.")


async def run_constrained(*replies: str, **context: Any) -> Any:
    graph = build_manus_graph(tools=TOOLS)
    return await run_graph(graph, *replies, tool_calling="constrained", **context)


def allowed(options: Any) -> list[str]:
    """Return the actions that a request's schema leaves."""
    wanted = options["response_format"]["json_schema"]["schema"]["anyOf"]
    actions = [one["properties"]["action"] for one in wanted]
    return [name for one in actions for name in one.get("enum", [one.get("const")])]


async def run_small(server: OpenAIServer, **context: Any) -> Any:
    try:
        return await run_graph(
            build_manus_graph(tools=TOOLS),
            model="openai:m",
            base_url=server.base_url,
            **dict[str, Any]({"profile": "small", **context}),
        )
    finally:
        await close_models()


async def test_a_step_is_a_native_call_in_the_history() -> None:
    ran = await run_constrained(ADD, DONE)
    assert (ran.values["status"], ran.values["answer"]) == ("finished", "The sum is 3.")
    assert ran.results() == ["3"]
    reply = next(one for one in ran.values["messages"] if isinstance(one, AIMessage))
    assert (reply.text, reply.tool_calls[0]["name"]) == ("I add.", "add")
    assert "openmanus_text_calls" not in str(ran.values["messages"])
    assert not [one for one in ran.events if one["type"] == "token"], "no JSON is streamed"


async def test_the_request_has_a_schema_and_no_tools() -> None:
    ran = await run_constrained(ADD, DONE, profile="small")
    for options in ran.model.options:
        assert options.keys() == {"response_format", "max_tokens"}, "it may write on without an end"
        assert allowed(options) == ["add", "answer", "give_up"]
    first, second = ran.model.requests
    assert second[0] == first[0], "the prefix stays as it is"
    assert json.loads(second[2].text) == json.loads(ADD)
    assert isinstance(second[3], HumanMessage)
    assert second[3].text.startswith("Result of add:\n3")


async def test_what_could_not_be_done_is_no_success() -> None:
    ran = await run_constrained(step("give_up", "There is no such file."))
    assert (ran.values["status"], ran.values["answer"]) == ("failed", "There is no such file.")


async def test_a_task_about_files_or_figures_is_begun_by_an_action() -> None:
    for task, ends in [("Add 1 and 2.", False), ("What is in a.txt?", False), ("Hello!", True)]:
        ran = await run_constrained(ADD, DONE, task=task)
        first, second = map(allowed, ran.model.options)
        assert ("answer" in first) is ends
        assert "answer" in second


async def test_a_repeated_action_is_left_out_next() -> None:
    other = step("add", {"a": 2, "b": 2})
    ran = await run_constrained(ADD, ADD, other, other, step("answer", "4"))
    assert ["add" in allowed(one) for one in ran.model.options] == [True, True, False, False, False]
    ran = await run_constrained(ADD, other, step("add", {"a": 3, "b": 2}), step("answer", "5"))
    assert all("add" in allowed(one) for one in ran.model.options)


async def test_at_the_limit_only_an_answer_is_left() -> None:
    ran = await run_constrained(ADD, DONE, max_steps=1)
    assert [allowed(one) for one in ran.model.options][-1] == ["answer", "give_up"]
    assert (ran.values["status"], ran.values["answer"]) == ("stopped", "The sum is 3.")


@pytest.mark.parametrize(
    ("action", "written", "run"),
    [
        ("python", "print('a\nb')", ("python_execute", "print('a\\nb')")),
        ("python", "python -c 'print(3)'", ("python_execute", "print(3)")),
        ("python", "grep -c a b.txt", ("bash", "grep -c a b.txt")),
        (
            "python",
            ["for n in (1,):", "    print(n)"],
            ("python_execute", "for n in (1,):\n    print(n)"),
        ),
        ("bash", "wc -l b.txt", ("bash", "wc -l b.txt")),
    ],
)
async def test_an_action_is_run_as_it_is_meant(
    action: str, written: str | list[str], run: tuple[str, str]
) -> None:
    graph = build_manus_graph()
    replies = step(action, written), step("answer", "so"), step("answer", "so")
    ran = await run_graph(
        graph, *replies, task="Do it.", tool_calling="constrained", sandbox="none"
    )
    reply = next(one for one in ran.values["messages"] if isinstance(one, AIMessage))
    assert (reply.tool_calls[0]["name"], next(iter(reply.tool_calls[0]["args"].values()))) == run


async def test_code_is_a_list_of_lines_in_each_request() -> None:
    code = step("python", ["a = 1", "print(a)"])
    graph = build_manus_graph()
    context: dict[str, Any] = {"tool_calling": "constrained", "sandbox": "none"}
    ran = await run_graph(graph, code, step("answer", "It is 1."), task="Do it.", **context)
    schema = ran.model.options[0]["response_format"]["json_schema"]["schema"]
    python = schema["anyOf"][0]["properties"]
    assert (python["action"], python["input"]["type"]) == ({"const": "python"}, "array")
    assert json.loads(ran.model.requests[1][2].text) == json.loads(code)
    assert ran.results() == ["1"]


async def test_after_a_refused_answer_something_is_done() -> None:
    replies = ADD, step("answer", "I will add them now."), step("add", {"a": 2, "b": 1}), DONE
    ran = await run_constrained(*replies, task="Add 1 and 2.")
    assert ["answer" in allowed(one) for one in ran.model.options] == [False, True, False, True]
    last = json.loads(ran.model.requests[-1][-2].text)
    assert last["thought"] == "so", "not the refused answer"
    assert (ran.values["status"], ran.values["answer"]) == ("finished", "The sum is 3.")


@pytest.mark.parametrize(
    ("task", "searches"),
    [
        ("How many lines has a.txt?", False),
        ("What is 17 times 3?", False),
        ("Search the web for news.", True),
        ("Send Anna the minutes.", True),
        ("Query the customer database.", True),
        ("Which port has the database in settings.json?", False),
        ("Search notes.txt for the name.", False),
        ("Compare prices.csv with the prices on the web.", True),
    ],
)
async def test_other_tools_are_searched_for_where_they_are_needed(
    task: str, searches: bool
) -> None:
    give_up = step("give_up", "no")
    context: dict[str, Any] = {"tool_calling": "constrained", "profile": "small"}
    ran = await run_graph(build_manus_graph(), step("bash", "true"), give_up, task=task, **context)
    assert [("search_tools" in allowed(one)) for one in ran.model.options] == [searches] * 2
    begun, asked = ran.model.requests[0][0].text, ran.model.requests[0][1].text
    assert "search_tools" not in begun, "it is the same for all tasks"
    assert ("- search_tools:" in asked) is searches
    assert asked.endswith(task)


async def test_a_small_model_is_told_its_task_again_with_a_result() -> None:
    made = AIMessage("", tool_calls=[{"name": "add", "args": ARGS, "id": "c"}])
    for profile, times in [("small", 2), ("standard", 1)]:
        ran = await run_graph(
            build_manus_graph(tools=TOOLS), made, "3", task="Add one and two.", profile=profile
        )
        assert str(ran.model.requests[-1]).count("Add one and two.") == times


async def test_a_small_model_is_shown_how_files_begin_that_are_there_and_that_it_makes(
    tmp_path: Path,
) -> None:
    (tmp_path / "names.txt").write_text("".join(f"name {n}\n" for n in range(30)))
    code = step("python", ["with open('b.json', 'w') as f:", "    f.write('{\"a\": 1}\\n')"])
    replies = code, step("give_up", "no")
    context: dict[str, Any] = {"sandbox": "none", "workspace": str(tmp_path), "profile": "small"}
    ran = await run_graph(
        build_manus_graph(), *replies, task="Fill b.json.", tool_calling="constrained", **context
    )
    begun, then = (str(one[-1].text) for one in ran.model.requests)
    assert ", 30 lines\n    name 0\n" in begun
    assert "name 11" in begun
    assert "name 12" not in begun
    assert 'b.json  9 bytes, an object with a, 1 lines\n    {"a": 1}' in then
    replies = "done", "done"
    context["profile"] = "standard"
    usual = await run_graph(build_manus_graph(), *replies, task="Fill b.json.", **context)
    assert "name 1" not in str(usual.model.requests)


@pytest.mark.parametrize("first", [Reply(text=WRITTEN), Reply(calls=(Call("add", ARGS),))])
async def test_a_server_that_does_not_constrain_is_asked_natively_from_then_on(
    first: Reply,
) -> None:
    script = [first, Reply(text="The sum is 3.")]
    with OpenAIServer(script, strict=True) as server:
        ran = await run_small(server)
    assert ran.values["answer"] == "The sum is 3."
    sent = ["response_format" in one.body for one in server.requests]
    assert sent == [True, False], "its reply was read all the same"
    assert ["tools" in one.body for one in server.requests] == [False, True]


@pytest.mark.parametrize(
    "said",
    [
        "This response_format type is unavailable now",
        "This model does not support response format `json_schema`.",
        "'response_format.type' must be 'json_object' or 'text'",
        '"tools" is incompatible with "response_format"',
        "Failed to initialize samplers: failed to parse grammar",
    ],
)
async def test_a_server_that_refuses_a_schema_is_asked_natively_from_then_on(said: str) -> None:
    script = [Reply(status=400, error={"message": said}), Reply(text="3"), Reply(text="3")]
    with OpenAIServer(script, strict=True) as server:
        for _ in range(2):
            ran = await run_small(server)
            assert ran.values["status"] == "finished"
    assert ["response_format" in one.body for one in server.requests] == [True, False, False]


async def test_a_schema_that_was_asked_for_and_refused_is_not_sent_again() -> None:
    refused = Reply(status=400, error={"message": "This response_format type is unavailable now"})
    wanted: dict[str, Any] = {"tool_calling": "constrained", "profile": "standard"}
    with OpenAIServer([refused, Reply(text="3"), Reply(text="3")], strict=True) as server:
        for _ in range(2):
            assert (await run_small(server, **wanted)).values["status"] == "finished"
    assert ["response_format" in one.body for one in server.requests] == [True, False, False]


async def test_only_a_small_model_s_step_has_to_be_short() -> None:
    for profile in ("small", "standard"):
        with OpenAIServer([Reply(text=DONE)], strict=True) as server:
            await run_small(server, tool_calling="constrained", profile=profile)
        assert ("max_tokens" in server.requests[0].body) is (profile == "small")


async def test_other_arguments_of_code_stay() -> None:
    code = step("python", {"code": "print(os.getcwd())", "timeout": 9})
    graph = build_manus_graph()
    ran = await run_graph(graph, code, "3", tool_calling="constrained", sandbox="none")
    reply = next(one for one in ran.values["messages"] if isinstance(one, AIMessage))
    assert reply.tool_calls[0]["args"] == {"code": "import os\nprint(os.getcwd())", "timeout": 9}


async def test_odd_replies_make_a_model_small_for_their_run_alone() -> None:
    odd = [Reply(text=f"```python\nprint({n})\n```") for n in (1, 2)]
    script = [*odd, Reply(text=DONE), Reply(text="The sum is 3.")]
    with OpenAIServer(script, strict=True) as server:
        for _ in range(2):
            await run_graph(
                build_manus_graph(), model="openai:m", base_url=server.base_url, sandbox="none"
            )
        await close_models()
    sent = ["response_format" in one.body for one in server.requests]
    assert sent == [False, False, True, False]


async def test_a_small_model_is_sent_a_short_prompt_and_few_tools() -> None:
    ran = await run_graph(build_manus_graph(), "done", task="Hello!", profile="small")
    assert ran.model.tool_names(0) == [
        "python_execute", "bash", "read_file", "terminate", "search_tools",
    ]  # fmt: skip
    assert "step by step" in ran.model.requests[0][0].text
    usual = await run_graph(build_manus_graph(), "done", task="Hello!")
    assert len(str(ran.model.requests[0])) < len(str(usual.model.requests[0]))
    assert "search_tools" not in usual.model.tool_names(0)


@pytest.mark.parametrize(
    ("model", "parameters", "small"),
    [
        ("openai:qwen2.5-coder-1.5b-instruct", None, True),
        ("openai:llama3.2:3b", None, True),
        ("openai:qwen3-30b-a3b", None, False),
        ("openai:mixtral-8x7b", None, False),
        ("openai:gpt-5", None, False),
        ("openai:some.gguf", 1_500_000_000, True),
        ("openai:my-1b", 70_000_000_000, False),
    ],
)
def test_the_size_is_what_the_server_or_the_name_says(
    model: str, parameters: int | None, small: bool
) -> None:
    settings = ModelSettings(model, base_url="http://127.0.0.1:9/v1")
    known = instance_model(scripted(), settings)
    assert replace(known, facts=ServerFacts(parameters=parameters)).is_small is small
    set_so = replace(settings, profile="standard" if small else "small")
    assert instance_model(scripted(), set_so).is_small is not small
