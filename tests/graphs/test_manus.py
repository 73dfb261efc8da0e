"""The manus graph: order of nodes, messages, what the model saw, and how runs end."""

import asyncio
import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.messages.tool import invalid_tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from pydantic import BaseModel
from typing_extensions import TypedDict

from openmanus_graph import (
    ConfigError,
    Context,
    Observation,
    ToolError,
    build_manus_graph,
    build_planning_graph,
    manus_tool,
)
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.tool_calls.declaration import file_resource
from openmanus_graph.tools.closing import ask_human, create_chat_completion, terminate
from openmanus_graph.tools.execution import python_execute
from openmanus_graph.tools.files import read_file, str_replace_editor
from tests.support.graphs import add, calls, own_text, run_graph, scripted
from tests.support.mcp_sdk import PNG

pytestmark = pytest.mark.usefixtures("no_blocking")


@tool
def explode(reason: str) -> str:
    """Raise."""
    raise ValueError(reason)


async def test_a_text_answer_ends_the_run() -> None:
    ran = await run_graph(build_manus_graph(tools=[add]), "forty-two")
    assert ran.nodes == ["think", "terminate"]
    assert ran.values["status"] == "finished"
    assert ran.values["stop_reason"] == "answer"
    assert ran.values["answer"] == "forty-two"


async def test_nodes_run_in_the_order_of_the_drawing() -> None:
    ran = await run_graph(build_manus_graph(tools=[add]), calls(("add", {"a": 1, "b": 2})), "three")
    assert ran.nodes == ["think", "act", "stuck_check", "think", "terminate"]
    assert ran.results() == ["3"]
    assert [m.type for m in ran.messages] == ["human", "ai", "tool", "ai"]
    assert ran.kinds() == ["think_start", "think_end", "tool_start", "tool_end", "think_start",
                           "token", "think_end"]  # fmt: skip


async def test_a_request_begins_with_the_one_before_byte_for_byte() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[add], prompts={"next_step": "go on"}),
        calls(("add", {"a": 1, "b": 1})),
        calls(("add", {"a": 1, "b": 2})),
        "done",
    )
    first, second, third = ([m.model_dump_json() for m in r] for r in ran.model.requests)
    assert second[: len(first) - 1] == first[:-1]
    assert third[: len(second) - 1] == second[:-1]
    assert first[-1] != second[-1] or "go on" in first[-1]


async def test_steering_text_stands_at_the_end_of_the_request_and_is_never_stored() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[add], prompts={"next_step": "go on"}), AIMessage(""), "done"
    )
    assert isinstance(ran.model.requests[0][0], SystemMessage)
    assert ran.model.requests[0][-1].text == "go on"
    assert "empty" in ran.model.requests[1][-1].text
    assert not any("go on" in m.text or "empty" in m.text for m in ran.messages)


async def test_an_empty_reply_is_looked_into_and_not_sent_back() -> None:
    ran = await run_graph(build_manus_graph(tools=[add]), AIMessage(""), "done")
    assert ran.nodes == ["think", "stuck_check", "think", "terminate"]
    assert all(m.text for m in ran.model.requests[1])


async def test_arguments_that_are_no_json_are_answered_and_the_run_goes_on() -> None:
    broken = AIMessage(
        "", invalid_tool_calls=[invalid_tool_call(name="add", args='{"a": 1', id="x", error=None)]
    )
    ran = await run_graph(build_manus_graph(tools=[add]), broken, "done")
    answer = next(m for m in ran.messages if isinstance(m, ToolMessage))
    assert answer.tool_call_id == "x"
    assert answer.status == "error"
    assert "not a JSON object" in answer.text
    assert ran.values["answer"] == "done"


class WholeModel(BaseChatModel):
    """Somebody's own model, which does not stream: each reply is made when it is asked for."""

    replies: list[Callable[[], Any]]
    requests: list[list[BaseMessage]] = []

    @property
    def _llm_type(self) -> str:
        return "whole"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.requests.append(messages)
        return ChatResult(generations=[ChatGeneration(message=self.replies.pop(0)())])


