"""`fetch_page` and `crawl4ai` as the model sees them."""

import asyncio
import io
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from openpyxl import Workbook
from pptx import Presentation

from openmanus_graph import ToolError, build_manus_graph
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing import tool_runtime, tool_session
from openmanus_graph.tool_calls.declaration import traits_of
from openmanus_graph.tool_calls.toolset import Toolset
from openmanus_graph.tools.files import read_file
from openmanus_graph.tools.web import crawl4ai, fetch_page
from tests.support.graphs import calls, run_graph
from tests.support.pages import PageServer


@pytest.fixture
def site() -> Iterator[PageServer]:
    with PageServer() as server:
        yield server


@pytest.fixture
def session(site: PageServer, tmp_path: Path) -> Iterator[Session]:
    made = tool_session(tmp_path / "work")
    made.configure(replace(made.settings, allow_hosts=(site.place,)))
    yield made
    made.close()


async def call(tool: BaseTool, session: Session, **args: Any) -> Observation:
    assert isinstance(tool, StructuredTool)
    assert tool.coroutine is not None
    checked = tool.tool_call_schema.model_validate(args).model_dump()  # type: ignore[union-attr]  # a model
    text, observation = await tool.coroutine(**checked, runtime=tool_runtime(session))
    assert text == observation.text
    assert isinstance(observation, Observation)
    return observation


async def fetched(session: Session, url: str) -> str:
    return (await call(fetch_page, session, url=url)).text


async def test_a_page_is_shown_as_markdown_with_its_address(
    site: PageServer, session: Session
) -> None:
    url = site.add("/a", "<title>T</title><main><h1>Head</h1><a href='b'>b</a></main>")
    text = await fetched(session, site.url(f"/redirect?to={url}"))
    assert text.startswith(f"{url} (redirected from {site.url('/redirect')}")
    assert "Title: T" in text
    assert f"[b]({site.url('/b')})" in text


async def test_a_long_page_shows_its_beginning_and_where_the_rest_is(
    site: PageServer, session: Session
) -> None:
    parts = "".join(f"<h2>Part {n}</h2><p>{'word ' * 400}</p>" for n in range(40))
    text = await fetched(session, site.add("/long", f"<h1>Long</h1>{parts}"))
    assert len(text) <= 8000
    assert "## Part 0" in text
    found = re.search(
        r'\[\.\.\. lines (\d+)-(\d+) of \2 left out; read_file\(path="(\S+\.md)", '
        r'lines="\1-\2"\) shows them',
        text,
    )
    assert found is not None
    head = text[: found.start()].rstrip().partition("# Long")[2]
    whole = (await asyncio.to_thread(Path(found[3]).read_text)).split("\n")
    kept = "\n".join(whole[: int(found[1]) - 1]).rstrip().partition("# Long")[2]
    assert head == kept, "what is shown and what the mark names are all of it"
    rows = re.findall(r"(\d+)-(\d+): (?:Long > )?Part (\d+)", text)
    first, last, number = rows[-1]
    assert isinstance(read_file, StructuredTool)
    assert read_file.func is not None
    shown = read_file.func(path=found[3], lines=f"{first}-{last}", runtime=tool_runtime(session))[0]
    assert f"## Part {number}" in shown


@pytest.mark.parametrize("status", [404, 500])
async def test_an_error_page_is_a_failure_that_says_which(
    site: PageServer, session: Session, status: int
) -> None:
    observation = await call(fetch_page, session, url=site.url(f"/status/{status}"))
    assert observation.failed
    assert f"HTTP {status} " in observation.text
    assert f"# Status {status}" in observation.text


async def test_text_and_data_are_shown_as_they_are(site: PageServer, session: Session) -> None:
    data = '{"a": ["<b>", 1]}'
    assert data in await fetched(session, site.add("/j", data, "application/json"))
    assert data in await fetched(session, site.add("/v", data, "application/vnd.api+json"))
    plain = "<html> is a tag\n# no heading"
    assert plain in await fetched(session, site.add("/t", plain, "text/plain"))
    assert "a;ü" in await fetched(session, site.add("/c", "a;ü".encode("cp1252"), "text/csv"))
    assert "a,b" in await fetched(session, site.add("/o", "a,b\n1,2\n", "application/octet-stream"))
    assert "(empty)" in await fetched(session, site.add("/e", "", "text/plain"))
    assert "# Page" in await fetched(session, site.add("/n", "<!doctype html><h1>Page</h1>", ""))


def slides() -> bytes:
    presentation = Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[5])
    assert slide.shapes.title is not None
    slide.shapes.title.text = "Sales went up."
    file = io.BytesIO()
    presentation.save(file)
    return file.getvalue()


