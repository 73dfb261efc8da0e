"""MCP servers from the command line: configured, tried out, called, and used by agents."""

import json
import signal
import sys
from pathlib import Path

import pytest

from openmanus_graph import MCPServer
from tests.support.cli import Cli, until
from tests.support.mcp_oauth import TOKEN, shop_with_logins
from tests.support.mcp_servers import RAW, file_of, raw, sdk_server
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

TIME = str(Path(sys.executable).with_name("mcp-server-time"))


def trusted(cli: Cli, *servers: MCPServer, name: str = "mcp.json", **more: object) -> None:
    cli.write(name, file_of(*servers, **more))
    assert cli.run("trust").code == 0


def test_a_published_server_is_listed_tested_and_called(bare_cli: Cli) -> None:
    bare_cli.write("config/mcp.json", file_of(MCPServer("time", command=TIME)))
    assert "openmanus trust" in bare_cli.run("mcp", "list").stderr
    assert bare_cli.run("trust").code == 0
    arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    listed, tested, called, wrong = bare_cli.run_all(
        ("mcp", "list", "--json"),
        ("mcp", "test", "time"),
        ("mcp", "call", "time", "convert_time", json.dumps(arguments)),
        ("mcp", "call", "time", "convert_time", '{"time": "12:00"}'),
    )
    row = json.loads(listed.stdout)
    assert (listed.code, row["ok"], row["server"]) == (0, True, "time")
    assert {tool["name"] for tool in row["tools"]} >= {"mcp_time_convert_time"}
    assert "mcp_time_get_current_time" in tested.stdout
    assert json.loads(called.stdout)["target"]["datetime"].endswith("21:00:00+09:00")
    assert (wrong.code, "source_timezone" in wrong.stdout) == (1, True)


def test_what_does_not_work_is_said_and_the_rest_is_listed(bare_cli: Cli, tmp_path: Path) -> None:
    with sdk_server("http", MCP_KEY="right") as server:
        trusted(
            bare_cli,
            raw("good"),
            raw("exits", "exit"),
            MCPServer("closed", url="http://127.0.0.1:9/sse"),
            locked={"url": server.url, "headers": {"Authorization": "Bearer ${WRONG}"}},
            open={"url": server.url, "headers": {"Authorization": "Bearer ${KEY}"}, "colour": 1},
            unset={"url": server.url, "headers": {"Authorization": "Bearer ${UNSET}"}},
            nowhere={
                "url": f"{server.url}/nowhere",
                "type": "http",
                "headers": {"Authorization": "Bearer ${KEY}"},
            },
            off={"command": "off", "enabled": False},
            slow={"command": sys.executable, "args": [RAW, "hang"], "start_timeout_s": 1},
        )
        done = bare_cli.run("mcp", "list", env={"WRONG": "wrong", "KEY": "right"})
    assert done.code == 1
    for words in ("✓ good", "✓ open", "✗ exits (stdio): ended at once. It said: no config",
                  "✗ closed (sse): at http://127.0.0.1:9/sse cannot be reached", "answered 401",
                  "check `headers`", "✗ nowhere", "answered 404",
                  "✗ slow (stdio): did not answer within 1 s"):  # fmt: skip
        assert words in done.stdout, words
    assert "mcpServers.open.colour is not known" in done.stderr
    assert "UNSET is not set" in done.stderr
    assert "off is switched off" in done.stderr
    assert "wrong" not in done.stdout + done.stderr


def test_a_person_logs_in_by_the_browser_and_out_again(bare_cli: Cli) -> None:
    script = bare_cli.write("browser.py", "import sys, urllib.request as r\nr.urlopen(sys.argv[1])")
    browser = {"BROWSER": f"{sys.executable} {script} %s"}
    with shop_with_logins() as shop:
        trusted(bare_cli, MCPServer("shop", url=shop.url))
        before = bare_cli.run("mcp", "list")
        assert (before.code, "run `openmanus mcp login shop`" in before.stdout) == (1, True)
        logged_in = bare_cli.run("mcp", "login", "shop", env=browser)
        assert logged_in.stdout == "Logged in to shop (read): 2 tools.\n"
        assert f"{shop.issuer}/authorize?" in logged_in.stderr
        assert bare_cli.run("mcp", "call", "shop", "look").stdout == "did look\n"
        out = bare_cli.run("mcp", "logout", "shop")
        assert (out.code, out.stdout) == (0, "Logged out of shop.\n")
        assert bare_cli.run("mcp", "list", "--json").code == 1
        shop.way = "refuses"
        refused = bare_cli.run("mcp", "login", "shop", env=browser)
        assert (refused.code, "Ada said no" in refused.stderr) == (1, True)
        closed = bare_cli.run("mcp", "login", "shop", "--no-browser", "--timeout", "1")
        assert (closed.code, "within 1 s" in closed.stderr) == (1, True)
    assert TOKEN not in "".join(bare_cli.seen)


