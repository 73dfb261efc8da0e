"""What certificates are checked by."""

import functools
import ssl

from openmanus_graph.backends.models.access import certificate_context, certificate_path


def tls_context() -> ssl.SSLContext:
    """Return what certificates are checked by: the environment's authorities, or the system's."""
    path = certificate_path()
    return _tls_context(str(path) if path else None)


@functools.cache
def _tls_context(_path: str | None) -> ssl.SSLContext:
    from httpcore2 import default_ssl_context

    context = certificate_context()
    return context if isinstance(context, ssl.SSLContext) else default_ssl_context()
