"""Keeps what was learnt about servers, for the process and in the person's configuration folder."""

import asyncio
import contextlib
import datetime
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from openmanus_graph.backends.models.dialects import Dialect, words_of
from openmanus_graph.config.files import changed_object, config_home, read_object
from openmanus_graph.errors import ConfigError

log = logging.getLogger(__name__)
KEPT_DAYS = 30
"""How long it is believed: servers are upgraded, and some losses no refusal would tell of."""
_FIELDS = TypeAdapter(Dialect)


class LearntDialect:
    """The dialect of one server and model, which grows by refusals."""

    def __init__(self, known: Dialect, server: str = "", model: str = "") -> None:
        """Begin with what is known.

        Args:
            known: Beforehand, of its provider.
            server: Where it is kept by; none: for as long as the process lives.
            model: The model's name.
        """
        self.known = known
        self.now = known
        self._lasting = known
        self._server, self._model = server, model

    def load(self) -> None:
        """Read what was learnt earlier. Blocks."""
        entry = read_learnt().get(self._server, {}).get(self._model)
        if entry is not None:
            with contextlib.suppress(ValidationError, TypeError):
                changed = self.known.changed(entry["dialect"])
                self.now = self._lasting = _FIELDS.validate_python(vars(changed))

    async def learn(self, now: Dialect, lasting: Dialect) -> None:
        """Use a dialect from now on, as it has worked, and keep what lasts of it."""
        self.now = now
        if lasting == self._lasting:
            return
        self._lasting = lasting
        if self._server:
            await asyncio.to_thread(self._store, lasting)

    def _store(self, lasting: Dialect) -> None:
        differences = lasting.differences(self.known)
        try:
            with changed_object(_path(), mode=0o644) as servers:
                models = servers.setdefault(self._server, {})
                models.pop(self._model, None)
                if differences:
                    models[self._model] = {"learnt": _today().isoformat(), "dialect": differences}
        except (ConfigError, AttributeError) as error:  # it is learnt again by the next process
            log.warning("What was learnt about %s was not kept: %s", self._server, error)


def server_name(provider: str, base_url: str | None) -> str:
    """Return how a server is listed: by host and port, or by its provider's name."""
    if not base_url:
        return provider
    parts = urlsplit(base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.hostname}:{port}"


def described() -> list[str]:
    """Return what was learnt, one line for each server and model. Blocks."""
    return [
        f"{server}  {model}  (learnt on {entry['learnt']}): {words_of(entry['dialect'])}"
        for server, models in sorted(read_learnt().items())
        for model, entry in sorted(models.items())
    ]


def read_learnt() -> dict[str, dict[str, Any]]:
    """Return what was learnt lately, by server and model. Blocks."""
    oldest = (_today() - datetime.timedelta(days=KEPT_DAYS)).isoformat()
    return {
        server: kept
        for server, models in read_object(_path()).items()
        if (kept := {name: entry for name, entry in _models(models) if _is_usable(entry, oldest)})
    }


def forget(server: str) -> bool:
    """Forget what was learnt about a server, and return True if that was something. Blocks.

    Args:
        server: As it is listed; its address is understood, too.

    Raises:
        ConfigError: The file cannot be read or written.
    """
    server = server_name("", server) if "://" in server else server
    if server not in read_object(_path()):
        return False
    with changed_object(_path(), mode=0o644) as servers:
        return servers.pop(server, None) is not None


def _path() -> Path:
    return config_home() / "models.json"


def _models(models: object) -> list[tuple[str, Any]]:
    return list(cast("Mapping[str, Any]", models).items()) if isinstance(models, dict) else []


def _is_usable(entry: Any, oldest: str) -> bool:
    fields = cast("dict[str, Any]", entry) if isinstance(entry, dict) else {}
    date = fields.get("learnt")
    return isinstance(fields.get("dialect"), dict) and isinstance(date, str) and date >= oldest


def _today() -> datetime.date:
    return datetime.datetime.now(tz=datetime.UTC).date()
