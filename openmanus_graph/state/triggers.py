"""What `[triggers.NAME]` and `[channels.NAME]` of a configuration file say."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from openmanus_graph.state.context import Policy

_Positive = Annotated[float, Field(gt=0)]
Overlap = Literal["queue", "skip", "parallel", "thread"]
Kind = Literal["schedule", "webhook", "folder", "mail", "channel"]


@dataclass(frozen=True, kw_only=True)
class Automatic:
    """What triggers and channels have in common: their runs, and access to a mailbox."""

    agent: str = "manus"
    """The agent that works. Default `manus`."""
    user: str = ""
    """The user who owns the runs, and whose quotas count. Default: the machine's owner."""
    host: str = ""
    """For mail: the IMAP server, as `HOST` or `HOST:PORT`."""
    login: str = ""
    """For mail: the name of the account."""
    password: SecretStr = SecretStr("")
    """For mail: its password, as `${VARIABLE}` of the environment."""
    tls: bool = True
    """For mail: whether the connection is encrypted, as it must be over networks. Default true."""
    mailbox: str = "INBOX"
    """For mail: the mailbox that is read. Default `INBOX`."""
    poll_s: _Positive = 60
    """For mail: seconds between two looks. Default 60."""
    may_send_to: tuple[str, ...] = ()
    """Destinations, such as mail addresses, that calls may use without asking. All others ask.
    `{from}` is the sender of a mail."""
    model: str | None = None
    """The model of its runs. Default: the main model."""
    workspace: str | None = None
    """Folder for the files of its runs. Default: one for each run."""
    policy: Policy | None = None
    """As the setting `policy`, for its runs."""
    max_steps: Annotated[int, Field(gt=0)] | None = None
    """Maximum number of model calls in a run."""
    max_cost_usd: _Positive | None = None
    """Maximum cost of a run, in US dollars."""
    timeout: _Positive | None = None
    """Maximum duration of a run in seconds, not counting time spent waiting for people."""
    max_usd_per_day: _Positive | None = None
    """Maximum cost of all its runs on a day (UTC). Later events wait for the next day."""
    max_attempts: Annotated[int, Field(gt=0)] = 3
    """How often a failed run, or a failed delivery, is tried. Default 3."""


@dataclass(frozen=True)
class Trigger(Automatic):
    """Work that begins without a person: on a schedule, or when something arrives."""

    kind: Kind
    """What starts a run: `schedule`, `webhook`, `folder` or `mail`."""
    task: str
    """What the agent is asked to do. `{NAME}` is a field of the event: data, no instruction."""
    name: str = ""
    cron: str = ""
    """For a schedule: a cron expression with five fields, in the wall time of `timezone`."""
    every: str = ""
    """For a schedule: a fixed time between runs, such as `30m` or `2h`, in place of `cron`."""
    timezone: str = "UTC"
    """Time zone of `cron`, such as `Europe/Berlin`. Default `UTC`."""
    missed: Literal["skip", "once", "all"] = "once"
    """For slots while nothing ran: `skip`, `once` (the newest) or `all`. Default `once`."""
    overlap: Overlap = "queue"
    """For events during an earlier run: `queue`, `skip` or `parallel`. Default `queue`."""
    signature: Literal["github", "slack", "stripe"] = "github"
    """For a webhook: whose form of signature the sender uses. Default `github`."""
    secret: SecretStr = SecretStr("")
    """For a webhook: the secret that signs requests, as `${VARIABLE}` of the environment."""
    path: str = ""
    """For a folder: the folder that is watched, without the folders below it."""
    pattern: str = "*"
    """For a folder: which names of files count, such as `*.pdf`. Default: all."""
    senders: tuple[str, ...] = ()
    """For mail: the addresses that may start a run. Mails of others are left out. Required."""
    deliver_to: str = ""
    """The channel that gets answers and questions. Default: they stay in the thread."""
    silent_if: str = ""
    """An answer with exactly this text is not sent, for runs that found nothing to say."""


@dataclass(frozen=True)
class Channel(Automatic):
    """Where people talk to the agent, and where answers and questions of its runs are sent."""

    kind: str
    """How it is reached: `webhook`, `telegram`, `slack`, `mail`, or what a package adds."""
    url: str = ""
    """For a webhook: address that gets each message as a `POST`. Else: another API server."""
    name: str = ""
    allow: tuple[str, ...] = ()
    """Ids of users and chats, or mail addresses, that may talk to the agent. Default: nobody."""
    trust: bool = False
    """Whether their words count as yours, and may approve calls. Default: they are data."""
    room: str = ""
    """The chat or mail address that gets answers of triggers. Default: none."""
    token: SecretStr = SecretStr("")
    """For Telegram and Slack: the bot's token, as `${VARIABLE}` of the environment."""
    secret: SecretStr = SecretStr("")
    """Signs a webhook's requests as GitHub does. For Slack: the signing secret. For Telegram: the
    webhook's secret token; without it, the bot asks for messages."""
    status_url: str = ""
    """For a webhook: address with `{key}` that answers 200 if a message came, else 404."""
    timeout_s: _Positive = 30
    """Time limit of one request, in seconds. Default 30."""
    smtp: str = ""
    """For mail: the server that sends, as `HOST` or `HOST:PORT`."""
    address: str = ""
    """For mail: the agent's own address. Default: `login`."""
    sent_mailbox: str = ""
    """For mail: where the server itself files what was sent. It is searched after a crash."""
    trusted_server: str = ""
    """For mail: the name in `Authentication-Results` of the server that checks senders."""
