"""Which addresses web tools may reach."""

from collections.abc import Sequence

import pytest

from openmanus_graph import ConfigError, Context, ToolError
from openmanus_graph.backends.web.guard import Guard, Resolver
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.state.addresses import parse_address, parse_allowed


def names(**known: str) -> Resolver:
    """Stand in for DNS; host names with underscores for dots."""
    table = {name.replace("_", "."): value.split() for name, value in known.items()}

    async def look_up(host: str, port: int) -> Sequence[str]:
        if host not in table:
            raise OSError("Name or service not known")
        return table[host]

    return look_up


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f.0.0.1/",
        "http://0177.0.0.1/", "http://0x7f000001/", "http://017700000001/", "http://127.0.1/",
        "http://127.0.0.1./", "http://%31%32%37.0.0.1/", "http://１２７.0.0.1/",
        "http://①②⑦.0.0.1/", "http://0/", "http://0.0.0.0/", "http://10.0.0.1/",
        "http://172.16.0.1/", "http://192.168.1.1/", "http://169.254.169.254/latest/meta-data/",
        "http://100.64.0.1/", "http://100.100.100.200/", "http://168.63.129.16/",
        "http://224.0.0.1/", "http://255.255.255.255/", "http://240.0.0.1/", "http://192.0.2.1/",
        "http://[::1]/", "http://[::]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/",
        "http://[::127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[64:ff9b:1::7f00:1]/",
        "http://[2002:7f00:1::]/", "http://[2002:a9fe:a9fe::]/", "http://[fe80::1]/",
        "http://[fe80::1%25eth0]/", "http://[fc00::1]/", "http://[fd00:ec2::254]/",
        "http://[fec0::1]/", "http://[ff02::1]/", "http://[2001:db8::1]/", "http://[2001::1]/",
        "http://localhost/", "http://LOCALHOST:8080/", "http://foo.localhost/",
        "http://metadata.google.internal/", "http://metadata/", "http://printer.local/",
        "http://router.lan/", "http://nas.home.arpa/", "http://intranet/",
    ],
)  # fmt: skip
async def test_what_is_not_the_open_internet_is_refused(url: str) -> None:
    with pytest.raises(ToolError, match="--allow-host"):
        Guard(resolver=names()).check(url)


@pytest.mark.parametrize(
    "url", ["http://8.8.8.8/", "https://1.1.1.1:8443/x", "http://[2606:4700::1111]/",
            "https://example.com/", "http://[64:ff9b::8.8.8.8]/", "http://[2002:808:808::]/"],
)  # fmt: skip
def test_the_open_internet_is_reached(url: str) -> None:
    Guard().check(url)


@pytest.mark.parametrize(
    "private",
    ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "::ffff:10.0.0.1", "64:ff9b::a00:1",
     "fd00::1", "fe80::1%eth0", "0.0.0.0"],
)  # fmt: skip
async def test_a_name_that_leads_to_a_private_address_is_refused(private: str) -> None:
    guard = Guard(resolver=names(evil_example=private))
    guard.check("http://evil.example/")  # by its name alone there is nothing to see
    with pytest.raises(ToolError, match=r"it leads to .*--allow-host evil\.example:80"):
        await guard.resolve("evil.example", 80)


async def test_only_the_public_addresses_of_a_name_are_given() -> None:
    guard = Guard(resolver=names(mixed_example="10.0.0.1 93.184.216.34 ::1 2606:4700::1"))
    found = [str(address) for address in await guard.resolve("MIXED.example.", 443)]
    assert found == ["93.184.216.34", "2606:4700::1"]


async def test_a_name_that_is_not_there_is_reported() -> None:
    with pytest.raises(ToolError, match=r"no host nowhere\.example"):
        await Guard(resolver=names()).resolve("nowhere.example", 80)
    with pytest.raises(ToolError, match="has no address"):
        await Guard(resolver=names(empty_example="")).resolve("empty.example", 80)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("file:///etc/passwd", "only http and https"),
        ("ftp://example.com/", "only http and https"),
        ("javascript:alert(1)", "only http and https"),
        ("data:text/html,x", "only http and https"),
        ("chrome://settings", "only http and https"),
        ("example.com/x", "no scheme"),
        ("//example.com/x", "no scheme"),
        ("", "no scheme"),
        ("http://", "no valid host"),
        ("http:///x", "no valid host"),
        ("http://exa mple.com/", "not a valid host name"),
        ("http://a..b/", "not a valid host name"),
        ("http://x.com:0/", "no valid host and port"),
        ("http://x.com:99999/", "not a valid address"),
        ("http://x.com:abc/", "not a valid address"),
        ("http://[::1", "not a valid address"),
        ("http://[::zz]/", "IPv6"),
        ("http://256.1.1.1/", "not a valid IPv4"),
        ("http://1.2.3.4.5/", "not a valid IPv4"),
        ("http://good.com\\@127.0.0.1/", "user name"),
        ("http://good.com\\.evil.com/", "no valid host and port"),
    ],
)
def test_what_is_no_web_address_is_refused_with_the_reason(url: str, said: str) -> None:
    with pytest.raises(ToolError, match=said):
        Guard().check(url)


