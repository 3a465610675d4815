"""Claims about what VarTJEPA does with tables.

1. Column order does not matter, to the last bit; a missing column is named; an extra one is warned
   of; a table without names is matched by position.
2. Same seed, same weights; save → load → identical embeddings.
3. impute leaves observed cells alone, stays within kind and range, and several draws differ.
   Filled and drawn cells keep the step of the training values: midnights, Saturdays, hundreds; but
   a filled float is the mean, whatever its step.
4. The predictor really conditions: a column that is a function of two others is filled from
   them (R² ≥ .8, accuracy ≥ .9), and no longer when those are shuffled.
5. Identifiers, free text, constant and empty columns are not modelled: they come back from impute
   as they came, may be absent, and are missing in drawn rows, where constants have their value.
6. sample keeps what is given and draws within kind and range.
7. Every kind of uncertainty is finite, per row and per column; balanced, numbers and categories
   weigh the same; more splits of the columns are steadier.
8. Odd tables work: two rows, one column, constant, all missing, a huge category; so does a fit
   that has hardly any time.
"""

from __future__ import annotations

import warnings
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch

from tests.digests.runs import per_feature
from tests.small import small
from varjepa import VarTJEPA
from varjepa.errors import InputError
from varjepa.estimators.embedder import embed_with_uncertainty
from varjepa.models.inference import AGGREGATES, LATENT_KINDS, MEASURES, default_aggregate
from varjepa.settings import Objective

SMALL: dict[str, Any] = {
    "d": 8, "depth": 1, "heads": 2, "ff": 8, "predictor_width": 8, "predictor_depth": 1,
    "predictor_heads": 2, "predictor_ff": 8, "epochs": 2, "validate_every": 1, "random_state": 0,
}  # fmt: skip


def frame(n: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "size": np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
            "count": rng.integers(3, 9, n),
            "colour": rng.choice(["red", "green", None], n),
            "born": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
        }
    )


def quiet_fit(X: Any, **parameters: Any) -> VarTJEPA:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # two epochs do collapse
        return small(VarTJEPA, **{**SMALL, **parameters}).fit(X)


@pytest.fixture(scope="module")
def model() -> VarTJEPA:
    return quiet_fit(frame())


def test_column_order_does_not_matter(model: VarTJEPA) -> None:
    X = frame()
    np.testing.assert_array_equal(model.transform(X[X.columns[::-1]]), model.transform(X))


def test_every_frame_library_gives_the_same(model: VarTJEPA) -> None:
    X = frame()
    expected = model.transform(X)
    for other in (pl.from_pandas(X), pa.Table.from_pandas(X)):
        np.testing.assert_array_equal(model.transform(other), expected)


def test_columns_that_do_not_fit(model: VarTJEPA) -> None:
    X = frame()
    with pytest.raises(InputError, match="'colour'"):
        model.transform(X.drop(columns="colour"))
    with pytest.warns(UserWarning, match="'shoe'"):
        extra = model.transform(X.assign(shoe=1))
    np.testing.assert_array_equal(extra, model.transform(X))


def test_arrays_are_matched_by_position() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    named = pd.DataFrame(X, columns=["a", "b", "c"])
    by_name, by_position = quiet_fit(named), quiet_fit(X)
    with pytest.warns(UserWarning, match="feature names"):
        np.testing.assert_array_equal(by_name.transform(X), by_name.transform(named))
    with pytest.warns(UserWarning, match="fitted without feature names"):
        np.testing.assert_array_equal(by_position.transform(named), by_position.transform(X))
    with pytest.raises(InputError, match="expecting 3 features"):
        by_position.transform(named[["a", "b"]])


def test_same_seed_same_weights(model: VarTJEPA) -> None:
    again = quiet_fit(frame())
    for name, weight in model.model_.state_dict().items():
        assert torch.equal(weight, again.model_.state_dict()[name]), name
    other = quiet_fit(frame(), random_state=1)
    assert not np.array_equal(other.transform(frame()), model.transform(frame()))


