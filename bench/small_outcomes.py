"""What a variant of a small task is: text, files, checker, and outcomes to test the checker."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Check = Callable[[Path, str], bool]


@dataclass(frozen=True)
class Outcome:
    """What an agent may leave behind: an answer, and files (None: the file is gone)."""

    answer: str = "Done."
    files: Mapping[str, str | None] = field(default_factory=dict[str, str | None])

    def leave(self, folder: Path) -> None:
        """Change the files of a folder as the agent did."""
        for name, text in self.files.items():
            path = folder / name
            if text is None:
                path.unlink()
            else:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Variant:
    """One wording of a task."""

    text: str
    files: Mapping[str, str]
    check: Check
    """Returns True if folder and answer are as they should be."""
    right: Outcome
    wrong: tuple[Outcome, ...]
    """Outcomes of usual mistakes."""
    cannot_be_done: bool = False
    """Whether it is right to say that it cannot be done, and no success."""

    def write_files(self, folder: Path) -> None:
        """Write the files that the task begins with."""
        Outcome(files=dict(self.files)).leave(folder)
