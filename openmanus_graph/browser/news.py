"""What happened in a window that the model has to be told with the next observation."""

import asyncio
import contextlib

MAX_TOLD = 30


class News:
    """Sentences, each told once."""

    def __init__(self) -> None:
        self._told: list[str] = []
        self._some = asyncio.Event()

    def tell(self, what: str) -> None:
        """Note something; what comes in masses is cut."""
        if len(self._told) < MAX_TOLD:
            self._told.append(what)
        self._some.set()

    def take(self) -> list[str]:
        """Return what is to be told."""
        told, self._told = list(dict.fromkeys(self._told)), []
        self._some.clear()
        return told

    async def wait(self, limit_s: float) -> list[str]:
        """Wait a moment for something to tell, and return it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._some.wait()
        return self.take()
