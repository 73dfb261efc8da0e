"""HTML of others, as it is shown: without elements that connect by themselves."""

import pytest

from openmanus_graph.interfaces.server.file_views import still_html

LINK = '<LINK rel="preconnect" href="http://x.test">'


@pytest.mark.parametrize(
    "tag",
    ["link", "LiNk", "meta", "base", "iframe", "frame", "object", "embed", "portal", "fencedframe"],
)
@pytest.mark.parametrize("end", [" ", "/", "\n", "\f", "\t", ">", ""])
def test_elements_that_connect_become_one_that_does_nothing(tag: str, end: str) -> None:
    assert still_html(f"a<{tag}{end}".encode()) == f"a<bgsound{end}".encode()
    assert still_html(f"a</{tag}{end}".encode()) == f"a</bgsound{end}".encode()


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "gb18030", "cp1252"])
def test_no_encoding_hides_a_tag(encoding: str) -> None:
    page = f"<meta charset={encoding}><p>é</p>{LINK}"
    shown = still_html(page.encode(encoding))
    assert b"<LINK" not in shown
    assert b"L\0I" not in shown
    assert not shown.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"))


def test_what_else_there_is_stays_as_it_is() -> None:
    page = "<p class=link>a < link &lt;link> <a href='#'>meta</a><style>p{}</style><metal></metal>"
    assert still_html(page.encode()).decode() == page
