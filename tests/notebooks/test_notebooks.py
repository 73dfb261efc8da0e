"""Every notebook runs from top to bottom, offline, without a key, as a newcomer would run it."""

import ast
import asyncio
import copy
import os
import re
from html import unescape
from pathlib import Path
from typing import Any, cast

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.limits import BACKSTOP_S
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(path.stem for path in FOLDER.glob("*.ipynb"))
CONFIGURED = ("OPENMANUS_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENMANUS_HOME")
AT_ONCE = 3

SHOWN = {
    "01_first_run": ("('e', 92)", "letters.csv", "finished (answer)"),
    "02_watching_and_steering": (
        "time.sleep(1)",
        "('human', 'In Fahrenheit, please.')",
        "68.0 °F",
        "'notice'",
        "stopped (timeout)",
        "(True, ('act',))",
    ),
    "03_planning_and_charts": (
        "create_plan",
        "3 of 3 completed",
        *("depend on the temperature?", "data_analysis · ", "I look at the temp", "r = 0.88"),
        *("between the days of the week?", "data_analysis · ", "I look at the days", "Sat  243.0"),
        *("manus · after weather, days", "python_execute", "58 rides more than one of the week"),
        *("data:image/png;base64,", "visualization/Warm_days_bring_rides.png"),
        *("data:image/png;base64,", "visualization/Weekends_bring_more.png"),
        *("- [x] ", "Write summary.md"),
    ),
    "04_your_own_tool_and_agent": ("Available: blue mug", "3 teapots", "sold out"),
    "05_approvals": (
        "Waiting: Allow refund?\n<code>refund</code>\norder: 19\neuros: 25",
        "</div>{}",
        "'allowed_decisions': ['approve', 'edit', 'reject', 'respond']",
        "90 euros of order 18 were paid back.",
        "Order 19 was never paid.",
        "A rule of the policy forbids it",
        "The policy forbids refunds of order 18.",
    ),
    "06_resume_and_going_back": ("stopped (max_steps)", "smallest is 21", "largest number", "739"),
    "07_embedding": ("Dear customer", "397.8", "tool_end python_execute", "result.txt"),
    "08_mcp": (
        "mcp_library_server_reserve_book (external)",
        "shelf 4",
        "lent until Friday",
        "finished (answer)",
        "['mcp_library_find_book', 'mcp_library_find_book']",
    ),
}
"""What a reader sees in each, in this order; the tools that print it really ran."""


def read(name: str) -> Any:
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]


def text_of(cell: Any) -> str:
    """Return what the outputs of a cell show."""
    shown = ""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        kinds = ("text/html", "text/markdown", "text/plain")
        shown += output.get("text") or next((data[kind] for kind in kinds if kind in data), "")
    return shown


@pytest.fixture(scope="module")
def played(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Run those that are tried, a few at a time: what came of each, or why it failed."""
    items = cast("list[pytest.Function]", request.session.items)
    mine = [item for item in items if item.path == request.path and "played" in item.fixturenames]
    chosen = [str(item.callspec.params["name"]) for item in mine]
    a_few = asyncio.Semaphore(AT_ONCE)

    async def run(name: str) -> Any:
        book, folder = read(name), tmp_path_factory.mktemp(name)
        where = {"metadata": {"path": str(folder)}}
        client = NotebookClient(
            book, timeout=int(BACKSTOP_S), kernel_name="python3", resources=where
        )
        kept = {k: v for k, v in os.environ.items() if k not in CONFIGURED}
        async with a_few:
            own = {"IPYTHONDIR": str(folder / "ipython"), "XDG_CONFIG_HOME": str(folder / "config")}
            await client.async_execute(env={**kept, **own})
        return book

    async def run_all() -> list[Any]:
        return await asyncio.gather(*map(run, chosen), return_exceptions=True)

    return dict(zip(chosen, asyncio.run(run_all()), strict=True))


@pytest.mark.parametrize("name", sampled(NAMES, 4, "notebooks"))
def test_a_notebook_runs_from_top_to_bottom(name: str, played: dict[str, Any]) -> None:
    book = played[name]
    if isinstance(book, BaseException):
        raise book
    shown = unescape("".join(map(text_of, book.cells)))
    at = 0
    for words in SHOWN[name]:
        assert words in shown[at:]
        at = shown.index(words, at) + len(words)


@pytest.mark.parametrize("name", NAMES)
def test_a_notebook_is_stored_without_outputs_and_ends_with_one_thing_to_try(name: str) -> None:
    book = read(name)
    codes = [cell for cell in book.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in codes)
    assert "**Try next:**" in book.cells[-1].source
    imported = re.findall(
        r"^from (openmanus_graph[\w.]*)", "\n".join(c.source for c in codes), re.M
    )
    assert set(imported) <= {"openmanus_graph", "openmanus_graph.interfaces.notebook"}, (
        "public names only"
    )


NOT_WHOLE = {
    "02_watching_and_steering": "0 differ: The record ends before this call did: bash",
}
"""It has a run that is cancelled within a call."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NAMES)
def test_the_runs_of_a_notebook_are_replayed_in_another_folder_and_home_on_another_day(
    name: str, tmp_path: Path
) -> None:
    book, elsewhere = read(name), tmp_path / "elsewhere"
    elsewhere.mkdir()
    begin = "from tests.support import notebook_replays\nawait notebook_replays.record()"
    end = f"await notebook_replays.replay_all({str(elsewhere)!r})"
    first, last = (copy.deepcopy(book.cells[-1]) for _ in range(2))
    first |= {"cell_type": "code", "outputs": [], "execution_count": None, "source": begin}
    last |= {**first, "source": end}
    book.cells = [first, *book.cells, last]
    kept = {k: v for k, v in os.environ.items() if k not in CONFIGURED}
    here = {"PYTHONPATH": str(FOLDER.parent), "OPENMANUS_HOME": str(tmp_path / "home")}
    (tmp_path / "cwd").mkdir()
    where = {"metadata": {"path": str(tmp_path / "cwd")}}
    client = NotebookClient(book, timeout=int(BACKSTOP_S), kernel_name="python3", resources=where)
    client.execute(env={**kept, **here})
    found: dict[str, str] = ast.literal_eval(text_of(book.cells[-1]))
    assert found
    others = [one for one in found.values() if one != "equal"]
    assert [one.startswith(NOT_WHOLE[name]) for one in others] == [True] * (name in NOT_WHOLE)
