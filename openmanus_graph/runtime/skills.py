"""Copies a run's skills into the thread's outputs, where its tools can read them."""

import hashlib
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from openmanus_graph.config.instructions import SkillError, digest_of
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.tree_copy import copy_entry
from openmanus_graph.runtime.workspace import Workspace
from openmanus_graph.safety.open_beneath import located
from openmanus_graph.state.context import Skill


def skills_folder(skills: Sequence[Skill], workspace: Workspace) -> Path:
    """Return the folder of the copies. It changes when a skill changes."""
    digests = "".join(f"{skill.name} {skill.digest}\n" for skill in skills)
    return workspace.outputs / "skills" / hashlib.sha256(digests.encode()).hexdigest()[:12]


def copy_skills(skills: Sequence[Skill], workspace: Workspace) -> Path:
    """Copy the skills unless this was done before, and return the folder of the copies. Blocks.

    Raises:
        ConfigError: One was changed since it was found, so its current content is not trusted.
    """
    target = skills_folder(skills, workspace)
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".copying-") as part:
        whole = Path(part) / "skills"
        for skill in skills:
            copy = whole / skill.name
            with suppress(SkillError, FileNotFoundError):
                whole.mkdir(exist_ok=True)
                with located(skill.folder.parent, skill.folder, follow=False) as place:
                    copy_entry(place.folder, place.name, copy)
                if digest_of(copy) == skill.digest:
                    continue
            raise ConfigError(f"The skill {skill.folder} is being changed; try again.")
        with suppress(OSError):  # another run of the thread was faster
            whole.rename(target)
    return target
