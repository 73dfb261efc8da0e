"""`threads prune`, `storage`, `backup`, `restore`, and what a run takes on the disk."""

import json
import signal
import sqlite3
import threading
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from openmanus_graph.backends.persistence.backend import VERSIONS
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.sqlite import SqliteDatabase, copy_databases
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.interfaces.service.backup import FORMAT
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.cli import Cli, until
from tests.support.disk import small_disk
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import Postgres

pytestmark = pytest.mark.slow

STEPS = 5
MOST_BYTES_OF_A_RUN = 100_000
SLOW = "touch begun; until [ -e go ]; do sleep 0.02; done"
MANIFEST = "openmanus-backup.json"


def shell(command: str) -> Call:
    return Call("bash", {"command": command})


def threads_of(cli: Cli) -> Threads:
    return Threads(open_database(DatabaseUrl.in_folder(cli.home)))


def grow_old(cli: Cli) -> None:
    database = open_database(DatabaseUrl.in_folder(cli.home))
    database.run("UPDATE threads SET updated = datetime('now', '-40 days')")


def stored_bytes(cli: Cli) -> int:
    return sum(path.lstat().st_size for path in cli.home.rglob("*") if path.is_file())


def test_a_run_of_five_steps_takes_less_than_100_kb_beside_its_files(
    cli: Cli, model: OpenAIServer
) -> None:
    for number in range(19):
        model.add(Reply("done"))
        assert cli.run("run", "say something", "--thread", f"short{number}").code == 0
    sizes: list[int] = []
    for number in range(4):  # the first one makes the file of snapshots
        for step in range(STEPS):
            command = f"seq {step} 40; touch made{step}"
            model.add(Reply("I look at the folder and continue.", calls=(shell(command),)))
        model.add(Reply("All of it is done, as the files show."))
        task = "Look at the folder, make five files, and report what you saw."
        assert cli.run("run", task, "--thread", f"long{number}").code == 0
        sizes.append(stored_bytes(cli))
    taken = [after - before for before, after in zip(sizes, sizes[1:], strict=False)]
    assert max(taken) < MOST_BYTES_OF_A_RUN, taken


def test_old_threads_are_pruned_and_it_is_said_what_that_freed(
    cli: Cli, model: OpenAIServer
) -> None:
    model.add(Reply(calls=(shell("echo x > made"),)), Reply("done"), Reply("done"))
    for thread in ("old", "new"):
        if thread == "new":
            grow_old(cli)
        assert cli.run("run", "do it", "--thread", thread).code == 0
    refused = cli.run("threads", "prune")
    assert (refused.code, "kept forever" in refused.stderr) == (2, True)
    assert "Write it like" in cli.run("threads", "prune", "--older-than", "soon").stderr
    dry = cli.run("threads", "prune", "--older-than", "30d", "--dry-run")
    assert (dry.code, dry.stdout) == (0, "old\n")
    assert dry.stderr.startswith("Would delete 1 thread: 0.")
    assert len(cli.run("threads").stdout.splitlines()) == 3
    kept = '[storage]\nkeep = {finished = "30d"}\n'
    cli.write("openmanus.toml", kept)
    assert "kept forever" in cli.run("threads", "prune").stderr, "the folder is not trusted"
    cli.write("../config/openmanus/config.toml", kept)
    done = cli.run("threads", "prune")
    assert (done.code, done.stdout) == (0, "old\n"), done.stderr
    assert done.stderr.startswith("Deleted 1 thread: 0.")
    assert (cli.cwd / "workspace" / "old").exists() is False
    assert [
        json.loads(line)["id"] for line in cli.run("threads", "--json").stdout.splitlines()
    ] == ["new"]
    assert cli.run("threads", "--delete", "new").code == 0


def test_storage_says_where_the_megabytes_are(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(shell("head -c 300000 /dev/zero > made; seq 9999"),)), Reply("done"))
    model.add(Reply("done"))
    for thread in ("large", "small"):
        assert cli.run("run", "do it", "--thread", thread).code == 0
    shown, as_json = cli.run_all(["storage"], ["storage", "--json"])
    found = json.loads(as_json.stdout)
    assert found["bytes"]["workspaces"] == 300_000
    assert found["bytes"]["snapshots"] >= 300_000
    assert found["bytes"]["private folders"] >= 40_000  # the whole output of seq
    for kind in ("checkpoints", "recordings", "ledger", "threads"):
        assert found["bytes"][kind] > 0
    assert [one["id"] for one in found["largest"]] == ["large", "small"]
    assert "0.3 MB  workspaces\n" in shown.stdout
    assert shown.stdout.splitlines()[-2].endswith("MB  large")


