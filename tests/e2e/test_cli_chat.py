"""`openmanus chat` with its lines from a pipe."""

from tests.support.cli import Cli
from tests.support.graphs import own_words
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer


def python(code: str) -> Reply:
    return Reply(calls=(Call("python_execute", {"code": code}),))


def test_each_line_is_a_turn_and_variables_stay(cli: Cli, model: OpenAIServer) -> None:
    model.add(python("x = 41"), Reply("Set."), python("print(x + 1)"), Reply("It is 42."))
    done = cli.run("chat", "--thread", "t", stdin="set x\n\n  \nadd one")
    assert (done.code, done.stdout) == (0, "Set.\nIt is 42.\n")
    last = model.requests[-1].messages
    assert [own_words(m["content"]) for m in last if m["role"] == "user"] == ["set x", "add one"]
    assert last[-1]["content"].strip() == "42"
    assert "openmanus>" not in done.stderr


def test_a_turn_each_has_its_own_final_event(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("one"), Reply("two"))
    done = cli.run("chat", "--json", stdin="a\nb\n/exit\nnever\n")
    assert done.code == 0
    assert [event["answer"] for event in done.of("final")] == ["one", "two"]
    assert [event["usage"]["model_calls"] for event in done.of("final")] == [1, 1]
    assert len({event["thread"] for event in done.events}) == 1


def test_no_line_at_all_is_no_error(cli: Cli, model: OpenAIServer) -> None:
    done = cli.run("chat")
    assert (done.code, done.stdout) == (0, "")
    assert model.requests == []


def test_the_exit_code_is_the_last_turns(cli: Cli, model: OpenAIServer) -> None:
    fail = Reply("No.", calls=(Call("terminate", {"status": "failure"}),))
    model.add(Reply("one"), fail)
    assert cli.run("chat", stdin="a\nb\n").code == 1


def test_a_question_ends_a_chat_from_a_pipe(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("ask_human", {"inquire": "Which?"}),)), Reply("never"))
    done = cli.run("chat", "--thread", "t", stdin="a\nthis is not an answer\n")
    assert done.code == 4
    assert len(model.requests) == 1
    assert "openmanus resume t --answer TEXT" in done.stderr


def test_wrong_settings_are_reported_before_the_first_line(cli: Cli, model: OpenAIServer) -> None:
    done = cli.run("chat", "--model", "acme:x", stdin="a\n")
    assert (done.code, done.stdout) == (2, "")
    assert "acme" in done.stderr
    assert model.requests == []
