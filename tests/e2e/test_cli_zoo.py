"""Servers of the zoo and the command: what a process has learnt of one, the next one knows."""

import json

import pytest

from tests.support.cli import Cli, Result
from tests.support.zoo import ANIMALS, OTHER
from tests.support.zoo_runs import write_files
from tests.support.zoo_server import Animal, ZooServer
from tests.support.zoo_tasks import LIMIT_ANSWER, TASKS

pytestmark = pytest.mark.slow


def ask(cli: Cli, server: ZooServer, task: str, *more: str) -> Result:
    """Run a task as a person does that has this server in the configuration."""
    animal = server.animal
    cli.use(server.base_url, model=f"openai:{animal.model_name}")
    options = "\n".join(f"{key} = {json.dumps(value)}" for key, value in animal.options.items())
    file = cli.root / "config" / "openmanus" / "config.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"[model_options]\nmax_retries = 1\n{options}\n")
    write_files(cli.workspace)
    text = animal.preface + TASKS[task].text
    return cli.run("run", text, "--workspace", "files", *more)


def answers(done: Result, task: str) -> bool:
    """Say whether the command ended with the task's answer."""
    return (done.code, done.stdout) == (0, f"{TASKS[task].answer}\n")


def goes_on_elsewhere(cli: Cli, server: ZooServer) -> None:
    """Begin a thread at another server, and go on with it at this one."""
    with ZooServer(OTHER) as other:
        assert answers(ask(cli, other, "files"), "files")
    done = ask(cli, server, "more-files", "--continue")
    assert answers(done, "more-files"), (done, server.refusals)


@pytest.mark.parametrize("name", ["deepseek-v4", "gemma-2", "mistral-api", "temperature"])
def test_what_a_process_has_learnt_the_next_one_knows_until_it_is_forgotten(
    cli: Cli, name: str
) -> None:
    animal = ANIMALS[name]
    with ZooServer(animal) as server:
        goes_on_elsewhere(cli, server)
        known = len(server.refusals)
        assert 1 <= known <= animal.changes, server.refusals
        goes_on_elsewhere(cli, server)
        assert len(server.refusals) == known, server.refusals[known:]
        address = f"127.0.0.1:{server.port}"
        assert address in cli.run("models").stdout
        assert cli.run("models", "--forget", server.base_url).code == 0
        assert address not in cli.run("models").stdout
        goes_on_elsewhere(cli, server)
        assert len(server.refusals) == 2 * known


def test_at_a_limit_the_last_word_is_said_where_roles_must_alternate(cli: Cli) -> None:
    with ZooServer(ANIMALS["devstral"]) as server:
        done = ask(cli, server, "files", "--max-steps", "2")
        assert LIMIT_ANSWER in done.stdout
        assert len(server.refusals) == 1


@pytest.mark.parametrize("animal", [ANIMALS["moody"], ANIMALS["contradiction"]])
def test_where_a_server_takes_nothing_the_thread_goes_on_with_another(
    cli: Cli, animal: Animal
) -> None:
    with ZooServer(animal) as bad:
        failed = ask(cli, bad, "files")
        assert failed.code == 1
        assert animal.name in failed.stderr
    with ZooServer(OTHER) as good:
        assert answers(ask(cli, good, "more-files", "--continue"), "more-files")
