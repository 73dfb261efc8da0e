"""`openmanus doctor`: what works here, what is missing, and the command that fixes it."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from openmanus_graph.config import resolve
from openmanus_graph.config.files import OLD_CONFIG, is_untrusted
from openmanus_graph.config.homes import OLD_FILES, home_place, old_files, untrusted_home
from openmanus_graph.errors import ConfigError, StorageError, ToolError
from openmanus_graph.interfaces.service.options import StorageOptions, takes
from openmanus_graph.state.context import Context
from openmanus_graph.state.search_engines import SearchSettings
from openmanus_graph.state.settings import BrowserSettings, SandboxSettings, Settings

if TYPE_CHECKING:
    from openmanus_graph.backends.models.resolved import ResolvedModel

State = Literal["ok", "optional", "missing"]

MARKS = {"ok": "✓", "optional": "·", "missing": "✗"}
MIN_FREE_MB = 500
PACKAGE_TOOLS = {
    "apt-get": ("apt-get update", "apt-get install -y {}"),
    "dnf": ("dnf install -y {}",),
    "pacman": ("pacman -Sy --noconfirm {}",),
    "zypper": ("zypper install -y {}",),
    "apk": ("apk add {}",),
}
_CALL_FORMS = {
    "native": "native",
    "text": "text, as set or because it refused tools",
    "constrained": "constrained steps, as set or because the model is small",
}


@dataclass(frozen=True)
class Finding:
    name: str
    state: State
    detail: str
    fix: tuple[str, ...] = ()
    """Commands that fix it."""


Check = Callable[[], Iterator[Finding]]


@takes(StorageOptions)
def doctor(
    fix: Annotated[bool, typer.Option("--fix", help="Run the commands that fix it.")] = False,
) -> int:
    """Show what is configured, what is missing, and how to fix it."""
    missing = 0
    for name, check in CHECKS:
        for finding in _findings(name, check):
            if fix and finding.fix and finding.state != "ok":
                _run_commands(finding.fix)
                again = {one.name: one for one in _findings(name, check)}
                finding = again.get(finding.name, finding)
            sys.stdout.write(f"{MARKS[finding.state]} {finding.name}: {finding.detail}\n")
            for command in () if finding.state == "ok" else finding.fix:
                sys.stdout.write(f"    fix it with: {command}\n")
            missing += finding.state == "missing"
    return 1 if missing else 0


def _findings(name: str, check: Check) -> Iterator[Finding]:
    try:
        yield from check()
    except ConfigError as error:
        yield Finding(name, "missing", str(error))


def _run_commands(commands: Sequence[str]) -> None:
    for command in commands:
        sys.stdout.write(f"  $ {command}\n")
        sys.stdout.flush()
        if subprocess.run(command, shell=True, check=False).returncode != 0:  # our own commands
            return


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", "ok", f"{version} at {sys.executable}")


def _configuration() -> Iterator[Finding]:
    from openmanus_graph.backends.models.build import run_and_close_models
    from openmanus_graph.backends.models.resolved import resolve_model
    from openmanus_graph.model_calls.run_models import prepare_models

    async def resolved(settings: Settings) -> "ResolvedModel":
        await prepare_models(settings)
        return await resolve_model(settings.main)

    settings = resolve.resolve_settings(Context(), "doctor")
    model = run_and_close_models(resolved(settings))
    main, facts = model.settings, model.facts
    name = f"{model.name} at {main.base_url}" if main.base_url else model.name
    if model.server_address is None or facts.answers:
        yield Finding("model", "ok", f"{name} ({facts.kind})" if facts.kind else name)
    else:
        yield Finding("model", "missing", f"{name}: no server answers there; start it")
    yield _window(model)
    yield Finding("tool calls", "ok", _CALL_FORMS[model.call_form(model.dialect.now)])


def _warnings() -> Iterator[Finding]:
    """Report what was left out of the configuration, MCP servers too."""
    for warning in resolve.resolve_settings(Context(), "doctor", without_model=True).warnings:
        if not warning.startswith(tuple(str(Path.cwd() / name) for name in OLD_FILES)):
            yield Finding("configuration", "optional", warning)


def _window(model: "ResolvedModel") -> Finding:
    """Report how many tokens one request may hold, and how that is known."""
    from openmanus_graph.backends.models.resolved import SMALL_WINDOW
    from openmanus_graph.backends.models.server_facts import larger_window

    reported, wanted = model.facts.window, model.settings.context_window
    detail = f"{reported or model.window:,} tokens"
    if reported and wanted and reported != wanted:
        detail += f", but {wanted:,} are set; openmanus init sets what the server takes"
    elif reported and reported < SMALL_WINDOW:
        detail += f", which is little for an agent. {larger_window(model.facts.kind)}"
    elif reported or wanted or model.server_address is None:
        return Finding("window", "ok", detail)
    else:
        detail += " are assumed; [llm] context_window sets what the server takes"
    return Finding("window", "optional", detail)


def _old_configuration() -> Iterator[Finding]:
    """Report how each key of OpenManus's files in the working folder is used."""
    try:
        files, untrusted = list(old_files(Path.cwd())), is_untrusted(Path.cwd())
    except ConfigError:
        return  # reported by `_configuration`
    if untrusted:
        yield Finding(OLD_CONFIG, "ok", "another program's, left alone: it has no [llm] table")
    for file in files:
        yield Finding(file.path, "ok", f"read as OpenManus's; as before: {_listed(file.used)}")
        for key, how in file.renamed.items():
            yield Finding(f"{file.path} {key}", "ok", how)
        for key, why in file.left_out.items():
            yield Finding(f"{file.path} {key}", "optional", f"left out: {why}")
        if file.untrusted:
            # Never as a command for --fix: people must see what they trust.
            detail = f"not used until you run openmanus trust: {_listed(file.untrusted)}"
            yield Finding(file.path, "optional", detail)


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "nothing"


