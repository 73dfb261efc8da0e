"""`openmanus library`: documents are added, found, shown to agents, and survive what goes wrong."""

import json
import tempfile

import pytest

from tests.support.cli import Cli, no_input, until
from tests.support.disk import small_disk
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


def test_documents_are_added_found_listed_and_removed(cli: Cli) -> None:
    cli.write("docs/lease.md", "# Lease\n\n## Deposit\n\nThe deposit is 2,500 EUR.\n")
    cli.write("docs/leave.txt", "Thirty days of holiday.")
    cli.write("docs/photo.png", b"\x89PNG\r\n\x1a\n" + bytes(100))
    empty = cli.run("library", "list")
    assert (empty.code, empty.stdout) == (0, "")
    assert "openmanus library add PATH" in empty.stderr
    done = cli.run("library", "add", "docs", "--library", "work")
    assert done.code == 0
    assert "photo.png: Skipped. It is a PNG picture." in done.stderr
    assert done.stderr.endswith("work: 2 added, 0 changed, 0 unchanged, 0 removed, 1 skipped.\n")
    assert cli.run("library", "list").stdout == "work  2\n"
    found = cli.run("library", "search", "deposits")
    path = cli.cwd / "docs" / "lease.md"
    assert found.stdout == f"{path}, lines 1-5 (lease > Lease)\n    ## Deposit\n"
    (hit,) = map(json.loads, cli.run("library", "search", "holidays", "--json").stdout.splitlines())
    assert (hit["place"], hit["mine"], hit["also"]) == ("line 1", False, [])
    assert cli.run("library", "search", "nothing").code == 1
    assert cli.run("library", "search", "?!").code == 2
    assert cli.run("library", "list", "--library", "none").code == 2
    assert cli.run("library", "remove", "docs").code == 2
    assert cli.run("library", "remove", "docs/leave.txt", "--library", "work").code == 0
    (left,) = map(
        json.loads, cli.run("library", "list", "--library", "work", "--json").stdout.splitlines()
    )
    assert left == {"source": str(path), "mine": False}
    assert cli.run("library", "remove", "--all", "--library", "work").code == 0
    assert cli.run("library", "list").stdout == ""
    assert path.exists()
    assert cli.run("library", "add", "docs/photo.png").code == 1
    assert cli.run("library", "add", "none").code == 2


def test_a_run_with_a_library_finds_its_passages(cli: Cli, model: OpenAIServer) -> None:
    cli.write("docs/lease.md", "The deposit is 2,500 EUR.\n")
    assert cli.run("library", "add", "docs", "--library", "work", "--mine").code == 0
    search = Reply(calls=(Call("search_library", {"query": "deposit"}),))
    model.add(search, Reply("2,500 EUR."))
    assert cli.run("run", "What is the deposit?", "--library", "work").stdout == "2,500 EUR.\n"
    shown = model.requests[1].messages[-1]["content"]
    assert shown == f"1. {cli.cwd}/docs/lease.md, line 1 (lease)\nThe deposit is 2,500 EUR."
    model.add(search, Reply("2,500 EUR."))
    assert cli.run("run", "And the deposit?", "--agent", "research").stdout == "2,500 EUR.\n"


def test_a_workspace_has_a_library_of_its_own(cli: Cli, model: OpenAIServer) -> None:
    cli.write("docs/lease.md", "The deposit is 2,500 EUR.\n")
    assert cli.run("library", "add", "docs", "--workspace", "files").code == 0
    assert (cli.workspace / ".openmanus" / "openmanus-library.db").exists()
    assert cli.run("library", "list").stdout == ""
    model.add(Reply(calls=(Call("search_library", {"query": "deposit"}),)), Reply("2,500 EUR."))
    cli.run("run", "The deposit?", "--agent", "research", "--workspace", "files")
    assert "The deposit is 2,500 EUR." in model.requests[1].messages[-1]["content"]
    (cli.workspace / ".openmanus" / "home-id").write_text("0" * 32)
    assert cli.run("library", "list", "--workspace", "files").code == 2


def test_a_library_of_a_user_needs_one(cli: Cli) -> None:
    cli.write("docs/a.txt", "text")
    refused = cli.run("library", "add", "docs", "--user", "ada")
    assert (refused.code, "There is no user 'ada'" in refused.stderr) == (2, True)
    assert cli.run("users", "add", "ada").code == 0
    assert cli.run("library", "add", "docs", "--user", "ada").code == 0
    assert cli.run("library", "list").stdout == ""
    assert cli.run("library", "list", "--user", "ada").stdout == "default  1\n"


def counted(cli: Cli) -> int:
    rows = cli.run("library", "list", "--json").stdout.splitlines()
    return json.loads(rows[0])["documents"] if rows else 0


@pytest.mark.slow
def test_an_addition_that_is_killed_continues(cli: Cli) -> None:
    for number in range(3000):
        cli.write(f"docs/{number}.txt", f"Needle {number}. {'word ' * 300}")
    with no_input() as nothing, tempfile.TemporaryFile() as out:
        first = cli.launch(("library", "add", "docs"), nothing, out, out)
        until(lambda: counted(cli) > 0)
        first.kill()
        first.wait()
    before = counted(cli)
    assert 0 < before < 3000
    assert cli.run("library", "search", "needle").code == 0
    done = cli.run("library", "add", "docs")
    assert f"{3000 - before} added, 0 changed, {before} unchanged" in done.stderr
    assert "/2999.txt, line 1" in cli.run("library", "search", "2999").stdout


@pytest.mark.slow
def test_on_a_full_disk_an_addition_ends_and_the_library_is_whole(cli: Cli) -> None:
    cli.write("docs/a.txt", "The needle is here.")
    with small_disk(cli.home) as disk:
        assert cli.run("library", "add", "docs").code == 0
        for number in range(2000):
            cli.write(
                f"docs/{number}.txt", f"{number} {' '.join(map(str, range(number, number + 500)))}"
            )
        full = cli.run("library", "add", "docs", wrapper=disk.wrapper)
        assert full.code == 1
        assert "full" in full.stderr
        assert "needle is here" in cli.run("library", "search", "needle").stdout
