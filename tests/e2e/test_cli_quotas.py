"""`openmanus usage` and `openmanus users quota`."""

import json
from typing import Any

import pytest

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow


def used(cli: Cli, *options: str) -> dict[str, Any]:
    result = cli.run("usage", "--json", *options)
    assert result.code == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_runs_are_counted_and_neither_replays_nor_the_demo(cli: Cli, model: OpenAIServer) -> None:
    nothing = cli.run("usage")
    assert (nothing.code, nothing.stdout) == (0, "")
    assert nothing.stderr.startswith("Nothing was used since 20")
    model.add(Reply(calls=(Call("bash", {"command": "echo one > log"}),)), Reply("Done."))
    assert cli.run("run", "write it", "--thread", "t").code == 0
    found = used(cli, "--by", "trigger")
    assert [row["name"] for row in found["rows"]] == ["terminal"]
    total = found["total"]
    assert (total["runs"], total["finished"], total["model_calls"]) == (1, 1, 2)
    assert (total["input_tokens"], total["cached_tokens"], total["output_tokens"]) == (200, 80, 40)
    assert cli.run("replay", "t").code == 0
    assert cli.run("demo").code == 0
    assert used(cli, "--by", "trigger") == found
    assert cli.run("threads", "--delete", "t").code == 0
    found = used(cli, "--by", "thread")
    assert [(row["name"], row["model_calls"]) for row in found["rows"]] == [("t", 2)]
    shown = cli.run("usage", "--by", "model").stdout
    assert "openai:test-model" in shown
    assert "40%" in shown
    assert shown.splitlines()[0].split()[:3] == ["model", "runs", "success"]


def test_quotas_of_a_user_are_set_shown_and_removed(cli: Cli) -> None:
    command = ("users", "quota", "ada", "--usd-per-month", "20", "--runs", "3")
    assert cli.run(*command).stdout == "runs  3\nusd_per_month  20\n"
    assert cli.run("users", "quota", "ada", "--runs", "-1").stdout == "usd_per_month  20\n"
    assert cli.run("users", "quota", "bob").stdout == ""
    wrong = cli.run("usage", "--since", "ever")
    assert wrong.code == 2
    assert "write it like 30d" in wrong.stderr