def test_credentials_in_an_address_are_refused_and_not_repeated() -> None:
    with pytest.raises(ToolError, match="password") as caught:
        Guard().check("https://me:hunter2@example.com/x")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "normal"),
    [
        ("HTTP://EXAMPLE.com:80", "http://example.com/"),
        ("https://example.com:443/a?b#c", "https://example.com/a?b"),
        (" https://example.com/a b?q=ü&x={1} ", "https://example.com/a%20b?q=%C3%BC&x=%7B1%7D"),
        ("https://example.com/%20a", "https://example.com/%20a"),
        ("https://exam\tple.com/\n", "https://example.com/"),
        ("https://münchen.de/", "https://xn--mnchen-3ya.de/"),
        ("https://example.com。/", "https://example.com/"),
        ("http://[2606:4700:0::1]:8080/", "http://[2606:4700::1]:8080/"),
        ("http://a_b.example.com/", "http://a_b.example.com/"),
    ],
)
def test_an_address_has_one_form(url: str, normal: str) -> None:
    assert parse_address(url).url == normal


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000/"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000/"),
        ("localhost:8000", "http://127.0.0.1:8000/"),
        ("localhost", "http://[::1]/"),
        ("[::1]:8000", "http://localhost:8000/"),
        ("::1", "http://[::1]:99/"),
        ("192.168.1.5:443", "https://192.168.1.5/"),
        ("nas.local", "http://NAS.local:5000/"),
        ("metadata.google.internal", "http://metadata.google.internal/"),
    ],
)
def test_what_the_person_allows_is_reached(entry: str, url: str) -> None:
    Guard(allow_hosts=(entry,)).check(url)


@pytest.mark.parametrize(
    ("entry", "url"),
    [
        ("127.0.0.1:8000", "http://127.0.0.1:8001/"),
        ("127.0.0.1:8000", "http://127.0.0.2:8000/"),
        ("10.0.0.1", "http://10.0.0.2/"),
        ("nas.local", "http://other.nas.local/"),
    ],
)
def test_nothing_else_is_reached(entry: str, url: str) -> None:
    with pytest.raises(ToolError):
        Guard(allow_hosts=(entry,)).check(url)


async def test_allowing_an_address_does_not_allow_names_that_lead_to_it() -> None:
    guard = Guard(allow_hosts=("127.0.0.1:80",), resolver=names(evil_example="127.0.0.1"))
    with pytest.raises(ToolError):
        await guard.resolve("evil.example", 80)
    named = Guard(allow_hosts=("evil.example",), resolver=names(evil_example="127.0.0.1"))
    assert [str(address) for address in await named.resolve("evil.example", 80)] == ["127.0.0.1"]


def test_the_lists_of_domains_hold_for_subdomains_only() -> None:
    guard = Guard(allowed_domains=("example.com",), denied_domains=("bad.example.com",))
    guard.check("https://example.com/")
    guard.check("https://www.example.com/")
    for url in ("https://notexample.com/", "https://example.com.evil.org/", "https://8.8.8.8/"):
        with pytest.raises(ToolError, match="allows only"):
            guard.check(url)
    for url in ("https://bad.example.com/", "https://very.BAD.example.com./"):
        with pytest.raises(ToolError, match="denied domains"):
            guard.check(url)


def test_an_allowed_host_is_outside_the_list_of_domains_but_not_of_the_denied() -> None:
    guard = Guard(("127.0.0.1",), ("example.com",), ())
    guard.check("http://127.0.0.1/")
    with pytest.raises(ToolError, match="denied"):
        Guard(("bad.com",), (), ("bad.com",)).check("http://bad.com/")


@pytest.mark.parametrize("entry", ["", ":80", "a b", "host:0", "host:99999", "http://host", "a/b"])
def test_a_wrong_entry_is_named(entry: str) -> None:
    with pytest.raises(ConfigError, match="--allow-host"):
        parse_allowed(entry)


def test_settings_hold_hosts_and_domains_of_options_and_files(tmp_path: object) -> None:
    with open("own.toml", "w") as file:  # noqa: PTH123
        file.write('allow_hosts = ["10.0.0.1"]\n[web]\ndenied_domains = ["*.Bad.example"]\n')
    context = Context(model="openai:x", base_url="http://127.0.0.1:9/v1", config="own.toml",
                      web={"denied_domains": ["worse.example"]})  # fmt: skip
    settings = resolve_settings(context, "t")
    assert settings.allow_hosts == ("10.0.0.1",)
    assert settings.web.denied_domains == ("worse.example", "bad.example")
    guard = Guard.of(settings)
    guard.check("http://10.0.0.1/")
    with pytest.raises(ToolError, match="denied"):
        guard.check("http://x.bad.example/")


def test_an_untrusted_folder_cannot_widen_what_is_reached() -> None:
    with open("openmanus.toml", "w") as file:  # noqa: PTH123
        file.write('allow_hosts = ["127.0.0.1"]\n[web]\nallowed_domains = ["evil.example"]\n'
                   'denied_domains = ["bad.example"]\n')  # fmt: skip
    context = Context(model="openai:x", base_url="http://127.0.0.1:9/v1")
    settings = resolve_settings(context, "t")
    assert settings.allow_hosts == ()
    assert settings.web.allowed_domains == ()
    assert settings.web.denied_domains == ("bad.example",)
    assert any("allow_hosts, web.allowed_domains" in text for text in settings.warnings)


@pytest.mark.parametrize(
    "context",
    [Context(model="openai:x", base_url="http://127.0.0.1:9/v1", allow_hosts=("http://x",)),
     Context(model="openai:x", base_url="http://127.0.0.1:9/v1", web={"denied_domains": ["a b"]}),
     Context(model="openai:x", base_url="http://127.0.0.1:9/v1", web={"deny": ["a"]}),
     Context(model="openai:x", base_url="http://127.0.0.1:9/v1", web={"allowed_domains": 3})],
)  # fmt: skip
def test_wrong_settings_are_refused_before_the_run(context: Context) -> None:
    with pytest.raises(ConfigError):
        resolve_settings(context, "t")
