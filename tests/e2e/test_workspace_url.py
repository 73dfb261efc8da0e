"""Two machines - two homes, two folders - with one PostgreSQL: a thread's files go with it."""

import asyncio
import contextlib
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import s3fs

from openmanus_graph.backends.snapshots.objects import PIECE, MissingObjectError
from openmanus_graph.backends.snapshots.remote_objects import (
    ASKED_ONE_BY_ONE,
    AT_ONCE,
    RemoteObjects,
)
from openmanus_graph.backends.snapshots.restore import restore_snapshot
from openmanus_graph.backends.snapshots.take import Extent, Index, take_snapshot
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE, WORKSPACE_URL_VARIABLE
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.state.addresses import DatabaseUrl, WorkspaceUrl
from tests.support.cli import Cli, Result, until
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.postgres import Postgres, lease_is_over, rows_of
from tests.support.s3 import BUCKET, S3
from tests.support.sampling import sampled
from tests.support.serving import Served, new_page
from tests.support.zygote import Zygote

WORK = "touch begun; until test -e go; do sleep 0.05; done; echo over >> log"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with S3.running() as server:
        yield server


@pytest.fixture
def other(cli: Cli, tmp_path: Path, zygote: Zygote, postgres: Postgres) -> Iterator[Cli]:
    """Another machine, with the same model and database."""
    cli.env[DATABASE_VARIABLE] = postgres.database()
    found = Cli(tmp_path / "other", zygote=zygote)
    names = ("OPENMANUS_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", DATABASE_VARIABLE)
    found.env |= {name: cli.env[name] for name in names}
    yield found
    found.close()


@pytest.fixture(params=["file", "s3"])
def shared(request: pytest.FixtureRequest, cli: Cli, other: Cli, tmp_path: Path, s3: S3) -> str:
    """A place that both share."""
    name = tmp_path.name.replace("_", "-")
    url = f"file://{tmp_path}/shared" if request.param == "file" else f"s3://{BUCKET}/{name}"
    for one in (cli, other):
        one.env |= {WORKSPACE_URL_VARIABLE: url, **s3.env}
    return url


S3_FIRST = pytest.mark.parametrize(
    "shared", ["s3", pytest.param("file", marks=pytest.mark.exhaustive)], indirect=True
)
"""A folder differs from a bucket in little, and `test_files_go_with_their_thread` has both."""


def bash(command: str) -> Reply:
    return Reply(calls=(Call("bash", {"command": command}),))


def files_of(cli: Cli, thread: str = "t") -> dict[str, str]:
    root = cli.cwd / "workspace" / thread
    return {
        str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()
    }


def notices(result: Result) -> list[str]:
    return [event["text"] for event in result.of("notice")]


def watched(
    monkeypatch: pytest.MonkeyPatch, name: str, asked: Counter[str], most: Counter[str]
) -> None:
    """Count the requests of one kind to S3, and how many there are at a time at most."""
    whole, begun = getattr(s3fs.S3FileSystem, name), Counter[str]()

    async def request(files: Any, *args: Any, **options: Any) -> Any:
        asked[name] += 1
        begun[name] += 1
        most[name] = max(most[name], begun[name])
        try:
            return await whole(files, *args, **options)
        finally:
            begun[name] -= 1

    monkeypatch.setattr(s3fs.S3FileSystem, name, request)


def many_objects(thread: str = "t") -> RemoteObjects:
    database = DatabaseUrl.of_file(Path("threads.db"))
    return RemoteObjects(WorkspaceUrl.parse(f"s3://{BUCKET}/many"), thread, database)


def put_many(count: int) -> list[str]:
    digests: list[str] = []
    store = many_objects()
    for start in range(0, count, 20):  # as a folder after the other is read
        with store.adding() as new:
            digests += [new.add(b"%d" % number) for number in range(start, start + 20)]
    return digests


