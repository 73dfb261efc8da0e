"""The program inside the sandbox that runs Python cells: `kernel_program.py RUN CONNECTION`.

A Jupyter kernel, except that everything a cell shows goes to standard output, in order: its
prints, those of libraries and subprocesses, results, tracebacks and the names of saved pictures.
Standard output is a file, so output of any size costs no memory, and none is lost when the kernel
dies. Runs without our package.
"""

import asyncio
import base64
import contextlib
import functools
import hashlib
import html
import importlib.abc
import importlib.util
import io
import logging
import os
import re
import signal
import stat
import sys
import threading
import types
import warnings
import weakref
from pathlib import Path
from typing import Any, cast

from ipykernel import compiler
from ipykernel.displayhook import ZMQShellDisplayHook
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp
from ipykernel.zmqshell import ZMQDisplayPublisher, ZMQInteractiveShell
from IPython.core import pylabtools
from IPython.core.formatters import DisplayFormatter
from traitlets import Type

PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/svg+xml": "svg"}
SAVED_FIGURE = "application/x-openmanus-saved-figure"
"""The type of a figure that the cell has saved. The value is the path of that file."""
_SHOWN = (".png", ".jpg", ".jpeg")
PNG_URL = "data:image/png;base64,"
"""Begins a picture that is shown and becomes no file of the workspace."""
MOST_NAMES = 20
"""Names of one sort that a reply holds."""
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_CELL = re.compile(r"Cell In\[\d+\]")
_LOOP_RUNS = re.compile("already running|running event loop", re.IGNORECASE)
_MARKUP = re.compile(
    r"""<!--.*?(?:-->|$)|<(script|style|head|template)\b.*?(?:</\1\s*>|$)|"""
    r"""</?([a-z][\w-]*)(?:[^>"']|"[^"]*(?:"|$)|'[^']*(?:'|$))*(?:>|$)""",
    re.IGNORECASE | re.DOTALL,
)
_SEPARATORS = {"td": " | ", "th": " | ", "li": "\n- "} | dict.fromkeys(
    ("br", "caption", "dd", "div", "dt", "h1", "h2", "h3", "h4", "hr", "p", "pre", "tr"), "\n"
)


class Output(io.TextIOWrapper):
    """Standard output and error. A long text is written in pieces, which takes less memory."""

    def write(self, text: str) -> int:
        for begin in range(0, len(text), 1 << 20):
            super().write(text[begin : begin + (1 << 20)])
        return len(text)


def show(data: dict[str, Any]) -> None:
    """Print what a cell displays; a picture is saved and named instead."""
    if SAVED_FIGURE in data:
        path = data[SAVED_FIGURE]
        picture = b"" if path.endswith(_SHOWN) else _bytes(data.get("image/png", b""))
        _name_picture(path, f"{PNG_URL}{base64.b64encode(picture).decode()}" if picture else "")
        return
    for kind, suffix in PICTURES.items():
        if kind in data:
            _name_picture(_save(_bytes(data[kind]), suffix))
            return
    print(_text(data), flush=True)  # noqa: T201


def _text(data: dict[str, Any]) -> str:
    """Return a value as text: as plain text, unless that only names the value's class."""
    plain: str = data.get("text/plain", "")
    if plain and not (plain.startswith("<") and plain.endswith(">")):
        return plain
    for kind in ("text/markdown", "text/html", "text/latex", "application/json"):
        form = data.get(kind)
        if text := _page_text(form) if form and kind == "text/html" else form:
            return str(text)
    return plain or f"[no text to show, only {', '.join(data)}]"


def _page_text(page: str) -> str:
    """Return the text of HTML: a line for each block, and bars between the cells of a row."""

    def separator(tag: re.Match[str]) -> str:
        name = (tag[2] or "").lower()
        found = _SEPARATORS.get(name, "")
        return "\n" * ("\n" in found) if tag[0].startswith("</") else found

    text = html.unescape(_MARKUP.sub(separator, " ".join(page.split())))
    lines = (line.strip(" ").removeprefix("| ") for line in text.split("\n"))
    return "\n".join(filter(None, lines))


def _bytes(content: str | bytes) -> bytes:
    if isinstance(content, bytes):
        return content
    return content.encode() if content.lstrip().startswith("<") else base64.b64decode(content)


_saved: dict[str, Path] = {}
_run = _workspace = Path()
_tools: Any = None
"""Set when the kernel begins."""


def _save(content: bytes, suffix: str) -> str:
    """Write a picture under a new name, or name the file that already holds the same one."""
    digest = hashlib.sha256(content).hexdigest()
    known = _saved.get(digest)
    if known is None or not known.is_file() or known.read_bytes() != content:
        number = 1
        while any(_workspace.glob(f"plot_{number}.*")):
            number += 1
        known = _saved[digest] = _workspace / f"plot_{number}.{suffix}"
        known.write_bytes(content)
    return known.name


def _name_picture(path: str, shown: str = "") -> None:
    """Name a picture's file in the output and in the list of pictures to show.

    `shown` is a data URL that is shown instead of the file.
    """
    print(f"[picture saved: {path}]", flush=True)  # noqa: T201  # output is its purpose
    with (_run / "pictures").open("a") as names:
        names.write(f"{shown or path}\n")


