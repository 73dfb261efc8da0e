"""One small task, done by ours or by an agent of LangChain; prints what came of it as JSON.

Runs in the sandbox, in the task's folder.
"""

import asyncio
import json
import os
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench.small_tools import bash, python, read_file, write_file

Given = dict[str, Any]
Said = dict[str, Any]


async def ours(given: Given) -> Said:
    """Manus, with its own tools. It is confined already, so it starts no sandbox."""
    from langgraph.checkpoint.memory import InMemorySaver

    from openmanus_graph import Context, build_manus_graph

    os.environ["OPENMANUS_HOME"] = str(Path.home() / "openmanus")
    context = Context(
        model=f"openai:{given['model']}",
        base_url=given["base_url"],
        model_options=given["options"],
        tool_calling=given["tool_calling"],
        profile=given["profile"],
        max_steps=given["calls"] - 1,  # and the final summary
        workspace=str(Path.cwd()),
        sandbox="none",
        policy="auto",
    )
    graph = build_manus_graph(checkpointer=InMemorySaver())
    asked: Any = {"messages": [("user", given["text"])]}
    ended = await graph.ainvoke(asked, {"configurable": {"thread_id": "t"}}, context=context)
    claimed = ended.get("status") == "finished"
    return {"answer": str(ended.get("answer") or ""), "claimed": claimed}


def _model(given: Given) -> Any:
    from langchain_openai import ChatOpenAI

    return ChatOpenAI(
        model=given["model"], base_url=given["base_url"], max_retries=1, **given["options"]
    )


async def create_agent(given: Given) -> Said:
    """LangChain's agent with the plain tools."""
    import langchain.agents
    from langchain_core.tools import tool

    agents: Any = langchain.agents  # half of their types are unknown
    tools = [tool(parse_docstring=True)(one) for one in (python, bash, read_file, write_file)]
    return await _answer(agents.create_agent(_model(given), tools), given)


async def deepagents(given: Given) -> Said:
    """Deepagents with its own tools for files and commands, and Python."""
    import deepagents.graph
    from deepagents.backends.local_shell import LocalShellBackend
    from langchain_core.tools import tool

    backend = LocalShellBackend(root_dir=Path.cwd(), virtual_mode=False, inherit_env=True)
    agents: Any = deepagents.graph  # half of their types are unknown
    tools = [tool(parse_docstring=True)(python)]
    return await _answer(agents.create_deep_agent(_model(given), tools, backend=backend), given)


async def _answer(agent: Any, given: Given) -> Said:
    values = await agent.ainvoke({"messages": [("user", given["text"])]}, {"recursion_limit": 200})
    return {"answer": str(values["messages"][-1].text), "claimed": True}


HARNESSES: dict[str, Callable[[Given], Awaitable[Said]]] = {
    "ours": ours,
    "create_agent": create_agent,
    "deepagents": deepagents,
}


def main() -> None:
    """Do the task that the argument describes."""
    warnings.simplefilter("ignore")
    given: Given = json.loads(sys.argv[1])
    out, sys.stdout = sys.stdout, sys.stderr
    os.environ["OPENAI_API_KEY"] = "none"
    try:
        said = asyncio.run(_said(given))
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what came of it
        said = {"claimed": False, "error": f"{type(error).__name__}: {error}"}
    out.write("\n" + json.dumps(said) + "\n")
    out.flush()
    os._exit(0)  # nothing that was started is waited for


async def _said(given: Given) -> Said:
    return await HARNESSES[given["harness"]](given)


if __name__ == "__main__":
    main()
