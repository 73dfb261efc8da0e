"""LangChain's `AgentMiddleware` in our graphs: its hooks, and its own middlewares unchanged."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NotRequired

import pytest
from deepagents.backends.filesystem import FilesystemBackend
from deepagents.middleware.skills import SkillsMiddleware
from langchain.agents.middleware import (
    AgentMiddleware,
    AgentState,
    ContextEditingMiddleware,
    FilesystemFileSearchMiddleware,
    HumanInTheLoopMiddleware,
    LLMToolEmulator,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    ModelFallbackMiddleware,
    ModelRequest,
    ModelResponse,
    ModelRetryMiddleware,
    PIIMiddleware,
    ShellToolMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    ToolCallLimitMiddleware,
    ToolRetryMiddleware,
    hook_config,
)
from langchain.agents.middleware.context_editing import ClearToolUsesEdit
from langchain.agents.middleware.model_call_limit import ModelCallLimitExceededError
from langchain.agents.middleware.types import (
    ExtendedModelResponse,
    OmitFromInput,
    PrivateStateAttr,
)
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import (
    AIMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import InvalidUpdateError
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.prebuilt import ToolRuntime
from langgraph.prebuilt.tool_node import ToolCallRequest
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from openmanus_graph import (
    ConfigError,
    build_manus_graph,
    build_planning_graph,
    manus_tool,
)
from openmanus_graph.runtime.tool_runtime import call_runtime
from openmanus_graph.state.interrupts import middleware_answer
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import Ran, add, calls, own_text, run_graph, scripted
from tests.support.planning import PlanBrain, plan_call

pytestmark = pytest.mark.usefixtures("no_blocking")

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
Middleware = AgentMiddleware[Any, Any, Any]


@tool
def extra() -> str:
    """Do more."""
    return "more"


class Answer(BaseModel):
    """An answer."""

    text: str


ADD = calls(("add", {"a": 1, "b": 2}))


class Noted(Middleware):
    """Notes each hook as it is called."""

    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def note(self, hook: str) -> None:
        self.notes.append(f"{self.name}.{hook}")


class Asynchronous(Noted):
    async def abefore_agent(self, state: Any, runtime: Any) -> None:
        self.note("before_agent")

    async def abefore_model(self, state: Any, runtime: Any) -> None:
        self.note("before_model")

    async def aafter_model(self, state: Any, runtime: Any) -> None:
        self.note("after_model")

    async def aafter_agent(self, state: Any, runtime: Any) -> None:
        self.note("after_agent")

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        self.note("wrap_model_call")
        return await handler(request)

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        self.note("wrap_tool_call")
        return await handler(request)


class Synchronous(Noted):
    def before_agent(self, state: Any, runtime: Any) -> None:
        self.note("before_agent")

    def before_model(self, state: Any, runtime: Any) -> None:
        self.note("before_model")

    def after_model(self, state: Any, runtime: Any) -> None:
        self.note("after_model")

    def after_agent(self, state: Any, runtime: Any) -> None:
        self.note("after_agent")

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self.note("wrap_model_call")
        return handler(request)

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        self.note("wrap_tool_call")
        return handler(request)


NODES = [
    "begin", "Asynchronous.before_agent", "Synchronous.before_agent",
    "Asynchronous.before_model", "Synchronous.before_model", "think",
    "Synchronous.after_model", "Asynchronous.after_model", "act", "stuck_check",
    "Asynchronous.before_model", "Synchronous.before_model", "think",
    "Synchronous.after_model", "Asynchronous.after_model",
    "Synchronous.after_agent", "Asynchronous.after_agent", "terminate",
]  # fmt: skip


async def test_hooks_run_in_langchains_order_and_are_nodes() -> None:
    notes: list[str] = []
    graph = build_manus_graph(tools=[add], middleware=[Asynchronous(notes), Synchronous(notes)])
    ran = await run_graph(graph, ADD, "three")
    assert ran.nodes == NODES
    assert ran.values["answer"] == "three"
    assert ran.results() == ["3"]
    wraps = ["Asynchronous.wrap_{0}_call", "Synchronous.wrap_{0}_call"]
    model, called = ([text.format(kind) for text in wraps] for kind in ("model", "tool"))
    steps = {"think": model, "act": called}
    assert notes == [
        note
        for node in NODES
        if node not in ("begin", "stuck_check", "terminate")
        for note in steps.get(node, [node])
    ]
    assert ran.kinds() == ["think_start", "think_end", "tool_start", "tool_end", "think_start",
                           "token", "think_end"]  # fmt: skip


class OneHook(Middleware):
    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> None:
        return None


def drawing(graph: Any) -> str:
    lines = graph.get_graph().draw_mermaid().splitlines()
    return "\n".join(line.strip() for line in lines if "-->" in line or ".->" in line)


def test_the_drawing_shows_the_hooks() -> None:
    graph = build_manus_graph(tools=[add], middleware=[OneHook()])
    assert drawing(graph) == (
        "OneHook\\2ebefore_model -. &nbsp;end&nbsp; .-> terminate;\n"
        "OneHook\\2ebefore_model -. &nbsp;next&nbsp; .-> think;\n"
        "__start__ --> begin;\n"
        "act --> stuck_check;\n"
        "begin -.-> OneHook\\2ebefore_model;\n"
        "stuck_check -. &nbsp;think&nbsp; .-> OneHook\\2ebefore_model;\n"
        "stuck_check -.-> act;\n"
        "stuck_check -.-> terminate;\n"
        "terminate -. &nbsp;end&nbsp; .-> __end__;\n"
        "terminate -. &nbsp;new_message&nbsp; .-> begin;\n"
        "think -.-> act;\n"
        "think -.-> stuck_check;\n"
        "think -.-> terminate;"
    )


def test_hooks_around_a_step_leave_the_drawing_alone() -> None:
    around = build_manus_graph(tools=[add], middleware=[ToolRetryMiddleware()])
    assert drawing(around) == drawing(build_manus_graph(tools=[add]))


class Jump(Middleware):
    """Jumps once, from one hook to one place."""

    def __init__(self, hook: str, place: str) -> None:
        self.hook, self.place = hook, place

    def jump(self, hook: str) -> dict[str, Any] | None:
        if self.hook != hook:
            return None
        self.hook = ""
        said = AIMessage("Enough.") if self.place == "end" else HumanMessage("Once more.")
        return {"jump_to": self.place, "messages": [] if self.place == "tools" else [said]}

    @hook_config(can_jump_to=["end", "model", "tools"])
    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.jump("before_agent")

    @hook_config(can_jump_to=["end", "model", "tools"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.jump("before_model")

    @hook_config(can_jump_to=["end", "model", "tools"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.jump("after_model")

    @hook_config(can_jump_to=["end", "model", "tools"])
    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        return self.jump("after_agent")


@pytest.mark.parametrize(
    ("hook", "place", "asked", "ending"),
    [
        ("before_agent", "end", 0, ("middleware", "Enough.")),
        ("before_agent", "model", 2, ("answer", "three")),
        ("before_model", "end", 0, ("middleware", "Enough.")),
        ("before_model", "tools", 2, ("answer", "three")),
        ("after_model", "end", 1, ("middleware", "Enough.")),
        ("after_model", "model", 2, ("answer", "three")),
        ("after_model", "tools", 2, ("answer", "three")),
        ("after_agent", "end", 2, ("answer", "Enough.")),
        ("after_agent", "model", 3, ("answer", "four")),
    ],
)
async def test_a_jump_leads_where_it_says(
    hook: str, place: str, asked: int, ending: tuple[str, str]
) -> None:
    graph = build_manus_graph(tools=[add], middleware=[Jump(hook, place)])
    ran = await run_graph(graph, ADD, "three", "four")
    assert len(ran.model.requests) == asked
    assert (ran.values["stop_reason"], ran.values["answer"]) == ending
    assert ran.values["status"] == "finished"
    assert ran.values["usage"]["model_calls"] == asked


async def test_a_jump_that_is_not_declared_is_refused() -> None:
    class Leap(Middleware):
        def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
            return {"jump_to": "end"}

    with pytest.raises(ConfigError, match=r"can_jump_to=\['end'\]"):
        await run_graph(build_manus_graph(tools=[add], middleware=[Leap()]), "done")


async def test_a_run_that_a_limit_ended_does_not_go_on_by_a_jump() -> None:
    class Insist(Middleware):
        @hook_config(can_jump_to=["model"])
        def after_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
            return {"jump_to": "model"}

    graph = build_manus_graph(tools=[add], middleware=[Insist()])
    ran = await run_graph(graph, ADD, max_steps=1)
    assert ran.values["stop_reason"] == "max_steps"
    assert "the run is over" in ran.events[-1]["text"]


class Ask(Middleware):
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if not state["messages"][-1].tool_calls:
            return None
        return {"messages": [HumanMessage(f"A person says: {interrupt('Really?')}")]}


async def test_a_question_in_a_hook_repeats_no_model_call() -> None:
    graph = build_manus_graph(tools=[add], middleware=[Ask()], checkpointer=InMemorySaver())
    ran = await run_graph(graph, ADD, config=CONFIG)
    assert (await graph.aget_state(CONFIG)).interrupts[0].value == "Really?"
    model = scripted("three")
    ran = await run_graph(graph, model=model, config=CONFIG, task=Command(resume="yes"))
    assert ran.nodes == ["Ask.after_model", "act", "stuck_check", "think", "Ask.after_model",
                         "terminate"]  # fmt: skip
    assert "A person says: yes" in [message.text for message in model.requests[0]]
    assert ran.values["usage"]["model_calls"] == 2


class Replace(Middleware):
    """Puts something else in the first reply's place."""

    def __init__(self, text: str, made: AIMessage) -> None:
        self.update = {"content": text, "tool_calls": made.tool_calls}

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if len(state["messages"]) > 2:
            return None
        return {"messages": [state["messages"][-1].model_copy(update=self.update)]}


