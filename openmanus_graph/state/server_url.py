"""What is checked about the addresses of servers that settings name, which may hold passwords."""

from urllib.parse import urlsplit

HIGHEST_PORT = 65535


def is_readable(url: str) -> bool:
    """Return whether no part of a password could be taken for another part of an address."""
    try:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2].split(",")
        for host in hosts:
            host.encode("idna")  # as the client will do
    except ValueError:
        return False
    ports = [host.rpartition(":")[2] for host in hosts if ":" in host.rpartition("]")[2]]
    return (
        url.count("@") <= 1
        and ("@" in parts.netloc or "@" not in url)
        and not parts.fragment
        and all(port.isdigit() and int(port) <= HIGHEST_PORT for port in ports)
    )
