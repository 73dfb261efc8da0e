"""Copy buttons and keys work on a clipboard of the browser session, never on the machine's."""

import contextlib
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from openmanus_graph.backends.browser.browsers import browser_loop
from openmanus_graph.state.setting_declaration import SiteSecret
from openmanus_graph.state.settings import BrowserSettings
from tests.support.browsing import Browsing
from tests.support.pages import PageServer

pytestmark = pytest.mark.slow
PAGE = """<!doctype html><title>Copying</title>
<button onclick="navigator.clipboard.writeText('by text').then(() => said.textContent = 'Copied!')">Text</button>
<button onclick="navigator.clipboard.write([new ClipboardItem({'text/plain': new Blob(['by item'],
 {type: 'text/plain'})})]).catch((e) => said.textContent = e)">Item</button>
<button onclick="area.select(); said.textContent = 'did ' + document.execCommand('copy')">Command</button>
<button onclick="document.execCommand('copy')" id="custom">Custom</button>
<button onclick="setTimeout(() => navigator.clipboard.writeText('late'), 300)">Late</button>
<button onclick="navigator.clipboard.readText().then((text) => said.textContent = 'read ' + text)">Read</button>
<textarea id="area">by command</textarea><input aria-label="Target"><p id="said"></p>
<input type="password" aria-label="Password" value="hush">
<div contenteditable role="textbox" aria-label="Rich">old</div>
<iframe title="inner" srcdoc="<button onclick=&quot;navigator.clipboard.writeText('in frame')&quot;>Inner</button>"></iframe>
<div id="host"></div><script>
  host.attachShadow({mode: 'open'}).innerHTML = '<input aria-label="Shadowed" value="in shadow">';
  document.addEventListener('copy', (event) => {
    if (document.activeElement !== custom) return;
    event.clipboardData.setData('text/plain', 'by handler');
    event.preventDefault();
  });
</script>"""  # noqa: E501


@pytest.fixture(scope="module")
def page() -> Iterator[str]:
    with PageServer() as server:
        yield server.add("/copying", PAGE)


@pytest.mark.parametrize(
    ("label", "copied"),
    [
        ("Text", "by text"), ("Item", "by item"), ("Command", "by command"),
        ("Custom", "by handler"), ("Late", "late"), ("Inner", "in frame"),
    ],
)  # fmt: skip
async def test_what_a_copy_button_copies_is_shown_and_pasted(
    used: Browsing, page: str, label: str, copied: str
) -> None:
    await used("go_to_url", url=page)
    assert f'Copied, for send_keys Control+V: "{copied}"' in await used(
        "click_element", label=label
    )
    await used("click_element", label="Target")
    assert f'value="{copied}"' in await used("send_keys", keys="Control+V")
    assert f"read {copied}" in await used("click_element", label="Read")
    await used("click_element", label="Rich")
    assert f'value="{copied}"' in await used("send_keys", keys="Control+A Control+V")


async def test_what_is_selected_is_copied_and_cut_by_keys(used: Browsing, page: str) -> None:
    await used("go_to_url", url=page)
    await used("click_element", label="Shadowed")
    assert '"in shadow"' in await used("send_keys", keys="Control+A Control+C")
    await used("click_element", label="Password")
    assert "hush" not in await used("send_keys", keys="Control+A Control+C")
    await used("click_element", index=used.index('textbox "in|by command|textbox$|#area'))
    seen = await used("send_keys", keys="Control+A Control+X")
    assert 'Control+V: "by command"' in seen
    await used("click_element", label="Target")
    assert 'value="by commandby command"' in await used("send_keys", keys="Control+V Control+V")


async def test_a_text_is_pasted_on_its_own_site_only(used: Browsing, page: str) -> None:
    with PageServer() as other:
        there = other.add("/other", PAGE)
        await used("go_to_url", url=page)
        await used("click_element", label="Text")
        await used("go_to_url", url=there)
        await used("click_element", label="Target")
        seen = await used.observe("send_keys", keys="Control+V")
        assert seen.failed
        assert "is pasted only there" in seen.text
        assert "by text" not in await used("click_element", label="Read")
        await used("open_tab", url=page)
        await used("click_element", label="Target")
        assert 'value="by text"' in await used("send_keys", keys="Control+V")


async def test_a_page_that_nobody_has_touched_copies_nothing(used: Browsing) -> None:
    with PageServer() as server:
        writes = "<p id=said>…</p><script>navigator.clipboard.writeText('sly').catch((e) =>"
        address = server.add("/sly", f"{writes} said.textContent = e.name)</script>")
        seen = await used("go_to_url", url=address)
    assert "NotAllowedError" in seen
    assert "sly" not in seen.replace("/sly", "")


async def test_the_clipboard_of_another_thread_is_another_one(
    used: Browsing, page: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    await used("go_to_url", url=page)
    await used("click_element", label="Text")
    other = Browsing(tmp_path_factory.mktemp("other") / "work")
    with contextlib.closing(other.session):
        await other("go_to_url", url=page)
        await other("click_element", label="Target")
        assert "nothing was copied" in await other("send_keys", keys="Control+V")


async def test_a_secret_that_is_copied_is_not_shown(
    page: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    secret = SiteSecret("pin", SecretStr("71930042"), "127.0.0.1")
    browsing = Browsing(tmp_path_factory.mktemp("s") / "w", BrowserSettings(secrets=(secret,)))
    with contextlib.closing(browsing.session):
        await browsing("go_to_url", url=page)
        await browsing("input_text", label="Target", text="<secret>pin</secret>")
        seen = await browsing("send_keys", keys="Control+A Control+C")
    assert "Copied" in seen
    assert "71930042" not in seen


async def test_the_browsers_own_clipboard_is_not_written(used: Browsing, page: str) -> None:
    """It is the machine's if the browser has a window, and shared by all threads."""

    async def real() -> str:
        browser = used.browser.connection.context.browser
        assert browser is not None
        context = await browser.new_context(permissions=["clipboard-read", "clipboard-write"])
        opened = await context.new_page()
        await opened.goto(page)
        text = await opened.evaluate("navigator.clipboard.readText()")
        await opened.evaluate("navigator.clipboard.writeText('the machine')")
        await context.close()
        return str(text)

    await used("go_to_url", url=page)
    await browser_loop.run(real)
    for label in ("Text", "Item", "Command", "Custom"):
        await used("click_element", label=label)
    await used("click_element", label="Target")
    await used("send_keys", keys="Control+V Control+A Control+X")
    assert await browser_loop.run(real) == "the machine"
    assert "machine" not in await used("send_keys", keys="Control+V")
