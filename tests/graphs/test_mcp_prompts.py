"""Prompts of MCP servers, fetched outside of runs."""

import pytest

from openmanus_graph.backends.mcp.failures import ServerError
from openmanus_graph.backends.mcp.tool import get_prompt, list_prompts
from tests.support.mcp_servers import raw, sdk_server

LIBRARY = raw(way="library")


async def test_all_pages_of_prompts_are_listed() -> None:
    report, bare = await list_prompts(LIBRARY)
    assert (report.name, report.description) == ("report", "Write a report")
    assert dict(report.arguments) == {"subject": True, "tone": False}
    assert (bare.name, bare.description, dict(bare.arguments)) == ("bare", "", {})


async def test_a_prompt_is_filled_in_and_what_is_no_text_is_named() -> None:
    report, _ = await list_prompts(LIBRARY)
    text = await get_prompt(report, {"subject": "bees"})
    assert text == "Report on bees, plain.\n\nChapter 1\n\n[image: not shown]"


async def test_a_server_without_prompts_has_none_over_http_neither() -> None:
    assert await list_prompts(raw()) == []
    with sdk_server("http") as server:
        assert await list_prompts(server) == []


async def test_what_goes_wrong_is_said() -> None:
    with pytest.raises(ServerError, match="no configuration found"):
        await list_prompts(raw(way="exit"))
    report, _ = await list_prompts(LIBRARY)
    unknown = type(report)(LIBRARY, "gone", "", {})
    with pytest.raises(ServerError, match="I do not know that"):
        await get_prompt(unknown, {})
