"""The specialists as a person starts them: charts of the demo's data, and a test mended."""

import subprocess
from importlib import resources
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from playwright.async_api import Dialog, Request, async_playwright

from openmanus_graph.backends.browser.browsers import LaunchSettings, start_browser
from tests.support.charts import ink, spec_in
from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

EVIL = "重量 </script><script>alert(1)</script>"
PREPARE = f"""
import json
import pandas as pd
raw = pd.read_csv("penguins-raw.csv")
raw["种类"] = raw["Species"].str.split().str[0]
mass = raw.groupby("种类", as_index=False)["Body Mass (g)"].mean().round(1)
mass.to_csv("mass.csv", index=False)
raw[["Flipper Length (mm)", "Body Mass (g)"]].dropna().to_csv("flippers.csv", index=False)
json.dump([
    {{"csvFilePath": "mass.csv", "chartTitle": {EVIL!r}, "yTitle": "平均体重", "unit": "克"}},
    {{"csvFilePath": "flippers.csv", "chartTitle": "Flippers"}},
], open("charts.json", "w"))
print("charts.json")
"""
REPORT = """# 报告 <img src=x onerror=alert(1)>

![体重](visualization/{picture})

| a | b |
| - | - |
| 1 | 2 |
"""


class Analyst:
    """Plans one step for the specialist by its tag, and does it."""

    def __call__(self, body: dict[str, Any]) -> Reply:
        messages: list[dict[str, Any]] = body["messages"]
        system = str(messages[0]["content"])
        if system.startswith("You plan how"):
            steps = ["[data-analysis] Draw the penguins and report."]
            return Reply(
                calls=(Call("planning", {"command": "create", "title": "P", "steps": steps}),)
            )
        if system.startswith("You write the final"):
            return Reply("The report is in report.html.")
        results = [str(m["content"]) for m in messages if m["role"] == "tool"]
        return self.work(results) if "You do a data task" in system else Reply("I am no analyst.")

    def work(self, results: list[str]) -> Reply:
        if not results:
            args = {"code": PREPARE, "code_type": "visualization"}
            return Reply(calls=(Call("visualization_preparation", args),))
        if len(results) == 1:
            return Reply(calls=(Call("data_visualization", {"json_path": "charts.json"}),))
        if len(results) == 2:
            picture = results[1].partition("visualization/")[2].partition(",")[0]
            text = REPORT.format(picture=picture)
            write = {"command": "create", "path": "report.md", "file_text": text}
            return Reply(calls=(Call("str_replace_editor", write),))
        if len(results) == 3:
            args = {"json_path": "report.md", "tool_type": "report", "language": "zh"}
            return Reply(calls=(Call("data_visualization", args),))
        return Reply(f"Seen: {results[1]}")


@pytest.mark.exhaustive
async def test_a_plan_draws_the_demo_data_by_the_specialist(cli: Cli, model: OpenAIServer) -> None:
    with resources.as_file(resources.files("openmanus_graph.demo")) as folder:
        data = folder / "penguins-raw.csv"
        raw = pd.read_csv(data)
        model.add(*[Analyst()] * 8)
        done = cli.run(
            "plan", "draw the penguins", "--file", str(data), "--workspace", "files", "--json",
        )  # fmt: skip
    assert done.code == 0
    assert done.of("step_end")[0]["executor"] == "data_analysis"
    assert [e["output"] for e in done.of("tool_end") if not e["ok"]] == []
    drawn = cli.workspace / "visualization"
    mass, flippers = sorted(drawn.glob("*.png"), key=lambda path: path.name == "Flippers.png")
    for picture in (mass, flippers):
        assert picture.stat().st_size > 20_000
        assert ink(picture, (0.2, 0.1, 0.95, 0.85)) > 0.005, "marks"
        assert ink(picture, (0, 0, 1, 0.07)) > 0.001, "a title"
        assert ink(picture, (0, 0.1, 0.08, 0.9)) > 0.001, "an axis with labels"
    spec = spec_in(mass.with_suffix(".html"))
    assert spec["title"] == EVIL
    assert spec["encoding"]["y"]["title"] == "平均体重 (克)"
    means = raw.groupby(raw["Species"].str.split().str[0])["Body Mass (g)"].mean().round(1)
    assert {row["种类"]: row["Body Mass (g)"] for row in spec["data"]["values"]} == dict(means)
    reported = next(e["output"] for e in done.of("tool_end") if e["tool"] == "data_visualization")
    r = raw["Flipper Length (mm)"].corr(raw["Body Mass (g)"])
    assert f"move together (r = {r:.3g}, n = {raw['Body Mass (g)'].notna().sum()})" in reported
    shown = await opened(mass.with_suffix(".html"))
    for label in ("重量", "平均体重 (克)", "种类", "Gentoo"):
        assert label in shown
    report = await opened(cli.workspace / "report.html")
    assert "报告" in report
    assert 'src="data:image/png;base64,' in (cli.workspace / "report.html").read_text("utf-8")


