"""The commands of ``python -m benchmarks.speed``; README.md says what each costs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from varjepa.cli.shell import ListCommand, ListGroup, console, one_of, positive, run
from varjepa.errors import InputError
from varjepa.files import make_folder, read_json, write_json

bench = typer.Typer(cls=ListGroup, invoke_without_command=True, add_completion=False)

Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Json = Annotated[Path | None, typer.Option(help="Also write the figures here.")]


@bench.callback(invoke_without_command=True)
def bench_steps_command(
    context: typer.Context,
    shapes: Annotated[
        list[str] | None, typer.Option(help="Which of the paper's shapes. Default: adult.")
    ] = None,
    device: Device = "auto",
    mask_sizes: Annotated[
        str, typer.Option(help="middle: one size; drawn: as in training.")
    ] = "middle",
    repeats: Annotated[int, typer.Option(help="Timed steps of both.")] = 7,
    json: Json = None,
) -> None:
    """Compare our training step and embedding pass with Algorithm 1 as written."""
    if context.invoked_subcommand is not None:
        return
    from benchmarks.steps import MASK_SIZES, bench_steps
    from varjepa.settings import pick_device

    sizes = one_of("--mask-sizes", mask_sizes, MASK_SIZES)
    kind = pick_device(device).type
    _check_json(json)
    rows: list[dict[str, Any]] = []
    for shape in shapes or ["adult"]:
        rows.append(bench_steps(shape, kind, positive("--repeats", repeats), sizes))
        console.print(_sentence(rows[-1]), markup=True, soft_wrap=True)
        if json is not None:
            write_json(json, rows)


@bench.command("simulation")
def bench_simulation_command(
    variant: Annotated[str, typer.Option(help="Which objective, A to J.")] = "D",
    runs: Annotated[int, typer.Option(help="Simulated data sets.")] = 5,
    epochs: Annotated[int, typer.Option(help="Training epochs in both.")] = 5,
    json: Json = None,
) -> None:
    """Compare the stacked training of several runs with a plain loop over runs."""
    from benchmarks.simulation import SAME, compare_simulation
    from paper.simulation import SIMULATION_VARIANTS

    one_of("--variant", variant, tuple(SIMULATION_VARIANTS))
    positive("--runs", runs)
    positive("--epochs", epochs)
    _check_json(json)
    result = compare_simulation(variant, runs, epochs)
    console.print(
        f"variant {result['variant']}, {runs} runs, {epochs} epochs: plain loop "
        f"{result['plain_seconds']:.1f} s, stacked {result['stacked_seconds']:.1f} s, "
        f"[bold]{result['ratio']:.1f} ×[/] faster; largest relative difference of a final weight "
        f"{result['largest_difference']:.1e} in float64",
        markup=True,
        soft_wrap=True,
    )
    if json is not None:
        write_json(json, result)
    if result["largest_difference"] > SAME:
        console.print(f"the two differ by more than {SAME:g}: they are not the same computation")
        raise typer.Exit(1)


@bench.command("growth")
def bench_growth_command(
    device: Device = "auto",
    batch: Annotated[int, typer.Option(help="Rows of a step where they are not varied.")] = 64,
    max_features: Annotated[int, typer.Option(help="Leave wider tables out.")] = 2000,
    repeats: Annotated[int, typer.Option(help="Timed steps of each.")] = 5,
    figure: Annotated[Path | None, typer.Option(help="Also draw the figures, as SVG.")] = None,
    json: Json = None,
) -> None:
    """Time a step against columns, rows and layers, for the first version's defaults."""
    from benchmarks.growth import bench_growth, draw_growth
    from varjepa.report.charts import check_can_draw
    from varjepa.settings import pick_device

    kind = pick_device(device).type
    _check_json(json)
    if figure is not None:
        check_can_draw()
        make_folder(figure.parent)
    rows: list[dict[str, Any]] = []

    def show(row: dict[str, Any]) -> None:
        rows.append(row)
        took = "does not fit in memory" if row["step_ms"] is None else f"{row['step_ms']} ms"
        console.print(
            f"{row['varied']} {row['name']}: {row['features']} columns, {row['batch']} rows: "
            f"{took}; attention {row['attention_share']:.0%} of the arithmetic",
            highlight=False,
            soft_wrap=True,
        )
        if json is not None:
            write_json(json, rows)

    bench_growth(
        kind,
        positive("--batch", batch),
        positive("--repeats", repeats),
        on_row=show,
        max_features=positive("--max-features", max_features),
    )
    if figure is not None:
        draw_growth(rows, figure)


