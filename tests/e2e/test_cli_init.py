"""`openmanus init` at a terminal: what it asks, tries and stores."""

import json
import stat
import tomllib

from openmanus_graph.config.model import LOCAL_PORTS_VARIABLE
from tests.e2e.terminal import Terminal
from tests.support.cli import Cli
from tests.support.openai_script import Reply
from tests.support.openai_server import OpenAIServer
from tests.support.server_facts import LLAMA_CPP

WRONG, RIGHT = "sk-wrong-1234567890", "sk-right-0987654321"
DEAD = "http://127.0.0.1:1/v1"
REFUSED = Reply(
    status=401,
    error={"error": {"message": f"Incorrect API key provided: {WRONG}", "code": "invalid_api_key"}},
)


def test_a_model_is_set_up_and_a_wrong_key_is_not_kept(bare_cli: Cli, model: OpenAIServer) -> None:
    cli, model.models = bare_cli, ("test-model", "other")
    model.add(REFUSED, REFUSED, Reply("ok"), Reply("Hello."))
    with Terminal(cli, "init") as terminal:
        terminal.see("Provider [")
        terminal.type(f"{model.base_url}\r")
        terminal.see("It offers: test-model, other.")
        terminal.see("Model [test-model]: ")
        assert "Key" not in terminal.screen, "who lists models to anybody may need none"
        terminal.type("my-model\r")
        terminal.see("Key (not shown): ")
        assert "key refused" in terminal.screen
        terminal.type(f"{WRONG}\r")
        terminal.see("key refused")
        terminal.see("Key (not shown): ")
        terminal.type(f"{RIGHT}\r")
        assert terminal.finish() == 0
        assert WRONG not in terminal.raw
        assert RIGHT not in terminal.raw
        assert "It works." in terminal.screen
    folder = cli.root / "config" / "openmanus"
    keys = folder / "credentials.json"
    assert stat.S_IMODE(keys.stat().st_mode) == 0o600
    kept = json.loads(keys.read_text())
    assert kept == {f"openai {model.base_url}": {"key": RIGHT}}
    config = tomllib.loads((folder / "config.toml").read_text())
    assert config == {"model": "openai:my-model", "base_url": model.base_url}
    holders = [path for path in cli.root.rglob("*") if path.is_file()]
    assert not [path for path in holders if WRONG.encode() in path.read_bytes()]
    assert cli.run("run", "hi", "--log", "log").stdout == "Hello.\n"
    assert RIGHT not in (cli.cwd / "log").read_text()


def test_the_window_that_a_local_server_tells_is_stored_and_examined(
    bare_cli: Cli, model: OpenAIServer
) -> None:
    cli = bare_cli
    cli.env[LOCAL_PORTS_VARIABLE] = str(model.port)
    model.facts.update(LLAMA_CPP)
    model.add(Reply("ok"), Reply("Hello."))
    with Terminal(cli, "init", columns=120) as terminal:
        terminal.see("with the model qwen.gguf")
        terminal.type(f"http://127.0.0.1:{model.port}\r")
        terminal.see("Model [qwen.gguf]: ")
        terminal.type("\r")
        assert terminal.finish() == 0
        assert "with the 4,096 tokens that its server takes" in " ".join(terminal.screen.split())
    config = tomllib.loads((cli.root / "config" / "openmanus" / "config.toml").read_text())
    assert config == {
        "model": "openai:qwen.gguf",
        "base_url": model.base_url,
        "llm": {"context_window": 4096},
    }
    found = cli.run("doctor")
    assert f"✓ model: openai:qwen.gguf at {model.base_url} (llama.cpp)\n" in found.stdout
    assert (
        "· window: 4,096 tokens, which is little for an agent. Start llama-server" in found.stdout
    )
    assert "✓ tool calls: constrained steps" in found.stdout
    assert [request.body["model"] for request in model.requests] == ["qwen.gguf"]
    done = cli.run("run", "hi", env={"OPENAI_API_KEY": ""})
    assert (done.code, done.stdout) == (0, "Hello.\n")
    assert "$3" not in str(model.requests[-1].body)
    model.facts["/props"] = {"default_generation_settings": {"n_ctx": 16384}}
    assert "16,384 tokens, but 4,096 are set" in cli.run("doctor").stdout


def test_a_server_at_any_address_is_asked_for_its_model(bare_cli: Cli, model: OpenAIServer) -> None:
    bare_cli.env[LOCAL_PORTS_VARIABLE] = ""
    model.facts.update(LLAMA_CPP)
    model.add(Reply("ok"))
    with Terminal(bare_cli, "init", "--base-url", model.base_url, columns=120) as terminal:
        terminal.see(f"Provider [{model.base_url}]: ")
        terminal.type("\r")
        terminal.see("Model [qwen.gguf]: ")
        terminal.type("\r")
        assert terminal.finish() == 0
    assert [request.body["model"] for request in model.requests] == ["qwen.gguf"]


def test_a_server_that_lists_nothing_is_asked_with_a_key_and_one_that_is_down_not_at_all(
    bare_cli: Cli, model: OpenAIServer
) -> None:
    bare_cli.env[LOCAL_PORTS_VARIABLE] = ""
    model.models = ()
    with Terminal(bare_cli, "init") as terminal:
        terminal.see("Provider [")
        terminal.type(f"{DEAD}\r")
        terminal.see(f"Nobody answers at {DEAD}. Start the server, or correct this.")
        terminal.see(f"Provider [{DEAD}]: ")
        assert "Key" not in terminal.screen
        terminal.type(f"{model.base_url}\r")
        terminal.see("Key (empty: none): ")
        terminal.type("\x04")
        assert terminal.finish() == 130


def test_doctor_says_that_no_server_answers(bare_cli: Cli) -> None:
    found = bare_cli.run("doctor", env={"OPENMANUS_MODEL": "openai:x", "OPENAI_BASE_URL": DEAD})
    assert found.code == 1
    assert f"✗ model: openai:x at {DEAD}: no server answers there; start it\n" in found.stdout


def test_who_leaves_changes_nothing(bare_cli: Cli) -> None:
    with Terminal(bare_cli, "init") as terminal:
        terminal.see("Provider [")
        terminal.type("acme\r")
        terminal.see("There is no provider acme. Write one of those above, or the address of")
        terminal.type("deepseek\r")
        terminal.see("Key (not shown): ")
        terminal.type("\x04")
        assert terminal.finish() == 130
        assert "Nothing was changed." in terminal.screen
    assert not (bare_cli.root / "config").exists()


def test_without_a_terminal_it_says_what_to_set(bare_cli: Cli) -> None:
    done = bare_cli.run("init")
    assert (done.code, done.stdout) == (2, "")
    assert "OPENMANUS_MODEL" in done.stderr
