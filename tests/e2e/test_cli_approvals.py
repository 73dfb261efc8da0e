"""Approvals at the command line: rules in files, decisions in other processes."""

import signal

import pytest

from tests.e2e.terminal import Terminal
from tests.e2e.test_cli_resume import begin_slow_call, log_of, release, results
from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

ASK = """
[policy]
rules = [
  { tool = "bash", args = { command = "rm *" }, decision = "deny" },
  { tool = "bash", decision = "ask" },
  { tool = "str_replace_editor", decision = "ask" },
]
"""
ECHO = Call("bash", {"command": "echo one >> log"})
CREATE = {"command": "create", "path": "a.txt", "file_text": "A"}
RUN = ("run", "x", "--thread", "t", "--workspace", "files")


@pytest.mark.slow
def test_open_approvals_are_answered_one_by_one_or_all_at_once(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("openmanus.toml", ASK)
    create = Call("str_replace_editor", CREATE)
    forbidden = Call("bash", {"command": "cd . ;  rm  log"})
    model.add(Reply(calls=(ECHO, create)), Reply(calls=(forbidden, ECHO)), Reply("done"))
    waiting = cli.run(*RUN, "--json")
    assert (waiting.code, waiting.final["stop_reason"]) == (4, "approval")
    first, second = (event["id"] for event in waiting.of("interrupt"))
    unclear = cli.run("resume", "t", "--approve")
    assert unclear.code == 2
    assert f'{first}  bash {{"command": "echo one >> log"}}: ' in unclear.stderr
    assert "--all" in unclear.stderr
    shown = cli.run("show", "t").stdout
    assert all(f"\n  {name}  " in shown for name in (first, second))
    assert cli.run("resume", "t", "--approve", "--id", first).code == 4
    assert not (cli.workspace / "log").exists(), "nothing runs while the other is open"
    left = cli.run("resume", "t", "--json")
    assert [event["id"] for event in left.of("interrupt")] == [second]
    rejected = cli.run("resume", "t", "--reject", "--reason", "no files", "--id", second)
    assert rejected.code == 4
    assert log_of(cli) == "one\n"
    assert not (cli.workspace / "a.txt").exists()
    assert "no files" in results(model)[1]
    assert cli.run("resume", "t", "--approve", "--all").code == 0
    assert log_of(cli) == "one\none\n"
    assert "A rule of the policy forbids it (deny bash command='rm *'" in results(model)[2]
    assert cli.run("resume", "t", "--all").code == 2


@pytest.mark.slow
def test_kill_9_after_an_approval_neither_asks_nor_runs_again(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("openmanus.toml", ASK)
    slow = "echo begun >> log; touch begun; until [ -e go ]; do sleep 0.02; done"
    model.add(Reply(calls=(Call("bash", {"command": slow}),)), Reply("Finished."))
    assert cli.run(*RUN).code == 4
    running = begin_slow_call(cli, command=("resume", "t", "--approve"))
    running.signal(signal.SIGKILL)
    running.finish()
    release(cli)
    resumed = cli.run("resume", "t", "--json")
    assert (resumed.code, resumed.of("interrupt")) == (0, [])
    assert log_of(cli) == "begun\n"
    assert "in part" in results(model)[0]


@pytest.mark.slow
def test_an_edit_is_answered_as_json(cli: Cli, model: OpenAIServer) -> None:
    cli.write("openmanus.toml", ASK)
    model.add(Reply(calls=(ECHO,)), Reply("done"))
    assert cli.run(*RUN).code == 4
    edit = '{"type": "edit", "edited_action": {"name": "bash", "args": {"command": "%s"}}}'
    denied = cli.run("resume", "t", "--answer", edit % "rm -f log")
    assert denied.code == 4
    assert "forbids" in denied.stderr
    assert cli.run("resume", "t", "--answer", edit % "echo two >> log").code == 0
    assert log_of(cli) == "two\n"
    for command in ("show", "export"):
        text = cli.run(command, "t").stdout
        assert ("echo two" in text, "echo one" in text) == (True, False)


@pytest.mark.slow
def test_a_person_at_the_terminal_edits_rejects_and_approves_for_the_run(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("openmanus.toml", ASK)
    model.add(Reply(calls=(ECHO,)), Reply(calls=(ECHO,)), Reply(calls=(ECHO,)))
    model.add(Reply(calls=(Call("bash", {"command": "echo more >> log"}),)), Reply("done"))
    with Terminal(cli, *RUN) as terminal:
        terminal.expect("[e]dit")
        emptied = "\x01\x0b"  # Ctrl-A, Ctrl-K: the call's arguments stand in the line
        edit = "\x7f" * len('one >> log"}') + 'two >> log"'
        typing = (
            "yes please do",
            "ok",
            "",
            "e",
            f"{emptied}[1]",
            emptied,
            "e",
            edit,
            "}",  # what is no JSON comes back
            "r not now",
            "always",
        )
        for typed in typing:
            terminal.type(f"{typed}\n")
        assert terminal.finish() == 0
    assert log_of(cli) == "two\none\nmore\n"
    assert "not now" in results(model)[1]
    assert terminal.shown.count("That is not a decision, and nothing was done.") == 3
    assert "command: echo one >> log" in terminal.shown


@pytest.mark.slow
def test_what_a_person_types_is_a_result_only_behind_a_sign(cli: Cli, model: OpenAIServer) -> None:
    cli.write("openmanus.toml", ASK)
    model.add(Reply(calls=(ECHO,)), Reply(calls=(ECHO,)), Reply("done"))
    with Terminal(cli, *RUN) as terminal:
        terminal.expect("= RESULT:")
        terminal.type("= it was done by hand\n")
        terminal.expect("= RESULT:")
        terminal.type("\x04")
        assert terminal.finish() == 4
    assert "it was done by hand" in results(model)[0]
    refused = cli.run("resume", "t", "--answer", "yes please do", "--json")
    assert (refused.code, refused.final["status"]) == (4, "waiting")
    assert "That is not a decision, and nothing was done" in refused.final["answer"]
    assert not (cli.workspace / "log").exists()
    assert cli.run("resume", "t", "--answer", "y").code == 0
    assert log_of(cli) == "one\n"


@pytest.mark.slow
def test_the_arrow_keys_choose_and_an_edit_is_shown_as_a_diff_with_numbers(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("openmanus.toml", ASK)
    cli.write("files/a.txt", "one\ntwo\nthree\nfour\n")
    change = {"command": "str_replace", "path": "a.txt", "old_str": "three", "new_str": "3\n3.5"}
    edit = Reply(calls=(Call("str_replace_editor", change),))
    model.add(edit, Reply(calls=(ECHO,)), Reply("done"))
    with Terminal(cli, *RUN) as terminal:
        terminal.see("edit a.txt\n  -    3 three\n  +    3 3\n  +    4 3.5\n")
        terminal.see("[always] for str_replace_editor in this thread, ")
        assert (cli.workspace / "a.txt").read_text() == "one\ntwo\nthree\nfour\n"
        terminal.type("\x1b[B\x1b[B\x1b[A")
        terminal.see("= RESULT: a")
        terminal.type("\r")
        terminal.see("✓ edit a.txt")
        terminal.see("\n    -    3 three\n    +    3 3\n    +    4 3.5\n")
        terminal.see("command: echo one >> log")
        terminal.type("\x1b[A")
        terminal.see("= RESULT: =")
        terminal.type("by hand\r")
        terminal.see("= your result for $ echo one >> log")
        assert terminal.finish() == 0
    assert "by hand" in results(model)[1]
    assert not (cli.workspace / "log").exists()


@pytest.mark.slow
def test_a_file_that_would_be_replaced_is_compared_with_what_is_there(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("openmanus.toml", ASK)
    cli.write("files/a.txt", "A\nsame\n")
    create = {**CREATE, "file_text": "B\nsame\n", "overwrite": True}
    model.add(Reply(calls=(Call("str_replace_editor", create),)), Reply("done"))
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see("commands.")
        terminal.type("replace it\r")
        terminal.see("write a.txt, 2 lines\n  -    1 A\n  +    1 B\n       2 same\n")
        terminal.type("\x03")
        terminal.see("Continue with: /approve, or /resume")
        terminal.type("/approve\r")
        terminal.see("done")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert (cli.workspace / "a.txt").read_text() == "B\nsame\n"


@pytest.mark.slow
def test_each_of_several_prompts_names_its_call_and_escape_leaves(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("openmanus.toml", ASK)
    model.add(Reply(calls=(ECHO, Call("bash", {"command": "echo two >> log"}))), Reply("done"))
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see("> ")
        terminal.type("do it\r")
        terminal.see("Question 1 of 2: $ echo one >> log\n↑↓ or type [a]pprove")
        terminal.type("a\r")
        terminal.see("Question 2 of 2: $ echo two >> log\n↑↓ or type [a]pprove")
        terminal.type("\x1b")
        terminal.see("Continue with: /approve, or /resume")
        assert not (cli.workspace / "log").exists()
        terminal.type("/approve all\r")
        terminal.see("done")
        terminal.see("finished (answer)")
        terminal.type("/approve\r")
        terminal.see("No call waits for you.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert log_of(cli) == "one\ntwo\n"


@pytest.mark.slow
def test_a_resumed_run_counts_its_steps_on(cli: Cli, model: OpenAIServer) -> None:
    cli.write("openmanus.toml", ASK)
    model.add(Reply(calls=(ECHO,)), Reply("done"))
    begun = cli.run(*RUN, "--json")
    resumed = cli.run("resume", "t", "--approve", "--json")
    steps = [one["step"] for done in (begun, resumed) for one in done.of("think_start")]
    assert steps == [1, 2]


@pytest.mark.slow
def test_a_pipe_that_is_not_text_is_refused(cli: Cli) -> None:
    done = cli.run("chat", stdin=b"\x00\xff\xfe\x00binary\x00\n")
    assert (done.code, "stdin is not text" in done.stderr) == (2, True)
