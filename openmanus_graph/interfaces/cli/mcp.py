"""`openmanus mcp`: lists and tests MCP servers, calls their tools, and logs in to them.

It also reads servers' prompts, for the chat.
"""

import asyncio
import contextlib
import json
import shlex
import sys
import time
import webbrowser
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer
from typing_extensions import override

from openmanus_graph.backends.persistence.ledger import EffectKey
from openmanus_graph.config import files
from openmanus_graph.config.files import config_home
from openmanus_graph.config.mcp import configured_servers, shadowed_servers
from openmanus_graph.config.resolve import read_layers, resolve_settings, safe_name
from openmanus_graph.config.server_json import RegistryEntry
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.interfaces.cli.process import StdinLines
from openmanus_graph.interfaces.cli.skills import YesOption, agrees, ask_before_run, ask_inputs
from openmanus_graph.interfaces.cli.threads import JsonOption, command_group
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.context import Context
from openmanus_graph.state.json_values import as_list, as_object
from openmanus_graph.state.settings import Settings
from openmanus_graph.tool_calls.agent import load_client
from openmanus_graph.tool_calls.questions import Questions

if TYPE_CHECKING:
    from openmanus_graph.backends.mcp.tool import ServerPrompt, ServerTool, ServerTools
    from openmanus_graph.interfaces.cli.terminal import TerminalSink
    from openmanus_graph.runtime.session import Session
    from openmanus_graph.state.context import MCPServer

THREAD = "mcp"
"""Names the workspace of calls from the command line."""
INSTALL_S = 300
"""For the first start of a server, whose package is fetched."""
NO_SERVER = "No MCP server is configured: mcp.json or [mcp.servers.NAME] names them."

app = command_group("Servers of the Model Context Protocol, whose tools agents use.")
ConfigOption = Annotated[
    str | None, typer.Option(help="Configuration file instead of ./openmanus.toml.")
]
NameArgument = Annotated[str, typer.Argument(help="Its name.")]
ServerArgument = Annotated[str, typer.Argument(help="NAME of a configured one, URL or COMMAND.")]


@app.command("list")
def list_servers(config: ConfigOption = None, as_json: JsonOption = False) -> int:
    """Start the configured servers and list their tools."""
    ask_before_run(config)
    layers, warnings = read_layers(config)
    servers, problems = configured_servers(layers)
    for text in (*warnings, *problems.values(), *shadowed_servers(layers)):
        sys.stderr.write(f"{printable(text)}\n")
    for server in servers.values():
        if not server.enabled:
            sys.stderr.write(f"{printable(server.name)} is switched off.\n")
    enabled = [server for server in servers.values() if server.enabled]
    if not enabled:
        sys.stderr.write(f"{NO_SERVER}\n")
        return 1 if problems else 0
    rows = asyncio.run(_inspect(enabled, config))
    for row in rows:
        sys.stdout.write(f"{json.dumps(row, ensure_ascii=False)}\n" if as_json else _line(row))
    return 0 if all(row["ok"] for row in rows) and not problems else 1


@app.command("test")
def check_server(
    server: ServerArgument, config: ConfigOption = None, as_json: JsonOption = False
) -> int:
    """Start a server and show its tools, or why it does not work."""
    (row,) = asyncio.run(_inspect([_named_server(server, config)], config))
    sys.stdout.write(f"{json.dumps(row, ensure_ascii=False)}\n" if as_json else _line(row))
    for tool in () if as_json else row["tools"]:
        about = printable(tool["description"]).partition("\n")[0]
        sys.stdout.write(f"    {tool['name']} ({tool['effect']}): {about}\n")
    return 0 if row["ok"] else 1


def _line(row: dict[str, Any]) -> str:
    if not row["ok"]:
        return f"✗ {printable(row['server'])} ({row['transport']}): {printable(row['error'])}\n"
    names = ", ".join(tool["own_name"] for tool in row["tools"]) or "none"
    return printable(
        f"✓ {row['server']} ({row['transport']}, {row['info']}, {row['seconds']} s): "
        f"{len(row['tools'])} tools: {names}\n"
    )


def _named_server(name: str, config: str | None) -> "MCPServer":
    (server,) = _settings(config, (name,)).mcp_servers
    return server


