"""A person at the agent's browser: what is seen and done, and what the agent is shown of it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.backends.browser.kept_state import state_file
from openmanus_graph.backends.browser.pages import state_for_request
from openmanus_graph.backends.browser.takeover import Frame, Input, Takeover
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.interfaces.server import takeover
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.runtime.session_registry import borrow_session, close_session, find_session
from openmanus_graph.state.context import Context
from tests.support.browsing import Browsing
from tests.support.limits import BACKSTOP_S
from tests.support.static_site import serving

pytestmark = pytest.mark.slow

WORD = "walrus and carpenter"
PAGE = """<!doctype html><title>Form</title><body style="margin:0">
<input id=first style="position:absolute;left:0;top:0;width:300px;height:40px">
<button style="position:absolute;left:0;top:100px;width:200px;height:40px"
 onclick="document.querySelector('p').textContent = first.value">Say</button>
<button style="position:absolute;left:0;top:200px;width:200px;height:40px"
 onclick="window.open('/other.html')">Open</button>
<button style="position:absolute;left:0;top:300px;width:200px;height:40px"
 onclick="document.title = prompt('Who?')">Ask</button>
<input style="position:absolute;left:0;top:400px;width:300px;height:40px"
 oninput="history.replaceState(null, '', '?q=' + this.value)">
