"""One function opens the files of workspaces: what opens files by their paths has a reason here."""

import ast
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).parent.parent.parent / "openmanus_graph"
ROOMS = (
    "backends/browser", "backends/charts", "backends/desktop", "backends/files",
    "backends/library", "backends/mcp", "backends/sandbox", "backends/snapshots", "backends/web",
    "config", "conversation", "demo", "graphs", "interfaces", "middleware", "model_calls", "nodes",
    "planning", "runtime",
    "safety", "skills", "tool_calls", "tools",
)  # fmt: skip
"""Those that touch workspaces."""
INSIDE = "it runs in the sandbox, or on another machine, with what that may reach"
PRIVATE = "our own private folders, which no program of a sandbox can change"
OURS = "files of this package, and of developers"
SYSTEM = "programs, settings and files of the system"
NAMED = "what the user names on the command line, or typed, or a file beside it"
USERS = "the user's own folder"
TEMPORARY = "temporary files of our own, outside of the workspace"
ALLOWED = {
    "backends/browser/actions.py:_save_pdf": TEMPORARY,
    "backends/browser/browsers.py": SYSTEM,
    "backends/browser/kept_state.py": PRIVATE,
    "backends/browser/page/frames.py:script": OURS,
    "backends/browser/tab.py": TEMPORARY,
    "backends/charts/report.py:_template": OURS,
    "backends/charts/report.py:inherit_own_pages": PRIVATE,
    "backends/charts/report.py:is_own_page": PRIVATE,
    "backends/files/overview.py:_git_state": TEMPORARY,
    "backends/files/office.py:__init__": "an opened file, read through a limit",
    "backends/files/office.py:stream": "a part of an opened file",
    "backends/library/adding.py": NAMED,
    "backends/library/store.py": PRIVATE,
    "backends/mcp/oauth.py:forget": "logins in the person's configuration folder",
    "backends/mcp/oauth.py:read": "logins in the person's configuration folder",
    "backends/mcp/oauth.py:update": "logins in the person's configuration folder",
    "backends/sandbox/choose.py": SYSTEM,
    "backends/sandbox/scratch.py:local_files": SYSTEM,
    "backends/sandbox/scratch.py:pip_configuration": SYSTEM,
    "backends/sandbox/fork_server.py": INSIDE,
    "backends/sandbox/forked_python.py:__init__": SYSTEM,
    "backends/sandbox/forked_python.py:_sealed_copy": SYSTEM,
    "backends/sandbox/kernel.py:_start": OURS,
    "backends/sandbox/kernel_program.py": INSIDE,
    "backends/sandbox/launch.py": INSIDE,
    "backends/sandbox/shell.py:_start": OURS,
    "backends/sandbox/shell_program.py": INSIDE,
    "backends/sandbox/process_tree.py": "control groups of the system, and the sizes of files",
    "backends/sandbox/confinement.py:_bring": "into a folder where nothing runs yet",
    "backends/sandbox/confinement.py:run_read_only": "a folder where nothing runs yet",
    "backends/sandbox/remote_program.py": INSIDE,
    "backends/sandbox/scratch.py:_packaged_fonts": SYSTEM,
    "backends/sandbox/scratch.py:_remove_abandoned": TEMPORARY,
    "backends/sandbox/scratch.py:fill_scratch": "a folder where nothing runs yet",
    "backends/sandbox/scratch.py:make_chart_settings": "a folder where nothing runs yet",
    "backends/sandbox/scratch.py:make_python": "the folder itself, which no program can replace",
    "backends/sandbox/scratch.py:make_scratch": "a folder where nothing runs yet",
    "backends/sandbox/scratch.py:package_folders": SYSTEM,
    "backends/sandbox/scratch.py:python_prefixes": SYSTEM,
    "backends/sandbox/scratch.py:remove_folder": "a folder where nothing runs any more",
    "backends/sandbox/ssh.py": "it only reads the sizes of files",
    "backends/sandbox/ssh_link.py": OURS,
    "backends/sandbox/worktree.py:create": "a folder where nothing runs yet",
    "backends/sandbox/worktree.py:make_git_dir": "git directories, which no sandbox can change",
    "backends/sandbox/worktree.py:worktree_at": PRIVATE,
    "backends/snapshots/objects.py": PRIVATE,
    "interfaces/cli/threads.py:storage": PRIVATE,
    "interfaces/service/backup.py": "the home folder, and a file that the user names",
    "interfaces/service/retention.py": "the home folder, and folders that are removed whole",
    "backends/snapshots/restore.py:_copy_left_alone": "a folder where nothing runs yet",
    "backends/snapshots/restore.py:_put_aside": PRIVATE,
    "backends/snapshots/restore.py:copy_snapshot": "a folder where nothing runs yet",
    "backends/snapshots/shared_files.py:_are_here": "the workspace's folder itself",
    "backends/snapshots/shared_files.py:_here": "the workspace's folder itself",
    "backends/snapshots/shared_files.py:home_id": PRIVATE,
    "backends/snapshots/thread_snapshots.py:is_empty": "the workspace's folder itself",
    "config/claude_files.py:_named_files": "only names; they are read beneath the working folder",
    "config/claude_files.py:find_prompts": "only names; they are read beneath the working folder",
    "config/files.py:_read": USERS,
    "config/files.py:changed_object": USERS,
    "config/files.py:read_text": "the folder itself, beneath which is read",
    "config/files.py:write_file": USERS,
    "config/homes.py": "the home folder itself; only its id is read before it is known",
    "config/homes.py:require_inside": "the working folder itself",
    "config/instructions.py:_files": "only names and kinds",
    "config/instructions.py:_instruction_places": "the working folder itself",
    "config/instructions.py:_folders_in": "only names",
    "config/instructions.py:_read_text": "the skill's folder, beneath which is read",
    "config/instructions.py:digest_of": "the skill's folder, beneath which is read",
    "config/instructions.py:read_skill": "the skill's folder itself",
    "config/instructions.py:skill_file": "only names",
    "config/instructions.py:trust_instructions": "the working folder itself",
    "config/instructions.py:untrusted_instructions": "the working folder itself",
    "config/model.py:listed_models": "an address, of http alone",
    "config/resolve.py": "the folders themselves",
    "config/secret_values.py:known_secrets": USERS,
    "config/model.py:store_model": USERS,
    "config/triggers.py:add_trigger": USERS,
    "demo/evals/judges.py": INSIDE,
    "interfaces/cli/batch.py": NAMED,
    "backends/sandbox/cell_tools.py:_listen": "in the sandbox",
    "interfaces/cli/chat_commands.py:_files": "the workspace's folder itself",
    "interfaces/cli/chat_session.py:say": TEMPORARY,
    "interfaces/cli/doctor.py:_home": "the home folder itself",
    "interfaces/cli/editor.py:_files_like": "only names",
    "interfaces/cli/editor.py:_find": "only where it is; it is opened again, beneath the workspace",
    "interfaces/cli/editor.py:store_string": USERS,
    "interfaces/cli/fork.py": "the workspace's folder itself",
    "interfaces/cli/library.py": NAMED,
    "interfaces/cli/mcp.py:_keep_comments": USERS,
    "interfaces/cli/process.py": SYSTEM,
    "interfaces/cli/servers.py:_print_when_ready": "the page, in a browser",
    "interfaces/cli/skills.py": NAMED,
    "interfaces/cli/threads.py:complete_thread": PRIVATE,
    "interfaces/cli/threads.py:list_notes": PRIVATE,
    "interfaces/notebook/__init__.py:recorded_model": OURS,
    "interfaces/server/guard.py": PRIVATE,
    "interfaces/server/page_routes.py:bring_data": OURS,
    "interfaces/server/player.py": OURS,
    "interfaces/service/batch.py": NAMED,
    "interfaces/service/check_program.py": INSIDE,
    "interfaces/service/eval_report.py": OURS,
    "interfaces/service/eval_suite.py": NAMED,
    "interfaces/service/own_process.py": SYSTEM,
    "interfaces/service/threads.py": PRIVATE,
    "runtime/atomic_files.py:_folder_of": "the working folder itself, beneath which is written",
    "runtime/atomic_files.py:change_mode": "an opened descriptor, by its name in /proc",
    "runtime/atomic_files.py:write_own_file": "a stream that the user names, such as /dev/stdout",
    "runtime/output.py:_copy": PRIVATE,
    "runtime/output.py:copy_skills": PRIVATE,
    "runtime/atomic_files.py:_copy": "the new copy, where nobody else writes",
    "runtime/atomic_files.py:_copy_status": "the new copy, where nobody else writes",
    "runtime/workspace.py:_make_private": "a home, which may be reached by links",
    "runtime/workspace.py:prepare": "whether the folder is new; it is made after that",
    "runtime/workspace.py:hidden": "what is protected, to know it again",
    "runtime/workspace.py:inherit_outputs": PRIVATE,
    "runtime/workspace.py:opened_folder": PRIVATE,
    "runtime/workspace.py:readable_outputs": "only names, which are compared",
    "safety/open_beneath.py:_open_link_free": "the root, by which all else is opened",
    "safety/open_beneath.py:_walked": "the root, by which all else is opened",
    "safety/open_beneath.py:identity": "what is protected, to know it again",
    "safety/policy.py": "only names, which rules are compared with",
    "skills/slide-deck/scripts/render_slides.py": INSIDE,
}
"""Module, or module and function, with the reason: what it opens by its path."""
METHODS = {
    "chmod", "exists", "glob", "hardlink_to", "is_dir", "is_file", "is_symlink", "iterdir", "lstat",
    "mkdir", "open", "read_bytes", "read_text", "readlink", "rename", "resolve", "rglob", "rmdir",
    "samefile", "stat", "symlink_to", "touch", "unlink", "walk", "write_bytes", "write_text",
}  # fmt: skip
"""Of paths, and of libraries that open them."""
OF_OS = METHODS | {
    "access", "chown", "fwalk", "link", "listdir", "makedirs", "remove", "removedirs", "replace",
    "scandir", "statvfs", "symlink", "truncate", "utime",
}  # fmt: skip
OF_PATHS = {
    "exists", "getmtime", "getsize", "isdir", "isfile", "islink", "lexists", "realpath", "samefile",
}  # fmt: skip
OTHERS = {
    "connect": "sqlite3", "ZipFile": "zipfile", "is_zipfile": "zipfile", "copy": "shutil",
    "copy2": "shutil", "copyfile": "shutil", "copytree": "shutil", "move": "shutil",
    "rmtree": "shutil", "make_archive": "shutil", "unpack_archive": "shutil",
}  # fmt: skip
BY_DESCRIPTOR = {"dir_fd", "src_dir_fd", "dst_dir_fd"}
OPENED = {
    "folder", "descriptor", "below", "binaries", "place.folder", "file", "text", "below.descriptor",
    "folder.descriptor",
}  # fmt: skip
"""What opened folders and files are called."""
NO_PATHS = {
    "ast", "desktop", "notes", "entry", "self._guard", "guard", "self._file_system",

}  # fmt: skip
"""What has methods of these names and is not a path."""


