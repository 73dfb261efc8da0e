"""What tests are given of the machine: nothing that they did not set up themselves.

A test, like a run, must not reach a person's model server, keys, configuration, agents or proxies.
"""

import atexit
import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

from openmanus_graph.config.model import LOCAL_PORTS_VARIABLE
from tests.support.zygote import LOCALE

CACHE_VARIABLE = "OPENMANUS_TEST_APPLICATIONS"
"""The folder that applications are installed into; a folder of the user's cache without it."""
KEPT = ("PATH", "USER", "LOGNAME", "TERM", "TMPDIR", "VIRTUAL_ENV", "CI", "COLUMNS")
KEPT_PREFIXES = (
    "PYTEST_", "OPENMANUS_TEST_", "COVERAGE_", "PIP_", "UV_", "PLAYWRIGHT_", "NPM_CONFIG_",
    "npm_config_", "NODE_EXTRA_",
)  # fmt: skip
"""Of the tests themselves, and of what installs packages."""
_OF_INSTALLS = ("ssl_cert_", "requests_ca_", "curl_ca_", "http_proxy", "https_proxy", "all_proxy",
                "no_proxy")  # fmt: skip
"""Certificates and proxies, which programs of other kinds follow, too: for installs alone."""
_OF_HOME = {
    "PIP_CONFIG_FILE": ".config/pip/pip.conf",
    "UV_CONFIG_FILE": ".config/uv/uv.toml",
    "NPM_CONFIG_USERCONFIG": ".npmrc",
    "NPM_CONFIG_CACHE": ".npm",
    "PIP_CACHE_DIR": ".cache/pip",
    "UV_CACHE_DIR": ".cache/uv",
    "PLAYWRIGHT_BROWSERS_PATH": ".cache/ms-playwright",
    CACHE_VARIABLE: ".cache/openmanus-test-applications",
}
"""Where installers look in the home folder, which tests have no more."""
_MARK = "OPENMANUS_TEST_HERMETIC"
"""Set once a process has been cleared: to a file that holds what installs are given."""
_before: dict[str, str] = {}
"""The environment of whoever began the tests; in the process that was begun only."""


def enter() -> None:
    """Give this process, and those that it starts, an environment and a home of the tests' own."""
    if os.environ.get(_MARK):  # a worker of a run whose first process has done it
        return
    _before.update(os.environ)
    home = Path.home()
    kept = {name: value for name, value in os.environ.items() if _is_kept(name)}
    for name, place in _OF_HOME.items():
        if (home / place).exists() or name == CACHE_VARIABLE:
            kept.setdefault(name, str(home / place))
    empty, beside = (tempfile.mkdtemp(prefix=f"openmanus-{name}-") for name in ("home", "installs"))
    for folder in (empty, beside):
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    network = {k: v for k, v in os.environ.items() if k.lower().startswith(_OF_INSTALLS)}
    of_installs = Path(beside) / "environment.json"
    of_installs.write_text(json.dumps(network), encoding="utf-8")
    os.environ.clear()
    os.environ.update(kept | given(empty) | {_MARK: str(of_installs)})


def given(home: str) -> dict[str, str]:
    """Return the variables that every process of the tests is given."""
    return {"HOME": home, "LANG": LOCALE, LOCAL_PORTS_VARIABLE: ""}


def installing() -> dict[str, str]:
    """Return the environment of a command that installs packages: it meets the real network."""
    if _MARK not in os.environ:  # outside of the tests
        return dict(os.environ)
    return {**os.environ, **json.loads(Path(os.environ[_MARK]).read_text(encoding="utf-8"))}


@contextlib.contextmanager
def left() -> Generator[None]:
    """Be in the environment of before meanwhile, which installing takes: proxies, say."""
    ours = dict(os.environ)
    os.environ.update(_before)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(ours)


def _is_kept(name: str) -> bool:
    return name in KEPT or name.startswith(KEPT_PREFIXES)
