"""Users sign in at a real identity provider: on the page in Chromium, and by bearer tokens."""

import base64
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwk, jwt
from playwright.sync_api import Browser, expect

from tests.support.applications.installing import free_port
from tests.support.limits import BACKSTOP_S
from tests.support.oidc import (
    CLIENT,
    SECRET,
    Provider,
    WrongIssuer,
    identity_provider,
    new_key,
    wrong_issuer,
)
from tests.support.page import chromium
from tests.support.serving import BIN, Served

pytestmark = pytest.mark.slow
API = "http://api.example"


@dataclass
class Site:
    served: Served
    provider: Provider

    @property
    def login(self) -> str:
        return f"{self.served.url}/app/login"

    def me(self, token: str) -> httpx.Response:
        return self.served_get("/app/api/me", token)

    def served_get(self, path: str, token: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.get(self.served.url + path, headers=headers, timeout=BACKSTOP_S)

    def users(self, *argv: str) -> None:
        command: list[str | Path] = [BIN / "openmanus", "users", *argv]
        env = {**os.environ, **self.served.env, "OPENMANUS_HOME": str(self.served.home)}
        done = subprocess.run(
            command, cwd=self.served.folder, env=env, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr

    def session(self, browser: httpx.Client, name: str) -> str:
        """Sign in without a browser, and return the token of the page."""
        address = self.provider.code_address(browser, self.login, name)
        answer = browser.get(address)
        assert answer.status_code == 303, answer.text
        return answer.headers["location"].removeprefix("/app#token=")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder, port = tmp_path_factory.mktemp("site"), free_port()
    with identity_provider(f"http://127.0.0.1:{port}/app/login/callback") as provider:
        with serving(folder, provider.url, port) as served:
            yield Site(served, provider)
        assert SECRET not in served.log


def serving(folder: Path, issuer: str, port: int = 0, audience: str = "api.example") -> Served:
    settings = folder / "config" / "openmanus" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(
        f'[server]\noidc_issuer = "{issuer}"\noidc_client_id = "{CLIENT}"\n'
        f'oidc_audience = "{audience}"\n'
    )
    env = {
        "XDG_CONFIG_HOME": str(folder / "config"),
        "OPENMANUS_OIDC_CLIENT_SECRET": SECRET,
        "OPENMANUS_MODEL": "openai:m",
        "OPENMANUS_ALLOWED_HOSTS": "agents.example",
    }
    return Served(folder, env, ("--port", str(port)))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=BACKSTOP_S) as found:
        yield found


def test_a_person_signs_in_works_and_signs_out(
    site: Site, browser: Browser, tmp_path: Path
) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), lambda route: route.abort())
    page = context.new_page()
    wrong = list[str]()
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(f"{site.served.url}/app")
    page.get_by_role("link", name="Sign in").click()
    page.screenshot(path=tmp_path / "provider.png")
    page.get_by_placeholder("Enter any login").fill("ana")
    page.get_by_placeholder("and password").fill("any")
    page.get_by_role("button", name="Sign-in").click()
    page.get_by_role("button", name="Continue").click()
    expect(page.locator(".account")).to_contain_text("ana")
    page.screenshot(path=tmp_path / "signed-in.png")
    assert page.url == f"{site.served.url}/app", "the token is not left in the address"
    kept = {one.get("name") for one in context.cookies(f"{site.served.url}/app/login")}
    assert "openmanus_login" not in kept
    token = page.evaluate("localStorage.getItem('openmanus_token')")
    assert site.me(token).json() == {"name": "ana", "role": "user"}

    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("dialog")).to_contain_text("Sign in")
    page.screenshot(path=tmp_path / "signed-out.png")
    assert page.evaluate("localStorage.getItem('openmanus_token')") is None
    assert site.me(token).status_code == 401

    page.goto(f"{site.login}/callback?code=x&state=y")
    expect(page.get_by_role("heading")).to_have_text("You are not signed in")
    page.screenshot(path=tmp_path / "error.png")
    page.get_by_role("link", name="Try again").click()
    expect(page.locator(".account")).to_contain_text("ana")
    assert not wrong
    context.close()


def test_what_the_browser_is_sent_with(site: Site, client: httpx.Client) -> None:
    begun = client.get(site.login)
    asked = {
        name: one[0] for name, one in parse_qs(urlsplit(begun.headers["location"]).query).items()
    }
    assert asked["response_type"] == "code"
    assert asked["code_challenge_method"] == "S256"
    assert {"state", "nonce", "code_challenge"} <= asked.keys()
    assert asked["redirect_uri"] == f"{site.login}/callback"
    cookie = begun.headers["set-cookie"].lower()
    assert all(
        word in cookie for word in ("httponly", "samesite=lax", "path=/app/login", "max-age=600")
    )
    assert "secure" not in cookie, "on loopback there is no https"
    assert begun.headers["referrer-policy"] == "no-referrer"
    assert begun.headers["cache-control"] == "no-store"
    again = client.get(site.login)
    assert parse_qs(urlsplit(again.headers["location"]).query)["state"] != [asked["state"]]


