"""What hangs in a server keeps neither its other work waiting, nor its process from ending."""

import asyncio
import subprocess
import sys
import threading

from openmanus_graph.interfaces.server import files
from tests.support.limits import BACKSTOP_S

HANGING = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from openmanus_graph.interfaces.service.http import end_in_time
for _ in range(3):
    ThreadPoolExecutor().submit(threading.Event().wait)
end_in_time(0.2)
"""
"""Python itself waits at its end for threads of a pool."""


def test_a_process_with_hanging_threads_ends_in_time() -> None:
    done = subprocess.run([sys.executable, "-c", HANGING], check=False, timeout=BACKSTOP_S)
    assert done.returncode == 1


async def test_uploads_and_other_work_do_not_wait_for_each_other() -> None:
    go_on = threading.Event()
    try:
        uploads = [files.for_uploads(go_on.wait) for _ in range(50)]
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "other work"), BACKSTOP_S)
        go_on.set()
        await asyncio.gather(*uploads)
        go_on.clear()
        others = [asyncio.create_task(asyncio.to_thread(go_on.wait)) for _ in range(50)]
        assert await asyncio.wait_for(files.for_uploads(lambda: "an upload"), BACKSTOP_S)
        go_on.set()
        await asyncio.gather(*others)
    finally:
        go_on.set()
