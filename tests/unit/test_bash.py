import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from langchain_core.tools import StructuredTool

from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.shell import Shell
from openmanus_graph.runtime.session import Session, run_blocking
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import bash
from tests.support.cli import until
from tests.support.sandboxes import sandbox_settings

BWRAP = SandboxSettings(mode="bwrap")


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
    assert "later" in (await text(session, f"echo 1 >go; wait; tail -n 1 {found[1]}")).splitlines()
    assert "later" in await text(session)


@pytest.mark.slow
async def test_ctrl_c_ends_background_jobs(session: Session) -> None:
    assert "sleep 1000" in await text(session, "sleep 1000 &")
    assert "sleep 1000" in await text(session)
    await text(session, "ctrl+c")
    assert await text(session) == "(nothing new; nothing runs in the background)"


@pytest.mark.parametrize("slow", ["sleep 1000", "while :; do :; done", "sleep 1000 | cat"])
@pytest.mark.slow
async def test_at_the_time_limit_a_command_continues_as_a_job(session: Session, slow: str) -> None:
    await text(session, "y=7; mkdir d; sleep 1000 & cd d")
    for number in (2, 3):
        seen = await run(session, f"y=8; cd /; echo before; ({slow}); echo after", timeout_s=1)
        assert seen.text.startswith("before\n[Still running after 1 s. Folder and variables are as")
        assert f"; `kill %{number}` ends it." in seen.text
        assert not seen.failed
    assert await text(session, "echo $y ${PWD##*/}") == "7 d"
    assert "%1 sleep 1000; %2 y=8; cd /; echo before;" in await text(session)
    await text(session, "kill %2 %3; wait %2 %3")
    assert "background: %1 sleep 1000. `wait" in await text(session)


async def test_a_command_that_may_not_go_on_has_ended_before_its_result(session: Session) -> None:
    await text(session, "true")  # opens the shell
    shell = session.handle("bash", lambda: Shell(sandbox_of(session)))
    endless = "trap '' TERM INT; echo $BASHPID >begun; while sleep 0.1; do :; done"
    work = partial(shell.run, endless, 1, ends_at_limit=True)
    ended = await run_blocking(shell.pool, work, shell.stop)
    assert (ended.ending.outcome, ended.jobs) == ("interrupted", ())
    assert "ended" in await text(session, "kill -0 $(cat begun) || echo ended")


@pytest.mark.slow
async def test_a_job_is_waited_for_and_tells_its_output_and_exit_code(session: Session) -> None:
    job = "mkfifo go; echo one; read x <go; echo two; exit 9"
    assert (await text(session, job, timeout_s=1)).startswith("one\n[Still running after 1 s.")
    waited = await run(session, "wait %1", timeout_s=1)
    assert waited.text.startswith("[Still running after 1 s.]\n[Running in the background: %1 mkf")
    assert not waited.failed
    ended = await run(session, "echo >go; wait %1")
    assert (ended.text.splitlines()[-1], ended.failed) == ("[exit code 9]", True)
    assert await text(session) == "two"
    assert "no such job" in await text(session, "wait %1")


async def test_the_exit_code_of_a_job_that_has_ended_is_known(tmp_path: Path) -> None:
    with contextlib.closing(tool_session(tmp_path, sandbox=BWRAP)) as opened:
        for code in (5, 6):
            seen = await text(opened, f"mkfifo go; {{ read x <go; exit {code}; }} & true")
            if code == 6:
                await text(opened, "exit 3")  # now it is the job of a shell that has ended
                seen = await text(opened)
            found = re.search(r"`wait (\d+)` waits for it", seen)
            assert found is not None
            await text(opened, f"echo >go; while kill -0 {found[1]}; do :; done")
            assert "nothing runs in the background" in await text(opened)
            assert await text(opened, f"wait {found[1]}") == f"[exit code {code}]"


