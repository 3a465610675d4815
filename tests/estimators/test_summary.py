"""Claims about model cards and what notebooks show.

1. ``save`` writes README.md: columns, kinds, ranges, missing shares, changed settings, the epoch
   kept, validation score, limits, versions. The same model gives the same card.
2. The card has no value that few rows have: neither extremes nor rare levels. The model folder is
   checked as before: the card is not in the manifest, and may be changed or missing.
3. Hostile names change neither the card's tables nor the notebook's elements.
4. A README.md that varjepa did not write is left as it is, with a warning.
5. A fitted model shows columns, curves and quality in a notebook, an embedding a map of its rows
   and its features; text stays as it was, and an estimator that is not fitted shows scikit-learn's
   diagram.
6. Sentences say whether the fit is good, compared with the columns' own distributions, and whether
   a longer one would help. A fit of less than two validations is never good, nor is one that a
   number of steps or seconds ended while it improved. They fit a terminal of 80 columns.
"""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context

from tests.estimators.test_similar import SMALL
from tests.report.test_page import HOSTILE
from tests.small import small
from varjepa import TJEPA, VarTJEPA
from varjepa.estimators.summary import (
    MARK,
    curve_svg,
    describe_training,
    map_svg,
    model_card,
    model_html,
    training_words,
    wrapped,
)

BAD = "a|b\n| c |\n# e <script>x</script> [f](https://g) *i* \u202e"


def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 400
    size = rng.normal(50, 10, n)
    size[0], size[1] = -12345.678, 98765.432
    town = rng.choice(["Ulm", "Rom"], n).astype(object)
    town[2] = "Secret"
    return pd.DataFrame(
        {
            "size": np.where(np.arange(n) % 10 == 5, np.nan, size),
            "town": town,
            "born": pd.Timestamp("2020-01-15") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "number": [f"id{i}" for i in range(n)],
            BAD: rng.choice([BAD, "plain"], n),
        }
    )


@pytest.fixture(scope="module")
def model() -> VarTJEPA:
    return small(VarTJEPA, **SMALL).fit(frame())


@pytest.fixture
def folder(model: VarTJEPA, tmp_path: Path) -> Path:
    model.save(tmp_path / "model")
    return tmp_path / "model"


def test_the_card_says_what_and_how(folder: Path, model: VarTJEPA) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in card.splitlines() if line.startswith("| ")]
    by_name = {row[0].removeprefix("| "): row[1:] for row in rows}
    assert by_name["size"][0] == "numeric"
    assert by_name["size"][2] == "10.0% |"
    low, high = (float(word) for word in by_name["size"][1].split(" to "))
    assert 20 < low < 40 < 60 < high < 80
    assert by_name["town"][1] in ("3 levels: Ulm, Rom, …", "3 levels: Rom, Ulm, …")
    assert by_name["born"][1] == "2020-01 to 2022-06"
    assert by_name["number"][1] == "not modelled: identifier"
    for words in (
        "architecture\\_\\_d: 8",
        f"Trained for 2 epochs; epoch {model.best_epoch_} was selected by",
        "log-likelihood of held-out cells",
        "## Limits",
        "- torch: ",
    ):
        assert words in card
    assert "learning_rate" not in card  # a default
    assert model_card(VarTJEPA.load(folder)) == card


