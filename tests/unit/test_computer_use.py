"""`computer_use` on a real desktop: mouse, keyboard and screen, and what goes wrong with them."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from openmanus_graph.backends.desktop import desktop
from openmanus_graph.backends.desktop.actions import keys_of
from openmanus_graph.backends.desktop.desktop import (
    HEIGHT,
    MOST_TYPED_CHARS,
    WIDTH,
    pieces_of,
    why_no_desktop,
)
from openmanus_graph.backends.sandbox.confinement import sandbox_of
from openmanus_graph.backends.sandbox.shell import Shell
from openmanus_graph.errors import ToolError
from openmanus_graph.state.context import SandboxMode
from openmanus_graph.state.settings import SandboxSettings
from tests.support.cli import until
from tests.support.desktops import DesktopUse, below, install_programs
from tests.support.limits import BACKSTOP_S
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

EDITOR = "mousepad typed.txt"


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    install_programs("mousepad")


@pytest.fixture(autouse=True)
def older_servers() -> set[int]:
    """The screens of other tests, whose sessions wait to be used again."""
    return {server.pid for server in below(os.getpid(), "Xvfb")}


def new_servers(older: set[int]) -> list[psutil.Process]:
    return [server for server in below(os.getpid(), "Xvfb") if server.pid not in older]


@pytest.fixture
def use(tmp_path: Path) -> Iterator[DesktopUse]:
    used = DesktopUse(tmp_path / "work")
    with contextlib.closing(used.session):
        yield used


async def typed(use: DesktopUse) -> str:
    """Save what was typed, and return it; the editor ends it by a line's end."""
    ends = time.monotonic() + BACKSTOP_S
    while "Windows: '*" in (seen := await use("hotkey", keys="ctrl+s")):
        assert time.monotonic() < ends, seen  # it has not read all keys yet
    return use.file("typed.txt").removesuffix("\n")


async def test_a_program_is_opened_typed_into_and_closed(use: DesktopUse) -> None:
    opened = await use("open", command=EDITOR)
    assert opened.startswith("Opened '*")
    assert "(active). The mouse is at (640, 400)." in opened
    text = 'Grüße, Welt! "quoted" $HOME `x` \\n 日本語 🚀 👩\u200d👩\u200d👧 العربية\n\tEnd.'
    assert f"Typed {len(text)} characters." in await use("typing", text=text)
    assert await typed(use) == text
    assert "Pressed Control+Home x." in await use("press", key="Control+Home x")
    assert await typed(use) == f"x{text}"
    assert "Windows: none." in await use("hotkey", keys="alt+F4")


async def test_long_text_and_many_letters_arrive_whole(use: DesktopUse) -> None:
    await use("open", command=EDITOR)
    lines = [f"{number}: the quick brown fox, jumps over it." for number in range(200)]
    text = "\n".join([*lines, "".join(chr(0x4E00 + number) for number in range(300)), "~"])
    assert len(text) > 8000
    assert f"Typed {len(text):,} characters." in await use("typing", text=text)
    assert await typed(use) == text


async def test_the_mouse_moves_clicks_drags_and_scrolls(use: DesktopUse) -> None:
    events = "xev -event button -event mouse -geometry 400x300+100+100 > events.txt"
    await use("open", command=f"{events}")
    assert "Moved the mouse to (300, 300)." in await use("move_to", x=300, y=300)
    assert "Clicked at (310, 310)." in await use("click", x=310, y=310)
    assert "Double-clicked at (310, 310)." in await use("double_click")
    assert "Clicked the right button at (320, 310)." in await use("right_click", x=320, y=310)
    assert "Scrolled down by 2." in await use("scroll", amount=-2)
    assert "Dragged from (320, 310) to (380, 340)." in await use("drag_to", x=380, y=340)
    seen = await use("mouse_down", button="middle")
    assert "The button is down." in seen
    assert "The mouse is at (380, 340)." in await use("mouse_up", button="middle")
    await use("hotkey", keys="alt+F4")
    pressed = [line for line in use.file("events.txt").split("\n\n") if "ButtonPress" in line]
    buttons = [line.partition("button ")[2][0] for line in pressed]
    assert buttons == ["1", "1", "1", "3", "5", "5", "1", "2"]
    assert use.file("events.txt").count("MotionNotify") > 10


