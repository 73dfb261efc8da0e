"""Saves rows of the current page as CSV or JSON: its tables, or what a model finds in its text."""

import asyncio
import csv
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.page.frames import DialogOpen, FrameDetached
from openmanus_graph.backends.browser.reading import ask_parts, plain_words, read_content, ready_tab
from openmanus_graph.backends.browser.tab import file_name, keep_file
from openmanus_graph.conversation.loose_json import UNREADABLE, read_json
from openmanus_graph.errors import ToolError, TrustedToolError
from openmanus_graph.prompts import render
from openmanus_graph.runtime.tool_runtime import AskModel

MAX_FILES = 20
_SHOWN_CHARS = 200
_SHOWN_VALUES = 5

Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first one has the names of the columns."""

    name: str
    rows: Sequence[Row]
    note: str = ""

    def encoded(self, suffix: str) -> bytes:
        if suffix == ".csv":
            out = io.StringIO()
            csv.writer(out, lineterminator="\n").writerows(self.rows)
            return out.getvalue().encode("utf-8", "replace")
        columns: list[str] = []
        width = max(map(len, self.rows))
        for place, name in enumerate([*self.rows[0], *[""] * (width - len(self.rows[0]))], 1):
            columns.append(name if name and name not in columns else f"{name} {place}".strip())
        objects = [dict(zip(columns, row, strict=False)) for row in self.rows[1:]]
        return json.dumps(objects, ensure_ascii=False, indent=1).encode("utf-8", "replace")


async def save_rows(
    browser: BrowserSession, name: str, goal: str | None, ask: AskModel | None
) -> str:
    """Save the page's tables, or what a model finds for a goal; return what was saved where."""
    suffix = PurePath(name.strip()).suffix.lower()
    if suffix not in (".csv", ".json"):
        raise TrustedToolError("text names the file to save, which ends in .csv or .json.")
    tables = [await _extracted(browser, goal, ask)] if goal and ask else await _tables(browser)
    stem, lines = PurePath(file_name(name, browser.secrets)).stem, list[str]()
    for number, table in enumerate(tables[:MAX_FILES], 1):
        own = f"{stem}{suffix}" if number == 1 else f"{stem}-{number}{suffix}"
        workspace, data = browser.session.workspace, table.encoded(suffix)
        kept = await asyncio.to_thread(keep_file, workspace, data, own)
        titled, columns = table.name and f' "{table.name}"', ", ".join(table.rows[0])
        lines.append(f"Saved{titled} as {kept}: {len(table.rows) - 1} rows and a first one with "
                     f"the columns {columns[:_SHOWN_CHARS]}.{table.note}")  # fmt: skip
    more = len(tables) - MAX_FILES
    return "\n".join([*lines, *[f"({more} more tables were not saved.)"] * (more > 0)])


async def _tables(browser: BrowserSession) -> list[Table]:
    async def read() -> list[dict[str, Any]]:
        async with browser.lock:
            view = (await ready_tab(browser)).view
            await view.look()  # it finds what is in shadow roots
            try:
                worlds = await view.frames.worlds()
                return [await view.frames.call(world, "tables") for world in worlds]
            except (FrameDetached, DialogOpen) as error:
                raise ToolError("The page changed while it was read. Try again.") from error

    found: list[Table] = []
    redacted, cut = browser.secrets.redacted, ""
    for frame in await browser_loop.run(read):
        cut = cut or " The tables of the page are too large: the rest was left out." * frame["cut"]
        for one in frame["tables"]:
            texts: list[list[str]] = one["rows"]
            rows: list[Row] = [[*map(redacted, row)] for row in texts if any(row)]
            head = found[-1].rows if found else ()
            # A head that stays when the rows are scrolled is a table for itself.
            if len(head) == 1 and rows and len(head[0]) == len(rows[0]):
                rows = [*found.pop().rows, *rows]
            says = f" The page says it has {one['count']} rows, and has loaded these only."
            note = says if one["count"] > len(rows) else ""
            found.append(Table(redacted(one["name"]), rows, note + cut))
    real = [one for one in found if len(one.rows) > 1 and max(map(len, one.rows)) > 1]
    if not real:
        raise TrustedToolError(
            "Nothing was saved: the page has no table. Give a goal: what the rows are to hold."
        )
    return real


async def _extracted(browser: BrowserSession, goal: str, ask: AskModel) -> Table:
    """Ask a model for rows of the page's text, and count what is not on the page."""
    redacted = browser.secrets.redacted
    url, _, content = map(redacted, await browser_loop.run(lambda: read_content(browser)))
    replies, left_out = await ask_parts(url, content, goal, ask, render("extract_rows"))
    entries = [entry for reply in replies for entry in _entries(reply)]
    columns = list(dict.fromkeys(key for entry in entries for key in entry))
    if not columns:
        raise ToolError("Nothing was saved: no such entry was found. Look at the page itself.")
    rows = [[_text(entry.get(key, "")) for key in columns] for entry in entries]
    whole = plain_words(content)
    values = [text for row in rows for text in row if text]
    made_up = [text for text in values if plain_words(text) not in whole]
    shown = ", ".join(f'"{text[:_SHOWN_CHARS]}"' for text in made_up[:_SHOWN_VALUES])
    note = f" {len(made_up)} of {len(values)} values are not on the page word for word: {shown}."
    parts = f" {left_out} of the page's parts were not read: the least related." if left_out else ""
    return Table("", [columns, *rows], (note if made_up else "") + parts)


def _entries(reply: str) -> list[dict[str, Any]]:
    """Return the objects of a reply that should be a JSON array of them."""
    start = re.search(r"[\[{]", reply)
    try:
        found: Any = read_json(reply, start.start())[0] if start else []
    except UNREADABLE as error:
        raise ToolError(
            "Nothing was saved: the model's answer was no JSON. Ask for less at once."
        ) from error
    if isinstance(found, dict):  # some put the array into an object
        values: list[Any] = list(cast("dict[str, Any]", found).values())
        wraps = len(values) == 1 and isinstance(values[0], list)
        found = cast("Any", values[0] if wraps else [found])
    entries = cast("list[Any]", found)
    return [one if isinstance(one, dict) else {"value": one} for one in entries]


def _text(value: object) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
