"""Fill in fields: type text, press keys, give files; a field is read back afterwards."""

import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from playwright.async_api import TimeoutError as NoChooser

from openmanus_graph.backends.browser.action_specs import press_name
from openmanus_graph.backends.browser.page.dropdown import select_dropdown_option
from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached, JsonObject
from openmanus_graph.backends.browser.page.pointer import click_to_open, locate
from openmanus_graph.backends.browser.page.snapshot import FIELDS, Element
from openmanus_graph.backends.browser.page.text import ActionReport
from openmanus_graph.backends.browser.page.view import PageView, Target
from openmanus_graph.errors import ToolError, TrustedToolError

TYPED_CHARS = 120  # longer texts are put in at once, but for their end
LAST_CHARS = 5
CHOOSER_MS = 4000
SLIDER_PRESSES = 400  # how many steps a slider is moved at most
SLIDER_KEYS = (("ArrowUp", "ArrowDown"), ("ArrowRight", "ArrowLeft"))
_CLICKED_ROLES = ("button", "link", "disclosure", "menuitem", "listbox")
SHOWN_CHARS = 200
SELECT_ALL = "ControlOrMeta+a"
_COMBINATION = re.compile(r"(ctrl|control|cmd|command|meta|alt|option|shift)\+.", re.IGNORECASE)


async def input_text(
    view: PageView, index: int, text: str, *, secret: bool = False
) -> ActionReport:
    """Replace what a field holds by a text. A secret is never shown, in later snapshots neither."""
    target, facts = await view.ask(index, "field", begin=True)
    _require_text_field(target, facts)
    if facts["kind"] == "select":
        return await select_dropdown_option(view, index, text)
    if facts["kind"] == "set":
        return await _assign(target, text)
    if facts["kind"] == "slider":
        return await _move_slider(target, text)
    number = await _focus_field(target, facts, secret)
    await view.act(_type_rich(target, text) if facts["rich"] else _type(view, facts, text))
    if view.frames.dialog_open:
        return ActionReport(f"Typed into {target.label}.", (index,))
    return await _verify(target, number, text, secret or facts["type"] == "password")


def _require_text_field(target: Target, facts: JsonObject) -> None:
    target.require_enabled(facts["disabled"])
    if facts["readonly"]:
        raise ToolError(
            f"{target.label} is read-only. Click it: it may open a picker to choose from."
        )
    if facts["kind"] == "check":
        raise ToolError(f"{target.label} is not typed into: click it to change it.")
    if facts["kind"] == "file":
        raise ToolError(f"{target.label} takes files: use upload_file with their paths.")


async def _assign(target: Target, text: str) -> ActionReport:
    """Set a field that is not typed into: dates, times, colours, sliders."""
    facts = await target.call("assign", text.strip())
    if facts.get("refused"):
        raise ToolError(
            f'{target.label} did not take "{text}". It needs the form {facts["format"]}, and '
            "holds what it held before."
        )
    said = f'Set {target.label} to "{text}".'
    if facts["value"] != text.strip():
        said = f'{target.label} now holds "{facts["value"]}".'
    return ActionReport(said, (target.element.index,), facts["value"])


async def _move_slider(target: Target, text: str) -> ActionReport:
    """Move a slider that is made of other elements to a number, by its keys."""
    try:
        wanted = float(text)
    except ValueError as error:
        raise ToolError(f"{target.label} takes a number, not {text!r}.") from error
    facts = await target.call("slider", None)
    keys = SLIDER_KEYS if facts["focused"] and facts["now"] is not None else ()
    for more, less in keys:
        moved = await _press_towards(target, facts, wanted, more, less)
        if moved["now"] == wanted or moved["now"] != facts["now"] or moved.get("nearest"):
            said = f'{target.label} now holds "{moved["shown"]}".'
            if moved["now"] == wanted:
                said = f'Set {target.label} to "{text.strip()}".'
            return ActionReport(said, (target.element.index,), moved["shown"])
    raise ToolError(
        f"{target.label} is not moved by keys: it was left where it was. Drag it with "
        "drag_and_drop to x and y, or click a place of it with click_at."
    )


async def _press_towards(
    target: Target, facts: JsonObject, wanted: float, more: str, less: str
) -> JsonObject:
    """Press keys until a slider is at a number, or as near as it gets; return its facts."""

    async def press(key: str) -> JsonObject:
        await target.view.act(target.view.page.keyboard.press(key))
        return await target.call("slider", facts["now"])

    if wanted != facts["now"] and wanted in (facts["least"], facts["most"]):
        facts = await press("End" if wanted == facts["most"] else "Home")
    for _ in range(SLIDER_PRESSES):
        left, before = wanted - facts["now"], facts["now"]
        if not left:
            break
        facts = await press(more if left > 0 else less)
        if facts["now"] == before:
            break
        if (facts["now"] - before) * left < 0:  # its keys go the other way
            more, less = less, more
            continue
        if abs(wanted - facts["now"]) > abs(left):  # it has no place nearer to it
            return {**await press(less if left > 0 else more), "nearest": True}
    return facts


