"""The desktop of one thread: an X server without a screen, a window manager, and its programs.

All of it runs in the thread's sandbox, as what `bash` starts does. It is a handle of the session.
"""

import contextlib
import io
import os
import re
import secrets
import shlex
import shutil
import struct
import sys
import time
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from openmanus_graph.backends.sandbox.choose import backend_name
from openmanus_graph.backends.sandbox.confinement import Sandbox
from openmanus_graph.backends.sandbox.shell import CommandResult, Shell
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.safety.open_beneath import open_entry
from openmanus_graph.state.settings import SandboxSettings

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_TYPED_CHARS = 10_000  # of one text: about 15 s of typing
_SPARE_KEYCODES = (*range(136, 203), *range(208, 256))
"""Keys of the usual layout that no program of ours uses; those between are modifiers."""
HANDLE = "desktop"  # the key of the desktop among the session's handles
WIDTH, HEIGHT = 1280, 800
"""Of the screen, in pixels: no picture of it has to be scaled, so its places are the screen's."""
PROGRAMS = ("Xvfb", "jwm", "xdotool", "xmodmap")
DEBIAN_PACKAGES = ("xvfb", "jwm", "xdotool", "x11-xserver-utils")
_SCREEN_FILE = "Xvfb_screen0"  # as Xvfb names it, in the folder of its option `-fbdir`
_QUALITY = 75
_HEADER = struct.Struct(">20I")
"""Of the format XWD; here its size, the picture's, the bytes of a line and the colours count."""
_COLOUR_BYTES = 12
_BYTES_PER_PIXEL = 4
_CURSOR_PIXELS = 100  # a change of so few pixels is a text cursor that blinks
_FIRST_DISPLAY, _LAST_DISPLAY = 50, 250  # numbers that no person's desktop has
_START_S, _COMMAND_S, _TYPING_S = 30.0, 20.0, 150.0
_WINDOW_S = 15.0  # seconds in which a program has to show a window
_LEFT_S = 3.0
"""The same, after it has ended well: it may have passed its work on to another process."""
_POLL_S = 0.2
_QUIET_S, _SETTLE_S = 0.2, 3.0
_REACTION_S = 0.7  # seconds in which a program has to show that it has seen a key or a click
_NEW_LAYOUT_S = 1.0
"""Seconds in which a program reads the keys of one layout before there is another."""
_MOST_WINDOWS, _LONGEST_TITLE, _MOST_OUTPUT = 15, 80, 1500
_LOOK = r"""
xdotool search --onlyvisible --name . 2>/dev/null | while read -r id; do
    printf '%s %s\n' $id "$(xdotool getwindowname $id 2>/dev/null | head -c 300)"
done
printf '\036'; xdotool getactivewindow 2>/dev/null; printf '\036'; xdotool getmouselocation"""
"""Lists the windows, with one program a window; then which is active, and where the mouse is."""
_MOUSE = re.compile(r"x:(\d+) y:(\d+)")
# A shell ends its jobs by a hang-up, which would only restart an X server: it is killed then, too.
_SERVER = (
    "{{ trap 'kill -KILL $!' HUP TERM; Xvfb :{number} -screen 0 {size}x24 -fbdir {folder} "
    "-auth {folder}/authority -nolisten tcp -nolisten local -noreset -extension MIT-SHM & "
    "echo $! >{folder}/server.pid; wait; }} "
    ">{folder}/server.log 2>&1 & server=$!"
)

_MANAGER = """<?xml version="1.0"?>
<JWM>
  <Tray x="0" y="-1" height="28"><TaskList maxwidth="256"/></Tray>
  <Desktops width="1" height="1"><Background type="solid">#4a6274</Background></Desktops>
  <WindowStyle><Font>Sans-9</Font></WindowStyle>
  <FocusModel>click</FocusModel>
  <Key mask="A" key="Tab">nextstacked</Key>
  <Key mask="A" key="F4">close</Key>
</JWM>
"""
"""One desktop, no menus, and a bar on which a window that was made small is found again."""


