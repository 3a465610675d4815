"""``varjepa score``: how typical and how uncertain every row is."""

from __future__ import annotations

from varjepa.cli.options import (
    Device,
    Model,
    Out,
    Overwrite,
    RawText,
    Table,
    check_model,
    check_out,
    check_source,
    load_model,
    read_rows,
    write_result,
)


def score(
    model: Model,
    table: Table,
    out: Out,
    device: Device = "auto",
    overwrite: Overwrite = False,
    raw_text: RawText = False,
) -> None:
    """Per row: the objective, its five terms, and every kind of uncertainty."""
    check_model(model)
    check_source(table)
    check_out(out, [table], overwrite)

    import pyarrow as pa

    estimator = load_model(model, device, out)
    rows = read_rows(table)
    columns = {
        "score": estimator.score_samples(rows),
        **estimator.score_terms(rows),
        **{f"uncertainty_{n.split()[0]}": u for n, u in estimator.uncertainties(rows).items()},
    }
    write_result(pa.table(columns), out, raw_text)
