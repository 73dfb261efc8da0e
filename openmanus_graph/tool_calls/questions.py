"""Asks people from within a task that may run again from its start.

LangGraph gives the n-th answer of a task to its n-th `interrupt()`: each has an index. When a
sequential group runs again, calls with a recorded outcome are skipped, and their questions with
them. So the ledger records the indices of each call's questions, and answers that no call would
take are taken here: an `interrupt()` whose answer is known returns at once.
"""

import asyncio
import hmac
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, cast

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_config
from langgraph.errors import GraphInterrupt, is_invalid_resume
from langgraph.types import Interrupt, interrupt
from pydantic import ValidationError

from openmanus_graph.backends.persistence.ledger import EffectKey, Ledger
from openmanus_graph.config.secret_values import hmac_of, options_key
from openmanus_graph.errors import ToolError
from openmanus_graph.runtime.checkpoint_lineage import has_answers
from openmanus_graph.runtime.events import plan_step_of
from openmanus_graph.runtime.session_registry import is_answered
from openmanus_graph.state import interrupts
from openmanus_graph.state.validation import validation_problems

Kind = Literal["call", "value", "answer"]
_process_key = secrets.token_bytes(32)
"""Used if no key can be stored: approvals then end with this process."""
UNBELIEVED = (
    "Stored approvals of this thread carry no valid signature of yours, so they do not count: you "
    "are asked again."
)


async def seal(config: RunnableConfig, kind: Kind, values: Sequence[str]) -> list[str]:
    """Return approvals with a signature, as they are stored."""
    if not values:
        return []
    thread = str(config.get("configurable", {}).get("thread_id", ""))

    def sealed() -> list[str]:
        key = options_key(make=True) or _process_key
        return [f"{hmac_of(key, [thread, kind, value])} {value}" for value in values]

    return await asyncio.to_thread(sealed)


async def believed(config: RunnableConfig, kind: Kind, stored: Sequence[str]) -> list[str]:
    """Return the stored approvals that this user's processes sealed; anybody may write others."""
    values = [str(one).partition(" ")[2] for one in stored]
    sealed = await seal(config, kind, values)
    pairs = zip(stored, sealed, values, strict=True)
    return [
        value
        for given, right, value in pairs
        if hmac.compare_digest(str(given).encode(errors="replace"), right.encode(errors="replace"))
    ]


T = TypeVar("T")
_PAUSE = "interrupt "
"""Begins the ledger's name of a question that a tool or a hook asks; its id follows."""
_ELSEWHERE = -1
"""Index of a question that a graph within a tool asks: it has none in the task."""
_OPEN = "open"
"""The ledger's name of a task's last question."""


