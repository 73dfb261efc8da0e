"""The options that commands share. Imports nothing heavy: `--help` must stay instant."""

import inspect
import os
from collections.abc import Callable
from dataclasses import Field, asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from openmanus_graph.errors import ConfigError

DATABASE_VARIABLE = "OPENMANUS_DATABASE_URL"
WORKSPACE_URL_VARIABLE = "OPENMANUS_WORKSPACE_URL"
PlanName = Literal["auto", "never"]
Transport = Literal["stdio", "http"]
_KEPT_ONLY = {"kept_only": True}
"""Metadata of a field that no command takes: `replay --continue` keeps it with its new thread."""
_ServerAlias = Annotated[list[str] | None, typer.Option("--server", hidden=True)]
"""The earlier spelling of `--mcp-server`."""


def use_database(url: str | None) -> None:
    if url:
        os.environ[DATABASE_VARIABLE] = url


def use_configuration(config: str | None) -> None:
    if config and not os.environ.get(DATABASE_VARIABLE):
        from openmanus_graph.config.resolve import storage_settings
        from openmanus_graph.state.context import Context

        url = storage_settings(Context(config=config)).database_url
        use_database(url.secret.get_secret_value() if url else None)


@dataclass(frozen=True)
class StorageOptions:
    """Where threads are kept. It holds for the whole process, and is not kept with a thread."""

    # storage options: made from the declarations in `state.settings` by docs/make.py
    database_url: Annotated[
        str | None,
        typer.Option(
            help="sqlite:///FILE.db or postgresql://...; other users see it in the process list, "
            "so set OPENMANUS_DATABASE_URL instead."
        ),
    ] = None
    workspace_url: Annotated[
        str | None,
        typer.Option(
            help="A shared folder or s3://BUCKET/FOLDER, where threads' files go with them from "
            "machine to machine."
        ),
    ] = None
    # /storage options


@dataclass(frozen=True)
class RunOptions:
    """What `run`, `chat` and `resume` take; None means: not given.

    Defaults and checks are declared in `state.settings`, for which `--help` cannot wait.
    """

    # options: made from the declarations in `state.settings` by docs/make.py
    model: Annotated[
        str | None, typer.Option(help="The main model: PROVIDER:NAME, such as openai:gpt-5-mini.")
    ] = None
    base_url: Annotated[str | None, typer.Option(help="Address of the model's server.")] = None
    workspace: Annotated[str | None, typer.Option(help="Folder for the files of the run.")] = None
    max_steps: Annotated[
        int | None, typer.Option(help="Maximum number of model calls in a run. Default 100.")
    ] = None
    max_cost_usd: Annotated[
        float | None, typer.Option(help="Maximum cost of a run, in US dollars. Default 3.")
    ] = None
    max_tokens: Annotated[
        int | None, typer.Option(help="Maximum number of input and output tokens of a run.")
    ] = None
    timeout: Annotated[
        float | None,
        typer.Option(
            help="Maximum duration of a run in seconds, not counting time spent waiting for people."
        ),
    ] = None
    sandbox: Annotated[
        Literal["auto", "bwrap", "nono", "docker", "ssh", "none"] | None,
        typer.Option(help="How Python and shell are isolated. Default auto."),
    ] = None
    network: Annotated[
        Literal["off", "ask", "any"] | None,
        typer.Option(help="What Python and shell reach. Default off."),
    ] = None
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Hosts on private networks (HOST[:PORT]) that web tools may access."),
    ] = None
    policy: Annotated[
        Literal["ask", "auto", "never"] | None,
        typer.Option(help="Calls with external effects: ask, auto (allow) or never. Default ask."),
    ] = None
    review_plan: Annotated[
        bool | None,
        typer.Option(
            "--review-plan/--no-review-plan",
            help="Whether you review a plan before it is carried out.",
        ),
    ] = None
    mcp_server: Annotated[
        list[str] | None,
        typer.Option(
            help="MCP server to use instead of all that are configured: NAME, URL or COMMAND. "
            "Repeatable; ${NAME} means an environment variable."
        ),
    ] = None
    config: Annotated[
        str | None, typer.Option(help="Configuration file instead of ./openmanus.toml.")
    ] = None
    secret: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE@DOMAIN, typed by the browser on that site only. Repeatable; other "
            "users see it in the process list, so set OPENMANUS_SECRET_NAME=VALUE@DOMAIN "
            "instead."
        ),
    ] = None
    library: Annotated[list[str] | None, typer.Option(help="Names of libraries.")] = None
    effort: Annotated[
        Literal["low", "medium", "high"] | None,
        typer.Option(help="How much the main model reasons before it replies."),
    ] = None
    # /options

    may_send_to: list[str] | None = field(default=None, metadata=_KEPT_ONLY)
    """Destinations that the run may use without asking."""
    prompts: dict[str, str] | None = field(default=None, metadata=_KEPT_ONLY)
    """Texts that replace the agent's own, by their names."""
    replaced_tools: dict[str, str] | None = field(default=None, metadata=_KEPT_ONLY)
    """Functions that are called in place of tools, `FOLDER/module:function` by the tools' names."""

    def stored(self) -> dict[str, Any]:
        """Return the given options as a thread keeps them, without any secret."""
        given = {name: value for name, value in asdict(self).items() if value is not None}
        given.pop("secret", None)
        # A thread may be resumed from another folder.
        for name in ("workspace", "config"):
            if name in given:
                given[name] = str(Path(given[name]).expanduser().absolute())
        return given

    def over(self, stored: dict[str, Any]) -> "RunOptions":
        """Return these options, and the thread's for those that are not given.

        ConfigError: One does not exist: it is from a later version, or the data is damaged.
        """
        unknown = stored.keys() - {one.name for one in fields(self)}
        if unknown:
            raise ConfigError(
                f"The thread was started with options that do not exist: {', '.join(unknown)}. "
                "Update openmanus-graph, or begin another thread."
            )
        return RunOptions(**{**stored, **self.stored()}, secret=self.secret)


