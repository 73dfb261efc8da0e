"""`openmanus memory`, and what a person changes of what an agent remembers."""

import json

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

NOTE = "/memories/user/style.md"


def test_a_person_lists_shows_edits_and_deletes_notes(cli: Cli, model: OpenAIServer) -> None:
    empty = cli.run("memory", "list")
    assert (empty.code, empty.stdout) == (0, "")
    assert "no notes" in empty.stderr
    cli.write("openmanus.toml", "tools = ['+memory']\n")
    made = {"command": "create", "path": NOTE, "file_text": "Short answers."}
    read = Call("bash", {"command": "echo foreign"})
    model.add(Reply(calls=(read,)), Reply(calls=(Call("memory", made),)), Reply("noted"))
    assert cli.run("run", "remember that").code == 0
    assert f"{NOTE}  (written after untrusted content was read)" in cli.run("memory", "list").stdout
    (row,) = map(json.loads, cli.run("memory", "list", "--json").stdout.splitlines())
    assert (row["path"], row["characters"], row["untrusted"]) == (NOTE, 14, True)
    shown = cli.run("memory", "show", NOTE)
    assert shown.stdout == "Short answers.\n"
    assert "untrusted content" in shown.stderr

    assert cli.run("memory", "edit", NOTE, "--text", "Long answers.").code == 0
    assert json.loads(cli.run("memory", "show", NOTE, "--json").stdout)["untrusted"] is True
    assert cli.run("memory", "edit", NOTE, "--trusted").code == 0
    changed = json.loads(cli.run("memory", "show", NOTE, "--json").stdout)
    assert (changed["text"], changed["untrusted"]) == ("Long answers.", False)
    assert cli.run("memory", "edit", "/memories/new.md", "--text", "-", stdin="Mine.").code == 0
    assert "needs a terminal" in cli.run("memory", "edit", "/memories/new.md").stderr
    assert cli.run("memory", "edit", "/memories/none.md", "--trusted").code == 1
    assert cli.run("memory", "show", "/memories/new.md").stdout == "Mine.\n"

    assert cli.run("memory", "delete", NOTE).code == 0
    gone = cli.run("memory", "show", NOTE)
    assert (gone.code, gone.stdout) == (1, "")
    assert f"There is no note {NOTE}." in gone.stderr
    refused = cli.run("memory", "edit", "/etc/passwd", "--text", "x")
    assert refused.code == 2
    assert "is not a path of a note" in refused.stderr
