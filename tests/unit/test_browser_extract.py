"""`extract_content`: the whole page as text, and questions answered from it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from langchain_core.messages.ai import UsageMetadata

from openmanus_graph import build_manus_graph
from openmanus_graph.backends.browser.reading import check_quotes
from openmanus_graph.backends.web.page_text import MAX_PARTS, PART_CHARS, choose_parts
from openmanus_graph.errors import ToolError
from openmanus_graph.state.settings import BrowserSettings
from openmanus_graph.tools.browser_use import browser_use
from tests.support.awkward_site import awkward_site
from tests.support.browsing import Browsing
from tests.support.graphs import calls, run_graph

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def awkward() -> Iterator[str]:
    with awkward_site() as url:
        yield url


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Browsing]:
    browsing = Browsing(tmp_path / "work")
    with contextlib.closing(browsing.session):
        yield browsing


async def test_whole_page_as_markdown_main_content_first(use: Browsing, awkward: str) -> None:
    await use("go_to_url", url=f"{awkward}/article")
    text = await use("extract_content")
    for words in ("# The tower", "330 metres", "Rendered by a script.", "In the shadow root.",
                  "In the closed root.", "Told in a frame."):  # fmt: skip
        assert words in text
    assert text.index("330 metres") < text.index("Menu entry")


async def test_question_is_answered_with_passages_that_stand_there(
    use: Browsing, awkward: str
) -> None:
    asked: list[tuple[str, str]] = []

    async def model(system: str, question: str) -> str:
        asked.append((system, question))
        return (
            "330 metres.\n\nPassages:\n> it is **330 metres** high\n"
            "> is 330 metres high, says its keeper\n> It is made of gold."
        )

    use.model = model
    await use("go_to_url", url=f"{awkward}/article")
    text = await use("extract_content", goal="How high is it?")
    assert "330 metres.\n" in text
    assert "> is 330 metres high, says its keeper" in text
    assert "gold" not in text
    assert "2 quoted passages are not on the page" in text
    assert len(asked) == 1
    assert "How high is it?" in asked[0][1]
    assert "painted every seven years" in asked[0][1]


async def test_without_a_model_the_page_itself_is_given(use: Browsing, awkward: str) -> None:
    async def model(system: str, question: str) -> str:
        raise ToolError("The model gave no answer: it is away.")

    await use("go_to_url", url=f"{awkward}/article")
    assert "330 metres" in await use("extract_content", goal="How high is it?")
    use.model = model
    text = await use("extract_content", goal="How high is it?")
    assert "it is away" in text
    assert "330 metres" in text


@pytest.mark.usefixtures("whole_chromium")
async def test_pdf_is_read(use: Browsing, awkward: str) -> None:
    assert "This is a PDF" in await use("go_to_url", url=f"{awkward}/pdf")
    assert "Invoice number 4711" in await use("extract_content")


async def test_old_length_limit_is_kept_to(use: Browsing, awkward: str) -> None:
    use.configure(browser=BrowserSettings(max_content_length=500))
    await use("go_to_url", url=f"{awkward}/article")
    text = await use("extract_content")
    assert len(text) < 1200


def test_long_page_is_asked_about_in_its_most_related_parts() -> None:
    sections = [f"# Section {n}\n" + f"filler words here {n} " * 1200 for n in range(MAX_PARTS + 3)]
    sections[-1] = "# Prices\n" + "the price of a zebra is 99 " * 1000
    parts, left_out = choose_parts("\n".join(sections), "price of a zebra")
    assert left_out == 3
    assert len(parts) == MAX_PARTS
    assert any("zebra" in part for part in parts)
    assert all(len(part) <= PART_CHARS * 1.5 for part in parts)


def test_quotes_are_compared_without_markup() -> None:
    text = 'See the [**price list**](https://a.example/x) of "today".'
    assert check_quotes("x\n> See the price list of today.", text).endswith("of today.")
    assert "Check the answer" in check_quotes("x\n> never said", text)
    assert "No passage" in check_quotes("It is 5.", text)
    assert check_quotes("NOT FOUND. Nothing.", text) == "NOT FOUND. Nothing."


async def test_question_counts_into_the_run(awkward: str) -> None:
    graph = build_manus_graph(tools=[browser_use])
    goto = calls(("browser_use", {"action": "go_to_url", "url": f"{awkward}/article"}))
    ask = calls(("browser_use", {"action": "extract_content", "goal": "How high?"}), prefix="d")
    answer = "330 metres\n\nPassages:\n> has three floors for visitors"
    ran = await run_graph(graph, goto, ask, answer, "It is 330 metres high.",
                          allow_hosts=("127.0.0.1",))  # fmt: skip
    assert ran.values["answer"] == "It is 330 metres high."
    assert "> has three floors" in ran.results()[1]
    assert ran.values["usage"]["model_calls"] == 4
    assert ran.values["usage"]["input_tokens"] == 400
    assert [event["step"] for event in ran.events if event["type"] == "think_start"] == [1, 2, 3]


async def test_question_keeps_to_the_budget(awkward: str) -> None:
    graph = build_manus_graph(tools=[browser_use])
    goto = calls(("browser_use", {"action": "go_to_url", "url": f"{awkward}/article"}))
    ask = calls(("browser_use", {"action": "extract_content", "goal": "How high?"}), prefix="d")
    usage = UsageMetadata(input_tokens=2600, output_tokens=100, total_tokens=2700)
    ask = ask.model_copy(update={"usage_metadata": usage})
    ran = await run_graph(graph, goto, ask, allow_hosts=("127.0.0.1",), max_total_tokens=3000)
    assert "limit (budget) is reached" in ran.results()[1]
    assert "330 metres" in ran.results()[1]
    assert ran.values["stop_reason"] == "budget"
