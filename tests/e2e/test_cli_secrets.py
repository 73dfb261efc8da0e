"""Keys and passwords are kept nowhere and handed to nobody."""

from tests.support.cli import KEY, Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


def test_a_password_in_the_address_is_kept_nowhere(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("ok"))
    url = model.base_url.replace("://", f"://user:{KEY}@")
    done = cli.run("run", "x", "--json", "--base-url", url, "--log", "run.log")
    assert (done.code, done.final["answer"]) == (0, "ok")
    assert "127.0.0.1" in cli.run("threads", "--json").stdout
    cli.assert_no_key()


def test_a_key_in_the_query_of_an_address_is_kept_nowhere(cli: Cli, model: OpenAIServer) -> None:
    done = cli.run("run", "x", "--base-url", f"{model.base_url}?key={KEY}", "--log", "run.log")
    assert done.code == 1  # there is no such page
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
