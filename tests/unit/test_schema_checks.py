"""Checks of values against JSON schemas that somebody else wrote."""

from typing import Any

import pytest

from openmanus_graph.state.validation import schema_defect, schema_problems

pytestmark = pytest.mark.slow

SLOW = "^(a|a)*$"
DRAFT = "http://json-schema.org/draft-07/schema#"
TEXT = {"type": "string", "pattern": SLOW}


def doubling(word: str) -> dict[str, Any]:
    """Make a schema whose parts each refer to the next one twice."""
    parts = {f"p{n}": {word: [{"$ref": f"#/$defs/p{n + 1}"}] * 2} for n in range(40)}
    return {"$defs": {**parts, "p40": {"type": "integer"}}, "$ref": "#/$defs/p0"}


SCHEMAS: list[dict[str, Any]] = [
    TEXT,
    {"$schema": DRAFT, **TEXT},
    {"allOf": [{"$schema": DRAFT, **TEXT}]},
    {"$ref": "#/default", "default": {"$id": "x:y", "$schema": DRAFT, **TEXT}},
    {"patternProperties": {SLOW: {}}},
    {"patternProperties": {SLOW: {}}, "additionalProperties": False},
    {"allOf": [{"patternProperties": {SLOW: {}}}], "unevaluatedProperties": False},
    {"propertyNames": {"pattern": SLOW}},
]


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.timeout(30)
def test_no_regular_expression_of_a_schema_is_run(schema: dict[str, Any]) -> None:
    assert not schema_defect(schema)
    word = "a" * 48 + "!"
    assert not schema_problems(schema, {word: 1} if "ropert" in str(schema) else word)


@pytest.mark.parametrize("word", ["anyOf", "allOf"])
@pytest.mark.timeout(60)
def test_parts_that_refer_to_each_other_twice_end(word: str) -> None:
    assert "50000 steps" in schema_defect(doubling(word))
    assert "50000 steps" in schema_problems(doubling(word), "x")[0]


def test_the_rest_of_a_schema_is_checked() -> None:
    schema: dict[str, Any] = {
        "properties": {"pattern": {"enum": [{"pattern": "a"}]}, "n": {"$ref": "#/$defs/n"}},
        "additionalProperties": False,
        "$defs": {"n": {"type": "integer", "$schema": DRAFT}},
    }
    assert not schema_problems(schema, {"pattern": {"pattern": "a"}, "n": 1})
    assert len(schema_problems(schema, {"pattern": 1, "n": "x", "more": 1})) == 3
    many = {"items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}
    assert not schema_problems(many, list(range(20_000)))
