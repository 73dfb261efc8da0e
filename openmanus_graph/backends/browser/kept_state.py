"""What of a thread's browser outlives its process: cookies, local storage and tabs.

They are in one file of the thread's private folder, which no sandbox sees, and nowhere else.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, Error
from pydantic import TypeAdapter

from openmanus_graph.backends.browser.browsers import LaunchSettings
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import Workspace, put_file

log = logging.getLogger(__name__)

MAX_STORED_CHARS = 100_000  # more local storage of one site is not kept
MAX_ALL_STORED_CHARS = 2_000_000
"""Of all sites; the newest are kept. The file is written again after each action."""
RESTORE_S = 15.0
UNREADABLE = (
    "What was kept of the last browser (cookies, local storage and tabs) cannot be read and is "
    "lost: this one was opened empty."
)
STORAGE_LOST = (
    "Its cookies and local storage could not be restored and are lost: log in again where you were."
)


@dataclass(frozen=True)
class BrowserState:
    """What a browser can be opened with again."""

    cookies: tuple[dict[str, Any], ...] = ()
    local_storage: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """By origin."""
    tabs: tuple[str, ...] = ()
    current: int = -1  # which of them is the current one; -1 if it is an empty one

    def __post_init__(self) -> None:
        if not -1 <= self.current < max(1, len(self.tabs)):
            raise ValueError("the current tab is not kept")

    async def restore_storage(self, context: BrowserContext) -> bool | None:
        """Give a new browser the cookies and local storage; return whether it took all of them.

        None if there are none: what a profile has stays in it.
        """
        if not (self.cookies or self.local_storage):
            return None
        origins = [
            {"origin": origin, "localStorage": [{"name": k, "value": v} for k, v in kept.items()]}
            for origin, kept in self.local_storage.items()
        ]
        state: Any = {"cookies": list(self.cookies), "origins": origins}
        try:
            async with asyncio.timeout(RESTORE_S):
                await context.set_storage_state(state)
        except (Error, TimeoutError):
            return False
        return True


_STATE = TypeAdapter(BrowserState)


def newest_stored(local_storage: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Return the sites with the newest local storage, as many as are kept; the newest is last."""
    kept, room = dict[str, dict[str, str]](), MAX_ALL_STORED_CHARS
    for origin, stored in reversed(local_storage.items()):
        room -= len(origin) + sum(len(name) + len(value) for name, value in stored.items())
        if room < 0:
            break
        kept[origin] = stored
    return dict(reversed(kept.items()))


def state_file(session: Session) -> Path | None:
    """Return the file that keeps the state of a session's browser; None if it is not kept.

    It is kept for a thread that another process may continue. A person's own browser or profile
    keeps its logins by itself.
    """
    browser = session.settings.browser
    if not session.checkpointed or browser.profile or LaunchSettings.of(browser).remote:
        return None
    worker = session.worker
    name = hashlib.sha256(worker.encode()).hexdigest()[:16] if worker else "state"
    return session.workspace.private / "browser" / f"{name}.json"


def has_kept_tabs(session: Session) -> bool:
    """Return True if the session's browser will open with the tabs that were kept of it. Blocks."""
    file = state_file(session)
    state = load_state(file) if file is not None else None
    return state is not None and bool(state.tabs)


def load_state(file: Path) -> BrowserState | None:
    """Return a kept state, an empty one if there is none; None if it cannot be read. Blocks."""
    try:
        return _STATE.validate_json(file.read_bytes())
    except FileNotFoundError:
        return BrowserState()
    except (OSError, ValueError):  # its error would quote what is kept
        log.warning("the browser's state cannot be read; the browser opens empty")
        return None


def save_state(workspace: Workspace, file: Path, state: BrowserState) -> bool:
    """Replace the file by one with this state; return whether that worked. Blocks."""
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        put_file(workspace, file, _STATE.dump_json(state), mode=0o600, synced=False)
    except OSError as error:
        log.warning("the browser's state was not kept: %s", error.strerror)
        return False
    return True