def unchecked(*made: Any, **fields: Any) -> Callable[[], AIMessage]:
    """Make a reply whose calls nobody has looked at."""
    values: dict[str, Any] = {"content": "", "tool_calls": list(made), **fields}
    return lambda: AIMessage.model_construct(None, **values)


def one_call(**fields: Any) -> dict[str, Any]:
    return {"name": "add", "args": {"a": 1, "b": 2}, "id": "x", "type": "tool_call", **fields}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (one_call(args=[1, 2]), "not a JSON object, so the call was not run: '[1, 2]'"),
        (one_call(args=["a"]), "not a JSON object"),
        (one_call(args=3), "not a JSON object"),
        (one_call(args=True), "not a JSON object"),
        (one_call(args='{"a": 1'), "not a JSON object"),
        (one_call(args='"{\\"a\\": 1, \\"b\\": 2}"'), "3"),
        (one_call(args="[1, 2]"), "not a JSON object"),
        (one_call(args={1: 2}), "not a JSON object"),
        (one_call(args={("a", "b"): 2}), "not a JSON object"),
        (one_call(args=None), "a: Field required"),
        ({"name": "add", "id": "x"}, "a: Field required"),
        ([1, 2], "not a JSON object"),
        ("add", "not a JSON object"),
        (None, "There is no tool"),
        (one_call(name=None), "There is no tool"),
        (one_call(name=["add"]), "There is no tool"),
        (one_call(args='{"a": 1, "b": 2}'), "3"),
        (one_call(id=None), "3"),
        (one_call(id=7), "3"),
        (one_call(extra=1), "3"),
        ({"name": "add", "args": {"a": 1, "b": 2}}, "3"),
    ],
)
@pytest.mark.slow
async def test_odd_calls_of_somebodys_own_model_are_answered(made: Any, said: str) -> None:
    replies = [unchecked(made, one_call(id="good")), lambda: AIMessage("done")]
    model: Any = WholeModel(replies=replies)
    ran = await run_graph(build_manus_graph(tools=[add]), model=model)
    first, second = (m for m in ran.messages if isinstance(m, ToolMessage))
    assert said in first.text
    assert (second.text, second.tool_call_id) == ("3", "good")
    assert ran.values["answer"] == "done"


@pytest.mark.parametrize(
    "broken",
    [
        lambda: AIMessage("", tool_calls=[one_call(args=[1, 2])]),
        lambda: AIMessage("", tool_calls=[one_call(args="{}")]),
        lambda: AIMessage("", tool_calls=[one_call(surprise=1)]),
        lambda: AIMessage("", tool_calls=[[1, 2]]),
        lambda: AIMessage(3),  # type: ignore[call-overload]
        lambda: AIMessage(
            "",
            additional_kwargs={"tool_calls": [{"function": {"name": "add", "arguments": "[1]"}}]},
        ),
        lambda: HumanMessage("hello"),
        lambda: None,
        unchecked(tool_calls=3),
        unchecked(usage_metadata="much"),
        unchecked(additional_kwargs=[1]),
        unchecked(response_metadata="none"),
    ],
)
async def test_a_reply_that_no_message_can_be_made_of_is_a_failure(broken: Any) -> None:
    graph = build_manus_graph(tools=[add])
    model: Any = WholeModel(replies=[broken])
    ran = await run_graph(graph, model=model, model_options={"max_retries": 0})
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
    assert "gave no usable reply" in ran.values["answer"]
    assert "errors.pydantic.dev" not in ran.values["answer"]


async def test_a_reply_that_no_message_can_be_made_of_is_asked_for_again() -> None:
    def broken() -> AIMessage:
        return AIMessage("", tool_calls=[one_call(args=[1, 2])])

    model: Any = WholeModel(replies=[broken, lambda: AIMessage("done")])
    ran = await run_graph(build_manus_graph(tools=[add]), model=model)
    assert ran.values["answer"] == "done"
    assert "tool_calls.0.args: Input should be a valid dictionary" in str(ran.events)


