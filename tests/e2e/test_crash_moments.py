"""Crashes at moments of their own: each is one that a kill at random would seldom hit."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from tests.e2e.terminal import Terminal
from tests.support.cli import Cli, Event, until
from tests.support.crash import Kill, Ordeal, lives, strays
from tests.support.crash_script import (
    ANSWER,
    TASK,
    THREAD,
    asks_for_summary,
    bring_tool,
    call_for,
    decide,
)
from tests.support.graphs import own_words
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Answer, Call, Reply
from tests.support.openai_server import OpenAIServer, Request
from tests.support.sampling import sampled
from tests.support.zygote import Zygote

pytestmark = pytest.mark.slow

Make = Callable[..., Ordeal]
"""Takes the model, by default the one that looks before it repeats, and its server's class."""


@pytest.fixture
def make(tmp_path: Path, zygote: Zygote) -> Iterator[Make]:
    """Makes the test's ordeal, with its model server running."""
    with contextlib.ExitStack() as stack:

        def ordeal(
            model: Answer = decide, make_server: type[OpenAIServer] = OpenAIServer
        ) -> Ordeal:
            made = Ordeal(tmp_path / "cli", zygote, model=model, make_server=make_server)
            stack.enter_context(made.server)
            return made

        yield ordeal


def nth(number: int, kind: str) -> Callable[[Event], bool]:
    """Mean the event of a kind that comes so often."""
    left = [None] * number

    def meant(event: Event) -> bool:
        if event["type"] == kind and left:
            left.pop()
            return not left
        return False

    return meant


def first_time(different: Callable[[dict[str, Any]], Reply | None]) -> Answer:
    """Make a model that answers one request in another way: the first it has one for."""
    done = threading.Event()

    def answer(body: dict[str, Any]) -> Reply:
        reply = None if done.is_set() else different(body)
        if reply is None:
            return decide(body)
        done.set()
        return reply

    return answer


def forget(ordeal: Ordeal) -> None:
    """Lose all checkpoints."""
    for path in ordeal.checkpoints():
        path.unlink()


def test_while_the_model_streams(make: Make, undisturbed: Ordeal) -> None:
    ordeal = make(first_time(lambda _: Reply("Step 1 is a long one.", fault="stall")))
    ordeal.go_on(Kill(nth(1, "token")))
    assert [event["type"] for event in ordeal.lives[0].events][-1] == "token"
    first, second = ordeal.server.requests[:2]
    assert first.messages == second.messages
    ordeal.check(undisturbed)


