"""The terminal's line editor: letters that decide without Enter."""

import asyncio

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from openmanus_graph.interfaces.cli import editor

CHOICES = ("a", "always", "e", "r ", "= ")


async def asked(monkeypatch: pytest.MonkeyPatch, *typed: str, wait_s: float) -> str | None:
    """Type into a question, each text at once; `wait_s` is how long a letter must stand alone."""
    monkeypatch.setattr(editor, "DECIDE_S", wait_s)

    def output(_stream: object) -> DummyOutput:
        return DummyOutput()

    monkeypatch.setattr(editor, "create_output", output)
    with create_pipe_input() as keys:
        monkeypatch.setattr(editor, "_keyboard", lambda: keys)
        asking = asyncio.create_task(editor.LineEditor(choices=CHOICES, letters="ae").ask("? "))
        for text in typed:
            keys.send_text(text)
        return await asking


@pytest.mark.parametrize("letter", ["a", "e"])
async def test_a_letter_alone_decides(monkeypatch: pytest.MonkeyPatch, letter: str) -> None:
    assert await asked(monkeypatch, letter, wait_s=0) == letter


@pytest.mark.parametrize("typed", ["always", "all of it", "r not this", "= 42", "bea"])
async def test_a_letter_in_a_word_decides_nothing(
    monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    assert await asked(monkeypatch, f"{typed}\r", wait_s=0) == typed


async def test_what_was_typed_before_the_question_waits_for_enter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await asked(monkeypatch, "a", "lso this", "\r", wait_s=3600) == "also this"
