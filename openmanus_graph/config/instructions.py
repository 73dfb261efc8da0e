"""Reads `AGENTS.md` files and skills, and decides which of them the user trusts."""

import contextlib
import hashlib
import importlib.util
import logging
import os
import stat
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

from openmanus_graph.config import homes
from openmanus_graph.config.entry_points import installed
from openmanus_graph.config.files import config_home
from openmanus_graph.errors import ConfigError
from openmanus_graph.safety.open_beneath import UnsafeFileError, open_beneath
from openmanus_graph.state.context import Skill

AGENTS_FILE = "AGENTS.md"
MAX_INSTRUCTIONS_CHARS = 20_000
"""Of all files together."""
_SKIPPED = frozenset({homes.WORKSPACES, "node_modules"})


def read_instructions(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Read the user's `AGENTS.md`, the working folder's, and those on the way to a folder. Blocks.

    `folder` is the workspace, resolved. If it is outside of the working folder, or is one that we
    make, only the working folder is searched. Returns the texts, each under its path and the
    nearest last, and warnings about omitted text. Raises ConfigError if a file cannot be read.
    """
    parts: list[str] = []
    warnings: list[str] = []
    left = MAX_INSTRUCTIONS_CHARS
    for path, root in _instruction_places(folder):
        try:
            text = _read(path, root).strip()
        except UnsafeFileError as error:
            warnings.append(f"{path} is not read: {error}")
            continue
        if len(text) > left:
            warnings.append(
                f"Models read the first {left} characters of {path} only: all {AGENTS_FILE} "
                f"together may have {MAX_INSTRUCTIONS_CHARS}. Shorten it."
            )
        if text and left:
            parts.append(f"[{path}]\n{text[:left]}")
        left -= min(left, len(text))
    return "\n\n".join(parts), tuple(warnings)


def untrusted_instructions(folder: Path | None = None) -> list[Path]:
    """Return the untrusted files for a folder, or all below the working folder. Blocks."""
    project = Path.cwd().resolve()
    own = config_home().absolute() / AGENTS_FILE
    paths: list[Path] = []
    if folder is None:
        for root, folders, files in os.walk(project):
            folders[:] = sorted(one for one in folders if one[0] != "." and one not in _SKIPPED)
            paths += [Path(root) / AGENTS_FILE] if AGENTS_FILE in files else []
    else:
        paths += [path for path, _ in _instruction_places(folder)]
    return [path for path in paths if path != own and not _is_trusted_file(project, path)]


def trust_instructions(path: Path) -> None:
    """Store that the user trusts a file in its present form. Blocks."""
    project = Path.cwd().resolve()
    homes.trust_content(
        project, path.relative_to(project).as_posix(), _digest(_read(path, project))
    )


def _is_trusted_file(project: Path, path: Path) -> bool:
    try:
        text = _read(path, project)
    except UnsafeFileError:  # no model reads it
        return True
    name = path.relative_to(project).as_posix()
    return not text.strip() or homes.is_trusted_content(project, name, _digest(text))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _instruction_places(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield where files may be, the most general first, and the folder that each must be in."""
    yield config_home().absolute() / AGENTS_FILE, Path("/")
    project = Path.cwd().resolve()
    if folder.is_relative_to(project / homes.WORKSPACES):
        folder = project  # agents write there, so its files are not instructions
    below = folder.relative_to(project).parts if folder.is_relative_to(project) else ()
    for depth in range(len(below) + 1):
        # A link in a cloned folder must not send files from outside it to the model.
        yield project.joinpath(*below[:depth], AGENTS_FILE), project


def _read(path: Path, root: Path) -> str:
    try:
        with open_beneath(root, path) as file:
            # One byte may be a character, and four are the most.
            return file.read(4 * MAX_INSTRUCTIONS_CHARS + 4).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except UnsafeFileError:
        raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}.") from error


log = logging.getLogger(__name__)

PROJECT_PLACES = ("skills", ".openmanus/skills")
SHIPPED = Path(__file__).parent.parent / "skills"
"""Ours, for `openmanus skills add`; none is used before."""
FILE_NAMES = ("SKILL.md", "skill.md")
MAX_FILE_BYTES = 256 * 1024
"""Of `SKILL.md`: a model reads it whole."""
MAX_SKILL_BYTES = 20 * 1024 * 1024
MAX_SKILL_FILES = 2000
_FIELDS = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
_UNSHOWN = ("Cc", "Cs")
"""Categories of characters that control a terminal, or that no request can hold."""
_MAX_CHARS = {"name": 64, "description": 1024, "compatibility": 500}


class SkillError(Exception):
    """A folder is not a valid skill; `problems` says why."""

    def __init__(self, *problems: str) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class FoundSkill:
    folder: Path
    place: str
    """The name of its place for users."""
    skill: Skill | None = None
    problems: tuple[str, ...] = ()
    """Why it is not used; empty if it is."""

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.folder.name,
            "description": self.skill.description if self.skill else None,
            "place": self.place,
            "folder": str(self.folder),
            "problems": list(self.problems),
        }


