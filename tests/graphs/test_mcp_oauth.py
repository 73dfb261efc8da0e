"""Logins at MCP servers over HTTP: made with a person, used and refreshed by runs."""

import asyncio
import contextlib
import fcntl
import json
import stat
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph import MCPServer, build_mcp_graph, open_session
from openmanus_graph.backends.mcp.failures import ServerError
from openmanus_graph.backends.mcp.login import LoginResult, login, logout
from openmanus_graph.backends.mcp.oauth import LoginStore
from openmanus_graph.errors import ConfigError
from tests.support.graphs import Ran, calls, run_graph
from tests.support.limits import BACKSTOP_S
from tests.support.mcp_oauth import SECRET, TOKEN, browse, shop_with_logins

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_blocking")]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    import_module("jsonschema")  # reads its schemas when it is first used
    return tmp_path


async def log_in(server: MCPServer, visit: Callable[[str], Any] = browse) -> LoginResult:
    """Log in with a browser."""

    async def show(url: str) -> None:
        await asyncio.to_thread(visit, url)

    return await login(server, show, 20)


async def use(server: MCPServer, *tools: str) -> Ran:
    """Call tools, each in a step of its own."""
    graph = build_mcp_graph(extra_tools=[server], checkpointer=InMemorySaver())
    steps = [calls((f"mcp_shop_{tool}", {})) for tool in tools]
    async with open_session("t"):
        config: Any = {"configurable": {"thread_id": "t"}}
        return await run_graph(graph, *steps, "done", config=config, policy="auto")


def stored(server: MCPServer) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(LoginStore(server).path.read_text())
    return found


async def test_a_login_registers_a_client_and_is_kept_for_its_owner_only() -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        assert await log_in(server) == LoginResult(needed=True, tools=2, scope="read")
        (asked,) = shop.of("/authorize")
        assert (asked["code_challenge_method"], asked["resource"]) == ("S256", shop.url)
        path = LoginStore(server).path
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        ran = await use(server, "look")
        assert "did look" in str(ran.results()), ran.events
        await log_in(server)
        assert len(shop.of("/register")) == 1, "the client and its port are used again"
    assert TOKEN not in str(ran.events) + str(ran.messages) + repr(server)


async def test_a_login_that_ran_out_is_refreshed_and_the_new_one_kept() -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        await log_in(server)
        first = stored(server)
        shop.access.clear()
        ran = await use(server, "look")
        assert "did look" in ran.results()[0]
        assert stored(server)["tokens"] != first["tokens"]
        assert shop.of("/token")[-1]["resource"] == shop.url
        shop.access.clear()
        assert "did look" in (await use(server, "look")).results()[0]
        assert len(shop.of("/authorize")) == 1


async def test_runs_side_by_side_do_not_use_a_refresh_token_twice() -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        await log_in(server)
        shop.access.clear()
        graph = build_mcp_graph(extra_tools=[server], checkpointer=InMemorySaver())

        async def one(thread: str) -> Ran:
            config: Any = {"configurable": {"thread_id": thread}}
            async with open_session(thread):
                call = calls(("mcp_shop_look", {}))
                return await run_graph(graph, call, "done", config=config, policy="auto")

        for ran in await asyncio.gather(*(one(f"t{number}") for number in range(4))):
            assert "did look" in ran.results()[0]
        used = [fields["refresh_token"] for fields in shop.of("/token") if "code" not in fields]
        assert len(used) == len(set(used))


async def test_without_a_login_or_with_a_revoked_one_the_command_is_named() -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        ran = await use(server)
        assert "It wants a login: run `openmanus mcp login shop`" in str(ran.events)
        assert not shop.asked, "a run begins no login"
        await log_in(server)
        shop.access.clear()
        shop.refresh.clear()
        ran = await use(server)
        assert "login is not valid any more" in str(ran.events)
        assert "openmanus mcp login shop" in str(ran.events)
        assert TOKEN not in str(ran.events)
        assert len(shop.of("/authorize")) == 1


async def test_more_rights_are_asked_for_at_the_next_login_and_other_tools_go_on() -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        await log_in(server)
        ran = await use(server, "buy", "look")
        assert "needs another scope (orders): run `openmanus mcp login shop`" in ran.results()[0]
        assert "did look" in ran.results()[1]
        assert (await log_in(server)).scope == "read orders"
        assert "did buy" in (await use(server, "buy")).results()[0]


