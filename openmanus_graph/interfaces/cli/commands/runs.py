"""The commands that begin a run, or go on with one."""

from typing import Annotated

import typer

from openmanus_graph.interfaces.cli.commands.arguments import LatestThread, ThreadArgument
from openmanus_graph.interfaces.service.options import (
    InputOptions,
    OutputOptions,
    PlanName,
    RunOptions,
    StorageOptions,
    takes,
)

app = typer.Typer(rich_markup_mode=None)


@app.command()
@takes(InputOptions, RunOptions, OutputOptions, StorageOptions)
def run(
    given: InputOptions,
    options: RunOptions,
    output: OutputOptions,
    task: Annotated[str, typer.Argument(help="What to do; - reads it from stdin.")],
    plan: Annotated[
        PlanName,
        typer.Option(help="auto: by a plan, if the task has independent parts. Default never."),
    ] = "never",
) -> None:
    """Do one task."""
    from openmanus_graph.interfaces.cli.run import planned, run_task

    if plan == "auto":
        given = planned(given)
    raise typer.Exit(run_task(task, given, options, output))


@app.command()
@takes(InputOptions, RunOptions, OutputOptions, StorageOptions, without=("agent",))
def plan(
    given: InputOptions,
    options: RunOptions,
    output: OutputOptions,
    task: Annotated[str, typer.Argument(help="What to do; - reads it from stdin.")],
) -> None:
    """Do one task by a plan, whose steps run side by side."""
    from openmanus_graph.interfaces.cli.run import planned, run_task

    raise typer.Exit(run_task(task, planned(given), options, output))


@app.command()
@takes(RunOptions, OutputOptions, StorageOptions, without=("workspace", "max_cost_usd", "json"))
def batch(
    options: RunOptions,
    output: OutputOptions,
    tasks: Annotated[
        str, typer.Argument(help="JSON lines, one a task: task, id, files, agent, limits.")
    ],
    out: Annotated[
        str | None,
        typer.Option(help="File of the results, one a line. Default: TASKS.results.jsonl."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option(help="Which agent does tasks that name none. Default manus.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Tasks that are done at once.")] = 4,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--max-cost-usd", min=0, help="Dollars of all tasks together. Default: no limit."
        ),
    ] = None,
    remote: Annotated[
        str | None,
        typer.Option(help="Address of a server that does them; its token is in OPENMANUS_TOKEN."),
    ] = None,
) -> None:
    """Do many tasks; the same command goes on where it was cut off."""
    from openmanus_graph.interfaces.cli.batch import do_batch

    raise typer.Exit(do_batch(tasks, out, agent, jobs, budget_usd, remote, options, output))


@app.command("eval")
@takes(RunOptions, OutputOptions, StorageOptions, without=("workspace", "max_cost_usd", "json"))
def evaluate(
    options: RunOptions,
    output: OutputOptions,
    suite: Annotated[
        str | None, typer.Argument(help="JSON lines as those of batch, each with checks.")
    ] = None,
    shipped: Annotated[
        bool,
        typer.Option(
            "--shipped", help="Ten tasks of ours; without --model a recorded one does them."
        ),
    ] = False,
    out: Annotated[
        str | None, typer.Option(help="Folder of the results and the report. Default: SUITE.eval.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Folder of an earlier one: shows what changed.")
    ] = None,
    repeat: Annotated[int, typer.Option(min=1, help="Attempts at each task.")] = 1,
    agent: Annotated[
        str | None, typer.Option(help="Which agent does tasks that name none. Default manus.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Attempts that are made at once.")] = 4,
    budget_usd: Annotated[
        float | None,
        typer.Option(
            "--max-cost-usd", min=0, help="Dollars of all attempts together. Default: no limit."
        ),
    ] = None,
) -> None:
    """Do the tasks of a suite, check each, and report what passes."""
    from openmanus_graph.interfaces.cli.evaluation import EvalOptions, evaluate_suite

    wanted = EvalOptions(suite, shipped, out, against, repeat, agent, jobs, budget_usd)
    raise typer.Exit(evaluate_suite(wanted, options, output))


@app.command()
@takes(InputOptions, RunOptions, OutputOptions, StorageOptions)
def chat(given: InputOptions, options: RunOptions, output: OutputOptions) -> None:
    """Talk with the agent: several turns on one thread."""
    from openmanus_graph.interfaces.cli.chat import chat_with

    raise typer.Exit(chat_with(given, options, output))


@app.command()
@takes(RunOptions, OutputOptions, StorageOptions, without=("policy",))
def resume(
    options: RunOptions,
    output: OutputOptions,
    thread: LatestThread = None,
    answer: Annotated[
        str | None, typer.Option(help="The answer to its question, or `= RESULT` of a call.")
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Allow the call.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Do not allow the call.")] = False,
    reason: Annotated[str, typer.Option(help="Why not, for the model.")] = "",
    interrupt: Annotated[
        str | None, typer.Option("--id", help="Which question, if several.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All open questions.")] = False,
) -> None:
    """Go on with a thread that was stopped, waits for an answer, or crashed."""
    from openmanus_graph.interfaces.cli.run import resume_thread
    from openmanus_graph.interfaces.service.run_setup import ResumeAnswer
    from openmanus_graph.interfaces.service.threads import thread_id

    reply = ResumeAnswer(answer, approve, reject, reason, interrupt, every)
    raise typer.Exit(resume_thread(thread_id(thread), reply, options, output))


@app.command()
@takes(StorageOptions)
def tell(
    thread: ThreadArgument,
    text: Annotated[str, typer.Argument(help="What to say; - reads it from stdin.")],
) -> None:
    """Tell a running agent something, which it reads at its next step."""
    from openmanus_graph.interfaces.cli.threads import tell_thread
    from openmanus_graph.interfaces.service.threads import thread_id

    raise typer.Exit(tell_thread(thread_id(thread), text))


@app.command()
@takes(OutputOptions)
def demo(
    output: OutputOptions,
    plan: Annotated[
        bool, typer.Option("--plan", help="By a plan, whose steps run side by side.")
    ] = False,
    workspace: Annotated[str | None, typer.Option(help="Folder of the demo's files.")] = None,
) -> None:
    """Do a real task with real tools and a recorded model: no key, no network."""
    from openmanus_graph.interfaces.cli.demo import run_demo

    raise typer.Exit(run_demo(workspace, output, plans=plan))
