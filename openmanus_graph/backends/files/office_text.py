"""Reads the text of Word documents, slides and OpenDocument from their XML."""

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from openmanus_graph.backends.files.office import Package, attribute, local
from openmanus_graph.backends.files.sheets import cell_text

_HEADING = re.compile(r"(?i)heading\s?(\d)|(title)$")
_SIGNS = {
    "tab": "\t", "br": "\n", "cr": "\n", "line-break": "\n", "noBreakHyphen": "-", "s": " ",
}  # fmt: skip
_SILENT = frozenset({
    "pPr", "rPr", "sectPr", "tblPr", "trPr", "tcPr", "instrText", "rt", "fldData", "nvSpPr",
    "tracked-changes", "note-citation", "forms", "sequence-decls", "creator", "date",
})  # fmt: skip
_ROWS = {name: f"{{*}}{name}" for name in ("tr", "table-row", "Row")}
_CHANGES = {"ins": "+", "moveTo": "+", "del": "-", "moveFrom": "-"}
_BLOCKS = frozenset({"txbxContent", "text-box", "pic", "chart", "relIds", "tbl", "table"})
_SPECIAL = ("{*}altChunk", "{*}chart", "{*}relIds")  # which mammoth leaves out


@dataclass
class Flow:
    """The text of a part in reading order. Paragraphs and tables have the same names in all."""

    package: Package | None = None
    part: str = ""
    chunk: Callable[[bytes], Iterable[str]] | None = None  # reads a document in the document
    notes: dict[tuple[str, str | None], str] = field(
        default_factory=dict[tuple[str, str | None], str]
    )
    levels: dict[str, int] = field(default_factory=dict[str, int])

    @cached_property
    def relations(self) -> dict[str, Any]:
        return self.package.relations(self.part) if self.package else {}

    def lines(self, elements: Iterable[Any]) -> Iterator[str]:
        for element in elements:
            name = local(element)
            if name in ("p", "h", "Data"):
                yield from self._paragraph(element)
            elif name in _ROWS:
                yield self._row(element)
            elif name in ("pic", "chart", "relIds", "altChunk"):
                yield from self._linked(element, name)
            elif name not in _SILENT:
                yield from [f"## {attribute(element, 'Name')}"] if name == "Worksheet" else []
                yield from self.lines(_alternative(element))
                yield from [""] if name in ("tbl", "table") else []

    def _row(self, row: Any) -> str:
        texts: list[str] = []
        for cell in row.iter("{*}tc", "{*}table-cell", "{*}Cell"):
            if next(cell.iterancestors(*_ROWS.values())) is row:  # not one of a table in a cell
                texts += [""] * (int(attribute(cell, "Index") or 0) - 1 - len(texts))
                texts.append(cell_text("\n".join(filter(None, self.lines(cell)))))
                texts += [""] * int(attribute(cell, "MergeAcross") or 0)
        return f"| {' | '.join(texts)} |"

    def _paragraph(self, element: Any) -> Iterator[str]:
        nested: list[Any] = []
        text = self._inline(element, nested).strip("\n")
        style, item = (element.find(f"{{*}}pPr/{{*}}{name}") for name in ("pStyle", "numPr"))
        named = "" if style is None else attribute(style, "val")
        level = self.levels.get(named) or int(attribute(element, "outline-level") or 0)
        prefix = "#" * level + " " if level else "" if item is None else "- "
        if text.strip():
            yield from (prefix + text).splitlines()
            yield ""
        yield from self.lines(nested)

    def _inline(self, element: Any, nested: list[Any]) -> str:
        mixed = element.tag.startswith("{urn:")  # text is between elements, too
        pieces = [element.text or ""] if mixed else []
        for child in element:
            name = local(child)
            if name in ("t", "delText"):
                pieces.append(child.text or "")
            elif name in _SIGNS:
                pieces.append(_SIGNS[name])
            elif name in _BLOCKS:
                nested.append(child)
            elif name in ("note", "annotation"):
                pieces.append(f" [note: {' '.join(filter(None, self.lines([*child])))}]")
            elif name.endswith("Reference"):
                pieces.append(
                    self.notes.get((name.removesuffix("Reference"), attribute(child)), "")
                )
            elif name and name not in _SILENT:
                inner = self._inline(_alternative(child), nested)
                sign = _CHANGES.get(name)
                pieces.append(f"[{sign}{inner}{sign}]" if sign and inner else inner)
            pieces.append(child.tail or "" if mixed else "")
        return "".join(pieces)

    def _linked(self, element: Any, name: str) -> Iterator[str]:
        """Yield what is not in the text itself: a chart, a diagram, an inserted document."""
        if name == "pic":
            about = element.find(".//{*}cNvPr")
            described = "" if about is None else about.get("descr") or about.get("name", "")
            yield f"(picture: {described})"
            return
        relation = self.relations.get(attribute(element, "dm" if name == "relIds" else "id"))
        if relation is None or self.package is None:
            return
        if name == "altChunk":
            yield from self.chunk(self.package.read(relation.target)) if self.chunk else ()
            return
        root = self.package.xml(relation.target)
        yield from _chart_lines(root) if name == "chart" else self.lines(root)


