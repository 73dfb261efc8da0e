"""What a model thinks is parted from what it says, whole and in pieces; quotations stay."""

import time

import pytest

from openmanus_graph.conversation.text_calls import SaidStream, split_thoughts

CHANNEL = "<|start|>assistant<|channel|>"
THOUGHT_AND_ANSWER = {
    "think": "<think>\nIt is 7.\n</think>\n\nSeven, I say.",
    "without an opening tag": "It is 7.\n</think>\n\nSeven, I say.",
    "without line breaks": "<think>It is 7.</think>Seven, I say.",
    "thinking": "<thinking>It is 7.</thinking> Seven, I say.",
    "thought": "<thought>It is 7.</thought>\nSeven, I say.",
    "a label": "<think:opensource>It is 7.</think:opensource>Seven, I say.",
    "Seed": "<seed:think>\nIt is 7.\n</seed:think>Seven, I say.",
    "MiniMax": "<mm:think>It is 7.</think>Seven, I say.",
    "LongCat": "<longcat_think>\nIt is 7.\n</longcat_think>\nSeven, I say.",
    "Mistral": "[THINK]It is 7.[/THINK]Seven, I say.",
    "Mistral's end": "It is 7.[/THINK]Seven, I say.",
    "Kimi": "◁think▷It is 7.◁/think▷Seven, I say.",
    "Kimi K3": "<|open|>think<|sep|>It is 7.<|close|>think<|sep|>"
    "<|open|>response<|sep|>Seven, I say.<|close|>response<|sep|>",
    "Cohere": "<|START_THINKING|>It is 7.<|END_THINKING|><|START_TEXT|>Seven, I say.<|END_TEXT|>",
    "Apertus": "<|inner_prefix|>It is 7.<|inner_suffix|>Seven, I say.",
    "Gemma 4": "<|channel>thought\nIt is 7.<channel|>Seven, I say.",
    "harmony": "<|channel|>analysis<|message|>It is 7.<|end|>"
    f"{CHANNEL}final<|message|>Seven, I say.<|return|>",
    "harmony in two": f"{CHANNEL}analysis<|message|>It is 7.<|end|>"
    f"{CHANNEL}final <|constrain|>text<|message|>Seven, I say.",
    "harmony without special tokens": "analysisIt is 7.assistantfinalSeven, I say.",
    "Inkling": "<|message_model|><|content_thinking|>It is 7.<|end_message|><|message_model|>"
    "<|content_text|>Seven, I say.<|end_message|>",
    "Granite": "Here is my thought process:\nIt is 7.\nHere is my response:\nSeven, I say.",
    "an answer in tags": "<think>It is 7.</think>\n<answer>\nSeven, I say.\n</answer>",
    "an end too many": "<think>It is 7.</think>\n</think>\nSeven, I say.",
}
LONE = ("without an opening tag", "Mistral's end", "harmony without special tokens", "Granite")


@pytest.mark.parametrize("form", THOUGHT_AND_ANSWER)
def test_a_thought_is_parted_from_the_answer(form: str) -> None:
    assert split_thoughts(THOUGHT_AND_ANSWER[form]) == ("It is 7.", "Seven, I say.")


@pytest.mark.parametrize("form", [one for one in THOUGHT_AND_ANSWER if one not in LONE])
@pytest.mark.parametrize("size", [1, 5, 17, 1000])
def test_of_a_stream_only_the_answer_is_shown(form: str, size: int) -> None:
    text, stream = THOUGHT_AND_ANSWER[form], SaidStream()
    shown = [stream.add(text[n : n + size]) for n in range(0, len(text), size)]
    said = "".join([*shown, stream.rest()])
    assert "It is 7" not in said
    assert "Seven, I say." in said


