"""Users of one server: each sees own threads only, at every route and in every protocol."""

import asyncio
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio

from openmanus_graph.interfaces.server.web_app import build_app
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import BIN, ROOT, Page, Served

pytestmark = pytest.mark.slow

SECRET = "zanzibar"
"""In everything of Alice's. Requests have only its beginning: refusals may repeat them."""
OTHERS = ("bob", "vera", "ada")
QUIET_S = 1.0
"""How much of an endless stream is read."""


@dataclass
class Team:
    served: Served
    tokens: dict[str, str] = field(default_factory=dict[str, str])

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BIN / "openmanus", "users", *argv],
            cwd=self.served.folder,
            env=self.served.env,
            capture_output=True,
            text=True,
            check=False,
        )

    def add(self, name: str, role: str) -> None:
        made = self.run("add", name, "--role", role)
        assert made.returncode == 0, made.stderr
        self.tokens[name] = made.stdout.strip()

    def http(self, name: str) -> httpx.AsyncClient:
        """Return a client with a user's token; "machine" has the server's own."""
        token = self.tokens.get(name, self.served.token if name == "machine" else "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.served.url, headers=headers, timeout=BACKSTOP_S)


@dataclass
class Belongings:
    """What Alice has on the server."""

    thread: str
    run: str
    response: str
    conversation: str
    file: str

    @property
    def parameters(self) -> Mapping[str, str]:
        """What may stand in a path of a route."""
        return {
            "thread": self.thread, "thread_id": self.thread, "run_id": self.run,
            "conversation": self.conversation, "name": self.response, "agent": "manus",
            "assistant_id": "manus", "graph_id": "manus", "path": self.file,
            "checkpoint_id": "1", "cron_id": self.run, "takeover": self.run, "ticket": "none",
            "secret": "none", "subgraph": "none", "namespace": "none",
            "number": "1", "action": "run",
        }  # fmt: skip


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, llm: OpenAIServer) -> Iterator[Team]:
    folder = tmp_path_factory.mktemp("team")
    env = {**os.environ, "OPENAI_BASE_URL": llm.base_url, "OPENMANUS_MODEL": "openai:m"}
    env["XDG_CONFIG_HOME"] = str(folder / "config")
    (folder / "openmanus.toml").write_text('tools = ["+memory"]')
    with Served(folder, env) as served:
        found = Team(served)
        roles = {"alice": "user", "bob": "user", "vera": "viewer", "ada": "admin"}
        for name, role in roles.items():
            found.add(name, role)
        yield found


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def hers(team: Team, llm: OpenAIServer) -> AsyncIterator[Belongings]:
    note = {"command": "create", "path": f"/memories/{SECRET}.md", "file_text": SECRET}
    llm.add(
        Reply(calls=(Call("bash", {"command": f"echo {SECRET} > {SECRET}.txt"}),)),
        Reply(calls=(Call("memory", note),)),
        Reply(text=f"It is {SECRET}."),
        Reply(text=f"Again {SECRET}."),
    )
    async with team.http("alice") as http:
        page = Page(http, (await http.post("/app/api/threads")).json()["id"])
        run = (await page.ask(message=f"Say {SECRET}."))["run_id"]
        assert (await page.final())["status"] == "finished", page.seen
        notes = (await http.get("/app/api/memory")).json()["notes"]
        assert [one["path"] for one in notes] == [note["path"]]
        made = await http.post("/v1/responses", json={"model": "manus", "input": f"Say {SECRET}"})
        assert made.status_code == 200, made.text
        answer = made.json()
        await http.put(
            "/store/items", json={"namespace": ["n"], "key": "k", "value": {"v": SECRET}}
        )
        names = answer["id"], answer["conversation"]["id"]
        yield Belongings(page.thread, run, *names, f"{SECRET}.txt")


async def routes_of(http: httpx.AsyncClient) -> list[tuple[str, str]]:
    """Return method and path of each route of ours and of LangGraph's server."""
    described: dict[str, Any] = (await http.get("/openapi.json")).json()
    found = {(m.upper(), path) for path, one in described["paths"].items() for m in one}
    for route in cast("list[Any]", build_app(str).routes):
        found |= {(method, route.path) for method in getattr(route, "methods", None) or ()}
    return sorted(found - {("HEAD", path) for _, path in found})


def body_naming(hers: Belongings) -> dict[str, Any]:
    """Return a body that is valid for many routes and names what is Alice's."""
    say = {"role": "user", "content": "x"}
    return {
        "thread_id": hers.thread, "threadId": hers.thread, "runId": hers.run,
        "thread_ids": [hers.thread], "ids": [hers.thread], "run_ids": [hers.run],
        "action": "delete", "status": "all", "assistant_id": "manus", "if_exists": "do_nothing",
        "if_not_exists": "create", "metadata": {}, "title": "taken", "text": "x",
        "values": {"messages": [say]}, "input": "x", "model": "manus", "messages": [say],
        "conversation": hers.conversation, "previous_response_id": hers.response,
        "query": SECRET[:4], "namespace": [], "namespace_prefix": [], "prefix": [], "key": "k",
        "value": {}, "limit": 100, "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "schedule": "0 0 1 1 *", "strategy": "delete",
    }  # fmt: skip


async def answer_of(http: httpx.AsyncClient, method: str, path: str, body: Any) -> tuple[int, str]:
    """Return the status and the first of an answer's text: some never end."""
    parts = list[str]()
    async with http.stream(method, path, json=body if method != "GET" else None) as answer:
        try:
            async with asyncio.timeout(QUIET_S):
                async for part in answer.aiter_text():
                    parts.append(part)
        except TimeoutError:
            pass
        return answer.status_code, "".join(parts)


