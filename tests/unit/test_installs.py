"""Which commands would install packages from the network."""

import pytest

from openmanus_graph.backends.sandbox.confinement import install_in_cell, install_in_shell


@pytest.mark.parametrize(
    "command",
    [
        "pip install pandas",
        "pip3 install -q 'pandas>=2'",
        "/opt/venv/bin/pip --quiet install pandas",
        "cd sub && python -m pip install --upgrade pip",
        "python3.11 -m pip install requests || true",
        "uv pip install requests",
        "pip install -r requirements.txt",
        "pip install ./local.whl requests",
        "pip install git+https://host.test/x.git",
        "pip install https://host.test/x-1.0.whl",
        "sudo timeout 60 pip install x",
        "bash -c 'pip install x'",
        "pip install --target lib/ x",
    ],
)
def test_an_installation_from_the_network_is_found(command: str) -> None:
    found = install_in_shell(command)
    assert "pip" in found
    assert "install" in found


@pytest.mark.parametrize(
    "command",
    [
        "pip list",
        "pip --version",
        "pip show install",
        "pip install ./local.whl",
        "pip install dist/local-1.0-py3-none-any.whl local.tar.gz",
        "pip install -e .",
        "pip install --no-index --find-links wheels pandas",
        "pip install --help",
        "echo pip install pandas",
        "grep -r 'pip install' docs",
        "python -m pipx run x",
        "python pip.py install x",
        "",
    ],
)
def test_other_commands_are_left_alone(command: str) -> None:
    assert not install_in_shell(command)


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("%pip install pandas", "pip install pandas"),
        ("import os\n!pip install -q pandas\nimport pandas", "pip install -q pandas"),
        ("  !python -m pip install x", "python -m pip install x"),
        ("%uv pip install x", "uv pip install x"),
        ("%pip list", ""),
        ("x = 1 %pip_count", ""),
        ("text = '''\n%pip install pandas\n'''", ""),
        ("import pip\nprint(pip)", ""),
    ],
)
def test_lines_of_a_cell_that_are_commands_are_looked_at(code: str, found: str) -> None:
    assert install_in_cell(code) == found
