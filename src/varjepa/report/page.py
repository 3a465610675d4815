"""One self-contained HTML page from tables and charts.

The page has no script and a policy that forbids every request. Whatever comes from the data is
escaped by the template; figures get their words from HTML, never from matplotlib.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import trapezoid

from varjepa.errors import InputError
from varjepa.files import make_folder, write_text
from varjepa.report.charts import curve_strokes, draw_risk_coverage
from varjepa.report.tables import SIGNS, Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Headline:
    """One number that the reader should take home, and what to compare it with."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """Risk among the rows kept when the most uncertain are left out."""

    coverage: Floats  # (C,) shares kept, in [0, 1]
    risk: Mapping[str, Floats]  # (C,) each
    """by name; the one to look at first, then those to compare with. ``random`` and ``oracle`` are
    drawn as grey references"""

    def __post_init__(self) -> None:
        for name, risk in self.risk.items():
            if len(risk) != len(self.coverage):
                raise ValueError(
                    f"risk {name}: {len(risk)} values, but {len(self.coverage)} coverage"
                )


@dataclass(frozen=True, eq=False)
class ReportPage:
    """A page; whatever is empty or None is left out."""

    title: str
    subtitle: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    """names of pages beside this one, and their paths from here"""
    headlines: Sequence[Headline] = ()
    tables: Sequence[Table] = ()
    model: str = ""
    """HTML of a fitted model, as :func:`varjepa.estimators.summary.model_html` writes it"""
    risk_coverage: RiskCoverage | None = None
    footer: Mapping[str, object] = field(default_factory=dict)
    """environment: versions, seed, seconds; what is None is not known"""


_LONGEST_NAME, _LONGEST_TITLE = 40, 1000
_COVERAGES = (0.5, 0.8, 0.9, 1.0)


def write_page(page: ReportPage, path: Path) -> None:
    """Render first, then replace the file in one step: a reader never sees half a page."""
    write_report(render_page(page), path)


def write_report(text: str, path: Path) -> None:
    """Replace a file in one step, or say in one sentence why that is not possible."""
    make_folder(path.parent)
    try:
        write_text(path, text)
    except OSError as error:
        raise InputError(f"cannot write the report {path}: {error.strerror}") from error


def render_page(page: ReportPage) -> str:
    """The whole page as HTML; the same input gives the same text."""
    return render_template(
        "page.html.j2",
        page=page,
        tables=[table for table in page.tables if table.rows],
        signs=SIGNS,
        model=trusted(page.model),
        risk=_risk_view(page.risk_coverage),
    )


def render_template(name: str, package: str = "varjepa.report", **values: Any) -> str:
    """Fill a template of a package; whatever is not an element of ours is escaped.

    A template may extend those of this package.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined
    except ImportError as error:
        raise InputError("a report needs jinja2: pip install 'varjepa[report]'") from error

    def load(file: str) -> str:
        folder = resources.files(package if file == name else "varjepa.report")
        return folder.joinpath(file).read_text(encoding="utf-8")

    environment = Environment(
        loader=FunctionLoader(load),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(clean=_clean, shorten=shorten, number=_number)
    return environment.get_template(name).render(**values)


def _risk_view(given: RiskCoverage | None) -> dict[str, Any] | None:
    """The curves, and their risk at a few coverages: the table is the legend."""
    if given is None or not given.risk or not len(given.coverage):
        return None
    order = np.argsort(given.coverage, kind="stable")
    coverage = np.asarray(given.coverage, float)[order]
    risks = {
        name: np.where(np.isfinite(risk), risk, np.nan)[order] for name, risk in given.risk.items()
    }
    strokes = curve_strokes(list(risks))
    svg = draw_risk_coverage(
        coverage,
        list(risks.values()),
        strokes,
        "Risk among the rows kept, against the share of rows kept: "
        + ", ".join(shorten(name) for name in risks),
    )
    width = coverage[-1] - coverage[0]
    inside = [c for c in _COVERAGES if coverage[0] - 1e-6 <= c <= coverage[-1] + 1e-6]
    curves = [
        {
            "name": name,
            "stroke": stroke,
            "mean": float(trapezoid(risk, coverage) / width if width > 0 else risk.mean()),
            "at": [float(np.interp(c, coverage, risk)) for c in inside],
        }
        for (name, risk), stroke in zip(risks.items(), strokes, strict=True)
    ]
    names = {name.lower() for name in risks}
    return {"svg": trusted(svg), "coverages": inside, "curves": curves, "names": names}


def _number(value: float) -> str:
    """About three figures, a real minus sign; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    if size >= 1e6 or 0 < size < 0.001:
        text = f"{value:.1e}"
    elif size >= 1000:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.3f}" if size < 10 else f"{value:.1f}"
    return text.replace("-", "−")


def _clean(text: Any) -> str:
    """On one line, with a � for each character that no HTML or UTF-8 file may hold."""
    line = re.sub(r"\s+", " ", str(text))
    return re.sub(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]", "�", line)


def shorten(text: Any, longest: int = _LONGEST_NAME) -> str:
    line = _clean(text)
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def trusted(svg: str) -> Any:
    """HTML of our own, which has escaped its names: the only text the template does not escape."""
    from markupsafe import Markup  # comes with jinja2

    return Markup(svg)
