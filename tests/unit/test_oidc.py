"""Tokens of an OpenID Connect issuer: only valid ones count, whatever the issuer answers."""

import asyncio
import base64
import hmac
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from joserfc import jwk
from pydantic import SecretStr

from openmanus_graph.backends.persistence.accounts import Accounts, User
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.config.resolve import all_layers, section
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service import oidc
from openmanus_graph.interfaces.service.accounts import Refused, current_user
from openmanus_graph.interfaces.service.http import (
    Receive,
    RequestGuard,
    Scope,
    Send,
    answer_json,
)
from openmanus_graph.interfaces.service.oidc import Issuer
from openmanus_graph.state.addresses import DatabaseUrl, is_safe_transport
from openmanus_graph.state.context import Context
from openmanus_graph.state.server_settings import ServerSettings
from tests.support.oidc import CLIENT, WrongIssuer, new_key, wrong_issuer

OTHER_KEY = new_key("first", 1)
"""Another key by the name of the issuer's own."""


@pytest.fixture
def issuer() -> Iterator[WrongIssuer]:
    with wrong_issuer() as found:
        yield found


async def claimed(issuer: WrongIssuer, token: str, **settings: Any) -> str | None:
    """Return the `sub` of a token, if it is valid."""
    claims = await Issuer(issuer.settings(**settings)).claims_of(token)
    return claims["sub"] if claims else None


def unsigned(head: Any, claims: Any, signature: str = "") -> str:
    parts = (
        json.dumps(one).encode() if not isinstance(one, bytes) else one for one in (head, claims)
    )
    encoded = (base64.urlsafe_b64encode(one).rstrip(b"=").decode() for one in parts)
    return f"{'.'.join(encoded)}.{signature}"


@pytest.mark.parametrize("typ", [None, "JWT", "at+jwt", "application/at+jwt"])
async def test_a_valid_token_counts(issuer: WrongIssuer, typ: str | None) -> None:
    header = {"typ": typ, "pi.atm": "1"} if typ else {}
    assert await claimed(issuer, issuer.token(header=header)) == "17"
    assert await claimed(issuer, issuer.token(aud=["x", CLIENT])) == "17"
    assert await claimed(issuer, issuer.token(aud="api"), oidc_audience="api") == "17"


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://issuer.example"}, {"iss": None}, {"aud": "another"}, {"aud": None},
        {"aud": []}, {"sub": None}, {"sub": ""}, {"sub": 17}, {"exp": None}, {"exp": "never"},
        {"exp": -61}, {"nbf": 61}, {"iat": 61}, {"cnf": {"jkt": "x"}},
    ],
    ids=str,
)  # fmt: skip
async def test_a_token_with_wrong_claims_is_none(
    issuer: WrongIssuer, changed: dict[str, Any]
) -> None:
    now = issuer.claims()["iat"]
    times = ("exp", "nbf", "iat")
    moved = {k: now + v if k in times and isinstance(v, int) else v for k, v in changed.items()}
    assert await claimed(issuer, issuer.token(**moved)) is None


@pytest.mark.parametrize("changed", [{"exp": -50}, {"nbf": 50}, {"iat": 50}], ids=str)
async def test_clocks_may_differ_by_a_minute(issuer: WrongIssuer, changed: dict[str, int]) -> None:
    now = issuer.claims()["iat"]
    moved = {name: now + seconds for name, seconds in changed.items()}
    assert await claimed(issuer, issuer.token(**moved)) == "17"


async def test_an_id_token_is_none_where_the_api_has_an_audience(issuer: WrongIssuer) -> None:
    assert await claimed(issuer, issuer.token(), oidc_audience="api") is None


