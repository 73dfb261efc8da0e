"""What the browser shows now stands at the end of a request, and is never stored."""

import pytest

from openmanus_graph import build_manus_graph
from tests.support.graphs import calls, run_graph, scripted
from tests.support.static_site import serving


@pytest.mark.parametrize("sees", [True, False])
async def test_the_state_comes_last_with_a_picture_for_a_model_that_sees(sees: bool) -> None:
    with serving() as site:
        look = ("browser_use", {"action": "go_to_url", "url": f"{site}/forms.html"})
        others = [calls(("bash", {"command": f"echo {n}"}), prefix=f"b{n}-") for n in range(2)]
        model = scripted(calls(look), *others, "done")
        model.profile = {"image_inputs": sees}
        ran = await run_graph(build_manus_graph(), model=model, allow_hosts=("127.0.0.1",))
    first, second, third, last = model.requests
    assert site in second[-1].text
    assert ("image_url" in str(second[-1].content)) == sees
    assert second[-1].type == "human"
    assert third[-1].type == "human", "the browser was used three messages ago"
    assert last[-1].type == "tool", "and is not in use any more"
    assert "image_url" not in str([message.content for message in ran.messages])
    assert [message.type for message in ran.messages].count("human") == 1
    assert len(first) == 2