@pytest.mark.parametrize("way", ["", "post"])
async def test_a_client_that_is_known_already_shows_its_secret_to_its_issuer_only(way: str) -> None:
    with shop_with_logins(way) as shop:
        shop.clients["known"] = {"secret": SECRET}
        server = shop.server(client_id="known", client_secret=SECRET, issuer=shop.issuer)
        assert (await log_in(server)).needed
        assert not shop.of("/register")
        assert SECRET not in LoginStore(server).path.read_text() + repr(server)
        assert ("client_secret" in shop.of("/token")[0]) == (way == "post")
        shop.access.clear()
        assert "did look" in (await use(server, "look")).results()[0]
        asked = len(shop.of("/token"))
        stranger = shop.server(
            client_id="known", client_secret=SECRET, issuer="https://own.example"
        )
        with pytest.raises(
            ServerError, match=r"names the authorization server .*, not https://own"
        ):
            await log_in(stranger)
        assert len(shop.of("/token")) == asked


async def test_a_client_with_credentials_of_its_own_needs_no_person() -> None:
    client = {"grant": "client_credentials", "client_id": "machine", "scope": "read orders"}
    with shop_with_logins() as shop:
        good = shop.server(**client, client_secret=SECRET, issuer=shop.issuer)
        assert "did buy" in (await use(good, "buy")).results()[0]
        shop.access.clear()
        assert "did look" in (await use(good, "look")).results()[0]
        assert not shop.of("/authorize")
        await asyncio.to_thread(LoginStore(good).forget)
        bad = shop.server(**client, client_secret="wrong", issuer=shop.issuer)
        ran = await use(bad)
        assert "Its login failed" in str(ran.events)
        assert "Check `oauth`" in str(ran.events)


def pem(key: Any) -> str:
    text: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return text.decode()


async def test_a_client_with_a_private_key_signs() -> None:
    client = {"grant": "client_credentials", "client_id": "machine", "scope": "read"}
    with shop_with_logins() as shop:
        for key in (ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)):
            shop.public_key = key.public_key()
            server = shop.server(**client, private_key=pem(key), issuer=shop.issuer)
            assert "did look" in (await use(server, "look")).results()[0]
            assert pem(key) not in repr(server)
            await asyncio.to_thread(LoginStore(server).forget)
        for wrong, words in (
            ("no key", "its private_key is not the PEM of a key without a password"),
            (pem(ed25519.Ed25519PrivateKey.generate()), "its private_key is neither RSA nor P-256"),
        ):
            server = shop.server(**client, private_key=wrong, issuer=shop.issuer)
            assert words in str((await use(server)).events)


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ("lies", "issuer mismatch"),
        ("mixes up", "iss mismatch"),
        ("refuses", "the login was refused: Ada said no"),
        ("redirects", r"not followed\)\. Run"),
        ("broken", "invalid_grant"),
        ("unregistered", r"registration failed.*`oauth.client_id`"),
        ("silent", r"the authorization server http\S+ does not describe itself"),
        ("plain", "does not support PKCE with S256"),
        ("floods", "answered more than 1 MB for its login"),
    ],
)
async def test_an_authorization_server_that_misbehaves_gets_nothing(way: str, words: str) -> None:
    with shop_with_logins(way) as shop:
        with pytest.raises(ServerError, match=words) as caught:
            await log_in(shop.server())
        assert not shop.elsewhere
        assert "code_verifier" not in str(caught.value)
        assert LoginStore(shop.server()).read().tokens is None


@pytest.mark.parametrize("way", ["silent", "usurps"])
async def test_without_its_authorization_server_the_mcp_server_gets_no_secret(way: str) -> None:
    with shop_with_logins() as shop:
        shop.clients["known"] = {"secret": SECRET}
        known = shop.server(client_id="known", client_secret=SECRET, issuer=shop.issuer)
        for server in (shop.server(), known):
            await log_in(server)
            before = stored(server)
            shop.access.clear()
            shop.way = way
            for _ in range(2):
                assert "openmanus mcp login shop" in str((await use(server)).events)
            assert stored(server) == before
            shop.way = ""
            assert "did look" in (await use(server, "look")).results()[0]
        shop.way = way
        with pytest.raises(ServerError, match="Its login failed"):
            await log_in(known)
    assert not shop.elsewhere


