"""Extracts addresses from text, and puts them into a canonical form."""

import contextlib
import html
import re
from collections.abc import Iterable, Iterator
from functools import cache
from ipaddress import ip_network
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from openmanus_graph.errors import ToolError
from openmanus_graph.safety import word_set
from openmanus_graph.state.addresses import (
    PORTS,
    WebAddress,
    authority,
    has_scheme,
    literal_ip,
    normal_host,
    parse_address,
    within,
)

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

_LINK = re.compile(r"https?://[^\s<>\"`\\|^{}]+", re.IGNORECASE)
_ESCAPED = re.compile(r"\\u0026|\\/|\\([_*\[\]()#+.!~-])")
_ENDINGS = ".,;:!?)]*_~'"
_PATH = re.compile(r"(?<!\S)/\S*(?<!…)(?!\S)")
_CUTS = re.compile(r"[)\]']")
_MOST_CUTS = 4
_DOMAIN = re.compile(
    r"(?i)(?:(?<!\w)(?P<scheme>\w+://)|(?<![@\w.-]))"
    r"(?P<host>(?:[\w-]+\.)+[^\W\d_][\w-]+|localhost|(?:\d{1,3}\.){3}\d{1,3}|\[[\da-f:]+\])"
    r"(?::(?P<port>\d{1,5}))?"
)
_NETWORK_BITS = {4: 24, 6: 48}
"""Bits of an IP address that identify one owner."""
_FILE_ENDINGS = word_set("py md sh zip rs pl so cc mov ps cab")
"""Top-level domains that are more likely file extensions, in names without a scheme."""
FILES_OR_HOSTS = _FILE_ENDINGS | word_set("fish java map ml properties pub tf")
"""File extensions that are also top-level domains."""
_NEVER_HOSTS = _FILE_ENDINGS | word_set(
    "bat bin bz2 c cfg cjs class clj cmd conf cpp cs css csv dat db deb diff dll doc docx env exe "
    "fish gif go gradle gz h hcl hpp hs htm html ico ini ipynb iso jar java jpeg jpg js json jsx "
    "key kt lock log lua m map md5 mjs ml mp3 mp4 nix odt out parquet patch pdf pem php png pptx "
    "properties proto ps1 psd pub pyc pyi r rb rpm rst scala scss sha256 sql sqlite svg swift tar "
    "tex tf tfvars tgz ts tsv tsx ttf txt vim vue wasm wav webp whl woff xls xlsx xml yaml yml zig "
    "zsh"
)
"""File extensions, some of which are also top-level domains."""
_SITE_ENDINGS = word_set(
    "com org edu gov mil biz uk ca au jp cn ru nl ch se br kr nz dk fi cz gr tw hk sg za mx ar il "
    "tr ua ie tv example"
)
"""Endings that names of files and in code rarely have."""
_DOUBTFUL_ENDINGS = word_set("net io ai dev co int de fr es it us at be no pt in")
"""Endings of sites that files, languages, libraries and words of code also have."""
_SITE_WORDS = (
    r"(?:web\s*)?sites?|web\s*pages?|pages?|home\s*pages?|domains?|hosts?|hostnames?|servers?|urls?|portals?"
    r"|blogs?|forums?|shops?|stores?|apis?|endpoints?|webhooks?|web\s*shops?|wikis?"
)
_CALLED_SITE = re.compile(
    rf"(?i)(?:\b(?:{_SITE_WORDS})(?:\s+(?:is|are|at|of|called|named|on|under|address))?\s*:?|网站|站点|网页|域名|网址|主页|官网)\s*[\"'“‘(`]*$"
)
_IS_SITE = re.compile(
    rf"(?i)^[\"'”’)`]*(?:'s)?\s+(?:is\s+)?(?:(?:a|an|the|my|our|your|whose)\s+)?(?:{_SITE_WORDS})\b|^[\"'”’)`]*\s*的?(?:网站|站点|网页|官网|域名)"
)
_BROWSED = re.compile(
    r"(?i)\b(?:visit|go\s+to|browse(?:\s+to)?|navigate\s+to|crawl|scrape|search|ping|curl|access|reach"
    r"|(?:posts?|articles?|news|headlines?|docs|documentation|weather|prices?|reviews?)\b[^.!?,;\n]{0,30}"
    r"\s(?:of|on|at|from))\s+(?:the\s+)?[\"'“‘(]*$|(?:访问|浏览|登录)\s*[\"'“‘(]*$"
)
"""Words before a name that only a site can have."""
_VISITED = re.compile(
    r"(?i)(?:^|\b(?:look(?:ing)?\s+at|see|open|check(?:\s+out)?|read|fetch|call|use|using|compare|load|on|from|at|via|to"
    r"|into|against|with|of|is|does|do)\s+(?:the\s+)?|[\w.]\s*\()[\"'“‘(]*$"
)
_BESIDE_CHINESE = re.compile(r"[\u4e00-\u9fff]\s*[\"'“‘(（《]*$")
_CHANGED_ZH = re.compile(r"(?:修复|修改|编辑|改|运行|重命名)\s*[\"'“‘(]*$")
_CHINESE_BEHIND = re.compile(r"^[\"'”’)）》]*\s*[\u4e00-\u9fff]")
_JUDGED_BEFORE = re.compile(
    r"(?i)\b(?:hacked|scammed|phishing|scam|fake|fraud\w*|malicious|malware|spam|block|blocked|avoid|who\s+owns)\b"
    r"[^.!?,;:\n]{0,40}$|\b(?:got|received)\b[^.!?\n]*\b(?:sms|e-?mail|mail|message|letter)\b[^.!?\n]*$"
    r"|(?:黑客|骗子|诈骗|钓鱼|假冒|恶意)[^。！？，；\n]{0,15}$"
)
_JUDGED_BEHIND = re.compile(
    r"(?i)^[^\s.!?,;]*[\"'”’)]*\s+(?:site\s+|page\s+)?(?:(?:is|are|was|looks|seems)\s+(?:like\s+)?(?:a\s+|an\s+)?"
    r"(?:phishing|scam|fake|fraud\w*|malware|malicious|dangerous|spam|hacked|off[ -]limits"
    r"|forbidden|blocked|unsafe)\b|(?:must|should|may)\s+(?:never|not)\b|(?:safe|legit\w*|trustworthy)\b)"
    r"|^[^\s。！？，；]*\s*(?:的?(?:网站|站点|网页))?\s*(?:是(?:个|一个)?(?:骗|诈|钓|假|病毒|黑|恶)|不要|别|勿|禁止|骗|偷)"
)
"""Words of a person who says what is wrong with a site, and does not want it opened."""
_AND = re.compile(
    r"(?i)^[\"'”’)]*\s*(?:,|/|&|、|and|or|with|vs\.?|versus|和|或|,\s*and)\s*(?:the\s+)?[\"'“‘(]*$"
)
_A_FILE = re.compile(
    r"(?i)\b(?:files?|scripts?|modules?|attachments?|function|variable|class)\s+(?:named\s+|called\s+)?"
    r"[\"'“‘(`]*$|(?:文件|脚本|变量|函数|模块)\s*[\"'“‘(`]*$"
)
_IS_FILE = re.compile(
    r"(?i)^[\"'”’)`]*\s+(?:file|script|module|attachment|function|method|variable)\b|^\(|^\w"
    r"|^[\"'”’)`]*\s*(?:文件|脚本|变量|函数|模块)"
)
_ATTACHED = re.compile(r"^Files in the workspace: (?P<names>.+)$", re.MULTILINE)
_NEXT_SENTENCE = re.compile(
    rf"(?<=[\w-]\.)({'|'.join(sorted(_SITE_ENDINGS | _DOUBTFUL_ENDINGS))})\.(?:[A-Z][a-z]*|I)$"
)
"""A host, and the start of a sentence that follows without a space."""
_CHARS_AROUND = 60