@pytest.mark.parametrize(
    ("said", "text", "made", "results", "answer"),
    [
        (ADD, "No calls.", AIMessage(""), [], "No calls."),
        (AIMessage("three"), "", ADD, ["3"], "done"),
    ],
)
async def test_a_changed_reply_counts_as_what_it_is_now(
    said: AIMessage, text: str, made: AIMessage, results: list[str], answer: str
) -> None:
    graph = build_manus_graph(tools=[add], middleware=[Replace(text, made)])
    ran = await run_graph(graph, said, "done")
    assert ran.results() == results
    assert (ran.values["answer"], ran.values["stop_reason"]) == (answer, "answer")


async def test_before_agent_runs_once_in_each_run() -> None:
    notes: list[str] = []
    graph = build_manus_graph(
        tools=[add], middleware=[Asynchronous(notes)], checkpointer=InMemorySaver()
    )
    await run_graph(graph, ADD, config=CONFIG, max_steps=1)
    await run_graph(graph, "three", config=CONFIG, task={"messages": []}, max_steps=2)
    assert notes.count("Asynchronous.before_agent") == 1
    ran = await run_graph(graph, "hello", config=CONFIG, task="another")
    assert notes.count("Asynchronous.before_agent") == 2
    assert (ran.values["step_count"], ran.values["usage"]["model_calls"]) == (1, 1)