def test_a_failed_fit_leaves_the_estimator_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    estimator = quiet_fit(frame())
    before = estimator.transform(frame())

    def fail(*_: Any, **__: Any) -> None:
        raise InputError("training gave up")

    monkeypatch.setattr("varjepa.estimators.base.train", fail)
    other = frame().assign(size=lambda X: X["size"] * 100)
    with pytest.raises(InputError, match="gave up"):
        estimator.fit(other)
    np.testing.assert_array_equal(estimator.transform(frame()), before)


def test_fit_does_not_touch_the_global_generator() -> None:
    before = torch.get_rng_state()
    quiet_fit(frame())
    assert torch.equal(before, torch.get_rng_state())


def test_saved_models_answer_the_same(model: VarTJEPA, tmp_path: Path) -> None:
    model.save(tmp_path / "model")
    loaded = VarTJEPA.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.transform(frame()), model.transform(frame()))
    for kind in LATENT_KINDS:
        np.testing.assert_array_equal(
            loaded.uncertainty(frame(), kind), model.uncertainty(frame(), kind)
        )
    pd.testing.assert_frame_equal(loaded.impute(frame()), model.impute(frame()))
    assert loaded.get_params()["architecture__d"] == 8
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == [
        "README.md",
        "codec.json",
        "config.json",
        "manifest.json",
        "model.safetensors",
    ]


def test_imputation_fills_holes_and_nothing_else(model: VarTJEPA) -> None:
    X = frame()
    X.loc[[1, 2], "count"] = np.nan
    X.loc[3, "born"] = pd.NaT
    filled = model.impute(X)
    assert not filled.isna().any().any()
    for name in X:
        seen = X[name].notna()
        assert (filled.loc[seen, name] == X.loc[seen, name]).all()
    assert filled["colour"].isin(["red", "green"]).all()
    assert filled["count"].between(3, 8).all()
    assert (filled["count"] % 1 == 0).all()
    assert filled["size"].between(X["size"].min(), X["size"].max()).all()
    assert filled["born"].between(X["born"].min(), X["born"].max()).all()
    assert isinstance(model.impute(pl.from_pandas(X)), pl.DataFrame)


def test_several_imputations_differ(model: VarTJEPA) -> None:
    X = frame()
    X.loc[:30, "size"] = np.nan
    draws = model.impute_samples(X, 3)
    assert len(draws) == 3
    values = np.stack([draw["size"].to_numpy()[:30] for draw in draws])
    assert (values.std(0) > 0).mean() > 0.5  # some draws meet at the end of the range
    same = (
        model.impute_samples(X, 3, random_state=4),
        model.impute_samples(X, 3, random_state=4),
    )
    pd.testing.assert_frame_equal(same[0][2], same[1][2])
    prior = model.impute_samples(X, 2, z="prior")
    assert not prior[0]["size"].equals(draws[0]["size"])


def test_filled_and_drawn_cells_keep_the_step_of_the_column() -> None:
    rng = np.random.default_rng(0)
    week = rng.integers(0, 200, 80)
    X = pd.DataFrame(
        {
            "Saturday": pd.Timestamp("2020-01-04") + pd.to_timedelta(7 * week, "D"),
            "price": 100 * rng.integers(3, 90, 80),
            "weight": (week + rng.integers(0, 9, 80)) / 10,
        }
    )
    fitted = quiet_fit(X)
    holed = X.mask(rng.random(X.shape) < 0.3)
    best = fitted.impute(holed)
    drawn = [*fitted.impute_samples(holed, 2), fitted.sample(50)]
    for table in (best, *drawn):
        assert set(table["Saturday"].dt.strftime("%A %X")) == {"Saturday 00:00:00"}
        assert set(table["price"] % 100) == {0}
    for table in drawn:
        assert (table["weight"] == table["weight"].round(1)).all()
    # the best guess of a float is the mean, which need not be a value that occurs
    filled = best["weight"][holed["weight"].isna()]
    assert (filled != filled.round(1)).any()
    assert filled.between(X["weight"].min(), X["weight"].max()).all()


