"""How long it takes to find the sources of an answer: `python -m bench.claims`."""

import random
import time

from openmanus_graph.conversation.passages import Passage
from openmanus_graph.conversation.sources import Evidence

CASES = ((1000, 2_000, 14), (1000, 7_000, 14), (100, 7_000, 1_000), (1000, 100_000, 10_000))
"""Results, characters of each, and figures of the answer."""


def text(draw: random.Random, chars: int) -> str:
    lines, size = list[str](), 0
    while size < chars:
        lines.append(
            f"{draw.choice(('north', 'south', 'east', 'west'))} {draw.randint(1, 99_999)} units at "
            f"{draw.random() * 100:.2f} on 2024-{draw.randint(1, 12):02d}-{draw.randint(1, 28):02d}"
        )
        size += len(lines[-1]) + 1
    return "\n".join(lines)


def measure(results: int, chars: int, figures: int) -> str:
    draw = random.Random(1)
    passages = [Passage(text(draw, chars), f"c{n}", "bash") for n in range(results)]
    known = [word for one in passages[:200] for word in one.text.split()[1::7]]
    answer = "\n".join(f"- It sold {draw.choice(known)} units" for _ in range(figures))
    started = time.process_time()
    found = Evidence(passages).check(answer)
    seconds = time.process_time() - started
    return f"{results:>7,} | {chars:>7,} | {len(found):>7,} | {seconds:.2f}"


def main() -> None:
    print("results |   chars | figures | CPU s")  # noqa: T201  # a command's output
    for case in CASES:
        print(measure(*case))  # noqa: T201  # a command's output


if __name__ == "__main__":
    main()
