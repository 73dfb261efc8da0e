"""Runs as the page starts, watches, answers, stops and repeats them."""

import asyncio
import json
import sqlite3
import sys
from typing import Any

import jsonschema
import pytest

from openmanus_graph.runtime.events import event_schema
from tests.support.graphs import own_words
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.serving import Event, Page, Served, new_page

pytestmark = pytest.mark.slow

ASK = Reply(calls=(Call("ask_human", {"inquire": "<script>alert(1)</script>?"}),))
OURS = ("seq", "run", "ns", "allowed", "title", "kind", "options")
"""What the server adds to events of the command line."""


def plain(event: Event) -> Event:
    added = OURS if event["type"] != "interrupt" else OURS[:5]
    left = {name: value for name, value in event.items() if name not in added}
    if event["type"] == "interrupt":
        assert all(call.pop("title") for call in left["calls"])
    return left


async def test_a_run_is_seen_whole_live_and_after_a_reload(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "echo hi > a.txt"}),)), Reply(text="All done.")
    )
    async with new_page(served) as page:
        await page.ask(agent="manus", message="Write.", context={"max_steps": 7})
        final = await page.final()
        kinds = [event["type"] for event in page.seen if event["type"] != "token"]
        assert kinds == ["run_start", "think_start", "think_end", "tool_start", "tool_end",
                         "think_start", "think_end", "final"]  # fmt: skip
        spoken = [event["text"] for event in page.seen if event["type"] == "token"]
        assert "".join(spoken) == "All done."
        assert final["status"] == "finished"
        assert [artifact["path"] for artifact in final["artifacts"]] == ["a.txt"]
        validator = jsonschema.Draft202012Validator(event_schema())
        for event in page.seen:
            validator.validate(plain(event))
        numbers = [event["seq"] for event in page.seen]
        assert numbers == sorted(set(numbers))
        again = await page.past()
        assert again == [event for event in page.seen if event["type"] != "token"]
        middle = page.seen[3]["seq"]
        assert await page.past(middle) == [event for event in again if event["seq"] > middle]
        thread = (await page.http.get(page.base)).json()
        assert (thread["status"], thread["title"], thread["agent"]) == (
            "finished", "Write.", "manus",
        )  # fmt: skip
        assert thread["options"]["max_steps"] == 7


async def test_a_question_is_answered_once_and_stays_open_until_then(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(ASK, Reply(text="Thank you."))
    async with new_page(served) as page:
        await page.ask(message="Ask me.")
        assert (await page.final())["status"] == "waiting"
        question = page.seen[-2]
        assert (question["type"], question["question"]) == (
            "interrupt",
            "<script>alert(1)</script>?",
        )
        await page.ask(409, answers={"0" * 32: "nobody asked"})
        await page.ask(409, resume=True)
        thread = (await page.http.get(page.base)).json()
        assert [one["id"] for one in thread["interrupts"]] == [question["id"]]
        await page.ask(answers={question["id"]: "Yes"})
        second = await page.http.post(f"{page.base}/runs", json={"answers": {question["id"]: "No"}})
        assert second.status_code == 409
        assert (await page.final())["answer"] == "Thank you."
        reported = next(event for event in page.seen if event["type"] == "answered")
        assert (reported["id"], reported["answer"]) == (question["id"], "Yes")
        started = [event["kind"] for event in page.seen if event["type"] == "run_start"]
        assert started == ["start", "answer"]
        await page.ask(409, answers={question["id"]: "Again"})
    sent = [message["content"] for message in served_model.requests[-1].messages]
    assert "Yes" in sent
    assert "No" not in sent


async def test_a_second_tab_sees_the_run_and_cannot_start_another(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "while [ ! -e go ]; do sleep 0.1; done"}),)),
        Reply(text="Done."),
    )
    async with new_page(served) as first, served.http() as http:
        second = Page(http, first.thread)
        await first.ask(message="Wait.")
        for tab in (first, second):
            await tab.until(lambda event: event["type"] == "tool_start")
        refused = await second.ask(409, message="Something else.")
        assert "another tab" in refused["detail"]
        put = await http.put(f"{second.base}/files/go", content=b"")
        assert put.status_code == 201
        assert (await first.final())["answer"] == (await second.final())["answer"] == "Done."


async def test_a_page_that_is_closed_in_the_middle_changes_nothing(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "sleep 0.5; echo x"}),)), Reply(text="Done.")
    )
    async with new_page(served) as page:
        await page.ask(message="Go.")
        await page.until(lambda event: event["type"] == "tool_start")
        thread = page.thread
    async with served.http() as http:
        later = Page(http, thread)
        assert (await later.final())["answer"] == "Done."


