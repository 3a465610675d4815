"""``varjepa sample``: new rows like those of the table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from varjepa.cli.options import (
    Device,
    Model,
    Out,
    Overwrite,
    RawText,
    Seed,
    check_model,
    check_out,
    check_source,
    load_model,
    read_rows,
    write_result,
)
from varjepa.cli.shell import positive, seed_number


def sample(
    model: Model,
    out: Out,
    given: Annotated[
        Path | None, typer.Argument(help="A table with values of some columns to condition on.")
    ] = None,
    rows: Annotated[
        int | None, typer.Option(help="Number of rows. Default: 100, or as many as GIVEN has.")
    ] = None,
    device: Device = "auto",
    seed: Seed = 0,
    overwrite: Overwrite = False,
    raw_text: RawText = False,
) -> None:
    """Sample new rows, whole or conditional on some columns."""
    random_state = seed_number(seed)
    check_model(model)
    if given is not None:
        check_source(given)
        check_out(out, [given], overwrite)

    from varjepa.tables import read_table

    estimator = load_model(model, device, out)
    fixed = None if given is None else read_rows(given)
    count = rows if rows is not None else 100 if fixed is None else fixed.num_rows
    sampled = estimator.sample(positive("--rows", count), given=fixed, random_state=random_state)
    write_result(read_table(sampled), out, raw_text)
