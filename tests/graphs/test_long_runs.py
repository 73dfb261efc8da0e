"""A long run whose conversation is compacted many times keeps its task and its facts."""

import contextlib
import re
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.utils import convert_to_openai_messages, count_tokens_approximately
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.models.failures import ModelError
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.service.own_process import prepare_home
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import calls, run_graph, scripted
from tests.support.long_run import FACT as PAGE_FACT
from tests.support.long_run import WORDS, LongRun
from tests.support.strict_openai import complaint

pytestmark = pytest.mark.slow

WINDOW = 6000
CLOSING, LAST_WORD = "ends with this reply", "Not all baskets are counted."
TASK = 'Add up the baskets. Keep «exactly» this: "§7 – ünïcödé"; never touch old.csv!'
SAID = {
    3: "DECISION 1: amounts are rounded half up.",
    35: "PATH 2: the list is in out/baskets 2.csv.",
    118: "OPEN 3: does basket 9 count twice?",
    215: "DECISION 4: basket 9 counts once after all.",
}
FOUND = {20: "NUMBER 5: 4711.25", 83: "NUMBER 6: 1000.50", 176: "NUMBER 7: -11.75"}
FACT = re.compile(r"(?:DECISION|PATH|OPEN|NUMBER) \d: [^|\n]*[^|\n.?]")


@tool
def count(basket: int) -> str:
    """Count a basket."""
    return f"|{FOUND.get(basket, f'basket {basket} is empty')}|" + "apple " * 60


def notes_from(request: list[BaseMessage]) -> str:
    """Write the notes as a model would: from nothing but what it is given."""
    return "\n".join(dict.fromkeys(fact[0] for fact in FACT.finditer(request[-1].text)))


def worker(steps: int, notes: Callable[[list[BaseMessage]], Any]) -> Any:
    """Count baskets, and add up the numbers that the last request holds."""
    numbers = iter(range(1, steps + 1))

    def reply(request: list[BaseMessage]) -> AIMessage | str | Exception:
        if "Write the notes now" in request[-1].text:
            made: AIMessage | str | Exception = notes(request)
            return made
        if CLOSING in request[-1].text:
            return LAST_WORD
        number = next(numbers, None)
        if number is None:
            shown = "\n".join(message.text for message in request)
            found = dict.fromkeys(re.findall(r"NUMBER \d: (-?[\d.]+\d)", shown))
            return f"The sum is {sum(map(float, found))}"
        text = SAID.get(number, "")
        return calls(("count", {"basket": number}), text=text, prefix=f"c{number}-")

    return reply


def model_of(steps: int, notes: Callable[[list[BaseMessage]], Any]) -> ScriptedChatModel:
    model = scripted(*[worker(steps, notes)] * (steps * 2))
    model.piece_size = 1000
    model.usage = None  # estimated from the texts
    model.profile = {"max_input_tokens": WINDOW}
    return model


def work_requests(model: ScriptedChatModel) -> list[list[BaseMessage]]:
    """Return the requests that are not about notes; each must be one a strict server takes."""
    asked: list[list[BaseMessage]] = []
    for request, options in zip(model.requests, model.options, strict=True):
        assert count_tokens_approximately(request, tools=options.get("tools")) <= WINDOW
        assert complaint({"messages": convert_to_openai_messages(request)}) is None
        if "Write the notes now" not in request[-1].text:
            asked.append(request)
    return asked


def stored_bytes() -> int:
    """Return the size of the files once their logs, up to 4 MB each, are folded into them."""
    files = [*Path(openmanus_home()).glob("*.db")]
    for file in files:
        with contextlib.closing(sqlite3.connect(file)) as database:
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return sum(file.stat().st_size for file in files)