@pytest.mark.parametrize(
    ("name", "args", "said"),
    [
        ("ad", {}, "Did you mean add?"),
        ("add", {"a": 1}, "b: Field required"),
        ("add", {"a": "one", "b": 2}, "valid integer"),
        ("add", {"a": 1, "b": 2, "c": 3}, "no argument 'c'"),
        ("explode", {"reason": "boom"}, "ValueError: boom"),
    ],
)
async def test_a_wrong_or_failing_call_becomes_an_observation(
    name: str, args: dict[str, Any], said: str
) -> None:
    ran = await run_graph(build_manus_graph(tools=[add, explode]), calls((name, args)), "done")
    result = next(m for m in ran.messages if isinstance(m, ToolMessage))
    assert result.status == "error"
    assert said in result.text
    assert ran.values["status"] == "finished"


async def test_a_raising_tool_leaves_its_siblings_alone() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[add, explode]),
        calls(("explode", {"reason": "x"}), ("add", {"a": 2, "b": 2})),
        "done",
    )
    assert ran.results() == ["ValueError: x", "4"]


async def test_a_tool_that_leaves_the_interpreter_becomes_an_observation() -> None:
    @tool
    def leave() -> str:
        """Exit."""
        raise SystemExit(3)

    ran = await run_graph(build_manus_graph(tools=[leave]), calls(("leave", {})), "done")
    assert ran.results() == ["RuntimeError: SystemExit: 3"]


async def test_a_hanging_tool_is_cut_off_at_its_time_limit() -> None:
    @manus_tool(effect="read_only", timeout_s=0.05)
    async def hang() -> str:
        """Hang."""
        await asyncio.Event().wait()
        return ""

    ran = await run_graph(build_manus_graph(tools=[hang]), calls(("hang", {})), "done")
    assert "cut off after 0.05 s" in ran.results()[0]


async def test_calls_that_change_nothing_run_at_once_beside_the_end_of_the_run() -> None:
    arrived = asyncio.Barrier(20)

    @manus_tool(effect="read_only")
    async def meet(number: int) -> str:
        """Wait for all the others.

        Args:
            number: Which.
        """
        await arrived.wait()
        return str(number)

    meetings = [("meet", {"number": n}) for n in range(20)]
    ran = await run_graph(
        build_manus_graph(tools=[meet, terminate]),
        calls(("terminate", {"status": "success"}), *meetings, text="All have met."),
    )
    assert ran.results()[1:] == [str(n) for n in range(20)]
    assert ran.values["answer"] == "All have met."


async def test_calls_on_different_files_run_at_once() -> None:
    arrived = asyncio.Barrier(3)

    @manus_tool(effect="workspace", resource=file_resource)
    async def fill(path: str) -> str:
        """Wait for all the others.

        Args:
            path: Of the file.
        """
        await arrived.wait()
        return path

    made = [("fill", {"path": f"{n}.txt"}) for n in range(3)]
    ran = await run_graph(build_manus_graph(tools=[fill]), calls(*made), "done")
    assert ran.results() == ["0.txt", "1.txt", "2.txt"]


async def test_a_chart_is_viewed_after_the_program_that_writes_it() -> None:
    code = "open('chart.txt', 'w').write('a chart')"
    ran = await run_graph(
        build_manus_graph(tools=[python_execute, str_replace_editor, read_file]),
        calls(
            ("python_execute", {"code": code}),
            ("str_replace_editor", {"command": "view", "path": "chart.txt"}),
            ("read_file", {"file_path": "chart.txt"}),
        ),
        "done",
    )
    assert all("a chart" in text for text in ran.results()[1:])