def site_of(host: str) -> str:
    """Return what one owner easily has: the registrable domain of a host, or its network.

    All hosts of a hosting service (`github.io`) are one site, because anybody gets many of them.
    """
    address = literal_ip(host)
    if address is None:
        return _public_suffixes().privatesuffix(host.rstrip(".")) or host
    address = getattr(address, "ipv4_mapped", None) or address
    if address.is_loopback:  # this machine; the guard keeps others away
        return host
    return str(ip_network((address, _NETWORK_BITS[address.version]), strict=False))


Domain = tuple[str, int | None]
"""A domain, and its port if only that one counts."""


def is_of_domains(address: WebAddress, domains: Iterable[Domain]) -> bool:
    """Return True if an address lies in one of these domains."""
    return any(
        within(address.host, domain)
        and (address.port == port if port else address.port in PORTS.values())
        for domain, port in domains
    )


def may_be_host(name: str) -> bool:
    """Return True if a name with dots is a host, and not a file or a version."""
    ending = name.rpartition(".")[2].lower()
    if ending in _NEVER_HOSTS:
        return _public_suffixes().publicsuffix(ending, accept_unknown=False) is not None
    return len(ending) > 1 and ending[0].isalpha()


@cache
def _public_suffixes() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList

    return PublicSuffixList(only_icann=True)


def is_file_name(name: str, *, only: bool = False) -> bool:
    """Return True if a name with a dot ends like a file; if `only`, and not also like a host."""
    ending = name.rpartition(".")[2].lower()
    return ending in _NEVER_HOSTS and not (only and ending in FILES_OR_HOSTS)


def begins_with_file(url: str) -> bool:
    """Return True if an address has no scheme, and begins with a name that no host can have."""
    first = re.split(r"[/?#:]", url.strip(), maxsplit=1)[0]
    return not has_scheme(url) and is_file_name(first, only=True)


