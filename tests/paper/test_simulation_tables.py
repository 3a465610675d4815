"""Claims: the table shows ours beside the paper's with a count; the figure has every curve."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from paper.report import block_markdown, write_study
from paper.simulation import simulation_blocks
from paper.store import Row
from tests.paper.test_simulation_findings import paper_rows


def curves(variant: str, run: int, length: int = 3) -> Row:
    names = [
        f"{m}_{s}" for m in ("kl_aggregate", "sigreg", "cov_deviation") for s in ("s_x", "s_y")
    ]
    series = [1.0 + run + e for e in range(length)]
    return {"variant": variant, "run": run, **dict.fromkeys([*names, "coupling"], series)}


def table_of(rows: list[Row]) -> str:
    return block_markdown(simulation_blocks(rows, [])[0])


def test_table_has_every_cell_and_the_count() -> None:
    text = table_of(paper_rows())
    assert "**100 of 100 cells agree with the paper.**" in text
    assert text.count("✓") >= 100
    assert "over 2 runs" in text
    body = [line for line in text.splitlines() if re.match(r"\| [A-J] \|", line)]
    assert len(body) == 20
    assert all(line.count("<br>") == 5 for line in body)
    assert "4.0e-04 ± 1.0e-04" in body[0]


def test_table_of_some_variants_and_a_diverged_run() -> None:
    rows = [row for row in paper_rows() if row["variant"] in "AG"]
    rows[0]["sigreg"] = None
    text = table_of(rows)
    assert "of 20 cells" in text
    assert "diverged" in text


def test_files_are_written_and_reproducible(tmp_path: Path) -> None:
    broken = curves("C", 1)
    broken["coupling"] = [None, 1.0, 2.0]
    rows = [curves("A", 0), curves("A", 1), curves("C", 0), broken]
    write_study(tmp_path, simulation_blocks(paper_rows(), rows))
    svg = (tmp_path / "epoch_diagnostics.svg").read_bytes()
    ElementTree.fromstring(svg)
    text = svg.decode()
    assert "ELBO (Var-JEPA)" in text
    assert "ELBO + SIGReg on s_y" in text
    assert "E KL(q(s_y|s_x,z,y)" in text
    write_study(tmp_path, simulation_blocks(paper_rows(), rows))
    assert (tmp_path / "epoch_diagnostics.svg").read_bytes() == svg


def test_no_figure_without_followed_variants(tmp_path: Path) -> None:
    write_study(tmp_path, simulation_blocks(paper_rows(), []))
    assert not (tmp_path / "epoch_diagnostics.svg").exists()
