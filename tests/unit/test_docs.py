"""What the documentation says of settings and links is complete and right."""

import dataclasses
import re
from pathlib import Path

import pytest

from docs.configuration_page import configuration_page
from openmanus_graph.backends.models.spec import PROVIDERS
from openmanus_graph.config.files import LEFT_OUT, declared, moved_keys
from openmanus_graph.graphs.catalog import agent_names
from openmanus_graph.state.context import Context, MCPServer
from openmanus_graph.state.search_engines import ENGINES, KEY_VARIABLES
from tests.support.layers import layer_of

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
PAGES = [*READMES, *sorted(DOCS.glob("*.md"))]
LINK = re.compile(r"\]\(([^)\s]+)\)")
TOML = re.compile(r"(?<!\.toml -->\n)^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def code_words(page: str) -> set[str]:
    """What stands in code font, each word of it by itself."""
    text = (DOCS / page).read_text(encoding="utf-8")
    return {word for code in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", code)}


def test_every_key_of_the_configuration_is_explained() -> None:
    named = {name.rpartition(".")[2] for name in declared()} | {
        each.name for each in dataclasses.fields(MCPServer)
    }
    assert named <= code_words("configuration.md")


def test_the_tables_of_the_configuration_are_as_the_code() -> None:
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    assert configuration_page(text) == text, "run: uv run python docs/make.py"
    assert text.count("<!-- keys: ") == 16
    assert "| `max_steps` | 100 | `--max-steps` | Maximum number of model calls in a run" in text


def test_every_field_of_the_context_is_explained() -> None:
    assert {field.name for field in dataclasses.fields(Context)} <= code_words("configuration.md")


def test_every_variable_of_the_environment_is_explained() -> None:
    keys = {name for provider in PROVIDERS.values() for name in provider.key_variables}
    ours: set[str] = set()
    for path in (ROOT / "openmanus_graph").rglob("*.py"):
        ours |= set(re.findall(r'"(OPENMANUS_[A-Z_2]+)"', path.read_text(encoding="utf-8")))
    ours -= {"OPENMANUS_TREE"}  # marks the processes of a sandbox, nobody sets it
    ours = {"OPENMANUS_SECRET_NAME" if name == "OPENMANUS_SECRET_" else name for name in ours}
    engines = {variables[0] for variables in KEY_VARIABLES.values()}
    words = code_words("configuration.md")
    assert {"OPENMANUS_MODEL", "OPENMANUS_HOME", "OPENMANUS_A2A_TOKEN"} <= ours
    assert keys | ours | engines | set(ENGINES) <= words


def test_the_example_configurations_are_read_without_a_warning(tmp_path: Path) -> None:
    found = [text for page in PAGES for text in TOML.findall(page.read_text(encoding="utf-8"))]
    assert len(found) >= 7
    for text in found:
        (tmp_path / "openmanus.toml").write_text(text, encoding="utf-8")
        assert layer_of(tmp_path / "openmanus.toml").unknown == []


def test_every_old_key_is_in_the_table_of_moving() -> None:
    words = code_words("moving-from-openmanus.md")
    for key in [*moved_keys(), *LEFT_OUT]:
        assert set(key.split(".")) <= words, key


def test_every_agent_is_described() -> None:
    text = (DOCS / "agents.md").read_text(encoding="utf-8")
    assert [name for name in agent_names() if f"## {name}\n" not in text] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if target.startswith(("http://", "https://", "#")):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {anchor_of(heading) for heading in headings}, target


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_the_index_names_every_page() -> None:
    index = (DOCS / "README.md").read_text(encoding="utf-8")
    for page in DOCS.glob("*.md"):
        assert page.name == "README.md" or f"({page.name})" in index, page.name


def shape(page: Path) -> dict[str, list[str]]:
    """Return what two languages of a page have in common."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```.*?^```$", text, re.DOTALL | re.MULTILINE)
    for block in blocks:
        text = text.replace(block, "")
    others = {"README.md", "README.zh-CN.md", "docs/images/page-dark.png"}
    return {
        "blocks": blocks,
        "headings": re.findall(r"^#+", text, re.MULTILINE),
        "rows": [row.split("|")[1].strip() for row in re.findall(r"^\| `.*$", text, re.MULTILINE)],
        "commands": sorted(re.findall(r"`([^`\n]+)`", text)),
        "links": sorted(set(LINK.findall(text)) - others - {"docs/images/page-chinese.png"}),
    }


def test_both_languages_of_the_readme_keep_step() -> None:
    english, chinese = map(shape, READMES)
    assert english == chinese
    assert len(english["headings"]) >= 7


def test_every_command_of_the_readme_leaves_development_out() -> None:
    for page in READMES:
        text = page.read_text(encoding="utf-8")
        runs = re.findall(r"uv run (.*)", text.partition("<!-- command: test -->")[0])
        assert len(runs) > 5
        assert all("--no-dev" in run for run in runs)


def test_every_promise_names_a_test_that_exists() -> None:
    page = (DOCS / "security.md").read_text(encoding="utf-8")
    _, promises, _ = re.split(r"<!-- /?promises -->", page)
    rows = promises.strip().splitlines()[2:]
    assert rows
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for path, test in named:
            text = (DOCS.parent / path).read_text(encoding="utf-8")
            assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), f"{path}::{test}"
