"""The text of a message is replaced, and the rest of it stays."""

from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage

from openmanus_graph.conversation.history import TASK_KEY, task_text_of, with_text

PICTURE: dict[str, Any] = {"type": "image_url", "image_url": {"url": "data:,"}}
THOUGHT: dict[str, Any] = {"type": "reasoning", "reasoning": "so"}


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("content", "text", "replaced"),
    [
        ("old", "new", "new"),
        ("old", "", ""),
        ([said("old"), PICTURE], "new", [said("new"), PICTURE]),
        ([THOUGHT, said("old"), said("more")], "new", [THOUGHT, said("new")]),
        ([THOUGHT, said("old")], "", [THOUGHT]),
        ([PICTURE], "new", [PICTURE, said("new")]),
        (["old", PICTURE], "new", [said("new"), PICTURE]),
    ],
)
def test_a_text_is_replaced_where_it_stood(content: Any, text: str, replaced: Any) -> None:
    assert with_text(AIMessage(content), text) == replaced


def test_the_task_is_what_the_user_said_without_notes() -> None:
    assert task_text_of(HumanMessage("the task")) == "the task"
    noted = HumanMessage("the task\nNotes: ...", additional_kwargs={TASK_KEY: "the task"})
    assert task_text_of(noted) == "the task"
