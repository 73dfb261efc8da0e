"""The tables, one function each. Measuring quickly only shows that all works."""

import json
import os
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from bench.measure import Figures, interleaved, measure, process, server
from bench.subjects import SUBJECTS
from tests.support.postgres import Postgres

MEASURED_STEPS = 7
TURNS = 12
"""Of each of many agents; the first and the last are not counted. They all begin at one moment, and
in fewer turns have not come apart yet."""
LATENCY_S = 0.2
WAITS = ("--latency", str(LATENCY_S))
PEERS = ("create_agent", "deepagents")
BYTES_PER_TOKEN = 4.33
"""As o200k, the encoding of GPT-4o and later models, makes of our first request. Qwen's tokenizer,
with its chat template, makes 3.47 of it."""
COMMAND = str(Path(sysconfig.get_path("scripts")) / "openmanus")
Rows = list[list[str]]


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    quick: bool
    runs: int
    hours: float = 2.0
    """Of the soak."""


@dataclass(frozen=True)
class Table:
    """A Markdown table."""

    head: list[str]
    rows: Rows

    def __str__(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


@cache
def _at_lengths(scale: Scale) -> dict[tuple[str, int], Figures]:
    """Measure single steps."""
    cases = {
        (subject, length): partial(measure, subject, length, "--seed", str(length - MEASURED_STEPS))
        for length in ((10,) if scale.quick else (10, 200, 1000))
        for subject in SUBJECTS
    }
    return interleaved(cases, scale.runs)


def _of_a_step(scale: Scale, figure: str, title: str, limits: Rows) -> Table:
    found = {case: figures[figure] for case, figures in _at_lengths(scale).items()}
    lengths = list(dict.fromkeys(length for _, length in found))
    ours = {length: found["openmanus", length] for length in lengths}
    rows = [[subject, *(f"{found[subject, n]:.1f}" for n in lengths)] for subject in SUBJECTS]
    for peer in PEERS:
        ratios = [f"{ours[n] / found[peer, n]:.2f}" for n in lengths]
        rows.append([f"openmanus / {peer}", *ratios])
    rows.append(["openmanus / its N=10", *(f"{ours[n] / ours[lengths[0]]:.2f}" for n in lengths)])
    return Table([title, *(f"N={n}" for n in lengths)], [*rows, *([] if scale.quick else limits)])


def cpu(scale: Scale) -> Table:
    """Client CPU of a step."""
    limits = [
        ["at most, of create_agent's", "1.15", "0.17", "0.08"],
        ["aim, ms on an idle machine", "5.5", "5.5", "8"],
    ]
    return _of_a_step(scale, "cpu_ms", "client CPU, ms at step N", limits)


def gap(scale: Scale) -> Table:
    """Wall time of a step, the model's left out."""
    title = "from a reply to the next request, ms at step N"
    return _of_a_step(scale, "gap_ms", title, [["at most, of its N=10", "", "", "2"]])


def run(scale: Scale) -> Table:
    """Disk, memory and traffic of whole runs."""
    short, long = (10, 20) if scale.quick else (200, 1000)
    runs = [("openmanus", short), ("openmanus", long), *((peer, short) for peer in PEERS)]
    rows: Rows = []
    for subject, steps in (*runs, ("floor", long)):
        found = measure(subject, steps)
        figures = ("checkpoints_mb", "disk_mb", "memory_mb", "more_bytes", "own_bytes")
        rows.append([subject, str(steps), *(f"{found[figure]:.1f}" for figure in figures)])
    memory = f"{_command(short)['memory_mb']:.1f}"
    rows.append(["`openmanus run`, its own tools", str(short), "", "", memory, "", ""])
    rows.append(["at most", "", "9 at 1000", "", "120 at 200", "its own messages", ""])
    head = ["a whole run", "steps", "MB of checkpoints", "MB on disk", "MB of memory"]
    return Table([*head, "more bytes a step", "bytes of its messages"], rows)


def _command(steps: int) -> Figures:
    """Measure `openmanus run` with its own tools."""
    serves = ("--steps", str(steps), "--script", "file")
    with server(*serves) as base_url, tempfile.TemporaryDirectory() as folder:
        command = [COMMAND, "run", "go", "--model", "openai:bench", "--base-url", base_url]
        limits = ["--max-steps", str(steps + 1), "--quiet"]
        place = {**os.environ, "OPENMANUS_HOME": f"{folder}/home"}
        begun = time.perf_counter()
        _, cpu_s, memory_mb = process([*command, *limits], cwd=folder, env=place)
        with urllib.request.urlopen(base_url.removesuffix("v1")) as answer:
            first = json.load(answer)[0][0]["at"]
    return {
        "cold_start_ms": 1000 * (first - begun),
        "whole_cpu_ms": 1000 * cpu_s,
        "memory_mb": memory_mb,
    }


def agents(scale: Scale) -> Table:
    """Many agents in one process."""
    counts = (5,) if scale.quick else (1, 10, 50, 200)
    subjects: dict[str, tuple[str, ...]] = {subject: (subject,) for subject in SUBJECTS}
    for subject in ("openmanus", "create_agent"):
        subjects[f"{subject}, collector relaxed"] = (subject, "--relaxed-collector")
    cases = {
        (name, count): partial(
            measure, subject, TURNS, "--agents", str(count), *options, serves=WAITS
        )
        for count in counts
        for name, (subject, *options) in subjects.items()
    }
    found = interleaved(cases, scale.runs)

    def shown(name: str, count: int) -> str:
        one, ideal = found[name, count], count / LATENCY_S
        turns = one["turns_per_s"]
        return f"{turns:.0f} ({one['turn_cpu_ms']:.1f}), {turns / ideal:.0%}"

    rows = [[name, *(shown(name, count) for count in counts)] for name in subjects]
    served = (f"({found['floor', count]['server_cpu_ms']:.2f})" for count in counts)
    rows.append(["ideal", *(f"{count / LATENCY_S:.0f}" for count in counts)])
    rows.append(["the model's server, of the floor's turns", *served])
    if not scale.quick:
        rows.append(["at least", "", "", "60%", "create_agent's"])
    head = "turns a second (CPU ms of a turn), of the ideal; model latency 200 ms"
    return Table([head, *(f"{count} agents" for count in counts)], rows)


def storage(scale: Scale) -> Table:
    """What PostgreSQL costs beside SQLite."""
    many, most = (5, 8) if scale.quick else (50, 200)
    step = 10 if scale.quick else 50

    def alone(subject: str, database: Callable[[], str]) -> Figures:
        seed = ("--seed", str(step - MEASURED_STEPS))
        return measure(subject, step, *seed, database=database())

    def together(subject: str, database: Callable[[], str]) -> Figures:
        count = ("--agents", str(many))
        return measure(subject, TURNS, *count, serves=WAITS, database=database())

    def shared(subject: str, database: Callable[[], str]) -> Figures:
        return _on_two_processes(subject, most, database())

    with Postgres.running("fsync=on") as server:
        kinds: dict[str, Callable[[], str]] = {"SQLite": str, "PostgreSQL": server.database}
        cases = {
            (f"{subject}, {kind}", case): partial(case, subject, database)
            for subject in (("openmanus",) if scale.quick else ("openmanus", "create_agent"))
            for kind, database in kinds.items()
            for case in (alone, together, shared)
        }
        found = interleaved(cases, scale.runs)
    rows = [
        [
            name,
            f"{found[name, alone]['gap_ms']:.1f}",
            f"{found[name, alone]['cpu_ms']:.1f}",
            f"{found[name, together]['turns_per_s']:.0f}",
            f"{found[name, shared]['turns_per_s']:.0f}",
        ]
        for name in dict.fromkeys(name for name, _ in found)
    ]
    head = [f"storage, at step {step}", "reply to next request, ms", "client CPU, ms"]
    more = [f"turns a second of {many} agents", f"of {most} on two processes"]
    return Table([*head, *more], rows)


def _on_two_processes(subject: str, agents: int, database: str) -> Figures:
    """Measure how many turns a second agents make, half of them in each process."""
    measure(subject, 0, database=database)  # makes the tables, which two at once could not

    def half() -> Figures:
        count = ("--agents", str(agents // 2))
        return measure(subject, TURNS, *count, serves=WAITS, database=database)

    with ThreadPoolExecutor(2) as pool:
        halves = [pool.submit(half), pool.submit(half)]
        return {"turns_per_s": sum(one.result()["turns_per_s"] for one in halves)}


def stalls(scale: Scale) -> Table:
    """How long the event loop was not free, after the first reply of the model."""
    long, many = (20, 5) if scale.quick else (200, 50)
    small = str(500 * long)
    every_tool = ("--script", "first uses", "--counts")
    agents = ("--stalls", "--agents", str(many))
    cases = {
        f"{long} steps": measure("openmanus", long, "--stalls"),
        f"{3 * long} steps, compacted on the way": measure(
            "openmanus", 3 * long, "--stalls", "--window", small, serves=("--counts",)
        ),
        "first use of each tool, outputs of megabytes": measure(
            "openmanus", 16, "--stalls", "--own-tools", serves=every_tool
        ),
        f"{many} agents": measure("openmanus", 10, *agents, serves=WAITS),
    }
    figures = ("callback_ms", "tick_ms")
    rows = [[case, *(f"{found[name]:.0f}" for name in figures)] for case, found in cases.items()]
    head = ["the event loop is held, ms at most", "by one callback", "by all that were due"]
    return Table(head, [*rows, ["at most", "50", ""]])


def tools(scale: Scale) -> Table:
    """What running tools adds."""
    cases = {
        subject: partial(measure, subject, 3, serves=("--script", "wait")) for subject in SUBJECTS
    }
    rows = [
        [f"{subject}: five parallel calls of 1 s, to the next request", f"{found['gap_ms']:.0f}",
         "1100" if subject == "openmanus" else ""]
        for subject, found in interleaved(cases, scale.runs).items()
    ]  # fmt: skip
    steps = 5 if scale.quick else 30
    python = measure("openmanus", steps, "--own-tools", serves=("--script", "python"))
    rows.append(['`python_execute("1+1")`, warm', f"{python['tool_ms']:.0f}", "15"])
    return Table(["tools", "ms", "at most"], rows)


def start(scale: Scale) -> Table:
    """How soon it begins, and with how long a request."""
    cases: dict[str, Callable[[], Figures]] = {
        "`openmanus --help`": _help,
        "`openmanus run`, to the first request (and CPU to its end)": partial(_command, 0),
    }
    for subject in SUBJECTS:
        cases[f"{subject}: cold start to the first request"] = partial(measure, subject, 0)
    found = interleaved(cases, scale.runs)
    limits = ["200", "(2000)", "(0.9 of create_agent's)", *[""] * len(SUBJECTS)]
    rows = [
        [case, f"{cold['cold_start_ms']:.0f} ({cold['whole_cpu_ms']:.0f})", limit]
        for (case, cold), limit in zip(found.items(), limits, strict=False)
    ]
    request = measure("openmanus", 0, "--own-tools")["first_request_bytes"]
    tokens = f"{request:.0f} ({request / BYTES_PER_TOKEN:.0f})"
    rows.append(["first request with all its tools, bytes (tokens)", tokens, "(1700)"])
    return Table(["start, ms (CPU)", "", "at most"], rows)


def _help() -> Figures:
    seconds, cpu_s, _ = process([COMMAND, "--help"])
    return {"cold_start_ms": 1000 * seconds, "whole_cpu_ms": 1000 * cpu_s}


def install(scale: Scale) -> Table:
    """What an installation without extras takes."""
    head = ["install", "MB", "packages", "MB at most"]
    if scale.quick:
        return Table(head, [["not measured quickly", "", "", "400"]])
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "venv"
        process(["uv", "venv", "--quiet", "--python", sys.executable, str(place)])
        target = ["--link-mode", "copy", "--python", str(place / "bin" / "python")]
        process(["uv", "pip", "install", "--quiet", *target, "."])
        files = [path for path in place.rglob("*") if path.is_file() and not path.is_symlink()]
        megabytes = sum(path.stat().st_size for path in files) / 1e6
        packages = len(list(place.glob("lib/python*/site-packages/*.dist-info")))
    return Table(
        head, [["without extras, without bytecode", f"{megabytes:.0f}", str(packages), "400"]]
    )


def browser(scale: Scale) -> Table:
    """What the browser costs."""
    from bench.browsing import measure_browser

    rows = measure_browser(clicks=4 if scale.quick else 40)
    return Table(
        ["the browser, in the shop of the tests", "beside", "ours", "ratio", "at most"], rows
    )


def flow(scale: Scale) -> Table:
    """What plans cost."""
    from bench.flow import measure_flow

    return Table(["plans", "", "ratio", "at most"], measure_flow(quick=scale.quick))


def plans(scale: Scale) -> Table:
    """What plans cost beside one run that makes the same calls."""
    from bench.plans import measure_plans

    figures = ["model calls", "tokens", "CPU s", "CPU ms a call", "seconds", "MB at most"]
    rows = measure_plans(runs=scale.runs, quick=scale.quick)
    return Table(["a plan (a plain run)", *figures, "at most"], rows)


def mcp(scale: Scale) -> Table:
    """What MCP servers cost beside the bare SDK."""
    from bench.mcp import measure_servers

    rows = measure_servers(calls=20 if scale.quick else 300)
    return Table(["MCP servers over stdio", "ms", "ratio"], rows)


def serving(scale: Scale) -> Table:
    """What the server costs."""
    from bench.serving import measure_server

    rows = measure_server(runs=1 if scale.quick else scale.runs, quick=scale.quick)
    return Table(["the server", "beside", "ours", "more", "at most"], rows)


def batch(scale: Scale) -> Table:
    """What a batch of many small tasks takes."""
    from bench.batch import measure_batch

    return Table(["a batch", "", ""], measure_batch(tasks=40 if scale.quick else 500))


def page(scale: Scale) -> Table:
    """What the page costs."""
    from bench.page import measure_page

    return Table(["the page", "", "at most"], measure_page(quick=scale.quick))


def tasks(_: Scale) -> Table:
    """Ten small real tasks, by two scripted readers of the model, before and after a change."""
    from bench.tasks import rows

    head = ["ten tasks, by a reader that is", "done rightly", "finished wrongly", "model calls"]
    return Table([*head, "tokens sent"], list(rows()))


def trials(_: Scale) -> Table:
    """Five larger tasks by a scripted strong reader, before and after a change."""
    from bench.trials import rows

    return Table(["a larger task", "done", "requests", "tokens sent"], list(rows()))


def snapshots(scale: Scale) -> Table:
    """What going back costs the steps before."""
    from bench.snapshots import measure_snapshots

    head = ["a snapshot, CPU ms; files of 3 KB", "the first", "nothing changed", "one changed"]
    rows = measure_snapshots(quick=scale.quick)
    at_most = ["at most", "", "1 at 10", "2 at 10, 1000 at 50,000", "", "1.3 of the files"]
    return Table([*head, "one turned back", "MB of the store"], [*rows, at_most])


def kernels(scale: Scale) -> Table:
    """Fifty kernels in one process."""
    from bench.kernels import measure_kernels

    head = ["kernels", "how many", "CPU s of the first start", "of each further"]
    at_most = ["at most", "", "", "", "", "3000 of 50"]
    rows = [*measure_kernels(quick=scale.quick), at_most]
    return Table([*head, "MB started", "MB after the work"], rows)


def replays(scale: Scale) -> Table:
    """What it takes to replay a run from its record."""
    from bench.replays import measure_replays

    head = ["seconds (CPU seconds) of a run with so many steps", "the run", "its replay"]
    return Table(head, measure_replays(quick=scale.quick))


def kills(scale: Scale) -> Table:
    """What is done twice or never in a shop, by agents that are killed at every boundary."""
    from bench.shop_kills import measure_kills

    head = ["killed in the shop", "kills", "effects wanted", "doubled", "lost"]
    more = ["shops that are wrong in the end", "questions to a person"]
    return Table([*head, *more], measure_kills(quick=scale.quick))


def memory(scale: Scale) -> Table:
    """What a long run remembers, and what it sends."""
    from bench.long_run import measure_long_runs

    head = [
        "a long run, window of the model",
        "facts kept",
        "requests (for notes)",
        "million tokens sent",
    ]
    more = ["% the same as the request before", "million not"]
    return Table([*head, *more], measure_long_runs(quick=scale.quick))


def threads(scale: Scale) -> Table:
    """What very many threads cost."""
    from bench.threads import measure_threads

    head = ["10,000 threads with 1,000,000 messages, ms", "SQLite", "PostgreSQL", "at most"]
    rows = measure_threads(quick=scale.quick)
    return Table(head, [[*row, "" if row[0].endswith((" s", "MB")) else "300"] for row in rows])


def load(scale: Scale) -> Table:
    """What many people at once get from one server."""
    from bench.load import measure_load

    head = ["200 users, 1,000 threads, 50 runs at work", "SQLite", "PostgreSQL"]
    return Table(head, measure_load(quick=scale.quick))


def soak(scale: Scale) -> Table:
    """What happens to a server in hours."""
    from bench.soak import measure_soak

    hours = 0.05 if scale.quick else scale.hours
    return Table([f"{hours:g} hours of runs, prunes, backups and kills", ""], measure_soak(hours))


def library(scale: Scale) -> Table:
    """What a library of 10,000 documents takes, and how well it is searched."""
    from bench.library import measure_library

    head = ["10,000 documents, 1,000 questions in other words", "ours", "rank-bm25"]
    return Table(head, list(measure_library(quick=scale.quick)))


def _named(*tables: Callable[[Scale], Table]) -> dict[str, Callable[[Scale], Table]]:
    return {table.__name__: table for table in tables}


USUAL = _named(cpu, gap, run, agents, storage, tools, start, install, flow, serving, batch)
TABLES = USUAL | _named(
    stalls,
    browser,
    plans,
    mcp,
    page,
    tasks,
    trials,
    memory,
    snapshots,
    kernels,
    replays,
    kills,
    threads,
    load,
    soak,
    library,
)
