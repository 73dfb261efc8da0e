"""Bob, a user of the server, tries to reach what is Alice's in every way that he can think of."""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import pytest
import pytest_asyncio
import websockets

from tests.e2e import test_accounts as basis
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer

pytestmark = pytest.mark.slow
team, hers = basis.team, basis.hers
SECRET = basis.SECRET
Request = tuple[str, str, Any]
"""Method, path and body."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def his(team: basis.Team, hers: basis.Belongings) -> str:
    """Return a thread of Bob's."""
    async with team.http("bob") as bob:
        made = await bob.post("/threads", json={"metadata": {"mine": 1}})
        return str(made.json()["thread_id"])


def spellings(thread: str) -> list[str]:
    """Return other ways to write a UUID, as Python's parser takes them."""
    plain = thread.replace("-", "")
    return [
        thread.upper(), plain, plain.upper(), f"{{{thread}}}", f"urn:uuid:{thread}",
        f"urn:uuid:{{{thread}}}", f"{plain[:8]}_{plain[9:]}", f"%7B{thread}%7D", f"-{thread}-",
        thread.replace("-", "%2D"), f"%{ord(thread[0]):x}{thread[1:]}", f"{thread}/", f"{thread}//",
        f"./{thread}", f"x/../{thread}", f"{thread}%2F", f"{thread}%00", f"{thread}%20",
        f"%2561{thread[1:]}", f"{thread};x", f"{thread}%0A",
    ]  # fmt: skip


def paths_to(thread: str) -> list[str]:
    """Return paths that might lead to a thread around the check of the path."""
    known = ("/threads/{}", "/threads/{}/state", "/threads/{}/history", "/threads/{}/runs",
             "/app/api/threads/{}", "/app/api/threads/{}/events", "/app/api/threads/{}/files",
             "/app/api/threads/{}/export", "/app/api/threads/{}/checkpoints")  # fmt: skip
    found = [path.format(one) for path in known for one in spellings(thread)]
    for path in known:
        plain = path.format(thread)
        found += [
            f"/{plain}", plain.replace("/threads", "//threads"), plain.replace("/", "//"),
            f"/noauth{plain}", f"/noauth/noauth{plain}", f"/app/static/..{plain}",
            f"/app/t/..{plain}", f"/.{plain}", f"/x/..{plain}", plain.upper(),
            plain.replace("/threads/", "/threads%2F"), plain.replace("threads", "%74hreads"),
            plain.replace("threads", "THREADS"), f"{plain}?thread_id={thread}",
        ]  # fmt: skip
    return found


async def sent(
    http: httpx.AsyncClient, method: str, path: str, body: Any = None, headers: Any = None
) -> tuple[int, str]:
    """Send a path as it is written, and return the status and the answer; its first if it is long.

    Runs that a request starts have ended then.
    """
    base = http.base_url
    url = base.copy_with(raw_path=path.encode())
    parts = list[str]()
    async with http.stream(method, url, json=body, headers=headers) as answer:
        try:
            async with asyncio.timeout(BACKSTOP_S if method == "POST" else basis.QUIET_S / 2):
                async for part in answer.aiter_text():
                    parts.append(part)
        except TimeoutError:
            pass
        return answer.status_code, "".join(parts)