def _search() -> Iterator[Finding]:
    from openmanus_graph.backends.search.searching import choose_engines

    choice = choose_engines(resolve.section(SearchSettings, resolve.all_layers(Context())[0]))
    if choice.engines:
        yield Finding("search", "ok", ", ".join(engine.name for engine in choice.engines))
    else:
        yield Finding("search", "missing", "no engine is set up; ddgs needs no key")
    for notice in choice.notices:
        yield Finding("search", "optional", notice.removeprefix("Search: "))


def _sandbox() -> Iterator[Finding]:
    from openmanus_graph.backends.sandbox import ssh
    from openmanus_graph.backends.sandbox.choose import probes

    try:
        configured = resolve.resolve_settings(Context(), "doctor", without_model=True).sandbox
    except ConfigError:  # reported by `_configuration`
        configured = SandboxSettings()
    if configured.mode == "ssh":  # only this one needs an address
        there = ssh.examine(configured)
        packages = () if shutil.which("ssh") else install_commands("openssh-client")
        yield Finding("sandbox ssh", "ok" if there.works else "missing", there.detail, packages)
    tries = probes(SandboxSettings())
    found = {name: tries[name]() for name in ("bwrap", "nono", "docker")}
    confined = found["bwrap"].works or found["nono"].works
    for name, probe in found.items():
        is_needed = name == "bwrap" and sys.platform == "linux" and not probe.works
        state: State = "missing" if is_needed and not confined else "optional"
        fix = install_commands("bubblewrap") if is_needed else ()
        yield Finding(f"sandbox {name}", "ok" if probe.works else state, probe.detail, fix)


def _browser() -> Iterator[Finding]:
    from openmanus_graph.backends.browser.browsers import find_browser

    settings = resolve.section(BrowserSettings, resolve.all_layers(Context())[0])
    try:
        yield Finding("browser", "ok", str(find_browser(settings.chrome_instance_path)))
    except ToolError as error:
        yield Finding("browser", "missing", str(error).partition(". ")[0], browser_commands())


