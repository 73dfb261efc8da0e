"""Ten small real tasks with checks, done by two readers of the model, before and after a change.

`python -m bench.tasks READER` does them with the package that lies in the working folder, and
prints what came of each as JSON.
"""

import argparse
import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.readers import READERS, Work

BEFORE = "3b34879"
"""The last commit whose runs ended with any text, after 20 steps at most."""
ROOT = Path(__file__).parents[1]
BYTES_PER_TOKEN = 4


@dataclass(frozen=True)
class Task:
    """What is to be done, and how to see whether it was."""

    text: str
    files: dict[str, str]
    work: Callable[[], Work]
    check: Callable[[Path, str], bool]


def read(path: str) -> tuple[str, dict[str, Any]]:
    """Call read_file."""
    return "read_file", {"path": path}


def bash(command: str) -> tuple[str, dict[str, Any]]:
    """Call bash."""
    return "bash", {"command": command}


def create(path: str, text: str, **more: Any) -> tuple[str, dict[str, Any]]:
    """Create a file."""
    return "str_replace_editor", {"command": "create", "path": path, "file_text": text, **more}


def python(code: str) -> tuple[str, dict[str, Any]]:
    """Call python_execute."""
    return "python_execute", {"code": code}


def holds(name: str, *wanted: str) -> Callable[[Path, str], bool]:
    """Check that a file holds all of these, and the answer names the last one."""

    def check(folder: Path, answer: str) -> bool:
        text = (folder / name).read_text() if (folder / name).is_file() else ""
        return all(one in text for one in wanted) and wanted[-1] in answer

    return check


def numbers(text: str, pattern: str) -> list[int]:
    """Return the numbers that a pattern finds."""
    return [int(one) for one in re.findall(pattern, text)]


def invoices() -> Work:
    """Read six invoices one by one, and compare them with the ledger."""
    ledger, *each = yield [read("ledger.csv"), *(read(f"invoice_{n}.txt") for n in range(6))]
    entries = dict(re.findall(r"(invoice_\d),(\d+)", ledger))
    totals = {f"invoice_{n}": numbers(text, r"Total: (\d+)")[0] for n, text in enumerate(each)}
    wrong = [name for name, total in totals.items() if int(entries[name]) != total]
    yield [create("report.md", f"These differ: {', '.join(wrong)}.\n")]
    return f"report.md says which differ: {', '.join(wrong)}."


def total() -> Work:
    """Add up a column."""
    code = "import csv\nprint(sum(int(r['amount']) for r in csv.DictReader(open('sales.csv'))))"
    [printed] = yield [python(code)]
    amount = numbers(printed, r"(\d+)")[0]
    yield [bash(f"echo {amount} > total.txt")]
    return f"The total is {amount}; it stands in total.txt."


def repair() -> Work:
    """Find out why a test fails, and mend the code."""
    yield [bash("python3 check.py"), read("sums.py")]
    change = {
        "command": "str_replace",
        "path": "sums.py",
        "old_str": "a - b",
        "new_str": "sum([a, b])",
    }
    yield [("str_replace_editor", change)]
    [tested] = yield [bash("python3 check.py")]
    return (
        f"sums.py subtracted; it adds now: {'sum([a, b])' if 'ok' in tested else 'still failing'}."
    )


def errors() -> Work:
    """Count in a log that is far too long to read, looking at it first."""
    yield [bash("cat app.log")]
    [counted] = yield [bash("grep -c ERROR app.log")]
    count = numbers(counted, r"(\d+)")[0]
    yield [create("count.txt", f"{count}\n")]
    return f"There are {count} errors, as count.txt says."


def counted_again() -> Work:
    """Search the whole folder for a word twice; what the first search printed must not count."""
    yield [bash("grep -rn needle .")]
    [counted] = yield [bash("grep -rn needle . | wc -l")]
    count = numbers(counted, r"(\d+)")[0]
    yield [create("count.txt", f"{count}\n")]
    return f"The word stands in {count} lines."


