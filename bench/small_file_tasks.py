"""The small tasks whose outcome is in files."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from bench.small_checks import json_of, lines_of, same_values, table_of, text_of
from bench.small_outcomes import Outcome, Variant
from bench.small_sandbox import python_passes

_WORDS = (
    "anchor", "basket", "candle", "dolphin", "engine", "feather", "garden", "hammer", "island",
    "jacket", "kettle", "ladder", "mirror", "needle", "orange", "pillow", "quartz", "ribbon",
)  # fmt: skip
_NAMES = ("Mara Voss", "Tim Okafor", "Lise Brandt", "Noah Peric", "Ines Duarte", "Ravi Menon")
_CITIES = ("Oslo", "Turin", "Lyon", "Cork", "Graz", "Bern")
_DOMAINS = ("example.com", "example.org", "mail.example.net", "shop.example.com")


def fix_bug(rng: Random) -> Variant:
    """Fix a function so that its test passes; it is checked by further cases."""
    name, body, fix, shown, hidden = rng.choice(_BUGS)
    test = f"from {name} import {name}\n\n{shown}\nprint('all tests pass')\n"

    def check(folder: Path, _: str) -> bool:
        code = f"from {name} import {name}\n{shown}\n{hidden}"
        unchanged = text_of(folder / f"test_{name}.py") == test
        return unchanged and python_passes(folder, code)

    return Variant(
        f"python test_{name}.py fails. Fix the function in {name}.py so that the test passes, and "
        "leave the test as it is.",
        {f"{name}.py": body, f"test_{name}.py": test},
        check,
        Outcome(files={f"{name}.py": fix}),
        (
            Outcome(f"I fixed it:\n```python\n{fix}```"),
            Outcome(files={f"test_{name}.py": "print('all tests pass')\n"}),
            Outcome(files={f"{name}.py": fix, f"test_{name}.py": ""}),
            Outcome(files={f"{name}.py": None}),
            Outcome(files={f"{name}.py": f"def {name}(*given):\n    return None\n"}),
            Outcome(files={f"{name}.py": fix + "\nreturn\n"}),
        ),
    )


_BUGS = (
    (
        "average",
        "def average(numbers):\n    total = 0\n    for number in numbers:\n"
        "        total += number\n"
        "    return total / (len(numbers) - 1)\n",
        "def average(numbers):\n    return sum(numbers) / len(numbers)\n",
        "assert average([2, 4, 6]) == 4\nassert average([5]) == 5",
        "assert average([1, 2]) == 1.5\nassert average([10, 20, 30, 41]) == 25.25",
    ),
    (
        "longest",
        "def longest(words):\n    best = words[0]\n    for word in words:\n"
        "        if len(word) < len(best):\n            best = word\n    return best\n",
        "def longest(words):\n    return max(words, key=len)\n",
        "assert longest(['a', 'abc', 'ab']) == 'abc'",
        "assert longest(['tulip', 'oak', 'sunflower']) == 'sunflower'\n"
        "assert longest(['x']) == 'x'",
    ),
    (
        "is_leap",
        "def is_leap(year):\n    return year % 4 == 0 and year % 100 != 0\n",
        "def is_leap(year):\n    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)\n",
        "assert is_leap(2024)\nassert not is_leap(1900)\nassert is_leap(2000)",
        "assert is_leap(1600)\nassert not is_leap(2023)\nassert not is_leap(2100)",
    ),
)


def rename(rng: Random) -> Variant:
    """Rename the files with one ending."""
    old, new, other = rng.choice(
        (("jpeg", "jpg", "png"), ("htm", "html", "css"), ("text", "txt", "csv"))
    )
    words = rng.sample(_WORDS, 6)
    files = {f"{word}.{old if n < 4 else other}": f"{word} {n}\n" for n, word in enumerate(words)}
    wanted = {name.removesuffix(old) + new if name.endswith(old) else name: text
              for name, text in files.items()}  # fmt: skip
    moved: dict[str, str | None] = {name: None for name in files if name.endswith(f".{old}")}
    made = {name: text for name, text in wanted.items() if name.endswith(f".{new}")}

    def check(folder: Path, _: str) -> bool:
        return all(text_of(folder / name) == text for name, text in wanted.items()) and not any(
            folder.glob(f"*.{old}")
        )

    return Variant(
        f"Rename all .{old} files in this folder to .{new}. Leave the other files alone.",
        files,
        check,
        Outcome(files=moved | made),
        (
            Outcome("All files are renamed."),
            Outcome(files=dict(made)),  # copied
            Outcome(files=moved),  # lost
            Outcome(files=moved | dict.fromkeys(made, "")),
            Outcome(files=dict([*moved.items()][1:]) | made),
        ),
    )


def csv_to_json(rng: Random) -> Variant:
    """Convert a table."""
    people = [
        {"name": name, "age": rng.randint(18, 80), "city": rng.choice(_CITIES)}
        for name in rng.sample(_NAMES, 4)
    ]
    lines = ["name,age,city", *(",".join(map(str, one.values())) for one in people)]
    columns = {key: [one[key] for one in people] for key in people[0]}
    return Variant(
        "Convert people.csv to people.json: a list with one object for each row, with the column "
        "names as keys.",
        {"people.csv": "\n".join(lines) + "\n"},
        lambda folder, _: same_values(json_of(folder / "people.json"), people),
        Outcome(
            files={"people.json": json.dumps([one | {"age": str(one["age"])} for one in people])}
        ),
        (
            Outcome(json.dumps(people)),
            Outcome(files={"people.json": json.dumps(people[:-1])}),
            Outcome(files={"people.json": json.dumps(columns)}),
            Outcome(files={"people.json": "\n".join(map(json.dumps, people))}),
            Outcome(files={"people.json": str(people)}),
            Outcome(files={"people.json": json.dumps([{**people[0], "age": 17}, *people[1:]])}),
        ),
    )


def merge(rng: Random) -> Variant:
    """Join two tables by a column; their rows are in other orders."""
    items = rng.sample(_WORDS, 6)
    rows = {item: [rng.randint(100, 9000) / 100, float(rng.randint(0, 60))] for item in items}
    shuffled = rng.sample(items, 6)
    files = {
        "prices.csv": "".join(["item,price\n", *(f"{one},{rows[one][0]:.2f}\n" for one in items)]),
        "stock.csv": "".join(
            ["item,stock\n", *(f"{one},{rows[one][1]:.0f}\n" for one in shuffled)]
        ),
    }

    def written(order: Sequence[str]) -> str:
        """Return the table with the stock of another order of items."""
        pairs = zip(items, order, strict=True)
        lines = (f"{one},{rows[one][0]},{rows[two][1]:.0f}\n" for one, two in pairs)
        return "".join(["item,price,stock\n", *lines])

    def check(folder: Path, _: str) -> bool:
        return table_of(folder / "merged.csv", ("item", "price", "stock")) == rows

    turned = [*items[1:], items[0]]
    return Variant(
        "prices.csv and stock.csv have the column item in common. Put both together into "
        "merged.csv with the columns item, price and stock.",
        files,
        check,
        Outcome(files={"merged.csv": written(items)}),
        (
            Outcome(written(items)),
            Outcome(files={"merged.csv": files["prices.csv"] + files["stock.csv"]}),
            Outcome(files={"merged.csv": written(turned)}),
            Outcome(files={"merged.csv": "".join(written(items).splitlines(keepends=True)[:-1])}),
            Outcome(files={"merged.csv": written(items).replace(",price", ",cost")}),
        ),
    )


def emails(rng: Random) -> Variant:
    """Extract addresses, each once."""
    people = rng.sample(_NAMES, 4)
    found = [f"{name.lower().replace(' ', '.')}@{rng.choice(_DOMAINS)}" for name in people]
    first, second, third, fourth = found
    text = (
        f"Dear all,\n\nplease send the plans to {first} and to <{second}>. If {people[2]} is away "
        f"({third}), ask {fourth}.\nThe price is 20@5 pieces; questions: {first}.\n\nBest wishes\n"
    )

    def check(folder: Path, _: str) -> bool:
        lines = [line.removeprefix("- ").strip("<>,;") for line in lines_of(folder / "emails.txt")]
        return sorted(lines) == sorted(found)

    return Variant(
        "Write all e-mail addresses that occur in letter.txt into emails.txt, each once, one on a "
        "line.",
        {"letter.txt": text},
        check,
        Outcome(files={"emails.txt": "\n".join(reversed(found))}),
        (
            Outcome("\n".join(found)),
            Outcome(files={"emails.txt": "\n".join(found[:3])}),
            Outcome(files={"emails.txt": "\n".join([*found, first])}),
            Outcome(files={"emails.txt": ", ".join(found)}),
            Outcome(files={"emails.txt": "\n".join([*found[:3], f"{fourth}."])}),
            Outcome(files={"emails.txt": "\n".join([*found, "20@5"])}),
        ),
    )


def write_file(rng: Random) -> Variant:
    """Write a file with given content."""
    words = rng.sample(_WORDS, 3)
    name, line = (
        f"{words[0]}.txt",
        f"The {words[1]} is next to the {words[2]} no. {rng.randint(2, 99)}.",
    )
    return Variant(
        f"Make a file {name} with exactly this line in it: {line}",
        {},
        lambda folder, _: text_of(folder / name).strip() == line,
        Outcome(files={name: f"{line}\n"}),
        (
            Outcome(f"{name} has the line: {line}"),
            Outcome(files={name: f'"{line}"'}),
            Outcome(files={name: line.removesuffix(".")}),
            Outcome(files={name: f"{line}\n{line}\n"}),
            Outcome(files={f"{words[1]}.txt": line}),
        ),
    )


def units(rng: Random) -> Variant:
    """Convert the unit of a column."""
    cities = rng.sample(_CITIES, 5)
    celsius = {city: rng.randint(-150, 350) / 10 for city in cities}
    wanted = {city: degrees * 9 / 5 + 32 for city, degrees in celsius.items()}

    def written(values: Mapping[str, float]) -> str:
        return "".join(
            ["city,fahrenheit\n", *(f"{one},{value:.1f}\n" for one, value in values.items())]
        )

    def check(folder: Path, _: str) -> bool:
        found = table_of(folder / "fahrenheit.csv", ("city", "fahrenheit")) or {}
        return found.keys() == wanted.keys() and all(
            abs(found[city][0] - value) < 0.0501 for city, value in wanted.items()
        )

    return Variant(
        "temperatures.csv has the columns city and celsius. Write fahrenheit.csv with the columns "
        "city and fahrenheit, in degrees Fahrenheit with one decimal.",
        {"temperatures.csv": written(celsius).replace("fahrenheit", "celsius")},
        check,
        Outcome(files={"fahrenheit.csv": written(wanted)}),
        (
            Outcome(written(wanted)),
            Outcome(files={"fahrenheit.csv": written(celsius)}),
            Outcome(files={"fahrenheit.csv": written({c: v - 32 for c, v in wanted.items()})}),
            Outcome(files={"fahrenheit.csv": written(dict([*wanted.items()][:-1]))}),
            Outcome(
                files={"fahrenheit.csv": written({c: round(v) + 0.5 for c, v in wanted.items()})}
            ),
        ),
    )


def json_edit(rng: Random) -> Variant:
    """Change one value of a configuration and add another."""
    port = rng.randint(3000, 9000)
    workers, new = rng.sample(range(2, 33), 2)
    before = {
        "server": {"host": "127.0.0.1", "port": port, "workers": workers},
        "log": {"level": rng.choice(("info", "warning")), "files": ["app.log", "access.log"]},
        "debug": False,
    }
    after = {
        **before,
        "server": {"host": "127.0.0.1", "port": port, "workers": new, "timeout": port % 60 + 1},
    }
    flat = {**before, "workers": new, "timeout": port % 60 + 1}
    half = {**before, "server": {"host": "127.0.0.1", "port": port, "workers": new}}
    return Variant(
        f"In settings.json, set workers of the server to {new} and add timeout with the value "
        f"{port % 60 + 1} to the server. Leave everything else as it is.",
        {"settings.json": json.dumps(before, indent=2) + "\n"},
        lambda folder, _: json_of(folder / "settings.json") == after,
        Outcome(files={"settings.json": json.dumps(after)}),
        (
            Outcome(json.dumps(after)),
            Outcome(files={"settings.json": json.dumps(flat)}),
            Outcome(files={"settings.json": json.dumps(half)}),
            Outcome(files={"settings.json": json.dumps({"server": after["server"]})}),
            Outcome(files={"settings.json": str(after)}),
        ),
    )


def sort_list(rng: Random) -> Variant:
    """Sort the lines of a file into another one."""
    numbers = rng.sample(range(2, 2000), 9)
    by_text = sorted(numbers, key=str)
    text = "\n".join(map(str, numbers))
    right = "\n".join(map(str, sorted(numbers)))

    def check(folder: Path, _: str) -> bool:
        return lines_of(folder / "sorted.txt") == right.splitlines()

    return Variant(
        "Sort the numbers in numbers.txt from the smallest to the largest and write them into "
        "sorted.txt, one on a line.",
        {"numbers.txt": text + "\n"},
        check,
        Outcome(files={"sorted.txt": right}),
        (
            Outcome(right),
            Outcome(files={"sorted.txt": "\n".join(map(str, by_text))}),
            Outcome(files={"sorted.txt": "\n".join(right.splitlines()[::-1])}),
            Outcome(files={"sorted.txt": ", ".join(right.splitlines())}),
            Outcome(files={"sorted.txt": "\n".join(right.splitlines()[1:])}),
            Outcome(files={"numbers.txt": right}),
        ),
    )


def folders(rng: Random) -> Variant:
    """Make folders and a file in one of them."""
    project, *inner = rng.sample(_WORDS, 4)
    title = f"{project.capitalize()} project"
    keep = {f"{project}/{name}/.keep": "" for name in inner}

    def check(folder: Path, _: str) -> bool:
        made = all((folder / project / name).is_dir() for name in inner)
        head = text_of(folder / project / "README.md").strip()
        return made and re.fullmatch(rf"(?:#+ *)?{re.escape(title)}", head) is not None

    return Variant(
        f"Make a folder {project} with the folders {inner[0]}, {inner[1]} and {inner[2]} in it, "
        f"and a file README.md in {project} with the line: {title}",
        {},
        check,
        Outcome(files={**keep, f"{project}/README.md": f"{title}\n"}),
        (
            Outcome(files=dict(keep)),
            Outcome(files={f"{project}/README.md": title}),
            Outcome(files={**keep, "README.md": title}),
            Outcome(files={**keep, f"{project}/README.md": ""}),
            Outcome(
                files={name.partition("/")[2]: "" for name in keep}
                | {f"{project}/README.md": title}
            ),
        ),
    )


def report(rng: Random) -> Variant:
    """Compute a figure and write it into a file."""
    scores = [rng.randint(20, 100) for _ in range(rng.choice((7, 9, 11, 13)))]
    while round(sum(scores) / len(scores), 2) == round(sum(scores) / len(scores), 1):
        scores[0] += 1
    mean = sum(scores) / len(scores)
    lines = [
        f"{name}-{n},{score}" for n, (name, score) in enumerate(zip(_WORDS, scores, strict=False))
    ]

    def check(folder: Path, _: str) -> bool:
        written = text_of(folder / "report.txt").strip()
        return re.fullmatch(rf"average:\s*{mean:.2f}", written, re.IGNORECASE) is not None

    return Variant(
        "Work out the average of the column score in scores.csv, and write it into report.txt as "
        "one line of the form Average: 12.34 (with two decimals).",
        {"scores.csv": "\n".join(["team,score", *lines]) + "\n"},
        check,
        Outcome(files={"report.txt": f"Average: {mean:.2f}\n"}),
        (
            Outcome(f"Average: {mean:.2f}"),
            Outcome(files={"report.txt": "Average: 12.34"}),
            Outcome(files={"report.txt": f"Average: {mean:.1f}"}),
            Outcome(files={"report.txt": f"Average: {sum(scores) / (len(scores) + 1):.2f}"}),
            Outcome(files={"report.txt": f"Average: {sum(scores):.2f}"}),
            Outcome(files={"average.txt": f"Average: {mean:.2f}"}),
        ),
    )


MAKERS: Mapping[str, Callable[[Random], Variant]] = {
    "bug": fix_bug,
    "rename": rename,
    "json": csv_to_json,
    "merge": merge,
    "emails": emails,
    "write": write_file,
    "units": units,
    "config": json_edit,
    "sort": sort_list,
    "folders": folders,
    "report": report,
}
