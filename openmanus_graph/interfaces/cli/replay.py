"""`openmanus replay`: runs again from their record, to see what would differ now."""

import asyncio
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from openmanus_graph.backends.models.build import run_and_close_models
from openmanus_graph.backends.persistence.bundles import is_bundle, load_bundle
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread, harmless
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.continue_from import DivergedReplay, continue_from
from openmanus_graph.interfaces.cli.threads import complete_thread
from openmanus_graph.interfaces.service import replay as replaying
from openmanus_graph.interfaces.service.options import (
    PolicyName,
    RunOptions,
    StorageOptions,
    takes,
)
from openmanus_graph.interfaces.service.run_setup import (
    MAX_TEXT_BYTES,
    load_function,
    read_input,
    to_context,
)
from openmanus_graph.interfaces.service.threads import thread_id, whole_thread, with_stored
from openmanus_graph.model_calls.replay import WhatIf
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.context import Context, Policy

PROMPTS = ("system", "next_step")
SHOWN_LINES = 2
"""Of each step in the browser: the call, and what it did."""


@dataclass(frozen=True)
class Changes:
    """The changes that are tried on a run, as the options name them."""

    model: str | None
    prompts: Mapping[str, str]
    """Texts by their names."""
    policy: Policy | None
    tools: Mapping[str, str]
    """Functions, `FOLDER/module:function`, by the names of the tools that they replace."""
    browser: bool
    """Whether the steps in the browser are really done again."""
    allow_hosts: Sequence[str]
    """Private hosts that they may reach in addition to those of the run."""

    def __bool__(self) -> bool:
        return self.is_real or self.policy is not None or bool(self.allow_hosts)

    @property
    def is_real(self) -> bool:
        """Whether a model is asked, or a function or the browser is really used."""
        return bool(self.model or self.prompts or self.tools or self.browser)

    def apply(self, context: Context) -> tuple[Context, WhatIf | None]:
        """Return the context with the changes, and what is tried; None if there are no changes."""
        if not self:
            return context, None
        policy = self.policy or context.policy
        if self.browser:
            if self.model or self.prompts or self.tools:
                raise ConfigError(
                    "--browser does the recorded steps again, and no model is asked. Remove "
                    "--model, --prompt and --tool."
                )
            hosts = (*(context.allow_hosts or ()), *self.allow_hosts)
            changed = dataclasses.replace(context, policy=policy, allow_hosts=hosts or None)
            return changed, WhatIf(repeats=frozenset({"browser_use"}), on_repeat=_print_step)
        if self.allow_hosts:
            raise ConfigError("--allow-host is for --browser: nothing else reaches a host.")
        before = None
        if self.policy is not None:
            before = resolve_settings(context, "replay", without_model=True).policy
        what_if = WhatIf(
            asks_model=self.model is not None or bool(self.prompts),
            policy_before=before,
            tools={name: load_function(at) for name, at in self.tools.items()},
        )
        changed = dataclasses.replace(
            context,
            model=self.model or context.model,
            prompts={**(context.prompts or {}), **self.prompts} or None,
            policy=policy,
        )
        return changed, what_if

    def over(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a thread that continues with the changes."""
        known: dict[str, Any] = {"prompts": {}, "replaced_tools": {}, **options}
        tried: dict[str, Any] = {
            "model": self.model,
            "policy": self.policy,
            "prompts": {**known["prompts"], **self.prompts},
            "replaced_tools": {**known["replaced_tools"], **self.tools},
        }
        return {**options, **{name: value for name, value in tried.items() if value}}


@takes(StorageOptions)
def replay(
    source: Annotated[
        str,
        typer.Argument(
            metavar="THREAD|BUNDLE",
            help="A thread's id, or a unique beginning of it, or a bundle's file.",
            autocompletion=complete_thread,
        ),
    ],
    to_test: Annotated[
        str | None, typer.Option(help="Python file for the run as a test, which passes offline.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="PROVIDER:NAME to ask instead, until its reply differs.")
    ] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FILE to try; NAME is system or next_step. The model is asked."),
    ] = None,
    policy: Annotated[
        PolicyName | None,
        typer.Option(help="Policy to try: ask, auto or never. No model is asked."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="NAME=module:function to call instead of a tool. No model is asked."),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option(
            "--go-on", help="Continue for real from the first difference, as a new thread."
        ),
    ] = False,
    browser: Annotated[
        bool,
        typer.Option("--browser", help="Really do its steps in the browser again; no model."),
    ] = False,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Private HOST or HOST:PORT that --browser may reach.")
    ] = None,
) -> int:
    """Run a thread again from its record, and show what differs now.

    With another model, prompt, policy or tool it stops at the first difference.
    """
    prompts, tools = dict(map(_named_prompt, prompt or ())), dict(map(_named_address, tool or ()))
    changes = Changes(model, prompts, policy, tools, browser, allow_host or ())
    _check_options(to_test, changes, continues=go_on)
    known: Recording | Thread
    if is_bundle(Path(source)):
        known = load_bundle(Path(source))
        if changes.is_real or go_on:  # a file must not decide what is asked and reached
            known = dataclasses.replace(known, options=harmless(known.options))
        options = RunOptions().over(dict(known.options))
        if browser:
            _require_no_logins(to_context(options))
    else:
        known = whole_thread(thread_id(source))
        options = with_stored(RunOptions(), known)
    graph = replaying.replay_graph(known.agent)
    context, what_if = changes.apply(to_context(options))
    if isinstance(known, Recording):
        found = run_and_close_models(replaying.replay_bundle(known, context, what_if, graph))
    else:
        found = run_and_close_models(replaying.replay_thread(known, context, what_if, graph))
    if what_if is None:
        return _report(known, found, to_test)
    if go_on and found.divergence is not None:
        _print_divergence(found, changes, sys.stderr)
        kept = changes.over(known.options)
        return continue_from(DivergedReplay(known, graph, found.divergence, kept))
    if browser and not (found.repeated or found.ended):
        raise ConfigError(
            f"{source} has no steps in the browser that can be done again: there are none, or "
            "they were recorded by an earlier version."
        )
    _print_divergence(found, changes, sys.stdout)
    return 1 if found.ended else 0


def _check_options(to_test: str | None, changes: Changes, *, continues: bool) -> None:
    if to_test is not None and changes:
        raise ConfigError("--to-test writes the run as it was recorded. Remove the changes.")
    if continues and (not changes or changes.browser):
        raise ConfigError(
            "--go-on continues from the first difference that a change makes. Give a change: "
            "--model, --prompt, --policy or --tool, without --browser."
        )


def _require_no_logins(context: Context) -> None:
    """Raise ConfigError if the browser has logins: a stranger may have made the bundle's steps."""
    browser = resolve_settings(context, "replay", without_model=True).browser
    for name in ("profile", "cdp_url"):
        if getattr(browser, name) is not None:
            raise ConfigError(
                "Somebody else may have made the steps of a bundle, and "
                f"[browser] {name} has logins of yours. Remove it from the configuration for this "
                "replay."
            )


def _named_prompt(given: str) -> tuple[str, str]:
    name, _, file = given.partition("=")
    if name not in PROMPTS or not file:
        raise ConfigError(f"--prompt {given}: give NAME=FILE; a name is {' or '.join(PROMPTS)}.")
    try:
        return name, read_input(file, MAX_TEXT_BYTES).decode("utf-8")
    except (ConfigError, UnicodeDecodeError) as error:
        raise ConfigError(f"The prompt in {file} cannot be read: {error}") from error


def _named_address(given: str) -> tuple[str, str]:
    name, _, address = given.partition("=")
    module, _, function = address.partition(":")
    if not (name and module and function):
        raise ConfigError(f"--tool {given}: give NAME=module:function.")
    return name, f"{Path.cwd()}/{address}"


def _report(known: Recording | Thread, found: replaying.Replayed, to_test: str | None) -> int:
    """Print how an unchanged replay differs, and write it as a test if asked."""
    if found.differences:
        sys.stdout.write(printable(found.differences[0].diff()) + "\n")
    sys.stderr.write(f"{printable(_summary(found))}\n")
    if to_test is not None:
        record = known if isinstance(known, Recording) else asyncio.run(replaying.record_of(known))
        _write_test(record, found, Path(to_test))
    return 0 if found.is_equal else 1


def _summary(found: replaying.Replayed) -> str:
    if found.is_equal:
        if found.model_calls == 1:
            return "The only request is as it was recorded."
        return f"All {found.model_calls} requests are as they were recorded."
    reported = [found.ended] if found.ended else []
    if found.differences:
        first = found.differences[0]
        reported.insert(
            0,
            f"{len(found.differences)} of {found.model_calls} requests differ. The first one is "
            f"model call {first.position}, of step {first.call.facts['step']}.",
        )
    return " ".join(reported)


def _write_test(record: Recording, found: replaying.Replayed, path: Path) -> None:
    try:
        written = (
            run_and_close_models(replaying.write_test(record, path)) if found.is_equal else found
        )
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    if not written.is_equal:
        raise ConfigError(
            "No test was written, because the run differs from its record: the test would fail. "
            "Undo the change, or run the task again and make the test from that run."
        )
    sys.stderr.write(f"{path} and {replaying.bundle_of(path)} are written. Run it: pytest {path}\n")


def _print_step(done: str) -> None:
    """Print at once what a step has done, because it is irreversible."""
    lines = printable(done).splitlines()
    sys.stdout.write("\n".join(lines[:SHOWN_LINES]) + "\n")
    sys.stdout.flush()


def _print_divergence(found: replaying.Replayed, changes: Changes, out: TextIO) -> None:
    """Print where a what-if replay stopped; the diff goes to `out`."""
    if found.divergence is None:
        all_done = "It makes no difference."
        if changes.browser:
            all_done = f"All {found.repeated} steps in the browser were done again."
        sys.stderr.write(f"{printable(found.ended) or all_done}\n")
        return
    at = f"after model call {found.divergence.position}, of step {found.divergence.step}"
    out.write(printable(found.divergence.diff()) + "\n")
    sys.stderr.write(f"{printable(found.divergence.what)} It stopped {at}.\n")