def convert() -> Work:
    """Make JSON of a table."""
    code = (
        "import csv, json\nrows = list(csv.DictReader(open('people.csv')))\n"
        "json.dump(rows, open('people.json', 'w'))\nprint(len(rows))"
    )
    yield [python(code), read("people.json")]
    return 'people.json has all rows, Ada is "36".'


def draw() -> Work:
    """Draw a picture and look at it in the same reply."""
    code = (
        "from PIL import Image\nImage.new('RGB', (64, 48), 'red').save('red.png')\nprint('saved')"
    )
    view = {"command": "view", "path": "red.png"}
    _, seen = yield [python(code), ("str_replace_editor", view)]
    if "64" not in seen:
        return "The picture is not there."
    yield [create("seen.txt", "64 x 48\n")]
    return "red.png is a red picture of 64 x 48 pixels."


def find() -> Work:
    """Find one value in many files."""
    [found] = yield [bash("grep -rho 'KEY-[0-9]*' tree")]
    key = re.findall(r"KEY-\d+", found)[0]
    yield [create("key.txt", key)]
    return f"The key is {key}."


def rewrite() -> Work:
    """Write a file anew that is there already."""
    yield [read("config.ini")]
    [done] = yield [create("config.ini", "[a]\nport = 8080\n")]
    if "overwrite" in done:
        yield [create("config.ini", "[a]\nport = 8080\n", overwrite=True)]
    elif "exist" in done:
        change = {
            "command": "str_replace",
            "path": "config.ini",
            "old_str": "80",
            "new_str": "8080",
        }
        yield [("str_replace_editor", change)]
    return "config.ini names port 8080."


def chapters() -> Work:
    """Read thirty files, one after the other, since each names the next."""
    name, words = "chapter_0.txt", list[str]()
    for _ in range(30):
        [text] = yield [read(name)]
        words += re.findall(r"word: (\w+)", text)
        name = f"{(re.findall(r'next: (chapter_[0-9]+)', text) or ['none'])[0]}.txt"
    yield [create("words.txt", " ".join(words))]
    return f"The words are: {' '.join(words)}"


LOG = "".join(f"2026-01-01 {'ERROR' if n % 7 == 0 else 'INFO'} line {n}\n" for n in range(20_000))
TASKS = [
    Task(
        "Compare the invoices with ledger.csv and write report.md: which differ?",
        {
            "ledger.csv": "\n".join(f"invoice_{n},{100 + n}" for n in range(6)),
            **{f"invoice_{n}.txt": f"Total: {100 + n + (n == 4)}\n" for n in range(6)},
        },
        invoices,
        holds("report.md", "invoice_4"),
    ),
    Task(
        "Add up the amounts of sales.csv and write the total to total.txt.",
        {"sales.csv": "item,amount\n" + "\n".join(f"x{n},{n}" for n in range(300))},
        total,
        holds("total.txt", "44850"),
    ),
    Task(
        "check.py fails. Mend sums.py.",
        {
            "sums.py": "def add(a, b):\n    return a - b\n",
            "check.py": "from sums import add\nassert add(2, 3) == 5\nprint('ok')\n",
        },
        repair,
        holds("sums.py", "sum([a, b])"),
    ),
    Task(
        "How many errors are in app.log? Write the number to count.txt.",
        {"app.log": LOG},
        errors,
        holds("count.txt", "2858"),
    ),
    Task(
        "In how many lines of this folder does the word needle stand? Write it to count.txt.",
        {f"hay/{n}.txt": "hay\nneedle\n" * 20 for n in range(50)},
        counted_again,
        holds("count.txt", "1000"),
    ),
    Task(
        "Convert people.csv to people.json. What is Ada's age?",
        {"people.csv": "name,age\nAda,36\nAlan,41\n"},
        convert,
        holds("people.json", "Alan", '"36"'),
    ),
    Task(
        "Draw a red picture of 64 x 48, red.png, and note its size in seen.txt.",
        {},
        draw,
        holds("seen.txt", "64 x 48"),
    ),  # fmt: skip
    Task(
        "Which key stands in the files of the folder tree? Write it to key.txt.",
        {f"tree/{n}/a.txt": f"nothing {n}\n" + "KEY-4711\n" * (n == 170) for n in range(300)},
        find,
        holds("key.txt", "KEY-4711"),
    ),
    Task(
        "Set the port in config.ini to 8080.",
        {"config.ini": "[a]\nport = 80\n"},
        rewrite,
        holds("config.ini", "8080"),
    ),
    Task(
        "Collect the words of the chapters, beginning with chapter_0.txt, in words.txt.",
        {
            f"chapter_{n}.txt": f"word: w{n}\n" + f"next: chapter_{n + 1}\n" * (n < 29)
            for n in range(30)
        },
        chapters,
        holds("words.txt", "w0 w1 ", "w28 w29"),
    ),
]


