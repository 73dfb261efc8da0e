"""What-if replays: the record answers as long as it is asked for the same."""

from functools import partial
from typing import Any

import pytest
from langchain_core.runnables import RunnableConfig

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.config.resolve import database_url
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs import catalog
from openmanus_graph.interfaces.service.replay import Replayed, replay_thread
from openmanus_graph.model_calls.replay import WhatIf
from openmanus_graph.runtime.session_registry import close_session
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import calls, run_graph, scripted
from tests.support.sending import build_sending_graph, sent

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


def sending(number: int, call_id: str = "") -> Any:
    return calls(("send", {"number": number}), prefix=call_id or f"c{number}-")


@pytest.fixture(autouse=True)
async def _run(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recorded run that sends 1 and 2."""
    monkeypatch.setattr(catalog, "_registered", {"sending": build_sending_graph})
    model = scripted(sending(1), sending(2), "Both are sent.")
    async with open_checkpointer(database_url()) as saver:
        graph = build_sending_graph(checkpointer=saver)
        await run_graph(graph, model=model, task="send both", config=CONFIG, policy="auto")
    Threads(open_database(database_url())).begin("t", "sending", "send both", {}, None)
    close_session("t")
    sent.clear()


async def what_if(
    *replies: Any, policy: Any = "auto", prompts: Any = None, **tried: Any
) -> tuple[Replayed, ScriptedChatModel]:
    """Replay the run with a model that gives these replies."""
    found = Threads(open_database(database_url())).find("t")
    assert isinstance(found, Thread)
    model = scripted(*replies)
    context = Context(model=model, workspace="work", policy=policy, prompts=prompts)
    result = await replay_thread(found, context, WhatIf(**tried))
    assert sent == [], "no tool runs"
    return result, model


async def test_another_model_that_makes_the_same_calls_makes_no_difference() -> None:
    replies = (sending(1, "other-"), sending(2, "others-"), "Both are sent.")
    result, model = await what_if(*replies, asks_model=True)
    assert (result.divergence, result.ended) == (None, "")
    assert model.requests[2][-1].text == "sent 2", "the record answers"


async def test_the_first_other_call_is_where_it_stops() -> None:
    result, model = await what_if(sending(1), sending(3), asks_model=True)
    assert result.divergence is not None
    assert (result.divergence.position, result.divergence.step) == (2, 2)
    assert result.divergence.diff().splitlines()[3:] == [
        " send {",
        '- "number": 2',
        '+ "number": 3',
        " }",
    ]
    assert model.remaining == 0


async def test_another_answer_is_a_difference() -> None:
    result, _ = await what_if(sending(1), sending(2), "One is sent.", asks_model=True)
    assert result.divergence is not None
    assert (result.divergence.recorded, result.divergence.now) == (
        "Both are sent.",
        "One is sent.",
    )


async def test_a_run_that_ends_earlier_or_later_is_a_difference() -> None:
    early, _ = await what_if(sending(1), "Enough.", asks_model=True)
    assert early.divergence is not None
    assert early.divergence.now == "Enough."


async def test_a_changed_prompt_is_sent_to_the_model() -> None:
    result, model = await what_if(sending(4), prompts={"system": "Send 4 only."}, asks_model=True)
    assert model.requests[0][0].text.startswith("Send 4 only.")
    assert result.divergence is not None
    assert result.divergence.position == 1


async def test_a_model_that_fails_now_ends_it() -> None:
    result, _ = await what_if(ModelError("bad_request", "It refuses."), asks_model=True)
    assert result.divergence is None
    assert "before model call 1" in result.ended


@pytest.mark.parametrize(("policy", "decides"), [("never", "deny"), ("ask", "ask")])
async def test_a_policy_that_decides_otherwise_is_shown_at_the_call(
    policy: str, decides: str
) -> None:
    result, model = await what_if(policy=policy, policy_before="auto")
    assert result.divergence is not None
    assert result.divergence.what == 'The policy decides differently on send {"number":1}.'
    assert result.divergence.now.startswith(decides)
    assert model.requests == []


async def test_a_policy_that_decides_the_same_makes_no_difference() -> None:
    result, _ = await what_if(policy="auto", policy_before="auto")
    assert (result.divergence, result.ended) == (None, "")


async def test_a_function_in_place_of_a_tool_is_called_until_it_says_something_else() -> None:
    seen: list[int] = []

    async def other(number: int) -> str:
        seen.append(number)
        return f"sent {number}" if number == 1 else "sent nothing"

    result, _ = await what_if(tools={"send": other})
    assert seen == [1, 2]
    assert result.divergence is not None
    assert (result.divergence.recorded, result.divergence.now) == ("sent 2", "sent nothing")


async def test_a_function_that_raises_says_what() -> None:
    def other(number: int) -> str:
        raise ValueError(f"no {number}")

    result, _ = await what_if(tools={"send": other})
    assert result.divergence is not None
    assert result.divergence.now == "ValueError: no 1"


async def test_a_recording_whose_tool_or_agent_is_gone_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first request already offers one tool less; the call is answered as today's would be."""
    monkeypatch.setattr(catalog, "_registered", {"sending": partial(build_manus_graph, tools=[])})
    result, _ = await what_if()
    assert not result.is_equal
    assert [one.position for one in result.differences] == [1, 2, 3]
    assert '"name": "send"' in result.first_difference()
    monkeypatch.setattr(catalog, "_registered", {})
    with pytest.raises(ConfigError, match="There is no agent 'sending'"):
        await what_if()
