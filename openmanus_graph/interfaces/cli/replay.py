"""`openmanus replay`: runs again from their record, to see what would differ now."""

import asyncio
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from openmanus_graph.backends.models.build import run_and_close_models
from openmanus_graph.backends.persistence.bundles import is_bundle, load_bundle, save_bundle
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread, harmless
from openmanus_graph.config import resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.cli.go_on import Departure, go_on
from openmanus_graph.interfaces.service.options import RunOptions
from openmanus_graph.interfaces.service.replay import (
    Replayed,
    bundle_of,
    record_of,
    replay_bundle,
    replay_graph,
    replay_thread,
    write_test,
)
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.interfaces.service.threads import thread_id, whole_thread, with_stored
from openmanus_graph.interfaces.service.user_files import MAX_TEXT_BYTES, load_function, read_input
from openmanus_graph.model_calls.replay import WhatIf
from openmanus_graph.runtime.output import printable
from openmanus_graph.state.context import Context, Policy

PROMPTS = ("system", "next_step")
SHOWN_LINES = 2
"""Of each step in the browser: the call, and what it did."""


@dataclass(frozen=True)
class Changes:
    """What is tried on a run, as the options name it."""

    model: str | None = None
    prompts: Sequence[str] = ()
    """Each `NAME=FILE`."""
    policy: Policy | None = None
    tools: Sequence[str] = ()
    """Each `NAME=module:function`."""
    browser: bool = False
    """Whether the steps in the browser are really done again."""
    allow_hosts: Sequence[str] = ()
    """Private hosts that they may reach beside those of the run."""

    @property
    def is_real(self) -> bool:
        """Say whether a model is asked, or a function or the browser is really used."""
        return bool(self.model or self.prompts or self.tools or self.browser)

    def apply(self, context: Context) -> tuple[Context, WhatIf | None]:
        """Return the context with them, and what is tried; None if nothing is."""
        if self == Changes():
            return context, None
        if self.browser:
            return self._again(context)
        if self.allow_hosts:
            raise ConfigError("--allow-host is for --browser: nothing else reaches a host.")
        before = None
        if self.policy is not None:
            before = resolve_settings(context, "replay", without_model=True).policy
        what_if = WhatIf(
            asks_model=self.model is not None or bool(self.prompts),
            policy_before=before,
            tools={name: load_function(at) for name, at in self._addresses().items()},
        )
        prompts = self._texts()
        changed = dataclasses.replace(
            context,
            model=self.model or context.model,
            prompts={**(context.prompts or {}), **prompts} or None,
            policy=self.policy or context.policy,
        )
        return changed, what_if

    def over(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the options of a thread that goes on with what is tried."""
        known: dict[str, Any] = {"prompts": {}, "replaced_tools": {}, **options}
        tried: dict[str, Any] = {
            "model": self.model,
            "policy": self.policy,
            "prompts": {**known["prompts"], **self._texts()},
            "replaced_tools": {**known["replaced_tools"], **self._addresses()},
        }
        return {**options, **{name: value for name, value in tried.items() if value}}

    def _again(self, context: Context) -> tuple[Context, WhatIf]:
        if self.model or self.prompts or self.tools:
            raise ConfigError(
                "--browser does the recorded steps again, and no model is asked. Leave --model, "
                "--prompt and --tool out."
            )
        allowed = (*(context.allow_hosts or ()), *self.allow_hosts)
        policy = self.policy or context.policy
        changed = dataclasses.replace(context, policy=policy, allow_hosts=allowed or None)
        return changed, WhatIf(repeats=frozenset({"browser_use"}), on_repeat=_print_step)

    def _texts(self) -> dict[str, str]:
        return dict(map(_named_prompt, self.prompts))

    def _addresses(self) -> dict[str, str]:
        return dict(map(_named_address, self.tools))


def replay(source: str, to_test: str | None, changes: Changes, *, goes_on: bool = False) -> int:
    """Replay a thread or a bundle, and return the exit code: 1 if something differs.

    Args:
        source: A thread's id, or a bundle's file.
        to_test: File to write the run to as a test.
        changes: What is tried on it.
        goes_on: Go on where something differs, as a run of a new thread; the exit code is its.
    """
    _check_options(to_test, changes, goes_on=goes_on)
    path = Path(source)
    if is_bundle(path):
        record = load_bundle(path)
        known: Recording | Thread = record
        graph = replay_graph(record.agent)
        if changes.is_real or goes_on:  # what is asked and reached is not for a file to say
            known = record = dataclasses.replace(record, options=harmless(record.options))
        options = RunOptions().over(dict(record.options))
        if changes.browser:
            _require_no_logins(to_context(options))
        context, what_if = changes.apply(to_context(options))
        found = run_and_close_models(replay_bundle(record, context, what_if, graph))
    else:
        known = thread = whole_thread(thread_id(source))
        graph = replay_graph(thread.agent)
        context, what_if = changes.apply(to_context(with_stored(RunOptions(), thread)))
        found = run_and_close_models(replay_thread(thread, context, what_if, graph))
        record = asyncio.run(record_of(thread))
    if what_if is None:
        _print(found)
    elif goes_on and found.divergence is not None:
        _print_divergence(found, changes, sys.stderr)
        return go_on(Departure(known, graph, found.divergence, changes.over(known.options)))
    else:
        if changes.browser and not (found.repeated or found.ended):
            raise ConfigError(
                f"{source} has no steps in the browser that can be done again: there are none, or "
                "they were recorded by an earlier version."
            )
        _print_divergence(found, changes, sys.stdout)
        return 1 if found.ended else 0
    if to_test is not None:
        _write_test(record, found, Path(to_test))
    return 0 if found.is_equal else 1


def export_bundle(thread: str, file: str) -> int:
    """Write a thread's record to one file, and return the exit code."""
    record = asyncio.run(record_of(whole_thread(thread)))
    try:
        save_bundle(record, Path(file))
    except OSError as error:
        raise ConfigError(f"{file} cannot be written: {error.strerror}.") from error
    sys.stderr.write(f"{printable(file)} holds thread {thread}. Replay it: openmanus replay FILE\n")
    return 0


def _write_test(record: Recording, found: Replayed, path: Path) -> None:
    try:
        written = run_and_close_models(write_test(record, path)) if found.is_equal else found
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from error
    if not written.is_equal:
        raise ConfigError(
            "No test was written, because the run does not go as it was recorded: the test would "
            "fail. Undo the change, or run the task anew and make the test from that."
        )
    sys.stderr.write(f"{path} and {bundle_of(path)} are written. Run it: pytest {path}\n")


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


def _print(found: Replayed) -> None:
    if found.differences:
        sys.stdout.write(printable(found.differences[0].diff()) + "\n")
    sys.stderr.write(f"{printable(_summary(found))}\n")


def _check_options(to_test: str | None, changes: Changes, *, goes_on: bool) -> None:
    if to_test is not None and changes != Changes():
        raise ConfigError("--to-test writes the run as it was recorded. Leave the changes out.")
    if goes_on and (changes == Changes() or changes.browser):
        raise ConfigError(
            "--go-on goes on where what is tried makes a difference. Say what: --model, --prompt, "
            "--policy or --tool, without --browser."
        )


def _require_no_logins(context: Context) -> None:
    """Raise ConfigError if the browser has logins: the steps of a bundle may be a stranger's."""
    browser = resolve_settings(context, "replay", without_model=True).browser
    for name in ("profile", "cdp_url"):
        if getattr(browser, name) is not None:
            raise ConfigError(
                f"The steps of a bundle may be another one's, and [browser] {name} has logins of "
                "yours. Take it out of the configuration for this replay."
            )


def _print_step(done: str) -> None:
    """Print at once what a step has done: it cannot be taken back."""
    lines = printable(done).splitlines()
    sys.stdout.write("\n".join(lines[:SHOWN_LINES]) + "\n")
    sys.stdout.flush()


def _print_divergence(found: Replayed, changes: Changes, out: TextIO) -> None:
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


def _summary(found: Replayed) -> str:
    if found.is_equal:
        all_of = "The only request is as it was"
        if found.model_calls != 1:
            all_of = f"All {found.model_calls} requests are as they were"
        return f"{all_of} recorded."
    reported = [found.ended] if found.ended else []
    if found.differences:
        first = found.differences[0]
        reported.insert(
            0,
            f"{len(found.differences)} of {found.model_calls} requests differ. The first one is "
            f"model call {first.position}, of step {first.call.facts['step']}.",
        )
    return " ".join(reported)
