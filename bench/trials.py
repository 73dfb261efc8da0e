"""Six larger tasks, done by a scripted strong reader: before and after a change, and by a peer.

`python -m bench.trials WHO` does them with the package in the working folder, or with deepagents,
and prints the results as JSON. A reader knows what it wants. When a tool refuses, it reads the
reason and takes the way that the tools leave it, so each detour counts.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.readers import Call, Orderly, Work
from bench.tasks import BYTES_PER_TOKEN, ROOT, bash, create, earlier_checkout, python, read
from bench.trial_files import (
    TOWNS,
    articles,
    office_files,
    research_site,
    shop_site,
    software_files,
)

BEFORE = "703fcfbc"
"""The last commit at which these detours were needed."""
COPIED = ("trials.py", "trial_files.py", "readers.py", "tasks.py")
PICTURE_TOKENS = 1000
"""Counted for each picture in a request."""


@dataclass(frozen=True)
class Trial:
    """A task, and how to see whether it was done."""

    text: str
    work: Callable[[str], Work]
    """Does the task, given the text of the first request."""
    check: Callable[[Path, str], bool]
    files: Callable[[Path], None] = lambda folder: None
    site: Callable[[], AbstractContextManager[str]] = lambda: nullcontext("")
    peer: bool = False
    """Whether deepagents has the tools for it."""
    who: str = "ours"


def browse(action: str, **given: Any) -> tuple[str, dict[str, Any]]:
    """Call browser_use."""
    return "browser_use", {"action": action, **given}


def replace(path: str, old: str, new: str) -> tuple[str, dict[str, Any]]:
    """Replace text in a file."""
    return "str_replace_editor", {
        "command": "str_replace", "path": path, "old_str": old, "new_str": new,
    }  # fmt: skip


def software(first: str) -> Work:
    """Fix a fault in a repository, run its tests and its slow build, and commit."""
    if "ledger/" not in first:  # no listing
        yield [("str_replace_editor", {"command": "view", "path": "."})]
    yield [bash("set -e; . ./env.sh; python3 -m unittest -q"), read("ledger/totals.py")]
    wrong = "    return net * (1 + RATE) * (1 + RATE)"
    fixed = "\treturn net * (1 + RATE)"
    [replaced] = yield [replace("ledger/totals.py", wrong, fixed)]
    if "\t" not in replaced:
        yield [("str_replace_editor", {"command": "view", "path": "ledger/totals.py"})]
    yield [replace("ledger/totals.py", wrong.replace("    ", "\t"), fixed)]
    [tested] = yield [bash("python3 -m unittest -q")]
    if "OK" not in tested:  # the shell was lost, and the variable with it
        [tested] = yield [bash(". ./env.sh; python3 -m unittest -q")]
    suite = (
        "import os, unittest\nos.environ['LEDGER_RATE'] = '0.19'\nfrom tests.test_totals import *"
    )
    [tested] = yield [python(f"{suite}\nunittest.main()")]
    if "OK" not in tested:
        yield [python(f"{suite}\nunittest.main(argv=[''], exit=False)")]
    [built] = yield [("bash", {"command": "sh tools/rebuild.sh", "timeout_s": 2})]
    if "rebuilt" not in built:
        job = re.search(r"`?(wait [%\d][\w%]*)", built)
        again = job[1] if job else "sh tools/rebuild.sh > /dev/null & wait"
        yield [("bash", {"command": again, "timeout_s": 30}), read("build.log")]
    commit = "git commit -qam 'Apply the rate once' && git log -1 --format='%an: %s'"
    [committed] = yield [bash(commit)]
    if "Ada" not in committed:
        yield [bash("git log -1 --format='%an <%ae>'")]
        yield [bash(f"git -c user.name=Ada -c user.email=ada@example.com {commit[4:]}")]
    return "ledger/totals.py applied the rate twice; it applies it once now. All tests pass."


def software_is_done(folder: Path, answer: str) -> bool:
    """Check the fix, the build and the commit's author."""
    git = ["git", "-C", str(folder), "log", "-1", "--format=%an: %s"]
    log = subprocess.run(git, capture_output=True, text=True, check=True).stdout
    once = (folder / "ledger/totals.py").read_text().count("RATE)") == 1
    return once and "Ada: Apply" in log and "rebuilt" in (folder / "build.log").read_text()


