"""The texts by which threads are found, and the words of texts and of queries.

Words are compared without case and accents. In writing without blanks between words (Chinese,
Japanese, Thai and others) each character counts as a word, and a word as a row of them.
"""

import itertools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

PIECE_CHARS = 2000
"""Of a row of the index. Of a tool's result the first piece counts."""
MAX_PIECES = 8
"""Of one text; what comes after them is not searched."""
SNIPPET_CHARS = 120
_MAX_WORD_CHARS = 64
"""What a longer word has after them does not count: neither backend takes any length."""
_MAX_PARTS = 8
"""Of a query."""
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7a3\U00020000-\U0003ffff"
)
_LETTER = rf"[^\W_{_UNSPACED}]"
_WORD = re.compile(rf"[{_UNSPACED}]|{_LETTER}+")
_RUN = re.compile(rf"[{_UNSPACED}]+|{_LETTER}+")
_ASCII = "".join(chr(code) if chr(code).isalnum() else " " for code in range(128))
"""Blanks for all that `_WORD` does not find; faster."""
_ACCENTS = re.compile("[\u0300-\u036f]")


def text_of(event: Mapping[str, Any]) -> str:
    """Return the text of a run's event by which its thread is found; empty for most types."""
    match event:
        case (
            {"type": "think_end" | "steer", "text": str(text)}
            | {"type": "interrupt", "question": str(text)}
            | {"type": "answered", "answer": str(text) | {"message": str(text)}}
            | {"type": "final", "answer": str(text)}
        ):
            return text
        case {"type": "tool_end", "output": str(text)}:
            return text[:PIECE_CHARS]
        case _:
            return ""


def pieces_of(text: str) -> list[str]:
    """Return a text in pieces for the index, as both backends can store them."""
    stored = storable(text.strip()[: MAX_PIECES * PIECE_CHARS])
    return [stored[at : at + PIECE_CHARS] for at in range(0, len(stored), PIECE_CHARS)]


def words_of(text: str | bytes) -> str:
    """Return the words of a text, with blanks between them. Bytes may be damaged text."""
    folded = _folded(_readable(text))
    words = folded.translate(_ASCII).split() if folded.isascii() else _WORD.findall(folded)
    return " ".join(word[:_MAX_WORD_CHARS] for word in words)


def wanted(query: str) -> list[tuple[str, list[str]]]:
    """Return the parts of a query, each with its words, which a text must have in this order."""
    parts = storable(query).split()[:_MAX_PARTS]
    return [(part, words_of(part).split()) for part in parts]


def search_terms(text: str) -> list[tuple[str, ...]]:
    """Return the words of a question, each once; a passage that has some of them may answer it.

    In writing without blanks, two characters in a row are the unit that means something.
    """
    found = dict[tuple[str, ...], None]()
    for run in _RUN.findall(_folded(storable(text))):
        words = words_of(run).split()
        found.update(dict.fromkeys(itertools.pairwise(words) if words[1:] else [(*words,)]))
    return list(found)


def line_with(asked: Sequence[Sequence[str]], text: str | bytes) -> str:
    """Return the part of a line that has one of several rows of words; else ""."""
    rows = (r"[\W_]*".join(map(re.escape, words)) for words in asked)
    pattern = re.compile("|".join(f"(?:(?<!{_LETTER})|(?=[{_UNSPACED}])){row}" for row in rows))
    for line in _readable(text).splitlines():
        folded = _folded(line)
        if found := pattern.search(folded):
            at = found.start() * len(line) // len(folded)  # folding changes few lengths
            begin = max(0, at - SNIPPET_CHARS // 3)
            return line[begin : begin + SNIPPET_CHARS]
    return ""


def _readable(text: str | bytes) -> str:
    return text.decode("utf-8", "replace") if isinstance(text, bytes) else text


def storable(text: str) -> str:
    """Return a text without half characters and zeros, which some models and terminals write."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", text.casefold()))
    return unicodedata.normalize("NFKC", plain)
