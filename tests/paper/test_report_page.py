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
from paper.compare import Summary, accuracy_cell, metric_cell
from paper.report import FILES, render_page
from paper.simulation import simulation_cell
from tests.paper.test_report_tables import downstream_rows, uncertainty_rows
from tests.paper.test_simulation_findings import paper_rows
from tests.paper.test_simulation_tables import curves
from tests.report.test_page import HOSTILE, POLICY, Reader
from tests.report.test_page_in_browser import chromium
from varjepa.errors import InputError
from varjepa.report.tables import Cell

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


def line_of(page: str, *titles: str) -> list[str]:
    """The cells of the first line with these titles, as the words a reader sees."""
    start = page.index("".join(f'<th scope="row"><bdi>{title}</bdi></th>' for title in titles))
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
    assert accuracy_cell(ours, (0.84, 0.004)).mark == "better"
    worse = accuracy_cell(ours, (0.88, 0.004))
    assert (worse.gap, worse.mark) == ("−2.9 σ", "worse")
    assert "✓" not in worse.text
    assert accuracy_cell(None, (0.88, None)) == Cell("", ".880", "", "missing")
    assert accuracy_cell(ours, None) == Cell(".860 ± .0030")
    assert accuracy_cell(None, None) == Cell()
    assert accuracy_cell(ours, (0.8601, 0.004)).gap == "+0.0 σ"  # no minus zero


def test_diagnostics_agree_or_differ() -> None:
    rows = [{"variant": "A", "latent": "s_x", "accuracy": 0.996 + d} for d in (-0.003, 0.003)]
    same = simulation_cell(rows, "A", "s_x", "accuracy")
    assert same == Cell("0.996 ± 0.004 ✓", "0.996 ± 0.002", "+0.0 σ", "near")
    single = simulation_cell([{**rows[0], "accuracy": 0.9}], "A", "s_x", "accuracy")
    assert single == Cell("0.900", "0.996 ± 0.002", "−48.0 σ", "differs")
    diverged = simulation_cell([{**rows[0], "accuracy": None}], "A", "s_x", "accuracy")
    assert diverged == Cell("diverged", "0.996 ± 0.002", "", "differs")


def test_a_single_number_of_the_paper_is_compared_in_the_sense_of_its_metric() -> None:
    higher = metric_cell([0.6, 0.62, 0.64], 0.5, lower_is_better=False)
    assert higher == Cell(".6200 ± .0200", ".500", "+6.0 σ", "better")
    assert metric_cell([0.6, 0.62, 0.64], 0.5, lower_is_better=True).mark == "worse"
    assert metric_cell([0.6, 0.62, 0.64], 0.6, lower_is_better=True).mark == "near"
    # runs that do not differ have no standard deviation to count in
    assert metric_cell([0.7, 0.7], 0.64, lower_is_better=False) == Cell(
        ".7000 ± .0000", ".640", "+0.060", "better"
    )
    assert metric_cell([0.6402], 0.64, lower_is_better=False).mark == "near"


# --- the page


