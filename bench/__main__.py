"""Measure and print the tables: the usual ones, or those that are named."""

import argparse
import os
import sys

from bench.tables import TABLES, USUAL, Scale

RUNS = 5


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m bench")
    parser.add_argument("--runs", type=int, default=RUNS, help="Figures are medians of so many.")
    parser.add_argument("--quick", action="store_true", help="Only see that everything works.")
    parser.add_argument("--hours", type=float, default=2.0, help="How long the soak takes.")
    parser.add_argument("--only", choices=TABLES, nargs="+", default=list(USUAL))
    given = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # the second start of an installation counts
    scale = Scale(given.quick, 1 if given.quick else given.runs, given.hours)
    for name in given.only:
        sys.stdout.write(f"{TABLES[name](scale)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
