"""The shop site with its server part: 48 articles and a book of orders."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.static_site import SITES, SiteHandler, serving

KINDS = {
    "mug": ["Blue", "Red", "Green", "Black", "White", "Striped", "Tall", "Tiny", "Travel", "Enamel",
            "Glass", "Clay"],
    "lamp": ["Desk", "Floor", "Reading", "Night", "Clip", "Garden", "Paper", "Brass", "Copper",
             "Salt", "Moon", "Star"],
    "bag": ["Canvas", "Leather", "Cotton", "Rope", "Felt", "Mesh", "Duffel", "Tote", "Sling",
            "Bucket", "Belt", "Roll"],
    "chair": ["Oak", "Pine", "Steel", "Wicker", "Folding", "Rocking", "Lounge", "Bar", "Camp",
              "Office", "Cane", "Velvet"],
}  # fmt: skip


@dataclass
class Shop:
    """The shop's address and what was ordered from it."""

    url: str = ""
    orders: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


def articles() -> list[dict[str, Any]]:
    """Return the 48 articles; the Moon lamp is the cheapest lamp that is in stock."""
    found: list[dict[str, Any]] = []
    for kind, names in KINDS.items():
        for place, name in enumerate(names):
            number = len(found) + 1
            found.append(
                {
                    "id": number,
                    "name": f"{name} {kind}",
                    "kind": kind,
                    "cents": 495 + (number * 733) % 4100,
                    "stars": 1 + (number * 7) % 5,
                    "stock": (place * 5) % 7,
                    "text": f"A {name.lower()} {kind} of good make.",
                }
            )
    return found


@contextmanager
def shop() -> Generator[Shop]:
    """Open the shop on a free port."""
    open_shop = Shop()

    class Handler(SiteHandler):
        def do_GET(self) -> None:
            if self.path == "/shop/api/articles":
                self.stopped.wait(0.3)
                self.send_json(articles())
            else:
                super().do_GET()

        def do_POST(self) -> None:
            given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            open_shop.orders.append(given)
            self.send_json({"number": 1000 + len(open_shop.orders)})

    with serving(Handler, SITES) as url:
        open_shop.url = f"{url}/shop/"
        yield open_shop
