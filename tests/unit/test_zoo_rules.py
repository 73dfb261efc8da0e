"""The zoo's own rules: each refuses something that is sent, and none refuses everything."""

import base64
import json
from dataclasses import replace
from typing import Any

import pytest
from langchain_core.utils.function_calling import convert_to_openai_tool

from tests.support.openai_script import completion
from tests.support.strict_openai import complaint
from tests.support.zoo import ANIMALS
from tests.support.zoo_rules import Body
from tests.support.zoo_runs import PICTURES, noise
from tests.support.zoo_server import Animal
from tests.support.zoo_tasks import TOOLS, brain

WITH_RULES = [one for one in ANIMALS.values() if one.survivable and one.topic not in (
    "windows", "thoughts in text", "calls as text")]  # fmt: skip
USER: Any = {"role": "user", "content": "Find out alpha with look_up. (case step-a)"}
SYSTEM = {"role": "system", "content": "You help."}
CALL_ID = "functions.look_up:" + 30 * "0"
CALLS: Any = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "type": "function",
            "id": CALL_ID,
            "function": {"name": "look_up", "arguments": '{"key": "alpha"}'},
        }
    ],
}
RESULT = {"role": "tool", "tool_call_id": CALL_ID, "content": "alpha is A-7193."}
THOUGHTS = {**CALLS, "reasoning_content": "Hm."}
URLS = [
    f"data:image/png;base64,{base64.b64encode(noise(*size)).decode()}" for size in PICTURES.values()
]
SHOWN = {
    "role": "user",
    "content": [
        {"type": "text", "text": USER["content"]},
        *({"type": "image_url", "image_url": {"url": url}} for url in URLS),
    ],
}
BARE: Body = {"messages": [USER]}
TOOLED: Body = {
    "messages": [SYSTEM, USER],
    "tools": [convert_to_openai_tool(tool) for tool in TOOLS],
    "temperature": 0.2,
    "parallel_tool_calls": False,
    "tool_choice": "required",
    "stream_options": {"include_usage": True},
    "prompt_cache_key": "mine",
    "frequency_penalty": 0.1,
}
BODIES: list[Body] = [
    TOOLED,
    {**BARE, "max_tokens": 5},
    {**BARE, "max_completion_tokens": 5},
    {**BARE, "store": False},
    {"messages": [SHOWN]},
    {"messages": [USER, CALLS, RESULT]},
    {"messages": [USER, THOUGHTS, RESULT]},
    {"messages": [USER, CALLS, RESULT, USER]},
    {"messages": [USER, USER]},
    {"messages": [USER, SYSTEM]},
]


def test_the_requests_are_such_as_servers_take() -> None:
    assert [complaint(body) for body in BODIES] == [None] * len(BODIES)


@pytest.mark.parametrize("animal", WITH_RULES, ids=lambda one: one.name)
def test_an_animal_refuses_what_it_is_there_for_and_takes_the_rest(animal: Animal) -> None:
    refusals = [animal.refuse(body) for body in BODIES]
    bodies = [one.body.removeprefix("data: ") for one in refusals if one is not None]
    assert bodies, "it refuses something"
    assert len(bodies) < len(BODIES), "and not all"
    assert all(json.loads(body) for body in bodies)
    assert animal.refuse(BARE) is None


@pytest.mark.parametrize("animal", ANIMALS.values(), ids=lambda one: one.name)
def test_what_a_model_writes_holds_the_calls_and_the_answer(animal: Animal) -> None:
    call = animal.manner(brain(TOOLED), 1)
    assert call.calls or ("look_up" in call.text and "alpha" in call.text)
    answer = animal.manner(brain({"messages": [USER, CALLS, RESULT]}), 2)
    assert "alpha is A-7193." in answer.text
    assert not answer.calls


@pytest.mark.parametrize(
    "name", ["mistral-ids", "anthropic-ids", "mistral-api", "gemini-3", "kimi"]
)
@pytest.mark.parametrize("number", [1, 12])
def test_a_server_takes_what_its_own_model_wrote(name: str, number: int) -> None:
    animal = ANIMALS[name]
    reply = replace(animal.manner(brain(TOOLED), number), reasoning="Hm." if name == "kimi" else "")
    message = completion(reply, "m", number)["choices"][0]["message"]
    results = [{**RESULT, "tool_call_id": call["id"]} for call in message["tool_calls"]]
    assert animal.refuse({"messages": [USER, message, *results]}) is None
