"""A run as HTML: whatever models, tools and plans say is text, in its place, and no more of it."""

from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest

from openmanus_graph.interfaces.notebook import (
    SHOWN_CHARS,
    RunPage,
    final_html,
    picture_html,
    question_html,
)

EVIL = "<script>alert(1)</script><img src=x onerror='alert(2)'>\"&"
PLAN_STEP: dict[str, Any] = {
    "id": "a",
    "executor": "manus",
    "depends_on": [],
    "status": "in_progress",
}


def page_of(*events: dict[str, Any]) -> str:
    page = RunPage()
    for event in events:
        page.add(event)
    return page.html()


def think(text: str, step: int = 1, **more: Any) -> list[dict[str, Any]]:
    reply = {"type": "think_end", "step": step, "text": text}
    return [{"type": "think_start", "step": step, **more}, reply | more]


def token(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "token", "text": text, **more}


def start(call_id: str = "c", tool: str = "bash", **more: Any) -> dict[str, Any]:
    return {"type": "tool_start", "call_id": call_id, "tool": tool, "args": {}, **more}


def end(call_id: str = "c", output: str = "", **more: Any) -> dict[str, Any]:
    reported = {"tool": "bash", "ok": True, "seconds": 0.5, "output": output}
    return {"type": "tool_end", "call_id": call_id, **reported, **more}


