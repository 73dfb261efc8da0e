"""What is done before the first node of a run: files and handles are brought to where it begins.

The package that does it registers itself here, as it stands above the session registry.
"""

from collections.abc import Awaitable, Callable, Sequence

from openmanus_graph.errors import ConfigError
from openmanus_graph.runtime.events import Emit, notice
from openmanus_graph.runtime.session import Session

Preparation = Callable[[Session, Sequence[Session], Emit], Awaitable[Sequence[str]]]
"""Is given the session of a run (`Session.lineage` says where it begins), those of its workers, and
what takes events meanwhile; returns notices for the person."""
_preparations: list[Preparation] = []


def prepare_runs_with(prepare: Preparation) -> None:
    """Have a function called before the first node of each run on a thread; modules do so once."""
    _preparations.append(prepare)


async def prepare_run(session: Session, workers: Sequence[Session], emit: Emit) -> None:
    """Call what was registered, and emit its notices."""
    for prepare in _preparations:
        for text in await prepare(session, workers, emit):
            notice(emit, text)


def another_run_works(thread: str) -> ConfigError:
    """Return why a run cannot go back while another one works on its thread, and what to do."""
    return ConfigError(
        f"A run works on thread {thread}, whose files cannot be turned back meanwhile. Wait for "
        "its end, or stop it, and go back then."
    )
