"""Runs of our agents at servers of the zoo, through the library and the real client."""

from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from PIL import Image

from openmanus_graph import build_manus_graph, build_planning_graph, tell
from openmanus_graph.backends.models.build import close_models
from openmanus_graph.config.files import config_home
from tests.support.graphs import Ran, run_graph
from tests.support.zoo_server import Animal, ZooServer
from tests.support.zoo_tasks import TASKS, TOOLS, VALUES, said_of

PICTURES = {"wide.png": (2400, 40), "small.png": (64, 48), "other.png": (50, 70)}
CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}


@tool("look_up")
async def steered_look_up(key: str) -> str:
    """Look a value up, while the person says something."""
    await tell("t", "Be brief.")
    return said_of(key)


@cache
def noise(width: int, height: int) -> bytes:
    """Return a picture that no format makes much smaller."""
    data = Random(width).randbytes(width * height * 3)
    file = BytesIO()
    Image.frombytes("RGB", (width, height), data).save(file, "PNG")
    return file.getvalue()


def write_files(work: Path, filler: int = 0) -> None:
    """Write what the tasks are about into a workspace.

    Args:
        work: The folder.
        filler: How many more characters each text has.
    """
    work.mkdir(exist_ok=True)
    for key in VALUES:
        lines = filler // 60 * (60 * "x" + "\n")
        (work / f"{key}.txt").write_text(f"{key} is {VALUES[key]}.\n{lines}")
    for name, size in PICTURES.items():
        (work / name).write_bytes(noise(*size))


@dataclass
class UserInput:
    """Who asks: one thread, at one server or another."""

    saver: InMemorySaver = field(default_factory=InMemorySaver)

    async def ask(
        self,
        server: ZooServer,
        task: str,
        *,
        fallback: ZooServer | None = None,
        images: Iterable[str] = (),
        planned: bool = False,
        filler: int = 0,
        **context: Any,
    ) -> Ran:
        """Run a task to its end."""
        write_files(Path("work"), filler)
        config_home().mkdir(parents=True, exist_ok=True)
        (config_home() / "config.toml").write_text(_settings(fallback))
        agent = build_manus_graph(tools=TOOLS, checkpointer=self.saver)
        if task == "steered":
            agent = build_manus_graph(tools=[steered_look_up], checkpointer=self.saver)
        elif (used := TASKS[task].tool) != "look_up":
            agent = build_manus_graph(checkpointer=self.saver)
            context["tools"] = ("read_file", "+delegate") if used == "delegate" else (used,)
        graph: Any = agent
        if planned:
            agent = build_manus_graph(tools=TOOLS)
            graph = build_planning_graph(executors={"manus": agent}, checkpointer=self.saver)
        extra = {"images": list(images)} if images else {}
        text = server.animal.preface + TASKS[task].text
        given = {"messages": [HumanMessage(text, additional_kwargs=extra)]}
        limits = {"max_steps": 12, **context}
        return await run_graph(
            graph,
            model=f"openai:{server.animal.model_name}",
            base_url=server.base_url,
            model_options=_options(server.animal),
            fallback=() if fallback is None else ("spare",),
            task=given,
            config=CONFIG,
            **limits,
        )


def _options(animal: Animal) -> dict[str, Any]:
    # What is tried again for nothing costs the test a second, and is seen among the refusals.
    return {**animal.options, "max_retries": 1}


def _settings(fallback: ZooServer | None) -> str:
    lines = ["[llm]", "sees_images = true"]
    if fallback is not None:
        lines += ["[llm.profiles.spare]", f'model = "openai:{fallback.animal.model_name}"']
        lines += [f'base_url = "{fallback.base_url}"', "sees_images = true"]
        lines += ["[llm.profiles.spare.model_options]"]
        for key, value in _options(fallback.animal).items():
            lines.append(f"{key} = {_toml(value)}")
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


@asynccontextmanager
async def person() -> AsyncGenerator[UserInput]:
    """Come, and close the connections in the end."""
    try:
        yield UserInput()
    finally:
        await close_models()
