"""Skills: where they are found, what makes one valid, and whose are trusted."""

import io
import json
import os
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openmanus_graph import ConfigError, Context
from openmanus_graph.config import instructions
from openmanus_graph.config.files import config_home
from openmanus_graph.config.instructions import (
    SkillError,
    find_skills,
    front_matter,
    read_skill,
    skill_file,
    untrusted_skills,
    usable_skills,
)
from openmanus_graph.config.resolve import resolve_settings
from openmanus_graph.interfaces.cli.skills import (
    add_skill,
    list_skills,
    remove_skill,
    show_skill,
    trust,
)
from openmanus_graph.runtime.output import copy_skills, skills_folder
from openmanus_graph.runtime.workspace import Workspace

HEAD = "---\nname: {name}\ndescription: {about}\n{more}---\n# Do it\n"


def make_skill(
    folder: Path, name: str | None = None, about: str = "Does a thing.", more: str = ""
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    text = HEAD.format(name=name or folder.name, about=about, more=more)
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    return folder


def own(name: str = "mine", about: str = "Does a thing.") -> Path:
    return make_skill(config_home() / "skills" / name, about=about)


def problems_of(folder: Path) -> str:
    with pytest.raises(SkillError) as error:
        read_skill(folder)
    return str(error.value)


# The cases of the format's reference validator.


@pytest.mark.parametrize(
    "more",
    [
        "",
        "license: MIT\n",
        "license: MIT\nmetadata:\n  author: A\n  version: 1.0\n",
        "allowed-tools: Bash(jq:*) Bash(git:*)\n",
        "compatibility: Requires Python 3.11+\n",
    ],
)
def test_a_valid_skill_is_read(tmp_path: Path, more: str) -> None:
    skill = read_skill(make_skill(tmp_path / "my-skill", more=more))
    assert (skill.name, skill.description) == ("my-skill", "Does a thing.")


@pytest.mark.parametrize("name", ["技能", "мой-навык", "навык", "caf\u00e9"])
def test_names_of_other_scripts_are_valid(tmp_path: Path, name: str) -> None:
    assert read_skill(make_skill(tmp_path / name)).name == name


def test_names_are_compared_in_one_form(tmp_path: Path) -> None:
    read_skill(make_skill(tmp_path / "caf\u00e9", name="cafe\u0301"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MySkill", "small letters"),
        ("НАВЫК", "small letters"),
        ("a" * 70, "70 characters, more than 64"),
        ("-my-skill", "begins or ends with a hyphen"),
        ("my-skill-", "begins or ends with a hyphen"),
        ("my--skill", "two hyphens in a row"),
        ("my_skill", "other characters"),
    ],
)
def test_a_wrong_name_is_said(tmp_path: Path, name: str, said: str) -> None:
    assert said in problems_of(make_skill(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# No front matter", "does not begin with front matter"),
        ("---\nname: a\ndescription: b\n", "has no end"),
        ("---\nname: [invalid\ndescription: broken\n---\nBody\n", "is not YAML, line"),
        ("---\n- just\n- a\n- list\n---\nBody\n", "is not a mapping"),
        ("---\ndescription: b\n---\n", "its name is missing"),
        ("---\nname: my-skill\n---\n", "its description is missing"),
        ("---\nname: my-skill\ndescription: '  '\n---\n", "its description is missing or empty"),
        ("---\nname: other\ndescription: b\n---\n", "its name other is not that of its folder"),
        ("---\nname: my-skill\ndescription: b\nmore: c\n---\n", "unknown fields: more"),
        (f"---\nname: my-skill\ndescription: {'x' * 1100}\n---\n", "1100 characters"),
        (
            f"---\nname: my-skill\ndescription: b\ncompatibility: {'x' * 550}\n---\n",
            "550 characters, more than 500",
        ),
        ("---\nname: my-skill\ndescription: b\ncompatibility: [a]\n---\n", "is not text"),
        ("---\nname: my-skill\ndescription: b\ndescription: c\n---\n", "repeats: description"),
        ("---\nname: &a [*a]\ndescription: b\n---\n", "is not YAML, line 2"),
        (f"---\nname: {'[' * 20_000}\n---\n", "nested too deeply"),
        ('---\nname: my-skill\ndescription: "a\\e[2Jb"\n---\n', "cannot be shown"),
        ('---\nname: my-skill\ndescription: "a\\uD800b"\n---\n', "cannot be shown"),
    ],
)
def test_what_is_wrong_with_the_front_matter_is_said(tmp_path: Path, text: str, said: str) -> None:
    folder = tmp_path / "my-skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text(text, encoding="utf-8")
    assert said in problems_of(folder)


def test_values_are_texts() -> None:
    assert front_matter("---\nversion: 1.0\non: yes\n---\n") == {"version": "1.0", "on": "yes"}


def test_small_letters_do_where_there_is_no_other_file(tmp_path: Path) -> None:
    folder = make_skill(tmp_path / "my-skill")
    (folder / "skill.md").write_text("small")
    assert skill_file(folder) == folder / "SKILL.md"
    (folder / "SKILL.md").rename(folder / "other.md")
    assert skill_file(folder) == folder / "skill.md"
    (folder / "skill.md").unlink()
    assert skill_file(folder) is None
    assert "has no SKILL.md" in problems_of(folder)


def test_a_folder_that_is_none_is_said(tmp_path: Path) -> None:
    assert "there is no folder" in problems_of(tmp_path / "none")
    (tmp_path / "file").write_text("x")
    assert "is not a folder" in problems_of(tmp_path / "file")


def test_a_folder_in_the_place_of_the_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "my-skill" / "SKILL.md").mkdir(parents=True)
    assert "SKILL.md is a folder, not a file" in problems_of(tmp_path / "my-skill")
    with pytest.raises(ConfigError, match="is not a skill"):
        add_skill(str(tmp_path / "my-skill"))


