"""Whatever a person can act on has an index in the text, whatever it is made of and stands in."""

import re
from itertools import product

import pytest

from tests.support.generated_pages import KINDS, SURROUNDINGS, generated_page
from tests.support.sampling import sampled
from tests.support.tabs import Tab

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="session")]
HTML = "text/html"
FEWEST = 4
"""Controls of a page: an oracle that finds fewer sees nothing."""


@pytest.mark.parametrize(
    "made", sampled(list(product(KINDS, SURROUNDINGS)), 18, "generated pages"), ids="-".join
)
async def test_nothing_is_missing(tab: Tab, made: tuple[str, str]) -> None:
    html = generated_page(*made)
    await tab.page.route("**/generated", lambda route: route.fulfill(body=html, content_type=HTML))
    text = await tab.open("generated")
    await tab.page.unroute("**/generated")
    marks = [mark for frame in tab.page.frames for mark in await frame.evaluate("oracle()")]
    assert len(marks) >= FEWEST
    missing = [mark for mark in marks if not re.search(rf"\[\d+\] [^\[\n]*\b{mark}\b", text)]
    assert not missing, text
