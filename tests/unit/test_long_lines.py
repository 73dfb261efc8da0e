"""Text from outside may be one endless line: no pattern may need the square of its length.

Nothing is timed: with such a pattern a megabyte takes hours.
"""

from io import BytesIO
from pathlib import Path

import pytest
from langchain_core.messages import AIMessage

from openmanus_graph.backends.browser.reading import check_quotes
from openmanus_graph.backends.files.text_file import detect_encoding
from openmanus_graph.backends.web.page_text import convert
from openmanus_graph.planning.executor_run import WrittenFiles
from openmanus_graph.runtime.output import plain
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.urls import domains_in

pytestmark = pytest.mark.slow

LINES = [piece * (1_000_000 // len(piece)) for piece in ("x", ".", "1", "[", "[a](", "a.", " ")]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line[:4])
def test_a_line_of_a_megabyte_is_read_once(line: str, tmp_path: Path) -> None:
    assert plain(line) == line
    assert plain(f"{line}\rdone") == "done"
    assert list(domains_in(f"{line} example.com"))[-1] == ("example.com", None)
    assert detect_encoding(line.encode() + b"\n\xe9t\xe9") is not None
    assert check_quotes(f"> {line}", line)
    page = BytesIO(f"<nav>{line}</nav><main><p>{line}</p></main>".encode())
    assert convert(page, {"url": "", "charset": "utf-8", "word_count_threshold": 5})
    call = {"name": "bash", "args": {"command": line}, "id": "1"}
    WrittenFiles(Workspace(tmp_path, tmp_path / "private")).follow(
        [AIMessage("", tool_calls=[call])]
    )