def test_logins_that_cannot_be_are_wrong_usage(bare_cli: Cli) -> None:
    url, machine = "http://127.0.0.1:9/mcp", {"grant": "client_credentials", "client_id": "x"}
    trusted(
        bare_cli,
        raw("pipes"),
        key={"url": url, "headers": {"Authorization": "Bearer x"}},
        machine={"url": url, "oauth": {**machine, "client_secret": "y", "issuer": url}},
    )
    files = {
        "oauth.issuer too": {"url": url, "oauth": {**machine, "client_secret": "y"}},
        "no client_id": {"url": url, "oauth": {"client_secret": "y"}},
        "has no url": {"command": "x", "oauth": {"client_id": "y"}},
        "oauth.colour": {"url": url, "oauth": {"colour": "red"}},
    }
    paths = [
        str(bare_cli.write(f"{number}.json", json.dumps({"mcpServers": {"a": server}})))
        for number, server in enumerate(files.values())
    ]
    commands = [("mcp", "login", name) for name in ("pipes", "key", "machine")]
    *done, out = bare_cli.run_all(
        *commands,
        *(("mcp", "list", "--config", path) for path in paths),
        ("mcp", "logout", "key"),
    )
    words = ["has no url", "key in `headers`", "by itself", *files]
    codes = [2] * len(commands) + [1] * len(files)
    for one, code, said in zip(done, codes, words, strict=True):
        assert (one.code, said in one.stderr) == (code, True), (said, one)
    assert (out.code, "There is no login" in out.stderr) == (2, True)


def test_wrong_files_and_names_are_wrong_usage(cli: Cli) -> None:
    wrong = {
        '{"mcpServers": {"a": {"command": "x"': "not valid JSON",
        '{"mcpServers": {"a": {"args": "x"}}}': "mcpServers.a.args",
        '{"mcpServers": {"a": {"command": "x", "url": "y"}}}': "either a command or a url",
        '{"mcpServers": {"a": {"comand": "x"}}}': "Not known here: comand",
    }
    paths = [str(cli.write(f"{number}.json", text)) for number, text in enumerate(wrong)]
    *listed, unknown, bad, none = cli.run_all(
        *(("mcp", "list", "--config", path) for path in paths),
        ("run", "x", "--agent", "mcp", "--mcp-server", "nosuch"),
        ("mcp", "call", sys.executable + " x.py", "tool", "no json"),
        ("run", "x", "--agent", "mcp"),
    )
    for done, path, words in zip(listed, paths, wrong.values(), strict=True):
        code = 2 if "JSON" in words else 1  # a wrong entry leaves out that server only
        assert (done.code, path in done.stderr, words in done.stderr) == (code, True, True)
    assert (unknown.code, "nosuch" in unknown.stderr) == (2, True)
    assert (bad.code, "not JSON" in bad.stderr) == (2, True)
    assert (none.code, "--mcp-server" in none.stderr) == (2, True)


def test_manus_uses_the_configured_servers_and_others_by_option(
    cli: Cli, model: OpenAIServer
) -> None:
    trusted(cli, raw("a"), raw("b"))
    model.add(
        Reply(calls=(Call("mcp_a_echo", {"text": "one"}), Call("mcp_b_echo", {"text": "two"}))),
        Reply("done"),
    )
    done = cli.run("run", "x", "--json")
    assert (done.code, [event["ok"] for event in done.of("tool_end")]) == (0, [True, True])
    model.add(Reply("only b"))
    assert cli.run("run", "x", "--json", "--agent", "mcp", "--server", "b").code == 0
    offered = {tool["function"]["name"] for tool in model.requests[-1].body["tools"]}
    assert {name[:6] for name in offered - {"terminate"}} == {"mcp_b_"}
    model.add(Reply(calls=(Call("mcp_mcp_raw_echo", {"text": "three"}),)), Reply("done"))
    command = f"{sys.executable} {RAW}"
    done = cli.run("run", "x", "--json", "--agent", "mcp", "--mcp-server", command)
    assert "three" in done.of("tool_end")[0]["output"]


