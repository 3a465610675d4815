"""``python -m paper all``: every study into one folder, then the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from paper import commands as beyond
from paper import commands as paper
from paper import commands as studies
from paper.commands import (
    QUICK_DATASETS,
    Device,
    Out,
    Quick,
    keeping,
    known_settings,
    make_scale,
    report,
    say,
)
from paper.datasets.catalogue import DATASETS
from paper.plan import REPEATS, check_everything, share_out
from paper.report.page import check_can_report
from paper.results import known_datasets
from paper.settings import SETTINGS
from varjepa.environment import pick_device

PAGE, DOCUMENT = "report.html", "reproduction.md"
"""the page, and all tables as Markdown"""

Step = tuple[str, Callable[[], None]]


def everything(
    out: Out,
    datasets: Annotated[
        list[str] | None, typer.Option(help="Restrict every study to these. Default: all.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option(help="Default: paper and ours; with --quick paper.")
    ] = None,
    device: Device = "auto",
    quick: Quick = False,
) -> None:
    """Run every experiment, sharing what is trained, and write all tables and report.html."""
    default = QUICK_DATASETS if quick else list(DATASETS)
    names = known_datasets(datasets or default)
    chosen: list[str] = [*known_settings(settings or (["paper"] if quick else list(SETTINGS)))]
    pick_device(device)
    check_can_report()
    check_everything(out, names, make_scale(quick, None), studies.defaults_settings(None, quick))
    steps = plan_steps(out, names, chosen, device, quick)
    with keeping(out):
        for number, (title, run) in enumerate(steps, start=1):
            say(f"{number} of {len(steps)}: {title}")
            run()
        report(out, out / PAGE, [out / DOCUMENT])


def plan_steps(
    out: Path, datasets: list[str], settings: list[str], device: str, quick: bool
) -> list[Step]:
    """The studies in order, each with its part of the datasets; those with none are left out."""
    share = share_out(datasets)
    steps: list[Step] = [
        ("simulation", lambda: studies.reproduce_simulation_command(out, quick=quick))
    ]
    defaults = [name for name in share.defaults if name == "sim" or not quick]
    if defaults:
        steps.append(
            (
                "defaults",
                lambda: studies.reproduce_defaults_command(
                    out, datasets=defaults, device=device, quick=quick
                ),
            )
        )
    steps.append(
        (
            "downstream",
            lambda: paper.downstream(
                out, datasets=share.downstream, settings=settings, device=device, quick=quick
            ),
        )
    )
    if share.repeated and not quick:
        steps.append(
            (
                f"downstream, {REPEATS} pre-training seeds",
                lambda: paper.downstream(
                    out,
                    datasets=share.repeated,
                    representations=["var_t_jepa"],
                    settings=settings,
                    embeddings=REPEATS,
                    device=device,
                ),
            )
        )
    steps.append(
        (
            "labels",
            lambda: beyond.labels(
                out, datasets=share.downstream, settings=settings, device=device, quick=quick
            ),
        )
    )
    if share.uncertainty:
        steps.append(
            (
                "uncertainty",
                lambda: paper.uncertainty(
                    out, datasets=share.uncertainty, settings=settings, device=device, quick=quick
                ),
            )
        )
    seeds = [name for name in share.uncertainty if name in share.repeated]
    if seeds and not quick:
        steps.append(
            (
                f"uncertainty, {REPEATS} pre-training seeds",
                lambda: paper.uncertainty(
                    out, datasets=seeds, settings=settings, embeddings=REPEATS, device=device
                ),
            )
        )
    if share.sensitivity:
        steps.append(("sensitivity", lambda: paper.sensitivity(out, device=device, quick=quick)))
    if "ours" in settings and not quick:
        steps.append(("tries", lambda: beyond.tries(out, datasets=share.downstream, device=device)))
    return steps
