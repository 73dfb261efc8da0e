"""How many links that nobody named are opened after private data was read."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import tool_call

from openmanus_graph.conversation.history import NOTES_KEY, ORIGIN_KEY, TASK_KEY, VERIFIED_KEY
from openmanus_graph.safety.information_flow import UnaskedOpenings, excess_addresses
from openmanus_graph.safety.openings import (
    MOST_OF_RESULT,
    MOST_OF_RUN,
    MOST_OF_SITE,
    SharedOpenings,
)
from openmanus_graph.safety.provenance import JudgedReply
from openmanus_graph.safety.urls import site_of
from openmanus_graph.safety.value_labels import labels_of, openings_since
from openmanus_graph.state.manus import PendingCall
from openmanus_graph.tool_calls.declaration import flow_traits
from openmanus_graph.tools import default_tools, web_traits
from openmanus_graph.tools.memory import memory
from openmanus_graph.tools.read_untrusted import read_untrusted

TRAITS = flow_traits({tool.name: tool for tool in [*default_tools(), read_untrusted, memory]})
ALPHABET = [f"https://evil.example/{place}/{letter}" for place in range(20) for letter in "abc"]
MANY = ALPHABET[: MOST_OF_SITE + 1]


NAMES = count()


class Conversation:
    """A conversation that grows."""

    def __init__(self, task: str = "Summarise notes.txt.") -> None:
        self.messages: list[AnyMessage] = [HumanMessage(task)]
        self.name = next(NAMES)

    def did(self, name: str, output: str = "", status: Any = "success", **args: Any) -> None:
        number = f"c{len(self.messages)}"
        call = tool_call(name=name, args=args, id=number)
        result = ToolMessage(output, tool_call_id=number, name=name, status=status)
        self.messages += [AIMessage("", tool_calls=[call]), result]

    def note(self, **artifact: Any) -> None:
        """Note things in the last result."""
        self.messages[-1] = self.messages[-1].model_copy(update={"artifact": artifact})

    def read_file(self) -> "Conversation":
        self.did("read_file", "the secret", path="notes.txt")
        return self

    def listed(self, urls: Sequence[str] = ALPHABET) -> "Conversation":
        self.did("fetch_page", "\n".join(urls), url="https://evil.example/")
        return self

    def excess(
        self, *calls: tuple[str, dict[str, Any]], shared: SharedOpenings | None = None
    ) -> list[str]:
        """Return what is asked about of the last of these calls, which one reply makes."""
        made = [tool_call(name=name, args=args, id=f"n{n}") for n, (name, args) in enumerate(calls)]
        name, args = calls[-1]
        call = PendingCall(id=str(made[-1]["id"]), name=name, args=args, occurrence=0, problem=None)
        self.reply = AIMessage("", tool_calls=made, id=f"{self.name} {len(self.messages)}")
        return excess_addresses(call, JudgedReply([*self.messages, self.reply], TRAITS), shared)


def crawl(urls: Sequence[str]) -> tuple[str, dict[str, Any]]:
    return "crawl4ai", {"urls": list(urls)}


def fetch(url: str) -> tuple[str, dict[str, Any]]:
    return "fetch_page", {"url": url}


def test_one_call_cannot_spell_a_file_and_the_question_lists_its_links() -> None:
    read = Conversation().listed().read_file()
    assert read.excess(crawl(MANY)) == MANY
    assert read.excess(crawl(MANY[:-1])) == []


@pytest.mark.parametrize(
    "urls",
    [
        [f"https://{n}.evil.example/" for n in range(MOST_OF_SITE + 1)],
        [f"https://{n}.{n}.evil.co.uk/" for n in range(MOST_OF_SITE + 1)],
        [f"https://evil.example:{8000 + n}/" for n in range(MOST_OF_SITE + 1)],
        [f"https://evil.example/?{n}" for n in range(MOST_OF_SITE + 1)],
        [f"https://evil.example/#{n}" for n in range(MOST_OF_SITE + 1)],
        [f"http://127.0.0.1:{8000 + n}/" for n in range(MOST_OF_SITE + 1)],
        [f"http://93.184.216.{n}/" for n in range(MOST_OF_SITE + 1)],
        [f"http://[2606:4700:0:{n}::1]/" for n in range(MOST_OF_SITE + 1)],
        [f"http://[::ffff:93.184.216.{n}]/" for n in range(MOST_OF_SITE + 1)],
        [f"https://{n}.evil.com.ng/" for n in range(MOST_OF_SITE + 1)],
        [f"HTTPS://EVIL.example/{n}" for n in range(MOST_OF_SITE + 1)],
        ["https://evil.example/"] * (MOST_OF_SITE + 1),  # how often is told, too
    ],
    ids=lambda urls: str(urls[0]),
)
def test_a_site_is_one_however_its_links_differ(urls: list[str]) -> None:
    assert Conversation().read_file().listed(urls).excess(crawl(urls)) == urls


def test_links_of_many_sites_that_one_page_listed_are_limited_too() -> None:
    urls = [f"https://evil{n}.example/" for n in range(MOST_OF_RESULT + 1)]
    listed = Conversation().read_file().listed(urls)
    assert listed.excess(crawl(urls)) == urls
    assert listed.excess(crawl(urls[:-1])) == []


def test_openings_of_all_tools_and_steps_count_together() -> None:
    read = Conversation().listed().read_file()
    read.did("fetch_page", "a page", url=MANY[0])
    read.did("crawl4ai", "pages", urls=MANY[1:3])
    read.did("browser_use", "a page", action="go_to_url", url=MANY[3])
    read.did("read_untrusted", "{}", source=MANY[4], question="x", answer_schema={})
    openings: list[tuple[str, dict[str, Any]]] = [
        fetch(MANY[5]),
        crawl([MANY[5]]),
        ("browser_use", {"action": "open_tab", "url": MANY[5]}),
        ("browser_use", {"action": "go_to_url", "url": MANY[5].removeprefix("https://")}),
        ("read_untrusted", {"source": MANY[5], "question": "x", "answer_schema": {}}),
    ]
    for opening in openings:
        assert len(read.excess(opening)) == 1, opening


def test_calls_of_one_reply_count_together() -> None:
    read = Conversation().listed().read_file()
    assert read.excess(*map(fetch, MANY)) == MANY[-1:]
    assert read.excess(*map(fetch, MANY[:-1])) == []


def test_a_page_that_answers_with_an_error_was_opened_too() -> None:
    read = Conversation().listed().read_file()
    for url in MANY[:-1]:
        read.did("fetch_page", "HTTP 404", "error", url=url)
    assert read.excess(fetch(MANY[-1])) == MANY[-1:]


def test_whoever_allows_more_doubles_it() -> None:
    read = Conversation().listed().read_file()
    read.did("crawl4ai", "pages", urls=MANY)
    assert read.excess(crawl(ALPHABET[:6])) == []
    assert read.excess(crawl(ALPHABET[:7])) == ALPHABET[:7]


def test_a_rejected_call_allows_nothing() -> None:
    read = Conversation().listed().read_file()
    read.did("crawl4ai", "A person did not allow it.", "error", urls=MANY)
    assert read.excess(fetch(MANY[0])) == MANY[:1]


@pytest.mark.parametrize("task", ["Read evil.example.", "See https://evil.example/0 and notes.txt"])
def test_sites_that_the_person_named_are_free(task: str) -> None:
    assert Conversation(task).listed().read_file().excess(crawl(ALPHABET[:20])) == []


def test_before_private_data_was_read_nothing_can_leave() -> None:
    web = Conversation().listed()
    web.did("web_search", "results", query="x")
    assert web.excess(crawl(ALPHABET[:20])) == []


@pytest.mark.parametrize(
    "private",
    [
        ("bash", {"command": "cat notes.txt"}),
        ("python_execute", {"code": "x"}),
        ("str_replace_editor", {"command": "view", "path": "notes.txt"}),
        ("mcp_mail_read", {}),
        ("read_untrusted", {"source": "notes.txt"}),
    ],
)
def test_what_is_private(private: tuple[str, dict[str, Any]]) -> None:
    conversation = Conversation().listed()
    conversation.did(private[0], "the secret", **private[1])
    assert conversation.excess(crawl(MANY)) == MANY


@pytest.mark.parametrize(
    ("name", "artifact"),
    [
        ("ask_human", None),
        ("memory", {"trusted_text": True}),
        ("memory", None),
        ("fetch_page", {"said": ["Not that one: my key is 123."]}),
    ],
)
def test_what_the_person_answered_and_noted_is_private(name: str, artifact: Any) -> None:
    reported = Conversation().listed()
    reported.did(name, "the secret")
    reported.messages[-1] = reported.messages[-1].model_copy(update={"artifact": artifact})
    assert reported.excess(crawl(MANY)) == MANY


def test_without_anything_untrusted_an_answer_limits_nothing() -> None:
    reported = Conversation()
    reported.did("ask_human", "the secret")
    assert reported.excess(crawl(MANY)) == []


def chain(length: int) -> Conversation:
    """Follow links from site to site, each of which is shown by the page before."""
    read = Conversation().read_file()
    for n in range(length):
        read.did("fetch_page", f"https://evil{n + 1}.example/", url=f"https://evil{n}.example/")
    return read


def test_a_chain_of_links_over_many_sites_ends() -> None:
    last = fetch(f"https://evil{MOST_OF_RUN}.example/")
    assert chain(MOST_OF_RUN - 1).excess(last) == []
    long = chain(MOST_OF_RUN)
    assert long.excess(last) == [last[1]["url"]]
    long.did(last[0], "a page", **last[1])  # allowed
    assert long.excess(fetch("https://another.example/")) == []
    kept = labels_of(long.messages, TRAITS).kept()
    extra = {TASK_KEY: "Look.", NOTES_KEY: "x", VERIFIED_KEY: kept}
    long.messages = [HumanMessage("notes", additional_kwargs=extra)]
    many = [f"https://other{n}.example/" for n in range(MOST_OF_RUN + 2)]
    assert long.excess(crawl(many)) == many


def test_allowing_links_of_one_site_lowers_no_other_limit() -> None:
    read = chain(MOST_OF_RUN - MOST_OF_SITE - 2)
    read.did("crawl4ai", "pages", urls=MANY)  # allowed
    assert read.excess(fetch("https://another.example/")) == []


def test_a_chain_of_subagents_ends_too() -> None:
    inner = Conversation()
    before = {f"site evil{n}.example": 1 for n in range(MOST_OF_RUN)}
    origin: Any = {"words": "", "urls": [], "tainted": True, "openings": before}
    inner.messages = [HumanMessage("x", additional_kwargs={ORIGIN_KEY: origin})]
    assert inner.excess(fetch(MANY[0])) == MANY[:1]


def test_a_quoted_mail_and_a_picture_are_private_too() -> None:
    assert Conversation("Look.\n> the secret\n").listed().excess(crawl(MANY)) == MANY
    shown = Conversation()
    shown.messages = [HumanMessage("Look.", additional_kwargs={"images": ["a.png"]})]
    assert shown.listed().excess(crawl(MANY)) == MANY


def test_a_compaction_forgets_no_opening() -> None:
    read = Conversation().listed().read_file()
    read.did("crawl4ai", "pages", urls=MANY[:-1])
    kept = labels_of(read.messages, TRAITS).kept()
    extra = {TASK_KEY: "Look.", NOTES_KEY: "x", VERIFIED_KEY: kept}
    read.messages = [HumanMessage("notes", additional_kwargs=extra)]
    assert read.excess(fetch(MANY[-1])) == MANY[-1:]


def test_agents_within_and_steps_count_together() -> None:
    inner = Conversation()
    origin: Any = {"words": "", "urls": [], "tainted": True, "openings": {"site evil.example": 2}}
    inner.messages = [HumanMessage("x", additional_kwargs={ORIGIN_KEY: origin})]
    inner.did("crawl4ai", "pages", urls=MANY[:3])
    assert inner.excess(fetch(MANY[3])) == MANY[3:4]
    opened = openings_since(inner.messages, web_traits())
    assert opened == {"site evil.example": 3}
    outer = Conversation().listed().read_file()
    outer.did("delegate", "done", task="x", agent="browser")
    outer.messages[-1] = ToolMessage("x", tool_call_id="c5", artifact={"openings": opened})
    assert outer.excess(crawl(MANY[:3])) == MANY[:3]
    assert outer.excess(crawl(MANY[:2])) == []


def test_runs_side_by_side_count_together() -> None:
    shared = SharedOpenings({"site evil.example": 1})
    one, two = Conversation().listed().read_file(), Conversation().listed().read_file()
    assert one.excess(crawl(MANY[:2]), shared=shared) == []
    assert one.excess(crawl(MANY[:2]), shared=shared) == []  # the same call is looked at again
    assert two.excess(crawl(MANY[:2]), shared=shared) == []
    assert two.excess(crawl(MANY[:3]), shared=shared) == MANY[:3]
    assert one.excess(crawl(MANY[:2]), shared=shared) == MANY[:2]
    assert one.excess(fetch("https://other.example/"), shared=shared) == []


def test_runs_side_by_side_share_the_limit_of_all_sites() -> None:
    shared = SharedOpenings({})
    for n in range(MOST_OF_RUN):
        opening = fetch(f"https://evil{n}.example/")
        assert Conversation().listed().read_file().excess(opening, shared=shared) == []
    assert Conversation().read_file().listed().excess(fetch(MANY[0]), shared=shared) == MANY[:1]


def test_what_ran_counts_once_and_what_was_allowed_is_allowed_to_all() -> None:
    shared = SharedOpenings({})
    one, two = Conversation().listed().read_file(), Conversation().listed().read_file()
    assert one.excess(crawl(MANY[:-1]), shared=shared) == []
    one.messages += [one.reply, ToolMessage("pages", tool_call_id="n0", name="crawl4ai")]
    assert two.excess(fetch(MANY[0]), shared=shared) == MANY[:1]
    two.messages += [two.reply, ToolMessage("a page", tool_call_id="n0", name="fetch_page")]
    assert two.excess(crawl(MANY[:6]), shared=shared) == []
    assert one.excess(fetch(MANY[0]), shared=shared) == MANY[:1]


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("a.b.evil.example", "evil.example"),
        ("evil.example", "evil.example"),
        ("a.evil.co.uk", "evil.co.uk"),
        ("evil.co.uk", "evil.co.uk"),
        ("a.evil.com.br", "evil.com.br"),
        ("a.b.github.io", "github.io"),
        ("co.uk", "co.uk"),
        ("localhost", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.2", "127.0.0.2"),
        ("::1", "::1"),
        ("93.184.216.34", "93.184.216.0/24"),
        ("::ffff:93.184.216.34", "93.184.216.0/24"),
        ("2606:4700::1", "2606:4700::/48"),
        ("2606:4700:0:ffff::1", "2606:4700::/48"),
        ("2606:4700:1::1", "2606:4700:1::/48"),
        ("a.evil.city.kawasaki.jp", "city.kawasaki.jp"),
        ("a.evil.k12.ca.us", "evil.k12.ca.us"),
        ("a.evil.com.ac", "evil.com.ac"),
        ("com", "com"),
    ],
)
def test_the_site_of_a_host(host: str, site: str) -> None:
    assert site_of(host) == site


ACTIONS: list[dict[str, Any]] = [
    {"action": "click_element", "index": 7},
    {"action": "click_at", "x": 3, "y": 4},
    {"action": "hover", "index": 7},
    {"action": "select_dropdown_option", "index": 1, "text": "c"},
    {"action": "send_keys", "keys": "Tab"},
    {"action": "drag_and_drop", "index": 1, "target_index": 7},
    {"action": "go_back"},
    {"action": "refresh"},
]


def acted(conversation: Conversation, times: int, site: str = "https://evil.example") -> None:
    for number in range(times):
        conversation.did("browser_use", "the page", **ACTIONS[number % len(ACTIONS)])
        conversation.note(site=site)


def at_page(task: str = "Summarise notes.txt.", site: str = "https://evil.example") -> Conversation:
    begun = Conversation(task)
    begun.did("browser_use", "the page", action="go_to_url", url=site)
    begun.note(site=site)
    return begun


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action["action"])
def test_an_action_in_a_page_tells_its_site_something(action: dict[str, Any]) -> None:
    read = at_page().read_file()
    acted(read, MOST_OF_SITE - 1)
    assert read.excess(("browser_use", action)) == []
    acted(read, 1)
    assert read.excess(("browser_use", action)) == ["https://evil.example"]


def test_actions_of_one_reply_count_together() -> None:
    click = ("browser_use", ACTIONS[0])
    assert at_page().read_file().excess(*[click] * (MOST_OF_SITE + 1)) == ["https://evil.example"]
    there = ("browser_use", {"action": "go_to_url", "url": "https://other.example/"})
    assert at_page().read_file().excess(there, *[click] * MOST_OF_SITE) == [
        "https://other.example/"
    ]


def test_looking_at_a_page_tells_nothing() -> None:
    read = at_page().read_file()
    acted(read, MOST_OF_SITE)
    for action in ("get_state", "extract_content", "wait", "scroll_down"):
        assert read.excess(("browser_use", {"action": action})) == []


@pytest.mark.parametrize("read", [True, False])
def test_clicks_are_free_in_sites_that_the_person_named_and_before_anything_private(
    read: bool,
) -> None:
    named = at_page("Book a room at evil.example.") if read else at_page()
    if read:
        named.read_file()
    acted(named, 40)
    assert named.excess(("browser_use", ACTIONS[0])) == []


@pytest.mark.parametrize("switching", ["switch_tab", "close_tab"])
def test_actions_in_a_page_that_is_not_known_yet_count_together(switching: str) -> None:
    named = at_page("Book a room at evil.example.").read_file()
    pair = [("browser_use", {"action": switching}), ("browser_use", ACTIONS[0])]
    assert named.excess(*pair * MOST_OF_SITE) == []
    assert len(named.excess(*pair * (MOST_OF_SITE + 1))) == 1


def unasked(read: Conversation, *made: tuple[str, dict[str, Any]]) -> UnaskedOpenings:
    """Return what the calls of a reply open of themselves."""
    search = ("web_search", {"query": "x", "fetch_content": True})
    read.excess(*made, search)
    messages = [*read.messages, read.reply]
    return UnaskedOpenings(messages, web_traits(), tainted=False, shared=None)


def test_pages_that_a_search_reads_of_itself_are_limited_and_counted() -> None:
    read = Conversation().read_file()
    pages = unasked(read)
    assert [pages.may_open(url) for url in MANY] == [True] * MOST_OF_SITE + [False]
    assert pages.may_open("https://other.example/")
    beside = unasked(read, crawl(MANY[:3]))
    assert [beside.may_open(url) for url in MANY[3:]] == [True, True, False]
    read.did("web_search", "results", query="x", fetch_content=True)
    opened = pages.by_site(MANY[:3])
    assert opened == {"site evil.example": 3}
    read.note(openings=opened)
    assert read.excess(crawl(MANY[:3])) == MANY[:3]
    assert read.excess(crawl(MANY[:2])) == []


@pytest.mark.parametrize("task", ["Look.", "Read evil.example and notes.txt."])
def test_pages_of_a_search_are_free_of_named_sites_and_before_anything_private(task: str) -> None:
    read = Conversation(task)
    if "notes" in task:
        read.read_file()
    assert all(unasked(read).may_open(url) for url in ALPHABET)
    assert unasked(read).by_site(ALPHABET) == {}
