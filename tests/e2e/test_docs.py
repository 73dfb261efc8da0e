"""What the documentation shows is run as it stands there."""

import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import expect

from tests.support.cli import Cli
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.page import Tab, chromium
from tests.support.postgres import Postgres
from tests.support.serving import Served

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
FILE = re.compile(r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMAND = re.compile(r"<!-- run -->\n```sh\nopenmanus (.*?)\n```$", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of `extending.md`, installed as far as Python can tell."""
    folder = tmp_path_factory.mktemp("shop")
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    for name, text in FILE.findall(page):
        (folder / name).write_text(text, encoding="utf-8")
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    info = folder / f"{project['name']}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    groups = [
        "\n".join([f"[{group}]", *(f"{name} = {place}" for name, place in points.items())])
        for group, points in project["entry-points"].items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))
    return folder


def test_every_code_block_of_extending_is_a_file_that_runs() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    names = [name for name, _ in FILE.findall(page)]
    assert len(names) == page.count("```python") + page.count("```toml") == 10


def test_the_shops_own_tests_pass(shop: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"],
        cwd=shop, env={**os.environ, "OPENMANUS_HOME": str(shop / "home")},
        capture_output=True, text=True, timeout=BACKSTOP_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_the_package_brings_its_tool_agent_and_flow(
    shop: Path, cli: Cli, model: OpenAIServer
) -> None:
    cli.env["PYTHONPATH"] = str(shop)
    count = Reply(calls=(Call("stock_of", {"article": "mug"}),))
    model.add(count, Reply("There are 12."), Reply("Twelve."), count, Reply("12."))
    task = "How many mugs are there?"
    assert cli.run("run", task, "--agent", "stock").stdout == "There are 12.\n"
    assert model.requests[1].messages[-1]["content"] == "12 pieces"
    counted = cli.run("run", task, "--agent", "counted")
    assert counted.stdout == "Twelve. (Counted once a day.)\n"
    assert cli.run("run", task).stdout == "12.\n", "manus has the package's tool"


def test_a_limit_of_the_flows_agent_is_the_flows_end(
    shop: Path, cli: Cli, model: OpenAIServer
) -> None:
    cli.env["PYTHONPATH"] = str(shop)
    model.add(*[Reply(calls=(Call("stock_of", {"article": "mug"}),))] * 3)
    model.add(Reply("Not counted to the end."), Reply("Twelve."))
    asked = ("run", "How many mugs are there?", "--agent", "counted", "--thread", "t")
    done = cli.run(*asked, "--max-steps", "3", "--json")
    assert (done.code, done.final["status"], done.final["stop_reason"]) == (
        3,
        "stopped",
        "max_steps",
    )
    assert done.kinds[-2:] == ["limit", "final"]
    assert done.final["answer"] == "Not counted to the end. (Counted once a day.)"
    assert (done.final["usage"]["model_calls"], done.final["usage"]["input_tokens"]) == (4, 400)
    resumed = cli.run("resume", "t", "--max-steps", "9", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "Twelve. (Counted once a day.)")
    assert resumed.final["usage"]["model_calls"] == 5


def test_a_failure_of_the_flows_agent_is_the_flows_failure(
    shop: Path, cli: Cli, model: OpenAIServer
) -> None:
    cli.env["PYTHONPATH"] = str(shop)
    model.add(Reply(status=401, error={"message": "no such key"}))
    done = cli.run("run", "How many mugs?", "--agent", "counted", "--json")
    assert (done.code, done.final["status"], done.final["stop_reason"]) == (1, "failed", "error")
    assert "key" in done.final["answer"]


@pytest.mark.usefixtures("real_start")
def test_the_package_adds_settings_and_a_command_that_reads_them(shop: Path, cli: Cli) -> None:
    cli.env["PYTHONPATH"] = str(shop)
    assert "stock       List the articles of the shop." in cli.run("--help").stdout
    assert cli.run("stock").stdout == "mug 12\nteapot 0\n"
    assert cli.run("stock", "--low").stdout == "teapot 0\n"
    cli.write("openmanus.toml", "[shop]\nlow_stock = 13\n")
    assert cli.run("stock", "--low").stdout == "teapot 0\n", "nobody trusts the folder yet"
    assert "shop.low_stock" in cli.run("doctor").stdout
    assert cli.run("trust").code == 0
    assert cli.run("stock", "--low").stdout == "mug 12\nteapot 0\n"
    assert cli.run("stock", "--low", env={"SHOP_LOW_STOCK": "1"}).stdout == "teapot 0\n"
    refused = cli.run("stock", env={"SHOP_LOW_STOCK": "-1"})
    assert (refused.code, "SHOP_LOW_STOCK is wrong: Input should be" in refused.stderr) == (2, True)


@pytest.mark.usefixtures("real_start")
def test_the_package_adds_a_provider(shop: Path, cli: Cli, model: OpenAIServer) -> None:
    cli.env["PYTHONPATH"] = str(shop)
    model.add(Reply("Hello."))
    mine = ("--model", "shopmodels:tiny", "--base-url", model.base_url)
    assert cli.run("run", "hi", *mine).stdout == "Hello.\n"
    assert model.requests[0].body["model"] == "tiny"
    del cli.env["OPENAI_BASE_URL"]
    assert "SHOP_MODELS_KEY" in cli.run("run", "hi", *mine[:2]).stderr
    assert "moonshot, shopmodels" in cli.run("run", "hi", "--model", "x:y").stderr
    cli.env["PYTHONPATH"] = ""
    assert "unknown provider 'shopmodels'" in cli.run("run", "hi", *mine).stderr


@pytest.mark.usefixtures("real_start")
def test_the_package_adds_a_storage_backend(
    shop: Path, cli: Cli, model: OpenAIServer, postgres: Postgres
) -> None:
    secret = cli.write("password", "never shown")
    cli.env |= {"PYTHONPATH": str(shop), "SHOP_PASSWORD_FILE": str(secret)}
    place = postgres.database()
    cli.env["OPENMANUS_DATABASE_URL"] = place.replace("postgresql:", "shopdb:")
    model.add(Reply(calls=(Call("ask_human", {"inquire": "Which?"}),)), Reply("The mug."))
    assert cli.run("run", "go", "--thread", "t").code == 4
    assert cli.run("resume", "t", "--answer", "The first.").stdout == "The mug.\n"
    cli.env["OPENMANUS_DATABASE_URL"] = place
    assert "The mug." in cli.run("show", "t").stdout
    cli.env |= {"OPENMANUS_DATABASE_URL": "otherdb://h/db"}
    refused = cli.run("threads")
    assert (refused.code, "database_url" in refused.stderr) == (2, True)


def test_the_package_adds_a_page(shop: Path, tmp_path: Path) -> None:
    env = {"PYTHONPATH": str(shop), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    with Served(tmp_path / "work", env) as served, chromium() as browser:
        tab = Tab(browser, served).open()  # which keeps the token
        tab.page.goto(f"{served.url}/app/pages/stock")
        expect(tab.page.locator("#stock")).to_have_text('{"mug":12,"teapot":0}')
        assert httpx.get(f"{served.url}/shop/stock").status_code == 401
        tab.close()


SAID = """\
Sunny. Ask for the weather 2
Sun in Oslo. Sunny, and it stays so. answer
approval {'cups': 200}
2 cups are on their way. It is ordered.
['think', 'act', 'stuck_check', 'terminate', 'count_messages']
"""


def printed_by_the_examples_of(page: str, folder: Path) -> tuple[int, str]:
    """Run the files that a page shows, in turn; return their number and what they print."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    files = FILE.findall(text)
    assert len(files) == text.count("```python")
    for name, code in files:
        (folder / name).write_text(code, encoding="utf-8")
    run_all = "import runpy, sys\nfor name in sys.argv[1:]: runpy.run_path(name)"
    done = subprocess.run(
        [sys.executable, "-c", run_all, *(name for name, _ in files)],
        cwd=folder, env={**os.environ, "OPENMANUS_HOME": str(folder / "home")},
        capture_output=True, text=True, timeout=BACKSTOP_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return len(files), done.stdout


def test_the_examples_of_middleware_run(tmp_path: Path) -> None:
    assert printed_by_the_examples_of("middleware.md", tmp_path) == (4, SAID)


def test_the_examples_of_exactly_once_run(tmp_path: Path) -> None:
    said = "the line was cut before the answer came\npaid 5 It is paid. 1\nDone.\n"
    assert printed_by_the_examples_of("exactly-once.md", tmp_path) == (2, said)


def reply(body: dict[str, Any]) -> Reply:
    """Plan where a plan is wanted, be content with a step, and answer all else."""
    offered = [tool["function"]["name"] for tool in body.get("tools", ())]
    if offered == ["planning"]:
        plan = {"command": "create", "title": "P", "steps": ["[MANUS] Write it."]}
        return Reply(calls=(Call("planning", plan),))
    if "bash" in offered and not any(one["role"] == "tool" for one in body["messages"]):
        return Reply(calls=(Call("bash", {"command": "cat sales.csv sketch.png; ls -R"}),))
    return Reply("There are 17 euros.")


def test_every_command_of_the_agents_page_works(cli: Cli, model: OpenAIServer) -> None:
    cli.env["PATH"] = f"{Path(sys.executable).parent}:{cli.env['PATH']}"
    cli.write("sales.csv", "month,euros\n2026-01,17\n")
    cli.write("path/to/repository/median.py", "")
    cli.write("sketch.png", "P")
    cli.write("openmanus.toml", "[llm]\nsees_images = true\n")  # as the desktop agent wants
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    commands = [shlex.split(text) for text in COMMAND.findall(page)]
    assert len(commands) == page.count("```sh") == 9
    model.add(*[reply] * 20)
    for command, done in zip(commands, cli.run_all(*commands), strict=True):
        assert (done.code, done.stdout) == (0, "There are 17 euros.\n"), (command, done.stderr)


def run_code(cli: Cli, page: str, wrapper: str) -> subprocess.CompletedProcess[str]:
    """Run the Python that a page shows."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$",
        (ROOT / page).read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    code = "\n".join(blocks)
    cli.write("app.py", wrapper.format(textwrap.indent(code, "    ")))
    return subprocess.run(
        [sys.executable, "app.py"], cwd=cli.cwd, env=cli.env,
        capture_output=True, text=True, timeout=BACKSTOP_S, check=False,
    )  # fmt: skip


def test_the_readmes_six_lines_run_as_they_stand_there(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "ls"}),)), Reply("It is empty."))
    done = run_code(cli, "README.md", "if True:\n{}")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "finished It is empty. []\n"


def test_the_app_of_embedding_runs_as_it_stands_there(cli: Cli, model: OpenAIServer) -> None:
    asked = tuple(Call("send_invoice", {"customer": customer}) for customer in ("17", "18"))
    model.add(Reply(calls=asked), Reply("It is sent."))
    wrapper = "import asyncio\n\nasync def main():\n{}\nasyncio.run(main())\n"
    done = run_code(cli, "docs/embedding.md", wrapper)
    assert done.returncode == 0, done.stderr
    assert "send_invoice" in done.stdout.splitlines()[0]
    assert done.stdout.splitlines()[-1] == "finished It is sent. []"
    sent = [message["content"] for message in model.requests[1].messages[-2:]]
    assert sent == ["sent to 17", "sent to 18"]
