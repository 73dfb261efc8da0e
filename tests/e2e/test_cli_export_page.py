"""`openmanus export --html`: a run as one file, in a real Chromium that reaches nothing else."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from openmanus_graph.interfaces.server.player import player_page
from openmanus_graph.interfaces.service.threads import hold_thread
from tests.e2e.test_cli_plan import JOIN, Brain
from tests.support import core_only
from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.page import chromium
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

HOSTILE = (
    "</script><script>window.broken = 1</script><img src=x onerror='window.broken = 2'><!--\u2028"
    "[link](javascript:window.broken=3) ![picture](http://127.0.0.1:9/picture.png) {{7*7}} ${7}"
)
SECRET = "of-the-shop-0123456789"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


class Player:
    """A page in the browser; anything that it asks for, or complains about, fails the test."""

    def __init__(self, browser: Browser, file: Path, **options: Any) -> None:
        self.page: Page = browser.new_page(**options)
        self.wrong: list[str] = []
        self.page.on("console", lambda one: self.wrong.append(one.text))
        self.page.on("pageerror", lambda one: self.wrong.append(str(one)))
        self.page.on("request", lambda one: self._asked(one.url, file))
        self.page.goto(file.as_uri())
        expect(self.page.locator("article").first).to_be_visible()

    def _asked(self, url: str, file: Path) -> None:
        if not url.startswith(("blob:", file.as_uri(), "data:")):
            self.wrong.append(url)

    def press(self, key: str, place: str) -> None:
        self.page.keyboard.press(key)
        expect(self.page.locator(".place")).to_have_text(place)

    def violations(self) -> list[str]:
        """What axe-core finds wrong."""
        axe = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
        self.page.evaluate(axe)
        found: Any = self.page.evaluate("() => axe.run()")
        return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found["violations"]]

    def close(self) -> None:
        assert self.page.evaluate("() => window.broken") is None
        assert self.wrong == []
        self.page.close()


def test_a_hostile_run_plays_by_keyboard_and_breaks_nothing(
    cli: Cli, model: OpenAIServer, browser: Browser, tmp_path: Path
) -> None:
    cli.env["SHOP_TOKEN"] = SECRET
    said = HOSTILE.replace("'", '"')
    cat = Call("bash", {"command": f"echo {SECRET}; echo '{said}'; false"})
    name = f"files/{HOSTILE[:40].replace('/', '')}"
    make = Call("str_replace_editor", {"command": "create", "path": name, "file_text": HOSTILE})
    model.add(
        Reply(text=f"**First** {HOSTILE}", calls=(cat, make)),
        Reply(text=f"# Done\n\n{HOSTILE} {SECRET}"),
    )
    assert cli.run("run", f"do it {HOSTILE}", "--thread", "t").code == 0
    page = tmp_path / "run.html"
    made = cli.run("export", "t", "--html", str(page))
    assert made.code == 0, made.stderr
    text = page.read_text()
    assert SECRET not in text
    assert "[secret removed]" in text
    player = Player(browser, page)
    shown = player.page.locator("article")
    expect(shown.last).to_contain_text("window.broken = 1")
    assert player.violations() == []
    (whole,) = re.findall(r"^(\d+) of \1$", player.page.locator(".place").inner_text())
    player.press("Home", f"1 of {whole}")
    expect(shown).to_have_count(1)
    player.press("ArrowRight", f"2 of {whole}")
    expect(shown.last).to_contain_text("First")
    player.press("ArrowLeft", f"1 of {whole}")
    player.page.get_by_label("Speed").select_option("20")
    player.page.locator("body").click(position={"x": 5, "y": 300})
    player.press("Space", f"{whole} of {whole}")
    expect(player.page.get_by_role("button", name="Play", exact=True)).to_be_visible()
    player.press("Home", f"1 of {whole}")
    player.press("End", f"{whole} of {whole}")
    player.close()
    narrow: dict[str, Any] = {"viewport": {"width": 390, "height": 700}, "color_scheme": "dark"}
    player = Player(browser, page, **narrow, locale="zh-CN")
    expect(player.page.get_by_role("button", name="播放")).to_be_visible()
    assert player.violations() == []
    assert player.page.evaluate("() => document.documentElement.scrollWidth") == 390
    player.close()


@pytest.mark.parametrize("command", sampled(["plan it", "demo --plan"], 1, "plans played"))
def test_a_plan_plays_from_its_bundle_on_another_machine(
    cli: Cli, model: OpenAIServer, browser: Browser, tmp_path: Path, command: str
) -> None:
    model.add(*Brain(*JOIN).answers())
    assert cli.run(*command.split()).code == 0
    (thread,) = [
        json.loads(line)["id"] for line in cli.run("threads", "--json").stdout.splitlines()
    ]
    assert cli.run("export", thread, "--bundle", str(tmp_path / "run.zip")).code == 0
    shutil.rmtree(cli.cwd / "workspace")
    elsewhere = Cli(tmp_path / "elsewhere", zygote=cli.zygote)
    page = tmp_path / "run.html"
    made = elsewhere.run(
        "export", str(tmp_path / "run.zip"), "--html", str(page),
        wrapper=(sys.executable, core_only.__file__),
    )  # fmt: skip
    assert made.code == 0, made.stderr
    assert not elsewhere.home.exists()
    player = Player(browser, page)
    plan = player.page.locator(".plan-box")
    steps = plan.locator("li").count()
    assert steps > 2
    expect(plan).to_contain_text(f"{steps} of {steps} steps completed")
    player.page.keyboard.press("Home")
    expect(plan).to_be_hidden()
    player.close()


def test_what_cannot_be_played_is_refused(cli: Cli, model: OpenAIServer, tmp_path: Path) -> None:
    model.add(Reply("Done."))
    assert cli.run("run", "say it", "--thread", "t").code == 0
    assert cli.run("export", "t", "--bundle", str(tmp_path / "run.zip")).code == 0
    page = str(tmp_path / "run.html")
    with hold_thread(cli.home, "t"):
        for command in (("export", "t", "--html", page), ("replay", "t")):
            busy = cli.run(*command)
            assert (busy.code, "in use" in busy.stderr) == (1, True), busy.stderr
    whole = (tmp_path / "run.zip").read_bytes()
    (tmp_path / "cut.zip").write_bytes(whole[: len(whole) // 2])
    for given, said in (
        (("t", "--html", str(tmp_path)), "is not written"),
        ((str(tmp_path / "cut.zip"), "--html", page), "cut off"),
        ((str(tmp_path / "run.zip"),), "There is no thread"),
        (("t", "--html", page, "--bundle", page), "Give one of them"),
    ):
        refused = cli.run("export", *given)
        assert (refused.code, said in refused.stderr) == (2, True), refused.stderr
    assert not Path(page).exists()


@pytest.mark.exhaustive
def test_a_large_run_stays_usable(browser: Browser, tmp_path: Path) -> None:
    """300 steps and an output of 5 MB: what is out of sight is not an element."""
    shared = {"run": "r", "ns": "", "ts": "", "seconds": None}
    start = {"type": "run_start", "kind": "start", "task": "big", "agent": "manus", "model": "m"}
    events: list[dict[str, Any]] = [start]
    for step in range(1, 301):
        call = {"call_id": str(step), "tool": "bash"}
        output = "x" * (5_000_000 if step == 150 else 1000)
        events += [
            {"type": "think_end", "step": step, "text": f"Step **{step}**.", "usage": None},
            {"type": "tool_start", **call, "args": {"command": "seq 9"}},
            {"type": "tool_end", **call, "ok": step != 150, "output": output},
        ]
    numbered = (json.dumps({**shared, **one, "seq": n}) for n, one in enumerate(events, 1))
    page = tmp_path / "big.html"
    page.write_text(player_page("big", numbered, str))
    player = Player(browser, page)
    assert player.page.locator("article").count() < 60
    player.press("Home", "1 of 601")
    for position in (2, 3, 4):
        player.press("ArrowRight", f"{position} of 601")
    player.page.get_by_label("Where in the run").fill("301")  # the one of 5 MB
    expect(player.page.locator("article").last).to_contain_text("more characters")
    player.press("End", "601 of 601")
    player.close()
