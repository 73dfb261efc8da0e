"""A run's own branch, in a git worktree of its own; the user's files and index are never touched.

Programs of the sandbox see a copy of the worktree's git directory, without the repository's
configuration and hooks. We make branch and commit, in git directories of our own: there git reads
no configuration that could name a program, and nothing that programs have written.
"""

import json
import os
import secrets
import subprocess
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from openmanus_graph.backends.sandbox.git import identity
from openmanus_graph.config.resolve import safe_name, state_folder
from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.artifacts import DRAFTS_FOLDER
from openmanus_graph.runtime.atomic_files import remove_tree
from openmanus_graph.runtime.workspace import Workspace, opened_folder, put_file
from openmanus_graph.safety.open_beneath import read_beneath

_NO_PROGRAMS = (
    "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "protocol.allow=never",
)  # fmt: skip
_DIFF = (
    "-c", "core.quotePath=false", "diff", "--cached", "--no-ext-diff", "--no-textconv",
    "--no-color", "--stat", "--patch",
)  # fmt: skip
_SHOWN_BYTES = 20_000
"""Of a diff."""
_LIMIT_S = 600.0
_LINK, _SUBMODULE = "gitdir: ", "160000 "
Git = Callable[..., str]


@dataclass(frozen=True)
class Worktree:
    """A worktree of ours. It is recorded next to its folder, out of the programs' reach."""

    folder: str
    base: str
    """The commit at which the branch began."""
    common: str
    """The git directory of the repository, which all its worktrees share."""
    admin: str
    """The git directory of this worktree, which `.git` in the folder names."""
    message: str | None
    """Of the commit after a run that has finished; None if nothing is committed."""

    @property
    def objects(self) -> str:
        return f"{self.common}/objects"


def new_folder(branch: str) -> Path:
    """Name the folder of a new worktree, which does not exist yet."""
    return _folders() / f"{safe_name(branch)}-{secrets.token_hex(3)}"


def worktree_at(folder: Path) -> Worktree | None:
    """Return our worktree in a folder; None if it is another folder. Blocks.

    Raises:
        ConfigError: It was removed.
    """
    record = Path(f"{folder}.json")
    if folder.parent != _folders() or not record.exists():
        return None
    tree = Worktree(**json.loads(record.read_bytes()))
    if not (folder.is_dir() and Path(tree.admin).is_dir()):
        raise ConfigError(f"The worktree {folder} was removed. Begin with a new thread.")
    return tree


