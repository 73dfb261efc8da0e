"""The environment of programs in the sandbox: an allow-list, never a cleaned copy of ours.

The sandbox's own process gets the same one, because programs inside can read it from
`/proc/1/environ`.
"""

import configparser
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ALWAYS = ("TZ", "LANG", "LC_ALL", "LC_CTYPE")
_NETWORK = (
    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CERT", "PIP_TRUSTED_HOST",
    "PIP_PROXY", "PIP_DEFAULT_TIMEOUT", "PIP_RETRIES", "PIP_NO_INDEX", "PIP_PREFER_BINARY",
    "UV_INDEX", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS",
    "UV_SYSTEM_CERTS", "UV_NATIVE_TLS", "UV_INSECURE_HOST", "SSL_CERT_FILE", "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO", "HTTP_PROXY",
    "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy",
)  # fmt: skip
_FIXED = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",  # no sandbox shows it, and git fails if it may not read it
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
    "PYTHONUTF8": "1",
}
NO_RETRIES = {"PIP_RETRIES": "0", "UV_OFFLINE": "1"}
"""For programs without network: retries would only take minutes."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CREDENTIALS = re.compile(r"(?<=//)[^/@\s]+@")


def sandbox_environment(
    *, home: str, tmp: str, path: str, network: bool, host: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment for these paths inside. `path` comes first in PATH."""
    names = (*_ALWAYS, *(_NETWORK if network else ()))
    environment = {name: without_credentials(host[name]) for name in names if name in host}
    environment.setdefault("LANG", "C.UTF-8" if sys.platform != "darwin" else "en_US.UTF-8")
    environment |= _FIXED | {"HOME": home, "TMPDIR": tmp, "PATH": f"{path}:{SYSTEM_PATH}"}
    environment |= {"MPLCONFIGDIR": f"{home}/.config/matplotlib", "MPLBACKEND": "Agg"}
    environment |= {"PIP_CONFIG_FILE": f"{home}/.config/pip/pip.conf"}
    return environment


def network_settings(host: Mapping[str, str]) -> dict[str, str]:
    """Return the network settings of the host's environment, unchanged."""
    return {name: host[name] for name in _NETWORK if name in host}


def without_credentials(value: str) -> str:
    """Remove user names and passwords from the addresses in a text."""
    return _CREDENTIALS.sub("", value)


def pip_configuration(host: Mapping[str, str], prefix: Path, home: Path) -> str:
    """Merge pip's configuration files, in pip's order, without credentials."""
    merged = configparser.RawConfigParser(strict=False)
    places = [
        Path("/etc/pip.conf"),
        home / ".pip" / "pip.conf",
        home / ".config" / "pip" / "pip.conf",
        home / "Library" / "Application Support" / "pip" / "pip.conf",
        prefix / "pip.conf",
        Path(host.get("PIP_CONFIG_FILE", os.devnull)),
    ]
    for place in places:
        try:
            merged.read_string(place.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, configparser.Error):
            continue  # missing, or pip would refuse it too
    lines: list[str] = []
    for section in merged.sections():
        lines.append(f"[{section}]")
        for key, value in merged.items(section):
            lines.append(f"{key} = " + without_credentials(value).replace("\n", "\n    "))
    return "\n".join(lines) + "\n"


def local_files(texts: Iterable[str], home: Path) -> list[Path]:
    """Return the certificates and package folders that network settings name.

    Folders that contain the user's home or the whole system are left out.
    """
    found: list[Path] = []
    for word in (word for text in texts for word in text.split()):
        path = Path(unquote(urlsplit(word).path)) if word.startswith("file:") else Path(word)
        if not path.is_absolute() or not path.exists() or len(path.parts) < 3:
            continue
        if not home.is_relative_to(path):
            found.append(path)
    return found
