"""The shop job, step by step, and what it costs."""

import pytest

from openmanus_graph.backends.browser.page.dropdown import select_dropdown_option
from openmanus_graph.backends.browser.page.fields import input_text
from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.backends.browser.page.text import full_text, tokens
from tests.support.shop import Shop
from tests.support.tabs import BUDGET, Tab, Text

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_the_cheapest_lamp_in_stock_is_ordered_for_few_tokens(
    tab: Tab, corner_shop: Shop
) -> None:
    seen = [await tab.open(corner_shop.url)]
    full: list[str] = []

    async def step(*args: object) -> str:
        seen.append(await tab.do(*args))  # type: ignore[arg-type]  # as the test gives them
        assert tab.shot
        full.append(await tab.page.aria_snapshot(mode="ai"))
        return seen[-1]

    assert "48 articles" in seen[0]
    await step(click, '"lamp"')
    await step(select_dropdown_option, "Sort by", Text("Price, low to high"))
    text = full_text(await tab.view.look(), BUDGET)
    cheapest = next(line for line in text.splitlines() if "Add to cart" in line)
    name = cheapest.split('"')[1]
    assert "is in the cart" in await step(click, int(cheapest.split("[")[2].split("]")[0]))
    assert name in await step(click, "🛒")
    await step(click, "Check out")
    for field, value in (("Name", "Ada"), ("Street", "Main 1"), ("City", "Bern")):
        await step(input_text, f'textbox "{field}"', Text(value))
    await step(select_dropdown_option, '"Delivery"', Text("Courier"))
    await step(click, "accept the terms")
    assert "Your order has number 1001" in await step(click, "Order now")
    ordered = corner_shop.orders[0]
    assert ordered["delivery"] == "courier"
    assert ordered["terms"] == "on"
    assert len(ordered["cart"]) == 1
    spent, naive = sum(map(tokens, seen[1:])), sum(map(tokens, full))
    assert spent <= naive / 4, (spent, naive)


async def test_pages_and_search_of_the_shop_work(tab: Tab, corner_shop: Shop) -> None:
    await tab.open(corner_shop.url)
    assert "Page 2 of 4" in await tab.do(click, "›")
    assert "1 articles" in await tab.do(input_text, "Search", Text("star"))
    assert "Back to the list" in await tab.do(click, '"Star lamp"')
