"""`demo` and `doctor`, in an empty folder with nothing configured."""

import json
import re

import pandas
import pytest

from openmanus_graph.runtime.artifacts import DRAFTS_FOLDER
from tests.support.charts import ink
from tests.support.cli import Cli
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.planning import plans_shown


def test_the_demo_finishes_with_its_files_and_is_a_thread(bare_cli: Cli) -> None:
    done = bare_cli.run("demo", "--workspace", "files")
    assert done.code == 0
    assert "recording" in done.stderr
    assert done.stderr.endswith("openmanus init, then openmanus run TASK\n")
    assert done.stdout.strip()
    kinds = {path.suffix for path in bare_cli.workspace.iterdir() if path.is_file()}
    assert {".png", ".csv", ".md"} <= kinds
    for path in bare_cli.workspace.iterdir():
        assert path.is_dir() or path.stat().st_size > 0
    picture = next(bare_cli.workspace.glob("*.png"))
    assert picture.read_bytes().startswith(b"\x89PNG")
    thread = re.search(r"thread (\S+)", done.stderr)
    exported = bare_cli.run("export", thread[1] if thread else "")
    assert (exported.code, "penguins" in exported.stdout) == (0, True)


@pytest.mark.exhaustive
def test_the_demo_of_a_plan_joins_its_branches_and_delivers_charts(bare_cli: Cli) -> None:
    done = bare_cli.run("demo", "--plan", "--json", "--workspace", "files")
    assert (done.code, done.final["status"]) == (0, "finished")
    assert all(event["ok"] for event in done.of("tool_end"))
    at_once = plans_shown(done.events)[2]
    assert [step["status"] for step in at_once][:3] == ["completed", "in_progress", "in_progress"]
    drafts = (bare_cli.workspace / DRAFTS_FOLDER).iterdir()
    assert sorted(folder.name for folder in drafts) == ["islands", "size"]
    assert not [file for file in done.final["artifacts"] if file["path"].startswith(".")]
    assert {step["executor"] for step in at_once} == {"manus", "data_analysis"}
    assert at_once[3]["depends_on"] == ["size", "islands"]
    for path in (bare_cli.workspace / "visualization").glob("*.png"):
        assert ink(path) > 0.01
    assert len(list((bare_cli.workspace / "visualization").glob("*.html"))) == 4
    page = (bare_cli.workspace / "report.html").read_text("utf-8")
    assert page.count('src="data:image/png;base64,') == 4
    raw = pandas.read_csv(bare_cli.workspace / "penguins-raw.csv")
    mass = raw.groupby(raw["Species"].str.split().str[0])["Body Mass (g)"].mean()
    for species, grams in mass.items():
        assert f"{grams:,.0f} g ({species})" in done.final["answer"] or species == "Gentoo"
    assert f"{mass['Gentoo']:,.0f} g on average" in done.final["answer"]


def test_doctor_says_what_is_missing_and_how_to_mend_it(bare_cli: Cli) -> None:
    done = bare_cli.run("doctor", env={"OPENMANUS_MODEL": "deepseek:deepseek-chat"})
    assert done.code == 1
    assert "✗ model: " in done.stdout
    assert "DEEPSEEK_API_KEY" in done.stdout
    assert "✓ sandbox bwrap" in done.stdout
    assert "✓ data libraries" in done.stdout


def test_doctor_is_content_when_a_model_is_configured(cli: Cli) -> None:
    done = cli.run("doctor")
    assert (done.code, done.stderr) == (0, "")
    assert "✓ model: openai:test-model" in done.stdout
    assert "✗" not in done.stdout
    assert not cli.home.exists()


def test_doctor_speaks_of_a_broken_configuration(cli: Cli) -> None:
    cli.write("openmanus.toml", "model = \n")
    done = cli.run("doctor")
    assert done.code == 1
    assert "openmanus.toml" in done.stdout
    assert "line 1" in done.stdout


def test_doctor_speaks_of_a_home_that_cannot_be_written(cli: Cli) -> None:
    cli.write("plain", "a file")
    done = cli.run("doctor", env={"OPENMANUS_HOME": "plain/home"})
    assert done.code == 1
    assert "OPENMANUS_HOME" in done.stdout