def _settings(config: str | None, servers: Sequence[Any]) -> Settings:
    """Resolve the settings; a model is only needed if a server asks for it."""
    context = Context(config=config, mcp_servers=tuple(servers), policy="auto")
    try:
        return resolve_settings(context, THREAD)
    except ConfigError:
        return resolve_settings(context, THREAD, without_model=True)


@contextlib.asynccontextmanager
async def _started(
    servers: Sequence["MCPServer"], config: str | None
) -> "AsyncGenerator[tuple[ServerTools, Session]]":
    def open_session() -> "Session":
        from openmanus_graph.runtime.session import Session

        session = Session(safe_name(THREAD), _settings(config, servers))
        session.workspace.prepare()
        return session

    def ignore(event: dict[str, Any]) -> None:
        """Show nothing: the printed rows hold the same."""

    session = await asyncio.to_thread(open_session)
    try:
        resolve_server_tools = await asyncio.to_thread(load_client)
        yield await resolve_server_tools(servers, session, ignore), session
    finally:
        await asyncio.to_thread(session.close)


async def _inspect(servers: Sequence["MCPServer"], config: str | None) -> list[dict[str, Any]]:
    def row(tool: "ServerTool") -> dict[str, Any]:
        return {
            "name": tool.name,
            "own_name": tool.listed_tool.name,
            "description": tool.description,
            "effect": tool.listed_tool.effect,
            "parameters": tool.parameters,
        }

    started = time.monotonic()
    async with _started(servers, config) as (found, _):
        seconds = round(time.monotonic() - started, 2)
        return [
            {
                "server": one.server.name,
                "ok": one.state == "up",
                "transport": one.transport,
                "info": one.info,
                "error": "" if one.state == "up" else one.why,
                "seconds": seconds,
                "tools": [row(tool) for tool in found.tools if tool.managed_server is one],
            }
            for one in found.servers
        ]


@app.command("call")
def call_tool(
    server: ServerArgument,
    tool: Annotated[str, typer.Argument(help="The tool's name.")],
    arguments: Annotated[str, typer.Argument(help="Its arguments, a JSON object.")] = "{}",
    config: ConfigOption = None,
) -> int:
    """Call a tool once, as an agent would, and print its result."""
    named = _named_server(server, config)
    try:
        args: Any = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The arguments are not JSON: {error}.") from error
    if not isinstance(args, dict):
        raise ConfigError('The arguments must be a JSON object, {"name": "value"}.')
    return asyncio.run(_call_once(named, tool, cast("dict[str, Any]", args), config))


async def _call_once(
    server: "MCPServer", name: str, args: dict[str, Any], config: str | None
) -> int:
    """Call a tool without a graph, by its own name or by ours; return the exit code."""
    from openmanus_graph.interfaces.cli.terminal import TerminalSink
    from openmanus_graph.runtime.limits import Progress
    from openmanus_graph.state.manus import PendingCall, no_usage
    from openmanus_graph.tool_calls.context import ToolCallContext
    from openmanus_graph.tool_calls.run_call import run_call
    from openmanus_graph.tool_calls.toolset import Toolset

    sink = TerminalSink()

    def emit(event: dict[str, Any]) -> None:
        if event["type"] == "notice":
            sink.show(event)

    async with _started([server], config) as (found, session):
        (one,) = found.servers
        if one.state != "up":
            sys.stderr.write(f"The MCP server {printable(one.server.name)} {printable(one.why)}\n")
            return 1
        # Without the label for untrusted output, which is for models.
        known = {
            tool.name: tool.model_copy(update={"traits": replace(tool.traits, untrusted=False)})
            for tool in found.tools
        }
        name = {tool.listed_tool.name: tool.name for tool in found.tools}.get(name, name)
        context = ToolCallContext(
            session=session,
            toolset=Toolset(known, None),
            config={"configurable": {}},
            emit=emit,
            branch="",
            thread=None,
            ledger=None,
            questions=_TerminalQuestions(sink),
            progress=Progress(0, no_usage(), 0.0),
        )
        call = PendingCall(id="call", name=name, args=args, occurrence=0, problem=None)
        message = await run_call(call, context)
    sys.stdout.write(printable(message.text) + "\n")
    return 1 if message.status == "error" else 0


