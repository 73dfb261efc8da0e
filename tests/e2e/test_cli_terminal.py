"""On a real terminal: questions, Ctrl-C, and what a person sees."""

import pytest

from tests.e2e.terminal import Terminal
from tests.e2e.test_cli_resume import SLOW, log_of, release, results
from tests.support.cli import Cli, until
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("real_start")
def test_a_question_is_asked_and_answered(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("ask_human", {"inquire": "Which colour?"}),)), Reply("Blue then."))
    with Terminal(cli, "run", "paint") as terminal:
        terminal.expect("Which colour?")
        terminal.expect("Your answer:")
        terminal.type("\n  \nblue\n")  # nothing is no answer
        assert terminal.finish() == 0
        assert results(model) == ["blue"]
        assert terminal.screen.count("Blue then.") == 1, "the streamed answer is not repeated"


def test_the_end_of_input_leaves_the_question_open(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("ask_human", {"inquire": "Which?"}),)))
    with Terminal(cli, "run", "paint", "--thread", "t") as terminal:
        terminal.expect("Your answer:")
        terminal.type("\x04")
        assert terminal.finish() == 4
        assert "openmanus resume t --answer TEXT" in terminal.shown


def test_ctrl_c_at_a_question_leaves_it_open(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("ask_human", {"inquire": "Which?"}),)), Reply("Fine."))
    with Terminal(cli, "run", "paint", "--thread", "t") as terminal:
        terminal.expect("Your answer:")
        terminal.type("\x03")
        assert terminal.finish() == 4
        assert "openmanus resume t --answer TEXT" in terminal.shown
    assert cli.run("resume", "t", "--answer", "this").code == 0


def test_ctrl_c_finishes_the_call_and_names_the_command_to_resume(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("Finished."))
    with Terminal(cli, "run", "slow", "--thread", "t", "--workspace", "files") as terminal:
        terminal.see("$ echo begun >> log")
        until((cli.workspace / "begun").exists)
        terminal.type("\x03")
        terminal.expect("once more stops it at once")
        release(cli)
        assert terminal.finish() == 130
        assert "openmanus resume t" in terminal.shown
    assert log_of(cli) == "begun\nover\n"
    assert cli.run("resume", "t").stdout == "Finished.\n"


def test_a_redirected_answer_is_seen_and_kept(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("# The answer\n\n42"))
    with Terminal(cli, "run", "x", redirect="answer.md") as terminal:
        assert terminal.finish() == 0
        assert "The answer\n\n42" in terminal.screen
    assert (cli.cwd / "answer.md").read_text() == "# The answer\n\n42\n"


@pytest.mark.parametrize("command", ["run -", "chat"])
def test_a_task_from_a_file_is_done_and_shown(cli: Cli, model: OpenAIServer, command: str) -> None:
    cli.write("task", "say it\n")
    model.add(Reply("Done."))
    with Terminal(cli, *command.split(), stdin="task") as terminal:
        assert terminal.finish() == 0
        assert "Done." in terminal.screen


def test_a_terminal_of_twenty_columns_shows_everything(cli: Cli, model: OpenAIServer) -> None:
    tail = "the-last-words-of-a-long-line"
    model.add(Reply(calls=(Call("bash", {"command": f"echo {'x' * 60}{tail}"}),)), Reply(tail))
    with Terminal(cli, "run", "x", columns=20) as terminal:
        assert terminal.finish() == 0
        assert "".join(terminal.screen.split()).count(tail) == 2, "in output and answer"
        assert "finished (answer)" in terminal.screen


def test_chat_on_a_terminal_goes_on_after_ctrl_c(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("I stopped. And now?"))
    with Terminal(cli, "chat", "--thread", "t", "--workspace", "files") as terminal:
        terminal.see("/help lists the commands.")
        terminal.type("slow\n")
        until((cli.workspace / "begun").exists)
        terminal.type("\x03")
        terminal.expect("once more")
        release(cli)
        terminal.expect("Continue with")
        terminal.type("what now?\n")
        terminal.expect("And now?")
        terminal.type("/exit\n")
        assert terminal.finish() == 0


def test_a_folders_risky_settings_are_asked_about_once(cli: Cli, model: OpenAIServer) -> None:
    cli.write("openmanus.toml", 'policy = "auto"\n')
    model.add(Reply("one"), Reply("two"))
    with Terminal(cli, "run", "x") as terminal:
        terminal.expect("[y/N]")
        assert "policy = 'auto'" in terminal.shown
        terminal.type("y\n")
        assert terminal.finish() == 0
    with Terminal(cli, "run", "x") as terminal:
        assert terminal.finish() == 0
        assert "[y/N]" not in terminal.shown
        assert "openmanus trust" not in terminal.shown


def test_a_cloned_folders_skill_is_asked_about_once(cli: Cli, model: OpenAIServer) -> None:
    cli.write("skills/theirs/SKILL.md", "---\nname: theirs\ndescription: Makes tea.\n---\n")
    model.add(Reply("one"), Reply("two"))
    with Terminal(cli, "run", "x") as terminal:
        terminal.expect("[y/N]")
        assert "the skill" in terminal.shown
        assert "Makes tea." in terminal.shown
        terminal.type("y\n")
        assert terminal.finish() == 0
    with Terminal(cli, "run", "x") as terminal:
        assert terminal.finish() == 0
        assert "[y/N]" not in terminal.shown
    for request in model.requests:
        assert "- theirs: Makes tea." in str(request.body["messages"][0])


def test_a_thread_is_shown_as_one_reads_it_on_a_terminal(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("Seen: **it**\n\n- one"))
    cli.run("run", "first\nsecond", "--thread", "t")
    with Terminal(cli, "show") as terminal:
        assert terminal.finish() == 0
        assert "User\n\nfirst\nsecond\n\nAgent\n\nSeen: it\n\n • one\n" in terminal.screen
    assert "## Agent\n\nSeen: **it**\n\n- one\n" in cli.run("show").stdout


def test_reasoning_is_one_dim_line_while_the_model_thinks(cli: Cli, model: OpenAIServer) -> None:
    thought = "".join(f"Idea {n}: " + "good " * 20 + "\n" for n in range(10_000))
    stalled = Reply("Four.", reasoning=thought, piece_size=20_000, fault="stall")
    model.add(stalled)
    with Terminal(cli, "run", "two and two?", "--thread", "t", columns=40) as terminal:
        terminal.see("step 1: thinking")
        terminal.see("Idea ")
        terminal.type("\x03")
        assert terminal.finish() == 130
    model.add(Reply("Four.", reasoning=thought, piece_size=20_000))
    with Terminal(cli, "resume", "t", columns=100) as terminal:
        assert terminal.finish() == 0
    assert "Reasoning: Idea 0: good" in terminal.shown
    assert "more characters" in terminal.shown
    assert "Idea 9:" not in terminal.shown, "the page and `show` have the whole of it"
