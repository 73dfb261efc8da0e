"""Thirty honest tasks of browsing, in a folder with files: how often they interrupt a person."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph, open_session
from openmanus_graph.testing import ScriptedChatModel
from tests.e2e.test_openai_protocol import PNG
from tests.support.graphs import calls
from tests.support.pages import PageServer

pytestmark = pytest.mark.slow

INTERRUPTIONS = 2
"""So many there were before links were counted and more sources armed the rules."""
SITES = {"docs": "127.0.0.1", "shop": "127.0.0.2", "store": "127.0.0.3", "news": "127.0.0.4"}
HUB = "127.0.0.5"
PAGES = {
    "docs": [f"/p/{number}" for number in range(1, 13)],
    "shop": [*(f"/list?page={n}" for n in range(1, 7)), *(f"/item/{n}" for n in range(1, 9))],
    "store": [f"/item/{number}" for number in range(1, 9)],
    "news": [f"/a/{number}" for number in range(1, 9)],
}


def docs(last: int, first: int = 1) -> list[str]:
    return [f"fetch docs/p/{number}" for number in range(first, last + 1)]


def lists(last: int) -> list[str]:
    return [f"fetch shop/list?page={number}" for number in range(1, last + 1)]


def items(site: str, last: int) -> list[str]:
    return [f"fetch {site}/item/{number}" for number in range(1, last + 1)]


def news(last: int) -> list[str]:
    return [f"fetch news/a/{number}" for number in range(1, last + 1)]


PRICES, NOTES = "read prices.csv", "read notes.txt"
TASKS: list[tuple[str, list[str]]] = [
    ("Summarise <docs>/p/1.", docs(1)),
    ("Summarise the eight pages that begin with <docs>/p/1.", docs(8)),
    ("Read <docs>/p/1 to 8 at once.", ["crawl " + " ".join(f"docs/p/{n}" for n in range(1, 9))]),
    ("Check notes.txt against <docs>/p/1 and the following pages.", [NOTES, *docs(6)]),
    ("Which of prices.csv is cheaper at <shop>?", [PRICES, *lists(6)]),
    ("Complete prices.csv from <shop>.", [PRICES, *lists(2), *items("shop", 5)]),
    ("Find a shop on <hub>/ and its offers.", ["fetch hub/", *lists(3)]),
    ("Find all offers that <hub>/ leads to.", ["fetch hub/", *lists(3), *items("shop", 4)]),
    ("Learn the language that <hub>/ links to.", ["fetch hub/", *docs(8)]),
    ("Compare prices.csv with a shop of <hub>/.", [PRICES, "fetch hub/", *lists(4)]),
    (
        "Answer the questions of notes.txt; begin at <hub>/.",
        [NOTES, "fetch hub/", *docs(2), *news(2), *items("store", 2)],
    ),
    ("What is new? See <hub>/. Write news.md.", ["fetch hub/", *news(6), "write news.md"]),
    (
        "Collect three articles of <hub>/ in a file each.",
        ["fetch hub/", *(one for n in "123" for one in (f"fetch news/a/{n}", f"write {n}.md"))],
    ),
    ("Which files may <hub>/ help with?", ["run ls", "fetch hub/", *lists(3)]),
    ("Analyse prices.csv; <docs> explains how.", ["python print(1)", *docs(5)]),
    ("What is in this folder, and what does <docs> say of it?", ["view .", *docs(3)]),
    ("Check the links of urls.txt.", ["read urls.txt", *docs(1), *items("shop", 1), *news(1)]),
    ("Read what urls.txt lists.", ["read urls.txt", *docs(5)]),
    (
        "Compare prices.csv at both shops of <hub>/.",
        [PRICES, "fetch hub/", *items("shop", 4), *items("store", 4)],
    ),
    ("Download <shop>/list?page=1 and count.", [*lists(1), "python print(2)", NOTES]),
    (
        "Look at the offers of <shop> in the browser.",
        [f"go shop/list?page={number}" for number in (1, 2, 3)],
    ),
    (
        "Compare notes.txt with the shop of <hub>/ in the browser.",
        [NOTES, "go hub/", "go shop/list?page=1", "go shop/item/1"],
    ),
    ("Is this file up to date? See <docs>.", ["read data.txt", *docs(8)]),
    ("What is in the picture? <hub>/ may help.", ["fetch hub/", *docs(2)]),
    ("Look a word up where I say.", ["ask Where?", NOTES, *docs(8)]),
    ("Read <docs>/p/1, page by page, and take notes.", [*docs(3), "write notes.md", *docs(7, 4)]),
    ("Read notes.txt and <docs>/missing.", [NOTES, "fetch docs/missing", *docs(2)]),
    ("Look up the price of a thing in prices.csv.", [PRICES, "fetch store/item/1"]),
    ("Look at my notes, then at the news.", [NOTES, "fetch news/a/1", "fetch news/a/2"]),
    ("Compare notes.txt with five pages that <hub>/ links to.", [NOTES, "fetch hub/", *docs(5)]),
]  # fmt: skip


@pytest.fixture
def sites() -> Iterator[dict[str, PageServer]]:
    hosts = {**SITES, "hub": HUB}
    servers = {name: PageServer(host=host) for name, host in hosts.items()}
    for server in servers.values():
        server.__enter__()
    try:
        everything = list[str]()
        for name, paths in PAGES.items():
            links = [f'<a href="{path}">{path}</a>' for path in paths]
            for path in paths:
                servers[name].add(path, f"<h1>{path}</h1> {' '.join(links)}")
            everything += [f'<a href="{servers[name].url(path)}">{path}</a>' for path in paths]
        servers["hub"].add("/", " ".join(everything))
        yield servers
    finally:
        for server in servers.values():
            server.__exit__(None, None, None)


def step_of(step: str, number: int, sites: dict[str, PageServer]) -> AIMessage:
    """Return the call of a step."""

    kind, _, rest = step.partition(" ")
    urls = list[str]()
    for place in rest.split() if kind in ("fetch", "go", "crawl") else ():
        name, slash, path = place.partition("/")
        urls.append(sites[name].url(slash + path))
    url = next(iter(urls), "")
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "fetch": ("fetch_page", {"url": url}),
        "go": ("browser_use", {"action": "go_to_url", "url": url}),
        "crawl": ("crawl4ai", {"urls": urls}),
        "read": ("read_file", {"path": rest}),
        "view": ("str_replace_editor", {"command": "view", "path": rest}),
        "write": ("str_replace_editor", {"command": "create", "path": rest, "file_text": "x"}),
        "run": ("bash", {"command": rest}),
        "python": ("python_execute", {"code": rest}),
        "ask": ("ask_human", {"inquire": rest}),
    }
    return calls(made[kind], prefix=f"s{number}-")


async def interruptions(number: int, sites: dict[str, PageServer]) -> int:
    """Do a task, allow whatever is asked, and count the questions about calls."""
    text, steps = TASKS[number]
    for name, server in sites.items():
        text = text.replace(f"<{name}>", server.url("").rstrip("/"))
    folder = Path("work") / str(number)
    folder.mkdir(parents=True)
    (folder / "prices.csv").write_text("thing,price\na,1\n")
    (folder / "notes.txt").write_text("What is what?\n")
    (folder / "data.txt").write_text("1\n")
    (folder / "a.png").write_bytes(PNG)
    urls = [sites["docs"].url(f"/p/{n}") for n in range(1, 6)]
    urls += [sites["shop"].url("/item/1"), sites["news"].url("/a/1")]
    (folder / "urls.txt").write_text("\n".join(urls))
    replies = [step_of(step, place, sites) for place, step in enumerate(steps)]
    graph = build_manus_graph(checkpointer=InMemorySaver())
    context = Context(
        model=ScriptedChatModel([*replies, "All of that is in what the calls have shown."]),
        workspace=str(folder),
        allow_hosts=tuple(server.place for server in sites.values()),
    )
    config: Any = {"configurable": {"thread_id": str(number)}, "recursion_limit": 200}
    extra = {"images": ["a.png"]} if "picture" in text else {}
    given: Any = {"messages": [HumanMessage(text, additional_kwargs=extra)]}
    asked = 0
    async with open_session(str(number)):
        while True:
            values = await graph.ainvoke(given, config, context=context)
            waiting = values.get("__interrupt__", ())
            if not waiting:
                assert values["status"] == "finished", values["answer"]
                return asked
            questions = [one for one in waiting if one.value.get("calls")]
            asked += len(questions) > 0
            allowed, named = {"type": "approve"}, sites["docs"].url("/")
            answers = {one.id: allowed if one in questions else named for one in waiting}
            given = Command(resume=answers)


async def test_honest_browsing_is_interrupted_no_more_than_before(
    sites: dict[str, PageServer],
) -> None:
    assert len(TASKS) == 30
    asked = {number: await interruptions(number, sites) for number in range(len(TASKS))}
    found = {TASKS[number][0]: times for number, times in asked.items() if times}
    assert sum(asked.values()) <= INTERRUPTIONS, found
