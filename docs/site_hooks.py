"""What the site does with pages that are written for a clone."""

import re
from typing import Any

_OUTSIDE = re.compile(r"\[([^\]\n]+)\]\(\.\./[^)\s]+\)")


def on_page_markdown(markdown: str, *, page: Any, **more: Any) -> str:
    """Leave out links to files beside `docs/`, which are not on the site; their words stay."""
    return markdown if "/" in page.file.src_uri else _OUTSIDE.sub(r"\1", markdown)
