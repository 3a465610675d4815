"""What Table 1 is supposed to show, read off result rows.

Two readings: the paper's qualitative findings, each true or false; and cell by cell, how many of
the 100 numbers agree with the paper's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from paper.published import SIMULATION_METRICS, simulation_paper_value
from paper.results import Finding, Row
from paper.simulation import LATENTS


@dataclass(frozen=True, slots=True)
class Summary:
    """Mean and sample standard deviation over runs."""

    mean: float
    std: float
    """NaN for a single run, which has none"""


def summarise(rows: Sequence[Row], variant: str, latent: str, metric: str) -> Summary | None:
    """One cell of our table."""
    values = [row[metric] for row in rows if row["variant"] == variant and row["latent"] == latent]
    if not values or any(value is None for value in values):
        return None
    return Summary(
        mean=statistics.fmean(values), std=statistics.stdev(values) if len(values) > 1 else math.nan
    )


def agrees(ours: Summary | None, variant: str, latent: str, metric: str) -> bool:
    """Accuracy within .01, the others within 25 %; or within 3 of the paper's deviations."""
    if ours is None:
        return False
    paper_mean, paper_std = simulation_paper_value(variant, latent, metric)
    slack = 0.01 if metric == "accuracy" else 0.25 * paper_mean
    # 1e-12: .996 − .01 is not quite .986 in binary
    return abs(ours.mean - paper_mean) <= max(slack, 3 * paper_std) + 1e-12


def count_agreeing(rows: Sequence[Row], variants: Sequence[str]) -> tuple[int, int]:
    """(cells that agree with the paper, cells compared)."""
    cells = [
        agrees(summarise(rows, variant, latent, metric), variant, latent, metric)
        for variant in variants
        for latent in LATENTS
        for metric in SIMULATION_METRICS
    ]
    return sum(cells), len(cells)


def findings(rows: Sequence[Row]) -> list[Finding]:
    """The paper's findings, as far as the variants they need are there, with runs to compare."""
    variants = {row["variant"] for row in rows}
    if not variants:
        return []

    def cell(variant: str, latent: str, metric: str) -> Summary:
        summary = summarise(rows, variant, latent, metric)
        return summary or Summary(float("nan"), float("nan"))

    def mean(variant: str, latent: str, metric: str) -> float:
        return cell(variant, latent, metric).mean

    found: list[Finding] = []
    if variants >= {"A"}:
        accuracy, kl = mean("A", "s_x", "accuracy"), mean("A", "s_x", "kl_aggregate")
        found.append(
            Finding(
                "A: the ELBO alone keeps s_x readable (accuracy ≥ .99) and near N(0, I) (KL ≤ .15)",
                accuracy >= 0.99 and kl <= 0.15,
                f"accuracy {accuracy:.4f}, KL {kl:.3f}",
            )
        )
    several = min(len({r["run"] for r in rows if r["variant"] == v}) for v in variants) > 1
    if several and variants >= set("ABCD"):
        base = cell("A", "s_x", "kl_aggregate")
        gaps = {v: abs(mean(v, "s_x", "kl_aggregate") - base.mean) for v in "BCD"}
        found.append(
            Finding(
                "B, C, D: SIGReg adds nothing on s_x (KL within two standard deviations of A)",
                all(gap <= 2 * base.std for gap in gaps.values()),
                ", ".join(f"{v} {gap:.3f}" for v, gap in gaps.items()) + f" against {base.std:.3f}",
            )
        )
    if variants >= set("AEI"):
        ratios = {
            v: mean(v, "s_x", "kl_aggregate") / mean("A", "s_x", "kl_aggregate") for v in "EI"
        }
        found.append(
            Finding(
                "E, I: without its KL, s_x leaves N(0, I) (KL at least 30 × A's)",
                all(ratio >= 30 for ratio in ratios.values()),
                ", ".join(f"{v} {ratio:.0f} ×" for v, ratio in ratios.items()),
            )
        )
    if several and variants >= set("GH"):
        g, h = cell("G", "s_x", "accuracy"), cell("H", "s_x", "accuracy")
        found.append(
            Finding(
                "G: without likelihoods the latent collapses (accuracy ≤ .62); H clearly above G",
                g.mean <= 0.62 and h.mean - h.std > g.mean + g.std,
                f"G {g.mean:.3f} ± {g.std:.3f}, H {h.mean:.3f} ± {h.std:.3f}",
            )
        )
    if variants >= set("AIJ"):
        a, j, i = (mean(v, "s_x", "kl_aggregate") for v in "AJI")
        found.append(
            Finding(
                "J: SIGReg instead of KL repairs s_x part of the way (KL between A and I)",
                a < j < i,
                f"{a:.3f} < {j:.3f} < {i:.3f}",
            )
        )
    if variants >= set("ACD"):
        shares = {
            v: mean(v, "s_y", "kl_aggregate") / mean("A", "s_y", "kl_aggregate") for v in "CD"
        }
        found.append(
            Finding(
                "C, D: SIGReg on s_y brings its KL at least 30 % below A's",
                all(share <= 0.7 for share in shares.values()),
                ", ".join(f"{v} {1 - share:.0%} below" for v, share in shares.items()),
            )
        )
    if variants >= set("ABCDEFGHIJ"):
        kls = {v: mean(v, "s_y", "kl_aggregate") for v in "ABCDEFGHIJ"}
        worst = max(kls, key=kls.__getitem__)
        found.append(
            Finding(
                "I: without any KL, s_y is the worst of all",
                worst == "I",
                f"worst is {worst} with {kls[worst]:.1f}",
            )
        )
    return found
