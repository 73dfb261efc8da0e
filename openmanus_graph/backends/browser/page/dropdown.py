"""Drop-downs of every kind: native ones, suggestion lists, and lists made of other elements."""

from collections.abc import Sequence
from dataclasses import dataclass

from openmanus_graph.backends.browser.page.frames import FrameDetached, JsonObject
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.backends.browser.page.report import ActionReport
from openmanus_graph.backends.browser.page.snapshot import Element
from openmanus_graph.backends.browser.page.view import PageView, Target
from openmanus_graph.errors import ToolError

MAX_LISTED = 100
MAX_OPTIONS = 3000
MAX_PAGES = 200
"""How far a list that draws only what is in view is paged through."""
OPEN_LIMIT_S = 3.0


@dataclass(frozen=True)
class Option:
    """One choice of a drop-down."""

    name: str
    value: str = ""
    number: int = 0
    """Its place in a native list, its element's number in another."""
    selected: bool = False
    disabled: bool = False
    group: str = ""

    def text(self, place: int) -> str:
        """Write it as one line of a list."""
        value = f" (value {self.value})" if self.value and self.value != self.name else ""
        group = f" in {self.group}" if self.group else ""
        marks = [word for word in ("selected", "disabled") if getattr(self, word)]
        return f"{place}: {self.name}{value}{group}{''.join(', ' + mark for mark in marks)}"


async def dropdown_options(view: PageView, index: int) -> ActionReport:
    """List what can be chosen from a drop-down; a closed one that is not native is opened."""
    target, found = await view.with_element(index, _native_options)
    if found["kind"] != "custom":
        return ActionReport(_list_text(target, _options(found), ""), (index,))
    options = await _open_list(view, target)
    return ActionReport(_list_text(target, options, "The list is open now."), (index,))


async def select_dropdown_option(view: PageView, index: int, text: str) -> ActionReport:
    """Choose an option by its label, its value or its place in the list (from 0)."""
    target, found = await view.with_element(index, _native_options)
    await view.begin(target)
    if found["kind"] == "select":
        return await _select_native(target, found, text)
    if found["kind"] == "datalist":
        option = _match(_options(found), text, target)
        await target.call("assign", option.value or option.name)
        return _chosen(target, option)
    options = await _open_list(view, target, wanted=text)
    option = _match(options, text, target)
    await click(view, await _index_of(view, target, option))
    return _chosen(target, option)


def _chosen(target: Target, option: Option, also: str = "") -> ActionReport:
    said = f'Chose "{option.name}" in {target.label}.{also}'
    return ActionReport(said, (target.element.index,), option.name)


async def _native_options(target: Target) -> tuple[Target, JsonObject]:
    return target, await target.call("nativeOptions")


def _options(found: JsonObject) -> list[Option]:
    return [
        Option(one["name"], one["value"], one["n"], one["selected"], one["disabled"], one["group"])
        for one in found["options"] or ()
    ]


async def _select_native(target: Target, found: JsonObject, text: str) -> ActionReport:
    target.require_enabled(found["disabled"])
    option = _match(_options(found), text, target)
    answer = await target.call("selectOption", option.number)
    chosen = answer["chosen"]
    if chosen is not None and option.name not in chosen:
        raise ToolError(f'{target.label} went back to "{", ".join(chosen)}" by itself.')
    also = f" Selected now: {', '.join(chosen)}." if chosen and len(chosen) > 1 else ""
    return _chosen(target, option, also)


async def _open_list(view: PageView, target: Target, wanted: str = "") -> list[Option]:
    """Open a drop-down if it is closed, and read its list."""
    options = await _read_list(view, target, wanted)
    if options:
        return options
    before = await view.look()
    opened = view.lists.get(target.element.index, [])
    if still := [before.elements[one] for one in opened if one in before.elements]:
        return _named_options(still)
    await click(view, target.element.index)
    await view.settle(OPEN_LIMIT_S)
    after = await view.look()
    options = await _read_list(view, target, wanted)
    if not options:
        new = [one for index, one in after.elements.items() if index not in before.elements]
        view.lists[target.element.index] = [one.index for one in new]
        options = _named_options(new)
    if not options:
        raise ToolError(
            f"{target.label} was clicked, but no list of options appeared. If it filters while "
            "one types, use input_text and then click the suggestion."
        )
    return options


async def _read_list(view: PageView, target: Target, wanted: str) -> list[Option]:
    """Read an open list, paging through one that draws only what is in view."""
    try:
        found = await target.call("customOptions")
        if not found.get("options"):
            return []
        options = {(one.name, one.value): one for one in _options(found)}
        turned = await view.frames.call(target.world, "pageList", found["list"], True)
        for _ in range(MAX_PAGES):
            enough = MAX_OPTIONS if wanted else MAX_LISTED
            if len(options) > enough or (wanted and _same(list(options.values()), wanted)):
                break
            turned = await view.frames.call(target.world, "pageList", found["list"], False)
            found = await target.call("customOptions")
            options |= {(one.name, one.value): one for one in _options(found)}
            if not turned.get("moved"):
                break
    except FrameDetached:
        return []
    return list(options.values())


def _named_options(elements: Sequence[Element]) -> list[Option]:
    """Take the elements that appeared when the drop-down was clicked for its options."""
    return [Option(one.name, number=one.number) for one in elements if one.name]


async def _index_of(view: PageView, target: Target, option: Option) -> int:
    """Return the index of an option's element: the one it was read from, else the last so named."""
    snapshot = await view.look()
    named = [one for one in snapshot.elements.values() if one.name == option.name]
    if not named:
        raise ToolError(f'The option "{option.name}" is no longer shown. List the options again.')
    read_from = (target.world.key, option.number)
    same = (one for one in named if (one.frame, one.number) == read_from)
    return next(same, named[-1]).index


def _match(options: Sequence[Option], text: str, target: Target) -> Option:
    """Find the option that is meant; ToolError with the list if there is none or it is disabled."""
    option = _same(options, text) or _only_similar(options, text)
    if option is None:
        raise ToolError(f'There is no option "{text}". ' + _list_text(target, options, ""))
    if option.disabled:
        raise ToolError(
            f'The option "{option.name}" is disabled. ' + _list_text(target, options, "")
        )
    return option


def _same(options: Sequence[Option], text: str) -> Option | None:
    wanted = " ".join(text.split())
    by_name = next((one for one in options if one.name == wanted), None)
    return by_name or next((one for one in options if one.value and one.value == wanted), None)


def _only_similar(options: Sequence[Option], text: str) -> Option | None:
    """Take the only option whose name has the text in it, else the one at that place."""
    wanted = " ".join(text.lower().split())
    whole = [one for one in options if one.name.lower() == wanted]
    if wanted.isdecimal() and not whole:
        return options[int(wanted)] if int(wanted) < len(options) else None
    some = whole or [one for one in options if wanted and wanted in one.name.lower()]
    return some[0] if len(some) == 1 else None


def _list_text(target: Target, options: Sequence[Option], note: str) -> str:
    lines = [option.text(place) for place, option in enumerate(options[:MAX_LISTED])]
    more = len(options) - len(lines)
    rest = [f"({more} more; choose them by their labels)"] if more > 0 else []
    return "\n".join(filter(None, [f"Options of {target.label}:", *lines, *rest, note]))
