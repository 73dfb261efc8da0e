"""The chat at a terminal, as a person sees it on the screen."""

import re
import signal

import pytest

from tests.e2e.terminal import Terminal
from tests.e2e.test_cli_resume import SLOW, log_of, release
from tests.support.cli import Cli, until
from tests.support.graphs import own_words
from tests.support.mcp_servers import file_of, raw
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow

READY = "/help lists the commands."
EDIT = {"command": "create", "path": "a.py", "file_text": "x = 1\n"}
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])[;m]")


def said(model: OpenAIServer) -> list[str]:
    sent = model.requests[-1].messages
    return [own_words(m["content"]) for m in sent if m["role"] == "user"]


@pytest.mark.usefixtures("real_start")
def test_openmanus_alone_opens_the_chat(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("# Hello\n\nThis is **bold**.\n\n- one\n- two\n"), Reply("And again."))
    with Terminal(cli, columns=80) as terminal:
        terminal.see(READY)
        terminal.type("first line\x1b\rsecond line\r")
        terminal.see("finished (answer) · 1 step · 120 tokens (40 cached) · $")
        assert "Hello\n\nThis is bold.\n\n • one\n • two\n" in terminal.screen
        terminal.see("openai:test-model · context 0% · $0")
        terminal.see(" · workspace/")
        terminal.type("\x1b[A")  # the arrow up
        terminal.see("  second line\n\n\n")
        terminal.type("\r")
        terminal.see("And again.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
        assert "[A" not in terminal.screen
        assert max(map(len, terminal.screen.splitlines())) <= 80
    assert said(model) == ["first line\nsecond line"] * 2


@pytest.mark.usefixtures("real_start")
def test_what_is_typed_ahead_is_one_message(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("Read."))
    with Terminal(cli, columns=80) as terminal:
        terminal.type("first line\x1b\rsecond line\r")  # before the editor takes the terminal
        terminal.see("Read.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert said(model) == ["first line\nsecond line"]


def test_a_tab_is_shown_as_room_and_sent_as_it_is(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("Read."))
    with Terminal(cli, "chat") as terminal:
        terminal.see(READY)
        terminal.paste("all:\n\tmake it")
        terminal.see("\n      make it")
        terminal.type("\r")
        terminal.see("Read.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert said(model) == ["all:\n\tmake it"]


def test_a_terminal_that_is_dumb_sends_no_commands_to_the_model(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("Read."))
    with Terminal(cli, "chat", env={"TERM": "dumb"}) as terminal:
        terminal.expect("> ")
        terminal.type("/help\n")
        terminal.expect("no commands but /exit")
        terminal.type("/etc/hosts is what?\n")
        terminal.expect("Read.")
        terminal.type("/exit\n")
        assert terminal.finish() == 0
    assert said(model) == ["/etc/hosts is what?"]


def test_commands_are_not_sent_to_the_model(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("str_replace_editor", EDIT),)), Reply("Written."))
    with Terminal(cli, "chat") as terminal:
        terminal.see(READY)
        for typed, shown in {
            "/help": "/exit     leave; the thread is kept",
            "/nope": "There is no command /nope.",
            "/model openai:other": "model openai:other",
            "/model acme:x": "unknown provider 'acme'",
            "/agent swe": "agent swe (there are:",
            "/agent nobody": "There is no agent 'nobody'",
            "/diff": "The editor has changed nothing",
            "/files": "There are no files in",
            "/resume": "Continue one of them",
            "/approve": "There is no conversation yet.",
            "/compact": "There is no conversation yet.",
            "write it": "Written.",
        }.items():
            terminal.type(f"{typed}\r")
            terminal.see(shown)
        for typed, shown in {
            "/diff": "  +    1 x = 1",
            "/tools": "  str_replace_editor     View, create and edit",
            "/files": "  a.py  6 bytes",
            "/cost": "in this chat: 2 model calls, 200 tokens in (80 cached), 40 out",
            "/plan": "This thread has no plan.",
            "/approve": "No call waits for you.",
            "/undo": "Nothing was said before the last message.",
            "/export": "Write /export FILE",
            "/export said.md": "said.md holds the conversation.",
            "/export said.html": "Open it in a browser.",
            "/memory": "There are no notes.",
            "/fork": "Go back to one of them: /fork NUMBER",
            "/fork 1": "begins after point 1",
            "/resume nobody": "There is no thread 'nobody'",
            "/new": "New thread ",
        }.items():
            terminal.type(f"{typed}\r")
            terminal.see(shown)
        assert "openmanus fork" not in terminal.shown, "a chat has a command of its own"
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert len(model.requests) == 2
    assert [request.body["model"] for request in model.requests] == ["other", "other"]
    assert said(model) == ["write it"]
    assert "write it" in (cli.cwd / "said.md").read_text()
    assert "write it" in (cli.cwd / "said.html").read_text()


def test_a_turn_is_undone_with_its_files(cli: Cli, model: OpenAIServer) -> None:
    for name in "ab":
        create = Call("str_replace_editor", {**EDIT, "path": f"{name}.py"})
        model.add(Reply(calls=(create,)), Reply(f"Made {name}."))
    model.add(Reply("Done."))
    with Terminal(cli, "chat") as terminal:
        terminal.see(READY)
        for name in "ab":
            terminal.type(f"make {name}\r")
            terminal.see(f"{name}.py (6 bytes)")  # of the end of the run
        terminal.type("/undo\r")
        terminal.see("begins after point")
        terminal.type("/files\r")
        terminal.see("  a.py  6 bytes")
        terminal.type("go on\r")
        terminal.see("Done.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
        assert "b.py  6 bytes" not in terminal.screen
    assert "make b" not in str(model.requests[-1].messages)


def test_a_turn_is_undone_in_the_folder_that_the_person_named(
    cli: Cli, model: OpenAIServer
) -> None:
    create = Call("str_replace_editor", {**EDIT, "path": "a.py"})
    model.add(Reply("Hello."), Reply(calls=(create,)), Reply("Made a."))
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see(READY)
        terminal.type("hello\r")
        terminal.see("Hello.")
        terminal.see("finished (answer)")
        terminal.type("make a\r")
        terminal.see("a.py (6 bytes)")
        terminal.type("/undo\r")
        terminal.see("begins after point")
        assert not (cli.workspace / "a.py").exists()
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert [one.name for one in cli.cwd.iterdir() if one.name.startswith("files")] == ["files"]


def test_what_a_command_of_the_chat_lacks_is_said_for_the_chat(cli: Cli) -> None:
    cli.use("http://127.0.0.1:9/v1")
    with Terminal(cli, "chat") as terminal:
        terminal.see(READY)
        for number, command in enumerate(("/fork", "/undo", "/export a.md", "/approve"), 1):
            terminal.type(f"{command}\r")
            terminal.see("There is no conversation yet.", number)
        terminal.type("/export a.ipynb\r")
        terminal.see("A conversation is written as .md or .html, not as .ipynb.")
        terminal.type("!exit 3\r")
        terminal.see("Run it? [y/N]")
        terminal.type("y\r")
        terminal.see("exit code 3")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert not [*cli.cwd.glob("a.*")]


def test_the_plan_of_the_planning_tool_is_the_threads_plan(cli: Cli, model: OpenAIServer) -> None:
    plan = {"command": "create", "plan_id": "p", "title": "Two", "steps": ["look", "write"]}
    model.add(Reply(calls=(Call("planning", plan),)), Reply("Planned."))
    with Terminal(cli, "chat", "--agent", "planner") as terminal:
        terminal.see(READY)
        terminal.type("plan it\r")
        terminal.see("Planned.")
        terminal.type("/plan\r")
        terminal.see("0: look (not started)")
        terminal.type("/exit\r")
        terminal.see("Continue with: openmanus chat --thread ")
        assert terminal.finish() == 0


def test_compact_makes_notes_before_the_next_message_is_answered(
    cli: Cli, model: OpenAIServer
) -> None:
    steps = [Reply(calls=(Call("bash", {"command": f"echo line {n}"}),)) for n in range(3)]
    model.add(
        *steps, Reply("Counted."), Reply("Notes: three lines."), Reply("Three."), Reply("No.")
    )
    with Terminal(cli, "chat") as terminal:
        terminal.see(READY)
        terminal.type("count\r")
        terminal.see("Counted.")
        terminal.type("/compact\r")
        terminal.see("the conversation is summarized")
        terminal.type("how many?\r")
        terminal.see("messages became a summary")
        terminal.see("Three.")
        terminal.type("sure?\r")
        terminal.see("No.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    *_, answered, again = model.requests
    for request in (answered, again):
        text = str(request.messages)
        assert "Notes: three lines." in text
        assert "echo line 1" not in text
        assert [word in text for word in ("count", "Counted.", "how many?")] == [True] * 3
    assert len(model.requests) == 7


def test_a_servers_prompt_is_put_into_the_line_to_be_read_and_sent(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("mcp.json", file_of(raw("books", way="library"), raw("broken", way="exit")))
    assert cli.run("trust").code == 0
    model.add(Reply("The report."))
    with Terminal(cli, "chat", columns=120) as terminal:
        terminal.see(READY)
        for typed, shown in {
            "/mcp": "  /mcp_books_report SUBJECT [TONE]  Write a report",
            "/tools": "MCP servers, with tools of their own: books, broken",
            "/mcp_books_gone": "There is no prompt /mcp_books_gone. /mcp lists them.",
            "/mcp_books_report": "Write /mcp_books_report SUBJECT [TONE]",
            "/mcp_books_report 'bees": "The arguments cannot be read: No closing quotation.",
            "/mcp_books_bare": ">  /exit [2Jnow",
        }.items():
            terminal.type(f"{typed}\r")
            terminal.see(shown)
        assert "The MCP server broken" in terminal.screen
        terminal.type("\x03")
        terminal.type("/mcp_books_report 'bees and @mcp.json' dry\r")
        terminal.see("> Report on bees and @mcp.json, dry.")
        assert model.requests == []
        terminal.type(" In German.\r")
        terminal.see("The report.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    sent = "Report on bees and @mcp.json, dry.\n\nChapter 1\n\n[image: not shown] In German."
    assert sent in said(model)


def test_ten_megabytes_are_pasted_as_one_message(cli: Cli, model: OpenAIServer) -> None:
    look = Reply(calls=(Call("bash", {"command": "head -c 99 paste-*.txt"}),))
    model.add(look, Reply("That is much."), Reply("A traceback."))
    pasted = "a line of a log\n" * 655_360
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see(READY)
        terminal.paste(pasted)
        terminal.see("[paste 1: 10,485,760 characters, 655,360 lines]")
        terminal.type(" what is it?\r")
        terminal.see("That is much.")
        terminal.paste("Traceback:\n  File 'a', line 1\nValueError: \x1b[2Jx")
        terminal.type("\r")
        terminal.see("A traceback.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
        assert len(terminal.raw) < 100_000, "it is told by its size, not printed"
    (file,) = cli.workspace.glob("paste-*.txt")
    assert file.read_text() == pasted
    first, second = said(model)
    assert f"(in the file {file.name}) what is it?" in first
    assert second == "Traceback:\n  File 'a', line 1\nValueError: [2Jx"


def test_a_named_file_is_completed_and_brought(cli: Cli, model: OpenAIServer) -> None:
    cli.write("figures.csv", "a,b\n")
    model.add(Reply("Two columns."))
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see(READY)
        terminal.type("look at @fig")
        terminal.see("figures.csv")
        terminal.type("\t\r")  # the only completion needs no choice: Enter sends
        terminal.see("Two columns.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert (cli.workspace / "figures.csv").read_text() == "a,b\n"
    assert said(model) == ["look at figures.csv\n\nFiles in the workspace: figures.csv"]


def test_a_wrong_file_does_not_end_the_chat(cli: Cli, model: OpenAIServer) -> None:
    cli.write("a.csv", "new")
    cli.write("files/a.csv", "other")
    model.add(Reply("Good."))
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see(READY)
        terminal.type("see @../project/a.csv\r")
        terminal.see("with other content")
        terminal.type("then without\r")
        terminal.see("Good.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0


def test_ctrl_c_takes_the_line_back_and_leaves_at_the_second_time(cli: Cli) -> None:
    with Terminal(cli, "chat") as terminal:
        terminal.see(READY)
        terminal.type("never sent")
        terminal.see("> never sent")
        terminal.type("\x03")
        terminal.type("\x03")
        terminal.see("Ctrl-C again, Ctrl-D or /exit leaves.")
        terminal.type("\x03")
        assert terminal.finish() == 130


def test_a_running_call_shows_its_newest_output_and_a_resized_terminal_stays_right(
    cli: Cli, model: OpenAIServer
) -> None:
    command = f"printf '\\033]0;pwned\\007newest words\\n'; {SLOW}"
    model.add(Reply(calls=(Call("bash", {"command": command}),)), Reply("word " * 30))
    with Terminal(cli, "run", "go", "--workspace", "files", columns=100) as terminal:
        terminal.see("newest words")
        terminal.resize(60)
        release(cli)
        assert terminal.finish() == 0
        assert "\x1b]0" not in terminal.raw
        assert terminal.screen.count("word word word") > 0
        wrapped = [line for line in terminal.screen.splitlines() if line.startswith("word")]
        assert " ".join(wrapped).split() == ["word"] * 30
        assert max(map(len, wrapped)) <= 60


def test_a_terminal_that_is_closed_in_mid_call_leaves_a_thread_to_go_on_with(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply(calls=(Call("bash", {"command": SLOW}),)), Reply("Finished."))
    with Terminal(cli, "chat", "--thread", "t", "--workspace", "files") as terminal:
        terminal.see(READY)
        terminal.type("slow\r")
        until((cli.workspace / "begun").exists)
        terminal.hang_up()
        release(cli)
        assert terminal.finish() == 128 + signal.SIGHUP
    assert log_of(cli) == "begun\nover\n"
    assert cli.run("resume").stdout == "Finished.\n"
    assert log_of(cli) == "begun\nover\n"


def test_without_colours_none_are_written(cli: Cli, model: OpenAIServer) -> None:
    model.add(
        Reply(calls=(Call("str_replace_editor", EDIT),)), Reply("```python\nx = 1\n```\n*so*")
    )
    with Terminal(cli, "run", "x", env={"NO_COLOR": "1"}) as terminal:
        assert terminal.finish() == 0
        assert not COLOUR.search(terminal.raw)
        assert "✓ write a.py, 1 line" in terminal.screen
    model.add(Reply("`code`"))
    with Terminal(cli, "run", "x") as terminal:
        assert terminal.finish() == 0
        assert COLOUR.search(terminal.raw)


def test_no_block_is_lost_while_others_stream(cli: Cli, model: OpenAIServer) -> None:
    blocks = [f"Paragraph {n} of them.\n\n- item {n}\n\n`code {n}`" for n in range(40)]
    model.add(Reply("\n\n".join(blocks), piece_size=3))
    with Terminal(cli, "run", "x") as terminal:
        assert terminal.finish() == 0
        lines = [line for line in terminal.screen.splitlines() if line.strip()]
    wanted = [f"{kind} {n}" for n in range(40) for kind in ("Paragraph", "item", "code")]
    shown = [line.strip(" •").removesuffix(" of them.") for line in lines[:-1]]
    assert shown[shown.index("Paragraph 0") :] == wanted


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_words_wrap_at_words_at_any_width(cli: Cli, model: OpenAIServer, columns: int) -> None:
    words = [f"word{n}" for n in range(60)]
    model.add(Reply(" ".join(words)))
    with Terminal(cli, "run", "x", columns=columns) as terminal:
        assert terminal.finish() == 0
        lines = [line for line in terminal.screen.splitlines() if line.startswith("word")]
    assert " ".join(lines).split() == words
    assert max(map(len, lines)) > columns - 10


def test_a_command_of_the_person_runs_in_the_workspace_and_the_agent_reads_it(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("Seen."), Reply("Again."))
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see(READY)
        terminal.type("!echo no > made\r")
        terminal.see("Run it? [y/N]")
        terminal.type("\r")
        terminal.type("!echo $((6 * 7)); pwd; exit 3\r")
        terminal.see("Run it? [y/N]")
        terminal.type("y\r")
        terminal.see("\n42\n")
        terminal.type("!echo once\r")  # the session was asked
        terminal.see("\nonce\n")
        terminal.type("what is it?\r")
        terminal.see("finished (answer)")
        terminal.type("and now?\r")
        terminal.see("Again.")
        terminal.type("!touch begun; exec sleep 600\r")
        until((cli.workspace / "begun").exists)
        terminal.type("\x03")
        terminal.see("(no output)")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    first, second = said(model)
    assert first.startswith(
        "what is it?\n\nI ran `echo $((6 * 7)); pwd; exit 3` (exit code 3):\n42"
    )
    assert first.endswith("/files\n\nI ran `echo once` (exit code 0):\nonce")
    assert second == "and now?"
    assert not (cli.workspace / "made").exists()


def test_files_are_found_by_some_letters_and_a_missing_one_is_named(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("README.md", "Read me.\n")
    cli.write("files/src/code.py", "x = 1\n")
    read = Reply(calls=(Call("read_file", {"path": "README.md"}),))
    model.add(read, Reply("Read."), Reply("Looked."))
    with Terminal(cli, "chat", "--workspace", "files") as terminal:
        terminal.see(READY)
        terminal.type("read @rea")
        terminal.see("README.md")
        terminal.type("\t\r")
        terminal.see("finished (answer)")
        terminal.type("see @src/ and @gone.md\r")
        terminal.see("There is no file @gone.md: it is sent as text.")
        terminal.see("Looked.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    first, second = said(model)
    assert first == "read README.md\n\nFiles in the workspace: README.md"
    assert second == "see src and @gone.md"


def test_a_thread_is_picked_by_arrows_and_its_end_is_shown_again(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply("The **first** answer."), Reply("The second answer."), Reply("Third."))
    for name in ("one", "two"):
        assert cli.run("run", f"say {name}", "--thread", f"{name}-1").code == 0
    with Terminal(cli, "chat", "--continue") as terminal:
        terminal.see(READY)
        shown = terminal.screen
        assert shown.index("say two") < shown.index("The second answer.")
        assert "The first answer." not in shown
        terminal.type("/resume\r")
        terminal.see("or choose with the arrows.")
        terminal.type("\x1b[B\x1b[B")
        terminal.see("Thread: one-1")
        terminal.type("\r")
        terminal.see("The first answer.")
        terminal.type("more\r")
        terminal.see("Third.")
        terminal.type("/exit\r")
        assert terminal.finish() == 0
    assert said(model) == ["say one", "more"]
