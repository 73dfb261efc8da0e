"""Which Chromium to start, and how to get one."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from openmanus_graph.errors import TrustedToolError

COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "microsoft-edge-stable",
    "brave-browser",
)
_MAC_APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
_PLAYWRIGHTS = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium_headless_shell-*/chrome-*/*headless*shell",
)


def find_browser(configured: str | None) -> Path:
    """Return the program: the configured one, Playwright's own, or one of the system. Blocks.

    Raises:
        ToolError: There is none, and what installs one.
    """
    if configured:
        path = Path(configured).expanduser()
        if path.is_file() and os.access(path, os.X_OK):
            return path
        raise TrustedToolError(
            f"There is no browser at {configured}. A person has to correct "
            "[browser] chrome_instance_path in the configuration."
        )
    found = next(_places(), None)
    if found is None:
        raise TrustedToolError(
            "No browser is installed. A person has to run `openmanus doctor --fix`, or install "
            "Chromium or Chrome. Do what is left of the task without browser_use."
        )
    return found


def _places() -> Iterator[Path]:
    for pattern in _PLAYWRIGHTS:
        yield from sorted(_playwright_folder().glob(pattern), reverse=True)
    yield from (Path(path) for name in COMMANDS if (path := shutil.which(name)))
    if sys.platform == "darwin":
        for folder in (Path("/Applications"), Path.home() / "Applications"):
            for app in _MAC_APPS:
                path = folder / f"{app}.app" / "Contents" / "MacOS" / app
                if path.is_file():
                    yield path


def _playwright_folder() -> Path:
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if named and named != "0":
        return Path(named)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "ms-playwright"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ms-playwright"
