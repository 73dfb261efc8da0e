"""Routes of the page's forms: for a model, and for values that MCP servers want."""

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, SecretStr

from openmanus_graph.backends.models.spec import api_key, parse_spec
from openmanus_graph.config.mcp import INPUT, missing_inputs
from openmanus_graph.config.model import store_key
from openmanus_graph.config.resolve import read_layers, resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service import model_setup
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.state.context import Context

router = APIRouter(prefix="/app/api")


class ModelForm(BaseModel):
    """The form of a model. Logs do not show the key."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    model: str
    base_url: str = ""
    key: SecretStr = SecretStr("")


@router.get("/setup")
async def show_setup() -> dict[str, Any]:
    return {"providers": model_setup.offered_providers()}


@router.post("/setup", status_code=204)
async def choose_model(form: ModelForm) -> None:
    """Try a model with its key, and make it the default if it answers.

    ConfigError if it does not, and nothing was stored; or if another one has priority.
    """
    key = form.key if form.key.get_secret_value().strip() else None
    await model_setup.set_up_model(
        model_setup.ModelChoice(form.model.strip(), form.base_url.strip() or None, key)
    )
    await asyncio.to_thread(_check_that_it_counts, form)


@router.post("/setup/models")
async def list_models(form: ModelForm) -> dict[str, list[str] | None]:
    """List what a server offers: null if nobody answers, empty if it wants a key first."""
    provider = form.model.partition(":")[0]
    offer = model_setup.offered_models(provider, form.base_url.strip() or None, form.key)
    return {"models": await offer}


class InputForm(BaseModel):
    """A value that an `mcp.json` wants. Logs do not show it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    place: str
    value: SecretStr


def wanted_inputs() -> list[dict[str, Any]]:
    """Return what the MCP servers of the files want to be asked for. Blocks."""
    found = missing_inputs(read_layers(None)[0])
    return [{**wanted, "place": place} for place, wanted in found]


@router.post("/setup/inputs", status_code=204)
async def give_input(form: InputForm) -> None:
    """Store a value that is wanted. The next run uses it."""
    wanted = await asyncio.to_thread(wanted_inputs)
    value = form.value.get_secret_value()
    if form.place not in [one["place"] for one in wanted] or not value:
        raise Refused(404, "No MCP server wants this value, or it is empty.")
    await asyncio.to_thread(store_key, INPUT, form.place, value)


def _check_that_it_counts(form: ModelForm) -> None:
    """Raise ConfigError if the environment or a file names another model than the chosen one."""
    spec, main = parse_spec(form.model), resolve_settings(Context(), "new").main
    found = parse_spec(main.model) if isinstance(main.model, str) else None
    if found != spec:
        raise ConfigError(
            f"{spec} works and is saved, but {found} has priority: OPENMANUS_MODEL or a file of "
            "this folder names it. Remove it there."
        )
    key = form.key.get_secret_value().strip()
    if key and api_key(spec, main) != key:
        raise ConfigError(
            f"{spec} works and its key is saved, but another key has priority: "
            f"{' or '.join(spec.provider.key_variables)}, or api_key in a file. Remove it there."
        )
