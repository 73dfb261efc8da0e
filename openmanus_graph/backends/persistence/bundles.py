"""One file that holds a thread's recording, which another machine can replay.

A zip of lines of JSON. Its manifest holds a digest of each line, so that a bundle that was cut or
altered is refused, and says where.
"""

import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from langchain_core.messages import (
    BaseMessage,
    convert_to_messages,
    message_to_dict,
    messages_from_dict,
)
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.types import Command, Overwrite, Send

from openmanus_graph.backends.persistence.ledger import LedgerEntry, Stage
from openmanus_graph.backends.persistence.recording import RecordedCall, Recording
from openmanus_graph.config.secret_values import known_secrets
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.atomic_files import write_own_file
from openmanus_graph.runtime.checkpoint_lineage import id_of
from openmanus_graph.state.manus import DeltaSnapshot

FORMAT = 1
"""Of the bundles that this code writes and reads."""
_FAULTS = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""Raised for zips that are cut or altered; the last two for an unknown or encrypted kind."""
_MANIFEST, _BEGINNING, _CALLS, _FACTS, _OUTCOMES = (
    "manifest.json",
    "beginning.jsonl",
    "model_calls.jsonl",
    "facts.jsonl",
    "tool_calls.jsonl",
)
_LINES = (_BEGINNING, _CALLS, _FACTS, _OUTCOMES)
_REPLAYED = frozenset(
    {
        "model", "max_steps", "max_cost_usd", "max_tokens", "timeout", "network", "allow_host",
        "policy", "review_plan", "prompts",
    }
)  # fmt: skip
"""Options that a replay needs, which asks no model and runs nothing. All others are meaningful only
on the machine of the run, and are ignored in a bundle. What really asks or runs accepts only
`harmless` ones: the author of the file must not choose what is reached and what is run."""
_APPROVALS = frozenset({"remembered_approvals", "approved_values"})
"""State that holds what a person approved there, but not here."""
_APPROVED_BY_CALL = frozenset({"remembered_approval", "approved_values"})
"""The same in the outcome of a call."""
_MAX_BYTES = 256 << 20
"""Limit for a bundle, decompressed."""
_MAX_VALUES = 2_000_000
"""Limit for a file of a bundle: an empty list takes three bytes there, and over 60 in memory."""
_WRAPPERS: Mapping[str, type[Any]] = {"overwrite": Overwrite, "snapshot": DeltaSnapshot}
"""What LangGraph puts around a value of the state."""
_MOST_ID_CHARS = 200
_TEXTS = re.compile(r'"(?:[^"\\]|\\.)*+"')


def save_bundle(record: Recording, path: Path) -> None:
    """Write a bundle without the secret values that this machine knows. Blocks.

    ConfigError: its beginning or the file cannot be written.
    """
    secrets = known_secrets(record.options.get("config"))

    def clean(text: str) -> str:
        """Return JSON without secrets, and with half characters, which no file holds, escaped."""
        return secrets.remove_from(text).encode("utf-8", "backslashreplace").decode()

    rows: dict[str, list[Any]] = {
        _BEGINNING: list(map(_checkpoint_to_json, record.beginning)),
        _CALLS: list(_new_parts(record)),
        _FACTS: list(record.facts),
        _OUTCOMES: [(digest, asdict(entry)) for digest, entry in record.outcomes.items()],
    }
    lines = {
        name: [clean(json.dumps(one, ensure_ascii=False, default=str)) for one in made]
        for name, made in rows.items()
    }
    about = {
        "format": FORMAT,
        "openmanus": version("openmanus-graph"),
        "thread": record.thread,
        "agent": record.agent,
        "task": record.task,
        "options": _portable(record.options),
        "inputs": [_input_to_json(given) for given in record.inputs],
        "lines": {name: [digest_of(line) for line in made] for name, made in lines.items()},
    }
    manifest = clean(json.dumps(about, ensure_ascii=False, indent=1))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(_MANIFEST, f"{manifest}\n{digest_of(manifest)}\n")
        for name, made in lines.items():
            archive.writestr(name, "".join(f"{line}\n" for line in made))
    write_own_file(path, content.getvalue())


def is_bundle(path: Path) -> bool:
    """Return True if the name of a thread or a bundle means a bundle. Blocks."""
    return path.suffix == ".zip" or zipfile.is_zipfile(path)


def load_bundle(path: Path) -> Recording:
    """Read a bundle. Blocks.

    ConfigError: it is not a bundle, of a later version, or not as it was written, and where.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > _MAX_BYTES:
                raise ConfigError(
                    f"{path} is refused: it has more than {_MAX_BYTES >> 20} MB, unpacked."
                )
            about = _manifest(path, archive)
            found = {
                name: _read_lines(path, archive, name, digests)
                for name, digests in about["lines"].items()
                if name in _LINES
            }
        return _record(about, found)
    except FileNotFoundError as error:
        raise ConfigError(f"There is no file {path}.") from error
    except ConfigError:
        raise
    except Exception as error:  # its author may have written anything
        raise ConfigError(
            f"{path} is not a bundle, or was cut off or changed: {type(error).__name__}. Write it "
            "again: openmanus export THREAD --bundle FILE."
        ) from error


