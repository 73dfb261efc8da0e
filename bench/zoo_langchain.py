"""LangChain's agents in the zoo: reads threads as lines of JSON, and writes what came of each.

python -m bench.zoo_langchain create_agent|deepagents
"""

import asyncio
import json
import sys
import warnings
from typing import Any

from langchain.agents.middleware import ModelFallbackMiddleware
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import SecretStr

from tests.support.zoo_tasks import TOOLS

TIMEOUT_S = 60


def _model(given: dict[str, Any]) -> ChatOpenAI:
    fields = ChatOpenAI.model_fields.items()
    known = {name for key, one in fields for name in (key, one.alias) if name}
    options: dict[str, Any] = given["options"]
    named = {key: value for key, value in options.items() if key in known}
    others = {key: value for key, value in options.items() if key not in known}
    key = SecretStr("none")
    return ChatOpenAI(
        model=given["model"], base_url=given["base_url"], api_key=key, max_retries=1,
        model_kwargs=others, **named,
    )  # fmt: skip


def _maker(product: str) -> Any:
    import deepagents.graph
    import langchain.agents

    # Half of their types are unknown.
    agents: Any = langchain.agents if product == "create_agent" else deepagents.graph
    return agents.create_agent if product == "create_agent" else agents.create_deep_agent


async def _thread(product: str, turns: list[dict[str, Any]]) -> str:
    make = _maker(product)
    saver, answer = InMemorySaver(), ""
    for turn in turns:
        more = [ModelFallbackMiddleware(_model(turn["fallback"]))] if turn["fallback"] else []
        agent = make(_model(turn), TOOLS, middleware=more, checkpointer=saver)
        urls = [f"data:image/png;base64,{one}" for one in turn["pictures"]]
        content: list[Any] = [{"type": "text", "text": turn["task"]}]
        content += [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        given = {"messages": [HumanMessage(content if urls else turn["task"])]}
        config = {"configurable": {"thread_id": "t"}}
        values: Any = await agent.ainvoke(given, config)
        answer = str(values["messages"][-1].text)
    return answer


def main() -> None:
    """Serve until the input ends."""
    warnings.simplefilter("ignore")
    with asyncio.Runner() as runner:  # one loop: clients are kept, and with them its connections
        for line in sys.stdin:
            work = _thread(sys.argv[1], json.loads(line))
            try:
                said = {"answer": runner.run(asyncio.wait_for(work, TIMEOUT_S))}
            except Exception as error:  # noqa: BLE001  # whatever it is, it is what came of it
                said = {"error": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps(said) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
