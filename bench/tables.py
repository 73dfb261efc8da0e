"""The tables, one function each. Measuring quickly only shows that all works."""

import os
import statistics
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from bench.measure import Figures, measure, medians, process, server
from bench.subjects import SUBJECTS
from tests.support.postgres import Postgres

MEASURED_STEPS = 7
BYTES_PER_TOKEN = 4.2
"""As o200k, the encoding of GPT-4o and later models, makes of our first request."""
COMMAND = str(Path(sysconfig.get_path("scripts")) / "openmanus")
Rows = list[list[str]]


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    quick: bool
    runs: int


@dataclass(frozen=True)
class Table:
    """A Markdown table."""

    head: list[str]
    rows: Rows

    def __str__(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


@cache
def _at_lengths(scale: Scale) -> dict[str, dict[int, Figures]]:
    """Measure single steps, the subjects in turn, so that drift hits all alike."""
    found: dict[str, dict[int, Figures]] = {subject: {} for subject in SUBJECTS}
    for length in (10, 50) if scale.quick else (10, 100, 200, 1000):
        seed = str(max(0, length - MEASURED_STEPS))
        taken: dict[str, list[Figures]] = {subject: [] for subject in SUBJECTS}
        for _ in range(scale.runs):
            for subject, runs in taken.items():
                runs.append(measure(subject, length, "--seed", seed))
        for subject, runs in taken.items():
            found[subject][length] = medians(runs)
    return found


def _of_a_step(scale: Scale, figure: str, title: str, limits: Mapping[int, str]) -> Table:
    found = _at_lengths(scale)
    ours, theirs = found["openmanus"], found["create_agent"]
    shortest = min(ours)
    rows = [
        [subject, *(f"{at[figure]:.1f}" for at in lengths.values())]
        for subject, lengths in found.items()
    ]
    ratios = [f"{ours[n][figure] / theirs[n][figure]:.2f}" for n in ours]
    growth = [f"{ours[n][figure] / ours[shortest][figure]:.2f}" for n in ours]
    rows += [["openmanus / create_agent", *ratios], ["openmanus / its N=10", *growth]]
    rows.append(["at most", *(limits.get(n, "") for n in ours)])
    return Table([title, *(f"N={n}" for n in ours)], rows)


def cpu(scale: Scale) -> Table:
    """Client CPU of a step."""
    shares = {10: 1.15, 200: 0.17, 1000: 0.08}
    limits = {length: f"{share} of create_agent's" for length, share in shares.items()}
    return _of_a_step(scale, "cpu_ms", "client CPU, ms at step N", limits)


def gap(scale: Scale) -> Table:
    """Wall time of a step, the model's left out."""
    title = "from a reply to the next request, ms at step N"
    return _of_a_step(scale, "gap_ms", title, {1000: "2 x its N=10"})


def run(scale: Scale) -> Table:
    """Disk, memory and traffic of whole runs."""
    runs = [("openmanus", 10)] if scale.quick else [("openmanus", 200), ("openmanus", 1000)]
    runs += [] if scale.quick else [("create_agent", 200)]
    rows: Rows = []
    for subject, steps in runs:
        found = measure(subject, steps)
        figures = ("disk_mb", "memory_mb", "more_bytes", "own_bytes")
        rows.append([subject, str(steps), *(f"{found[figure]:.1f}" for figure in figures)])
    steps = 10 if scale.quick else 200
    memory = f"{_memory_of_command(steps):.1f}"
    rows.append(["`openmanus run`, its own tools", str(steps), "", memory, "", ""])
    rows.append(["at most", "", "15 at 1000", "120 at 200", "its own messages", ""])
    head = ["a whole run", "steps", "MB on disk", "MB of memory", "more bytes a step"]
    return Table([*head, "bytes of its messages"], rows)


def _memory_of_command(steps: int) -> float:
    serves = ("--steps", str(steps), "--script", "file")
    with server(*serves) as base_url, tempfile.TemporaryDirectory() as folder:
        command = [COMMAND, "run", "go", "--model", "openai:bench", "--base-url", base_url]
        limits = ["--max-steps", str(steps + 1), "--quiet"]
        place = {**os.environ, "OPENMANUS_HOME": f"{folder}/home"}
        return process([*command, *limits], cwd=folder, env=place)[2]


def agents(scale: Scale) -> Table:
    """Many agents in one process."""
    counts = (1, 5) if scale.quick else (1, 10, 50)
    waits = ("--latency", "0.2")
    taken: dict[str, dict[int, list[Figures]]] = {
        subject: {count: [] for count in counts} for subject in SUBJECTS
    }
    for _ in range(scale.runs):
        for subject, found in taken.items():
            for count, figures in found.items():
                figures.append(measure(subject, 10, "--agents", str(count), serves=waits))
    rows: Rows = []
    for subject, found in taken.items():
        middle = [medians(figures) for figures in found.values()]
        shown = [f"{one['turns_per_s']:.0f} ({one['turn_cpu_ms']:.1f})" for one in middle]
        rows.append([subject, *shown])
    rows.append(["ideal", *(str(5 * count) for count in counts)])
    head = "turns a second (CPU ms of a turn), model latency 200 ms"
    return Table([head, *(f"{count} agents" for count in counts)], rows)


def storage(scale: Scale) -> Table:
    """What PostgreSQL costs beside SQLite."""
    steps, many, most = (10, 5, 8) if scale.quick else (50, 50, 200)
    waits = ("--latency", "0.2")
    rows: Rows = []
    with Postgres.running("fsync=on") as server:
        for subject in ("openmanus", "create_agent"):
            for kind in ("SQLite", "PostgreSQL"):
                alone: list[Figures] = []
                together: list[Figures] = []
                shared: list[float] = []
                for _ in range(scale.runs):
                    places = [server.database() if kind == "PostgreSQL" else "" for _ in range(3)]
                    alone.append(measure(subject, steps, database=places[0]))
                    agents = ("--agents", str(many))
                    together.append(measure(subject, 10, *agents, serves=waits, database=places[1]))
                    shared.append(_on_two_processes(subject, most, places[2]))
                step, turns = medians(alone), medians(together)
                shown = [f"{step[name]:.1f}" for name in ("gap_ms", "cpu_ms")]
                turns_per_s = (turns["turns_per_s"], statistics.median(shared))
                rows.append([f"{subject}, {kind}", *shown, *(f"{one:.0f}" for one in turns_per_s)])
    head = [f"storage, at step {steps}", "reply to next request, ms", "client CPU, ms"]
    more = [f"turns a second of {many} agents", f"of {most} on two processes"]
    return Table([*head, *more], rows)


def _on_two_processes(subject: str, agents: int, database: str) -> float:
    """Return how many turns a second agents make, half of them in each process."""
    measure(subject, 0, database=database)  # makes the tables, which two at once could not

    def half() -> Figures:
        count = ("--agents", str(agents // 2))
        return measure(subject, 10, *count, serves=("--latency", "0.2"), database=database)

    with ThreadPoolExecutor(2) as pool:
        return sum(one.result()["turns_per_s"] for one in (pool.submit(half), pool.submit(half)))


def stalls(scale: Scale) -> Table:
    """How long the event loop was not free, after the first reply of the model."""
    long, many = (20, 5) if scale.quick else (200, 50)
    small = str(500 * long)
    waits = ("--latency", "0.2")
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
        f"{many} agents": measure("openmanus", 10, *agents, serves=waits),
    }
    figures = ("callback_ms", "tick_ms")
    rows = [[case, *(f"{found[name]:.0f}" for name in figures)] for case, found in cases.items()]
    head = ["the event loop is held, ms at most", "by one callback", "by all that were due"]
    return Table(head, [*rows, ["at most", "50", ""]])


def tools(scale: Scale) -> Table:
    """What running tools adds."""
    waiting = measure("openmanus", 3, serves=("--script", "wait"))
    steps = 5 if scale.quick else 30
    python = measure("openmanus", steps, "--own-tools", serves=("--script", "python"))
    rows = [
        ["five parallel calls of 1 s, to the next request", f"{waiting['gap_ms']:.0f}", "1100"],
        ['`python_execute("1+1")`, warm', f"{python['tool_ms']:.0f}", "15"],
    ]
    return Table(["tools", "ms", "at most"], rows)


def start(scale: Scale) -> Table:
    """How soon it begins, and with how long a request."""
    runs = 2 * scale.runs
    helps = [process([COMMAND, "--help"]) for _ in range(runs)]
    seconds, cpu_s = (1000 * statistics.median(one[place] for one in helps) for place in (0, 1))
    rows = [["`openmanus --help`, ms (CPU)", f"{seconds:.0f} ({cpu_s:.0f})", "200"]]
    taken: dict[str, list[Figures]] = {subject: [] for subject in SUBJECTS}
    for _ in range(runs):
        for subject, figures in taken.items():
            figures.append(measure(subject, 0))
    for subject, figures in taken.items():
        cold = medians(figures)
        shown = f"{cold['cold_start_ms']:.0f} ({cold['whole_cpu_ms']:.0f})"
        limit = "create_agent's" if subject == "openmanus" else ""
        rows.append([f"{subject}: cold start to the first request, ms (CPU)", shown, limit])
    request = measure("openmanus", 0, "--own-tools")["first_request_bytes"]
    tokens = f"{request:.0f} ({request / BYTES_PER_TOKEN:.0f})"
    rows.append(["first request with all its tools, bytes (tokens)", tokens, "(1500)"])
    return Table(["start", "", "at most"], rows)


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

    return Table(["a batch", "", "more"], measure_batch(tasks=40 if scale.quick else 1000))


def page(scale: Scale) -> Table:
    """What the page costs."""
    from bench.page import measure_page

    return Table(["the page", "", "at most"], measure_page(quick=scale.quick))


def tasks(_: Scale) -> Table:
    """Ten small real tasks, by two scripted readers of the model, before and after a change."""
    from bench.tasks import rows

    head = ["ten tasks, by a reader that is", "done rightly", "finished wrongly", "model calls"]
    return Table([*head, "tokens sent"], list(rows()))


def snapshots(scale: Scale) -> Table:
    """What going back costs the steps before."""
    from bench.snapshots import measure_snapshots

    head = ["a snapshot, CPU ms; files of 3 KB", "the first", "nothing changed", "one changed"]
    rows = measure_snapshots(quick=scale.quick)
    at_most = ["at most", "", "1 at 10", "2 at 10, 1000 at 50,000", "", "1.3 of the files"]
    return Table([*head, "one turned back", "MB of the store"], [*rows, at_most])


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


TABLES: dict[str, Callable[[Scale], Table]] = {
    table.__name__: table
    for table in (
        cpu,
        gap,
        run,
        agents,
        storage,
        stalls,
        tools,
        start,
        install,
        browser,
        flow,
        plans,
        mcp,
        serving,
        batch,
        page,
        tasks,
        memory,
        snapshots,
        replays,
        kills,
    )
}
