"""Beside every reader and writer a program swaps files and folders for links out of the workspace.

Nothing of the host is read, nothing there changes, and nothing hangs.
"""

import base64
import contextlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from langchain_core.tools import StructuredTool

from openmanus_graph.backends.browser.tab import keep_file
from openmanus_graph.backends.files.overview import workspace_overview
from openmanus_graph.backends.sandbox.backend import ControlFiles
from openmanus_graph.backends.sandbox.confinement import _copy  # pyright: ignore[reportPrivateUsage]  # what runs without a sandbox gets
from openmanus_graph.backends.sandbox.ssh import Mirror
from openmanus_graph.backends.sandbox.ssh_link import SshLink
from openmanus_graph.backends.snapshots.objects import SnapshotStore
from openmanus_graph.backends.snapshots.restore import restore_snapshot
from openmanus_graph.backends.snapshots.take import Extent, Index, take_snapshot
from openmanus_graph.errors import ConfigError, ToolError
from openmanus_graph.model_calls.projection import (
    _block,  # pyright: ignore[reportPrivateUsage]  # what is sent
    _data_url,  # pyright: ignore[reportPrivateUsage]  # likewise
)
from openmanus_graph.planning.checks import file_problem
from openmanus_graph.planning.drafting import file_heads
from openmanus_graph.planning.executor_run import WrittenFiles
from openmanus_graph.planning.plan import _write_plan_file, plan_files  # pyright: ignore[reportPrivateUsage]  # called in a thread
from openmanus_graph.runtime.artifacts import files_in
from openmanus_graph.runtime.atomic_files import change_mode
from openmanus_graph.runtime.session import Session
from openmanus_graph.runtime.workspace import find, incoming_file, put_file
from openmanus_graph.safety.policy import _files_of  # pyright: ignore[reportPrivateUsage]  # what rules look at
from openmanus_graph.safety.shell_commands import read_shell_text
from openmanus_graph.state.server_settings import StorageSettings
from openmanus_graph.testing.replays import tool_runtime, tool_session
from openmanus_graph.tools.data_visualization import data_visualization
from openmanus_graph.tools.files import str_replace_editor, text_of_file
from tests.support.swapping import FOLDER, swapping

pytestmark = pytest.mark.slow

SECRET = "s3cr3t-0f-th3-h0st"
NUMBER = 918273645
"""A secret, too, where texts are not shown."""
TURNS = 120


def picture(width: int) -> bytes:
    """Make a PNG as wide as told."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head, rows = (
        struct.pack(">IIBBBBB", width, 1, 8, 0, 0, 0, 0),
        zlib.compress(b"\0" * (width + 1)),
    )
    parts = (chunk(b"IHDR", head), chunk(b"IDAT", rows), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def contents(text: str, number: int) -> dict[str, bytes]:
    chart: dict[str, Any] = {"spec": {}, "title": text, "insights": [{"id": number, "text": text}]}
    entries = [{"chartPath": f"{FOLDER}/{text}.png", "insights_id": [number]}]
    return {
        "a.txt": f"{text}\n{text}\n".encode(),
        "a.png": picture(number % 7919),
        "a.wav": text.encode(),
        "a.chart.json": json.dumps(chart).encode(),
        "list.json": json.dumps(entries).encode(),
        "plan.md": f"{text} <!-- kept up to date by openmanus plan -->".encode(),
        "a.md": f"# {text}\n\n![]({FOLDER}/a.png)\n".encode(),
        "a.csv": f"month,{text}\n1,{number}\n2,3\n".encode(),
        "run.sh": f"echo {text}".encode(),
        "a.html": text.encode(),
    }


class Place:
    """A workspace, and the host's folder beside it with files of the same names."""

    def __init__(self, tmp_path: Path) -> None:
        self.host = tmp_path / "host"
        self.host.mkdir()
        for name, data in contents(SECRET, NUMBER).items():
            (self.host / name).write_bytes(data)
            (self.host / name).chmod(0o600)  # another mode than those of the workspace
        self.host.chmod(0o711)
        (self.host / f"{SECRET}.txt").write_text("only its name is secret")
        self.session = tool_session(tmp_path / "work")
        self.root = self.session.workspace.root
        (self.root / FOLDER).mkdir()
        for name, data in contents("inside", 1).items():
            (self.root / name).write_bytes(data)
            (self.root / FOLDER / name).write_bytes(data)
        self.secrets = (SECRET, str(NUMBER), f"{NUMBER % 7919} x 1", self._encoded("a.png"))
        self.before = self.look()

    def _encoded(self, name: str) -> str:
        return base64.b64encode((self.host / name).read_bytes()).decode()[:60]

    def look(self) -> dict[str, Any]:
        return {
            one.name: (one.lstat().st_mtime_ns, one.lstat().st_ino, one.lstat().st_nlink,
                       one.lstat().st_mode, one.read_bytes())
            for one in self.host.iterdir()
        } | {"": self.host.stat().st_mode}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.session.close()


