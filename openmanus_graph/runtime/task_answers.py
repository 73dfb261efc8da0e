"""The answers of people that the running task was resumed with, and which question each is for.

LangGraph gives the first answer to a task's first `interrupt()`, the second to its second, and so
on. That goes wrong where a question is not put again, because the call that asked it stands in the
ledger, and an answer that was given without an id is given to the next question as well. So the
places of a task's questions are decided here.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from langchain_core.runnables import RunnableConfig
from langgraph._internal._constants import CONFIG_KEY_SCRATCHPAD, CONFIG_KEY_SEND, RESUME
from langgraph.errors import GraphInterrupt, is_invalid_resume
from pydantic import ValidationError

from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.session_registry import is_answered_without_id
from openmanus_graph.state.interrupts import asked_again
from openmanus_graph.state.validation import validation_problems

log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass
class _Asker:
    """Something that asks: a call, a tool, a hook."""

    answers: "TaskAnswers"
    known: list[int]
    """Places of the questions that it asked in earlier executions of the task, in order."""
    asked: list[int] = field(default_factory=list[int])
    """Places of its questions in this one."""


_asker: ContextVar[_Asker | None] = ContextVar("openmanus_asker", default=None)


class TaskAnswers:
    """The answers to one execution of a task. What runs in `answered` takes them from it."""

    def __init__(self, config: RunnableConfig) -> None:
        configurable: dict[str, Any] = config.get("configurable", {})
        scratchpad = configurable[CONFIG_KEY_SCRATCHPAD]
        self._given: list[Any] = scratchpad.resume
        self._send = configurable[CONFIG_KEY_SEND]
        self._count, self._take = scratchpad.interrupt_counter, scratchpad.get_null_resume
        self._without_id = is_answered_without_id(config)
        self._unanswered = False
        configurable[CONFIG_KEY_SCRATCHPAD] = replace(
            scratchpad, interrupt_counter=self._place, get_null_resume=self._answer_without_id
        )

    @property
    def places(self) -> range:
        """The places that may hold an answer; empty if the task was not resumed with any."""
        return range(len(self._given) + self._without_id)

    async def answered(
        self,
        ask: Callable[[], Awaitable[T]],
        known: Iterable[int],
        refuses: Callable[[Exception], bool] = is_invalid_resume,
        asked: Callable[[list[int]], Awaitable[None]] | None = None,
    ) -> T:
        """Run what may ask people by `interrupt()`, again without an answer that it refuses.

        Args:
            ask: What may ask. Up to its first open question it must be fit to run again.
            known: Places of the questions that it asked before, in order.
            refuses: Says whether an exception means that the answer before was none.
            asked: Is told the places of all its questions when one of them is open.
        """
        left, problem = list(known), ""
        while True:
            asker = _Asker(self, left)
            token = _asker.set(asker)
            try:
                return await ask()
            except GraphInterrupt as waiting:
                if asked is not None and asker.asked:
                    await asked(asker.asked)
                if not problem:
                    raise
                raise GraphInterrupt(
                    [asked_again(one, problem) for one in waiting.args[0]]
                ) from None
            except Exception as error:
                answered = [place for place in asker.asked if place in left]
                if not answered or not refuses(error):
                    raise
                left, problem = [one for one in left if one != answered[-1]], _words_of(error)
                log.warning("An answer could not be used: %s.", problem)
            finally:
                _asker.reset(token)

    def _place(self) -> int:
        """Return the place of the answer to the next question, as LangGraph's counter does."""
        asker, end = _asker.get(), len(self._given)
        if asker is None or asker.answers is not self:
            return int(self._count())
        number = len(asker.asked)
        is_known = number < len(asker.known) and asker.known[number] <= end
        place = asker.known[number] if is_known else end
        asker.asked.append(place)
        if place == end:
            # Nothing before asked it: what was answered without an id was another question.
            answer = self._take(True) if is_known and self._without_id else None
            if answer is None:
                self._unanswered = True
                if self._given:  # saved with the question, whose id counts them
                    self._send([(RESUME, list(self._given))])
            else:
                self._given.append(answer)
        return place

    def _answer_without_id(self, consume: bool = False) -> Any:
        """Return an answer without an id for a graph inside of this task."""
        if self._unanswered:  # `interrupt()` asks right after it asked for the place
            self._unanswered = False
            return None
        return self._take(consume) if self._without_id else None


def _words_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return "; ".join(validation_problems(error, "it"))
    # Others, of a missing key say, speak of the code that read it.
    said = str(error) if isinstance(error, ValueError | ToolError) else "it has another form"
    return said.rstrip(".")
