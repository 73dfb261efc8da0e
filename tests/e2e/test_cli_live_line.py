"""The input line of the chat while the agent works, with keys that are really typed."""

from collections.abc import Generator

import pytest

from tests.e2e.terminal import Terminal
from tests.e2e.test_cli_chat_terminal import said
from tests.e2e.test_cli_resume import SLOW, log_of, release
from tests.support.cli import Cli, until
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

CALL = Reply(calls=(Call("bash", {"command": SLOW}),))


@pytest.fixture(params=[100, 40])
def chat(cli: Cli, request: pytest.FixtureRequest) -> Generator[Terminal]:
    """A chat at a terminal of this width."""
    with Terminal(cli, "chat", "--workspace", "files", columns=request.param) as terminal:
        terminal.see("commands.")
        yield terminal


@pytest.fixture
def working(chat: Terminal, cli: Cli, model: OpenAIServer) -> Terminal:
    """The chat while a call runs, which `release` ends."""
    model.add(CALL)
    chat.type("first\r")
    until((cli.workspace / "begun").exists)
    return chat


def left(terminal: Terminal) -> str:
    terminal.type("/exit\r")
    assert terminal.finish() == 0
    return terminal.screen


def test_what_is_sent_steers_the_run(working: Terminal, cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("In euros."))
    working.type("in euros\r")
    working.see("  in euros\n  ↑ takes it back\n>")
    working.type("and not se")
    working.see("> and not se")
    release(cli)
    working.see("Read your message: in euros")
    working.see("In euros.\n")
    working.see("finished (answer)")
    working.see("\n> and not se")
    working.type("\x7f" * len("and not se"))
    assert "↑ takes it back" not in left(working)
    assert said(model) == ["first", "in euros"]
    assert len(model.requests) == 2


def test_keys_that_are_typed_while_no_line_is_read_are_kept(
    chat: Terminal, cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("Read."))
    chat.type("!touch begun; until [ -e go ]; do sleep 0.1; done\r")
    chat.see("Run it? [y/N]")
    chat.type("y\r")
    until((cli.workspace / "begun").exists)
    # The terminal by itself would drop what is longer than 4,095 characters.
    chat.type("no\x7f\x7f" + "word " * 1200 + "end\r")
    cli.write("files/go", "")
    chat.see("Read.")
    chat.see("finished (answer)")
    left(chat)
    assert said(model)[0].startswith("word " * 1200 + "end\n")


def test_a_paste_of_lines_is_one_message(working: Terminal, cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("Read."))
    working.paste("one\ntwo\nthree")
    working.see("> one\n  two\n  three")
    working.type("\r")
    working.see("  one two three\n")
    release(cli)
    working.see("Read.")
    left(working)
    assert said(model) == ["first", "one\ntwo\nthree"]


def test_ten_megabytes_are_pasted_while_the_agent_works(
    working: Terminal, cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("First done."), Reply("That is much."))
    pasted = "a line of a log\n" * 655_360
    working.paste(pasted)
    working.see("[paste 1: 10,485,760 characters, 655")
    working.type(" what?\r")
    working.type("next\r")
    working.see("  next\n  ↑ takes")
    release(cli)
    working.see("First done.")
    working.see("That is much.")
    model.add(Reply("Last."))
    working.see("Last.")
    left(working)
    (file,) = cli.workspace.glob("paste-*.txt")
    assert file.read_text() == pasted
    first, second, third = said(model)
    assert (first, third) == ("first", "next")
    assert f"(in the file {file.name}) what?" in second
    assert len(working.raw) < 200_000


def test_a_message_that_waits_is_taken_back_and_changed(
    working: Terminal, cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("Done."))
    working.type("one\r")
    working.see("  one\n  ↑ takes it back\n>")
    working.type("two\r")
    working.see("  one\n  two\n  ↑ takes it back\n>")
    working.type("\x1b[A")
    working.see("  one\n  ↑ takes it back\n> two")
    working.type(" and a half\r")
    working.see("  two and a half\n")
    release(cli)
    working.see("Done.")
    left(working)
    assert said(model) == ["first", "one", "two and a half"]


def test_escape_interrupts_and_what_waited_is_in_the_line(
    working: Terminal, cli: Cli, model: OpenAIServer
) -> None:
    working.type("later\r")
    working.see("  later\n")
    working.type("\x1b")
    working.see("Finishing the running step")
    release(cli)
    working.see("cancelled")
    working.see("\n> later")
    model.add(Reply("Now."))
    working.type(" then\r")
    working.see("Now.")
    left(working)
    assert log_of(cli) == "begun\nover\n"
    assert said(model) == ["first", "later then"]


def test_a_command_waits_for_the_end_and_so_does_what_follows_it(
    working: Terminal, cli: Cli, model: OpenAIServer
) -> None:
    cli.write("figures.csv", "a,b\n")
    model.add(Reply("One."), Reply("Two."))
    for sent in ("/cost", "see @figures.csv", "/exit"):
        working.type(f"{sent}\r")
        working.see(f"  {sent}\n  ↑ takes")
    release(cli)
    assert working.finish() == 0
    assert working.screen.index("One.") < working.screen.index("> /cost")
    assert "in this chat: 2 model calls" in working.screen.replace("\n", " ")
    assert said(model) == ["first", "see figures.csv\n\nFiles in the workspace: figures.csv"]


def test_a_question_takes_the_place_of_the_line(
    chat: Terminal, cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply(calls=(Call("ask_human", {"inquire": "Which?"}),)), CALL, Reply("Done."))
    chat.type("first\r")
    chat.see("Your answer:")
    chat.type("this\r")
    until((cli.workspace / "begun").exists)
    chat.type("more\r")
    chat.see("  more\n")
    release(cli)
    chat.see("Done.")
    left(chat)
    assert said(model) == ["first", "more"]
