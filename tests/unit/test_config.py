"""One declaration per setting: what is made of it, and the public lists of names beside it."""

import re
import subprocess
import sys
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from docs.settings_source import sources
from openmanus_graph import ConfigError, Context, build_manus_graph, build_planning_graph
from openmanus_graph.config import files as table
from openmanus_graph.config import resolve
from openmanus_graph.config.files import Layer, declared, declared_fields
from openmanus_graph.config.homes import risky_settings, without_risks
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.interfaces.server.page_routes import FORM
from openmanus_graph.interfaces.service.options import (
    RunOptions,
    StorageOptions,
    command_fields,
    takes,
)
from openmanus_graph.interfaces.service.run_setup import to_context
from openmanus_graph.state.manus import ManusOutput
from openmanus_graph.state.model_settings import LlmKeys, ModelKeys, ModelUseKeys, RoleKeys
from openmanus_graph.state.search_engines import KEY_VARIABLES
from openmanus_graph.state.setting_declaration import Setting
from openmanus_graph.state.settings import Settings
from tests.support.layers import layer_of

WITHOUT_TRUST = {
    "answer_check",
    "model", "vision_model", "max_steps", "max_total_tokens", "timeout_s", "max_parallel_steps",
    "step_timeout_s", "review_plan", "tools", "prompts", "sandbox.memory_mb", "sandbox.processes",
    "sandbox.disk_mb", "sandbox.timeout_s", "web.denied_domains", "browser.headless",
    "browser.max_content_length", "browser.observation_tokens", "search.engine",
    "search.fallback_engines", "search.lang", "search.country", "search.timeout_s",
    "search.total_timeout_s", "search.max_retries", "search.retry_delay", "search.google_cse_id",
    "storage.snapshot_max_mb",
    "storage.workspace_max_mb", "storage.snapshot_ignore",
    "storage.lease_s", "mcp.search_tools_above", "listing", "code_mode",
    *(f"search.{engine}_api_key" for engine in KEY_VARIABLES),
    *(f"{table}.{key.name}" for table in ("llm", "llm.vision") for key in fields(LlmKeys)
      if key.name != "base_url"),
    *(f"llm.{key.name}" for key in fields(ModelUseKeys) if key.name != "profiles"),
    *(f"llm.roles.{key.name}" for key in fields(RoleKeys)),
}  # fmt: skip
"""What a cloned repository may set: nothing starts, opens or goes elsewhere by it."""


def resolved(**context: Any) -> Settings:
    return resolve_settings(Context(model="openai:x", base_url="http://m.test", **context), "t")


def written(text: str, path: str = "openmanus.toml") -> Path:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text, encoding="utf-8")
    return Path(path)


def test_the_generated_sources_are_current() -> None:
    for path, source in sources():
        assert path.read_text(encoding="utf-8") == source, "run: uv run python docs/make.py"


def test_only_what_the_table_declares_is_a_field_of_the_context_or_an_option() -> None:
    context = {one.context for one in declared_fields()} - {None}
    assert {field.name for field in fields(Context)} == context
    assert all(field.default is None for field in fields(Context)), "defaults are declared"
    options = [*command_fields(RunOptions), *command_fields(StorageOptions)]
    assert {field.name for field in options} == {one.option for one in declared_fields()} - {""}
    assert all(field.default is None for field in options), "defaults are declared"


@dataclass(frozen=True)
class More:
    colour: Annotated[
        Literal["red", "blue"], Setting(option="--colour", env=("OPENMANUS_COLOUR",))
    ] = "red"
    """Colour of the answer. Nobody reads it."""


def test_a_new_setting_is_declared_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "TABLE", (*table.TABLE, (More, "")))
    caches = (declared_fields, declared, table._by_key, table._tables)  # pyright: ignore[reportPrivateUsage]
    try:
        for cached in caches:
            cached.cache_clear()
        layer = Layer()
        layer.read({"colour": "blue"})
        assert layer.values == {"colour": "blue"}
        assert declared()["colour"].env == ("OPENMANUS_COLOUR",)
        (_, context), (_, options) = sources()
        kind = """Literal['red', 'blue']""".replace("'", '"')
        assert f"    colour: {kind} | None = None" in context
        assert '"""Colour of the answer. Nobody reads it. Default `red`."""' in context
        assert f'{kind} | None, typer.Option(help="Colour of the answer. Default red.")' in options
    finally:
        monkeypatch.undo()
        for cached in caches:
            cached.cache_clear()


