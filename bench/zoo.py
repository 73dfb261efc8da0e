"""Take agents through the zoo of strict model servers, and write the table into docs/models.md.

python -m bench.zoo [--products NAME ...] [--servers NAME ...] [--write]

Ours runs here; each of the others in a process of its own, which is told what to ask of whom by
lines of JSON, and says what came of it.
"""

import argparse
import asyncio
import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.tables import Table
from tests.support.applications.installing import python_with
from tests.support.zoo import ANIMALS, OTHER
from tests.support.zoo_runs import PICTURES, UserInput, noise, person
from tests.support.zoo_server import Animal, ZooServer
from tests.support.zoo_tasks import TASKS

SMOLAGENTS = "1.26.0"
PAGE = Path(__file__).parent.parent / "docs" / "models.md"
BEGIN, END = "<!-- zoo -->", "<!-- /zoo -->"
_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Turn:
    """One task of a thread: what is asked, of whom."""

    server: ZooServer
    task: str
    pictured: bool = False
    fallback: ZooServer | None = None


@dataclass(frozen=True)
class Outcome:
    """What came of a situation."""

    answer: str = ""
    error: str = ""


Situation = Callable[[ZooServer, ExitStack], list[Turn]]
Product = Callable[[Sequence[Turn]], Outcome]


def _another_thread(server: ZooServer, stack: ExitStack) -> list[Turn]:
    other = stack.enter_context(ZooServer(OTHER))
    return [Turn(other, "fresh"), Turn(server, "more")]


def _fallback(server: ZooServer, stack: ExitStack) -> list[Turn]:
    other = stack.enter_context(ZooServer(OTHER, out_of_quota_after=1))
    return [Turn(other, "fresh", fallback=server)]


SITUATIONS: dict[str, Situation] = {
    "fresh run": lambda server, _: [Turn(server, "fresh")],
    "follow-up": lambda server, _: [Turn(server, "fresh"), Turn(server, "more")],
    "another's thread": _another_thread,
    "fallback": _fallback,
    "pictures": lambda server, _: [Turn(server, "picture", pictured=True)],
}


# ---- products


@contextlib.contextmanager
def ours() -> Generator[Product]:
    """This product, in this process, with an empty home for each situation."""

    async def run(turns: Sequence[Turn]) -> Outcome:
        async with person() as who:
            for turn in turns[:-1]:
                await _ask(who, turn)
            values = (await _ask(who, turns[-1])).values
        if values["status"] == "finished":
            return Outcome(values["answer"])
        return Outcome(error=f"{values['status']}: {values['answer']}")

    def product(turns: Sequence[Turn]) -> Outcome:
        with tempfile.TemporaryDirectory() as home, contextlib.chdir(home):
            os.environ |= {"OPENMANUS_HOME": home, "XDG_CONFIG_HOME": home}
            os.environ["OPENAI_API_KEY"] = "none"
            return asyncio.run(run(turns))

    yield product


async def _ask(who: UserInput, turn: Turn) -> Any:
    images = PICTURES if turn.pictured else ()
    return await who.ask(turn.server, turn.task, fallback=turn.fallback, images=images)


