"""Two readers that play the model: an orderly one, and one with the habits of weaker models.

A task says what is to be done as a generator: it yields the calls of one reply, is sent their
results, and returns the answer. A reader decides how that is said.
"""

import json
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.messages.tool import tool_call

Call = tuple[str, dict[str, Any]]
Work = Generator[Sequence[Call], list[str], str]
WRONG_NAMES = {"path": "file_path", "command": "cmd"}


class Orderly:
    """Makes independent calls together, ends with the whole answer, and keeps to it if asked."""

    def __init__(self, work: Work) -> None:
        self.work, self.made, self.answer = work, 0, ""

    def __call__(self, messages: list[BaseMessage]) -> AIMessage:
        """Return the next reply."""
        try:
            calls = self.work.send(newest_results(messages)) if self.made else next(self.work)
        except StopIteration as done:
            self.answer = self.answer or str(done.value)
            return AIMessage(self.answer)
        self.made += 1
        return AIMessage(
            "", tool_calls=[numbered(call, self.made, n) for n, call in enumerate(calls)]
        )


class Clumsy:
    """Says what it will do, makes one call a reply, under wrong names, or as text, and stops early.

    It does what it is asked to: a question about its last reply has it go on.
    """

    def __init__(self, work: Work) -> None:
        self.work, self.made = work, 0
        self.open: deque[Call] = deque()
        self.results: list[str] = []
        self.said: deque[AIMessage] = deque(
            [AIMessage("Sure! I will start by looking at the files.")]
        )
        self.retried = False
        self.last: Call | None = None

    def __call__(self, messages: list[BaseMessage]) -> AIMessage:
        """Return the next reply."""
        if isinstance(messages[-1], ToolMessage) or newest_results(messages):
            self._read(newest_results(messages)[-1])
        if self.said:
            return self.said.popleft()
        if not self.open:
            try:
                calls = self.work.send(self.results) if self.made else next(self.work)
            except StopIteration as done:
                return self._end(str(done.value))
            self.open, self.results = deque(calls), []
        self.last = self.open.popleft()
        return self._call(self.last)

    def _read(self, result: str) -> None:
        """Take a result in; a call whose arguments were refused is made again, rightly."""
        if self.last is None:
            return
        if "was not run" in result and not self.retried:
            self.open.appendleft(self.last)
            self.retried = True
        else:
            self.results.append(result)
            self.retried = False
        self.last = None

    def _call(self, call: Call) -> AIMessage:
        self.made += 1
        name, args = call
        if self.made == 4:  # stops early, once
            self.open.appendleft(call)
            self.last = None
            return AIMessage("Good. Next, I will go on with the rest of the work.")
        if self.made % 5 == 2 and not self.retried:
            args = {WRONG_NAMES.get(key, key): value for key, value in args.items()}
        if self.made % 7 == 3:
            written = json.dumps({"name": name, "arguments": args})
            return AIMessage(f"<tool_call>\n{written}\n</tool_call>")
        return AIMessage("", tool_calls=[numbered((name, args), self.made, 0)])

    def _end(self, answer: str) -> AIMessage:
        half = len(answer) // 2
        cut = {"finish_reason": "length"}
        self.said += [AIMessage(answer[:half], response_metadata=cut), AIMessage(answer[half:])]
        self.work = idle()
        return AIMessage("", tool_calls=[numbered(("terminate", {"status": "success"}), 999, 0)])


READERS: dict[str, Callable[[Work], Callable[[list[BaseMessage]], AIMessage]]] = {
    "orderly": Orderly,
    "clumsy": Clumsy,
}


def idle() -> Work:
    """Have nothing left to do."""
    while True:
        yield [("terminate", {"status": "failure"})]


def numbered(call: Call, step: int, place: int) -> Any:
    """Return a call with an id of its own."""
    return tool_call(name=call[0], args=call[1], id=f"call_{step}_{place}")


def newest_results(messages: list[BaseMessage]) -> list[str]:
    """Return the results since the newest reply, whatever stands after them."""
    results: list[str] = []
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            break
        if isinstance(message, ToolMessage):
            results.append(message.text)
    return results[::-1]
