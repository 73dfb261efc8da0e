"""The docker backend: one container for each program, by the docker or podman command."""

import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from openmanus_graph.backends.sandbox.backend import Launch, Layout, OnThisMachine, Probe
from openmanus_graph.backends.sandbox.bwrap import HOME, RUN, inside, masked
from openmanus_graph.state.settings import SandboxSettings


class Docker(OnThisMachine):
    """Runs programs with the image's Python, which must have ipykernel."""

    name = "docker"
    holds_processes = True

    def __init__(self, layout: Layout, settings: SandboxSettings) -> None:
        super().__init__(layout, settings)
        self.python = "python3"

    def inside(self, path: Path) -> str:
        return inside(self._layout, path)

    def launch(
        self, program: Sequence[str], environment: Mapping[str, str], *, terminal: bool, output: int
    ) -> Launch:
        """Return the command. Killing the client leaves the container, hence `kill`."""
        name = f"openmanus-{uuid.uuid4().hex[:12]}"
        options = container_options(self._layout, self._settings, environment)
        argv = (engine(), "run", "--name", name, "-it" if terminal else "-i", *options)
        remove = partial(subprocess.run, [engine(), "rm", "--force", name], capture_output=True)
        return Launch((*argv, self._settings.image, *program), kill=remove)


def container_options(
    layout: Layout, settings: SandboxSettings, environment: Mapping[str, str]
) -> list[str]:
    """Return the options for limits, mounts and environment."""
    workspace = layout.workspace
    root, python = str(workspace.root), str(workspace.python)
    options = ["--rm", "--init", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    options += ["--user", f"{os.getuid()}:{os.getgid()}", "--workdir", root]
    options += ["--memory", f"{settings.memory_mb}m", "--pids-limit", str(settings.processes)]
    options += [] if settings.network else ["--network", "none"]
    mode = ":ro" if layout.read_only else ""
    mounts = [(root, root + mode), (python, python + mode), (str(layout.tmp), "/tmp")]
    for source, target in [*mounts, (str(layout.home), HOME), (str(layout.run), RUN)]:
        options += ["--volume", f"{source}:{target}"]
    for place in (workspace.outputs, *workspace.former_outputs()):
        options += ["--volume", f"{workspace.outputs}:{place}:ro"]
    for path in masked(layout):
        hide = ["--tmpfs", str(path)] if path.is_dir() else ["--volume", f"/dev/null:{path}:ro"]
        options += hide
    kept = {key: value for key, value in environment.items() if key != "PATH"}
    kept |= {"PIP_USER": "1", "PYTHONUSERBASE": f"{python}/container"}
    for key, value in kept.items():
        options += ["--env", f"{key}={value}"]
    return options


def engine() -> str:
    return shutil.which("docker") or shutil.which("podman") or "docker"


def probe(settings: SandboxSettings) -> Probe:
    """Ask the engine if it has the image. Nothing is downloaded."""
    program = shutil.which("docker") or shutil.which("podman")
    if program is None:
        return Probe("docker", False, "neither docker nor podman is installed", "install one")
    try:
        inspect = [program, "image", "inspect", settings.image]
        done = subprocess.run(inspect, capture_output=True, timeout=20, start_new_session=True)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Probe("docker", False, f"the engine does not answer: {error}", "start the engine")
    if done.returncode == 0:
        return Probe("docker", True, f"image {settings.image} is here; it needs ipykernel")
    why = done.stderr.decode(errors="replace").strip().splitlines()
    recipe = f"printf 'FROM {settings.image}\\nRUN pip install ipykernel\\n'"
    build = f"{recipe} | {program} build -t manus -"
    detail = why[-1] if why else f"no image {settings.image}"
    return Probe("docker", False, detail, f"{build}, then set the image to manus")
