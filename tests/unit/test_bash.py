import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from langchain_core.tools import StructuredTool

from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.shell import Shell
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash
from tests.support.cli import until
from tests.support.sandboxes import sandbox_settings


@pytest.fixture(params=["bwrap", "none", "ssh"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    root = tmp_path / "here"
    root.mkdir()
    opened = tool_session(root, sandbox=sandbox_settings(request))
    yield opened
    opened.close()


async def run(
    session: Session, command: str = "", *, restart: bool = False, timeout_s: int = 120
) -> Observation:
    assert isinstance(bash, StructuredTool)
    assert bash.coroutine is not None
    _, observation = await bash.coroutine(
        command=command, restart=restart, timeout_s=timeout_s, runtime=tool_runtime(session)
    )
    assert isinstance(observation, Observation)
    return observation


async def text(session: Session, command: str = "", *, timeout_s: int = 120) -> str:
    return (await run(session, command, timeout_s=timeout_s)).text


@pytest.mark.slow
def test_variables_and_folder_persist_across_event_loops(session: Session) -> None:
    asyncio.run(text(session, "x=41; mkdir d; cd d"))
    shown = asyncio.run(text(session, "echo $x ${PWD##*/}"))
    assert shown == "41 d"


@pytest.mark.slow
async def test_shell_starts_in_the_workspace(session: Session) -> None:
    inside = sandbox_of(session).backend.inside
    assert await text(session, "pwd") == inside(session.workspace.root)


@pytest.mark.slow
async def test_heredoc_comment_quotes_and_lines(session: Session) -> None:
    assert await text(session, 'cat <<EOF\nit\'s "$((1+1))"\nEOF') == 'it\'s "2"'
    assert await text(session, "echo a # comment") == "a"
    assert await text(session, "for i in 1 2\ndo\n  echo 'it'\"'\"$i\ndone") == "it'1\nit'2"


async def test_both_streams_are_shown_in_order_with_the_exit_code(session: Session) -> None:
    seen = await run(session, "echo one; echo two >&2; echo three; false")
    assert seen.text == "one\ntwo\nthree\n[exit code 1]"
    assert seen.failed


@pytest.mark.slow
async def test_warning_does_not_fail_or_hide_output(session: Session) -> None:
    seen = await run(session, "echo warning >&2; echo out")
    assert (seen.text, seen.failed) == ("warning\nout", False)


@pytest.mark.slow
async def test_syntax_error_leaves_the_shell_usable(session: Session) -> None:
    assert (await run(session, "if true; then")).failed
    assert await text(session, "echo ok") == "ok"


@pytest.mark.slow
async def test_no_output_is_said(session: Session) -> None:
    assert await text(session, "true") == "(no output)"


@pytest.mark.slow
async def test_input_ends_at_once(session: Session) -> None:
    assert await text(session, "cat; read x; echo end") == "end"


@pytest.mark.slow
async def test_megabytes_are_cut_and_kept(session: Session) -> None:
    first = await text(session, "head -c 50000000 /dev/zero | tr '\\0' 'x'")
    second = await text(session, "head -c 50000000 /dev/zero | tr '\\0' 'x'")
    assert first == second
    assert len(first) < 8500
    found = re.search(r"the whole is in (\S+)", first)
    assert found is not None
    assert (session.workspace.root / found[1]).stat().st_size == 50_000_000


@pytest.mark.slow
async def test_invalid_utf8_is_replaced(session: Session) -> None:
    assert await text(session, "printf 'a\\377b'") == "a�b"


@pytest.mark.slow
async def test_background_job_returns_at_once_and_can_be_read_later(session: Session) -> None:
    seen = await text(session, "mkfifo go; { read x <go; echo later; } & echo now")
    assert seen.startswith("now\n[Running in the background: ")
    found = re.search(r"output goes to (\S+)\.\]", seen)
    assert found is not None
    # In between, bash may say that the job is done.
    assert (await text(session, f"echo 1 >go; wait; tail -n 1 {found[1]}")).endswith("later")
    assert "later" in await text(session)


@pytest.mark.slow
async def test_ctrl_c_ends_background_jobs(session: Session) -> None:
    assert "sleep 1000" in await text(session, "sleep 1000 &")
    assert "sleep 1000" in await text(session)
    await text(session, "ctrl+c")
    assert await text(session) == "(nothing new; nothing runs in the background)"


@pytest.mark.parametrize("slow", ["sleep 1000", "while :; do :; done", "sleep 1000 | cat"])
@pytest.mark.slow
async def test_time_limit_keeps_output_and_variables(session: Session, slow: str) -> None:
    seen = await run(session, f"y=7; echo before; ({slow}); echo after", timeout_s=1)
    assert seen.text.startswith("before\n")
    assert "[Interrupted after 1 s" in seen.text
    assert seen.failed
    assert await text(session, "echo $y") == "7"


@pytest.mark.parametrize("session", ["bwrap", "none"], indirect=True)
@pytest.mark.slow
async def test_a_command_that_ignores_the_interrupt_is_killed(session: Session) -> None:
    deaf = "y=7; (trap '' INT; echo before; sleep 1000); echo after"
    seen = await run(session, deaf, timeout_s=1)
    assert seen.text.startswith("before\n")
    assert "[Interrupted after 1 s" in seen.text
    assert await text(session, "echo $y") == "7"


@pytest.mark.slow
async def test_shell_that_obeys_nothing_is_replaced(session: Session) -> None:
    seen = await text(session, "trap '' INT; echo a; while :; do :; done", timeout_s=1)
    assert seen.startswith("a\n[The command did not stop")
    assert (await text(session, "echo new")).endswith("This is a new one, in the workspace.]\nnew")


@pytest.mark.slow
async def test_exit_is_reported_and_the_next_call_opens_a_shell(session: Session) -> None:
    seen = await run(session, "echo bye; exit 3")
    assert seen.failed
    assert seen.text.startswith("bye\n[The shell ended with exit code 3.")
    assert (await text(session, "echo new")).endswith("]\nnew")


@pytest.mark.slow
async def test_set_e_lasts_for_one_command_only(session: Session) -> None:
    await text(session, "set -eu")
    assert await text(session, "false; echo $undefined on") == "on"


@pytest.mark.slow
async def test_restart_gives_a_new_shell(session: Session) -> None:
    await text(session, "x=1")
    assert (await run(session, restart=True)).text == "A new shell was started."
    assert (await run(session, "echo [$x]", restart=True)).text == "[]"


@pytest.mark.slow
async def test_a_new_shell_works_after_one_with_background_jobs(session: Session) -> None:
    await text(session, "sleep 1000 &")
    assert (await run(session, "echo new; sleep 0 &", restart=True)).text.startswith("new")
    assert await text(session, "echo next") == "next"


@pytest.mark.slow
async def test_cancelling_interrupts_the_command(session: Session) -> None:
    await text(session, "true")
    task = asyncio.create_task(run(session, "z=1; echo started; sleep 1000"))
    shell: Shell = session.handle("bash", lambda: pytest.fail("there is one"))
    await asyncio.to_thread(until, lambda: shell.newest_line() == "started")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await text(session, "echo $z") == "1"


@pytest.mark.slow
async def test_close_leaves_no_process(session: Session) -> None:
    await text(
        session, "sleep 98765 & (setsid sleep 98765 &) ; nohup sleep 98765 >/dev/null 2>&1 &"
    )
    session.close()
    assert not [p for p in psutil.process_iter(["cmdline"]) if "98765" in (p.info["cmdline"] or ())]


async def test_fork_bomb_is_ended_and_the_next_call_works(tmp_path: Path) -> None:
    limits = SandboxSettings(mode="bwrap", processes=100)
    with contextlib.closing(tool_session(tmp_path, sandbox=limits)) as opened:
        bomb = "f() { f | f & wait; f; }; f"
        seen = await run(opened, bomb, timeout_s=120)
        assert seen.failed
        assert "100 processes" in seen.text
        assert (await text(opened, "ls / >/dev/null && echo ok")).endswith("ok")


async def test_filling_the_disk_is_ended(tmp_path: Path) -> None:
    with contextlib.closing(
        tool_session(tmp_path, sandbox=SandboxSettings(mode="bwrap", disk_mb=40))
    ) as opened:
        # What goes makes room, so that the file's own limit is met and not that of all files.
        await asyncio.to_thread((opened.workspace.root / "old").write_bytes, bytes(10 << 20))
        fill = "rm old; head -c 100000000 /dev/zero >big; ls -s --block-size=1M big"
        assert "40 big" in await text(opened, fill)
        filler = "rm big; i=0; while :; do i=$((i+1)); head -c 10000000 /dev/zero >/tmp/f$i; done"
        seen = await text(opened, filler, timeout_s=120)
        assert "grew by more than 40 MB" in seen
        assert (await text(opened, "rm -f /tmp/f*; echo ok")).endswith("ok")


@pytest.mark.slow
def test_shell_handle_dies_with_its_process_group(session: Session) -> None:
    asyncio.run(text(session, "true"))
    shell: Shell = session.handle("bash", lambda: pytest.fail("there is one"))
    assert shell.alive
    session.close()
    assert not shell.alive


@pytest.mark.parametrize("removal", ["rm -rf .openmanus", "mv .openmanus .old", "find . -delete"])
@pytest.mark.slow
async def test_output_survives_the_removal_of_our_folder(session: Session, removal: str) -> None:
    lines = (await text(session, f"echo one; {removal}; echo two")).splitlines()
    assert (lines[0], lines[-1]) == ("one", "two")  # between them, that bwrap holds the folder
    assert await text(session, "echo three") == "three"


def terminals() -> list[str]:
    """List the terminals that this process holds."""
    opened = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
    return [path for path in opened if path.endswith("/ptmx")]


def test_a_shell_that_could_not_be_started_leaves_no_terminal_open(tmp_path: Path) -> None:
    session = tool_session(tmp_path / "work")
    with contextlib.closing(session):
        sandbox = sandbox_of(session)
        shutil.rmtree(session.workspace.root)
        before = terminals()
        with pytest.raises(FileNotFoundError):
            Shell(sandbox)
        assert terminals() == before