REFUSED: list[tuple[str, dict[str, object], str]] = [
    ("click", {"x": WIDTH, "y": 0}, "(1280, 0) is outside of the screen"),
    ("move_to", {"x": -1, "y": 5}, f"({WIDTH - 1}, {HEIGHT - 1})"),
    ("move_to", {}, "needs x and y"),
    ("click", {"x": 5}, "needs both x and y"),
    ("click", {"num_clicks": 4}, "num_clicks is 1 to 3"),
    ("scroll", {"amount": 99}, "amount is 1 to 10"),
    ("press", {"key": "ctrl+Foo"}, "'ctrl+Foo' is not a key"),
    ("press", {}, "needs keys"),
    ("typing", {"text": ""}, "needs text"),
    ("typing", {"text": "bell\a"}, "no key types U+0007"),
    ("typing", {"text": "half \ud83d"}, "no key types U+D83D"),
    ("typing", {"text": "x" * (MOST_TYPED_CHARS + 1)}, "write a file"),
    ("open", {"command": " "}, "needs command"),
    ("open", {"command": "nosuchprogram --help"}, "exit code 127"),
    ("open", {"command": "echo 'unfinished"}, "unexpected EOF"),
    ("open", {"command": "echo no window; exit 3"}, "printed: no window"),
]


async def test_what_cannot_be_done_is_refused_with_the_reason(use: DesktopUse) -> None:
    for action, args, words in REFUSED:
        seen = await use(action, **args)
        assert seen.startswith("Error: "), seen
        assert words in seen


async def test_a_program_without_a_window_is_waited_for_and_said(use: DesktopUse) -> None:
    seen = await use("open", command="echo at work; sleep 600")
    assert "runs, and has shown no window in 15 s. It printed: at work" in seen
    assert "Windows: none." in seen


async def test_a_desktop_that_was_killed_is_said_and_opened_anew(
    use: DesktopUse, older_servers: set[int]
) -> None:
    await use("open", command=EDITOR)
    assert use.desktop.handle_state().startswith("windows on the desktop: '*/")
    (server,) = new_servers(older_servers)
    server.kill()
    server.wait()
    seen = await use("press", key="a")
    assert seen.startswith("[The desktop had ended, and its programs with it.")
    assert "Windows: none." in seen
    assert use.desktop.handle_state() == ""


async def test_a_desktop_that_dies_in_the_middle_is_an_error_that_says_so(
    use: DesktopUse,
    older_servers: set[int],
) -> None:
    await use("open", command=EDITOR)
    (server,) = new_servers(older_servers)
    server.suspend()
    typing = asyncio.create_task(use("typing", text="lost " * 100))
    await asyncio.sleep(0)
    await asyncio.to_thread(until, lambda: bool(below(os.getpid(), "xdotool")))
    server.kill()
    seen = await typing
    assert seen.startswith("Error: The desktop has ended, and its programs with it.")
    assert "open the program again" in seen


@pytest.mark.parametrize("mode", sampled(["bwrap", "none"], 1, "two desktops"))
async def test_two_threads_have_two_desktops(
    tmp_path: Path, mode: SandboxMode, older_servers: set[int]
) -> None:
    first, second = DesktopUse(tmp_path / "one", mode), DesktopUse(tmp_path / "two", mode)
    with contextlib.closing(first.session), contextlib.closing(second.session):
        await asyncio.gather(*(one("open", command=EDITOR) for one in (first, second)))
        await asyncio.gather(first("typing", text="one."), second("typing", text="two!"))
        assert [await typed(first), await typed(second)] == ["one.", "two!"]
        servers = new_servers(older_servers)
        assert len(servers) == 2
        assert all("tcp" in (server.cmdline()) for server in servers), "none listens on TCP"
        if mode == "none":
            number = servers[0].cmdline()[1]
            stranger = {"DISPLAY": number, "XAUTHORITY": "/dev/null", "PATH": os.environ["PATH"]}
            refused = await asyncio.create_subprocess_exec(
                "xdotool", "getmouselocation", env=stranger, stderr=subprocess.PIPE
            )
            assert b"uthorization" in (await refused.communicate())[1]
    _, alive = psutil.wait_procs(servers, timeout=BACKSTOP_S)
    assert not alive


