"""Options of ``varjepa reproduce``'s studies, what they mean, and how a study is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli.shell import console, positive
from varjepa.downstream import PREDICTORS
from varjepa.errors import Interrupted
from varjepa.experiments.findings import Finding
from varjepa.experiments.merging import Open, merge_folders
from varjepa.experiments.names import known
from varjepa.experiments.pretraining import FULL, QUICK, Scale
from varjepa.experiments.tabular_settings import SETTINGS, Setting

QUICK_DATASETS = ["sim", "adult"]
QUICK_PREDICTORS = ["mlp", "resnet", "xgboost"]
QUICK_RUNS = 2

Out = Annotated[Path, typer.Option(help="Folder for the results; finished cells are kept.")]
Runs = Annotated[int | None, typer.Option(help="Seeds of a predictor; default 5, with --quick 2.")]
Epochs = Annotated[int | None, typer.Option(help="Of a representation; default: the setting's.")]
Embeddings = Annotated[int, typer.Option(help="Trainings of a representation, by seed.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
Names = Annotated[
    list[str] | None, typer.Option(help="Which ones. Default: those of the paper's table.")
]
Settings = Annotated[list[str] | None, typer.Option(help="paper, ours. Default: paper.")]
Quick = Annotated[bool, typer.Option(help="A smoke form: few rows, epochs, seeds.")]
Merge = Annotated[
    list[Path] | None,
    typer.Option(help="Take finished rows of these folders and report; compute nothing."),
]


def gather(
    out: Path, merge: Sequence[Path] | None, open_files: Open, compute: Callable[[], object]
) -> None:
    """Compute what a study lacks, or take the finished rows of other folders instead."""
    if merge:
        say(f"{merge_folders(out, merge, open_files)} rows merged into {out}")
        return
    with keeping(out):
        compute()


@contextmanager
def keeping(out: Path) -> Iterator[None]:
    """Ctrl-C ends with a sentence that says where to go on."""
    try:
        yield
    except KeyboardInterrupt as stop:
        raise Interrupted(
            f"interrupted; finished cells are in {out}, and the same command goes on from there"
        ) from stop


def known_predictors(names: list[str] | None, default: list[str] | tuple[str, ...]) -> list[str]:
    return known("predictor", names or default, tuple(PREDICTORS))


def known_settings(names: list[str] | None) -> list[Setting]:
    asked = known("setting", names or ["paper"], SETTINGS)
    return [setting for setting in SETTINGS if setting in asked]


def run_count(runs: int | None, quick: bool) -> int:
    return positive("--runs", runs if runs is not None else QUICK_RUNS if quick else 5)


def make_scale(quick: bool, epochs: int | None) -> Scale:
    scale = QUICK if quick else FULL
    return scale if epochs is None else replace(scale, epochs=positive("--epochs", epochs))


def show_findings(findings: Sequence[Finding], setting: str = "") -> None:
    """One line each: yes, no, or open where cells are missing."""
    words = {True: "[green]yes [/]", False: "[red]no  [/]", None: "[yellow]open[/]"}
    if setting and findings:
        say(f"setting {setting}:")
    for finding in findings:
        line = f"{finding.claim}: {finding.evidence}".replace("[", r"\[")
        console.print(f"{words[finding.holds]} {line}", markup=True, soft_wrap=True)


def say(line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)