async def _focus_field(target: Target, facts: JsonObject, secret: bool) -> int | None:
    """Put the cursor into the field, its text selected; return its number, None if elsewhere."""
    if facts["kind"] == "text" and (await target.call("enter", secret))["focused"]:
        return target.element.number
    await click_to_open(target, "a textbox", lambda role, _: role in _CLICKED_ROLES)
    await target.view.settle(2)
    entered: JsonObject = {"gone": True}
    if not (await target.call("focusElsewhere"))["elsewhere"]:
        entered = await target.view.frames.call(target.world, "enter", None, secret)
    if entered.get("gone") or entered["kind"] != "text":
        raise ToolError(
            f"{target.label} cannot be typed into. Choose a textbox, or click it and look at "
            "what opens. A cell may take send_keys after a click."
        )
    return None


async def _type_rich(target: Target, text: str) -> None:
    """Type into an editor; lines are pasted, because Enter may have another meaning in it."""
    keyboard = target.view.page.keyboard
    await keyboard.press(SELECT_ALL)  # it may draw a part of its text only
    if "\n" not in text:
        await _type(target.view, {"many": True}, text)
        return
    pasted = await target.view.frames.call(target.world, "paste", text)
    if not pasted["taken"]:
        await keyboard.insert_text(text)


async def _type(view: PageView, facts: JsonObject, text: str) -> None:
    keyboard = view.page.keyboard
    text = text if facts["many"] else text.replace("\n", " ")
    if not text:
        await keyboard.press("Delete")
        return
    if len(text) > TYPED_CHARS:
        await keyboard.insert_text(text[:-LAST_CHARS])
        text = text[-LAST_CHARS:]
    for place, line in enumerate(text.split("\n")):
        if place:
            await keyboard.insert_text("\n")
        if line:
            await keyboard.type(line)


async def _verify(target: Target, number: int | None, text: str, hidden: bool) -> ActionReport:
    """Read the field back, set it at once if typing was disturbed, and report what it holds."""
    frames, world = target.view.frames, target.world
    shown = "the text" if hidden else f'"{text[:SHOWN_CHARS]}"'
    said = ActionReport(
        f"Typed {shown} into {target.label}." if text else f"Cleared {target.label}.",
        (target.element.index,),
        None if hidden and text else text,
    )
    try:
        facts = await frames.call(world, "field", number)
        if facts.get("gone"):
            return replace(said, text=f"{said.text} The page has redrawn the field since.")
        if facts["rich"] and not _same_lines(facts["value"], text):
            facts["value"] = await _copied(target) or facts["value"]
        elif not _holds(facts, text):
            facts = await frames.call(world, "assign", number, text)
    except FrameDetached:
        return said
    if _same_lines(facts["value"], text) or (hidden and _holds(facts, text)):
        return said
    if _holds(facts, text):
        shown = f'{said.text} It shows "{facts["value"][:SHOWN_CHARS]}".'
        return replace(said, text=shown, value=facts["value"])
    if hidden:
        raise ToolError(f"{target.label} did not take the text as given.")
    why = f" {facts['invalid']}" if facts["invalid"] else ""
    form = f" It needs the form {facts['format']}." if facts["format"] else ""
    raise ToolError(
        f'{target.label} did not take "{text[:SHOWN_CHARS]}": it holds '
        f'"{facts["value"][:SHOWN_CHARS]}".{why}{form}'
    )


async def _copied(target: Target) -> str:
    """Return the whole text of an editor that draws a part of it only; empty if it gives none."""
    keyboard = target.view.page.keyboard
    await keyboard.press(SELECT_ALL)
    copied = await target.view.frames.call(target.world, "copied")
    await keyboard.press("ArrowRight")
    return copied["text"] or ""


def _same_lines(shown: str, text: str) -> bool:
    """Return True if two texts have the same lines, but for empty ones and blanks at their ends."""
    one, other = (
        [line.rstrip() for line in lines.replace("\xa0", " ").split("\n") if line.strip()]
        for lines in (shown, text)
    )
    return one == other


def _holds(facts: JsonObject, text: str) -> bool:
    """Return True if a field holds a text, as changed by its mask, limit or completion."""
    value, length = _letters(facts["value"]), facts["longest"]
    wanted = _letters(text[:length] if length else text)
    completed = bool(wanted) and not facts["rich"] and value.startswith(wanted)
    return value == wanted or completed