def edit(session: Session, command: str, path: str, **arguments: Any) -> str:
    args = {"command": command, "path": path, "runtime": tool_runtime(session), **arguments}
    call = {"type": "tool_call", "id": "1", "name": "str_replace_editor", "args": args}
    return str(str_replace_editor.invoke(call))


async def charts(session: Session, path: str, kind: str) -> str:
    tool = cast("StructuredTool", data_visualization)
    assert tool.coroutine is not None
    runtime = tool_runtime(session)
    arguments = {"json_path": path, "runtime": runtime, "tool_type": kind, "output_type": "png"}
    return str(await tool.coroutine(**arguments))


async def report(place: Place, turn: int) -> str:
    return await charts(place.session, f"{FOLDER}/a.md" if turn % 2 else "a.md", "report")


async def insights(place: Place, turn: int) -> str:
    listed = [{"chartPath": ("a.png", f"{FOLDER}/a.png")[turn % 2], "insights_id": [0]}]
    put_file(place.session.workspace, place.root / "mine.json", json.dumps(listed).encode())
    return await charts(place.session, "mine.json", "insight")


async def chart_list(place: Place, turn: int) -> str:
    return await charts(place.session, f"{FOLDER}/list.json", "insight")


async def chart(place: Place, turn: int) -> str:
    listed = [{"csvFilePath": f"{FOLDER}/a.csv", "chartTitle": "t"}]
    put_file(place.session.workspace, place.root / "mine.json", json.dumps(listed).encode())
    return await charts(place.session, "mine.json", "visualization")


def read(place: Place, turn: int) -> str:
    return text_of_file(place.session, (f"{FOLDER}/a.txt", "a.txt")[turn % 2], 1000).text


def view(place: Place, turn: int) -> str:
    return edit(
        place.session, "view", (f"{FOLDER}/a.txt", "a.png", FOLDER, f"{FOLDER}/a.png")[turn % 4]
    )