def test_imputation_conditions_on_the_other_columns() -> None:
    rng = np.random.default_rng(0)
    n = 1500
    a, b = rng.normal(size=n), rng.normal(size=n)
    key = rng.choice(["x", "y", "z"], n)
    X = pd.DataFrame({"a": a, "b": b, "key": key, "sum": a + b, "code": np.where(a > 0, key, "w")})
    train, test = X[:1000], X[1000:]
    model = small(
        VarTJEPA, d=16, depth=1, ff=32, predictor_width=16, predictor_depth=1,
        epochs=20, batch_size=32, learning_rate=5e-3, validate_every=20, random_state=0,
    ).fit(train)  # fmt: skip

    def r2(table: pd.DataFrame) -> float:
        guess = model.impute(table.assign(sum=np.nan))["sum"]
        return float(
            1 - ((guess - test["sum"]) ** 2).sum() / ((test["sum"] - test["sum"].mean()) ** 2).sum()
        )

    def right(table: pd.DataFrame) -> float:
        return float((model.impute(table.assign(code=None))["code"] == test["code"]).mean())

    shuffled = test.assign(
        **{name: rng.permutation(test[name].to_numpy()) for name in ("a", "b", "key")}
    )
    assert r2(test) >= 0.8
    assert r2(shuffled) < 0.1
    assert right(test) >= 0.9
    assert right(shuffled) < 0.7


def test_columns_that_are_not_modelled_pass_through(tmp_path: Path) -> None:
    X = frame(60).assign(
        id=range(60),
        note=[f"a comment on row {i}" for i in range(60)],
        country="CH",
        nothing=pd.Series([None] * 60, dtype=float),
    )
    fitted = quiet_fit(X)
    fitted.save(tmp_path / "model")
    fitted = VarTJEPA.load(tmp_path / "model")
    unmodelled = ["id", "note", "country", "nothing"]
    features = [f"{name}_0" for name in unmodelled]
    assert not set(features) & set(fitted.get_feature_names_out())
    np.testing.assert_array_equal(
        fitted.transform(X), fitted.transform(X.drop(columns=unmodelled).assign(id="new"))
    )
    later = X.assign(note=X["note"].where(X.index > 3), country=X["country"].where(X.index > 3))
    with pytest.warns(UserWarning, match="left missing") as caught:
        filled = fitted.impute(later)
    assert [str(w.message) for w in caught] == [
        "left missing: columns that had no value when the model was fitted, 'nothing'",
        "left missing: identifiers and free text, which are not modelled, 'note'",
    ]
    pd.testing.assert_frame_equal(filled[["id", "note"]], later[["id", "note"]])
    assert set(filled["country"]) == {"CH"}
    assert filled[["size", "colour"]].notna().all(axis=None)
    with pytest.warns(UserWarning, match="left missing: columns that had no value"):
        drawn = fitted.sample(5)
    assert list(drawn.columns) == list(X.columns)
    assert drawn[["id", "note", "nothing"]].isna().all(axis=None)
    assert set(drawn["country"]) == {"CH"}
    uncertain = fitted.cell_uncertainty(X)
    assert uncertain["id"].isna().all()
    assert uncertain["count"].notna().all()


