"""Claims about documents with generated blocks.

1. The blocks of the committed documents are exactly what paper/results/ generate.
2. Words outside blocks stay; the same results give the same text; a new file gets every block.
3. Marks that do not fit, unknown blocks and files without any are refused in one sentence, and the
   file stays as it was.
4. Of a study without rows a block says so; with rows it shows them beside the paper's, for every
   setting there is, and what is missing as missing.
5. Names that this version does not know do not end up in a document.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.report import (
    FILES,
    block_markdown,
    build_blocks,
    downstream_headline,
    fill,
    read_results,
    write_document,
)
from tests.paper.invented import paper_plus, trainings
from tests.paper.test_report_page import everything, label_rows, run, sensitivity_rows, write
from varjepa.errors import InputError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "paper" / "results"
DOCUMENTS = ("paper/results/tables.md", "paper/README.md", "README.md")

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_what_is_committed_is_what_the_results_generate(name: str) -> None:
    blocks = blocks_of(RESULTS)
    text = (ROOT / name).read_text(encoding="utf-8")
    again = "python -m paper report paper/results --markdown " + " ".join(DOCUMENTS)
    assert fill(text, blocks, name) == text, f"out of date: {again}"


@pytest.mark.parametrize("name", [n for n in FILES if (RESULTS / n).exists()])
def test_committed_rows_are_of_the_settings_of_this_version(name: str) -> None:
    FILES[name].open_strictly(RESULTS)


def test_the_committed_document_has_every_block() -> None:
    text = (ROOT / DOCUMENTS[0]).read_text(encoding="utf-8")
    for name in blocks_of(RESULTS):
        assert f"<!-- generated: {name} -->" in text


def test_words_stay_and_numbers_are_replaced(tmp_path: Path) -> None:
    everything(tmp_path)
    path = tmp_path / "page.md"
    write_document(tmp_path, path)
    first = path.read_text(encoding="utf-8")
    assert first.count("<!-- generated: ") == first.count("<!-- end -->") == 13
    mine = first.replace("<!-- end -->", "<!-- end -->\n\nMine, 1 < 2.", 1)
    path.write_text(mine.replace(".860", ".999"), encoding="utf-8")
    write_document(tmp_path, path)
    assert path.read_text(encoding="utf-8") == mine


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nothing", "page.md has no block to fill"),
        ("<!-- generated: headline -->\nx\n", "page.md has no block to fill"),
        ("<!-- generated: mine -->\n<!-- end -->\n", "asks for the block 'mine'; known are map, h"),
        (
            "<!-- generated: goals -->\n<!-- generated: f1 -->\n<!-- end -->\n",
            "page.md has a generated block that does not begin or end",
        ),
        (
            "<!-- generated: goals -->\n<!-- end -->\n<!-- end -->\n",
            "page.md has a generated block that does not begin or end",
        ),
    ],
)
def test_marks_that_do_not_fit(tmp_path: Path, capsys: Captured, text: str, says: str) -> None:
    everything(tmp_path)
    path = tmp_path / "page.md"
    path.write_text(text, encoding="utf-8")
    assert run("report", tmp_path, "--markdown", path) == 2
    error = capsys.readouterr().err.strip()
    assert says in error
    assert len(error.splitlines()) == 1
    assert path.read_text(encoding="utf-8") == text


def test_files_that_are_no_text(tmp_path: Path) -> None:
    everything(tmp_path)
    (tmp_path / "page.md").write_bytes(b"\xff\xfe\x00")
    for name in ("page.md", "."):
        with pytest.raises(InputError, match="is not a Markdown file"):
            write_document(tmp_path, tmp_path / name)
    with pytest.raises(InputError, match="holds no results to report"):
        write_document(ROOT / "docs", tmp_path / "new.md")
    assert not (tmp_path / "new.md").exists()


def test_the_command_fills_several_and_writes_no_page(tmp_path: Path) -> None:
    everything(tmp_path)
    first, second = tmp_path / "a.md", tmp_path / "b.md"
    assert run("report", tmp_path, "--markdown", first, second) == 0
    assert first.read_text() == second.read_text()
    assert not (tmp_path / "report.html").exists()
    assert run("report", tmp_path, "--markdown", first, "--out", tmp_path / "page.html") == 0
    assert (tmp_path / "page.html").exists()


def blocks_of(folder: Path) -> dict[str, str]:
    return {b.name: block_markdown(b) for b in build_blocks(read_results(folder))}


def test_a_study_without_rows_says_so(tmp_path: Path) -> None:
    write(tmp_path, "sensitivity.json", sensitivity_rows())
    found = blocks_of(tmp_path)
    assert "Not run yet: `python -m paper downstream --out DIR`." in found["accuracy"]
    assert "`python -m paper downstream` and `python -m paper uncertainty`" in found["headline"]
    assert "Not run yet" not in found["sensitivity"]
    assert "| MLP | 0% | .853" in found["sensitivity"]


def test_both_settings_stand_beside_the_paper(tmp_path: Path) -> None:
    ours = paper_plus(lambda p: 0.01 if p[1] == "var_t_jepa" else None, "ours")
    seeds = [{**row, "embedding_seed": 1} for row in ours if row["dataset"] == "sim"]
    write(tmp_path, "downstream.json", paper_plus() + ours + seeds)
    write(tmp_path, "representations.json", trainings(120.0))
    found = blocks_of(tmp_path)
    lines = found["headline"].splitlines()
    adult = next(text for text in lines if text.startswith("| Adult"))
    assert len(adult.split("|")[2:-1]) == 1 + 2 * 3  # raw; the paper, its setting, ours; by half
    assert "168, 168 reach the paper's" in found["headline"]
    assert "missing" not in found["headline"]
    assert "| ✓ 168 of 168 | ✓ 168 of 168 |" in found["goals"]
    assert "14.0 min on NVIDIA H200" in found["goals"]
    assert found["accuracy"].count("| MLP | Var-T-JEPA |") == 2
    assert "missing<br>" not in found["accuracy"]
    assert "| MLP | Var-T-JEPA | ours |" in found["representations"]
    assert "### Against raw columns" in found["representations"]
    assert "T-JEPA" in found["f1"]
    assert "| sim | ours | all 2 |" in found["seeds"]
    assert "Var-T-JEPA, setting paper, 7 datasets: 14.0 min" in found["cost"]
    assert "All 28 trainings: 56.0 min" in found["cost"]


def test_cells_that_are_not_there_are_missing(tmp_path: Path) -> None:
    write(tmp_path, "downstream.json", paper_plus(lambda p: None if p[2] == "resnet" else 0.0))
    found = blocks_of(tmp_path)
    assert found["headline"].count("missing") == 7 * 3  # a mean of five is not the paper's of six
    assert "140 of 140 reach" in found["headline"]
    assert found["accuracy"].count("missing<br>") == 7 * 4
    assert "28 missing" in found["goals"]


def test_few_labels_are_compared_with_raw_columns(tmp_path: Path) -> None:
    write(tmp_path, "low_labels.json", label_rows())
    found = blocks_of(tmp_path)["labels"]
    gains = "| Var-T-JEPA | paper | logistic regression | 1 of 1, +0.050 | 1 of 1, +0.050 |"
    assert gains in found
    assert "| adult | logistic regression | raw | .705 ± .0050 | .705 ± .0050 |" in found


def test_unknown_names_are_left_out(tmp_path: Path) -> None:
    everything(tmp_path)
    odd = "<b>|\n# odd"
    for name, key in (("downstream.json", "predictor"), ("low_labels.json", "dataset")):
        rows = paper_plus() if name == "downstream.json" else label_rows()
        write(tmp_path, name, rows + [{**row, key: odd} for row in rows[:1]])
    environment = {"device": "a | b"}
    write(
        tmp_path,
        "sensitivity.json",
        [{**r, "environment": environment} for r in sensitivity_rows()],
    )
    text = "\n".join(blocks_of(tmp_path).values())
    assert "odd" not in text
    assert "a / b" in text


def test_the_headline_is_of_var_t_jepa_alone() -> None:
    ours = paper_plus(lambda p: 0.0 if p[1] == "var_t_jepa" else None, "ours")
    more = paper_plus(lambda p: 0.0 if p[1] == "t_jepa" else None, "ours")
    assert downstream_headline(paper_plus() + ours) == downstream_headline(
        paper_plus() + ours + more
    )
