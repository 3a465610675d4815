"""The commands of ``python -m benchmarks.ground``; benchmarks/README.md says what each costs."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from varjepa.cli.shell import ListGroup, console, one_of, positive, run
from varjepa.errors import InputError

README = Path(__file__).parents[1] / "README.md"
RESULTS = Path(__file__).parents[1] / "results"

ground = typer.Typer(cls=ListGroup, invoke_without_command=True)

Peers = Annotated[Path, typer.Option(help="Cached rows of the peers.")]


@ground.callback(invoke_without_command=True)
def measure_command(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Folder of the contender's rows.")] = RESULTS,
    peers: Peers = RESULTS / "ground-peers.json",
    half: Annotated[str, typer.Option(help="development, reporting or all.")] = "all",
    tables: Annotated[list[str] | None, typer.Option(help="Only these tables.")] = None,
    jobs: Annotated[
        list[str] | None, typer.Option(help="Only these jobs. Default: all but train_on_sampled.")
    ] = None,
    methods: Annotated[
        list[str] | None, typer.Option(help="Only these methods. Default: ours and all peers.")
    ] = None,
    seeds: Annotated[list[int] | None, typer.Option(help="Default: 0 1.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a default of the contender: training__epochs=20."),
    ] = None,
    contender: Annotated[str, typer.Option(help="module:class")] = "varjepa:VarTJEPA",
    rows: Annotated[int, typer.Option(help="Rows of a table, at most.")] = 10_000,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    workers: Annotated[int, typer.Option(help="Processes.")] = 1,
    threads: Annotated[int, typer.Option(help="Threads of each process; 0: as they come.")] = 0,
    time_limit: Annotated[float, typer.Option(help="Seconds after which nothing starts.")] = 1e9,
) -> None:
    """Measure the contender and its peers. Rows that are there are not computed again."""
    if context.invoked_subcommand is not None:
        return
    from benchmarks.ground.jobs import DEFAULT_JOBS, METHODS, Contender
    from benchmarks.ground.running import Options, run_ground
    from benchmarks.ground.tables import EVERY, HALVES, names_of
    from varjepa.settings import pick_device

    of_half = names_of(one_of("--half", half, HALVES))
    every_job = tuple(dict.fromkeys(job for able in METHODS.values() for job in able))
    options = Options(
        tables=[name for name in of_half if name in _known("--tables", tables, EVERY)],
        jobs=_known("--jobs", jobs or list(DEFAULT_JOBS), every_job),
        methods=_known("--methods", methods, tuple(METHODS)),
        seeds=seeds or [0, 1],
        rows=positive("--rows", rows),
        contender=Contender(contender, _settings(settings or []), pick_device(device).type),
        workers=positive("--workers", workers),
        threads=threads,
        time_limit=time_limit,
    )
    failed = run_ground(options, out, peers, log)
    if failed:
        log(f"{failed} failed; the same command tries them again")
        raise typer.Exit(1)


Sources = Annotated[
    list[Path] | None, typer.Argument(help="Files of rows. Default: the committed ones.")
]


@ground.command("summary")
def summary_command(sources: Sources = None, peers: Peers = RESULTS / "ground-peers.json") -> None:
    """Print the bars, and what the contender reaches on either half."""
    from benchmarks.ground.summary import (
        Results,
        anomaly_table,
        bars_table,
        markdown,
        uncertainty_table,
    )
    from varjepa.report.tables import to_terminal

    results = Results(_rows(sources, peers))
    for table in (bars_table(results), uncertainty_table(results), anomaly_table(results)):
        if console.is_terminal:
            console.print(to_terminal(table))
        else:  # a file is not as narrow as rich believes
            log(markdown(table) + "\n")


@ground.command("page")
def page_command(
    sources: Sources = None,
    peers: Peers = RESULTS / "ground-peers.json",
    out: Annotated[Path, typer.Option(help="The page.")] = RESULTS / "ground.html",
) -> None:
    """Write one HTML page, worst table first, and the bars as Markdown.

    Those of the committed rows also go to benchmarks/README.md.
    """
    from benchmarks.ground.summary import write_bars, write_ground_page

    rows = _rows(sources, peers)
    write_ground_page(rows, out)
    log(f"{out} and {out.with_suffix('.md').name}")
    if sources is None:
        write_bars(rows, README)
        log(f"{README}")


@ground.command("merge")
def merge_command(
    sources: Annotated[list[Path], typer.Argument(help="Files of rows, e.g. of other machines.")],
    out: Annotated[Path, typer.Option(help="The file that takes them all.")],
) -> None:
    """Take the rows of several files into one."""
    from benchmarks.ground.running import merge

    log(f"{merge(out, sources)} rows merged into {out}")


def _rows(sources: list[Path] | None, peers: Path) -> list[dict[str, Any]]:
    from paper.store import read_rows

    files = [*(sources or [RESULTS / "ground.json"]), peers]
    return [row for path in files if path.exists() for row in read_rows(path)]


def _known(option: str, asked: list[str] | None, every: Sequence[str]) -> list[str]:
    for name in asked or []:
        one_of(option, name, tuple(every))
    return [name for name in every if not asked or name in asked]


def _settings(pairs: Iterable[str]) -> dict[str, Any]:
    """``name=value`` pairs; a value that is no Python literal is text."""
    settings = {}
    for pair in pairs:
        name, is_there, text = pair.partition("=")
        if not is_there:
            raise InputError(f"--set {pair} is not name=value")
        try:
            settings[name] = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            settings[name] = text
    return settings


def log(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def main(arguments: list[str] | None = None) -> None:
    run(ground, arguments)


if __name__ == "__main__":
    main()
