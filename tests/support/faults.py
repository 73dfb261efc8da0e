"""Runs of the command against a model server that misbehaves: what was sent, run and seen.

Of a test's cases half is played, streaming or not, both as the seed draws it; the rest is
`exhaustive`.
"""

import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.support.cli import Cli, Event, Result
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Answer, Call, Reply
from tests.support.openai_server import OpenAIServer, Request
from tests.support.sampling import chance
from tests.support.strict_openai import complaint
from tests.support.zygote import Zygote

Mode = Literal["stream", "whole"]
MODES: tuple[Mode, ...] = ("stream", "whole")
AT_ONCE = 8


def in_a_drawn_mode(names: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrise a test with the names of cases, half of them drawn, and with modes."""
    every = list(names)
    draw = chance(f"modes {every}")
    drawn = {(name, draw.choice(MODES)) for name in draw.sample(every, (len(every) + 1) // 2)}
    return pytest.mark.parametrize(
        ("name", "mode"),
        [
            pytest.param(name, mode, marks=() if (name, mode) in drawn else pytest.mark.exhaustive)
            for name in every
            for mode in MODES
        ],
    )


@dataclass(frozen=True)
class Case:
    """One misbehaviour of a model's side."""

    script: tuple[Answer, ...]
    args: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further `[model_options]`, in TOML."""
    loop: bool = False
    config: str = ""
    """Further lines of the configuration, in TOML."""
    address: str | None = None
    """Asked instead of the scripted server."""


@dataclass(frozen=True)
class Ran:
    """What came of a case."""

    result: Result
    requests: list[Request]
    workspace: Path
    log: Path

    @property
    def appended(self) -> list[str]:
        """The words that calls of `append` left, in the order in which they ran."""
        path = self.workspace / "ran"
        return path.read_text().split() if path.exists() else []

    @property
    def waits(self) -> list[float]:
        """The seconds between the requests."""
        times = [request.at for request in self.requests]
        return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]

    @property
    def reported(self) -> list[Mapping[str, str]]:
        """The tool messages that the last request held."""
        return [m for m in self.requests[-1].messages if m["role"] == "tool"]

    @property
    def notices(self) -> list[Event]:
        """Warnings; each is one line."""
        notices = [e for e in self.result.of("notice") if e["level"] != "info"]
        assert not [e for e in notices if "\n" in e["text"]]
        return notices

    @property
    def steps(self) -> list[int]:
        """The steps of the requests, repeated ones repeated."""
        return [event["step"] for event in self.result.of("think_start")]

    def ended(self, code: int, status: str, reason: str, *, words: str = "") -> None:
        """Check how the run ended, that it was said, and that no request was a wrong one."""
        final = self.result.final
        shown = f"{self.result.stdout[-3000:]}\n{self.result.stderr[-2000:]}"
        assert (self.result.code, final["status"], final["stop_reason"]) == (
            code,
            status,
            reason,
        ), shown
        assert words in final["answer"], shown
        assert "Traceback" not in self.result.stdout
        assert [found for r in self.requests if (found := complaint(r.body))] == []

    def answered(self, answer: str = "Done.") -> None:
        """Check that the run came to its answer."""
        self.ended(0, "finished", "answer")
        assert self.result.final["answer"] == answer


class Played:
    """What came of the cases; one that could not be run fails where it is asked for."""

    def __init__(self, runs: Mapping[tuple[str, Mode], "Future[Ran]"]) -> None:
        self._runs = runs

    def __getitem__(self, key: tuple[str, Mode]) -> Ran:
        return self._runs[key].result()


def play(cases: Mapping[str, Case], request: pytest.FixtureRequest, zygote: Zygote) -> Played:
    """Run the cases that the module's chosen tests are about, several at a time.

    Args:
        cases: By their names.
        request: Of a fixture of the module.
        zygote: Starts the command.
    """
    root = request.getfixturevalue("tmp_path_factory").mktemp("played")
    chosen: set[tuple[str, Mode]] = set()
    for item in request.session.items:
        if item.path == request.path and "played" in getattr(item, "fixturenames", ()):
            given: Any = vars(item)["callspec"]
            chosen.add((given.params["name"], given.params["mode"]))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        runs = {key: pool.submit(_run, cases[key[0]], key[1], root, zygote) for key in chosen}
    return Played(runs)


def _run(case: Case, mode: Mode, root: Path, zygote: Zygote) -> Ran:
    cli = Cli(Path(tempfile.mkdtemp(dir=root)) / "cli")
    options = {"disable_streaming": "true" if mode == "whole" else "false", **case.options}
    lines = [case.config, "[model_options]", *(f"{key} = {text}" for key, text in options.items())]
    settings = cli.root / "config" / "openmanus" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("\n".join(lines))
    with OpenAIServer(case.script, strict=True, loop=case.loop) as server:
        cli.use(case.address or server.base_url)
        result = _command(cli, zygote, *case.args)
        requests = list(server.requests)
    cli.assert_no_key()
    return Ran(result, requests, cli.workspace, cli.cwd / "run.log")


def _command(cli: Cli, zygote: Zygote, *args: str) -> Result:
    fixed = ("run", "Append the words.", "--json", "--workspace", "files", "--log", "run.log")
    paths = cli.root / "stdout", cli.root / "stderr"
    with paths[0].open("wb") as out, paths[1].open("wb") as err:
        running = zygote.start(
            [*fixed, *args], cwd=cli.cwd, env=cli.env, out=out.fileno(), err=err.fileno()
        )
    try:
        code = running.wait(BACKSTOP_S)
    finally:
        running.kill()
    result = Result(code, paths[0].read_text("utf-8"), paths[1].read_text("utf-8"))
    cli.note(result.stdout, result.stderr)
    return result


def append(word: str, **fields: object) -> Call:
    """Make a call whose every run leaves a trace."""
    return Call("bash", {"command": f"echo {word} >> ran; echo did {word}"}, **fields)  # type: ignore[arg-type]  # Call's own fields


def around(*faults: Answer) -> tuple[Answer, ...]:
    """Make a script that fails at step 1 and again at step 3, and works in between."""
    one, two = Reply(calls=(append("one"),)), Reply(calls=(append("two"),))
    return (*faults, one, two, *faults, Reply("Done."))
