"""The ``varjepa`` command: parse, call, print. Errors are one sentence and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from typer.core import TyperCommand

import varjepa
from varjepa.bench.simulation import SimulationBench, compare_simulation
from varjepa.errors import InputError
from varjepa.experiments.settings import (
    QUICK_SIMULATION_VARIANTS,
    SIMULATION_VARIANTS,
    SimulationSettings,
)
from varjepa.experiments.simulation import missing_runs, open_results, reproduce_simulation
from varjepa.experiments.simulation_findings import count_agreeing, findings
from varjepa.files import make_folder, write_json
from varjepa.report.simulation import write_simulation_report

UsageError: Any = typer.BadParameter.__base__  # Typer may bring its own copy of Click

INTERRUPTED = 130  # what shells report after Ctrl-C

console = Console()


class ListCommand(TyperCommand):
    """Lets a repeatable option take several values at once: ``--variants A G``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        repeatable = {
            name
            for param in self.params
            if getattr(param, "multiple", False)
            for name in param.opts
        }
        spread: list[str] = []
        current: str | None = None
        for word in args:
            if word.startswith("-"):
                current = word if word in repeatable else None
            elif current is not None and spread[-1] != current:
                spread.append(current)
            spread.append(word)
        return super().parse_args(ctx, spread)


app = typer.Typer(
    help="Self-supervised learning on tables with honest uncertainty.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
reproduce = typer.Typer(help="Run an experiment of the paper.", no_args_is_help=True)
bench = typer.Typer(help="Compare our code with the plain way, in one run.", no_args_is_help=True)
app.add_typer(reproduce, name="reproduce")
app.add_typer(bench, name="bench")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        console.print(varjepa.__version__)
        raise typer.Exit


@reproduce.command("simulation", cls=ListCommand)
def reproduce_simulation_command(
    out: Annotated[Path, typer.Option(help="Folder for the results; finished runs are kept.")],
    variants: Annotated[
        list[str] | None, typer.Option(help="Which objectives, A to J. Default: all.")
    ] = None,
    runs: Annotated[int | None, typer.Option(help="Simulated worlds per variant.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Training epochs.")] = None,
    quick: Annotated[bool, typer.Option(help="2 runs of A, E, G and J: half a minute.")] = False,
) -> None:
    """Table 1 and the epoch-diagnostics figure: ten objectives on simulated pairs."""
    settings = SimulationSettings()
    if epochs is not None:
        settings = replace(
            settings, training=replace(settings.training, epochs=positive("--epochs", epochs))
        )
    chosen = known_variants(variants or (QUICK_SIMULATION_VARIANTS if quick else ()))
    count = positive("--runs", runs if runs is not None else 2 if quick else 5)

    make_folder(out)
    table, epoch_file = open_results(out, settings)
    waiting = sum(bool(missing_runs(table, epoch_file, v, count)) for v in chosen)
    with progress_bar(waiting * settings.training.epochs) as advance:
        table, epoch_file = reproduce_simulation(out, chosen, count, settings, advance)
    write_simulation_report(out, table.rows, epoch_file.rows)

    for finding in findings(table.rows):
        mark = "[green]yes[/]" if finding.holds else "[red]no [/]"
        console.print(f"{mark} {finding.claim}: {finding.evidence}", highlight=False)
    agreeing, compared = count_agreeing(table.rows, sorted({r["variant"] for r in table.rows}))
    console.print(f"{agreeing} of {compared} cells agree with the paper; see {out}/simulation.md")


@bench.command("simulation")
def bench_simulation_command(
    variant: Annotated[str, typer.Option(help="Which objective, A to J.")] = "D",
    runs: Annotated[int, typer.Option(help="Simulated worlds.")] = 5,
    epochs: Annotated[int, typer.Option(help="Training epochs in both.")] = 5,
    json: Annotated[Path | None, typer.Option(help="Also write the figures here.")] = None,
) -> None:
    """The stacked training of several runs beside a plain loop over runs."""
    options = SimulationBench(
        variant=known_variants([variant])[0],
        runs=positive("--runs", runs),
        epochs=positive("--epochs", epochs),
    )
    if json is not None:
        make_folder(json.parent)
    result = compare_simulation(options)
    console.print(
        f"variant {result['variant']}, {runs} runs, {epochs} epochs: plain loop "
        f"{result['plain_seconds']:.1f} s, stacked {result['stacked_seconds']:.1f} s, "
        f"[bold]{result['ratio']:.1f} ×[/] faster; largest relative difference of a final weight "
        f"{result['largest_difference']:.1e} in float64",
        highlight=False,
        soft_wrap=True,
    )
    if json is not None:
        write_json(json, result)


def known_variants(names: Any) -> list[str]:
    """The variants asked for, all of them by default, in the table's order."""
    for name in names:
        if name not in SIMULATION_VARIANTS:
            raise InputError(f"--variants {name!r} is not one of {', '.join(SIMULATION_VARIANTS)}")
    return [v for v in SIMULATION_VARIANTS if v in names or not names]


def positive(option: str, value: int) -> int:
    """An option that counts something."""
    if value < 1:
        raise InputError(f"{option} must be at least 1, not {value}")
    return value


@contextmanager
def progress_bar(total: int) -> Iterator[Any]:
    """A bar over epochs; yields a function to call with (variant, epoch)."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total} epochs"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=total)
        yield lambda variant, epoch: bar.update(task, advance=1, description=f"variant {variant}")


def main(arguments: list[str] | None = None) -> None:
    """Run the command and leave with its exit code."""
    try:
        code = app(args=arguments, standalone_mode=False)
    except InputError as error:
        code = complain(str(error))
    except UsageError as error:
        code = complain(error.format_message())
    except (KeyboardInterrupt, typer.Abort):
        code = INTERRUPTED
    if code == INTERRUPTED:  # some versions of Typer turn Ctrl-C into this code themselves
        complain("interrupted; what was finished is saved, and the same command goes on from there")
    sys.exit(code if isinstance(code, int) else 0)


def complain(sentence: str) -> int:
    """One line on stderr; the exit code for wrong input."""
    print(f"varjepa: {' '.join(sentence.split())}", file=sys.stderr)  # noqa: T201
    return 2