def test_doctor_reports_unknown_keys(cli: Cli) -> None:
    cli.write("openmanus.toml", "max_step = 5\n")
    done = cli.run("doctor")
    assert done.code == 0
    assert "max_step is not known" in done.stdout


OLD_CONFIG = """
# Global LLM configuration
[llm]
model = "old-model"
base_url = "{url}"
api_key = "sk-fromTheOldFile0123456789"
max_tokens = 8192
max_input_tokens = 100000
temperature = 0.0
api_type = ""
api_version = ""

[llm.vision]
model = "old-eyes"
base_url = "{url}"
api_key = "sk-fromTheOldFile0123456789"

[llm.fast]
model = "old-fast"

[browser]
headless = false

[search]
engine = "DuckDuckGo"
retry_delay = 60

[sandbox]
use_sandbox = true
image = "python:3.12-slim"
work_dir = "/workspace"
memory_limit = "1g"
cpu_limit = 2.0
timeout = 300
network_enabled = true

[daytona]
daytona_api_key = "dtn-secret"
VNC_password = "hunter22"

[mcp]
server_reference = "app.mcp.server"

[runflow]
use_data_analysis_agent = true
"""


def test_doctor_says_what_becomes_of_an_old_configuration(
    bare_cli: Cli, model: OpenAIServer
) -> None:
    bare_cli.write("config/config.toml", OLD_CONFIG.format(url=model.base_url))
    server = {"type": "sse", "url": "http://127.0.0.1:9/sse"}
    bare_cli.write("config/mcp.json", json.dumps({"mcpServers": {"shop": server}, "odd": 1}))
    reported = bare_cli.run("doctor", "--fix")
    assert reported.code == 1, "nothing is trusted yet, so no model is known"
    assert "✗ model: There is no model to talk to" in reported.stdout
    lines = dict(line[2:].split(": ", 1) for line in reported.stdout.splitlines() if ": " in line)
    for key, word in (
        ("llm.model", "PROVIDER:NAME"),
        ("llm.max_tokens", "[model_options]"),
        ("llm.max_input_tokens", "max_total_tokens"),
        ("sandbox.memory_limit", "memory_mb"),
        ("sandbox.timeout", "timeout_s"),
        ("sandbox.network_enabled", "network"),
    ):
        assert word in lines[f"config/config.toml {key}"], key
        assert not lines[f"config/config.toml {key}"].startswith("left out")
    for key, word in (
        ("llm.fast", "--model"),
        ("sandbox.use_sandbox", "mode"),
        ("sandbox.cpu_limit", "memory_mb"),
        ("sandbox.work_dir", "--workspace"),
        ("daytona", "remove"),
        ("mcp.server_reference", "openmanus mcp-server"),
        ("runflow", "openmanus plan"),
    ):
        assert lines[f"config/config.toml {key}"].startswith("left out: "), key
        assert word in lines[f"config/config.toml {key}"]
    assert "✓ config/mcp.json: read as OpenManus's; as before: mcpServers.shop\n" in reported.stdout
    assert lines["config/mcp.json odd"].startswith("left out")
    waiting = [
        line for line in reported.stdout.splitlines() if "until you run openmanus trust" in line
    ]
    assert len(waiting) == 2
    assert "llm.base_url" in waiting[0]

    assert bare_cli.run("trust").code == 0
    bare_cli.write("config/mcp.json", "{}")
    now = bare_cli.run("doctor")
    assert now.code == 0
    assert f"✓ model: openai:old-model at {model.base_url}" in now.stdout
    assert "openmanus trust" not in now.stdout
    for secret in ("sk-fromTheOldFile", "dtn-secret", "hunter22"):
        assert secret not in reported.stdout + now.stdout


def test_the_key_of_a_file_that_is_not_trusted_goes_nowhere(
    bare_cli: Cli, model: OpenAIServer
) -> None:
    bare_cli.write("config/config.toml", OLD_CONFIG.format(url="http://127.0.0.1:9/v1"))
    model.add(Reply("hello"))
    done = bare_cli.run("run", "hi", env={"OPENAI_BASE_URL": model.base_url})
    assert (done.code, done.stdout) == (0, "hello\n")
    assert "sk-fromTheOldFile" not in str(model.requests[0].headers)
    alone = bare_cli.run("run", "hi")
    assert alone.code == 2
    assert "There is no model to talk to" in alone.stderr
    assert "openmanus trust" in alone.stderr