def excel_file() -> bytes:
    book = Workbook()
    assert book.active is not None
    book.active.append(["Tea", 3])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("make", "suffix", "media_type", "said"),
    [
        (slides, ".pptx", "application/octet-stream", "Sales went up."),
        (excel_file, ".xlsx", "application/vnd.ms-excel", "Tea | 3"),
    ],
)
async def test_documents_are_read_and_kept(
    site: PageServer, session: Session, make: Any, suffix: str, media_type: str, said: str
) -> None:
    data = make()
    text = await fetched(session, site.add("/report", data, media_type))
    assert said in text
    found = re.search(r"kept as (\S+),", text)
    assert found is not None
    assert found[1].endswith(suffix)
    assert (session.workspace.root / found[1]).read_bytes() == data


async def test_a_damaged_document_is_reported(site: PageServer, session: Session) -> None:
    with pytest.raises(ToolError, match="damaged"):
        await fetched(session, site.add("/d", b"%PDF-1.7 nothing more", "application/pdf"))


async def test_other_files_are_kept_and_described(site: PageServer, session: Session) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4
    url = site.add("/p.png", picture, "image/png")
    text = await fetched(session, url)
    assert "PNG picture (image/png, 1.0 KB)" in text
    found = re.search(r"kept as (\S+\.png)\.", text)
    assert found is not None
    assert (session.workspace.root / found[1]).read_bytes() == picture


@pytest.mark.parametrize(
    ("mb", "kind", "advised"),
    [(60, "application/zip", True), (300, "application/zip", False),
     (60, "application/pdf", False)],
)  # fmt: skip
async def test_the_browser_is_advised_for_what_it_can_download(
    site: PageServer, session: Session, mb: int, kind: str, advised: bool
) -> None:
    with pytest.raises(ToolError) as raised:
        await fetched(session, site.url(f"/big?mb={mb}&type={kind}"))
    assert ("browser_use (up to 200.0 MB)" in str(raised.value)) == advised
    assert "smaller version" in str(raised.value)


async def test_a_page_that_scripts_make_says_so(site: PageServer, session: Session) -> None:
    url = site.add("/app", "<title>App</title><div id=root></div><script>boot()</script>")
    assert "browser_use or crawl4ai" in await fetched(session, url)
    chinese = site.add("/zh", "<p>" + "这里有很多字。" * 40)
    assert "scripts may make it" not in await fetched(session, chinese)


async def test_a_refused_address_says_how_it_is_allowed(session: Session) -> None:
    with pytest.raises(ToolError, match="--allow-host 10.0.0.1:80"):
        await fetched(session, "http://10.0.0.1/")


# crawl4ai


def rendering(html: str) -> str:
    return f"<title>Made</title><main id=m></main><script>m.innerHTML = `{html}`</script>"


@pytest.mark.slow
async def test_pages_are_rendered_and_counted(site: PageServer, session: Session) -> None:
    one = site.add("/1", rendering("<h1>One</h1><a href='/x'>x</a><img src='/p.png' alt='p'>"))
    two = site.add("/2", rendering("<p>Two words and more</p>"))
    observation = await call(crawl4ai, session, urls=[one, two])
    text = observation.text
    assert not observation.failed
    assert text.startswith("2 addresses: 2 read, 0 failed.")
    assert f"## 1. {one}\nHTTP 200, " in text
    assert "1 links, 1 images" in text
    assert "Title: Made" in text
    assert f"# One\n\n[x]({site.url('/x')})" in text
    assert "Two words and more" in text
    assert "scripts" not in text


@pytest.mark.slow
async def test_one_bad_address_does_not_stop_the_others(site: PageServer, session: Session) -> None:
    good = site.add("/good", "<p>good page</p>")
    urls = ["not an address", "ftp://x.example/", "http://10.0.0.1/", site.url("/status/404"), good]
    observation = await call(crawl4ai, session, urls=urls)
    assert not observation.failed
    assert "5 addresses: 1 read, 4 failed." in observation.text
    assert "good page" in observation.text
    assert "FAILED: 'not an address' was not opened" in observation.text
    assert "only http and https" in observation.text
    assert "--allow-host" in observation.text
    assert "FAILED: HTTP 404" in observation.text


async def test_only_failures_are_a_failure(session: Session) -> None:
    assert (await call(crawl4ai, session, urls="http://10.0.0.1/")).failed


@pytest.mark.slow
async def test_a_page_that_hangs_is_given_up_alone(site: PageServer, session: Session) -> None:
    good = site.add("/good", "<p>good page</p>")
    await call(crawl4ai, session, urls=[site.add("/first", "<p>first</p>")])  # the browser is open
    observation = await call(crawl4ai, session, urls=[site.url("/silent"), good], timeout=20)
    assert "1 read, 1 failed" in observation.text
    assert "within 20 s" in observation.text


