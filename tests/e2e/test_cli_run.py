"""`openmanus run`: what it prints, what it sends, how it ends."""

import base64
import json
import subprocess
from typing import Any

import pytest

from tests.support.cli import KEY, OPENMANUS, Cli
from tests.support.graphs import own_words
from tests.support.limits import BACKSTOP_S
from tests.support.openai_script import Call, Reply
from tests.support.openai_server import OpenAIServer
from tests.support.sampling import sampled

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJg"
    "gg=="
)


def pictures(message: dict[str, Any]) -> list[str]:
    """Return the addresses of a message's pictures."""
    if isinstance(message["content"], str):
        return []
    return [part["image_url"]["url"] for part in message["content"] if part["type"] == "image_url"]


def texts(messages: list[dict[str, Any]]) -> str:
    return json.dumps([message["content"] for message in messages], ensure_ascii=False)


@pytest.mark.usefixtures("real_start")
def test_run_writes_the_answer_alone_to_stdout(cli: Cli, model: OpenAIServer) -> None:
    write = Call("bash", {"command": "printf hello > hello.txt && echo written"})
    model.add(Reply("I write it.", calls=(write,)), Reply("Done: **hello.txt**"))
    done = cli.run("run", "write hello", "--workspace", "files")
    assert (done.code, done.stdout) == (0, "Done: **hello.txt**\n")
    assert (cli.workspace / "hello.txt").read_text() == "hello"
    for shown in ("bash", "written", "hello.txt", "steps", "finished", "I write it."):
        assert shown in done.stderr
    assert "\x1b" not in done.stderr
    assert model.requests[0].headers["authorization"] == f"Bearer {KEY}"


def test_json_events_are_in_order_and_final_is_last(cli: Cli, model: OpenAIServer) -> None:
    call = Call("bash", {"command": "echo one > a.txt; echo two"}, id="call_mine")
    model.add(Reply(calls=(call,)), Reply("The end."))
    done = cli.run("run", "count", "--json", "--thread", "t1")
    assert done.code == 0
    tokens = [kind for kind in done.kinds if kind not in ("token", "notice")]
    assert tokens == [
        "run_start", "think_start", "think_end", "tool_start", "tool_end", "think_start",
        "think_end", "final",
    ]  # fmt: skip
    assert "".join(event["text"] for event in done.of("token")) == "The end."
    assert {event["thread"] for event in done.events} == {"t1"}
    stamps = [event["ts"] for event in done.events]
    assert stamps == sorted(stamps)
    start = done.events[0]
    assert (start["task"], start["agent"], start["model"]) == (
        "count",
        "manus",
        "openai:test-model",
    )
    assert start["workspace"] == str(cli.cwd / "workspace" / "t1")
    assert done.of("tool_end")[0]["call_id"] == done.of("tool_start")[0]["call_id"] == "call_mine"
    assert (done.of("tool_end")[0]["ok"], done.of("tool_end")[0]["output"]) == (True, "two")
    final = done.final
    assert (final["status"], final["stop_reason"]) == ("finished", "answer")
    assert final["answer"] == "The end."
    assert final["usage"]["model_calls"] == 2
    assert (final["usage"]["input_tokens"], final["usage"]["cached_tokens"]) == (200, 80)
    assert final["artifacts"] == [{"path": "a.txt", "size": 4, "media_type": "text/plain"}]


def test_quiet_shows_nothing_but_the_answer(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "echo x"}),)), Reply("Just this."))
    done = cli.run("run", "be quiet", "--quiet")
    assert (done.code, done.stdout, done.stderr) == (0, "Just this.\n", "")


def test_log_describes_the_run_and_names_no_key(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "echo x"}),)), Reply("ok"))
    done = cli.run("run", "log it", "--log", "run.log")
    assert done.code == 0
    log = (cli.cwd / "run.log").read_text()
    assert f"{model.base_url}/chat/completions answered with 200" in log
    assert KEY not in log


def test_a_task_of_a_megabyte_comes_from_stdin_whole(cli: Cli, model: OpenAIServer) -> None:
    task = "é" * 524_288 + "THE END"
    model.add(Reply("read"))
    done = cli.run("run", "-", stdin=task)
    assert (done.code, done.stdout) == (0, "read\n")
    assert own_words(model.requests[0].messages[1]["content"]) == task