@pytest.mark.parametrize("name", ["TERM", "INT", "KILL"])
async def test_kill_ends_a_job_with_all_that_it_has_started(tmp_path: Path, name: str) -> None:
    with contextlib.closing(tool_session(tmp_path, sandbox=BWRAP)) as opened:
        await text(opened, "sleep 98764 &")
        deaf = "(trap '' INT TERM; echo before; sleep 98763); echo after"
        assert (await text(opened, deaf, timeout_s=1)).startswith("before\n[Still running")
        await text(opened, f"kill -{name} %2; while pgrep -f 'sleep 9876[3]'; do :; done")
        shown = await text(opened, "pgrep -fa 'sleep 9876[4]'; jobs")
        assert "sleep 98764\n[1]" in shown
        assert "98763" not in shown


@pytest.mark.slow
async def test_shell_that_obeys_nothing_is_replaced(session: Session) -> None:
    await text(session, "y=7")
    seen = await text(session, "trap '' INT TERM; echo a; while :; do :; done", timeout_s=1)
    assert seen.startswith("a\n[Still running")
    # Before it, bash may report that the job was ended.
    assert (await text(session, "kill %1; echo $y")).splitlines()[-1] == "7"


KEPT = {
    "exit 3": 3,
    "set -e; false; echo no": 1,
    "set -u; echo $undefined; echo no": 1,
    "set -euo pipefail; false | true; echo no": 1,
    ": ${undefined:?}; echo no": 1,
    "echo 'exit 4' >s.sh; . ./s.sh; echo no": 4,
    "g() { exit 5; }; g; echo no": 5,
    "exec no-such-program; echo no": 127,
    "trap 'echo seen' ERR; set -e; false; echo no": 1,
    "exec >file; set -e; false": 1,
    "kill $BASHPID; echo no": 143,
    "kill 0; echo no": 143,
    "if true; then": 2,
    "echo $((1/0)); false": 1,
}
RESTORED = {
    "exec sh -c 'exit 7'": 7,
    "kill -9 $BASHPID": 137,
    "trap 'echo seen' EXIT; exit 4": 4,
    "exec true": 0,
    "exec 10<&- 11<&- 12<&- 13<&- 14<&-; false": 1,
}


@pytest.mark.parametrize("command", [*KEPT, *RESTORED])
async def test_a_command_that_ends_the_shell_fails_alone(tmp_path: Path, command: str) -> None:
    before = (
        "x=1; export e=2; a=(1 'two words'); f() { echo f; }; alias q='echo q'; shopt -s extglob"
    )
    after = "echo $x$e$y ${a[1]} ${PWD##*/}; f; q; shopt extglob; jobs; bash -c 'echo $e'"
    with contextlib.closing(tool_session(tmp_path, sandbox=BWRAP)) as opened:
        await text(opened, f"{before}; mkdir d d/e; cd d; sleep 1000 &")
        for _ in range(2):  # the first shell, and one that has replaced it
            seen = await run(opened, f"y=3; cd e\n{command}")
            code = KEPT.get(command, RESTORED.get(command))
            assert f"[exit code {code}" in seen.text
            assert seen.failed == bool(code)
            assert ("Folder and variables are as before" in seen.text) == (command in RESTORED)
            state = "12 two words d" if command in RESTORED else "123 two words e"
            shown = (await text(opened, after)).splitlines()
            assert shown[:4] == [state, "f", "q", "extglob        \ton"]
            assert "sleep 1000" in shown[4]
            assert shown[5:] == ["2"]
            await text(opened, 'unset y; cd "${PWD%/e}"')


@pytest.mark.slow
async def test_exit_is_reported_and_the_shell_stays(session: Session) -> None:
    await text(session, "sleep 1000 &")
    seen = await run(session, "x=5; echo bye; exit 3")
    assert (seen.text, seen.failed) == ("bye\n[exit code 3]", True)
    assert "sleep 1000" in await text(session)
    assert await text(session, "exec sh -c 'echo $$ >&2; exit 4' 2>/dev/null") == (
        "[exit code 4; the shell was restored. Folder and variables are as before the command.]"
    )
    assert await text(session, "echo $x") == "5"