async def do_task(task: Task, reader: str, folder: Path) -> dict[str, Any]:
    """Do a task, and return what came of it."""
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.memory import InMemorySaver

    from openmanus_graph import Context, build_manus_graph
    from openmanus_graph.testing import ScriptedChatModel

    workspace = folder / "work"
    for name, text in task.files.items():
        path = workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    workspace.mkdir(exist_ok=True)
    model = ScriptedChatModel([READERS[reader](task.work())] * 300)
    graph = build_manus_graph(checkpointer=InMemorySaver())
    ended = await graph.ainvoke(
        {"messages": [HumanMessage(task.text)]},
        {"configurable": {"thread_id": "t"}},
        context=Context(model=model, workspace=str(workspace), policy="auto"),
    )
    sizes = [
        sum(len(message.model_dump_json(include={"content", "tool_calls"})) for message in request)
        + len(json.dumps(options.get("tools", [])))
        for request, options in zip(model.requests, model.options, strict=True)
    ]
    return {
        "right": task.check(workspace, ended["answer"]),
        "claimed": ended["status"] == "finished",
        "calls": len(sizes),
        "tokens": sum(sizes) // BYTES_PER_TOKEN,
    }


def measured(reader: str, checkout: Path) -> list[dict[str, Any]]:
    """Return what came of each task, with the package that lies in a folder."""
    command = [sys.executable, "-m", "bench.tasks", reader]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


@contextmanager
def earlier_checkout(commit: str, copied: Iterable[str]) -> Generator[Path | None]:
    """Lay out an earlier package with today's files of `bench`; None where git has it not."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "before.tar"
        command = ["git", "archive", "-o", str(archive), commit]
        if subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode:
            yield None
            return
        checkout = Path(folder) / "before"
        shutil.unpack_archive(archive, checkout)
        for name in copied:
            shutil.copy(ROOT / "bench" / name, checkout / "bench" / name)
        # Its child processes would import the installed package, which is today's.
        child = checkout / "openmanus_graph/backends/files/child.py"
        if child.exists():
            child.write_text(child.read_text().replace("[*path, package]", "[package, *path]"))
        yield checkout


def rows() -> Iterator[list[str]]:
    """Yield the table's rows: each reader with the earlier package, and with this one."""
    with earlier_checkout(BEFORE, ("tasks.py", "readers.py")) as before:
        for reader in READERS:
            for name, checkout in (("before", before), ("now", ROOT)):
                if checkout is None:
                    continue
                found = measured(reader, checkout)
                wrongly = sum(one["claimed"] and not one["right"] for one in found)
                sums = (str(sum(one[key] for one in found)) for key in ("right", "calls", "tokens"))
                right, calls, tokens = sums
                yield [f"{reader}, {name}", f"{right} of {len(found)}", str(wrongly), calls, tokens]


def main() -> None:
    """Do the tasks and print what came of them."""
    parser = argparse.ArgumentParser(prog="python -m bench.tasks")
    parser.add_argument("reader", choices=READERS)
    reader = parser.parse_args().reader
    found: list[dict[str, Any]] = []
    for task in TASKS:
        with tempfile.TemporaryDirectory() as folder:
            found.append(asyncio.run(do_task(task, reader, Path(folder))))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
