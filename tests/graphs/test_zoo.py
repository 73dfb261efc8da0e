"""No server of the zoo stops a thread: each one in each situation, with the real client."""

import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from tests.support.graphs import Ran
from tests.support.sampling import sampled
from tests.support.zoo import ANIMALS, HALF, OTHER, UPGRADED
from tests.support.zoo_runs import PICTURES, UserInput, person
from tests.support.zoo_server import Animal, ZooServer
from tests.support.zoo_tasks import LIMIT_ANSWER, TASKS

MOST_REQUESTS = 25
"""Of a run that no server answers: there are fewer rules to try."""


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")


# ---- situations


async def fresh(who: UserInput, server: ZooServer) -> Ran:
    return await who.ask(server, "fresh")


async def follow_up(who: UserInput, server: ZooServer) -> Ran:
    answered(await who.ask(server, "fresh"), "fresh")
    return await who.ask(server, "more")


async def untrusted(who: UserInput, server: ZooServer) -> Ran:
    with ZooServer(OTHER) as other:
        answered(await who.ask(other, "fresh"), "fresh")
    return await who.ask(server, "more")


async def fallback(who: UserInput, server: ZooServer) -> Ran:
    with ZooServer(OTHER, out_of_quota_after=1) as other:
        return await who.ask(other, "fresh", fallback=server)


async def picture(who: UserInput, server: ZooServer) -> Ran:
    return await who.ask(server, "picture", images=PICTURES)


async def views(who: UserInput, server: ZooServer) -> Ran:
    return await who.ask(server, "views")


async def steered(who: UserInput, server: ZooServer) -> Ran:
    return await who.ask(server, "steered")


async def limit(who: UserInput, server: ZooServer) -> Ran:
    return await who.ask(server, "limit", max_steps=2)


async def plan(who: UserInput, server: ZooServer) -> Ran:
    return await who.ask(server, "plan", planned=True)


async def subagent(who: UserInput, server: ZooServer) -> Ran:
    return await who.ask(server, "subagent")


Situation = Callable[[UserInput, ZooServer], Awaitable[Ran]]
SITUATIONS: dict[Situation, str] = {
    fresh: TASKS["fresh"].answer,
    follow_up: TASKS["more"].answer,
    untrusted: TASKS["more"].answer,
    fallback: TASKS["fresh"].answer,
    picture: TASKS["picture"].answer,
    views: TASKS["views"].answer,
    steered: TASKS["steered"].answer,
    limit: LIMIT_ANSWER,
    plan: TASKS["plan"].answer,
    subagent: TASKS["subagent"].answer,
}
"""And what the thread's last answer is then."""
TELLING: dict[str, Situation] = {
    "plain": fresh,
    "thoughts": untrusted,
    "schemas": fresh,
    "roles": limit,
    "ids": untrusted,
    "signatures": fallback,
    "parameters": plan,
    "pictures": picture,
    "windows": fresh,
    "thoughts in text": follow_up,
    "calls as text": fresh,
    "bad input": untrusted,
}
"""Where a topic's animals are met as they are."""
SURVIVABLE = [one for one in ANIMALS.values() if one.survivable]
PAIRS = list(itertools.product(SURVIVABLE, SITUATIONS))
OTHERS = [one for one in ANIMALS.values() if not one.survivable]


def answered(ran: Ran, task: str) -> None:
    assert (ran.values["status"], ran.values["answer"]) == ("finished", TASKS[task].answer)


def named(thing: object) -> str:
    return str(getattr(thing, "name", None) or getattr(thing, "__name__", thing))


def survived(ran: Ran, situation: Situation, server: ZooServer) -> None:
    """Fail where the thread has no answer, or the server was asked too often."""
    wanted = "stopped" if situation is limit else "finished"
    found = ran.values["status"], ran.values["answer"]
    assert found == (wanted, SITUATIONS[situation]), server.refusals
    assert len(server.refusals) <= server.animal.changes, server.refusals
    assert len(server.requests) > len(server.refusals), "it was asked"


@pytest.mark.parametrize(("animal", "situation"), sampled(PAIRS, 40, "zoo", rows=True), ids=named)
@pytest.mark.slow
async def test_the_thread_gets_its_answer(animal: Animal, situation: Situation) -> None:
    with ZooServer(animal) as server:
        async with person() as who:
            survived(await situation(who, server), situation, server)