def test_files_are_copied_into_the_workspace_and_named(cli: Cli, model: OpenAIServer) -> None:
    odd = 'naïve "name" <b>&\n.txt'
    cli.write("a.csv", "1,2")
    cli.write(odd, "odd")
    model.add(Reply(calls=(Call("bash", {"command": "cat a.csv; ls | wc -l"}),)), Reply("ok"))
    done = cli.run("run", "sum", "--file", "a.csv", "--file", odd, "--workspace", "files", "--json")
    assert done.code == 0
    assert done.of("tool_end")[0]["output"].startswith("1,2")
    assert (cli.workspace / odd).read_text() == "odd"
    assert "a.csv" in model.requests[0].messages[1]["content"]
    assert done.final["artifacts"] == []


def test_two_files_of_one_name_are_refused(cli: Cli, model: OpenAIServer) -> None:
    cli.write("x/data.csv", "1")
    cli.write("y/data.csv", "2")
    done = cli.run("run", "sum", "--file", "x/data.csv", "--file", "y/data.csv")
    assert done.code == 2
    assert "data.csv" in done.stderr
    assert model.requests == []


def test_a_seeing_model_gets_the_picture(cli: Cli, model: OpenAIServer) -> None:
    cli.write("dot.png", PNG)
    cli.use(model.base_url, "openai:gpt-4o")
    model.add(Reply("a dot"))
    assert cli.run("run", "what is it?", "--image", "dot.png").code == 0
    task = model.requests[0].messages[1]
    assert own_words(task["content"][0]["text"]) == "what is it?"
    kind, _, data = pictures(task)[0].partition(";base64,")
    assert (kind, base64.b64decode(data)) == ("data:image/png", PNG)


def test_a_blind_model_hands_pictures_to_the_vision_model(cli: Cli, model: OpenAIServer) -> None:
    cli.write("dot.png", PNG)
    vision_key = "sk-visionSecret0123456789"
    with OpenAIServer([Reply("a dot")], strict=True) as seeing:
        cli.write(
            "mine.toml",
            f'[llm.vision]\nmodel = "my-eyes"\nbase_url = "{seeing.base_url}"\n'
            f'api_key = "{vision_key}"\n',
        )
        done = cli.run("run", "what?", "--image", "dot.png", "--config", "mine.toml")
        assert (done.code, done.stdout) == (0, "a dot\n")
        assert model.requests == []
        assert seeing.requests[0].body["model"] == "my-eyes"
        assert seeing.requests[0].headers["authorization"] == f"Bearer {vision_key}"
        assert pictures(seeing.requests[0].messages[1])


def test_a_model_without_vision_alone_is_informed_and_the_person_too(
    cli: Cli, model: OpenAIServer
) -> None:
    cli.write("dot.png", PNG)
    model.add(Reply("I cannot see"))
    done = cli.run("run", "what?", "--image", "dot.png", "--json")
    assert done.code == 0
    assert not pictures(model.requests[0].messages[1])
    assert any("Pictures" in notice["text"] for notice in done.of("notice"))


def test_a_thread_goes_on_in_a_second_run(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("Blue it is."), Reply("Blue."))
    assert cli.run("run", "my colour is blue", "--thread", "colours").code == 0
    done = cli.run("run", "which colour?", "--thread", "colours", "--json")
    assert done.code == 0
    first, second = (request.messages for request in model.requests)
    assert second[: len(first)] == first
    roles = [(message["role"], own_words(message["content"])) for message in second[1:]]
    assert roles == [
        ("user", "my colour is blue"),
        ("assistant", "Blue it is."),
        ("user", "which colour?"),
    ]
    assert done.final["usage"]["model_calls"] == 1


def test_a_threads_options_are_kept_for_later_runs(cli: Cli, model: OpenAIServer) -> None:
    look = Call("bash", {"command": "pwd"})
    model.add(Reply("one"), Reply(calls=(look,)), Reply("stopped"), Reply("two"))
    assert cli.run("run", "a", "--thread", "t", "--workspace", "files").code == 0
    done = cli.run("run", "b", "--thread", "t", "--max-steps", "1", "--json")
    assert done.code == 3
    assert done.events[0]["workspace"] == str(cli.workspace)
    assert done.of("tool_end")[0]["output"] == str(cli.workspace)
    resumed = cli.run("resume", "t", "--max-steps", "9", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "two")


