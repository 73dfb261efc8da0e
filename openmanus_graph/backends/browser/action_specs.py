"""The actions of `browser_use`: what each requires, what it may change, and its arguments.

Light to import: the handlers of the actions are imported only when a page is opened.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from openmanus_graph.errors import TrustedToolError

HANDLE = "browser"  # the key of the browser session among the session's handles
_KEY_NAMES = {
    "ctrl": "Control", "control": "Control", "cmd": "Meta", "command": "Meta", "meta": "Meta",
    "alt": "Alt", "option": "Alt", "shift": "Shift", "esc": "Escape", "escape": "Escape",
    "return": "Enter", "enter": "Enter", "tab": "Tab", "del": "Delete", "delete": "Delete",
    "backspace": "Backspace", "space": "Space", "home": "Home", "end": "End", "insert": "Insert",
    "pageup": "PageUp", "pgup": "PageUp", "pagedown": "PageDown", "pgdn": "PageDown",
    "up": "ArrowUp", "down": "ArrowDown", "left": "ArrowLeft", "right": "ArrowRight",
    "arrowup": "ArrowUp", "arrowdown": "ArrowDown", "arrowleft": "ArrowLeft",
    "arrowright": "ArrowRight", "controlormeta": "ControlOrMeta",
    **{f"f{number}": f"F{number}" for number in range(1, 13)},
}  # fmt: skip


@dataclass(frozen=True)
class ActionArguments:
    """The arguments of a call next to its action; the defaults are the tool's."""

    url: str | None = None
    index: int | None = None
    label: str | None = None
    text: str | None = None
    scroll_amount: int | None = None
    tab_id: int | None = None
    query: str | None = None
    goal: str | None = None
    keys: str | None = None
    seconds: int | None = None
    target_index: int | None = None
    x: float | None = None
    y: float | None = None
    accept: bool = True

    @property
    def required_index(self) -> int:
        return -1 if self.index is None else self.index

    @property
    def required_text(self) -> str:
        return self.text or ""

    @property
    def indices(self) -> dict[str, int]:
        given = {"index": self.index, "target_index": self.target_index}
        return {name: index for name, index in given.items() if index is not None}


@dataclass(frozen=True)
class ActionSpec:
    required: tuple[str, ...] = ()  # the arguments that it cannot do without
    has_effects: bool = False
    """Whether it may change something in the world, so that it must not be repeated unasked."""
    enters: str = ""  # the argument whose text the page is given
    switches: bool = False  # whether it may show another page, which the call does not name
    shows_whole_page: bool = False
    """Whether the whole page is shown afterwards, not only what changed."""
    allowed_in_dialog: bool = False  # whether it makes sense while a dialog blocks the page
    takes_snapshot: bool = True  # whether a snapshot of the page is taken afterwards


INDEX_IF_GIVEN = ("upload_file", "scroll_down", "scroll_up")
ACTION_SPECS: Mapping[str, ActionSpec] = {
    "go_to_url": ActionSpec(("url",), shows_whole_page=True),
    "get_state": ActionSpec(shows_whole_page=True, allowed_in_dialog=True),
    "click_element": ActionSpec(("index",), has_effects=True),
    "input_text": ActionSpec(("index", "text"), has_effects=True, enters="text"),
    "send_keys": ActionSpec(("keys",), has_effects=True, enters="keys"),
    "scroll_down": ActionSpec(),
    "scroll_up": ActionSpec(),
    "scroll_to_text": ActionSpec(("text",)),
    "get_dropdown_options": ActionSpec(("index",)),
    "select_dropdown_option": ActionSpec(("index", "text"), has_effects=True),
    "go_back": ActionSpec(has_effects=True, switches=True),
    "refresh": ActionSpec(has_effects=True, shows_whole_page=True),
    "open_tab": ActionSpec(("url",), shows_whole_page=True),
    "switch_tab": ActionSpec(("tab_id",), switches=True, shows_whole_page=True),
    "close_tab": ActionSpec(switches=True, shows_whole_page=True, allowed_in_dialog=True),
    "wait": ActionSpec(),
    "hover": ActionSpec(("index",)),
    "click_at": ActionSpec(("x", "y"), has_effects=True),
    "drag_and_drop": ActionSpec(("index",), has_effects=True),
    "upload_file": ActionSpec(("text",), has_effects=True, enters="text"),
    "handle_dialog": ActionSpec(has_effects=True, enters="text", allowed_in_dialog=True),
    "save_pdf": ActionSpec(takes_snapshot=False),
    "web_search": ActionSpec(("query",), switches=True),
    "extract_content": ActionSpec(),
    "evaluate": ActionSpec(("text",), has_effects=True),  # refused but on own pages
}


def check_required_arguments(action: str, args: ActionArguments) -> None:
    """Raise ToolError for the required arguments that a call leaves out.

    An empty text is an argument, because it clears a field; so is a blank as a key.
    """
    missing: list[str] = []
    for name in ACTION_SPECS[action].required:
        value = getattr(args, name)
        if name in ("url", "query") and value:
            value = value.strip()
        if name == "index" and value is None:
            value, name = args.label, "index (or label)"
        if value is None or (value == "" and name != "text"):
            missing.append(name)
    if missing:
        raise TrustedToolError(f"{action} needs {' and '.join(missing)}. Call it again with that.")


def press_name(token: str) -> str | None:
    """Return a key or a combination by the name the browser knows; None for plain text."""
    parts = ["+"] if token == "+" else re.split(r"\+(?!$)", token)
    names = [_KEY_NAMES.get(part.lower(), "") for part in parts]
    if len(parts) > 1 and all(names[:-1]) and len(parts[-1]) == 1:
        names[-1] = parts[-1].lower() if "Shift" not in names else parts[-1]
    return "+".join(names) if all(names) else None
