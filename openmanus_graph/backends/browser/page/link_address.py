"""The address of a link as the model is shown it: short, for it is read at each step."""

from urllib.parse import urlsplit

from openmanus_graph.backends.web.page_text import ROUTES

MAX_ADDRESS_CHARS = 60
CUT = "…"
"""Ends an address that is not shown whole; `hover` shows it."""
_ADDRESS_SCHEMES = ("http", "https", "mailto", "tel")


def shown_address(href: str, page_url: str) -> str:
    """Return what is shown of a link's address: on the page's own site, without the site.

    Args:
        href: The whole address.
        page_url: The page that the link stands on.

    Returns:
        The address, cut before its query if it is long; empty if it leads nowhere else.
    """
    try:
        link, page = urlsplit(href), urlsplit(page_url)
    except ValueError:
        return ""
    if link.scheme not in _ADDRESS_SCHEMES:
        return ""
    address = href
    if link.netloc and (link.scheme, link.netloc) == (page.scheme, page.netloc):
        if href.partition("#")[0] == page_url.partition("#")[0] and not link.fragment.startswith(
            ROUTES
        ):
            return ""
        address = href[len(f"{link.scheme}://{link.netloc}") :]
    if len(address) <= MAX_ADDRESS_CHARS:
        return address
    return address.partition("?")[0][: MAX_ADDRESS_CHARS - 1] + CUT