def test_max_steps_stops_and_resume_goes_on(cli: Cli, model: OpenAIServer) -> None:
    steps = [
        Reply(f"step {n}", calls=(Call("bash", {"command": f"echo {n} >> log"}),)) for n in "123"
    ]
    model.add(*steps[:2], Reply("Two of three."), steps[2], Reply("All three."))
    done = cli.run("run", "three", "--max-steps", "2", "--thread", "t", "--workspace", "files")
    assert done.code == 3
    assert "openmanus resume t --max-steps 4\n" in done.stderr
    assert done.stdout == "Two of three.\n"
    assert len(model.requests) == 3
    again = cli.run("resume", "t", "--json")
    assert (again.code, again.final["stop_reason"]) == (3, "max_steps")
    assert "with a higher max_steps" in again.final["answer"]
    assert len(model.requests) == 3, "the limit counts what was done before"
    resumed = cli.run("resume", "t", "--max-steps", "9", "--json")
    assert (resumed.code, resumed.final["answer"]) == (0, "All three.")
    assert (cli.workspace / "log").read_text() == "1\n2\n3\n"
    assert resumed.final["usage"]["model_calls"] == 5


def test_a_model_that_never_stops_announcing_is_exit_1(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("Sure! I will list the files."), Reply("Now I will list the files."))
    done = cli.run("run", "Which files are there?")
    assert done.code == 1
    assert (done.stdout, "announced work and did not do it" in done.stderr) == ("", True)
    assert len(model.requests) == 2


def test_a_call_written_as_text_is_run(cli: Cli, model: OpenAIServer) -> None:
    call = '<tool_call>{"name": "bash", "arguments": {"command": "echo it was run"}}</tool_call>'
    model.add(Reply(call), Reply("It was run."))
    done = cli.run("run", "Say it.", "--json")
    assert (done.code, done.final["answer"]) == (0, "It was run.")
    assert done.of("tool_end")[0]["output"] == "it was run"


def test_terminate_with_failure_is_exit_1(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply("It cannot be done.", calls=(Call("terminate", {"status": "failure"}),)))
    done = cli.run("run", "the impossible", "--json")
    assert done.code == 1
    assert (done.final["status"], done.final["stop_reason"]) == ("failed", "terminate")
    assert done.final["answer"] == "It cannot be done."
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("option", "reason"),
    [(("--max-tokens", "3000"), "budget"), (("--timeout", "0.2"), "timeout")],
)
def test_other_limits_are_exit_3(
    cli: Cli, model: OpenAIServer, option: tuple[str, str], reason: str
) -> None:
    slow = Call("bash", {"command": "sleep 0.3; echo x"})
    usage = {"prompt_tokens": 2500, "completion_tokens": 20, "total_tokens": 2520}
    model.add(Reply("first", calls=(slow,), usage=usage), Reply("never"))
    done = cli.run("run", "spend", "--json", *option)
    assert (done.code, done.final["stop_reason"]) == (3, reason)
    assert len(model.requests) == 1
    assert done.of("limit")[0]["reason"] == reason
    assert "first" in done.final["answer"]


def test_the_command_that_goes_on_after_a_large_budget_works(cli: Cli, model: OpenAIServer) -> None:
    usage = {"prompt_tokens": 11_900, "completion_tokens": 20, "total_tokens": 11_920}
    more = Call("bash", {"command": "echo x"})
    model.add(Reply("first", calls=(more,), usage=usage), Reply("All is spent."))
    stopped = cli.run("run", "spend", "--thread", "t", "--max-tokens", "12345")
    assert stopped.code == 3
    command = stopped.stderr.rpartition("openmanus ")[2].split()
    assert command[:3] == ["resume", "t", "--max-tokens"]
    assert cli.run(*command).stdout == "All is spent.\n"