@pytest.mark.parametrize("steps", [250, pytest.param(1000, marks=pytest.mark.exhaustive)])
async def test_a_run_of_many_steps_ends_with_its_task_and_its_facts(steps: int) -> None:
    model = model_of(steps, notes_from)
    sizes: list[int] = []
    endings: list[tuple[Any, ...]] = []
    prepare_home(openmanus_home())
    async with open_checkpointer(database_url()) as checkpointer:
        graph = build_manus_graph(tools=[count], checkpointer=checkpointer)
        for limit in (steps // 2, steps + 1):
            ran = await run_graph(
                graph,
                model=model,
                task=Command(goto="think") if sizes else TASK,
                config={"configurable": {"thread_id": "t"}, "recursion_limit": 100_000},
                max_steps=limit,
                answer_check="off",  # the sum is of figures that only the summaries have
            )
            endings.append(tuple(ran.values[k] for k in ("status", "step_count", "answer")))
            sizes.append(stored_bytes())
    total = f"The sum is {4711.25 + 1000.5 - 11.75}"
    assert endings == [("stopped", steps // 2, LAST_WORD), ("finished", steps + 1, total)]
    final_summarys = sum(CLOSING in request[-1].text for request in model.requests)
    assert final_summarys == 1
    compactions = len(model.requests) - (steps + 1) - final_summarys
    assert steps // 50 < compactions < steps // 5
    asked = work_requests(model)
    assert all(TASK in request[1].text for request in asked)
    last = "\n".join(message.text for message in asked[-1])
    assert last.count(TASK) == 1
    for fact in (*SAID.values(), *FOUND.values()):
        assert fact.rstrip(".?") in last
    assert sizes[1] < 2.3 * sizes[0]
    assert sizes[1] < 4_000_000 + 12_000 * steps
    assert ran.values["usage"]["model_calls"] == len(model.requests)


@pytest.mark.parametrize(
    "notes",
    [
        "",
        pytest.param("I forgot what this was about.", marks=pytest.mark.exhaustive),
        pytest.param("blah " * 20_000, marks=pytest.mark.exhaustive),
        ModelError("bad_request", "No."),
    ],
)
async def test_bad_notes_do_not_cost_the_task(notes: str | Exception) -> None:
    model = model_of(150, lambda request: notes)
    graph = build_manus_graph(tools=[count], checkpointer=InMemorySaver())
    ran = await run_graph(
        graph, model=model, task=TASK, config={"configurable": {"thread_id": "t"}}, max_steps=200
    )
    assert ran.values["status"] == "finished"
    asked = work_requests(model)
    assert all(TASK in request[1].text for request in asked)
    compactions = len(model.requests) - len(asked)
    assert 3 < compactions < 50
    newest = [request[-1].text for request in asked[1:]]
    assert all(text.endswith("apple ") for text in newest), "the newest result stands in each"


async def test_all_the_users_messages_survive_with_their_answers_and_files() -> None:
    said = [
        "First: the key is «K-17/β». Files in the workspace: a b.csv",
        "Second: write in French, never in English.",
        "Third: count on.",
    ]
    graph = build_manus_graph(tools=[count], checkpointer=InMemorySaver())
    png = (
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgAB"
        "SK+kcQAAAABJRU5ErkJggg=="
    )
    picture = {"type": "image_url", "image_url": {"url": png}}
    models: list[ScriptedChatModel] = []
    people: list[BaseMessage] = []
    for words in said:
        models.append(model_of(80, lambda request: "forgotten"))
        models[-1].profile = {"max_input_tokens": WINDOW, "image_inputs": True}
        content: Any = [{"type": "text", "text": words}, picture] if words == said[0] else words
        extra = {"images": ["chart.png"]} if words == said[1] else {}
        message = HumanMessage(content, additional_kwargs=extra)
        ran = await run_graph(
            graph,
            model=models[-1],
            task={"messages": [message]},
            config={"configurable": {"thread_id": "t"}},
            max_steps=200,
        )
        assert ran.values["status"] == "finished"
        people = [message for message in ran.messages if message.type == "human"]
    for number, model in enumerate(models):
        for request in work_requests(model):
            shown = [message.text for message in request]
            for words in said[: number + 1]:
                assert sum(words in text for text in shown) == 1
            assert png in str([message.content for message in request])
    assert [message.text for message in people[:2]] == said[:2]
    assert people[1].additional_kwargs["images"] == ["chart.png"]
    last = [message.type for message in work_requests(models[-1])[-1]]
    assert last[:6] == ["system", "human", "ai", "human", "ai", "human"]


def is_for_summary(request: list[BaseMessage]) -> bool:
    return "Write the notes now" in request[-1].text


@pytest.mark.parametrize("window", [8_000, 32_000, 128_000])
async def test_the_longer_the_window_the_longer_the_notes_may_be(window: int) -> None:
    run = LongRun(window // 2_000, window)
    ran = await run_graph(build_manus_graph(tools=[run.tool]), model=run.model, max_steps=1000)
    asked = [request[-1].text for request in run.model.requests if is_for_summary(request)]
    (words,) = {int(found) for text in asked[:1] for found in WORDS.findall(text)}
    assert window // 40 < words < window // 10
    assert ran.values["status"] == "finished"


@pytest.mark.parametrize(
    ("window", "least"),
    [
        (8_000, 150),
        pytest.param(32_000, 280, marks=pytest.mark.exhaustive),
        pytest.param(128_000, 300, marks=pytest.mark.exhaustive),
    ],
)
async def test_facts_survive_a_run_of_300_steps(window: int, least: int) -> None:
    run = LongRun(300, window)
    ran = await run_graph(
        build_manus_graph(tools=[run.tool], checkpointer=InMemorySaver()),
        model=run.model,
        task="Read all pages, and name the fact of each.",
        config={"configurable": {"thread_id": "t"}, "recursion_limit": 10_000},
        max_steps=1000,
    )
    assert (ran.values["status"], ran.values["step_count"]) == ("finished", 301)
    assert run.kept() >= least
    assert ran.values["usage"]["model_calls"] == run.sent.requests


async def test_text_that_takes_many_tokens_stays_within_the_window() -> None:
    run = LongRun(40, 64_000, chars_per_token=1)  # about as Chinese does
    ran = await run_graph(build_manus_graph(tools=[run.tool]), model=run.model, max_steps=1000)
    assert ran.values["status"] == "finished"
    assert run.sent.notes_requests > 3
    assert run.sent.longest < 64_000
    shortened = [
        sum(len(message.text) for message in after)
        for before, after in pairwise(run.model.requests)
        if is_for_summary(before)
    ]
    assert max(shortened) < 0.4 * 64_000
    assert run.kept() == 40


async def test_the_request_for_notes_shows_the_earlier_notes_whole() -> None:
    run = LongRun(80, 32_000)
    await run_graph(build_manus_graph(tools=[run.tool]), model=run.model, max_steps=1000)
    asked = [request for request in run.model.requests if is_for_summary(request)]
    assert len(asked) > 2
    for earlier, later in pairwise(asked):
        facts = set(PAGE_FACT.findall("".join(message.text for message in earlier)))
        assert facts <= set(PAGE_FACT.findall("".join(message.text for message in later)))