class Rewrite(Middleware):
    """Replaces the whole conversation before the second request, as summaries do."""

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        if len(state["messages"]) < 3:
            return None
        reported = {"role": "user", "content": "So far: two were added."}
        return {"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES), reported]}


async def test_a_conversation_that_a_hook_replaces_stays_the_same_run() -> None:
    graph = build_manus_graph(tools=[add], middleware=[Rewrite()], checkpointer=InMemorySaver())
    ran = await run_graph(graph, ADD, ADD, "done", config=CONFIG)
    assert [own_text(m) for m in ran.model.requests[1][1:]] == ["So far: two were added."]
    assert ran.values["step_count"] == 3
    assert ran.values["usage"]["model_calls"] == 3
    assert all(message.id for message in ran.messages)
    state = await graph.aget_state(CONFIG)  # as the checkpoint has it
    assert [m.text for m in state.values["messages"]] == [m.text for m in ran.messages]
    assert len(ran.results()) == 0 or ran.results() == ["3"]


async def test_calls_after_a_replaced_conversation_are_new_ones() -> None:
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    graph = build_manus_graph(tools=[pay], middleware=[Rewrite()], checkpointer=InMemorySaver())
    again = calls(("pay", {"amount": 1}))
    await run_graph(graph, again, again, "done", config=CONFIG)
    assert paid == [1, 1]


class Keys(AgentState[Any]):
    shown: NotRequired[Annotated[str, OmitFromInput]]
    hidden: NotRequired[Annotated[str, PrivateStateAttr]]


class Remember(Middleware):
    state_schema = Keys

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any]:
        return {"shown": "a", "hidden": state.get("hidden", "") + "b"}


async def test_a_middlewares_keys_are_in_the_state_and_private_ones_stay_there() -> None:
    graph = build_manus_graph(tools=[add], middleware=[Remember()], checkpointer=InMemorySaver())
    ran = await graph.ainvoke(
        {"messages": [HumanMessage("go")]}, CONFIG, context=context(scripted(ADD, "three"))
    )
    assert ran["shown"] == "a"
    assert "hidden" not in ran
    assert (await graph.aget_state(CONFIG)).values["hidden"] == "bb"
    given = graph.get_input_jsonschema()["properties"]
    assert set(given) == {"messages"}


def context(model: ScriptedChatModel) -> Any:
    from openmanus_graph import Context

    return Context(model=model, workspace="work")


# The model call


class Change(Middleware):
    """Changes a request by a function."""

    def __init__(self, change: Callable[[ModelRequest[Any]], ModelRequest[Any]]) -> None:
        self.change = change

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        return handler(self.change(request))


async def test_a_changed_request_is_what_the_model_is_asked() -> None:
    def change(request: ModelRequest[Any]) -> ModelRequest[Any]:
        assert [one.name for one in request.tools if not isinstance(one, dict)] == ["add"]
        assert request.state["messages"][0].text == "the task"
        return request.override(
            system_message=SystemMessage(f"{request.system_prompt} Be brief."),
            messages=[*request.messages, HumanMessage("Now.")],
            tools=[],
            model_settings={"temperature": 0},
        )

    ran = await run_graph(build_manus_graph(tools=[add], middleware=[Change(change)]), "done")
    (request,) = ran.model.requests
    assert request[0].text.endswith("Be brief.")
    assert request[-1].text == "Now."
    assert ran.model.options == [{"temperature": 0}]
    assert [m.text for m in ran.messages] == ["the task", "done"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tools": [extra]}, "'extra', which the agent does not have"),
        ({"response_format": ToolStrategy(Answer)}, "response_format"),
    ],
)
async def test_a_request_that_this_graph_cannot_make_is_refused(
    changed: dict[str, Any], said: str
) -> None:
    def change(request: Any) -> Any:
        return request.override(**changed)

    with pytest.raises(ConfigError, match=said):
        await run_graph(build_manus_graph(tools=[add], middleware=[Change(change)]), "done")


class Twice(Middleware):
    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        handler(request)
        return handler(request)


async def test_each_request_of_a_middleware_counts_and_is_within_the_limits() -> None:
    graph = build_manus_graph(tools=[add], middleware=[Twice()])
    ran = await run_graph(graph, "draft", "done")
    assert ran.values["usage"]["model_calls"] == 2
    assert ran.values["step_count"] == 1
    model = scripted("draft", "done", usage=(800, 100))
    ran = await run_graph(graph, model=model, max_total_tokens=1000)
    assert ran.values["stop_reason"] == "budget"
    assert ran.values["usage"]["model_calls"] == 1
    assert len(ran.model.requests) == 1


async def test_a_step_of_two_requests_is_one_step_of_a_plan() -> None:
    def work(step: str, messages: list[Any]) -> Any:
        return "The sum is 3." if any(one.type == "tool" for one in messages) else ADD

    brain = PlanBrain([plan_call("one")], work)
    executor = build_manus_graph(tools=[add], middleware=[Twice()])
    graph = build_planning_graph(executors={"own": executor}, checkpointer=InMemorySaver())
    ran = await run_graph(graph, model=brain.model(), config=CONFIG, max_steps=3)
    assert (ran.values["status"], ran.values["step_count"]) == ("finished", 3)


class Short(Middleware):
    state_schema = Keys

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        reply = ModelResponse([AIMessage("from memory")])
        return ExtendedModelResponse(reply, Command(update={"shown": "yes"}))


async def test_a_middleware_may_answer_by_itself_and_write_to_the_state() -> None:
    ran = await run_graph(build_manus_graph(tools=[add], middleware=[Short()]))
    assert (ran.values["answer"], ran.values["shown"]) == ("from memory", "yes")
    assert ran.values["usage"]["model_calls"] == 0