async def test_arguments_with_usual_other_names_are_what_all_see(tmp_path: Path) -> None:
    runs: list[str] = []

    @manus_tool(effect="external")
    def deploy(command: str) -> str:
        """Deploy.

        Args:
            command: What.
        """
        runs.append(command)
        return f"deployed {command}"

    graph = build_manus_graph(tools=[deploy], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    made = calls(
        ("deploy", {"command": "x"}), ("deploy", {"cmd": "x"}), ("deploy", {"comand": "x"})
    )
    ran = await run_graph(
        graph, made, "done", config=config, policy_rules=({"tool": "deploy", "decision": "allow"},)
    )
    assert runs == ["x", "x"], "the second is not a repetition of the first"
    started = [event["args"] for event in ran.events if event["type"] == "tool_start"]
    assert started == [{"command": "x"}, {"command": "x"}, {"comand": "x"}]
    assert ran.messages[1].tool_calls[1]["args"] == {"cmd": "x"}  # type: ignore[union-attr]
    assert "no argument 'comand' (did you mean command? there are: command)" in ran.results()[2]


async def test_calls_that_share_a_resource_run_in_call_order() -> None:
    running: list[int] = []

    @manus_tool(effect="workspace", resource="one")
    async def step(number: int) -> str:
        """Note when it runs.

        Args:
            number: Its place.
        """
        running.append(number)
        await asyncio.sleep(0)
        assert running[-1] == number
        return str(number)

    ran = await run_graph(
        build_manus_graph(tools=[step]), calls(*(("step", {"number": n}) for n in range(5))), "done"
    )
    assert running == list(range(5))
    assert ran.nodes.count("act") == 1


async def test_terminate_ends_the_run_after_its_siblings() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[add, terminate]),
        calls(("terminate", {"status": "success"}), ("add", {"a": 1, "b": 1}), text="It is 2."),
    )
    assert ran.values["stop_reason"] == "terminate"
    assert ran.values["status"] == "finished"
    assert ran.values["answer"] == "It is 2."
    assert ran.results()[1] == "2"


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_terminate_does_not_take_effect_when_a_sibling_failed(place: int) -> None:
    made: list[Any] = [("explode", {"reason": "x"}), ("add", {"a": 1, "b": 1})]
    made.insert(place, ("terminate", {"status": "success"}))
    ran = await run_graph(
        build_manus_graph(tools=[explode, add, terminate]), calls(*made), "what there is"
    )
    assert "2" in ran.results()
    assert ran.values["stop_reason"] == "answer"
    assert "explode" in ran.model.requests[1][-1].text


async def test_terminate_with_failure_is_a_failure() -> None:
    ran = await run_graph(
        build_manus_graph(tools=[terminate]), calls(("terminate", {"status": "failure"}))
    )
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "terminate")
    assert ran.values["answer"]


async def test_an_agent_that_repeats_itself_is_warned_twice_and_stopped() -> None:
    reply = calls(("add", {"a": 1, "b": 1}))
    ran = await run_graph(build_manus_graph(tools=[add]), *[reply] * 30, max_steps=30)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "stuck")
    assert len(ran.model.requests) == 8
    said = [request[-1].text for request in ran.model.requests]
    assert "3 times" in said[3]
    assert "Stop this approach" in said[5]
    assert said[2] == "2"


async def test_repeats_whose_results_change_are_progress() -> None:
    count = iter(range(100))

    @tool
    def poll() -> str:
        """Poll a job."""
        return f"{next(count)} %"

    ran = await run_graph(
        build_manus_graph(tools=[poll]), *[calls(("poll", {}))] * 15, "done", max_steps=30
    )
    assert ran.values["answer"] == "done"


async def test_max_steps_ends_the_run_and_it_goes_on_with_a_higher_limit() -> None:
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    model = scripted(
        calls(("add", {"a": 1, "b": 1})),
        calls(("add", {"a": 2, "b": 1}), text="so far"),
        "One sum is done, the other is not.",
        "done",
    )
    ran = await run_graph(graph, model=model, config=config, max_steps=2)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "max_steps")
    assert ran.values["answer"] == "One sum is done, the other is not."
    assert len(model.requests) == 3
    again = await run_graph(
        graph, model=model, config=config, max_steps=3, task=Command(goto="think")
    )
    assert again.values["answer"] == "done"
    assert again.values["step_count"] == 3
    assert again.values["usage"]["model_calls"] == 4
    assert "goes on" in model.requests[-1][-1].text


async def test_the_token_limit_ends_the_run_before_the_next_call() -> None:
    model = scripted(calls(("add", {"a": 1, "b": 1})), "never asked", usage=(1100, 100))
    ran = await run_graph(build_manus_graph(tools=[add]), model=model, max_total_tokens=1200)
    assert ran.values["stop_reason"] == "budget"
    assert len(ran.model.requests) == 1


