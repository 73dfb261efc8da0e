"""Logins without a user, by a secret or a private key, with the SDK's providers.

Import this module only when needed: cryptography takes a tenth of a second to load.
"""

import httpx2
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from mcp.client.auth import OAuthFlowError
from mcp.client.auth.extensions import client_credentials as sdk
from mcp.client.auth.utils import union_scopes

from openmanus_graph.backends.mcp.oauth import LoginStore, Provider, choose_auth_method
from openmanus_graph.state.context import MCPServer, OAuthClient


def client_credentials(server: MCPServer, store: LoginStore) -> Provider:
    """Return a provider that logs in without a user, as the client of the configuration."""
    return (SignedLogin if server.oauth.private_key else SecretLogin)(server, store)


class _OwnLogin(Provider):
    async def _perform_authorization(self) -> httpx2.Request:
        self.context.client_metadata.scope = union_scopes(
            self.context.client_metadata.scope, self.server.oauth.scope
        )
        choose_auth_method(self)
        return await super()._perform_authorization()


class SecretLogin(_OwnLogin, sdk.ClientCredentialsOAuthProvider):
    def __init__(self, server: MCPServer, store: LoginStore) -> None:
        client = server.oauth
        sdk.ClientCredentialsOAuthProvider.__init__(
            self,
            server.url or "",
            store,
            client_id=client.client_id or "",
            client_secret=client.client_secret or "",
            scope=client.scope,
            issuer=client.issuer,
        )
        self.server, self.store = server, store


class SignedLogin(_OwnLogin, sdk.PrivateKeyJWTOAuthProvider):
    def __init__(self, server: MCPServer, store: LoginStore) -> None:
        client = server.oauth

        async def sign(audience: str) -> str:
            return await _signed_by(client).create_assertion_provider()(audience)

        sdk.PrivateKeyJWTOAuthProvider.__init__(
            self,
            server.url or "",
            store,
            client_id=client.client_id or "",
            assertion_provider=sign,
            scope=client.scope,
            issuer=client.issuer,
        )
        self.server, self.store = server, store


def _signed_by(client: OAuthClient) -> sdk.SignedJWTParameters:
    """Return how a client signs. OAuthFlowError: its key cannot be read."""
    pem = client.private_key or ""
    try:
        key = load_pem_private_key(pem.encode(), password=None)
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        text = "its private_key is not the PEM of a key without a password"
        raise OAuthFlowError(text) from error
    if isinstance(key, RSAPrivateKey):
        algorithm = "RS256"
    elif isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
        algorithm = "ES256"
    else:
        raise OAuthFlowError("its private_key is neither RSA nor P-256")
    return sdk.SignedJWTParameters(
        issuer=client.client_id or "",
        subject=client.client_id or "",
        signing_key=pem,
        signing_algorithm=algorithm,
    )