def missing_programs() -> list[str]:
    """Return which of the programs are not installed. Blocks."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def why_no_desktop(sandbox: SandboxSettings) -> str:
    """Return why there can be no desktop here, as a sentence; empty if there can. Blocks."""
    if sys.platform != "linux":
        return "A desktop needs Linux."
    if missing := missing_programs():
        return f"A desktop needs {', '.join(missing)}: `openmanus doctor --fix` installs them."
    # In these, programs see the system's, and a socket of each other.
    if (name := backend_name(sandbox)) not in ("bwrap", "none"):
        return f"The sandbox {name} cannot hold a desktop; bubblewrap can."
    return ""


def as_jpeg(image: "Image") -> bytes:
    out = io.BytesIO()
    image.save(out, "JPEG", quality=_QUALITY, optimize=True)
    return out.getvalue()


def describe_change(before: "Image", after: "Image") -> str:
    """Return where the screen differs; a text cursor that blinks is not a difference."""
    from PIL import ImageChops

    box = ImageChops.difference(before, after).getbbox()
    if box is None or (box[2] - box[0]) * (box[3] - box[1]) <= _CURSOR_PIXELS:
        return "Nothing on the screen changed."
    left, top, right, bottom = box
    return f"The screen changed between ({left}, {top}) and ({right - 1}, {bottom - 1})."


@dataclass(frozen=True)
class Windows:
    """What is on the desktop. Titles are the programs' words."""

    titles: dict[str, str]  # by the window's id
    active: str  # id of the window that gets the keys; empty if there is none
    mouse: tuple[int, int]

    def describe(self) -> str:
        shown = list(self.titles.items())[:_MOST_WINDOWS]
        names = [f"{title!r}{' (active)' * (id == self.active)}" for id, title in shown]
        more = f" and {len(self.titles) - len(shown)} more" * (len(self.titles) > len(shown))
        place = f"The mouse is at {self.mouse}."
        return f"Windows: {', '.join(names) or 'none'}{more}. {place}"


