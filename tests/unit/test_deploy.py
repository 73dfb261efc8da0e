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

import kubernetes_validate
import pytest
import yaml

from openmanus_graph.graphs.catalog import agent_names, is_ours
from openmanus_graph.interfaces.server.aegra import SharedGraph
from openmanus_graph.interfaces.server.guard import ServerGuard
from openmanus_graph.interfaces.service.http import END_S
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


MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "openmanus.yaml").read_text())
)
PODS = {
    one["metadata"]["name"]: one["spec"]["template"]["spec"]
    for one in MANIFESTS
    if one["kind"] == "Deployment"
}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda one: f"{one['kind']}")
def test_kubernetes_accepts_its_manifests(manifest: dict[str, Any]) -> None:
    """By the schemas that are published for the newest version and for an old one."""
    for version in ("1.37", "1.28"):
        kubernetes_validate.validate(manifest, version, strict=True)
    wrong = {**manifest, "spec": {**manifest["spec"], "replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.37", strict=True)


def test_the_pods_are_asked_for_what_the_server_answers_without_a_token() -> None:
    def app(_: Any, __: Any, ___: Any) -> None: ...

    guard = ServerGuard(app)  # type: ignore[arg-type]  # it is not called
    for pod in PODS.values():
        (container,) = pod["containers"]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container[kind]["httpGet"]
            headers = [
                (one["name"].lower().encode(), one["value"].encode())
                for one in asked["httpHeaders"]
            ]
            scope = {"type": "http", "method": "GET", "path": asked["path"], "headers": headers}
            assert guard._refusal(scope, None) is None  # pyright: ignore[reportPrivateUsage]
        assert container["livenessProbe"]["httpGet"]["path"] == "/ok"
        assert container["readinessProbe"]["httpGet"]["path"] == "/ready"


def test_a_pod_has_time_to_end_and_no_rights() -> None:
    assert PODS.keys() == {"openmanus-page", "openmanus-worker"}
    for pod in PODS.values():
        (container,) = pod["containers"]
        set_here = {one["name"]: one["value"] for one in container["env"]}
        before = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
        needed = before + float(set_here["WORKER_DRAIN_TIMEOUT"]) + END_S
        assert pod["terminationGracePeriodSeconds"] > needed
        assert pod["securityContext"]["runAsUser"] == 1000  # of the Dockerfile
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["envFrom"] == [{"secretRef": {"name": "openmanus"}}]
    assert "--uid 1000" in DOCKERFILE
    assert "EXPOSE 2026" in DOCKERFILE