async def test_stop_cuts_a_run_off_and_resume_goes_on(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(calls=(Call("bash", {"command": "sleep 600"}),)))
    async with new_page(served) as page:
        assert (await page.http.post(f"{page.base}/stop")).json() == {"stopped": 0}
        await page.ask(message="Sleep.")
        await page.until(lambda event: event["type"] == "tool_start")
        assert (await page.http.post(f"{page.base}/stop")).json() == {"stopped": 1}
        assert (await page.final())["status"] == "cancelled"
        served_model.add(Reply(text="Awake."))
        await page.ask(resume=True)
        assert (await page.final())["answer"] == "Awake."
        done = await page.ask(409, resume=True)
        assert "finished" in done["detail"]


async def test_a_limit_is_raised_and_the_run_goes_on(
    served: Served, served_model: OpenAIServer
) -> None:
    step = Reply(calls=(Call("bash", {"command": "date +%N"}),))
    served_model.add(step, step, Reply(text="There."))
    async with new_page(served) as page:
        await page.ask(message="Go.", context={"max_steps": 1})
        assert (await page.final())["stop_reason"] == "max_steps"
        await page.ask(resume=True, context={"max_steps": 9})
        assert (await page.final())["answer"] == "There."


async def test_an_earlier_step_is_tried_again(served: Served, served_model: OpenAIServer) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "echo 1 >> log"}),)), Reply(text="one"),
        Reply(calls=(Call("bash", {"command": "cat log; echo 2 >> log"}),)), Reply(text="two"),
        Reply(text="three"),
    )  # fmt: skip
    async with new_page(served) as page:
        await page.ask(message="Go.")
        assert (await page.final())["answer"] == "one"
        places = (await page.http.get(f"{page.base}/checkpoints")).json()["checkpoints"]
        labels = [place["label"] for place in places]
        assert "before bash" in labels
        think = [place for place in places if place["next"] == ["think"]]
        query = {"before": think[-1]["snapshot"], "after": think[0]["snapshot"]}
        found = (await page.http.get(f"{page.base}/changes", params=query)).json()["changes"]
        assert [(one["path"], one["change"]) for one in found] == [("log", "added")]
        strange = {**query, "after": "0" * 40}
        assert (await page.http.get(f"{page.base}/changes", params=strange)).status_code == 404
        await page.ask(checkpoint_id=think[-1]["checkpoint_id"])
        assert (await page.final())["answer"] == "two"
        assert "No such file" in served_model.requests[-1].messages[-1]["content"]
        again = [event for event in page.seen if event["type"] == "run_start"][-1]
        assert (again["kind"], again["checkpoint_at"]) == ("again", think[-1]["at"])
        after = (await page.http.get(f"{page.base}/checkpoints")).json()["checkpoints"]
        left = {place["checkpoint_id"] for place in places} - {
            place["checkpoint_id"] for place in after
        }
        assert left, "what came after it is no place to go back to any more"
        await page.ask(message="And now?")
        assert (await page.final())["answer"] == "three"
    texts = [message["content"] for message in served_model.requests[-1].messages]
    assert "two" in texts
    assert "one" not in texts


