import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from langchain_core.tools import StructuredTool

from openmanus_graph.backends.sandbox import confinement
from openmanus_graph.backends.sandbox.kernel import Kernel
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.settings import SandboxSettings
from openmanus_graph.state.tool_traits import Observation
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.execution import python_execute
from tests.support.cli import until
from tests.support.limits import BACKSTOP_S
from tests.support.sandboxes import sandbox_settings


@pytest.fixture(scope="module", params=["bwrap", "ssh"])
def session(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Session]:
    opened = tool_session(tmp_path_factory.mktemp("ws"), sandbox=sandbox_settings(request))
    yield opened
    opened.close()


async def run(session: Session, code: str, *, timeout_s: int = 120) -> Observation:
    assert isinstance(python_execute, StructuredTool)
    assert python_execute.coroutine is not None
    _, observation = await python_execute.coroutine(
        code=code, timeout_s=timeout_s, runtime=tool_runtime(session)
    )
    assert isinstance(observation, Observation)
    return observation


async def text(session: Session, code: str) -> str:
    return (await run(session, code)).text


@pytest.mark.slow
def test_variables_persist_across_event_loops(session: Session) -> None:
    asyncio.run(text(session, "x = 41"))
    assert asyncio.run(text(session, "x + 1")) == "42"


async def test_a_warm_call_starts_no_process(session: Session) -> None:
    who = "import os; (os.getpid(), os.getppid())"
    first = await text(session, who)
    processes = psutil.Process().children(recursive=True)
    assert await text(session, who) == first
    assert psutil.Process().children(recursive=True) == processes


async def test_output_comes_in_order(session: Session) -> None:
    code = """
import os, subprocess, sys
print("a"); sys.stderr.write("b\\n"); os.write(1, b"c\\n")
subprocess.run("echo d", shell=True); display("e"); print("f", end="")
"g"
"""
    assert await text(session, code) == "a\nb\nc\nd\n'e'\nf'g'"


async def test_error_shows_output_and_traceback_the_same_each_time(session: Session) -> None:
    first = await run(session, "print('before')\n1/0")
    assert first.failed
    assert first.text.startswith("before\nTraceback")
    assert first.text.endswith("ZeroDivisionError: division by zero")
    assert "\x1b" not in first.text
    assert await run(session, "print('before')\n1/0") == first


async def test_output_of_background_threads_is_not_lost(session: Session) -> None:
    code = "import threading\ngo = threading.Event()\n"
    code += "t = threading.Thread(target=lambda: (go.wait(), print('later')))\nt.start()"
    assert await text(session, code) == "(no output)"
    assert await text(session, "go.set(); t.join()") == "later"


@pytest.mark.parametrize("code", ["import sys\nsys.exit(2)", "exit()", "quit()"])
async def test_exit_ends_the_cell_only(session: Session, code: str) -> None:
    seen = await run(session, f"y = 9\nprint('printed')\n{code}\nprint('unreached')")
    assert re.fullmatch(r"printed\n\[ended by exit\(2?\); variables are kept\]", seen.text)
    assert seen.failed == ("2" in code)
    assert await text(session, "y") == "9"


async def test_warnings_are_the_same_in_every_kernel(session: Session) -> None:
    assert "/cell/" in await text(session, "import warnings; warnings.warn('careful')")


async def test_input_fails_at_once(session: Session) -> None:
    seen = await run(session, "input('name?')")
    assert seen.failed
    assert "nobody can type" in seen.text


SUITE = """
import unittest
class Case(unittest.TestCase):
    def test_sum(self): self.assertEqual(1 + 1, {})
unittest.main()
"""


@pytest.mark.parametrize(
    ("code", "shown", "failed"),
    [
        ("import sys; sys.argv", "['']", False),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('--n', default=3)\n"
            "p.parse_args().n",
            "3",
            False,
        ),
        (SUITE.format(2), "Ran 1 test", False),
        (SUITE.format(3), "AssertionError: 2 != 3", True),
    ],
)
async def test_programs_that_read_their_arguments_find_none(
    session: Session, code: str, shown: str, failed: bool
) -> None:
    seen = await run(session, f"kept = 5\n{code}")
    assert (shown in seen.text, seen.failed) == (True, failed)
    assert await text(session, "kept") == "5"


