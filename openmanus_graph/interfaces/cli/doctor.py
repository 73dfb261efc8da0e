"""`openmanus doctor`: what works here, what is missing, and the command that mends it."""

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from openmanus_graph.config.files import OLD_CONFIG, is_untrusted
from openmanus_graph.config.stored_model import OLD_FILES, old_files
from openmanus_graph.errors import ConfigError, ToolError

if TYPE_CHECKING:
    from openmanus_graph.backends.models.resolved import ResolvedModel
    from openmanus_graph.state.settings import SandboxSettings, Settings

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


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    state: State
    detail: str
    fix: tuple[str, ...] = ()
    """Commands that fix it."""


def examine(*, fix: bool) -> int:
    """Run all checks, fix what can be fixed if asked, and return 0 if nothing is missing."""
    missing = 0
    for check in CHECKS:
        for finding in check():
            if fix and finding.fix and finding.state != "ok":
                finding = _apply_fix(finding, check)
            sys.stdout.write(f"{MARKS[finding.state]} {finding.name}: {finding.detail}\n")
            for command in () if finding.state == "ok" else finding.fix:
                sys.stdout.write(f"    mend it with: {command}\n")
            missing += finding.state == "missing"
    return 1 if missing else 0


def _apply_fix(finding: Finding, check: "Callable[[], Iterator[Finding]]") -> Finding:
    for command in finding.fix:
        sys.stdout.write(f"  $ {command}\n")
        sys.stdout.flush()
        if subprocess.run(command, shell=True, check=False).returncode != 0:  # our own commands
            break
    return next((again for again in check() if again.name == finding.name), finding)


def _python() -> Iterator[Finding]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield Finding("Python", "ok", f"{version} at {sys.executable}")


def _configuration() -> Iterator[Finding]:
    from openmanus_graph.backends.models.build import run_and_close_models
    from openmanus_graph.backends.models.resolved import address_of
    from openmanus_graph.config import resolve_settings
    from openmanus_graph.state.context import Context

    try:
        settings = resolve_settings(Context(), "doctor")
        model = run_and_close_models(_examined(settings))
    except ConfigError as error:
        yield Finding("model", "missing", str(error))
        return
    main, facts = model.settings, model.facts
    where = f" at {main.base_url}" if main.base_url else ""
    kind = f" ({facts.kind})" if facts.kind else ""
    if address_of(main) is None or facts.answers:
        yield Finding("model", "ok", f"{model.name}{where}{kind}")
    else:
        detail = f"{model.name}{where}: no server answers there; start it"
        yield Finding("model", "missing", detail)
    yield _window(model)
    yield Finding("tool calls", "ok", _CALL_FORMS[model.call_form(model.dialect.now)])
    for warning in settings.warnings:
        if not warning.startswith(tuple(str(Path.cwd() / name) for name in OLD_FILES)):
            yield Finding("configuration", "optional", warning)


_CALL_FORMS = {
    "native": "native",
    "text": "text, as set or because it refused tools",
    "constrained": "constrained steps, as set or because the model is small",
}


async def _examined(settings: "Settings") -> "ResolvedModel":
    """Return the main model. It is not asked. ConfigError names a missing package or key."""
    from openmanus_graph.backends.models.resolved import resolve_model
    from openmanus_graph.model_calls.candidates import prepare_models

    await prepare_models(settings)
    return await resolve_model(settings.main)


def _window(model: "ResolvedModel") -> Finding:
    """Report how many tokens one request may hold, and how that is known."""
    from openmanus_graph.backends.models.resolved import SMALL_WINDOW, address_of, larger_window

    reported, wanted = model.facts.window, model.settings.context_window
    detail = f"{reported or model.window:,} tokens"
    if reported and wanted and reported != wanted:
        detail += f", but {wanted:,} are set; openmanus init sets what the server takes"
    elif reported and reported < SMALL_WINDOW:
        detail += f", which is little for an agent. {larger_window(model.facts.kind)}"
    elif reported or wanted or address_of(model.settings) is None:
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
            # Never as a command to be run by --fix: people must see what they trust.
            detail = f"not used until you run openmanus trust: {_listed(file.untrusted)}"
            yield Finding(file.path, "optional", detail)


def _listed(keys: Sequence[str]) -> str:
    return ", ".join(keys) or "nothing"


def _search() -> Iterator[Finding]:
    from openmanus_graph.backends.search.searching import choose_engines
    from openmanus_graph.config.resolve import all_layers, section
    from openmanus_graph.state.context import Context
    from openmanus_graph.state.settings import SearchSettings

    try:
        settings = section(SearchSettings, all_layers(Context())[0])
    except ConfigError as error:
        yield Finding("search", "missing", str(error))
        return
    choice = choose_engines(settings)
    names = ", ".join(engine.name for engine in choice.engines)
    state: State = "ok" if names else "missing"
    yield Finding("search", state, names or "no engine is set up; ddgs needs no key")
    for notice in choice.notices:
        yield Finding("search", "optional", notice.removeprefix("Search: "))