class SlowReader(OpenAIServer):
    """Reads one request only after a while, as a server does that has much to do."""

    late = -1
    """Its position."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # the base class's own
        super().__init__(*args, **kwargs)
        self.sent, self.read = threading.Event(), threading.Event()

    @override
    def next_reply(self, request: Request) -> tuple[Reply, int]:
        if len(self.requests) == self.late and not self.sent.is_set():
            self.sent.set()
            self.read.wait(BACKSTOP_S)
        return super().next_reply(request)


@pytest.mark.parametrize(
    "place", sampled(((0, 2, None), (1, 1, Kill(5, whole=False))), 1, "requests")
)
def test_while_a_request_is_on_its_way(
    make: Make, undisturbed: Ordeal, place: tuple[int, int, Kill | None]
) -> None:
    spared, step, again = place
    ordeal = make(make_server=SlowReader)
    server = ordeal.server
    assert isinstance(server, SlowReader)
    server.late = spared + 1

    def read_in_the_next_life(_: Event) -> None:
        if len(ordeal.lives) > spared:
            server.read.set()

    ordeal.watch = read_in_the_next_life
    kill = Kill(nth(step, "think_start"), until=lambda: server.sent.wait(BACKSTOP_S))
    ordeal.go_on(*[None] * spared, kill, again)
    assert len(ordeal.requests_of(spared)) == step
    ordeal.check(undisturbed)


@pytest.mark.parametrize("moment", sampled(("in flight", "after"), 1, "compaction"))
def test_while_the_conversation_is_compacted(make: Make, undisturbed: Ordeal, moment: str) -> None:
    asked, stopping = threading.Event(), threading.Event()
    notes_made = threading.Event()

    def different(body: dict[str, Any]) -> Reply | None:
        if asked.is_set():
            return None
        if asks_for_summary(body) and moment == "after":
            notes_made.set()
            return None
        if not asks_for_summary(body) and not notes_made.is_set():
            return None
        asked.set()
        stopping.wait(BACKSTOP_S)
        return Reply("too late")

    ordeal = make(first_time(different))
    ordeal.go_on(None, Kill(nth(5, "tool_end"), delay_s=0, until=lambda: asked.wait(BACKSTOP_S)))
    stopping.set()
    assert ordeal.lives[1].killed
    ordeal.check(undisturbed)


@pytest.mark.parametrize(
    ("reply", "rung", "result"),
    [
        (("--approve",), "r1\nr1\n", "rang r1"),
        (("--reject", "--reason", "I heard it."), "r1\n", "not to repeat it. I heard it."),
        (("--answer", "It rang at noon."), "r1\n", "It rang at noon."),
    ],
)
def test_an_external_call_in_flight_is_asked_about_and_its_sibling_stands(
    make: Make, reply: tuple[str, ...], rung: str, result: str
) -> None:
    ordeal = make(one_step("f1", "r1"))
    hold = ordeal.cli.write("files/hold", "")
    bell = ordeal.cli.workspace / "ring.log"
    ordeal.live(ordeal.run_argv(), Kill(nth(1, "tool_end"), until=lambda: until(bell.exists)))
    assert [tool for tool, _ in outputs(ordeal.lives[0].events)] == ["str_replace_editor"]
    hold.unlink()
    asked = ordeal.live(("resume", THREAD), None)
    assert (asked.code, asked.final["stop_reason"]) == (4, "unknown_outcome")
    assert (asked.events[-2]["type"], asked.events[-2]["kind"]) == ("interrupt", "unknown_outcome")
    done = ordeal.live(("resume", THREAD, *reply), None)
    assert (done.code, done.final["answer"]) == (0, "Done.")
    assert ordeal.files()["ring.log"] == rung
    assert ordeal.files()["plan.md"] == "# Lines\nf1\n"
    assert result in ordeal.server.requests[-1].messages[-1]["content"]
    assert len(ordeal.server.requests) == 2


def one_step(*lines: str, ending: Reply | None = None) -> Answer:
    """Make a model that writes some lines at once and then ends."""

    def answer(body: dict[str, Any]) -> Reply:
        if any(message["role"] == "tool" for message in body["messages"]):
            return ending or Reply("Done.")
        return Reply("I begin.", calls=tuple(map(call_for, lines)))

    return answer


def test_outcomes_stand_when_their_checkpoint_is_lost(
    make: Make, undisturbed: Ordeal, tmp_path: Path
) -> None:
    ordeal = make()
    saved = tmp_path / "saved"

    def save_at_first_call(event: Event) -> None:
        if event["type"] == "tool_start" and not saved.exists():
            saved.mkdir()
            for path in ordeal.checkpoints():
                shutil.copy(path, saved)

    ordeal.watch = save_at_first_call
    ordeal.live(ordeal.run_argv(), Kill(nth(5, "tool_end")))
    forget(ordeal)
    for path in saved.iterdir():
        shutil.copy(path, ordeal.cli.home)
    ordeal.go_on()
    first, second = (outputs(life.events)[:5] for life in ordeal.lives[:2])
    assert sorted(first) == sorted(second)
    ordeal.check(undisturbed)


def outputs(events: Sequence[Event]) -> list[tuple[str, str]]:
    return [(event["tool"], event["output"]) for event in events if event["type"] == "tool_end"]


def test_outcomes_stand_when_all_checkpoints_are_lost(make: Make, undisturbed: Ordeal) -> None:
    ordeal = make()
    ordeal.live(ordeal.run_argv(), None)
    assert ordeal.lives[0].code == 4
    forget(ordeal)
    again = ordeal.live(("resume", THREAD), Kill(nth(5, "tool_end")))
    assert sorted(outputs(again.events)) == sorted(outputs(ordeal.lives[0].events)[:5])
    forget(ordeal)
    ordeal.go_on()
    ordeal.check_end(undisturbed)
    with pytest.raises(AssertionError, match="repeated in vain"):
        ordeal.check_requests()


def test_between_the_results_and_the_checkpoint_of_their_step(
    make: Make, undisturbed: Ordeal
) -> None:
    ordeal = make()
    ordeal.live(ordeal.run_argv(), Kill(nth(2, "think_start")))
    with contextlib.closing(sqlite3.connect(ordeal.cli.home / "checkpoints.db")) as database:
        sent = "SELECT max(checkpoint_id) FROM writes WHERE task_path LIKE '%push%'"
        database.execute(f"DELETE FROM checkpoints WHERE checkpoint_id > ({sent})")
        database.execute(f"DELETE FROM writes WHERE checkpoint_id > ({sent})")
        database.commit()
    ordeal.go_on()
    assert [event["type"] for event in ordeal.lives[1].events][:2] == ["run_start", "think_start"]
    ordeal.check(undisturbed)


@pytest.mark.parametrize("event", sampled(("tool_start", "tool_end"), 1, "terminate"))
def test_while_terminate_ends_the_run(make: Make, event: str) -> None:
    terminate = Call("terminate", {"status": "success"})
    ordeal = make(one_step("b1", ending=Reply("All done.", calls=(terminate,))))
    ordeal.go_on(Kill(nth(2, event)))
    done = ordeal.lives[-1]
    assert (done.final["stop_reason"], done.final["answer"]) == ("terminate", "All done.")
    assert [artifact["path"] for artifact in done.final["artifacts"]] == ["bash.log"]
    assert ordeal.files()["bash.log"] == "b1\n"
    assert len(ordeal.server.requests) == 2


def test_before_the_first_checkpoint_the_whole_message_is_kept(make: Make) -> None:
    ordeal = make(Reply("Seen."))
    ordeal.cli.write("openmanus.toml", "[llm]\nsees_images = true\n")
    ordeal.cli.write("dot.png", bytes.fromhex(PNG))
    ordeal.live((*ordeal.run_argv(), "--image", "dot.png"), Kill(nth(1, "run_start")))
    forget(ordeal)
    done = ordeal.live(("resume", THREAD), None)
    assert (done.code, done.final["answer"]) == (0, "Seen.")
    text, picture = ordeal.server.requests[-1].messages[1]["content"]
    assert own_words(text["text"]) == f"{TASK}\n\nFiles in the workspace: notes.md, plan.md"
    assert picture["image_url"]["url"].startswith("data:image/png;base64,")


PNG = (
    "89504e470d0a1a0a0000000d494844520000000100000001080000000"
    "03a7e9b550000000a4944415478da6364000000040002d0b1c7d40000000049454e44ae426082"
)


def repeat(body: dict[str, Any]) -> Reply:
    return Reply(f"Heard: {own_words(body['messages'][-1]['content'])}")


def test_before_the_first_checkpoint_of_a_second_task(make: Make, tmp_path: Path) -> None:
    ordeal = make(repeat)
    ordeal.live(("run", "one", "--thread", THREAD), None)
    shutil.copytree(ordeal.cli.home, tmp_path / "saved")
    ordeal.live(("run", "two", "--thread", THREAD), Kill(nth(1, "run_start")))
    forget(ordeal)
    for path in (tmp_path / "saved").glob("checkpoints.db*"):
        shutil.copy(path, ordeal.cli.home)
    done = ordeal.live(("resume", THREAD), None)
    assert (done.code, done.final["answer"]) == (0, "Heard: two")


@pytest.mark.parametrize("status", ["success", "failure"])
def test_between_the_end_and_the_answer(make: Make, status: str) -> None:
    end = Call("terminate", {"status": status})
    ordeal = make(Reply("The answer.", calls=(end,)))
    reported = ordeal.live(("run", "one", "--thread", THREAD), None)
    with contextlib.closing(sqlite3.connect(ordeal.cli.home / "openmanus.db")) as database:
        database.execute("UPDATE threads SET status = 'running'")  # as it was until a moment ago
        database.commit()
    again = ordeal.live(("resume", THREAD), None)
    for key in ("status", "stop_reason", "answer", "usage"):
        assert again.final[key] == reported.final[key]
    assert again.code == reported.code
    assert len(ordeal.server.requests) == 1


def test_a_new_message_after_a_crash_is_told_what_may_have_run(make: Make) -> None:
    ordeal = make(one_step("r1"))
    hold = ordeal.cli.write("files/hold", "")
    bell = ordeal.cli.workspace / "ring.log"
    ordeal.live(ordeal.run_argv(), Kill(nth(1, "tool_start"), until=lambda: until(bell.exists)))
    hold.unlink()
    done = ordeal.live(("run", "never mind", "--thread", THREAD), None)
    assert (done.code, done.final["answer"]) == (0, "Done.")
    reported = [m["content"] for m in ordeal.server.requests[-1].messages if m["role"] == "tool"]
    assert "may have run" in reported[0]
    assert "Look at what is there" in reported[0]


def test_while_a_question_waits_at_a_terminal(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(call_for("c1"),)), Reply("Blue then."))
    with Terminal(cli, "run", "paint", "--thread", THREAD) as terminal:
        terminal.expect("Your answer:")
        terminal.kill()
        assert terminal.finish() < 0
    assert "interrupted" in cli.run("threads").stdout
    done = cli.run("resume", THREAD, "--answer", ANSWER, "--json")
    assert (done.code, done.final["answer"]) == (0, "Blue then.")
    assert model.requests[-1].messages[-1]["content"] == ANSWER


def test_a_chat_goes_on_with_the_turn_that_was_cut_off(cli: Cli, model: OpenAIServer) -> None:
    late = Reply("The second answer is slow.", fault="stall", piece_size=2)
    model.add(Reply("The first."), late, Reply("The second."))
    with Terminal(cli, "chat", "--thread", THREAD) as terminal:
        terminal.see("/help lists the commands.")
        terminal.type("one\n")
        terminal.see("The first.")
        terminal.type("two\n")
        terminal.see("The second")
        terminal.kill()
        assert terminal.finish() < 0
    done = cli.run("resume", THREAD, "--json")
    assert (done.code, done.final["answer"]) == (0, "The second.")
    sent = model.requests[-1].messages
    said = [own_words(m["content"]) for m in sent if m["role"] != "system"]
    assert said == ["one", "The first.", "two"]


@pytest.mark.parametrize("sandbox", ["auto", "none"])
def test_killed_alone_nothing_it_started_stays(cli: Cli, model: OpenAIServer, sandbox: str) -> None:
    # Without namespaces nothing can hold a process that wants to get away.
    daemon = "(setsid sleep 1001 &); " if sandbox == "auto" else ""
    job = Call("bash", {"command": f"{daemon}sleep 1000 & sleep 1002 & touch begun"})
    python = Call("python_execute", {"code": "import time; open('warm', 'w'); time.sleep(1003)"})
    model.add(Reply(calls=(job, python)))
    running = cli.start(
        "run", "x", "--thread", THREAD, "--workspace", "files", "--sandbox", sandbox
    )
    until(lambda: all((cli.workspace / name).exists() for name in ("begun", "warm")))
    family = running.family()
    running.process.kill()
    running.finish()
    assert len(family) > 4
    until(lambda: not any(map(lives, family)) and not strays(cli.root))


APP = """
import asyncio
import sys

