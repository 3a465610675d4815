"""Claims about the reports of the paper's experiments on datasets.

1. Cells of the paper that are not there are shown as missing, with the paper's number.
2. A cell shows ours, the paper's, and the difference in standard deviations; ✓ marks what reaches
   the paper, and what is not in the paper stands alone.
3. Pre-training seeds and costs have tables.
4. The uncertainty tables print the shared classifier's error; figures are drawn from rows alone,
   are well-formed SVG, and the same rows give the same file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from paper.compare import Block, Summary, accuracy_cell, deviations, short
from paper.downstream import downstream_blocks
from paper.report import block_markdown, write_study
from paper.sensitivity import sensitivity_blocks
from paper.uncertainty import PAPER_SCORES, SHARED_SCORES, TOLD, uncertainty_blocks
from varjepa.report.tables import Cell, Table, to_markdown

METRICS = (
    "spearman", "auroc", "validation_spearman", "aurc", "aurc_trapezoid", "aurc_collapsed", "augrc",
    "error_rate",
)  # fmt: skip


def downstream_rows(accuracy: float = 0.86, **changes: Any) -> list[dict[str, Any]]:
    row = {
        "dataset": "adult",
        "representation": "var_t_jepa",
        "predictor": "mlp",
        "setting": "paper",
        "embedding_seed": 0,
        "coverage": 1.0,
        "f1_macro": 0.7,
        "f1_weighted": 0.85,
        "test_rows": 9768,
        **changes,
    }
    return [{**row, "seed": s, "accuracy": accuracy + d} for s, d in ((0, -0.001), (1, 0.001))]


def text_of(blocks: list[Block]) -> str:
    return "\n\n".join(map(block_markdown, blocks))


def downstream_report(rows: list[Any], trainings: list[Any]) -> str:
    return text_of(downstream_blocks(rows, trainings))


def uncertainty_report(rows: list[Any]) -> str:
    return text_of(uncertainty_blocks(rows, []))


def test_what_is_not_there_is_missing() -> None:
    report = downstream_report(downstream_rows(), [])
    # by coverage 24 rows; on all rows 18 (raw, T-JEPA, Var-T-JEPA); weighted F1 36
    assert report.count("missing<br>") == 7 * (24 + 18 + 36) - 3
    assert (
        "| MLP | T-JEPA | paper | missing<br>*.849 ± .0044* | missing<br>*.408 ± .2300* |" in report
    )
    rows = [{**r, "table": "weights", "column": "Base"} for r in downstream_rows()]
    assert text_of(sensitivity_blocks(rows)).count("missing<br>") == 2 * 7 * 8 - 1
    rows = [row for row in uncertainty_rows() if row["score"] == "latent"]
    uncertainty = uncertainty_report(rows)
    assert uncertainty.count("<br>*") == 2 * 5 * 3
    assert "not computed yet" in uncertainty
    for blocks in (downstream_blocks([], []), sensitivity_blocks([]), uncertainty_blocks([], [])):
        assert "Not run yet: `python -m paper" in text_of(blocks)


def test_a_cell_shows_both_and_how_far_apart_they_are() -> None:
    ours = Summary(0.86, 0.003, 10_000)
    # √(.003² + .004² + 2 · .00347²) = .007
    assert deviations(ours, (0.853, 0.004)) == pytest.approx(1.0, abs=0.01)

    def text(ours: Summary | None, paper: tuple[float, float | None] | None) -> str:
        table = Table("", ["a"], [[accuracy_cell(ours, paper)]])
        return to_markdown(table).splitlines()[-1][2:-2]

    assert text(ours, (0.853, 0.004)) == ".860 ± .0030 (+1.0 σ) ✓<br>*.853 ± .0040*"
    assert text(ours, (0.9, None)) == ".860 ± .0030 (−7.0 σ)<br>*.900*"
    assert text(ours, None) == ".860 ± .0030"
    assert text(None, (0.9, None)) == "missing<br>*.900*"
    assert accuracy_cell(None, None) == Cell()
    assert (short(None), short(-0.25), short(1.5)) == ("–", "-.250", "1.500")


def test_the_table_has_ours_in_its_place() -> None:
    rows = downstream_rows() + downstream_rows(0.9, coverage=0.5)
    rows += downstream_rows(0.85, representation="pca") + downstream_rows(0.8, dataset="sim")
    rows += downstream_rows(0.87, representation="raw")
    report = downstream_report(rows, [])
    lines = report.splitlines()
    full = next(line for line in lines if line.startswith("| MLP | Var-T-JEPA | "))
    assert full.split("|")[3].strip().startswith(".860 ± .0014 (+")
    assert full.split("|")[4].strip() == "missing<br>*.679 ± .0290*"
    assert any(line.startswith("| MLP | PCA of raw |  | .850 ± .0014 |  |") for line in lines)
    assert "| MLP | Var-T-JEPA (50% left out) | .900 ± .0014 (−" in report
    assert "| adult | paper | Var-T-JEPA | 1 of 1 | MLP -0.010 |" in report


def test_pre_training_seeds_and_costs_have_their_tables() -> None:
    rows = downstream_rows() + downstream_rows(0.8, embedding_seed=1)
    training = {
        "dataset": "adult",
        "model": "var_t_jepa",
        "setting": "paper",
        "seed": 0,
        "seconds": 90.0,
        "epochs": 100,
        "best_epoch": 35,
        "scale": 8.0,
        "effective_rank": 20.5,
        "varying_share": 0.5,
    }
    report = downstream_report(rows, [training, {**training, "seed": 1, "seconds": 30.0}])
    assert "| adult | paper | 1 | .800 | – | – | – | – |" in report
    assert "| adult | paper | all 2 | .830 ± .0424 | – | – | – | – |" in report
    assert "Var-T-JEPA, setting paper, 1 dataset: 1.5 min. All 2 trainings: 2.0 min" in report
    assert "| adult | Var-T-JEPA | paper | 0 | 90 | 35/100 | 8 | 20.5 | 0.5 |" in report


def uncertainty_rows() -> list[dict[str, Any]]:
    about = {"dataset": "sim", "setting": "paper", "embedding_seed": 0, "latent": "posterior q90"}
    values = dict.fromkeys(METRICS, 0.25)
    return [
        {**about, **values, "arrangement": arrangement, "score": score, "seed": seed}
        for arrangement, scores in (("shared", SHARED_SCORES), ("paper", PAPER_SCORES))
        for score in scores
        for seed in (0, 1)
    ]


def test_uncertainty_tables() -> None:
    rows = uncertainty_rows()
    report = uncertainty_report(rows)
    assert "- ✗ sim: a latent score finds ambiguous rows" in report
    assert "Pre-training seeds" not in report
    several = uncertainty_report(rows + [{**row, "embedding_seed": 1} for row in rows])
    assert "| sim | paper | 1 | posterior q90 | .2500 ± .0000 |" in several
    assert "a perceptron with an error of .250" in report
    assert "| latent (posterior q90) | .2500 ± .0000<br>*.640* |" in report
    assert "| combined | .2500 ± .0000 |" in report
    assert "### mnist" in report  # missing, and shown so
    assert "told u" not in report
    found = {"arrangement": "bound", "score": TOLD, "seed": 0, "spearman": 0.66, "auroc": 0.88}
    bound = {**rows[0], **dict.fromkeys(METRICS), **found}
    told = "are told u of the training rows find it in the test rows' columns with a Spearman of "
    assert told + ".6600 and an AUROC of .8800." in uncertainty_report([*rows, bound])


def test_figures_are_drawn_from_rows_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    u = rng.random(60)
    row = {
        "dataset": "sim",
        "setting": "paper",
        "embedding_seed": 0,
        "score": "posterior q90",
        "uncertainty": (u + 0.1 * rng.random(60)).tolist(),
        "ambiguity": u.tolist(),
        "wrong": (rng.random(60) < u).astype(int).tolist(),
    }
    image = {"level": 0.0, "u": 0.01, "pixels": rng.integers(0, 256, 784).tolist()}
    mnist = {**row, "dataset": "mnist", "images": [image, {**image, "level": 0.99}]}
    unknown = {**row, "dataset": "adult", "ambiguity": None}
    write_study(tmp_path, uncertainty_blocks([], [mnist, row, unknown]))
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(first) == {"uncertainty.md", "uncertainty-paper.svg", "mnist_corruption.svg"}
    for name in ("uncertainty-paper.svg", "mnist_corruption.svg"):
        assert ElementTree.fromstring(first[name]).tag.endswith("svg")
    text = first["uncertainty-paper.svg"].decode()
    assert "A. mnist: AURC" in text
    assert "C. adult: AURC" in text
    assert text.count("AUROC") == 2
    write_study(tmp_path, uncertainty_blocks([], [mnist, row, unknown]))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == first