async def test_the_time_limit_cuts_a_model_call_off() -> None:
    model = scripted("late")
    model.latency_s = 60
    ran = await run_graph(build_manus_graph(tools=[add]), model=model, timeout_s=0.2)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("stopped", "timeout")


async def test_a_new_user_message_begins_a_run_with_fresh_counts() -> None:
    graph = build_manus_graph(tools=[add], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    first = await run_graph(graph, calls(("add", {"a": 1, "b": 1})), "one", config=config)
    second = await run_graph(graph, "two", config=config)
    assert first.values["usage"]["model_calls"] == 2
    assert second.values["usage"]["model_calls"] == 1
    assert second.values["step_count"] == 1
    assert second.values["branch"] != first.values["branch"]
    assert [own_text(m) for m in second.model.requests[0] if m.type == "human"] == ["the task"] * 2


async def test_a_question_pauses_the_run_until_it_is_answered() -> None:
    graph = build_manus_graph(tools=[ask_human, add], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    model = scripted(calls(("ask_human", {"inquire": "Which?"}), ("add", {"a": 1, "b": 1})), "done")
    await run_graph(graph, model=model, config=config)
    state = await graph.aget_state(config)
    assert state.interrupts[0].value["question"] == "Which?"
    ran = await run_graph(graph, model=model, config=config, task=Command(resume="the red one"))
    assert ran.results() == ["the red one", "2"]
    assert ran.values["status"] == "finished"


async def test_a_structured_answer_is_validated_and_ends_the_run() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ran = await run_graph(
        build_manus_graph(tools=[create_chat_completion]),
        "It is 3.",
        calls(("create_chat_completion", {"n": "three"})),
        calls(("create_chat_completion", {"n": 3}), prefix="d"),
        response_format=schema,
    )
    assert ran.values["structured"] == {"n": 3}
    assert ran.values["status"] == "finished"
    assert "create_chat_completion" in ran.model.requests[1][-1].text
    resolved = ran.model.options[0]["tools"][0]["function"]["parameters"]
    assert resolved["properties"] == {"n": {"type": "integer"}}


WITH_N = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(
    "wrapped",
    [
        {"json_schema": {"schema": WITH_N}},
        {"type": "json_schema", "json_schema": {"name": "x", "schema": WITH_N, "strict": True}},
        {"type": "json_schema", "name": "x", "schema": WITH_N},
        {"name": "x", "schema": WITH_N},
        {"$ref": "#/$defs/some", "$defs": {"some": WITH_N}},
    ],
)
async def test_a_schema_may_be_wrapped_as_openai_wants_it(wrapped: dict[str, Any]) -> None:
    graph = build_manus_graph(tools=[create_chat_completion])
    ran = await run_graph(graph, '{"n": "3"}', '{"n": 3}', response_format=wrapped)
    assert ran.values["structured"] == {"n": 3}


class Answer(TypedDict):
    n: int


class Undescribable(BaseModel):
    call: Callable[[], None]


@pytest.mark.parametrize(
    "wrong",
    [
        {"json_schema": {"name": "x"}},
        {"json_schema": {"name": "x", "schema": None}},
        {"json_schema": {"name": "x", "schema": "object"}},
        {"json_schema": {"name": "x", "schema": [WITH_N]}},
        {"json_schema": {"name": "x", "schema": {"type": "thing"}}},
        {"json_schema": {}},
        {"json_schema": None},
        {"json_schema": []},
        {"json_schema": "x"},
        {"type": "json_schema", "name": "x"},
        {"type": "json_schema", "json_schema": WITH_N},
        {"type": "json_object"},
        {"type": "text"},
        {"type": 3},
        {"properties": ["n"]},
        {"$schema": ["x"]},
        {"pattern": "("},
        {"$ref": "#/$defs/missing"},
        {"type": "object", "properties": {"n": {"items": [{"$ref": "https://x.example/n"}]}}},
        {"$ref": "#"},
        {"name": "x", "schema": 3},
        "json_object",
        [WITH_N],
        3,
        True,
        int,
        dict,
        Answer,
        Undescribable,
    ],
)
async def test_a_wrong_response_format_is_told_before_the_first_request(wrong: Any) -> None:
    model = scripted('{"n": 3}')
    with pytest.raises(ConfigError, match="response_format") as caught:
        await run_graph(build_manus_graph(tools=[add]), model=model, response_format=wrong)
    assert "JSON schema" in str(caught.value)
    assert '"json_schema": {"schema"' in str(caught.value)
    assert "pydantic model" in str(caught.value)
    assert not model.requests


async def test_a_text_that_fits_the_schema_is_the_structured_answer() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    ran = await run_graph(
        build_manus_graph(tools=[create_chat_completion]), '{"n": 3}', response_format=schema
    )
    assert ran.values["structured"] == {"n": 3}


@manus_tool(effect="external")
def pay(amount: int) -> str:
    """Pay.

    Args:
        amount: How much.
    """
    return f"paid {amount}"


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ({"decisions": [{"type": "approve"}]}, "paid 5"),
        ("approve", "paid 5"),
        (
            {
                "decisions": [
                    {"type": "edit", "edited_action": {"name": "pay", "args": {"amount": 1}}}
                ]
            },
            "paid 1",
        ),
        ({"decisions": [{"type": "reject", "message": "too much"}]}, "too much"),
    ],
)
async def test_policy_ask_pauses_before_an_external_effect(answer: Any, result: str) -> None:
    graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    model = scripted(calls(("pay", {"amount": 5})), "done")
    await run_graph(graph, model=model, config=config)
    state = await graph.aget_state(config)
    assert state.interrupts[0].value["action_requests"][0]["args"] == {"amount": 5}
    ran = await run_graph(graph, model=model, config=config, task=Command(resume=answer))
    assert result in ran.results()[0]


