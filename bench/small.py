"""Have agents do small tasks with a real model, behind any server that speaks OpenAI's protocol.

python -m bench.small --base-url http://127.0.0.1:8080/v1 --model NAME --out FILE.jsonl
    [--harness NAME ...] [--tasks NAME ...] [--variants 1 2 3] [--temperature 0] [--seeds 1]
    [--timeout 240]
python -m bench.small --report FILE.jsonl ...

Each run is a process of its own in a sandbox: it writes to its task's folder, and reaches nothing
but the model. What stands in FILE is not done again.
"""

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.small_proxy import Counts, Proxy
from bench.small_sandbox import SOCKET, Ended, run, sandboxed
from bench.small_tasks import TASKS
from bench.tables import Table
from tests.support.applications.installing import python_with

MOST_CALLS, MOST_TOKENS, TIMEOUT_S = 12, 1024, 240.0
"""Requests and seconds of a run, and tokens of a reply: a loop in a reply ends there."""
PORT = 8080
"""Of the model's server, in the sandbox."""
_HERE = Path(__file__).parent
_ROOT = _HERE.parent
_FORMS, _SIZES = ("auto", "native", "text", "constrained"), ("auto", "small", "standard")
OURS = {
    "-".join(["ours", *(part for part in form if part != "auto")]): form
    for form in itertools.product(_FORMS, _SIZES)
}
"""Ways that ours is run, by name: how the model calls tools, and the profile."""
PEERS = ("create_agent", "deepagents", "smolagents-code", "smolagents-tools")
HARNESSES = (*OURS, *PEERS)


@dataclass(frozen=True)
class Case:
    """What is to be done by whom."""

    model: str
    temperature: float
    seed: int
    variant: int
    task: str
    harness: str


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    case: Case
    solved: bool
    claimed: bool
    """Whether the agent called it a success. Only ours can call an ended run anything else; of the
    others all count that ended without an error within their limits."""
    seconds: float
    counts: Counts
    answer: str = ""
    error: str = ""

    @property
    def false_success(self) -> bool:
        """Whether it was called a success, and is none."""
        return self.claimed and not self.solved

    def line(self) -> str:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: str) -> "Result":
        """Read a line."""
        given: dict[str, Any] = json.loads(line)
        case, counts = Case(**given.pop("case")), Counts(**given.pop("counts"))
        return cls(case=case, counts=counts, **given)


def command(case: Case, text: str) -> tuple[list[str], list[Path]]:
    """Return the command that does a case in the sandbox, and what must be shown to it."""
    given: dict[str, Any] = {
        "harness": case.harness,
        "model": case.model,
        "base_url": f"http://127.0.0.1:{PORT}/v1",
        "options": {
            "temperature": case.temperature,
            "seed": case.seed,
            "max_tokens": MOST_TOKENS,
        },
        "calls": MOST_CALLS,
        "text": text,
    }
    if case.harness in OURS:
        form, size = OURS[case.harness]
        given |= {"harness": "ours", "tool_calling": form, "profile": size}
    tools = _HERE / "small_tools.py"
    if case.harness.startswith("smolagents"):
        from bench.zoo import SMOLAGENTS  # seconds, for all that the zoo needs

        packages = f"smolagents[openai]=={SMOLAGENTS}", f"pandas=={version('pandas')}"
        python, program = python_with("smolagents-small", *packages), _HERE / "small_smolagents.py"
        return [str(python), "-P", str(program), json.dumps(given)], [
            python.parent.parent, program, tools,
        ]  # fmt: skip
    shown = [Path(sys.prefix), _ROOT / "openmanus_graph", tools]
    shown += [_HERE / "__init__.py", _HERE / "small_child.py"]
    return [sys.executable, "-P", "-m", "bench.small_child", json.dumps(given)], shown


async def done(case: Case, proxy: Proxy, socket: Path, timeout_s: float) -> Result:
    """Do a case in a fresh folder."""
    task = TASKS[case.task].variant(case.variant)
    program, shown = command(case, task.text)
    relay = _HERE / "small_relay.py"
    proxy.counts = counts = Counts()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        task.write_files(folder)
        whole = [sys.executable, str(relay), SOCKET, str(PORT), *program]
        argv = sandboxed(
            folder, whole, shown=[Path(sys.prefix), relay, *shown],
            programs=Path(program[0]).parent, socket=socket,
        )  # fmt: skip
        begun = time.monotonic()
        said = _said(await run(argv, timeout_s))
        seconds = round(time.monotonic() - begun, 1)
        answer, claimed = str(said.get("answer", "")), bool(said["claimed"])
        solved = await asyncio.to_thread(task.check, folder, answer)
    if task.cannot_be_done and case.harness in OURS:  # it has a word for that
        solved = solved and not claimed
    error = str(said.get("error", ""))
    return Result(case, solved, claimed, seconds, counts, answer, error)


