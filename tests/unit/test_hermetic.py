"""Tests are given nothing of the machine that they did not set up."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from openmanus_graph.config import model
from openmanus_graph.errors import ConfigError
from tests.support.limits import BACKSTOP_S

pytestmark = pytest.mark.slow

HOSTILE = {
    "OPENAI_API_KEY": "sk-stolen", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1",
    "OPENMANUS_MODEL": "openai:stolen", "OPENMANUS_CONFIG": "stolen.toml",
    "HTTP_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9",
    "LANGSMITH_TRACING": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",
    "SSH_AUTH_SOCK": "/stolen", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/stolen",
    "PGHOST": "stolen", "AWS_PROFILE": "stolen", "GIT_CONFIG_GLOBAL": "/stolen",
    "LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "XDG_DATA_HOME": "/stolen",
    "SSL_CERT_FILE": "/stolen",
}  # fmt: skip
PROBE = """
import os
from pathlib import Path
from openmanus_graph.config.model import local_ports
from tests.support.hermetic import installing

def test_probe(tmp_path):
    print("VALUES", sorted(value for value in os.environ.values() if "stolen" in value))
    print("NAMES", sorted(os.environ))
    print("HOME", Path.home(), sorted(Path.home().iterdir()))
    print("PORTS", local_ports())
    given = installing()
    print("INSTALLS", sorted(name for name in given if name not in os.environ))
"""


@pytest.mark.parametrize("workers", ["0", "1"], ids=["alone", "in a worker"])
def test_nothing_of_a_persons_environment_reaches_a_test(tmp_path: Path, workers: str) -> None:
    home = tmp_path / "home"
    broken = home / ".config" / "openmanus" / "config.toml"
    broken.parent.mkdir(parents=True)
    broken.write_text("= broken")
    (tmp_path / "test_probe.py").write_text(PROBE)
    root = Path(__file__).parents[2]
    env = {**HOSTILE, "PATH": os.environ["PATH"], "HOME": str(home)}
    env |= {"XDG_CONFIG_HOME": str(home / ".config")}
    options = ("-q", "-rP", "-p", "tests.conftest", "-p", "no:cacheprovider", f"-n{workers}")
    argv = [sys.executable, "-m", "pytest", *options, f"--rootdir={tmp_path}", str(tmp_path)]
    done = subprocess.run(
        argv, cwd=root, env=env, capture_output=True, text=True, timeout=BACKSTOP_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if line[:1].isupper())
    assert said["VALUES"] == "[]"
    assert not set(HOSTILE) & set(eval(said["NAMES"]))  # our own list
    assert said["PORTS"] == "[]"
    assert said["INSTALLS"] == str(["HTTP_PROXY", "SSL_CERT_FILE", "https_proxy"])
    assert str(home) not in said["HOME"]


def test_other_ports_and_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.local_ports() == []
    monkeypatch.setenv(model.LOCAL_PORTS_VARIABLE, "8080, 9000")
    assert model.local_ports() == [8080, 9000]
    for wrong in ("eighty", "0", "70000", "8080;9000", "-1"):
        monkeypatch.setenv(model.LOCAL_PORTS_VARIABLE, wrong)
        with pytest.raises(ConfigError, match="not a list of ports"):
            model.local_ports()
    monkeypatch.delenv(model.LOCAL_PORTS_VARIABLE)
    assert model.local_ports() == model.USUAL_PORTS
