"""A local web server whose pages do what pages on the web do to browsers."""

import base64
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

from tests.support.local_http import LocalServer, SilentHandler

FORM = """<title>Form</title><h1>Form</h1>
<form action=/echo><input name=user aria-label=User><input type=password name=pass aria-label=Word>
<input name=plain aria-label=Plain></form>
<button onclick="document.querySelector('#said').textContent = 'Hello ' +
document.querySelector('[name=user]').value">Greet</button><p id=said></p>"""

DIALOGS = """<title>Dialogs</title><p id=said>nothing</p>
<button onclick="alert('Mind the gap')">Alert</button>
<button onclick="said.textContent = 'confirmed ' + confirm('Delete all?')">Confirm</button>
<button onclick="said.textContent = 'name ' + prompt('Your name?', 'Bob')">Prompt</button>
<input aria-label=Text oninput="window.onbeforeunload = event => event.preventDefault()">"""

TABS = """<title>Tabs</title><a href=/plain target=_blank>New tab</a>
<button onclick="window.open('/closing')">Open</button>
<a href=/late target=_blank>Late tab</a>
<button onclick="for (let i = 0; i < 30; i++) window.open('about:blank')">Flood</button>"""

FILES = """<title>Files</title><a href=/report>Report</a><a href=/endless>Endless</a>
<a href=/traversal>Traversal</a><a href=/slow>Slow</a><input type=file id=field hidden
onchange="this.files[0].text().then(text => said.textContent = this.files[0].name + ': ' + text)">
<button onclick="field.click()">Choose</button><p id=said></p>"""

ARTICLE = """<title>Tower</title><nav><a href=/plain>Menu entry</a></nav><main><h1>The tower</h1>
<p>The tower was opened on 31 March 1889 and is <b>330 metres</b> high, says its keeper.</p>
<p>It has three floors for visitors and is painted every seven years.</p>
<script>document.currentScript.outerHTML = '<p>Rendered by a script.</p>'</script>
<div id=host></div><div id=shut></div><iframe src=/inner></iframe></main>
<script>host.attachShadow({mode: 'open'}).innerHTML = '<p>In the shadow root.</p>';
shut.attachShadow({mode: 'closed'}).innerHTML = '<p>In the closed root.</p>'</script>"""

PERMISSIONS = """<title>Asking</title><button onclick="Notification.requestPermission().then(
answer => said.textContent = 'notifications ' + answer)">Ask</button><p id=said></p>
<p>This page wants to send notifications.</p>"""

PAGES = {
    "/plain": "<title>Plain</title><h1>Plain page</h1>"
    "<p>It has a sentence or two, and a <a href=/form>link</a>.",
    "/form": FORM,
    "/dialogs": DIALOGS,
    "/tabs": TABS,
    "/closing": "<title>Closing</title><p>This page closes itself when asked to.</p>"
    "<button onclick='setTimeout(() => window.close(), 50)'>Close me</button>",
    "/files": FILES,
    "/long": "<title>Long</title>"
    + "".join(f"<p>Line {n} of a page that goes on and on and on.</p>" for n in range(2000)),
    "/article": ARTICLE,
    "/inner": "<p>Told in a frame.</p>",
    "/permissions": PERMISSIONS,
    "/echoed": "<title>Echo</title><p>Your word is hunter2-secret.</p><input aria-label=More>",
    "/inward": "<title>Inward</title><img src='http://169.254.169.254/latest'>"
    "<p>The picture is inward, where nobody may look.</p>",
    "/cookie": "<title>Cookie</title><p>The cookies of this page are:</p><p id=said></p>"
    "<script>said.textContent = document.cookie</script>",
}


class _Handler(SilentHandler):
    stopped = threading.Event()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        special = getattr(self, f"_{path[1:].replace('-', '_')}", None)
        if special is not None:
            special()
        elif path in PAGES:
            self._send(PAGES[path].encode())
        else:
            self._send(
                b"<title>Gone</title><h1>No such page</h1><p>Nothing has ever been here.",
                status=404,
            )

    def _send(
        self, body: bytes, media_type: str = "text/html", status: int = 200, **headers: str
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(body)

    def _broken(self) -> None:
        self._send(b"<title>Broken</title><p>Sorry, that was a mistake of ours.", status=500)

    def _nocontent(self) -> None:
        self._send(b"", status=204)

    def _garbled(self) -> None:
        text = "<p>" + "中文页面内容测试。" * 20
        self._send(text.encode("gb18030"), "text/html; charset=utf-8")

    def _inwards(self) -> None:
        self._send(b"", status=302, Location="http://10.0.0.1/")

    def _next_door(self) -> None:
        self._send(b"", status=302, Location="http://127.0.0.1:81/")

    def _circle(self) -> None:
        self._send(b"", status=302, Location="/circle")

    def _silent(self) -> None:
        self.stopped.wait()

    def _late(self) -> None:
        self.stopped.wait(0.5)
        self._send(b"<title>Late</title><p>This page took its time to come.")

    def _vast(self) -> None:
        self._unfinished(Content_Length=str(60 << 20))

    def _unfinished(self, **headers: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(b"<title>Unfinished</title><h1>First part</h1><button>Go</button>")
        self.stopped.wait()

    def _login(self) -> None:
        expected = base64.b64encode(b"ada:lovelace").decode()
        if self.headers.get("Authorization") == f"Basic {expected}":
            self._send(b"<title>Inside</title><h1>Welcome inside</h1><p>Only members read this.")
        else:
            self._send(b"", status=401, WWW_Authenticate='Basic realm="club"')

    def _setcookie(self) -> None:
        self._send(
            b"<title>Set</title><p>The cookie was set, as you wished.",
            Set_Cookie="login=ada; Max-Age=3600",
        )

    def _report(self) -> None:
        self._attachment("report.txt", b"quarterly numbers")

    def _traversal(self) -> None:
        self._attachment("..%2f..%2f.bashrc", b"evil")

    def _attachment(self, name: str, body: bytes) -> None:
        disposition = f"attachment; filename*=UTF-8''{name}"
        self._send(body, "application/octet-stream", Content_Disposition=disposition)

    def _slow(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Disposition", "attachment; filename=slow.bin")
        self.send_header("Content-Length", "20")
        self.end_headers()
        self.wfile.write(b"first half")
        self.wfile.flush()
        self.stopped.wait(1.5)
        self.wfile.write(b"and second")

    def _endless(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Disposition", "attachment; filename=endless.bin")
        self.end_headers()
        with suppress(OSError):
            while not self.stopped.is_set():
                self.wfile.write(b"x" * 65536)

    def _pdf(self) -> None:
        self._send(_pdf("Invoice number 4711"), "application/pdf")

    def _json(self) -> None:
        self._send(b'{"answer": 42}', "application/json")


def _pdf(text: str) -> bytes:
    """Make a PDF of one line."""
    stream = f"BT /F1 24 Tf 50 700 Td ({text}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 600 800]/Contents 4 0 R"
        b"/Resources<</Font<</F1<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
    ]
    body, places = b"%PDF-1.4\n", list[int]()
    for number, content in enumerate(objects, 1):
        places.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    size = len(objects) + 1
    return body + (
        b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
        % (size, table, size, len(body))
    )


@contextmanager
def awkward_site() -> Generator[str]:
    """Serve the pages and give their address."""
    stopped = threading.Event()
    handler = type("Handler", (_Handler,), {"stopped": stopped})
    server = LocalServer(handler)
    server.begin()
    try:
        yield server.url
    finally:
        stopped.set()
        server.end()