@pytest.mark.parametrize("redirected", sampled(["--json", "2>&1"], 1, "readers"))
def test_a_reader_that_goes_away_does_not_break_the_run(
    cli: Cli, model: OpenAIServer, redirected: str
) -> None:
    write = Call("bash", {"command": "echo done > done.txt"})
    model.add(
        Reply("x" * 200_000, calls=(write,), piece_size=10_000),
        Reply("y" * 200_000, piece_size=10_000),
    )
    command = f"set -o pipefail; {OPENMANUS} run go --workspace files {redirected} | head -c 1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=cli.cwd, env=cli.env, capture_output=True, check=False,
        timeout=BACKSTOP_S,
    )  # fmt: skip
    error = done.stderr.decode()
    assert done.returncode == 0
    assert len(done.stdout) == 1
    assert "Traceback" not in error
    assert "BrokenPipe" not in error
    assert (cli.workspace / "done.txt").read_text() == "done\n"


@pytest.mark.usefixtures("real_start")
@pytest.mark.parametrize("form", sampled(["", "--json"], 1, "locale"))
def test_text_gets_through_whatever_the_locale(cli: Cli, model: OpenAIServer, form: str) -> None:
    answer = "Grüße,\u3000世界 👨\u200d👩\u200d👧 \u00a0."
    locale = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    model.add(Reply(answer))
    done = cli.run("run", "grüß die 世界", *form.split(), env=locale)
    assert done.code == 0
    assert (done.final["answer"] if form else done.stdout) == answer + "\n"[: not form]
    assert own_words(model.requests[-1].messages[1]["content"]) == "grüß die 世界"


@pytest.mark.usefixtures("real_start")
@pytest.mark.parametrize("given", sampled([b"caf\xe9!", b"-"], 1, "no UTF-8"))
def test_bytes_that_are_no_utf8_are_replaced(cli: Cli, model: OpenAIServer, given: bytes) -> None:
    model.add(Reply("ok"))
    task, stdin = given.decode("utf-8", "surrogateescape"), b"caf\xe9!" if given == b"-" else b""
    assert cli.run("run", task, stdin=stdin).code == 0
    (request,) = model.requests
    assert own_words(request.messages[1]["content"]) == "caf\ufffd!"


def test_a_program_is_no_task(cli: Cli, model: OpenAIServer) -> None:
    done = cli.run("run", "-", stdin=b"\x7fELF\2\1\1" + bytes(range(256)) * 9)
    assert (done.code, "stdin is not text" in done.stderr) == (2, True)
    assert model.requests == []


def test_control_characters_of_the_model_do_not_reach_the_terminal(
    cli: Cli, model: OpenAIServer
) -> None:
    evil = "\x1b]0;owned\x07\x1b[2Jclean\x9b31m\u202e end"
    shell = Call("bash", {"command": "printf '\\033[2Jred\\007'", "timeout_s": 20})
    ask = Call("str_replace_editor", {"command": "view", "path": f"no {evil}"})
    model.add(Reply(evil, calls=(shell, ask)), Reply(evil))
    done = cli.run("run", "attack", "--thread", "t")
    assert done.code == 0
    shown = cli.run("show", "t")
    for text in (done.stdout, done.stderr, shown.stdout):
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
        assert "clean" in text


def test_thread_names_with_slashes_stay_inside_their_folders(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "touch here"}),)), Reply("ok"))
    name = "../../../evil/..\\x"
    done = cli.run("run", "go", "--thread", name, "--json")
    assert done.code == 0
    assert [path.name for path in cli.root.rglob("here")] == ["here"]
    assert (cli.cwd / "workspace").is_dir()
    assert list((cli.cwd / "workspace").glob("*/here"))
    assert sorted(path.name for path in cli.root.iterdir()) == ["config", "home", "project"]
    assert cli.run("show", name).code == 0


def test_a_narrow_terminal_without_colour_works(cli: Cli, model: OpenAIServer) -> None:
    model.add(Reply(calls=(Call("bash", {"command": "echo [bold]x[/bold] [/]"}),)), Reply("[/red]"))
    done = cli.run("run", "go", env={"COLUMNS": "10", "NO_COLOR": "1"})
    assert (done.code, done.stdout) == (0, "[/red]\n")
    assert "[bold]x[/bold] [/]" in done.stderr