def test_samples_keep_what_is_given(model: VarTJEPA) -> None:
    X = frame()
    whole = model.sample(50)
    assert whole.shape == (50, 4)
    assert not whole.isna().any().any()
    assert whole["count"].between(3, 8).all()
    assert whole["size"].std() > 0
    given = pd.DataFrame({"colour": ["green"], "count": [5]})
    drawn = model.sample(20, given=given)
    assert (drawn["colour"] == "green").all()
    assert (drawn["count"] == 5).all()
    assert drawn["size"].nunique() > 1
    rows = model.sample(60, given=X[["size"]].fillna(0.25))
    np.testing.assert_array_equal(rows["size"], X["size"].fillna(0.25))
    plain = model.sample(3, given={"size": [1], "colour": ["green"], "born": ["2021-01-02"]})
    assert list(plain.dtypes) == list(whole.dtypes)
    assert plain[["size", "colour"]].drop_duplicates().values.tolist() == [[1.0, "green"]]
    with pytest.raises(InputError, match="given has 2 rows"):
        model.sample(5, given=X[["size"]][:2])
    with pytest.raises(InputError, match="'shoe'"):
        model.sample(1, given=pd.DataFrame({"shoe": [1]}))


@pytest.mark.parametrize(("kind", "aggregate"), MEASURES)
def test_uncertainties_are_finite(model: VarTJEPA, kind: Any, aggregate: Any) -> None:
    X = frame()
    X.loc[0] = [np.nan, np.nan, None, pd.NaT]
    row = model.uncertainty(X, kind, aggregate)
    assert row.shape == (60,)
    assert np.isfinite(row).all()
    cells = model.cell_uncertainty(X, kind).to_numpy()
    assert cells.shape == X.shape
    missing = np.isnan(cells)
    assert not missing.any() if kind in ("posterior", "predictive") else missing[0].all()


def test_cells_have_the_tables_own_columns_in_its_own_order(model: VarTJEPA) -> None:
    """Numbers come first inside, and a date is several features; nobody sees that outside."""
    X = frame()
    cells = model.cell_uncertainty(X, "nll")
    assert isinstance(cells, pd.DataFrame)
    assert list(cells.columns) == list(X.columns)
    assert cells.index.equals(X.index)
    turned = X[X.columns[::-1]]
    pd.testing.assert_frame_equal(model.cell_uncertainty(turned, "nll"), cells[cells.columns[::-1]])
    strange = X.copy()
    known = X.index[X["size"].notna()][0]
    strange.loc[known, "size"] = None  # a missing cell has no likelihood
    assert model.cell_uncertainty(strange, "nll").isna().sum().to_dict() == {
        name: cells[name].isna().sum() + (name == "size") for name in X.columns
    }
    assert model.cell_uncertainty(pa.Table.from_pandas(X)).column_names == list(X.columns)


def test_predictive_spread_is_a_geometric_mean_without_further_words(model: VarTJEPA) -> None:
    X = frame()
    spread = model.uncertainty(X, "predictive")
    np.testing.assert_array_equal(spread, model.uncertainty(X, "predictive", "geometric"))
    assert (spread < model.uncertainty(X, "predictive", "mean")).all()  # means of one sample
    posterior = model.embed(X)
    flat = posterior.std.reshape(len(X), -1)
    expected = {
        "mean": flat.mean(1),
        "q90": np.quantile(flat, 0.9, axis=1),
        "geometric": np.exp(np.log(flat).mean(1)),
    }
    assert expected.keys() == set(AGGREGATES["posterior"])
    for aggregate, values in expected.items():
        ours = model.uncertainty(X, "posterior", aggregate)  # type: ignore[arg-type]
        np.testing.assert_allclose(values, ours, rtol=1e-5)
    with pytest.raises(InputError, match=r"aggregate of 'nll' must be one of .*, not 'geometric'"):
        model.uncertainty(X, "nll", "geometric")
    with pytest.raises(InputError, match="'balanced'"):
        model.uncertainty(X, "posterior", "balanced")
    with pytest.raises(InputError, match="measures must be pairs of kind and aggregate"):
        model.uncertainties(X, ["nll"])  # type: ignore[list-item]
    with pytest.raises(InputError, match=r"coverage must be above 0 and below 1, not '0\.9'"):
        model.predict_cells(X, coverage="0.9")  # type: ignore[arg-type]