@pytest.mark.parametrize("animal", SURVIVABLE, ids=named)
@pytest.mark.slow
async def test_what_a_server_refused_once_it_is_not_sent_again(animal: Animal) -> None:
    situation = TELLING[animal.topic]
    with ZooServer(animal) as server:
        async with person() as who:
            survived(await situation(who, server), situation, server)
        known = len(server.refusals)
        async with person() as another:
            survived(await situation(another, server), situation, server)
        assert len(server.refusals) == known, server.refusals[known:]


# ---- bad input


@pytest.mark.parametrize("animal", OTHERS, ids=named)
async def test_a_server_that_takes_nothing_ends_the_run_and_not_the_thread(animal: Animal) -> None:
    async with person() as who:
        with ZooServer(animal) as server:
            ran = await who.ask(server, "fresh")
            assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
            assert 1 <= len(server.refusals) <= MOST_REQUESTS
            assert animal.name in ran.values["answer"], "it names the model"
            said = [one.body for one in server.refusals]
            assert any(_words(ran) & set(body.split()) for body in said), "and what it said"
        with ZooServer(OTHER) as good:
            answered(await who.ask(good, "more"), "more")


def _words(ran: Ran) -> set[str]:
    return {word for word in ran.values["answer"].split() if len(word) > 4}


async def test_what_the_moody_one_said_holds_nobody_back_when_it_is_in_its_senses() -> None:
    async with person() as who:
        with ZooServer(ANIMALS["moody"]) as server:
            await who.ask(server, "fresh")
            server.animal = replace(server.animal, moods=())
            answered(await who.ask(server, "more"), "more")


async def test_a_server_that_wants_the_contrary_after_an_upgrade_is_learnt_anew() -> None:
    with ZooServer(ANIMALS["deepseek-v4"]) as server:
        async with person() as who:
            answered(await untrusted(who, server), "more")
        before = len(server.refusals)
        server.refuse = UPGRADED.refuse
        async with person() as another:
            answered(await untrusted(another, server), "more")
        after = len(server.refusals)
        assert after - before <= 1, server.refusals[before:]
        async with person() as third:
            answered(await untrusted(third, server), "more")
        assert len(server.refusals) == after, server.refusals[after:]


async def test_what_one_model_refuses_is_sent_to_another_of_the_same_server() -> None:
    thinking = ANIMALS["deepseek-v4"]
    with ZooServer(replace(thinking, refuse=UPGRADED.refuse, model="plain-chat")) as server:
        async with person() as who:
            answered(await untrusted(who, server), "more")
        server.refuse, server.animal = thinking.refuse, thinking
        async with person() as another:
            answered(await untrusted(another, server), "more")
        thoughts = [m["reasoning_content"] for m in server.requests[-1].messages if _is_reply(m)]
        assert thoughts, "they are back"


def _is_reply(message: dict[str, object]) -> bool:
    return message["role"] == "assistant"


async def test_a_model_gets_its_own_thoughts_back_as_it_wrote_them() -> None:
    with ZooServer(ANIMALS["deepseek-v4"]) as server:
        async with person() as who:
            answered(await follow_up(who, server), "more")
        sent = [m["reasoning_content"] for m in server.requests[-1].messages if _is_reply(m)]
        assert [bool(thought) for thought in sent] == [True, False, True, False]


async def test_half_a_thought_is_no_answer() -> None:
    with ZooServer(HALF) as server:
        async with person() as who:
            answered(await who.ask(server, "fresh"), "fresh")


# ---- windows


@pytest.mark.parametrize("animal", ["ollama", "lm-studio", "llama-window"])
@pytest.mark.slow
async def test_a_window_that_is_smaller_than_thought_is_seen(animal: str) -> None:
    with ZooServer(ANIMALS[animal]) as server:
        async with person() as who:
            ran = await who.ask(server, "files", filler=12_000)
        answered(ran, "files")
        assert len(server.refusals) <= 1
        reported = [event["text"] for event in ran.events if event["type"] == "notice"]
        if animal == "lm-studio":  # it says nothing of its window
            assert any("context" in text and "tokens" in text for text in reported), reported