def _sandbox() -> Iterator[Finding]:
    from openmanus_graph.backends.sandbox import ssh
    from openmanus_graph.backends.sandbox.choose import probes
    from openmanus_graph.state.settings import SandboxSettings

    tries = probes(SandboxSettings())
    found = {name: tries[name]() for name in ("bwrap", "nono", "docker")}
    configured = _configured_sandbox()
    if configured is not None and configured.mode == "ssh":  # it needs an address
        there = ssh.examine(configured)
        packages = () if shutil.which("ssh") else install_commands("openssh-client")
        yield Finding("sandbox ssh", "ok" if there.works else "missing", there.detail, packages)
    confined = found["bwrap"].works or found["nono"].works
    for name, probe in found.items():
        if probe.works:
            yield Finding(f"sandbox {name}", "ok", probe.detail)
        elif name == "bwrap" and sys.platform == "linux":
            state: State = "optional" if confined else "missing"
            yield Finding(f"sandbox {name}", state, probe.detail, install_commands("bubblewrap"))
        else:
            yield Finding(f"sandbox {name}", "optional", probe.detail)


def _configured_sandbox() -> "SandboxSettings | None":
    """Return the settings of the sandbox; None if they are wrong, which is said elsewhere."""
    from openmanus_graph.config import resolve_settings
    from openmanus_graph.state.context import Context

    try:
        return resolve_settings(Context(), "doctor", without_model=True).sandbox
    except ConfigError:
        return None


def _browser() -> Iterator[Finding]:
    from openmanus_graph.backends.browser.launch import find_browser
    from openmanus_graph.config.resolve import all_layers, section
    from openmanus_graph.state.context import Context
    from openmanus_graph.state.settings import BrowserSettings

    try:
        settings = section(BrowserSettings, all_layers(Context())[0])
        yield Finding("browser", "ok", str(find_browser(settings.chrome_instance_path)))
    except ConfigError as error:
        yield Finding("browser", "missing", str(error))
    except ToolError as error:
        yield Finding("browser", "missing", str(error).partition(". ")[0], browser_commands())


def _desktop() -> Iterator[Finding]:
    from openmanus_graph.backends.desktop.desktop import DEBIAN_PACKAGES, missing_programs

    missing = missing_programs()
    if not missing:
        yield Finding("desktop", "ok", "its programs are here; it needs a model that sees")
        return
    detail = f"{', '.join(missing)} missing; the agent desktop needs them"
    debian = shutil.which("apt-get") is not None  # other systems name the packages otherwise
    fix = install_commands(" ".join(DEBIAN_PACKAGES)) if debian else ()
    yield Finding("desktop", "optional", detail, fix)


def _data() -> Iterator[Finding]:
    wanted = ("pandas", "matplotlib", "scipy")
    missing = [name for name in wanted if importlib.util.find_spec(name) is None]
    if missing:
        fix = (pip_install("openmanus-graph[data]"),)
        yield Finding("data libraries", "optional", f"{', '.join(missing)} missing", fix)
    else:
        yield Finding("data libraries", "ok", ", ".join(wanted))


def _fonts() -> Iterator[Finding]:
    from openmanus_graph.backends.sandbox.scratch import chinese_font

    found = chinese_font()
    if found:
        yield Finding("Chinese in charts", "ok", found)
    else:
        fix = (pip_install("openmanus-graph[data]"),)
        yield Finding("Chinese in charts", "optional", "no font that shows it", fix)


def _bash() -> Iterator[Finding]:
    shell = shutil.which("bash")
    if shell:
        yield Finding("bash", "ok", shell)
    else:
        yield Finding("bash", "missing", "the tool bash needs it", install_commands("bash"))


def _home() -> Iterator[Finding]:
    from openmanus_graph.config.homes import home_place, untrusted_home

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
    """Look at a database that somebody named; the home folder's own needs no look."""
    from openmanus_graph.backends.persistence.database import open_database
    from openmanus_graph.config.resolve import configured_database
    from openmanus_graph.errors import StorageError
    from openmanus_graph.state.context import Context

    try:
        url = configured_database(Context())
        if url is not None:
            open_database(url)
            yield Finding("database", "ok", str(url))
    except (ConfigError, StorageError) as error:
        fix = (pip_install("openmanus-graph[postgres]"),) if "extra" in str(error) else ()
        yield Finding("database", "missing", str(error), fix)


def install_commands(package: str) -> tuple[str, ...]:
    """Return the commands that install a package of the system, or nothing where none is known."""
    for tool, commands in PACKAGE_TOOLS.items():
        if shutil.which(tool):
            prefix = "" if os.geteuid() == 0 else "sudo "
            return tuple(f"{prefix}{command.format(package)}" for command in commands)
    return ()


def browser_commands() -> tuple[str, ...]:
    """Return the commands that install a Chromium."""
    # Ubuntu's package is a snap, which sees none of the folders it would be given.
    ours = () if _distribution() == "ubuntu" else install_commands("chromium")
    libraries = "--with-deps " if sys.platform == "linux" else ""
    return ours or (f"{sys.executable} -m playwright install {libraries}chromium",)


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("ID", "")
    except OSError:
        return ""  # no Linux


def pip_install(requirement: str) -> str:
    """Return the command that installs a Python package into this environment."""
    return f"{sys.executable} -m pip install '{requirement}'"


CHECKS = (
    _python,
    _configuration,
    _old_configuration,
    _search,
    _sandbox,
    _browser,
    _desktop,
    _data,
    _fonts,
    _bash,
    _home,
    _database,
)
