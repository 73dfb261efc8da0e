"""`openmanus skills`: list them, show one, add one to the person's own."""

import json
import shutil
import sys
from pathlib import Path

from openmanus_graph.config.files import config_home
from openmanus_graph.config.instructions import (
    MAX_FILE_BYTES,
    SHIPPED,
    FoundSkill,
    SkillError,
    find_skills,
    read_skill,
    skill_file,
)
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.output import printable
from openmanus_graph.safety.open_beneath import read_beneath
from openmanus_graph.state.context import Skill


def list_skills(*, as_json: bool) -> int:
    """List all skills, where they are and what keeps them from being used; then ours to add."""
    found = find_skills()
    known = {one.skill.name for one in found if one.skill}
    shipped = [skill for skill in shipped_skills() if skill.name not in known]
    if as_json:
        rows = [_row(one) for one in found]
        rows += [_row(FoundSkill(skill.folder, "shipped", skill)) for skill in shipped]
        sys.stdout.write("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return 0
    for one in found:
        name, about = one.folder.name, one.skill.description if one.skill else ""
        sys.stdout.write(printable(f"{name} ({one.place})\n    {about}".rstrip()) + "\n")
        for problem in one.problems:
            sys.stdout.write(printable(f"    not used: {problem}") + "\n")
    for skill in shipped:
        about = f"{skill.name} (openmanus skills add {skill.name})\n    {skill.description}"
        sys.stdout.write(printable(about) + "\n")
    return 0


def show_skill(name: str) -> int:
    """Print a skill's instructions and its files."""
    folder = _folder_of(name)
    file = skill_file(folder)
    if file is None:
        raise ConfigError(f"{folder} has no file SKILL.md.")
    here = Path.cwd().resolve()
    root = here if folder.absolute().is_relative_to(here) else folder.resolve()
    try:  # what a cloned folder brings must lie in it
        text = read_beneath(root, file.absolute() if root == here else file.name, MAX_FILE_BYTES)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    sys.stdout.write(printable(text.decode("utf-8", "replace").rstrip()) + "\n")
    others = sorted(path for path in folder.rglob("*") if path.is_file() and path != file)
    for path in others:
        sys.stderr.write(printable(f"{path.relative_to(folder)}") + "\n")
    return 0


def add_skill(path: str) -> int:
    """Copy a skill to the person's own, where all folders use it.

    Args:
        path: Its folder, or the name of one that comes with OpenManus.

    Raises:
        ConfigError: It is no valid skill, or there is one of its name.
    """
    given = Path(path).expanduser()
    folder = SHIPPED / path if not given.exists() and (SHIPPED / path).is_dir() else given
    try:
        skill = read_skill(folder.parent if folder.is_file() else folder)
    except SkillError as error:
        raise ConfigError(f"{folder} is no skill: {error}.") from error
    target = config_home() / "skills" / skill.name
    if target.exists():
        raise ConfigError(f"{target} exists already. Remove it first.")
    shutil.copytree(skill.folder, target, symlinks=True)
    sys.stderr.write(f"Added {skill.name}: {target}\n")
    return 0


def shipped_skills() -> list[Skill]:
    """Return the skills that come with OpenManus."""
    return [read_skill(folder) for folder in sorted(SHIPPED.iterdir()) if skill_file(folder)]


def _folder_of(name: str) -> Path:
    """Return the folder of the skill of a name; one that is used counts first."""
    named = [one for one in find_skills() if one.folder.name == name]
    for one in sorted(named, key=lambda one: bool(one.problems)):
        return one.folder
    if (SHIPPED / name / "SKILL.md").is_file():
        return SHIPPED / name
    raise ConfigError(f"There is no skill {name}. `openmanus skills list` shows what there is.")


def _row(one: FoundSkill) -> dict[str, object]:
    return {
        "name": one.folder.name,
        "description": one.skill.description if one.skill else None,
        "place": one.place,
        "folder": str(one.folder),
        "problems": list(one.problems),
    }
