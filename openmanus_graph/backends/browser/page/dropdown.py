"""Drop-downs of every kind: native ones, suggestion lists, and lists made of other elements."""

import contextlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached, JsonObject
from openmanus_graph.backends.browser.page.pointer import (
    NO_BOX,
    click_point,
    click_to_open,
    locate,
)
from openmanus_graph.backends.browser.page.snapshot import FIELDS, Element
from openmanus_graph.backends.browser.page.text import ActionReport
from openmanus_graph.backends.browser.page.view import PageView, Target
from openmanus_graph.errors import ToolError

MAX_LISTED = 100
MAX_OPTIONS = 3000
MAX_PAGES = 200  # how far a list that draws only what is in view is paged through
OPEN_LIMIT_S = 3.0
CLICKS = 3  # how often an option is looked for again that scrolling has redrawn
SHOWN_CHARS = 80
_TYPED = tuple(role for role in FIELDS if role != "combobox")
_NO_LISTS = ("button", "disclosure", "link", "menuitem", "listbox", "file input", *_TYPED)
"""Roles of what is a drop-down only if it says or looks so."""


@dataclass(frozen=True)
class Option:
    name: str
    value: str = ""
    number: int = 0  # its place in a native list, its element's number in another
    selected: bool = False
    disabled: bool = False
    group: str = ""

    def text(self, place: int) -> str:
        value = f" (value {self.value})" if self.value and self.value != self.name else ""
        group = f" in {self.group}" if self.group else ""
        marks = ", selected" * self.selected + ", disabled" * self.disabled
        return f"{place}: {self.name}{value}{group}{marks}"


@dataclass(frozen=True)
class OptionList:
    options: Sequence[Option] = ()
    whole: bool = True
    """Whether these are all; a long list that draws only what is in view is not read to its end."""

    def text(self, target: Target) -> str:
        lines = [option.text(place) for place, option in enumerate(self.options[:MAX_LISTED])]
        lines.insert(0, f"Options of {target.label}:")
        more = len(self.options) - MAX_LISTED
        if not self.whole:
            lines.append(
                f"(The list may be longer: only its first {len(self.options)} options were read. "
                "Choose one by its label; if it is not found, filter by typing with input_text, or "
                "scroll the list.)"
            )
        elif more > 0:
            lines.append(f"({more} more; choose them by their labels)")
        return "\n".join(lines)

    def named(self, text: str) -> Option | None:
        wanted = " ".join(text.split())
        by_name = next((one for one in self.options if one.name == wanted), None)
        by_value = (one for one in self.options if one.value and one.value == wanted)
        return by_name or next(by_value, None)

    def similar(self, text: str) -> Option | None:
        """Return the only option whose label contains the text, else the one at that place."""
        options, wanted = self.options, " ".join(text.lower().split())
        whole = [one for one in options if one.name.lower() == wanted]
        if wanted.isdecimal() and not whole:
            there = options[int(wanted)] if int(wanted) < len(options) else None
            named = [one for one in options if wanted in re.findall(r"\d+", one.name)]
            if there and named and there not in named:
                raise ToolError(
                    f'"{text}" is in the label "{named[0].name}" and the place of "{there.name}" '
                    "in the list. Give the whole label."
                )
            return there or (named[0] if len(named) == 1 else None)
        some = whole or [one for one in options if wanted and wanted in one.name.lower()]
        return some[0] if len(some) == 1 else None

    def choose(self, text: str, target: Target) -> Option:
        option = self.named(text) or self.similar(text)
        if option is None:
            where = "" if self.whole else " in the part of the list that was read"
            raise ToolError(f'There is no option "{text}"{where}. {self.text(target)}')
        if option.disabled:
            raise ToolError(f'The option "{option.name}" is disabled. {self.text(target)}')
        return option


def _read(found: JsonObject) -> list[Option]:
    return [
        Option(one["name"], one["value"], one["n"], one["selected"], one["disabled"], one["group"])
        for one in found["options"] or ()
    ]


async def dropdown_options(view: PageView, index: int) -> ActionReport:
    """List what can be chosen from a drop-down; a closed one that is not native is opened."""
    target, found = await view.ask(index, "nativeOptions")
    if found["kind"] != "custom":
        return ActionReport(OptionList(_read(found)).text(target), (index,))
    listed = await _open_list(view, target)
    return ActionReport(f"{listed.text(target)}\nThe list is open now.", (index,))


async def select_dropdown_option(view: PageView, index: int, text: str) -> ActionReport:
    """Choose an option by its label, its value or its place in the list (from 0).

    In a list of several choices, an option that is selected already is deselected.
    """
    target, found = await view.ask(index, "nativeOptions")
    await view.begin(target)
    if found["kind"] == "select":
        return await _select_native(target, found, text)
    if found["kind"] == "datalist":
        option = OptionList(_read(found)).choose(text, target)
        wanted = option.value or option.name
        value = (await target.call("assign", wanted))["value"]
        if value != wanted:
            raise ToolError(f'{target.label} did not take "{option.name}": it holds "{value}".')
        return _chosen(target, option)
    before = await target.call("shownChoice", 0)
    option = (await _open_list(view, target, wanted=text)).choose(text, target)
    await _click_option(view, target, option)
    await view.settle(OPEN_LIMIT_S)
    return await _report_choice(target, option, before["text"])


