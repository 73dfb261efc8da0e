"""What is kept of an action for a replay to do it again, and how that is fitted to a new page."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from openmanus_graph.backends.browser.action_specs import ActionArguments
from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.page import (
    RecordedTarget,
    find_target,
    record_point,
    record_target,
)
from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached
from openmanus_graph.errors import ToolError

_INDEX, _INDICES = "index", ("index", "target_index")
_POINT, _STATUS = "point", "status"


async def record_step(browser: BrowserSession, args: ActionArguments) -> dict[str, Any]:
    """Return what an action that is about to be done acts on: elements, or a point."""
    recorded: dict[str, Any] = {}
    if not browser.tabs:
        return recorded
    view, redact = browser.current.view, browser.secrets.redacted
    with suppress(FrameDetached, DialogOpen):
        for name in _INDICES:
            index = getattr(args, name)
            target = None if index is None else await record_target(view, index, redact)
            if target is not None:
                recorded[name] = target.as_json()
        if args.x is not None and args.y is not None:
            recorded[_POINT] = await record_point(view, args.x, args.y, redact)
    return recorded


def record_result(browser: BrowserSession) -> dict[str, Any]:
    """Return what else is kept of an action that was done."""
    return {_STATUS: browser.current.status} if browser.tabs else {}


async def fit_step(
    browser: BrowserSession, args: ActionArguments, recorded: Mapping[str, Any]
) -> ActionArguments:
    """Return a recorded action's arguments with the indices that its elements have now.

    Raises:
        ToolError: An element is not there, or it is not certain which one it is.
    """
    redact = browser.secrets.redacted
    for name in _INDICES:
        if getattr(args, name) is None:
            continue
        if name not in recorded:
            raise ToolError("It was not recorded which element that was, among very many alike.")
        target = RecordedTarget.of(recorded[name])
        found = await find_target(browser.current.view, target, redact)
        args = replace(args, index=found) if name == _INDEX else replace(args, target_index=found)
    if args.x is not None and args.y is not None:
        view = browser.current.view
        await view.settle()
        then, now = recorded.get(_POINT), await record_point(view, args.x, args.y, redact)
        if now != then:
            at = f"x={args.x:g} y={args.y:g}"
            raise ToolError(f"The recorded step does not fit. At {at} was {then}; now it is {now}.")
    return args


def check_result(browser: BrowserSession, recorded: Mapping[str, Any]) -> None:
    """Raise ToolError if an action that was done again led to a server's error, as not then."""
    status = browser.current.status if browser.tabs else 0
    if status >= 400 and status != recorded.get(_STATUS):
        address = browser.current.current_url
        raise ToolError(
            f"The recorded step was done, and {address} answered HTTP {status}, as it did not then."
        )