async def test_a_running_agent_reads_a_message_at_its_next_step(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(
        Reply(calls=(Call("bash", {"command": "while [ ! -e go ]; do sleep 0.1; done"}),)),
        Reply(text="In blue."),
    )
    async with new_page(served) as page:
        early = await page.http.post(f"{page.base}/steer", json={"text": "Blue!"})
        assert early.status_code == 409
        await page.ask(message="Paint.")
        await page.until(lambda event: event["type"] == "tool_start")
        reported = await page.http.post(f"{page.base}/steer", json={"text": "Blue, please."})
        assert reported.status_code == 202
        await page.http.put(f"{page.base}/files/go", content=b"")
        await page.final()
        assert ("steer", "Blue, please.") in [
            (event["type"], event.get("text")) for event in page.seen
        ]
    sent = [message["content"] for message in served_model.requests[-1].messages]
    assert sent[-1] == "Blue, please." or "Blue, please." in str(sent[-3:])


async def test_wrong_requests_are_refused_in_words(served: Served) -> None:
    async with new_page(served) as page:
        wrong: dict[str, tuple[int, Any]] = {
            "There is no agent": (422, {"agent": "nobody", "message": "Hi"}),
            "max_steps": (422, {"message": "Hi", "context": {"max_steps": "many"}}),
            "unknown provider": (422, {"message": "Hi", "context": {"model": "nope:m"}}),
            "No key for": (422, {"message": "Hi", "context": {"model": "groq:m"}}),
            "empty": (422, {"message": "  "}),
            "Give one of": (422, {}),
            "Nothing has run": (409, {"resume": True}),
            "has no open question": (409, {"answers": {"0" * 32: "x"}}),
        }
        for words, (status, wish) in wrong.items():
            assert words in (await page.ask(status, **wish))["detail"]
        for unknown in ("00000000-0000-4000-8000-000000000000", "..", "%2e%2e%2fx", "no-such"):
            for path in ("", "/events", "/files", "/checkpoints", "/browser"):
                answer = await page.http.get(f"/app/api/threads/{unknown}{path}")
                assert answer.status_code in (404, 405), (unknown, path)


async def test_a_thousand_threads_are_listed_page_by_page(served: Served) -> None:
    code = """if True:
        import sys, pathlib
        from openmanus_graph.backends.persistence.database import open_database
        from openmanus_graph.backends.persistence.threads import Threads
        from openmanus_graph.state.addresses import DatabaseUrl
        threads = Threads(open_database(DatabaseUrl.in_folder(pathlib.Path(sys.argv[1]))))
        for n in range(1000):
            thread = f"20200101-000000-{n:04d}"
            threads.begin(thread, "manus", f"<b>task</b> {n} 100%", {}, None)
            threads.end(thread, "finished")
    """
    await _python(code, str(served.home))
    async with served.http() as http:
        seen: list[str] = []
        cursor = ""
        while True:
            page = (await http.get(f"/app/api/threads?limit=300&q=20200101{cursor}")).json()
            seen += [thread["id"] for thread in page["threads"]]
            if page["next"] is None:
                break
            cursor = f"&before={page['next']}"
        assert seen == [f"20200101-000000-{n:04d}" for n in reversed(range(1000))]
        found = (await http.get("/app/api/threads?q=999 100%25")).json()["threads"]
        assert [thread["title"] for thread in found] == ["<b>task</b> 999 100%"]
        assert found[0]["startable"] is False
        refused = await http.post(
            "/app/api/threads/20200101-000000-0999/runs", json={"message": "Hi"}
        )
        assert refused.status_code == 409
        assert "openmanus resume" in refused.json()["detail"]
        answer = await http.delete("/app/api/threads/20200101-000000-0999")
        assert answer.status_code == 204
        assert (await http.get("/app/api/threads?q=000000-0999")).json()["threads"] == []


async def test_ten_thousand_events_are_sent_whole_and_in_order(
    served: Served, served_model: OpenAIServer
) -> None:
    step = Reply(calls=(Call("bash", {"command": "echo x"}),))
    served_model.add(step, Reply(text="Done."))
    async with new_page(served) as page:
        await page.ask(message="Go.")
        await page.final()
        write = """if True:
            import json, sys, pathlib
            from openmanus_graph.backends.persistence.database import open_database
            from openmanus_graph.backends.persistence.journal import JournalTable
            from openmanus_graph.state.addresses import DatabaseUrl
            table = JournalTable(open_database(DatabaseUrl.in_folder(pathlib.Path(sys.argv[1]))))
            last = table.last(sys.argv[2])
            event = {"type": "notice", "level": "info", "text": "x" * 200}
            rows = [(last + n, json.dumps({**event, "seq": last + n})) for n in range(1, 10001)]
            table.write(sys.argv[2], rows)
        """
        await _python(write, str(served.home), page.thread)
        past = await page.past(page.last)
        assert [event["seq"] for event in past] == [page.last + n for n in range(1, 10001)]


async def _python(code: str, *args: str) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, *args)
    assert await process.wait() == 0


def two_steps(body: dict[str, Any]) -> Reply:
    """Plan two steps, of which one asks while the other waits for a file."""
    system, *messages = (str(message["content"]) for message in body["messages"])
    if system.startswith("You plan how"):
        steps: list[dict[str, Any]] = [
            {"id": name, "text": name, "depends_on": []} for name in ("asks", "waits")
        ]
        plan: dict[str, Any] = {"command": "create", "title": "Two", "steps": steps}
        return Reply(calls=(Call("planning", plan),))
    if system.startswith("You write the final"):
        return Reply(text="Done.")
    if len(messages) > 1:
        return Reply(text=f"It is {messages[-1]}")
    if "Your step (asks)" in messages[0]:
        return Reply(calls=(Call("ask_human", {"inquire": "Which colour?"}),))
    return Reply(calls=(Call("bash", {"command": "until [ -e go ]; do sleep 0.05; done"}),))