from langchain_core.messages import HumanMessage
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command

from openmanus_graph import Context, build_manus_graph


async def main() -> None:
    begin, answer = {"messages": [HumanMessage("write")]}, Command(resume="it rang once")
    given = {"begin": begin, "go on": None, "answer": answer}[sys.argv[1]]
    config = {"configurable": {"thread_id": "t"}}
    context = Context(workspace="files", sandbox="none", policy="auto")
    async with AsyncSqliteSaver.from_conn_string("own.db") as saver:
        graph = build_manus_graph(checkpointer=saver)
        await graph.ainvoke(given, config, context=context, durability="sync")
        state = await graph.aget_state(config)
        print([waiting.value["kind"] for waiting in state.interrupts], state.values.get("answer"))


asyncio.run(main())
"""


@pytest.mark.exhaustive
def test_an_app_with_a_checkpointer_of_its_own(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(call_for("b1"), call_for("r1"))), Reply("Done."))
    bring_tool(cli)
    cli.write("app.py", APP)
    hold = cli.write("files/hold", "")

    def app(what: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "app.py", what],
            cwd=cli.cwd,
            env=cli.env,
            stdout=subprocess.PIPE,
            text=True,
        )

    with app("begin") as process:
        bell = cli.workspace / "ring.log"
        until(lambda: concluded(cli.home) == ["bash"] and bell.exists())
        process.kill()
    hold.unlink()
    for what, shown in (("go on", "['unknown_outcome'] None"), ("answer", "[] Done.")):
        with app(what) as process:
            assert process.communicate(timeout=BACKSTOP_S)[0].strip() == shown
    assert (cli.workspace / "bash.log").read_text() == "b1\n"
    assert (cli.workspace / "ring.log").read_text() == "r1\n"
    assert [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"] == [
        "b1",
        "it rang once",
    ]


def concluded(home: Path) -> list[str]:
    """Return the tools whose calls have an outcome in the ledger."""
    if not (home / "openmanus.db").exists():
        return []
    with contextlib.closing(sqlite3.connect(home / "openmanus.db")) as database:
        try:
            rows = database.execute("SELECT tool FROM ledger WHERE stage = 'done'").fetchall()
        except sqlite3.OperationalError:  # the table is not there yet
            return []
    return [tool for (tool,) in rows]