class FigureSaves(importlib.abc.MetaPathFinder):
    """Records which figures a cell saved itself: these need no second file to be shown.

    It wraps `Figure.savefig` as soon as matplotlib is loaded.
    """

    def __init__(self) -> None:
        self.paths: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """Find matplotlib's figures, as the other finders do."""
        if name != "matplotlib.figure":
            return None
        sys.meta_path.remove(self)
        spec: Any = importlib.util.find_spec(name)
        load = spec.loader.exec_module

        def load_and_follow(module: Any) -> None:
            load(module)
            savefig = module.Figure.savefig

            @functools.wraps(savefig)
            def save_and_follow(figure: Any, fname: Any, *args: Any, **kwargs: Any) -> Any:
                result = savefig(figure, fname, *args, **kwargs)
                path = _path_in_workspace(fname)
                if path and not self.paths.get(figure, "").endswith(_SHOWN):
                    self.paths[figure] = path
                return result

            module.Figure.savefig = save_and_follow
            module.Figure._repr_png_ = cast("Any", pylabtools).print_figure  # else pyplot's only

        spec.loader.exec_module = load_and_follow
        return spec

    def path_of(self, shown: Any) -> str:
        """Return the file that a figure was saved to in this cell; empty if it was not."""
        named = sys.modules.get("matplotlib.figure")
        if named is None or not isinstance(shown, named.Figure):
            return ""
        return self.paths.get(shown, "")


def _path_in_workspace(file_name: Any) -> str:
    """Return where a figure was saved, relative to the workspace; empty if elsewhere."""
    if not isinstance(file_name, str | os.PathLike):
        return ""
    path = Path(os.fsdecode(cast("str", file_name))).resolve()
    path = path if path.is_file() else path.with_name(f"{path.name}.png")  # as matplotlib does
    inside = path.is_file() and path.is_relative_to(_workspace)
    return path.relative_to(_workspace).as_posix() if inside else ""


figure_saves = FigureSaves()


class Formatter(DisplayFormatter):
    """Shows a figure that the cell has saved by the name of that file."""

    def format(self, obj: Any, include: Any = None, exclude: Any = None) -> Any:
        path = figure_saves.path_of(obj)
        if path.endswith(_SHOWN):
            return {SAVED_FIGURE: path}, {}
        renderers = getattr(sys.modules.get("altair"), "renderers", None)
        if renderers and "png" in renderers.names():
            renderers.enable("png")  # its usual form is a script
        usual = cast("Any", super().format)  # IPython leaves its dictionaries without types
        forms, more = usual(obj, include=include, exclude=exclude)
        return (forms | {SAVED_FIGURE: path} if path else forms), more


class Publisher(ZMQDisplayPublisher):
    """Receives the values of `display()`."""

    def publish(self, data: dict[str, Any], *_: Any, **__: Any) -> None:
        show(data)


class DisplayHook(ZMQShellDisplayHook):
    """Receives the value of a cell's last expression."""

    def start_displayhook(self) -> None:
        """Nothing to prepare."""

    def write_output_prompt(self) -> None:
        """No `Out[1]:`: it would differ from call to call."""

    def write_format_data(self, format_dict: dict[str, Any], md_dict: Any = None) -> None:
        show(format_dict)

    def finish_displayhook(self) -> None:
        """Nothing to send."""

    def log_output(self, format_dict: Any) -> None:
        """Keep no copy of what is shown."""

    def update_user_ns(self, result: Any) -> None:
        """Keep the last result only: older ones would stay in memory."""
        names: Any = cast("Any", self.shell).user_ns
        if names.get("_") is self._:  # else the cell uses that name itself
            names["_"] = self._ = result


class Shell(ZMQInteractiveShell):
    """Writes tracebacks where the output goes."""

    displayhook_class = Type(DisplayHook)
    display_pub_class = Type(Publisher)

    def init_display_formatter(self) -> None:
        self.display_formatter = Formatter(parent=self)
        cast("Any", self.configurables).append(self.display_formatter)  # typed too narrowly

    def init_environment(self) -> None:
        """Ask no program for colours."""

    def _tee(self, channel: Any) -> Any:
        """Keep no copy of what is printed."""
        return contextlib.nullcontext()

    def should_run_async(self, raw_cell: str, **kwargs: Any) -> bool:
        """Tell the object `tools` whether the cell awaits."""
        awaits = bool(cast("Any", super().should_run_async)(raw_cell, **kwargs))
        _tools._task, _tools._awaits = asyncio.current_task(), awaits
        return awaits

    def ask_exit(self) -> None:
        """End the cell, not the kernel: `exit()` is what scripts end with."""
        raise SystemExit

    async def run_code(self, *args: Any, async_: bool = False, **kwargs: Any) -> Any:
        """Let an interrupt cancel code that awaits: raised in a waiting loop, it would end that."""
        task, run = cast("Any", asyncio.current_task()), cast("Any", super().run_code)

        def cancel(*_: Any) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            task.get_loop().call_soon_threadsafe(task.cancel)

        if not async_:
            return await run(*args, **kwargs)
        signal.signal(signal.SIGINT, cancel)
        try:
            return await run(*args, async_=True, **kwargs)
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _showtraceback(self, etype: Any, evalue: Any, stb: list[str]) -> None:
        text = _ESCAPES.sub("", "\n".join(stb))
        text = _CELL.sub("Cell", text)
        name = getattr(etype, "__name__", "")
        if name == "CellEnded":
            return  # the host says why
        if name == "SystemExit":
            code = repr(evalue.code) if evalue.code else ""
            text = f"[ended by exit({code}); variables are kept]"
        if name == "StdinNotImplementedError":
            text = "input() does not work here: nobody can type. Put the value into the code."
        if name == "RuntimeError" and _LOOP_RUNS.search(str(evalue)):
            text += "\nAn event loop already runs here. Write `await` instead of starting one."
        print(text, flush=True)  # noqa: T201
        self._last_traceback = stb


