"""``varjepa score``: how typical and how uncertain every row is."""

from __future__ import annotations

from typing import Annotated

import typer

from varjepa.cli.options import (
    MEASURES,
    Device,
    Keep,
    Model,
    Out,
    Overwrite,
    RawText,
    Table,
    check_model,
    check_out,
    check_source,
    join_kept,
    load_model,
    parse_measure,
    read_rows,
    split_kept,
    write_result,
)


def score(
    model: Model,
    table: Table,
    out: Out,
    uncertainty: Annotated[
        list[str] | None, typer.Option(help=f"{MEASURES}. Default: the four kinds.")
    ] = None,
    per_column: Annotated[
        bool, typer.Option("--per-column", help="Also the uncertainty of every cell.")
    ] = False,
    keep: Keep = None,
    device: Device = "auto",
    overwrite: Overwrite = False,
    raw_text: RawText = False,
) -> None:
    """Per row: the objective, its five terms, and its uncertainty; on request also per cell.

    The uncertainty of a cell is of the kind that is asked for first, by default predictive.
    """
    check_model(model)
    check_source(table)
    check_out(out, [table], overwrite)

    import pyarrow as pa

    words = uncertainty or ["posterior", "predictive", "surprise", "nll"]
    measures = {f"uncertainty_{word.replace('-', '_')}": parse_measure(word) for word in words}
    estimator = load_model(model, device, out)
    rows, kept = split_kept(read_rows(table), keep, estimator)
    scores = estimator.uncertainties(rows, list(measures.values()))
    columns = {
        "score": estimator.score_samples(rows),
        **estimator.score_terms(rows),
        **dict(zip(measures, scores.values(), strict=True)),
    }
    if per_column:
        kind = parse_measure((uncertainty or ["predictive"])[0])[0]
        cells = estimator.cell_uncertainty(rows, kind)
        read = getattr(estimator, "feature_names_in_", cells.column_names)
        columns |= {f"uncertainty:{n}": cells[n] for n in cells.column_names if n in read}
    write_result(join_kept(kept, pa.table(columns)), out, raw_text)