class Consult(Middleware):
    """Asks a model by itself, before each step."""

    def __init__(self, model: ScriptedChatModel) -> None:
        self.model = model

    def before_model(self, state: Any, runtime: Any) -> None:
        self.model.invoke("What now?")


async def test_model_calls_past_the_handler_are_counted() -> None:
    graph = build_manus_graph(tools=[add], middleware=[Consult(scripted("this"))])
    ran = await run_graph(graph, "done")
    assert ran.values["usage"] == {
        "input_tokens": 200, "cached_tokens": 0, "output_tokens": 40, "model_calls": 2,
        "cost_usd": 0.0,
    }  # fmt: skip


class Consulting:
    """A model of somebody's own, and a tool, a middleware and a node that ask it."""

    def __init__(self, *replies: Any) -> None:
        self.model = scripted(*(replies or ["this"] * 9))

        @tool
        async def consult(question: str) -> str:
            """Ask a model."""
            return (await self.model.ainvoke(question)).text

        @tool
        def consult_in_thread(question: str, config: RunnableConfig) -> str:
            """Ask a model in a thread that knows of no run."""
            with ThreadPoolExecutor() as pool:
                return pool.submit(self.model.invoke, question, config).result().text

        @manus_tool(effect="read_only")
        async def consult_both(question: str, runtime: ToolRuntime[Any, Any]) -> str:
            """Ask a model, and the run's.

            Args:
                question: What.
            """
            own, ask = await self.model.ainvoke(question), call_runtime(runtime).ask_model
            assert ask is not None
            return own.text + await ask("Answer.", question)

        def node(state: dict[str, Any]) -> dict[str, Any]:
            return {"hint": self.model.invoke("What now?").text}

        self.tools, self.node = [consult, consult_in_thread, consult_both], node


@pytest.mark.parametrize("name", ["consult", "consult_in_thread"])
@pytest.mark.parametrize("middleware", [[], [ToolRetryMiddleware()]])
async def test_the_models_that_tools_bring_along_are_counted(
    name: str, middleware: list[Middleware]
) -> None:
    asking = Consulting()
    graph = build_manus_graph(tools=asking.tools, middleware=middleware)
    ran = await run_graph(graph, calls((name, {"question": "a"})), "done")
    assert ran.values["usage"]["model_calls"] == 3
    assert ran.values["usage"]["input_tokens"] == 300
    model = scripted(calls((name, {"question": "a"})), usage=(900, 100))
    ran = await run_graph(graph, model=model, max_total_tokens=1100)
    assert ran.values["stop_reason"] == "budget"
    assert ran.values["usage"]["model_calls"] == 2


async def test_what_a_tool_asks_the_runs_model_is_counted_once() -> None:
    asking = Consulting()
    graph = build_manus_graph(tools=asking.tools)
    ran = await run_graph(graph, calls(("consult_both", {"question": "a"})), "that", "done")
    assert ran.results() == ["thisthat"]
    assert ran.values["usage"]["model_calls"] == 4


async def test_an_agent_inside_a_tool_is_counted_whole() -> None:
    asking = Consulting(ADD, "three")
    around = Change(lambda request: request)
    inner = build_manus_graph(tools=[add], middleware=[around], name="inner")

    @tool
    async def delegate(task: str) -> str:
        """Have another agent do it."""
        given: Any = {"messages": [HumanMessage(task)]}
        done = await inner.ainvoke(given, context=context(asking.model))
        return str(done["answer"])

    ran = await run_graph(
        build_manus_graph(tools=[delegate]), calls(("delegate", {"task": "a"})), "done"
    )
    assert ran.results() == ["three"]
    assert ran.values["usage"]["model_calls"] == 4


async def test_the_model_calls_of_a_node_of_the_callers_are_counted() -> None:
    asking = Consulting()
    graph = build_manus_graph(tools=[add], after_act=[asking.node])
    ran = await run_graph(graph, ADD, "done")
    assert ran.values["usage"]["model_calls"] == 3


async def test_what_a_middleware_asks_by_itself_counts_before_the_next_request() -> None:
    asking = Consulting()

    class Ahead(Middleware):
        async def awrap_model_call(self, request: Any, handler: Any) -> Any:
            await asking.model.ainvoke("What now?")
            return await handler(request)

    graph = build_manus_graph(tools=[add], middleware=[Ahead()])
    ran = await run_graph(graph, "done", max_total_tokens=900)
    assert (ran.values["stop_reason"], len(ran.model.requests)) == ("budget", 0)
    assert ran.values["usage"]["model_calls"] == 1


async def test_steps_side_by_side_spend_one_budget_with_the_models_of_their_tools() -> None:
    own = build_manus_graph(tools=Consulting(*["this"] * 99).tools, name="own")
    steps: list[Any] = [{"id": name, "text": "ask", "depends_on": []} for name in "abc"]
    ask = calls(("consult", {"question": "a"}))
    brain = PlanBrain([plan_call(*steps)], lambda step, messages: ask)
    graph = build_planning_graph(executors={"own": own}, checkpointer=InMemorySaver())
    model = brain.model(usage=(1000, 100))
    ran = await run_graph(graph, model=model, config=CONFIG, max_total_tokens=5300)
    assert ran.values["stop_reason"] == "budget"
    # A plan, three requests, and what their tools ask before the next request is refused.
    assert ran.values["usage"]["model_calls"] == 7


# The tool call


