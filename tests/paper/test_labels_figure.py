"""Claims about the figure of the low-label curves.

1. A panel per model and dataset that has rows; a line for each of its curves, through the means.
2. The legend names every kind of curve once; raw columns belong to no setting.
3. The same rows give the same file. Rows of an unknown dataset, model or setting are not drawn.
"""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from paper import labels as label_figures
from paper.labels import draw_label_curves, labels_blocks
from paper.report import write_study

ROWS = [
    {
        "dataset": dataset,
        "predictor": predictor,
        "representation": name,
        "setting": setting,
        "labels": labels,
        "seed": seed,
        "accuracy": 0.5 + labels / 1000 + 0.02 * seed,
    }
    for dataset in ("sim", "adult")
    for predictor in ("mlp", "logistic")
    for name, setting in (("raw", "paper"), ("var_t_jepa", "ours"), ("var_t_jepa", "paper"))
    for labels in (200, 50)
    for seed in (0, 1)
    if (dataset, predictor) != ("sim", "mlp")
]


def test_panels_lines_and_legend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(label_figures, "save_svg", lambda figure, path: drawn.append(figure))
    draw_label_curves(ROWS, tmp_path / "it.svg")
    (figure,) = drawn
    assert [len(panel.lines) for panel in figure.axes] == [3, 3, 3, 0]  # logistic, then MLP
    assert [panel.axison for panel in figure.axes] == [True, True, True, False]
    assert [panel.get_title() for panel in figure.axes] == ["Adult", "Simulated", "", ""]
    for panel in figure.axes[:3]:
        for line in panel.lines:
            assert list(line.get_xdata()) == [50, 200]
            assert list(line.get_ydata()) == pytest.approx([0.56, 0.71])
        for band in panel.collections:  # ± .01: two draws that are .02 apart
            heights = band.get_paths()[0].vertices[:, 1]
            assert heights.min() == pytest.approx(0.55)
            assert heights.max() == pytest.approx(0.72)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "raw",
        "Var-T-JEPA, setting paper",
        "Var-T-JEPA, setting ours",
    ]


def test_the_same_rows_give_the_same_file(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        write_study(folder, labels_blocks(ROWS))
        assert {path.name for path in folder.iterdir()} == {"labels.md", "low_labels.svg"}
    text = (tmp_path / "a" / "low_labels.svg").read_bytes()
    assert text == (tmp_path / "b" / "low_labels.svg").read_bytes()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert re.search(rb">\s*logistic regression\s*<", text)


@pytest.mark.parametrize(
    "odd", [{"dataset": "iris"}, {"predictor": "resnet"}, {"setting": "theirs"}]
)
def test_rows_that_have_no_place_are_not_drawn(odd: dict[str, str], tmp_path: Path) -> None:
    rows = [{**row, **odd} for row in ROWS]
    write_study(tmp_path, labels_blocks(rows))
    assert [path.name for path in tmp_path.iterdir()] == ["labels.md"]
    write_study(tmp_path, labels_blocks(ROWS))
    alone = (tmp_path / "low_labels.svg").read_bytes()
    write_study(tmp_path, labels_blocks([*rows, *ROWS]))
    assert (tmp_path / "low_labels.svg").read_bytes() == alone


def test_the_legend_fits_one_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(label_figures, "save_svg", lambda figure, path: drawn.append(figure))
    draw_label_curves([row for row in ROWS if row["dataset"] == "sim"], tmp_path / "it.svg")
    (figure,) = drawn
    figure.canvas.draw()
    legend, whole = figure.legends[0].get_window_extent(), figure.bbox
    assert whole.x0 <= legend.x0 < legend.x1 <= whole.x1
    assert whole.y0 <= legend.y0 < legend.y1 <= whole.y1
