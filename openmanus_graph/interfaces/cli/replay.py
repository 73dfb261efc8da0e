"""`openmanus replay`: runs again from their record, to see what would differ now.

`--continue` continues a what-if replay for real, as a run of a new thread. A thread continues in a
fork of it, with the files of that point in another folder. A bundle holds no files, so it
continues only if the run had not changed any by then.
"""

import asyncio
import dataclasses
import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver

from openmanus_graph.backends.models.build import run_and_close_models
from openmanus_graph.backends.persistence.bundles import is_bundle, load_bundle
from openmanus_graph.backends.persistence.checkpoints import Point, open_checkpointer
from openmanus_graph.backends.persistence.ledger import EffectKey, open_ledger
from openmanus_graph.backends.persistence.recording import Recording
from openmanus_graph.backends.persistence.threads import Thread, harmless
from openmanus_graph.config.homes import openmanus_home
from openmanus_graph.config.resolve import database_url, resolve_settings
from openmanus_graph.errors import ConfigError
from openmanus_graph.graphs.catalog import agent_tools, build_agent
from openmanus_graph.interfaces.cli.fork import begin_fork, read_points
from openmanus_graph.interfaces.cli.run import execute_run
from openmanus_graph.interfaces.cli.skills import ask_before_run
from openmanus_graph.interfaces.cli.threads import complete_thread
from openmanus_graph.interfaces.service import replay as replaying
from openmanus_graph.interfaces.service import run_setup, threads
from openmanus_graph.interfaces.service.options import (
    OutputOptions,
    RunOptions,
    StorageOptions,
    takes,
)
from openmanus_graph.model_calls.replay import Divergence, WhatIf
from openmanus_graph.runtime.output import printable
from openmanus_graph.runtime.replaying import knowing_reply
from openmanus_graph.state.context import Context, Effect, Policy
from openmanus_graph.state.tool_traits import Traits
from openmanus_graph.tool_calls.declaration import traits_of

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
            tools={name: run_setup.load_function(at) for name, at in self.tools.items()},
        )
        changed = dataclasses.replace(
            context,
            model=self.model or context.model,
            prompts={**(context.prompts or {}), **self.prompts} or None,
            policy=policy,
        )
        return changed, what_if

    def over(self, options: Mapping[str, Any]) -> dict[str, Any]:
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
        Policy | None,
        typer.Option(help="Policy to try: ask, auto or never. No model is asked."),
    ] = None,
    tool: Annotated[
        list[str] | None,
        typer.Option(help="NAME=module:function to call instead of a tool. No model is asked."),
    ] = None,
    continues: Annotated[
        bool,
        typer.Option(
            "--continue", help="Continue for real from the first difference, as a new thread."
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
    _check_options(to_test, changes, continues=continues)
    known: Recording | Thread
    if is_bundle(Path(source)):
        known = load_bundle(Path(source))
        if changes.is_real or continues:  # a file must not decide what is asked and reached
            known = dataclasses.replace(known, options=harmless(known.options))
        options = RunOptions().over(dict(known.options))
        if browser:
            _require_no_logins(run_setup.to_context(options))
    else:
        known = threads.whole_thread(threads.thread_id(source))
        options = threads.with_stored(RunOptions(), known)
    graph = replaying.replay_graph(known.agent)
    context, what_if = changes.apply(run_setup.to_context(options))
    if isinstance(known, Recording):
        found = run_and_close_models(replaying.replay_bundle(known, context, what_if, graph))
    else:
        found = run_and_close_models(replaying.replay_thread(known, context, what_if, graph))
    if what_if is None:
        return _report(known, found, to_test)
    if continues and found.divergence is not None:
        _print_divergence(found, changes, sys.stderr)
        kept = changes.over(known.options)
        return _Continuation(known, graph, found.divergence, kept).run()
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
            "--continue starts from the first difference that a change makes. Give a change: "
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
        return name, run_setup.read_input(file, run_setup.MAX_TEXT_BYTES).decode("utf-8")
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
    if found.is_equal and found.model_calls == 1:
        return "The only request is as it was recorded."
    if found.is_equal:
        return f"All {found.model_calls} requests are as they were recorded."
    reported: list[str] = []
    if found.differences:
        first = found.differences[0]
        reported.append(
            f"{len(found.differences)} of {found.model_calls} requests differ. The first one is "
            f"model call {first.position}, of step {first.call.facts['step']}."
        )
    return " ".join([*reported, found.ended] if found.ended else reported)


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
    stop = found.divergence
    if stop is not None:
        out.write(f"{printable(stop.diff())}\n")
        at = f"after model call {stop.position}, of step {stop.step}"
        sys.stderr.write(f"{printable(stop.what)} It stopped {at}.\n")
        return
    done = "It makes no difference."
    if changes.browser:
        done = f"All {found.repeated} steps in the browser were done again."
    sys.stderr.write(f"{printable(found.ended) or done}\n")


@dataclass(frozen=True)
class _Continuation:
    """A new thread that continues a what-if replay from its first difference from the record."""

    source: Thread | Recording
    """What was replayed: a thread, or a bundle."""
    graph: Any
    """The replay's, with its checkpoints."""
    divergence: Divergence
    options: Mapping[str, Any]
    """Of the new thread's runs."""

    def run(self) -> int:
        """Make the thread and run it; return the exit code. ConfigError: it cannot continue."""
        if self.divergence.run_path:
            raise ConfigError(
                f"It cannot continue: it left the record inside {self.divergence.run_path}, and a "
                "fork begins at a step of the whole run."
            )
        options = RunOptions().over(dict(self.options))
        run_setup.graph_arguments(self.source.agent, options)  # before anything is made
        ask_before_run(options.config)
        new = run_setup.new_thread()
        with threads.hold_thread(openmanus_home(), new):
            if isinstance(self.source, Thread):
                point = asyncio.run(self._point(self.source.id))
                files = begin_fork(self.source, point, new, "copy", self.options)
                where = " ".join([str(files), *files.notices])
            else:
                self._begin_from_bundle(self.source, new)
                where = "Its folder is empty: a bundle holds no files."
            asyncio.run(self._keep_outcomes(new))
        begun = f"It continues from there as thread {new}. {where} What it does now is real."
        again = f"If it is interrupted: openmanus resume {shlex.quote(new)}"
        sys.stderr.write(f"{printable(begun)}\n{again}\n")
        with knowing_reply(self.divergence.reply):
            return execute_run(
                lambda: run_setup.resuming_run(new, run_setup.ResumeAnswer(), RunOptions()),
                OutputOptions(),
            )

    @property
    def _config(self) -> RunnableConfig:
        thread = self.source.id if isinstance(self.source, Thread) else self.source.thread
        return {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}

    def _begin_from_bundle(self, source: Recording, new: str) -> None:
        if source.beginning:
            raise ConfigError(
                "It cannot continue from a bundle: the run continued from an earlier point, whose "
                "files a bundle does not hold. Replay the thread where it ran."
            )
        made = self.divergence.earlier
        changing = dict.fromkeys(one.tool for one in made if self._effect(one) == "workspace")
        if changing:
            raise ConfigError(
                "It cannot continue from a bundle: the run had changed files by then (by "
                f"{', '.join(changing)}), and a bundle holds no files. Replay the thread where it "
                "ran."
            )
        asyncio.run(self._copy_checkpoints(new))
        table = threads.open_threads()
        table.begin(new, source.agent, source.task, dict(self.options), None)
        table.end(new, "forked")

    async def _point(self, thread: str) -> Point:
        """Find the point of a thread at which the replay of it stopped."""
        stopped = await self.graph.aget_state(self._config)
        number = stopped.metadata["step"]
        points = sorted(await read_points(thread), key=lambda one: abs(one.number - number))
        wanted = stopped.next, _shape(stopped.values["messages"])
        async with open_checkpointer(database_url()) as saver:
            graph = build_agent(self.source.agent, checkpointer=saver)
            for point in points:
                at = {"thread_id": thread, "checkpoint_ns": "", "checkpoint_id": point.checkpoint}
                state = await graph.aget_state({"configurable": at})
                if (state.next, _shape(state.values["messages"])) == wanted:
                    return point
        raise ConfigError(
            f"It cannot continue: no point of thread {thread} equals the replay when it stopped. "
            f"Choose one yourself: openmanus fork {shlex.quote(thread)}"
        )

    def _effect(self, call: EffectKey) -> Effect:
        """Return what a call may change: the worst if the agent does not have its tool."""
        tools = {tool.name: tool for tool in agent_tools(self.source.agent)}
        traits = traits_of(tools[call.tool]) if call.tool in tools else Traits()
        return traits.effect_of(json.loads(call.args))

    async def _copy_checkpoints(self, new: str) -> None:
        """Put the replay's checkpoints into the database, as those of the new thread.

        What tasks wrote after the newest one is left out: they run again.
        """
        memory: InMemorySaver = self.graph.checkpointer
        line = [one async for one in memory.alist(self._config)][::-1]
        async with open_checkpointer(database_url()) as saver:
            for one in line:
                before = (one.parent_config or {}).get("configurable", {}).get("checkpoint_id")
                named = {"thread_id": new, "checkpoint_ns": "", "checkpoint_id": before}
                versions = one.checkpoint["channel_versions"]
                written = await saver.aput(
                    {"configurable": named}, one.checkpoint, one.metadata, versions
                )
                if one is line[-1]:
                    break
                at = one.config.get("configurable", {})
                kept = memory.writes[at["thread_id"], at["checkpoint_ns"], at["checkpoint_id"]]
                tasks: dict[tuple[str, str], list[tuple[str, Any]]] = {}
                for task, channel, value, path in kept.values():
                    value = memory.serde.loads_typed(value)
                    tasks.setdefault((task, path), []).append((channel, value))
                for (task, path), writes in tasks.items():
                    await saver.aput_writes(written, writes, task, path)

    async def _keep_outcomes(self, new: str) -> None:
        """Let the record answer the calls of the last reply that were like the recorded ones.

        Calls that change files are made again, in the new thread's folder: its files are those
        from before the reply.
        """
        ledger = await asyncio.to_thread(open_ledger, database_url())
        for effect, entry in self.divergence.answered:
            if self._effect(effect) == "external":
                key = dataclasses.replace(effect, thread=new)
                await ledger.intend(key, entry.args, "")
                await ledger.conclude(key, entry.args, entry.outcome or {})


def _shape(messages: list[AnyMessage]) -> list[tuple[str, Any]]:
    """Return what is equal in two runs that made the same calls and got the same outcomes."""
    return [
        (one.type, [(call["name"], call["args"]) for call in one.tool_calls])
        if isinstance(one, AIMessage)
        else (one.type, one.text)
        for one in messages
    ]
