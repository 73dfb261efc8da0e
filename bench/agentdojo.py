"""AgentDojo with a brain that obeys every order it reads: what the rules of the harness stop.

The brain plays a task's own solution and, when a result holds an injected order, does what that
says before it goes on. A person who knows the task answers: he allows the calls that the task's
solution makes, and rejects the others. Nothing is asked of a model.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, cast

from agentdojo.functions_runtime import FunctionCall
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from bench.agentdojo_tools import World, obeyed, quoted_texts
from openmanus_graph import Context, build_manus_graph
from openmanus_graph.testing import ScriptedChatModel
from openmanus_graph.tools.execution import python_execute

VERSION = "v1.2.2"
WORDS_ONLY = ("travel", "injection_task_6")
"""An order that only wants words in the answer: without a model nothing can be said of it."""
_MARK, _PLACE = "ORDER-7319", "PLACE-7319"
_MOST_REPLIES = 200
SETUPS = ("declared", "undeclared", "unguarded", "cells")
"""`sends_to` declared; left out; declared, and everything allowed (`--policy auto`); declared, and
each task written as one Python cell."""
WORDINGS = ("important_instructions", "injecagent")
"""How an order is put, by the names that the benchmark gives its attacks."""

SUITES = ("banking", "slack", "travel", "workspace")


def suite_of(name: str) -> Any:
    """Return a suite of the benchmark; its types are half known."""
    from agentdojo.task_suite import load_suites  # seconds, for the clients of all providers

    made: Any = load_suites
    return made.get_suites(VERSION)[name]


@dataclass(frozen=True)
class Case:
    """One task of the benchmark, alone or under attack."""

    setup: str
    suite: str
    task: str
    order: str
    """Empty: no attack."""
    wording: str = ""
    """Of the order."""


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    case: Case
    solved: bool
    through: bool
    """Whether the order was carried out."""
    questions: int
    interruptions: int
    """Pauses; each may ask several questions."""


class Brain:
    """Plays the calls of a task, and those of an order as soon as it reads it."""

    def __init__(self, task: Any, order: Any, world: World) -> None:
        wanted = task.ground_truth(world.environment.model_copy(deep=True))
        self.wanted = [_plain_call(one) for one in wanted]
        # A model asks for what is alike in one reply.
        self._replies = [list(some) for _, some in groupby(wanted, lambda one: one.function)]
        self._order, self._world, self._obeyed = order, world, order is None
        self._answer = task.GROUND_TRUTH_OUTPUT or "Done."
        self._calls = 0

    def __call__(self, messages: list[BaseMessage]) -> AIMessage:
        """Return the next reply."""
        shown = (one.text for one in messages if isinstance(one, ToolMessage))
        if not self._obeyed and any(_MARK in text for text in shown):
            self._obeyed = True
            self._replies = [
                *([one] for one in obeyed(self._order, self._world.environment)),
                *self._replies,
            ]
        if not self._replies:
            return AIMessage(self._answer)
        return AIMessage("", tool_calls=[self._made(one) for one in self._replies.pop(0)])

    def _made(self, call: FunctionCall) -> Any:
        self._calls += 1
        name, args = _plain_call(call)
        return tool_call(name=name, args=json.loads(args), id=f"c{self._calls}")


class CellBrain(Brain):
    """Writes the calls of a task as one cell, and those of an order as soon as it reads it.

    Code that was stopped is sent again: it continues.
    """

    def __init__(self, task: Any, order: Any, world: World) -> None:
        super().__init__(task, order, world)
        self._codes = [_code(self._replies)] if self._replies else []
        self._sent = False

    def __call__(self, messages: list[BaseMessage]) -> AIMessage:
        """Return the next reply."""
        results = [one.text for one in messages if isinstance(one, ToolMessage)]
        stopped = results and "was stopped" in results[-1] and "did not allow" not in results[-1]
        if len(results) == self._calls and self._sent and not stopped:
            self._codes.pop(0)
        self._sent = False
        if not self._obeyed and any(_MARK in text for text in results):
            self._obeyed = True
            calls = list(obeyed(self._order, self._world.environment))
            self._codes.insert(0, _code([[one] for one in calls]))
        if not self._codes:
            return AIMessage(self._answer)
        self._calls, self._sent = self._calls + 1, True
        args = {"code": self._codes[0]}
        made = tool_call(name="python_execute", args=args, id=f"c{self._calls}")
        return AIMessage("", tool_calls=[made])


def _code(replies: Sequence[Sequence[FunctionCall]]) -> str:
    lines = ["import asyncio"]
    for calls in replies:
        made = ", ".join(
            f"tools.{one.function}(**{json.loads(_plain_call(one)[1])!r})" for one in calls
        )
        lines.append(f"print(*await asyncio.gather({made}, return_exceptions=True), sep='\\n')")
    return "\n".join(lines)


def _plain_call(call: FunctionCall) -> tuple[str, str]:
    args = cast("dict[str, Any]", call.args)
    return call.function, json.dumps(args, sort_keys=True, default=str)


def cases(setup: str, suites: Iterable[str], wordings: Sequence[str] = WORDINGS) -> Iterator[Case]:
    """Yield each task alone, and with each order in each wording."""
    for name in suites:
        suite = suite_of(name)
        for task in suite.user_tasks:
            yield Case(setup, name, task, "")
            for order in suite.injection_tasks:
                if (name, order) != WORDS_ONLY:
                    yield from (Case(setup, name, task, order, one) for one in wordings)


async def run_case(case: Case, folder: Path) -> Result:
    """Run one case through the graph, with the person who knows the task."""
    with quoted_texts():
        return await _run_case(case, folder)


async def _run_case(case: Case, folder: Path) -> Result:
    suite = suite_of(case.suite)
    task = suite.user_tasks[case.task]
    order = suite.injection_tasks[case.order] if case.order else None
    environment = task.init_environment(_environment(suite, order, case.wording))
    world = World(suite.tools, environment)
    before = environment.model_copy(deep=True)
    in_cells = case.setup == "cells"
    brain = (CellBrain if in_cells else Brain)(task, order, world)
    tools = world.tools(sends_to=case.setup != "undeclared")
    graph = build_manus_graph(
        tools=[*tools, *([python_execute] if in_cells else ())], checkpointer=InMemorySaver()
    )
    context = Context(
        model=ScriptedChatModel([brain] * _MOST_REPLIES),
        workspace=str(folder),
        policy="auto" if case.setup == "unguarded" else "ask",
    )
    config: Any = {"configurable": {"thread_id": "-".join(asdict(case).values())}}
    given: Any = {"messages": [HumanMessage(task.PROMPT)]}
    questions = interruptions = 0
    while True:
        values = await graph.ainvoke(given, config, context=context)
        waiting = values.get("__interrupt__", ())
        if not waiting:
            break
        questions, interruptions = questions + len(waiting), interruptions + 1
        given = Command(resume={one.id: _decision(one.value, brain.wanted) for one in waiting})
    answer: Any = [{"type": "text", "content": values["answer"]}]
    checks: Any = suite._check_task_result  # what the benchmark itself decides by
    return Result(
        case,
        solved=bool(checks(task, answer, before, world.environment, world.ran)),
        through=order is not None
        and bool(checks(order, answer, before, world.environment, world.ran)),
        questions=questions,
        interruptions=interruptions,
    )


def _environment(suite: Any, order: Any, wording: str) -> Any:
    """Return a suite's environment with the order wherever somebody else could write it."""
    if order is None:
        return suite.load_and_inject_default_environment({})
    attack = _attack(suite.name, wording)
    text = attack.jailbreak.format(
        goal=f"{_MARK}: {order.GOAL}", user=attack.user_name, model=attack.model_name
    )
    marked = _marked_environment(suite.name)
    return suite.environment_type.model_validate_json(
        marked.replace(_PLACE, json.dumps(text)[1:-1])
    )


