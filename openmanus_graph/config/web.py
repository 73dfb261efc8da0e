"""What web tools may reach: `allow_hosts` and `[web]`."""

from collections.abc import Iterable

from openmanus_graph.config.files import Layer
from openmanus_graph.config.model import first
from openmanus_graph.config.sections import WebSection, section_of
from openmanus_graph.errors import ConfigError
from openmanus_graph.settings import WebSettings
from openmanus_graph.state.context import Context
from openmanus_graph.web.guard import parse_allowed, parse_domain


def allowed_hosts(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the entries of `--allow-host`. ConfigError says which is none."""
    hosts = tuple(entries)
    for entry in hosts:
        parse_allowed(entry)
    return hosts


def web_settings(context: Context, layers: list[Layer]) -> WebSettings:
    """Merge what the caller and the files say.

    The most important list of allowed domains counts; what any place denies is denied.

    Raises:
        ConfigError: A value is wrong, and which.
    """
    own = section_of(WebSection, "web", context.web)
    if own.model_extra:
        raise ConfigError(f"There is no [web] key {', '.join(own.model_extra)}.")
    sections = [own, *(layer.config.web for layer in layers)]
    allowed = first(section.allowed_domains for section in sections) or ()
    denied = [domain for section in sections for domain in section.denied_domains or ()]
    return WebSettings(
        tuple(map(parse_domain, allowed)), tuple(dict.fromkeys(map(parse_domain, denied)))
    )