def test_numbers_and_categories_weigh_the_same_however_many_there_are(model: VarTJEPA) -> None:
    X = frame()
    X.loc[0, [f.column for f in model.codec_.features if f.kind == "categorical"]] = None
    cells = per_feature(model, X, "nll")
    numeric = np.array([f.kind == "numeric" for f in model.codec_.features])
    assert 0 < numeric.sum() != (~numeric).sum() > 0
    kinds = [np.ma.masked_invalid(cells[:, each]).mean(1) for each in (numeric, ~numeric)]
    expected = np.ma.stack(kinds).mean(0)
    np.testing.assert_allclose(model.uncertainty(X, "nll", "balanced"), expected, rtol=1e-5)
    assert expected[0] == kinds[0][0]  # it has no category


def test_more_splits_are_steadier(model: VarTJEPA) -> None:
    """Two seeds choose other halves; the more of them, the less it matters."""
    X, other = frame(), copy(model)
    other.seed_ = model.seed_ + 1

    def gap(splits: int) -> float:
        pair = (each.uncertainty(X, "nll", splits=splits) for each in (model, other))
        return float(np.abs(np.subtract(*pair)).mean())

    assert gap(64) < 0.5 * gap(1)
    for wrong in (0, 1.5, True):
        with pytest.raises(InputError, match="splits must be an integer of at least 1"):
            model.uncertainty(X, splits=wrong)


def test_scores_split_into_terms(model: VarTJEPA) -> None:
    terms = model.score_terms(frame())
    weights = Objective()
    total = sum(getattr(weights, f"alpha_{name}") * term for name, term in terms.items())
    assert set(terms) == {"rec", "gen", "kl_sx", "kl_z", "kl_sy"}
    np.testing.assert_allclose(model.score_samples(frame()), -total, rtol=1e-5)


@pytest.mark.parametrize(
    "table",
    [
        pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}),
        pd.DataFrame({"a": np.arange(30.0)}),
        pd.DataFrame({"k": list("abc") * 10}),
        pd.DataFrame({"a": np.ones(30), "b": np.arange(30)}),
        pd.DataFrame({"a": [np.nan] * 30, "b": np.arange(30), "c": [None] * 30}),
        pd.DataFrame({"id": [f"u{i}" for i in range(5000)], "b": np.arange(5000)}),
    ],
    ids=["two rows", "one number", "one category", "constant", "all missing", "huge category"],
)
def test_odd_tables(table: pd.DataFrame) -> None:
    model = quiet_fit(table, epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rare levels count as unseen
        assert np.isfinite(model.transform(table)).all()
        assert np.isfinite(model.uncertainty(table, "surprise")).all()
        assert len(model.sample(3)) == 3
        assert len(model.impute(table)) == len(table)


def test_holes_far_down_a_table_are_filled() -> None:
    X = pd.DataFrame({"a": np.arange(1100.0), "b": np.arange(1100) % 7})
    model = quiet_fit(X, epochs=1)
    holed = X.copy()
    holed.loc[1050, "a"] = np.nan  # rows are filled a thousand at a time
    filled = model.impute(holed)
    assert filled["a"].notna().all()
    assert filled.drop(index=1050).equals(X.drop(index=1050))


def test_a_fit_that_fails_leaves_the_estimator_as_it_was() -> None:
    model = quiet_fit(frame())
    before = model.transform(frame())
    with pytest.raises(InputError, match="too few"):
        model.fit(pd.DataFrame({"x": np.arange(40.0)}), [1] + [None] * 39)
    assert model.n_features_in_ == 4
    assert np.array_equal(model.transform(frame()), before)


def test_rows_without_a_label_are_trained_on_and_judge_nothing() -> None:
    X, y = frame(), np.array(["u", "v"] * 30, dtype=object)
    y[::3] = None
    model = quiet_fit(X, epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one epoch does collapse
        partly = small(VarTJEPA, **{**SMALL, "epochs": 1}).fit(X, y)
    assert partly.selected_by_ == "filtered accuracy"
    assert np.array_equal(partly.transform(X), model.transform(X))  # labels train nothing


def test_a_category_of_a_million_levels() -> None:
    names = pa.array(np.arange(1_000_000)).cast(pa.string())
    table = pa.table({"id": pc.binary_join_element_wise("u", names, ""), "x": np.arange(1e6)})
    kinds = {"id": "categorical"}  # else it is recognised as an identifier
    options = {"max_steps": 1, "max_levels": 20, "validation_share": 0.001}
    model = quiet_fit(table, column_kinds=kinds, **options)
    few = table.slice(999_000)
    with pytest.warns(UserWarning, match=r"treated as missing.*'id'"):
        assert np.isfinite(model.transform(few)).all()


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"output": "round"}, "output must be one of"),
        ({"epochs": 0}, "epochs must be at least 1"),
        ({"validation_share": 1.5}, "validation_share"),
        ({"device": "toaster"}, "device 'toaster'"),
        ({"device": "cpu", "precision": "bfloat16"}, "needs a GPU"),
        ({"patience": 0}, "patience must be at least 1"),
        ({"validate_every": 0}, "validate_every must be at least 1"),
        ({"context_share": (0.1, 0.2, 0.3)}, "context_share must be two numbers"),
        ({"column_kinds": {"shoe": "numeric"}}, "'shoe'"),
        ({"scaling": "log"}, "scaling"),
        ({"context_share": (0.9, 0.1)}, "context_share"),
        ({"d": 7}, "must be a multiple"),
    ],
)
def test_wrong_parameters_are_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        small(VarTJEPA, **{**SMALL, **wrong}).fit(frame())