OFFICE = {
    "lease.docx": (r"1,250", "re.sub('<[^>]+>', ' ', z.read('word/document2.xml').decode())"),
    "stock.xlsx": (
        r"\b60\b",
        "z.read('xl/worksheets/sheet1.xml').decode()",
    ),
    "order.pdf": (r"4711\.50", "PdfReader('order.pdf').get_fields()"),
    "mail.eml": (r"89\.90", "email.message_from_file(open('mail.eml')).get_payload(decode=True)"),
}
"""For each file, how the wanted value looks, and Python that finds it without `read_file`."""


def office(first: str) -> Work:
    """Add up four amounts in four kinds of documents."""
    wanted = [read("lease.docx"), ("read_file", {"path": "stock.xlsx", "pages": "Sales!A5:B10"})]
    shown = yield [*wanted, read("order.pdf"), read("mail.eml")]
    missing = [
        (name, code)
        for (name, (pattern, code)), text in zip(OFFICE.items(), shown, strict=True)
        if not re.search(pattern, text)
    ]
    if missing:
        imports = "import re, zipfile, email\nfrom pypdf import PdfReader"
        opened = imports + "\nz = zipfile.ZipFile({!r})\nprint({})"
        yield [
            python(opened.format(name if name.endswith("x") else "lease.docx", code))
            for name, code in missing
        ]
    amounts = "1250 + 60 + 4711.50 + 89.90"
    code = f"total = f'{{{amounts}:.2f}}'\nopen('total.csv', 'w').write(total)\nprint(total)"
    yield [python(code)]
    return "total.csv has the total: 6111.40."


PRODUCTS = [(f"Part {number}", f"{number * 3.5:.2f}") for number in range(40)]
ORDER = {"Name": "Ada Lovelace", "Street": "Main Street 1", "City": "London"}


def shopping(first: str) -> Work:
    """Order by a form whose page is known, and save a price list as CSV."""
    site = re.findall(r"http://127\.0\.0\.1:\d+", first)[0]
    [page] = yield [browse("go_to_url", url=f"{site}/order")]
    by_label = [browse("input_text", label=name, text=value) for name, value in ORDER.items()]
    by_label += [
        browse("select_dropdown_option", label="Delivery", text="Courier"),
        browse("click_element", label="Place the order"),
    ]
    *_, ordered = yield by_label
    if "Order 1001" not in ordered:
        fields = {name: _index(page, name) for name in (*ORDER, "Delivery", "Place the order")}
        for name, value in ORDER.items():
            yield [browse("input_text", index=fields[name], text=value)]
        yield [browse("select_dropdown_option", index=fields["Delivery"], text="Courier")]
        yield [browse("click_element", index=fields["Place the order"])]
    yield [browse("go_to_url", url=f"{site}/prices")]
    [saved] = yield [browse("extract_content", text="prices.csv")]
    found = re.search(r"\S*prices\.csv", saved)
    if not found:
        rows = "\n".join(f"{name},{price}" for name, price in PRODUCTS)
        yield [create("prices.csv", f"Part,Price\n{rows}\n")]
    moved = f"mv {found[0]} prices.csv && " if found else ""
    yield [bash(f"{moved}wc -l prices.csv")]
    return "Order 1001 is placed, and prices.csv has the 40 prices."


def _index(page: str, name: str) -> int:
    """Return the index of the element with a name."""
    found = re.search(rf'\[(\d+)\][^\n]*"{re.escape(name)}', page)
    return int(found[1]) if found else 0