def urls_in(text: str) -> Iterator[str]:
    """Yield every address in a text, with and without trailing punctuation."""
    unescaped = {"\\u0026": "&", "\\/": "/"}
    plain = html.unescape(_ESCAPED.sub(lambda found: unescaped.get(found[0]) or found[1], text))
    for variant in (text, plain) if plain != text else (text,):
        for found in _LINK.finditer(variant):
            link = found[0]
            cuts = [cut.start() for cut in _CUTS.finditer(link)][:_MOST_CUTS]
            yield from (link, link.rstrip(_ENDINGS), *(link[:cut] for cut in cuts))


def domains_in(text: str) -> Iterator[Domain]:
    """Yield the hosts in a text of addresses, with the port if there is one."""
    for found in _DOMAIN.finditer(text):
        ending = found["host"].rpartition(".")[2].lower()
        if found["scheme"] or ending not in _FILE_ENDINGS:
            yield from _host(found)


def named_domains(text: str) -> Iterator[Domain]:
    """Yield the hosts that a person names in a text, with the port if there is one.

    A bare name counts only if words say that it is a site: most names with a dot are those of
    files, or of things in code.
    """
    attached = ",".join(found["names"] for found in _ATTACHED.finditer(text))
    files = {name.strip() for name in attached.split(",")}
    last, was_site = 0, False
    for found in _DOMAIN.finditer(text):
        before = text[max(0, found.start() - _CHARS_AROUND) : found.start()]
        after = text[found.end() : found.end() + _CHARS_AROUND]
        follows = was_site and _AND.match(text[last : found.start()][:_CHARS_AROUND]) is not None
        was_site = found["host"] not in files and _is_site(found, before, after, follows=follows)
        last = found.end()
        if was_site:
            yield from _host(found)


def _is_site(found: re.Match[str], before: str, after: str, *, follows: bool) -> bool:
    if _JUDGED_BEFORE.search(before) or _JUDGED_BEHIND.match(after):
        return False
    if found["scheme"] or found["host"].lower().startswith("www."):
        return True
    ending = found["host"].rpartition(".")[2].lower()
    if ending in _NEVER_HOSTS or _A_FILE.search(before) or _IS_FILE.match(after):
        return False
    is_sure = ending in _SITE_ENDINGS or ending == "localhost" or found["port"] is not None
    host = found["host"]
    # A version: `3.at` begins with a number, and is not an IP address.
    if host.partition(".")[0].isdigit() and host.rpartition(".")[2].isalpha() and not is_sure:
        return False
    if follows or _CALLED_SITE.search(before) or _IS_SITE.match(after):
        return True
    if is_sure:
        return _is_spoken_of(before, after)
    is_doubtful = ending in _DOUBTFUL_ENDINGS or not ending.isalpha()  # an IP address
    return is_doubtful and (
        _BROWSED.search(before) is not None or (not before and after.startswith(":"))
    )


def _is_spoken_of(before: str, after: str) -> bool:
    """Return True if the words around a name with a usual ending do not treat it as a file."""
    return not _CHANGED_ZH.search(before) and (
        after.startswith("/")
        or any(one.search(before) for one in (_BROWSED, _VISITED, _BESIDE_CHINESE))
        or _CHINESE_BEHIND.match(after) is not None
    )


def _host(found: re.Match[str]) -> Iterator[Domain]:
    host = _NEXT_SENTENCE.sub(r"\1", found["host"])
    with contextlib.suppress(ToolError):
        name = normal_host(host.strip("[]") if host.startswith("[") else host)
        yield name.removeprefix("www."), int(found["port"]) if found["port"] else None


def canonical_url(url: str) -> str:
    """Return the canonical form of an address. ToolError if it is invalid.

    The scheme and a last slash cannot carry data, so they do not count. A fragment can, because
    scripts of the page read it.
    """
    address = parse_address(url)
    fragment = urlsplit(url).fragment
    path = address.url[len(address.origin) :].rstrip("/")
    host = authority(address.host, address.port, address.scheme)
    return f"{host}{path}" + (f"#{fragment}" if fragment else "")


def canonical_urls(addresses: Iterable[str]) -> frozenset[str]:
    found: set[str] = set()
    for address in set(addresses):
        with contextlib.suppress(ToolError):
            found.add(canonical_url(address))
    return frozenset(found)


def links_of(text: str, source: str) -> list[str]:
    """Return the links of a text that its source also contains."""
    known = canonical_urls_in(source)
    return [url for url in dict.fromkeys(urls_in(text)) if canonical_urls([url]) & known]


def paths_in(text: str) -> frozenset[str]:
    """Return what may be addresses without their site in a text, except cut ones."""
    return frozenset(found[0] for found in _PATH.finditer(text))


def canonical_urls_in(text: str) -> frozenset[str]:
    """Return the canonical addresses of a text, each also without its fragment."""
    found = canonical_urls(urls_in(text))
    return found | {identity.partition("#")[0].rstrip("/") for identity in found}
