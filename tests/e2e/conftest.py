"""The commands and the model server that their tests need."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli import Cli
from tests.support.crash import Ordeal
from tests.support.openai_server import OpenAIServer
from tests.support.page import Desk, Tab, chromium, served_page
from tests.support.past import write_past
from tests.support.servers import bring_money
from tests.support.serving import BIN, Served
from tests.support.zygote import Zygote


@pytest.fixture
def model() -> Iterator[OpenAIServer]:
    """A strict model server; its script is empty."""
    with OpenAIServer(strict=True) as server:
        yield server


@pytest.fixture
def bare_cli(tmp_path: Path, zygote: Zygote) -> Iterator[Cli]:
    """The command with nothing configured."""
    cli = Cli(tmp_path / "cli", zygote=zygote)
    yield cli
    cli.close()
    cli.assert_no_key()


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    """Starts commands without the time that their imports take."""
    with Zygote() as zygote:
        yield zygote


@pytest.fixture(scope="session")
def workers() -> Iterator[Zygote]:
    """Starts workers of triggers."""
    with Zygote("tests.support.trigger_worker:main") as zygote:
        yield zygote


@pytest.fixture
def real_start(bare_cli: Cli) -> None:
    """Start this test's commands as a shell does: the start itself is tested."""
    bare_cli.zygote = None


@pytest.fixture(scope="session")
def undisturbed(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Ordeal:
    """The run that others are killed in, left alone: it asks once, and is resumed."""
    ordeal = Ordeal(tmp_path_factory.mktemp("undisturbed") / "cli", zygote)
    ordeal.see_through()
    first, second = ordeal.lives
    assert (first.code, second.code) == (4, 0)
    return ordeal


@pytest.fixture
def cli(bare_cli: Cli, model: OpenAIServer) -> Cli:
    """The command, configured by the environment for the model server."""
    bare_cli.use(model.base_url)
    return bare_cli


@pytest.fixture(scope="module")
def llm() -> Iterator[OpenAIServer]:
    """The model of a server that all tests of a module talk to; each adds what it plays."""
    with OpenAIServer(strict=True) as server:
        yield server


@pytest.fixture(scope="module")
def home(
    llm: OpenAIServer, tmp_path_factory: pytest.TempPathFactory, zygote: Zygote
) -> Iterator[Cli]:
    """The command of such a server, whose tools include one with effects outside."""
    cli = Cli(tmp_path_factory.mktemp("home") / "cli", zygote=zygote)
    cli.use(llm.base_url)
    bring_money(cli)
    yield cli
    cli.assert_no_key()


@pytest.fixture(scope="session")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, OpenAIServer]]:
    """One server for all tests that leave it as they find it, and its model.

    It has a long past: a test that counts what the server lists fails here at once, and not only
    after many other tests. It is not forked: what it imports late, and must not import in the
    event loop, is seen here.
    """
    root = tmp_path_factory.mktemp("served")
    write_past(root / ".openmanus")
    with OpenAIServer(strict=True) as model:
        env = {"OPENAI_BASE_URL": model.base_url, "OPENMANUS_MODEL": "openai:m"}
        with Served(root, env) as served:
            yield served, model


@pytest.fixture
def served(_served: tuple[Served, OpenAIServer]) -> Served:
    """The server; its model has no script yet."""
    _served[1].begin_again()
    return _served[0]


@pytest.fixture
def served_model(served: Served, _served: tuple[Served, OpenAIServer]) -> OpenAIServer:
    """The server's model."""
    return _served[1]


@pytest.fixture(scope="session")
def _served_page(
    tmp_path_factory: pytest.TempPathFactory, zygote: Zygote
) -> Iterator[tuple[Served, OpenAIServer]]:
    """One server for all tests of the page, with a long past, and its model."""
    root = tmp_path_factory.mktemp("page")
    write_past(root / ".openmanus")
    env = {**os.environ, "XDG_CONFIG_HOME": str(root / "config")}
    subprocess.run([BIN / "openmanus", "trust"], cwd=root, env=env, check=True)
    with served_page(root, zygote) as found:
        yield found


@pytest.fixture(scope="module")
def at(_served_page: tuple[Served, OpenAIServer]) -> Iterator[Desk]:
    """The page in a browser, which goes before other tests need an event loop."""
    with chromium() as browser:
        yield Desk(*_served_page, browser)


@pytest.fixture
def tab(at: Desk) -> Iterator[Tab]:
    """The page in a tab of its own, with an empty script of the model."""
    at.model.begin_again()
    tab = at.tab()
    yield tab
    tab.close()