# What a skill could do to us.


def test_a_huge_file_is_refused(tmp_path: Path) -> None:
    folder = make_skill(tmp_path / "my-skill")
    with (folder / "SKILL.md").open("a") as file:
        file.write("x" * 5_000_000)
    assert "SKILL.md has 4882 KB, more than 256" in problems_of(folder)
    big = make_skill(tmp_path / "big")
    with (big / "data.bin").open("wb") as data:
        data.truncate(instructions.MAX_SKILL_BYTES + 1)
    assert "larger than 20 MB" in problems_of(big)


def test_a_folder_of_many_files_is_not_searched_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_skill(tmp_path / "my-skill")
    for number in range(20):
        (folder / str(number)).touch()
    looked_at: list[Path] = []
    lstat = Path.lstat

    def seen(path: Path) -> os.stat_result:
        looked_at.append(path)
        return lstat(path)

    monkeypatch.setattr(instructions, "MAX_SKILL_FILES", 5)
    monkeypatch.setattr(Path, "lstat", seen)
    assert "more than 5 files" in problems_of(folder)
    assert len(looked_at) == 6


def test_file_names_need_not_be_texts(tmp_path: Path) -> None:
    folder = make_skill(tmp_path / "my-skill")
    first = read_skill(folder).digest
    (folder / os.fsdecode(b"\xff.txt")).touch()
    assert read_skill(folder).digest != first


