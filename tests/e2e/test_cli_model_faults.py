"""A model server that refuses, is away, or fails for a while."""

import socket

import pytest

from tests.support.cli import KEY, Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


@pytest.mark.parametrize("status", [401, 404])
def test_a_refused_key_or_model_is_exit_1_after_one_attempt(
    cli: Cli, model: OpenAIServer, status: int
) -> None:
    error = {"message": f"Incorrect API key provided: {KEY}. You can find it at ..."}
    model.add(Reply(status=status, error=error), Reply("never"))
    done = cli.run("run", "x", "--json", "--log", "run.log", "--thread", "t")
    assert done.code == 1
    assert len(model.requests) == 1
    assert (done.final["status"], done.final["stop_reason"]) == ("failed", "error")
    assert str(status) in done.final["answer"]
    assert KEY not in (cli.cwd / "run.log").read_text()


def test_a_run_that_failed_says_why_on_stderr_and_can_be_resumed(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply(status=401, error={"message": "no"}), Reply("better"))
    done = cli.run("run", "x", "--thread", "t", "--quiet")
    assert (done.code, done.stdout) == (1, "")
    assert "401" in done.stderr
    assert "Check the key" in done.stderr
    assert "openmanus resume t" in done.stderr
    resumed = cli.run("resume", "t", "--quiet")
    assert (resumed.code, resumed.stdout) == (0, "better\n")


def test_a_model_without_tools_is_told_in_one_sentence(cli: Cli, model: OpenAIServer) -> None:
    error = {"message": "registry.ollama.ai/library/gemma does not support tools"}
    model.add(Reply(status=400, error=error))
    done = cli.run("run", "x", "--quiet")
    assert (done.code, done.stdout) == (1, "")
    assert "does not support tools" in done.stderr
    assert "choose another model" in done.stderr
    assert len(model.requests) == 1


def test_a_server_that_is_busy_for_a_moment_is_asked_again(cli: Cli, model: OpenAIServer) -> None:
    busy = Reply(status=429, headers={"Retry-After": "0"}, error={"message": "slow down"})
    model.add(busy, Reply("half an ans", fault="cut"), Reply("at last"))
    done = cli.run("run", "x", "--json")
    assert (done.code, done.final["answer"]) == (0, "at last")
    assert len(model.requests) == 3
    assert any("429" in event["text"] for event in done.of("notice"))
    assert [event["step"] for event in done.of("think_start")] == [1, 1, 1]
    assert len(done.of("think_end")) == 1
    assert done.final["usage"]["model_calls"] == 1


def test_a_server_that_is_down_is_exit_1_and_named(cli: Cli) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
        done = cli.run("run", "x", "--json", "--base-url", url, "--timeout", "3")
    assert done.code in (1, 3)
    assert any("could not be reached" in event["text"] for event in done.of("notice"))


def test_a_server_that_stays_down_is_exit_1(cli: Cli, model: OpenAIServer) -> None:
    model.loop = True
    model.add(Reply(status=503, headers={"Retry-After": "0"}))
    done = cli.run("run", "x", "--quiet", "--thread", "t")
    assert (done.code, done.stdout) == (1, "")
    assert "503" in done.stderr
    assert "openmanus resume t" in done.stderr
    assert 2 <= len(model.requests) <= 10


def test_a_password_in_the_address_is_kept_nowhere(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("ok"))
    url = model.base_url.replace("://", f"://user:{KEY}@")
    done = cli.run("run", "x", "--json", "--base-url", url, "--log", "run.log")
    assert (done.code, done.final["answer"]) == (0, "ok")
    assert "127.0.0.1" in cli.run("threads", "--json").stdout
    cli.assert_no_key()


def test_secrets_of_the_environment_do_not_reach_the_tools(cli: Cli, model: OpenAIServer) -> None:
    cli.env["AWS_SECRET_ACCESS_KEY"] = "aws-secret"
    code = "import os; print(sorted(os.environ.items()))"
    calls = (Call("bash", {"command": "env"}), Call("python_execute", {"code": code}))
    model.add(Reply(calls=calls), Reply("ok"))
    done = cli.run("run", "x", "--json")
    assert done.code == 0
    for event in done.of("tool_end"):
        assert "PATH" in event["output"]
        assert KEY not in event["output"]
        assert "aws-secret" not in event["output"]
