"""The actions of `computer_use`: what mouse and keyboard do, and what the model reads of it."""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from openmanus_graph.backends.desktop.desktop import HANDLE, HEIGHT, WIDTH, Desktop, as_jpeg
from openmanus_graph.backends.desktop.keyboard import keys_of
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.runtime.session import Session, run_blocking

Button = Literal["left", "right", "middle"]
MOST_CLICKS, MOST_NOTCHES, MOST_WAIT_S = 3, 10, 10.0
_BUTTONS: Mapping[Button, str] = {"left": "1", "middle": "2", "right": "3"}
_WHEEL_UP, _WHEEL_DOWN = "4", "5"
_DRAG_STEPS = 10
_PAUSE = ("sleep", "0.05")


@dataclass(frozen=True)
class ActionArguments:
    """The arguments of a call beside its action; the defaults are the tool's."""

    x: float | None = None
    y: float | None = None
    button: Button = "left"
    num_clicks: int = 1
    amount: int | None = None
    text: str | None = None
    keys: str | None = None
    duration: float | None = None
    command: str | None = None


def run_action(desktop: Desktop, action: str, args: ActionArguments) -> str:
    """Do it, wait until the screen is quiet, and say what came of it. Blocks.

    Raises:
        ToolError: It was not done, and why.
    """
    before = desktop.picture()
    done = _ACTIONS[action](desktop, args)
    changed = desktop.settle(before)
    return "\n".join(filter(None, (done, changed, desktop.look().describe())))


async def state_for_request(
    session: Session, picture: bool, *, after_observation: bool = False
) -> tuple[str, str | None]:
    """Return what the desktop shows, for the next request. Never raises, never stored.

    Args:
        session: The thread's.
        picture: Whether to return a picture too, for a model that reads them.
        after_observation: Whether the request ends with the newest observation, so that without a
            picture nothing need be said.

    Returns:
        The text, in the programs' words, and the picture as a data URL.
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


def _place(args: ActionArguments) -> tuple[str, str] | None:
    """Return where a call points; None: it says nothing. ToolError: that is no place."""
    if args.x is None and args.y is None:
        return None
    if args.x is None or args.y is None:
        raise TrustedToolError("Nothing was done: a place needs both x and y.")
    x, y = round(args.x), round(args.y)
    if not (0 <= x < WIDTH and 0 <= y < HEIGHT):
        raise TrustedToolError(
            f"Nothing was done: ({x}, {y}) is outside of the screen, which goes from (0, 0) to "
            f"({WIDTH - 1}, {HEIGHT - 1}). Take the place from the newest picture."
        )
    return str(x), str(y)


def _named_place(args: ActionArguments) -> tuple[str, str]:
    place = _place(args)
    if place is None:
        raise TrustedToolError("Nothing was done: this needs x and y. Call it again with them.")
    return place


def _move(desktop: Desktop, args: ActionArguments) -> str:
    x, y = _named_place(args)
    desktop.input("mousemove", x, y)
    return f"Moved the mouse to ({x}, {y})."


def _click(desktop: Desktop, args: ActionArguments, *, button: Button | None = None) -> str:
    if not 1 <= args.num_clicks <= MOST_CLICKS:
        raise TrustedToolError(f"Nothing was done: num_clicks is 1 to {MOST_CLICKS}.")
    place, used = _place(args), button or args.button
    move = ("mousemove", *place, *_PAUSE) if place else ()
    times = ("--repeat", str(args.num_clicks), "--delay", "60")
    desktop.input(*move, "click", *times, _BUTTONS[used])
    where = f" at ({place[0]}, {place[1]})" if place else f" at {desktop.windows.mouse}"
    how = {1: "Clicked", 2: "Double-clicked", 3: "Triple-clicked"}[args.num_clicks]
    return f"{how}{'' if used == 'left' else f' the {used} button'}{where}."


def _double_click(desktop: Desktop, args: ActionArguments) -> str:
    return _click(desktop, ActionArguments(args.x, args.y, args.button, 2))


def _right_click(desktop: Desktop, args: ActionArguments) -> str:
    return _click(desktop, args, button="right")


def _drag(desktop: Desktop, args: ActionArguments) -> str:
    """Drag in steps: a program may take one long jump for no movement at all."""
    x, y = map(int, _named_place(args))
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
    place = _place(args)
    move = ("mousemove", *place, *_PAUSE) if place else ()
    wheel = _WHEEL_UP if amount > 0 else _WHEEL_DOWN
    desktop.input(*move, "click", "--repeat", str(abs(amount)), "--delay", "30", wheel)
    return f"Scrolled {'up' if amount > 0 else 'down'} by {abs(amount)}."


def _press_or_release(words: str, done: str) -> Callable[[Desktop, ActionArguments], str]:
    def act(desktop: Desktop, args: ActionArguments) -> str:
        place = _place(args)
        desktop.input(*(("mousemove", *place) if place else ()), words, _BUTTONS[args.button])
        return done

    return act


def _type(desktop: Desktop, args: ActionArguments) -> str:
    if not args.text:
        raise TrustedToolError("Nothing was typed: this needs text. Call it again with that.")
    desktop.type(args.text)
    return f"Typed {len(args.text):,} characters."


def _press(desktop: Desktop, args: ActionArguments) -> str:
    if not args.keys:
        raise TrustedToolError("No key was pressed: this needs keys. Call it again with them.")
    presses = keys_of(args.keys)
    desktop.input("key", "--delay", "20", *presses)
    return f"Pressed {args.keys.strip() or 'space'}."


def _open(desktop: Desktop, args: ActionArguments) -> str:
    if not (args.command or "").strip():
        raise TrustedToolError("Nothing was opened: this needs command. Call it again with that.")
    return desktop.open(args.command or "")


def _wait(desktop: Desktop, args: ActionArguments) -> str:
    seconds = min(max(0.0, 1.0 if args.duration is None else args.duration), MOST_WAIT_S)
    desktop.stop.wait(seconds)
    return f"Waited {seconds:g} s."


def _screenshot(desktop: Desktop, args: ActionArguments) -> str:
    del desktop, args
    return ""


_ACTIONS: Mapping[str, Callable[[Desktop, ActionArguments], str]] = {
    "screenshot": _screenshot,
    "open": _open,
    "move_to": _move,
    "click": _click,
    "double_click": _double_click,
    "right_click": _right_click,
    "drag_to": _drag,
    "scroll": _scroll,
    "typing": _type,
    "press": _press,
    "hotkey": _press,
    "mouse_down": _press_or_release("mousedown", "The button is down."),
    "mouse_up": _press_or_release("mouseup", "The button is up."),
    "wait": _wait,
}