def _chosen(target: Target, option: Option) -> ActionReport:
    said = f'Chose "{option.name}" in {target.label}.'
    holds = target.element.role == "combobox"  # others show what is chosen next to them
    return ActionReport(said, (target.element.index,), option.name if holds else None)


async def _report_choice(target: Target, option: Option, before: str) -> ActionReport:
    """Report that an option was chosen only if the drop-down shows it now, and not by chance."""
    shown: JsonObject = {"text": "", "selected": False}
    with contextlib.suppress(FrameDetached, DialogOpen):
        shown = await target.call("shownChoice", option.number)
    text = shown["text"]
    shows_it = option.name == text or (text != before and option.name in text)
    if shows_it or shown["selected"]:
        return _chosen(target, option)
    now = f'shows "{text[:SHOWN_CHARS]}" now' if text else "shows no choice of it"
    said = f'Clicked "{option.name}" in the list of {target.label}, which {now}.'
    return ActionReport(said, (target.element.index,))


async def _click_option(view: PageView, target: Target, option: Option) -> None:
    """Click an option; one of a list that draws only what is in view is looked for again."""
    for _ in range(CLICKS):
        element = Element(0, target.world.key, option.number, "option", option.name, NO_BOX)
        with contextlib.suppress(FrameDetached):
            await click_point(view, await locate(Target(view, target.world, element)))
            return
        drawn = OptionList(_read(await target.call("customOptions", [])))
        again = drawn.named(option.name)
        if again is None:
            again = (await _read_list(view, target, option.name)).named(option.name)
        option = again or option
    raise ToolError(f'The option "{option.name}" is no longer shown. List the options again.')


async def _select_native(target: Target, found: JsonObject, text: str) -> ActionReport:
    target.require_enabled(found["disabled"])
    option = OptionList(_read(found)).choose(text, target)
    await target.call("selectOption", option.number)
    await target.view.settle(OPEN_LIMIT_S)
    try:
        now = _read(await target.call("nativeOptions"))
    except (FrameDetached, DialogOpen):  # the page has left, or opened a dialog
        return _chosen(target, option)
    chosen = [one.name for one in now if one.selected]
    listed = ", ".join(chosen)
    takes_back = found["many"] and option.selected
    if (option.name in chosen) == takes_back:
        raise ToolError(f'{target.label} went back to "{listed}" by itself.')
    said = f'{"Took back" if takes_back else "Chose"} "{option.name}" in {target.label}.'
    if takes_back or len(chosen) > 1:
        said += f" Selected now: {listed or 'nothing'}."
    return ActionReport(said, (target.element.index,), listed)


async def _open_list(view: PageView, target: Target, wanted: str = "") -> OptionList:
    if (listed := await _read_list(view, target, wanted)).options:
        return listed
    before = await view.look()
    for _ in range(2):  # the first click may close what was open
        await target.call("noteLists")
        # Drop-downs that are made of other elements may have no sign of it, but buttons have.
        await click_to_open(
            target, "a drop-down", lambda role, opens: role in _NO_LISTS and not opens
        )
        await view.settle(OPEN_LIMIT_S)
        after = await view.look()
        new = [one for index, one in after.elements.items() if index not in before.elements]
        appeared = [one.number for one in new if one.frame == target.world.key]
        if (listed := await _read_list(view, target, wanted, appeared)).options:
            return listed
        if before.elements.keys() <= after.elements.keys():
            break
        before = after
    if target.element.role == "combobox":
        await target.view.act(view.page.keyboard.press("ArrowDown"))
        await view.settle(OPEN_LIMIT_S)
        if (listed := await _read_list(view, target, wanted)).options:
            return listed
    raise ToolError(
        f"{target.label} was clicked, but no list of options appeared. If it filters while "
        "one types, use input_text and then click the suggestion."
    )


async def _read_list(
    view: PageView, target: Target, wanted: str, appeared: Sequence[int] = ()
) -> OptionList:
    """Read an open list, as far as the wanted option; page through one that draws only a part."""
    options: dict[tuple[str, str], Option] = {}
    most, at_end = MAX_OPTIONS if wanted else MAX_LISTED, False
    call = view.frames.call
    try:
        for page in range(MAX_PAGES):
            found = await target.call("customOptions", list(appeared))
            if page == 0 and found.get("list"):
                await call(target.world, "pageList", found["list"], True)
                found = await target.call("customOptions", list(appeared))
            options |= {(one.name, one.value): one for one in _read(found)}
            if wanted and OptionList(list(options.values())).named(wanted):
                break
            at_end = not found.get("list") or not (
                await call(target.world, "pageList", found["list"], False)
            ).get("moved")
            if at_end or len(options) > most:
                break
    except FrameDetached:
        return OptionList()
    return OptionList(list(options.values()), at_end)
