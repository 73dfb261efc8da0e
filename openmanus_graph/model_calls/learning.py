"""Learns what a server takes from its refusals of one request: at most one change for each."""

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any

from openmanus_graph.backends.models.dialects import Dialect, Lesson, lessons
from openmanus_graph.backends.models.failures import ModelError, refusal_text
from openmanus_graph.model_calls.fitting import sent_request
from openmanus_graph.model_calls.provider_request import ProviderRequest

MOST_LESSONS = 8
"""For one request: a server that refuses for a new reason each time is not asked for ever."""


class Learning:
    """What was tried so far so that a server takes one request."""

    def __init__(self, request: ProviderRequest, parameters: Collection[str]) -> None:
        """Begin with what is known of the server.

        Args:
            request: As everybody's is.
            parameters: Names of those that the client sends.
        """
        self._model = request.model
        self._parameters = parameters
        self.now = self.lasting = request.model.dialect.now
        self._before: tuple[Dialect, Dialect] | None = None
        self._refusal = ""
        self._tried = set[str]()
        self._forgot = False

    def unlearn(self, **changes: bool) -> None:
        """Note that the server does not do what was asked, though it did not refuse it."""
        self.now, self.lasting = self.now.changed(changes), self.lasting.changed(changes)

    def learn(
        self, error: ModelError, sent: ProviderRequest, notice: Callable[[str], None]
    ) -> None:
        """Change the dialect so that the server may take the request.

        Args:
            error: How the request failed.
            sent: The request, before it was made to fit.
            notice: Tells the person what is changed.

        Raises:
            ModelError: The same, where nothing more can be done.
        """
        text = refusal_text(error)
        if text is None or len(self._tried) >= 2 * MOST_LESSONS:
            raise error
        if text == self._refusal and self._before is not None:
            self.now, self.lasting = self._before  # the last change was not it
        self._refusal, self._before = text, (self.now, self.lasting)
        lesson = self._next(text, sent)
        if lesson is not None:
            self.now = self.now.changed(lesson.changes)
            if lesson.lasts:
                self.lasting = self.lasting.changed(lesson.changes)
            notice(f"{error.sentence} It is asked again: {lesson.words}.")
            return
        known = self._model.dialect.known
        if self._forgot or self.now == known:
            raise error
        self._forgot, self.now, self.lasting = True, known, known
        notice(f"{error.sentence} It is asked again without what was learnt about it before.")

    def _next(self, text: str, sent: ProviderRequest) -> Lesson | None:
        """Return the first change that is new, and that the settings allow."""
        names = map(self.now.name_of, self._parameters)
        for lesson in lessons(text, sent_request(sent, [name for name in names if name])):
            if "tools" in lesson.changes and self._model.settings.tool_calling != "auto":
                continue
            old = {name: _current(self.now, name, new) for name, new in lesson.changes.items()}
            if old != lesson.changes and not self._is_tried(lesson.changes):
                self._tried |= {_key(old), _key(lesson.changes)}
                return lesson
        return None

    def _is_tried(self, changes: Mapping[str, Any]) -> bool:
        return _key(changes) in self._tried


def _current(dialect: Dialect, name: str, new: Any) -> Any:
    """Return a field as it is, of the parameters only those that would change."""
    value = getattr(dialect, name)
    return {key: value.get(key, key) for key in new} if name == "parameters" else value


def _key(changes: Mapping[str, Any]) -> str:
    return json.dumps(changes, sort_keys=True)
