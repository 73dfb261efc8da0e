"""A site with a login and a second factor: a code in six boxes of its own."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from urllib.parse import parse_qs

from tests.support.local_http import LocalServer, SilentHandler

USER, PASSWORD, CODE = "alice.liddell@example.org", "tea-at-six!Ω", "493817"
FIELD = (300, 100)
"""A place in the first field of each page, in CSS pixels."""
_STYLE = "<style>input{position:absolute;left:100px;width:400px;height:40px;font-size:20px}</style>"
_LOGIN = (
    f"<title>Log in</title>{_STYLE}<form method=post action=/login>"
    "<input name=user placeholder=User style='top:80px'>"
    "<input name=word type=password placeholder=Password style='top:140px'>"
    "<button style='position:absolute;top:200px'>Go</button></form>"
)
_BOXES = "".join(
    f"<input name=d{n} maxlength=1 style='top:80px;left:{100 + 60 * n}px;width:40px'>"
    for n in range(6)
)
_SECOND = (
    f"<title>Second factor</title>{_STYLE}<form method=post action=/code>{_BOXES}</form><script>"
    "const boxes = [...document.querySelectorAll('input')]; boxes[0].focus();"
    "for (const [n, box] of boxes.entries()) box.addEventListener('keyup', () => {"
    " if (box.value && boxes[n + 1]) boxes[n + 1].focus();"
    " if (boxes.every((one) => one.value)) document.forms[0].submit(); });</script>"
)


@dataclass
class LoginSite:
    """A running site and what it was sent."""

    url: str
    tried: list[dict[str, str]] = field(default_factory=list[dict[str, str]])


@contextmanager
def login_site() -> Generator[LoginSite]:
    """Serve for the length of a block."""

    class Handler(SilentHandler):
        def do_GET(self) -> None:
            stage = SimpleCookie(self.headers.get("Cookie", "")).get("stage")
            pages = {"second": _SECOND, "inside": f"<title>Home</title><p>Welcome, {USER}. 7 cups."}
            self._send(200, pages.get(stage.value if stage else "", _LOGIN))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given = {name: values[0] for name, values in parse_qs(body).items()}
            site.tried.append(given)
            code = "".join(given.get(f"d{n}", "") for n in range(6))
            right = (given.get("user"), given.get("word")) == (USER, PASSWORD)
            stage = "inside" if code == CODE else "second" if right else "none"
            self._send(303, "", ("Set-Cookie", f"stage={stage}"), ("Location", "/"))

        def _send(self, status: int, text: str, *headers: tuple[str, str]) -> None:
            body = f"<meta charset=utf-8>{text}".encode()
            self.send_response(status)
            for name, value in (*headers, ("Content-Type", "text/html")):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = LocalServer(Handler)
    site = LoginSite(server.url)
    server.begin()
    try:
        yield site
    finally:
        server.end()