async def test_a_login_that_nobody_finishes_leaves_the_old_one() -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        await log_in(server)
        before = stored(server)

        async def show(url: str) -> None:
            stray = url.partition("redirect_uri=")[2].partition("&")[0]
            stray = stray.replace("%3A", ":").replace("%2F", "/")
            for wrong in (f"{stray}?code=evil&state=guessed", stray.replace("callback", "else")):
                with pytest.raises(OSError, match=r"HTTP Error 40[04]"):
                    await asyncio.to_thread(browse, wrong)

        with pytest.raises(ServerError, match="was not logged in to within 1 s"):
            await login(server, show, 1)
        assert stored(server) == before


async def test_strange_connections_to_a_login_neither_end_it_nor_outlive_it() -> None:
    faults, idle = list[dict[str, Any]](), list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, fault: faults.append(fault))

    async def show(url: str) -> None:
        port = urlsplit(parse_qs(urlsplit(url).query)["redirect_uri"][0]).port
        for sent in (
            b"GET /" + b"a" * 100_000,
            b"\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET //[ HTTP/1.1\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            idle.append((reader, writer))
        idle.append(await asyncio.open_connection("127.0.0.1", port))  # as browsers do
        await asyncio.to_thread(browse, url)

    with shop_with_logins() as shop:
        assert (await login(shop.server(), show, 20)).tools == 2
    for reader, writer in idle:
        with contextlib.suppress(ConnectionError):
            answer = await asyncio.wait_for(reader.read(), BACKSTOP_S)
            assert not answer or answer.startswith(b"HTTP/1.0 4")
        writer.close()
    assert not faults


async def test_a_server_that_fails_once_it_is_logged_in_to_is_explained() -> None:
    with shop_with_logins("closed") as shop:
        with pytest.raises(ServerError, match="the shop is closed"):
            await log_in(shop.server())
        assert stored(shop.server())["tokens"], "the login itself was made"


async def test_a_logout_revokes_and_forgets() -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        with pytest.raises(ConfigError, match="no login"):
            await logout(server)
        await log_in(server)
        assert await logout(server) == ""
        assert not shop.refresh
        assert list(LoginStore(server).path.parent.iterdir()) == []
        await log_in(server)
        shop.way = "busy"
        assert "could not be revoked: 503" in await logout(server)
        assert list(LoginStore(server).path.parent.iterdir()) == []


@pytest.fixture
async def lock_missed(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set when somebody tries to take a lock that somebody else has."""
    missed, flock, loop = asyncio.Event(), fcntl.flock, asyncio.get_running_loop()

    def watched(descriptor: int, operation: int) -> None:
        try:
            flock(descriptor, operation)
        except BlockingIOError:
            loop.call_soon_threadsafe(missed.set)
            raise

    monkeypatch.setattr(fcntl, "flock", watched)
    return missed


async def first(task: asyncio.Task[Any], event: asyncio.Event) -> None:
    """Wait until one of the two has happened."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def test_a_logout_waits_for_a_refresh_and_revokes_what_it_got(
    lock_missed: asyncio.Event,
) -> None:
    with shop_with_logins() as shop:
        server = shop.server()
        await log_in(server)
        shop.access.clear()
        shop.asked_for_token.clear()
        shop.may_answer.clear()
        run = asyncio.create_task(use(server, "look"))
        await asyncio.to_thread(shop.asked_for_token.wait)
        leaving = asyncio.create_task(logout(server))
        await first(leaving, lock_missed)
        shop.may_answer.set()
        assert await leaving == ""
        await run
        assert not shop.refresh
        assert list(LoginStore(server).path.parent.iterdir()) == []


async def test_a_lock_that_a_logout_deleted_is_none(lock_missed: asyncio.Event) -> None:
    store = LoginStore(MCPServer("shop", url="http://127.0.0.1:9/mcp"))
    async with contextlib.AsyncExitStack() as locks:
        async with store.locked():
            second = asyncio.create_task(locks.enter_async_context(store.locked()))
            await lock_missed.wait()
            await asyncio.to_thread(store.forget)
        await second
        lock_missed.clear()
        third = asyncio.create_task(locks.enter_async_context(store.locked()))
        await first(third, lock_missed)
        assert not third.done()
        third.cancel()