def test_server_is_another_spelling_of_mcp_server() -> None:
    given: list[RunOptions] = []
    app = typer.Typer()
    app.command()(takes(RunOptions)(given.append))
    runner = CliRunner()
    assert "--server" not in runner.invoke(app, ["--help"]).output.replace("--mcp-server", "")
    assert runner.invoke(app, ["--mcp-server", "a", "--server", "b"]).exit_code == 0
    assert given[0].mcp_server == ["a", "b"]


@pytest.mark.parametrize("option", [field.name for field in command_fields(RunOptions)])
def test_every_option_reaches_the_context(option: str) -> None:
    given = {"allow_host": ["h"], "mcp_server": ["s"], "secret": ["a=b@c.d"]}.get(option, "1")
    context = to_context(RunOptions(**{option: given}))  # type: ignore[arg-type]  # any field
    assert replace(context) != Context()


def test_defaults_that_people_read_are_those_that_are_declared() -> None:
    helps = {field.name: str(get_args(field.type)[1].help) for field in command_fields(RunOptions)}
    said = [(name, re.search(r"Default (\d+)", text)) for name, text in helps.items()]
    defaults = {field.name: field.default for field in fields(Settings)}
    found = {name: float(match[1]) for name, match in said if match}
    assert set(found) == {"max_steps", "max_cost_usd"}
    assert all(defaults[name] == value for name, value in found.items())


def test_a_new_setting_needs_trust_until_it_is_found_harmless() -> None:
    assert {name for name, one in declared().items() if not one.setting.trust} == WITHOUT_TRUST


@pytest.mark.parametrize("kind", [Settings, ModelKeys, LlmKeys, ModelUseKeys, RoleKeys])
def test_every_setting_has_a_default(kind: type[Any]) -> None:
    named = {one.name for one in declared_fields() if one.owner is kind}
    for field in fields(kind):
        if field.name in named - {"workspace"}:
            assert (field.default, field.default_factory) != (MISSING, MISSING), field.name
        elif is_dataclass(field.type) and field.name not in ("main", "database"):
            field.type()  # type: ignore[operator]  # a section's defaults


def test_the_first_place_that_has_a_setting_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    written("max_steps = 2\nmax_parallel_steps = 3\n[sandbox]\nprocesses = 9\n")
    written(
        "max_steps = 4\nstep_timeout_s = 5\n[sandbox]\nprocesses = 8\ndisk_mb = 7\n",
        "config/openmanus/config.toml",
    )
    monkeypatch.setenv("MAX_STEPS", "99")  # no variable of ours
    found = resolved(max_parallel_steps=6)
    assert (found.max_steps, found.max_parallel_steps, found.step_timeout_s) == (2, 6, 5)
    assert (found.sandbox.processes, found.sandbox.disk_mb) == (9, 7)
    assert (found.max_steps_set, found.max_cost_usd, found.sandbox.mode) == (True, 3, "auto")


def test_tables_of_people_are_not_mixed() -> None:
    written('[prompts]\nsystem = "S"\n[browser.proxy]\nserver = "http://a.test"\n', "own.toml")
    written(
        '[prompts]\nnext_step = "N"\n[browser.proxy]\nserver = "http://b.test"\nusername = "u"\n',
        "config/openmanus/config.toml",
    )
    found = resolved(config="own.toml")
    assert found.prompts == {"system": "S"}
    assert found.browser.proxy is not None
    assert (found.browser.proxy.server, found.browser.proxy.username) == ("http://a.test", "")