def _record(about: Mapping[str, Any], found: Mapping[str, list[Any]]) -> Recording:
    """Return the recording. Anything may be raised if the bundle was written by hand."""
    return Recording(
        thread=_id(about["thread"]),
        agent=_id(about["agent"]),
        task=str(about["task"]),
        options=_portable(about["options"]),
        inputs=[_input_from_json(given) for given in about["inputs"]],
        calls=list(_calls(found[_CALLS])),
        facts=[(str(name), value) for name, value in found[_FACTS]],
        outcomes={str(digest): _outcome(**entry) for digest, entry in found[_OUTCOMES]},
        beginning=[_checkpoint_from_json(one, _APPROVALS) for one in found[_BEGINNING]],
    )


def _id(given: Any) -> str:
    """Return an id if it is a valid one: it is shown, and written to files."""
    if not (isinstance(given, str) and 0 < len(given) <= _MOST_ID_CHARS and given.isprintable()):
        raise ValueError("an id is not a short text of one line")
    return given


def _new_parts(record: Recording) -> Iterator[dict[str, Any]]:
    """Yield the calls, each with the parts that differ from its caller's previous call."""
    before: dict[str, RecordedCall] = {}
    for call in record.calls:
        known = before[call.caller].request if call.caller in before else ()
        pairs = zip(known, call.request, strict=False)
        shared = next(
            (n for n, (old, new) in enumerate(pairs) if old != new),
            min(len(known), len(call.request)),
        )
        parts = list(call.request[shared:])
        yield {"caller": call.caller, "shared": shared, "parts": parts, "facts": call.facts}
        before[call.caller] = call


def _calls(rows: list[Any]) -> Iterator[RecordedCall]:
    before: dict[str, RecordedCall] = {}
    for number, row in enumerate(rows, 1):
        known = before[row["caller"]].request if row["shared"] else ()
        request = [*known[: row["shared"]], *map(_part, row["parts"])]
        before[row["caller"]] = RecordedCall(number, str(row["caller"]), request, {**row["facts"]})
        yield before[row["caller"]]


def _part(given: Any) -> dict[str, Any]:
    if not (isinstance(given, dict) and isinstance(given.get("role"), str)):
        raise ValueError("a part of a request has no role")
    return cast("dict[str, Any]", given)


def _outcome(
    stage: Stage,
    outcome: Mapping[str, Any] | None,
    args: Mapping[str, Any],
    attempts: int,
    server_task: str = "",
) -> LedgerEntry:
    kept = None
    if outcome is not None:
        kept = {name: value for name, value in outcome.items() if name not in _APPROVED_BY_CALL}
    return LedgerEntry(stage, kept, {**args}, int(attempts), str(server_task))


def _manifest(path: Path, archive: zipfile.ZipFile) -> Mapping[str, Any]:
    text = _read(path, archive, _MANIFEST)
    content, _, digest = text.rstrip("\n").rpartition("\n")
    if digest != digest_of(content):
        raise _altered(path, _MANIFEST)
    about: dict[str, Any] = json.loads(content)
    if about["format"] > FORMAT:
        raise ConfigError(
            f"{path} is of format {about['format']}, written by openmanus-graph "
            f"{about['openmanus']}; this version reads up to format {FORMAT}. Install a later one: "
            "pip install -U openmanus-graph"
        )
    return about


def _read_lines(path: Path, archive: zipfile.ZipFile, name: str, digests: list[str]) -> list[Any]:
    lines = _read(path, archive, name).split("\n")[:-1]
    for number, digest in enumerate(digests, 1):
        if number > len(lines) or digest_of(lines[number - 1]) != digest:
            raise _altered(path, f"{name}, line {number}")
    if len(lines) > len(digests):
        raise _altered(path, f"{name}, line {len(digests) + 1}")
    return [json.loads(line) for line in lines]


