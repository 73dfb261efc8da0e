"""Servers that cut a long conversation without a word: told once, and compacted in time."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from langchain_core.tools import tool

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.model_calls.run_models import seems_cut
from openmanus_graph.state.manus import Usage
from tests.support import server_facts as reported
from tests.support.graphs import Ran, run_graph
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

WINDOW = 4096


def used(tokens: int) -> Usage:
    return Usage(input_tokens=tokens, cached_tokens=0, output_tokens=9, model_calls=1, cost_usd=0.0)


@pytest.mark.parametrize(
    ("sent", "read", "largest", "cut"),
    [
        (10_000, 3_900, (0, 0), True),
        (10_000, 9_000, (0, 0), False),
        (10_000, 5_100, (0, 0), False),  # another tokenizer
        (10_000, 21_000, (0, 0), False),  # Chinese
        (6_200, 4_050, (4_000, 4_060), True),
        (6_200, 4_050, (3_000, 2_000), False),
        (5_000, 4_050, (4_900, 4_060), False),
        (2_400, 1_000, (0, 0), False),  # too near to be sure
        (10_000, 0, (0, 0), False),  # nothing is reported
        (10_000, 100, (0, 0), False),  # no window is so small: it counts otherwise
        (700, 100, (0, 0), False),
    ],
)
def test_a_cut_is_told_from_another_tokenizer(
    sent: int, read: int, largest: tuple[int, int], cut: bool
) -> None:
    assert seems_cut(sent, used(read), largest) == cut


@tool
def note(n: int) -> str:
    """Note a number."""
    return f"noted {n}: " + "the apples in that basket are red and ripe; " * 60


def replying() -> Callable[[dict[str, Any]], Reply]:
    """Return what answers like a server that reads what fits into its window, and no more."""
    numbers = count()

    def reply(body: dict[str, Any]) -> Reply:
        read = min(WINDOW - 100, len(str(body["messages"])) // 4 + 900)
        usage = {"prompt_tokens": read, "completion_tokens": 20, "total_tokens": read + 20}
        if "Write the notes now" in str(body["messages"][-1]["content"]):
            return Reply("- the baskets were counted", usage=usage)
        return Reply(calls=(Call("note", {"n": next(numbers)}),), usage=usage)

    return reply


async def ran_at(server: OpenAIServer) -> Ran:
    try:
        return await run_graph(
            build_manus_graph(tools=[note]),
            model="openai:" + reported.MODEL,
            base_url=server.base_url,
            max_steps=24,
            profile="standard",
        )
    finally:
        await close_models()


@pytest.mark.parametrize(
    ("facts", "said", "how"),
    [
        (reported.OLLAMA, "is little", "OLLAMA_CONTEXT_LENGTH"),
        (reported.LM_STUDIO, "is little", "context length in LM Studio"),
        (reported.LLAMA_CPP, "is little", "--no-context-shift"),
        ({}, "without a word", "larger context"),
    ],
)
async def test_a_small_window_is_told_once_and_the_conversation_fits(
    facts: dict[str, Any], said: str, how: str
) -> None:
    with OpenAIServer([replying()] * 80) as server:
        server.facts.update(facts)
        ran = await ran_at(server)
        sizes = [len(str(request.messages)) // 4 for request in server.requests]
    notices = [str(event["text"]) for event in ran.events if event["type"] == "notice"]
    small = [text for text in notices if "is little" in text or "without a word" in text]
    assert len(small) == 1
    assert said in small[0]
    assert how in small[0]
    compacted = next(n for n, size in enumerate(sizes) if n and size < sizes[n - 1])
    assert max(sizes[compacted:]) < WINDOW
    assert facts or max(sizes[:compacted]) + 900 > WINDOW, "it was not known before"
    assert ran.values["stop_reason"] == "max_steps"


async def test_who_counts_without_its_cache_has_cut_nothing() -> None:
    large = {
        **reported.OLLAMA,
        "/api/ps": {"models": [{"name": reported.MODEL, "context_length": 65536}]},
    }
    with OpenAIServer([replying()] * 80) as server:
        server.facts.update(large)
        ran = await ran_at(server)
    assert not [event for event in ran.events if "without a word" in str(event.get("text"))]
