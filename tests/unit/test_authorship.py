"""What a model wrote itself is no evidence when it comes back; what a program found is."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from openmanus_graph.conversation.announcements import NamedFiles
from openmanus_graph.conversation.answer_sources import judged_claims, unsupported

Step = tuple[str, dict[str, Any], str]
TASK = "How many units were sold according to sales.csv?"
SALES: Step = ("read_file", {"path": "sales.csv"}, "region,units\nnorth,1250\nsouth,8040\n")
SAID = "Total: 48213 units"
FILED: Step = ("str_replace_editor", {"command": "create", "path": "r.md", "file_text": SAID}, "ok")
PAGE = {"url": "https://example.com/units"}


def python(code: str, printed: str) -> Step:
    return "python_execute", {"code": code}, printed


def bash(command: str, printed: str) -> Step:
    return "bash", {"command": command}, printed


def judged(answer: str, *steps: Step, artifact: Any = None) -> list[str]:
    messages: list[AnyMessage] = [HumanMessage(TASK)]
    for number, (name, args, result) in enumerate([SALES, *steps]):
        call = tool_call(name=name, args=args, id=f"c{number}")
        messages.append(AIMessage("", tool_calls=[call]))
        told = ToolMessage(result, name=name, tool_call_id=f"c{number}", artifact=artifact)
        messages.append(told)
    found = judged_claims(answer, TASK, messages, NamedFiles(given=["sales.csv"]))
    return [one.kind for one in found]


OWN: list[list[Step]] = [
    [FILED],
    [FILED, ("read_file", {"path": "r.md"}, SAID)],
    [FILED, ("str_replace_editor", {"command": "view", "path": "r.md"}, f"     1\t{SAID}")],
    [FILED, bash("cat *.md", SAID)],
    [FILED, bash("sort r.md | tail", SAID)],
    [("str_replace_editor",
      {"command": "str_replace", "path": "sales.csv", "old_str": "8040", "new_str": "48213"},
      "Edited. A snippet:\n     3\tsouth,48213")],
    [("str_replace_editor",
      {"command": "insert", "path": "sales.csv", "insert_line": 3, "insert_text": "w,48213"},
      "Edited. A snippet:\n     3\tsouth,8040\n     4\tw,48213")],
    [bash("echo 'Total: 48213'", "Total: 48213")],
    [bash("cat > r.md <<'EOF'\nTotal: 48213 units\nEOF", "(no output)"),
     bash("cat r.md", SAID)],
    [bash("sed -i s/8040/48213/ sales.csv && cat sales.csv", "north,1250\nsouth,48213")],
    [bash("sed -i s/8040/48213/ sales.csv", "(no output)"),
     ("read_file", {"path": "sales.csv"}, "north,1250\nsouth,48213")],
    [bash("echo 48213 | tee total.txt", "48213")],
    [bash("x=48213; echo \"Sum is $x\"", "Sum is 48213")],
    [python("print('Total:', 48213)", "Total: 48213")],
    [python("total = 48213\nprint(f'{total:,} units')", "48,213 units")],
    [python("open('r.md', 'w').write('Total: 48213 units')", "18"),
     python("print(open('r.md').read())", SAID)],
    [python("total = 48213", "(no output)"), python("print(total)", "48213")],
    [python("x = {'sum': 48213}\nraise ValueError(x)", "ValueError: {'sum': 48213}")],
    [("planning", {"command": "create", "steps": ["sell 48213 units"]},
      "Plan\n0. [ ] sell 48213 units")],
    [("memory", {"command": "create", "path": "/memories/a.md", "file_text": SAID}, "Created"),
     ("memory", {"command": "view", "path": "/memories/a.md"}, f"1\t{SAID}")],
    [("memory", {"command": "view", "path": "/memories/old.md"}, f"1\t{SAID}")],
    [("tell", {"text": SAID}, f"Sent: {SAID}")],
    [("ask_human", {"inquire": "Is it 48213?"}, "Look it up.")],
    [("web_search", {"query": "48213 units sold"}, "Nothing was found.")],
    [("todo_write", {"todos": [{"text": SAID}]}, f"Todos have been saved: {SAID}"),
     ("todo_read", {}, SAID)],
    [FILED, ("fetch", {"url": "http://localhost:8000/r.md"}, SAID)],
]  # fmt: skip


@pytest.mark.parametrize("steps", OWN)
def test_what_the_model_wrote_is_no_evidence_when_it_comes_back(steps: list[Step]) -> None:
    assert judged("In total 48,213 units were sold.", *steps) == ["not_found"]


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([python("print(sales.units.sum())", "48213")], "computed"),
        ([python("print(f'Total: {sales.units.sum()} units')", SAID)], "computed"),
        ([python("print(sales[sales.units == 48213])", "west 48213")], "computed"),
        ([bash("grep 48213 more.csv", "west,48213")], "computed"),
        ([bash("awk '$2 > 48213' more.csv", "west,48213")], "computed"),
        ([python("print(sum(x))", "48213"), python("print('Total:', 48213)", "48213")],
         "computed"),
        ([("read_file", {"path": "more.csv"}, "region,units\nwest,48213")], "same_value"),
        ([FILED, ("fetch", PAGE, SAID)], "same_value"),
        ([("fetch", PAGE, SAID), FILED, ("read_file", {"path": "r.md"}, SAID)], "same_value"),
        ([("web_search", {"query": "48213 units"}, "1. Sales: 48213 units in total")],
         "same_value"),
        ([("ask_human", {"inquire": "Is it 48213?"}, "Yes, 48213.")], "same_value"),
        ([("delegate", {"agent": "manus", "task": "count"}, SAID)], "same_value"),
    ],
)  # fmt: skip
def test_what_was_found_or_computed_is_evidence(steps: list[Step], kind: str) -> None:
    assert judged("In total 48,213 units were sold.", *steps) == [kind]


@pytest.mark.parametrize(
    ("code", "printed", "answer"),
    [
        ("print(sales[sales.year == 2023].sum())", "2023 51977", "In 2023 it was 51977."),
        ("print(sales['2023'].head(20))", "2023 51977", "In 2023 it was 51977."),
        ("print(round(sales.units.mean(), 20))", "the mean is 20", "The mean is 20 units."),
        ("for n in (2022, 2023): print(n, f(n))", "2022 44\n2023 51", "In 2022 it was 44 kg."),
    ],
)
def test_a_number_that_selects_data_is_not_what_the_model_states(
    code: str, printed: str, answer: str
) -> None:
    assert "not_found" not in judged(answer, python(code, printed))


@pytest.mark.parametrize(
    ("claim", "written"),
    [
        ('Osei said: "All units were sold"', "Osei: All units were sold"),
        ("It was founded on 3 October 1934.", "It was founded on 3 October 1934."),
        ("See https://example.org/made/up", "Source: https://example.org/made/up"),
        ("The share is 37 %.", "The share is 37 %."),
    ],
)
def test_quotations_dates_and_links_are_not_found_in_ones_own_words(
    claim: str, written: str
) -> None:
    for step in (
        python(f"print('{written}')", written),
        bash(f"echo '{written}'", written),
        ("read_file", {"path": "r.md"}, written),
    ):
        filed = ("write", {"path": "r.md", "text": written}, "ok")
        assert set(judged(claim, filed, step)) == {"not_found"}


def test_what_a_composed_text_does_not_have_is_no_evidence() -> None:
    report: Step = ("delegate", {"agent": "manus", "task": "count"}, "48213 units at 17.5 EUR.")
    assert judged("48,213 units at 17.5 EUR.", report, artifact={"unsupported": ["48213"]}) == [
        "not_found",
        "quoted",
    ]
    assert unsupported('{"units": 48213, "price": 17.5}', "A unit costs 17.5 EUR.") == ["48213"]


LONG = [
    "3" * 20, "3" * 309, "3" * 5000, "0." + "3" * 400, "1" + ",234" * 300, "1" + ".234" * 20_000,
    "1e999", "3" * 500 + " %", "9" * 310 + " km", "百万" * 60,
]  # fmt: skip


@pytest.mark.parametrize("number", LONG)
def test_a_number_of_any_length_is_judged(number: str) -> None:
    answer = f"The product is {number}, that is 12 digits."
    own = python(f"print('product', '{number}')", f"product {number}")
    found = ("read_file", {"path": "more.csv"}, f"region,units\nwest,{number}\neast,12")
    for steps in ([], [own], [found], [own, found]):
        assert len(judged(answer, *steps)) <= 2


def test_a_number_that_begins_another_hides_it_in_no_line() -> None:
    code = "print('Total:', 48213); print('All:', 482137)"
    assert judged("In total 482,137 units.", python(code, "All: 482137")) == ["not_found"]
