"""The settings of a server that many people use."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from openmanus_graph.state.setting_declaration import ALWAYS, Setting, Trust

_SERVER = Trust(lambda value: value or "(empty)")
"""For a setting whose empty value needs trust, too."""
QuotaKind = Literal[
    "usd_per_day", "usd_per_month", "tokens_per_day", "tokens_per_month", "runs", "workspace_mb"
]
"""What a quota limits; days and months are those of UTC."""


@dataclass(frozen=True)
class ServerSettings:
    """Who may use the servers, and how much. It holds for the process, and for none of its runs."""

    jobs: Annotated[
        int | None,
        Field(gt=0),
        Setting(env=("OPENMANUS_JOBS",), shown="8; under aegra no limit", trust=ALWAYS),
    ] = None
    """Maximum number of runs that work at the same time in one process. The others wait, and each
    user's turn comes in rotation."""
    quotas: Annotated[Mapping[QuotaKind, float], Setting(trust=ALWAYS)] = field(
        default_factory=dict[QuotaKind, float], hash=False
    )
    """Table of [quotas](deploy.md#quotas) of each named user without an own one:
    `usd_per_day`, `usd_per_month`, `tokens_per_day`, `tokens_per_month`, `runs`,
    `workspace_mb`."""
    metrics_public: Annotated[bool, Setting(trust=ALWAYS)] = False
    """Whether `/metrics` needs no token."""
    oidc_issuer: Annotated[str, Setting(env=("OPENMANUS_OIDC_ISSUER",), trust=_SERVER)] = ""
    """Address of the OpenID Connect issuer at which
    [users sign in](deploy.md#sign-in-with-your-own-identity-provider) (extra `oidc`)."""
    oidc_client_id: Annotated[str, Setting(env=("OPENMANUS_OIDC_CLIENT_ID",), trust=_SERVER)] = ""
    """The id that the issuer has for this server. Required with an issuer."""
    oidc_client_secret: Annotated[
        SecretStr, Setting(env=("OPENMANUS_OIDC_CLIENT_SECRET",), shown="none", trust=_SERVER)
    ] = SecretStr("")
    """The secret that belongs to `oidc_client_id`. Prefer the environment variable."""
    oidc_audience: Annotated[str, Setting(shown="the client id", trust=_SERVER)] = ""
    """The audience (`aud`) that a bearer token must have."""
    oidc_role: Annotated[
        Literal["user", "viewer", ""], Setting(accepts=("user", "viewer", '""'), trust=_SERVER)
    ] = "user"
    """Role of a new user who signs in. Empty: only users that an admin has added with
    `openmanus users add NAME --subject SUBJECT` can sign in."""
