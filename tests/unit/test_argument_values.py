"""Arguments as models write them: read where the schema leaves one reading, else refused."""

from collections.abc import Mapping
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from typing_extensions import override

from openmanus_graph.runtime.tool_runtime import CallRuntime, JsonSchemaTool
from openmanus_graph.state.tool_traits import Observation, Traits
from openmanus_graph.state.validation import schema_problems
from openmanus_graph.tool_calls.arguments import as_meant

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "limit": {"type": "integer"},
        "share": {"type": "number"},
        "deep": {"type": "boolean"},
        "meta": {"type": "object"},
        "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "free": {},
        "row": {"anyOf": [{"$ref": "#/$defs/row"}, {"type": "null"}]},
        "old_row": {"allOf": [{"$ref": "#/$defs/row"}], "description": "Pydantic 1 writes so."},
        "level": {"enum": [1, 2, "off"]},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "loop": {"$ref": "#/$defs/loop"},
    },
    "required": ["path"],
    "$defs": {"row": {"type": "object", "properties": {"n": {"type": "integer"}}},
              "loop": {"anyOf": [{"$ref": "#/$defs/loop"}]}},
}  # fmt: skip


class ServerTool(JsonSchemaTool):
    """A tool as an MCP server describes it."""

    @override
    def problems(self, args: Mapping[str, Any]) -> list[str]:
        return list(schema_problems(SCHEMA, dict(args)))

    @override
    async def observe(self, args: Mapping[str, Any], runtime: CallRuntime) -> Observation:
        return Observation("done")


def tag(
    path: str, tags: list[str] | None = None, limit: int = 3, share: float = 0.5,
    deep: bool = False, meta: dict[str, int] | None = None, either: int | None = None,
) -> str:  # fmt: skip
    """Tag a file."""
    return "done"


TOOLS: dict[str, BaseTool] = {
    "a server's": ServerTool(name="tag", description="d", parameters=SCHEMA, traits=Traits()),
    "a function": StructuredTool.from_function(tag),
    "a schema": StructuredTool.from_function(tag, name="tag", args_schema=SCHEMA),
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"tags": '["x", "y"]'}, {"tags": ["x", "y"]}),
        ({"tags": "['x', 'y']"}, {"tags": ["x", "y"]}),
        ({"tags": '"[\\"x\\"]"'}, {"tags": ["x"]}),
        ({"tags": " [] "}, {"tags": []}),
        ({"tags": [1, "y"]}, {"tags": ["1", "y"]}),
        ({"limit": "5"}, {"limit": 5}),
        ({"limit": 5.0}, {"limit": 5}),
        ({"limit": "5.0"}, {"limit": 5}),
        ({"limit": '"5"'}, {"limit": 5}),
        ({"share": "0.25"}, {"share": 0.25}),
        ({"share": "1"}, {"share": 1}),
        ({"deep": "true"}, {"deep": True}),
        ({"deep": "True"}, {"deep": True}),
        ({"tags": "('a', 'b')"}, {"tags": ["a", "b"]}),
        ({"deep": "false"}, {"deep": False}),
        ({"meta": '{"k": 1}'}, {"meta": {"k": 1}}),
        ({"meta": "{'k': 1}"}, {"meta": {"k": 1}}),
        ({"limit": None, "deep": None}, {}),
        ({"either": "7"}, {"either": 7}),
        ({"either": None}, {"either": None}),
        ({"explanation": "To tag it."}, {}),
        ({"reasoning": "Because."}, {}),
        ({"path": 7}, {"path": "7"}),
        # These have one reading already, or none.
        ({"path": "[1, 2]"}, {"path": "[1, 2]"}),
        ({"path": '"quoted"'}, {"path": '"quoted"'}),
        ({"tags": "x, y"}, {"tags": "x, y"}),
        ({"tags": "{'a': 1}"}, {"tags": "{'a': 1}"}),
        ({"limit": "many"}, {"limit": "many"}),
        ({"limit": 5.5}, {"limit": 5.5}),
        ({"limit": True}, {"limit": True}),
        ({"deep": 1}, {"deep": 1}),
        ({"deep": "yes"}, {"deep": "yes"}),
        ({"meta": "[1]"}, {"meta": "[1]"}),
        ({"meta": "__import__('os')"}, {"meta": "__import__('os')"}),
        ({"tags": "[" * 100_000}, {"tags": "[" * 100_000}),
        ({"unknown": "x"}, {"unknown": "x"}),
        ({"path": None}, {"path": None}),
    ],
)
def test_a_value_is_read_as_the_schema_allows_it(
    tool: str, given: dict[str, Any], meant: dict[str, Any]
) -> None:
    whole = {"path": "a", **given}
    assert as_meant(TOOLS[tool], whole) == {"path": "a", **meant}
    assert whole == {"path": "a", **given}


def test_parts_of_a_value_are_read_too() -> None:
    given = {"path": "a", "rows": '[{"n": "1"}, "{\\"n\\": 2}"]', "free": "[1]"}
    assert as_meant(TOOLS["a server's"], given) == {
        "path": "a", "rows": [{"n": 1}, {"n": 2}], "free": "[1]",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"row": '{"n": "1"}'}, {"row": {"n": 1}}),
        ({"old_row": "{'n': 1}"}, {"old_row": {"n": 1}}),
        ({"counts": '{"a": "1"}'}, {"counts": {"a": 1}}),
        ({"level": "off"}, {"level": "off"}),
        ({"loop": "[1]"}, {"loop": "[1]"}),
    ],
)
def test_references_and_open_objects_are_followed(
    given: dict[str, Any], meant: dict[str, Any]
) -> None:
    assert as_meant(TOOLS["a server's"], {"path": "a", **given}) == {"path": "a", **meant}


def test_a_list_of_values_says_their_types() -> None:
    schema = {"properties": {"n": {"enum": [1, 2]}}}
    tool = ServerTool(name="t", description="d", parameters=schema, traits=Traits())
    assert as_meant(tool, {"n": "2"}) == {"n": 2}


@pytest.mark.parametrize("others", [True, {}, {"type": "string"}])
def test_a_comment_is_kept_if_the_schema_takes_other_arguments(others: Any) -> None:
    schema: dict[str, Any] = {"properties": {"n": {}}, "additionalProperties": others}
    tool = ServerTool(name="t", description="d", parameters=schema, traits=Traits())
    assert as_meant(tool, {"note": "y"}) == {"note": "y"}


def test_an_argument_that_a_tool_has_is_no_comment() -> None:
    def decide(reason: str, note: str = "") -> str:
        """Decide."""
        return reason

    given = {"reason": "x", "note": "y"}
    assert as_meant(StructuredTool.from_function(decide), given) == given


@pytest.mark.parametrize("schema", [{}, {"properties": True}, {"properties": {"a": True}},
                                    {"properties": {"a": {"$ref": "#/x/y"}}},
                                    {"properties": {"a": {"type": ["object", 5]}}},
                                    {"properties": {"a": {"anyOf": "x"}}}])  # fmt: skip
def test_a_schema_of_any_shape_is_survived(schema: dict[str, Any]) -> None:
    tool = ServerTool(name="t", description="d", parameters=schema, traits=Traits())
    assert as_meant(tool, {"a": "[1]"}) in ({"a": "[1]"}, {"a": [1]})