@pytest.mark.asyncio(loop_scope="module")
async def test_no_route_shows_or_changes_what_is_another_users(
    team: Team, hers: Belongings, llm: OpenAIServer
) -> None:
    async with team.http("alice") as alice:
        routes = await routes_of(alice)
        before = (await alice.get(f"/threads/{hers.thread}/state")).json()
    body, asked, leaks = body_naming(hers), 0, list[str]()
    other = {**body, "previous_response_id": None, "input": dict[str, Any]()}
    for name in (*OTHERS, "machine", "nobody"):
        async with team.http(name) as http:
            for method, route in routes:
                path = re.sub(r"\{(\w+)(?::\w+)?\}", lambda one: hers.parameters[one[1]], route)
                for sent in (body, other):
                    status, text = await answer_of(http, method, path, sent)
                    asked += 1
                    named = "{thread" in route or "{run_id}" in route or "{conversation" in route
                    allowed = (401, 403, 404, 405, 409, 415, 422, 501) if named else range(200, 600)
                    shown = text.replace(hers.file, "") if hers.file in path else text
                    public = route.startswith(("/app/t/", "/app/static"))
                    if not public and (SECRET in shown or status not in allowed):
                        leaks.append(f"{name} {method} {path}: {status} {text[:300]}")
    assert not leaks, "\n".join(leaks)
    async with team.http("alice") as alice:
        assert (await alice.get(f"/threads/{hers.thread}/state")).json() == before
        thread = (await alice.get(f"/app/api/threads/{hers.thread}")).json()
        assert thread["title"] == f"Say {SECRET}."
    told = (ROOT / "docs" / "page.md").read_text("utf-8")
    assert f"{len(routes)} routes" in told
    assert f"{asked:,} requests" in told


@pytest.mark.asyncio(loop_scope="module")
async def test_a_shared_thread_is_read_without_a_token_until_it_is_unshared(
    team: Team, hers: Belongings
) -> None:
    shares = f"/app/api/threads/{hers.thread}/shares"
    async with team.http("alice") as alice, team.http("nobody") as nobody:
        first, second = [(await alice.post(shares)).json()["url"] for _ in range(2)]
        assert (await alice.get(shares)).json() == {"count": 2}
        for url in (first, second):
            page = await nobody.get(url)
            assert page.status_code == 200
            assert SECRET in page.text
        for method in ("post", "put", "delete"):
            assert (await nobody.request(method, first)).status_code in (401, 403, 405)
        assert (await nobody.get(f"{first}x")).status_code == 404
        assert (await alice.delete(shares)).status_code == 204
        assert {(await nobody.get(url)).status_code for url in (first, second)} == {404}


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    "context",
    [{"workspace": "/etc"}, {"sandbox": "none"}, {"mcp_servers": {"x": {"command": "id"}}},
     {"model": "http://127.0.0.1:1/m"}, {"base_url": "http://127.0.0.1:1"}, {"network": True}],
)  # fmt: skip
async def test_a_user_cannot_choose_what_reaches_beyond_own_threads(
    team: Team, context: dict[str, Any]
) -> None:
    run = {"assistant_id": "manus", "input": {"messages": "x"}, "context": context}
    hidden = {**run, "context": {}, "config": {"configurable": context}}
    async with team.http("bob") as bob:
        thread = (await bob.post("/app/api/threads")).json()["id"]
        wish = {"message": "x", "context": context}
        answers = [await bob.post(f"/app/api/threads/{thread}/runs", json=wish)]
        for path in (f"/threads/{thread}/runs", "/runs/wait"):
            answers += [await bob.post(path, json=sent) for sent in (run, hidden)]
        options = (await bob.get("/app/api/options")).json()
    assert [one.status_code for one in answers] == [403] * 5, [one.text for one in answers]
    assert all("Only an admin may set" in one.text for one in answers)
    assert not {one["name"] for one in options["form"]} & {"sandbox", "network"}


@pytest.mark.asyncio(loop_scope="module")
async def test_a_thread_cannot_be_taken_by_naming_it(team: Team, hers: Belongings) -> None:
    async with team.http("bob") as bob:
        for name in (hers.thread, hers.thread.upper(), hers.thread.replace("-", "")):
            for path in ("", "/state", "/history", "/runs"):
                assert (await bob.get(f"/threads/{name}{path}")).status_code == 404, (name, path)
        wish = {"thread_id": hers.thread, "if_exists": "do_nothing"}
        assert (await bob.post("/threads", json=wish)).status_code == 404
        assert (await bob.post(f"/threads/{hers.thread}/copy")).status_code == 404
        found = await bob.post("/threads/search", json={"metadata": {"owner": "alice"}})
        assert hers.thread not in found.text


@pytest.mark.asyncio(loop_scope="module")
async def test_roles_and_removed_users(team: Team) -> None:
    team.add("carl", "user")
    async with team.http("carl") as carl, team.http("vera") as vera:
        assert (await carl.get("/app/api/me")).json() == {"name": "carl", "role": "user"}
        refused = await vera.post("/app/api/threads")
        assert (refused.status_code, "A viewer can read" in refused.text) == (403, True)
        for path in ("/app/api/setup", "/assistants", "/runs/crons"):
            assert (await carl.post(path, json={})).status_code == 403, path
        team.run("role", "carl", "viewer")
        assert (await carl.post("/app/api/threads")).status_code == 403
        old = team.tokens["carl"]
        team.tokens["carl"] = team.run("rotate", "carl").stdout.strip()
        async with team.http("carl") as again:
            assert (await again.get("/app/api/me")).json()["role"] == "viewer"
            assert (await carl.get("/app/api/me")).status_code == 401, old
            assert team.run("revoke", "carl").returncode == 0
            assert (await again.get("/app/api/me")).status_code == 401