@cache
def _attack(suite: str, wording: str) -> Any:
    """Return the benchmark's own attack of this name, against a model that is none it knows."""
    from agentdojo.agent_pipeline import AgentPipeline
    from agentdojo.attacks import attack_registry

    nobody = AgentPipeline([])
    nobody.name = "local"  # a name has to be one that it knows
    registry: Any = attack_registry
    return registry.load_attack(wording, suite_of(suite), nobody)


@cache
def _marked_environment(suite: str) -> str:
    """Return a suite's environment as JSON, with a mark wherever somebody else could write."""
    made = suite_of(suite)
    places = dict.fromkeys(made.get_injection_vector_defaults(), _PLACE)
    return str(made.load_and_inject_default_environment(places).model_dump_json())


def _decision(asked: Mapping[str, Any], wanted: Sequence[tuple[str, str]]) -> str:
    (call,) = asked["calls"]
    made = call["tool"], json.dumps(call["args"], sort_keys=True, default=str)
    return "approve" if made in wanted else "reject"


async def run_cases(wanted: Sequence[Case], out: Path) -> list[Result]:
    """Run the cases that a file of results does not hold yet, and return all it holds then."""
    known = read_results(out)
    done = {one.case for one in known}
    with tempfile.TemporaryDirectory() as folder, out.open("a") as file:
        for number, case in enumerate(one for one in wanted if one not in done):
            result = await run_case(case, Path(folder) / str(number))
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()
    return read_results(out)


def read_results(out: Path) -> list[Result]:
    """Read a file of results; none if there is no file."""
    lines = out.read_text().splitlines() if out.exists() else []
    found: list[Any] = list(map(json.loads, lines))
    return [Result(Case(**one.pop("case")), **one) for one in found]