def test_paper_and_ours_are_compared(tmp_path: Path) -> None:
    everything(tmp_path)
    page = render_page(tmp_path)
    assert page == render_page(tmp_path)
    adult, covertype = line_of(page, "MLP", "Var-T-JEPA")[:2]
    assert re.fullmatch(r"● near: \.860 ± \.0014 ✓ \.852 ± \.0021 \+1\.\d σ", adult)
    assert covertype == "○ missing .679 ± .0290"
    half = line_of(page, "MLP", "Var-T-JEPA (50% left out)")[0]
    assert re.fullmatch(r"▲ better: \.950 ± \.0014 ✓ \.921 ± \.0021 \+\d+\.\d σ", half)
    downstream = 7 * (24 + 18 + 36) - 2 - 1 - 2
    assert page.count('<td class="missing">') == downstream + 2 * 7 * 8 - 1 + 3 * 5
    first = line_of(page, "A", "ELBO (Var-JEPA)")
    assert first[0] == "● near: 0.996 ± 0.003 ✓ 0.996 ± 0.002 +0.0 σ"
    base = line_of(page, "MLP", "0%")
    assert base[0].endswith("σ")
    assert base[1].startswith("○ missing")
    latent = line_of(page, "latent (posterior q90)")
    assert latent[0] == "▼ worse: .2500 ± .0000 .640 −0.390"
    text = " ".join(Reader(page).text)
    assert "100 of 100 cells agree" in text
    assert "Var-T-JEPA, setting paper, 1 dataset: 1.5 min" in text  # what trainings cost
    assert "2 of 168; 166 missing" in text
    assert "open:" in text  # what missing cells could decide
    assert "not run yet" not in text.lower()
    figures = [a for tag, a in Reader(page).elements if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 4
    assert all(a["aria-label"] for a in figures)


def test_every_colour_has_its_sign_and_its_word(tmp_path: Path) -> None:
    write(tmp_path, "downstream.json", downstream_rows() + downstream_rows(0.3, dataset="sim"))
    page = render_page(tmp_path)
    signs = {"better": "▲", "near": "●", "worse": "▼", "differs": "◆"}
    coloured = re.findall(r'<td class="(better|near|worse|differs)">(.*?)</td>', page)
    assert {verdict for verdict, _ in coloured} == {"better", "near", "worse"}
    for verdict, cell in coloured:
        assert f'<b aria-hidden="true">{signs[verdict]}</b>' in cell
        assert f'<i class="hidden">{verdict}:</i>' in cell


def test_what_is_not_there_is_named_with_its_command(tmp_path: Path) -> None:
    folder = tmp_path / "my results"
    write(folder, "downstream.json", downstream_rows())
    text = " ".join(Reader(render_page(folder)).text)
    for study in ("simulation", "uncertainty", "sensitivity", "labels"):
        assert f"python -m paper {study} --out '{folder}'" in text
    assert text.count("not run yet") == 4
    assert text.count("Not run yet.") == 5  # and no training is recorded
    assert f"{7 * (24 + 18 + 36) - 3} cells are missing" in text
    # hand-made rows have no settings: whoever reads the page must know
    assert "Not the full study: downstream.json holds results of other settings" in text
    assert "0123456789ab" in text
    assert "NVIDIA H200" in text


def test_a_quick_simulation_and_a_diverged_run_are_said_to_be_so(tmp_path: Path) -> None:
    rows = [row for row in paper_rows() if row["variant"] == "G"]
    rows[0] = {**rows[0], "sigreg": None}
    write(tmp_path, "simulation.json", rows)
    page = render_page(tmp_path)
    assert "Not the full study: " in page
    assert line_of(page, "G", "ELBO without rec and gen")[2].startswith("◆ differs: diverged")


@pytest.mark.parametrize("name", HOSTILE)
def test_names_from_the_files_are_only_ever_text(tmp_path: Path, name: str) -> None:
    """Of machines; rows with other names that this version does not know are left out."""
    everything(tmp_path)
    environment = {**ENVIRONMENT, "device": f"{name}\x00\ud800|"}
    rows = [{**row, "environment": environment} for row in downstream_rows()]
    other = [{**row, "dataset": f"odd {name}"} for row in downstream_rows()]
    write(tmp_path, "downstream.json", rows + other)
    latent = [{**row, "latent": name} for row in uncertainty_rows()]
    write(tmp_path, "uncertainty.json", latent)
    page = render_page(tmp_path)
    reader = Reader(page)
    assert not {"script", "img", "link", "iframe"} & {tag for tag, _ in reader.elements}
    text = " ".join(reader.text)
    assert name in text
    assert "<bdi>odd" not in page  # only in the warning, which is a sentence
    page.encode()  # no lone surrogate is left


def test_nothing_is_loaded_and_nothing_runs(tmp_path: Path) -> None:
    everything(tmp_path)
    reader = Reader(render_page(tmp_path))
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
        render_page(tmp_path)


@pytest.mark.parametrize(
    ("name", "column", "value", "says"),
    [
        ("simulation.json", "accuracy", "high", "row 0.accuracy must be a finite number"),
        ("simulation.json", "format_version", 2, "has format version 2, this varjepa has 1"),
        ("simulation.json", "environment", [], "row 0.environment must be a JSON object"),
        ("simulation.json", "accuracy", 10**400, "row 0.accuracy must be a finite number"),
        ("epoch_diagnostics.json", "coupling", ["x"], "row 0.coupling must be a finite number"),
        ("downstream.json", "accuracy", float("inf"), "row 0.accuracy must be a finite number"),
        ("downstream.json", "seed", 1, "has two rows of one dataset"),
        ("downstream.json", "dataset", ["adult"], "was not written by this version"),
        ("representations.json", "seconds", {}, "row 0.seconds must be a finite number"),
        ("uncertainty.json", "environment", "0123", "does not say what environment 0123"),
        ("uncertainty_rows.json", "wrong", "all", "row 0.wrong must be a finite number"),
        ("sensitivity.json", "coverage", "all", "row 0.coverage must be a finite number"),
        ("low_labels.json", "accuracy", "high", "row 0.accuracy must be a finite number"),
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
        render_page(tmp_path)


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
    latent = [{**row, "latent": HOSTILE[1]} for row in uncertainty_rows()]
    write(tmp_path, "uncertainty.json", latent)
    assert run("report", tmp_path) == 0
    reader = Reader(chromium(tmp_path, "--dump-dom"))
    text = " ".join(reader.text)
    for heading in ("At a glance", "Simulation study", "Var-T-JEPA by coverage", "Uncertainty"):
        assert heading in text
    assert HOSTILE[1] in text
    assert "missing" in text
    assert not {"script", "img"} & {tag for tag, _ in reader.elements}
    images = [a["href"] or "" for tag, a in reader.elements if tag == "image"]
    assert images
    assert all(href.startswith("data:image/png;base64,") for href in images)
