"""Signing in to the page at the OIDC issuer (code flow with PKCE), for a token of our own."""

import asyncio
import time
from html import escape
from importlib import import_module
from pathlib import Path
from string import Template
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.server.guard import server_token
from openmanus_graph.interfaces.service import accounts, http, oidc
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.state.addresses import is_loopback

LOGIN = "/app/login"
COOKIE = "openmanus_login"
"""Signed. Holds what the flow needs when the browser is back: state, nonce, verifier."""
LOGIN_S = 600
SESSION_S = 12 * 3600
_HEADERS = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
_PAGE = Path(__file__).with_name("login.html")
router = APIRouter()


@router.get(f"{LOGIN}/info", include_in_schema=False)
async def show_info() -> dict[str, bool]:
    return {"sign_in": await asyncio.to_thread(oidc.configured_issuer) is not None}


@router.get(LOGIN, include_in_schema=False)
@router.get(f"{LOGIN}/callback", include_in_schema=False)
async def sign_in(request: Request) -> Response:
    """Send the browser to the issuer, or take it back from there. An error is shown as a page."""
    from joserfc.jwk import OctKey

    step = _begin if request.url.path == LOGIN else _finish
    try:
        if (issuer := await asyncio.to_thread(oidc.configured_issuer)) is None:
            raise Refused(404, "This server has no identity provider.")
        await issuer.refresh()
        key = OctKey.import_key(f"The cookie of a sign-in, signed with {server_token()}")
        return await step(request, issuer, key)
    except (Refused, ConfigError) as error:
        page = Template(await asyncio.to_thread(_PAGE.read_text, "utf-8"))
        text = page.substitute(reason=escape(str(error)))
        return HTMLResponse(text, getattr(error, "status", 503), _HEADERS)


async def _begin(request: Request, issuer: oidc.Issuer, key: Any) -> Response:
    from joserfc import jwt

    host = request.headers["host"]  # checked by the guard
    is_local = is_loopback(urlsplit(f"//{host}").hostname or "")
    request.scope["session"] = kept = dict[str, Any]()
    back = f"{'http' if is_local else 'https'}://{host}{LOGIN}/callback"
    answer: Response = await issuer.client.authorize_redirect(request, back)
    answer.headers.update(_HEADERS)
    until = int(time.time()) + LOGIN_S
    signed = jwt.encode({"alg": "HS256"}, {"session": kept, "exp": until}, key)
    answer.set_cookie(COOKIE, signed, LOGIN_S, path=LOGIN, secure=not is_local, httponly=True)
    return answer


async def _finish(request: Request, issuer: oidc.Issuer, key: Any) -> Response:
    from httpx2 import HTTPError
    from joserfc import errors, jwt

    library, client_id = import_module(oidc.LIBRARY), issuer.settings.oidc_client_id
    try:
        kept = jwt.decode(request.cookies.get(COOKIE, ""), key, algorithms=["HS256"]).claims
        jwt.JWTClaimsRegistry(exp={"essential": True}).validate(kept)
        request.scope["session"] = kept["session"]
        async with asyncio.timeout(oidc.ANSWER_S):
            token = await issuer.client.authorize_access_token(
                request, claims_options=issuer.wanted(client_id), leeway=oidc.LEEWAY_S
            )
        claims = token["userinfo"]
    except (HTTPError, TimeoutError) as error:
        raise Refused(503, "The identity provider does not answer. Try again later.") from error
    except (errors.JoseError, library.OAuthError, *oidc.OF_ANOTHER_FORM) as error:
        text = f"It failed, or began in another browser or too long ago ({error!s:.200})."
        raise Refused(403, text) from error
    user = await issuer.user_with(claims)
    if user is None:
        raise Refused(403, f"You may not use this server. You are {claims['iss']}#{claims['sub']}.")
    table = await asyncio.to_thread(accounts.accounts)
    session = await asyncio.to_thread(lambda: table.new_token(user.name, valid_s=SESSION_S))
    answer = RedirectResponse(f"/app#token={session}", 303, _HEADERS)
    answer.delete_cookie(COOKIE, path=LOGIN)
    return answer


@router.delete("/app/api/session", status_code=204)
async def sign_out(request: Request) -> None:
    """Make the page's token invalid, if it is one that a sign-in has made."""
    table = await asyncio.to_thread(accounts.accounts)
    for token in http.tokens_in(request.scope["headers"]):
        await asyncio.to_thread(table.forget_token, token)
