"""Addresses of databases: what is read, what is refused, and what is never shown."""

from pathlib import Path

import pytest

from openmanus_graph import ConfigError, Context
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.config.resolve import database_url, resolve_settings
from openmanus_graph.interfaces.service.options import (
    DATABASE_VARIABLE,
    use_configuration,
    use_database,
)
from openmanus_graph.state.addresses import DatabaseUrl
from tests.support.graphs import scripted

SECRET = "postgresql://u:hunter2@db.test:5432/agents?sslmode=require"


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (SECRET, "postgresql://u@db.test:5432/agents"),
        ("postgres://u@a:1,b:2/agents", "postgresql://u@a:1,b:2/agents"),
        ("postgresql:///agents?host=/run/pg&password=hunter2", "postgresql:///run/pg/agents"),
        ("postgresql://u:hunter%40%2F2@[::1]:5/agents", "postgresql://u@[::1]:5/agents"),
        ("sqlite:////srv/agents.db", "/srv/agents.db"),
    ],
)
def test_an_address_is_shown_without_its_password(given: str, shown: str) -> None:
    url = DatabaseUrl.parse(given)
    assert str(url) == shown
    assert "hunter" not in repr(url)
    assert url.is_local == given.startswith("sqlite")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("mysql://u:hunter2@h/db", "not an address of one"),
        ("hunter2://u@h/db", "not an address of one"),
        ("hunter2", "not an address of one"),
        ("sqlite://agents.db", "names no file"),
        ("sqlite:///folder/", "names no file"),
        ("postgresql://u:hunter2@h", "names no database"),
        ("postgresql://u:hun@ter2@h/db", "special characters of the password"),
        ("postgresql://u:hunter/2@h/db", "special characters of the password"),
        ("postgresql://u:hunter#2@h/db", "special characters of the password"),
        ("postgresql://u:hunter?2@h/db", "special characters of the password"),
        ("postgresql://h:hunter2/db", "special characters of the password"),
    ],
)
def test_a_wrong_address_is_refused_and_not_shown(
    given: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE_VARIABLE, given)
    with pytest.raises(ConfigError, match=reason) as refused:
        open_database(database_url())
    assert "database_url" in str(refused.value)
    assert "hunt" not in str(refused.value)


def test_a_relative_file_is_of_the_working_folder(tmp_path: Path) -> None:
    assert DatabaseUrl.parse("sqlite:///agents.db").file == tmp_path / "agents.db"


def test_option_comes_before_environment_before_file_before_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DATABASE_VARIABLE, "")  # what `use_database` sets is taken back
    assert database_url().file == tmp_path / "home" / "openmanus.db"
    config = tmp_path / "own.toml"
    config.write_text('[storage]\ndatabase_url = "sqlite:///of_file.db"\n')
    context = Context(model=scripted("done"), config=str(config))
    assert resolve_settings(context, "t").database.file.name == "of_file.db"
    assert database_url().file.name == "openmanus.db"
    use_configuration(str(config))
    assert database_url().file.name == "of_file.db"
    monkeypatch.setenv(DATABASE_VARIABLE, "sqlite:///of_environment.db")
    use_configuration(str(config))
    assert database_url().file.name == "of_environment.db"
    use_database("sqlite:///of_option.db")
    assert resolve_settings(context, "t").database.file.name == "of_option.db"


def test_a_folders_configuration_names_no_database_until_it_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "openmanus.toml").write_text(f'[storage]\ndatabase_url = "{SECRET}"\n')
    assert database_url().is_local
    warnings = resolve_settings(Context(model=scripted("done")), "t").warnings
    assert any("storage.database_url: not used until you trust" in each for each in warnings)
    assert "hunter2" not in str(warnings)