@pytest.mark.parametrize(("policy", "said"), [("auto", "paid 5"), ("never", "policy refuses")])
async def test_the_other_policies_do_not_ask(policy: str, said: str) -> None:
    ran = await run_graph(
        build_manus_graph(tools=[pay]), calls(("pay", {"amount": 5})), "done", policy=policy
    )
    assert said in ran.results()[0]


async def test_a_wrong_answer_stays_answerable() -> None:
    graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
    config: RunnableConfig = {"configurable": {"thread_id": "t"}}
    model = scripted(calls(("pay", {"amount": 5})), "done")
    await run_graph(graph, model=model, config=config)
    await run_graph(graph, model=model, config=config, task=Command(resume={"nonsense": 1}))
    assert (await graph.aget_state(config)).interrupts
    ran = await run_graph(graph, model=model, config=config, task=Command(resume="approve"))
    assert ran.results() == ["paid 5"]


@pytest.mark.parametrize("folder", ["/", "/home", "/etc", "/usr/lib/mine", "/proc/self"])
async def test_a_folder_of_the_system_is_no_workspace_and_costs_no_call(folder: str) -> None:
    model = scripted("done")
    graph = build_manus_graph(tools=[add])
    context = Context(model=model, workspace=folder)
    given: Any = {"messages": [HumanMessage("go")]}
    with pytest.raises(ConfigError, match="workspace cannot be /"):
        await graph.ainvoke(given, context=context)
    assert model.requests == []


@pytest.mark.parametrize("folder", ["/dev/shm/mine", "/usr/src/app", "/opt", "/etc/nginx"])
def test_a_folder_that_somebody_may_own_is_a_workspace(folder: str) -> None:
    context = Context(model=scripted(), workspace=folder)
    assert resolve_settings(context, "t").workspace == Path(folder).resolve()


async def test_wrong_settings_name_the_field() -> None:
    with pytest.raises(ConfigError, match="max_steps"):
        await run_graph(build_manus_graph(tools=[add]), "x", max_steps="many")


async def test_an_unknown_tool_selection_names_what_exists() -> None:
    with pytest.raises(ConfigError, match="Available: add"):
        await run_graph(build_manus_graph(tools=[add]), "x", tools=("subtract",))


def test_two_tools_with_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="Two tools"):
        build_manus_graph(tools=[add], extra_tools=[add])