AWAITED = """
import asyncio, unittest
async def answer(n=7):
    await asyncio.sleep(0)
    return n
async def nested(): return asyncio.run(answer(3)) + await answer(4)
class Case(unittest.IsolatedAsyncioTestCase):
    async def test_it(self): self.assertEqual(await answer(), 7)
loop = asyncio.get_event_loop()
"""


@pytest.mark.parametrize(
    "code",
    [
        "await answer()",
        "asyncio.run(answer())",
        "asyncio.run(nested())",
        "await nested()",
        "loop.run_until_complete(answer())",
        "loop.run_until_complete(nested())",
        "sum(loop.run_until_complete(asyncio.gather(answer(3), answer(4))))",
        "loop.run_until_complete(loop.create_task(answer()))",
        "asyncio.new_event_loop().run_until_complete(answer())",
        "asyncio.run(asyncio.to_thread(lambda: asyncio.run(answer())))",
        "task = asyncio.create_task(answer()); asyncio.run(answer(0)); await task",
        "[loop.call_soon(lambda: loop.run_until_complete(answer())) for _ in range(9)]\n"
        "await answer()",
        "print(unittest.main(argv=[''], exit=False).result.testsRun + 6)",
    ],
)
async def test_cells_may_await_or_run_event_loops(session: Session, code: str) -> None:
    assert (await text(session, AWAITED + code)).splitlines()[-1] == "7"
    after = "asyncio.get_running_loop() is loop and await answer()"
    assert await text(session, after) == "7"


async def test_a_loop_that_cannot_be_started_is_explained(session: Session) -> None:
    seen = await run(session, "import anyio\nanyio.run(anyio.sleep, 0)")
    assert seen.failed
    assert seen.text.endswith("Write `await` instead of starting one.")


@pytest.mark.parametrize(
    "wait",
    [
        "await asyncio.sleep(1000)",
        "asyncio.run(asyncio.sleep(1000))",
        "loop.run_until_complete(asyncio.sleep(1000))",
        pytest.param("async def busy():\n  while True: pass\nawait busy()", marks=pytest.mark.slow),
    ],
)
async def test_the_time_limit_of_code_that_awaits_keeps_variables(
    session: Session, wait: str
) -> None:
    code = f"import asyncio; loop = asyncio.get_event_loop(); z = 5\n{wait}"
    assert "Variables are kept" in (await run(session, code, timeout_s=1)).text
    assert await text(session, "asyncio.run(asyncio.sleep(0, z))") == "5"


RICH = """
from IPython.display import HTML, JSON, Latex, Markdown, display
class Rich:
    def __init__(self, kind, content, name="<Rich object>"):
        self.name = name
        setattr(self, f"_repr_{kind}_", lambda: content)
    def __repr__(self): return self.name
"""
TABLE = "<table><tr><th>a<th>b</tr><tr><td>1</td><td title='>'>2</td></tr></table>"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("HTML('<h1>A &amp; B</h1><p>one <b>two</b>')", "A & B\none two"),
        (f'display(HTML("{TABLE}"))', "a | b\n1 | 2"),
        ("HTML('<style>p {}</style><script>x()</script><ul><li>a<li>b')", "- a\n- b"),
        ("HTML('<script>x()')", "<IPython.core.display.HTML object>"),
        ("HTML('<a title=\"' * 50_000)", "<IPython.core.display.HTML object>"),
        ("HTML('<!--' * 50_000)", "<IPython.core.display.HTML object>"),
        ("Markdown('# Title')", "# Title"),
        ("display(Latex('$x$'))", "$x$"),
        ("JSON({'a': [1]})", "{'a': [1]}"),
        ("Rich('html', '<p>x</p>')", "x"),
        ("Rich('html', '<p>x</p>', 'plain')", "plain"),
        (
            "display({'application/x-own': 1}, raw=True)",
            "[no text to show, only application/x-own]",
        ),
    ],
)
async def test_rich_results_are_shown_as_text(session: Session, code: str, shown: str) -> None:
    assert await text(session, RICH + code) == shown


