"""Removes text from Markdown that is too short to be content."""

import re

_LINK = re.compile(r"!?\[([^][]*)\]\([^()\s]*\)")
_SPECIAL = re.compile(r"^(?:#|>|\||`{3}|\s*(?:[-*+]|\d+[.)])\s|={3,}|-{3,})|\]\(|\d")


def without_short_blocks(text: str, words: int) -> tuple[str, int]:
    """Leave out paragraphs of fewer words; never headings, lists, tables, code, links, numbers."""
    kept: list[str] = []
    dropped, in_code = 0, False
    for block in text.split("\n\n"):
        fences = block.count("```")
        if in_code or fences or _SPECIAL.search(block) or len(block.split()) >= words:
            kept.append(block)
        else:
            dropped += 1
        in_code ^= bool(fences % 2)
    return "\n\n".join(kept), dropped


def without_short_lines(text: str, words: int) -> tuple[str, int]:
    """Remove lines of fewer words, as in menus."""
    lines = text.split("\n")
    kept = [line for line in lines if len(_LINK.sub(r"\1", line).split()) >= words]
    return "\n\n".join(kept), sum(1 for line in lines if line.strip()) - len(kept)
