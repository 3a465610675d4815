"""Claims: the readings of Table 1 can come out false, and the committed results make them true."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.compare import Summary
from paper.published import SIMULATION_METRICS, simulation_paper_value
from paper.simulation import (
    LATENTS,
    SIMULATION_VARIANTS,
    agrees,
    count_agreeing,
    open_simulation,
    summarise,
)
from paper.simulation import simulation_findings as findings
from paper.store import Row

RESULTS = Path(__file__).parents[2] / "paper" / "results"


def paper_rows() -> list[Row]:
    """Two runs one standard deviation around the paper's mean, for every cell."""
    return [
        {
            "variant": variant,
            "latent": latent,
            "run": run,
            **{
                metric: mean + (2 * run - 1) * std
                for metric in SIMULATION_METRICS
                for mean, std in [simulation_paper_value(variant, latent, metric)]
            },
        }
        for variant in SIMULATION_VARIANTS
        for latent in LATENTS
        for run in (0, 1)
    ]


def test_the_papers_own_numbers_pass() -> None:
    rows = paper_rows()
    assert count_agreeing(rows, list(SIMULATION_VARIANTS)) == (100, 100)
    assert len(findings(rows)) == 7
    assert all(finding.holds for finding in findings(rows))


@pytest.mark.parametrize(
    ("variant", "latent", "metric", "value", "which"),
    [
        ("A", "s_x", "accuracy", 0.98, 0),
        ("A", "s_x", "kl_aggregate", 0.2, 0),
        ("C", "s_x", "kl_aggregate", 0.5, 1),
        ("E", "s_x", "kl_aggregate", 1.0, 2),
        ("G", "s_x", "accuracy", 0.7, 3),
        ("H", "s_x", "accuracy", 0.571, 3),
        ("J", "s_x", "kl_aggregate", 50.0, 4),
        ("D", "s_y", "kl_aggregate", 3.4, 5),
        ("F", "s_y", "kl_aggregate", 30.0, 6),
    ],
)
def test_each_finding_can_fail(
    variant: str, latent: str, metric: str, value: float, which: int
) -> None:
    rows = paper_rows()
    for row in rows:
        if (row["variant"], row["latent"]) == (variant, latent):
            row[metric] = value
    assert not findings(rows)[which].holds


def test_findings_need_their_variants() -> None:
    rows = [row for row in paper_rows() if row["variant"] in "AG"]
    assert [finding.claim[0] for finding in findings(rows)] == ["A"]


def test_tolerances() -> None:
    assert agrees(Summary(0.986, 0), "A", "s_x", "accuracy")
    assert not agrees(Summary(0.985, 0), "A", "s_x", "accuracy")
    assert agrees(Summary(2.6, 0), "J", "s_x", "kl_aggregate")  # within 25 %
    assert not agrees(Summary(2.7, 0), "J", "s_x", "kl_aggregate")
    assert agrees(Summary(50, 0), "I", "s_y", "kl_aggregate")  # within 3 deviations
    assert not agrees(None, "A", "s_x", "accuracy")


def test_a_diverged_run_is_no_number() -> None:
    rows: list[Row] = [{"variant": "A", "latent": "s_x", "run": 0, "accuracy": None}]
    assert summarise(rows, "A", "s_x", "accuracy") is None


def test_the_committed_study_is_complete_and_shows_the_findings() -> None:
    table, epochs = open_simulation(RESULTS)
    cells = {(row["variant"], row["latent"], row["run"]) for row in table.rows}
    assert cells == {(v, s, r) for v in SIMULATION_VARIANTS for s in LATENTS for r in range(5)}
    assert {(row["variant"], row["run"]) for row in epochs.rows} == {
        (v, r) for v in "ACEIJ" for r in range(5)
    }
    for finding in findings(table.rows):
        assert finding.holds, finding
    assert count_agreeing(table.rows, list(SIMULATION_VARIANTS))[0] >= 80


def test_one_run_has_no_spread_to_compare_with() -> None:
    rows = [row for row in paper_rows() if row["run"] == 0]
    claims = {finding.claim[0] for finding in findings(rows)}
    assert claims == {"A", "E", "J", "C", "I"}  # neither B, C, D within noise nor H above G
    assert findings([]) == []