class Flaky:
    """A tool that raises so many times, and the graph that has it."""

    def __init__(self, failures: int, *middleware: Middleware, error: str = "busy") -> None:
        self.attempts: list[int] = []

        @tool
        def fetch(number: int) -> str:
            """Fetch."""
            self.attempts.append(number)
            if len(self.attempts) <= failures:
                raise ConnectionError(error)
            return f"fetched {number}"

        self.graph = build_manus_graph(
            tools=[fetch, add], middleware=middleware, checkpointer=InMemorySaver()
        )

    async def run(self, task: Any = "the task", config: RunnableConfig = CONFIG) -> Ran:
        made = calls(("fetch", {"number": 1}))
        return await run_graph(self.graph, made, "done", config=config, task=task)


def retry(**options: Any) -> ToolRetryMiddleware:
    return ToolRetryMiddleware(initial_delay=0, backoff_factor=0, jitter=False, **options)


async def test_what_a_tool_raises_reaches_the_middleware_and_is_seen_once_an_execution() -> None:
    flaky = Flaky(2, retry(max_retries=2, retry_on=(ConnectionError,)))
    ran = await flaky.run()
    assert flaky.attempts == [1, 1, 1]
    assert ran.results() == ["fetched 1"]
    assert [e["ok"] for e in ran.events if e["type"] == "tool_end"] == [False, False, True]
    assert len([e for e in ran.events if e["type"] == "tool_start"]) == 3


async def test_what_no_middleware_catches_becomes_the_observation() -> None:
    flaky = Flaky(5, retry(retry_on=(TimeoutError,)))
    ran = await flaky.run()
    assert flaky.attempts == [1]
    assert ran.results() == ["ConnectionError: busy"]


async def test_finished_attempts_are_read_from_the_ledger_after_a_crash() -> None:
    task = {"messages": [{"role": "user", "content": "go", "id": "one"}]}
    flaky = Flaky(2, retry(max_retries=2, retry_on=(ConnectionError,)))
    await flaky.run(task)
    again = Flaky(0, retry(max_retries=2, retry_on=(ConnectionError,)))
    ran = await again.run(task)  # its checkpoints are lost, the ledger is not
    assert again.attempts == []
    assert ran.results() == ["fetched 1"]


class Edit(Middleware):
    """Makes another call out of one."""

    def __init__(self, **changed: Any) -> None:
        self.changed = changed

    def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[Any], Any]) -> Any:
        made: Any = {**request.tool_call, **self.changed}
        return handler(request.override(tool_call=made))


@pytest.mark.parametrize(
    ("changed", "result"),
    [
        ({"args": {"a": 5, "b": 6}}, "11"),
        ({"args": {"a": "x", "b": 6}}, "add was not run."),
        ({"name": "lost", "args": {}}, "There is no tool 'lost'"),
    ],
)
async def test_a_changed_call_is_validated_and_run_as_what_it_is(
    changed: dict[str, Any], result: str
) -> None:
    ran = await run_graph(build_manus_graph(tools=[add], middleware=[Edit(**changed)]), ADD, "done")
    assert ran.results()[0].startswith(result)


async def test_calls_that_are_made_into_the_same_one_both_run() -> None:
    paid: list[int] = []

    @tool
    def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    graph = build_manus_graph(
        tools=[pay], middleware=[Edit(args={"amount": 9})], checkpointer=InMemorySaver()
    )
    first, second = calls(("pay", {"amount": 1})), calls(("pay", {"amount": 2}), prefix="d")
    await run_graph(graph, first, second, "done", config=CONFIG)
    assert paid == [9, 9]


async def test_a_changed_call_is_asked_about_as_what_it_is() -> None:
    paid: list[int] = []

    @manus_tool(effect="external")
    def pay(amount: int) -> str:
        """Pay.

        Args:
            amount: How much.
        """
        paid.append(amount)
        return f"paid {amount}"

    class Careless(Edit):
        def wrap_tool_call(self, request: ToolCallRequest, handler: Callable[[Any], Any]) -> Any:
            try:
                return super().wrap_tool_call(request, handler)
            except Exception:  # noqa: BLE001  # as careless as others' code may be
                return ToolMessage("never mind", tool_call_id=request.tool_call["id"])

    graph = build_manus_graph(
        tools=[pay], middleware=[Careless(args={"amount": 9})], checkpointer=InMemorySaver()
    )
    await run_graph(graph, calls(("pay", {"amount": 1})), config=CONFIG)
    (asked,) = (await graph.aget_state(CONFIG)).interrupts
    assert asked.value["calls"][0]["args"] == {"amount": 9}
    ran = await run_graph(graph, "done", config=CONFIG, task=Command(resume="approve"))
    assert (paid, ran.results()) == ([9], ["paid 9"])


async def test_a_middleware_may_answer_a_call_without_running_it() -> None:
    class Cached(Middleware):
        async def awrap_tool_call(self, request: ToolCallRequest, handler: Any) -> ToolMessage:
            assert request.tool is not None
            assert request.state["messages"][0].text == "the task"
            return ToolMessage("3, as before", tool_call_id=request.tool_call["id"])

    ran = await run_graph(build_manus_graph(tools=[add], middleware=[Cached()]), ADD, "done")
    assert ran.results() == ["3, as before"]
    assert ran.kinds()[2:4] == ["tool_start", "tool_end"]


async def test_a_middleware_that_raises_around_a_call_does_not_end_the_run() -> None:
    class Broken(Middleware):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            raise KeyError("oops")

    ran = await run_graph(build_manus_graph(tools=[add], middleware=[Broken()]), ADD, "done")
    assert ran.results() == ["KeyError: 'oops'"]
    assert ran.values["status"] == "finished"