def test_openmanus_names_are_read_and_our_own_come_before_them() -> None:
    path = written(
        '[sandbox]\nnetwork_enabled = true\nmemory_limit = "2g"\ntimeout = 7\ntimeout_s = 8\n'
    )
    assert layer_of(path).values == {
        "sandbox.network": "ask", "sandbox.memory_mb": 2048, "sandbox.timeout_s": 8
    }  # fmt: skip


def test_a_key_that_is_left_out_takes_its_companion_along() -> None:
    path = written('base_url = "http://a.test"\nmax_steps = 3\n[llm]\nmodel = "m"\napi_key = "k"\n')
    layer = layer_of(path)
    assert set(risky_settings(layer)) == {"base_url"}
    assert without_risks(layer).values == {"max_steps": 3, "llm.model": "m"}


@pytest.mark.parametrize(
    ("context", "said"),
    [
        ({"max_steps": 0}, "max_steps"),
        ({"timeout_s": -1.0}, "timeout_s"),
        ({"max_steps": "many"}, "max_steps"),
        ({"sandbox": "jail"}, "sandbox"),
        ({"max_steps": "many", "sandbox": "jail"}, r"max_steps: .*; sandbox: "),
        ({"web": {"deny": ["a"]}}, r"There is no \[web\] key deny"),
        ({"browser": {"cdp_url": "http://a", "profile": "b"}}, "cdp_url and profile; set one"),
    ],
)
def test_a_wrong_field_of_the_context_is_named(context: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        resolved(**context)


def test_the_configuration_knows_nothing_of_what_is_built_on_it() -> None:
    above = {"backends", "search", "web", "models", "browser", "mcp", "runtime", "cli", "server"}
    for path in (Path(resolve.__file__).parent).glob("*.py"):
        found = re.findall(r"(?:from|import) openmanus_graph\.(\w+)", path.read_text("utf-8"))
        assert not above & set(found), path.name


def test_help_goes_without_the_libraries_of_the_configuration() -> None:
    program = (
        "import sys\nfrom typer.testing import CliRunner\n"
        "from openmanus_graph.interfaces.cli.main import app\n"
        "assert CliRunner().invoke(app, ['run', '--help']).exit_code == 0\n"
        "print('openmanus_graph.state.settings' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr


def test_no_validator_is_built_for_a_setting_that_nobody_set() -> None:
    program = (
        "from pydantic import TypeAdapter\nfrom openmanus_graph import Context\n"
        "from openmanus_graph.config.resolve import resolve_settings\n"
        "built, usual = [], TypeAdapter.__init__\n"
        "def counting(self, kind, **more):\n    built.append(kind)\n    usual(self, kind, **more)\n"
        "TypeAdapter.__init__ = counting\n"
        "resolve_settings(Context(model='openai:x', base_url='http://m.test'), 't')\n"
        "print(len(built))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 4, "of the two fields, as a field of Context and as a key"


@pytest.mark.parametrize("graph", [build_manus_graph(), build_planning_graph()])
def test_internal_keys_of_the_state_are_in_no_schema(graph: Any) -> None:
    given, result = graph.get_input_jsonschema(), graph.get_output_jsonschema()
    assert set(given["properties"]) == {"messages"}
    assert set(result["properties"]) == set(get_type_hints(ManusOutput))
    context = graph.get_context_jsonschema()["properties"]
    assert set(context) == {field.name for field in fields(Context)}
    texts = [*given["properties"].values(), *result["properties"].values(), *context.values()]
    assert all(shown.get("description") for shown in texts), "forms and Studio show them"


def test_the_form_of_the_page_has_the_simple_options() -> None:
    simple = {"max_steps", "max_cost_usd", "max_total_tokens", "timeout_s", "policy"}
    assert {one.context for one in FORM} == simple | {"review_plan", "sandbox", "network"}


@pytest.mark.parametrize("given", ["soon", "0"])
def test_a_wrong_environment_variable_is_named(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv("OPENMANUS_LEASE_S", given)
    with pytest.raises(ConfigError, match="variable OPENMANUS_LEASE_S is wrong: Input should be"):
        resolve_settings(Context(model="openai:m"), "t")
