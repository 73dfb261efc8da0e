"""The actions of `computer_use`: what mouse and keyboard do, and what the model reads of it."""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from openmanus_graph.backends.desktop.desktop import HANDLE, HEIGHT, WIDTH, Desktop, as_jpeg
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session, run_blocking

Button = Literal["left", "right", "middle"]
MOST_CLICKS, MOST_NOTCHES, MOST_WAIT_S = 3, 10, 10.0
_BUTTONS: Mapping[Button, str] = {"left": "1", "middle": "2", "right": "3"}
_WHEEL_UP, _WHEEL_DOWN = "4", "5"
_DRAG_STEPS = 10
_PAUSE = ("sleep", "0.05")
_MODIFIERS = {
    "ctrl": "ctrl", "control": "ctrl", "alt": "alt", "option": "alt", "shift": "shift",
    "super": "super", "win": "super", "windows": "super", "cmd": "super", "command": "super",
    "meta": "super",
}  # fmt: skip
_KEY_NAMES = {
    name.lower(): name
    for name in (
        "Return", "Escape", "Tab", "BackSpace", "Delete", "Insert", "Home", "End", "Left", "Right",
        "Up", "Down", "Print", "Pause", "Menu", "Caps_Lock", "Num_Lock", "Scroll_Lock", "space",
        "KP_Enter", *(f"F{number}" for number in range(1, 13)),
    )
} | {
    "enter": "Return", "esc": "Escape", "del": "Delete", "ins": "Insert", "spacebar": "space",
    "pageup": "Prior", "page_up": "Prior", "pgup": "Prior", "prior": "Prior",
    "pagedown": "Next", "page_down": "Next", "pgdn": "Next", "next": "Next",
    "arrowleft": "Left", "arrowright": "Right", "arrowup": "Up", "arrowdown": "Down",
    "capslock": "Caps_Lock", "numlock": "Num_Lock", "printscreen": "Print", "plus": "plus",
}  # fmt: skip


@dataclass(frozen=True)
class ActionArguments:
    """The arguments of a call next to its action; the defaults are the tool's."""

    x: float | None = None
    y: float | None = None
    button: Button = "left"
    num_clicks: int = 1
    amount: int | None = None
    text: str | None = None
    keys: str | None = None
    duration: float | None = None
    command: str | None = None

    @property
    def place(self) -> tuple[int, int] | None:
        """The point of the screen; None if none is given. ToolError if it is not on the screen."""
        if self.x is None and self.y is None:
            return None
        if self.x is None or self.y is None:
            raise TrustedToolError("Nothing was done: a place needs both x and y.")
        x, y = round(self.x), round(self.y)
        if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
            raise TrustedToolError(
                f"Nothing was done: ({x}, {y}) is outside of the screen, which goes from (0, 0) to "
                f"({WIDTH - 1}, {HEIGHT - 1}). Take the place from the newest picture."
            )
        return x, y

    @property
    def required_place(self) -> tuple[int, int]:
        """The point of the screen. ToolError if none is given."""
        place = self.place
        if place is None:
            raise TrustedToolError("Nothing was done: this needs x and y. Call it again with them.")
        return place

    def move(self, *then: str) -> tuple[str, ...]:
        """Return the words of xdotool that move the mouse to the point; none if none is given."""
        place = self.place
        return ("mousemove", *map(str, place), *then) if place else ()


def run_action(desktop: Desktop, action: str, args: ActionArguments) -> str:
    """Run an action, wait until the screen is quiet, and return what happened. Blocks."""
    before = desktop.picture()
    done = _ACTIONS[action](desktop, args)
    changed = desktop.settle(before)
    return "\n".join(filter(None, (done, changed, desktop.look().describe())))


async def state_for_request(
    session: Session, picture: bool, *, after_observation: bool = False
) -> tuple[str, str | None]:
    """Return the desktop's state for the next request: its windows, and a picture (a data URL).

    It is never stored. Never raises. If the request ends with the newest observation, the text is
    empty unless a picture is returned.
    """
    desktop = session.find(HANDLE)
    if not isinstance(desktop, Desktop) or (after_observation and not picture):
        return "", None
    try:
        windows = await run_blocking(desktop.pool, desktop.look, desktop.stop)
        if not picture:
            return windows.describe(), None
        photo = await run_blocking(desktop.pool, lambda: as_jpeg(desktop.picture()), desktop.stop)
    except (ToolError, RuntimeError, OSError):  # it is closing, or its programs have spoilt it
        return "", None
    encoded = base64.b64encode(photo).decode()
    return windows.describe(), f"data:image/jpeg;base64,{encoded}"


def _move(desktop: Desktop, args: ActionArguments) -> str:
    place = args.required_place
    desktop.input(*args.move())
    return f"Moved the mouse to {place}."