def building(first: str) -> Work:
    """Build a page that draws data, look at it in the browser, and fix what is wrong."""
    page = (
        "<!doctype html><title>Visitors</title><h1>Visitors</h1><ul></ul><script>\n"
        "fetch('data.json').then(r => r.json()).then(rows => rows.forEach(row => {\n"
        "  const li = document.createElement('li');\n"
        "  li.textContent = row.day + ': ' + row.visitor;\n"
        "  document.querySelector('ul').append(li); }));\n</script>\n"
    )
    data = json.dumps([{"day": "Monday", "visitors": 41}, {"day": "Tuesday", "visitors": 57}])
    yield [create("index.html", page), create("data.json", data)]
    serve = (
        "python3 -m http.server 8123 > /dev/null 2>&1 & sleep 1; curl -sI localhost:8123 | head -1"
    )
    yield [bash(serve)]
    [seen] = yield [browse("go_to_url", url="http://127.0.0.1:8123/")]
    if "Monday" not in seen:
        [seen] = yield [browse("go_to_url", url="file://index.html")]
    if "undefined" in seen:
        yield [replace("index.html", "row.visitor;", "row.visitors;")]
        [seen] = yield [browse("refresh")]
    return "index.html lists the visitors of each day, as I saw it in the browser."


TOPICS = ("rail", "road", "air")
_FIGURE = re.compile(r"carried (\d+) million")
_SITE = re.compile(r"http://127\.0\.0\.1:\d+")


def research(first: str) -> Work:
    """Read two pages on each of three topics, one after the other, and write a report."""
    found: list[str] = []
    for topic in TOPICS:
        found.append((yield from _topic(topic, first)))
    return (yield from _report("\n".join(found)))


def divided(first: str) -> Work:
    """Do the part of the research that the first request is about: as planner, step or subagent."""
    parts = {topic: f"Find what {topic} carried, by {_SITE.findall(first)[0]}" for topic in TOPICS}
    if "You write the final answer" in first:
        return f"report.md has all figures. {first.rpartition('report.md')[2]}"
    step = re.findall(r"Your step \((\w+)\)", first)
    topic = step or re.findall(r"You are a subagent[^$]+Find what (\w+) carried", first)
    if topic and topic[-1] in TOPICS:
        return (yield from _topic(topic[-1], first))
    if not step and "plan how" in first:
        steps: list[Any] = [{"id": topic, "text": text} for topic, text in parts.items()]
        steps.append({"id": "report", "text": "Write report.md.", "depends_on": list(TOPICS)})
        yield [("planning", {"command": "create", "title": "Passengers", "steps": steps})]
    if not step:
        shown = yield [("delegate", {"agent": "manus", "task": text}) for text in parts.values()]
        return (yield from _report("\n".join(shown)))
    return (yield from _report(first))


def _topic(topic: str, first: str) -> Generator[list[Call], list[str], str]:
    figures: list[str] = []
    for number in (1, 2):
        [page] = yield [("fetch_page", {"url": f"{_SITE.findall(first)[0]}/{topic}{number}"})]
        figures += _FIGURE.findall(page)
    return f"{topic}: {figures[0]} and {figures[1]} million."


def _report(found: str) -> Generator[list[Call], list[str], str]:
    report = " ".join(re.findall(r"(?:rail|road|air): \d+ and \d+ million\.", found))
    yield [create("report.md", f"# Passengers\n\n{report}\n")]
    return f"report.md: {report}"


_HIT = re.compile(r"^\d+\. (\S+), (lines? [\d-]+) \([^\n]*\n(.*?)(?=\n\n\d+\. |\Z)", re.M | re.S)
_COUNT = re.compile(r"(\d+) thousand (?:passengers|riders) in 2023|In 2023 [^.]* (\d+) thousand")


