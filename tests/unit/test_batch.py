"""Batches: how one ends by a signal, and what a task leaves in memory."""

import asyncio
import gc
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import BaseModel

from openmanus_graph.interfaces.service import own_process
from openmanus_graph.interfaces.service.batch import (
    Batch,
    BatchResult,
    BatchTask,
    Budget,
    open_results,
    read_tasks,
)
from openmanus_graph.interfaces.service.batch_runners import LocalTaskRunner, RemoteTaskRunner
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.threads import find_thread
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer


class Endless:
    """Works on tasks whose steps never end: their model cannot be reached, say."""

    def __init__(self) -> None:
        self.working, self.reasons = asyncio.Event(), list[str]()
        self.cut_off, self.closed = 0, False

    async def begun(self, threads: Sequence[str]) -> set[str]:
        return set()

    async def do(self, task: BatchTask, thread: str) -> BatchResult | None:
        self.working.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cut_off += 1
        return None

    def request_drain(self, reason: str) -> None:
        self.reasons.append(reason)

    async def close(self) -> None:
        self.closed = True


class Silent:
    def ended(self, result: BatchResult) -> None:
        pass

    def notice(self, text: str) -> None:
        pass


@pytest.fixture
def tasks(tmp_path: Path) -> list[BatchTask]:
    path = tmp_path / "tasks.jsonl"
    path.write_text('{"task": "one"}\n{"task": "two"}\n{"task": "three"}\n')
    return read_tasks(path, None)


async def test_a_batch_that_is_terminated_does_not_wait_for_steps_that_never_end(
    tmp_path: Path, tasks: list[BatchTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_process, "TERM_GRACE_S", 0)
    runner = Endless()
    with open_results(tmp_path / "out.jsonl", tasks, "here") as results:
        batch = Batch(tasks, results, runner, Budget(None, 0), Silent(), 2)
        async with asyncio.timeout(BACKSTOP_S):
            running = asyncio.create_task(batch.run())
            await runner.working.wait()
            os.kill(os.getpid(), signal.SIGTERM)
            code = await running
    assert code == 128 + signal.SIGTERM
    assert (runner.reasons, runner.cut_off, runner.closed) == (["SIGTERM"], 2, True)
    assert (tmp_path / "out.jsonl").read_text() == ""


async def test_a_task_that_was_about_to_begin_does_not_begin_after_a_signal(
    tasks: list[BatchTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    runner = await asyncio.to_thread(
        LocalTaskRunner, RunOptions(model="openai:x"), None, Budget(None, 0), print
    )
    runner.request_drain("SIGINT")
    assert await runner.do(tasks[0], "a-thread") is None
    assert find_thread("a-thread") is None


async def test_a_worker_on_a_server_closes_its_connections() -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
        writer.write(f"{head}[]".encode())
        await reader.read()
        ended.set()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        runner = RemoteTaskRunner(url, RunOptions(), None, Budget(None, 0), print)
        assert await runner.begun(["a-thread"]) == set()
        await runner.close()
        async with asyncio.timeout(BACKSTOP_S):
            await ended.wait()


async def test_a_task_makes_no_classes_of_its_own(
    tasks: list[BatchTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They refer to themselves, so that they stay until Python next looks for such garbage."""

    def classes() -> int:
        return sum(isinstance(one, type) and issubclass(one, BaseModel) for one in gc.get_objects())

    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with OpenAIServer([Reply(text="done")], loop=True) as model:
        options = RunOptions(model="openai:x", base_url=model.base_url)
        runner = await asyncio.to_thread(LocalTaskRunner, options, None, Budget(None, 0), print)
        counts: list[int] = []
        gc.disable()
        try:
            for task in tasks:
                done = await runner.do(task, f"thread-{task.id}")
                assert done is not None
                assert (done.status, done.answer) == ("finished", "done")
                counts.append(classes())
        finally:
            gc.enable()
            await runner.close()
    assert counts[1] == counts[2]
