"""Calls that a model gets wrong: the run goes on, and a strict server takes the next request."""

from dataclasses import replace

from tests.support.cli import Cli
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


def test_wrong_calls_are_answered_and_the_run_goes_on(cli: Cli, model: OpenAIServer) -> None:
    wrong = {
        "unknown": Call("fly_to_moon", {"speed": 1}),
        "broken": Call("bash", '{"command": "echo'),
        "no_object": Call("bash", '["echo"]'),
        "missing": Call("str_replace_editor", {"command": "view"}),
        "extra": Call("bash", {"command": "echo hi", "colour": "red"}),
        "type": Call("bash", {"command": ["echo"]}),
        "choice": Call("terminate", {"status": "maybe"}),
        "empty": Call("python_execute", ""),
        "odd_name": Call("bash; rm -rf /", {"command": "x"}),
        "surrogate": Call("bash", '{"command": "echo \\ud83d"}'),
    }
    named = [replace(call, id=name) for name, call in wrong.items()]
    for text, call_id in (("one", "same"), ("two", "same"), ("three", None)):
        named.append(Call("bash", {"command": f"echo {text}"}, id=call_id))
    model.add(Reply(calls=tuple(named)), Reply("I see."))
    done = cli.run("run", "x", "--json")
    assert (done.code, done.final["answer"]) == (0, "I see.")
    said = {
        message["tool_call_id"]: message["content"].strip()
        for message in model.requests[1].messages
        if message["role"] == "tool"
    }
    assert len(said) == len(named)
    assert "fly_to_moon" in said["unknown"]
    assert "python_execute" in said["unknown"], "it names the tools there are"
    assert "JSON" in said["broken"]
    assert "JSON object" in said["no_object"]
    assert "path" in said["missing"]
    assert "colour" in said["extra"]
    assert "command" in said["type"]
    assert "success" in said["choice"]
    assert {"one", "two", "three"} <= set(said.values())
    ids = [event["call_id"] for event in done.of("tool_start")]
    assert len(set(ids)) == len(named)
    assert sorted(ids) == sorted(event["call_id"] for event in done.of("tool_end"))


def test_twenty_calls_at_once_are_all_answered_in_order(cli: Cli, model: OpenAIServer) -> None:
    files = tuple(
        Call(
            "str_replace_editor",
            {"command": "create", "path": f"f{n}.txt", "file_text": f"file {n}"},
        )
        for n in range(15)
    )
    shells = tuple(
        Call("bash", {"command": f"echo {n} >> order; echo shell {n}"}) for n in range(5)
    )
    model.add(Reply(calls=files + shells), Reply("All done."))
    done = cli.run("run", "x", "--json", "--workspace", "files")
    assert (done.code, done.final["answer"]) == (0, "All done.")
    answers = [m["content"] for m in model.requests[1].messages if m["role"] == "tool"]
    assert len(answers) == 20
    for n in range(15):
        assert f"f{n}.txt" in answers[n]
        assert (cli.workspace / f"f{n}.txt").read_text() == f"file {n}"
    assert [answer.strip() for answer in answers[15:]] == [f"shell {n}" for n in range(5)]
    assert (cli.workspace / "order").read_text() == "0\n1\n2\n3\n4\n"
    assert len(done.final["artifacts"]) == 16


def test_the_prefix_of_each_request_is_the_one_before(cli: Cli, model: OpenAIServer) -> None:
    steps = [Reply(calls=(Call("bash", {"command": "false"}),)) for _ in range(4)]
    model.add(*steps, Reply("enough"))
    assert cli.run("run", "x").code == 0
    requests = [request.messages for request in model.requests]
    for earlier, later in zip(requests, requests[1:], strict=False):
        stored = [m for m in earlier if m["role"] != "user"] + [earlier[1]]
        assert later[0] == earlier[0]
        assert all(message in later for message in stored)
    assert {str(request.body["tools"]) for request in model.requests} == {
        str(model.requests[0].body["tools"])
    }


def test_a_model_that_repeats_itself_is_stopped(cli: Cli, model: OpenAIServer) -> None:
    model.loop = True
    model.add(Reply(calls=(Call("bash", {"command": "cat nothing"}),)))
    done = cli.run("run", "x", "--json", "--max-steps", "50")
    assert done.code == 3
    assert (done.final["status"], done.final["stop_reason"]) == ("stopped", "stuck")
    assert done.final["answer"]
    assert 5 < len(model.requests) < 15


def test_replies_with_nothing_in_them_end_as_stuck(cli: Cli, model: OpenAIServer) -> None:
    model.loop = True
    model.add(Reply(""))
    done = cli.run("run", "x", "--json", "--max-steps", "50")
    assert (done.code, done.final["stop_reason"]) == (3, "stuck")
    assert len(model.requests) < 15
