"""The desktop agent: what is offered when, and where the screen stands in a request."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from openmanus_graph import build_desktop_graph, build_manus_graph
from openmanus_graph.backends.desktop import desktop
from openmanus_graph.errors import ConfigError
from openmanus_graph.tools.computer_use import computer_use
from tests.support.desktops import install_programs
from tests.support.graphs import Answer, calls, run_graph, scripted

DESKTOP = "computer_use"
MARKED = "\n<untrusted-"


def seeing(*answers: Answer) -> Any:
    """Return a model that sees pictures."""
    model = scripted(*answers)
    model.profile = {"image_inputs": True}
    return model


def steps(*made: dict[str, Any]) -> list[Answer]:
    """Make replies that each use the desktop once."""
    return [calls((DESKTOP, args), prefix=f"d{number}-") for number, args in enumerate(made)]


async def test_a_file_is_written_in_a_desktop_program_and_the_screen_stands_last() -> None:
    install_programs("mousepad")
    letter = Path("work/letter.txt")
    model = seeing(
        *steps(
            {"action": "open", "command": "mousepad letter.txt"},
            {"action": "typing", "text": "Dear Ada,\nit works."},
            {"action": "hotkey", "keys": "ctrl+s"},
        ),
        calls(("bash", {"command": "cat letter.txt"}), prefix="b"),
        "Written.",
    )
    ran = await run_graph(build_desktop_graph(), model=model)
    assert (ran.values["status"], ran.values["answer"]) == ("finished", "Written.")
    assert [made["path"] for made in ran.values["artifacts"]] == ["letter.txt"]
    assert await asyncio.to_thread(letter.read_text, "utf-8") == "Dear Ada,\nit works."
    first, *others, last = model.requests
    assert "The screen shows now:" not in first[-1].text
    for request in (*others, last):
        assert request[-1].text.startswith(f"The screen shows now:{MARKED}")
        assert "image_url" in str(request[-1].content)
    assert "image_url" not in str([message.content for message in ran.messages])


async def test_the_vision_model_is_shown_the_screen() -> None:
    blind = scripted(*steps({"action": "screenshot"}))
    vision = seeing("Nothing is open.")
    ran = await run_graph(build_desktop_graph(), model=blind, vision_model=vision)
    assert ran.values["answer"] == "Nothing is open."
    assert "image_url" in str(vision.requests[0][-1].content)


async def test_without_eyes_or_programs_the_agent_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ConfigError, match="desktop cannot have computer_use.*sees_images"):
        await run_graph(build_desktop_graph(), "unused")
    monkeypatch.setattr(desktop, "PROGRAMS", ("nosuchprogram",))
    with pytest.raises(ConfigError, match="needs nosuchprogram: `openmanus doctor --fix`"):
        await run_graph(build_desktop_graph(), model=seeing("unused"))


async def test_elsewhere_the_tool_is_left_out_where_it_cannot_be_used() -> None:
    graph = build_manus_graph(extra_tools=[computer_use])
    ran = await run_graph(graph, calls((DESKTOP, {"action": "screenshot"})), "done")
    assert ran.results() == [next(text for text in ran.results() if "There is no tool" in text)]
    reported = [event["text"] for event in ran.events if event["type"] == "notice"]
    assert sum("computer_use is not offered." in text for text in reported) == 1
    with pytest.raises(ConfigError, match="cannot have computer_use"):
        await run_graph(graph, "unused", tools=[DESKTOP])


@pytest.mark.exhaustive
async def test_a_picture_is_changed_in_an_image_program() -> None:
    install_programs("mtpaint")
    picture = Path("work/sketch.png")
    await asyncio.to_thread(picture.parent.mkdir)
    await asyncio.to_thread(Image.new("RGB", (200, 100), (255, 0, 0)).save, picture)
    model = seeing(
        *steps(
            {"action": "open", "command": "mtpaint sketch.png"},
            {"action": "click", "x": 450, "y": 10},  # the picture's window, not the tools'
            {"action": "click", "x": 367, "y": 32},  # the menu of effects
            {"action": "click", "x": 390, "y": 88},  # inverts it
            {"action": "move_to", "x": 300, "y": 250},
            {"action": "drag_to", "x": 400, "y": 280},  # selects a part
            {"action": "click", "x": 495, "y": 98},  # fills it
            {"action": "hotkey", "keys": "ctrl+s"},
        ),
        "Inverted.",
    )
    ran = await run_graph(build_desktop_graph(), model=model)
    assert [made["path"] for made in ran.values["artifacts"]] == ["sketch.png"], ran.results()
    colours = (await asyncio.to_thread(Image.open, picture)).convert("RGB").getcolors()
    counts = {colour: count for count, colour in colours or ()}
    assert counts == {(0, 255, 255): 20_000 - 101 * 31, (255, 0, 0): 101 * 31}
