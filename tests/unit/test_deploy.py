"""The files in deploy/: complete, valid, and the same as the page says."""

import importlib.util
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import yaml

from openmanus_graph.graphs.catalog import agent_names, is_ours
from openmanus_graph.interfaces.server.aegra import SharedGraph
from tests.support.aegra import page_command

ROOT = Path(__file__).parent.parent.parent
DEPLOY = ROOT / "deploy"
CONFIG = json.loads((DEPLOY / "aegra.json").read_text())
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def instruction(name: str) -> list[str]:
    """Return what follows an instruction of the Dockerfile, each time that it stands there."""
    joined = DOCKERFILE.replace("\\\n", " ")
    return re.findall(rf"^{name} (.*)$", joined, re.MULTILINE)


def test_aegra_serves_every_agent_of_ours_by_a_file() -> None:
    assert set(CONFIG["graphs"]) == {name for name in agent_names() if is_ours(name)}
    spec = importlib.util.spec_from_file_location("deployed", DEPLOY / "graphs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, place in CONFIG["graphs"].items():
        file, _, variable = place.partition(":")
        assert (DEPLOY / file).samefile(DEPLOY / "graphs.py")
        graph = getattr(module, variable)
        assert isinstance(graph, SharedGraph)
        assert (graph.config or {}).get("metadata") == {"graph_id": name}


def test_langgraph_and_aegra_have_the_same_agents() -> None:
    theirs = json.loads((ROOT / "langgraph.json").read_text())["graphs"]
    assert set(theirs) == set(CONFIG["graphs"])


def test_compose_accepts_its_file() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    subprocess.run([*command, str(DEPLOY / "compose.yaml")], check=True, capture_output=True)


def test_the_container_starts_what_the_page_says() -> None:
    (command,) = instruction("CMD")
    started = json.loads(command)
    page = shlex.split(page_command("start"))[1:]
    address = {"--host", "0.0.0.0", "127.0.0.1", "--port", "2026", "$PORT"}
    words = [[Path(word).name for word in line if word not in address] for line in (started, page)]
    assert words[0] == words[1]


def test_the_container_has_what_the_page_sets() -> None:
    set_in_page = set(re.findall(r"(\w+)=", page_command("environment")))
    in_image = set(re.findall(r"(\w+)=", " ".join(instruction("ENV"))))
    for service in ("page", "worker"):
        assert set_in_page <= in_image | set(COMPOSE["services"][service]["environment"])


def test_the_image_is_no_roots_and_made_of_files_that_there_are() -> None:
    assert instruction("USER") == ["agent"]
    for copied in instruction("COPY"):
        for source in copied.split()[:-1]:
            assert (ROOT / source).exists()
    extras = re.findall(r'"/source\[([\w,]+)\]"', DOCKERFILE)[0].split(",")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras) <= set(project["optional-dependencies"])
