"""An SSH server of the tests' own, on this machine, as the account that runs the tests."""

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import psutil

from openmanus_graph.interfaces.cli.doctor import install_commands
from openmanus_graph.state.settings import SandboxSettings
from tests.support.cli import until

_SERVER = "/usr/sbin/sshd"
_CONFIGURATION = """
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
MaxStartups 100
"""


def install_sshd() -> None:
    """Install Debian's server where there is none, but not as a service of somebody's machine."""
    if not Path(_SERVER).exists() and not Path("/run/systemd/system").exists():
        for command in install_commands("openssh-server"):
            subprocess.run(command, shell=True, check=False, capture_output=True)


@dataclass
class SshServer:
    """A server, and the settings that lead to it."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes]"

    @classmethod
    @contextlib.contextmanager
    def running(cls, folder: Path) -> "Generator[SshServer]":
        """Run a server with new keys."""
        for name in ("host_key", "key", "stranger"):
            make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(make, check=True)
        shutil.copy(folder / "key.pub", folder / "authorized_keys")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        _, kind, key = f"x {(folder / 'host_key.pub').read_text()}".split()[:3]
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
        (folder / "sshd_config").write_text(_CONFIGURATION.format(port=port, folder=folder))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [_SERVER, "-D", "-e", "-f", str(folder / "sshd_config")],
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        server = cls(folder, port, process)
        try:
            until(lambda: b"listening" in (folder / "log").read_bytes())
            yield server
        finally:
            server.cut()
            process.kill()
            process.wait()

    def cut(self) -> None:
        """End all connections, as a network that fails does."""
        for connection in psutil.Process(self.process.pid).children(recursive=False):
            connection.kill()

    @property
    def settings(self) -> SandboxSettings:
        """What a person would set."""
        return SandboxSettings(
            mode="ssh",
            network="any",
            ssh_host="127.0.0.1",
            ssh_user=getpass.getuser(),
            ssh_port=self.port,
            ssh_key=str(self.folder / "key"),
            ssh_known_hosts=str(self.folder / "known_hosts"),
            ssh_python=sys.executable,
            ssh_folder=str(self.folder / "there"),
        )