class Kernel(IPythonKernel):
    """The kernel with that shell. Its replies name what a cell leaves in memory."""

    shell_class = Shell

    def __init__(self, **kwargs: Any) -> None:
        cast("Any", super().__init__)(**kwargs)
        shell: Any = self.shell
        _tools._listen(str(_run / "k-6"), shell.user_ns, shell.user_ns_hidden)

    def pre_handler_hook(self) -> None:
        """Do not allow interrupts here: outside of a cell one would lose the reply."""

    def post_handler_hook(self) -> None:
        """Nothing to restore."""

    async def do_execute(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        figure_saves.paths.clear()  # the figures of earlier cells may have changed since
        run = cast("Any", super().do_execute)  # ipykernel leaves it without types
        reply: dict[str, Any] = {"status": "error", "ename": "KeyboardInterrupt"}
        with contextlib.suppress(KeyboardInterrupt):  # it came as the cell had just ended
            signal.signal(signal.SIGINT, signal.default_int_handler)
            reply = await run(*args, **kwargs)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        shell: Any = self.shell
        return reply | {"memory": _memory(shell.user_ns, shell.user_ns_hidden)}


def _memory(names: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Return the names that cells have set by sort, and the folder if it is not the workspace.

    Looks at types only: other operations on values may run their code.
    """
    found: dict[str, list[str]] = {}
    for name, value in list(names.items()):
        if type(name) is str and not name.startswith("_") and value is not own.get(name, own):
            found.setdefault(_sort(value), []).append(name)
    memory: dict[str, Any] = {sort: [len(all_), all_[:MOST_NAMES]] for sort, all_ in found.items()}
    with contextlib.suppress(OSError):  # the folder is gone
        memory["folder"] = "" if Path.cwd() == _workspace else str(Path.cwd())
    return memory


def _sort(value: Any) -> str:
    kind = cast("Any", type(value))
    if issubclass(kind, types.ModuleType):
        return "imports"
    if issubclass(kind, type):
        module = type.__getattribute__(value, "__dict__").get("__module__")
    elif kind in (types.FunctionType, types.BuiltinFunctionType):
        module = value.__module__
    else:
        return "variables"
    return "definitions" if module == "__main__" else "imports"


# ipykernel must not find debugpy: loading it takes nearly as long as all the rest.
sys.modules["debugpy"] = cast("Any", None)
importlib.import_module("ipykernel.debugger")
del sys.modules["debugpy"]


def _end_with_parent() -> None:
    """End when our parent ends: the other side of standard input is then closed.

    The sandbox does not notice that during its own setup. With Docker it is not a pipe.
    """
    lifeline, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def wait() -> None:
        os.read(lifeline, 1)
        os._exit(1)

    if stat.S_ISFIFO(os.fstat(lifeline).st_mode):
        threading.Thread(target=wait, name="openmanus-lifeline", daemon=True).start()


def main() -> None:
    global _run, _workspace, _tools
    _run, _workspace = Path(sys.argv[1]), Path.cwd()
    _tools = importlib.import_module("cell_tools").Tools()
    _end_with_parent()
    # A separate process group: an interrupt then reaches the programs a cell has started.
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    stream = Output(
        io.FileIO(1, "w", closefd=False), encoding="utf-8", errors="replace", write_through=True
    )
    sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = stream  # type: ignore[misc]  # one order
    # Code that asks for a Chinese font by name gets ours instead; no need to repeat the name.
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="To exit: use")
    compiler.get_tmp_directory = lambda: "/cell"  # in warnings; the kernel's number does not help
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # else debugpy warns in our output
    sys.meta_path.insert(0, figure_saves)
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    connection, sys.argv = sys.argv[2], [""]
    with contextlib.suppress(ImportError):  # another machine may lack it
        importlib.import_module("nest_asyncio2").apply()  # cells may run event loops
    IPKernelApp.launch_instance(
        [
            f"--f={connection}",
            "--HistoryManager.enabled=False",
            "--InteractiveShell.colors=nocolor",
            "--InteractiveShell.xmode=Plain",
        ],
        kernel_class=Kernel,
        outstream_class=None,  # `sys.stdout` stays as it is
    )


if __name__ == "__main__":
    main()
