"""The facts about its environment that every agent gets with the run's user message."""

from collections.abc import Collection, Iterator
from functools import cache, partial
from typing import Any

from openmanus_graph.backends.files.overview import workspace_listing
from openmanus_graph.backends.sandbox.choose import backend_name, reaches_network
from openmanus_graph.backends.sandbox.confinement import usual_libraries
from openmanus_graph.conversation.announcements import named_files
from openmanus_graph.model_calls.recorder import fact_of_run, recorded_fact
from openmanus_graph.model_calls.run_models import asks_small_model, run_models
from openmanus_graph.prompts import render
from openmanus_graph.runtime.session import Session
from openmanus_graph.safety.unquoted_text import mark_untrusted
from openmanus_graph.safety.urls import named_domains, urls_in
from openmanus_graph.state.settings import SandboxSettings, Settings

_NETWORK = "reach the network"
_NO_NETWORK = "have no network: nothing can be installed"
_PYTHON_TOOLS = frozenset({"python_execute", "bash"})


async def environment(session: Session, tools: Collection[str], date: str) -> dict[str, str]:
    """Return the facts for all agents, by name.

    None of them changes within a run, unless it is resumed elsewhere or with other settings.

    Args:
        tools: Names of the agent's tools.
        date: When the run began.
    """
    settings = session.settings
    shown = await run_models(session).see_pictures()
    models = await run_models(session).configured()
    free = await fact_of_run(
        session, "free models", lambda: all(one.is_free(settings.prices) for one in models)
    )
    limits = [one for one in _limits(settings) if not (free and one.startswith("$"))]
    facts = {
        "environment": render(
            "environment",
            workspace=str(settings.workspace),
            date=date,
            pictures="shown" if shown else "not shown",
            limits=" and ".join(limits),
        )
    }
    if not _PYTHON_TOOLS.isdisjoint(tools):
        libraries, reachable = await fact_of_run(
            session, "python", partial(_python, settings.sandbox)
        )
        facts["python"] = render(
            "environment_python",
            libraries=libraries or "the libraries of its image",
            network=_NETWORK if reachable else _NO_NETWORK,
        )
        if settings.sandbox.mode == "ssh":
            facts["elsewhere"] = render("environment_elsewhere", host=settings.sandbox.ssh_host)
    return facts


def _limits(settings: Settings) -> Iterator[str]:
    yield f"{settings.max_steps} steps"
    yield f"${settings.max_cost_usd:g}"
    if settings.max_total_tokens is not None:
        yield f"{settings.max_total_tokens} tokens"
    if settings.timeout_s is not None:
        yield f"{settings.timeout_s:.0f} seconds"


async def file_listing(session: Session, run: str, task: str) -> tuple[str, list[str]]:
    """Return the list of the workspace's files as a run begins, and those whose content it shows.

    After a file's content is shown, more needs approval. So if the task is about a site, only the
    files that it names are shown.

    Args:
        run: Its id.
        task: The user's words.
    """
    is_about_site = any(urls_in(task)) or any(named_domains(task))
    only = named_files(task) if is_about_site else None
    small = await asks_small_model(session)
    read = partial(workspace_listing, session.workspace, only, small=small)
    text, heads = await recorded_fact(session, f"listing of {run}", read, list)
    return (render("listing", files=mark_untrusted(text)), heads) if text else ("", heads)


@cache
def _python(sandbox: SandboxSettings) -> list[Any]:
    """Return the available libraries, and whether programs reach the network. Blocks at first."""
    reachable = reaches_network(backend_name(sandbox), sandbox)
    return [", ".join(usual_libraries(sandbox)), reachable]