async def test_an_answer_to_a_step_is_taken_when_the_steps_beside_it_have_ended(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(*[two_steps] * 12)
    async with new_page(served) as page, served.http() as http:
        await page.ask(agent="planning", message="Do both.")
        await page.until(
            lambda _: (
                {"interrupt", "bash"} <= {event.get("tool") or event["type"] for event in page.seen}
            )
        )
        asked = next(event for event in page.seen if event["type"] == "interrupt")
        await page.ask(409, answers={"0" * 32: "nobody asked"})
        await page.ask(answers={asked["id"]: "red"})
        refused = await page.ask(409, answers={asked["id"]: "blue"})
        assert "answered already" in refused["detail"]
        put = await http.put(f"{page.base}/files/go", content=b"")
        assert put.status_code == 201
        assert (await page.final())["status"] == "waiting"
        assert (await page.final())["status"] == "finished"
        taken = [(e["id"], e["answer"]) for e in page.seen if e["type"] == "answered"]
    assert taken == [(asked["id"], "red")]
    summary = str(served_model.requests[-1].messages[-1])
    assert ("It is red" in summary, "blue" in summary) == (True, False)
    begun = [event["id"] for event in page.seen if event["type"] == "step_start"]
    assert begun.count("waits") == 1


def two_subagents(body: dict[str, Any]) -> Reply:
    """Have two subagents ask, each a question of its own."""
    _, *messages = (own_words(str(message["content"])) for message in body["messages"])
    if not messages[0].startswith("You are a subagent"):
        made = tuple(Call("delegate", {"agent": "manus", "task": n}) for n in ("one", "two"))
        return Reply(text=" ".join(messages[1:])) if len(messages) > 1 else Reply(calls=made)
    if len(messages) > 1:
        return Reply(text=f"It is {messages[-1]}")
    name = messages[0].split("\n\n")[1]
    return Reply(calls=(Call("ask_human", {"inquire": f"Which {name}?"}),))


async def test_questions_of_subagents_are_answered_on_the_page_each_under_its_name(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(*[two_subagents] * 6)
    async with new_page(served) as page:
        await page.ask(agent="manus", message="Do both.", context={"tools": ["+delegate"]})
        assert (await page.final())["status"] == "waiting"
        asked = {e["question"]: e for e in page.seen if e["type"] == "interrupt"}
        begun = {e["id"]: e for e in page.seen if e["type"] == "step_start"}
        assert {*asked} == {"Which one?", "Which two?"}
        assert {e["ns"] for e in asked.values()} == {*begun}
        answers = {"Which one?": "red", "Which two?": "blue"}
        given = {asked[question]["id"]: answer for question, answer in answers.items()}
        await page.ask(answers=given, context={"tools": ["+delegate"]})
        final = await page.final()
        validator = jsonschema.Draft202012Validator(event_schema())
        for event in [one for one in page.seen if one["type"] != "answered"]:
            validator.validate(plain(event))
    assert final["status"] == "finished"
    assert (final["answer"].count("It is red"), final["answer"].count("It is blue")) == (1, 1)


async def test_options_that_somebody_else_wrote_into_the_database_do_not_count(
    served: Served, served_model: OpenAIServer
) -> None:
    served_model.add(Reply(text="One."), Reply(text="Two."))
    async with new_page(served) as page:
        await page.ask(message="Begin.", context={"max_steps": 7})
        await page.final()
        evil = {"policy": "auto", "server": ["sh -c true"], "base_url": "http://127.0.0.1:9/v1"}
        with sqlite3.connect(served.home / "openmanus.db") as connection:
            connection.execute(
                "UPDATE threads SET options = ? WHERE id = ?",
                (json.dumps({"max_steps": 7, **evil}), page.thread),
            )
        connection.close()
        await page.ask(message="More.")
        assert (await page.final())["answer"] == "Two."
        notices = [event["text"] for event in page.seen if event["type"] == "notice"]
        assert [name in notices[-1] for name in evil] == [True] * 3
        known = (await page.http.get(page.base)).json()["options"]
    assert known["max_steps"] == 7
    assert not {"policy", "mcp_servers", "base_url"} & known.keys()
