"""`response_format`: the form that a caller wants a run's answer in."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic import BaseModel
from pydantic.errors import PydanticUserError

from openmanus_graph.errors import ConfigError
from openmanus_graph.state.validation import schema_defect

if TYPE_CHECKING:
    from openmanus_graph.conversation.outcome import ResponseFormat

_ACCEPTED = (
    'Give a JSON schema such as {"type": "object", "properties": {...}}, the form that OpenAI\'s '
    'API takes, {"type": "json_schema", "json_schema": {"schema": {...}}}, or the class of a '
    "pydantic model."
)
_WRAPPING = {"type", "name", "description", "strict", "schema"}
"""What stands around a schema in that form, or in the one of OpenAI's newer API."""


def read_response_format(given: Any) -> "ResponseFormat | None":  # unchecked, as the caller gave it
    """Return the format's bare JSON schema or model. ConfigError says why it is neither."""
    if given is None:
        return None
    if isinstance(given, type) and issubclass(given, BaseModel):
        try:
            given.model_json_schema()
        except PydanticUserError as error:
            raise _wrong(f"{given.__name__} has no JSON schema ({error.message})") from error
        return given
    if not isinstance(given, Mapping):
        raise _wrong(f"is no dict and no model, but {given!r:.60}")
    schema = _unwrapped(cast("Mapping[str, Any]", given))
    if defect := schema_defect(schema):
        raise _wrong(defect)
    return schema


def _wrong(what: str) -> ConfigError:
    return ConfigError(f"response_format {what}. {_ACCEPTED}")


def _unwrapped(given: Mapping[str, Any]) -> dict[str, Any]:
    holder: Any = given
    if "json_schema" in given:
        holder = given["json_schema"]
    elif given.get("type") != "json_schema" and ("schema" not in given or set(given) - _WRAPPING):
        return dict(given)
    schema: Any = cast("Any", holder).get("schema") if isinstance(holder, Mapping) else None
    if isinstance(schema, Mapping):
        return dict(cast("Mapping[str, Any]", schema))
    raise _wrong(f"has no schema in its {'json_schema' if holder is not given else 'wrapping'}")