def _click(
    desktop: Desktop, args: ActionArguments, button: Button | None = None, clicks: int | None = None
) -> str:
    button, clicks = button or args.button, clicks or args.num_clicks
    if not 1 <= clicks <= MOST_CLICKS:
        raise TrustedToolError(f"Nothing was done: num_clicks is 1 to {MOST_CLICKS}.")
    times = ("--repeat", str(clicks), "--delay", "60")
    desktop.input(*args.move(*_PAUSE), "click", *times, _BUTTONS[button])
    how = {1: "Clicked", 2: "Double-clicked", 3: "Triple-clicked"}[clicks]
    which = "" if button == "left" else f" the {button} button"
    return f"{how}{which} at {args.place or desktop.windows.mouse}."


def _drag(desktop: Desktop, args: ActionArguments) -> str:
    """Drag in steps: a program may ignore one long jump."""
    x, y = args.required_place
    left, top = desktop.look().mouse
    words = ["mousedown", "1", *_PAUSE]
    for step in range(1, _DRAG_STEPS + 1):
        at = (left + (x - left) * step // _DRAG_STEPS, top + (y - top) * step // _DRAG_STEPS)
        words += ["mousemove", *map(str, at), "sleep", "0.03"]
    desktop.input(*words, *_PAUSE, "mouseup", "1")
    return f"Dragged from ({left}, {top}) to ({x}, {y})."


def _scroll(desktop: Desktop, args: ActionArguments) -> str:
    amount = -3 if args.amount is None else args.amount
    if not amount or abs(amount) > MOST_NOTCHES:
        raise TrustedToolError(
            f"Nothing was scrolled: amount is 1 to {MOST_NOTCHES} up, -1 to -{MOST_NOTCHES} down."
        )
    wheel = _WHEEL_UP if amount > 0 else _WHEEL_DOWN
    times = ("--repeat", str(abs(amount)), "--delay", "30")
    desktop.input(*args.move(*_PAUSE), "click", *times, wheel)
    return f"Scrolled {'up' if amount > 0 else 'down'} by {abs(amount)}."


def _hold(desktop: Desktop, args: ActionArguments, word: str) -> str:
    desktop.input(*args.move(), f"mouse{word}", _BUTTONS[args.button])
    return f"The button is {word}."


def _type(desktop: Desktop, args: ActionArguments) -> str:
    if not args.text:
        raise TrustedToolError("Nothing was typed: this needs text. Call it again with that.")
    desktop.type(args.text)
    return f"Typed {len(args.text):,} characters."


def keys_of(written: str) -> list[str]:
    """Return key presses as xdotool writes them; ToolError for a name that is not a key's."""
    return list(map(_key_press, written.split())) or (["space"] if written else [])


def _key_press(word: str) -> str:
    *modifiers, key = re.split(r"(?<=.)\+(?=.)", word)
    names = [_MODIFIERS.get(name.lower()) for name in modifiers]
    if len(key) == 1 and key.isprintable():
        # In `ctrl+A`, as people write it, the key is `a`.
        key = key if "shift" in names or not modifiers else key.lower()
        named = key if key.isascii() and key.isalnum() else f"U{ord(key):04X}"
    else:
        named = _KEY_NAMES.get(key.lower()) or _MODIFIERS.get(key.lower())
    if named is None or None in names:
        known = ", ".join(dict.fromkeys(_KEY_NAMES.values()))
        raise TrustedToolError(
            f"No key was pressed: {word!r} is not a key. Write one as a character or a name, with "
            f"ctrl+, alt+, shift+ or super+ before it, and several with blanks between. Names: "
            f"{known}, Prior (page up), Next (page down). Use typing for text."
        )
    return "+".join([*filter(None, names), named])


def _press(desktop: Desktop, args: ActionArguments) -> str:
    if not args.keys:
        raise TrustedToolError("No key was pressed: this needs keys. Call it again with them.")
    desktop.input("key", "--delay", "20", *keys_of(args.keys))
    return f"Pressed {args.keys.strip() or 'space'}."


def _open(desktop: Desktop, args: ActionArguments) -> str:
    if not (args.command or "").strip():
        raise TrustedToolError("Nothing was opened: this needs command. Call it again with that.")
    return desktop.open(args.command or "")


def _wait(desktop: Desktop, args: ActionArguments) -> str:
    seconds = min(max(0.0, 1.0 if args.duration is None else args.duration), MOST_WAIT_S)
    desktop.stop.wait(seconds)
    return f"Waited {seconds:g} s."


_ACTIONS: Mapping[str, Callable[[Desktop, ActionArguments], str]] = {
    "screenshot": lambda desktop, args: "",
    "open": _open,
    "move_to": _move,
    "click": _click,
    "double_click": lambda desktop, args: _click(desktop, args, clicks=2),
    "right_click": lambda desktop, args: _click(desktop, args, "right"),
    "drag_to": _drag,
    "scroll": _scroll,
    "typing": _type,
    "press": _press,
    "hotkey": _press,
    "mouse_down": lambda desktop, args: _hold(desktop, args, "down"),
    "mouse_up": lambda desktop, args: _hold(desktop, args, "up"),
    "wait": _wait,
}