def test_wrong_questions_are_named(model: VarTJEPA) -> None:
    for ask in (
        lambda: model.uncertainty(frame(), "vague"),  # type: ignore[arg-type]
        lambda: model.uncertainty(frame(), aggregate="max"),  # type: ignore[arg-type]
        lambda: model.impute(frame(), z="zeta"),  # type: ignore[arg-type]
        lambda: model.impute_samples(frame(), 0),
        lambda: model.sample(0),
    ):
        with pytest.raises(InputError):
            ask()


def test_all_uncertainties_in_one_pass_are_those_of_each(model: VarTJEPA) -> None:
    X = frame()
    together = model.uncertainties(X)
    assert tuple(name.split()[0] for name in together) == LATENT_KINDS
    for name, values in together.items():
        kind, aggregate = name.split()
        np.testing.assert_array_equal(values, model.uncertainty(X, kind))  # type: ignore[arg-type]
        assert aggregate == default_aggregate(kind)  # type: ignore[arg-type]
    (name, values), *none = model.uncertainties(X, [("nll", "q90")]).items()
    assert (name, none) == ("nll q90", [])
    np.testing.assert_array_equal(values, model.uncertainty(X, "nll", "q90"))
    mean, per_row, per_column = embed_with_uncertainty(model, X, "nll")
    np.testing.assert_array_equal(mean, model.embed(X).mean.reshape(len(X), -1))
    np.testing.assert_array_equal(per_row, model.uncertainty(X, "nll"))
    np.testing.assert_array_equal(per_column, model.cell_uncertainty(X, "nll").to_numpy())


def test_a_fit_without_time_is_a_model(tmp_path: Path) -> None:
    fitted = quiet_fit(frame(), epochs=1000, time_limit=1e-6)
    assert len(fitted.history_) == fitted.best_epoch_ == 1
    assert np.isfinite(fitted.transform(frame())).all()
    assert not fitted.impute(frame())["size"].isna().any()
    fitted.save(tmp_path / "model")
    again = VarTJEPA.load(tmp_path / "model")
    assert again.training.time_limit == 1e-6
    np.testing.assert_array_equal(again.transform(frame()), fitted.transform(frame()))
