"""What each action of `browser_use` needs and may change: what its tool declares.

The handlers of the actions are imported only when a page is opened.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from openmanus_graph.errors import TrustedToolError

HANDLE = "browser"
"""The key of the browser session among the session's handles."""


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call beside its action; the defaults are the tool's."""

    url: str | None = None
    index: int | None = None
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
    def number(self) -> int:
        """The index, of an action that needs one."""
        return -1 if self.index is None else self.index

    @property
    def words(self) -> str:
        """The text, of an action that needs one."""
        return self.text or ""


@dataclass(frozen=True)
class Action:
    """One action."""

    needs: tuple[str, ...] = ()
    changes: bool = False
    """Whether it may change something in the world, so that it must not be repeated unasked."""
    shows_all: bool = False
    """Whether the whole page is shown afterwards, not only what changed."""
    in_dialog: bool = False
    """Whether it makes sense while a dialog blocks the page."""
    looks: bool = True
    """Whether a snapshot of the page is taken afterwards."""


ACTIONS: Mapping[str, Action] = {
    "go_to_url": Action(("url",), shows_all=True),
    "get_state": Action(shows_all=True, in_dialog=True),
    "click_element": Action(("index",), changes=True),
    "input_text": Action(("index", "text"), changes=True),
    "send_keys": Action(("keys",), changes=True),
    "scroll_down": Action(),
    "scroll_up": Action(),
    "scroll_to_text": Action(("text",)),
    "get_dropdown_options": Action(("index",)),
    "select_dropdown_option": Action(("index", "text"), changes=True),
    "go_back": Action(changes=True),
    "refresh": Action(changes=True, shows_all=True),
    "open_tab": Action(("url",), shows_all=True),
    "switch_tab": Action(("tab_id",), shows_all=True),
    "close_tab": Action(shows_all=True, in_dialog=True),
    "wait": Action(),
    "hover": Action(("index",)),
    "click_at": Action(("x", "y"), changes=True),
    "drag_and_drop": Action(("index",), changes=True),
    "upload_file": Action(("text",), changes=True),
    "handle_dialog": Action(changes=True, in_dialog=True),
    "save_pdf": Action(looks=False),
    "web_search": Action(("query",)),
    "extract_content": Action(),
}


def check_needs(name: str, given: Arguments) -> None:
    """Raise ToolError for what an action needs and the call does not say."""
    missing = [need for need in ACTIONS[name].needs if _lacks(given, need)]
    if missing:
        raise TrustedToolError(f"{name} needs {' and '.join(missing)}. Call it again with that.")


def _lacks(given: Arguments, need: str) -> bool:
    """Whether nothing is given; an empty text clears a field, and a blank is a key."""
    value = getattr(given, need)
    said = value.strip() if need in ("url", "query") and value else value
    return said is None or (said == "" and need != "text")
