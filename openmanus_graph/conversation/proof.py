"""Looks whether a run's calls show that its work is done. Pure."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, NamedTuple

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from openmanus_graph.conversation.announcements import named_files, names_things, own_words
from openmanus_graph.conversation.evidence import CALCULATING
from openmanus_graph.conversation.figures import claims_in
from openmanus_graph.conversation.history import canonical_calls, run_messages
from openmanus_graph.conversation.made_files import asks_for_change
from openmanus_graph.conversation.outcome import ends_run
from openmanus_graph.prompts import render

_HAS_TO_PASS = re.compile(
    r"(?i)\b(?:pass(?:es)?|fails?|succeeds?|besteh\w*|fehl\w*|échou\w*|fall[ae])\b|通过|失败"
)
_ABOUT_FAILURES = re.compile(
    r"(?i)\b(?:errors?|fails?|failures?|failing|goes wrong|happens|exit (?:code|status)|fehler"
    r"|erreur)\b"
)
_RUNS = {
    "bash": r"\./[^|;& ]*{test}"
    r"|\b(?:python3?|node|np[mx]|bash|sh|ruby|go|cargo|source)\b[^|;&]*{test}",
    "python_execute": r"\b(?:import|from) {test}\b|\b(?:subprocess|runpy|exec|system)\b.*{test}",
}
"""How a call runs a test, by tool."""
_ALL_TESTS = r"\b(?:pytest|unittest|(?:npm|make|go|cargo) (?:run )?test)\b"
_QUESTION = r"(?:how (?:many|much|often|long|old|far)|which|what|who|where|when)\b"
_TWO_QUESTIONS = re.compile(
    rf"(?i)(?:^|[.!?]\s+){_QUESTION}[^?]*\band (?:(?:in|on|at|by|of|for|from) )?{_QUESTION}[^?]*\?"
)
"""Two questions in one sentence."""
_NOTHING = re.compile(
    r"\s*(?:0(?:\.0*)?|None|nan|\[\]|\{\}|\(\)|set\(\)|Empty DataFrame.*|Series\(\[\].*)\s*",
    re.DOTALL,
)
"""The output of a program that found nothing; often its condition is wrong."""
_COMPARES = re.compile(
    r"(?i)(?<!at )\b(?:most|least|fewest|maximum|minimum|(?:larg|bigg|small|high|low|long|short|old"
    r"|new|young|earli|cheap|heavi|light|fast|slow)est)\b|\b(?:größte|kleinste|höchste|niedrigste"
    r"|längste|kürzeste|älteste|jüngste|meiste)\w*|\b(?:le|la|les) (?:plus|moins)\b"
    r"|最[大小高低多少长短早晚新旧]"
)
"""A question for the one that has most or least."""
_COUNTS = re.compile(
    r"(?i)\b(?:how (?:many|often)|wie (?:viele|oft)|combien|cuánt[oa]s)\b"
    r"|(?:多少|几)[个行次条]"
)
_READING = {"read_file", "str_replace_editor"}
"""Tools that show data as it is."""
_WHOLE = re.compile(r"(?<![\w.,:/-])\d+(?![\w/:-]|[.,]\d)")
_FEW_LINES = 4
"""So many can be compared by reading."""
_SHORT_LINES = 20
"""An output of so many is a result."""
_FILL = {"a", "an", "and", "are", "at", "for", "has", "have", "in", "is", "it", "of", "on", "that",
         "the", "there", "to", "was", "were"}  # fmt: skip
"""Words that answer nothing."""
_MOST_CHARS = 2000
"""Of a task in which questions are looked for."""


class _Outcome(NamedTuple):
    """What a call has given."""

    name: str
    args: str
    said: Any
    failed: bool


def lack_of_proof(
    answer: str, task: str, messages: Sequence[AnyMessage], *, delivered: bool
) -> str:
    """Return why nothing shows that the work is done; empty where something may.

    Args:
        answer: Of the run.
        task: What the person said.
        messages: The conversation.
        delivered: Whether the files that the task names were made: they may be looked at again.
    """
    outcomes = _outcomes(messages)
    if outcomes and outcomes[-1].failed and not _is_about_failures(task):
        return f"the last call ({outcomes[-1].name}) failed"
    repeated = [one for n, one in enumerate(outcomes) if one in outcomes[:n]]
    circles = repeated and not delivered and all(one in repeated for one in outcomes[-2:])
    if circles and not _is_result(answer, outcomes[-1]):
        return f"the last calls ({outcomes[-1].name}) only repeated earlier ones"
    if test := _test_that_has_to_pass(task, outcomes):
        return f"{test} was not run, or it failed"
    if reason := _lack_of_reckoning(answer, task, outcomes):
        return reason
    return "a part of the question is not answered" if _is_half(answer, task) else ""


def _lack_of_reckoning(answer: str, task: str, outcomes: Sequence[_Outcome]) -> str:
    """Return why a question about files has no reliable result; empty where it may have one."""
    if not outcomes or asks_for_change(task) or not names_things(task):
        return ""
    if _has_only_found_nothing(outcomes):
        return "the program found nothing: compare its condition with some lines of the data"
    asked = own_words(task)[:_MOST_CHARS]
    if _COUNTS.search(asked) and not _is_counted(answer, task, outcomes):
        return "no program has counted and printed this number"
    if _COMPARES.search(asked) and not _is_compared(answer, task, outcomes):
        return "no program has compared and printed what the answer names"
    return ""


def _has_only_found_nothing(outcomes: Sequence[_Outcome]) -> bool:
    """Return True if the last program found nothing; a second one that does not is believed."""
    ran = [one for one in outcomes if one.name in CALCULATING and not one.failed]
    empty = [one for one in ran if _NOTHING.fullmatch(str(one.said))]
    return bool(ran) and ran[-1] in empty and len(set(empty)) == 1


def _is_compared(answer: str, task: str, outcomes: Sequence[_Outcome]) -> bool:
    """Return True if a program has named what the answer does, or little was to be compared."""
    seen = [
        one
        for one in outcomes
        if not one.failed and one.said != "(no output)" and one.name != "search_tools"
    ]
    reads = [one for one in seen if one.name in _READING]
    if reads and named_files(task) and not any(map(_is_long, reads)):
        return True
    named = _words(answer) - _words(task) - _FILL
    found = {word for one in seen if one not in reads for word in _words(str(one.said))}
    return len(seen) > len(reads) and not (named and named.isdisjoint(found))


def _words(text: str) -> set[str]:
    """Return the words and figures of a text."""
    return set(re.findall(r"\d+|[^\W\d_]{2,}", re.sub(r"(?<=\d),(?=\d{3})", "", text).lower()))


def _is_long(outcome: _Outcome) -> bool:
    return str(outcome.said).count("\n") >= _FEW_LINES


def _is_counted(answer: str, task: str, outcomes: Sequence[_Outcome]) -> bool:
    """Return False if the whole numbers of an answer stand only in data, which does not count.

    Results of a long output are its last lines, of a file what stands above its content.
    """
    said = {*_WHOLE.findall(answer)} - {*_WHOLE.findall(task)}
    shown, results = set[str](), set[str]()
    for one in outcomes:
        text = str(one.said)
        numbers = set(re.findall(r"\d+", text))
        shown |= numbers
        if one.name in {*CALCULATING, *_READING}:
            lines = text.split("\n")
            if one.name in _READING:
                lines = lines[:1]
            elif len(lines) > _SHORT_LINES:
                lines = lines[-_FEW_LINES:]
            numbers = set(_WHOLE.findall("\n".join(lines)))
        results |= numbers
    return said.isdisjoint(shown) or not said.isdisjoint(results)


def _is_about_failures(task: str) -> bool:
    """Return True if a task wants to know how something fails."""
    return _ABOUT_FAILURES.search(own_words(task)) is not None and not asks_for_change(task)


def _is_result(answer: str, outcome: _Outcome) -> bool:
    """Return True if the figures of an answer are what a program printed."""
    figures = [one.text for one in claims_in(answer)]
    return (
        outcome.name in CALCULATING
        and bool(figures)
        and all(
            re.search(rf"(?<![\d.]){re.escape(one)}(?![\d.])", str(outcome.said)) for one in figures
        )
    )


def _outcomes(messages: Sequence[AnyMessage]) -> list[_Outcome]:
    """Return what the run's calls gave, in order, but for the call that ends the run."""
    calls, outcomes = dict[str | None, tuple[str, str]](), list[_Outcome]()
    for message in run_messages(messages):
        if isinstance(message, AIMessage):
            ids = (call["id"] for call in message.tool_calls)
            calls |= zip(ids, canonical_calls(message), strict=True)
        elif isinstance(message, ToolMessage) and not ends_run(message):
            call = calls.get(message.tool_call_id, (message.name or "?", ""))
            outcome = _Outcome(*call, message.content, message.status == "error")
            same = (one for one in reversed(outcomes) if (one.name, one.args) == call)
            again = message.content == render("same_result")
            outcomes.append(next(same, outcome) if again else outcome)
    return outcomes


def _test_that_has_to_pass(task: str, outcomes: Sequence[_Outcome]) -> str:
    """Return the test that a task wants to pass, if it did not when it was run last."""
    if not (_HAS_TO_PASS.search(own_words(task)) and asks_for_change(task)):
        return ""
    for test in (name for name in named_files(task) if "test" in name.lower()):
        stem = re.escape(PurePath(test).stem)
        runs = [one for one in outcomes if _runs(one, stem)]
        if not runs or runs[-1].failed:
            return test
    return ""


def _runs(outcome: _Outcome, test: str) -> bool:
    pattern = _RUNS.get(outcome.name)
    if pattern is None:
        return False
    code = outcome.args.replace("\\n", "\n")
    return bool(re.search(f"{pattern.format(test=test)}|{_ALL_TESTS}", code))


def _is_half(answer: str, task: str) -> bool:
    """Return True if an answer to two questions in one brings a single new word or figure."""
    asked = _TWO_QUESTIONS.search(own_words(task)[:_MOST_CHARS])
    if asked is None or re.search(r"\bor\b", asked[0]):
        return False
    said, known = (re.findall(r"\w+", text.lower()) for text in (answer, task))
    return len([one for one in said if one not in {*known, *_FILL}]) < 2
