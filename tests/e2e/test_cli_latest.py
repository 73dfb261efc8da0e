"""Threads without typing ids: the latest, a beginning of an id, and the shell's completion."""

import pytest

from tests.e2e.terminal import Terminal
from tests.support.cli import Cli
from tests.support.graphs import own_words
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

ASK = Reply(calls=(Call("ask_human", {"inquire": "Which?"}),))


def test_the_latest_thread_goes_on_without_its_id(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("old"), ASK, Reply("Blue."), Reply("More."), Reply("Talk."))
    assert cli.run("run", "first", "--thread", "old").code == 0
    assert cli.run("run", "second", "--thread", "new").code == 4
    assert cli.run("resume", "--answer", "blue").stdout == "Blue.\n"
    assert cli.run("run", "third", "--continue").stdout == "More.\n"
    assert cli.run("chat", "--continue", stdin="fourth\n").stdout == "Talk.\n"
    sent = model.requests[-1].messages
    said = [own_words(m["content"]) for m in sent if m["role"] == "user"]
    assert said == ["second", "third", "fourth"]
    assert cli.run("show").stdout.startswith("# Thread new\n")


def test_a_chat_says_which_thread_it_goes_on_with_and_what_is_open_in_it(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(ASK, Reply("Blue."))
    assert cli.run("run", "paint\nit \x1b[2J", "--thread", "new").code == 4
    with Terminal(cli, "chat", "--continue") as terminal:
        terminal.see("Thread new, waiting: paint it [2J. It waits for you: /resume asks again")
        terminal.see("/help lists the commands.")
        terminal.type("/resume\r")
        terminal.see("? Which?")
        terminal.type("blue\r")
        terminal.see("Blue.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    with Terminal(cli, "chat", "--continue") as terminal:
        terminal.see("Thread new, finished: paint it [2J.\n")
        terminal.type("/exit\r")
        terminal.finish()


def test_a_beginning_that_only_one_id_has_is_enough(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("a"), Reply("b"), Reply("c"), Reply("d"))
    for name in ("report-one", "report-two", "other"):
        assert cli.run("run", f"for {name}", "--thread", name).code == 0
    assert cli.run("show", "report-o").stdout.startswith("# Thread report-one\n")
    assert cli.run("export", "report-o").stdout.startswith("# for report-one\n")
    done = cli.run("show", "report")
    assert (done.code, done.stdout) == (2, "")
    assert "2 threads begin with 'report': report-" in done.stderr
    assert "There is no thread 'oth'" in cli.run("show", "oth").stderr, "too short to be sure"
    assert cli.run("run", "x", "--thread", "report-o").code == 0, "a name of its own"
    assert cli.run("show", "report-o").stdout.startswith("# Thread report-o\n")
    assert "Deleted thread report-two" in cli.run("threads", "--delete", "report-t").stderr


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("resume",), "There are no threads"),
        (("show",), "There are no threads"),
        (("run", "x", "--continue"), "There are no threads"),
        (("run", "x", "--continue", "--thread", "t"), "remove it or --thread"),
    ],
)
def test_where_there_is_no_latest_thread_it_says_so(
    cli: Cli, command: tuple[str, ...], words: str
) -> None:
    done = cli.run(*command)
    assert (done.code, done.stdout) == (2, "")
    assert words in done.stderr


def test_the_list_of_threads_fits_a_terminal(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("a"), Reply("b"))
    task = "a long task that has more words than any terminal has columns, and then some more"
    assert cli.run("run", task).code == 0
    assert cli.run("run", task, "--thread", "named", "--agent", "data_analysis").code == 0
    with Terminal(cli, "threads", columns=80) as terminal:
        assert terminal.finish() == 0
        head, *rows = terminal.screen.splitlines()
    assert head.split() == ["thread", "status", "agent", "updated", "title"]
    assert [row.split()[:3] for row in rows][0] == ["named", "finished", "data_analysis"]
    short = rows[1].split()[0]
    assert len(rows) == 2
    assert len(short) == 8
    assert all("a long task" in row for row in rows)
    assert cli.run("show", short).stdout.startswith(f"# Thread {short}")


def test_the_version_and_completion(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("a"))
    assert cli.run("--version").stdout.startswith("openmanus 0.")
    assert cli.run("run", "x", "--thread", "the-thread").code == 0
    for shell in ("bash", "zsh", "fish"):
        variables = {"_OPENMANUS_COMPLETE": f"complete_{shell}"}
        variables |= {"COMP_WORDS": "openmanus show the", "COMP_CWORD": "2"}
        variables |= {"_TYPER_COMPLETE_ARGS": "openmanus show the"}
        variables |= {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
        assert "the-thread" in cli.run(env=variables).stdout


def test_without_a_terminal_openmanus_alone_shows_its_help(cli: Cli) -> None:
    done = cli.run()
    assert (done.code, done.stdout) == (2, "")
    assert "Without a command it opens the chat." in done.stderr
