"""What the MCP client decides by pure functions: names, schemas, answers, and what is loaded."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from httpx2 import ConnectError
from mcp_types import ElicitResult, InitializeResult
from pydantic import ValidationError

from openmanus_graph import Context, MCPServer
from openmanus_graph.backends.mcp.calls import question_text, read_answer
from openmanus_graph.backends.mcp.failures import Diagnostics
from openmanus_graph.backends.mcp.listed_tools import (
    MAX_CHARS,
    RecordedTool,
    for_models,
    is_schema,
    sanitize_text,
)
from openmanus_graph.backends.mcp.tool import MAX_NAME_CHARS, tool_name
from openmanus_graph.backends.mcp.transports import Client
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.state.tool_traits import Traits

pytestmark = pytest.mark.slow


def problems(schema: dict[str, Any], args: dict[str, Any]) -> list[str]:
    """Check arguments as a server's tool does."""
    tool = RecordedTool(
        name="t", description="", parameters={}, traits=Traits(), argument_schema=schema
    )
    return tool.problems(args)


def test_names_are_readable_valid_short_stable_and_never_shared() -> None:
    assert tool_name("time", "now") == "mcp_time_now"
    odd = [("a" * 80, "x"), ("a" * 80, "y"), ("ä b", "c/d"), ("ö b", "c/d"), ("s", "t" * 90)]
    names = [tool_name(*one) for one in odd]
    assert len(set(names)) == len(odd)
    assert all(len(name) <= MAX_NAME_CHARS for name in names)
    assert all(name.replace("_", "").replace("-", "").isascii() for name in names)
    assert names == [tool_name(*one) for one in odd]
    first = tool_name("a", "b_c")
    second = tool_name("a_b", "c", {first})
    assert first == "mcp_a_b_c"
    assert second.startswith("mcp_a_b_c_")


def test_schemas_are_made_fit_for_models_and_checked_as_they_are() -> None:
    schema: dict[str, Any] = {
        "$ref": "#/$defs/Args",
        "$defs": {
            "Args": {
                "type": "object",
                "properties": {"kind": {"$ref": "#/$defs/Kind"}, "pattern": {"type": "string"}},
                "required": ["kind"],
            },
            "Kind": {"enum": ["a", "b"]},
        },
    }
    shown = for_models(schema)
    assert shown["type"] == "object"
    assert "$ref" not in shown
    assert shown["properties"]["kind"] == {"$ref": "#/$defs/Kind"}
    assert shown["required"] == ["kind"]
    assert not problems(schema, {"kind": "a"})
    assert problems(schema, {"kind": "c"})


@pytest.mark.parametrize(
    "schema", [None, 7, [], {"type": "string"}, {"type": 7}, {"properties": "x"}, {"type": "obj"}]
)
def test_what_is_no_schema_is_distinguished_from_what_is_one(schema: object) -> None:
    assert not is_schema(schema)
    assert is_schema({})


def test_hostile_schemas_neither_hang_nor_fetch_nor_raise() -> None:
    slow = {"properties": {"a": {"type": "string", "pattern": "(a+)+$"}}}
    assert not problems(slow, {"a": "a" * 60 + "!"})
    assert not problems({"$ref": "http://127.0.0.1:9/schema"}, {"a": 1})
    assert not problems({"$ref": "#"}, {"a": 1})
    assert (
        for_models({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}})["properties"] == {}
    )
    huge = {
        "properties": {f"p{n}": {"type": "string", "description": "x" * 500} for n in range(150)}
    }
    assert len(str(for_models(huge))) < MAX_CHARS
    assert len(for_models(huge)["properties"]) == 150


def test_descriptions_are_cut_and_cannot_hide_anything() -> None:
    assert sanitize_text("a\x1b[31mb\u202ec\u200bd") == "a[31mbcd"
    assert len(sanitize_text("x" * 9000)) < 2100


def elicited(**properties: Any) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return SimpleNamespace(message="Well?", requested_schema=schema)


@pytest.mark.parametrize(
    ("params", "value", "expected"),
    [
        (elicited(n={"type": "integer"}), "3", ElicitResult(action="accept", content={"n": 3})),
        (
            elicited(b={"type": "boolean"}),
            "no",
            ElicitResult(action="accept", content={"b": False}),
        ),
        (elicited(s={"type": "string"}), "decline", ElicitResult(action="decline")),
        (
            elicited(s={"type": "string"}),
            {"decisions": [{"type": "reject"}]},
            ElicitResult(action="decline"),
        ),
        (elicited(), "yes", ElicitResult(action="accept", content={})),
        (
            elicited(a={"type": "string"}, b={"type": "number"}),
            '{"a": "x", "b": 1.5}',
            ElicitResult(action="accept", content={"a": "x", "b": 1.5}),
        ),
        (
            elicited(a={"type": "string", "default": "x"}, b={"type": "number", "default": 2}),
            '{"b": 3}',
            ElicitResult(action="accept", content={"a": "x", "b": 3}),
        ),
        (SimpleNamespace(message="Go", url="http://x"), "done", ElicitResult(action="accept")),
    ],
)
def test_a_persons_words_become_a_servers_answer(
    params: Any, value: Any, expected: ElicitResult
) -> None:
    assert read_answer(params, value) == expected