class Questions:
    """The questions of one execution of a task.

    The ledger records their indices. Without it nothing is saved.
    """

    def __init__(self, ledger: Ledger | None, config: RunnableConfig | None = None) -> None:
        self._ledger = ledger
        if ledger is not None and config is not None:
            self._resumed, given = is_answered(config), config.get("configurable", {})
            self._task = EffectKey(str(given["thread_id"]), given["checkpoint_ns"], "task", "", 0)
        self._index = 0
        """The next one, as far as it is known while a tool or a hook runs."""
        self._active: set[int] = set()
        """Indices of what runs now, which takes the answers itself."""
        self._exhausted = config is not None and not has_answers(config)
        """Whether no answers are left. The ledger is then not asked what they belong to."""
        self._over = False
        """Whether this execution has come to an open question."""

    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        """Return the answer to a question, or pause the run until there is one."""
        if plan_step := plan_step_of(get_config()):
            request = {**request, "plan_step": plan_step}
        if self._ledger is None:
            return interrupt(request)
        known = await self._known(key)
        asked_at = known.get(name)
        self._skip_to(max(self._active, default=-1) + 1 if asked_at is None else asked_at)
        while True:
            try:
                value = interrupt(request)
            except GraphInterrupt:
                self._exhausted = self._over = True
                await self._record(key, name, self._index)
                raise
            self._index += 1
            if asked_at is None or self._index - 1 != asked_at:
                continue
            text = json.dumps([key.digest, name, value], sort_keys=True, default=str)
            (sealed,) = await seal(get_config(), "answer", [text])
            done = f"{name} answered {sealed.partition(' ')[0]}"
            # LangGraph keeps an answer without an id, and gives it to later questions and runs too.
            # An answer without our seal may be anybody's.
            if self._resumed or known.get(done) == asked_at:
                await self._ledger.ask(key, done, asked_at)
                return value

    async def run_with_answers(
        self,
        key: EffectKey | None,
        ask: Callable[[], Awaitable[T]],
        refuses: Callable[[Exception], bool] = is_invalid_resume,
    ) -> T:
        """Run what may ask by `interrupt()`; run it again without an answer that it refuses.

        Args:
            key: The call that it belongs to; None if the task runs nothing else.
            ask: A tool or a hook, which can run again up to its question.
            refuses: Returns whether an exception means that the answer before was unusable.
        """
        if self._ledger is None:
            return await ask()
        known = await self._known(key or self._task)
        ahead = [index for index in known.values() if index >= self._index]
        self._skip_to(min(ahead, default=0))
        if key and not known:
            await self._drop_others()
        pauses = {name: index for name, index in known.items() if name.startswith(_PAUSE)}
        own = sorted(index for index in pauses.values() if index != _ELSEWHERE)
        self._active |= set(own)
        left, refused = len(own), cast("Exception | None", None)
        while True:
            try:
                result = await ask()
                break
            except GraphInterrupt as waiting:
                raise await self._paused(key or self._task, waiting, pauses, refused) from None
            except Exception as error:
                if not refuses(error) or not self._can_ask_again(error, left):
                    raise
                left, refused = left - 1, error
        self._active -= set(own)
        self._index = max([self._index, *(index + 1 for index in own)])
        return result

    async def skip(self, key: EffectKey) -> None:
        """Take the answers to the questions of a call that does not run again."""
        if self._ledger is not None:
            known = await self._ledger.asked(key)
            self._skip_to(max(known.values(), default=_ELSEWHERE) + 1)
            if known and self._exhausted:  # they were lost: others will have their indices
                await self._ledger.unask(key, self._index)

    async def decide(
        self,
        key: EffectKey,
        name: str,
        request: Mapping[str, Any],
        objection: Callable[[interrupts.Decision], Awaitable[str]] | None = None,
    ) -> interrupts.Decision:
        """Return a decision on a call; ask again if the answer is not a usable decision.

        `objection` returns why a decision cannot be carried out; empty if it can.
        """
        allowed = interrupts.allowed_decisions(request)
        shown, tries = dict(request), 0
        while True:
            answer = await self.ask(key, f"{name} {tries}", shown)
            decision = interrupts.read_decision_on(request["kind"], answer)
            problem = interrupts.no_decision(allowed)
            if decision is not None and decision.type in allowed:
                problem = await objection(decision) if objection else ""
                if not problem:
                    return decision
            tries += 1
            shown["question"] = f"{problem} {request['question']}"

    async def _known(self, key: EffectKey) -> dict[str, int]:
        """Return the indices of the questions that may have answers, by name."""
        return {} if self._exhausted or self._ledger is None else await self._ledger.asked(key)

    async def _record(self, key: EffectKey, name: str, index: int) -> None:
        """Record that the task waits for an answer at this index."""
        if self._ledger is not None:
            if index != _ELSEWHERE:
                await self._ledger.unask(key, index)  # nothing from there on has an answer
            await self._ledger.ask(key, name, index)
            await self._ledger.ask(self._task, _OPEN, index)

    def _can_ask_again(self, error: Exception, left: int) -> bool:
        """Return True if the refused question comes next when its asker runs again."""
        if is_invalid_resume(error) and left != 1:  # else those before it, or around it
            self._over = True
        return left > 0 and not self._over

    async def _paused(
        self,
        key: EffectKey,
        waiting: GraphInterrupt,
        pauses: Mapping[str, int],
        refused: Exception | None,
    ) -> GraphInterrupt:
        """Return the interrupt of an asker whose question is open, and record the question."""
        if self._over:  # what runs inside has recorded it
            return waiting
        self._over = True
        asked: list[Interrupt] = list(waiting.args[0])
        if refused is not None and is_invalid_resume(refused):  # its index is free again
            last = max(pauses, key=lambda name: pauses[name])
            schema, own_id = asked[0].response_schema, last.removeprefix(_PAUSE)
            asked[0] = Interrupt(asked[0].value, own_id, response_schema=schema)
        else:
            await self._record_pause(key, asked[0].id, pauses)
        if refused is None:
            return waiting
        if isinstance(refused, ValidationError):
            words = "; ".join(validation_problems(refused, "it"))
        elif isinstance(refused, ValueError | ToolError):
            words = str(refused)
        else:  # others, of a missing key for example, describe the code that read it
            words = "it has another form"
        return GraphInterrupt([interrupts.asked_again(one, words.rstrip(".")) for one in asked])

    async def _record_pause(self, key: EffectKey, asked: str, pauses: Mapping[str, int]) -> None:
        """Record a question of a tool or hook, by its id."""
        name, index = f"{_PAUSE}{asked}", _ELSEWHERE
        try:
            interrupt(None)
        except GraphInterrupt as open_place:
            if open_place.args[0][0].id == asked:
                index = self._behind_active()
        await self._record(key, name, pauses.get(name, index))

    async def _drop_others(self) -> None:
        """Take the answers that are left when all questions of the task have theirs."""
        if not self._exhausted and self._ledger is not None:
            asked = await self._ledger.asked(self._task)
            last = asked.get(_OPEN)
            if last is None or _ELSEWHERE < last < self._behind_active():
                self._index = self._behind_active()
                while not self._exhausted:
                    self._take()

    def _behind_active(self) -> int:
        return max([self._index, *(index + 1 for index in self._active)])

    def _skip_to(self, index: int) -> None:
        """Take the answers before an index, except those that what runs now takes itself."""
        while self._index < index and not self._exhausted:
            if self._index in self._active:
                self._index += 1
            else:
                self._take()

    def _take(self) -> None:
        try:
            interrupt(None)
            self._index += 1
        except GraphInterrupt:
            self._exhausted = True