def by_path(node: ast.AST, function: str = "") -> Iterator[tuple[str, int]]:
    """Yield function and line of each call that names a file by its path."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    if isinstance(node, ast.Call) and _opens_by_path(node):
        yield function, node.lineno
    for child in ast.iter_child_nodes(node):
        yield from by_path(child, function)


def _opens_by_path(call: ast.Call) -> bool:
    if isinstance(call.func, ast.Name):
        return call.func.id == "open"
    if not isinstance(call.func, ast.Attribute):
        return False
    owner, name = ast.unparse(call.func.value), call.func.attr
    first = ast.unparse(call.args[0]) if call.args else ""
    is_opened = first in OPENED or bool(BY_DESCRIPTOR & {word.arg for word in call.keywords})
    if owner == "os":
        return name in OF_OS and not is_opened
    if owner == "os.path":
        return name in OF_PATHS
    if owner in ("pd", "pandas"):
        return name.startswith("read_") and not is_opened
    if OTHERS.get(name) == owner:
        return not is_opened
    if ast.unparse(call.func).endswith("workspace.resolve"):  # a name, which opens nothing
        return False
    is_buffer = first.startswith(("io.BytesIO(", "BytesIO("))
    return name in METHODS and owner not in NO_PATHS and not is_opened and not is_buffer


def _modules(room: Path) -> list[Path]:
    return [room] if room.is_file() else sorted(room.rglob("*.py"))


def test_files_of_workspaces_are_opened_by_one_function_only() -> None:
    found, used = list[str](), set[str]()
    for path in (path for room in ROOMS for path in _modules(PACKAGE / room)):
        module = path.relative_to(PACKAGE).as_posix()
        for function, line in by_path(ast.parse(path.read_text("utf-8"))):
            keys = {module, f"{module}:{function}"} & ALLOWED.keys()
            used |= keys
            if not keys:
                found.append(f"{module}:{line} in {function}")
    assert found == [], "use safety/open_beneath.py or runtime/workspace.py, or give a reason"
    assert used == ALLOWED.keys(), "remove the reasons that are not needed any more"


def test_calls_by_path_are_found() -> None:
    """The rule is not a good if it lets the usual spellings pass."""
    calls = """
open(p); p.open("rb"); p.read_text("utf-8"); (root / name).write_bytes(b""); os.listdir(root)
Path(p).exists(); os.path.isfile(p); os.stat(p); shutil.copyfile(a, b); Image.open(p)
pd.read_csv(p); zipfile.ZipFile(p); sqlite3.connect(p); os.rename(a, b)
workspace.root.resolve(); workspace.resolve(p).open()
"""
    assert len(list(by_path(ast.parse(calls)))) == 16
    opened = """
os.stat(n, dir_fd=folder); os.listdir(folder); Image.open(io.BytesIO(data)); pd.read_csv(file)
"""
    assert list(by_path(ast.parse(opened))) == []