@pytest.mark.parametrize("target", ["/etc/passwd", "../../secret.txt", "SKILL.md"])
def test_a_link_is_refused_wherever_it_leads(tmp_path: Path, target: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    folder = make_skill(tmp_path / "place" / "my-skill")
    (folder / "reference.md").symlink_to(target)
    said = problems_of(folder)
    assert ("is a link" if target == "SKILL.md" else "leads out of its folder") in said


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    folder = make_skill(tmp_path / "my-skill")
    os.mkfifo(folder / "pipe")
    assert "neither a file nor a folder" in problems_of(folder)


# Places and trust.


def test_without_skills_there_are_none() -> None:
    assert usable_skills() == ((), [])


def test_places_come_in_their_order_and_the_first_of_a_name_counts() -> None:
    first = make_skill(Path("skills/one").absolute())
    make_skill(Path(".openmanus/skills/two").absolute())
    own("one", "Another.")
    own("three")
    assert trust() == 0
    found, warnings = usable_skills()
    assert [skill.name for skill in found] == ["one", "two", "three"]
    assert found[0].folder == first.resolve()
    assert len(warnings) == 1
    assert "skills is used instead" in warnings[0]


def test_a_cloned_skill_needs_trust_and_again_when_it_changes() -> None:
    folder = make_skill(Path("skills/theirs").absolute())
    found, warnings = usable_skills()
    assert found == ()
    assert "not trusted (openmanus trust)" in warnings[0]
    assert [skill.name for skill in untrusted_skills()] == ["theirs"]
    trust()
    assert [skill.name for skill in usable_skills()[0]] == ["theirs"]
    script = folder / "scripts" / "run.sh"
    script.parent.mkdir()
    script.write_text("echo hi")
    assert usable_skills()[0] == ()
    trust()
    script.chmod(0o755)
    assert usable_skills()[0] == (), "whether it can be run is part of it"


def test_two_of_one_name_are_trusted_each_for_itself() -> None:
    make_skill(Path("skills/one").absolute())
    make_skill(Path(".openmanus/skills/one").absolute(), about="Another.")
    trust()
    assert untrusted_skills() == []
    (used,), (warning,) = usable_skills()
    assert used.description == "Does a thing."
    assert "skills is used instead" in warning


def test_a_trusted_folder_does_not_hide_ones_own_skill_by_an_untrusted_one() -> None:
    make_skill(Path("skills/mine").absolute(), about="A trap.")
    own("mine")
    (used,), _ = usable_skills()
    assert used.folder == (config_home() / "skills" / "mine").resolve()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install a distribution that names a package in which skills are to be found."""
    monkeypatch.syspath_prepend(tmp_path)
    forget = instructions._package_folders.cache_clear  # pyright: ignore[reportPrivateUsage]
    forget()

    def install(package: str) -> None:
        info = tmp_path / "their_skills-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-skills\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[openmanus_graph.skills]\ntheirs = {package}\n")

    yield install
    forget()


def test_packages_bring_skills(tmp_path: Path, installed: Callable[[str], None]) -> None:
    make_skill(tmp_path / "their_skills" / "packed")
    (tmp_path / "their_skills" / "__init__.py").touch()
    installed("their_skills")
    (found,) = find_skills()
    assert (found.place, found.folder.name, found.problems) == (
        "package their_skills",
        "packed",
        (),
    )


def test_a_package_that_cannot_be_found_stops_nothing(
    installed: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    installed("gone_skills.all")
    assert find_skills() == []
    assert "the package gone_skills.all cannot be found" in caplog.text


def test_settings_hold_the_skills_and_say_what_is_wrong() -> None:
    own("good")
    bad = config_home() / "skills" / "bad"
    bad.mkdir()
    (bad / "SKILL.md").write_text("no front matter")
    settings = resolve_settings(Context(model="openai:x", base_url="http://m.test"), "t")
    assert [skill.name for skill in settings.skills] == ["good"]
    assert any("bad is not used: SKILL.md does not begin" in text for text in settings.warnings)


# Copies.


def workspace_at(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path / "work", tmp_path / "private")


def test_a_copy_is_made_once_and_anew_when_a_skill_changes(tmp_path: Path) -> None:
    folder, workspace = make_skill(tmp_path / "my-skill"), workspace_at(tmp_path)
    first = (read_skill(folder),)
    copy_skills(first, workspace)
    copied = skills_folder(first, workspace) / "my-skill" / "SKILL.md"
    assert copied.read_text() == (folder / "SKILL.md").read_text()
    before = copied.stat().st_mtime_ns
    copy_skills(first, workspace)
    assert copied.stat().st_mtime_ns == before
    (folder / "more.md").write_text("more")
    second = (read_skill(folder),)
    copy_skills(second, workspace)
    assert skills_folder(second, workspace) != skills_folder(first, workspace)
    assert [path.name for path in (workspace.outputs / "skills").iterdir()] == [
        path.name for path in (workspace.outputs / "skills").iterdir() if path.name[0] != "."
    ]


def test_what_was_not_trusted_is_not_copied(tmp_path: Path) -> None:
    folder, workspace = make_skill(tmp_path / "my-skill"), workspace_at(tmp_path)
    found = (read_skill(folder),)
    (folder / "SKILL.md").write_text("changed since")
    with pytest.raises(ConfigError, match="is being changed"):
        copy_skills(found, workspace)
    assert not skills_folder(found, workspace).exists()


def test_a_skill_that_vanishes_is_said(tmp_path: Path) -> None:
    folder, workspace = make_skill(tmp_path / "my-skill"), workspace_at(tmp_path)
    found = (read_skill(folder),)
    (folder / "SKILL.md").unlink()
    folder.rmdir()
    with pytest.raises(ConfigError, match="is being changed"):
        copy_skills(found, workspace)


# The command.


def test_the_shipped_skills_are_valid_and_not_used_by_themselves(
    capsys: pytest.CaptureFixture[str],
) -> None:
    list_skills(as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["name"], row["place"]) for row in rows] == [
        ("slide-deck", "shipped"), ("spreadsheet-report", "shipped"),
    ]  # fmt: skip
    assert find_skills() == []


def test_a_shipped_skill_is_added_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert list_skills(as_json=False) == 0
    assert "slide-deck (openmanus skills add slide-deck)" in capsys.readouterr().out
    assert add_skill("slide-deck") == 0
    assert [skill.name for skill in usable_skills()[0]] == ["slide-deck"]
    list_skills(as_json=True)
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["name"], row["place"]) for row in rows] == [
        ("slide-deck", str(config_home() / "skills")), ("spreadsheet-report", "shipped")
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="already exists"):
        add_skill("slide-deck")


def test_a_folder_is_added_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = make_skill(tmp_path / "my-skill")
    (folder / "notes.md").write_text("notes")
    add_skill(str(folder))
    assert show_skill("my-skill") == 0
    shown = capsys.readouterr()
    assert "# Do it" in shown.out
    assert "notes.md" in shown.err
    with pytest.raises(ConfigError, match="There is no skill other"):
        show_skill("other")


def test_what_is_no_skill_is_not_added(tmp_path: Path) -> None:
    (tmp_path / "bad").mkdir()
    with pytest.raises(ConfigError, match="is not a skill: it has no SKILL.md"):
        add_skill(str(tmp_path / "bad"))


def packed(folder: Path, *, with_link: bool = False) -> Path:
    make_skill(folder / "content" / "mine")
    archive = folder / "skills.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(folder / "content", "content")
        if with_link:
            link = tarfile.TarInfo("content/mine/out")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
    return archive


def test_skills_come_from_archives_and_repositories_after_they_were_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, target = packed(tmp_path), config_home() / "skills" / "mine"
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert add_skill(str(archive)) == 0
    assert ("Its files: SKILL.md" in capsys.readouterr().err, target.exists()) == (True, False)
    assert add_skill(str(archive), yes=True) == 0
    assert remove_skill("mine") == 0
    assert not target.exists()
    with pytest.raises(ConfigError, match="You have no skill mine"):
        remove_skill("mine")
    with pytest.raises(ConfigError, match="You have no skill"):
        remove_skill("../skills")
    folder = tmp_path / "content"
    with zipfile.ZipFile(tmp_path / "skills.zip", "w") as written:
        written.write(folder / "mine" / "SKILL.md", "mine/SKILL.md")
        written.writestr("../outside.txt", "x")
    add_skill(str(tmp_path / "skills.zip"), yes=True)
    assert (target.exists(), (tmp_path.parent / "outside.txt").exists()) == (True, False)
    remove_skill("mine")
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.com")
    for words in (("init", "-q"), ("add", "."), (*identity, "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    add_skill(f"file://{folder}", yes=True)
    assert [skill.name for skill in usable_skills()[0]] == ["mine"]


def test_archives_that_lead_out_or_are_none_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        add_skill(str(packed(tmp_path, with_link=True)), yes=True)
    (tmp_path / "bad.zip").write_text("no zip")
    with pytest.raises(ConfigError, match="cannot be unpacked"):
        add_skill(str(tmp_path / "bad.zip"), yes=True)
    with pytest.raises(ConfigError, match="cannot be fetched"):
        add_skill(f"file://{tmp_path}/none", yes=True)
    monkeypatch.setattr("openmanus_graph.interfaces.cli.skills.MAX_UNPACKED_FILES", 1)
    with pytest.raises(ConfigError, match="too large"):
        add_skill(str(tmp_path / "skills.tar.gz"), yes=True)
