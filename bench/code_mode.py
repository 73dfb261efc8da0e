"""Code mode against call by call: model calls, tokens and time of four loops.

The readers are scripts that do the same work in three ways: one call a reply, ten calls a reply,
and one cell. Tokens are those of all requests, as LangChain estimates them.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.messages.tool import tool_call
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import Context, build_manus_graph, manus_tool
from openmanus_graph.state.context import CodeMode
from openmanus_graph.state.manus import ManusInput
from openmanus_graph.testing import ScriptedChatModel

FILES, ROWS, PAGES, ORDERS, SITES = 40, 200, 12, 50, 10
WORDS = "Lorem ipsum dolor sit amet, consetetur sadipscing elitr. " * 120


class Office:
    """The tools of the trials, and what they did."""

    def __init__(self, folder: Path) -> None:
        self.done: list[str] = []

        @manus_tool(effect="workspace", approval=False)
        def move_file(source: str, destination: str) -> str:
            """Move a file.

            Args:
                source: Its name.
                destination: Its new name.
            """
            (folder / source).rename(folder / destination)
            self.done.append(destination)
            return f"Moved {source} to {destination}."

        @manus_tool(effect="external", approval=False, sends_to=())
        def add_product(name: str, price: float) -> str:
            """Add a product to the shop.

            Args:
                name: Of the product.
                price: In euros.
            """
            self.done.append(name)
            return json.dumps({"id": len(self.done), "name": name, "price": price})

        @manus_tool(effect="read_only", untrusted=True)
        def list_orders(page: int) -> str:
            """List the orders of a page.

            Args:
                page: From 1.
            """
            orders = [
                {"id": page * 1000 + number, "total": number, "customer": f"Customer {number}"}
                for number in range(ORDERS)
            ]
            return json.dumps({"orders": orders, "more": page < PAGES})

        @manus_tool(effect="read_only", untrusted=True)
        def read_site(name: str) -> str:
            """Read a site.

            Args:
                name: Of the site.
            """
            return f"# {name}\n{WORDS}\nTelephone: +49 {hash(name) % 10**6}"

        self.tools = [move_file, add_product, list_orders, read_site]


@dataclass(frozen=True)
class Trial:
    name: str
    tool: str
    args: Sequence[dict[str, Any]]
    """Of the calls, one by one."""
    code: str


TRIALS = (
    Trial(
        f"{FILES} files renamed",
        "move_file",
        [{"source": f"{n}.txt", "destination": f"note-{n:03}.txt"} for n in range(FILES)],
        f"for n in range({FILES}):\n"
        "    tools.move_file(source=f'{n}.txt', destination=f'note-{n:03}.txt')\nprint('done')",
    ),
    Trial(
        f"{ROWS} rows posted to a shop",
        "add_product",
        [{"name": f"Product {n}", "price": n / 2} for n in range(ROWS)],
        f"for n in range({ROWS}):\n    tools.add_product(name=f'Product {{n}}', price=n / 2)\n"
        "print('done')",
    ),
    Trial(
        f"an API of {PAGES} pages summed up",
        "list_orders",
        [{"page": n} for n in range(1, PAGES + 1)],
        "total, page, more = 0, 1, True\nwhile more:\n    found = tools.list_orders(page=page)\n"
        "    total += sum(one['total'] for one in found['orders'])\n"
        "    page, more = page + 1, found['more']\nprint(total)",
    ),
    Trial(
        f"{SITES} pages fetched",
        "read_site",
        [{"name": f"site-{n}"} for n in range(SITES)],
        "import asyncio\n"
        f"made = [tools.read_site(name=f'site-{{n}}') for n in range({SITES})]\n"
        "pages = await asyncio.gather(*made)\n"
        "for page in pages:\n    print(page.text.splitlines()[-1])",
    ),
)


def replies(trial: Trial, at_once: int) -> list[AIMessage]:
    """Return the replies of a reader; `at_once` of 0 is one cell."""
    if not at_once:
        made = [tool_call(name="python_execute", args={"code": trial.code}, id="cell")]
        return [AIMessage("", tool_calls=made)]
    calls = [
        tool_call(name=trial.tool, args=args, id=f"c{number}")
        for number, args in enumerate(trial.args)
    ]
    batches = [calls[start : start + at_once] for start in range(0, len(calls), at_once)]
    return [AIMessage("", tool_calls=batch) for batch in batches]


async def run(trial: Trial, at_once: int, folder: Path) -> tuple[int, int, float]:
    """Return the model calls, tokens and seconds of a run."""
    for number in range(FILES):
        (folder / f"{number}.txt").write_text(str(number))
    office = Office(folder)
    graph = build_manus_graph(extra_tools=office.tools, checkpointer=InMemorySaver())
    model = ScriptedChatModel([*replies(trial, at_once), "Done."])
    mode: CodeMode = "off" if at_once else "on"
    context = Context(model=model, workspace=str(folder), max_steps=500, code_mode=mode)
    config: Any = {"configurable": {"thread_id": f"{trial.name} {at_once}"}}
    begun = time.perf_counter()
    given: ManusInput = {"messages": [HumanMessage(trial.name)]}
    values = await graph.ainvoke(given, config, context=context)
    took = time.perf_counter() - begun
    if values["status"] != "finished" or any(
        one.status == "error" for one in values["messages"] if one.type == "tool"
    ):
        raise RuntimeError(f"{trial.name}: {values['messages'][-2].text[:2000]}")
    tools = len(json.dumps(model.options[0].get("tools", []))) // 4 if model.options else 0
    tokens = sum(count_tokens_approximately(request) + tools for request in model.requests)
    return len(model.requests), tokens, took


def main(write: Callable[[str], Any] = sys.stdout.write) -> None:
    """Print the table."""
    write("| task | way | model calls | tokens of requests | seconds |\n" + "| --- " * 5 + "|\n")
    for trial in TRIALS:
        for at_once, way in ((1, "call by call"), (10, "ten calls a reply"), (0, "one cell")):
            with tempfile.TemporaryDirectory() as home:
                os.environ["OPENMANUS_HOME"] = home
                folder = Path(home, "work")
                folder.mkdir()
                calls, tokens, took = asyncio.run(run(trial, at_once, folder))
            write(f"| {trial.name} | {way} | {calls} | {tokens:,} | {took:.1f} |\n")


if __name__ == "__main__":
    main()