class _TerminalQuestions(Questions):
    """Asks on the terminal at once: there is no run that could pause."""

    def __init__(self, sink: "TerminalSink") -> None:
        super().__init__(None)
        self._sink, self._lines = sink, StdinLines()

    @override
    async def ask(self, key: EffectKey, name: str, request: Mapping[str, Any]) -> Any:
        self._sink.show({"type": "interrupt", "question": request["question"], "calls": []})
        if not self._lines.interactive:
            raise ToolError("There is no terminal to ask at. Run this on a terminal.")
        answer = await self._lines.ask("Your answer: ")
        if answer is None:
            raise ToolError("There was no answer: the input has ended. Call it again, and answer.")
        return answer


@app.command("login")
def log_in(
    server: ServerArgument,
    config: ConfigOption = None,
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for you.")] = 300,
) -> int:
    """Log in to a server over HTTP, in the browser; the login is kept and refreshed."""
    found = _http_server(server, config)
    if any(header.lower() == "authorization" for header in found.headers):
        raise ConfigError(
            f"The MCP server {found.name!r} has a key in `headers`, which is used instead of a "
            "login. Remove it first."
        )
    if found.oauth.grant == "client_credentials":
        raise ConfigError(
            f"The MCP server {found.name!r} logs in by itself (client_credentials): use it."
        )
    load_client()
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.login import login

    async def show(url: str) -> None:
        sys.stderr.write(f"Log in here:\n{printable(url)}\n")
        sys.stderr.flush()
        if not no_browser:
            await asyncio.to_thread(webbrowser.open, url)

    name = printable(found.name)
    try:
        result = asyncio.run(login(found, show, timeout))
    except ServerError as error:
        sys.stderr.write(f"The MCP server {name} {printable(str(error))}\n")
        return 1
    scope = f" ({printable(result.scope)})" if result.scope else ""
    outcome = f"Logged in to {name}{scope}" if result.needed else f"{name} asked for no login"
    sys.stdout.write(f"{outcome}: {result.tools} tools.\n")
    return 0


@app.command("logout")
def log_out(server: ServerArgument, config: ConfigOption = None) -> int:
    """Revoke and forget the login at a server."""
    found = _http_server(server, config)
    load_client()
    from openmanus_graph.backends.mcp.login import logout

    left = asyncio.run(logout(found))
    sys.stdout.write(f"Logged out of {printable(found.name)}.\n")
    if left:
        sys.stderr.write(f"{printable(left)}\n")
    return 1 if left else 0


def _http_server(name: str, config: str | None) -> "MCPServer":
    server = _named_server(name, config)
    if server.url is None:
        raise ConfigError(
            f"The MCP server {server.name!r} has no url: only a server with a url has a login."
        )
    return server


@app.command("add")
def add_server(
    name: NameArgument,
    command: Annotated[str | None, typer.Option(help="The program with its arguments.")] = None,
    url: Annotated[str | None, typer.Option(help="Address of a server that runs already.")] = None,
    described: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="A server.json.")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the program. Repeatable.")
    ] = None,
    yes: YesOption = False,
) -> int:
    """Add a server to your mcp.json, after it was shown, and tried."""
    if sum(one is not None for one in (command, url, described)) != 1:
        raise ConfigError("Give one of --command, --url and --from.")
    path, inputs = config_home() / "mcp.json", dict[str, dict[str, Any]]()
    known = files.read_layer(path, None)  # also if it is damaged, before anything is run
    if known and name in {**known.values[files.SERVERS], **known.broken_servers}:
        raise ConfigError(f"{path} has {name!r} already. Remove it first: openmanus mcp remove.")
    try:
        words = shlex.split(command or "") or [""]
    except ValueError as error:
        raise ConfigError(f"--command {command}: {error}.") from error
    table: dict[str, Any] = {"url": url} if url else {"command": words[0], "args": words[1:]}
    if described is not None:
        table = RegistryEntry(Path(described), name, inputs).server(yes=yes)
    given = (one.partition("=") for one in env or ())
    table["env"] = {**table.get("env", {}), **{key: value for key, _, value in given}}
    layer = files.Layer(path=path, inputs=inputs)
    layer.add(files.declared()[files.SERVERS], {name: table}, "mcpServers")
    if not yes and not agrees(_shown(name, table)):
        return 1
    ask_inputs([layer])
    found, problems = configured_servers([layer])
    if problems:
        raise ConfigError("; ".join(problems.values()))
    installing = replace(found[name], start_timeout_s=INSTALL_S)
    (row,) = asyncio.run(_inspect([installing], None))
    sys.stdout.write(_line(row))
    if row["ok"]:
        _keep_comments(path)
        with files.changed_object(path, mode=0o600, parse=files.parse_json) as stored:
            stored.setdefault("mcpServers", {})[name] = table
            stored["inputs"] = [*as_list(stored.get("inputs")), *inputs.values()]
        sys.stderr.write(f"Added to {path}.\n")
    return 0 if row["ok"] else 1


