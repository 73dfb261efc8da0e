"""Models that stand in for others, and models of roles."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import ConfigError, Context, build_manus_graph, build_planning_graph
from openmanus_graph.backends.models.build import close_models, prepare_model
from openmanus_graph.backends.models.failures import FailureKind, ModelError
from openmanus_graph.backends.models.spec import model_key
from openmanus_graph.config.files import declared, read_layer
from openmanus_graph.config.homes import risky_settings, without_risks
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.model_calls.run_models import (
    OUT_OF_SERVICE_S,
    RunModels,
    prepare_models,
    run_models,
)
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.model_settings import ModelSettings
from openmanus_graph.state.settings import Settings
from tests.graphs.test_compaction import answering, asks_for_summary, note
from tests.support.graphs import add, calls, run_graph, scripted
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer

GONE = ModelError("quota", "The first model is out of quota.")
ADD = ("add", {"a": 1, "b": 2})


def notices(ran: Any) -> list[str]:
    return [event["text"] for event in ran.events if event["type"] == "notice"]


@pytest.mark.parametrize("kind", ["retry", "quota", "not_found", "page"])
async def test_another_model_answers_where_the_first_one_cannot(kind: FailureKind) -> None:
    first = scripted(*[ModelError(kind, "It is gone.")] * 6)
    second = scripted(calls(ADD), "3")
    graph = build_manus_graph(tools=[add])
    ran = await run_graph(graph, model=first, fallback=(second,), model_options={"max_retries": 0})
    assert ran.values["answer"] == "3"
    assert len(first.requests) == 1, "it is not asked again soon"
    assert [event["model"] for event in ran.events if event["type"] == "think_end"] == [
        "scripted", "scripted"
    ]  # fmt: skip
    assert any("It is gone." in text and "is asked instead" in text for text in notices(ran))
    assert ran.values["usage"]["model_calls"] == 2
    assert ran.values["step_count"] == 2
    assert ran.kinds()[:2] == ["think_start", "think_start"], "tokens of the first are void"


@pytest.mark.parametrize("kind", ["bad_request", "auth", "content_filter"])
async def test_no_other_model_is_asked_where_the_request_or_the_key_is_wrong(
    kind: FailureKind,
) -> None:
    second = scripted("never")
    ran = await run_graph(
        build_manus_graph(tools=[add]),
        model=scripted(ModelError(kind, "No.")),
        fallback=(second,),
    )
    assert (ran.values["status"], ran.values["stop_reason"]) == ("failed", "error")
    assert second.requests == []


async def test_the_request_of_another_model_is_the_same() -> None:
    first, second = scripted(calls(ADD), GONE), scripted("3")
    await run_graph(build_manus_graph(tools=[add]), model=first, fallback=(second,))
    assert second.requests[0] == first.requests[1]
    assert second.options[0] == first.options[1]


async def test_the_models_are_asked_in_order_and_the_last_failure_is_reported() -> None:
    models = [scripted(ModelError("quota", f"Number {n} is out of quota.")) for n in range(3)]
    ran = await run_graph(
        build_manus_graph(tools=[add]), model=models[0], fallback=tuple(models[1:])
    )
    assert [len(model.requests) for model in models] == [1, 1, 1]
    assert ran.values["status"] == "failed"
    assert "Number 2" in ran.values["answer"]
    assert ["Number 0" in text or "Number 1" in text for text in notices(ran)] == [True, True]


def test_a_model_that_failed_is_passed_over_for_a_while_or_for_the_run() -> None:
    models, model = RunModels(settings_of(MAIN)), model_key(ModelSettings("openai:m"))
    models.pass_over(model, ModelError("retry", ""), now=10)
    assert models.is_out(model, now=69)
    assert not models.is_out(model, now=70)
    models.pass_over(model, ModelError("quota", ""), now=10)
    assert models.is_out(model, now=1e9)
    elsewhere = model_key(ModelSettings("openai:m", base_url="http://other.test"))
    assert not models.is_out(elsewhere, now=10)
    assert OUT_OF_SERVICE_S["not_found"] == math.inf


async def test_a_model_out_of_service_is_not_asked_in_the_next_step() -> None:
    first, second = scripted(GONE, "never"), scripted(calls(ADD), GONE)
    third = scripted("3")
    ran = await run_graph(build_manus_graph(tools=[add]), model=first, fallback=(second, third))
    assert ran.values["answer"] == "3"
    assert (len(first.requests), len(second.requests)) == (1, 2)


async def test_the_price_is_that_of_the_model_that_answered() -> None:
    with OpenAIServer([Reply(text="done")]) as server:
        spare = await prepare_model(ModelSettings("openai:gpt-4o", base_url=server.base_url))
        ran = await run_graph(build_manus_graph(), model=scripted(GONE), fallback=(spare,))
        await close_models()
    assert ran.values["usage"]["cost_usd"] > 0, "a scripted model costs nothing"
    assert [e["model"] for e in ran.events if e["type"] == "think_end"] == ["gpt-4o"]


async def test_a_smaller_window_of_the_next_model_is_kept() -> None:
    model = scripted(*[answering(60)] * 30, *[GONE] * 3)
    model.usage = None
    model.profile = {"max_input_tokens": 1_000_000}
    second = scripted(*[answering(3)] * 20)
    second.usage = None
    second.profile = {"max_input_tokens": 3000}
    ran = await run_graph(
        build_manus_graph(tools=[note], checkpointer=InMemorySaver()),
        model=model,
        fallback=(second,),
        task="Count the apples in every basket.",
        config={"configurable": {"thread_id": "t"}},
    )
    assert ran.values["answer"] == "done"
    assert any(asks_for_summary(request) for request in second.requests)
    sizes = [sum(len(m.text) for m in request) / 4 for request in second.requests]
    assert max(sizes) < 3000


async def test_thoughts_of_another_provider_are_not_sent_on() -> None:
    thought: list[Any] = [
        {"type": "thinking", "thinking": "Add.", "signature": "s"},
        {"type": "text", "text": "I add."},
    ]
    reply = AIMessage(
        thought,
        tool_calls=calls(ADD).tool_calls,
        response_metadata={"model_provider": "anthropic"},
    )
    with OpenAIServer([Reply(text="3")], strict=True) as server:
        spare = ModelSettings("openai:m2", base_url=server.base_url)
        first = scripted(reply, GONE)
        ran = await run_graph(
            build_manus_graph(tools=[add]), model=first, fallback=(await prepare_model(spare),)
        )
        await close_models()
        assert ran.values["answer"] == "3"
        assert server.requests[0].messages[2]["content"] == "I add."
        assert server.requests[0].messages[2]["tool_calls"]
    assert first.requests[1][2].content == thought, "its own are sent back"


async def test_a_role_is_asked_of_its_own_model_and_else_of_the_main_one() -> None:
    model = scripted(*[answering(60)] * 100)
    model.usage = None
    model.profile = {"max_input_tokens": 4000}
    notes = scripted(*["- noted so far"] * 20)
    ran = await run_graph(
        build_manus_graph(tools=[note], checkpointer=InMemorySaver()),
        model=model,
        roles={"compaction": notes},
        task="Count the apples.",
        config={"configurable": {"thread_id": "t"}},
    )
    assert ran.values["answer"] == "done"
    assert notes.requests
    assert not any(asks_for_summary(request) for request in model.requests)
    assert all(asks_for_summary(request) for request in notes.requests)


async def test_the_main_model_stands_in_for_the_model_of_a_role() -> None:
    model = scripted(*[answering(30)] * 60)
    model.usage = None
    model.profile = {"max_input_tokens": 4000}
    ran = await run_graph(
        build_manus_graph(tools=[note], checkpointer=InMemorySaver()),
        model=model,
        roles={"compaction": scripted(GONE)},
        task="Count the apples.",
        config={"configurable": {"thread_id": "t"}},
    )
    assert ran.values["answer"] == "done"
    assert any(asks_for_summary(request) for request in model.requests)


async def test_plans_and_their_checks_have_models_of_their_own() -> None:
    plan = scripted(
        calls(
            (
                "planning",
                {
                    "command": "create",
                    "title": "T",
                    "steps": [{"id": "a", "text": "Add.", "done_when": "It is added."}],
                },
            )
        )
    )
    check = scripted("yes")
    ran = await run_graph(
        build_planning_graph(),
        model=scripted("The sum is 3."),
        roles={"plan": plan, "check": check},
    )
    assert ran.values["answer"] == "The sum is 3."
    assert (len(plan.requests), len(check.requests)) == (1, 1)


def settings_of(text: str, **context: Any) -> Settings:
    Path("own.toml").write_text(text, encoding="utf-8")
    return resolve_settings(Context(config="own.toml", **context), "t")


MAIN = 'model = "openai:big"\nbase_url = "http://a.test/v1"\n'


def test_a_model_of_the_main_ones_provider_shares_its_server() -> None:
    settings = settings_of(
        f'{MAIN}[llm]\ncontext_window = 9\ntool_calling = "text"\nrequests_per_minute = 3\n'
        'fallback = ["openai:small", "anthropic:claude-sonnet-4-5"]\n'
    )
    small, claude = settings.fallback
    assert (small.base_url, small.context_window, small.vision) == ("http://a.test/v1", None, None)
    assert (small.tool_calling, small.requests_per_minute) == ("auto", 3)
    assert settings.main.tool_calling == "text"
    assert (claude.base_url, claude.requests_per_minute) == (None, None)


def test_a_profile_is_known_by_its_name() -> None:
    settings = settings_of(
        f'{MAIN}[llm]\nfallback = ["spare"]\n[llm.roles]\nextract = "spare"\nvision = "spare"\n'
        '[llm.profiles.spare]\nmodel = "openai:x"\nbase_url = "http://b.test/v1"\napi_key = "k"\n'
        "context_window = 7\ntokens_per_minute = 5\nmodel_options = { temperature = 0.1 }\n"
    )
    (spare,) = settings.fallback
    assert (spare.model, spare.base_url, spare.context_window) == (
        "openai:x", "http://b.test/v1", 7
    )  # fmt: skip
    assert spare.api_key is not None
    assert (spare.tokens_per_minute, spare.options) == (5, {"temperature": 0.1})
    assert settings.roles == {"extract": spare}
    assert settings.vision is not None
    assert (settings.vision.model, settings.vision.vision) == ("openai:x", True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '[llm]\nfallback = ["spare"]\n',
            r"\[llm\] fallback names the model 'spare'.*profiles.spa",
        ),
        ('[llm.roles]\nplan = "spare"\n', r"\[llm.roles\] plan names the model 'spare'"),
        ('[llm.profiles.a]\nbase_url = "http://b.test"\n', r"llm.profiles.a.model: Field required"),
        ('[llm]\nfallback = "openai:x"\n', "llm.fallback"),
        ("[llm]\nrequests_per_minute = 0\n", "requests_per_minute"),
        ('[llm]\ntool_calling = "json"\n', "tool_calling"),
    ],
)
def test_a_model_that_is_configured_wrong_is_named_at_once(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        settings_of(f"{MAIN}{text}")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nobody:x", "fallback: The model 'nobody:x' has the unknown provider"),
        ("anthropic:claude-sonnet-4-5", "fallback: No key for the model anthropic"),
    ],
)
async def test_a_fallback_that_cannot_be_asked_is_named_before_the_run(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    settings = settings_of(f'{MAIN}[llm]\nfallback = ["{name}"]\n')
    with pytest.raises(ConfigError, match=said):
        await prepare_models(settings)
    model = scripted("done")
    with pytest.raises(ConfigError, match=said):
        await build_manus_graph().ainvoke(
            {"messages": [HumanMessage("go")]}, context=Context(model=model, fallback=(name,))
        )
    assert model.requests == []


async def test_a_run_has_the_models_of_its_own_settings() -> None:
    first = settings_of(f"{MAIN}[llm]\ncontext_window = 1000\n")
    other = settings_of(f"{MAIN}[llm]\ncontext_window = 2000\n", model_options={"top_p": 0.5})
    session = Session("t", first)
    client = (await run_models(session).main()).client
    assert await run_models(session).window() == 1000
    assert (await run_models(session).main()).client is client
    session.configure(other)
    assert await run_models(session).window() == 2000
    other_client = (await run_models(session).main()).client
    assert other_client is await prepare_model(other.main) is not client
    await close_models()


def test_a_cloned_profile_that_reroutes_needs_trust() -> None:
    Path("openmanus.toml").write_text(
        '[llm.profiles.a]\nmodel = "openai:x"\nbase_url = "http://b.test"\n'
        '[llm.profiles.b]\nmodel = "openai:y"\nmodel_options = { default_headers = {} }\n'
        '[llm.profiles.c]\nmodel = "openai:z"\n'
    )
    layer = read_layer(Path("openmanus.toml"), None)
    assert layer is not None
    assert set(risky_settings(layer)["llm.profiles"]) == {"a", "b"}
    assert set(without_risks(layer).values["llm.profiles"]) == {"c"}
    assert json.dumps(sorted(declared())), "the names are plain"