NAMED = elicited(a={"type": "string", "default": "x"}, b={"type": "number", "default": 2})


@pytest.mark.parametrize("empty", ["", " ", {"answer": ""}])
def test_an_empty_answer_takes_the_defaults(empty: Any) -> None:
    taken = ElicitResult(action="accept", content={"a": "x", "b": 2})
    assert read_answer(NAMED, empty) == taken
    one = elicited(n={"type": "integer", "default": 3})
    assert read_answer(one, empty) == ElicitResult(action="accept", content={"n": 3})
    assert "Answer nothing to take the default." in question_text("s", "t", one, "")
    assert "answer nothing to leave all out" in question_text("s", "t", NAMED, "")


def test_an_empty_answer_is_none_where_there_are_no_defaults_or_a_field_is_needed() -> None:
    assert isinstance(read_answer(elicited(a={}, b={}), ""), str)
    needed = elicited(a={"type": "string", "default": "x"}, b={"type": "number"})
    needed.requested_schema["required"] = ["b"]
    assert isinstance(read_answer(needed, ""), str)
    assert isinstance(read_answer(NAMED, {"unknown": 1}), str)


def test_an_answer_that_does_not_fit_is_said_to_be_wrong() -> None:
    assert isinstance(read_answer(elicited(n={"type": "integer"}), "many"), str)
    assert isinstance(read_answer(elicited(a={}, b={}), "just text"), str)
    form = elicited(
        n={"enum": ["x", "y"]},
        m={"type": "array", "items": {"anyOf": [{"const": "z"}]}},
        e={"type": "string", "format": "email"},
        anything=True,
    )
    text = question_text("s", "t", form, "a JSON object is needed")
    assert "That cannot be passed on" in text
    for words in ("one of x, y", "some of z", "e (email, required)", "anything (value"):
        assert words in text
    assert "gets its default" not in text
    usual = elicited(a={"default": "x"}, b={})
    assert "What you leave out gets its default;" in question_text("s", "t", usual, "")
    odd = SimpleNamespace(message="Well?", requested_schema={"properties": "x"})
    assert "Answer yes, or decline" in question_text("s", "t", odd, "")
    assert read_answer(odd, "yes") == ElicitResult(action="accept", content={})


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "SSL_CERT_FILE"),
        ("[SSL: WRONG_VERSION_NUMBER] wrong version number", "speaks http, not https"),
        ("All connection attempts failed", "that the server runs"),
    ],
)
def test_what_a_failed_connection_says_fits_its_cause(said: str, hint: str) -> None:
    server = MCPServer("shop", url="https://shop.example/mcp")
    diagnostics = Diagnostics(server, client=Client(server))
    assert diagnostics.client is not None
    diagnostics.client.last_failure = ConnectError(said)
    assert hint in str(diagnostics.to_server_error(RuntimeError()))


def test_an_answer_that_is_none_is_described() -> None:
    with pytest.raises(ValidationError) as caught:
        InitializeResult.model_validate({"nonsense": 1})
    reported = str(Diagnostics(MCPServer("shop", command="shop")).to_server_error(caught.value))
    assert reported.startswith("failed: its answer does not follow the protocol (")
    assert "protocolVersion: Field required" in reported


def test_servers_of_all_files_are_merged_and_the_most_important_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "t0")
    home = tmp_path / "config" / "openmanus"
    home.mkdir(parents=True)
    (home / "mcp.json").write_text(
        '{"mcpServers": {"a": {"command": "theirs"}, "b": {"type": "streamable-http",'
        ' "url": "http://h/${TOKEN}", "headers": {"X": "${NONE:-none}"}}}}'
    )
    mine = tmp_path / "mine.toml"
    mine.write_text('[mcp.servers.a]\ncommand = "mine"\nargs = [1]\ntimeout = 5\nallow = ["x*"]\n')
    context = Context(model="openai:m", base_url="http://127.0.0.1:9", config=str(mine))
    a, b = resolve_settings(context, "t").mcp_servers
    assert a == MCPServer("a", command="mine", args=("1",), timeout_s=5, allow=("x*",))
    assert (b.url, b.transport, dict(b.headers)) == ("http://h/t0", "http", {"X": "none"})
    assert "t0" not in repr(MCPServer("c", url="http://h", headers={"X": "t0"}))


def test_without_servers_no_mcp_module_is_loaded() -> None:
    code = (
        "import asyncio, sys\n"
        "from openmanus_graph import build_manus_graph\n"
        "from openmanus_graph.testing import ScriptedChatModel\n"
        "from openmanus_graph import Context\n"
        "graph = build_manus_graph()\n"
        "context = Context(model=ScriptedChatModel(['done']), workspace='w')\n"
        "task = {'messages': [('user', 'x')]}\n"
        "print(asyncio.run(graph.ainvoke(task, context=context))['answer'])\n"
        "print([m for m in sys.modules if m.partition('.')[0] in ('mcp', 'mcp_types')"
        " or m.startswith('openmanus_graph.backends.mcp')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["done", "[]"]


def test_without_a_secret_of_its_own_the_client_loads_no_cryptography_for_logins() -> None:
    code = (
        "import sys\n"
        "from openmanus_graph.tool_calls.agent import load_client\n"
        "load_client()\n"
        "print([m for m in sys.modules if m == 'jwt' or m.endswith('client_credentials')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
