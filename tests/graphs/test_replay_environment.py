"""Replays of what runs saw of their environment: they show it to the model as it was then."""

from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig

from openmanus_graph import Context, build_manus_graph
from openmanus_graph.backends.persistence.checkpoints import open_checkpointer
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import Thread, Threads
from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.service.replay import Replayed, record_of, replay_bundle
from openmanus_graph.runtime.session_registry import close_session
from openmanus_graph.testing import ScriptedChatModel
from tests.support.graphs import calls, run_graph, scripted
from tests.support.static_site import serving

CONFIG: RunnableConfig = {"configurable": {"thread_id": "t"}}
PICTURE = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ"
    "AAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def replayed_elsewhere(model: ScriptedChatModel, **context: Any) -> Replayed:
    """Run a task on the thread, and replay its record in empty folders, as elsewhere."""
    async with open_checkpointer(database_url()) as saver:
        graph = build_manus_graph(checkpointer=saver)
        await run_graph(graph, model=model, config=CONFIG, workspace="work", **context)
    Threads(open_database(database_url())).begin("t", "manus", "the task", {}, None)
    close_session("t")
    found = Threads(open_database(database_url())).find("t")
    assert isinstance(found, Thread)
    asked = len(model.requests)
    given = {key: value for key, value in context.items() if key != "allow_hosts"}
    result = await replay_bundle(await record_of(found), Context(**given))
    assert len(model.requests) == asked == result.model_calls
    return result


async def test_what_the_browser_showed_is_shown_again_without_one() -> None:
    with serving() as site:
        look = ("browser_use", {"action": "go_to_url", "url": f"{site}/forms.html"})
        model = scripted(calls(look), calls(("bash", {"command": "echo 1"})), "done")
        model.profile = {"image_inputs": True}
        result = await replayed_elsewhere(model, allow_hosts=("127.0.0.1",))
    assert "image_url" in str(model.requests[1][-1].content)
    assert (result.first_difference(), result.is_equal) == ("", True)


async def test_pictures_that_the_run_saw_need_not_be_there(tmp_path: Path) -> None:
    make = (
        "python_execute",
        {"code": f"import base64\nopen('a.png', 'wb').write(base64.b64decode('{PICTURE}'))"},
    )
    view = ("str_replace_editor", {"command": "view", "path": "a.png"})
    model = scripted(calls(make, prefix="m-"), calls(view, prefix="v-"), "done")
    model.profile = {"image_inputs": True}
    result = await replayed_elsewhere(model)
    assert "image_url" in str(model.requests[2][-1].content)
    assert (result.first_difference(), result.is_equal) == ("", True)
    assert (tmp_path / "work" / "a.png").exists()


async def test_a_subagents_run_is_replayed() -> None:
    ask = ("delegate", {"agent": "swe", "task": "Say it."})
    model = scripted(calls(ask), "It is said.", "done")
    result = await replayed_elsewhere(model)
    assert (result.first_difference(), result.is_equal) == ("", True)