async def test_pages_are_read_at_once(site: PageServer, session: Session) -> None:
    """Pages that wait for each other are all read: one after another none would be."""
    gate = "<script>fetch('/meet').then(r => r.text()).then(t => document.body.append(t))</script>"
    site.meeting = threading.Barrier(3)
    urls = [site.add(f"/{n}", f"<body>{gate}</body>") for n in range(3)]
    observation = await call(crawl4ai, session, urls=urls, timeout=60)
    assert observation.text.count("all three are here") == 3


@pytest.mark.slow
async def test_pages_are_kept_for_the_run(site: PageServer, session: Session) -> None:
    url = site.add("/a", "<p>first version</p>")
    await call(crawl4ai, session, urls=[url])
    site.add("/a", "<p>second version</p>")
    again = await call(crawl4ai, session, urls=[url])
    assert "first version" in again.text
    assert "from the cache" in again.text
    fresh = await call(crawl4ai, session, urls=[url], bypass_cache=True)
    assert "second version" in fresh.text


async def test_robots_are_heeded(site: PageServer, session: Session) -> None:
    site.add("/robots.txt", "User-agent: *\nDisallow: /private", "text/plain")
    secret = site.add("/private/x", "<p>not for programs</p>")
    observation = await call(crawl4ai, session, urls=[secret])
    assert "robots.txt" in observation.text
    assert "/private/x" not in site.paths()


async def test_documents_are_read_by_plain_http(site: PageServer, session: Session) -> None:
    url = site.add("/report.pptx", slides(), "application/vnd.ms-powerpoint")
    assert "Sales went up." in (await call(crawl4ai, session, urls=[url])).text


async def test_without_a_browser_pages_are_read_all_the_same(
    site: PageServer, session: Session
) -> None:
    browser = replace(session.settings.browser, chrome_instance_path="/nowhere/chromium")
    session.configure(replace(session.settings, browser=browser))
    url = site.add("/a", "<p>plain page</p>")
    text = (await call(crawl4ai, session, urls=[url])).text
    assert "plain page" in text
    assert "Read without running its scripts" in text


async def test_long_pages_share_the_room(site: PageServer, session: Session) -> None:
    long = "<p>" + "word " * 4000 + "</p>"
    urls = [site.add(f"/{n}", f"<h1>Page {n}</h1>{long}") for n in range(3)]
    urls.append(site.add("/short", "<p>all of the short one</p>"))
    text = (await call(crawl4ai, session, urls=urls)).text
    assert len(text) <= 8000
    assert all(f"# Page {n}" in text for n in range(3))
    assert "all of the short one" in text
    assert text.count("sections of the whole, by line") == 3


@pytest.mark.parametrize(
    "args", [{"urls": []}, {"urls": ["x"], "timeout": 4}, {"urls": ["x"], "timeout": 121},
             {"urls": ["x"], "word_count_threshold": -1}, {"urls": ["x"] * 21}, {}, {"pages": "x"}],
)  # fmt: skip
async def test_wrong_arguments_are_reported(args: dict[str, Any]) -> None:
    ran = await run_graph(build_manus_graph(tools=[crawl4ai]), calls(("crawl4ai", args)), "done")
    assert "crawl4ai was not run" in ran.results()[0]


def test_they_are_declared_as_reading_the_outside() -> None:
    for tool in (fetch_page, crawl4ai):
        traits = traits_of(tool)
        assert (traits.effect, traits.untrusted, traits.approval) == ("read_only", True, False)
        assert traits.addresses is not None
    addresses = traits_of(crawl4ai).addresses
    assert addresses is not None
    assert list(addresses({"urls": "http://a/ http://b/"})) == ["http://a/", "http://b/"]
    assert list(addresses({"urls": 3})) == []


def test_their_arguments_are_those_of_the_reference_and_models_are_shown_what_is_needed() -> None:
    schema = convert_to_openai_tool(crawl4ai)["function"]["parameters"]
    assert (list(schema["properties"]), schema["required"]) == (["urls"], ["urls"])
    toolset = Toolset({crawl4ai.name: crawl4ai}, None)
    more = {"timeout": 5, "bypass_cache": True, "word_count_threshold": 0}
    toolset.check("crawl4ai", {"urls": ["http://a/"], **more})
    with pytest.raises(ToolError, match=r"timeout.*5"):
        toolset.check("crawl4ai", {"urls": ["http://a/"], "timeout": 1})
    assert convert_to_openai_tool(fetch_page)["function"]["parameters"]["required"] == ["url"]