async def test_a_cancelled_run_leaves_no_synchronous_hook_waiting() -> None:
    under_way, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    @tool
    async def hang() -> str:
        """Hang."""
        under_way.set()
        await asyncio.Event().wait()
        return ""

    class Around(Middleware):
        def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
            try:
                return handler(request)
            finally:
                loop.call_soon_threadsafe(ended.set)

    graph = build_manus_graph(tools=[hang], middleware=[Around()])
    run = asyncio.ensure_future(run_graph(graph, calls(("hang", {}))))
    await under_way.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await ended.wait()


# A tool's Command


TODOS = [{"content": "look", "status": "pending"}]
WRITE_TODOS = calls(("write_todos", {"todos": TODOS}))


async def test_a_tools_command_is_applied_and_kept_in_the_ledger() -> None:
    task = {"messages": [{"role": "user", "content": "go", "id": "one"}]}
    for runs in (True, False):  # the second saver knows nothing of the first run; the ledger does
        todo = TodoListMiddleware()
        if not runs:
            todo.tools[0].func = todo.tools[0].coroutine = None
        graph = build_manus_graph(middleware=[todo], tools=[], checkpointer=InMemorySaver())
        ran = await run_graph(graph, WRITE_TODOS, "done", config=CONFIG, task=task)
        assert ran.values["todos"] == TODOS
        assert ran.results() == [f"Updated todo list to {TODOS}"]
        assert "write_todos" in ran.model.requests[0][0].text


async def test_two_commands_that_clash_are_an_error_that_names_the_key() -> None:
    todo = TodoListMiddleware()

    class Loose(Middleware):
        state_schema = todo.state_schema
        tools = todo.tools

    both = calls(("write_todos", {"todos": TODOS}), ("write_todos", {"todos": []}))
    with pytest.raises(InvalidUpdateError, match="'todos'"):
        await run_graph(build_manus_graph(tools=[], middleware=[Loose()]), both)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (Command(goto="terminate"), "more than an update"),
        (Command(update={"usage": {}}), "may not write usage"),
        (Command(update={"messages": [RemoveMessage(id=REMOVE_ALL_MESSAGES)]}), "removes messages"),
    ],
)
async def test_a_command_that_this_graph_does_not_carry_out_is_an_observation(
    command: Command[Any], said: str
) -> None:
    @tool
    def order() -> Command[Any]:
        """Order."""
        update: Any = command.update or {}
        done = ToolMessage("ordered", tool_call_id="c1")
        messages: list[Any] = [*update.get("messages", []), done]
        return Command(update={**update, "messages": messages}, goto=command.goto)

    ran = await run_graph(build_manus_graph(tools=[order]), calls(("order", {})), "done")
    assert said in ran.results()[0]


# What cannot work


class Other(Middleware):
    tools = [add]


class Clash(AgentState[Any]):
    usage: list[str]


class Clashing(Middleware):
    state_schema = Clash


