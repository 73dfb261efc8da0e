"""`openmanus init` and `models`: sets up your model, and lists what was learned about servers."""

import asyncio
import os
import sys
from dataclasses import replace
from typing import Annotated
from urllib.parse import urlsplit

import typer
from pydantic import SecretStr

from openmanus_graph.backends.models import spec as specs
from openmanus_graph.backends.models.build import run_and_close_models
from openmanus_graph.backends.models.dialects import forget, learnt_lines
from openmanus_graph.backends.models.server_facts import OLLAMA_ADDRESS
from openmanus_graph.config.model import find_local_server
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.console import say
from openmanus_graph.interfaces.service import model_setup
from openmanus_graph.interfaces.service.model_setup import ModelChoice, TrialError
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.context import Context

TRIALS, SHOWN = 3, 30


class _LeftError(Exception):
    """The person left before the end."""


def init(
    model: Annotated[str | None, typer.Option(help="PROVIDER:NAME; else you are asked.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Address of its server.")] = None,
) -> int:
    """Set up your model: provider, key and name are tried and then stored."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ConfigError(
            "openmanus init asks at a terminal. Without one set OPENMANUS_MODEL and the "
            "provider's key in the environment, for example OPENAI_API_KEY."
        )
    try:
        return run_and_close_models(_set_up(model, base_url))
    except (_LeftError, KeyboardInterrupt):
        say("Nothing was changed.")
        return 130


async def _set_up(model: str | None, base_url: str | None) -> int:
    choice = await _choose(model, base_url)
    for trial in range(1, TRIALS + 1):
        say(f"Trying {choice.spec} ...")
        try:
            choice = await model_setup.try_model(choice)
            break
        except TrialError as error:
            say(str(error))
            if trial == TRIALS or error.kind not in ("auth", "not_found"):
                say("Nothing was stored.")
                return 1
            choice = await _corrected(choice, error)
    for line in await asyncio.to_thread(model_setup.store_choice, choice):
        say(line)
    await asyncio.to_thread(_warn_of_others, choice)
    say("It works. Start with: openmanus")
    return 0


async def _choose(model: str | None, base_url: str | None) -> ModelChoice:
    if model is not None:
        spec = specs.parse_spec(model)
        return ModelChoice(str(spec), base_url, await _ask_key(spec.provider, base_url))
    found = await find_local_server() if base_url is None else None
    if found is not None:
        say(f"A server on this machine answers: {found[0]} with the model {found[1]}.")
    usual = found[0] if found else (base_url or "openai")
    names = ", ".join(specs.provider_names())
    say(f"Providers: {names}; or the address of a server with OpenAI's protocol.")
    provider, base_url = await _ask_provider(usual)
    offer = await model_setup.offered_models(provider.name, base_url)
    while offer is None:
        say(f"Nobody answers at {base_url or OLLAMA_ADDRESS}. Start the server, or correct this.")
        provider, base_url = await _ask_provider(base_url or provider.name)
        offer = await model_setup.offered_models(provider.name, base_url)
    key = None
    if not offer:
        key = await _ask_key(provider, base_url)
        offer = await model_setup.offered_models(provider.name, base_url, key) or []
    if offer:
        more = f" and {len(offer) - SHOWN} more" if len(offer) > SHOWN else ""
        say(f"It offers: {', '.join(offer[:SHOWN])}{more}.")
    name = await _ask("Model", next(iter(offer), specs.EXAMPLES.get(provider.name)))
    return ModelChoice(f"{provider.name}:{name}", base_url, key)


async def _ask_provider(usual: str) -> tuple[specs.Provider, str | None]:
    while True:
        typed = await _ask("Provider", usual)
        if typed.startswith(("http://", "https://")):
            # Ollama and others have their protocol below /v1, which people leave out.
            bare = not urlsplit(typed).path.strip("/")
            return specs.PROVIDERS["openai"], f"{typed.rstrip('/')}/v1" if bare else typed
        try:
            return specs.parse_spec(f"{typed}:x").provider, None
        except ConfigError:
            say(
                f"There is no provider {typed}. Write one of those above, or the address of a "
                "server, which begins with http:// or https://."
            )


async def _ask_key(provider: specs.Provider, base_url: str | None) -> SecretStr | None:
    """Ask for the key, which is not shown; None if the environment has it, or none is needed."""
    if not provider.takes_key:
        return None
    variable = next((name for name in provider.key_variables if os.environ.get(name)), None)
    if variable is not None:
        say(f"{variable} is set in the environment, and is used.")
        return None
    is_needed = base_url is None
    while True:
        prompt = "Key (not shown): " if is_needed else "Key (empty: none): "
        typed = await _read(prompt, secret=True)
        if typed or not is_needed:
            return SecretStr(typed) if typed else None


async def _corrected(choice: ModelChoice, error: TrialError) -> ModelChoice:
    if error.kind == "not_found":
        provider = specs.parse_spec(choice.spec).provider.name
        return replace(choice, spec=f"{provider}:{await _ask('Model')}")
    key = await _read("Key (not shown): ", secret=True)
    return replace(choice, key=SecretStr(key)) if key else choice


async def _ask(what: str, usual: str | None = None) -> str:
    while True:
        typed = await _read(f"{what} [{usual}]: " if usual else f"{what}: ")
        if typed or usual:
            return typed or usual or ""


async def _read(prompt: str, *, secret: bool = False) -> str:
    from openmanus_graph.interfaces.cli.editor import LineEditor

    typed = await LineEditor().read(printable(prompt), secret=secret)
    if typed is None:
        raise _LeftError
    return typed.strip()


def _warn_of_others(choice: ModelChoice) -> None:
    """Warn if another setting decides about the model in this folder."""
    try:
        used = resolve_settings(Context(), "init").main
    except ConfigError as error:
        say(f"But it cannot be used in this folder: {error}")
        return
    if (used.model, used.base_url) != (choice.spec, choice.base_url):
        say(
            f"But in this folder {used.model} is used: the environment (OPENMANUS_MODEL, "
            "OPENAI_BASE_URL) or the openmanus.toml of this folder takes precedence."
        )


def models(
    forget_server: Annotated[
        str | None,
        typer.Option("--forget", metavar="SERVER", help="Forget what was learned about a server."),
    ] = None,
) -> int:
    """List what was learned about models' servers from their refusals."""
    if forget_server is None:
        lines = learnt_lines()
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
        if not lines:
            sys.stderr.write(
                "Nothing was learned yet: no server has refused a request that was changed.\n"
            )
        return 0
    known = forget(forget_server)
    text = f"Nothing was learned about {forget_server}. `openmanus models` lists the servers."
    if known:
        text = "Forgotten. It is learned again if the server still refuses it."
    sys.stderr.write(f"{printable(text)}\n")
    return 0 if known else 1
