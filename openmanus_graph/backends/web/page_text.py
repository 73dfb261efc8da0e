"""HTML to Markdown, in the child process: the main content first, no content lost.

Menus, footers and sidebars come last and are not dropped. They are found by landmarks, roles and
class names, and by how much of their text is links. Libraries that
extract articles (trafilatura, readability-lxml) were tried: they lose lists of short items, such
as the articles of a shop, or parts of code and headings, which an agent needs.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import urljoin, urlsplit

from openmanus_graph.backends.files.child import run_in_child
from openmanus_graph.backends.files.text_file import decode_page

if TYPE_CHECKING:
    from bs4 import BeautifulSoup, Tag


MAX_BYTES = 5 * 1024 * 1024
MAX_TAGS = 100_000  # how many elements of any kind can be converted within the child's timeout
_TAG = re.compile(r"<[a-zA-Z]")
# Not `head`: where a page leaves out its tags, the parser puts elements it does not know into it.
_DROPPED = (
    "script", "style", "template", "noscript", "svg", "title", "meta", "link", "object", "embed",
    "canvas",
)  # fmt: skip
_ASIDES = ("nav", "footer", "aside")
_ASIDE_ROLES = (
    "navigation", "contentinfo", "complementary", "banner", "search", "dialog", "alertdialog",
)  # fmt: skip
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
_BLOCKS = {*_HEADINGS, "div", "p", "section", "article", "ul", "ol", "table", "figure", "br"}
_COOKIES = re.compile(r"cookie|consent|gdpr|onetrust", re.IGNORECASE)
_COOKIE_TEXT_CHARS = 1500
_COOKIE_BOXES = ("div", "section", "aside")
_MENU = re.compile(
    r"(?:^|[\s_-])(?:nav(?:bar|igation)?|menu|side-?bar|footer|breadcrumbs?|toc|skip|share|social"
    r"|related|pagination|toolbar)(?:$|[\s_-])",
    re.IGNORECASE,
)
_MENU_LINK_SHARE = 0.6
"""Share of links in a text above which it is a menu, if id or class also suggest one."""
_MAIN_TEXT_SHARE = 0.25  # minimum share of the page's text in the element marked as main content
_LANGUAGE = re.compile(r"\b(?:lang(?:uage)?|highlight-source|brush:)[-:\s]*([\w+#-]+)")
_PERMALINK_MARKS = ("", "¶", "#", "§", "🔗", "⚓", "\uf0c1")
ROUTES = ("/", "!")
"""A fragment that begins so is an address within an app, any other a place on the page."""
_LINK = re.compile(r"!?\[([^][]*)\]\([^()\s]*\)")


def convert(file: BinaryIO, request: dict[str, Any]) -> dict[str, Any]:
    """Convert a page. Request: `url`, `charset`, `word_count_threshold`."""
    from bs4 import BeautifulSoup

    data = file.read(MAX_BYTES + 1)
    html = decode_page(data[:MAX_BYTES], request["charset"])
    beyond = next(islice(_TAG.finditer(html), MAX_TAGS, None), None)
    read = html[: beyond.start()] if beyond else html  # as much as can be converted in time
    soup = BeautifulSoup(read, "lxml")
    heading = soup.title or soup.h1
    title = heading.get_text(" ", strip=True) if heading else ""
    _make_absolute(soup, str(request["url"]))
    links = {str(tag["href"]) for tag in soup.find_all("a", href=True)}
    images = len(soup.find_all("img", src=True))
    _unlink_places(soup, str(request["url"]))
    _remove_unwanted(soup)
    main, rest = _split(soup)
    threshold = int(request["word_count_threshold"])
    if threshold > 1:
        lines = rest.split("\n")
        kept = [line for line in lines if len(_LINK.sub(r"\1", line).split()) >= threshold]
        rest = "\n\n".join(kept)
    return {
        "title": " ".join(title.split())[:300],
        "main": main,
        "rest": rest,
        "words": len(main.split()),
        "links": len(links),
        "images": images,
        "read": len(read) if len(data) > MAX_BYTES or len(read) < len(html) else 0,
    }


def _make_absolute(soup: "BeautifulSoup", url: str) -> None:
    base = soup.find("base", href=True)
    if base is not None:
        url = _absolute(url, str(base["href"])) or url
    for tag in soup.find_all(["a", "img", "iframe"]):
        name = "href" if tag.name == "a" else "src"
        if name not in tag.attrs:
            continue
        address = _absolute(url, str(tag[name]))
        if address:
            tag[name] = address
        else:
            del tag[name]


def _unlink_places(soup: "BeautifulSoup", url: str) -> None:
    """Remove the addresses of links within the page, and the permalink marks of headings."""
    here = url.partition("#")[0]
    for link in soup.find_all("a", href=True):
        page, _, place = str(link["href"]).partition("#")
        if page != here or not place or place.startswith(ROUTES):
            continue
        del link["href"]
        if link.get_text(strip=True) in _PERMALINK_MARKS and not link.find("img"):
            link.decompose()


def _absolute(url: str, link: str) -> str:
    try:
        address = urljoin(url, link.strip())
        scheme = urlsplit(address).scheme
    except ValueError:
        return ""
    if scheme not in ("http", "https", "mailto", "tel"):
        return ""
    # Markdown ends an address at a space or a closing bracket.
    return re.sub(r"[\s()<>]", lambda found: f"%{ord(found[0]):02X}", address)


def _remove_unwanted(soup: "BeautifulSoup") -> None:
    """Remove what is not content: scripts, hidden elements, cookie banners."""
    from bs4 import Comment

    for tag in _outermost(filter(_is_unwanted, soup.find_all(True))):
        tag.decompose()
    for text in soup.find_all(string=lambda string: isinstance(string, Comment)):
        text.extract()
    for frame in soup.find_all("iframe", src=True):
        frame.name, frame["href"] = "a", frame["src"]
        frame.string = str(frame.get("title") or "embedded page")
    for link in soup.find_all("a"):
        del link["title"]
        _make_inline(link, soup)


def _is_unwanted(tag: "Tag") -> bool:
    given = tag.attrs
    if tag.name in _DROPPED or "hidden" in given:
        return True
    if _HIDDEN.search(str(given.get("style", ""))):
        return True
    if tag.name == "input":
        return str(given.get("type", "")).lower() == "hidden"
    about_cookies = tag.name in _COOKIE_BOXES and _COOKIES.search(_names(tag)) is not None
    return about_cookies and len(tag.get_text()) < _COOKIE_TEXT_CHARS


def _make_inline(link: "Tag", soup: "BeautifulSoup") -> None:
    """Give a link that spans blocks, such as a card, one line of text, inside its heading."""
    if getattr(link.next_sibling, "name", None) == "a":
        link.insert_after(" ")
    if not any(getattr(part, "name", None) in _BLOCKS for part in link.descendants):
        return
    heading = link.find(_HEADINGS)
    alone = heading is not None and heading.get_text(strip=True) == link.get_text(strip=True)
    pictures = [str(image.get("alt") or "") for image in link.find_all("img")]
    link.string = " ".join(" ".join([*pictures, link.get_text(" ", strip=True)]).split())
    if heading is not None and alone:
        link.wrap(soup.new_tag(heading.name))


def _split(soup: "BeautifulSoup") -> tuple[str, str]:
    body: Tag = soup
    main = _main_element(body)
    if main is not None:
        main.extract()
        asides = [tag for tag in main.find_all(_is_aside) if tag.name != "aside"]
    else:
        main = body
        asides = _outermost(main.find_all(_is_aside))
        # Headers of the page, not of an article; one that holds the only heading stays.
        asides += [
            tag
            for tag in main.find_all("header")
            if tag.find_parent(["article", "section"]) is None and tag.find("h1") is None
        ]
        asides += [tag for tag in main.find_all(["div", "ul", "section"]) if _is_menu(tag)]
    aside_texts = [_markdown(tag.extract()) for tag in _outermost(asides)]
    rest = [] if main is body else [_markdown(body)]
    return _markdown(main), "\n\n".join(filter(None, [*rest, *aside_texts]))


def _main_element(body: "Tag") -> "Tag | None":
    """Return the element that the page marks as its main content, unless it holds too little."""
    marked = body.find_all(lambda tag: tag.name == "main" or tag.get("role") == "main")
    candidates = marked or body.find_all("article")
    whole = len(body.get_text(strip=True))
    best = max(candidates, key=lambda tag: len(tag.get_text(strip=True)), default=None)
    if best is None or len(best.get_text(strip=True)) < whole * _MAIN_TEXT_SHARE:
        return None
    if best.name == "article" and len(candidates) > 1:
        return None  # one of many
    return best


def _is_aside(tag: "Tag") -> bool:
    return tag.name in _ASIDES or tag.get("role") in _ASIDE_ROLES


def _is_menu(tag: "Tag") -> bool:
    if not _MENU.search(_names(tag)):
        return False
    text = len(tag.get_text(strip=True))
    linked = sum(len(link.get_text(strip=True)) for link in tag.find_all("a"))
    return text > 0 and linked / text > _MENU_LINK_SHARE


def _names(tag: "Tag") -> str:
    """Return id and classes, in one string."""
    names = [*tag.get_attribute_list("id"), *tag.get_attribute_list("class")]
    return " ".join(str(name) for name in names if name)


def _outermost(tags: Iterable["Tag"]) -> list["Tag"]:
    """Leave out elements that lie in another one of them."""
    unique = {id(tag): tag for tag in tags}
    return [tag for tag in unique.values() if not any(id(above) in unique for above in tag.parents)]


def _markdown(tag: "Tag") -> str:
    from markdownify import MarkdownConverter

    for image in tag.find_all("img"):
        if not str(image.get("alt") or "").strip():
            image.decompose()  # decoration: its address would only cost tokens
    converter = MarkdownConverter(
        heading_style="atx", bullets="-", table_infer_header=True, autolinks=False,
        # Text stays as it is on the page, so that it can be quoted and searched for.
        escape_asterisks=False, escape_underscores=False, escape_misc=False,
        code_language_callback=_language,
    )  # fmt: skip
    try:
        text: str = converter.convert_soup(tag)
    except RecursionError:  # thousands of nested elements
        text = tag.get_text("\n", strip=True)
    lines = (line.rstrip() for line in text.replace("\xa0", " ").splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


def _language(tag: "Tag") -> str:
    inner = tag.find("code")
    found = _LANGUAGE.search(_names(tag) + " " + (_names(inner) if inner else ""))
    return found[1] if found else ""


REST_HEADING = "## Menus and the rest of the page"
CHUNK_CHARS = 6000
PART_CHARS = 30_000
MAX_PARTS = 6  # of a longer text, the parts that share the most words with a question
_CONVERT_ENTRY = "openmanus_graph.backends.web.page_text:convert"
_WORD = re.compile(r"\w{3,}")
_HEADING = re.compile(r"(#{1,6}) +(.+)")


@dataclass(frozen=True)
class PageText:
    title: str
    main: str  # Markdown of the main content; links are whole addresses
    rest: str  # Markdown of menus, sidebars and footers
    words: int
    links: int  # how many addresses it links to
    images: int
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
    note = f"[The page is longer; only its first {read / 1e6:.1f} MB were read.]" if read else ""
    rest = "\n\n".join(filter(None, (text.rest for text in texts)))
    return "\n\n".join(filter(None, (note, *main, f"{REST_HEADING}\n\n{rest}" if rest else "")))


@dataclass(frozen=True)
class Chunk:
    """A part of a text that begins at a heading, or continues a section that was too long."""

    heading: str
    """The headings above it and its own, such as "Guide > Install"; empty before the first."""
    text: str
    first_line: int  # 1-based, in the whole text
    last_line: int


async def page_text(
    html: bytes | str, url: str, *, charset: str | None = None, word_count_threshold: int = 0
) -> PageText:
    """Convert a page. ToolError if its parser failed; that ends only the child process.

    The threshold leaves out shorter lines of menus and footers.
    """
    import asyncio  # the child process, which starts for each page, does not need it

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
