"""A long run whose results each hold one fact, and a model that takes perfect notes of them.

The model does one call a step. Asked for notes, it writes every fact that the request shows, as
long as the words last that it was allowed. Its final answer is what its last request showed.
"""

import json
import os.path
import re
from dataclasses import dataclass, field
from random import Random
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call
from langchain_core.messages.utils import convert_to_openai_messages
from langchain_core.tools import BaseTool, tool

from openmanus_graph.testing import ScriptedChatModel

RESULT_CHARS = 20_000
SHOWN_HEAD, SHOWN_TAIL = 4300, 2100
"""Characters at the ends of a result that the model is shown at least, where it is cut."""
CHARS_PER_TOKEN = 4
NOTES_CUES = ("Write the notes now", "Context Extraction Assistant")
"""How our graphs ask for notes, and how deepagents does."""
FACT = re.compile(r"FACT-(\d+) = (\d+)")
WORDS = re.compile(r"at most (\d+) words")
WORDS_OF_A_FACT = 3
UNLIMITED = 10**9


@dataclass
class Sent:
    """What the requests of a run came to, characters of their JSON."""

    requests: int = 0
    notes_requests: int = 0
    total: int = 0
    same: int = 0
    """Of that, the beginnings that are the same as of the request before."""
    longest: int = 0
    last: list[str] = field(default_factory=list[str])

    def add(self, request: list[str], *, for_summary: bool) -> int:
        """Count a request and return its characters."""
        size = sum(map(len, request))
        self.requests += 1
        self.notes_requests += for_summary
        self.total += size
        self.longest = max(self.longest, size)
        self.same += _same_beginning(self.last, request)
        self.last = request
        return size


def _same_beginning(before: list[str], request: list[str]) -> int:
    same = 0
    for one, other in zip(before, request, strict=False):
        if one != other:
            return same + len(os.path.commonprefix([one, other]))
        same += len(one)
    return same


class LongRun:
    """One run: its tool, its model, and what was sent."""

    def __init__(
        self, steps: int, window: int, *, chars_per_token: int = CHARS_PER_TOKEN, seed: int = 1
    ) -> None:
        self.steps = steps
        self._chars_per_token = chars_per_token
        self.sent = Sent()
        random = Random(seed)
        self._values = [random.randrange(10**3, 10**6) for _ in range(steps)]
        self._places = [random.randrange(SHOWN_HEAD + SHOWN_TAIL) for _ in range(steps)]
        self._made = 0
        self.model = ScriptedChatModel([self._reply] * (4 * steps + 8), piece_size=10**6)
        self.model.usage = None  # each reply reports what its request was
        self.model.profile = {"max_input_tokens": window}
        self.tool = self._tool()

    def kept(self) -> int:
        """Return how many facts the last request showed."""
        shown = FACT.findall("".join(self.sent.last))
        return len({(number, value) for number, value in shown if self._is_true(number, value)})

    def _is_true(self, number: str, value: str) -> bool:
        return int(number) < self.steps and self._values[int(number)] == int(value)

    def _tool(self) -> BaseTool:
        @tool
        def read(page: int) -> str:
            """Read a page."""
            fact = f"\nFACT-{page:03} = {self._values[page]}\n"
            filler = f"page {page}: nothing else to be seen on this line of it\n" * 500
            place = self._places[page]
            place = place if place < SHOWN_HEAD else RESULT_CHARS - SHOWN_HEAD - SHOWN_TAIL + place
            text = filler[:RESULT_CHARS]
            return text[:place] + fact + text[place + len(fact) :]

        return read

    def _reply(self, messages: list[BaseMessage]) -> AIMessage:
        for_summary = any(cue in messages[-1].text for cue in NOTES_CUES)
        tools = json.dumps(self.model.options[-1].get("tools", []))
        wire: list[Any] = convert_to_openai_messages(messages)
        request = [tools, *(json.dumps(one, ensure_ascii=False) for one in wire)]
        size = self.sent.add(request, for_summary=for_summary)
        reply = self._notes(messages) if for_summary else self._step()
        written = max(1, len(str(reply.content)) // self._chars_per_token)
        read = size // self._chars_per_token
        reply.usage_metadata = UsageMetadata(
            input_tokens=read, output_tokens=written, total_tokens=read + written
        )
        return reply

    def _step(self) -> AIMessage:
        page, self._made = self._made, self._made + 1
        if page >= self.steps:
            return AIMessage("All pages are read.")
        return AIMessage(
            "", tool_calls=[tool_call(name="read", args={"page": page}, id=f"c{page}")]
        )

    def _notes(self, messages: list[BaseMessage]) -> AIMessage:
        shown = "\n".join(message.text for message in messages)
        allowed = WORDS.findall(messages[-1].text)
        words = int(allowed[-1]) if allowed else UNLIMITED
        facts = dict.fromkeys(found[0] for found in FACT.finditer(shown))
        return AIMessage("\n".join(list(facts)[: words // WORDS_OF_A_FACT]))
