"""Do a task on each of the real applications, and write the table into docs/browser.md.

python -m bench.applications [NAME ...]
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from bench.tables import Table
from tests.support.applications.tasks import APPLICATIONS, Application, attempt

PAGE = Path(__file__).parent.parent / "docs" / "browser.md"
BEGIN, END = "<!-- applications -->", "<!-- /applications -->"
TITLES = ["application", "task", "done", "calls", "tokens", "false successes"]


def main() -> None:
    """Measure all applications and renew the table; of those that are named only print it."""
    named = sys.argv[1:]
    rows = [_row(one) for one in APPLICATIONS if not named or one.name in named]
    measured = str(Table(TITLES, rows)).strip()
    sys.stdout.write(f"{measured}\n")
    if not named:
        text = PAGE.read_text(encoding="utf-8")
        before, rest = text.split(BEGIN)
        PAGE.write_text(f"{before}{BEGIN}\n{measured}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def _row(application: Application) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(attempt(application, Path(folder)))
    sys.stderr.write("\n".join(filter(None, (*outcome.false_successes, outcome.lost))))
    done = "yes" if outcome.done else "no"
    figures = (outcome.calls, outcome.tokens, len(outcome.false_successes))
    return [application.name, application.goal, done, *map(str, figures)]


if __name__ == "__main__":
    main()
