"""Reads `server.json`, by which the registry of MCP describes servers."""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from openmanus_graph.config.files import parse_json, read_text
from openmanus_graph.errors import ConfigError
from openmanus_graph.state.json_values import as_list, as_object

_RUNNERS = {
    "npm": (r"(@[\w.-]+/)?\w[\w.-]*", "https://registry.npmjs.org", ["npx", "-y"], "{}@{}"),
    "pypi": (r"\w[\w.-]*", "https://pypi.org", ["uvx"], "{}=={}"),
    "oci": (r"\w[\w./:@-]*", "https://docker.io", ["docker", "run", "-i", "--rm"], "{}"),
}
"""By registry: its packages' names, its address, what runs a package, and how it is named there."""
_READ_BY_RUNNERS = re.compile(
    r"(?i)PATH|HOME|ENV$|BASH_ENV|NODE_(?!ENV$)|PYTHON(?!UN|UTF|IO)|(LD|DYLD|NPM|UV|PIP|DOCKER|XDG)_"
)
"""Variables that choose which program runs, or where its package comes from."""


class RegistryEntry:
    """Reads a `server.json`, as the registry of MCP describes servers.

    The command follows from the kind of package alone: the file cannot choose a program.
    """

    def __init__(self, path: Path, name: str, inputs: dict[str, dict[str, Any]]) -> None:
        text = read_text(path, None) or ""
        try:
            given = as_object(parse_json(text))
        except (ValueError, RecursionError) as error:
            why = error if text else "there is no such file, or nothing in it"
            raise ConfigError(f"{path} is not a server.json: {why}.") from error
        if re.search(r'\$\{|"\$[A-Z_]\w*"', text):  # in our files this is a variable's value
            raise ConfigError(f"{path} names variables of your environment. Nothing was run.")
        self._given = as_object(given.get("server")) or given
        self._path, self._name, self._inputs = path, name, inputs

    def server(self, *, yes: bool) -> dict[str, Any]:
        """Return the server as our files have it: its first package that can be run, or address."""
        for package in map(as_object, as_list(self._given.get("packages"))):
            if str(package.get("registryType")) in _RUNNERS:
                return self._package(package, yes=yes)
        for remote in map(as_object, as_list(self._given.get("remotes"))):
            headers = dict(self._values(remote, "headers"))
            kind = str(remote.get("type")).removeprefix("streamable-")
            return {"type": kind, "url": str(remote.get("url")), "headers": headers}
        raise ConfigError(f"{self._path} has no package of npm, PyPI or OCI, and no address.")

    def _package(self, package: dict[str, Any], *, yes: bool) -> dict[str, Any]:
        registry, identifier = str(package["registryType"]), str(package.get("identifier"))
        pattern, home, command, form = _RUNNERS[registry]
        version, hint = str(package.get("version", "")), package.get("runtimeHint", command[0])
        spoken = as_object(package.get("transport")).get("type")
        said = package.get("registryBaseUrl", home), hint, spoken
        named = re.fullmatch(pattern, identifier) and re.fullmatch(r"[\w.+-]*", version)
        if said != (home, command[0], "stdio") or not named:
            raise ConfigError(
                f"{self._path} says that {identifier!r} {version!r} is a package of {registry}, "
                f"but to get it from {said[0]}, run it by {said[1]!r} and talk to it by "
                f"{said[2]}. Here it is {command[0]}, {home} and stdio. Nothing was run."
            )
        options = _words(self._values(package, "runtimeArguments"))
        if options and yes:
            raise ConfigError(
                f"{self._path} sets {shlex.join(options)} for {command[0]}: add it without --yes."
            )
        variables = dict(self._values(package, "environmentVariables"))
        if read := list(filter(_READ_BY_RUNNERS.match, variables)):
            raise ConfigError(
                f"{self._path} sets {', '.join(read)}, which could change what is run. Nothing was."
            )
        if registry == "oci":
            options += [word for variable in variables for word in ("-e", variable)]
        target = form.format(identifier, version) if version else identifier
        args = [*command[1:], *options, target, *_words(self._values(package, "packageArguments"))]
        return {"command": command[0], "args": args, "env": variables}

    def _values(self, given: dict[str, Any], key: str) -> Iterator[tuple[str, str]]:
        """Yield the names and values of the inputs that have a value, or need one.

        What the user is asked for is a variable of our files. A positional argument has no name.
        """
        for one in map(as_object, as_list(given.get(key))):
            named = "" if one.get("type") == "positional" else str(one.get("name"))
            if "value" in one and "{" not in str(one["value"]):
                yield named, str(one["value"])
            elif "value" in one or "default" in one or one.get("isRequired"):
                name = re.sub(r"\W+", "_", named or str(one.get("valueHint")))
                place = f"{self._name}-{name}"
                asked = {"id": place, "password": one.get("isSecret", False)}
                asked |= {key: one[key] for key in ("description", "default") if key in one}
                self._inputs[place] = asked
                yield named, f"${{input:{place}}}"


def _words(arguments: Iterable[tuple[str, str]]) -> list[str]:
    return [word for argument in arguments for word in argument if word]
