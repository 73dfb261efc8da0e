"""The commands, as processes, on files that somebody else made: none of it is run."""

import ast
import base64
import hashlib
import json
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from openmanus_graph.runtime.serializer import StrictSerializer
from tests.support.cli import Cli
from tests.support.hostile import payloads
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled

pytestmark = pytest.mark.slow

NAMES = sampled([*payloads(Path("/nowhere"))], 3, "hostile files")
READERS = (
    ["show", "t"],
    ["show", "t", "--json"],
    ["export", "t"],
    ["export", "t", "--bundle", "b.zip"],
    ["fork", "t"],
    ["resume", "t"],
    ["run", "--thread", "t", "more"],
    ["run", "--continue", "more"],
    ["replay", "t"],
    ["replay", "t", "--to-test", "test_it.py"],
)
Lines = dict[str, list[Any]]


@pytest.fixture
def ran(cli: Cli, model: OpenAIServer) -> Cli:
    """A thread whose run has ended."""
    model.add(Reply(calls=(Call("bash", {"command": "echo 1"}),)), Reply("Done."))
    assert cli.run("run", "go", "--thread", "t", "--workspace", "files").code == 0
    return cli


@pytest.mark.parametrize("name", NAMES)
def test_no_command_runs_what_checkpoints_hold(
    ran: Cli, model: OpenAIServer, tmp_path: Path, name: str
) -> None:
    marker = tmp_path / "marker"
    typed = payloads(marker)[name]
    with sqlite3.connect(ran.home / "checkpoints.db") as connection:
        connection.execute("UPDATE checkpoints SET type = ?, checkpoint = ?", typed)
        connection.execute("UPDATE writes SET type = ?, value = ?", typed)
    connection.close()
    for command in READERS:
        done = ran.run(*command)
        assert done.code in (1, 2), (command, done.stderr)
        assert "Stored data was refused: it holds" in done.stdout + done.stderr, command
    assert ran.run("threads").code == 0
    assert ran.run("threads", "--delete", "t").code == 0
    model.add(Reply("New."))
    assert ran.run("run", "go", "--thread", "t").code == 0
    assert not marker.exists()


def forged(
    bundle: Path,
    changed: Path,
    change: Callable[[Lines, dict[str, Any]], None],
) -> None:
    """Write a bundle again with other content, and with the digests of that."""
    with zipfile.ZipFile(bundle) as archive:
        manifest = archive.read("manifest.json").decode().rstrip("\n").rpartition("\n")[0]
        about = json.loads(manifest)
        lines = {
            name: [json.loads(line) for line in archive.read(name).decode().split("\n")[:-1]]
            for name in about["lines"]
        }
    change(lines, about)
    texts = {name: [json.dumps(one) for one in found] for name, found in lines.items()}
    about["lines"] = {name: [*map(digest, found)] for name, found in texts.items()}
    manifest = json.dumps(about)
    with zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", f"{manifest}\n{digest(manifest)}\n")
        for name, found in texts.items():
            archive.writestr(name, "".join(f"{line}\n" for line in found))


def digest(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:16]


def outcome_of(lines: Lines) -> dict[str, Any]:
    found: dict[str, Any] = lines["tool_calls.jsonl"][0][1]
    return found


@pytest.fixture
def bundle(ran: Cli) -> Path:
    assert ran.run("export", "t", "--bundle", "run.zip").code == 0
    assert ran.run("replay", "run.zip").code == 0
    return ran.cwd / "run.zip"


@pytest.mark.parametrize("name", NAMES)
def test_no_replay_runs_what_a_bundle_holds(
    ran: Cli, bundle: Path, tmp_path: Path, name: str
) -> None:
    marker = tmp_path / "marker"
    kind, content = payloads(marker)[name]
    update = json.dumps([kind, base64.b64encode(content).decode()])

    def change(lines: Lines, _: dict[str, Any]) -> None:
        outcome_of(lines)["outcome"]["update"] = update

    refused(ran, bundle, change)
    assert not marker.exists()


def refused(ran: Cli, bundle: Path, change: Callable[[Lines, dict[str, Any]], None]) -> None:
    forged(bundle, ran.cwd / "evil.zip", change)
    for command in (
        ["replay", "evil.zip"],
        ["replay", "evil.zip", "--to-test", "test_evil.py"],
        ["export", "evil.zip", "--html", "evil.html"],
    ):
        done = ran.run(*command)
        assert done.code in (1, 2), (done.stdout, done.stderr)
        assert len(done.stderr.splitlines()) < 4, done.stderr
    assert not (ran.cwd / "test_evil.py").exists()
    assert not (ran.cwd / "test_evil.zip").exists()


IN_A_DOCSTRING = 'x""" + open({!r}, "w").write("1") + """'
NAN = float("nan")


