"""Logins of programs: the client's own secret, by the SDK's provider.

It imports cryptography, which takes a tenth of a second: import it only for such a server.
"""

import httpx2
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.client.auth.utils import union_scopes

from openmanus_graph.backends.mcp.login_store import LoginStore
from openmanus_graph.backends.mcp.oauth import Provider, choose_auth_method
from openmanus_graph.state.mcp_server import MCPServer


class ClientCredentials(Provider, ClientCredentialsOAuthProvider):
    """Logs in with the client's own secret, without a person."""

    def __init__(self, server: MCPServer, store: LoginStore) -> None:
        """Take the client of a server's configuration."""
        client = server.oauth
        ClientCredentialsOAuthProvider.__init__(
            self,
            server.url or "",
            store,
            client_id=client.client_id or "",
            client_secret=client.client_secret or "",
            scope=client.scope,
            issuer=client.issuer,
        )
        self.server, self.store = server, store

    async def _perform_authorization(self) -> httpx2.Request:
        self.context.client_metadata.scope = union_scopes(
            self.context.client_metadata.scope, self.server.oauth.scope
        )
        choose_auth_method(self)
        return await super()._perform_authorization()
