"""How a run's browser is set up: `[browser]`, and the secrets it may type."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import SecretStr

from openmanus_graph.config.files import Layer
from openmanus_graph.config.model import first
from openmanus_graph.config.sections import BrowserSection, ProxySection, section_of
from openmanus_graph.errors import ConfigError
from openmanus_graph.settings import BrowserSettings, ProxySettings, SiteSecret
from openmanus_graph.state.context import Context

SECRET_VARIABLE = "OPENMANUS_SECRET_"
"""Followed by the secret's name; the value is `VALUE@DOMAIN`."""
_PLAIN = (
    "headless", "disable_security", "extra_chromium_args", "chrome_instance_path", "wss_url",
    "cdp_url", "max_content_length", "profile", "observation_tokens", "max_download_mb",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z][\w-]*")
_DOMAIN = re.compile(r"[\w.-]+(:\d{1,5})?|\[[0-9a-f:]+\](:\d{1,5})?")


def browser_settings(context: Context, layers: list[Layer]) -> tuple[BrowserSettings, list[str]]:
    """Merge what the caller, the environment and the files say; warn of the caller's odd keys.

    Raises:
        ConfigError: A value is wrong, and which. A secret's value is never shown.
    """
    own = section_of(BrowserSection, "browser", context.browser)
    sections = [own, *(layer.config.browser for layer in layers)]
    chosen: dict[str, Any] = {
        name: value
        for name in _PLAIN
        if (value := first(_given(section, name) for section in sections)) is not None
    }
    settings = BrowserSettings(
        proxy=_proxy(first(section.proxy for section in sections)),
        secrets=_secrets(sections),
        **chosen,
    )
    ways = [key for key in ("cdp_url", "wss_url", "profile") if getattr(settings, key)]
    if len(ways) > 1:
        raise ConfigError(f"[browser] sets {' and '.join(ways)}; set one of them.")
    unknown = [
        f"browser.{key} is not known here and was left out." for key in own.model_extra or {}
    ]
    return settings, unknown


def parse_secret(text: SecretStr, name: str | None = None) -> SiteSecret:
    """Read `NAME=VALUE@DOMAIN`, or `VALUE@DOMAIN` of a known name."""
    given = text.get_secret_value()
    if name is None:
        name, _, given = given.partition("=")
    value, _, domain = given.rpartition("@")
    domain = domain.strip().lower()
    # A wrong name or domain may be a piece of the value, and is not shown.
    if not (_NAME.fullmatch(name) and value and _DOMAIN.fullmatch(domain)):
        raise ConfigError(
            "A secret of the browser is not written as NAME=VALUE@DOMAIN, for example "
            "password=hunter2@example.com."
        )
    return SiteSecret(name, SecretStr(value), domain)


def _given(section: BrowserSection, name: str) -> Any:
    value = getattr(section, name)
    return None if value == "" else value  # OpenManus's example file has empty texts


def _proxy(section: ProxySection | None) -> ProxySettings | None:
    if section is None or not section.server:
        return None
    return ProxySettings(section.server, section.username, section.password)


def _secrets(sections: Iterable[BrowserSection]) -> tuple[SiteSecret, ...]:
    """Collect secrets by name and site; what comes first wins."""
    own, *files = (list(_of_section(section)) for section in sections)
    found: dict[tuple[str, str], SiteSecret] = {}
    for secret in (*own, *_of_environment(), *(each for file in files for each in file)):
        found.setdefault((secret.name, secret.domain), secret)
    return tuple(found.values())


def _of_section(section: BrowserSection) -> Iterator[SiteSecret]:
    given = section.secrets or ()
    if isinstance(given, dict):
        yield from (parse_secret(text, name) for name, text in given.items())
    else:
        yield from map(parse_secret, given)


def _of_environment() -> Iterator[SiteSecret]:
    for variable, value in os.environ.items():
        if variable.startswith(SECRET_VARIABLE):
            name = variable.removeprefix(SECRET_VARIABLE).lower()
            yield parse_secret(SecretStr(value), name)
