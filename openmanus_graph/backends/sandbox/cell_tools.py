"""The object `tools` of Python cells: it asks the host to run calls of the agent's tools.

Runs inside the sandbox, beside `kernel_program.py` and without our package. The host connects once,
before the first cell (`cell_channel.py`). Each line is a JSON object. The host begins a cell with
`{cell, tools}`, which is answered by `{ready}`. Then come `{calls}` from here, each `{n, tool,
args}`, and `{n, text, structured, files, error}` from the host. When the host sends `{end}`, no
further call of the cell is made: `{closed}` is its last line from here.
"""

import asyncio
import concurrent.futures
import contextlib
import inspect
import json
import keyword
import re
import socket
import threading
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast

ENDED = "Its cell had ended already. Call tools only while the cell runs: wait for threads in it."
_TYPES: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "array": list, "object": dict,
}  # fmt: skip


class ToolError(Exception):
    """A call failed or was refused. The text says what to try."""


class CellEnded(BaseException):  # code that catches errors must not catch it
    """The host has ended the cell: no further call is made."""


class Result(str):
    """The text of a call's result. `result["name"]` is a field of a JSON result."""

    structured: Any
    """The JSON value; None if the result is not JSON."""
    files: list[str]
    """Files that the call made to be looked at."""

    @property
    def text(self) -> str:
        return str(self)

    def __getitem__(self, key: Any) -> Any:
        return self.structured[key] if isinstance(key, str) else super().__getitem__(key)

    def __await__(self) -> Generator[None, None, "Result"]:
        """Return it: it is there already."""
        return self
        yield


async def _wait(answer: "concurrent.futures.Future[Result]") -> Result:
    return await asyncio.wrap_future(answer)


class Gate:
    """The calls of one cell. Any thread may make some."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._lock = connection, threading.Lock()
        self._answers: dict[int, concurrent.futures.Future[Result]] = {}
        self._calls = 0
        self._unsent: list[Mapping[str, Any]] = []
        self._end: BaseException | None = None  # what calls raise since the cell has ended

    def call(self, tool: str, args: Mapping[str, Any]) -> "concurrent.futures.Future[Result]":
        with self._lock:
            if self._end is not None:
                raise self._end
            self._calls += 1
            self._unsent.append({"n": self._calls, "tool": tool, "args": args})
            answer = self._answers[self._calls] = concurrent.futures.Future[Result]()
            return answer

    def flush(self) -> None:
        """Send the calls that were made since the last time, which are asked about together."""
        with self._lock:
            calls, self._unsent = self._unsent, []
            if calls and self._end is None:
                self._send({"calls": calls})

    def receive(self, message: dict[str, Any]) -> None:
        """Read what the host sends."""
        if "end" in message:
            self.end(CellEnded(message["end"]) if message["stopped"] else ToolError(ENDED))
        elif answer := self._answers.pop(message["n"], None):
            _resolve(answer, message)

    def end(self, error: BaseException) -> None:
        with self._lock:
            if self._end is None:
                self._end = error
                with contextlib.suppress(OSError):  # the host may have closed it
                    self._send({"closed": True})
        while self._answers:
            _, answer = self._answers.popitem()
            with contextlib.suppress(concurrent.futures.InvalidStateError):
                answer.set_exception(error)

    def _send(self, message: Mapping[str, Any]) -> None:
        self._connection.sendall(json.dumps(message, default=str).encode() + b"\n")


def _resolve(answer: "concurrent.futures.Future[Result]", message: Mapping[str, Any]) -> None:
    with contextlib.suppress(concurrent.futures.InvalidStateError):  # the code has cancelled it
        if message["error"]:
            answer.set_exception(ToolError(message["text"]))
            return
        result = Result(message["text"])
        result.structured, result.files = message["structured"], message["files"]
        if result.structured is None and result.lstrip()[:1] in ("{", "["):
            with contextlib.suppress(ValueError, RecursionError):
                result.structured = json.loads(result)
        answer.set_result(result)


class Tools:
    """The agent's tools, as functions: `help(tools.NAME)` describes one.

    A call returns its result's text. In code that awaits, it is made at once and can be awaited,
    several by `asyncio.gather`. A call that fails raises `tools.ToolError`.
    """

    ToolError = ToolError

    def __init__(self) -> None:
        self._gate: Gate | None = None
        self._described: dict[str, dict[str, Any]] = {}
        self._task, self._awaits = cast("Any", None), False
        """The task of the cell, and whether its code awaits; set by the kernel."""

    def _listen(self, path: str, names: dict[str, Any], own_names: dict[str, Any]) -> None:
        """Listen for the host. When it opens a cell, put this object among the cell's `names`."""
        listener = socket.socket(socket.AF_UNIX)
        Path(path).unlink(missing_ok=True)  # of a kernel that was killed
        listener.bind(path)
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            listener.close()  # nobody else
            for line in connection.makefile("rb"):
                message: dict[str, Any] = json.loads(line)
                if "tools" in message:
                    tools = {re.sub(r"\W", "_", one["name"]): one for one in message["tools"]}
                    self._described, self._gate = tools, Gate(connection)
                    if names.setdefault("tools", self) is self:  # else it is a variable of the code
                        own_names["tools"] = self
                    connection.sendall(json.dumps({"ready": message["cell"]}).encode() + b"\n")
                elif self._gate is not None:
                    self._gate.receive(message)

        threading.Thread(target=serve, name="openmanus-tools", daemon=True).start()

    def __dir__(self) -> list[str]:
        return [*self._described, "ToolError"]

    def __getitem__(self, name: str) -> Any:
        return getattr(self, re.sub(r"\W", "_", name))

    def __getattr__(self, name: str) -> Any:
        described = self._described.get(name)
        if described is None:
            if name.startswith("__"):
                raise AttributeError(name)
            there = ", ".join(self._described) or "none: code mode is off"
            raise AttributeError(f"There is no tool {name} inside of a cell. There are: {there}.")
        signature = _signature(described.get("parameters") or {})

        def call(*args: Any, **kwargs: Any) -> Any:
            if args:  # the host checks the names
                kwargs = {**dict(zip(signature.parameters, args, strict=False)), **kwargs}
            if self._gate is None:
                raise ToolError(ENDED)
            gate, answer = self._gate, self._gate.call(described["name"], kwargs)
            if self._can_await():  # the calls that code makes before it waits are sent together
                asyncio.get_running_loop().call_soon(gate.flush)
                return _wait(answer)
            gate.flush()
            return answer.result()

        call.__name__ = call.__qualname__ = name
        call.__doc__, vars(call)["__signature__"] = described["doc"], signature
        return call

    def _can_await(self) -> bool:
        """Return True in code that can await; a cell without `await` runs in a task, too."""
        try:
            task = asyncio.current_task()
        except RuntimeError:
            return False  # a thread
        return task is not None and (self._awaits or task is not self._task)


def _signature(schema: Mapping[str, Any]) -> inspect.Signature:
    """Return the signature of a tool, with the required arguments first."""
    required = schema.get("required", ())
    properties: Mapping[str, Any] = schema.get("properties", {})
    parameters: list[inspect.Parameter] = []
    for name in sorted(properties, key=lambda one: one not in required):
        if not name.isidentifier() or keyword.iskeyword(name):  # it is passed by `**`
            continue
        one: Any = properties[name] if isinstance(properties[name], dict) else {}
        parameters.append(
            inspect.Parameter(
                name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if name in required else one.get("default"),
                annotation=_TYPES.get(str(one.get("type")), Any),
            )
        )
    return inspect.Signature(parameters, return_annotation=Result)
