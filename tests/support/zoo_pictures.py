"""What servers refuse about pictures."""

import base64
import io
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from PIL import Image

from tests.support.zoo_envelopes import Refusal, anthropic_text, litellm_error
from tests.support.zoo_rules import Body, Rule


def pictures(body: Body) -> Iterator[tuple[int, int, str]]:
    """Yield the pictures of a request: the message's position, the block's, the data URL."""
    for n, message in enumerate(body["messages"]):
        content: Any = message.get("content")
        if isinstance(content, str):
            continue
        for position, part in enumerate(content or ()):
            if part.get("type") == "image_url":
                yield n, position, part["image_url"]["url"]


@lru_cache
def picture_size(url: str) -> tuple[int, int, int]:
    """Return width, height and bytes of a picture."""
    data = base64.b64decode(url.partition(",")[2], validate=True)
    with Image.open(io.BytesIO(data)) as image:
        return *image.size, len(data)


def any_picture(refuse: Callable[[int], Refusal]) -> Rule:
    """Refuse all pictures; `refuse` is given the message's position."""

    def rule(body: Body) -> Refusal | None:
        return next((refuse(n) for n, _, _ in pictures(body)), None)

    return rule


def at_most_pictures(most: int, refuse: Callable[[int], Refusal]) -> Rule:
    """Refuse more pictures in one request; `refuse` is given how many there are."""

    def rule(body: Body) -> Refusal | None:
        count = len(list(pictures(body)))
        return refuse(count) if count > most else None

    return rule


def picture_pixels(most: int) -> Rule:
    """Anthropic's limit of the longest side, behind a proxy."""

    def rule(body: Body) -> Refusal | None:
        for n, position, url in pictures(body):
            if max(picture_size(url)[:2]) > most:
                place = f"messages.{n}.content.{position}.image.source.base64.data"
                text = (
                    f"{place}: At least one of the image dimensions exceed max allowed size for "
                    f"many-image requests: {most} pixels"
                )
                return litellm_error(anthropic_text(text))
        return None

    return rule


def picture_bytes(most: int) -> Rule:
    """Anthropic's limit of bytes."""

    def rule(body: Body) -> Refusal | None:
        for n, position, url in pictures(body):
            size = len(url.partition(",")[2])
            if size > most:
                place = f"messages.{n}.content.{position}.image.source.base64"
                text = f"{place}: image exceeds 5 MB maximum: {size} bytes > {most} bytes"
                return Refusal(400, anthropic_text(text))
        return None

    return rule
