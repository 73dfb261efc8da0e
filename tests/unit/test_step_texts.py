"""What the request of a step says: all that it needs, and nothing twice."""

from typing import Any

from langchain_core.messages import HumanMessage

from openmanus_graph.planning.drafting import HEAD_CHARS, RESULT_CHARS, STEPS_AROUND, step_prompt
from openmanus_graph.planning.flow import new_step_run
from openmanus_graph.planning.plan import make_steps
from openmanus_graph.state.planning import PlanningState


def asked(name: str, *steps: dict[str, Any], **done: dict[str, Any]) -> str:
    """Return the request of one step of a plan.

    Args:
        name: Of the step.
        steps: The plan.
        done: What is known of its steps, by id.
    """
    runs: dict[str, Any] = {step["id"]: new_step_run(step) for step in make_steps(steps)}
    for one, fields in done.items():
        runs[one] |= {"status": "completed", **fields}
    state: Any = {"messages": [HumanMessage("the task")], "order": [*runs], "steps": runs}
    given: PlanningState = state
    return step_prompt(runs[name], given)


def step(name: str, *needs: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "text": f"do {name}", "depends_on": [*needs], **more}


def test_nothing_stands_twice() -> None:
    text = asked(
        "c", step("a"), step("b", "a"), step("c", "b", done_when="file: c.txt"), step("d", "c"),
        a={"result": "the sum is 7", "files": ["a.csv"]}, b={"result": "noted", "files": ["b.md"]},
    )  # fmt: skip
    for part in (
        "the task",
        "do a",
        "do b",
        "do c",
        "do d",
        "the sum is 7",
        "noted",
        "file: c.txt",
    ):
        assert text.count(part) == 1, part
    assert "- a [✓] do a -> the sum is 7 [files: a.csv]\n- b [✓] do b\n- c [ ] your step\n" in text
    assert "Result of step b:\nnoted" in text


def test_other_steps_are_named_by_their_first_line() -> None:
    others = (step("a", text=f"Load it\n{'x' * 500}"), step("b", text="y" * 500))
    text = asked("c", *others, step("c", text=f"Join\n{'z' * 500}"))
    assert "- a [ ] Load it\n" in text
    assert f"- b [ ] {'y' * HEAD_CHARS} …\n" in text
    assert ("x" * 9 in text, "z" * 500 in text) == (False, True)


def test_what_is_no_ancestor_is_listed_without_its_result() -> None:
    text = asked("c", step("a"), step("b"), step("c", "b"), a={"result": "unrelated"})
    assert "unrelated" not in text
    assert "- a [✓] do a\n" in text


def test_direct_results_are_whole_and_those_of_other_ancestors_a_line() -> None:
    result = "first line\n" + "x" * (RESULT_CHARS - 20)
    text = asked(
        "c", step("a"), step("b", "a"), step("c", "b"),
        a={"result": result, "files": [f"f{n}" for n in range(20)]}, b={"result": result},
    )  # fmt: skip
    assert text.count("x" * (RESULT_CHARS - 20)) == 1
    (line,) = [row for row in text.splitlines() if row.startswith("- a ")]
    assert "first line xxx" in line
    assert line.endswith("f7, …]")
    assert len(line) < 300


def test_of_a_long_plan_what_is_near_is_listed_and_what_the_step_needs() -> None:
    chain = [step("n0"), *(step(f"n{n}", f"n{n - 1}") for n in range(1, 50))]
    free = [step(f"free{n}") for n in range(30)]
    last = step("last", "n49", "n1")
    text = asked("last", *chain, *free, last, *(step(f"after{n}") for n in range(17)))
    listed = [row.split()[1] for row in text.splitlines() if row.startswith("- ")]
    assert [one for one in listed if one.startswith("n")] == [
        "n1", *(f"n{n}" for n in range(49 - STEPS_AROUND, 50)),
    ]  # fmt: skip
    assert len([one for one in listed if one.startswith("free")]) == STEPS_AROUND
    assert len([one for one in listed if one.startswith("after")]) == STEPS_AROUND
    assert text.count(" more)") == 4


def test_a_step_that_is_all_of_the_plan_is_the_task_itself() -> None:
    text = asked("a", step("a", done_when="file: a.txt"))
    assert text.splitlines()[::2] == [
        "the task", "The plan for it, in one step: do a", "It counts as done when: file: a.txt",
    ]  # fmt: skip
