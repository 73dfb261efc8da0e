"""Users of an OpenID Connect issuer: verifies its tokens, and finds or adds the users in them."""

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from typing import Any

from openmanus_graph.backends.models.endpoint import tls_context
from openmanus_graph.backends.persistence.accounts import User
from openmanus_graph.config.resolve import all_layers, section
from openmanus_graph.errors import ConfigError, install_extra
from openmanus_graph.interfaces.service import accounts
from openmanus_graph.interfaces.service.accounts import Refused
from openmanus_graph.state.addresses import is_safe_transport
from openmanus_graph.state.context import Context
from openmanus_graph.state.server_settings import ServerSettings

log = logging.getLogger(__name__)
SCOPE = "openid profile email"
LIBRARY = "authlib.integrations.starlette_client"
ALGORITHMS = tuple(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512))
"""None with a shared secret: the issuer's public key must not count as one."""
ENDPOINTS = ("jwks_uri", "authorization_endpoint", "token_endpoint")
OF_ANOTHER_FORM = (LookupError, ValueError, TypeError, AttributeError)
"""What libraries raise for tokens and answers that are not as they should be."""
LEEWAY_S = 60
ANSWER_S = 5.0
FETCH_EVERY_S = 30.0
"""Seconds between two attempts to fetch the keys: anyone can send the id of an unknown key."""
KEPT_S = 600.0
"""Seconds after which keys are fetched again, so that withdrawn ones become invalid."""


class Issuer:
    """An issuer, whose endpoints and keys are fetched when they are needed."""

    def __init__(self, settings: ServerSettings) -> None:
        self.settings = settings
        self.client: Any = None
        """Authlib's client (it has no types), with endpoints and keys in `server_metadata`."""
        self._tried = self._fetched = float("-inf")
        self._lock = asyncio.Lock()

    async def refresh(self, *, again: bool = False) -> None:
        """Fetch endpoints and keys if they are old, or, with `again`, if the last attempt is.

        Refused (503): the issuer does not answer. Without `again`, what is known stays valid.
        """
        old = time.monotonic() - self._fetched > KEPT_S
        if again or (old and not (self.client and self._lock.locked())):
            async with self._lock:
                if time.monotonic() - self._tried > FETCH_EVERY_S:
                    self._tried = time.monotonic()
                    await self._fetch()
        if not self.client or (again and self._fetched < self._tried):
            raise Refused(503, f"{self.settings.oidc_issuer} does not answer as it should.")

    async def _fetch(self) -> None:
        from httpx2 import HTTPError
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet

        library, address = import_module(LIBRARY), self.settings.oidc_issuer.rstrip("/")
        tls = await asyncio.to_thread(tls_context)
        client = library.StarletteOAuth2App(
            library.StarletteIntegration("oidc"),
            client_id=self.settings.oidc_client_id,
            client_secret=self.settings.oidc_client_secret.get_secret_value() or None,
            client_kwargs={"scope": SCOPE, "code_challenge_method": "S256", "verify": tls},
            server_metadata_url=f"{address}/.well-known/openid-configuration",
        )
        try:
            async with asyncio.timeout(ANSWER_S):
                found = await client.load_server_metadata()
                is_safe = all(is_safe_transport(found[name]) for name in ENDPOINTS)
                if found["issuer"].rstrip("/") != address or not is_safe:
                    raise ValueError("its configuration is another issuer's, or not only https")
                KeySet.import_key_set(await client.fetch_jwk_set())
        except (HTTPError, JoseError, OSError, *OF_ANOTHER_FORM) as error:
            log.warning("The OIDC issuer %s cannot be used: %r", address, error)
        else:
            found["id_token_signing_alg_values_supported"] = ALGORITHMS
            self.client, self._fetched = client, time.monotonic()

    def wanted(self, audience: str) -> dict[str, Any]:
        """Return the claims that a token must have, as joserfc and Authlib take them."""
        values = {"iss": self.client.server_metadata["issuer"], "aud": audience}
        some = {name: {"essential": True} for name in ("sub", "exp")}
        return some | {name: {"essential": True, "value": one} for name, one in values.items()}

    async def claims_of(self, token: str) -> Mapping[str, Any] | None:
        """Return the claims of a valid bearer token. Refused (503) as `refresh`."""
        from joserfc import errors, jwk, jws, jwt

        registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        audience = self.settings.oidc_audience or self.settings.oidc_client_id
        for again in (False, True):
            await self.refresh(again=again)
            try:
                keys = jwk.KeySet.import_key_set(self.client.server_metadata["jwks"])
                found = jwt.decode(token, keys, registry=registry)
                jwt.JWTClaimsRegistry(leeway=LEEWAY_S, **self.wanted(audience)).validate(
                    found.claims
                )
            except errors.InvalidKeyIdError:
                continue
            except (errors.JoseError, *OF_ANOTHER_FORM):
                break
            # Tokens of other types (of a logout) and those bound to a key give no access.
            kind = str(found.header.get("typ", "JWT")).lower().removeprefix("application/")
            return found.claims if kind in ("jwt", "at+jwt") and "cnf" not in found.claims else None
        return None

    async def user_with(self, claims: Mapping[str, Any]) -> User | None:
        """Return the user of verified claims, who may be new. None: removed, or not to be added."""
        wanted = claims.get("preferred_username") or claims.get("email") or claims["sub"]
        subject, role = f"{claims['iss']}#{claims['sub']}", self.settings.oidc_role or None
        table = await asyncio.to_thread(accounts.accounts)
        return await asyncio.to_thread(table.of_subject, subject, str(wanted), role)


_issuer = lru_cache(maxsize=1)(Issuer)


def configured_issuer() -> Issuer | None:
    """Return the issuer of the settings, if any. Blocks. ConfigError: it cannot be used."""
    found = section(ServerSettings, all_layers(Context())[0])
    if not found.oidc_issuer:
        return None
    if not (found.oidc_client_id and is_safe_transport(found.oidc_issuer)):
        raise ConfigError("[server] oidc_issuer needs https:// and the setting oidc_client_id.")
    try:
        import_module(LIBRARY)
    except ImportError as error:
        raise ConfigError(f"oidc_issuer needs authlib. {install_extra('oidc')}") from error
    return _issuer(found)


async def user_of(token: str) -> User | None:
    """Return the named user with a token, ours or a JWT. Refused (503): it cannot be checked."""
    if token.count(".") != 2:
        return await accounts.user_of(token)
    try:
        issuer = await asyncio.to_thread(configured_issuer)
        claims = issuer and await issuer.claims_of(token)
        return await issuer.user_with(claims) if issuer and claims else None
    except ConfigError as error:
        raise Refused(503, str(error)) from error