def plan(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = [{**PLAN_STEP, "text": f"do {step['id']}", **step} for step in steps]
    return {"type": "plan", "title": "The plan", "steps": made, **more}


class Tags(HTMLParser):
    """The tags and attributes that a browser would see."""

    def __init__(self) -> None:
        super().__init__()
        self.tags, self.attributes = set[str](), set[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


HOSTILE = {
    "streamed": page_of({"type": "think_start", "step": 1}, token(EVIL)),
    "thought": page_of(*think(EVIL)),
    "tool": page_of(start(tool=EVIL)),
    "arguments": page_of({**start(), "args": {EVIL: EVIL}}),
    "output": page_of(start(), end(output=EVIL)),
    "notice": page_of({"type": "notice", "level": "warning", "text": EVIL}),
    "plan's title": page_of({**plan({"id": "a"}), "title": EVIL}),
    "step": page_of(plan({"id": EVIL, "text": EVIL, "executor": EVIL, "notes": EVIL})),
    "step's order": page_of(plan({"id": "a", "depends_on": [EVIL], "status": EVIL})),
    "place": page_of(start(plan_step=EVIL)),
    "question": question_html({"question": EVIL, "calls": [{"tool": EVIL, "args": {EVIL: EVIL}}]}),
    "answer": final_html({"answer": EVIL, "status": EVIL, "stop_reason": EVIL}),
    "picture": picture_html(EVIL, EVIL, b"png"),
}


@pytest.mark.parametrize("shown", HOSTILE.values(), ids=HOSTILE)
def test_html_of_others_is_shown_as_text(shown: str) -> None:
    found = Tags()
    found.feed(shown)
    assert "script" not in found.tags
    assert not found.attributes & {"onerror"}
    assert "<script" not in shown


@pytest.mark.parametrize("shown", [page_of(*think("{0}")), final_html({"answer": "{0}"})])
def test_what_the_model_writes_is_rendered_as_markdown(shown: str) -> None:
    assert "<p>{0}</p>" in shown


def test_markdown_reaches_no_server_and_runs_nothing() -> None:
    text = (
        "# Head\n\n**bold**\n\n| a | b |\n| - | - |\n| 1 | 2 |\n\n"
        "![x](https://evil.example/?q=1) [y](javascript:alert(1)) <img src=x>"
    )
    shown = final_html({"answer": text})
    for part in ("<h1>Head</h1>", "<strong>bold</strong>", "<td>1</td>", "&lt;img src=x&gt;"):
        assert part in shown
    assert "<img" not in shown
    assert 'href="javascript' not in shown


def test_tokens_are_void_after_a_repeated_think_start() -> None:
    asked = {"type": "think_start", "step": 1}
    shown = page_of(*think("kept", 0), asked, token("void"), asked, token("anew"))
    assert "void" not in shown
    assert shown.index("kept") < shown.index("anew")


def test_asking_again_in_one_step_of_a_plan_leaves_another_ones_tokens() -> None:
    asked = {"type": "think_start", "step": 1}
    a, b = {"plan_step": "a"}, {"plan_step": "b"}
    shown = page_of(asked | a, asked | b, token("of a", **a), token("of b", **b), asked | b)
    assert "of a" in shown
    assert "of b" not in shown


def test_tokens_of_steps_side_by_side_do_not_mix() -> None:
    asked = {"type": "think_start", "step": 1}
    a, b = {"plan_step": "a"}, {"plan_step": "b"}
    shown = page_of(
        *(asked | a, asked | b),
        *(token("one ", **a), token("uno ", **b), token("two", **a), token("due", **b)),
    )
    assert "one two" in shown
    assert "uno due" in shown


def test_a_long_output_is_cut_and_a_short_one_is_whole() -> None:
    whole, cut = "x" * SHOWN_CHARS, "y" * (SHOWN_CHARS + 1)
    shown = page_of(start("1"), end("1", whole), start("2"), end("2", cut))
    assert whole in shown
    assert cut not in shown
    assert f"{cut[:-1]} …" in shown


def test_calls_of_one_tool_are_distinguished_by_their_arguments() -> None:
    shown = page_of({**start("1"), "args": {"order": 17}}, {**start("2"), "args": {"order": 18}})
    beginnings = [part.partition("</summary>")[0] for part in shown.split("<summary>")[1:]]
    assert ["17" in beginnings[0], "18" in beginnings[1]] == [True, True]


def test_arguments_are_shown_as_they_are_written() -> None:
    args = {"code": 'x = "é"\nprint(x)', "order": {"id": 17}, "name": "a b"}
    read = 'code:\nx = "é"\nprint(x)\norder: {"id": 17}\nname: a b'
    assert read in unescape(page_of({**start(), "args": args}))
    calls = [{"tool": "python_execute", "args": args}]
    assert read in unescape(question_html({"question": "?", "calls": calls}))


def test_long_arguments_are_cut() -> None:
    code = "z" * (3 * SHOWN_CHARS)
    shown = page_of({**start(), "args": {"code": code}})
    assert len(shown) < 2 * SHOWN_CHARS
    assert shown.index("</summary>") < 500
    waiting = question_html({"question": "?", "calls": [{"tool": "bash", "args": {"c": code}}]})
    assert len(waiting) < 2 * SHOWN_CHARS


def test_a_call_shows_whether_it_is_under_way_done_or_failed() -> None:
    assert "…</small>" in page_of(start())
    assert "✓ 0.5 s" in page_of(start(), end())
    assert "✗ 0.5 s" in page_of(start(), end(ok=False))


def test_a_call_that_begins_again_is_shown_once() -> None:
    assert page_of(start(), start(), end()).count("<code>bash</code>") == 1


def test_a_call_whose_beginning_was_not_seen_is_shown() -> None:
    assert "late" in page_of(end(output="late"))


def test_a_step_shows_its_mark_executor_time_and_order() -> None:
    shown = page_of(
        plan(
            {"id": "a", "status": "completed", "seconds": 2.34, "executor": "swe"},
            {"id": "b", "status": "blocked", "depends_on": ["a"], "notes": "no file"},
            {"id": "c", "status": "not_started"},
        )
    )
    marks = [shown.index(mark) for mark in ("[✓]", "[!]", "[ ]")]
    assert marks == sorted(marks)
    for words in ("The plan", "1 of 3 completed", "swe · 2.3 s", "manus · after a", "no file"):
        assert words in shown


def test_calls_of_steps_side_by_side_stand_under_their_step() -> None:
    same_id = [start(plan_step="a"), start(plan_step="b")]
    ends = [end(output="of b", plan_step="b"), end(output="of a", plan_step="a")]
    shown = page_of(
        *think("before"), plan({"id": "a"}, {"id": "b"}), *same_id, *ends, *think("end")
    )
    order = ["before", "do a", "of a", "do b", "of b", ">end<"]
    places = [shown.index(words) for words in order]
    assert places == sorted(places)


def test_a_plan_is_updated_in_its_place() -> None:
    shown = page_of(plan({"id": "a"}), *think("after"), plan({"id": "a", "status": "completed"}))
    assert shown.count("do a") == 1
    assert shown.index("[✓]") < shown.index("after")


def test_what_changed_in_a_plan_is_shown_in_its_place() -> None:
    first = plan({"id": "a"}, {"id": "b"}, {"id": "c"})
    change = {**plan({"id": "b", "status": "completed"}), "type": "plan_change"}
    shown = page_of(first, start(plan_step="b"), change)
    assert "1 of 3 completed" in shown
    assert [name for name in ("do a", "do b", "do c") if name in shown] == ["do a", "do b", "do c"]
    gone = page_of(first, {**change, "order": ["c", "b"]})
    assert (gone.index("do c") < gone.index("do b"), "do a" in gone) == (True, False)


def test_a_plan_within_a_step_stands_under_that_step() -> None:
    inner = plan({"id": "x"}, plan_step="b")
    shown = page_of(plan({"id": "a"}, {"id": "b"}), inner, start(tool="deep", plan_step="b/x"))
    places = [shown.index(words) for words in ("do a", "do b", "do x", "deep")]
    assert places == sorted(places)


def test_what_a_subagent_does_stands_where_it_began_and_its_own_subagent_within() -> None:
    def subagent(name: str, **more: Any) -> dict[str, Any]:
        return {"type": "step_start", "id": name, "namespace": "act:1", **more}

    events = [subagent("swe-1"), subagent("b-2", plan_step="swe-1"), start(plan_step="swe-1/b-2")]
    shown = page_of(*think("before"), *events, *think("end"))
    order = ["before", "swe-1", "swe-1/b-2", "<code>bash</code>", "</details>", ">end<"]
    places = [shown.index(words) for words in order]
    assert places == sorted(places)


def test_what_a_step_did_that_a_new_plan_left_out_stays_visible() -> None:
    shown = page_of(plan({"id": "old"}), start(tool="work", plan_step="old"), plan({"id": "new"}))
    assert "work" in shown
    assert "old" in shown


def test_only_the_answer_at_the_end_is_left_out() -> None:
    page = RunPage()
    for event in [*think("42"), *think("42", 2), *think("42", 3, plan_step="a")]:
        page.add(event)
    page.remove_answer("42")
    assert page.html().count("42") == 3  # the last one is a step's
    page.blocks.pop()
    page.remove_answer("42")
    assert page.html().count("42") == 1


def test_information_is_not_shown_but_warnings_are() -> None:
    reported = {"type": "notice", "text": "hear"}
    assert "hear" not in page_of({**reported, "level": "info"})
    assert "hear" in page_of({**reported, "level": "error"})
