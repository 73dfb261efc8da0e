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
from tests.support.static_site import SiteHandler, serving

pytestmark = pytest.mark.slow

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
    assert spent < 30_000
    assert not any("image_url" in str(request.body) for request in model.requests)
    stored = [m for m in model.requests[-1].messages[:-1] if m["role"] == "user"]
    assert len(stored) == 1, "the browser's state is never stored"


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


@pytest.mark.exhaustive
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


class MembersHandler(SiteHandler):
    """Lets in whoever has logged in, by a cookie that ends with the browser."""

    def do_GET(self) -> None:
        known = "member=s3cr3t-c00kie" in self.headers.get("Cookie", "")
        self.send_response(200)
        if self.path == "/login":
            self.send_header("Set-Cookie", "member=s3cr3t-c00kie; HttpOnly")
        self.end_headers()
        self.wfile.write(
            b"<title>Orders</title><p>Order 4711 is on its way.</p><input aria-label=Note>"
            if known or self.path == "/login"
            else b"<title>Log in</title><p>Who are you?</p>"
        )


def use(**args: Any) -> Reply:
    """Let the model call the browser."""
    return Reply(calls=(Call("browser_use", args),))


def test_a_run_that_its_limit_stopped_is_still_logged_in_and_at_the_page(
    cli: Cli, model: OpenAIServer
) -> None:
    with serving(MembersHandler) as site:
        model.add(
            use(action="go_to_url", url=f"{site}/login"),
            use(action="open_tab", url=f"{site}/orders"),
            use(action="input_text", index=1, text="half a sentence"),
        )
        task, place = f"Read my orders at {site}", site.removeprefix("http://")
        limits = ("--max-steps", "3", "--allow-host", place, "--thread", "t", "--json")
        stopped = cli.run("run", task, "--agent", "browser", *limits)
        assert stopped.code == 3, stopped.stdout[-2000:]
        files = [file for file in cli.root.rglob("*") if file.is_file()]
        kept = [file for file in files if b"s3cr3t-c00kie" in file.read_bytes()]
        model.requests.clear()
        model.add(use(action="get_state"), Reply("Order 4711 is on its way."))
        resumed = cli.run("resume", "t", "--max-steps", "9", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Order 4711 is on its way.")
    (ended,) = resumed.of("tool_end")
    assert "Order 4711 is on its way." in ended["output"]
    assert f"opened again with its cookies at {site}/orders. What was typed is" in ended["output"]
    assert "half a sentence" not in ended["output"]
    reported, later = (str(request.messages[-1]["content"]) for request in model.requests[-2:])
    assert "Of the browser, cookies and tabs come back by themselves" in reported
    assert "browser tabs" not in reported, "nothing of it is lost"
    assert "come back" not in later
    assert len(kept) == 1, "in no checkpoint, no event and no log"
    assert kept[0].parent.name == "browser"
    assert "s3cr3t-c00kie" not in stopped.stdout + stopped.stderr + resumed.stdout + resumed.stderr


@pytest.mark.exhaustive
def test_of_a_browser_whose_kept_state_is_damaged_the_model_is_told_what_is_lost(
    cli: Cli, model: OpenAIServer
) -> None:
    with serving(MembersHandler) as site:
        model.add(use(action="go_to_url", url=f"{site}/login"))
        task, place = f"Read my orders at {site}", site.removeprefix("http://")
        limits = ("--max-steps", "1", "--allow-host", place, "--thread", "t", "--json")
        assert cli.run("run", task, "--agent", "browser", *limits).code == 3
        (kept,) = cli.root.rglob("browser/*.json")
        kept.write_bytes(kept.read_bytes()[:-10])
        model.requests.clear()
        model.add(use(action="go_to_url", url=f"{site}/orders"), Reply("I am logged out."))
        resumed = cli.run("resume", "t", "--max-steps", "9", "--json")
    assert resumed.final["answer"] == "I am logged out."
    (ended,) = resumed.of("tool_end")
    assert "(cookies, local storage and tabs) cannot be read and is lost" in ended["output"]
    assert "Who are you?" in ended["output"]
    reported = str(model.requests[-2].messages[-1]["content"])
    assert f"\n- browser tabs: {site}/login\n" in reported
    assert "come back" not in reported