@pytest.mark.parametrize(
    "text",
    ["<think>\nIt is", "<thinking>It is", "[THINK]It is", "<|channel|>analysis<|message|>It is",
     "<|channel>thought\nIt is", "<seed:think>It is"],
)  # fmt: skip
def test_of_a_thought_that_breaks_off_nothing_is_said(text: str) -> None:
    assert split_thoughts(text) == ("It is", "")
    stream = SaidStream()
    assert [*map(stream.add, text), stream.rest()] == [""] * (len(text) + 1)


def test_a_call_ends_a_thought_that_is_not_closed() -> None:
    call = '<tool_call>{"name": "bash", "arguments": {}}</tool_call>'
    assert split_thoughts(f"<think>I look.\n{call}") == ("I look.", call)


def test_several_thoughts_are_joined_and_those_between_paragraphs_are_found() -> None:
    text = "<think>one</think><think>two</think>First.\n<think>three</think>\nSecond."
    assert split_thoughts(text) == ("one\n\ntwo\n\nthree", "First.\n\nSecond.")


def test_a_thought_may_speak_of_its_own_tags() -> None:
    thought = "He asks what </think> means, and `</think>` too."
    assert split_thoughts(f"<think>{thought}</think>The tag <think> opens one.") == (
        thought,
        "The tag <think> opens one.",
    )


@pytest.mark.parametrize(
    "text",
    [
        "The total is 42.",
        "`<think>` opens a thought and `</think>` closes it.",
        "<think> is a tag, and </think> its end.",
        "<think> and </think> are tags of reasoning models.",
        "The tag </think> ends a thought.",
        'Between "<think>" and "</think>" the model reasons.',
        "Das Tag </think>, das den Gedanken beendet.",
        "Models write <think>reasons</think> before they answer.",
        "Such a reply looks so:\n<think>\nreasons\n</think>\nanswer",
        "```\n<think>reasons</think>answer\n```",
        "```xml\nreasons\n</think>\nanswer\n```\nThat is all.",
        '{"note": "a</think>b"}',
        "[THINK] and [/THINK] are Mistral's tags.",
        "analysis of the heap shows nothing",
        "Here is my thought process: I add. It is 3.",
        "<thinking_cap>blue</thinking_cap>",
        "<b>bold</b> text",
    ],
)
def test_what_quotes_or_speaks_of_tags_is_left_alone(text: str) -> None:
    assert split_thoughts(text) == ("", text)
    stream = SaidStream()
    assert "".join([*map(stream.add, text), stream.rest()]) == text


def test_what_stands_round_an_answer_alone_is_taken_off() -> None:
    assert split_thoughts("<|channel|>final<|message|>Done.<|return|>") == ("", "Done.")
    assert split_thoughts("<|START_RESPONSE|>Done.<|END_RESPONSE|>") == ("", "Done.")


@pytest.mark.parametrize("begun", ["", "<think>", "x"])
@pytest.mark.parametrize(
    "piece",
    ["<think>", "</think>", "<think>a</think>", "\n<think>", "```", "`", "<|end|>", "analysis",
     "[<", "<|start|>assistant", "\n<tool_call>", " </think> is", "Here is my thought process:"],
)  # fmt: skip
def test_any_text_is_split_in_linear_time(begun: str, piece: str) -> None:
    text = begun + piece * (60_000 // len(piece))
    started = time.process_time()
    split_thoughts(text)
    stream = SaidStream()
    for start in range(0, len(text), 20):
        stream.add(text[start : start + 20])
    stream.rest()
    assert time.process_time() - started < 5


@pytest.mark.parametrize("blank", [" ", "\n", "\t", ""])
def test_blanks_before_an_answer_come_with_its_first_words(blank: str) -> None:
    stream = SaidStream()
    assert {stream.add(blank) for _ in range(50_000)} == {""}
    assert stream.add("The answer.") == blank * 50_000 + "The answer."
    blanks = SaidStream()
    assert {blanks.add(blank) for _ in range(9)} | {blanks.rest().strip()} == {""}