def _said(ended: Ended) -> dict[str, Any]:
    if ended.code is None:
        return {"claimed": False, "error": "stopped: its time was over"}
    try:
        said: dict[str, Any] = json.loads(ended.out.splitlines()[-1])
    except (IndexError, ValueError):
        return {"claimed": False, "error": ended.errors[-2000:] or f"exit {ended.code}"}
    return said


def cases(given: argparse.Namespace) -> Iterator[Case]:
    """Yield what is to be done: all harnesses of a task one after the other, then the next."""
    named = list(TASKS) if given.tasks == ["all"] else given.tasks
    turns = itertools.product(given.seeds, given.variants, named, given.harness)
    for seed, variant, task, harness in turns:
        yield Case(given.model, given.temperature, seed, variant, task, harness)


async def measure(
    missing: Sequence[Case], base_url: str, out: Path, timeout_s: float = TIMEOUT_S
) -> None:
    """Do cases, one at a time, and add their results to a file."""
    proxy = Proxy(base_url, MOST_CALLS)
    with tempfile.TemporaryDirectory() as place, out.open("a", encoding="utf-8") as file:
        socket = Path(place) / "model.sock"
        async with proxy.listening(socket):
            for number, case in enumerate(missing, 1):
                result = await done(case, proxy, socket, timeout_s)
                file.write(result.line())
                file.flush()
                sys.stderr.write(f"{number}/{len(missing)} {_in_words(result)}\n")


def _in_words(result: Result) -> str:
    case, counts = result.case, result.counts
    outcome = "solved" if result.solved else "FALSE SUCCESS" if result.claimed else "not solved"
    spent = f"{counts.calls} calls, {counts.tokens_in} + {counts.tokens_out} tokens"
    return f"{case.task} {case.variant}, {case.harness}: {outcome}, {spent}, {result.seconds} s"


def results(files: Iterable[Path]) -> list[Result]:
    """Read the results of files."""
    lines = (line for file in files for line in file.read_text(encoding="utf-8").splitlines())
    return [Result.of_line(line) for line in lines]


def report(found: Sequence[Result]) -> str:
    """Return the table: a row for each harness, temperature and model."""
    titles = ["harness", "solved", "false successes", "calls", "tokens in", "tokens out", "s a run"]
    groups: dict[tuple[str, float, str], list[Result]] = {}
    for one in found:
        key = one.case.model, one.case.temperature, one.case.harness
        groups.setdefault(key, []).append(one)
    parts: list[str] = []
    for (model, temperature), keys in itertools.groupby(sorted(groups), lambda key: key[:2]):
        rows = [[key[2], *_figures(groups[key])] for key in sorted(keys, key=_order)]
        parts.append(f"{model}, temperature {temperature:g}\n\n{Table(titles, rows)}")
    return "\n".join(parts)


def _order(key: tuple[str, float, str]) -> int:
    return HARNESSES.index(key[2])


def _figures(runs: Sequence[Result]) -> list[str]:
    tokens = [[one.counts.tokens_in for one in runs], [one.counts.tokens_out for one in runs]]
    return [
        f"{sum(one.solved for one in runs)} of {len(runs)}",
        str(sum(one.false_success for one in runs)),
        str(sum(one.counts.calls for one in runs)),
        *(f"{sum(some):,}" for some in tokens),
        f"{sum(one.seconds for one in runs) / len(runs):.0f}",
    ]


def main() -> None:
    """Do what is asked for, and print the table."""
    given = _parsed()
    if given.report:
        sys.stdout.write(report(results(given.report)))
        return
    known = {one.case for one in results([given.out])} if given.out.exists() else set[Case]()
    missing = [case for case in cases(given) if case not in known]
    asyncio.run(measure(missing, given.base_url, given.out, given.timeout))
    sys.stdout.write(report(results([given.out])))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.small")
    parser.add_argument("--base-url", default="http://127.0.0.1:8080/v1", help="of the server")
    parser.add_argument("--model", help="as the server calls it")
    parser.add_argument("--harness", nargs="+", choices=HARNESSES, default=["ours", *PEERS],
                        metavar="NAME", help=f"of {', '.join(HARNESSES)}")  # fmt: skip
    parser.add_argument("--tasks", nargs="+", choices=["all", *TASKS], default=["all"],
                        metavar="NAME", help=f"of all, {', '.join(TASKS)}")  # fmt: skip
    parser.add_argument("--variants", nargs="+", type=int, default=[1], help="1, 2, 3 ...")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seeds", nargs="+", type=int, default=[1], help="of the model")
    parser.add_argument("--timeout", type=float, default=TIMEOUT_S, help="seconds of a run")
    parser.add_argument("--out", type=Path, help="takes a line of JSON for each run")
    parser.add_argument("--report", nargs="+", type=Path, help="only print the table of such files")
    given = parser.parse_args()
    if not given.report and not (given.model and given.out):
        parser.error("--model and --out are needed, or --report")
    return given


if __name__ == "__main__":
    main()