def _keep_comments(path: Path) -> None:
    """Copy a file that is written anew without its comments."""
    text = files.read_text(path, None) or "{}"
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        files.write_file(copy := path.with_name(f"{path.name}.old"), text, mode=0o600)
        sys.stderr.write(f"{path} is written without comments. {copy} has them.\n")


def _shown(name: str, table: dict[str, Any]) -> str:
    if "url" in table:
        return printable(f"{name} is at {table['url']}. It gets what agents send to its tools.")
    words = [table["command"], *map(shlex.quote, table.get("args", ()))]
    variables = ", ".join(f"{key}={value}" for key, value in table["env"].items())
    variables = variables and f" It gets the variables {variables}."
    return printable(
        f"{name} runs on this machine, as you and outside of the sandbox: {' '.join(words)}\n"
        f"It may read and change your files and reach the network.{variables}"
    )


@app.command("remove")
def remove_server(name: NameArgument) -> int:
    """Remove a server from your mcp.json."""
    path = config_home() / "mcp.json"
    _keep_comments(path)
    with files.changed_object(path, mode=0o600, parse=files.parse_json) as stored:
        tables = [as_object(stored.get(key)) for key in ("mcpServers", "servers")]
        if not [one for one in tables if one.pop(name, None) is not None]:
            raise ConfigError(f"{path} has no server {name!r}. `openmanus mcp list` lists all.")
        left, inputs = json.dumps(tables), as_list(stored.get("inputs"))
        named = [str(as_object(one).get("id", "")) for one in inputs]
        stored["inputs"] = [
            one
            for one, id_ in zip(inputs, named, strict=True)
            if not id_.startswith(f"{name}-") or f"${{input:{id_}}}" in left
        ]
    sys.stderr.write(f"Removed {printable(name)}.\n")
    return 0


async def prompts_by_command(servers: Sequence["MCPServer"]) -> "dict[str, ServerPrompt]":
    """Return the prompts of the enabled servers, by the chat's commands for them.

    What keeps a server from being used is written to stderr. ConfigError: none is configured.
    """
    enabled = [server for server in servers if server.enabled]
    if not enabled:
        raise ConfigError(NO_SERVER)
    await asyncio.to_thread(load_client)
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.tool import list_prompts, tool_name
    from openmanus_graph.interfaces.cli.console import say

    async def prompts_of(server: "MCPServer") -> "list[ServerPrompt]":
        try:
            return await list_prompts(server)
        except ServerError as error:
            say(f"The MCP server {server.name} {error}")
            return []

    found: dict[str, ServerPrompt] = {}
    for prompts in await asyncio.gather(*map(prompts_of, enabled)):
        for prompt in prompts:
            taken = [command.removeprefix("/") for command in found]
            found[f"/{tool_name(prompt.server.name, prompt.name, taken)}"] = prompt
    return found


def usage(command: str, prompt: "ServerPrompt") -> str:
    given = prompt.arguments.items()
    names = [name.upper() if needed else f"[{name.upper()}]" for name, needed in given]
    return " ".join([command, *names])


async def read_prompt(servers: Sequence["MCPServer"], command: str, argument: str) -> str:
    """Return the text of the prompt that a command names, with what was typed as its arguments."""
    prompt = (await prompts_by_command(servers)).get(command)
    if prompt is None:
        raise ConfigError(f"There is no prompt {command}. /mcp lists them.")
    try:
        values = shlex.split(argument)
    except ValueError as error:
        raise ConfigError(f"The arguments cannot be read: {error}.") from error
    required = sum(prompt.arguments.values())
    if not required <= len(values) <= len(prompt.arguments):
        raise ConfigError(f"Write {usage(command, prompt)}")
    from openmanus_graph.backends.mcp.failures import ServerError
    from openmanus_graph.backends.mcp.tool import get_prompt

    args = dict(zip(prompt.arguments, values, strict=False))
    try:
        return printable(await get_prompt(prompt, args))
    except ServerError as error:
        raise ConfigError(f"The MCP server {prompt.server.name} {error}") from error