def misleading_bodies(his: str, hers: basis.Belongings, checkpoint: str) -> Sequence[Request]:
    """Return requests on Bob's own thread whose bodies name Alice's."""
    alices, own = hers.thread, f"/threads/{his}"
    at = {"thread_id": alices, "checkpoint_ns": "", "checkpoint_id": checkpoint}
    run = {"assistant_id": "manus", "input": {"messages": [{"role": "user", "content": "x"}]}}
    aims: list[Mapping[str, Any]] = [
        {"checkpoint": at},
        {"config": {"configurable": {**at, "thread_id": alices}}},
        {"context": {"thread_id": alices}},
        {"config": {"configurable": {"checkpoint_map": {"": checkpoint}, "thread_id": alices}}},
        {"config": {"thread_id": alices, "configurable": {}, "metadata": {"thread_id": alices}}},
        {"metadata": {"thread_id": alices, "owner": "alice"}},
        {"thread_id": alices},
        {"checkpoint_id": checkpoint},
    ]
    found: list[Request] = [("POST", "/runs/batch", [{**run, **aim} for aim in aims])]
    found += [
        ("POST", path, {**run, **aim})
        for path in (f"{own}/runs/wait", "/runs/wait", f"{own}/runs/stream")
        for aim in aims
    ]
    found += [
        ("POST", f"{own}/{what}", {"checkpoint": at, "values": {}, **aim})
        for what in ("history", "state/checkpoint", "state", "copy")
        for aim in aims
    ]
    found += [
        ("POST", f"/threads/{alices}/copy", {}),
        ("POST", f"/threads/{alices.upper()}/copy", {}),
        ("POST", "/threads", {"thread_id": alices, "if_exists": "do_nothing"}),
        ("POST", "/threads", {"thread_id": alices.upper(), "if_exists": "do_nothing"}),
        ("POST", "/threads", {"metadata": {"owner": "alice"}}),
        ("POST", "/threads/search", {"metadata": {"owner": "alice"}}),
        ("POST", "/threads/search", {"ids": [alices], "metadata": {"owner": "alice"}}),
        ("PATCH", own, {"metadata": {"owner": "alice"}}),
        ("POST", "/threads/prune", {"thread_ids": [alices]}),
        ("POST", "/runs/cancel", {"thread_id": alices, "run_ids": [hers.run]}),
        ("POST", "/runs/cancel", {"status": "all"}),
        ("GET", f"{own}/runs/{hers.run}/join", None),
        ("GET", f"{own}/runs/{hers.run}", None),
        ("GET", f"{own}/runs/{hers.run}/stream", None),
        ("POST", f"{own}/commands", {"id": 1, "method": "run.start", "params": {**run, **aims[1]}}),
        ("POST", f"/threads/{alices}/commands", {"id": 1, "method": "run.start", "params": run}),
        ("GET", f"/app/api/threads/{his}/changes?before={checkpoint}&after={checkpoint}", None),
        ("POST", "/runs/crons", {**run, "schedule": "* * * * *"}),
        ("POST", f"{own}/runs/crons", {**run, "schedule": "* * * * *"}),
        ("POST", f"/threads/{alices}/runs/crons", {**run, "schedule": "* * * * *"}),
        ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        ("POST", "/a2a/manus", {"jsonrpc": "2.0", "id": 1, "method": "tasks/get",
                                "params": {"id": hers.run, "contextId": alices}}),
    ]  # fmt: skip
    return found


@pytest.mark.asyncio(loop_scope="module")
async def test_other_spellings_and_headers_lead_to_no_other_thread(
    team: basis.Team, hers: basis.Belongings
) -> None:
    overrides = [
        {"X-HTTP-Method-Override": "DELETE"}, {"X-Method-Override": "PATCH"},
        {"X-Original-URL": f"/threads/{hers.thread}/state"},
        {"X-Rewrite-URL": f"/threads/{hers.thread}/state"},
        {"X-Forwarded-Prefix": "/noauth"}, {"X-Script-Name": "/noauth"},
        {"X-Forwarded-User": "alice"},
        {"X-User-Id": "alice"}, {"X-Auth-User": "alice"}, {"Cookie": "user=alice"},
    ]  # fmt: skip
    leaks, asked = list[str](), 0
    async with team.http("bob") as bob:
        for path in paths_to(hers.thread):
            for method in ("GET", "HEAD", "OPTIONS"):
                status, text = await sent(bob, method, path)
                asked += 1
                if SECRET in text or (status < 300 and method == "GET" and "/app" not in path):
                    leaks.append(f"{method} {path}: {status} {text[:200]}")
        for header in overrides:
            for method, path in (
                ("POST", f"/threads/{hers.thread}"), ("GET", f"/threads/{hers.thread}/state"),
                ("GET", "/app/api/me"), ("POST", "/threads/search"),
            ):  # fmt: skip
                status, text = await sent(
                    bob, method, path, {} if method == "POST" else None, header
                )
                asked += 1
                if SECRET in text or '"alice"' in text:
                    leaks.append(f"{header} {method} {path}: {status} {text[:200]}")
    assert not leaks, "\n".join(leaks)
    assert asked > 900