@bench.command("fit", cls=ListCommand)
def bench_fit_command(
    shapes: Annotated[
        list[str] | None, typer.Option(help="500x10, 10000x15, adult, 10000x100. Default: all.")
    ] = None,
    device: Device = "auto",
    repeats: Annotated[int, typer.Option(help="Fits of each shape; on a GPU, warm ones.")] = 3,
    peers: Annotated[
        list[str] | None,
        typer.Option(help="boosting, miss_forest, miceforest, isolation_forest, or none."),
    ] = None,
    peer_limit: Annotated[float, typer.Option(help="Seconds of one peer.")] = 600.0,
    long: Annotated[float, typer.Option(help="Length of the long run, in default fits.")] = 3.0,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds after which nothing more is begun.")
    ] = None,
    json: Json = None,
) -> None:
    """Time to quality of default fits, with peers; measures only what the JSON file lacks."""
    from benchmarks.fits import FIT_SHAPES, PEERS, bench_fits, summarise
    from benchmarks.ground.peers import version_of
    from varjepa.settings import pick_device

    kind = pick_device(device).type
    for shape in shapes or []:
        one_of("--shapes", shape, tuple(FIT_SHAPES))
    asked = [one_of("--peers", peer, (*PEERS, "none")) for peer in peers or PEERS]
    for peer in PEERS:
        if peer in asked and version_of(peer) is None:
            console.print(f"{peer} is not installed and left out", soft_wrap=True)
    _check_json(json)
    rows: list[dict[str, Any]] = read_json(json) if json is not None and json.exists() else []

    def show(row: dict[str, Any]) -> None:
        figures = {k: row[k] for k in ("seconds", "fit_s", "best", "gflop_per_s") if k in row}
        console.print(f"{row['shape']} {row['task']}: {figures}", highlight=False, soft_wrap=True)
        if json is not None:
            write_json(json, rows)

    bench_fits(
        shapes or list(FIT_SHAPES),
        kind,
        positive("--repeats", repeats),
        [peer for peer in asked if peer != "none"],
        peer_limit,
        long,
        time_limit,
        rows,
        show,
    )
    for line in summarise(rows):
        console.print(line, soft_wrap=True)


@bench.command("paths", cls=ListCommand)
def bench_paths_command(
    device: Device = "auto",
    steps: Annotated[int, typer.Option(help="Timed steps of each.")] = 64,
    limit: Annotated[float, typer.Option(help="Seconds of one way on one shape.")] = 240.0,
    wide: Annotated[
        bool, typer.Option("--wide", help="Instead: tables of 125 to 2,000 columns, on a CPU.")
    ] = False,
    json: Json = None,
) -> None:
    """Ways to compute a default model's step, compared; measures only what the JSON file lacks."""
    from benchmarks.paths import SHAPES, WIDE_SHAPES, bench_paths
    from varjepa.settings import pick_device

    kind = pick_device(device).type
    _check_json(json)
    rows: list[dict[str, Any]] = read_json(json) if json is not None and json.exists() else []

    def show(row: dict[str, Any]) -> None:
        took = row.get("error") or (
            f"{row['step_ms']} ms a step (processor {row['processor_ms']} ms), "
            f"cold {row['cold_s']} s, fit {row['fit_s']} s"
        )
        console.print(
            f"d {row['d']}, {row['batch']} rows, {row['columns']} columns, depth {row['depth']}: "
            f"{row['path']}: {took}",
            highlight=False,
            soft_wrap=True,
        )
        if json is not None:
            write_json(json, rows)

    names, shapes = (["rows over cores"], WIDE_SHAPES) if wide else (None, SHAPES)
    bench_paths(kind, positive("--steps", steps), shapes, names, limit, rows, show)


@bench.command("busy")
def bench_busy_command(
    steps: Annotated[int, typer.Option(help="Steps of each fit.")] = 300, json: Json = None
) -> None:
    """Time small fits on a CPU, alone and beside a process that never waits."""
    from benchmarks.fits import BUSY_SHAPES, in_process, measure_busy

    _check_json(json)
    rows: list[dict[str, Any]] = []
    for shape in BUSY_SHAPES:
        alone, beside = in_process(measure_busy, (shape, positive("--steps", steps)), None)
        assert alone is not None
        assert beside is not None
        rows += [alone, beside]
        console.print(
            f"{shape}: {steps} steps in {alone['fit_s']} s, beside a busy process in "
            f"{beside['fit_s']} s, [bold]{beside['fit_s'] / alone['fit_s']:.2f} ×[/]",
            markup=True,
            soft_wrap=True,
        )
        if json is not None:
            write_json(json, rows)


def _sentence(row: dict[str, Any]) -> str:
    r = row
    return (
        f"{r['shape']} on {r['device']}, {r['batch']} rows: Algorithm 1 {r['reference_ms']} ms, "
        f"ours {r['ours_ms']} ms a step, [bold]{r['ratio']} ×[/]; {r['rows_per_s']:,.0f} rows/s, "
        f"peak {r['peak_mb']:,.0f} MB ({r['reference_peak_mb']:,.0f}), {r['kernels']:,} kernels "
        f"({r['reference_kernels']:,}), {r['share_of_limit']:.0%} of the arithmetic limit "
        f"({r['limit_ms']} ms); embedding {r['embed_rows_per_s']:,.0f} rows/s, {r['embed_ratio']} ×"
    )


def _check_json(path: Path | None) -> None:
    if path is not None:
        if path.is_dir():
            raise InputError(f"--json {path} is a folder, not a file")
        make_folder(path.parent)


def main(arguments: list[str] | None = None) -> None:
    run(bench, arguments)


if __name__ == "__main__":
    main()
