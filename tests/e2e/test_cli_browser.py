"""`openmanus run --agent browser`: a scripted model orders the right thing in a real shop."""

import re
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from langchain_core.messages.utils import count_tokens_approximately

from tests.support.awkward_site import awkward_site
from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.shop import Shop, shop

Seen = Callable[[str], int]
"""Finds the index of the newest element that a text stands beside."""


@pytest.fixture
def corner_shop() -> Iterator[Shop]:
    with shop() as opened:
        yield opened


def steps(url: str) -> list[Callable[[Seen], dict[str, Any]]]:
    """Return the actions that order the cheapest lamp in stock."""
    return [
        lambda _: {"action": "go_to_url", "url": url},
        lambda at: {"action": "click_element", "index": at('"lamp"')},
        lambda at: {
            "action": "select_dropdown_option",
            "index": at("Sort by"),
            "text": "Price, low to high",
        },
        lambda _: {"action": "get_state"},
        lambda at: {"action": "click_element", "index": at("Add to cart")},
        lambda at: {"action": "click_element", "index": at("🛒")},
        lambda at: {"action": "click_element", "index": at("Check out")},
        lambda at: {"action": "input_text", "index": at('textbox "Name"'), "text": "Ada"},
        lambda at: {"action": "input_text", "index": at('textbox "Street"'), "text": "Main 1"},
        lambda at: {"action": "input_text", "index": at('textbox "City"'), "text": "Bern"},
        lambda at: {
            "action": "select_dropdown_option",
            "index": at('"Delivery"'),
            "text": "Courier",
        },
        lambda at: {"action": "click_element", "index": at("accept the terms")},
        lambda at: {"action": "click_element", "index": at("Order now")},
    ]


def shopper(url: str) -> Callable[[dict[str, Any]], Reply]:
    """Make a model that knows the way and reads the indices off the observations."""
    way = steps(url)

    def answer(body: dict[str, Any]) -> Reply:
        results = [str(m["content"]) for m in body["messages"] if m["role"] == "tool"]
        if len(results) == len(way):
            number = re.search(r"order has number (\d+)", results[-1])
            return Reply(f"Ordered, number {number[1] if number else 'unknown'}.")

        def at(text: str) -> int:
            for result in reversed(results):
                line = next((line for line in result.splitlines() if text in line), None)
                if line is not None:
                    before, _, after = line.partition(text)
                    marks = re.findall(r"\[(\d+)\]", before) or re.findall(r"\[(\d+)\]", after)
                    return int(marks[-1])
            raise AssertionError(f"{text} was never shown: {results[-1]}")

        return Reply(calls=(Call("browser_use", way[len(results)](at)),))

    return answer


def test_the_browser_agent_orders_the_right_thing(
    cli: Cli, model: OpenAIServer, corner_shop: Shop
) -> None:
    place = corner_shop.url.split("/")[2]
    task = f"Order the cheapest lamp in stock at {corner_shop.url}"
    model.add(*[shopper(corner_shop.url)] * 20)
    done = cli.run("run", task, "--agent", "browser", "--allow-host", place, "--json")
    assert (done.code, done.final["answer"]) == (0, "Ordered, number 1001."), done.stdout[-3000:]
    (order,) = corner_shop.orders
    assert order["delivery"] == "courier"
    assert len(order["cart"]) == 1
    assert len(model.requests) < 20
    spent = sum(count_tokens_approximately(request.messages) for request in model.requests)
    assert spent < 40_000
    assert not any("image_url" in str(request.body) for request in model.requests)
    newest = [str(request.messages[-1]["content"]) for request in model.requests[2:]]
    assert all(corner_shop.url.rsplit("/", 1)[0] in text for text in newest), "state comes last"
    stored = [m for m in model.requests[-1].messages[:-1] if m["role"] == "user"]
    assert len(stored) == 1, "and is never stored"


def test_a_private_address_is_refused_unless_allowed(
    cli: Cli, model: OpenAIServer, corner_shop: Shop
) -> None:
    call = Call("browser_use", {"action": "go_to_url", "url": corner_shop.url})
    model.add(Reply(calls=(call,)), Reply("It is private."))
    done = cli.run("run", f"Look at {corner_shop.url}", "--agent", "browser", "--json")
    assert done.code == 0
    (ended,) = done.of("tool_end")
    assert not ended["ok"]
    assert "--allow-host" in ended["output"]


def test_an_approved_address_is_opened_in_a_new_process(
    cli: Cli, model: OpenAIServer, corner_shop: Shop
) -> None:
    place = corner_shop.url.split("/")[2]
    other = corner_shop.url.replace("127.0.0.1", "localhost") + "?from=a"
    opened = [Call("browser_use", {"action": "go_to_url", "url": url})
              for url in (corner_shop.url, other)]  # fmt: skip
    model.add(*(Reply(calls=(call,)) for call in opened), Reply("Both were opened."))
    task = f"Look at {corner_shop.url}"
    asked = cli.run(
        "run", task, "--agent", "browser", "--allow-host", place, "--thread", "t", "--json"
    )
    assert (asked.code, asked.final["stop_reason"]) == (4, "approval")
    done = cli.run("resume", "t", "--approve", "--json")
    assert (done.code, done.final["answer"]) == (0, "Both were opened.")
    (ended,) = done.of("tool_end")
    assert ended["ok"], ended["output"]


@pytest.mark.parametrize(
    ("tool", "args"), [("browser_use", {"action": "go_to_url"}), ("fetch_page", {})]
)
def test_ctrl_c_does_not_wait_for_what_never_comes(
    cli: Cli, model: OpenAIServer, tool: str, args: dict[str, str]
) -> None:
    with awkward_site() as url:
        call = Call(tool, {**args, "url": f"{url}/silent"})
        model.add(Reply(calls=(call,)), Reply("Finished."))
        place = url.split("/")[2]
        running = cli.start("run", f"Look at {url}", "--allow-host", place, "--thread", "t")
        running.wait_for_kind("tool_start")
        running.signal(signal.SIGINT)
        running.wait_for_kind("notice")
        done = running.finish()
        assert (done.code, done.final["status"]) == (130, "cancelled")
        (ended,) = done.of("tool_end")
        assert "given up" in ended["output"]
        resumed = cli.run("resume", "t", "--json")
        assert (resumed.code, resumed.final["answer"]) == (0, "Finished.")
