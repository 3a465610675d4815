"""Claims about what leaves the program, when the data was written to hurt.

1. CSV and TSV: text cells and column names that begin with = + - @, tab, CR or LF get a quote in
   front; numbers, text that is a number, ordinary text and missing cells are as they were;
   ``raw_text`` and typed files change nothing. All four commands that write tables obey
   ``--raw-text``, and ordinary text survives ``impute``. A missing number is an empty cell.
2. HTML: names of columns and rows add no element to a page, nor to one made from a fitted model;
   the page's policy forbids scripts, requests, base and forms.
3. Terminal: control characters, escape sequences, direction marks and halves of characters in names
   of columns, files, classes and options never reach stdout or stderr, whether in errors, warnings
   or tables; square brackets are no markup.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.text import Text

from tests.cli.test_shell import Captured, run
from tests.report.test_page import POLICY, Reader, full_page
from tests.small import small
from varjepa import VarTJEPA
from varjepa.cli.shell import PlainConsole, visible
from varjepa.estimators.summary import model_html
from varjepa.report.page import ReportPage, render_page
from varjepa.report.tables import Table, to_terminal
from varjepa.tables import read_table, write_table
from varjepa.tables.writing import without_formulas

pytestmark = pytest.mark.filterwarnings("default::UserWarning")  # one epoch does collapse

FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    "=",
    "--",
    "-5\n=1",
    "+1,5",
    '="a"',
]
HARMLESS = ["-", "-5", "+3.25", "-.5e-3", "1e9", "a=b", "é@x", " =1", "'quoted", "x", "2024-01-01"]


# --- 1: spreadsheets


def test_formulas_get_a_quote_and_nothing_else_does() -> None:
    table = pa.table({"t": [*FORMULAS, *HARMLESS, None]})
    assert without_formulas(table)["t"].to_pylist() == [
        *(f"'{text}" for text in FORMULAS),
        *HARMLESS,
        None,
    ]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.dictionary(pa.int8(), pa.string()),
    ],
)
def test_every_kind_of_text(kind: pa.DataType) -> None:
    column = pa.array(["=1", None, "x"]).cast(kind)
    found = without_formulas(pa.table({"t": column}))["t"].cast(pa.string()).to_pylist()
    assert found == ["'=1", None, "x"]


def test_numbers_dates_and_booleans_are_never_touched() -> None:
    table = pa.table(
        {
            "i": [-1, 2],
            "f": [-1.5, float("-inf")],
            "d": pa.array([-5, 5], pa.decimal128(5, 1)),
            "b": [True, None],
            "t": pa.array([-10, 10], pa.timestamp("s")),
        }
    )
    assert without_formulas(table).equals(table)


def test_names_get_a_quote_and_stay_distinct() -> None:
    table = pa.table([[1]] * 5, names=["=a", "'=a", "-5", "plain", "@b"])
    assert without_formulas(table).column_names == ["''=a", "'=a", "-5", "plain", "'@b"]


@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_text_files_are_safe_by_default_and_raw_on_request(tmp_path: Path, ending: str) -> None:
    table = pa.table({"=name": [*FORMULAS, *HARMLESS], "n": range(-11, 12)})
    write_table(table, tmp_path / f"safe.{ending}")
    write_table(table, tmp_path / f"raw.{ending}", raw_text=True)
    separator = "," if ending == "csv" else "\t"
    safe, raw = (
        pd.read_csv(tmp_path / f"{name}.{ending}", sep=separator, dtype=str, lineterminator=None)
        for name in ("safe", "raw")
    )
    assert list(safe.columns) == ["'=name", "n"]
    assert not [cell for cell in safe["'=name"] if cell in FORMULAS]
    assert safe["n"].tolist() == raw["n"].tolist() == [str(i) for i in range(-11, 12)]
    assert list(raw.columns) == ["=name", "n"]
    assert raw["=name"].tolist() == [*FORMULAS, *HARMLESS]


@pytest.mark.parametrize("raw_text", [False, True])
def test_a_missing_number_is_an_empty_cell(raw_text: bool, tmp_path: Path) -> None:
    numbers = pa.array([1.5, float("nan"), None])
    table = pa.table({"a": numbers, "b": numbers.cast(pa.float32()), "c": ["nan", "", "x"]})
    write_table(table, tmp_path / "t.csv", raw_text)
    lines = (tmp_path / "t.csv").read_text().splitlines()
    assert lines == ['"a","b","c"', '1.5,1.5,"nan"', ',,""', ',,"x"']


@pytest.mark.parametrize("ending", ["parquet", "arrow", "feather"])
def test_typed_files_keep_every_text(tmp_path: Path, ending: str) -> None:
    table = pa.table({"=name": FORMULAS})
    write_table(table, tmp_path / f"t.{ending}")
    assert read_table(tmp_path / f"t.{ending}").equals(table)


@pytest.fixture(scope="module")
def hostile_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, pa.Table]:
    """A model and its table, with a column name and cells that are formulas."""
    folder = tmp_path_factory.mktemp("formulas")
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "=size": np.where(rng.random(60) < 0.1, np.nan, rng.normal(size=60)),
            "word": [("=1+1", "plain", "-5 %", None)[i % 4] for i in range(60)],
        }
    )
    pq.write_table(table, folder / "table.parquet")
    tiny = small(VarTJEPA, d=8, depth=1, epochs=1, predictor_depth=1)
    tiny.set_params(random_state=0).fit(table).save(folder / "model")
    return folder / "model", folder / "table.parquet", table


@pytest.mark.parametrize("command", ["embed", "impute", "sample", "score"])
def test_every_command_takes_raw_text(
    command: str, hostile_model: tuple[Path, Path, pa.Table], tmp_path: Path
) -> None:
    model, path, table = hostile_model
    given: list[object] = [] if command == "sample" else [path]
    for name, flags in (("safe", []), ("raw", ["--raw-text"])):
        assert run(command, model, *given, "--out", tmp_path / f"{name}.csv", *flags) == 0
    safe, raw = (pd.read_csv(tmp_path / f"{name}.csv") for name in ("safe", "raw"))
    assert not [n for n in safe.columns if n.startswith("=")]
    assert command == "score" or [n for n in raw.columns if n.startswith("=size")]
    assert len(safe) == len(raw) > 0
    if command in ("impute", "sample"):
        assert set(safe["word"]) <= {"'=1+1", "plain", "'-5 %"}
        assert set(raw["word"]) <= {"=1+1", "plain", "-5 %"}
    if command == "impute":
        there = ~table["word"].to_pandas().isna()
        expected = table["word"].to_pandas()[there]
        assert raw["word"][there].tolist() == expected.tolist()
        ordinary = there & (table["word"].to_pandas() == "plain")
        assert set(safe["word"][ordinary]) == {"plain"}
    numbers = [name for name in raw if raw[name].dtype.kind == "f"]
    assert numbers
    for name in numbers:
        np.testing.assert_array_equal(raw[name], safe[f"'{name}" if name[0] == "=" else name])


# --- 2: pages

NAMES = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "{{7*7}}",
    "</title></style><svg onload=alert(1)>",
    "\x1b[31m\u202e<b>",
)


@pytest.mark.parametrize("name", NAMES)
def test_names_add_no_element(name: str) -> None:
    page = Reader(render_page(full_page(name=lambda i: f"{i} {name}")))
    plain = Reader(render_page(full_page(name=lambda i: f"{i} " + "n" * len(name))))
    assert page.skeleton() == plain.skeleton()
    assert not any("49" in text for text in page.text if "7*7" in text)


def fitted_page(name: Callable[[str], str]) -> str:
    """The page of a fitted model, of a table whose names and cells are ``name``'s."""
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            name("size"): rng.normal(size=60),
            name("word"): [name("abc"[i % 3]) for i in range(60)],
        }
    )
    model = small(VarTJEPA, d=8, depth=1, epochs=2, random_state=0).fit(table)
    return render_page(
        ReportPage(
            title=name("title"),
            tables=[Table(name("t"), [name("c"), name("d")], [[name("x"), name("y")]])],
            model=model_html(model),
            footer={name("key"): name("value")},
        )
    )