def in_articles(first: str) -> Work:
    """Find what the trams of three towns carried, in a library whose sources contradict."""
    found = yield [
        ("search_library", {"query": f"{town} tram passengers 2023", "limit": 8}) for town in TOWNS
    ]
    hits = [_HIT.findall(text) for text in found]
    read = yield [
        ("search_library", {"query": f"{one[0]}, {one[1]}"})
        for town in hits
        for one in sorted(town, key=lambda one: "statistics" not in one[0])[:1]
    ]
    lines, sources = list[str](), list[str]()
    for (town, (_, _)), some, text in zip(TOWNS.items(), hits, read, strict=True):
        figure = next(one or other for one, other in _COUNT.findall(text))
        differing = [
            (path, place, number)
            for path, place, passage in some
            for number in {a or b for a, b in _COUNT.findall(passage)} - {figure}
            if town.lower() in path and "assistant" not in passage
        ]
        source = text.split("1. ", 1)[1].partition(" (")[0]
        sources.append(f"[{len(sources) + 1}] {source}, 3 March 2024")
        line = f"{town}: {figure} thousand passengers [{len(sources)}]."
        for path, place, number in differing[:1]:
            sources.append(f"[{len(sources) + 1}] {path}, {place}, 9 January 2024")
            line += f" A newspaper estimated {number} thousand [{len(sources)}]."
        lines.append(line)
    report = "\n".join([*lines, "", *sources])
    yield [create("report.md", report)]
    return report


def articles_are_reported(folder: Path, answer: str) -> bool:
    """Check the figures, the contradictions, and the sources, which must say what they are for."""
    report = (folder / "report.md").read_text()
    for town, (right, wrong) in TOWNS.items():
        line = next(one for one in report.splitlines() if one.startswith(f"{town}: {right} "))
        if (f"{wrong} thousand [" in line.partition("newspaper")[2]) != (right != wrong):
            return False
        for figure, number in re.findall(r"(\d+) thousand[^[]* \[(\d)\]", line):
            [source] = re.findall(rf"^\[{number}\] (\S+),", report, re.MULTILINE)
            if f" {figure} thousand" not in Path(source).read_text():
                return False
    return "999" not in report and answer.startswith(report.partition("\n")[0])


def _wrote(name: str, *wanted: str) -> Callable[[Path, str], bool]:
    def check(folder: Path, answer: str) -> bool:
        file = folder / name
        return file.is_file() and all(one in file.read_text() for one in wanted)

    return check


TRIALS = {
    "software": Trial(
        "ledger applies its rate twice. Fix it, run the tests and tools/rebuild.sh, and commit.",
        software, software_is_done, files=software_files, peer=True,
    ),
    "office": Trial(
        "Add up the rent of lease.docx, row 10 of stock.xlsx, the amount of order.pdf and the fee "
        "of mail.eml. Write the sum to total.csv.",
        office, _wrote("total.csv", "6111.40"), files=office_files, peer=True,
    ),
    "web": Trial(
        "Order for Ada Lovelace, Main Street 1, London, by courier, on {site}/order. Then save the "
        "table of {site}/prices as prices.csv.",
        shopping, _wrote("prices.csv", "Part 39", "136.5"), site=shop_site,
    ),
    "page building": Trial(
        "Build index.html, which lists the visitors of data.json. Look at it in the browser.",
        building, _wrote("index.html", "row.visitors;"),
    ),
    "research": Trial(
        "How many passengers did {site}/rail1, rail2, road1, road2, air1 and air2 carry? Write "
        "report.md.",
        research, _wrote("report.md", "117 and 127", "317 and 327"), site=research_site, peer=True,
    ),
    "research in 60 articles": Trial(
        "How many passengers did the trams of Velmora, Dastin and Orrel carry in 2023? Write "
        "report.md, with sources.",
        in_articles, articles_are_reported, files=articles, who="research agent",
    ),
}  # fmt: skip