async def test_forged_tokens_are_none(issuer: WrongIssuer) -> None:
    good = issuer.token()
    head, payload, signature = good.split(".")
    more = unsigned({}, issuer.claims(sub="1")).split(".")[1]
    text = unsigned({"alg": "HS256", "kid": "first"}, issuer.claims()).rstrip(".")
    mac = hmac.digest(issuer.key.as_pem(private=False), text.encode(), "sha256")
    as_secret = base64.urlsafe_b64encode(mac).rstrip(b"=").decode()
    forged = {
        "another key": issuer.token(key=OTHER_KEY),
        "changed payload": f"{head}.{more}.{signature}",
        "changed signature": f"{head}.{payload}.{signature[:-8]}AAAAAAAA",
        "no signature": f"{head}.{payload}.",
        "alg none": unsigned({"alg": "none"}, issuer.claims()),
        "alg none, with the key": unsigned({"alg": "none", "kid": "first"}, issuer.claims()),
        "the public key as a shared secret": f"{text}.{as_secret}",
        "a key that the token brings": issuer.token(
            key=OTHER_KEY, header={"jwk": OTHER_KEY.as_dict(private=False)}
        ),
        "a key that the token names": issuer.token(
            key=OTHER_KEY, header={"jku": f"{issuer.url}/others"}
        ),
        "another algorithm than the key's": issuer.token(
            key=jwk.RSAKey.import_key(
                {k: v for k, v in issuer.key.as_dict(private=True).items() if k != "alg"}
            ),
            header={"alg": "PS256"},
        ),
        "a logout token": issuer.token(header={"typ": "logout+jwt"}),
        "of something critical": issuer.token(header={"crit": ["b64"], "b64": False}),
    }
    for how, token in forged.items():
        assert await claimed(issuer, token) is None, how
    assert await claimed(issuer, good) == "17"


@pytest.mark.parametrize(
    "token",
    [
        "..", "a.b.c", "e30.e30.e30", "\udcff.x.y", "é.é.é", unsigned([], {}), unsigned({}, {}),
        unsigned({"alg": ["RS256"], "kid": "first"}, {}), unsigned({"alg": {}}, {}),
        unsigned({"alg": "RS256", "kid": ["first"]}, {}), unsigned({"alg": "RS256", "kid": {}}, {}),
        unsigned(b"[" * 400, {}), unsigned({"alg": "RS256", "kid": "first"}, b"[" * 50_000),
        unsigned({"alg": "RS256", "kid": "first", "crit": 1}, {}, "AAAA"),
        f"{'A' * 200_000}.e30.e30",
    ],
    ids=range(15),
)  # fmt: skip
async def test_what_is_no_token_is_none(issuer: WrongIssuer, token: str) -> None:
    assert await claimed(issuer, token) is None


async def test_a_shared_key_of_the_issuer_verifies_nothing(issuer: WrongIssuer) -> None:
    shared = jwk.OctKey.import_key("x" * 40, {"kid": "shared"})
    issuer.jwks = {"keys": [shared.as_dict(private=True), issuer.key.as_dict(private=False)]}
    assert await claimed(issuer, issuer.token(key=shared, header={"alg": "HS256"})) is None
    assert await claimed(issuer, issuer.token()) == "17"