def _alternative(element: Any) -> Any:
    """Return the first form with text, if an element has several: they repeat each other."""
    forms = [form for form in element if local(form) in ("Choice", "Fallback")]
    return next((form for form in forms if form.find(".//{*}t") is not None), element)


def _chart_lines(root: Any) -> Iterator[str]:
    series = list(root.iter("{*}ser"))
    for number, each in enumerate(series):
        name, names, values = (
            ", ".join(v.text or "" for path in paths for v in each.iterfind(f"{{*}}{path}//{{*}}v"))
            for paths in (["tx"], ["cat", "xVal"], ["val", "yVal"])
        )
        if not number:
            yield f"(chart) categories: {names}"
        yield f"{name}: {values}"


def word_lines(package: Package, flow: Flow, root: Any) -> list[str]:
    """Return the text of a Word document, with changes, notes and comments in their places."""
    for part in package.related(flow.part, "footnotes", "endnotes", "comments"):
        for each in package.xml(part):
            if attribute(each, "type"):
                continue  # the line above the notes
            author = attribute(each, "author")
            label = f"comment by {author}" if author else "note"
            text = " ".join(filter(None, Flow(package, part).lines(each)))
            flow.notes[local(each), attribute(each)] = f" [{label}: {text}]"
    flow.levels = {f"Heading{level}": level for level in range(1, 7)} | {"Title": 1}
    for part in package.related(flow.part, "styles"):
        for style in package.xml(part).iter("{*}style"):
            name = style.find("{*}name")
            if found := _HEADING.match("" if name is None else attribute(name, "val")):
                flow.levels[attribute(style, "styleId")] = min(int(found[1] or 1), 6)
    return list(flow.lines(root))


def margins(package: Package, main: str) -> Iterator[str]:
    """Yield the texts of a Word document's headers and footers, each once."""
    for kind in ("header", "footer"):
        parts = package.related(main, kind)
        flows = (Flow(package, part).lines(package.xml(part)) for part in parts)
        texts = dict.fromkeys(" ".join(filter(None, lines)) for lines in flows)
        yield from (f"({kind}: {text})" for text in texts if text.strip())


def has_all_letters(html: str, root: Any) -> bool:
    """Return True if a text in HTML has the letters of a Word document, deleted ones as well."""
    etree: Any = importlib.import_module("lxml.etree")  # has no types

    if next(root.iter(*_SPECIAL), None) is not None:
        return False
    texts = (
        element.text or ""
        for element in root.iter("{*}t", "{*}delText")
        if next(element.iterancestors("{*}Fallback"), None) is None
    )
    tree = etree.fromstring(html or "<p/>", etree.HTMLParser())
    return _letters(texts) <= _letters(tree.itertext())


def _letters(texts: Iterable[str]) -> Counter[str]:
    found: Counter[str] = Counter()
    for text in texts:
        found.update(filter(str.isalnum, text))
    return found


def slide_parts(package: Package, main: str) -> list[str]:
    """Return the parts of the slides in their order; an empty one is missing."""
    relations = package.relations(main)
    ids = [attribute(each) for each in package.xml(main, needed=True).iter("{*}sldId")]
    return [relations[each].target if each in relations else "" for each in ids]


def slide_lines(package: Package, parts: list[str], number: int) -> Iterator[str]:
    yield f"## Slide {number}"
    part = parts[number - 1]
    if not part:
        yield "(the slide is missing in the file)"
        return
    root = package.xml(part)
    if root.get("show") in ("0", "false"):
        yield "(hidden)"
    yield from filter(None, Flow(package, part).lines(root.iter("{*}spTree")))
    for notes in package.related(part, "notesSlide"):
        shapes = [
            shape
            for shape in package.xml(notes).iter("{*}sp")
            if (place := shape.find(".//{*}ph")) is not None and place.get("type") == "body"
        ]
        if lines := [line for line in Flow(package, notes).lines(shapes) if line]:
            yield from ("Notes:", *lines)
    if package.damaged:
        yield "(the presentation is damaged: what could be read is shown)"