def _desktop() -> Iterator[Finding]:
    from openmanus_graph.backends.desktop.desktop import DEBIAN_PACKAGES, missing_programs

    detail = "its programs are here; it needs a model that sees"
    if missing := missing_programs():
        detail = f"{', '.join(missing)} missing; the agent desktop needs them"
    debian = shutil.which("apt-get") is not None  # other systems have other package names
    fix = install_commands(" ".join(DEBIAN_PACKAGES)) if debian else ()
    yield Finding("desktop", "optional" if missing else "ok", detail, fix)


def _data() -> Iterator[Finding]:
    from openmanus_graph.backends.sandbox.scratch import chinese_font

    wanted = ("pandas", "matplotlib", "scipy")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    detail = f"{', '.join(missing)} missing" if missing else ", ".join(wanted)
    fix = (pip_install("openmanus-graph[data]"),)
    yield Finding("data libraries", "optional" if missing else "ok", detail, fix)
    font = chinese_font()
    detail = font or "no font that shows it"
    yield Finding("Chinese in charts", "ok" if font else "optional", detail, fix)


def _bash() -> Iterator[Finding]:
    shell = shutil.which("bash")
    detail = shell or "the tool bash needs it"
    yield Finding("bash", "ok" if shell else "missing", detail, install_commands("bash"))


def _home() -> Iterator[Finding]:
    home = home_place()
    if home == untrusted_home():
        detail = f"{home} is not registered as yours, so it is not used"
        yield Finding("home", "missing", detail, ("openmanus trust",))
        return
    place = home
    while not place.exists():
        place = place.parent
    if not (place.is_dir() and os.access(place, os.W_OK)):
        detail = f"{home} cannot be written; set OPENMANUS_HOME to another folder"
        yield Finding("home", "missing", detail)
        return
    free_mb = shutil.disk_usage(place).free // 2**20
    state: State = "ok" if free_mb >= MIN_FREE_MB else "missing"
    yield Finding("home", state, f"{home}, {free_mb:,} MB free")


def _database() -> Iterator[Finding]:
    """Check a database that is configured; the home folder's own needs no check."""
    from openmanus_graph.backends.persistence.database import open_database

    try:
        url = resolve.storage_settings().database_url
        if url is not None:
            open_database(url)
            yield Finding("database", "ok", str(url))
    except (ConfigError, StorageError) as error:
        fix = (pip_install("openmanus-graph[postgres]"),) if "extra" in str(error) else ()
        yield Finding("database", "missing", str(error), fix)


def install_commands(package: str) -> tuple[str, ...]:
    """Return the commands that install a package of the system, or nothing if none is known."""
    for tool, commands in PACKAGE_TOOLS.items():
        if shutil.which(tool):
            prefix = "" if os.geteuid() == 0 else "sudo "
            return tuple(f"{prefix}{command.format(package)}" for command in commands)
    return ()


def browser_commands() -> tuple[str, ...]:
    try:
        distribution = platform.freedesktop_os_release().get("ID", "")
    except OSError:
        distribution = ""  # no Linux
    # Ubuntu's package is a snap, which sees none of the folders it would be given.
    ours = () if distribution == "ubuntu" else install_commands("chromium")
    libraries = "--with-deps " if sys.platform == "linux" else ""
    return ours or (f"{sys.executable} -m playwright install {libraries}chromium",)


def pip_install(requirement: str) -> str:
    return f"{sys.executable} -m pip install '{requirement}'"


CHECKS: tuple[tuple[str, Check], ...] = (
    ("Python", _python),
    ("model", _configuration),
    ("configuration", _warnings),
    (OLD_CONFIG, _old_configuration),
    ("search", _search),
    ("sandbox", _sandbox),
    ("browser", _browser),
    ("desktop", _desktop),
    ("data libraries", _data),
    ("bash", _bash),
    ("home", _home),
    ("database", _database),
)
"""The checks in their order. What the configuration keeps from being checked has that name."""