@pytest.mark.slow
async def test_a_styled_table_is_shown_as_text(session: Session) -> None:
    code = "import pandas\npandas.DataFrame({'a': [0.5]}).style.format('{:.2%}')"
    assert re.sub(r"\s+", " ", await text(session, code)).endswith("| a 0 | 50.00%")


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "from matplotlib.figure import Figure; f = Figure(); f.subplots().plot([1, 2]); f",
        "import altair; altair.Chart(altair.Data(values=[{'a': 1}])).mark_bar().encode(x='a:Q')",
        "from PIL import Image; display(Image.new('RGB', (9, 9)))",
    ],
)
async def test_rich_results_are_shown_as_pictures(own_session: Session, code: str) -> None:
    assert (await run(own_session, code)).images == ("plot_1.png",)


@pytest.mark.parametrize(
    "code",
    [
        "for _ in range(200): print('x' * 1_000_000)",
        "print('x' * 200_000_000)",
        "for _ in range(200): display('x' * 1_000_000)",
        "for n in range(10): get_ipython().run_cell(f'\"{n}\" * 20_000_000')",
    ],
)
@pytest.mark.slow
async def test_what_is_printed_stays_in_no_memory(own_session: Session, code: str) -> None:
    memory = "import re; int(re.search(r'{}:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    before = int(await text(own_session, memory.format("VmRSS")))
    ours = psutil.Process().memory_info().rss
    assert "left out" in await text(own_session, code)
    assert int(await text(own_session, memory.format("VmRSS"))) - before < 40_000
    assert psutil.Process().memory_info().rss - ours < 20_000_000
    if "200_000_000" not in code:  # such a text is in memory before it is printed
        assert int(await text(own_session, memory.format("VmHWM"))) - before < 100_000


async def test_only_the_last_result_is_kept(session: Session) -> None:
    kept = "import weakref\nclass Big: pass\nbigs = weakref.WeakSet()"
    for code in (kept, *["bigs.add(big := Big()); big"] * 4, "del big; 1"):
        await run(session, code)
    assert await text(session, "len(bigs), _, Out") == "(0, 1, {})"
    assert await text(session, "_ = 'own'") == "(no output)"
    assert (await text(session, "2"), await text(session, "_")) == ("2", "'own'")


@pytest.mark.slow
async def test_plots_are_saved_under_new_names(session: Session) -> None:
    code = "import matplotlib.pyplot as plt\nplt.plot([1, {}])\nplt.show()"
    (session.workspace.root / "plot_1.png").write_bytes(b"the user's own")
    first, second = await run(session, code.format(2)), await run(session, code.format(3))
    assert (first.images, second.images) == (("plot_2.png",), ("plot_3.png",))
    assert first.text == "[picture saved: plot_2.png]"
    assert (session.workspace.root / "plot_2.png").read_bytes().startswith(b"\x89PNG")
    assert (session.workspace.root / "plot_1.png").read_bytes() == b"the user's own"
    assert (await run(session, code.format(2))).images == ("plot_2.png",)


FIGURE = "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\naxes.plot([1, 3])\n"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("plt.savefig('chart.png')\nplt.show()", "chart.png"),
        ("import os; os.mkdir('out')\nfigure.savefig('out/chart')\nfigure", "out/chart.png"),
        ("figure.savefig('a.jpg'); figure.savefig('a.pdf')", "a.jpg"),
    ],
)
@pytest.mark.slow
async def test_a_figure_that_the_code_has_saved_is_not_saved_again(
    session: Session, code: str, shown: str
) -> None:
    before = set(session.workspace.root.rglob("plot_*"))
    seen = await run(session, FIGURE + code)
    assert seen.images == (shown,)
    assert f"[picture saved: {shown}]" in seen.text
    assert set(session.workspace.root.rglob("plot_*")) == before


@pytest.mark.parametrize("name", ["chart.pdf", "chart.svg"])
async def test_a_figure_saved_as_no_picture_is_shown_and_makes_no_second_deliverable(
    session: Session, name: str
) -> None:
    before = set(session.workspace.root.rglob("plot_*"))
    seen = await run(session, f"{FIGURE}figure.savefig({name!r})\nplt.show()")
    assert f"[picture saved: {name}]" in seen.text
    (shown,) = map(Path, seen.images)
    assert shown.parent == session.workspace.outputs
    assert shown.read_bytes().startswith(b"\x89PNG")
    assert set(session.workspace.root.rglob("plot_*")) == before