async def test_new_keys_are_found_and_withdrawn_ones_end(
    issuer: WrongIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker, old = Issuer(issuer.settings()), issuer.token()
    assert await checker.claims_of(old)
    issuer.key = new_key("second")
    assert await checker.claims_of(issuer.token()) is None, "asked again within half a minute"
    monkeypatch.setattr(oidc, "FETCH_EVERY_S", 0)
    tokens = [issuer.token(sub=str(number)) for number in range(5)]
    assert all(await asyncio.gather(*map(checker.claims_of, tokens)))
    assert await checker.claims_of(old) is None


async def test_withdrawn_keys_end_without_a_new_one(
    issuer: WrongIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker, good = Issuer(issuer.settings()), issuer.token()
    assert await checker.claims_of(good)
    issuer.key = new_key("second")
    assert await checker.claims_of(good), "known for ten minutes"
    monkeypatch.setattr(oidc, "KEPT_S", 0)
    monkeypatch.setattr(oidc, "FETCH_EVERY_S", 0)
    assert await checker.claims_of(good) is None


async def test_unknown_keys_make_no_flood_of_requests(issuer: WrongIssuer) -> None:
    checker = Issuer(issuer.settings())
    tokens = [issuer.token(key=OTHER_KEY, header={"kid": str(number)}) for number in range(20)]
    assert not any(await asyncio.gather(*map(checker.claims_of, tokens)))
    assert issuer.asked.count("/jwks") == 1


async def test_known_keys_outlive_the_issuer(
    issuer: WrongIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    checker = Issuer(issuer.settings())
    assert await checker.claims_of(issuer.token())
    issuer.status = 500
    monkeypatch.setattr(oidc, "KEPT_S", 0)
    monkeypatch.setattr(oidc, "FETCH_EVERY_S", 0)
    assert await checker.claims_of(issuer.token())
    with pytest.raises(Refused, match="does not answer") as refusal:
        await checker.claims_of(issuer.token(header={"kid": "unknown"}))
    assert refusal.value.status == 503


@pytest.mark.parametrize(
    "answer",
    [
        {"issuer": "https://another.example"}, {"issuer": 5}, {"jwks_uri": None},
        {"jwks_uri": "http://keys.example/jwks"}, {"token_endpoint": "http://x.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"}, {"jwks_uri": ["x"]},
    ],
    ids=str,
)  # fmt: skip
async def test_an_issuer_with_a_wrong_configuration_is_not_used(
    issuer: WrongIssuer, answer: dict[str, Any]
) -> None:
    issuer.metadata = answer
    with pytest.raises(Refused, match="does not answer as it should"):
        await claimed(issuer, issuer.token())


NO_KEYS: list[Any] = [[1], {"keys": [{}]}, {"keys": "x"}, {"keys": [{"kty": "RSA"}]}]


@pytest.mark.parametrize("jwks", NO_KEYS)
async def test_an_issuer_with_wrong_keys_is_not_used(issuer: WrongIssuer, jwks: Any) -> None:
    issuer.jwks = jwks
    with pytest.raises(Refused, match="does not answer as it should"):
        await claimed(issuer, issuer.token())


async def test_an_issuer_that_was_never_there(issuer: WrongIssuer) -> None:
    settings = ServerSettings(oidc_issuer="http://127.0.0.1:9", oidc_client_id=CLIENT)
    with pytest.raises(Refused) as refusal:
        await Issuer(settings).claims_of(issuer.token())
    assert refusal.value.status == 503


async def test_an_issuer_that_hangs_is_given_up(
    issuer: WrongIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oidc, "ANSWER_S", 0.1)
    issuer.drips_s = 5
    with pytest.raises(Refused, match="does not answer"):
        await claimed(issuer, issuer.token())
    assert not issuer.is_drained, "nobody waited for the end of the answer"


@pytest.fixture
def accounts(each_database: DatabaseUrl) -> Accounts:
    return Accounts(open_database(each_database))


def test_names_are_made_fit_and_never_anothers(accounts: Accounts) -> None:
    accounts.add("ana", "admin")
    accounts.add("old", "user")
    accounts.remove("old")
    wanted = (
        "Ana",
        "ana",
        "old",
        "Bob B.@Corp.example",
        "../../etc",
        "(nobody)",
        "李",
        "x" * 200,
        "",
    )
    users = [accounts.of_subject(f"i#{n}", name, "user") for n, name in enumerate(wanted)]
    names = [user.name for user in users if user]
    assert len(set(names)) == len(wanted)
    assert names[3:6] == ["bob-b.@corp.example", "etc", "nobody-"]
    assert [name.partition("-")[0] for name in names[:3]] == ["ana", "ana", "old"]
    assert not {"ana", "old"} & set(names)
    again = [accounts.of_subject(f"i#{n}", "new", "viewer") for n in range(len(wanted))]
    assert again == users, "a user stays the same, whatever the next token says"
    assert len(accounts.all()) == len(wanted) + 2
    assert accounts.find("ana") == User("ana", "admin")


def test_a_removed_user_stays_removed(accounts: Accounts) -> None:
    assert accounts.of_subject("i#1", "ana", "user") == User("ana", "user")
    accounts.remove("ana")
    assert accounts.of_subject("i#1", "ana", "user") is None
    with pytest.raises(ConfigError, match="already"):
        accounts.add("ana", "user")
    with pytest.raises(ConfigError, match="this subject"):
        accounts.add("eva", "user", "i#1")
    accounts.add("ana", "viewer", "i#1")
    assert accounts.of_subject("i#1", "ana", "user") == User("ana", "viewer")


def test_without_a_role_only_added_users_come_in(accounts: Accounts) -> None:
    assert accounts.of_subject("i#1", "ana", None) is None
    assert not accounts.any()
    accounts.add("ana", "user", "i#1")
    assert accounts.of_subject("i#1", "x", None) == User("ana", "user")


def test_the_first_requests_of_a_user_add_one(accounts: Accounts) -> None:
    accounts.add("ana", "user")
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(accounts.of_subject, "i#1", name, "user")
            for name in ("ana", "eva") * 16  # one token has the name, the other the address
        ]
        users = {one.result() for one in asked}
    assert len(users) == 1
    assert len(accounts.all()) == 2


def test_signing_out_forgets_sessions_only(accounts: Accounts) -> None:
    accounts.add("ana", "user")
    session, program = accounts.new_token("ana", valid_s=60), accounts.new_token("ana")
    for token in (session, program):
        accounts.forget_token(token)
    assert accounts.user_of(session) is None
    assert accounts.user_of(program) == User("ana", "user")


def server_settings() -> ServerSettings:
    return section(ServerSettings, all_layers(Context())[0])


def test_a_folder_that_is_not_trusted_sets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "config" / "openmanus" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('[server]\noidc_issuer = "https://a.example"\noidc_audience = "api"\n')
    Path("openmanus.toml").write_text(
        '[server]\noidc_issuer = ""\noidc_audience = ""\noidc_client_id = "evil"\noidc_role = ""\n'
        'oidc_client_secret = ""\n'
    )
    monkeypatch.setenv("OPENMANUS_OIDC_CLIENT_SECRET", "hidden-secret")
    assert server_settings() == ServerSettings(
        oidc_issuer="https://a.example",
        oidc_audience="api",
        oidc_client_secret=SecretStr("hidden-secret"),
    )
    assert "hidden" not in repr(server_settings())


@pytest.mark.parametrize(
    ("issuer", "client", "words"),
    [
        ("http://issuer.example", "x", "https"), ("issuer.example", "x", "https"),
        ("https://a.example", "", "oidc_client_id"),
    ],
)  # fmt: skip
def test_wrong_settings_are_named(
    monkeypatch: pytest.MonkeyPatch, issuer: str, client: str, words: str
) -> None:
    monkeypatch.setenv("OPENMANUS_OIDC_ISSUER", issuer)
    monkeypatch.setenv("OPENMANUS_OIDC_CLIENT_ID", client)
    with pytest.raises(ConfigError, match=words):
        oidc.configured_issuer()


async def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENMANUS_OIDC_ISSUER", "https://a.example")
    monkeypatch.setenv("OPENMANUS_OIDC_CLIENT_ID", "x")
    monkeypatch.setitem(sys.modules, oidc.LIBRARY, None)
    with pytest.raises(ConfigError, match=r"openmanus-graph\[oidc\]"):
        oidc.configured_issuer()
    with pytest.raises(Refused, match="authlib") as refusal:
        await oidc.user_of("a.b.c")
    assert refusal.value.status == 503


def test_which_addresses_others_cannot_read() -> None:
    safe = ("https://a.example", "http://127.0.0.1:1", "http://localhost", "http://[::1]:8/x")
    assert all(map(is_safe_transport, safe))
    unsafe = ("http://a.example", "http://127.0.0.1.a.example", "ftp://127.0.0.1", "", "https://",
              "http://0.0.0.0", "http://localhost@a.example")  # fmt: skip
    assert not any(map(is_safe_transport, unsafe))


async def test_every_server_of_ours_takes_these_tokens(
    issuer: WrongIssuer, accounts: Accounts, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await answer_json(send, 200, {"name": current_user().name}, {})

    monkeypatch.setenv("OPENMANUS_OIDC_ISSUER", issuer.url)
    monkeypatch.setenv("OPENMANUS_OIDC_CLIENT_ID", CLIENT)
    guard = RequestGuard(app, token="own", bound_to=("127.0.0.1",), public=("/open",))
    transport = httpx.ASGITransport(app=guard)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

        async def asked(token: str, path: str = "/") -> tuple[int, Any]:
            answer = await client.get(path, headers={"Authorization": f"Bearer {token}"})
            return answer.status_code, answer.json()

        assert await asked(issuer.token(email="Eva@a.example")) == (200, {"name": "eva@a.example"})
        assert await asked("own") == (200, {"name": ""})
        assert (await asked(issuer.token(aud="x")))[0] == 401
        assert (await asked(issuer.token(aud="x"), "/open"))[0] == 200
        accounts.remove("eva@a.example")
        assert (await asked(issuer.token()))[0] == 401
        monkeypatch.setenv("OPENMANUS_OIDC_ISSUER", "http://127.0.0.1:9")
        status, told = await asked(issuer.token())
        assert (status, "does not answer" in told["detail"]) == (503, True)
