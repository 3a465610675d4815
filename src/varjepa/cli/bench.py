"""``varjepa bench``: our code beside the plain way, in one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from varjepa.bench.simulation import SAME, SimulationBench, compare_simulation
from varjepa.bench.training_step import MASK_SIZES, MaskSizes, bench_steps
from varjepa.cli.shell import ListGroup, console, positive
from varjepa.cli.studies import known_variants
from varjepa.errors import InputError
from varjepa.estimators.parameters import pick_device
from varjepa.files import make_folder, write_json

bench = typer.Typer(cls=ListGroup, invoke_without_command=True)

Json = Annotated[Path | None, typer.Option(help="Also write the figures here.")]


@bench.callback(invoke_without_command=True)
def bench_steps_command(
    context: typer.Context,
    shapes: Annotated[
        list[str] | None, typer.Option(help="Which of the paper's shapes. Default: adult.")
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    mask_sizes: Annotated[
        str, typer.Option(help="middle: one size; drawn: as in training.")
    ] = "middle",
    repeats: Annotated[int, typer.Option(help="Timed steps of both.")] = 7,
    dropout: Annotated[
        bool, typer.Option(help="Give the reference the paper's dropout, which ours lacks.")
    ] = False,
    json: Json = None,
) -> None:
    """Our training step and embedding pass beside Algorithm 1 as written, in one run."""
    if context.invoked_subcommand is not None:
        return
    sizes = _mask_sizes(mask_sizes)
    kind = pick_device(device).type
    _check_json(json)
    rows: list[dict[str, Any]] = []
    for shape in shapes or ["adult"]:
        rows += bench_steps(
            [shape], kind, positive("--repeats", repeats), sizes, with_dropout=dropout
        )
        console.print(_sentence(rows[-1]), highlight=False, soft_wrap=True)
        if json is not None:
            write_json(json, rows)


@bench.command("simulation")
def bench_simulation_command(
    variant: Annotated[str, typer.Option(help="Which objective, A to J.")] = "D",
    runs: Annotated[int, typer.Option(help="Simulated worlds.")] = 5,
    epochs: Annotated[int, typer.Option(help="Training epochs in both.")] = 5,
    json: Json = None,
) -> None:
    """The stacked training of several runs beside a plain loop over runs."""
    options = SimulationBench(
        variant=known_variants("--variant", [variant])[0],
        runs=positive("--runs", runs),
        epochs=positive("--epochs", epochs),
    )
    _check_json(json)
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
    if result["largest_difference"] > SAME:
        console.print(f"the two differ by more than {SAME:g}: they are not the same computation")
        raise typer.Exit(1)


def _sentence(row: dict[str, Any]) -> str:
    r = row
    return (
        f"{r['shape']} on {r['device']}, {r['batch']} rows: Algorithm 1 {r['reference_ms']} ms, "
        f"ours {r['ours_ms']} ms a step, [bold]{r['ratio']} ×[/]; {r['rows_per_s']:,.0f} rows/s, "
        f"peak {r['peak_mb']:,.0f} MB ({r['reference_peak_mb']:,.0f}), {r['kernels']:,} kernels "
        f"({r['reference_kernels']:,}), {r['share_of_limit']:.0%} of the arithmetic limit "
        f"({r['limit_ms']} ms); embedding {r['embed_rows_per_s']:,.0f} rows/s, {r['embed_ratio']} ×"
    )


def _mask_sizes(word: str) -> MaskSizes:
    for known in MASK_SIZES:
        if word == known:
            return known
    raise InputError(f"--mask-sizes {word!r} is not one of {', '.join(MASK_SIZES)}")


def _check_json(path: Path | None) -> None:
    if path is not None:
        if path.is_dir():
            raise InputError(f"--json {path} is a folder, not a file")
        make_folder(path.parent)
