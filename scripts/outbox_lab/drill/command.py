"""Define the command of the drill, `python -m outbox_lab.drill`."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from outbox_events.errors import ConfigurationError
from outbox_events.text import plural
from outbox_kit.cli import exit_codes
from outbox_kit.cli.console import print_json, print_message, print_table
from outbox_kit.cli.options import Output
from outbox_kit.stack import Options
from outbox_kit.stack.services.java import FAST_START_OPTIONS
from outbox_lab.drill.cell import CellResult, Load
from outbox_lab.drill.faults import FAULTS, fault_named
from outbox_lab.drill.project import DrillProject
from outbox_lab.drill.provenance import commit_of
from outbox_lab.drill.reporting.charts import loss_chart
from outbox_lab.drill.reporting.report import Cost, to_html, to_markdown
from outbox_lab.drill.reporting.summary import summarize
from outbox_lab.drill.run import broken_promises, read_results, run_cells, select_cells, undiscovered_mistakes
from outbox_lab.drill.verdict import COUNTS
from outbox_lab.drill.ways.catalogue import WAYS
from outbox_lab.drill.ways.planted import PLANTED_WAYS

REPORT_OPTIONS = ("report", "seed", "per_year", "value")

Ways = Annotated[
    list[str] | None, typer.Option("--way", metavar="NAME", help="Way of sending; repeatable. Default: all.")
]
Faults = Annotated[
    list[str] | None, typer.Option("--fault", metavar="NAME", help="Fault; repeatable. Default: all applicable.")
]
Seed = Annotated[
    int | None,
    typer.Option("--seed", metavar="NUMBER", help="Seed of the workload and the faults. Default: a random seed."),
]
Times = Annotated[
    int | None, typer.Option("--times", min=1, metavar="NUMBER", help="Number of fault injections in each cell.")
]
Repeat = Annotated[int, typer.Option("--repeat", min=1, metavar="NUMBER", help="Number of runs of each cell.")]
Seconds = Annotated[
    float, typer.Option("--seconds", min=1, metavar="SECONDS", help="Duration of the load in each cell.")
]
Rate = Annotated[
    float, typer.Option("--rate", min=1, metavar="NUMBER", help="Transactions per second, as the total of all writers.")
]
Materialize = Annotated[
    bool, typer.Option("--materialize", help="Also run the Spark job, and compare its tables with the ledger.")
]
Receive = Annotated[
    bool, typer.Option("--receive", help="Also run and kill receivers, and compare their effects with the ledger.")
]
IsPlanted = Annotated[
    bool, typer.Option("--planted", help="Run ways with planted mistakes, which the drill must find.")
]
Stacks = Annotated[
    int,
    typer.Option(
        "--stacks", min=1, metavar="NUMBER", help="Number of ways that run at the same time, each on its own stack."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Skip cells for which a result with this seed already exists.")]
Report = Annotated[
    bool,
    typer.Option("--report", help="Write build/drill/report.html from all results, or only from those for --seed."),
]
PerYear = Annotated[
    list[str] | None,
    typer.Option(
        "--per-year",
        metavar="[FAULT=]NUMBER",
        help="Assumed faults per year of this kind, or of every kind that is not named; repeatable. Default: 1.",
    ),
]
Value = Annotated[float, typer.Option("--value", min=0, metavar="NUMBER", help="Assumed value of one lost event.")]
OutputFormat = Annotated[Output, typer.Option("--output", "-o", help="Format of the results on stdout.")]
FastStart = Annotated[bool, typer.Option("--fast-start", help="Run the servers without the JVM's optimizing compiler.")]
ListCells = Annotated[bool, typer.Option("--list", help="List the ways and faults without running them.")]


def drill(
    context: typer.Context,
    ways: Ways = None,
    faults: Faults = None,
    seed: Seed = None,
    times: Times = None,
    repeat: Repeat = 1,
    seconds: Seconds = 20,
    rate: Rate = 60,
    materialize: Materialize = False,
    receive: Receive = False,
    planted: IsPlanted = False,
    stacks: Stacks = 1,
    resume: Resume = False,
    report: Report = False,
    per_year: PerYear = None,
    value: Value = 100,
    fast_start: FastStart = False,
    list_cells: ListCells = False,
    output: OutputFormat = Output.TABLE,
) -> None:
    """Count the events that ways of sending lose under faults.

    The drill starts a separate stack in build/drill and deletes the data of this stack at the end. A cell is one run of
    one way of sending under one fault. The result of each cell is written to build/drill/results/. The exit code is 1
    if a way of sending breaks a promise, a planted mistake is not found, or a cell has no result.
    """
    folder, options = Path.cwd(), Options(jvm_options=FAST_START_OPTIONS if fast_start else "")
    project = DrillProject(folder, options, commit_of(folder))
    if list_cells:
        _print_catalogue()
        return
    if report:
        _refuse_ignored(context)
        _write_report(project, seed, parse_cost(per_year or [], value))
        return
    seed = secrets.randbelow(2**31) if seed is None else seed
    load = Load(seconds=seconds, rate=rate)
    cells = select_cells(
        ways or [],
        faults or [],
        seed=seed,
        repeat=repeat,
        load=load,
        materialize=materialize,
        receive=receive,
        injections=times,
        planted=planted,
    )
    print_message(f"seed {seed}")
    results = run_cells(project, cells, print_message, resume=resume, stacks=stacks)
    _print_results(results, output)
    _judge(results, len(cells), seed)


def _refuse_ignored(context: typer.Context) -> None:
    """Raise BadParameter for options that --report does not use, because the user may expect a run of cells."""
    names = {entry.name: entry.opts[0] for entry in context.command.params if entry.name not in REPORT_OPTIONS}
    sources = {option: context.get_parameter_source(name or "") for name, option in names.items()}
    given = [option for option, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise typer.BadParameter(f"not allowed with --report: {', '.join(given)}", param_hint="--report")


def _judge(results: list[CellResult], cell_count: int, seed: int) -> None:
    """Print broken promises and the number of missing results. Exit with 1 if either exists."""
    broken, missing = broken_promises(results), cell_count - len(results)
    for line in broken:
        print_message(f"broken promise: {line}")
    undiscovered = undiscovered_mistakes(results)
    for line in undiscovered:
        print_message(line)
    for result in results:
        if result.partitions_without_markers:
            print_message(f"not judged, because the broker wrote no marker: {result.way}, {result.fault} (KAFKA-20734)")
    if missing:
        print_message(f"no result for {plural(missing, 'cell')}: add --seed {seed} --resume to run only these cells")
    if broken or undiscovered or missing:
        raise typer.Exit(exit_codes.ERROR)


def _print_catalogue() -> None:
    rows = [[way.name, way.description] for way in (WAYS | PLANTED_WAYS).values()]
    print_table(["way", "description"], rows)
    rows = [[fault.name, fault.description, _ways_under(fault.name)] for fault in FAULTS.values()]
    print_table(["fault", "description", "ways"], rows)


def _ways_under(fault: str) -> str:
    """Return the names of the ways of sending to which a fault applies, as text."""
    ways = [way.name for way in WAYS.values() if fault in way.faults]
    return "all" if len(ways) == len(WAYS) else ", ".join(ways)


def parse_cost(per_year: list[str], value: float) -> Cost:
    """Return the assumptions of a report, from the values of its options. Raises BadParameter, ConfigurationError."""
    by_fault = {}
    for text in per_year:
        name, _, number = text.rpartition("=")
        try:
            by_fault[fault_named(name).name if name else ""] = float(number)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is not [FAULT=]NUMBER", param_hint="--per-year") from None
    return Cost(by_fault.pop("", Cost.faults_per_year), value, by_fault)


def _write_report(project: DrillProject, seed: int | None, cost: Cost) -> None:
    results = read_results(project, seed)
    if not results:
        seeds = "" if seed is None else f" with seed {seed}"
        raise ConfigurationError(
            f"no results{seeds} in {project.results}",
            "run cells first, as in `python -m outbox_lab.drill --fault none`",
        )
    page = project.folder / "report.html"
    page.write_text(to_html(results, cost), encoding="utf-8")
    page.with_suffix(".md").write_text(to_markdown(results), encoding="utf-8")
    page.with_suffix(".svg").write_text(loss_chart(summarize(results)), encoding="utf-8")
    print_message(f"{plural(len(results), 'cell')}: {page}")


def _print_results(results: list[CellResult], output: Output) -> None:
    if output is Output.JSON:
        print_json(msgspec.to_builtins(results))
        return
    counts = "committed", "delivered", *COUNTS
    rows = [
        [result.way, result.fault, *(str(getattr(result.verdict, name)) for name in counts), _seconds(result)]
        for result in results
    ]
    print_table(["way", "fault", *counts, "recovery s"], rows)


def _seconds(result: CellResult) -> str:
    recovered = [value for value in result.recovery_s if value is not None]
    return f"{max(recovered):.1f}" if recovered else "-"