@pytest.mark.parametrize(
    "command",
    [
        "exec 207<&- 208<&- 209>&-; echo ok",
        "exec 9>lock; flock 9; echo ok",
        "read x; cat; echo ok",
        "mkdir gone; cd gone; rmdir ../gone; echo ok",
        "nohup sleep 1000 >/dev/null 2>&1 & disown; echo ok",
        "setsid sleep 1000 & echo ok",
        "yes | head -n 1 >/dev/null; echo ok",
        "trap 'true' DEBUG; echo ok",
        "set -n; exit",
        "printf() { exit; }; read() { exit; }; alias eval=exit; echo ok",
        f"x={'y' * 1_000_000}; echo ok",
        "ech\0o ok",
    ],
)
async def test_odd_commands_leave_a_shell_that_works(tmp_path: Path, command: str) -> None:
    with contextlib.closing(tool_session(tmp_path, sandbox=BWRAP)) as opened:
        seen = await text(opened, command, timeout_s=2)
        assert "ok" in seen.splitlines()[:2] or command.startswith("set -n")
        # Before it, bash may report that a job has ended: `setsid` forks in the background.
        assert "next" in (await text(opened, "echo next")).splitlines()[:2]
        assert "exit code 3]" in await text(opened, "exit 3")


@pytest.mark.slow
async def test_fifty_jobs_and_much_output_survive_a_new_shell(tmp_path: Path) -> None:
    with contextlib.closing(tool_session(tmp_path, sandbox=BWRAP)) as opened:
        await text(opened, "for n in {1..50}; do sleep 1000 & done")
        much = "head -c 100000000 /dev/zero | tr '\\0' x & sleep 1000"
        await text(opened, much, timeout_s=3)
        assert (await run(opened, "exit 3")).failed
        assert await text(opened, "jobs | wc -l") == "51"
        await text(opened, "kill %51; wait %51")
        assert len(await text(opened)) < 9000
        await text(opened, "ctrl+c")
        assert (await text(opened)).startswith("(nothing new; nothing runs")


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
    # Both run on: if one ended at this moment, bash would report it before the next output.
    assert (await run(session, "echo new; sleep 1000 &", restart=True)).text.startswith("new")
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


def pipes() -> list[str]:
    """List the pipes that this process holds."""
    opened = [os.path.realpath(fd) for fd in Path("/proc/self/fd").iterdir()]
    return sorted(path for path in opened if "pipe:" in path)


def test_a_shell_that_could_not_be_started_leaves_no_pipe_open(tmp_path: Path) -> None:
    session = tool_session(tmp_path / "work")
    with contextlib.closing(session):
        sandbox = sandbox_of(session)
        shutil.rmtree(session.workspace.root)
        before = pipes()
        with pytest.raises(FileNotFoundError):
            Shell(sandbox)
        assert pipes() == before


KILLED = """
import os, sys
from pathlib import Path
from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.shell import Shell
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.testing.replays import tool_session

session = tool_session(Path(sys.argv[1]), sandbox=SandboxSettings(mode=sys.argv[2]))
shell = Shell(sandbox_of(session))
for command in ("(setsid sleep 98761 &); nohup sleep 98761 & exit 3", "sleep 98761"):
    shell.pool.submit(shell.run, command, 1).result()
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("mode", ["bwrap", "none"])
@pytest.mark.slow
def test_nothing_outlives_a_process_that_was_killed(tmp_path: Path, mode: str) -> None:
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "work"), mode], check=False)
    assert ran.returncode == -signal.SIGKILL
    until(
        lambda: not any("98761" in p.info["cmdline"] for p in psutil.process_iter(["cmdline"], []))
    )
