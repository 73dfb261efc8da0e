"""Pages as Markdown: converted in a limited child process, and split into chunks by headings."""

import asyncio
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from openmanus_graph.backends.files.child import run_in_child

REST_HEADING = "## Menus and the rest of the page"
CHUNK_CHARS = 6000
PART_CHARS = 30_000
MAX_PARTS = 6
"""Of a longer text, the parts that share the most words with a question."""
_CONVERT_ENTRY = "openmanus_graph.backends.web.page_text:convert"
_WORD = re.compile(r"\w{3,}")
_LINK = re.compile(r"!?\[([^][]*)\]\([^()\s]*\)")
_HEADING = re.compile(r"(#{1,6}) +(.+)")


@dataclass(frozen=True)
class PageText:
    """A page as text."""

    title: str
    description: str
    main: str
    """Markdown of the main content; links are whole addresses."""
    rest: str
    """Markdown of menus, sidebars and footers."""
    words: int
    internal_links: int
    external_links: int
    images: int
    dropped_blocks: int
    """Blocks left out because they have fewer words than the threshold."""
    read: int
    """How many characters were read of a page that is too long; 0 if it was read completely."""

    @property
    def markdown(self) -> str:
        """Everything, the main content first."""
        return whole([self])


def whole(texts: Sequence[PageText]) -> str:
    """Join pages, such as a page and its frames, with the main contents first.

    A note on missing text comes before them, because only the beginning of a long text is shown.
    """
    main = [text.main for text in texts]
    read = next((text.read for text in texts if text.read), 0)
    note = f"[The page goes on; only its first {read / 1e6:.1f} MB were read.]" if read else ""
    rest = "\n\n".join(filter(None, (text.rest for text in texts)))
    return "\n\n".join(filter(None, (note, *main, f"{REST_HEADING}\n\n{rest}" if rest else "")))


@dataclass(frozen=True)
class Chunk:
    """A part of a text that begins at a heading, or continues a section that was too long."""

    heading: str
    """The headings above it and its own, such as "Guide > Install"; empty before the first."""
    text: str
    first_line: int
    """1-based, in the whole text."""
    last_line: int


async def page_text(
    html: bytes | str, url: str, *, charset: str | None = None, word_count_threshold: int = 0
) -> PageText:
    """Convert a page. ToolError if its parser failed; that ends only the child process.

    Args:
        html: The bytes that the server sent, or the text of a rendered page.
        url: The base of relative links.
        word_count_threshold: Lines of menus and footers with fewer words are left out; above the
            usual 10, plain paragraphs of the main content are as well.
    """
    data = html if isinstance(html, bytes) else html.encode("utf-8", "replace")
    declared = charset if isinstance(html, bytes) else "utf-8"
    request = {"url": url, "charset": declared, "word_count_threshold": word_count_threshold}

    def convert() -> PageText:
        with tempfile.TemporaryFile() as file:
            file.write(data)
            file.flush()
            return PageText(**run_in_child(_CONVERT_ENTRY, file, request, what="The HTML parser"))

    return await asyncio.to_thread(convert)


def chunks(text: str, max_chars: int = CHUNK_CHARS) -> list[Chunk]:
    """Cut a long text where sections end, or where lines do if a section is too long.

    Sections that fit together are one chunk. The chunks hold every line of the text, in order.
    """
    found: list[Chunk] = []
    for part in _pieces(text, max_chars):
        last = found[-1] if found else None
        if last is not None and len(last.text) + 1 + len(part.text) <= max_chars:
            found[-1] = Chunk(
                last.heading, f"{last.text}\n{part.text}", last.first_line, part.last_line
            )
        else:
            found.append(part)
    return found


def _pieces(text: str, max_chars: int) -> Iterator[Chunk]:
    """Yield pieces that begin at each heading, long ones cut at line ends."""
    path: list[tuple[int, str]] = []
    lines: list[str] = []
    first, size, in_code = 1, 0, False

    def piece() -> Chunk:
        heading = " > ".join(title for _, title in path)
        return Chunk(heading, "\n".join(lines), first, first + len(lines) - 1)

    for number, line in enumerate(text.split("\n"), start=1):
        in_code ^= line.lstrip().startswith("```")
        heading = None if in_code else _HEADING.fullmatch(line)
        if lines and (heading or size + len(line) > max_chars):
            yield piece()
            lines, first, size = [], number, 0
        if heading:
            level = len(heading[1])
            path = [*((above, title) for above, title in path if above < level)]
            path.append((level, _LINK.sub(r"\1", heading[2]).strip()))
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield piece()


def choose_parts(text: str, goal: str) -> tuple[list[str], int]:
    """Cut a text into parts for one question each; also return how many were left out."""
    parts = [chunk.text for chunk in chunks(text, PART_CHARS)] or [""]
    if len(parts) <= MAX_PARTS:
        return parts, 0
    wanted = {word.lower() for word in _WORD.findall(goal)}
    scores = [len(wanted & {word.lower() for word in _WORD.findall(part)}) for part in parts]
    best = sorted(range(len(parts)), key=lambda place: (-scores[place], place))[:MAX_PARTS]
    return [parts[place] for place in sorted(best)], len(parts) - MAX_PARTS
