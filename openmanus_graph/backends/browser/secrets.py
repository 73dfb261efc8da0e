"""Secrets that the model types by name: filled in on their own site only, and never shown."""

import html
import json
import re
from collections.abc import Collection, Sequence
from urllib.parse import quote, quote_plus, urlsplit

from openmanus_graph.errors import ToolError
from openmanus_graph.state.addresses import LOOPBACK_NAMES
from openmanus_graph.state.setting_declaration import SiteSecret

HIDDEN = "[typed by the person]"  # replaces what a person typed at the browser
HTTP_LOGIN = "http_auth"  # the secret of this name is `USER:PASSWORD` of a site that asks by HTTP
_REFERENCE = re.compile(r"<secret>\s*([\w-]+)\s*</secret>")
_SHOWN_CHARS = 40  # a page may show only the beginning of a longer value
_LEAST_CHARS = 4  # fewer letters and digits are found in any file name


class Secrets:
    """The secrets of a run, and other texts that the model must not be shown."""

    def __init__(self, known: Sequence[SiteSecret], hidden: Collection[str] = ()) -> None:
        self._known = known
        forms = {
            (form, f"<secret>{secret.name}</secret>")
            for secret in known
            for form in _written_forms(secret)
        }
        forms |= {(form, HIDDEN) for text in hidden for form in _forms_of(text)}
        # Longest first: a secret may be a piece of another one.
        self._forms = sorted(forms, key=lambda found: len(found[0]), reverse=True)

    def names_for(self, url: str) -> list[str]:
        names = (secret.name for secret in self._known if _may_use_on(secret, url))
        return [name for name in dict.fromkeys(names) if name != HTTP_LOGIN]

    def mentioned(self, text: str) -> bool:
        return _REFERENCE.search(text) is not None

    def fill_in(self, text: str, url: str) -> str:
        """Replace the names of secrets in a text to type by their values.

        `url` is the address of the frame it is typed into, as the browser knows it. ToolError if
        there is no such secret, or it is for another site.
        """
        return _REFERENCE.sub(lambda found: self._value(found[1], url), text)

    def http_login(self) -> SiteSecret | None:
        """Return the secret for sites that ask for name and password by HTTP."""
        found = (each for each in self._known if each.name == HTTP_LOGIN)
        return next((each for each in found if ":" in each.value.get_secret_value()), None)

    def redacted(self, text: str) -> str:
        """Replace the values of secrets by their names, and hidden texts by a word."""
        for form, shown in self._forms:
            if form in text:
                text = text.replace(form, shown)
        return text

    def in_file_name(self, name: str) -> bool:
        """Return True if a file name contains a secret, even without its special characters."""
        plain, *forms = (re.sub(r"[\W_]+", "", text) for text in (name, *dict(self._forms)))
        return any(form in plain for form in forms if len(form) >= _LEAST_CHARS)

    def _value(self, name: str, url: str) -> str:
        named = [secret for secret in self._known if secret.name == name]
        for secret in named:
            if _may_use_on(secret, url):
                return secret.value.get_secret_value()
        host = urlsplit(url).netloc or url
        if named:
            places = ", ".join(map(origin_of, named))
            raise ToolError(
                f"Nothing was typed: the secret {name} is for {places} only, and this field "
                f"belongs to {host}. Never type it elsewhere."
            )
        here = ", ".join(self.names_for(url)) or "none"
        raise ToolError(f"Nothing was typed: there is no secret {name}. For {host}: {here}.")


def origin_of(secret: SiteSecret) -> str:
    """Return the origin at which a secret is used: HTTPS, but on this machine."""
    host = urlsplit(f"//{secret.domain}").hostname
    return f"{'http' if host in LOOPBACK_NAMES else 'https'}://{secret.domain}"


def _may_use_on(secret: SiteSecret, url: str) -> bool:
    """Return True if a page is on a secret's site, over a connection that is encrypted."""
    page, site = urlsplit(url), urlsplit(f"//{secret.domain}")
    try:
        port, wanted_port = page.port, site.port
    except ValueError:
        return False
    host, domain = page.hostname or "", site.hostname or ""
    local = host in LOOPBACK_NAMES
    if page.scheme != "https" and not (local and page.scheme == "http"):
        return False
    usual = 80 if page.scheme == "http" else 443
    if wanted_port is not None and wanted_port != (port or usual):
        return False
    return host == domain or (not local and host.endswith(f".{domain}"))


def _written_forms(secret: SiteSecret) -> list[str]:
    """Return how a value may be written in a page or an address."""
    value = secret.value.get_secret_value()
    values = [value, value.partition(":")[2]] if secret.name == HTTP_LOGIN else [value]
    values += [each[:_SHOWN_CHARS] for each in values if len(each) > _SHOWN_CHARS]
    return [form for each in values for form in _forms_of(each)]


def _forms_of(text: str) -> list[str]:
    forms = (
        text, quote(text, safe=""), quote_plus(text), quote(text), html.escape(text),
        html.escape(text, quote=False), json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
    )  # fmt: skip
    return [form for form in forms if form]