@dataclass(frozen=True)
class OutputOptions:
    """How a run is shown; not kept with the thread."""

    json: Annotated[bool, typer.Option("--json", help="One JSON event per line on stdout.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", help="Only the answer.")] = False
    log: Annotated[str | None, typer.Option(help="Write a log to this file.")] = None
    sources: Annotated[
        bool, typer.Option("--sources", help="List where each figure of the answer comes from.")
    ] = False


@dataclass(frozen=True)
class InputOptions:
    """What goes into a run in addition to the task."""

    agent: Annotated[str | None, typer.Option(help="Which agent works. Default manus.")] = None
    thread: Annotated[
        str | None, typer.Option(help="Go on with this thread, or name a new one.")
    ] = None
    latest: Annotated[bool, typer.Option("--continue", help="Go on with the latest thread.")] = (
        False
    )
    file: Annotated[
        list[str] | None, typer.Option(help="File to copy into the workspace; repeatable.")
    ] = None
    image: Annotated[
        list[str] | None, typer.Option(help="Picture, sound or video for the model; repeatable.")
    ] = None
    worktree: Annotated[
        bool, typer.Option("--worktree", help="Work on a new branch, in its own git worktree.")
    ] = False
    branch: Annotated[
        str | None, typer.Option(help="Name of that branch; it implies --worktree.")
    ] = None
    commit: Annotated[
        str | None, typer.Option(help="Commit there with this message; it implies --worktree.")
    ] = None

    @property
    def wants_worktree(self) -> bool:
        return self.worktree or bool(self.branch or self.commit)


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, and who may connect."""

    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1"
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="0 takes a free one. Default 8642, of a2a 8643."),
    ] = None
    token: Annotated[
        str | None,
        typer.Option(
            help="What clients must send as bearer token; other users see it in the process list: "
            "rather set the environment's variable. Default: a new one, shown on stderr."
        ),
    ] = None
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Let every program of this machine in.")
    ] = False
    log: Annotated[str | None, typer.Option(help="Write a log to this file.")] = None


@dataclass(frozen=True)
class McpOptions:
    """What the MCP server offers, and how."""

    transport: Annotated[
        Transport, typer.Option(help="stdio, or http (streamable HTTP at /mcp).")
    ] = "stdio"
    tools: Annotated[
        str | None, typer.Option(help="Names of the tools to offer, with commas. Default all.")
    ] = None
    agent: Annotated[
        str | None, typer.Option(help="Offer run_task as well: this agent does a whole task.")
    ] = None
    idle: Annotated[
        float, typer.Option(min=1, help="Seconds until a silent HTTP client's session is closed.")
    ] = 600.0


def command_fields(group: type[Any]) -> "list[Field[Any]]":
    return [one for one in fields(group) if not one.metadata.get("kept_only")]


def takes(
    *groups: type[Any], without: tuple[str, ...] = ()
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the options of these groups; it gets one object per group, in order.

    Typer reads options from a function's signature, and only from there. `StorageOptions` take
    effect before the command, and are not passed on.
    """
    passed = [group for group in groups if group is not StorageOptions]

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        own = list(inspect.signature(command).parameters.values())[len(passed) :]
        options = {one.name: one.type for group in groups for one in command_fields(group)}
        defaults = {one.name: one.default for group in groups for one in command_fields(group)}
        if RunOptions in groups:
            options["server"], defaults["server"] = _ServerAlias, None
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = [
            inspect.Parameter(name, keyword, default=defaults[name], annotation=kind)
            for name, kind in options.items()
            if name not in without
        ]

        def run(**given: Any) -> Any:
            use_database(given.pop("database_url", None))
            if url := given.pop("workspace_url", None):
                os.environ[WORKSPACE_URL_VARIABLE] = url
            if RunOptions in groups:
                use_configuration(given.get("config"))
                servers = [*(given.get("mcp_server") or ()), *(given.pop("server", None) or ())]
                given["mcp_server"] = servers or None
            objects = [
                group(**{f.name: given.pop(f.name) for f in fields(group) if f.name in given})
                for group in passed
            ]
            return command(*objects, **given)

        keywords = [p.replace(kind=keyword) for p in own]
        run.__signature__ = inspect.Signature([*keywords, *shared])  # type: ignore[attr-defined]  # what Typer reads
        run.__annotations__ = {p.name: p.annotation for p in (*own, *shared)}
        run.__name__, run.__doc__ = command.__name__, command.__doc__
        return run

    return decorate
