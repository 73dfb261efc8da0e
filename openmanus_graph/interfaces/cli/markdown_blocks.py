"""Divides Markdown that streams into blocks that are complete, and the one that is not."""

import re

_FENCE = re.compile(r" {0,3}(?P<mark>`{3,}|~{3,})")


class MarkdownBlocks:
    """Takes pieces of a text; returns each block (paragraph, list, table, code) once it is whole.

    A block ends with a blank line, unless that is in fenced code or the next line is indented.
    Takes time in proportion to the text, however small the pieces are.
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line = ""
        """The newest line, which is not at its end."""
        self._fence = ""
        """The mark that ends the code around the next line; empty outside of code."""
        self._may_end = False

    @property
    def rest(self) -> str:
        """What was taken and not returned yet."""
        return "\n".join([*self._lines, self._line])

    def feed(self, piece: str) -> list[str]:
        """Take a piece, and return the blocks that are whole by now."""
        *ended, self._line = (self._line + piece).split("\n")
        return [block for line in ended if (block := self._add(line))]

    def finish(self) -> str:
        """Return the last block, and forget it."""
        rest, self._lines, self._line = self.rest, [], ""
        return rest.strip("\n")

    def _add(self, line: str) -> str:
        """Add a line; return the block before it if that is whole."""
        block = ""
        if self._may_end and line.strip() and not line[0].isspace():
            block, self._lines = "\n".join(self._lines).strip("\n"), []
        if line.strip():
            self._may_end = False
        self._lines.append(line)
        mark = match["mark"] if (match := _FENCE.match(line)) else ""
        if self._fence:
            if mark.startswith(self._fence) and not line.strip().strip(mark[0]):
                self._fence, self._may_end = "", True
        elif mark:
            self._fence = mark
        elif not line.strip():
            self._may_end = True
        return block
