"""What people and programs see of a plan: live, in events, on review, and afterwards."""

import json
import re

from tests.e2e.terminal import Terminal
from tests.e2e.test_cli_plan import JOIN, Brain, log_of, plan
from tests.support.cli import Cli, until
from tests.support.openai_server import OpenAIServer

ONLY = [{"id": "z", "text": "only this", "done_when": "file: z.txt"}]


def test_the_checklist_lives_on_a_terminal(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN, slow="b").answers())
    with Terminal(cli, *plan(cli), columns=90) as terminal:
        until((cli.workspace / "begun-b").exists)
        terminal.expect("1.0 s")  # the time of a step under way goes on
        assert re.search(r"\[→\] b +right +manus +[\d.]+ s +bash", terminal.shown)
        (cli.workspace / "go").touch()
        assert terminal.finish() == 0
    end = terminal.shown[terminal.shown.rindex("[✓] a ") :]
    for row in (r"\[✓\] a left +manus [\d.]+ s \$[\d.]+", r"\[✓\] c join +manus [\d.]+ s"):
        assert re.search(row, end)
    assert "[b] ✓ bash" in terminal.shown
    assert "3 of 3 completed" in end
    assert terminal.shown.count("All of it is done.") == 1
    assert all(len(line) <= 90 for line in end.splitlines())


def test_events_of_a_step_name_it(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    done = cli.run(*plan(cli, "--json"))
    assert done.code == 0
    for event in done.of("tool_start"):
        assert f"echo {event['plan_step']} >>" in event["args"]["command"]
    assert {event["plan_step"] for event in done.of("tool_end")} == {"a", "b", "c"}
    thinking = [event.get("plan_step") for event in done.of("think_end")]
    assert (thinking[0], sorted(map(str, thinking[1:-1])), thinking[-1]) == (
        None, ["a", "a", "b", "b", "c", "c"], None,
    )  # fmt: skip
    assert {event["plan_step"] for event in done.of("token")[:2]} <= {"a", "b"}
    assert done.of("plan")[0]["title"] == "Join"
    for event in done.of("step_end"):
        assert event["executor"] == "manus"
        assert event["seconds"] > 0
        assert event["cost_usd"] == 0
    assert not [e for e in (*done.of("step_start"), *done.of("plan")) if "plan_step" in e]


def test_a_plan_is_shown_and_exported_with_its_steps(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    assert cli.run(*plan(cli)).code == 0
    shown, exported, as_json, steps, listed = cli.run_all(
        ["show", "t"], ["export", "t"], ["show", "t", "--json"], ["show", "t", "--plan"],
        ["threads"],
    )  # fmt: skip
    for text in (shown.stdout, exported.stdout):
        for part in ("## Plan: Join", "- [x] 2. join", "## Step c: join", "echo c >> log",
                     "All of it is done.", "8 model calls"):  # fmt: skip
            assert part in text
        assert text.index("## Step b") < text.index("## Step c") < text.index("All of it is")
    assert "The task as a whole:" in exported.stdout
    assert "The task as a whole:" not in shown.stdout
    held = json.loads(as_json.stdout)
    kinds = [message["type"] for message in held["step_runs"]["a"][0]]
    assert kinds == ["human", "ai", "tool", "ai"]
    assert [step["id"] for step in json.loads(steps.stdout)["steps"]] == ["a", "b", "c"]
    assert re.search(r"^ t +finished +planning .* join them", listed.stdout, re.MULTILINE)
    none = cli.run("show", "u", "--plan")
    assert none.code == 2


def test_a_plan_is_reviewed_and_edited_on_a_terminal(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    new = cli.write("new.json", json.dumps({"title": "Less", "steps": ONLY}))
    cli.env["EDITOR"] = f"cp {new}"
    with Terminal(cli, *plan(cli, "--review-plan")) as terminal:
        terminal.expect("say what to change: ")
        assert "after a, b; done when file: c.txt" in terminal.shown
        assert '"depends_on"' not in terminal.shown
        terminal.type('[{"id": "z",\n')
        terminal.expect("the answer is no JSON")
        terminal.expect("say what to change: ")
        terminal.type("e\n")
        assert terminal.finish() == 0
    assert log_of(cli) == ["z"]
    assert (cli.workspace / "plan.md").read_text("utf-8").startswith("# Less\n")


def test_a_plan_is_reviewed_and_edited_from_another_process(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    asked = cli.run(*plan(cli, "--review-plan"))
    assert asked.code == 4
    for hint in ("resume t --approve", 'resume t --answer "', "show t --plan", "resume t --reject"):
        assert f"openmanus {hint}" in asked.stderr
    given = cli.run("show", "t", "--plan").stdout
    wrong = cli.run("resume", "t", "--answer", given.replace("manus", "nobody"))
    assert wrong.code == 4
    assert "names executor 'nobody'" in wrong.stderr
    assert cli.run("resume", "t", "--answer", json.dumps(ONLY)).code == 0
    assert log_of(cli) == ["z"]


def test_the_checklist_in_the_workspace_is_kept_up_to_date(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN, slow="c").answers())
    running = cli.start(*plan(cli))
    until((cli.workspace / "begun-c").exists)
    text = (cli.workspace / "plan.md").read_text("utf-8")
    assert re.search(r"- \[x\] 0\. left \(completed; [\d.]+ s; \$[\d.]+; manus\)\n  > a: ", text)
    assert "- [→] 2. join (in progress; manus; after a, b; done when file: c.txt)" in text
    (cli.workspace / "go").touch()
    assert running.finish().code == 0
    text = (cli.workspace / "plan.md").read_text("utf-8")
    assert "3 of 3 steps completed" in text
