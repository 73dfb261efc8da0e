"""Finding the browser program, and starting it or connecting to one that runs."""

import asyncio
import logging
import os
import re
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from openmanus_graph.errors import TrustedToolError
from openmanus_graph.state.settings import BrowserSettings

if TYPE_CHECKING:
    from playwright.async_api import Browser, Playwright

log = logging.getLogger(__name__)
T = TypeVar("T")

_COMMANDS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "microsoft-edge-stable",
    "brave-browser",
)
_MAC_APPS = ("Google Chrome", "Chromium", "Microsoft Edge", "Brave Browser")
_PLAYWRIGHT_BROWSERS = (
    "chromium-*/chrome-linux*/chrome",
    "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
    "chromium_headless_shell-*/chrome-*/*headless*shell",
)
VIEWPORT = {"width": 1280, "height": 900}
START_S = 60.0
_CHROMIUM_ARGS = (
    # All traffic goes through our proxy, which resolves names; nothing may leak around it.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1",
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--webrtc-ip-handling-policy=disable_non_proxied_udp",
    "--disable-quic",
)
_INSECURE_ARGS = (
    "--disable-web-security",
    "--disable-site-isolation-trials",
    "--ignore-certificate-errors",
    "--allow-running-insecure-content",
)
_PASSED_ENVIRONMENT = (
    "HOME", "PATH", "LANG", "LANGUAGE", "LC_ALL", "TZ", "TMPDIR", "USER", "DISPLAY",
    "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME",
    "XDG_DATA_DIRS", "DBUS_SESSION_BUS_ADDRESS", "FONTCONFIG_PATH", "FONTCONFIG_FILE",
    "LD_LIBRARY_PATH", "CHROME_DEVEL_SANDBOX",
)  # fmt: skip


@dataclass(frozen=True)
class LaunchSettings:
    """The launch settings of a browser process; threads with the same ones share it."""

    path: str | None
    headless: bool
    disable_security: bool
    extra_args: tuple[str, ...]
    cdp_url: str | None
    wss_url: str | None

    @classmethod
    def of(cls, settings: BrowserSettings) -> "LaunchSettings":
        """Read it from the settings."""
        displays = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
        return cls(
            settings.chrome_instance_path,
            settings.headless or (sys.platform == "linux" and not displays),
            settings.disable_security,
            settings.extra_chromium_args,
            settings.cdp_url,
            settings.wss_url,
        )

    @property
    def remote(self) -> bool:
        """Whether the browser was started by others, and perhaps cannot reach our proxy."""
        return bool(self.cdp_url or self.wss_url)


async def start_browser(playwright: "Playwright", launch: LaunchSettings) -> "Browser":
    """Start or connect to the browser. ToolError says what a person has to do."""
    from playwright.async_api import Error

    try:
        if launch.cdp_url:
            return await playwright.chromium.connect_over_cdp(launch.cdp_url, timeout=START_S * 500)
        if launch.wss_url:
            return await playwright.chromium.connect(launch.wss_url, timeout=START_S * 500)
    except Error as error:
        raise TrustedToolError(_explain_unreachable(launch, error)) from error
    options = await asyncio.to_thread(launch_options, launch)
    try:
        return await start_sandboxed(playwright.chromium.launch, options)
    except Error as error:
        raise TrustedToolError(
            f"The browser {options['executable_path']} did not start: {first_line(error)} "
            "`openmanus doctor` may tell a person why. Do what is left without browser_use."
        ) from error


def _explain_unreachable(launch: LaunchSettings, error: Exception) -> str:
    place = "cdp_url" if launch.cdp_url else "wss_url"
    why, what = first_line(error), "start it or correct the address"
    if "version mismatch" in str(error):
        versions = sorted(set(re.findall(r"(?:server|client) version: v[\w.]+", str(error))))
        why = f"it is a server of another Playwright ({', '.join(versions)})."
        what = "start one of the client's version"
    elif launch.wss_url and "/devtools/" in launch.wss_url:
        why = "it is Chromium's own address, not a Playwright server's."
        what = "set it as cdp_url"
    return (
        f"The browser that [browser] {place} names cannot be reached: {why} A person has to {what}."
    )


def launch_options(launch: LaunchSettings) -> dict[str, Any]:
    """Return the options for Playwright's `launch`. Blocks. ToolError when there is no browser."""
    args = (
        *_CHROMIUM_ARGS,
        *(_INSECURE_ARGS if launch.disable_security else ()),
        *launch.extra_args,
    )
    return {
        "executable_path": find_browser(launch.path),
        "headless": launch.headless,
        "args": list(args),
        "env": {name: os.environ[name] for name in _PASSED_ENVIRONMENT if name in os.environ},
        # Root cannot use Chromium's own sandbox.
        "chromium_sandbox": os.geteuid() != 0,
        # The first Ctrl-C only drains the run: it must not end the browser.
        "handle_sigint": False,
        "handle_sigterm": False,
        "handle_sighup": False,
        "timeout": START_S * 1000,
    }


async def start_sandboxed(
    start: Callable[..., Awaitable[T]], options: dict[str, Any], **more: Any
) -> T:
    """Start a browser in its own sandbox, or without where the system does not allow one."""
    from playwright.async_api import Error

    try:
        return await start(**options, **more)
    except Error as error:
        if not (options["chromium_sandbox"] and "sandbox" in str(error).lower()):
            raise
    log.warning("the system allows Chromium no sandbox of its own; it runs without")
    return await start(**{**options, "chromium_sandbox": False}, **more)


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
    found = next(_installed_browsers(), None)
    if found is None:
        raise TrustedToolError(
            "No browser is installed. A person has to run `openmanus doctor --fix`, or install "
            "Chromium or Chrome. Do what is left of the task without browser_use."
        )
    return found


def _installed_browsers() -> Iterator[Path]:
    """Find Playwright's browsers, the latest first, then the system's."""
    named = os.environ.get("PLAYWRIGHT_BROWSERS_PATH")
    if named and named != "0":
        folder = Path(named)
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "ms-playwright"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(cache) / "ms-playwright"
    for pattern in _PLAYWRIGHT_BROWSERS:
        yield from sorted(folder.glob(pattern), reverse=True)
    yield from (Path(path) for name in _COMMANDS if (path := shutil.which(name)))
    if sys.platform == "darwin":
        for apps in (Path("/Applications"), Path.home() / "Applications"):
            paths = (apps / f"{app}.app" / "Contents" / "MacOS" / app for app in _MAC_APPS)
            yield from filter(Path.is_file, paths)


def user_agent(version: str) -> str:
    """Return the User-Agent of a headed browser: many sites refuse headless ones."""
    system = (
        "Macintosh; Intel Mac OS X 10_15_7" if sys.platform == "darwin" else "X11; Linux x86_64"
    )
    return (
        f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) "
        f"Chrome/{version.partition('.')[0]}.0.0.0 Safari/537.36"
    )


def first_line(error: Exception) -> str:
    """Return what a Playwright error says, without its call log."""
    text = str(error).strip().partition("\n")[0]
    for prefix in ("Page.", "Locator.", "BrowserType.", "Browser.", "BrowserContext.", "Frame."):
        if text.startswith(prefix):
            text = text.partition(": ")[2] or text
    return text if text.endswith((".", "!", "?")) else f"{text}."