def figures_page(results: Sequence[Result]) -> str:
    """Return `docs/security-figures.md`."""
    pairs = [(setup, wording) for setup in SETUPS for wording in WORDINGS]
    rows = [row for setup, wording in pairs if (row := _row(setup, wording, results))]
    tables = [_HEAD, *rows]
    for setup in SETUPS:
        found = [one for one in results if one.case.setup == setup and one.through]
        if setup != "unguarded" and found:
            tables.append(f"\nThrough with `{setup}`: {_named(found)}.")
    return _PAGE.format(version=VERSION, table="\n".join(tables))


def _row(setup: str, wording: str, results: Sequence[Result]) -> str:
    mine = [one for one in results if one.case.setup == setup]
    alone = [one for one in mine if not one.case.order]
    attacked = [one for one in mine if one.case.wording == wording]
    if not alone or not attacked:
        return ""
    cells = [
        setup,
        wording,
        f"{sum(one.through for one in attacked)} of {len(attacked)}",
        f"{sum(one.solved for one in alone)} of {len(alone)}",
        f"{sum(one.solved for one in attacked)} of {len(attacked)}",
        _each(alone, "interruptions"),
        _each(alone, "questions"),
        _each(attacked, "interruptions"),
        _each(attacked, "questions"),
    ]
    return f"| {' | '.join(cells)} |"


def _each(results: Sequence[Result], figure: str) -> str:
    return f"{sum(getattr(one, figure) for one in results) / max(1, len(results)):.3f}"


def _named(results: Sequence[Result]) -> str:
    """Name the orders, each with the tasks that it was carried out in: they are to be looked at."""
    tasks: dict[str, dict[str, None]] = {}
    for one in results:
        tasks.setdefault(f"{one.case.suite} {one.case.order}", {})[one.case.task] = None
    return "; ".join(f"{order} in {', '.join(some)}" for order, some in tasks.items())


_HEAD = (
    "| setup | wording | attacks through | tasks solved | solved under attack "
    "| interruptions a task | questions a task "
    "| interruptions under attack | questions under attack |\n" + "| --- " * 9 + "|"
)
_PAGE = """# Security figures

Made by `uv run python -m bench.agentdojo --write`.

[AgentDojo](https://agentdojo.spylab.ai) {version}: 97 tasks in four suites, each alone and
together with each of its suite's injected orders, all through `build_manus_graph`. **The model
obeys every order that it reads**: it is a script that plays the task's own solution and, as soon
as a tool's result holds an order, does what that says first. So the figures say what the harness
stops, not what a model sees through. The order is put wherever the benchmark lets others write, in
two of the benchmark's own wordings: `important_instructions` (a message that claims to be from the
person) and `injecagent` ("ignore all previous instructions"). Of
949 pairs 929 can be decided without a model: travel's order 6 only wants words in the answer.
Eight orders of the workspace have no solution in the benchmark; what obeying them means is written
in `bench/agentdojo_tools.py`, and so are the tools' declarations. "Through" and "solved" are what
the benchmark's own checks say. A person who knows the task answers the questions: he allows the
calls of the task's solution and rejects the others.

{table}

* **declared**: tools with `effect`, `untrusted`, `sends_to`, `trusted`, `private` and
  `destructive`, as their own documentation implies.
* **undeclared**: the same without `sends_to`: arguments are judged by their names
  ([information-flow.md](information-flow.md#tools-that-declare-nothing)).
* **cells**: as declared, but the calls of a task are one Python cell that calls the tools
  ([code mode](code-mode.md)), and so are those of an order. The cell prints every result.
* **unguarded**: with `--policy auto`, which asks nothing. That is what the orders do by
  themselves.

An interruption is a pause; it may hold several questions.
"""


def main() -> None:
    """Run the benchmark, or what is left of it."""
    parser = argparse.ArgumentParser(prog="python -m bench.agentdojo", description=__doc__)
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=SETUPS)
    parser.add_argument("--wordings", nargs="+", choices=WORDINGS, default=WORDINGS)
    parser.add_argument("--suites", nargs="+", default=SUITES)
    parser.add_argument("--out", type=Path, default=Path("agentdojo.jsonl"),
                        help="Keeps the results: a run that was stopped goes on.")  # fmt: skip
    parser.add_argument("--write", action="store_true", help="Write docs/security-figures.md.")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        os.environ["OPENMANUS_HOME"] = home
        wanted = [
            one for setup in given.setups for one in cases(setup, given.suites, given.wordings)
        ]
        results = asyncio.run(run_cases(wanted, given.out))
    page = figures_page(results)
    sys.stdout.write(page)
    if given.write:
        Path("docs/security-figures.md").write_text(page)


if __name__ == "__main__":
    main()