def create(place: Path, branch: str, folder: Path, message: str | None) -> Worktree:
    """Make a branch at the commit of HEAD, and a worktree with its files. Blocks.

    Raises:
        ConfigError: The place is in no repository with a commit, or git refuses.
    """
    here = partial(_git, "-C", str(place))
    asked = ("--is-bare-repository", "--git-common-dir")
    # By the user's configuration: git refuses a repository of another owner, or the user allows it.
    found = here("rev-parse", "--path-format=absolute", *asked, users=True)
    bare, common = found.rstrip("\n").split("\n", 1)
    if bare == "true":
        raise ConfigError(f"{common} is a bare repository. Use --worktree in a clone of it.")
    try:
        base = here("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
    except ConfigError as error:
        raise ConfigError(
            f"{common} has no commit at which a branch could begin. Commit something first, or "
            "leave --worktree out."
        ) from error
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    here("worktree", "add", "--no-checkout", "-b", branch, str(folder), base)
    admin = (folder / ".git").read_text().removeprefix(_LINK).rstrip("\n")
    tree = Worktree(str(folder), base, common, admin, message)
    Path(f"{folder}.json").write_text(json.dumps(asdict(tree)))
    with _own_git(tree) as git:
        git("read-tree", "-u", "--reset", base)
    return tree


def make_git_dir(place: Path, tree: Worktree) -> None:
    """Make a git directory with the commits and the index of a worktree, and no more. Blocks."""
    own = {"GIT_DIR": str(place), "GIT_WORK_TREE": tree.folder}
    _git("init", "--quiet", "--template=", env=own)
    real = partial(_git, "--git-dir", tree.admin)
    head = real("rev-parse", "--symbolic-full-name", "HEAD").strip()
    texts = {
        "HEAD": f"ref: {head}\n" if head != "HEAD" else real("rev-parse", "HEAD"),
        "packed-refs": real("for-each-ref", "--format=%(objectname) %(refname)"),
        "objects/info/alternates": f"{tree.objects}\n",
    }
    contents = {name: os.fsencode(text) for name, text in texts.items()}
    for source in (f"{tree.common}/shallow", f"{tree.common}/info/exclude", f"{tree.admin}/index"):
        with suppress(FileNotFoundError):
            contents[source.rpartition("/")[2]] = Path(source).read_bytes()
    contents["info/exclude"] = contents.pop("exclude", b"") + f"\n/{DRAFTS_FOLDER}/\n".encode()
    for name, content in contents.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_bytes(content)


def finish(tree: Worktree, *, finished: bool) -> str:
    """Commit the changes if that is wanted and the run has finished; describe the branch. Blocks.

    Raises:
        ConfigError: Git refuses, or the worktree is gone.
    """
    write_link(tree, tree.admin)
    with _own_git(tree) as git:
        left_out = _stage(git)
        branch = git("rev-parse", "--abbrev-ref", "HEAD").strip()
        diff = git(*_DIFF, tree.base, most=_SHOWN_BYTES).rstrip()
        state, force = "nothing to commit", ""
        if git("write-tree") != git("rev-parse", "HEAD^{tree}"):
            state, force = "not committed", "--force "
            if finished and tree.message is not None:
                state, force = _commit(tree, git)
    commit = f"git -C {tree.folder} commit && " if force else ""  # all is staged
    lines = [diff] if diff else []
    if len(diff) >= _SHOWN_BYTES - 1:
        lines.append(f"... All of it: git -C {tree.folder} diff --cached {tree.base[:12]}")
    lines += [
        f"Branch {branch}: {state}. Your own files and index are as they were.",
        f"Folder: {tree.folder}",
        *([f"Merge: {commit}git merge {branch}"] if diff else []),
        f"Remove: git worktree remove {force}{tree.folder} && git branch -D {branch}",
    ]
    if left_out:
        lines.append(f"Left out, because they are repositories: {', '.join(left_out)}")
    listed = _git("--git-dir", tree.common, "worktree", "list", "--porcelain").splitlines()
    places = [Path(line.partition(" ")[2]) for line in listed if line.startswith("worktree ")]
    if others := [str(p) for p in places if p.parent == _folders() and str(p) != tree.folder]:
        lines.append(f"Earlier ones, which are removed in the same way: {', '.join(others)}")
    return "\n".join(lines)


def _commit(tree: Worktree, git: Git) -> tuple[str, str]:
    """Commit the index; return how that ended, and the option that removing the folder takes."""
    known = identity(Path(tree.common), repositorys=True)
    if len(known) < 2:
        return (
            "not committed, because git does not know your name and e-mail. Set them with `git "
            f"config --global user.name NAME` and user.email, then: git -C {tree.folder} commit"
        ), "--force "
    people = [word for item in known.items() for word in ("-c", "=".join(item))]
    given = (tree.message or "").encode("utf-8", "replace")
    tip = git("rev-parse", "HEAD").strip()
    written = git("write-tree").strip()
    commit = git(*people, "commit-tree", written, "-p", tip, "-F", "-", given=given).strip()
    # Only if the branch is still there: the user may have committed meanwhile.
    _git("--git-dir", tree.admin, "update-ref", "-m", "commit (openmanus)", "HEAD", commit, tip)
    return f"committed as {commit[:12]}", ""


def _stage(git: Git) -> list[str]:
    """Put all changes of files into the index; return the folders that are left out.

    These are submodules, and repositories that programs have made. To look for changes there, git
    would run itself with the configuration that programs have written.
    """
    tracked = git("ls-files", "-z", "--stage").split("\0")
    found = {entry.partition("\t")[2] for entry in tracked if entry.startswith(_SUBMODULE)}
    others = git("ls-files", "-z", "--others", "--exclude-standard").split("\0")
    found |= {name.rstrip("/") for name in others if name.endswith("/")}
    given = "\0".join([":(top)", *(f":(top,exclude,literal){name}" for name in found)])
    listed = ("--pathspec-from-file=-", "--pathspec-file-nul")
    git("add", "--all", *listed, given=os.fsencode(given))
    return sorted(found)


def write_link(tree: Worktree, git_dir: str) -> None:
    """Let `.git` name a git directory; it may be anything that a program has put there. Blocks."""
    folder, data = Path(tree.folder), os.fsencode(f"{_LINK}{git_dir}\n")
    with suppress(OSError):
        if read_beneath(folder, ".git", len(data) + 1, follow=False) == data:
            return
    place = Workspace(folder, folder)
    with opened_folder(place, folder) as opened:
        remove_tree(opened, ".git")
    put_file(place, folder / ".git", data)


@contextmanager
def _own_git(tree: Worktree) -> Generator[Git]:
    """Yield a git for the worktree's files, index and objects, with a git directory of ours."""
    with tempfile.TemporaryDirectory(prefix="openmanus-git-") as place:
        make_git_dir(Path(place), tree)
        variables = {
            "GIT_DIR": place,
            "GIT_WORK_TREE": tree.folder,
            "GIT_INDEX_FILE": f"{tree.admin}/index",
            "GIT_OBJECT_DIRECTORY": tree.objects,
        }
        yield partial(_git, "-C", tree.folder, env=variables)


def _git(
    *arguments: str,
    env: Mapping[str, str] | None = None,
    given: bytes = b"",
    most: int = -1,
    users: bool = False,
) -> str:
    """Run git, which starts no other program, and return what it prints. Blocks.

    `most` limits the bytes of that. With `users`, the user's configuration counts.

    Raises:
        ConfigError: There is no git, or it fails.
    """
    own = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    own |= {"LC_ALL": "C", **(env or {})}
    safe = [*_NO_PROGRAMS]
    if not users:
        safe += ["-c", "safe.directory=*"]
        own |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    with tempfile.TemporaryFile() as output:
        try:
            done = subprocess.run(
                ["git", *safe, *arguments],
                input=given,
                stdout=output,
                stderr=subprocess.PIPE,
                env=own,
                start_new_session=True,
                timeout=_LIMIT_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"--worktree takes git, which does not work here: {error}") from error
        if done.returncode:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise ConfigError(f"git cannot make the worktree. {said}")
        output.seek(0)
        return os.fsdecode(output.read(most))


def _folders() -> Path:
    return state_folder() / "worktrees"