async def test_a_display_number_that_is_taken_is_left_alone(
    use: DesktopUse, older_servers: set[int]
) -> None:
    taken = use.session.workspace.root / "taken.sh"
    taken.write_text("mkdir -p /tmp/.X11-unix; touch /tmp/.X11-unix/X50; echo 1 > /tmp/.X51-lock")
    shell = Shell(sandbox_of(use.session))
    shell.pool.submit(shell.run, "bash taken.sh", BACKSTOP_S).result()
    shell.close()
    assert "Windows: none." in await use("screenshot")
    (server,) = new_servers(older_servers)
    assert server.cmdline()[1] == ":52"


async def test_what_bash_starts_may_use_the_desktop(
    use: DesktopUse, older_servers: set[int]
) -> None:
    await use("screenshot")
    (server,) = new_servers(older_servers)
    shell = Shell(sandbox_of(use.session))
    started = f"DISPLAY={server.cmdline()[1]} xev >/dev/null 2>&1 &"
    shell.pool.submit(shell.run, started, BACKSTOP_S).result()
    ends, seen = time.monotonic() + BACKSTOP_S, ""
    while "'Event Tester'" not in seen:
        assert time.monotonic() < ends, seen
        seen = await use("wait", duration=0.1)
    shell.close()


async def test_a_spoilt_screen_is_said(use: DesktopUse) -> None:
    await use("screenshot")
    (screen,) = sandbox_of(use.session).layout.run.glob("desktop-*/Xvfb_screen0")
    with screen.open("r+b") as file:
        file.write(bytes(100))
    assert "a program has overwritten the screen" in await use("screenshot")


@pytest.mark.parametrize("mode", sampled(["bwrap", "none"], 1, "killed with a desktop"))
def test_nothing_is_left_when_we_are_killed(tmp_path: Path, mode: str) -> None:
    program = f"""
import asyncio, sys
from pathlib import Path
from tests.support.desktops import DesktopUse
use = DesktopUse(Path({str(tmp_path / "work")!r}), {mode!r})
asyncio.run(use("open", command={EDITOR!r}))
print("open", flush=True)
sys.stdin.read()
"""
    root = Path(__file__).parent.parent.parent
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        started = psutil.Process(process.pid).children(recursive=True)
        assert {"Xvfb", "jwm", "mousepad"} <= {one.name() for one in started}
        process.kill()
    _, alive = psutil.wait_procs(started, timeout=BACKSTOP_S)
    assert not alive


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        ("Control+A Delete", ["ctrl+a", "Delete"]),
        ("ctrl+shift+T", ["ctrl+shift+T"]),
        ("A", ["A"]),
        ("Enter", ["Return"]),
        ("alt++", ["alt+U002B"]),
        ("+", ["U002B"]),
        ("é", ["U00E9"]),
        ("PageDown f5 super", ["Next", "F5", "super"]),
        (" ", ["space"]),
    ],
)
def test_keys_have_the_names_that_people_write(written: str, keys: list[str]) -> None:
    assert keys_of(written) == keys


def test_a_piece_of_text_has_no_more_new_letters_than_spare_keys() -> None:
    text = "".join(chr(0x4E00 + number) for number in range(300))
    pieces = list(pieces_of(f"{text}\r\n{text[:5]}"))
    assert "".join(piece for piece, _ in pieces) == f"{text}\r{text[:5]}"
    assert [keys.count("\n") for _, keys in pieces] == [115, 115, 75]
    assert [keys for _, keys in pieces_of("plain")] == [""]


def test_a_sandbox_that_cannot_hold_a_desktop_and_missing_programs_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert why_no_desktop(SandboxSettings(mode="bwrap")) == ""
    assert "The sandbox docker cannot" in why_no_desktop(SandboxSettings(mode="docker"))
    monkeypatch.setattr(desktop, "PROGRAMS", ("Xvfb", "nosuchprogram"))
    why = why_no_desktop(SandboxSettings())
    assert why == "A desktop needs nosuchprogram: `openmanus doctor --fix` installs them."


async def test_without_its_programs_a_call_says_what_a_person_has_to_do(
    use: DesktopUse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desktop, "PROGRAMS", ("nosuchprogram",))
    assert "`openmanus doctor --fix`" in await use("screenshot")
    with pytest.raises(ToolError):
        keys_of("nokey")
