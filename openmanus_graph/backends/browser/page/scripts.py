"""Our scripts for pages: those of our isolated world, and the few that run in the page's own."""

import functools
import secrets
from importlib.resources import files

EVENTS = "om" + secrets.token_hex(6)
"""How the names of our events and of our world begin, in this process."""
_SCRIPTS = ("dom", "names", "quiet", "hover", "walk", "clickable", "collect", "act", "forms")
_CALLABLE = (
    "collect, mark, quiet, point, under, pointNow, bringTogether, framePlace, scrollPage, "
    "scrollToText, numberOfText, field, enter, assign, nativeOptions, selectOption, "
    "customOptions, pageList, fileInput, fileFacts, connected, numberOf, focusedNumber, adopt"
)


@functools.cache
def script(name: str) -> str:
    """Read one of our scripts, with event names that differ from process to process."""
    text = (
        files("openmanus_graph.backends.browser.page")
        .joinpath("script", f"{name}.js")
        .read_text("utf-8")
    )
    return text.replace("openmanus-", EVENTS)


@functools.cache
def isolated_script() -> str:
    """Return the program of our isolated world, which makes `openmanus` known there."""
    body = "\n".join(script(name) for name in _SCRIPTS)
    return (
        "if (!globalThis.openmanus) globalThis.openmanus = (() => {\n"
        f"'use strict';\n{body}\nreturn {{ {_CALLABLE} }};\n}})(); 0"
    )