class Reader:
    """Reads the first request, then replies as an orderly reader, and keeps to its answer.

    Each conversation has its own: that of a run, of a plan's step or of a subagent.
    """

    def __init__(self, work: Callable[[str], Work]) -> None:
        self.work = work
        self.conversations: dict[str, Orderly] = {}

    def __call__(self, messages: list[Any]) -> Any:
        """Return the next reply."""
        before = itertools.takewhile(lambda message: message.type != "ai", messages)
        first = "\n".join(message.text for message in before)
        if first not in self.conversations:
            self.conversations[first] = Orderly(self.work(first))
        return self.conversations[first](messages)


async def ours(
    model: Any, folder: Path, text: str, site: str, *, plan: bool = False, more: Sequence[str] = ()
) -> str:
    """Manus, or a plan, with its own tools, in its sandbox."""
    from langgraph.checkpoint.memory import InMemorySaver

    from openmanus_graph import Context, build_manus_graph, build_planning_graph

    hosts = (site.removeprefix("http://"),) if site else ()
    graph = (build_planning_graph if plan else build_manus_graph)(checkpointer=InMemorySaver())
    context = Context(
        model=model, workspace=str(folder), policy="auto", allow_hosts=hosts,
        tools=tuple(more) or None,
    )  # fmt: skip
    config: Any = {"configurable": {"thread_id": "t"}}
    asked: Any = {"messages": text}
    ended = await graph.ainvoke(asked, config, context=context)
    return str(ended["answer"])


async def researching(model: Any, folder: Path, text: str, site: str) -> str:
    """Research, with a library of the articles."""
    from langgraph.checkpoint.memory import InMemorySaver

    from openmanus_graph import Context, build_research_graph
    from openmanus_graph.backends.library.adding import add
    from openmanus_graph.backends.library.store import libraries
    from openmanus_graph.backends.web.guard import Guard
    from openmanus_graph.config.resolve import database_url

    (library,) = await asyncio.to_thread(libraries, database_url(), create="articles")
    await asyncio.to_thread(add, library, [str(folder / "articles")], Guard())
    graph = build_research_graph(checkpointer=InMemorySaver())
    context = Context(model=model, workspace=str(folder), library=("articles",), listing=False)
    config: Any = {"configurable": {"thread_id": "t"}}
    asked: Any = {"messages": text}
    ended = await graph.ainvoke(asked, config, context=context)
    claims: Any = ended.get("claims") or {}
    return str(ended["answer"]) if not claims.get("not_found") else f"not found: {claims}"


async def deepagents(model: Any, folder: Path, text: str, site: str) -> str:
    """Deepagents with its own tools, commands among them."""
    import deepagents.graph
    from deepagents.backends.local_shell import LocalShellBackend

    backend = LocalShellBackend(root_dir=folder, virtual_mode=False, inherit_env=True)
    agents: Any = deepagents.graph  # half of their types are unknown
    agent = agents.create_deep_agent(model, backend=backend)
    ended = await agent.ainvoke({"messages": [("user", text)]}, {"recursion_limit": 500})
    return str(ended["messages"][-1].text)


def in_deepagents_words(call: Any) -> Any:
    """Return a call as deepagents names it."""
    args = call["args"]
    path = {"file_path": str(Path.cwd() / args.get("path", "."))}
    match call["name"], args.get("command"):
        case "read_file", _:
            return call | {"args": path}
        case "str_replace_editor", "create":
            return call | {"name": "write_file", "args": {**path, "content": args["file_text"]}}
        case "str_replace_editor", "str_replace":
            change = {"old_string": args["old_str"], "new_string": args["new_str"]}
            return call | {"name": "edit_file", "args": path | change}
        case "str_replace_editor", _ if args["path"] == ".":
            return call | {"name": "ls", "args": {"path": path["file_path"]}}
        case "str_replace_editor", _:
            return call | {"name": "read_file", "args": path}
        case "python_execute", _:
            command = f"python3 - <<'END'\n{args['code']}\nEND"
        case "fetch_page", _:
            command = f"curl -s {args['url']}"
        case _:
            command = args["command"]
    more = {"timeout": args["timeout_s"]} if "timeout_s" in args else {}
    return call | {"name": "execute", "args": {"command": command, **more}}


