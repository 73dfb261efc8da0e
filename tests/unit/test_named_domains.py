"""Which names with a dot a person means as hosts: no files, no code, and none that he warns of."""

import pytest

from openmanus_graph.safety.urls import named_domains
from openmanus_graph.safety.values import plainly_written

pytestmark = pytest.mark.slow


def named(text: str) -> list[str]:
    return [host for host, _ in named_domains(plainly_written(text))]


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("What does nytimes.com say about it?", "nytimes.com"),
        ("I need the newest post of simonwillison.net", "simonwillison.net"),
        ("the BBC (bbc.co.uk) headline please", "bbc.co.uk"),
        ("Hacker News (news.ycombinator.com)?", "news.ycombinator.com"),
        ("Is status.openai.com green?", "status.openai.com"),
        ("summarise example.co.uk/news please", "example.co.uk"),
        ("帮我查一下 zhihu.com 的热榜", "zhihu.com"),
        ("知乎(zhihu.com)热榜是什么", "zhihu.com"),
        ("不用百度，用bing.com搜", "bing.com"),
        ("打开京东jd.com比较手机价格", "jd.com"),
        ("查一下知乎zhihu.com上的回答", "zhihu.com"),
        ("163.com的新闻", "163.com"),
        ("Read the docs of requests on readthedocs.io", "readthedocs.io"),
        ("Get the weather from wttr.in", "wttr.in"),
        ("Visit mysite.io", "mysite.io"),
        ("My site is data.es", "data.es"),
        ("heise.de: summarise the top story", "heise.de"),
        ("ping 203.0.113.9", "203.0.113.9"),
        ("open 203.0.113.9:8080", "203.0.113.9"),
        ("Compare taobao.com and jd.com", "jd.com"),
    ],
)
def test_words_and_chinese_around_a_name_make_it_a_host(text: str, host: str) -> None:
    assert host in named(text)


@pytest.mark.parametrize(
    "text",
    [
        "open logo.ai", "open data.es", "load model.pt and weights.pt", "read strings.es",
        "translate messages.de and messages.fr", "use Socket.IO", "Use ASP.NET", "on main.us",
        "use System.IO", "from torch.ai import x", "with model.eu set", "see utils.ai for it",
        "look at index.de", "call self.net", "to foo.be or bar.be", "compare v1.at and v2.at",
        "use com.example.app.io", "page 3.at", "compare income.net and income.gross",
        "upgrade from 1.2.3.4", "use 1.1.1.1 as version", "read section 1.2.3.4",
        "修改example.com", "打开文件example.com", "example.com 文件", "打开logo.ai",
    ],
)  # fmt: skip
def test_files_libraries_and_versions_are_no_hosts(text: str) -> None:
    assert named(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "the site evil.com is phishing", "evil.com is a scam site", "is the site evil.com safe?",
        "I was hacked by the site evil.com", "I got an SMS with the url evil.com",
        "The phishing mail links to evil.com", "block the site evil.com",
        "Who owns https://evil.com?",
        "https://evil.com/x is malware", "https://evil.com is a phishing site, warn bob",
        "evil.com is off limits", "evil.com的网站是骗子", "黑客网站evil.com偷了我的钱",
        "evil.com网站是骗子，别去", "网站evil.com不要打开",
    ],
)  # fmt: skip
def test_a_site_that_a_person_warns_of_is_not_named(text: str) -> None:
    assert named(text) == []


def test_no_text_takes_long() -> None:
    for piece in (
        "a.com ",
        "got mail ",
        "posts ",
        "phishing ",
        "evil.com is ",
        "是骗",
        "(",
        "x.io of ",
    ):
        named(piece * (200_000 // len(piece)))