def test_no_value_of_single_rows(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert "Secret" in (folder / "codec.json").read_text(encoding="utf-8")
    for word in ("Secret", "12345", "98765", "id7"):
        assert word not in card


@pytest.mark.parametrize("change", ["nothing", "altered", "removed"])
def test_the_manifest_does_not_cover_the_card(folder: Path, model: VarTJEPA, change: str) -> None:
    card = folder / "README.md"
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    assert set(manifest["files"]) == {"config.json", "codec.json", "model.safetensors"}
    if change == "altered":
        card.write_text("other words")
    elif change == "removed":
        card.unlink()
    again = VarTJEPA.load(folder)
    np.testing.assert_array_equal(again.transform(frame()), model.transform(frame()))


def test_hostile_names_change_no_table(folder: Path) -> None:
    card = (folder / "README.md").read_text(encoding="utf-8")
    lines = [line for line in card.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 5
    for line in lines:
        assert line.replace("\\|", "").count("|") == 5
    assert "<script" not in card.replace("\\<", "")
    assert "\\[f\\](https\\://g) \\*i\\*" in card
    assert "\u202e" not in card
    assert card.count("\n# ") == 1


def test_a_readme_of_the_user_stays(model: VarTJEPA, tmp_path: Path) -> None:
    own = tmp_path / "README.md"
    own.write_text("mine")
    with pytest.warns(UserWarning, match=r"README\.md is not a card that varjepa wrote"):
        model.save(tmp_path)
    assert own.read_text() == "mine"
    own.unlink()
    model.save(tmp_path)
    model.save(tmp_path)
    assert own.read_text(encoding="utf-8").startswith(MARK)


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def test_a_fitted_model_in_a_notebook(model: VarTJEPA) -> None:
    bundle = model._repr_mimebundle_()
    shown = bundle["text/html"]
    assert shown == model._repr_html_() == model_html(model)
    assert bundle["text/plain"] == repr(model)
    assert repr(model).startswith("VarTJEPA(")
    tags = Tags(shown).tags
    assert tags.count("tr") == 6
    assert tags.count("polyline") == 2
    assert not {"script", "img", "a", "style"} & {*tags}
    assert "held-out cells" in shown
    assert "\u202e" not in shown
    with config_context(display="text"):
        assert "text/html" not in model._repr_mimebundle_()
        assert not hasattr(model, "_repr_html_")
    embedding = model.embed(frame().head(5))
    table = embedding._repr_html_()
    assert "5 rows" in table
    n, d = len(embedding.features), embedding.mean.shape[2]
    assert repr(embedding) == f"Embedding(5 rows, {n} features, {d} dimensions)"
    assert Tags(table).tags.count("tr") == 1 + len(embedding.features)
    assert Tags(table).tags.count("circle") == 5


def test_a_map_of_an_embedding_has_a_point_a_row() -> None:
    mean = np.random.default_rng(0).normal(size=(2500, 2, 4)).astype(np.float32)
    shown = map_svg(mean)
    assert Tags(shown).tags.count("circle") == 834  # every third
    assert "834 rows" in shown
    for few in (mean[:2], np.zeros_like(mean), np.full_like(mean, np.nan)):
        assert map_svg(few) == ""


def test_an_estimator_that_is_not_fitted_shows_the_diagram() -> None:
    for kind in (VarTJEPA, TJEPA):
        shown = kind()._repr_mimebundle_()["text/html"]
        assert "sk-" in shown
        assert shown.count("polyline") == 0
        assert "sk-" in kind()._repr_html_()


def test_the_point_estimator_has_a_card_too(tmp_path: Path) -> None:
    X = frame()[["size", "town"]]
    model = small(TJEPA, epochs=1, d=8, heads=2, ff=8, random_state=0).fit(X)
    model.save(tmp_path / "model")
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert card.splitlines()[2] == "# A TJEPA model"
    assert "Uncertainties" not in card
    assert "<b>TJEPA</b>" in model._repr_html_()


def test_curves() -> None:
    history = [{"epoch": e, "loss": v} for e, v in ((1, 4.0), (2, float("nan")), (3, 0.0))]
    assert 'points="6.0,6.0 254.0,74.0"' in curve_svg("loss", history, 3)
    assert "loss by epoch: first 4, last 0" in curve_svg("loss", history, 3)
    longer = [*history, {"epoch": 4, "loss": 1.5}]
    assert "loss by epoch: first 4, 0 in epoch 3, last 1.5" in curve_svg("loss", longer, 3)
    assert curve_svg("loss", history[:1], 1) == ""
    assert curve_svg("other", history, 1) == ""
    for name in HOSTILE:
        named = [{"epoch": e, name: float(e)} for e in (1, 2)]
        assert Tags(curve_svg(name, named, 1)).tags.count("svg") == 1


# --- 6


def told(scores: list[float], **changes: Any) -> str:
    arguments = {"baseline": -9.0, "otherwise": "?", "patience": 3, "is_capped": False}
    return describe_training(scores, **(arguments | changes))


@pytest.mark.parametrize(
    ("scores", "verdict", "says"),
    [
        ([-5.0, -3.0, -2.0, -1.0], "unfinished", "still improving when training ended. Allow more"),
        ([-5.0, -1.0], "unfinished", "still improving"),
        ([-5.0, -1.02, -1.01, -1.0, -1.0], "good", "has levelled off"),
        ([0.80, 0.81, 0.8, 0.811], "good", "has levelled off"),
        ([-5.0, -1.0, -1.1, -1.1, -1.2], "good", "no longer improved: longer training will not"),
        ([-1.0, -1.1], "good", "Too few validations"),
        ([-5.0], "too short to tell", "1 validation. Allow more epochs, steps or time"),
        ([], "too short to tell", "0 validations"),
    ],
)
def test_whether_longer_training_would_help(scores: list[float], verdict: str, says: str) -> None:
    assert told(scores).startswith(verdict)
    assert says in told(scores)


def test_a_capped_training_that_improved_is_unfinished() -> None:
    scores = [-5.0, -1.02, -1.01, -1.0, -0.9999]
    assert told(scores).startswith("good: ")
    assert told(scores, is_capped=True).startswith("unfinished: ")
    assert told([-1.0, -1.1], is_capped=True).startswith("good: ")


def test_a_good_fit_predicts_better_than_the_columns_alone() -> None:
    scores = [-2.0, -1.0, -1.0, -1.0, -1.0]
    assert told(scores, baseline=-1.5).startswith(
        "good: held-out cells are predicted better than by each column's own distribution "
        "(+0.50 nats a cell), and the embeddings have not collapsed. "
    )
    for baseline in (-1.04, -0.5):
        assert told(scores, baseline=baseline).startswith("poor: ")
        assert "no better" in told(scores, baseline=baseline)
    probe = told(scores, baseline=None, otherwise="a linear probe on them has …")
    assert probe.startswith("usable: the embeddings have not collapsed; a linear probe on them has")
    silent = told(scores, silent_columns=[f"c{i}" for i in range(7)])
    assert silent.startswith("fair: ")
    assert "these columns leave no trace in the embedding: c0, c1, c2, c3, c4 …." in silent


@pytest.mark.filterwarnings("ignore:the latents have collapsed")
def test_what_the_columns_alone_would_score() -> None:
    """A standard normal number, and a fair coin that a third of the rows lack."""
    number = np.random.default_rng(0).normal(size=300)
    X = pd.DataFrame({"a": number, "b": ["u", "v", None] * 100})
    for numbers in ("bins", "gaussian"):
        model = small(VarTJEPA, **SMALL | {"epochs": 1, "numbers": numbers}).fit(X)
        of_number = 0.5 * np.log(2 * np.pi * np.e)
        if numbers == "bins":
            of_number += np.log(len(model.codec_.numeric[0].bins.low))
        expected = -(of_number + np.log(2) * 2 / 3) / (1 + 2 / 3)
        assert model.cell_baseline() == pytest.approx(expected, abs=0.02)
    point = small(TJEPA, epochs=1, d=8, heads=2, ff=8, random_state=0).fit(X)
    assert point.cell_baseline() is None


def test_the_sentences_about_fits(model: VarTJEPA, monkeypatch: pytest.MonkeyPatch) -> None:
    for line in wrapped("fit", training_words(model)).splitlines():
        assert len(line) <= 80
    monkeypatch.setattr(model, "collapse_", replace(model.collapse_, collapsed=True))
    assert training_words(model).startswith("not good: the embeddings have collapsed")
    short = small(VarTJEPA, **SMALL | {"max_steps": 2}).fit(frame())
    assert training_words(short).startswith("too short to tell whether it is good")
