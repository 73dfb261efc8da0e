from pathlib import Path

import pytest

from bench.small_checks import (
    names_in,
    numbers,
    same_values,
    says_absent,
    says_name,
    says_number,
    table_of,
)
from bench.small_outcomes import Outcome, Variant
from bench.small_tasks import TASKS

VARIANTS = (1, 2, 3)
EVERY = pytest.mark.parametrize(
    "variant",
    [
        pytest.param(task.variant(n), id=f"{name} {n}")
        for name, task in TASKS.items()
        for n in VARIANTS
    ],
)


def solved(variant: Variant, outcome: Outcome, folder: Path) -> bool:
    variant.write_files(folder)
    outcome.leave(folder)
    return variant.check(folder, outcome.answer)


def test_there_are_twenty_tasks_in_three_variants_each() -> None:
    assert len(TASKS) == 20
    for task in TASKS.values():
        made = [task.variant(number) for number in VARIANTS]
        assert len({(one.text, *one.files.items()) for one in made}) == 3, task.name
        assert task.variant(1).files == made[0].files, "a variant is the same each time"


@EVERY
def test_the_right_outcome_passes(variant: Variant, tmp_path: Path) -> None:
    assert solved(variant, variant.right, tmp_path)


@EVERY
def test_near_misses_fail(variant: Variant, tmp_path: Path) -> None:
    assert len(variant.wrong) >= 4
    idle = (Outcome(), Outcome(""), Outcome(variant.text), Outcome('{"response": "Done."}'))
    for number, outcome in enumerate([*variant.wrong, *idle]):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert not solved(variant, outcome, folder), outcome


@pytest.mark.parametrize(
    "answer",
    [
        "{name} does not exist.",
        "FileNotFoundError: [Errno 2] No such file or directory: '{name}'",
        "There is no file {name} here, only one file. You can:\n1. upload it\n2. name another.",
    ],
)
def test_a_missing_file_may_be_said_in_many_ways(answer: str, tmp_path: Path) -> None:
    variant = TASKS["missing"].variant(1)
    name = variant.text.rpartition(" ")[2].rstrip("?")
    assert name.startswith("budget_")
    assert solved(variant, Outcome(answer.format(name=name)), tmp_path)


def test_a_fix_that_never_ends_fails(tmp_path: Path) -> None:
    variant = TASKS["bug"].variant(1)
    name = next(iter(variant.files))
    assert not solved(variant, Outcome(files={name: "while True: pass\n"}), tmp_path)


def test_what_a_model_wrote_is_checked_without_the_machine(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    folder = tmp_path / "task"
    folder.mkdir()
    variant = TASKS["bug"].variant(1)
    name = next(iter(variant.files))
    code = f"open({str(outside)!r}, 'w').write('x')\n"
    assert not solved(variant, Outcome(files={name: code}), folder)
    assert not outside.exists()


@pytest.mark.parametrize(
    "answer",
    [
        "1234.5",
        "The total is 1,234.50.",
        "**$1,234.50**",
        "1 234.50 EUR",
        "1\u00a0234,50",
        "1.234,50 €",
        "1234,5",
        "total=1234.5",
        "It was 1234.50 (of 20 rows).",
        "1'234.5",
        "Sum: 1234.496",
    ],
)
def test_a_number_is_found_in_any_form(answer: str) -> None:
    assert says_number(answer, 1234.5)


@pytest.mark.parametrize(
    "answer",
    [
        "1234",
        "1235.5",
        "-1234.5",
        "11234.5",
        "1234.51",
        "12345",
        "v1234.5",
        "",
        " ".join(f"{n + 0.1}" for n in range(9)) + " 1234.5",
    ],
)
def test_another_number_is_not_taken_for_it(answer: str) -> None:
    assert not says_number(answer, 1234.5)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("three of 20", [{3.0}, {20.0}]),
        ("no one", []),
        ("3, 4 and 5", [{3.0}, {4.0}, {5.0}]),
        ("3 4 5", [{3.0}, {4.0}, {5.0}]),
        ("3,4", [{3.4}]),
        (
            "1,234",
            [
                {1234.0},
            ],
        ),
        ("on 2025-03-04 at 12:30", []),
        ("budget_2024.csv and file7", []),
        ("minus -7", [{-7.0}]),
        ("7-8", []),
        ("It is 42.", [{42.0}]),
    ],
)
def test_numbers_of_a_text(text: str, values: list[set[float]]) -> None:
    found = numbers(text)
    assert len(found) == len(values), found
    assert all(wanted <= seen for wanted, seen in zip(values, found, strict=True)), found


def test_a_name_is_said_if_it_comes_first() -> None:
    names = ("Oslo", "Rome", "Bern")
    assert says_name("It is **oslo**.", "Oslo", names)
    assert says_name("Oslo, ahead of Rome.", "Oslo", names)
    assert not says_name("Rome, ahead of Oslo.", "Oslo", names)
    assert not says_name("Oslo, Rome, Bern", "Oslo", names)
    assert not says_name("Osloer", "Oslo", names)
    assert names_in("Bern or oslo", names) == ["Bern", "Oslo"]


@pytest.mark.parametrize(
    "answer",
    [
        "There is no file budget.csv.",
        "budget.csv does not exist.",
        "I can't find budget.csv",
        "I couldn\u2019t find it.",
        "FileNotFoundError: No such file or directory",
        "The file is missing.",
        "I was unable to locate the file.",
        "It isn't there.",
    ],
)
def test_saying_that_a_file_is_absent(answer: str) -> None:
    assert says_absent(answer)


@pytest.mark.parametrize("answer", ["", "Done.", "The total is 5.", "I will read the file."])
def test_not_saying_that_a_file_is_absent(answer: str) -> None:
    assert not says_absent(answer)


def test_a_table_is_read_whatever_its_order(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Price, item\n2.50, mug\n3,cup\n")
    assert table_of(path, ("item", "price")) == {"mug": [2.5], "cup": [3.0]}
    assert table_of(path, ("item", "stock")) is None
    path.write_text("item,price\nmug\n")
    assert table_of(path, ("item", "price")) is None
    path.write_text("item,price\nmug,two\n")
    assert table_of(path, ("item", "price")) is None
    assert table_of(tmp_path / "none.csv", ("item",)) is None


def test_json_may_have_numbers_as_text() -> None:
    assert same_values([{"age": "30"}], [{"age": 30}])
    assert not same_values([{"age": 31}], [{"age": 30}])
    assert not same_values([{"age": True}], [{"age": 1}])
    assert not same_values([{"age": 30, "more": 1}], [{"age": 30}])
    assert not same_values({"age": 30}, [{"age": 30}])
    assert not same_values([{"age": None}], [{"age": 30}])
