"""`openmanus replay --browser`: recorded steps are done again in a real browser, or stop."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.cli import Cli, Result
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.static_site import SiteHandler, serving

pytestmark = pytest.mark.slow

TOLD = """<script>
  const tell = (what) => fetch('/did?' + new URLSearchParams({ what }))
    .then(() => document.body.append('Done: ' + what));
</script>"""
FORM = """<label>Name <input id="n"></label>
  <button onclick="tell('order for ' + n.value)">Order</button>"""


def rows(*names: str) -> str:
    return "".join(
        f"<tr><td>{name} mug</td><td><button onclick=\"tell('copy {name}')\">Copy</button>"
        f"<button onclick=\"tell('delete {name}')\">Delete</button></td></tr>"
        for name in names
    )


RECORDED = f"<title>Stock</title>{TOLD}<table>{rows('Red', 'Green', 'Blue')}</table>{FORM}"
MOVED = f"""<title>The stock</title>{TOLD}<style>body {{ direction: rtl }}</style><h1>New</h1>
  <main><section>{FORM.replace('id="n"', 'id="n" class="wide"')}</section><p>Sale!</p>
  <table>{rows("Black", "Green", "White", "Red")}</table></main>"""
WITHOUT_ROW = RECORDED.replace(rows("Green"), "")
WITHOUT_BUTTON = RECORDED.replace("Order</button>", "Pay</button>")
EFFECTS = ["delete Green", "order for Ada"]


class StockHandler(SiteHandler):
    """Serves the page, and keeps what it was told."""

    page = ""
    did: list[str]

    def do_GET(self) -> None:
        """Answer a request."""
        parts = urlsplit(self.path)
        if parts.path == "/did":
            self.did += parse_qs(parts.query)["what"]
            self.send_json({})
        else:
            body = f"<!doctype html><meta charset=utf-8>{self.page}".encode()
            self.send_response(200 if self.page else 404)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)


@pytest.fixture
def site() -> Iterator[str]:
    StockHandler.page, StockHandler.did = RECORDED, []
    with serving(StockHandler) as url:
        yield url


def index_in(body: dict[str, Any], pattern: str) -> int:
    """Return the index that a pattern captures in the newest result that it fits."""
    results = [str(one["content"]) for one in body["messages"] if one["role"] == "tool"]
    found = (re.search(pattern, result) for result in reversed(results))
    return int(next(match[1] for match in found if match))


def acting(action: str, pattern: str, **more: str) -> Callable[[dict[str, Any]], Reply]:
    def answer(body: dict[str, Any]) -> Reply:
        args = {"action": action, "index": index_in(body, pattern), **more}
        return Reply(calls=(Call("browser_use", args),))

    return answer


def record(cli: Cli, model: OpenAIServer, url: str, address: str = "/") -> None:
    opened = {"action": "go_to_url", "url": url + address}
    model.add(
        Reply(calls=(Call("browser_use", opened),)),
        acting("input_text", r'\[(\d+)\] textbox "Name"', text="Ada"),
        acting("click_element", r'Green mug.*?\[(\d+)\] button "Delete"'),
        Reply(calls=(Call("bash", {"command": "echo once >> log"}),)),
        acting("click_element", r'\[(\d+)\] button "Order"'),
        Reply("Ordered."),
    )
    place = url.partition("://")[2]
    done = cli.run(
        "run", f"Order at {url}", "--thread", "t", "--allow-host", place, "--policy", "auto"
    )
    assert (done.code, StockHandler.did) == (0, EFFECTS), done.stderr
    StockHandler.did.clear()


def again(cli: Cli, page: str, *options: str, source: str = "t") -> Result:
    StockHandler.page = page
    StockHandler.did.clear()
    return cli.run("replay", source, "--browser", *options)


def test_recorded_steps_are_done_again_or_stop_where_they_do_not_fit(
    cli: Cli, model: OpenAIServer, site: str
) -> None:
    record(cli, model, site)
    asked = len(model.requests)

    done = again(cli, MOVED)
    assert (done.code, StockHandler.did) == (0, EFFECTS), done.stdout + done.stderr
    assert done.stderr == "All 4 steps in the browser were done again.\n"
    assert re.search(r'3\. browser_use .*\nClicked \[\d+\] button "Delete"', done.stdout)

    stopped = again(cli, WITHOUT_ROW)
    assert (stopped.code, StockHandler.did) == (1, []), stopped.stdout + stopped.stderr
    assert 'Expected: button "Delete" with "Green mug' in stopped.stdout
    assert '"Red mug Copy Delete", "Blue mug Copy Delete"' in stopped.stdout
    assert "Step 3, browser_use " in stopped.stderr

    assert len(model.requests) == asked
    assert (cli.cwd / "workspace" / "t" / "log").read_text() == "once\n"


@pytest.mark.exhaustive
def test_a_bundle_a_policy_a_vanished_button_and_a_failing_server(
    cli: Cli, model: OpenAIServer, site: str, tmp_path: Path
) -> None:
    record(cli, model, site)
    button = again(cli, WITHOUT_BUTTON)
    assert (button.code, StockHandler.did) == (1, ["delete Green"])
    assert 'does not show it. It has, of that kind: "Copy", "Delete"' in button.stdout
    assert '"Pay"' in button.stdout

    gone = again(cli, "")
    assert (gone.code, StockHandler.did) == (1, [])
    assert "answered HTTP 404" in gone.stdout

    bundle = tmp_path / "run.zip"
    assert cli.run("export", "t", "--bundle", str(bundle)).code == 0
    place = site.partition("://")[2]
    refused = again(cli, MOVED, source=str(bundle))
    assert (refused.code, StockHandler.did) == (1, [])
    assert "--allow-host" in refused.stdout
    done = again(cli, MOVED, "--allow-host", place, source=str(bundle))
    assert (done.code, StockHandler.did) == (0, EFFECTS), done.stdout + done.stderr

    rule = '{ tool = "browser_use", args = { action = "click_element" }, decision = "deny" }'
    (cli.cwd / "openmanus.toml").write_text(f"[policy]\nrules = [{rule}]\n")
    denied = again(cli, MOVED)
    assert (denied.code, StockHandler.did) == (1, []), denied.stdout + denied.stderr
    assert "The policy refuses it." in denied.stdout
    assert "Step 3, " in denied.stderr


def test_changes_that_do_not_go_with_it_are_refused(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("Done."))
    assert cli.run("run", "say it", "--thread", "t").code == 0
    for options in (("--browser", "--model", "openai:other"), ("--allow-host", "localhost")):
        assert cli.run("replay", "t", *options).code == 2
    none = cli.run("replay", "t", "--browser")
    assert (none.code, "has no steps in the browser" in none.stderr) == (2, True)
    assert cli.run("export", "t", "--bundle", "run.zip").code == 0
    (cli.cwd / "openmanus.toml").write_text('[browser]\nprofile = "logins"\n')
    assert cli.run("trust").code == 0
    logins = cli.run("replay", "run.zip", "--browser")
    assert (logins.code, "profile has logins of yours" in logins.stderr) == (2, True)