def _letters(text: str) -> str:
    """Return what a mask leaves of a text: letters and digits, or its signs if it has neither."""
    signs = "".join(text.lower().split())
    return "".join(char for char in signs if char.isalnum()) or signs


async def send_keys(
    view: PageView, keys: str, before: Callable[[PageView, str], Awaitable[None]] | None = None
) -> ActionReport:
    """Press keys ("Enter", "Control+A", "Tab Tab Enter") or type a text where the cursor is.

    `before` is awaited before each key.
    """
    presses = [press_name(token) for token in keys.split()]
    if presses == [None] and _COMBINATION.match(keys.strip()):
        raise TrustedToolError(
            f'There is no key "{keys.strip()}". Write keys like "Control+A" or "Enter".'
        )
    await view.begin()
    if not presses or not all(presses):
        await view.act(view.page.keyboard.type(keys))
        return ActionReport(f'Typed "{keys}".')
    for press in presses:
        if before is not None:
            await before(view, str(press))
        await view.act(view.page.keyboard.press(str(press)))
        if view.frames.dialog_open:
            return ActionReport(f"Pressed {press}.")
    said = f"Pressed {' '.join(map(str, presses))}."
    focused = await _focused(view) if presses[-1] in ("Tab", "Shift+Tab") else None
    if focused is None:
        return ActionReport(said)
    return ActionReport(f"{said} The focus is on {focused.label}.", (focused.index,))


async def _focused(view: PageView) -> Element | None:
    worlds = await view.frames.worlds()
    key = (worlds[0].key, await view.frames.call(worlds[0], "focusedNumber"))
    elements = view.snapshot.elements.values() if view.snapshot else ()
    return next((one for one in elements if one.key == key), None)


async def upload_file(view: PageView, index: int, paths: Sequence[Path]) -> ActionReport:
    """Put files into a file input, or into the chooser that a click on the element opens."""
    target, facts = await view.ask(index, "fileFacts", begin=True)
    target.require_enabled(facts.get("disabled", False))
    _check_file_count(target, paths, many=facts.get("many", True))
    if facts.get("none"):
        if target.element.role != "drop area" or not await _drop_files(view, target, paths):
            await _give_to_chooser(view, target, paths)
    else:
        function = f"openmanus.fileInput({target.element.number})"
        node = await view.frames.evaluate(target.world, function)
        files = {"files": [str(path) for path in paths], "objectId": node.get("objectId")}
        await view.frames.send(target.world.session, "DOM.setFileInputFiles", files)
        with contextlib.suppress(FrameDetached, DialogOpen):  # the page has left with them
            taken = await target.call("fileFacts")
            if taken.get("folders") and len(taken["names"]) < len(paths):
                raise ToolError(
                    f"{target.label} takes whole folders, not files: nothing was given."
                )
    names = ", ".join(path.name for path in paths)
    return ActionReport(f"Gave {names} to {target.label}.", (index,))


def _check_file_count(target: Target, paths: Sequence[Path], *, many: bool) -> None:
    if len(paths) > 1 and not many:
        raise ToolError(f"{target.label} takes one file only, and {len(paths)} were given.")


async def _give_to_chooser(view: PageView, target: Target, paths: Sequence[Path]) -> None:
    try:
        async with view.page.expect_file_chooser(timeout=CHOOSER_MS) as chooser:
            what = "a file input, or the button of one"
            await click_to_open(target, what, lambda role, _: role in (*FIELDS, "listbox"))
        opened = await chooser.value
    except NoChooser as error:
        if await _drop_files(view, target, paths):
            return
        raise ToolError(
            f"{target.label} takes no files and opened no file chooser. Choose a file input or "
            "the button that opens one."
        ) from error
    _check_file_count(target, paths, many=opened.is_multiple())
    await opened.set_files(list(paths))


async def _drop_files(view: PageView, target: Target, paths: Sequence[Path]) -> bool:
    """Drop files onto an element, as from a desktop; return False if it does not take them."""
    point = await view.with_element(target.element.index, locate)
    session = (await view.frames.worlds())[0].session  # the page's own: places are the window's
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    taken = False
    with contextlib.suppress(FrameDetached, DialogOpen):  # the page has left with them
        for kind in ("dragEnter", "dragOver", "drop"):
            taken = (await target.call("dragTaken"))["taken"]
            refused = kind == "drop" and not taken  # the browser would open the file then
            place = {"type": "dragCancel" if refused else kind, "x": point.x, "y": point.y}
            await view.frames.send(session, "Input.dispatchDragEvent", {**place, "data": data})
    return taken