@pytest.mark.parametrize("field", ["task", "agent", "thread", "options"])
def test_nothing_of_a_bundle_is_code_of_the_test_that_is_written(
    ran: Cli, bundle: Path, tmp_path: Path, field: str
) -> None:
    """Texts of the record are literals of the test, whatever they hold."""
    assert ran.run("replay", "run.zip", "--to-test", "test_plain.py").code == 0
    evil = IN_A_DOCSTRING.format(str(tmp_path / "marker"))

    def change(_: Lines, about: dict[str, Any]) -> None:
        about[field] = {"max_cost_usd": NAN, "model": evil} if field == "options" else evil

    forged(bundle, ran.cwd / "evil.zip", change)
    made = ran.run("replay", "evil.zip", "--to-test", "test_plain_.py")
    written = ran.cwd / "test_plain_.py"
    if written.exists():
        plain = shape((ran.cwd / "test_plain.py").read_text())
        assert shape(written.read_text()).replace("plain__goes", "plain_goes") == plain
    else:
        assert made.code in (1, 2), made.stderr


def test_an_id_of_more_than_a_line_is_no_id(ran: Cli, bundle: Path) -> None:
    def change(_: Lines, about: dict[str, Any]) -> None:
        about["thread"] = 'alpha"""\nimport os; os.system("false")\n"""'

    refused(ran, bundle, change)


def shape(code: str) -> str:
    """Code without its literals, and without the options of the run."""
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant):
            node.value = 0
        if isinstance(node, ast.List):
            assert all(isinstance(one, ast.Constant) for one in node.elts)
            node.elts = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Context":
            assert all(isinstance(ast.literal_eval(one.value), object) for one in node.keywords[1:])
            node.keywords = node.keywords[:1]
    return ast.dump(tree)


def constructor(**more: Any) -> dict[str, Any]:
    """What LangChain's reader makes an object of."""
    made = {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "false"}}
    return made | more


def _beginning(value: Any) -> dict[str, Any]:
    checkpoint = {
        "v": 4, "id": "1ef00000-0000-6000-8000-000000000000", "ts": "2024-01-01T00:00:00+00:00",
        "channel_values": {"messages": value}, "channel_versions": {"messages": 1},
        "versions_seen": {}, "updated_channels": None,
    }  # fmt: skip
    return {"checkpoint": checkpoint, "metadata": {"step": 1}, "parent": "", "writes": []}


CHANGES: Mapping[str, Callable[[Lines, dict[str, Any]], None]] = {
    "an unknown object of the state": lambda lines, _: lines["beginning.jsonl"].append(
        _beginning({"os.system": "false"})
    ),
    "a constructor in the state": lambda lines, _: lines["beginning.jsonl"].append(
        _beginning(constructor())
    ),
    "a constructor as an input": lambda _, about: about.update(
        inputs=[{"messages": [constructor(lc=2)]}]
    ),
    "a constructor as a reply": lambda lines, _: lines["model_calls.jsonl"][0]["facts"].update(
        reply=constructor()
    ),
    "a reply of no kind": lambda lines, _: lines["model_calls.jsonl"][0]["facts"].update(
        reply={"type": "os.system", "data": {}}
    ),
    "no facts": lambda lines, _: lines["model_calls.jsonl"][0].update(facts=7),
    "an outcome of no kind": lambda lines, _: outcome_of(lines).update(outcome="x"),
    "an outcome with other fields": lambda lines, _: outcome_of(lines).update(system="false"),
    "an outcome without images": lambda lines, _: outcome_of(lines).update(outcome={"a": 1}),
    "an agent that is a module": lambda _, about: about.update(agent="../os"),
    "no lines": lambda lines, _: lines.clear(),
    "a deep line": lambda lines, _: lines["facts.jsonl"].append(json.loads("[" * 900 + "]" * 900)),
    "options of no kind": lambda _, about: about.update(options=["--secret"]),
    "an update that approves": lambda lines, _: outcome_of(lines)["outcome"].update(
        update=StrictSerializer().to_text({"approved_values": ["x"], "status": "finished"})
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_bundle_of_another_shape_is_refused_in_a_sentence(
    ran: Cli, bundle: Path, name: str
) -> None:
    refused(ran, bundle, CHANGES[name])


def test_a_bundle_that_grows_when_it_is_unpacked_is_refused(ran: Cli, bundle: Path) -> None:
    with (
        zipfile.ZipFile(ran.cwd / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("manifest.json", "w", force_zip64=True) as file,
    ):
        for _ in range(600):
            file.write(b" " * (1 << 20))
    done = ran.run("replay", "bomb.zip")
    assert (done.code, "MB" in done.stderr) == (2, True), done.stderr
