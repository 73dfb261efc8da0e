"""What every agent's system prompt says about where it works: the same in all steps of a run."""

from collections.abc import Collection, Iterator
from functools import cache, partial
from typing import Any

from openmanus_graph.backends.sandbox.choose import backend_name, reaches_network
from openmanus_graph.backends.sandbox.libraries import usual_libraries
from openmanus_graph.model_calls.candidates import pictures_reach_a_model
from openmanus_graph.model_calls.flight_recorder import fact_of_run
from openmanus_graph.prompts import render
from openmanus_graph.runtime.session import Session
from openmanus_graph.state.settings import SandboxSettings, Settings

_NETWORK = "reach the network"
_NO_NETWORK = "have no network: nothing can be installed"
_PYTHON_TOOLS = frozenset({"python_execute", "bash"})


async def surroundings(session: Session, tools: Collection[str], date: str) -> str:
    """Return the part of the system prompt that all agents share.

    Nothing in it changes within a run: providers then find the whole prompt in their cache.

    Args:
        session: Of the run.
        tools: Names of the tools that the agent has.
        date: When the run began.
    """
    settings = session.settings
    shown = await pictures_reach_a_model(session)
    parts = [
        render(
            "surroundings",
            workspace=str(settings.workspace),
            date=date,
            pictures="shown" if shown else "not shown",
            limits=" and ".join(_limits(settings)),
        )
    ]
    if not _PYTHON_TOOLS.isdisjoint(tools):
        libraries, reachable = await fact_of_run(
            session, "python", partial(_python, settings.sandbox)
        )
        parts.append(
            render(
                "surroundings_python",
                libraries=libraries or "the libraries of its image",
                network=_NETWORK if reachable else _NO_NETWORK,
            )
        )
        if settings.sandbox.mode == "ssh":
            parts.append(render("surroundings_elsewhere", host=settings.sandbox.ssh_host))
    return "\n".join([*parts, render("text_from_outside")])


def _limits(settings: Settings) -> Iterator[str]:
    yield f"{settings.max_steps} steps"
    yield f"${settings.max_cost_usd:g}"
    if settings.max_total_tokens is not None:
        yield f"{settings.max_total_tokens} tokens"
    if settings.timeout_s is not None:
        yield f"{settings.timeout_s:.0f} seconds"


@cache
def _python(sandbox: SandboxSettings) -> list[Any]:
    """Return the libraries that programs find, and whether they reach the network.

    Blocks when first asked: a backend is tried, folders looked into.
    """
    reachable = reaches_network(backend_name(sandbox), sandbox)
    return [", ".join(usual_libraries(sandbox)), reachable]
