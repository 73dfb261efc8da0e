"""Give files to a page."""

from collections.abc import Sequence
from pathlib import Path

from openmanus_graph.backends.browser.page.pointer import click
from openmanus_graph.backends.browser.page.view import PageView, Target
from openmanus_graph.errors import ToolError

CHOOSER_MS = 4000


async def upload_file(view: PageView, index: int, paths: Sequence[Path]) -> str:
    """Put files into a file input, or into the chooser that a click on the element opens.

    Args:
        view: The tab's page.
        index: The file input, its label, or the button that opens a file chooser.
        paths: The files; they exist and may be read.
    """

    async def known(target: Target) -> tuple[Target, bool]:
        await view.begin(target)
        facts = await target.call("fileFacts")
        _refuse(target, facts.get("disabled", False), facts.get("many", True), paths)
        return target, not facts.get("none")

    target, direct = await view.with_element(index, known)
    if direct:
        await _fill(target, paths)
    else:
        await _choose(view, target, paths)
    return f"Gave {', '.join(path.name for path in paths)} to {target.label}."


def _refuse(target: Target, disabled: bool, many: bool, paths: Sequence[Path]) -> None:
    if disabled:
        raise ToolError(f"{target.label} is disabled. Fill in or choose what it waits for first.")
    if len(paths) > 1 and not many:
        raise ToolError(f"{target.label} takes one file only, and {len(paths)} were given.")


async def _fill(target: Target, paths: Sequence[Path]) -> None:
    frames = target.view.frames
    node = await frames.object_id(target.world, "fileInput", target.element.number)
    files = {"files": [str(path) for path in paths], "objectId": node}
    await frames.send(target.world.session, "DOM.setFileInputFiles", files)


async def _choose(view: PageView, target: Target, paths: Sequence[Path]) -> None:
    from playwright.async_api import TimeoutError as NoChooser

    try:
        async with view.page.expect_file_chooser(timeout=CHOOSER_MS) as chooser:
            await click(view, target.element.index)
        opened = await chooser.value
    except NoChooser as error:
        raise ToolError(
            f"{target.label} takes no files and opened no file chooser. Choose a file input or "
            "the button that opens one."
        ) from error
    _refuse(target, False, opened.is_multiple(), paths)
    await opened.set_files(list(paths))
