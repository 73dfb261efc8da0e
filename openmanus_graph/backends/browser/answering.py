"""Questions about a page's text, answered by the model; quotes are checked against the page."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace

from openmanus_graph.backends.browser.browser_session import BrowserSession
from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.content import Content, read_content
from openmanus_graph.backends.web.markdown import chunks
from openmanus_graph.backends.web.reading import fitted
from openmanus_graph.errors import ToolError
from openmanus_graph.prompts import render
from openmanus_graph.runtime.output import LIMIT
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.tool_runtime import AskModel

PART_CHARS = 30_000
MAX_PARTS = 6
"""Of a longer page, the parts that share the most words with the question."""
NOT_FOUND = "NOT FOUND"
_AT_ONCE = 3
_WORD = re.compile(r"\w{3,}")
_QUOTE = re.compile(r"^\s*>\s?(.*\S)\s*$")
_MARKUP = re.compile(r"!?\[([^][]*)\]\([^()\s]*\)|[*_`#>|\\\s\"'“”‘’]+")


async def extract(browser: BrowserSession, goal: str | None, ask: AskModel | None) -> str:
    """Return the answer to a goal from the page, or the whole page as Markdown.

    Raises:
        ToolError: The page cannot be read.
    """
    content = await browser_loop.run(lambda: read_content(browser))
    hidden = browser.secrets.redacted
    content = replace(
        content, url=hidden(content.url), title=hidden(content.title), text=hidden(content.text)
    )
    head = f"{content.title} {content.url}".strip()
    if not goal or ask is None:
        return f"{head}\n\n{await asyncio.to_thread(_fitted, content.text, browser.session)}"
    try:
        return f"From {head}:\n{await answer(content, goal, ask)}"
    except ToolError as error:
        text = await asyncio.to_thread(_fitted, content.text, browser.session)
        return f"{error} This is the page itself.\n{head}\n\n{text}"


def _fitted(text: str, session: Session) -> str:
    room = session.settings.browser.max_content_length or LIMIT - 500
    return fitted(text, min(room, LIMIT - 500), session.workspace)


async def answer(content: Content, goal: str, ask: AskModel) -> str:
    """Return the answer to a question, with the passages that support it.

    Raises:
        ToolError: The model could not be asked.
    """
    parts, left_out = choose_parts(content.text, goal)
    replies = await _ask_parts(content, goal, parts, ask)
    useful = [reply for reply in replies if not reply.startswith(NOT_FOUND)]
    reply = useful[0] if useful else replies[0]
    if len(useful) > 1:
        merge = render("extract_merge", goal=goal, url=content.url, answers="\n\n".join(useful))
        reply = await ask(render("extract_system"), merge)
    note = (
        f"\n({left_out} of the page's parts were not read: the least related.)" if left_out else ""
    )
    return checked(reply, content.text) + note


def choose_parts(text: str, goal: str) -> tuple[list[str], int]:
    """Cut a text into parts for one question each; also say how many were left out."""
    parts = [chunk.text for chunk in chunks(text, PART_CHARS)] or [""]
    if len(parts) <= MAX_PARTS:
        return parts, 0
    wanted = {word.lower() for word in _WORD.findall(goal)}
    scores = [_score(part, wanted) for part in parts]
    best = sorted(range(len(parts)), key=lambda place: (-scores[place], place))[:MAX_PARTS]
    return [parts[place] for place in sorted(best)], len(parts) - MAX_PARTS


def checked(reply: str, text: str) -> str:
    """Remove quotes that are not in the text from a reply, and add a note on it."""
    normalized = _normalized(text)
    lines, missing, passages = list[str](), 0, 0
    for line in reply.strip().splitlines():
        quote = _QUOTE.match(line)
        if quote is None:
            lines.append(line)
        elif _normalized(quote[1]) in normalized:
            passages += 1
            lines.append(line)
        else:
            missing += 1
    if missing:
        lines.append(
            f"({missing} quoted {'passage does' if missing == 1 else 'passages do'} not stand on "
            f"the page and {'was' if missing == 1 else 'were'} left out. Check the answer on the "
            "page itself.)"
        )
    elif not passages and not reply.startswith(NOT_FOUND):
        lines.append("(No passage was quoted. Check the answer on the page itself.)")
    return "\n".join(lines)


async def _ask_parts(content: Content, goal: str, parts: Sequence[str], ask: AskModel) -> list[str]:
    """Ask about each part, a few at once."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def ask_part(number: int, text: str) -> str:
        part = f"part {number} of {len(parts)}" if len(parts) > 1 else "the whole page"
        request = render("extract_request", goal=goal, url=content.url, part=part, text=text)
        async with limit:
            return await ask(render("extract_system"), request)

    return list(await asyncio.gather(*(ask_part(n, text) for n, text in enumerate(parts, 1))))


def _score(part: str, wanted: set[str]) -> int:
    words = {word.lower() for word in _WORD.findall(part)}
    return len(words & wanted)


def _normalized(text: str) -> str:
    """Normalize text for comparing quotes: no markup, white space or quotation marks."""
    return _MARKUP.sub(lambda found: _MARKUP.sub("", found[1] or ""), text).lower()