def test_elsewhere_the_way_back_is_https(site: Site, client: httpx.Client) -> None:
    begun = client.get(site.login, headers={"Host": "agents.example"})
    asked = parse_qs(urlsplit(begun.headers["location"]).query)
    assert asked["redirect_uri"] == ["https://agents.example/app/login/callback"]
    assert "; Secure" in begun.headers["set-cookie"]
    assert client.get(site.login, headers={"Host": "evil.example"}).status_code == 421


def test_a_removed_user_is_out_at_once_and_stays_out(site: Site, client: httpx.Client) -> None:
    token = site.session(client, "bea")
    assert site.me(token).json()["name"] == "bea"
    site.users("revoke", "bea")
    assert site.me(token).status_code == 401
    address = site.provider.code_address(client, site.login, "bea")
    refused = client.get(address)
    assert refused.status_code == 403
    assert f"{site.provider.url}#bea" in refused.text
    assert 'href="/app/login"' in refused.text
    site.users("add", "bea", "--role", "viewer", "--subject", f"{site.provider.url}#bea")
    assert site.me(site.session(client, "bea")).json() == {"name": "bea", "role": "viewer"}


def test_a_viewer_can_sign_out(site: Site, client: httpx.Client) -> None:
    token = site.session(client, "vera")
    site.users("role", "vera", "viewer")
    headers = {"Authorization": f"Bearer {token}"}
    assert client.delete(f"{site.served.url}/app/api/session", headers=headers).status_code == 204
    assert site.me(token).status_code == 401


def test_nobody_gets_another_users_name(site: Site, client: httpx.Client) -> None:
    site.users("add", "cleo")
    name = site.me(site.session(client, "cleo")).json()["name"]
    assert re.fullmatch("cleo-[0-9a-f]{8}", name)
    with httpx.Client(timeout=BACKSTOP_S) as another:
        third = site.me(site.session(another, "someone:cleo")).json()["name"]
    assert third not in ("cleo", name)


def test_bearer_tokens_of_the_api(site: Site, client: httpx.Client) -> None:
    token = site.provider.robot_token(API)
    assert token.count(".") == 2
    assert site.me(token).json() == {"name": "robot", "role": "user"}
    started = client.post(f"{site.served.url}/threads", json={}, headers={"X-Api-Key": token})
    assert started.status_code == 200, started.text
    for wrong in (site.provider.robot_token("http://other.example"), f"{token[:-9]}AAAAAAAAA"):
        refused = site.me(wrong)
        assert refused.status_code == 401
        assert "invalid_token" in refused.headers["www-authenticate"]
    site.users("revoke", "robot")
    assert site.me(token).status_code == 401, "removed, though the token is valid"


@pytest.mark.parametrize("state", ["", "another"])
def test_a_state_that_does_not_match(site: Site, client: httpx.Client, state: str) -> None:
    address = site.provider.code_address(client, site.login, "dan")
    changed = re.sub(r"state=[^&]+", f"state={state}", address)
    refused = client.get(changed)
    assert refused.status_code == 403
    assert "began" in refused.text or "begun" in refused.text


def test_a_callback_without_the_cookie_or_with_a_forged_one(
    site: Site, client: httpx.Client
) -> None:
    address = site.provider.code_address(client, site.login, "dan")
    cookie = client.cookies["openmanus_login"]
    head, payload, signature = cookie.split(".")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none"}').rstrip(b"=").decode()
    forged = f"{head}.{payload}.{signature[::-1]}", f"{head}.e30.{signature}"
    for given in ("", "x", f"{unsigned}.{payload}.", *forged):
        refused = httpx.get(address, cookies={"openmanus_login": given} if given else None)
        assert refused.status_code == 403, given


def test_a_callback_counts_once(site: Site, client: httpx.Client) -> None:
    address = site.provider.code_address(client, site.login, "dan")
    kept = {"openmanus_login": client.cookies["openmanus_login"]}
    assert client.get(address).status_code == 303
    assert client.get(address).status_code == 403, "the cookie is gone"
    assert httpx.get(address, cookies=kept).status_code == 403, "the code was used"


def test_a_code_of_another_client(site: Site, client: httpx.Client) -> None:
    begun = client.get(site.login)
    asked = parse_qs(urlsplit(begun.headers["location"]).query)
    query = {name: one[0] for name, one in asked.items()}
    stolen = httpx.URL(f"{site.provider.url}/auth", params={**query, "client_id": "elsewhere"})
    address = site.provider.code_address(client, str(stolen), "dan")
    refused = client.get(address)
    assert refused.status_code == 403
    assert "token" not in refused.headers.get("location", "")


