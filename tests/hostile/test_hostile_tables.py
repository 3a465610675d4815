"""Claims: whatever table a verb is given, it ends in finite output or in one sentence.

1. Every table of the corpus × fit, embed, impute, score, evaluate: finite output, or an InputError
   of one line, not longer than a screen, that names the column or the file; no other exception, no
   missing cell without a word, no warnings but ours.
2. What fit accepts, the fitted model embeds, imputes and scores.
3. The command, given the same tables as files, leaves with code 0 and finite files, or with code 2,
   one line on stderr and no file.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
import pytest

from tests.cli.test_shell import Captured, run
from tests.estimators.test_scikit_learn import SMALL
from tests.hostile.corpus import CORPUS, LISTED
from tests.hostile.spoiling import TARGET, HostileTable, healthy
from tests.small import small, use_as_defaults
from varjepa.errors import InputError
from varjepa.estimators import VarTJEPA
from varjepa.evaluate import EvaluateSettings, run_evaluation
from varjepa.evaluate.run import Evaluation
from varjepa.models.inference import LATENT_KINDS
from varjepa.tables import read_table

VERBS = ("fit", "embed", "impute", "score", "evaluate")
OURS = (
    "treated as missing",
    "ignored columns",
    "the latents have collapsed",
    "left missing",
    "X has feature names",
    "X does not have valid feature names",
    "--target",
    "test rows are of classes",
)
TINY = {**SMALL, "epochs": 1, "random_state": 0}


@pytest.fixture(autouse=True)
def tiny_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluations with a tiny model, which is what they make of the defaults."""
    use_as_defaults(monkeypatch, VarTJEPA, **TINY)
    monkeypatch.setattr("varjepa.nn.row_threads.block_size", lambda *_: 64)


class Cases:
    """Tables and models, made once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.healthy = fitted(healthy())
        self.models: dict[str, VarTJEPA] = {}

    @functools.cache  # noqa: B019 - lives as long as the tests
    def table(self, case: HostileTable) -> Any:
        place = self.folder / case.name.replace(" ", "_")
        place.mkdir()
        return case.build(place)

    @functools.cache  # noqa: B019
    def saved(self) -> Path:
        """The folder of the healthy table's model."""
        self.healthy.save(self.folder / "model")
        return self.folder / "model"

    def own(self, case: HostileTable) -> VarTJEPA:
        """The model of the hostile table itself."""
        if case.name not in self.models:
            self.models[case.name] = small(VarTJEPA, **TINY).fit(self.table(case))
        return self.models[case.name]


def fitted(table: Any) -> VarTJEPA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return small(VarTJEPA, **TINY).fit(table)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Cases:
    return Cases(tmp_path_factory.mktemp("hostile"))


def cells() -> list[Any]:
    """Every table with every verb; some of the unlisted tables are left to the long run."""
    return [
        pytest.param(
            case,
            verb,
            id=f"{case.name}-{verb}",
            marks=[] if case.name in LISTED or verb in ("fit", "impute") else [pytest.mark.soak],
        )
        for case in CORPUS
        for verb in VERBS
    ]


def test_the_corpus_is_as_large_as_agreed() -> None:
    names = [case.name for case in CORPUS]
    assert len(set(names)) == len(names)
    assert set(LISTED) <= set(names)
    assert len(LISTED) * len(VERBS) >= 200


@pytest.mark.parametrize(("case", "verb"), cells())
def test_finite_or_one_sentence(
    case: HostileTable, verb: str, cases: Cases, tmp_path: Path
) -> None:
    table = cases.table(case)
    if verb == "fit":
        check(case.fit, lambda: assert_fitted(cases.own(case)))
    elif verb == "evaluate":
        check(case.evaluate, lambda: assert_evaluated(table, tmp_path))
    else:
        check(refusal_of(case, verb), lambda: use(verb, cases.healthy, table))
        if case.fit is None:
            check(None, lambda: use(verb, cases.own(case), table))


