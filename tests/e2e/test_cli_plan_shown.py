"""What people see of a plan on a terminal: live, and on review."""

import json
import re

from tests.e2e.terminal import Terminal
from tests.e2e.test_cli_plan import JOIN, Brain, log_of, plan
from tests.support.cli import Cli, until
from tests.support.openai_server import OpenAIServer

ONLY = [{"id": "z", "text": "only this", "done_when": "file: z.txt"}]


def test_the_checklist_lives_on_a_terminal_and_in_the_workspace(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(*Brain(*JOIN, slow="c").answers())
    with Terminal(cli, *plan(cli), columns=90) as terminal:
        until((cli.workspace / "begun-c").exists)
        under_way = re.compile(r"\[→\] c join +manus +[1-9][\d.]* s +bash")
        until(lambda: under_way.search(terminal.screen) is not None)  # its time goes on
        text = (cli.workspace / "plan.md").read_text("utf-8")
        (cli.workspace / "go").touch()
        assert terminal.finish() == 0
    assert re.search(
        r"- \[x\] \*\*a\*\*: left \(completed; [\d.]+ s; \$[\d.]+; manus\)\n  > a: ", text
    )
    assert "- [→] **c**: join (in progress; manus; after a, b; done when file: c.txt)" in text
    assert "3 of 3 steps completed" in (cli.workspace / "plan.md").read_text("utf-8")
    end = terminal.shown[terminal.shown.rindex("[✓] a ") :]
    for row in (r"\[✓\] a left +manus +[\d.]+ s +\$[\d.]+", r"\[✓\] c join +manus +[\d.]+ s"):
        assert re.search(row, end)
    assert "[c] ✓ $ " in terminal.shown
    assert "3 of 3 completed" in end
    assert terminal.shown.count("All of it is done.") == 1
    assert all(len(line) <= 90 for line in end.splitlines())


def test_a_plan_is_reviewed_and_edited_on_a_terminal(cli: Cli, model: OpenAIServer) -> None:
    model.add(*Brain(*JOIN).answers())
    new = cli.write("new.json", json.dumps({"title": "Less", "steps": ONLY}))
    cli.env["EDITOR"] = f"cp {new}"
    with Terminal(cli, *plan(cli, "--review-plan")) as terminal:
        terminal.see("say what to change:")
        assert "after a, b; done when file: c.txt" in terminal.shown
        assert '"depends_on"' not in terminal.shown
        terminal.type('[{"id": "z",\n')
        terminal.expect("the answer is not JSON")
        terminal.see("say what to change:")
        terminal.type("e\n")
        assert terminal.finish() == 0
    assert log_of(cli) == ["z"]
    assert (cli.workspace / "plan.md").read_text("utf-8").startswith("# Less\n")