def test_a_fitted_models_page_holds_names_as_text() -> None:
    hostile = Reader(fitted_page(lambda word: f"{word} {''.join(NAMES[:3])}"))
    plain = Reader(fitted_page(lambda word: f"{word} {'n' * len(''.join(NAMES[:3]))}"))
    tags = [tag for tag, _ in hostile.elements]
    assert sorted(set(tags)) == sorted({tag for tag, _ in plain.elements})
    assert not {"script", "img"} & set(tags)
    assert not [a for _, a in hostile.elements for name in a if name.startswith("on")]
    policies = [a["content"] for _, a in hostile.elements if "http-equiv" in a]
    assert policies == [POLICY]
    assert any("{{7*7}}" in str(a.get("title")) for _, a in hostile.elements)  # the whole name


# --- 3: terminals

CONTROLS = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\x08\x7f\u202e\u2028"
UNSEEN = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u2028\u2029]")


def assert_visible(captured: Any) -> None:
    assert not UNSEEN.search(captured.out), captured.out
    assert not UNSEEN.search(captured.err), captured.err
    assert "Traceback" not in captured.err


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and its table, with a column that would clear the screen."""
    folder = tmp_path_factory.mktemp("controls")
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            f"size{CONTROLS}": rng.normal(size=60),
            f"word{CONTROLS}": [f"{'abc'[i % 3]}{CONTROLS}" for i in range(60)],
        }
    )
    pq.write_table(table, folder / "table.parquet")
    tiny = small(VarTJEPA, d=8, depth=1, epochs=1, predictor_depth=1)
    tiny.set_params(random_state=0).fit(table).save(folder / "model")
    return folder / "model", folder / "table.parquet"


def test_errors_and_warnings_about_columns(
    controlled: tuple[Path, Path], tmp_path: Path, capsys: Captured
) -> None:
    model, path = controlled
    table = pq.read_table(path)
    pq.write_table(table.select([0]), tmp_path / "fewer.parquet")
    more = table.append_column(f"extra{CONTROLS}", table[0])
    unseen = more.set_column(1, table.column_names[1], pa.array([f"new{CONTROLS}"] * 60))
    pq.write_table(unseen, tmp_path / "more.parquet")
    assert run("embed", model, tmp_path / "fewer.parquet", "--out", tmp_path / "o.csv") == 2
    first = capsys.readouterr()
    assert "word" in first.err
    assert_visible(first)
    assert run("embed", model, tmp_path / "more.parquet", "--out", tmp_path / "o.csv") == 0
    second = capsys.readouterr()
    assert "extra" in second.err
    assert "not seen" in second.err
    assert_visible(second)
    assert run("fit", path, "--out", tmp_path / "m", "--target", f"no{CONTROLS}") == 2
    assert_visible(capsys.readouterr())
    assert run("fit", path, "--out", tmp_path / "m", "--kind", f"no{CONTROLS}=text") == 2
    assert_visible(capsys.readouterr())


def test_names_of_files_and_options(
    controlled: tuple[Path, Path], tmp_path: Path, capsys: Captured
) -> None:
    model, path = controlled
    strange = "a\x1b[2J[/bold][red]:smile:\u202e.csv"
    assert run("embed", model, path, "--out", tmp_path / strange) == 0
    said = capsys.readouterr()
    assert_visible(said)
    assert "[/bold][red]:smile:" in said.out.replace("\n", "")
    for wrong in (
        ["embed", model, tmp_path / f"none{strange}", "--out", tmp_path / "o.csv"],
        ["embed", tmp_path / f"none{strange}", path, "--out", tmp_path / "o.csv"],
        ["embed", model, path, "--out", tmp_path / f"o.{CONTROLS}"],
        ["embed", model, path, "--out", tmp_path / "o.csv", f"--{CONTROLS}"],
        ["embed", model, path, "--out", tmp_path / "not UTF-8 \udcff.csv"],
        ["embed", model, tmp_path / "not UTF-8 \udcff.csv", "--out", tmp_path / "o.csv"],
        [f"verb{CONTROLS}"],
    ):
        assert run(*wrong) == 2
        refused = capsys.readouterr()
        assert len(refused.err.strip().splitlines()) == 1
        assert_visible(refused)


def test_a_model_folder_cannot_speak(
    controlled: tuple[Path, Path], tmp_path: Path, capsys: Captured
) -> None:
    _, path = controlled
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "manifest.json").write_text('{"format": "\\u001b[2J"}')
    assert run("embed", tmp_path / "model", path, "--out", tmp_path / "o.csv") == 2
    assert_visible(capsys.readouterr())


def test_tables_and_styles_on_a_real_terminal() -> None:
    """Our own colours pass, those in names do not."""
    console = PlainConsole()
    console.file = io.StringIO()
    console._force_terminal = True
    console._color_system = console._color_system or 1  # type: ignore[assignment]
    table = Table(f"t{CONTROLS}", [f"c{CONTROLS}", "[red]d"], [[f"x{CONTROLS}", "[/y]"]])
    console.print(to_terminal(table))
    console.print(f"line {CONTROLS} [bold]")
    console.print(Text(f"text {CONTROLS}", style="bold"))
    shown = console.file.getvalue()
    assert "[/y]" in shown
    assert "[bold]" in shown
    assert "[red]d" in shown
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert not UNSEEN.search(bare.replace("\n", ""))
    assert "\x1b[2J" not in shown
    assert "\x1b]0" not in shown


def test_visible_leaves_text_alone() -> None:
    ordinary = "naïve – 価格 €, 😀\nnext"
    assert visible(ordinary) == ordinary
    assert visible("\x1b\x00\u202e\ud800a") == "����a"