def find_skills() -> list[FoundSkill]:
    """Return all skills in all places, by precedence, with their problems. Blocks."""
    found: list[FoundSkill] = []
    names: dict[str, str] = {}
    if (home := homes.untrusted_home()) is not None:
        why = f"it is in {home}, which is not registered as yours (openmanus trust)"
        found.append(FoundSkill(home / "skills", PROJECT_PLACES[1], None, (why,)))
    for place, root in _places():
        if home is None or place != PROJECT_PLACES[1]:
            found += [_look_at(folder, place, names) for folder in _folders_in(root)]
    return found


def usable_skills() -> tuple[tuple[Skill, ...], list[str]]:
    """Return the skills that a run may use, and warnings about the others. Blocks."""
    found = find_skills()
    warnings = [
        f"The skill {one.folder} is not used: {'; '.join(one.problems)}."
        for one in found
        if one.problems
    ]
    return tuple(one.skill for one in found if one.skill and not one.problems), warnings


def untrusted_skills() -> list[Skill]:
    """Return the valid skills of the working folder that the user has not trusted. Blocks."""
    found = [one.skill for one in find_skills() if one.skill and one.place in PROJECT_PLACES]
    return [skill for skill in found if not _is_trusted_skill(skill)]


def trust_name(skill: Skill) -> str:
    return f"skill {skill.folder}"  # two places may have a skill of the same name


def _is_trusted_skill(skill: Skill) -> bool:
    return homes.is_trusted_content(Path.cwd(), trust_name(skill), skill.digest)


def _places() -> Iterator[tuple[str, Path]]:
    for name in PROJECT_PLACES:
        yield name, Path.cwd() / name
    yield str(config_home() / "skills"), config_home() / "skills"
    for package, folder in _package_folders():
        yield f"package {package}", folder


@cache
def _package_folders() -> tuple[tuple[str, Path], ...]:
    found: list[tuple[str, Path]] = []
    for point in installed("skills"):
        try:
            spec = importlib.util.find_spec(point.value)
        except (ImportError, ValueError) as error:
            log.warning("The skills of the package %s cannot be found: %s", point.value, error)
            continue
        folders = (spec and spec.submodule_search_locations) or ()
        found += [(point.value, Path(folder)) for folder in folders]
    return tuple(found)


def _folders_in(root: Path) -> Iterator[Path]:
    """Yield the folders in a place; those without a `SKILL.md` are not skills."""
    with contextlib.suppress(OSError):  # there is no such place
        for path in (one for one in sorted(root.iterdir()) if one.is_dir()):
            try:
                is_skill = skill_file(path) is not None
            except OSError:
                is_skill = True  # `read_skill` says what is wrong
            if is_skill:
                yield path


def _look_at(folder: Path, place: str, names: dict[str, str]) -> FoundSkill:
    of_project = place in PROJECT_PLACES
    try:
        skill = read_skill(folder, Path.cwd() if of_project else None)
    except SkillError as error:
        return FoundSkill(folder, place, None, error.problems)
    problem = ""
    if of_project and not _is_trusted_skill(skill):
        problem = "it comes with this folder, which you have not trusted (openmanus trust)"
    elif skill.name in names:
        problem = f"the skill of this name in {names[skill.name]} is used instead"
    else:
        names[skill.name] = place
    return FoundSkill(folder, place, skill, (problem,) if problem else ())


def read_skill(folder: Path, within: Path | None = None) -> Skill:
    """Read and validate a skill. Blocks. SkillError says everything that is wrong with it.

    `within` is the folder that it must be in, even if it is a link; None if it is the user's own.
    """
    if not folder.exists():
        raise SkillError(f"there is no folder {folder}")
    if not folder.is_dir():
        raise SkillError(f"{folder} is not a folder")
    if within is not None and not folder.resolve().is_relative_to(within.resolve()):
        raise SkillError("it is a link that leads out of this folder")
    try:
        file = skill_file(folder)
        if file is None:
            raise SkillError("it has no SKILL.md")
        digest, text = digest_of(folder), _read_text(file)
    except UnsafeFileError as error:
        raise SkillError(str(error).rstrip(".")) from error
    except OSError as error:
        raise SkillError(f"it cannot be read: {error.strerror}") from error
    fields = front_matter(text)
    if problems := [*_problems(fields, folder.resolve().name)]:
        raise SkillError(*problems)
    description = " ".join(str(fields["description"]).split())
    return Skill(str(fields["name"]).strip(), description, folder.resolve(), digest)


def skill_file(folder: Path) -> Path | None:
    """Return a skill's `SKILL.md` or `skill.md`; None if it has none."""
    names = {path.name for path in folder.iterdir()}  # a file system may know no small letters
    return next((folder / name for name in FILE_NAMES if name in names), None)


