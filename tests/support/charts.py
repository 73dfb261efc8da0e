"""Looking at drawn charts: is there anything on them, and where?"""

import json
import re
from pathlib import Path
from typing import Any

from PIL import Image

Box = tuple[float, float, float, float]


def ink(path: Path, box: Box = (0, 0, 1, 1)) -> float:
    """Return the share of pixels that are not white, within a part of the picture."""
    with Image.open(path) as picture:
        width, height = picture.size
        part = (box[0] * width, box[1] * height, box[2] * width, box[3] * height)
        grey = picture.convert("L").crop(part)
        histogram: list[int] = grey.histogram()
    return sum(histogram[:200]) / max(1, sum(histogram))


def spec_in(page: Path) -> dict[str, Any]:
    """Return the specification that an interactive page shows."""
    found = re.search(
        r'<script type="application/json" id="spec">(.*?)</script>', page.read_text("utf-8"), re.S
    )
    assert found is not None
    spec: dict[str, Any] = json.loads(found[1])
    return spec