def refusal_of(case: HostileTable, verb: str) -> str | None:
    """Words of the refusal when a model of the healthy table is used, or another verb."""
    if verb in ("fit", "evaluate"):
        return case.fit if verb == "fit" else case.evaluate
    return case.fill if verb == "impute" and case.fill else case.known


def check(refusal: str | None, act: Any) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if refusal is None:
            act()
        else:
            with pytest.raises(InputError) as error:
                act()
            assert_one_sentence(str(error.value), refusal)
    for warning in caught:
        said = str(warning.message)
        assert any(start in said for start in OURS), said
        assert len(said) < 1000


def assert_one_sentence(sentence: str, words: str) -> None:
    assert words in sentence
    assert len(sentence) < 500
    assert len(sentence.splitlines()) == 1
    assert sentence.isprintable() or "/" in sentence


def assert_fitted(model: VarTJEPA) -> None:
    for name, tensor in model.model_.state_dict().items():
        assert bool(tensor.isfinite().all()), name
    assert all(np.isfinite(v) for row in model.history_ for v in row.values() if v is not None)


def use(verb: str, model: VarTJEPA, table: Any) -> None:
    """Embed, impute or score, and look at every number."""
    if verb == "embed":
        found = model.embed(table)
        assert np.isfinite(found.mean).all()
        assert np.isfinite(found.std).all()
        assert np.isfinite(model.transform(table)).all()
    elif verb == "score":
        assert np.isfinite(model.score_samples(table)).all()
        assert all(np.isfinite(v).all() for v in model.score_terms(table).values())
        for kind in LATENT_KINDS:
            assert np.isfinite(model.uncertainty(table, kind)).all(), kind
    else:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            filled = read_table(model.impute(table))
        said = " ".join(str(w.message) for w in caught)
        for name in filled.column_names:
            whole = not any_hole(filled[name])
            assert whole or f"{name[:20]!r:.20}" in said, f"{name} has missing values"
        for warning in caught:
            warnings.warn(warning.message, stacklevel=1)


def any_hole(column: pa.ChunkedArray) -> bool:
    missing = pc.is_null(column, nan_is_null=True)
    if pa.types.is_floating(column.type):
        missing = pc.or_(missing, pc.is_inf(pc.fill_null(column, 0.0)))
    return bool(pc.any(missing).as_py())


def evaluated(table: Any, folder: Path) -> Evaluation:
    settings = EvaluateSettings(
        TARGET, representations=("raw+var_t_jepa",), predictors=("linear",), runs=1, epochs=1
    )
    return run_evaluation(read_table(table), "table", folder, settings)


def assert_evaluated(table: Any, folder: Path) -> None:
    found = evaluated(table, folder)
    assert_finite(found.results)
    assert np.isfinite(found.cells[0].test).all()


def assert_finite(value: Any) -> None:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            assert_finite(item)
    elif isinstance(value, float):
        assert np.isfinite(value)


@pytest.mark.filterwarnings("ignore:the latents")
def test_errors_of_large_numbers_are_those_of_small_ones(tmp_path: Path) -> None:
    """Predictions are float32, which has no number between 2^60 and 2^60 + 2^37."""
    rmse = []
    for offset in (0, 2**60):
        table = healthy().assign(label=offset + 2**20 * np.arange(60))
        found = evaluated(table, tmp_path / str(offset))
        rmse.append([row["rmse"] for row in found.results["figures"]])
    np.testing.assert_allclose(rmse[1], rmse[0], rtol=1e-3)


QUICK_FILES = ("1e300", "a newline in a name", "a column missing")


def as_file(table: Any, folder: Path) -> Path | None:
    """The table as a Parquet file; None if there is no such file."""
    if isinstance(table, Path):
        return table
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pa.parquet.write_table(read_table(table), folder / "table.parquet")
    except (InputError, pa.ArrowException):
        return None
    return folder / "table.parquet"