def test_many_objects_of_s3_are_written_and_read_several_at_a_time(
    s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    asked, most = Counter[str](), Counter[str]()
    for name in ("_pipe_file", "_cat_file", "_exists"):
        watched(monkeypatch, name, asked, most)
    digests = put_many(40)
    assert (asked["_pipe_file"], most["_pipe_file"]) == (40, AT_ONCE)
    put_many(60)
    assert asked["_pipe_file"] == 60, "what is there is not written again"
    assert asked["_exists"] <= 2 * (ASKED_ONE_BY_ONE + 1)
    store = many_objects()
    folder = f"{BUCKET}/many/t"
    s3.files().rm(f"{folder}/{digests[3][:2]}/{digests[3]}")
    s3.files().pipe_file(f"{folder}/{digests[5][:2]}/{digests[5]}", b"damaged")
    store.read_ahead(digests)
    for number, digest in enumerate(digests):
        if number in (3, 5):
            with pytest.raises(MissingObjectError):
                store.read(digest)
        else:
            assert store.read(digest) == b"%d" % number
    assert (asked["_cat_file"], most["_cat_file"]) == (40, AT_ONCE)


def test_a_folder_is_fetched_from_s3_by_one_request_for_each_object(
    s3: S3, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in s3.env.items():
        monkeypatch.setenv(name, value)
    folders = [Workspace(tmp_path / name, tmp_path / f"{name} private") for name in ("a", "b")]
    for folder in folders:
        folder.root.mkdir()
    for number in range(100):
        folders[0].root.joinpath(f"{number}.txt").write_text(str(number))
    folders[0].root.joinpath("empty").touch()
    folders[0].root.joinpath("big").write_bytes(b"".join(bytes([n]) * PIECE for n in (1, 2, 3)))
    extent, nothing = Extent(10 * PIECE, ()), Index(tmp_path)
    taken = take_snapshot(many_objects("u"), "u", folders[0], extent, nothing)
    asked = Counter[str]()
    watched(monkeypatch, "_cat_file", asked, Counter())
    done = restore_snapshot(
        many_objects("u"), taken.snapshot, folders[1], extent, nothing, tmp_path / "aside"
    )
    assert (len(done.written), done.missing) == (102, {})
    assert (folders[1].root / "big").read_bytes() == (folders[0].root / "big").read_bytes()
    assert (folders[1].root / "99.txt").read_text() == "99"
    assert asked["_cat_file"] == 2 + 100 + 1 + 3, "the folder is read twice"


def test_files_go_with_their_thread_there_and_back(
    cli: Cli, other: Cli, model: OpenAIServer, shared: str
) -> None:
    model.add(bash("mkdir -p d .git; echo 1 > d/a; echo x > gone; ln -s d/a l; echo g > .git/HEAD"))
    model.add(Reply("Done."))
    (cli.cwd / "given.txt").write_text("given")
    assert cli.run("run", "go", "--thread", "t", "--file", "given.txt").code == 0
    model.add(bash("cat l; rm gone; echo 2 >> d/a; chmod 700 d/a"), Reply("Done."))
    (other.cwd / "more.txt").write_text("more")
    done = other.run("run", "more", "--thread", "t", "--file", "more.txt", "--json")
    assert done.code == 0, done.stderr
    assert any(shared in text for text in notices(done))
    expected = {
        "d/a": "1\n2\n", "l": "1\n2\n", ".git/HEAD": "g\n", "given.txt": "given",
        "more.txt": "more",
    }  # fmt: skip
    assert files_of(other) == expected
    assert (other.cwd / "workspace" / "t" / "l").is_symlink()
    model.add(bash("ls"), Reply("Done."))
    assert cli.run("run", "again", "--thread", "t").code == 0
    assert files_of(cli) == expected
    assert (cli.cwd / "workspace" / "t" / "d" / "a").stat().st_mode & 0o777 == 0o700


@S3_FIRST
def test_a_worker_that_is_killed_leaves_its_files_to_the_next(
    cli: Cli, other: Cli, model: OpenAIServer, shared: str
) -> None:
    model.add(bash("echo first > log; seq 100000"), bash(WORK), bash("cat log"), Reply("Done."))
    killed = cli.start("run", "go", "--thread", "t")
    until((cli.cwd / "workspace" / "t" / "begun").exists)
    for process in killed.family():
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended with the one before
            process.kill()
    killed.finish()
    done = other.run("resume", "t", "--json")
    assert done.code == 0, done.stderr
    assert files_of(other) == {"log": "first\n"}, "the call that was cut off put nothing back"
    tools = [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"]
    assert "cut off" in tools[1]
    named = next(word for word in tools[0].split('"') if word.startswith(str(cli.home)))
    assert Path(named).exists()
    Path(named).unlink()
    model.add(Reply(calls=(Call("read_file", {"path": named}),)), Reply("Done."))
    assert other.run("run", "read", "--thread", "t").code == 0
    tool = [m for m in model.requests[-1].messages if m["role"] == "tool"][-1]
    assert "99" in tool["content"]
    assert "no such" not in tool["content"].lower()


def objects_in(url: str, s3: S3) -> list[str]:
    """List what a place holds."""
    path = url.partition("://")[2]
    if url.startswith("file"):
        return sorted(str(one) for one in Path(path).rglob("*") if one.is_file())
    return sorted(s3.files().find(path))


def test_a_paused_worker_that_goes_on_after_its_lease_adds_nothing_to_the_store(
    cli: Cli, other: Cli, model: OpenAIServer, shared: str, s3: S3
) -> None:
    cli.env["OPENMANUS_LEASE_S"] = other.env["OPENMANUS_LEASE_S"] = "1"
    model.add(bash("echo first > log"), bash(WORK), bash("cat log"), Reply("Done."))
    paused = cli.start("run", "go", "--thread", "t")
    until((cli.cwd / "workspace" / "t" / "begun").exists)
    paused.signal(signal.SIGSTOP)
    until(lambda: lease_is_over(cli.env[DATABASE_VARIABLE]))
    done = other.run("resume", "t", "--json")
    assert (done.code, done.final["answer"]) == (0, "Done."), done.stderr
    before, rows = objects_in(shared, s3), rows_of(cli.env[DATABASE_VARIABLE])
    assert before
    (cli.cwd / "workspace" / "t" / "late.txt").write_text("nobody names this")
    (cli.cwd / "workspace" / "t" / "go").touch()
    paused.signal(signal.SIGCONT)
    ended = paused.finish()
    assert (ended.code, "may have taken over thread" in ended.final["answer"]) == (1, True)
    assert objects_in(shared, s3) == before
    assert rows_of(cli.env[DATABASE_VARIABLE]) == rows


@S3_FIRST
async def test_a_servers_runs_take_their_files_along(
    cli: Cli, other: Cli, model: OpenAIServer, shared: str, zygote: Zygote
) -> None:
    names = ("OPENMANUS_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY", DATABASE_VARIABLE)
    env = {name: cli.env[name] for name in (*names, WORKSPACE_URL_VARIABLE)}
    env |= {name: value for name, value in cli.env.items() if name.startswith("AWS_")}
    model.add(bash("echo 1 > a"), Reply("Done."), bash("cat a"), Reply("Done."))
    with Served(cli.root / "served", env, zygote=zygote) as served:
        async with new_page(served) as page:
            await page.ask(agent="manus", message="Go.")
            assert (await page.final())["status"] == "finished"
            thread = page.thread
            done = await asyncio.to_thread(other.run, "run", "more", "--thread", thread)
            assert done.code == 0, done.stderr
            assert files_of(other, thread) == {"a": "1\n"}
            model.add(bash("echo 2 > b"), Reply("Done."), bash("cat a b"), Reply("Done."))
            await asyncio.to_thread(other.run, "run", "again", "--thread", thread)
            await page.ask(message="Go on.")
            assert (await page.final())["status"] == "finished"
    tools = [m["content"] for m in model.requests[-1].messages if m["role"] == "tool"]
    assert "1\n2" in tools[-1]


def test_without_an_address_a_thread_stays_with_its_files(
    cli: Cli, other: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    model.add(Reply("Hello."), Reply("Hello again."))
    assert cli.run("run", "hi", "--thread", "talk").code == 0
    assert other.run("run", "hi", "--thread", "talk").code == 0, "it has no files"
    model.add(bash("echo 1 > a"), Reply("Done."))
    assert cli.run("run", "go", "--thread", "t", "--workspace", "files").code == 0
    here = ("--workspace", "elsewhere")
    refused = other.run("run", "more", "--thread", "t", *here, "--json")
    assert refused.code == 2
    assert f"The files of thread t are in {cli.workspace} on " in refused.stderr
    assert "set [storage] workspace_url" in refused.stderr
    address = ("--workspace-url", str(tmp_path / "shared"))
    model.add(Reply("Put."), Reply("Fetched."))
    assert cli.run("run", "put", "--thread", "t", *address).code == 0
    done = other.run("run", "fetch", "--thread", "t", *here, *address)
    assert done.code == 0, done.stderr
    assert (other.cwd / "elsewhere" / "a").read_text() == "1\n"
    gone = tmp_path / "shared" / "t"
    assert gone.exists()
    assert other.run("threads", "--delete", "t", *address).code == 0
    assert not gone.exists()


def test_files_that_could_not_be_put_back_are_not_passed_over(
    cli: Cli, other: Cli, model: OpenAIServer, tmp_path: Path
) -> None:
    for one in (cli, other):
        one.env[WORKSPACE_URL_VARIABLE] = str(tmp_path / "shared")
    model.add(bash("echo 1 >> a"), bash(WORK), Reply("Done."))
    running = cli.start("run", "go", "--thread", "t")
    until((cli.cwd / "workspace" / "t" / "begun").exists)
    kept = (tmp_path / "shared").rename(tmp_path / "kept")
    (tmp_path / "shared").write_text("no folder")
    (cli.cwd / "workspace" / "t" / "go").touch()
    failed = running.finish()
    assert failed.code == 1
    assert f"files in file://{tmp_path}/shared cannot be written" in failed.final["answer"]
    (tmp_path / "shared").unlink()
    kept.rename(tmp_path / "shared")
    refused = other.run("resume", "t", "--json")
    assert refused.code == 2
    assert "Resume it there first" in refused.stderr
    assert cli.run("resume", "t").code == 0
    model.add(Reply("More."))
    assert other.run("run", "more", "--thread", "t").code == 0
    assert files_of(other) == {"a": "1\n", "log": "over\n", "begun": "", "go": ""}


def test_an_s3_that_refuses_ends_the_run_before_it_works(
    cli: Cli, other: Cli, model: OpenAIServer, s3: S3
) -> None:
    cli.env |= {WORKSPACE_URL_VARIABLE: f"s3://{BUCKET}/refused", **s3.env}
    for changed, why in (
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:1"}, "Could not connect"),
        ({WORKSPACE_URL_VARIABLE: "s3://no-such-bucket"}, "does not exist"),
    ):
        done = cli.run("run", "go", "--thread", "t", "--json", env=changed)
        assert done.code == 1, done.stderr
        assert "cannot be written" in done.final["answer"]
        assert why in done.final["answer"]
    assert model.requests == []
    model.add(Reply("Done."))
    assert cli.run("resume", "t").code == 0


@pytest.mark.parametrize("shared", sampled(["file", "s3"], 1, "quota"), indirect=True)
def test_what_is_above_the_quota_is_left_out_and_named(
    cli: Cli, other: Cli, model: OpenAIServer, shared: str
) -> None:
    model.add(bash("truncate -s 2G sparse; echo 1 > a"), Reply("Done."))
    done = cli.run("run", "go", "--thread", "t", "--json")
    reported = f"Not kept in {shared}: sparse, more than [storage] workspace_max_mb."
    assert sum(reported in text for text in notices(done)) == 1
    model.add(Reply("Done."))
    done = other.run("run", "more", "--thread", "t", "--json")
    assert any("Not restored: sparse" in text for text in notices(done))
    assert files_of(other) == {"a": "1\n"}


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ftp://host/x", "not an address"),
        ("s3://KEY:hunter2@bucket", "the environment"),
        ("s3://", "not an address"),
    ],
)
def test_a_wrong_address_is_said_in_one_line(
    cli: Cli, model: OpenAIServer, address: str, said: str
) -> None:
    done = cli.run("run", "go", "--workspace-url", address)
    assert (done.code, said in done.stderr, "hunter2" in done.stderr) == (2, True, False)