class Somewhere(Middleware):
    @hook_config(can_jump_to=["moon"])  # type: ignore[list-item]  # what is wrong with it
    def before_model(self, state: Any, runtime: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("middleware", "said"),
    [
        ([ToolRetryMiddleware], "is not an AgentMiddleware"),
        ([retry(), retry()], "Two middlewares are named 'ToolRetryMiddleware'"),
        (
            [Other()],
            "Two tools are named 'add', from tests.support.graphs and tests.support.graphs",
        ),
        ([Clashing()], "has a key 'usage'"),
        ([Somewhere()], "declares jumps to moon"),
    ],
)
def test_what_cannot_work_is_refused_when_the_graph_is_built(
    middleware: list[Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        build_manus_graph(tools=[add], middleware=middleware)


class Wrong(Middleware):
    """Returns what no hook may."""

    def __init__(self, hook: str, result: Any) -> None:
        self.hook, self.result = hook, result

    async def abefore_model(self, state: Any, runtime: Any) -> Any:
        return self.result if self.hook == "before_model" else None

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        reply = await handler(request)
        if self.hook == "extended":
            return ExtendedModelResponse(reply, self.result)
        return self.result if self.hook == "wrap_model_call" else reply

    async def awrap_tool_call(self, request: Any, handler: Any) -> Any:
        result = await handler(request)
        if self.hook == "wrap_tool_call" and isinstance(self.result, Command):
            update: dict[str, Any] = {**(self.result.update or {}), "messages": [result]}
            return Command(update=update)
        return self.result if self.hook == "wrap_tool_call" else result


@pytest.mark.parametrize(
    ("hook", "result", "said"),
    [
        ("before_model", "text", "'text', which is not an update"),
        ("before_model", {"stop_reason": "answer"}, "writes stop_reason"),
        ("wrap_model_call", None, "something else than one AIMessage"),
        ("extended", Command(update={"usage": {}}), "writes usage"),
        ("extended", Command(update={"jump_to": "end"}), "jumps during a step"),
        ("extended", Command(goto="act"), "with `goto`"),
        ("wrap_tool_call", "text", "returned no ToolMessage"),
        ("wrap_tool_call", Command(update={"step_count": 0}), "writes step_count"),
    ],
)
async def test_what_a_hook_may_not_return_is_refused(hook: str, result: Any, said: str) -> None:
    graph = build_manus_graph(tools=[add], middleware=[Wrong(hook, result)])
    with pytest.raises(ConfigError, match=said):
        await run_graph(graph, ADD, "done")


async def test_arguments_that_a_hook_changes_in_place_are_run_and_the_reply_stays() -> None:
    class InPlace(Middleware):
        def wrap_tool_call(self, request: ToolCallRequest, handler: Any) -> Any:
            request.tool_call["args"]["a"] = 40
            return handler(request)

    graph = build_manus_graph(tools=[add], middleware=[InPlace()], checkpointer=InMemorySaver())
    ran = await run_graph(graph, ADD, "done", config=CONFIG)
    assert ran.results() == ["42"]
    (made,) = [one for one in ran.messages if isinstance(one, AIMessage) and one.tool_calls]
    assert made.tool_calls[0]["args"] == {"a": 1, "b": 2}


# LangChain's own, unchanged


async def test_model_retry_does_not_hide_a_limit() -> None:
    again = ModelRetryMiddleware(initial_delay=0, backoff_factor=0, jitter=False)
    graph = build_manus_graph(tools=[add], middleware=[Twice(), again])
    model = scripted("draft", "done", usage=(800, 100))
    ran = await run_graph(graph, model=model, max_total_tokens=1000)
    assert ran.values["stop_reason"] == "budget"
    assert len(ran.model.requests) == 1


async def test_model_retry_repeats_a_final_failure() -> None:
    again = ModelRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)
    graph = build_manus_graph(tools=[add], middleware=[again])
    ran = await run_graph(graph, ValueError("bad request"), "done")
    assert (ran.values["answer"], len(ran.model.requests)) == ("done", 2)
    ran = await run_graph(graph, ValueError("bad request"), ValueError("bad request"))
    assert "failed after 2 attempts" in ran.values["answer"]


async def test_model_call_limit_ends_the_run() -> None:
    limit = ModelCallLimitMiddleware(run_limit=1)
    graph = build_manus_graph(tools=[add], middleware=[limit], checkpointer=InMemorySaver())
    ran = await run_graph(graph, ADD, config=CONFIG)
    assert (ran.values["status"], ran.values["stop_reason"]) == ("finished", "middleware")
    assert "call limits exceeded" in ran.values["answer"]
    assert ran.results() == ["3"]
    ran = await run_graph(graph, "three", config=CONFIG, task="again")
    assert ran.values["answer"] == "three"
    strict = ModelCallLimitMiddleware(run_limit=1, exit_behavior="error")
    with pytest.raises(ModelCallLimitExceededError):
        await run_graph(build_manus_graph(tools=[add], middleware=[strict]), ADD)


async def test_summaries_replace_the_conversation_and_are_counted() -> None:
    summary = SummarizationMiddleware(
        scripted(*["They added."] * 9), trigger=("messages", 4), keep=("messages", 1)
    )
    graph = build_manus_graph(tools=[add], middleware=[summary], checkpointer=InMemorySaver())
    more = calls(("add", {"a": 2, "b": 2}), prefix="d")
    ran = await run_graph(graph, ADD, more, "done", config=CONFIG)
    assert ran.values["answer"] == "done"
    assert ran.values["usage"]["model_calls"] == 4
    sent = ran.model.requests[2]
    assert "They added." in sent[1].text
    assert [m.type for m in sent[1:]] == ["human", "ai", "tool"]
    ran = await run_graph(graph, "again", config=CONFIG, task="another")
    assert (ran.values["answer"], ran.values["step_count"]) == ("again", 1)


async def test_an_emulated_tool_does_not_run_and_its_model_is_counted() -> None:
    emulator = LLMToolEmulator(tools=["add"], model=scripted("about three"))
    ran = await run_graph(build_manus_graph(tools=[add], middleware=[emulator]), ADD, "done")
    assert ran.results() == ["about three"]
    assert ran.values["usage"]["model_calls"] == 3


async def test_the_shell_of_langchain_keeps_its_session(tmp_path: Path) -> None:
    graph = build_manus_graph(
        tools=[add], middleware=[ShellToolMiddleware(tmp_path)], checkpointer=InMemorySaver()
    )
    first = calls(("shell", {"command": "export CUPS=2; pwd"}))
    second = calls(("shell", {"command": "echo $CUPS cups"}), prefix="d")
    ran = await run_graph(graph, first, second, "done", config=CONFIG)
    assert ran.results() == [f"{tmp_path}\n", "2 cups\n"]


async def test_the_file_search_of_langchain_finds_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle", encoding="utf-8")
    search = FilesystemFileSearchMiddleware(root_path=str(tmp_path), use_ripgrep=False)
    find = calls(("glob_search", {"pattern": "*.txt"}), ("grep_search", {"pattern": "needle"}))
    ran = await run_graph(build_manus_graph(tools=[add], middleware=[search]), find, "done")
    assert ran.results() == ["/a.txt", "/a.txt"]


async def test_model_fallback_asks_the_next_model() -> None:
    spare = scripted("from the spare one")
    graph = build_manus_graph(tools=[add], middleware=[ModelFallbackMiddleware(spare)])
    ran = await run_graph(graph, ValueError("bad request"))
    assert ran.values["answer"] == "from the spare one"
    assert ran.values["usage"]["model_calls"] == 1
    assert spare.tool_names() == ["add"]


async def test_tool_retry_says_when_it_gives_up() -> None:
    flaky = Flaky(9, retry(max_retries=1))
    ran = await flaky.run()
    assert flaky.attempts == [1, 1]
    assert "failed after 2 attempts" in ran.results()[0]


@pytest.mark.parametrize(
    ("behaviour", "stop_reason", "said"),
    [
        ("continue", "answer", "Tool call limit exceeded"),
        ("end", "middleware", "Tool call limit exceeded"),
    ],
)
async def test_tool_call_limit(behaviour: Any, stop_reason: str, said: str) -> None:
    limit = ToolCallLimitMiddleware(run_limit=1, exit_behavior=behaviour)
    graph = build_manus_graph(tools=[add], middleware=[limit])
    ran = await run_graph(graph, ADD, calls(("add", {"a": 2, "b": 2}), prefix="d"), "done")
    assert ran.values["stop_reason"] == stop_reason
    assert ran.results()[0] == "3"
    assert said in ran.results()[1]
    if behaviour == "end":
        assert "call limit reached" in ran.values["answer"]


async def test_pii_is_redacted_before_the_model_sees_it_and_in_its_answer() -> None:
    pii = PIIMiddleware("email", apply_to_output=True)
    graph = build_manus_graph(tools=[add], middleware=[pii], checkpointer=InMemorySaver())
    ran = await run_graph(graph, "Wrote to a@b.org.", task="Write to a@b.org.", config=CONFIG)
    assert own_text(ran.model.requests[0][-1]) == "Write to [REDACTED_EMAIL]."
    assert ran.values["answer"] == "Wrote to [REDACTED_EMAIL]."
    assert (ran.values["stop_reason"], ran.values["step_count"]) == ("answer", 1)


async def test_llm_tool_selector_narrows_the_tools_and_its_call_counts() -> None:
    class Selecting(ScriptedChatModel):
        def __init__(self, replies: list[str]) -> None:
            super().__init__(replies)

        def with_structured_output(self, schema: Any, **kwargs: Any) -> Runnable[Any, Any]:
            def chosen(reply: AIMessage) -> dict[str, list[str]]:
                return {"tools": [reply.text]}

            return self | RunnableLambda(chosen)

    selector = LLMToolSelectorMiddleware(model=Selecting(replies=["extra"]))
    graph = build_manus_graph(tools=[add, extra], middleware=[selector])
    ran = await run_graph(graph, "done")
    assert ran.model.tool_names() == ["extra"]
    assert ran.values["usage"]["model_calls"] == 2


async def test_the_todo_list_refuses_parallel_lists() -> None:
    both = calls(("write_todos", {"todos": TODOS}), ("write_todos", {"todos": []}))
    graph = build_manus_graph(tools=[add], middleware=[TodoListMiddleware()])
    ran = await run_graph(graph, both, "done")
    assert "never be called multiple times" in ran.results()[0]
    assert "todos" not in ran.values


async def test_context_editing_clears_old_results_from_the_request_only() -> None:
    edit = ClearToolUsesEdit(trigger=1, keep=1)
    graph = build_manus_graph(tools=[add], middleware=[ContextEditingMiddleware(edits=[edit])])
    ran = await run_graph(graph, ADD, calls(("add", {"a": 2, "b": 2}), prefix="d"), "done")
    assert [m.text for m in ran.model.requests[2] if m.type == "tool"] == ["[cleared]", "4"]
    assert ran.results() == ["3", "4"]


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("approve", "3"),
        ({"type": "reject", "message": "no"}, "no"),
        ({"type": "respond", "message": "Three."}, "Three."),
        ({"type": "edit", "edited_action": {"name": "add", "args": {"a": 5, "b": 5}}}, "10"),
    ],
)
@pytest.mark.slow
async def test_human_in_the_loop_asks_as_our_approvals_do(
    mode: Any, answer: Any, result: str
) -> None:
    person = HumanInTheLoopMiddleware({"add": True}, interrupt_mode=mode)
    graph = build_manus_graph(tools=[add], middleware=[person], checkpointer=InMemorySaver())
    await run_graph(graph, ADD, config=CONFIG)
    (asked,) = (await graph.aget_state(CONFIG)).interrupts
    assert asked.value["kind"] == "approval"
    assert asked.value["calls"][0]["tool"] == "add"
    assert asked.value["calls"][0]["args"] == {"a": 1, "b": 2}
    model = scripted("done")
    value: Command[Any] = Command(resume=middleware_answer(asked.value, answer))
    ran = await run_graph(graph, model=model, config=CONFIG, task=value)
    assert result in ran.results()[0]
    assert ran.values["answer"] == "done"
    assert len(model.requests) == 1


