"""Routes for a person without a model: choose one and try it, or watch the demo."""

import asyncio
import uuid
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, SecretStr

from openmanus_graph.backends.models.endpoint import api_key
from openmanus_graph.backends.models.spec import parse_spec
from openmanus_graph.config import resolve_settings
from openmanus_graph.demo import recorded
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.own_api import own_api
from openmanus_graph.interfaces.server.runs import RunRequest, start_run
from openmanus_graph.interfaces.server.store import store
from openmanus_graph.interfaces.service.model_setup import ModelChoice, providers, set_up_model
from openmanus_graph.runtime.workspace import put_file
from openmanus_graph.state.context import Context

LATENCY_S = 0.8
"""How long the recorded model takes for a reply, so that one can watch."""
router = APIRouter(prefix="/app/api")


class ModelForm(BaseModel):
    """What the form sends. The key is hidden in whatever is logged of it."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    model: str
    base_url: str = ""
    key: SecretStr = SecretStr("")


@router.get("/setup")
async def show_setup() -> dict[str, Any]:
    """Return the providers that a model can be chosen from."""
    return {"providers": providers()}


@router.post("/setup", status_code=204)
async def choose_model(form: ModelForm) -> None:
    """Try a model with its key, and make it the default if it answers.

    ConfigError: It does not, and nothing was stored; or something else comes before it.
    """
    key = form.key if form.key.get_secret_value().strip() else None
    await set_up_model(ModelChoice(form.model.strip(), form.base_url.strip() or None, key))
    await asyncio.to_thread(_check_that_it_counts, form)


@router.post("/demo", status_code=202)
async def start_demo() -> dict[str, str]:
    """Start the demo on a thread of its own: only the model's replies are recorded."""
    await asyncio.to_thread(recorded.require_packages)
    thread = str(uuid.uuid4())
    await own_api().threads.create(thread_id=thread, if_exists="do_nothing")
    workspace = await store().workspace(thread)

    def bring_data() -> None:
        workspace.prepare()
        with recorded.demo_folder() as folder:
            data = (folder / recorded.DATA).read_bytes()
        put_file(workspace, workspace.root / recorded.DATA, data)

    await asyncio.to_thread(bring_data)
    context = {"model": f"demo:{recorded.MODEL}", "model_options": {"latency_s": LATENCY_S}}
    await start_run(thread, RunRequest(message=recorded.TASK, context=context))
    return {"id": thread}


def _check_that_it_counts(form: ModelForm) -> None:
    """Refuse to say that a model is the default where the environment or a file names another."""
    spec, main = parse_spec(form.model), resolve_settings(Context(), "new").main
    found = parse_spec(main.model) if isinstance(main.model, str) else None
    if found != spec:
        raise ConfigError(
            f"{spec} works and is kept, but {found} comes before it: OPENMANUS_MODEL or a file of "
            "this folder names that. Remove it there."
        )
    key = form.key.get_secret_value().strip()
    if key and api_key(spec, main) != key:
        raise ConfigError(
            f"{spec} works and its key is kept, but another one comes before it: "
            f"{' or '.join(spec.provider.key_variables)}, or api_key in a file. Remove it there."
        )
