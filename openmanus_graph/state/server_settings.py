"""The settings of a server that many people use, and of what is stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from openmanus_graph.state import setting_declaration as values
from openmanus_graph.state.addresses import DatabaseUrl, RedisUrl, WorkspaceUrl
from openmanus_graph.state.setting_declaration import ALWAYS, Setting, Trust

_SERVER = Trust(lambda value: value or "(empty)")
"""For a setting whose empty value needs trust, too."""
QuotaKind = Literal[
    "usd_per_day", "usd_per_month", "tokens_per_day", "tokens_per_month", "runs", "workspace_mb"
]
"""What a quota limits; days and months are those of UTC."""


def _address(parse: Any, env: str, shown: str, **given: Any) -> Setting:  # Setting checks them
    """Return how the address of a server is set, which may have a password."""
    usual: dict[str, Any] = {"written": SecretStr | None, "trust": ALWAYS}
    return Setting(parse=parse, env=(env,), shown=shown, **{**usual, **given})


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


@dataclass(frozen=True)
class StorageSettings:
    """Where threads, checkpoints and the ledger are kept, and what of their files."""

    database_url: Annotated[
        DatabaseUrl | None,
        _address(
            DatabaseUrl.parse,
            "OPENMANUS_DATABASE_URL",
            "SQLite in `OPENMANUS_HOME`",
            option="--database-url",
            help="sqlite:///FILE.db or postgresql://...; other users see it in the process list, "
            "so set OPENMANUS_DATABASE_URL instead.",
        ),
    ] = None
    """Address of the database: `sqlite:///FILE.db` or
    `postgresql://USER:PASSWORD@HOST:5432/DATABASE` (extra `postgres`)."""
    rate_limit_url: Annotated[
        RedisUrl | None,
        _address(RedisUrl.parse, "OPENMANUS_RATE_LIMIT_URL", "each process counts separately"),
    ] = None
    """Address of a Redis server (extra `redis`): `redis://USER:PASSWORD@HOST:6379/0`. All processes
    that use it share the limits `requests_per_minute` and `tokens_per_minute`."""
    lease_s: Annotated[float, Field(ge=1), Setting(env=("OPENMANUS_LEASE_S",))] = 30
    """Time in seconds after which another worker can take over a thread whose worker does not
    respond (PostgreSQL only). Choose a time that is longer than the longest pause of a machine.
    Otherwise workers on a paused machine lose their threads."""
    memory_user: Annotated[
        str | None, Setting(env=("OPENMANUS_MEMORY_USER",), shown="the login name", trust=ALWAYS)
    ] = None
    """The user whose [notes](memory.md) are shared by all projects in the same database."""
    memory_project: Annotated[
        str | None,
        Setting(env=("OPENMANUS_MEMORY_PROJECT",), shown="the working folder", trust=ALWAYS),
    ] = None
    """The project whose notes an agent uses in addition to the user's."""
    workspace_url: Annotated[
        WorkspaceUrl | None,
        _address(
            WorkspaceUrl.parse,
            "OPENMANUS_WORKSPACE_URL",
            "files are not moved",
            written=str | None,
            option="--workspace-url",
            help="A shared folder or s3://BUCKET/FOLDER, where threads' files go with them from "
            "machine to machine.",
        ),
    ] = None
    """Where threads' files are stored so that other machines can fetch them: a folder that all
    machines share, or `s3://BUCKET/FOLDER` (extra `s3`)."""
    workspace_max_mb: Annotated[int, Field(ge=1), Setting()] = 1024
    """Maximum size of a thread's files in `workspace_url`, in MB. Above this size, the largest
    files are left out, and a message lists them."""
    snapshot_max_mb: Annotated[int, Field(ge=0), Setting()] = 1024
    """Maximum size of a workspace snapshot, in MB. Above this size, the largest files are left out,
    and a message lists them. 0: no snapshots are taken, and going back does not restore files."""
    keep: Annotated[
        Mapping[str, float],
        Setting(
            written=str | dict[values.EndState, str],
            shown="forever",
            trust=ALWAYS,
            parse=values.times_by_state,
        ),
    ] = field(default_factory=dict[str, float])
    """How long [threads are kept](storage.md#old-threads) after their last run: `"90d"`, or a table
    by state such as `{finished = "90d", failed = "30d"}`. The server deletes older ones daily."""
    snapshot_ignore: Annotated[tuple[str, ...], Setting()] = ()
    """Names and patterns of files and folders that snapshots leave out. `.git` and caches are
    always left out."""