<p style="margin-top:500px">nothing</p>"""
A_LETTER_LATE = """() => { document.querySelectorAll('input')[1].oninput = (event) =>
  history.replaceState(null, '', '?q=' + event.target.value.slice(0, -1)) }"""
"""As a browser tells of an address a moment after it changed."""
OTHER = "<!doctype html><title>Other</title><body onclick='window.close()'>x"


@pytest.fixture
def use(tmp_path: Path) -> Iterator[Browsing]:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "form.html").write_text(PAGE, "utf-8")
    (tmp_path / "site" / "other.html").write_text(OTHER, "utf-8")
    browsing = Browsing(tmp_path / "work")
    with contextlib.closing(browsing.session):
        yield browsing


@pytest.fixture
async def taken(use: Browsing, tmp_path: Path) -> AsyncIterator[Takeover]:
    with serving(folder=tmp_path / "site") as site:
        await use("go_to_url", url=f"{site}/form.html")
        taken = await browser_loop.run(lambda: begun(use))
        yield taken
        await browser_loop.run(taken.end)


async def begun(use: Browsing) -> Takeover:
    takeover = Takeover(use.browser)
    await takeover.begin()
    return takeover


async def frame_with(taken: Takeover, wanted: Callable[[Frame], bool]) -> Frame:
    """Wait for a picture that is as wanted."""
    after = 0
    while True:
        frame = await browser_loop.run(lambda: taken.next_frame(after, BACKSTOP_S))  # noqa: B023  # awaited here
        assert frame is not None
        if wanted(frame):
            return frame
        after = frame.number


async def do(taken: Takeover, *inputs: Input) -> None:
    await browser_loop.run(lambda: taken.act(inputs))


def click(x: float, y: float) -> tuple[Input, Input]:
    return Input("down", x, y), Input("up", x, y)


async def test_what_is_typed_is_seen_by_the_page_and_never_by_the_model(
    use: Browsing, taken: Takeover
) -> None:
    frame = await frame_with(taken, lambda frame: frame.title == "Form")
    assert frame.width > 500
    assert frame.image
    assert await state_for_request(use.session, True) == ("", None)
    assert "a person has taken the browser over" in await use("get_state")
    await do(taken, *click(50, 20), Input("text", text=WORD), *click(50, 120))
    assert WORD not in repr(Input("text", text=WORD))
    await browser_loop.run(taken.end)
    seen = await use("get_state")
    assert "[typed by the person]" in seen
    assert WORD not in seen
    text, picture = await state_for_request(use.session, True)
    assert WORD not in text
    assert picture is None, "the page shows what was typed"
    assert WORD not in repr(use.session.handle_states())


async def test_an_address_with_what_is_typed_is_stored_nowhere(
    use: Browsing, taken: Takeover
) -> None:
    use.session.checkpointed = True
    file = state_file(use.session)
    assert file is not None
    await do(taken, *click(50, 420), *(Input("text", text=char) for char in WORD[:-4]))
    assert "walrus" in use.browser.current.current_url
    assert "form.html" in repr(use.session.handle_states())
    assert "walrus" not in repr(use.session.handle_states()), "the word is not whole yet"
    await do(taken, *(Input("text", text=char) for char in WORD[-4:]))
    await browser_loop.run(taken.end)
    assert "[typed by the person]" in repr(use.session.handle_states())
    for kept in (repr(use.session.handle_states()), await asyncio.to_thread(file.read_text)):
        assert "127.0.0.1" in kept
        assert "walrus" not in kept


async def test_a_browser_that_closes_while_one_types_stores_nothing_of_it(
    use: Browsing, taken: Takeover
) -> None:
    use.session.checkpointed = True
    file = state_file(use.session)
    assert file is not None
    page = use.browser.current.page
    await browser_loop.run(lambda: page.evaluate(A_LETTER_LATE))
    await do(taken, *click(50, 420), *(Input("text", text=char) for char in WORD))
    use.session.close()
    kept = await asyncio.to_thread(file.read_text)
    assert "127.0.0.1" in kept
    assert "walrus" not in kept
    assert taken.ended


async def test_a_window_that_opens_is_shown_and_then_the_one_before_it(taken: Takeover) -> None:
    await do(taken, *click(50, 220))
    await frame_with(taken, lambda frame: frame.title == "Other")
    await do(taken, *click(10, 15))
    await frame_with(taken, lambda frame: frame.title == "Form")


async def test_a_question_of_the_page_is_shown_and_answered(taken: Takeover) -> None:
    await do(taken, *click(50, 320))
    asked = await frame_with(taken, lambda frame: bool(frame.dialog_type))
    assert (asked.dialog_type, asked.dialog) == ("prompt", "Who?")
    await do(taken, Input("dialog", text="A new title"))
    await frame_with(taken, lambda frame: frame.title == "A new title" and not frame.dialog_type)


async def test_a_question_that_is_open_already_is_shown_and_answered(
    use: Browsing, tmp_path: Path
) -> None:
    with serving(folder=tmp_path / "site") as site:
        await use("go_to_url", url=f"{site}/form.html")
        await use("get_state")
        assert "Who?" in await use.click("Ask")
        taken = await browser_loop.run(lambda: begun(use))
        asked = await frame_with(taken, lambda frame: bool(frame.dialog_type))
        assert asked.dialog == "Who?"
        await do(taken, Input("dialog", text="A new title"))
        await frame_with(taken, lambda frame: frame.title == "A new title")
        await browser_loop.run(taken.end)


async def test_keys_move_and_correct_and_others_do_nothing(use: Browsing, taken: Takeover) -> None:
    await do(
        taken,
        *click(50, 20),
        Input("text", text="ab"),
        Input("key", text="ArrowLeft"),
        Input("key", text="Backspace"),
        Input("key", text="F5"),
        Input("key", text="a", modifiers=("Control",)),
        Input("text", text="é漢"),
    )
    page = use.browser.current.page
    assert await browser_loop.run(lambda: page.input_value("#first")) == "é漢"


async def test_closing_the_browser_ends_the_takeover(use: Browsing, taken: Takeover) -> None:
    use.session.close()
    assert taken.ended
    assert await browser_loop.run(lambda: taken.next_frame(0, BACKSTOP_S)) is None
    await do(taken, *click(1, 1))  # too late, and no error


async def test_a_takeover_that_nobody_watches_any_more_ends(
    taken: Takeover, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "LEFT_S", 0.01)
    ended, stack = asyncio.Event(), contextlib.AsyncExitStack()
    stack.callback(ended.set)
    visit = takeover.Visit("left", "", taken, browser_loop, stack)
    monkeypatch.setitem(takeover.visits, taken.id, visit)
    with visit.watched():
        with visit.watched():
            assert takeover.find_visit("left", taken.id) is visit
        assert not taken.ended, "one still watches"
    await ended.wait()
    assert taken.ended
    with pytest.raises(Refused, match="over"):
        takeover.find_visit("left", taken.id)


async def test_a_borrowed_session_outlives_its_guest_until_it_is_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = resolve_settings(Context(), "guest", without_model=True)
    async with borrow_session("guest", settings) as session:
        close_session("guest")
        assert find_session("guest") is session, "somebody uses it"
    assert find_session("guest") is session, "as after a run"
    async with borrow_session("guest", settings) as again:
        assert again is session
    close_session("guest")
    assert find_session("guest") is None