async def test_manus_works_as_a_node_of_another_graph_with_another_context() -> None:
    class Outer(TypedDict, total=False):
        messages: list[Any]
        answer: str

    class Other(TypedDict):
        model: str

    inner = build_manus_graph(tools=[add])
    model = scripted(calls(("add", {"a": 1, "b": 1})), "two")

    async def ask(state: Outer) -> Outer:
        result = await inner.ainvoke(
            {"messages": [HumanMessage("1 + 1")]}, context=Context(model=model, workspace="inner")
        )
        return {"answer": result["answer"]}

    graph = StateGraph(Outer, context_schema=Other)
    graph.add_node("ask", ask)
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    result = await graph.compile().ainvoke({"messages": []}, context=Other(model="not ours"))
    assert result["answer"] == "two"


async def test_tools_report_pictures_that_only_a_seeing_model_gets(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "dot.png").write_bytes(PNG)
    (tmp_path / "work" / "cut.png").write_bytes(PNG[:20])  # providers refuse such a request

    @manus_tool(effect="read_only")
    def look() -> Observation:
        """Look."""
        return Observation("a dot", images=("dot.png", "cut.png"))

    blind = await run_graph(build_manus_graph(tools=[look]), calls(("look", {})), "done")
    assert all(isinstance(m.content, str) for m in blind.model.requests[1])
    seeing = scripted("I see a dot")
    both = await run_graph(
        build_manus_graph(tools=[look]), calls(("look", {})), vision_model=seeing
    )
    shown = seeing.requests[0][-1].content
    assert [block["type"] for block in shown if isinstance(block, dict)].count("image_url") == 1
    assert both.values["answer"] == "I see a dot"


async def test_a_tool_error_is_shown_as_it_is() -> None:
    @manus_tool(effect="read_only")
    def refuse() -> str:
        """Refuse."""
        raise ToolError("No. Try something else.")

    ran = await run_graph(build_manus_graph(tools=[refuse]), calls(("refuse", {})), "done")
    assert ran.results() == ["No. Try something else."]


async def test_files_of_the_run_are_its_artifacts(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "old.txt").write_text("old")

    @manus_tool(effect="workspace")
    def write() -> str:
        """Write."""
        (tmp_path / "work" / "new.csv").write_text("a,b")
        return "written"

    ran = await run_graph(build_manus_graph(tools=[write]), calls(("write", {})), "done")
    assert ran.values["artifacts"] == [{"path": "new.csv", "size": 3, "media_type": "text/csv"}]


async def test_the_answer_is_the_delivering_calls_own_and_is_never_cut() -> None:
    long = "word " * 5000
    ran = await run_graph(
        build_manus_graph(tools=[create_chat_completion, add]),
        calls(("create_chat_completion", {"response": long}), ("add", {"a": 1, "b": 1})),
    )
    assert ran.values["answer"] == long


async def test_pictures_of_a_langchain_tool_are_kept_and_shown() -> None:
    shot = {"type": "image", "base64": base64.b64encode(PNG).decode(), "mime_type": "image/png"}

    @tool
    def snap() -> list[dict[str, str]]:
        """Take a picture."""
        return [shot]

    seeing = scripted("a picture")
    ran = await run_graph(build_manus_graph(tools=[snap]), calls(("snap", {})), vision_model=seeing)
    assert ran.values["answer"] == "a picture"
    assert isinstance(seeing.requests[0][-1].content, list)


async def test_a_cut_answer_says_so() -> None:
    cut = AIMessage("forty-", response_metadata={"finish_reason": "content_filter"})
    ran = await run_graph(build_manus_graph(tools=[add]), cut)
    assert any("cut off" in str(event.get("text")) for event in ran.events)


@pytest.mark.parametrize("said", [[], [HumanMessage("  ")], [AIMessage("I begin.")]])
@pytest.mark.parametrize("graph", [build_manus_graph(), build_planning_graph()])
async def test_a_run_without_a_task_asks_no_model(graph: Any, said: list[AnyMessage]) -> None:
    model = scripted("never asked")
    result = await graph.ainvoke({"messages": said}, context=Context(model=model))
    assert (result["status"], result["stop_reason"]) == ("failed", "error")
    assert "no task" in result["answer"]
    assert model.requests == []