def test_a_backup_of_a_run_at_work_is_resumed_elsewhere_without_a_repeated_call(
    cli: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    model.add(Reply(calls=(shell("echo one >> log; seq 9999"),)), Reply(calls=(shell(SLOW),)))
    model.add(Reply("Both were done."))
    (cli.home / "server-token").parent.mkdir(parents=True)
    (cli.home / "server-token").write_text("a-token-of-the-server")
    running = cli.start("run", "do it", "--thread", "t", "--workspace", "files")
    until((cli.workspace / "begun").exists)
    done, again = (cli.run("backup", "all.zip") for _ in range(2))
    assert (done.code, again.code) == (0, 2), done.stderr
    assert "exists" in again.stderr
    assert not [path for path in cli.cwd.iterdir() if path.name.startswith(".all")]
    running.signal(signal.SIGKILL)
    running.finish()
    (cli.workspace / "go").touch()

    other = tmp_path / "other"
    restored = cli.run("restore", "all.zip", "--to", str(other))
    assert (restored.code, (other / "server-token").exists()) == (0, False), restored.stderr
    refused = cli.run("restore", "all.zip", "--to", str(other))
    assert (refused.code, "is not empty" in refused.stderr) == (2, True)
    elsewhere = {"OPENMANUS_HOME": str(other)}
    cli.home.rename(tmp_path / "lost")
    resumed = cli.run("resume", "t", "--json", env=elsewhere)
    assert (resumed.code, resumed.final["answer"]) == (0, "Both were done."), resumed.stderr
    assert (cli.workspace / "log").read_text() == "one\n"
    outputs = (other / "threads" / "t" / "former_outputs").read_text()
    assert outputs == f"{cli.home}/threads/t/outputs\n"
    assert cli.run("threads", env=elsewhere).stdout.splitlines()[1].split()[:2] == ["t", "finished"]


def test_keys_are_in_a_backup_only_if_asked_for(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("done"))
    assert cli.run("run", "do it", "--thread", "t").code == 0
    private = cli.home / "threads" / "t"
    (cli.home / "server-token").write_text("a-token-of-the-server")
    (private / "browser").mkdir()
    (private / "browser" / "state.json").write_text("a-cookie")
    (private / "outputs" / "link").symlink_to(private / "browser" / "state.json")
    assert cli.run("backup", "without.zip").code == 0
    assert cli.run("backup", "with.zip", "--with-keys").code == 0
    names = [set(zipfile.ZipFile(cli.cwd / f"{one}.zip").namelist()) for one in ("without", "with")]
    assert names[1] - names[0] == {
        "keys/server-token",
        "keys/options-key.json",
        "private/0/threads/t/browser/state.json",
    }
    assert "private/0/threads/t/outputs/link" not in names[1]
    assert (cli.cwd / "with.zip").stat().st_mode & 0o777 == 0o600
    assert cli.run("restore", "with.zip", "--to", "other").code == 0
    assert (cli.cwd / "other" / "server-token").read_text() == "a-token-of-the-server"


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (MANIFEST, json.dumps({"format": FORMAT + 1, "places": []}), "later version"),
        (MANIFEST, "{}", "is no backup"),
        ("../outside", "x", "is no backup"),
        ("/etc/outside", "x", "is no backup"),
        ("private/0/../../outside", "x", "is no backup"),
        ("private/9/x", "x", "is no backup"),
        ("openmanus.db", "no database", "damaged"),
        ("openmanus.db", "", "later version"),
    ],
)
def test_a_file_that_is_no_backup_or_too_new_is_refused(
    cli: Cli, tmp_path: Path, name: str, content: str, words: str
) -> None:
    if not content:
        newer = (*VERSIONS, ("CREATE TABLE newer (a TEXT)",))
        SqliteDatabase(tmp_path / "newer.db", newer).close()
    with zipfile.ZipFile(tmp_path / "bad.zip", "w") as archive:
        if name != MANIFEST:
            places = [str(cli.home), str(cli.root / "state")]
            archive.writestr(MANIFEST, json.dumps({"format": FORMAT, "places": places}))
        archive.writestr(name, content or (tmp_path / "newer.db").read_bytes())
    done = cli.run("restore", str(tmp_path / "bad.zip"), "--to", "new")
    assert (done.code, words in done.stderr) != (0, False), done.stderr
    assert words in done.stderr
    assert not list(cli.root.rglob("outside"))
    assert not (cli.cwd / "new").exists()
    assert not list(cli.cwd.glob(".new*"))


def test_postgresql_has_its_own_way(cli: Cli, postgres: Postgres) -> None:
    done = cli.run("backup", "all.zip", "--database-url", postgres.database())
    assert (done.code, "pg_dump" in done.stderr) == (2, True)
    assert cli.run("backup", "all.zip").code == 2, "there are no threads"


def test_no_backup_is_left_on_a_full_disk(cli: Cli, model: OpenAIServer, tmp_path: Path) -> None:
    model.add(Reply("done"))
    assert cli.run("run", "do it", "--thread", "t").code == 0
    with small_disk(tmp_path / "disk") as disk:
        disk.fill()
        file = str(disk.folder / "all.zip")
        done = cli.run("backup", file, wrapper=disk.wrapper)
        assert done.code == 1
        assert "Make room" in done.stderr
        assert not list(disk.folder.glob("*all.zip*"))


def test_no_checkpoint_of_a_backup_is_ahead_of_its_ledger(tmp_path: Path) -> None:
    """A run writes a call's outcome, then the checkpoint with it, while copies are made."""
    versions = (("CREATE TABLE rows (number INTEGER)",),)
    files = {name: (tmp_path / name, versions) for name in ("checkpoints.db", "openmanus.db")}
    checkpoints, ledger = (SqliteDatabase(*file) for file in files.values())
    ended = threading.Event()

    def write() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            for database in (ledger, checkpoints):
                database.run("INSERT INTO rows VALUES (?)", (number,))

    writer = threading.Thread(target=write)
    writer.start()
    newest: list[int] = []
    for number in range(40):
        folder = tmp_path / str(number)
        folder.mkdir()
        copy_databases(files, folder)
        for name in files:
            with closing(sqlite3.connect(folder / name)) as copy:
                newest += copy.execute("SELECT coalesce(max(number), 0) FROM rows").fetchone()
    ended.set()
    writer.join()
    for database in (ledger, checkpoints):
        database.close()
    assert newest[-1] > newest[0], "the copies were made while rows were written"
    pairs = list(zip(newest[::2], newest[1::2], strict=True))
    assert all(before <= after for before, after in pairs), pairs