class PeerReader(Reader):
    """The same reader, with deepagents' tools."""

    def __call__(self, messages: list[Any]) -> Any:
        """Return the next reply."""
        reply = super().__call__(messages)
        calls = [in_deepagents_words(call) for call in reply.tool_calls]
        return reply.model_copy(update={"tool_calls": calls})


WHO: dict[str, tuple[Any, type[Reader], Callable[[str], Work] | None]] = {
    "ours": (ours, Reader, None),
    "a plan": (partial(ours, plan=True), Reader, divided),
    "subagents": (partial(ours, more=["+delegate"]), Reader, divided),
    "research agent": (researching, Reader, None),
    "deepagents": (deepagents, PeerReader, None),
}
"""Who does a task, the reader that plays its model, and the work if it is not the task's."""


async def attempt(who: str, trial: Trial, folder: Path) -> dict[str, Any]:
    """Do a task in a folder, and return what it took."""
    from openmanus_graph.testing import ScriptedChatModel

    run, reader, work = WHO[who]
    trial.files(folder)
    os.chdir(folder)  # deepagents' files have whole paths
    model = ScriptedChatModel([reader(work or trial.work)] * 100)
    with trial.site() as site:
        answer = await run(model, folder, trial.text.format(site=site), site)
    requests = zip(model.requests, model.options, strict=True)
    sent = sum(
        _size(messages) + len(json.dumps(more.get("tools", []))) for messages, more in requests
    )
    return {
        "done": trial.check(folder, answer),
        "requests": len(model.requests),
        "tokens": sent // BYTES_PER_TOKEN,
    }


def _size(messages: list[Any]) -> int:
    """Return the characters of messages; each picture counts as many as its tokens have."""
    total = 0
    for message in messages:
        plain = isinstance(message.content, str)
        blocks: list[Any] = [message.content] if plain else message.content
        for block in blocks:
            is_picture = "'image" in str(block)[:40]
            total += PICTURE_TOKENS * BYTES_PER_TOKEN if is_picture else len(str(block))
        total += len(json.dumps(getattr(message, "tool_calls", [])))
    return total


def measured(who: str, checkout: Path, name: str) -> dict[str, Any]:
    """Return what a task took, with the package in a folder. Each task has a process and home."""
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HOME": home, "PYTHONPATH": str(checkout)}
        environment.pop("OPENMANUS_HOME", None)
        command = [sys.executable, "-m", "bench.trials", who, name]
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        raise RuntimeError(f"{who}, {name}: {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def rows() -> Iterator[list[str]]:
    """Yield the table's rows: each task before, now, and with deepagents."""
    with earlier_checkout(BEFORE, COPIED) as before:
        for name, trial in TRIALS.items():
            cases = [("before", "ours", before), ("now", trial.who, ROOT)]
            cases = cases if trial.who == "ours" else cases[1:]
            if trial.work is research:
                cases += [("before, a plan", "a plan", before), ("now, a plan", "a plan", ROOT)]
                cases += [("now, subagents", "subagents", ROOT)]
            cases += [("deepagents", "deepagents", ROOT)] if trial.peer else []
            for shown, who, checkout in cases:
                if checkout is not None:
                    found = measured(who, checkout, name)
                    done = "yes" if found.pop("done") else "no"
                    yield [f"{name}, {shown}", done, *map(str, found.values())]


def main() -> None:
    """Do one task and print what it took."""
    parser = argparse.ArgumentParser(prog="python -m bench.trials")
    parser.add_argument("who", choices=WHO)
    parser.add_argument("task", choices=TRIALS)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = asyncio.run(attempt(given.who, TRIALS[given.task], Path(folder).resolve()))
        sys.stdout.write(f"{json.dumps(found)}\n")


if __name__ == "__main__":
    main()