def _read(path: Path, archive: zipfile.ZipFile, name: str) -> str:
    try:
        with archive.open(name) as member:
            content = member.read(_MAX_BYTES).decode()
        # Counted before any is built; texts may hold the same characters.
        if _values_in(content) > _MAX_VALUES and _values_in(_TEXTS.sub("", content)) > _MAX_VALUES:
            raise ConfigError(
                f"{path} is refused: {name} in it holds more than {_MAX_VALUES:,} values."
            )
        return content
    except (KeyError, UnicodeDecodeError, *_FAULTS) as error:
        raise _altered(path, name) from error


def _values_in(content: str) -> int:
    return sum(map(content.count, ",[{\n"))


def _altered(path: Path, where: str) -> ConfigError:
    return ConfigError(
        f"{path} is not as it was written: {where}. It is not replayed. Get it again, or write it "
        "again: openmanus export THREAD --bundle FILE."
    )


def _portable(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in _REPLAYED}


def digest_of(line: str) -> str:
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _input_to_json(given: Any) -> dict[str, Any] | None:
    if given is None:
        return None
    if isinstance(given, Command):
        return {"goto": given.goto}
    messages = convert_to_messages(given["messages"])
    return {**given, "messages": [message_to_dict(one) for one in messages]}


def _input_from_json(given: Mapping[str, Any] | None) -> Any:
    if given is None:
        return None
    if "goto" in given:
        return Command(goto=given["goto"])
    return {**given, "messages": messages_from_dict(given["messages"])}


def _checkpoint_to_json(one: CheckpointTuple) -> dict[str, Any]:
    """Return a checkpoint of a beginning as JSON. ConfigError: its state cannot be written."""
    values = {name: _to_json(value) for name, value in one.checkpoint["channel_values"].items()}
    writes = [[task, name, _to_json(value)] for task, name, value in one.pending_writes or ()]
    return {
        "checkpoint": {**one.checkpoint, "channel_values": values},
        "metadata": dict(one.metadata),
        "parent": id_of(one.parent_config),
        "writes": writes,
    }


def _checkpoint_from_json(given: Mapping[str, Any], without: Set[str]) -> CheckpointTuple:
    """Return the checkpoint that `_checkpoint_to_json` was given, without some of its state."""
    checkpoint = dict(given["checkpoint"])
    values: dict[str, Any] = checkpoint["channel_values"]
    checkpoint["channel_values"] = {
        name: _from_json(value) for name, value in values.items() if name not in without
    }
    return CheckpointTuple(
        config={"configurable": {"checkpoint_id": checkpoint["id"]}},
        checkpoint=cast("Any", checkpoint),  # as it was written above
        metadata=given["metadata"],
        parent_config={"configurable": {"checkpoint_id": given["parent"]}},
        pending_writes=[
            (task, name, _from_json(value))
            for task, name, value in given["writes"]
            if name not in without
        ],
    )


def _to_json(value: Any) -> Any:
    """Return a value of the state as JSON, as an object with one key if it is not a plain value."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, BaseMessage):
        return {"message": message_to_dict(value)}
    if isinstance(value, Send):
        return {"send": [value.node, _to_json(value.arg)]}
    for kind, wrapper in _WRAPPERS.items():
        if isinstance(value, wrapper):
            return {kind: _to_json(value.value)}
    if isinstance(value, dict):
        values = cast("dict[str, Any]", value)
        return {"object": {str(key): _to_json(one) for key, one in values.items()}}
    if isinstance(value, list | tuple):
        return [_to_json(one) for one in cast("Sequence[Any]", value)]
    raise ConfigError(
        "The run went back, or began as a fork, and its state at that point holds a value that no "
        f"bundle can hold ({type(value).__name__}). Replay the thread where it ran."
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(one) for one in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    ((kind, inner),) = cast("dict[str, Any]", value).items()
    if kind == "message":
        return messages_from_dict([inner])[0]
    if kind == "send":
        return Send(inner[0], _from_json(inner[1]))
    if kind == "object":
        return {key: _from_json(one) for key, one in inner.items()}
    if kind in _WRAPPERS:
        return _WRAPPERS[kind](_from_json(inner))
    raise ConfigError(f"The bundle is refused: its state holds {kind!r}, which is not known.")
