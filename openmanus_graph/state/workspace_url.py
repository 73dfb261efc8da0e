"""Addresses of where threads' files are kept: a shared folder, or a bucket of S3."""

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from openmanus_graph.errors import ConfigError

_FORMS = "a folder, file:///FOLDER or s3://BUCKET/FOLDER"


@dataclass(frozen=True)
class WorkspaceUrl:
    """The address of a place for threads' files, without any key."""

    text: str
    """`file:///...` or `s3://...`, without a slash at its end."""

    @classmethod
    def parse(cls, given: str) -> "WorkspaceUrl":
        """Read an address. ConfigError, which does not show it: a key may be in it."""
        text = given.strip()
        if "://" not in text and text:
            return cls(f"file://{Path(text).expanduser().absolute()}")
        parts = urlsplit(text)
        if "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigError(
                "[storage] workspace_url holds more than an address. Keys and options come from "
                "the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_ENDPOINT_URL)."
            )
        is_folder = parts.scheme == "file" and not parts.netloc and parts.path.startswith("/")
        if not is_folder and not (parts.scheme == "s3" and parts.netloc):
            raise ConfigError(f"[storage] workspace_url is no address of one. Write {_FORMS}.")
        return cls(text.rstrip("/"))

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of this machine's file system."""
        return self.text.startswith("file:")

    def __str__(self) -> str:
        """Return the address."""
        return self.text
