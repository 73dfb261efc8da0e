"""Users, tokens, owners and shares in both databases."""

import pytest

from openmanus_graph.backends.persistence.accounts import Accounts, User
from openmanus_graph.backends.persistence.database import open_database
from openmanus_graph.backends.persistence.threads import Threads
from openmanus_graph.errors import ConfigError
from openmanus_graph.interfaces.service.accounts import accounts, serving_accounts
from openmanus_graph.interfaces.service.options import DATABASE_VARIABLE
from openmanus_graph.state.addresses import DatabaseUrl


@pytest.fixture
def table(each_database: DatabaseUrl) -> Accounts:
    return Accounts(open_database(each_database))


@pytest.fixture
def threads(each_database: DatabaseUrl) -> Threads:
    return Threads(open_database(each_database))


def test_a_token_is_its_users_until_it_is_rotated_expires_or_the_user_is_removed(
    table: Accounts, each_database: DatabaseUrl
) -> None:
    table.add("ada", "admin")
    first, short = table.new_token("ada"), table.new_token("ada", valid_s=0)
    assert table.user_of(first) == User("ada", "admin")
    assert table.user_of(short) is table.user_of("om_other") is table.user_of("") is None
    stored = open_database(each_database).run("SELECT * FROM tokens")
    assert first not in str(stored)
    second = table.new_token("ada", alone=True)
    assert (table.user_of(first), table.user_of(second)) == (None, User("ada", "admin"))
    table.change_role("ada", "viewer")
    assert table.user_of(second) == User("ada", "viewer")
    table.remove("ada")
    assert table.user_of(second) is table.find("ada") is None


def test_a_server_asks_its_own_database_whatever_the_settings_say_meanwhile(
    table: Accounts, each_database: DatabaseUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.add("ada", "user")
    monkeypatch.setenv(DATABASE_VARIABLE, "nothing://of/this")
    with serving_accounts(open_database(each_database)):
        assert accounts().find("ada") == User("ada", "user")
    with pytest.raises(ConfigError):
        accounts()


def test_a_removed_users_name_is_given_to_nobody_else(table: Accounts) -> None:
    table.add("ada", "user", subject="issuer|1")
    table.remove("ada")
    with pytest.raises(ConfigError, match="There is a user ada already"):
        table.add("ada", "user", subject="issuer|2")
    assert table.is_removed("ada")
    assert table.add("ada", "viewer", subject="issuer|1") == User("ada", "viewer")
    assert table.of_subject("issuer|1", "eve", "admin") == User("ada", "viewer")


@pytest.mark.parametrize("name", ["", "Ada", "a b", "(nobody)", "a" * 65, "ä", "../x", "-a"])
def test_other_names_are_refused(table: Accounts, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a user's name"):
        table.add(name, "user")
    for change in (table.remove, table.new_token):
        with pytest.raises(ConfigError, match="There is no user"):
            change(name)


def test_a_new_thread_is_claimed_once_and_an_old_one_is_the_machines(
    table: Accounts, threads: Threads
) -> None:
    threads.begin("terminal", "manus", "x", {}, None)
    assert not table.claim("terminal", "ada")
    assert table.owner_of("terminal") == ""
    assert table.owner_of("new") is None
    assert table.claim("new", "ada")
    assert not table.claim("new", "bob")
    assert not table.claim("new", "")
    threads.begin("new", "manus", "x", {}, None)
    listed = [
        [one.id for _, one in threads.page(9, None, "", owner=who)] for who in ("ada", "", None)
    ]
    assert listed == [["new"], ["terminal"], ["new", "terminal"]]
    threads.delete("new")  # its workspace may be left
    assert table.owner_of("new") == "ada"


def test_a_share_ends_with_its_thread(table: Accounts, threads: Threads) -> None:
    threads.begin("t", "manus", "x", {}, None)
    secret, other = table.share("t"), table.share("t")
    assert table.shared_thread(secret) == table.shared_thread(other) == "t"
    assert (table.shares("t"), table.unshare("t"), table.shares("t")) == (2, 2, 0)
    kept = table.share("t")
    threads.delete("t")
    assert table.shared_thread(kept) is None
