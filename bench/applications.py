"""Do a task on each of the real applications, and write the table into docs/browser.md.

python -m bench.applications [--beside-browser-use] [NAME ...]
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.tables import Table
from openmanus_graph.backends.browser.browsers import find_browser
from tests.support.applications.installing import python_with
from tests.support.applications.tasks import APPLICATIONS, Application, Outcome, attempt

PEER, PEER_VERSION = Path(__file__).parent / "browser_use_peer.py", "browser-use==0.13.14"
PEER_APPLICATIONS = ("antd", "Element Plus", "Leaflet", "Bootstrap", "Django admin")
PAGE = Path(__file__).parent.parent / "docs" / "browser.md"
BEGIN, END = "<!-- applications -->", "<!-- /applications -->"
TITLES = ["application", "task", "done", "calls", "tokens", "false successes"]


def main() -> None:
    """Measure all applications and renew the table; of those that are named only print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--beside-browser-use", action="store_true", help="on five of them")
    given = parser.parse_args()
    if given.beside_browser_use:
        named = given.names or PEER_APPLICATIONS
        rows = [_beside(one) for one in APPLICATIONS if one.name in named]
        figures = [f"{title}, {who}" for title in TITLES[2:] for who in ("ours", "browser-use")]
        sys.stdout.write(f"{Table([TITLES[0], *figures], rows)}\n")
        return
    rows = [_row(one) for one in APPLICATIONS if not given.names or one.name in given.names]
    measured = str(Table(TITLES, rows)).strip()
    sys.stdout.write(f"{measured}\n")
    if not given.names:
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{measured}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def _row(application: Application) -> list[str]:
    return [application.name, application.goal, *_figures(_ours(application))]


def _beside(application: Application) -> list[str]:
    """Return the figures of both in turn."""
    ours, peer = _figures(_ours(application)), _figures(_browser_use(application))
    return [application.name, *(figure for pair in zip(ours, peer, strict=True) for figure in pair)]


def _figures(outcome: Outcome) -> list[str]:
    sys.stderr.write("\n".join(filter(None, (*outcome.false_successes, outcome.lost))))
    figures = (outcome.calls, outcome.tokens, len(outcome.false_successes))
    return ["yes" if outcome.done else "no", *map(str, figures)]


def _ours(application: Application) -> Outcome:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(attempt(application, Path(folder)))


def _browser_use(application: Application) -> Outcome:
    python = python_with("browser-use", PEER_VERSION)
    with tempfile.TemporaryDirectory() as home, application.serve() as url:
        command = [str(python), str(PEER), application.name, url, str(find_browser(None))]
        environment = {**os.environ, "HOME": home}
        peer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    done, calls, tokens, false, lost = json.loads(peer.stdout.splitlines()[-1])
    return Outcome(done, calls, tokens, tuple(false), lost)


if __name__ == "__main__":
    main()
