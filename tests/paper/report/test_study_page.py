"""Claims about ``python -m paper report DIR``, on small hand-made result files.

1. A cell shows ours, the paper's and the difference in standard deviations, with a verdict that is
   a sign as well as a colour; what the paper has and we do not is marked as missing.
2. A study without results is named with the command that runs it; rows that are not of the full
   study are said to be so; the foot says where the rows come from.
3. Names from the files are only ever text, in tables and in figures; the page has no script, loads
   nothing, and the same files give the same bytes.
4. A folder without results, and files that are unreadable, foreign or damaged, end in one sentence
   that names the file, exit code 2, and no page.
5. A real browser builds the page, and its policy blocks nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paper.__main__ import main
from paper.report.cells import (
    Cell,
    CellTable,
    Group,
    Line,
    accuracy_cell,
    diagnostic_cell,
    metric_cell,
)
from paper.report.files import FILES
from paper.report.page import render_study_page
from paper.results import Summary
from paper.simulation_findings import Summary as SimulationSummary
from tests.paper.report.test_paper_tables import downstream_rows, uncertainty_rows
from tests.paper.report.test_simulation import curves
from tests.paper.test_simulation_findings import paper_rows
from tests.report.test_page import HOSTILE, POLICY, Reader
from tests.report.test_page_in_browser import chromium
from varjepa.errors import InputError

Captured = pytest.CaptureFixture[str]
Row = dict[str, Any]

ENVIRONMENT = {"varjepa": "0.1.0", "commit": "0123456789ab", "device": "NVIDIA H200", "cores": 16}
STAMP = {"format_version": 1, "settings": {"epochs": 2}, "environment": ENVIRONMENT}
STAMP |= {"seconds": 1.0, "uncertainty": "posterior mean"}


def write(folder: Path, name: str, rows: Sequence[Row]) -> None:
    folder.mkdir(exist_ok=True)
    stamped = [{**STAMP, **row} for row in rows]
    (folder / name).write_text(json.dumps(stamped), encoding="utf-8")


def sensitivity_rows(**changes: Any) -> list[Row]:
    about = {"table": "weights", "column": "Base", "predictor": "mlp", **changes}
    return [{**row, **about} for row in downstream_rows(0.853)]


def per_row(**changes: Any) -> Row:
    u = [i / 40 for i in range(40)]
    about = {"dataset": "sim", "setting": "paper", "embedding_seed": 0, "score": "posterior q90"}
    wrong = [int(i % 3 == 0) for i in range(40)]
    return {**about, "uncertainty": u[::-1], "ambiguity": u, "wrong": wrong, **changes}


def defaults_row(dataset: str = "adult") -> Row:
    by_coverage = {"100%": 0.855, "90%": 0.86, "80%": 0.87, "50%": 0.9}
    hole = dict.fromkeys(("rmse", "mean_rmse", "accuracy", "mode_accuracy"), 0.5)
    fidelity = dict.fromkeys(("marginal", "pairwise", "auroc"), 0.5)
    return {
        "dataset": dataset,
        "selected_by": "held-out objective",
        "seed": 0,
        "epochs": 20,
        "best_epoch": 10,
        "accuracy": dict.fromkeys(("posterior", "predictive", "surprise", "nll"), by_coverage),
        "holes": {"5%": hole, "20%": hole},
        "samples": {"drawn": fidelity, "real": fidelity},
    }


def label_rows(**changes: Any) -> list[Row]:
    return [
        {
            "dataset": "adult",
            "representation": name,
            "predictor": "logistic",
            "setting": "paper",
            "labels": size,
            "seed": seed,
            "accuracy": 0.7 + gain + 0.01 * seed,
            "test_rows": 100,
            **changes,
        }
        for name, gain in (("raw", 0.0), ("var_t_jepa", 0.05))
        for size in (50, 100)
        for seed in (0, 1)
    ]


def try_rows(name: str = "base", accuracy: float = 0.9) -> list[Row]:
    about = {"dataset": "sim", "try": name, "predictor": "mlp", "uncertainty": "nll mean"}
    numbers = {"seed": 0, "best_epoch": 15, "accuracy": accuracy, "spearman": 0.4}
    return [{**about, **numbers, "coverage": coverage} for coverage in (1.0, 0.9, 0.8, 0.5)]


def training_row() -> Row:
    about = {"dataset": "adult", "model": "var_t_jepa", "setting": "paper", "seed": 0}
    counts = {"seconds": 90.0, "epochs": 100, "best_epoch": 35}
    return {**about, **counts, "scale": 8.0, "effective_rank": 20.5, "varying_share": 0.5}


def everything(folder: Path) -> None:
    """One file of each kind."""
    image = {"level": 0.0, "u": 0.01, "pixels": [7] * 784}
    write(folder, "simulation.json", paper_rows())
    write(folder, "epoch_diagnostics.json", [curves("A", 0), curves("A", 1)])
    write(folder, "downstream.json", downstream_rows() + downstream_rows(0.95, coverage=0.5))
    write(folder, "representations.json", [training_row()])
    write(folder, "uncertainty.json", uncertainty_rows())
    write(folder, "uncertainty_rows.json", [per_row(images=[image, {**image, "level": 0.99}])])
    write(folder, "sensitivity.json", sensitivity_rows())
    write(folder, "low_labels.json", label_rows())
    write(folder, "tries.json", try_rows())
    write(folder, "defaults.json", [defaults_row()])


def line_of(page: str, title: str) -> list[str]:
    """The cells of the first line with this title, as the words a reader sees."""
    start = page.index(f'<th scope="row"><bdi>{title}</bdi></th>')
    cells = page[start : page.index("</tr>", start)].split("<td")[1:]
    return [" ".join(Reader(f"<td{cell}").text) for cell in cells]


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main([str(a) for a in arguments])
    return int(stop.value.code or 0)


# --- cells


def test_verdicts_follow_the_difference_in_standard_deviations() -> None:
    ours = Summary(0.86, 0.003, 10_000)  # √(.003² + .004² + 2 · .00347²) = .007
    assert accuracy_cell(ours, (0.853, 0.004)) == Cell(
        ".860 ± .0030 ✓", ".853 ± .0040", "+1.0 σ", "near"
    )
    assert accuracy_cell(ours, (0.84, 0.004)).verdict == "better"
    worse = accuracy_cell(ours, (0.88, 0.004))
    assert (worse.gap, worse.verdict) == ("−2.9 σ", "worse")
    assert "✓" not in worse.ours
    assert accuracy_cell(None, (0.88, None)) == Cell("", ".880", "", "missing")
    assert accuracy_cell(ours, None) == Cell(".860 ± .0030")
    assert accuracy_cell(None, None) == Cell()
    assert accuracy_cell(ours, (0.8601, 0.004)).gap == "+0.0 σ"  # no minus zero


def test_diagnostics_agree_or_differ() -> None:
    same = diagnostic_cell(SimulationSummary(0.11, 0.03), (0.15, 0.04), True)
    assert same == Cell("0.110 ± 0.030 ✓", "0.150 ± 0.040", "−0.8 σ", "near")
    single = diagnostic_cell(SimulationSummary(9.0, float("nan")), (1.0, 2.0), False)
    assert single == Cell("9.000", "1.000 ± 2.000", "+4.0 σ", "differs")


def test_a_single_number_of_the_paper_is_compared_in_the_sense_of_its_metric() -> None:
    higher = metric_cell([0.6, 0.62, 0.64], 0.5, lower_is_better=False)
    assert higher == Cell(".6200 ± .0200", ".500", "+6.0 σ", "better")
    assert metric_cell([0.6, 0.62, 0.64], 0.5, lower_is_better=True).verdict == "worse"
    assert metric_cell([0.6, 0.62, 0.64], 0.6, lower_is_better=True).verdict == "near"
    # runs that do not differ have no standard deviation to count in
    assert metric_cell([0.7, 0.7], 0.64, lower_is_better=False) == Cell(
        ".7000 ± .0000", ".640", "+0.060", "better"
    )
    assert metric_cell([0.6402], 0.64, lower_is_better=False).verdict == "near"
    with pytest.raises(ValueError, match="x: 1 cells"):
        CellTable("t", "", ["a", "b"], [Group("", [Line("x", [Cell()])])])


# --- the page


def test_paper_and_ours_stand_side_by_side(tmp_path: Path) -> None:
    everything(tmp_path)
    page = render_study_page(tmp_path)
    assert page == render_study_page(tmp_path)
    adult, covertype = line_of(page, "Var-T-JEPA")[:2]
    assert re.fullmatch(r"● near: \.860 ± \.0014 ✓ \.852 ± \.0021 \+1\.\d σ", adult)
    assert covertype == "○ missing .679 ± .0290"
    half = line_of(page, "Var-T-JEPA, 50% left out")[0]
    assert re.fullmatch(r"▲ better: \.950 ± \.0014 ✓ \.921 ± \.0021 \+\d+\.\d σ", half)
    assert page.count('<td class="missing">') == 2 * 252 - 4 + 112 - 1 + 15
    first = line_of(page, "A: ELBO (Var-JEPA)")
    assert first[0] == "● near: 0.996 ± 0.003 ✓ 0.996 ± 0.002 +0.0 σ"
    base = line_of(page, "0% left out")
    assert base[0].endswith("σ")
    assert base[1].startswith("○ missing")
    latent = line_of(page, "latent (posterior q90)")
    assert latent[0] == "▼ worse: .2500 ± .0000 .640 −0.390"
    assert line_of(page, "checkpoint by held-out objective")[0].startswith("● near: .855 ✓ .852")
    text = " ".join(Reader(page).text)
    assert "100 of the 100 cells that are there agree" in text
    assert "Var-T-JEPA, setting paper, 1 dataset: 1.5 min" in text  # what trainings cost
    assert "2 of 168; 166 missing" in text
    assert "open:" in text  # what missing cells could decide
    assert "not run yet" not in text.lower()
    figures = [a for tag, a in Reader(page).elements if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 4
    assert all(a["aria-label"] for a in figures)


def test_every_colour_has_its_sign_and_its_word(tmp_path: Path) -> None:
    write(tmp_path, "downstream.json", downstream_rows() + downstream_rows(0.3, dataset="sim"))
    page = render_study_page(tmp_path)
    signs = {"better": "▲", "near": "●", "worse": "▼", "differs": "◆"}
    coloured = re.findall(r'<td class="(better|near|worse|differs)">(.*?)</td>', page)
    assert {verdict for verdict, _ in coloured} == {"better", "near", "worse"}
    for verdict, cell in coloured:
        assert f'<b aria-hidden="true">{signs[verdict]}</b>' in cell
        assert f'<i class="hidden">{verdict}:</i>' in cell


def test_what_is_not_there_is_named_with_its_command(tmp_path: Path) -> None:
    folder = tmp_path / "my results"
    write(folder, "downstream.json", downstream_rows())
    text = " ".join(Reader(render_study_page(folder)).text)
    for study in ("simulation", "uncertainty", "sensitivity", "labels", "tries", "defaults"):
        assert f"python -m paper {study} --out '{folder}'" in text
    assert text.count("not run yet") == 6
    assert text.count("Not run yet.") == 6
    assert "502 cells are missing" in text
    # hand-made rows have no settings: whoever reads the page must know
    assert "Not the full study: downstream.json holds results of other settings" in text
    assert "0123456789ab" in text
    assert "NVIDIA H200" in text


def test_a_quick_simulation_and_a_diverged_run_are_said_to_be_so(tmp_path: Path) -> None:
    rows = [row for row in paper_rows() if row["variant"] == "G"]
    rows[0] = {**rows[0], "sigreg": None}
    write(tmp_path, "simulation.json", rows)
    page = render_study_page(tmp_path)
    assert "Not the full study: " in page
    assert line_of(page, "G: ELBO without rec and gen")[2].startswith("◆ differs: diverged")
    assert line_of(page, "A: ELBO (Var-JEPA)")[2] == "○ missing 4.0e-04 ± 1.0e-04"


@pytest.mark.parametrize("shift", range(0, len(HOSTILE), 3))
def test_names_from_the_files_are_only_ever_text(tmp_path: Path, shift: int) -> None:
    def name(i: int) -> str:
        return f"{i} {HOSTILE[(i + shift) % len(HOSTILE)]}"

    other = downstream_rows(dataset=name(0)) + downstream_rows(representation=name(1))
    other += downstream_rows(predictor=name(2)) + downstream_rows(setting=name(3))
    write(tmp_path, "downstream.json", other)
    trained = [{**training_row(), "dataset": name(4)}, {**training_row(), "model": name(4)}]
    write(tmp_path, "representations.json", trained)
    write(tmp_path, "sensitivity.json", sensitivity_rows(column=name(5), table=name(6)))
    scored = [{**row, "dataset": name(7), "score": name(8)} for row in uncertainty_rows()[:1]]
    write(tmp_path, "uncertainty.json", scored)
    write(tmp_path, "uncertainty_rows.json", [per_row(dataset=name(9) + "\x00\ud800|")])
    variant = [{**row, "variant": name(10)} for row in paper_rows()[:1]]
    write(tmp_path, "simulation.json", variant)
    write(tmp_path, "epoch_diagnostics.json", [curves(name(10), 0)])
    row = {**defaults_row(name(11)), "environment": {**ENVIRONMENT, "device": name(12)}}
    write(tmp_path, "defaults.json", [row])
    page = render_study_page(tmp_path)
    reader = Reader(page)
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in reader.elements}
    text = " ".join(reader.text)
    for i in (0, 1, 2, 3, 5, 6, 7, 8, 10, 11, 12):
        assert name(i) in text, i
    figure = [t for t in reader.text if t.startswith("A. 9 ")]
    assert len(figure) == 1
    page.encode()  # no lone surrogate is left


def test_nothing_is_loaded_and_nothing_runs(tmp_path: Path) -> None:
    everything(tmp_path)
    reader = Reader(render_study_page(tmp_path))
    policies = [
        a["content"] for _, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == [POLICY]
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for tag, attributes in reader.elements:
        assert tag not in ("script", "link", "iframe", "object", "base")
        assert not [name for name in attributes if name.startswith("on")]
        for name, value in attributes.items():
            if name in ("href", "src", "xlink:href"):
                assert (value or "").startswith(("#", "data:image/png;base64,")), (tag, name)
                if (value or "").startswith("#"):
                    assert (value or "")[1:] in ids
            elif name not in ("title", "aria-label"):
                assert "://" not in (value or ""), (tag, name, value)


# --- wrong input


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "content",
    ["not json", "{}", "[1]", "[{}]", '[{"variant": "A"}]', "[" * 100_000, "[" + "9" * 5000 + "]"],
)
def test_foreign_files_are_named_in_one_sentence(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
        render_study_page(tmp_path)


@pytest.mark.parametrize(
    ("name", "column", "value", "says"),
    [
        ("simulation.json", "accuracy", "high", "row 0.accuracy must be a finite number"),
        ("simulation.json", "kl_aggregate", 1e300, "row 0.kl_aggregate must be below"),
        ("simulation.json", "format_version", 2, "has format version 2, this varjepa reads 1"),
        ("simulation.json", "environment", {"device": []}, "environment.device must be text"),
        ("simulation.json", "accuracy", 10**400, "row 0.accuracy must be a finite number"),
        ("epoch_diagnostics.json", "coupling", [1.0], "curves of different lengths"),
        ("downstream.json", "accuracy", 1.5, "row 0.accuracy must be between 0 and 1"),
        ("downstream.json", "test_rows", 0, "row 0.test_rows must be at least 1"),
        ("downstream.json", "seed", 1, "has two rows of one dataset"),
        ("downstream.json", "dataset", ["adult"], "row 0.dataset must be text"),
        ("representations.json", "seconds", None, "row 0.seconds must be a finite number"),
        ("uncertainty.json", "spearman", -2, "row 0.spearman must be between -1 and 1"),
        ("uncertainty.json", "error_rate", None, "lacks the error rate of its classifier"),
        ("uncertainty.json", "environment", "0123", "does not say what environment 0123"),
        ("uncertainty_rows.json", "wrong", [0], "lists of different lengths"),
        ("uncertainty_rows.json", "ambiguity", [0.5] * 40, "below the ambiguity's quartile"),
        ("uncertainty_rows.json", "images", [{"level": 0, "u": 0, "pixels": [1]}], "784 numbers"),
        ("sensitivity.json", "coverage", "all", "row 0.coverage must be a finite number"),
        ("low_labels.json", "labels", 0, "row 0.labels must be at least 1"),
        ("tries.json", "spearman", "high", "row 0.spearman must be a finite number"),
        ("defaults.json", "holes", {}, "row 0.holes.5% must be a JSON object"),
        ("defaults.json", "accuracy", {"posterior": 1}, "accuracy.posterior must be a JSON object"),
    ],
)
def test_damaged_rows_are_named(
    tmp_path: Path, name: str, column: str, value: Any, says: str
) -> None:
    everything(tmp_path)
    rows = json.loads((tmp_path / name).read_text(encoding="utf-8"))
    rows[0][column] = value
    (tmp_path / name).write_text(json.dumps(rows), encoding="utf-8")
    with pytest.raises(InputError, match=says):
        render_study_page(tmp_path)


def test_the_command_writes_a_page_or_says_why_not(tmp_path: Path, capsys: Captured) -> None:
    def refused(*arguments: object) -> str:
        assert run("report", *arguments) == 2
        error = capsys.readouterr().err.strip()
        assert len(error.splitlines()) == 1
        assert "Traceback" not in error
        return error

    folder = tmp_path / "results"
    assert "does not exist" in refused(folder)
    folder.mkdir()
    assert "holds no results to report" in refused(folder)
    write(folder, "downstream.json", [])
    assert "holds no results to report" in refused(folder)
    assert "is a file, not a folder" in refused(folder / "downstream.json")
    (folder / "simulation.json").write_bytes(b"\xff\xfe")
    assert "simulation.json is not a JSON file" in refused(folder)
    (folder / "simulation.json").unlink()
    (folder / "simulation.json").mkdir()
    assert "simulation.json" in refused(folder)
    (folder / "simulation.json").rmdir()
    assert [path.name for path in folder.iterdir()] == ["downstream.json"]
    write(folder, "downstream.json", downstream_rows())
    assert "cannot write the report" in refused(folder, "--out", folder)
    assert run("report", folder) == 0
    assert run("report", folder, "--out", tmp_path / "new" / "page.html") == 0
    assert "page.html" in capsys.readouterr().out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert page == (tmp_path / "new" / "page.html").read_text(encoding="utf-8")
    assert page.endswith("</html>")


def test_a_browser_builds_the_page(tmp_path: Path) -> None:
    everything(tmp_path)
    write(tmp_path, "sensitivity.json", sensitivity_rows(column=HOSTILE[1]))
    assert run("report", tmp_path) == 0
    reader = Reader(chromium(tmp_path, "--dump-dom"))
    text = " ".join(reader.text)
    for heading in ("At a glance", "Simulation study", "Downstream predictors", "Uncertainty"):
        assert heading in text
    assert HOSTILE[1] in text
    assert "missing" in text
    assert not {"script", "img"} & {tag for tag, _ in reader.elements}
    images = [a["href"] or "" for tag, a in reader.elements if tag == "image"]
    assert images
    assert all(href.startswith("data:image/png;base64,") for href in images)
