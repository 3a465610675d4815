"""Claims about the paper's numbers in ``paper_tables.json``.

1. Some cells, read by hand.
2. Every cell of the five tables against the LaTeX source, where it is at hand; and no more cells.
3. What the paper does not have is None.
"""

from __future__ import annotations

import re

from paper.datasets.catalogue import DATASETS
from paper.published import (
    PAPER_PREDICTORS,
    PAPER_REPRESENTATIONS,
    UNCERTAINTY_METRICS,
    downstream_paper_value,
    sensitivity_paper_value,
    uncertainty_paper_value,
)
from paper.settings import SENSITIVITY
from tests.paper.latex_tables import paper_source, quoted, table_lines
from varjepa.metrics.selective import COVERAGES

PREDICTORS = dict(
    zip(("MLP", "DCNv2", "ResNet", "AutoInt", "FT-Trans", "XGBoost"), PAPER_PREDICTORS, strict=True)
)


def coverage_of(title: str) -> float:
    found = re.search(r"\((\d+)\\%\)", title)
    return {None: 1.0, "10": 0.9, "20": 0.8, "50": 0.5}[found and found[1]]


def test_some_cells_by_hand() -> None:
    value = downstream_paper_value
    assert value("accuracy", "adult", "var_t_jepa", "mlp", 0.5) == (0.921, 0.0021)
    assert value("accuracy", "credit_default", "t_jepa", "mlp", 1.0) == (0.774, 0.0)
    assert value("accuracy", "covertype", "t_jepa", "mlp", 1.0) == (0.408, 0.23)
    assert value("accuracy", "sim", "raw", "ft_transformer", 1.0) == (0.962, 0.0014)
    assert value("accuracy", "mnist", "t_jepa", "xgboost", 1.0) == (0.871, None)
    assert value("accuracy", "electricity", "raw", "xgboost", 1.0) == (0.917, None)
    assert value("f1_weighted", "mnist", "t_jepa", "mlp", 1.0) == (0.023, 0.0023)
    assert value("f1_weighted", "bank_marketing", "var_t_jepa", "autoint", 0.8) == (0.902, 0.0014)
    assert sensitivity_paper_value("weights", "High KL", "mlp", 1.0) == (0.826, 0.0027)
    assert sensitivity_paper_value("architecture", "Deep", "resnet", 0.5) == (0.909, 0.0019)
    assert uncertainty_paper_value("spearman", "sim", "latent") == 0.64
    assert uncertainty_paper_value("auroc", "mnist", "latent") == 0.986
    assert uncertainty_paper_value("aurc", "mnist", "mc dropout") == 0.025


def test_what_the_paper_does_not_have_is_none() -> None:
    assert downstream_paper_value("accuracy", "adult", "pca", "mlp", 1.0) is None
    assert downstream_paper_value("accuracy", "adult", "raw", "mlp", 0.5) is None
    assert downstream_paper_value("f1_macro", "adult", "raw", "mlp", 1.0) is None
    assert downstream_paper_value("accuracy", "adult", "raw", "linear_probe", 1.0) is None
    assert sensitivity_paper_value("weights", "Base", "xgboost", 1.0) is None
    assert uncertainty_paper_value("augrc", "sim", "latent") is None
    assert uncertainty_paper_value("aurc", "adult", "latent") is None


def test_the_downstream_tables_against_the_source() -> None:
    source = paper_source()
    for metric, label in (("accuracy", "tab:results"), ("f1_weighted", "tab:results_f1")):
        predictor, seen = "", set()
        for title, *cells in table_lines(source, label)[1:]:
            predictor = PREDICTORS.get(title, predictor)
            name = "raw" if title in PREDICTORS else "t_jepa"
            name = "var_t_jepa" if "Var-T-JEPA" in title else name
            coverage = coverage_of(title)
            for dataset, cell in zip(DATASETS, cells, strict=True):
                ours = downstream_paper_value(metric, dataset, name, predictor, coverage)
                assert ours == quoted(cell), (metric, dataset, name, predictor, coverage)
                seen.add((dataset, name, predictor, coverage))
        assert len(seen) == 7 * 6 * 6
        for dataset in DATASETS:
            for name in PAPER_REPRESENTATIONS:
                for coverage in COVERAGES:
                    there = downstream_paper_value(metric, dataset, name, "mlp", coverage)
                    assert (there is not None) == ((dataset, name, "mlp", coverage) in seen)


def test_the_sensitivity_tables_against_the_source() -> None:
    source = paper_source()
    labels = ("tab:adult_sensitivity_end_weights", "tab:adult_sensitivity_arch")
    for (table, columns), label in zip(SENSITIVITY.items(), labels, strict=True):
        lines = [line for line in table_lines(source, label) if "Var-T-JEPA" in line[0]]
        assert len(lines) == 8
        for title, *cells in lines:
            predictor = PREDICTORS[title.split(" +")[0]]
            for column, cell in zip(columns, cells, strict=True):
                ours = sensitivity_paper_value(table, column, predictor, coverage_of(title))
                assert ours == quoted(cell)


def test_the_uncertainty_table_against_the_source() -> None:
    lines = table_lines(paper_source(), "tab:uncertainty_baselines")[1:]
    assert len(lines) == 10
    dataset = ""
    for name, method, *cells in lines:
        dataset = name.lower() or dataset
        score = "latent" if "latent" in method else method.lower()
        for metric, cell in zip(UNCERTAINTY_METRICS, cells, strict=True):
            assert uncertainty_paper_value(metric, dataset, score) == quoted(cell)[0]
