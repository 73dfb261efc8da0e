"""Move the page, or a part of it that scrolls by itself."""

from openmanus_graph.backends.browser.page.frames import FrameDetached, JsonObject
from openmanus_graph.backends.browser.page.view import PageView, Target
from openmanus_graph.errors import TrustedToolError


async def scroll(view: PageView, pixels: int | None = None, index: int | None = None) -> str:
    """Scroll the page or the part of it that an element belongs to.

    Args:
        view: The tab's page.
        pixels: How far, up if negative; None means one screen down, or an element into view.
        index: An element whose scroll area is meant.
    """
    if index is None:
        await view.begin()
        worlds = await view.frames.worlds()
        return _moved(await view.frames.call(worlds[0], "scrollPage", None, pixels), "the page")

    async def move(target: Target) -> str:
        await view.begin(target)
        return _moved(await target.call("scrollPage", pixels), target.label)

    return await view.with_element(index, move)


async def scroll_to_text(view: PageView, text: str) -> str:
    """Scroll to the first place that shows a text; to the next one when called again."""
    await view.begin()
    for world in await view.frames.worlds():
        try:
            found = await view.frames.call(world, "scrollToText", text)
        except FrameDetached:
            continue
        if found["places"]:
            many = f" (place {found['place']} of {found['places']})" if found["places"] > 1 else ""
            return f'Scrolled to "{found["text"]}"{many}.'
    raise TrustedToolError(
        f'The page does not show "{text}". Look for fewer or other words; more may appear after '
        "scrolling down or opening a part of the page."
    )


def _moved(answer: JsonObject, what: str) -> str:
    if answer.get("into"):
        return f"Scrolled {what} into view."
    if not answer["moved"]:
        end = "end" if answer["above"] else "only screen" if not answer["below"] else "top"
        return f"Nothing moved: {what} is at its {end} ({answer['below']} px below)."
    way = "down" if answer["moved"] > 0 else "up"
    return (
        f"Scrolled {what} {way} by {abs(answer['moved'])} px: {answer['above']} px above, "
        f"{answer['below']} px below."
    )
