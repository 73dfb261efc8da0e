"""The limits of a run: which forbids the next call, which is near, and what is said of them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.graph import START, StateGraph

from openmanus_graph.model_calls.budget import SharedBudget, keeps_summary_reserve, sharing
from openmanus_graph.runtime.limits import (
    Progress,
    most_used_limit,
    reached_limit,
    run_limits,
    time_left_s,
    unless_stopped,
)
from openmanus_graph.state.addresses import DatabaseUrl
from openmanus_graph.state.manus import ManusState, no_usage
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.settings import SandboxSettings, Settings

CALL = 0.1
"""Dollars; the same call takes 100 tokens."""


def limited(**limits: Any) -> Settings:
    return Settings(
        main=ModelSettings("openai:x"), vision=None, workspace=Path("/w"), home=Path("/w"),
        database=DatabaseUrl.in_folder(Path("/w")),
        private=Path("/w/private"), protected=(), sandbox=SandboxSettings(),
        max_steps=10, max_cost_usd=3.0, **limits,
    )  # fmt: skip


def progress(steps: int = 0, dollars: float = 0, tokens: int = 0, seconds: float = 0) -> Progress:
    return Progress(steps, {**no_usage(), "cost_usd": dollars, "input_tokens": tokens}, seconds)


STEP, CLOSING = progress(1, CALL, 100), progress(0, CALL, 100)


@pytest.mark.parametrize(
    ("done", "call", "setting"),
    [
        (progress(9), "step", None),
        (progress(10), "step", "max_steps"),
        (progress(10), "closing", None),
        (progress(tokens=900), "part", None),
        (progress(tokens=901), "part", "max_total_tokens"),
        (progress(tokens=800), "step", None),
        (progress(tokens=801), "step", "max_total_tokens"),
        (progress(tokens=900), "closing", None),
        (progress(tokens=901), "closing", "max_total_tokens"),
        (progress(dollars=2.85), "part", None),
        (progress(dollars=2.95), "part", "max_cost_usd"),
        (progress(dollars=2.85), "step", "max_cost_usd"),
        (progress(seconds=89), "step", None),
        (progress(seconds=90), "step", None),
        (progress(seconds=91), "step", "timeout_s"),
        (progress(seconds=91), "closing", None),
        (progress(seconds=100), "closing", "timeout_s"),
    ],
)
def test_a_call_is_made_if_it_fits_beside_the_final_summary(
    done: Progress, call: str, setting: str | None
) -> None:
    settings = limited(max_total_tokens=1000, timeout_s=100)
    next_call = CLOSING if call == "closing" else STEP
    limit = reached_limit(done, settings, next_call, keeps_reserve=call == "step")
    assert (limit and limit.setting) == setting


@pytest.mark.parametrize(
    ("done", "reported"),
    [
        (progress(6), []),
        (progress(7), ["3 of 10 steps, this one included"]),
        (progress(dollars=2.5), []),
        (progress(dollars=2.61234), ["$0.3877 of $3"]),
        (progress(tokens=600), []),
        (progress(tokens=601), ["399 of 1000 tokens"]),
        (progress(seconds=89), []),
        (progress(seconds=91.5), ["8.5 of 100 seconds"]),
    ],
)
def test_near_a_limit_it_is_said_what_is_left(done: Progress, reported: list[str]) -> None:
    limits = run_limits(done, limited(max_total_tokens=1000, timeout_s=100), STEP)
    assert [limit.left_words() for limit in limits if limit.is_near()] == reported


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (
            progress(3, tokens=1000),
            "The run stopped at its limit of 1000 tokens. It continues with a higher "
            "max_total_tokens.",
        ),
        (
            progress(3, tokens=950),
            "The run stopped at its limit of 1000 tokens: 50 tokens are left, and the next model "
            "call takes about 100 tokens. It continues with a higher max_total_tokens.",
        ),
        (
            progress(3, dollars=2.95),
            "The run stopped at its limit of $3: $0.05 are left, and the next model call takes "
            "about $0.1. It continues with a higher max_cost_usd.",
        ),
        (
            progress(10),
            "The run stopped at its limit of 10 model calls. It continues with a higher max_steps.",
        ),
    ],
)
def test_it_is_said_which_limit_ended_a_run(done: Progress, text: str) -> None:
    limit = reached_limit(done, limited(max_total_tokens=1000), STEP)
    assert limit is not None
    assert limit.text(steps="model calls") == text


def test_what_is_no_step_may_follow_the_last_step() -> None:
    assert reached_limit(progress(10), limited()) is not None
    assert reached_limit(progress(10), limited(), CLOSING) is None


def test_a_budget_too_small_for_a_call_is_named() -> None:
    limit = reached_limit(progress(), limited(max_total_tokens=99), STEP)
    assert limit is not None
    assert "its limit of 99 tokens is too small for one model call, which takes" in limit.text()
    used = most_used_limit("budget", progress(), limited(max_total_tokens=99))
    assert "its limit of 99 tokens is too small for one model call. It" in used.text()


def test_of_two_budgets_the_more_used_one_is_named() -> None:
    settings = limited(max_total_tokens=1000)
    assert most_used_limit("budget", progress(tokens=500), settings).setting == "max_total_tokens"
    mostly_dollars = progress(tokens=500, dollars=2)
    assert most_used_limit("budget", mostly_dollars, settings).setting == "max_cost_usd"


@pytest.mark.parametrize(
    ("timeout_s", "keeps_reserve", "left_s"),
    [(None, True, None), (100, False, 60), (100, True, 50), (1000, True, 930)],
)
def test_of_the_time_a_tenth_is_kept_at_most_30_s(
    timeout_s: float | None, keeps_reserve: bool, left_s: float | None
) -> None:
    assert (
        time_left_s(progress(seconds=40), limited(timeout_s=timeout_s), keeps_reserve=keeps_reserve)
        == left_s
    )


def test_a_run_that_has_begun_and_is_no_part_of_a_tree_keeps_a_reserve() -> None:
    assert (keeps_summary_reserve(0), keeps_summary_reserve(1)) == (False, True)
    with sharing(SharedBudget(limited(), progress())):
        assert not keeps_summary_reserve(1)


async def test_a_call_that_is_given_up_has_stopped_before_the_next_one_begins() -> None:
    done: list[str] = []

    async def call() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for _ in range(3):
                await asyncio.sleep(0)
            done.append("stopped")

    async def act(state: ManusState) -> dict[str, Any]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await unless_stopped(call(), read_only=True)
        done.append("the next one")
        return {}

    graph: Any = StateGraph(ManusState).add_sequence([act]).add_edge(START, "act").compile()
    await graph.ainvoke({"messages": []})
    assert done == ["stopped", "the next one"]