@contextlib.contextmanager
def _peer(*command: str) -> Generator[Product]:
    """Another product, in a process of its own."""
    child = subprocess.Popen(
        command, cwd=_HERE.parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    reported, said = child.stdin, child.stdout

    def product(turns: Sequence[Turn]) -> Outcome:
        reported.write(json.dumps([_as_json(turn) for turn in turns]) + "\n")
        reported.flush()
        return Outcome(**json.loads(said.readline()))

    try:
        yield product
    finally:
        reported.close()
        child.wait()
        said.close()


def _as_json(turn: Turn) -> dict[str, Any]:
    urls = [base64.b64encode(noise(*size)).decode() for size in PICTURES.values()]
    return {
        **_model(turn.server),
        "task": turn.server.animal.preface + TASKS[turn.task].text,
        "pictures": urls if turn.pictured else [],
        "fallback": _model(turn.fallback) if turn.fallback else None,
    }


def _model(server: ZooServer) -> dict[str, Any]:
    animal = server.animal
    options = dict(animal.options)
    return {"model": animal.model_name, "base_url": server.base_url, "options": options}


def _langchain(name: str) -> Callable[[], contextlib.AbstractContextManager[Product]]:
    return lambda: _peer(sys.executable, "-m", "bench.zoo_langchain", name)


def _smolagents() -> contextlib.AbstractContextManager[Product]:
    python = python_with("smolagents", f"smolagents[openai]=={SMOLAGENTS}")
    return _peer(str(python), str(_HERE / "zoo_smolagents.py"))


PRODUCTS: dict[str, Callable[[], contextlib.AbstractContextManager[Product]]] = {
    "openmanus": ours,
    "create_agent": _langchain("create_agent"),
    "deepagents": _langchain("deepagents"),
    "smolagents": _smolagents,
}
LACKS = {"smolagents": ("fallback",)}
"""Situations that a product has no means for; they are not counted."""


# ---- what came of it


def failure(turns: Sequence[Turn], product: Product) -> str:
    """Run a situation, and say in a few words why it has no right answer; "" if it has."""
    outcome = product(turns)
    wanted = TASKS[turns[-1].task].answer
    if not outcome.error:
        return "" if outcome.answer.strip() == wanted else _wrong(outcome.answer)
    return _reason(outcome.error)


def _wrong(answer: str) -> str:
    if "A-7193" in answer or "D-6426" in answer:
        return "thoughts in the answer"
    return "a call as the answer" if "look_up" in answer else "a wrong answer"


_REASONS = {
    "recursion": "loops",
    "contextoverflow": "too long",
    "429": "out of quota",
    **{status: status for status in ("400", "404", "413", "422", "500")},
}
"""By what an error says."""


def _reason(error: str) -> str:
    lowered = error.lower()
    return next(
        (words for mark, words in _REASONS.items() if mark in lowered), error.split("\n")[0][:40]
    )


def cell(animal: Animal, name: str, product: Product) -> str:
    """Say how a product fares with a server: `all`, `none`, or what fails; and why."""
    failures: dict[str, list[str]] = {}
    wanted = [one for one in SITUATIONS if one not in LACKS.get(name, ())]
    for situation in wanted:
        with ExitStack() as stack:
            server = stack.enter_context(ZooServer(animal))
            if why := failure(SITUATIONS[situation](server, stack), product):
                failures.setdefault(why, []).append(situation)
    if not failures:
        return "all"
    return "; ".join(
        f"{'none' if some == wanted else 'not ' + ', '.join(some)}: {why}"
        for why, some in failures.items()
    )


def measured(products: Sequence[str], animals: Sequence[Animal]) -> Table:
    """Take products through the zoo; those that have processes of their own side by side."""
    columns = {name: _column(name, animals) for name in products if PRODUCTS[name] is ours}
    others = [name for name in products if name not in columns]
    with ThreadPoolExecutor() as pool:
        measuring = pool.map(partial(_column, animals=animals), others)
        columns.update(zip(others, measuring, strict=True))
    cells = zip(*(columns[name] for name in products), strict=True)
    rows = [[one.name, one.topic, *row] for one, row in zip(animals, cells, strict=True)]
    whole = [str(columns[name].count("all")) for name in products]
    rows.append([f"all, of {len(rows)}", "", *whole])
    return Table(["server", "about", *products], rows)


def _column(name: str, animals: Sequence[Animal]) -> list[str]:
    cells: list[str] = []
    with PRODUCTS[name]() as product:
        for animal in animals:
            cells.append(cell(animal, name, product))
            sys.stderr.write(f"{name}: {animal.name}: {cells[-1]}\n")
    return cells


def section(table: Table, products: Iterable[str]) -> str:
    """Write the part of docs/models.md between the marks."""
    versions = {
        "openmanus": f"openmanus {version('openmanus-graph')}",
        "create_agent": f"LangChain's `create_agent` {version('langchain')} with `ChatOpenAI` "
        f"{version('langchain-openai')}",
        "deepagents": f"deepagents {version('deepagents')}",
        "smolagents": f"smolagents {SMOLAGENTS} (`ToolCallingAgent` with `OpenAIModel`)",
    }
    compared = ", ".join(versions[name] for name in products)
    day = datetime.now(UTC).date()
    return f"Measured on {day} by `uv run python -m bench.zoo --write`: {compared}.\n\n{table}"


def main() -> None:
    """Measure, print the table, and renew it in the docs where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m bench.zoo", description=__doc__)
    parser.add_argument("--products", nargs="+", choices=PRODUCTS, default=list(PRODUCTS))
    parser.add_argument("--servers", nargs="+", choices=[OTHER.name, *ANIMALS])
    parser.add_argument("--write", action="store_true", help="Renew docs/models.md.")
    given = parser.parse_args()
    known = {OTHER.name: OTHER, **ANIMALS}
    animals = [known[name] for name in given.servers or known]
    animals = [one for one in animals if one.survivable]
    found = section(measured(given.products, animals), given.products)
    sys.stdout.write(found)
    if given.write:
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{found}{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