@pytest.mark.asyncio(loop_scope="module")
async def test_ids_in_bodies_reach_no_other_thread(
    team: basis.Team, hers: basis.Belongings, his: str, llm: OpenAIServer
) -> None:
    async with team.http("alice") as alice:
        before = (await alice.get(f"/threads/{hers.thread}/state")).json()
        checkpoint = before["checkpoint"]["checkpoint_id"]
    known, leaks = len(llm.requests), list[str]()
    async with team.http("bob") as bob:
        for method, path, body in misleading_bodies(his, hers, checkpoint):
            llm.add(*[Reply(text="Nothing.")] * 8)
            status, text = await sent(bob, method, path, body)
            if SECRET in text or status >= 500:
                leaks.append(f"{method} {path} {json.dumps(body)}: {status} {text[:300]}")
        mine = (await bob.get(f"/threads/{his}")).json()
        assert mine["metadata"]["owner"] == "bob"
    for request in llm.requests[known:]:
        read = json.dumps(request.body)
        if SECRET in read or f"workspace/{hers.thread}" in read:
            leaks.append(f"a model read {read[-400:]}")
    assert not leaks, "\n".join(leaks)
    async with team.http("alice") as alice:
        assert (await alice.get(f"/threads/{hers.thread}/state")).json() == before
        runs = (await alice.get(f"/threads/{hers.thread}/runs")).json()
        assert [one["run_id"] for one in runs] == [hers.run]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_run_without_a_thread_has_its_users_notes_and_no_webhook(
    team: basis.Team, hers: basis.Belongings, llm: OpenAIServer
) -> None:
    note = {"command": "create", "path": "/memories/user/his.md", "file_text": "bobs words"}

    def noting(body: dict[str, Any]) -> Reply:
        is_noted = body["messages"][-1]["role"] == "tool"
        return Reply(text="Noted.") if is_noted else Reply(calls=(Call("memory", note),))

    llm.begin_again()
    run = {"assistant_id": "manus", "input": {"messages": [{"role": "user", "content": "x"}]}}
    webhook = {"webhook": "https://93.184.215.14/hook"}
    async with team.http("bob") as bob:
        assert (await bob.post("/runs/wait", json={**run, **webhook})).status_code == 403
        llm.add(*[noting] * 20)  # runs of the tests before may still ask
        done = await bob.post("/runs/wait", json=run)
        assert done.json()["answer"] == "Noted.", done.text
        found = (await bob.get("/app/api/memory")).json()["notes"]
        assert [one["path"] for one in found] == [note["path"]]
    async with team.http("machine") as machine:
        assert (await machine.get("/app/api/memory")).json()["notes"] == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_deleted_threads_id_stays_its_owners(
    team: basis.Team, hers: basis.Belongings, llm: OpenAIServer
) -> None:
    async with team.http("alice") as alice, team.http("bob") as bob:
        thread = (await alice.post("/app/api/threads")).json()["id"]
        await alice.put(f"/app/api/threads/{thread}/files/{SECRET}.txt", content=SECRET)
        assert (await alice.delete(f"/app/api/threads/{thread}")).status_code == 204
        taken = await bob.post("/threads", json={"thread_id": thread})
        assert taken.status_code == 404
        seen = await bob.get(f"/app/api/threads/{thread}/files")
        assert SECRET not in seen.text
        assert (await alice.post("/threads", json={"thread_id": thread})).status_code == 200


@pytest.mark.asyncio(loop_scope="module")
async def test_what_a_removed_user_has_open_ends(
    team: basis.Team, hers: basis.Belongings, llm: OpenAIServer
) -> None:
    team.add("carl", "user")
    async with team.http("carl") as carl, team.http("nobody") as nobody:
        thread = (await carl.post("/app/api/threads")).json()["id"]
        files = f"/app/api/threads/{thread}/files"
        ticket = (await carl.put(f"{files}/a.txt", content="a")).json()["url"]
        assert (await nobody.get(ticket)).status_code == 200
        for path in (f"/app/api/threads/{thread}/events", f"/threads/{thread}/stream"):
            async with carl.stream("GET", path) as followed:
                assert followed.status_code == 200
                if path.endswith("stream"):
                    assert team.run("revoke", "carl").returncode == 0
                    with contextlib.suppress(httpx.RemoteProtocolError):
                        async for _ in followed.aiter_bytes():
                            pass
        assert (await carl.get("/app/api/me")).status_code == 401
        assert (await nobody.get(ticket)).status_code == 403


@pytest.mark.asyncio(loop_scope="module")
async def test_a_websocket_is_for_the_owner_of_its_thread(
    team: basis.Team, hers: basis.Belongings
) -> None:
    address = team.served.url.replace("http", "ws")
    for name, known in (("bob", False), ("nobody", False), ("alice", True)):
        headers = {"Authorization": f"Bearer {team.tokens.get(name, '')}"}
        url = f"{address}/threads/{hers.thread}/stream/events"
        try:
            async with websockets.connect(url, additional_headers=headers):
                opened = True
        except websockets.exceptions.InvalidStatus:
            opened = False
        assert opened is known, name


@pytest.mark.asyncio(loop_scope="module")
async def test_threads_keep_their_owners_when_the_server_starts_again(
    team: basis.Team, hers: basis.Belongings
) -> None:
    team.served.stop()
    team.served.start()
    for name, status in (("alice", 200), ("bob", 404), ("machine", 404)):
        async with team.http(name) as http:
            for path in (f"/threads/{hers.thread}", f"/app/api/threads/{hers.thread}"):
                assert (await http.get(path)).status_code == status, (name, path)
