"""Bundles: a thread's record as one file, refused when it is not as it was written."""

import json
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Overwrite, Send

from openmanus_graph import Context
from openmanus_graph.backends.persistence.bundles import (
    FORMAT,
    digest_of,
    load_bundle,
    save_bundle,
)
from openmanus_graph.backends.persistence.ledger import LedgerEntry
from openmanus_graph.backends.persistence.recording import RecordedCall, Recording
from openmanus_graph.config.secret_values import REMOVED
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.replay import replay_bundle
from openmanus_graph.state.manus import DeltaSnapshot

pytestmark = pytest.mark.slow

KEY = "sk-this-is-a-key-of-someone"
MODEL = {"role": "model", "name": "scripted"}
ASKED = {"role": "human", "content": "the task\u2028 – with é"}


def record_of(said: str) -> Recording:
    """A record of two model calls and one tool call, whose result is the given text."""
    result = {"role": "tool", "content": said}
    calls = [
        RecordedCall(1, "think", [MODEL, ASKED], {"step": 1}),
        RecordedCall(2, "think", [MODEL, ASKED, result], {"step": 2}),
    ]
    return Recording(
        thread="t",
        agent="manus",
        task="the task",
        options={"max_steps": 5, "workspace": "/home/someone", "base_url": "http://u:p@host"},
        inputs=[{"messages": [HumanMessage("the task", id="m")]}],
        calls=calls,
        facts=[("date", "2020-02-29"), ("named files of m", {"missing": []})],
        outcomes={"digest": LedgerEntry("done", {"text": said}, {"command": "ls"}, 1)},
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    path = tmp_path / "run.zip"
    save_bundle(record_of("a\nb"), path)
    return path


def test_what_is_read_is_what_was_written(bundle: Path) -> None:
    written, read = record_of("a\nb"), load_bundle(bundle)
    assert read.options == {"max_steps": 5}, "folders and servers stay where they are"
    for name in ("thread", "agent", "task", "inputs", "calls", "facts", "outcomes"):
        assert getattr(read, name) == getattr(written, name)


def test_what_a_record_goes_on_from_is_in_it_without_keys_and_approvals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", KEY)
    said = [HumanMessage(f"It is {KEY}.", id="a"), RemoveMessage(id="b")]
    values: dict[str, Any] = {
        "messages": DeltaSnapshot(said),
        "plans": {"p": [{"message": None}]},
        "__pregel_tasks": [Send("act", {"call": 1})],
    }
    approved = {"remembered_approvals": ["bash"], "approved_values": ["rm"]}
    checkpoint: Any = {"id": "2", "channel_values": {**values, **approved}}
    before: RunnableConfig = {"configurable": {"checkpoint_id": "1"}}
    writes = [("task", "messages", Overwrite(said)), ("task", "approved_values", ["rm"])]
    place = CheckpointTuple({"configurable": {}}, checkpoint, {"step": 3}, before, writes)
    save_bundle(replace(record_of("a"), beginning=[place]), tmp_path / "run.zip")
    (read,) = load_bundle(tmp_path / "run.zip").beginning
    removed = [HumanMessage(f"It is {REMOVED}.", id="a"), RemoveMessage(id="b")]
    assert read.checkpoint["channel_values"] == {**values, "messages": DeltaSnapshot(removed)}
    assert read.pending_writes == [("task", "messages", Overwrite(removed))]
    assert (read.parent_config, read.metadata) == (before, {"step": 3})
    checkpoint["channel_values"]["plans"] = {"p": object()}
    with pytest.raises(ConfigError, match=r"a value that no bundle can hold \(object\)"):
        save_bundle(replace(record_of("a"), beginning=[place]), tmp_path / "run.zip")


def test_no_key_of_the_environment_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", KEY)
    save_bundle(record_of(f"printed {KEY}"), tmp_path / "run.zip")
    with zipfile.ZipFile(tmp_path / "run.zip") as archive:
        assert not any(KEY.encode() in archive.read(name) for name in archive.namelist())
    read = load_bundle(tmp_path / "run.zip")
    assert read.calls[1].request[2]["content"] == f"printed {REMOVED}"
    assert read.outcomes["digest"].outcome == {"text": f"printed {REMOVED}"}


def test_no_secret_that_this_machine_knows_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From every place where one may stand, and none of what only stands beside it."""
    home = tmp_path / "config" / "openmanus"
    (home / "mcp-logins").mkdir(parents=True)
    (tmp_path / "work" / "config").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parent))
    monkeypatch.setenv("OPENMANUS_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PLAIN", "from-a-variable-9")
    monkeypatch.setenv("OPENMANUS_SECRET_SHOP", "of-the-shop@shop.example")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "server-token").write_text("token-of-the-server\n")
    (home / "credentials.json").write_text('{"openai": {"key": "stored-by-init"}}')
    (home / "mcp-logins" / "a.json").write_text(
        '{"url": "https://a", "tokens": {"access_token": "of-a-login", "token_type": "Bearer"},'
        ' "client": {"token_endpoint_auth_method": "client_secret_basic"}}'
    )
    (home / "config.toml").write_text(
        '[llm]\napi_key = "in-llm-table"\n[search]\ntavily_api_key = "of-a-search-engine"\n'
        '[storage]\ndatabase_url = "postgresql://me:of-the-database@host/db"\n'
    )
    Path("config", "mcp.json").write_text(
        '{"mcpServers": {"a": {"url": "https://a", "headers": {"Authorization": "Bearer in-a-head",'
        ' "X-Auth": "${PLAIN}", "X-Key": "${PLAIN}", "Accept": "application/json"}},'
        ' "b": {"command": "b", "env": {"B": "looks-like-1-long-key", "LEVEL": "verbose-logs"}}}}'
    )
    Path(".env").write_text("export MY_TOKEN='in-dot-env'\n")
    Path("own.toml").write_text('[llm]\napi_key = "in-a\\"named-file"\n')
    secret = [
        "from-a-variable-9", "of-the-shop", "token-of-the-server", "stored-by-init", "of-a-login",
        "in-llm-table", "of-a-search-engine", "of-the-database", "in-a-head",
        "looks-like-1-long-key", "in-dot-env", 'in-a"named-file',
    ]  # fmt: skip
    plain = ["application/json", "verbose-logs", "client_secret_basic", "https://a", "shop.example"]
    record = record_of("\n".join(secret + plain))
    given = replace(record, options={**record.options, "config": "own.toml"})
    save_bundle(given, tmp_path / "run.zip")
    outcome = load_bundle(tmp_path / "run.zip").outcomes["digest"].outcome
    assert outcome == {"text": "\n".join([*[REMOVED] * len(secret), *plain])}


def test_a_bundle_chooses_neither_where_keys_are_sent_nor_what_is_run(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digests prove no author."""
    everything = {"base_url", "replaced_tools", "max_steps"}
    monkeypatch.setattr("openmanus_graph.backends.persistence.bundles._REPLAYED", everything)
    theirs = {"base_url": "https://theirs.example", "replaced_tools": {"bash": "os:system"}}
    save_bundle(replace(record_of("a"), options={**theirs, "max_steps": 5}), bundle)
    monkeypatch.undo()
    assert load_bundle(bundle).options == {"max_steps": 5}


@pytest.mark.parametrize("part", [{"lc": 1, "id": ["os", "system"]}, {"role": ["model"]}, "model"])
def test_what_is_no_part_of_a_request_is_refused(bundle: Path, part: Any) -> None:
    written = record_of("a")
    save_bundle(replace(written, calls=[replace(written.calls[0], request=[part])]), bundle)
    with pytest.raises(ConfigError, match="not a bundle, or was cut off or changed: ValueError"):
        load_bundle(bundle)


def rewrite(bundle: Path, name: str, change: Callable[[str], str]) -> None:
    """Change one file of a bundle."""
    with zipfile.ZipFile(bundle) as archive:
        files = {one: archive.read(one).decode() for one in archive.namelist()}
    files[name] = change(files[name])
    with zipfile.ZipFile(bundle, "w") as archive:
        for one, text in files.items():
            archive.writestr(one, text)


@pytest.mark.parametrize(
    ("name", "old", "new", "where"),
    [
        ("model_calls.jsonl", '"step": 2', '"step": 3', "model_calls.jsonl, line 2"),
        ("tool_calls.jsonl", "a", "b", "tool_calls.jsonl, line 1"),
        ("facts.jsonl", "2020", "2021", "facts.jsonl, line 1"),
        ("manifest.json", '"manus"', '"swe"', "manifest.json"),
    ],
)
def test_an_altered_bundle_is_refused_and_it_is_said_where(
    bundle: Path, name: str, old: str, new: str, where: str
) -> None:
    rewrite(bundle, name, lambda text: text.replace(old, new, 1))
    with pytest.raises(ConfigError, match=f"not as it was written: {where}"):
        load_bundle(bundle)


def test_lines_that_are_missing_or_too_many_are_named(bundle: Path) -> None:
    rewrite(bundle, "facts.jsonl", lambda text: text + '["date", "2021-01-01"]\n')
    with pytest.raises(ConfigError, match=r"facts\.jsonl, line 3"):
        load_bundle(bundle)
    rewrite(bundle, "facts.jsonl", lambda text: text.splitlines(keepends=True)[0])
    with pytest.raises(ConfigError, match=r"facts\.jsonl, line 2"):
        load_bundle(bundle)


def test_a_bundle_that_was_cut_is_refused_wherever_it_was(bundle: Path) -> None:
    whole = bundle.read_bytes()
    for length in range(0, len(whole), 97):
        bundle.write_bytes(whole[:length])
        with pytest.raises(ConfigError, match="cut off|not as it was written"):
            load_bundle(bundle)


def test_a_byte_that_was_changed_is_never_passed_over(bundle: Path) -> None:
    whole, written = bundle.read_bytes(), load_bundle(bundle)
    for position in range(0, len(whole), 61):
        changed = bytearray(whole)
        changed[position] ^= 0xFF
        bundle.write_bytes(changed)
        with suppress(ConfigError):
            assert load_bundle(bundle) == written, "only what says nothing was changed"


def test_a_bundle_of_a_later_version_is_refused(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("openmanus_graph.backends.persistence.bundles.FORMAT", FORMAT + 1)
    save_bundle(record_of("a"), bundle)
    monkeypatch.undo()
    with pytest.raises(ConfigError, match=r"format 2.*reads up to format 1.*pip install -U"):
        load_bundle(bundle)


def test_a_file_that_is_no_bundle_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "other.zip"
    with pytest.raises(ConfigError, match="There is no file"):
        load_bundle(other)
    other.write_text("text")
    with pytest.raises(ConfigError, match="is not a bundle"):
        load_bundle(other)
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", json.dumps("hello"))
    with pytest.raises(ConfigError, match=r"manifest\.json"):
        load_bundle(other)


@pytest.mark.parametrize("said", ["a \ud800 b", "\udfff", "é\ud800\u4e2d"])
def test_a_half_character_is_kept(said: str, tmp_path: Path) -> None:
    path = tmp_path / "run.zip"
    record = replace(record_of(said), task=f"the {said}")
    save_bundle(record, path)
    assert load_bundle(path).calls == record.calls
    assert load_bundle(path).task == record.task
    assert list(tmp_path.iterdir()) == [path]


def test_a_bundle_that_cannot_be_written_leaves_what_was_there(bundle: Path) -> None:
    before = bundle.read_bytes()
    with pytest.raises(TypeError):
        save_bundle(replace(record_of("x"), options={"model": object()}), bundle)
    assert bundle.read_bytes() == before
    assert list(bundle.parent.iterdir()) == [bundle]


def test_a_small_bundle_does_not_become_many_values(bundle: Path) -> None:
    line = json.dumps(["x", "," * 3_000_000])
    rewrite_with_digest(bundle, "facts.jsonl", line)
    assert load_bundle(bundle).facts == [("x", "," * 3_000_000)]
    rewrite_with_digest(bundle, "facts.jsonl", f'["x", [{",".join(["[]"] * 1_500_000)}]]')
    with pytest.raises(ConfigError, match="facts.jsonl in it holds more than 2,000,000 values"):
        load_bundle(bundle)


def test_a_small_bundle_does_not_become_a_large_text(bundle: Path) -> None:
    rewrite_with_digest(bundle, "facts.jsonl", json.dumps(["x", "a" * (256 << 20)]))
    with pytest.raises(ConfigError, match="more than 256 MB"):
        load_bundle(bundle)


def rewrite_with_digest(bundle: Path, name: str, line: str) -> None:
    """Put a line in place of a file's, as somebody who wrote the bundle would."""

    def change(manifest: str) -> str:
        about = json.loads(manifest.rstrip("\n").rpartition("\n")[0])
        about["lines"][name] = [digest_of(line)]
        text = json.dumps(about)
        return f"{text}\n{digest_of(text)}\n"

    rewrite(bundle, name, lambda _: f"{line}\n")
    rewrite(bundle, "manifest.json", change)


async def test_what_a_replay_finds_wrong_is_said_in_a_line() -> None:
    forged = {"content": None, "type": "constructor", "id": ["os", "system"]}
    record = replace(record_of("a"), inputs=[{"messages": [forged]}])
    with pytest.raises(ConfigError, match="cannot be replayed: .*was changed") as refused:
        await replay_bundle(record, Context())
    assert "\n" not in str(refused.value)