async def opened(page_file: Path) -> str:
    """Return the text of a page in a real browser; it may ask for nothing and run nothing else."""
    asked: list[str] = []
    async with async_playwright() as playwright:
        browser = await start_browser(playwright, LaunchSettings(None, True, False, (), None, None))
        page = await browser.new_page()

        def note(request: Request) -> None:
            asked.append(request.url)

        async def refuse(dialog: Dialog) -> None:
            asked.append(f"dialog {dialog.message}")
            await dialog.dismiss()

        page.on("request", note)
        page.on("dialog", refuse)
        await page.goto(page_file.as_uri())
        await page.wait_for_load_state("networkidle")
        text = str(await page.evaluate("document.documentElement.textContent.slice(-20000)"))
        await browser.close()
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    return text


SOURCE = '''\
def median(values):
    """Return the middle value."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle]
'''
TEST = """\
import unittest

from stats import median


class Median(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_even(self):
        self.assertEqual(median([4, 1, 2, 3]), 2.5)
"""
OLD = "    return ordered[middle]\n"
NEW = """\
    if len(ordered) % 2 == 0:
        return (ordered[middle - 1] + ordered[middle]) / 2
    return ordered[middle]
"""


def test_the_software_agent_mends_a_failing_test(cli: Cli, model: OpenAIServer) -> None:
    repository = cli.workspace
    cli.write("files/stats.py", SOURCE)
    cli.write("files/test_stats.py", TEST)
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "as it was"]):
        git(repository, *command)
    run_tests = "python3 -B -m unittest 2>&1"
    edit = {"command": "str_replace", "path": "stats.py", "old_str": OLD, "new_str": NEW}
    model.add(
        Reply(
            "Find.", calls=(Call("bash", {"command": "git log --oneline; grep -rn 'def ' *.py"}),)
        ),
        Reply("Reproduce.", calls=(Call("bash", {"command": run_tests}),)),
        Reply(calls=(Call("str_replace_editor", {"command": "view", "path": "stats.py"}),)),
        Reply("Fix.", calls=(Call("str_replace_editor", edit),)),
        Reply("Test.", calls=(Call("bash", {"command": f"{run_tests} && git diff --stat"}),)),
        Reply("An even number of values has two middle ones; stats.py takes their mean now."),
    )
    done = cli.run("run", "mend the test", "--agent", "swe", "--workspace", "files", "--json")
    assert done.code == 0
    outputs = [(event["ok"], event["output"]) for event in done.of("tool_end")]
    assert [ok for ok, _ in outputs] == [True, False, True, True, True]
    assert "as it was" in outputs[0][1]
    assert "AssertionError: 3 != 2.5" in outputs[1][1]
    assert "Ran 2 tests" in outputs[4][1]
    assert "stats.py | " in outputs[4][1]
    assert git(repository, "status", "--short", "--", "*.py") == " M stats.py\n"
    subprocess.run(["python3", "-m", "unittest"], cwd=repository, check=True, capture_output=True)
    request = model.requests[0]
    assert "software task" in str(request.messages[0]["content"])
    names = [tool["function"]["name"] for tool in request.body["tools"]]
    assert names[:2] == ["bash", "str_replace_editor"]
    assert [file["path"] for file in done.final["artifacts"]] == ["stats.py"]


def git(repository: Path, *command: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "safe.directory=*"]
    done = subprocess.run(
        ["git", *who, *command], cwd=repository, check=True, capture_output=True, text=True
    )
    return done.stdout
