"""Elements are named by their visible labels instead of indices."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from openmanus_graph.backends.browser.action_specs import ActionArguments
from openmanus_graph.backends.browser.actions import run_action
from openmanus_graph.errors import ToolError
from tests.support.browsing import Browsing
from tests.support.pages import PageServer

pytestmark = pytest.mark.slow
FORM = """<!doctype html><title>Order</title>
<form action="/post" method="post">
  <label for="n">Full name *</label><input id="n" name="name">
  <label>E-mail: <input name="mail" type="email"></label>
  <input name="search" placeholder="Search orders" aria-label="Find">
  <table><tr><td>Street<td><input name="street"><tr><td>Town<td><input name="town"></table>
  <div>Comments</div><textarea name="comments"></textarea>
  <span id="when">Delivery day</span><input type="date" name="day" aria-labelledby="when">
  <label>Size <select name="size"><option>Small<option>Large</select></label>
  <label><input type="checkbox" name="terms"> I accept the terms</label>
  <label>Picture <input type="file" name="picture"></label>
  <a href="/rows">E-mail</a> <a href="/rows">Postcode</a><input aria-label="Your postcode">
  <input name="q" aria-label="Send"><button title="Ships today">Send</button>
  <button type="button" aria-label="Close the window" onclick="document.title='closed'">×</button>
</form><iframe title="inner" srcdoc="<label>Inner <input name=inner></label>"></iframe>"""
ROWS = "<ul>" + "".join(
    f"<li>Person {n} <button onclick=\"document.title='gone {n}'\">Delete</button></li>"
    for n in range(20)
) + "</ul><button>Delete everything</button>"  # fmt: skip


@pytest.fixture(scope="module")
def site() -> Iterator[PageServer]:
    with PageServer() as server:
        server.add("/form", FORM)
        server.add("/rows", ROWS)
        yield server


async def test_a_form_on_a_known_page_is_filled_in_without_a_look(
    used: Browsing, site: PageServer
) -> None:
    (Path(used.session.workspace.root) / "a.png").write_bytes(b"x")
    await used("go_to_url", url=site.url("/form"))
    for label, text in {
        "Full name": "Ada", "e-mail": "ada@x.example", "Street": "1 Road", "Town": "Ulm",
        "Comments": "none", "Delivery day": "2026-05-01", "Inner": "in", "Size": "Large",
    }.items():  # fmt: skip
        said = await used("input_text", label=label, text=text)
        assert "Typed" in said or "Set" in said or "Chose" in said, said
    await used("upload_file", label="Picture", text="a.png")
    await used("click_element", label="I accept the terms")
    await used("click_element", label="Send")
    sent = next(one.body.decode() for one in reversed(site.asked) if one.path == "/post")
    for pair in ("name=Ada", "mail=ada%40x.example", "street=1+Road", "town=Ulm", "comments=none",
                 "day=2026-05-01", "size=Large", "terms=on", "picture=a.png"):  # fmt: skip
        assert pair in sent


@pytest.mark.parametrize(
    ("action", "label", "args", "said"),
    [
        ("click_element", "Ships today", {}, "/post"),
        ("click_element", "×", {}, "Clicked"),
        ("click_element", 'button "Send"', {}, "/post"),
        ("click_element", "close the  WINDOW", {}, 'Title: "closed"'),
        ("input_text", "Send", {"text": "x"}, 'Typed "x" into'),
        ("input_text", "Search orders", {"text": "x"}, 'Typed "x" into'),
        ("input_text", "name", {"text": "Ada"}, 'Typed "Ada" into'),
        ("input_text", "Postcode", {"text": "1"}, 'Typed "1" into'),
        ("click_element", "Postcode", {}, "Delete everything"),
        ("select_dropdown_option", "Size", {"text": "Large"}, 'Chose "Large"'),
        ("get_dropdown_options", "size", {}, "0: Small"),
        ("hover", "Send", {"index": -1}, "no longer on the page"),
    ],
)
async def test_a_label_names_one_element(
    used: Browsing, site: PageServer, action: str, label: str, args: dict[str, object], said: str
) -> None:
    await used("go_to_url", url=site.url("/form"))
    assert said in await used(action, label=label, **args)
    if not args:
        await used("go_to_url", url=site.url("/form"))
        assert said in await used(action, text=label)


@pytest.mark.parametrize(
    ("label", "count", "first"),
    [
        ("Delete", "20 elements", 'button "Delete" in: Person 0'),
        ("Delete all", "no elements", 'button "Delete" in: Person 0'),
        ("Everything", "no elements", '"Delete everything"'),
        ("Löschen", "no elements", 'button "Delete" in: Person 0'),
        (" : ", "no elements", 'button "Delete"'),
        ("*" * 10_000, "no elements", 'button "Delete"'),
    ],
)
async def test_a_label_that_is_not_certain_gives_candidates(
    used: Browsing, site: PageServer, label: str, count: str, first: str
) -> None:
    await used("go_to_url", url=site.url("/rows"))
    seen = await used.observe("click_element", label=label)
    assert seen.failed
    assert not seen.trusted_text
    assert f"Nothing was done: {count} are called" in seen.text
    assert first in seen.text
    assert seen.text.count("button") <= 10
    assert used.browser.current.page.url.endswith("/rows")
    assert "gone" not in await used("get_state")


async def test_an_empty_label_names_nothing(used: Browsing, site: PageServer) -> None:
    only = '<button onclick="document.title = 1" style="width:50px;height:20px"></button>'
    await used("go_to_url", url=site.add("/unnamed", only))
    assert "no elements are called" in await used("click_element", label=" ")


async def test_an_index_with_another_label_is_refused(used: Browsing, site: PageServer) -> None:
    await used("go_to_url", url=site.url("/form"))
    send = used.index('button "Send"')
    assert "is not called" in await used("click_element", index=send, label="Close the window")
    assert "/post" in await used("click_element", index=send, label="Send")
    seen = await used("click_element", index=send, label="Send")
    assert "is no longer on the page" in seen


async def test_a_repeated_step_finds_the_element_that_was_recorded(
    used: Browsing, site: PageServer
) -> None:
    await used("go_to_url", url=site.url("/form"))
    seen = await used.observe("click_element", label="Close the window")
    recorded = {**(seen.repeatable or {})}
    assert recorded["index"]["name"] == "Close the window"
    args = ActionArguments(label="Close the window")
    await used("go_to_url", url=site.url("/form"))
    again = await run_action(used.session, "click_element", args, None, recorded)
    assert 'Title: "closed"' in again.text
    other = await run_action(used.session, "go_to_url", ActionArguments(site.url("/rows")), None)
    assert "Delete everything" in other.text
    with pytest.raises(ToolError, match="does not fit"):
        await run_action(used.session, "click_element", args, None, recorded)