def command(verb: str, table: Path, model: Path, out: Path) -> list[object]:
    tiny = ("--epochs", 1)
    if verb == "fit":
        return ["fit", table, "--out", out, *tiny]
    if verb == "evaluate":
        chosen = ("--representations", "raw+var_t_jepa", "--predictors", "linear")
        return ["evaluate", table, "--target", TARGET, "--out", out, "--runs", 1, *tiny, *chosen]
    return [verb, model, table, "--out", out / "result.parquet"]


def assert_commanded(
    case: HostileTable, verb: str, table: Path, model: Path, out: Path, capsys: Captured
) -> int:
    """Run one cell through the command; its exit code."""
    code = run(*command(verb, table, model, out))
    said = capsys.readouterr().err
    assert "Traceback" not in said
    shown = [line for line in said.splitlines() if line.strip()]
    lines = [line for line in shown if line.startswith("varjepa: ")]
    assert lines == shown or verb == "fit", shown  # a fit says what it inferred
    assert all(line.isprintable() for line in shown), shown
    refusals = [line for line in lines if not line.startswith("varjepa: warning")]
    words = refusal_of(case, verb)
    if words is None:
        assert (code, refusals) == (0, [])
        if verb in ("embed", "score"):
            for column in read_table(out / "result.parquet").columns:
                assert not any_hole(column)
    else:
        assert code == 2
        assert len(refusals) == 1
        assert words in refusals[0]
        assert not (out / "result.parquet").exists()
    return code


@pytest.mark.filterwarnings("default::UserWarning")  # one epoch does collapse
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("name", QUICK_FILES)
def test_the_command(name: str, verb: str, cases: Cases, tmp_path: Path, capsys: Captured) -> None:
    case = next(case for case in CORPUS if case.name == name)
    table = as_file(cases.table(case), tmp_path)
    assert table is not None
    assert_commanded(case, verb, table, cases.saved(), tmp_path / "out", capsys)


@pytest.mark.soak
@pytest.mark.filterwarnings("default::UserWarning")
def test_every_cell_through_the_command(
    cases: Cases, tmp_path: Path, capsys: Captured, record_soak: Callable[[str, Any], None]
) -> None:
    start, codes, tables = time.perf_counter(), Counter[int](), 0
    for number, case in enumerate(CORPUS):
        folder = tmp_path / str(number)
        folder.mkdir()
        given = cases.table(case)
        table = None if isinstance(given, np.ndarray) else as_file(given, folder)
        if table is None:
            continue
        tables += 1
        for verb in VERBS:
            out = folder / verb
            codes[assert_commanded(case, verb, table, cases.saved(), out, capsys)] += 1
    record_soak(
        "hostile_tables",
        {
            "tables_in_memory": len(CORPUS),
            "cells_in_memory": len(CORPUS) * len(VERBS),
            "tables_as_files": tables,
            "cells_through_the_command": codes.total(),
            "finite_output": codes[0],
            "one_sentence": codes[2],
            "anything_else": codes.total() - codes[0] - codes[2],
            "seconds": time.perf_counter() - start,
        },
    )


@pytest.mark.soak
def test_a_million_rows_of_a_million_levels(tmp_path: Path) -> None:
    rows = 10**6
    users = pa.array([f"user-{i}" for i in np.random.default_rng(0).permutation(rows)])
    table = pa.table({"user": users, "n": np.arange(rows), TARGET: ["yes", "no"] * (rows // 2)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {**TINY, "batch_size": 50_000}
        assert set(small(VarTJEPA, **options).fit(table).codec_.schema.left_out) == {"user", "n"}
        kinds = {"user": "categorical", "n": "numeric"}  # who insists gets the most frequent levels
        model = small(VarTJEPA, **options, column_kinds=kinds).fit(table)
        assert_fitted(model)
        assert model.codec_.features[1].levels == model.max_levels
        few = table.slice(0, 1000)
        for verb in VERBS[1:4]:
            use(verb, model, few)
        settings = EvaluateSettings(
            TARGET, representations=("raw",), predictors=("linear",), runs=1, rows=1000
        )
        assert_finite(run_evaluation(table, "table", tmp_path, settings).results)