async def test_one_decision_counts_for_all_calls_of_a_reply() -> None:
    person = HumanInTheLoopMiddleware({"add": True})
    graph = build_manus_graph(tools=[add], middleware=[person], checkpointer=InMemorySaver())
    two = calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}))
    await run_graph(graph, two, config=CONFIG)
    (asked,) = (await graph.aget_state(CONFIG)).interrupts
    value: Command[Any] = Command(resume=middleware_answer(asked.value, "approve"))
    ran = await run_graph(graph, "done", config=CONFIG, task=value)
    assert ran.results() == ["3", "7"]


async def test_skills_of_deepagents_are_listed_in_the_prompt(tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "poetry"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: poetry\ndescription: Writes verse.\n---\n# Poetry\n", encoding="utf-8"
    )
    backend = FilesystemBackend(root_dir=str(tmp_path), virtual_mode=True)
    skills = SkillsMiddleware(backend=backend, sources=["/skills/"])
    graph = build_manus_graph(tools=[add], middleware=[skills], checkpointer=InMemorySaver())
    ran = await run_graph(graph, ADD, "done", config=CONFIG)
    assert "Writes verse." in ran.model.requests[1][0].text
    assert ran.values["answer"] == "done"


# A node of one's own


async def test_a_node_of_the_callers_stands_between_act_and_stuck_check() -> None:
    def count(state: dict[str, Any]) -> dict[str, Any]:
        return {"hint": f"{len(state['messages'])} messages."}

    graph = build_manus_graph(tools=[add], after_act=[count])
    ran = await run_graph(graph, ADD, "done")
    assert ran.nodes == ["think", "act", "count", "stuck_check", "think", "terminate"]
    with pytest.raises(ConfigError, match="different names"):
        build_manus_graph(tools=[add], after_act=[count, count])