def change(place: Place, turn: int) -> str:
    path = (f"{FOLDER}/a.txt", "a.txt")[turn // 4 % 2]
    match turn % 4:
        case 0:
            return edit(place.session, "create", path, file_text="inside\n", overwrite=True)
        case 1:
            return edit(place.session, "str_replace", path, old_str="in", new_str="beside")
        case 2:
            return edit(place.session, "insert", path, insert_line=0, new_str="inside")
        case _:
            return edit(place.session, "undo_edit", path)


def model_media(place: Place, turn: int) -> str:
    name = (f"{FOLDER}/", "")[turn % 2]
    sound = _block(f"{name}a.wav", place.session, {"audio"}, "openai")
    return f"{sound} {_data_url(place.session, f'{name}a.png')}"


def planning(place: Place, turn: int) -> str:
    workspace, name = place.session.workspace, (f"{FOLDER}/", "")[turn % 2]
    seen = [file_heads([f"{name}a.txt", f"{name}a.csv"], workspace)]
    seen += [str(file_problem(f"{name}{one}", workspace)) for one in ("a.png", "list.json", "")]
    written = WrittenFiles(workspace)
    return " ".join([*seen, *plan_files(workspace), *written.written_files])


def plan_view(place: Place, turn: int) -> str:
    _write_plan_file(place.session.workspace, f"inside {turn}")
    return ""


def listings(place: Place, turn: int) -> str:
    workspace = place.session.workspace
    found = find(workspace, f"{FOLDER}/a.txt")
    return f"{found and found.path} {list(files_in(workspace))} {workspace_overview(workspace)}"


def policy(place: Place, turn: int) -> str:
    text = read_shell_text(f"bash {FOLDER}/run.sh; bash run.sh")
    return str(list(_files_of(text, place.root)))


def downloads(place: Place, turn: int) -> str:
    source = place.root.parent / "source"
    source.write_text("inside")
    link = place.root / "downloads"  # a folder of the workspace, and then one of the host
    with contextlib.suppress(FileExistsError):
        link.symlink_to(FOLDER)
    return keep_file(place.session.workspace, source, "a.txt")


def uploads(place: Place, turn: int) -> str:
    path = (f"{FOLDER}/a.txt", "a.txt", f"{FOLDER}/new/folder/x")[turn % 3]
    with incoming_file(place.session.workspace, path, replace=True) as file:
        file.write(b"inside")
    put_file(place.session.workspace, place.root / FOLDER / "a.csv", b"inside")
    return ""


def copies(place: Place, turn: int) -> str:
    target = place.root.parent / "copy"
    try:
        _copy(place.session.workspace, target)
        found = (one for one in target.rglob("*") if one.is_file() and not one.is_symlink())
        return "".join(f"{one.name} {one.read_bytes()!r}" for one in found)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def mirrored(place: Place, turn: int) -> str:
    sent = list[bytes]()

    class Other(SshLink):
        def __init__(self) -> None:
            pass

        def ask(self, request: dict[str, Any], body: Any = (), size: int = 0) -> dict[str, Any]:
            sent.extend(body)
            return {"now": {name: mark for name, mark, _ in request["entries"]}}

        def read(self, size: int) -> Iterator[bytes]:
            raise AssertionError

    mirror = Mirror(place.session.workspace, "there", 1 << 30)
    mirror.send(Other())
    return f"{sent} {list(mirror._same)}"  # pyright: ignore[reportPrivateUsage]  # names that were sent


def control_files(place: Place, turn: int) -> str:
    files, path = ControlFiles(place.root), place.root / (f"{FOLDER}/a.txt", "a.txt")[turn % 2]
    files.write(path, b"inside")
    files.append(path, b"inside")
    seen = files.read(path)
    files.remove(place.root / FOLDER / "a.csv")
    return str(seen)


def _read_at_once(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            return file.read()
    return b""


def snapshots(place: Place, turn: int) -> str:
    home, workspace = place.root.parent / f"home-{turn}", place.session.workspace
    home.mkdir()
    top = os.open(place.root, os.O_RDONLY)
    store, extent = SnapshotStore(home), Extent.of_snapshots(StorageSettings())
    index = take_snapshot(store, "t", workspace, extent, Index(place.root))
    held = [store.read(one.content) for _, one in store.files_in(index.snapshot)
            if one.kind == "file"]  # fmt: skip
    names = [path for path, _ in store.files_in(index.snapshot)]
    (place.root / "a.txt").unlink(missing_ok=True)
    for name in ("plan.md", "a.csv", FOLDER):
        with contextlib.suppress(OSError):
            change_mode(top, name, 0o750)
    os.close(top)
    aside = home / "aside"
    with contextlib.suppress(ConfigError):
        restore_snapshot(store, index.snapshot, workspace, extent, Index(place.root), aside)
    # A folder that was moved there is still swapped in: a pipe must not be waited for.
    kept = [_read_at_once(one) for one in aside.rglob("*") if not one.is_symlink()]
    return f"{held} {names} {kept}"


ROUTES: dict[Callable[[Place, int], Any], float] = {
    read: 3, view: 3, change: 2, model_media: 3, planning: 1, plan_view: 3, listings: 1, policy: 3,
    downloads: 2, uploads: 2, copies: 0.5, mirrored: 1, control_files: 3, report: 1, insights: 1,
    chart_list: 2,
}  # fmt: skip
"""Of each, how many times more than `TURNS` it is tried: the quick ones more often."""
SLOW: dict[Callable[[Place, int], Any], int] = {chart: 3, snapshots: 12}
"""Those with a process, or a database, each: how often they are tried."""


ENDS = ("has no insight [0]. It has: 1", f"no file {FOLDER}/inside.png")
"""Errors that the content of files of the workspace leads to."""


def _turns(route: Callable[[Place, int], Any]) -> int:
    return SLOW[route] if route in SLOW else int(ROUTES[route] * TURNS)


def _named(route: Any) -> str:
    return str(route.__name__)


@pytest.mark.parametrize("route", [*ROUTES, *SLOW], ids=_named)
async def test_nothing_leads_out(place: Place, route: Callable[[Place, int], Any]) -> None:
    await _attack(place, route, _turns(route))


@pytest.mark.exhaustive
@pytest.mark.parametrize("route", [*ROUTES, *SLOW], ids=_named)
async def test_nothing_leads_out_in_many_tries(
    place: Place, route: Callable[[Place, int], Any]
) -> None:
    await _attack(place, route, 20 * _turns(route))


async def _attack(place: Place, route: Callable[[Place, int], Any], turns: int) -> None:
    worked = 0
    with swapping(place.root, place.host, *contents("", 0)):
        for turn in range(20 * turns):
            if turn >= turns and worked:
                break
            try:
                seen = route(place, turn)
                seen = seen if isinstance(seen, str) else await seen
                worked += 1
            except (ToolError, OSError, ConfigError) as error:
                seen = str(error)
                worked += any(end in seen for end in ENDS)
            for secret in place.secrets:
                assert secret not in seen
    assert place.look() == place.before
    for one in place.root.rglob("*"):
        if one.is_file() and not one.is_symlink():
            assert not any(secret.encode() in one.read_bytes() for secret in place.secrets)
    assert worked, "it never came to anything"