class Desktop:
    """A handle of the session. `pool` runs its blocking methods, one at a time."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._shell = Shell(sandbox, "desktop")
        self.pool, self.stop = self._shell.pool, self._shell.stop
        self._folder = sandbox.layout.run / f"desktop-{secrets.token_hex(4)}"
        self._inside = sandbox.backend.inside(self._folder)
        self._started = 0
        self.windows = Windows({}, "", (WIDTH // 2, HEIGHT // 2))  # as they were at the last look
        self._screen = -1
        """File descriptor of what the screen shows: programs may replace the file of that name."""
        try:
            self.pool.submit(self._start).result()
        except BaseException:
            self.close()
            raise

    def alive(self) -> bool:
        """Return True if shell and X server still run. Blocks; call it on `pool`."""
        if not self._shell.alive:
            return False
        # `kill -0` finds a process that has ended, too, until it is collected.
        status = f"/proc/$(cat {self._inside}/server.pid)/status"
        return not self._run(f"grep -q '^State:[[:space:]]*[^ZX]' {status}").ending.code

    def picture(self) -> "Image":
        """Return what the screen shows now. Any thread may call it, while the desktop is open."""
        from PIL import Image

        line = WIDTH * _BYTES_PER_PIXEL
        header = os.pread(self._screen, _HEADER.size, 0)
        fields = _HEADER.unpack(header) if len(header) == _HEADER.size else (0,) * 20
        start = fields[0] + fields[19] * _COLOUR_BYTES
        expected = (fields[4], fields[5], fields[12]) == (WIDTH, HEIGHT, line)
        pixels = os.pread(self._screen, line * HEIGHT, start) if expected else b""
        if len(pixels) != line * HEIGHT:
            raise TrustedToolError(
                "The desktop shows no picture: a program has overwritten the screen's memory."
            )
        return Image.frombuffer("RGB", (WIDTH, HEIGHT), pixels, "raw", "BGRX", line, 1).copy()

    def look(self) -> Windows:
        listed, active, mouse = (self._run(_LOOK).text.split("\x1e") + ["", ""])[:3]
        lines = [line.partition(" ") for line in listed.splitlines() if line]
        titles = {id: _plain(title) for id, _, title in lines if id.isdigit()}
        place = _MOUSE.search(mouse)
        where = (int(place[1]), int(place[2])) if place else self.windows.mouse
        self.windows = Windows(titles, active.strip(), where)
        return self.windows

    def input(self, *words: str) -> None:
        """Use mouse or keys, by a command of xdotool. Blocks. ToolError: it failed."""
        result = self._run(f"xdotool {shlex.join(words)}")
        if result.ending.code or "No such key name" in result.text:
            raise self._failure(result)

    def type(self, text: str) -> None:
        """Type a text into the active window. Blocks."""
        pieces, files = list(pieces_of(text)), self._sandbox.layout.files
        for number, (piece, keys) in enumerate(pieces):
            files.write(self._folder / "text", piece.encode())
            files.write(self._folder / "keys", keys.encode("ascii"))
            keys = f"xmodmap {self._inside}/keys && " if keys else ""
            if number:
                self.stop.wait(_NEW_LAYOUT_S)
            command = f"xdotool type --delay 1 --file {self._inside}/text"
            result = self._run(keys + command, _TYPING_S / len(pieces))
            if result.ending.outcome in ("limit", "interrupted"):
                raise TrustedToolError(
                    f"Only a part was typed: the program takes too long to read {len(text):,} "
                    "characters. Look what is there, or write a file and open it in the program."
                )
            if result.ending.code:
                raise self._failure(result)

    def open(self, command: str) -> str:
        """Start a program and wait for its window; ToolError if it ends without one. Blocks."""
        before = self.look().titles
        self._started += 1
        log = f"{self._inside}/{self._started}.log"
        start = f"bash -c {shlex.quote(command)} >{log} 2>&1 & echo $!"
        process = self._run(start).text.strip()
        ends = time.monotonic() + _WINDOW_S
        code: int | None = None
        while time.monotonic() < ends and not self.stop.wait(_POLL_S):
            new = [title for id, title in self.look().titles.items() if id not in before]
            if new:
                return f"Opened {', '.join(map(repr, new))}."
            if code is None and self._run(f"kill -0 {process}").ending.code:
                code = self._run(f"wait {process}").ending.code
                ends = min(ends, time.monotonic() + (0 if code else _LEFT_S))
        printed = self._run(f"tail -c {_MOST_OUTPUT} {log}").text.strip() or "nothing"
        if code is not None:
            raise ToolError(
                f"{command!r} has ended, with exit code {code}, and shown no window. It printed: "
                f"{printed}\nCorrect the command; a program without windows belongs into bash."
            )
        return (
            f"{command!r} runs, and has shown no window in {_WINDOW_S:.0f} s. It printed: {printed}"
            "\nWait for it, or use bash for a program without windows."
        )

    def settle(self, before: "Image") -> str:
        """Wait until the screen is quiet, for a bounded time; return what has changed. Blocks."""
        began, now = time.monotonic(), self.picture()
        while not self.stop.wait(_QUIET_S):
            last, now = now, self.picture()
            waited_s = time.monotonic() - began
            if last == now and (now != before or waited_s > _REACTION_S):
                break
            if waited_s > _SETTLE_S:
                return f"{describe_change(before, now)} It is still changing."
        return describe_change(before, now)

    def handle_state(self) -> str:
        titles = ", ".join(map(repr, self.windows.titles.values()))
        return f"windows on the desktop: {titles}" if titles else ""

    def close(self) -> None:
        self._shell.close()
        screen, self._screen = self._screen, -1
        if screen >= 0:
            os.close(screen)

    def _start(self) -> None:
        with self._sandbox.layout.files.opened(self._folder) as folder:
            self._start_server()
            self._screen = open_entry(folder, _SCREEN_FILE, _SCREEN_FILE)
        self._sandbox.layout.files.write(self._folder / "manager", _MANAGER.encode())
        self._run(f"jwm -f {self._inside}/manager >{self._inside}/manager.log 2>&1 &")
        self._wait_for("xdotool get_num_desktops", "the window manager")

    def _start_server(self) -> None:
        """Start the X server with the first free number, and a cookie that its programs need."""
        parts = (b"", b"", b"MIT-MAGIC-COOKIE-1", secrets.token_bytes(16))
        packed = b"".join(struct.pack(">H", len(part)) + part for part in parts)
        authority = b"\xff\xff" + packed  # for any server that has the cookie
        for place in (self._folder / "authority", self._sandbox.layout.home / ".Xauthority"):
            self._sandbox.layout.files.write(place, authority, 0o600)
        for number in range(_FIRST_DISPLAY, _LAST_DISPLAY):
            taken = f"[ -e /tmp/.X11-unix/X{number} ] || [ -e /tmp/.X{number}-lock ]"
            if not self._run(taken).ending.code:
                continue
            size = f"{WIDTH}x{HEIGHT}"
            start = _SERVER.format(number=number, size=size, folder=self._inside)
            self._run(f"export DISPLAY=:{number}; {start}")
            with contextlib.suppress(TimeoutError):
                self._wait_for("xdotool getmouselocation", "the X server")
                return
        raise ToolError("The desktop did not start: no number for a display is free.")

    def _wait_for(self, command: str, what: str) -> None:
        """Wait until a command succeeds. TimeoutError: another server was faster."""
        ends = time.monotonic() + _START_S
        while (result := self._run(command)).ending.code and time.monotonic() < ends:
            if self._run("kill -0 $server").ending.code:
                printed = self._run(f"tail -c {_MOST_OUTPUT} {self._inside}/server.log").text
                if "already active" in printed or "running" in printed:
                    raise TimeoutError
                raise ToolError(f"The desktop did not start. The X server said: {printed.strip()}")
            self.stop.wait(_POLL_S / 4)
        if result.ending.code:
            raise ToolError(f"The desktop did not start: {what} does not answer. {result.text}")

    def _run(self, command: str, limit_s: float = _COMMAND_S) -> CommandResult:
        result = self._shell.run(command, limit_s)
        if result.ending.outcome == "limit":  # it would go on acting on the screen
            self._shell.run(f"kill {result.newest}", _COMMAND_S)
        return result

    def _failure(self, result: CommandResult) -> ToolError:
        """Return the error for a command that failed, by what is left of the desktop."""
        # A server that was just killed is gone for its programs before its process has ended.
        if not self._shell.alive or self._run("xdotool getmouselocation").ending.code:
            return TrustedToolError(
                "The desktop has ended, and its programs with it. The next call starts a new one: "
                "open the program again; what was not saved is lost."
            )
        return ToolError(f"It was not done. The desktop said: {result.text.strip()[-500:]}")


def _plain(title: str) -> str:
    plain = "".join(c if c.isprintable() else "?" for c in title)
    return plain if len(plain) <= _LONGEST_TITLE else f"{plain[: _LONGEST_TITLE - 1]}…"


def pieces_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield a text in pieces, each with the keys that it needs, written for xmodmap.

    One layout can type a piece. The keys are empty if the usual layout has them all. ToolError if
    the text is too long, or has a character that no key types.
    """
    # To xdotool, the end of a line is the key with which a program begins a new line: Return.
    text = text.replace("\r\n", "\n").replace("\n", "\r")
    if len(text) > MOST_TYPED_CHARS:
        raise TrustedToolError(
            f"Nothing was typed: the text has {len(text):,} characters, and at most "
            f"{MOST_TYPED_CHARS:,} are typed at once. Type it in parts, or write a file and open "
            "it in the program."
        )
    wrong = {c for c in text if c not in "\r\t" and unicodedata.category(c) in ("Cc", "Cs")}
    if wrong:
        named = ", ".join(sorted(f"U+{ord(c):04X}" for c in wrong))
        raise TrustedToolError(f"Nothing was typed: no key types {named}. Leave that out.")
    start, letters = 0, dict[str, None]()

    def keys() -> str:
        pairs = zip(_SPARE_KEYCODES, letters, strict=False)
        return "".join(f"keycode {key} = U{ord(one):04X}\n" for key, one in pairs)

    for position, letter in enumerate(text):
        if letter.isascii() or letter in letters:
            continue
        if len(letters) == len(_SPARE_KEYCODES):
            yield text[start:position], keys()
            start, letters = position, {}
        letters[letter] = None
    yield text[start:], keys()