@pytest.mark.slow
async def test_a_figure_is_kept_that_was_saved_elsewhere_or_before_it_was_changed(
    session: Session,
) -> None:
    seen = await run(session, f"{FIGURE}import io; figure.savefig(io.BytesIO())\nplt.show()")
    assert [name[:5] for name in seen.images] == ["plot_"]
    await run(session, f"{FIGURE}figure.savefig('chart.png')")
    seen = await run(session, "axes.plot([3, 1])\nfigure")
    assert [name[:5] for name in seen.images] == ["plot_"]


async def test_svg_is_saved(session: Session) -> None:
    seen = await run(session, "from IPython.display import SVG\nSVG('<svg xmlns=\"a\"></svg>')")
    name = re.findall(r"plot_\d+\.svg", seen.text)[0]
    assert (session.workspace.root / name).read_text().startswith("<svg")


@pytest.mark.slow
async def test_huge_output_is_cut_kept_and_the_same_each_time(session: Session) -> None:
    first = await run(session, "print('x' * 50_000_000)")
    assert len(first.text) < 8500
    assert not first.failed
    assert await run(session, "print('x' * 50_000_000)") == first
    found = re.search(r"the whole is in (\S+)", first.text)
    assert found is not None
    assert (session.workspace.root / found[1]).stat().st_size == 50_000_001


async def test_invalid_utf8_and_lone_surrogates_are_replaced(session: Session) -> None:
    assert await text(session, "import os; _ = os.write(1, b'a\\xffb')") == "a�b"
    assert await text(session, "print('\\ud800')") == "?"
    assert await text(session, "print('\ud800')") == "?"


@pytest.mark.parametrize("wait", ["time.sleep(1000)", "subprocess.run(['sleep', '1000'])"])
@pytest.mark.slow
async def test_time_limit_keeps_output_and_variables(session: Session, wait: str) -> None:
    code = f"import subprocess, time\nz = 5\nprint('begun')\n{wait}"
    seen = await run(session, code, timeout_s=1)
    assert seen.failed
    assert seen.text.startswith("begun\n")
    assert "Variables are kept" in seen.text
    assert await text(session, "z") == "5"


def test_an_interrupt_that_comes_late_meets_no_other_code(session: Session) -> None:
    asyncio.run(text(session, "import time"))
    kernel = session.find("python")
    assert isinstance(kernel, Kernel)
    for _ in range(5):  # ended by itself, or by the interrupt: as chance has it
        kernel.pool.submit(kernel.execute, "time.sleep(0.05)", 0.05).result()
        code = "for _ in range(10**6): pass"
        assert kernel.pool.submit(kernel.execute, code, 60).result().outcome == "ok"


@pytest.mark.slow
async def test_code_that_follows_an_error_at_once_is_run(session: Session) -> None:
    for number in range(25):
        assert (await run(session, "1 / 0")).failed
        assert await text(session, str(number)) == str(number)


async def test_cancelling_interrupts_the_code(session: Session) -> None:
    await text(session, "import time")
    code = "y = 6; print('started', flush=True)\ntime.sleep(1000)"
    task = asyncio.create_task(run(session, code))
    kernel: Kernel = session.handle("python", lambda: pytest.fail("there is one"))
    await asyncio.to_thread(until, lambda: kernel.newest_line() == "started")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await text(session, "y") == "6"


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import os; os._exit(3)", "exit code 3"),
        ("import os; os.kill(os.getpid(), 9)", "SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV"),
    ],
)
@pytest.mark.slow
async def test_dead_kernel_is_reported_and_replaced(session: Session, code: str, why: str) -> None:
    seen = await run(session, f"print('last words', end='')\n{code}")
    assert seen.failed
    assert seen.text.startswith("last words\n") or "last words" in seen.text
    assert why in seen.text
    assert "variables are lost" in seen.text
    assert await text(session, "1+1") == "2"


@pytest.mark.slow
async def test_code_that_ignores_interrupts_is_killed(session: Session) -> None:
    code = "import signal, time\nsignal.signal(2, signal.SIG_IGN)\nprint('a')\ntime.sleep(1000)"
    seen = await run(session, code, timeout_s=1)
    assert seen.text.startswith("a\n")  # the other machine's shell adds that it was killed
    assert "\n[The Python process is gone. It did not stop" in seen.text
    assert await text(session, "1+1") == "2"