def test_an_error_of_the_provider_is_text(site: Site, client: httpx.Client) -> None:
    begun = client.get(site.login)
    state = parse_qs(urlsplit(begun.headers["location"]).query)["state"][0]
    query = {
        "state": state,
        "error": "<img src=x>",
        "error_description": "<script>alert(1)</script>",
    }
    refused = client.get(f"{site.login}/callback", params=query)
    assert refused.status_code == 403
    assert "<script>" not in refused.text
    assert "<img" not in refused.text
    assert "script-src" not in refused.text
    assert "default-src &#39;none&#39;" in refused.text or "default-src 'none'" in refused.text


@pytest.fixture
def issuer() -> Iterator[WrongIssuer]:
    with wrong_issuer() as found:
        yield found


def test_wrong_answers_of_the_token_endpoint(
    tmp_path: Path, issuer: WrongIssuer, client: httpx.Client
) -> None:
    with serving(tmp_path, issuer.url) as served:
        login = f"{served.url}/app/login"

        def answered(**changed: Any) -> httpx.Response:
            """Sign in where the token endpoint answers with an ID token that is changed."""
            query = parse_qs(urlsplit(client.get(login).headers["location"]).query)
            claims: dict[str, Any] = {"nonce": query["nonce"][0], **changed}
            answers = claims.pop("answers", None) or {"id_token": issuer.token(**claims)}
            issuer.tokens = {"access_token": "x", "token_type": "Bearer", **answers}
            given = {"code": "c", "state": query["state"][0]}
            return client.get(f"{login}/callback", params=given)

        assert answered().status_code == 303
        assert answered(preferred_username="<b>").status_code == 303
        for changed in (
            {"nonce": "another"}, {"nonce": None}, {"aud": "another"}, {"azp": "another"},
            {"aud": "another", "azp": CLIENT}, {"iss": "https://another.example"}, {"exp": 1},
            {"sub": None}, {"key": new_key("first", 1)}, {"answers": {"id_token": None}},
            {"answers": {"id_token": "x"}}, {"answers": {"id_token": ["x"]}},
            {"answers": {"error": "invalid_grant"}}, {"answers": {"access_token": None}},
        ):  # fmt: skip
            refused = answered(**changed)
            assert refused.status_code == 403, changed
            assert "You are not signed in" in refused.text
        issuer.tokens = ["x"]
        issuer.status = 502
        query = parse_qs(urlsplit(client.get(login).headers["location"]).query)
        given = {"code": "c", "state": query["state"][0]}
        assert client.get(f"{login}/callback", params=given).status_code == 503


def test_a_cookie_is_too_old_after_ten_minutes(site: Site, client: httpx.Client) -> None:
    address = site.provider.code_address(client, site.login, "dan")
    key = jwk.OctKey.import_key(f"The cookie of a sign-in, signed with {site.served.token}")
    kept = jwt.decode(client.cookies["openmanus_login"], key, algorithms=["HS256"]).claims
    old = jwt.encode({"alg": "HS256"}, {**kept, "exp": kept["exp"] - 601}, key)
    assert httpx.get(address, cookies={"openmanus_login": old}).status_code == 403
    assert client.get(address).status_code == 303


def test_an_issuer_that_is_down_at_first_and_later(tmp_path: Path) -> None:
    port = free_port()
    with wrong_issuer(port) as issuer:
        pass
    with serving(tmp_path / "down", issuer.url, audience="") as served:
        site = Site(served, Provider(issuer.url, served.process))  # type: ignore[arg-type]
        refused = site.me(issuer.token())
        assert refused.status_code == 503
        assert "does not answer" in refused.json()["detail"]
        assert site.me(served.token).status_code == 200, "the server's own token needs no issuer"
        page = httpx.get(site.login)
        assert page.status_code == 503
        assert "does not answer" in page.text
    with (
        wrong_issuer(port) as issuer,
        serving(tmp_path / "later", issuer.url, audience="") as served,
    ):
        site = Site(served, Provider(issuer.url, served.process))  # type: ignore[arg-type]
        assert site.me(issuer.token()).status_code == 200
        issuer.status = 500
        assert site.me(issuer.token(sub="18")).status_code == 200
        assert site.me(issuer.token(header={"kid": "new"})).status_code == 401


def test_a_server_without_an_issuer(tmp_path: Path, issuer: WrongIssuer) -> None:
    with Served(tmp_path / "plain") as served:
        site = Site(served, Provider("", served.process))  # type: ignore[arg-type]
        assert httpx.get(f"{site.login}/info").json() == {"sign_in": False}
        assert httpx.get(site.login).status_code == 404
        assert site.me(issuer.token()).status_code == 401


def test_wrong_settings_end_the_start(tmp_path: Path) -> None:
    done = subprocess.run(
        [BIN / "openmanus", "serve", "--no-open", "--port", "0"],
        cwd=tmp_path,
        env={"PATH": "", "HOME": str(tmp_path), "OPENMANUS_OIDC_ISSUER": "http://issuer.example"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BACKSTOP_S,
    )
    assert done.returncode == 2
    assert "oidc_issuer needs https" in done.stderr
