"""What every test gets: an empty folder, no keys, and tools that are installed."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx

from openmanus_graph.backends.browser.browsers import browser_loop, shared_browsers
from openmanus_graph.backends.persistence import database
from openmanus_graph.backends.persistence.database import close_databases
from openmanus_graph.config.resolve import database_url
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support import hermetic
from tests.support.chromium import install_headless_shell, is_drawn, with_headless_shell
from tests.support.limits import BACKSTOP_S
from tests.support.postgres import Postgres, install_postgres
from tests.support.sampling import SEED_VARIABLE, chance
from tests.support.search_engines import SearchServer
from tests.support.ssh import SshServer, install_sshd

LIMIT_VARIABLE = "OPENMANUS_TEST_LIMIT_S"
"""Seconds after which no further `exhaustive` test is begun."""
LONG = ("test_browser_lifecycle.py", "test_browser_tool.py", "test_web_tools.py")
"""Files of a minute and more, begun first: no worker is left alone with one at the end."""
BEGUN = pytest.StashKey[float]()
"""When the tests were collected."""


_HANDLERS: Mapping[signal.Signals, Callable[[int, FrameType | None], Any] | signal.Handlers] = {
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
    signal.SIGQUIT: signal.SIG_DFL,
}
"""How signals are met by whoever has been started in a terminal, as the tested processes are."""


def pytest_configure() -> None:
    """Prepare the environment that other processes, those that run tests too, inherit."""
    hermetic.enter()
    os.environ.setdefault(SEED_VARIABLE, str(random.randrange(10**6)))
    # Hundreds of processes are started, and each would compile what it imports anew.
    sys.dont_write_bytecode = False
    for number, handler in _HANDLERS.items():
        if signal.getsignal(number) is signal.SIG_IGN:  # by nohup, or in a script's background
            signal.signal(number, handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    """Install what the machine lacks: servers, and what `doctor --fix` knows, like bubblewrap.

    Once, before any worker is started.
    """
    if "PYTEST_XDIST_WORKER" in os.environ or session.config.option.collectonly:
        return
    with hermetic.left():
        install_postgres()
        install_sshd()
        install_headless_shell()
        subprocess.run(
            [sys.executable, "-m", "openmanus_graph.interfaces.cli", "doctor", "--fix"],
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )


def pytest_report_header() -> str:
    """Tell how to draw the same samples again."""
    return f"samples: {SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage among all that is imported for good, neither meanwhile nor later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Order what is `exhaustive` by the seed: runs that are cut short try different tests.

    One case of each test function comes early, so that none is left out for long.
    """
    config.stash[BEGUN] = time.monotonic()
    rest = [item for item in items if item.get_closest_marker("exhaustive")]
    others = [item for item in items if not item.get_closest_marker("exhaustive")]
    order = chance("order")
    order.shuffle(rest)
    early = set({item.nodeid.partition("[")[0]: item for item in rest}.values())
    rest.sort(key=lambda item: order.random() * (0.05 if item in early else 1))
    for item in rest:
        if "played" in getattr(item, "fixturenames", ()):  # a worker plays all cases of a file
            item.add_marker(pytest.mark.xdist_group(item.path.name))
    items[:] = [*sorted(others, key=lambda item: item.path.name not in LONG), *rest]


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave `exhaustive` tests out when the time for them is over."""
    limit_s = float(os.environ.get(LIMIT_VARIABLE, "inf"))
    late = time.monotonic() - item.config.stash[BEGUN] > limit_s
    if late and item.get_closest_marker("exhaustive"):
        pytest.skip("the time for exhaustive tests is over")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how many `exhaustive` tests were run."""
    tried, left = (
        sum(
            "exhaustive" in getattr(report, "keywords", ())  # a file that cannot be read has none
            for kind in kinds
            for report in terminalreporter.getreports(kind)
        )
        for kinds in (("passed", "failed", "error"), ("skipped",))
    )
    if tried or left:
        seed = f"{SEED_VARIABLE}={os.environ[SEED_VARIABLE]}"
        terminalreporter.write_line(f"exhaustive tests: {tried} run, {left} left; {seed}")