def front_matter(text: str) -> Mapping[str, Any]:
    """Return the fields between the first two lines of `---`. SkillError if there are none."""
    if not text.startswith("---"):
        raise SkillError("SKILL.md does not begin with front matter, a line of ---")
    import yaml  # where there are no skills, it is not needed

    head, closed, _ = text.removeprefix("---").partition("\n---")
    if not closed:
        raise SkillError("its front matter has no end, a second line of ---")
    try:
        loader = yaml.BaseLoader(head)  # makes texts only
        node = loader.get_single_node()  # unlike a dict, it keeps repeated names
        if not isinstance(node, yaml.MappingNode):
            raise SkillError("its front matter is not a mapping of names to values")
        fields: Any = loader.construct_document(node)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise SkillError(f"its front matter is not YAML{where}") from error
    except RecursionError:  # its traceback is as deep as the text: nothing to keep
        raise SkillError("its front matter is nested too deeply") from None
    names = [key.value for key, _ in node.value]
    if twice := sorted({str(name) for name in names if names.count(name) > 1}):
        raise SkillError(f"its front matter repeats: {', '.join(twice)}")
    return cast("dict[str, Any]", fields)


def digest_of(folder: Path) -> str:
    """Return the digest of a skill's files. Blocks. SkillError if one must not be copied."""
    digest = hashlib.sha256()
    for path in sorted(_files(folder)):
        inside = path.relative_to(folder)
        with open_beneath(folder.resolve(), inside, limit=MAX_SKILL_BYTES, follow=False) as file:
            content = hashlib.sha256(file.read()).hexdigest()
            runs = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
        name = os.fsencode(path.relative_to(folder).as_posix())
        digest.update(name + f"\0{content}\0{runs}\n".encode())
    return digest.hexdigest()


def _files(folder: Path) -> Iterator[Path]:
    """Yield a skill's files. SkillError at the first that is not allowed, or one too many."""
    real, total = folder.resolve(), 0
    for number, path in enumerate(folder.rglob("*")):
        if not path.resolve().is_relative_to(real):
            raise SkillError(f"{path.relative_to(folder)} leads out of its folder")
        found = path.lstat()
        if stat.S_ISLNK(found.st_mode):
            raise SkillError(f"{path.relative_to(folder)} is a link; put the file itself there")
        is_file = stat.S_ISREG(found.st_mode)
        if not is_file and not stat.S_ISDIR(found.st_mode):
            raise SkillError(f"{path.relative_to(folder)} is neither a file nor a folder")
        total += found.st_size if is_file else 0
        if total > MAX_SKILL_BYTES or number >= MAX_SKILL_FILES:
            raise SkillError(
                f"it is larger than {MAX_SKILL_BYTES >> 20} MB, or has more than "
                f"{MAX_SKILL_FILES} files"
            )
        if is_file:
            yield path


def _read_text(file: Path) -> str:
    with open_beneath(file.parent.resolve(), file.name, follow=False) as opened:
        data = opened.read(MAX_FILE_BYTES + 1)
        size = os.fstat(opened.fileno()).st_size
    if size > MAX_FILE_BYTES:
        raise SkillError(
            f"{file.name} has {size // 1024} KB, more than {MAX_FILE_BYTES // 1024}: move what is "
            "not always needed to files that it names"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SkillError(f"{file.name} is not UTF-8 text") from error


def _problems(fields: Mapping[str, Any], folder: str) -> Iterator[str]:
    if unknown := sorted(fields.keys() - set(_FIELDS)):
        yield f"its front matter has unknown fields: {', '.join(unknown)}"
    for field in ("name", "description"):
        if not isinstance(fields.get(field), str) or not str(fields[field]).strip():
            yield f"its {field} is missing or empty"
    for field, most in _MAX_CHARS.items():
        value: object = fields.get(field, "")
        if not isinstance(value, str):
            yield f"its {field} is not text"
        elif len(_normal(value)) > most:
            yield f"its {field} has {len(_normal(value))} characters, more than {most}"
        elif any(unicodedata.category(char) in _UNSHOWN for char in "".join(value.split())):
            yield f"its {field} has characters that cannot be shown"
    yield from _name_problems(fields.get("name"), _normal(folder))


def _name_problems(given: object, folder: str) -> Iterator[str]:
    if not isinstance(given, str) or not given.strip():
        return
    name = _normal(given)
    problems = {
        "is not in small letters": name != name.lower(),
        "begins or ends with a hyphen": name.startswith("-") or name.endswith("-"),
        "has two hyphens in a row": "--" in name,
        "has other characters than letters, digits and hyphens": any(
            not char.isalnum() and char != "-" for char in name
        ),
        f"{name} is not that of its folder, {folder}": name != folder,
    }
    yield from (f"its name {what}" for what, is_wrong in problems.items() if is_wrong)


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", text.strip())
