"""Runs in the reader's own notebook: shown while they run, with every question, event by event."""

import nbformat
from nbclient import NotebookClient

from tests.support.limits import BACKSTOP_S

BEGIN = """
import asyncio
from IPython.utils.capture import capture_output
from langgraph.checkpoint.memory import InMemorySaver
from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.interfaces.notebook import show_run
from openmanus_graph.testing import RecordedChatModel, RecordedReply, Recording

def played(*calls):
    made = tuple({"id": f"c{n}", "name": call[0], "args": call[1]} for n, call in enumerate(calls))
    replies = (RecordedReply("calls", tool_calls=made), RecordedReply("answers", text="done"))
    return Context(model=RecordedChatModel(Recording("test", replies)))
"""

LIVE = """
@manus_tool(effect="read_only")
async def look() -> str:
    '''Return as soon as the person sees this call.'''
    while not any("<code>look</code>" in output.data["text/html"] for output in shown.outputs):
        await asyncio.sleep(0.05)
    return "seen"

events = []
with capture_output() as shown:
    graph = build_manus_graph(tools=[look])
    await show_run(graph, "look", context=played(("look", {})), on_event=events.append)
[event["output"] for event in events if event["type"] == "tool_end"]
"""

QUESTIONS = """
@manus_tool(effect="external")
def pay(euros: int) -> str:
    '''Pay.'''
    return "paid"

graph = build_manus_graph(tools=[pay], checkpointer=InMemorySaver())
calls = [("pay", {"euros": euros}) for euros in (1, 2, 3)]
with capture_output() as shown:
    result = await show_run(graph, "pay", context=played(*calls))
pages = [output.data["text/html"] for output in shown.outputs]
asked = [waiting.value["calls"][0]["args"]["euros"] for waiting in result["__interrupt__"]]
sum("Waiting" in page for page in pages), asked
"""


def value_of(cell: nbformat.NotebookNode) -> str:
    """Return what the last line of a cell came to."""
    (result,) = cell.outputs
    return str(result.data["text/plain"])


def test_a_run_is_shown_while_it_runs_and_with_each_of_its_questions() -> None:
    codes = (BEGIN, LIVE, QUESTIONS)
    cells = [nbformat.v4.new_code_cell(code) for code in codes]  # type: ignore[no-untyped-call]
    book = nbformat.v4.new_notebook(cells=cells)  # type: ignore[no-untyped-call]
    NotebookClient(book, timeout=int(BACKSTOP_S), kernel_name="python3").execute()
    assert value_of(cells[1]) == "['seen']"
    assert value_of(cells[2]) == "(3, [1, 2, 3])"
