"""Routes for settings and notes: choose a model and try it, watch the demo, edit the memory."""

import asyncio
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, Literal, get_args, get_origin

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, SecretStr

from openmanus_graph.backends.models.spec import RECORDED, api_key, parse_spec
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.config.declared import DeclaredField, bare_type, declared_fields
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.demo import recorded
from openmanus_graph.errors import ConfigError, TrustedToolError
from openmanus_graph.graphs.catalog import DEFAULT_AGENT, agent_names, describe_agent
from openmanus_graph.interfaces.server import store
from openmanus_graph.interfaces.server.admission import settings_of
from openmanus_graph.interfaces.server.files import MAX_UPLOAD_BYTES
from openmanus_graph.interfaces.server.runs import RunRequest, start_run
from openmanus_graph.interfaces.server.store import Refused
from openmanus_graph.interfaces.service.final_event import model_label
from openmanus_graph.interfaces.service.model_setup import (
    ModelChoice,
    offered_providers,
    set_up_model,
)
from openmanus_graph.interfaces.service.threads import note_row, own_notes, save_note
from openmanus_graph.runtime.workspace import put_file
from openmanus_graph.state.context import Context
from openmanus_graph.state.settings import Settings

LATENCY_S = 0.8
"""Seconds that the recorded model takes for a reply, so that the user can watch."""
SHOWN = ("max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy", "review_plan")
RECENT_THREADS = 200
"""How many threads' models are offered."""
router = APIRouter(prefix="/app/api")


class ModelForm(BaseModel):
    """The form of a model. Logs do not show the key."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    model: str
    base_url: str = ""
    key: SecretStr = SecretStr("")


@router.get("/setup")
async def show_setup() -> dict[str, Any]:
    return {"providers": offered_providers()}


@router.post("/setup", status_code=204)
async def choose_model(form: ModelForm) -> None:
    """Try a model with its key, and make it the default if it answers.

    ConfigError if it does not, and nothing was stored; or if another one has priority.
    """
    key = form.key if form.key.get_secret_value().strip() else None
    await set_up_model(ModelChoice(form.model.strip(), form.base_url.strip() or None, key))
    await asyncio.to_thread(_check_that_it_counts, form)


@router.post("/demo", status_code=202)
async def start_demo() -> dict[str, str]:
    """Start the demo on its own thread: only the model's replies are recorded."""
    await asyncio.to_thread(recorded.require_packages)
    thread = await store.new_thread()
    workspace = await store.current().workspace(thread)

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


FORM = tuple(one for one in declared_fields() if one.setting.label)


def _form_field(one: DeclaredField) -> dict[str, Any]:
    """Return a field of the form: a choice, a switch or a number, which may be an integer."""
    kind = bare_type(one.written)
    types = {kind, *get_args(kind)}
    shape: dict[str, Any]
    if get_origin(kind) is Literal:
        shape = {"kind": "choice", "values": list(get_args(kind))}
    elif bool in types:
        shape = {"kind": "switch"}
    else:
        shape = {"kind": "number", "integer": float not in types}
    return {"name": one.context, "label": one.setting.label, **shape}


@router.get("/options")
async def show_options() -> dict[str, Any]:
    return await asyncio.to_thread(_options, store.current().threads)


def _options(threads: Threads) -> dict[str, Any]:
    settings, problem, needs_model = _settings()
    model = model_label(settings) if settings and not needs_model else None
    used = [thread.options.get("model") for _, thread in threads.page(RECENT_THREADS, None, "")]
    named = dict.fromkeys(name for name in (model, *used) if isinstance(name, str) and name)
    defaults: dict[str, Any] = {}
    for one in FORM:
        record = getattr(settings, one.table) if settings and one.table else settings
        defaults[str(one.context)] = getattr(record, one.name, None)
    return {
        "agents": [{"name": name, "description": describe_agent(name)} for name in agent_names()],
        "default_agent": DEFAULT_AGENT,
        "model": model,
        "problem": problem,
        "needs_model": needs_model,
        "models": [name for name in named if not name.startswith(f"{RECORDED.name}:")],
        "form": [_form_field(one) for one in FORM],
        "defaults": defaults,
        "max_upload_bytes": MAX_UPLOAD_BYTES,
        "version": version("openmanus-graph"),
        "warnings": list(settings.warnings) if settings else [],
    }


def _settings() -> tuple[Settings | None, str | None, bool]:
    """Return the settings of a new run, what is wrong, and whether only a model is missing."""
    try:
        without_model = resolve_settings(Context(), "new", without_model=True)
    except ConfigError as error:
        return None, str(error), False
    try:
        return settings_of(Context(), "new"), None, False
    except ConfigError as error:
        return without_model, str(error), True


class NoteForm(BaseModel):
    """A note of the user; `before` is the text that the user saw, null for a new note."""

    model_config = ConfigDict(extra="forbid")

    path: str
    text: str
    before: str | None = None
    trusted: bool = False


@router.get("/memory")
async def list_notes() -> dict[str, Any]:
    notes = await asyncio.to_thread(lambda: own_notes().notes())
    return {"notes": [note_row(note) for note in notes]}


@router.get("/memory/note")
async def show_note(path: str) -> dict[str, Any]:
    try:
        note = await asyncio.to_thread(lambda: own_notes().find(path))
    except TrustedToolError as error:
        raise Refused(422, str(error)) from error
    if note is None:
        raise Refused(404, f"There is no note {path}.")
    return {**note_row(note), "text": note.text}


@router.put("/memory/note", status_code=204)
async def write_note(form: NoteForm) -> Response:
    path, text, before, trusted = form.path, form.text, form.before, form.trusted
    return await _done(lambda: save_note(own_notes(), path, text, before, trusted=trusted))


@router.delete("/memory/note", status_code=204)
async def delete_note(path: str) -> Response:
    return await _done(lambda: own_notes().delete(path))


async def _done(change: Callable[[], None]) -> Response:
    try:
        await asyncio.to_thread(change)
    except TrustedToolError as error:
        raise Refused(409, str(error)) from error
    return Response(status_code=204)