async def test_memory_is_limited(tmp_path: Path) -> None:
    limits = SandboxSettings(mode="bwrap", memory_mb=600)
    with contextlib.closing(tool_session(tmp_path, sandbox=limits)) as opened:
        assert "MemoryError" in await text(opened, "x = bytearray(900_000_000)")
        assert await text(opened, "1+1") == "2"


@pytest.mark.slow
async def test_fork_bomb_is_ended_and_the_next_call_works(tmp_path: Path) -> None:
    limits = SandboxSettings(mode="bwrap", processes=60)
    bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass"
    with contextlib.closing(tool_session(tmp_path, sandbox=limits)) as opened:
        assert "60 processes" in (await run(opened, bomb, timeout_s=120)).text
        assert await text(opened, "1+1") == "2"


async def test_kernel_works_without_a_sandbox(tmp_path: Path) -> None:
    with contextlib.closing(tool_session(tmp_path, sandbox=SandboxSettings(mode="none"))) as opened:
        assert await text(opened, "import os; os.getcwd()") == repr(str(opened.workspace.root))
        assert "gone" in await text(opened, "os._exit(1)")
        assert await text(opened, "2") == "2"


def test_the_kernel_ends_with_whoever_started_it(tmp_path: Path) -> None:
    connection = tmp_path / "kernel.json"
    ports = ("shell_port", "iopub_port", "stdin_port", "control_port", "hb_port")
    how = {
        "transport": "ipc",
        "ip": str(tmp_path / "k"),
        "key": "",
        **dict(zip(ports, range(1, 6), strict=True)),
    }
    connection.write_text(json.dumps(how))
    program = [sys.executable, kernel_program(), str(tmp_path), str(connection)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, cwd=tmp_path) as process:
        try:
            assert process.stdin is not None
            process.stdin.close()
            assert process.wait(BACKSTOP_S) == 1
        finally:
            process.kill()


async def test_what_a_cell_starts_finds_its_input_closed(session: Session) -> None:
    assert await text(session, "import subprocess; print(subprocess.run('cat').returncode)") == "0"


def kernel_program() -> str:
    return str(Path(confinement.__file__).with_name("kernel_program.py"))


FORGED = """
session = get_ipython().kernel.session
send = session.send
def forged(stream, kind, content=None, *rest, **more):
    if kind == "execute_reply":
        {forge}
    return send(stream, kind, content, *rest, **more)
session.send = forged
"""


@pytest.fixture
def own_session(tmp_path: Path) -> Iterator[Session]:
    opened = tool_session(tmp_path)
    yield opened
    opened.close()


async def test_a_forged_reply_without_a_status_is_told(own_session: Session) -> None:
    found = await run(own_session, FORGED.format(forge='content = {"odd": 1}'))
    assert found.failed
    assert "did not say how the code ended" in found.text


@pytest.mark.parametrize("parts", [[100 << 20], [10 << 20] * 30, [1] * 10_000])
@pytest.mark.slow
async def test_what_the_kernels_program_sends_has_a_limit(
    own_session: Session, parts: list[int]
) -> None:
    pieces = f"identity = more['ident']; parts = [bytes(n) for n in {parts}]"
    sending = "stream.send_multipart([*identity, *parts], copy=True)"
    before = psutil.Process().memory_info().rss
    found = await run(own_session, FORGED.format(forge=f"{pieces}; {sending}"))
    assert psutil.Process().memory_info().rss - before < 100 << 20
    assert "16 MB" in found.text
    assert await text(own_session, "1 + 1") == "2"


async def test_a_cell_shows_few_pictures_and_keeps_no_more(own_session: Session) -> None:
    code = """
import base64
png = lambda n: base64.b64encode(str(n).encode()).decode()
with open("/run/openmanus/pictures", "w") as names:
    names.writelines(f"data:image/png;base64,{png(n)}\\n" for n in range(300_000))
"""
    found = await run(own_session, code)
    assert len(found.images) == 20
    assert "first 20 pictures" in found.text
    assert len(list(own_session.workspace.outputs.iterdir())) == 21