def test_a_server_killed_during_a_call_comes_back_and_pictures_reach_the_model(
    cli: Cli, model: OpenAIServer
) -> None:
    log = cli.root / "log"
    trusted(cli, raw(env={"MCP_LOG": str(log)}, approval=False))
    model.add(
        Reply(calls=(Call("mcp_raw_slow"),)),
        Reply(calls=(Call("mcp_raw_rich"),)),
        Reply("done"),
    )
    running = cli.start("run", "x", "--agent", "mcp", env={"OPENMANUS_MODEL": "openai:gpt-5-mini"})
    until(lambda: log.exists() and '"slow"' in log.read_text())
    (server,) = [one for one in running.family() if RAW in one.cmdline()]
    server.kill()
    done = running.finish()
    assert done.code == 0
    died, rich = done.of("tool_end")
    assert (died["ok"], rich["ok"]) == (False, True)
    assert "look before you repeat it" in died["output"]
    assert "ended unexpectedly" in json.dumps(model.requests[1].messages)
    assert "data:image/png;base64" in json.dumps(model.requests[2].messages)


def test_a_servers_question_waits_and_is_lost_with_the_process(
    cli: Cli, model: OpenAIServer
) -> None:
    trusted(cli, raw(approval=False))
    model.add(Reply(calls=(Call("mcp_raw_ask"),)), Reply("done"))
    asked = cli.run("run", "x", "--agent", "mcp", "--thread", "t", "--json")
    assert (asked.code, asked.final["stop_reason"]) == (4, "question")
    assert "How many?" in asked.final["answer"]
    lost = cli.run("resume", "t", "--answer", "3", "--json")
    assert (lost.code, lost.final["stop_reason"]) == (4, "unknown_outcome")
    done = cli.run("resume", "t", "--answer", "it was 3", "--json")
    assert (done.code, "it was 3" in done.of("tool_end")[0]["output"]) == (0, True)


def begin_task_and_kill(cli: Cli, model: OpenAIServer) -> Path:
    """Kill a run whose call a server runs as a task; returns the server's file of tasks."""
    tasks = cli.root / "tasks.json"
    env = {"MCP_LOG": str(cli.root / "log"), "MCP_TASKS": str(tasks)}
    trusted(cli, raw(way="tasks", env=env, approval=False))
    model.add(Reply(calls=(Call("mcp_raw_research", {"topic": "long"}),)), Reply("done"))
    running = cli.start("run", "x", "--agent", "mcp", "--thread", "t")
    running.wait_for(lambda event: "Poll 0." in event.get("text", ""))
    running.signal(signal.SIGKILL)
    assert running.finish().code == -signal.SIGKILL
    return tasks


def test_a_task_of_a_server_outlives_a_run_that_is_killed(cli: Cli, model: OpenAIServer) -> None:
    tasks = begin_task_and_kill(cli, model)
    tasks.with_suffix(".go").touch()
    done = cli.run("resume", "t", "--json")
    assert done.code == 0
    assert "All about long." in done.of("tool_end")[0]["output"]
    assert (cli.root / "log").read_text().count('"tools/call"') == 1


def test_a_task_that_its_server_has_forgotten_is_a_call_whose_outcome_is_unknown(
    cli: Cli, model: OpenAIServer
) -> None:
    begin_task_and_kill(cli, model).unlink()
    asked = cli.run("resume", "t", "--json")
    assert (asked.code, asked.final["stop_reason"]) == (4, "unknown_outcome")
    done = cli.run("resume", "t", "--answer", "it was about cups", "--json")
    assert (done.code, "about cups" in done.of("tool_end")[0]["output"]) == (0, True)


def test_ctrl_c_leaves_no_server_behind(cli: Cli, model: OpenAIServer) -> None:
    log = cli.root / "log"
    trusted(cli, raw(env={"MCP_LOG": str(log)}, approval=False))
    model.add(Reply(calls=(Call("mcp_raw_slow"),)))
    running = cli.start("run", "x", "--agent", "mcp")
    until(lambda: log.exists() and '"slow"' in log.read_text())
    servers = [one for one in running.family() if RAW in one.cmdline()]
    running.signal(signal.SIGINT)
    running.wait_for_kind("notice")
    running.signal(signal.SIGINT)
    assert running.finish().code == 130
    assert "notifications/cancelled" in log.read_text()
    until(lambda: not any(one.is_running() for one in servers))