@pytest.fixture(scope="session")
def _whole_chromium_path() -> str:
    """The PATH of before: on it `chromium` is what `doctor --fix` installs."""
    return os.environ["PATH"]


@pytest.fixture(scope="session", autouse=True)
def _headless_shell(
    _whole_chromium_path: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Find Chromium's headless shell as `chromium`, in this process and those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", with_headless_shell(tmp_path_factory.mktemp("bin")))
        yield


@contextlib.contextmanager
def _browsing_with(path: str) -> Generator[None]:
    """Find the browser on this PATH; ours of before and of meanwhile are closed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path)
        browser_loop.call(shared_browsers.close, BACKSTOP_S)
        yield
        browser_loop.call(shared_browsers.close, BACKSTOP_S)


@pytest.fixture(scope="module", autouse=True)
def _drawn_chromium(
    request: pytest.FixtureRequest, _whole_chromium_path: str, _headless_shell: None
) -> Iterator[None]:
    """Find the whole Chromium in the files that the seed draws for it."""
    drawn = is_drawn(request.path.name)
    with _browsing_with(_whole_chromium_path) if drawn else contextlib.nullcontext():
        yield


@pytest.fixture
def whole_chromium(_whole_chromium_path: str, _headless_shell: None) -> Iterator[None]:
    """Find the whole Chromium, for what its headless shell has not: a viewer of PDFs."""
    with _browsing_with(_whole_chromium_path):
        yield


@pytest.fixture
def no_blocking() -> Iterator[BlockBuster]:
    """Fail a test in which our code blocks an event loop."""
    with blockbuster_ctx("openmanus_graph") as detector:
        yield detector


@pytest.fixture(scope="session", autouse=True)
def _loops_end_without_connections() -> Iterator[None]:
    """Fail the test whose event loop ends while one of its connections is open.

    Python warns of such a connection only when it is collected as garbage, in some later test.
    """
    close = asyncio.SelectorEventLoop.close

    def close_and_check(loop: asyncio.SelectorEventLoop) -> None:
        connections = vars(loop)["_transports"].values()  # by no public name
        sockets = [one.get_extra_info("socket") for one in connections]
        left = [str(one) for one in sockets if one.fileno() != -1]
        close(loop)
        if threading.current_thread() is threading.main_thread():
            assert not left, "connections of an event loop that has ended"

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(asyncio.SelectorEventLoop, "close", close_and_check)
        yield


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """Run a PostgreSQL server for all tests of this process."""
    with Postgres.running() as server:
        yield server


@pytest.fixture(scope="session")
def ssh_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    """Run an SSH server for all tests of this process."""
    with SshServer.running(tmp_path_factory.mktemp("ssh")) as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def each_database(
    request: pytest.FixtureRequest, _own_place: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[DatabaseUrl]:
    """Run the test with a file in its home, and with an empty place in PostgreSQL."""
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        monkeypatch.setenv(DATABASE_VARIABLE, server.database())
    yield database_url()
    close_databases()


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run each test in a folder, home and configuration of its own; close that home's databases.

    A worker runs very many tests, and `select` takes no file descriptor above 1023.
    """
    monkeypatch.setenv("OPENMANUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    yield
    opened = database._open  # pyright: ignore[reportPrivateUsage]
    for url in [url for url in opened if url.is_local and url.file.is_relative_to(tmp_path)]:
        opened.pop(url).close()


@pytest.fixture(autouse=True)
def _process_stays() -> Iterator[None]:
    """Fail a test that leaves a timer which would end this process in the midst of another test."""
    yield
    timers = [one for one in threading.enumerate() if isinstance(one, threading.Timer)]
    assert not [one for one in timers if one.function is os._exit and not one.finished.is_set()]


@pytest.fixture
def search_server() -> Iterator[SearchServer]:
    """A server for every search engine, which finds nothing until told otherwise."""
    with SearchServer() as server:
        yield server
