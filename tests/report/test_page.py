"""Claims: every part that is given is on the page and nothing else; what comes from the data is
only ever text; the page asks the network for nothing; the same input gives the same bytes; a
missing extra, an unwritable file or unequal lengths are told plainly.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from varjepa.errors import InputError
from varjepa.report.page import (
    Headline,
    ReportPage,
    RiskCoverage,
    render_page,
    write_page,
)
from varjepa.report.tables import Table

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    '"><script>alert(1)</script>',
    "</script></style></svg>",
    "{{7*7}}{% for x in y %}",
    "$\\frac{x}{$",
    "' onclick='alert(1)",
    "&lt;b&gt;<!-- ]]>",
    "javascript:alert(1)//http://e.org",
)
POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


def full_page(name: Any = lambda i: f"name {i}") -> ReportPage:
    """A page with every part; `name(i)` is the i-th string that comes from the data."""
    coverage = np.linspace(0.1, 1.0, 19)
    return ReportPage(
        title=name(0),
        subtitle=name(1),
        headlines=[Headline(name(2), name(3), name(4)), Headline("rows", "60")],
        tables=[
            Table(
                name(5),
                [name(6), "accuracy", "seconds"],
                [[name(7), "0.81 ± 0.02", "1,204"], [name(8), "−3e-4", ""]],
                name(9),
            )
        ],
        model="<div><b>VarTJEPA</b><svg role='img' aria-label='loss'></svg></div>",
        risk_coverage=RiskCoverage(
            coverage, {name(10): 0.2 * coverage, "random": np.full(19, 0.2), "oracle": 0 * coverage}
        ),
        footer={name(11): name(12)},
    )


class Reader(HTMLParser):
    """Elements with their attributes in order, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.text.append(data.strip())

    def skeleton(self) -> list[tuple[str, dict[str, str | None]]]:
        """All but the places where words may stand: text, and what is read aloud or on hover."""
        words = ("title", "aria-label")
        return [
            (tag, {name: "" if name in words else value for name, value in attributes.items()})
            for tag, attributes in self.elements
        ]

    def headings(self) -> list[str]:
        return [
            tag + "#" + str(attributes.get("id"))
            for tag, attributes in self.elements
            if tag in ("h1", "h2")
        ]


def test_every_part_is_there() -> None:
    page = render_page(full_page())
    reader = Reader(page)
    assert page.startswith("<!doctype html>")
    assert ("html", {"lang": "en"}) in reader.elements
    assert reader.text[0] == "name 0"  # <title>
    for i in range(13):
        assert f"name {i}" in reader.text, i
    assert reader.headings() == [
        "h1#None",
        "h2#headlines-title",
        "h2#table1-title",
        "h2#model-title",
        "h2#risk-title",
        "h2#None",
    ]
    figures = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 1 + 1
    assert all(a["aria-label"] for a in figures)


@pytest.mark.parametrize(
    ("part", "empty", "trace"),
    [
        ("subtitle", "", 'class="subtitle"'),
        ("headlines", (), "<dl"),
        ("tables", (), 'class="result"'),
        ("model", "", 'id="model"'),
        ("risk_coverage", None, 'id="risk"'),
        ("risk_coverage", RiskCoverage(np.zeros(0), {}), 'id="risk"'),
        ("footer", {}, "<footer"),
        ("footer", {"commit": None}, "<dt><bdi>commit"),
        ("links", {}, "<nav"),
    ],
)
def test_an_absent_part_leaves_no_trace(part: str, empty: object, trace: str) -> None:
    page = replace(full_page(), footer={"commit": "abc"}, links={"audit": "audit.html"})
    # the environment is a list of definitions too
    page = replace(page, footer={}) if part == "headlines" else page
    assert trace in render_page(page)
    assert trace not in render_page(replace(page, **{part: empty}))


def test_a_title_alone_is_a_page() -> None:
    reader = Reader(render_page(ReportPage("alone")))
    assert {tag for tag, _ in reader.elements} == (
        {"html", "head", "meta", "title", "style", "body", "header", "h1", "bdi", "main"}
    )


def test_data_is_only_ever_text() -> None:
    plain = Reader(render_page(full_page()))
    for shift in range(len(HOSTILE)):
        # the number keeps names distinct, so that legends are as long as on the plain page
        hostile = {i: f"{i:02} {HOSTILE[(i + shift) % len(HOSTILE)]}" for i in range(13)}
        reader = Reader(render_page(full_page(name=hostile.__getitem__)))
        assert reader.skeleton() == plain.skeleton()
        for i, text in hostile.items():
            assert text in reader.text, i


def test_nothing_is_loaded_and_nothing_runs() -> None:
    page = render_page(full_page(name=lambda i: f"{i} http://e.org/"))
    reader = Reader(page)
    policies = [
        a["content"] for _, a in reader.elements if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies == [POLICY]
    assert not {"script", "link", "iframe", "object", "base"} & {tag for tag, _ in reader.elements}
    for tag, attributes in reader.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name, value in attributes.items():
            if name in ("href", "src", "srcset", "xlink:href"):
                assert (value or "").startswith("#"), (tag, name, value)
            elif name not in ("title", "aria-label"):
                assert "://" not in (value or ""), (tag, name, value)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_ids_are_unique_and_references_resolve() -> None:
    reader = Reader(render_page(full_page()))
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = set()
    for _, attributes in reader.elements:
        wanted |= set(re.findall(r"url\(#(.+?)\)", attributes.get("clip-path") or ""))
        wanted |= {(attributes.get("href") or "#")[1:]} - {""}
        wanted |= set((attributes.get("aria-labelledby") or "").split())
    assert wanted
    assert wanted <= set(ids)


def test_same_input_same_bytes_whatever_the_users_style() -> None:
    import matplotlib as mpl

    first = render_page(full_page())
    with mpl.rc_context({"axes.facecolor": "black", "xtick.major.size": 20, "font.size": 30}):
        assert render_page(full_page()) == first
        assert mpl.rcParams["font.size"] == 30


def test_long_names_are_cut_and_kept_for_hovering() -> None:
    reader = Reader(render_page(full_page(name=lambda i: f"{i:02}" + "long" * 100)))
    whole = "10" + "long" * 100
    shown = [t for t in reader.text if t.startswith("10long")]
    assert shown == [whole[:39] + "…"]
    assert whole in [a.get("title") for _, a in reader.elements]
    huge = render_page(full_page(name=lambda i: f"{i}" + "x" * 1_000_000))
    assert len(huge) < 3_000_000


def test_characters_no_page_may_hold_are_replaced(tmp_path: Path) -> None:
    page = full_page(name=lambda i: f"{i} a\x00b\ud800c\nd\u202e 漢字 🙂")
    write_page(page, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "10 a�b�c d\u202e 漢字 🙂</bdi>" in text


def test_numbers_are_flush_right() -> None:
    table = Table(
        "t",
        ["word", "number", "share", "mixed", "blank"],
        [["a", "−1.5", "12 %", "3", ""], ["b", "2,000 ± 1e-3", "—", "x3", " "]],
    )
    page = render_page(ReportPage("t", tables=[table]))
    head = page[page.index("<thead>") : page.index("</thead>")]
    assert re.findall(r'<th scope="col"( class="number")?>', head) == [
        "",
        ' class="number"',
        ' class="number"',
        "",
        "",
    ]
    assert page.count('<td class="number">') == 4
    assert page.count('<th scope="row">') == 2


def test_risk_is_read_off_at_round_coverages() -> None:
    coverage = np.array([1.0, 0.75, 0.5])  # any order will do
    risk = RiskCoverage(coverage, {"ours": np.array([0.2, 0.1, 0.0])})
    text = Reader(render_page(ReportPage("t", risk_coverage=risk))).text
    at = text.index("ours")
    assert text[at + 1 : at + 6] == ["0.000", "0.120", "0.160", "0.200", "0.100"]
    partial = RiskCoverage(coverage[1:], {"ours": np.array([0.1, np.nan])})
    text = Reader(render_page(ReportPage("t", risk_coverage=partial))).text
    assert "100 %" not in text
    assert "–" in text


def test_missing_extras_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "jinja2", None)
        with pytest.raises(InputError, match=r"jinja2: pip install 'varjepa\[report\]'"):
            render_page(ReportPage("t"))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(InputError, match=r"matplotlib: pip install 'varjepa\[report\]'"):
        render_page(full_page())
    # a page without figures needs no matplotlib
    assert "<h1>" in render_page(replace(full_page(), risk_coverage=None))


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "report.html"
    write_page(full_page(), path)
    assert path.read_text(encoding="utf-8") == render_page(full_page())
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "jinja2", None)
        with pytest.raises(InputError):
            write_page(full_page(), path)
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [file.name for file in path.parent.iterdir()] == ["report.html"]
    with pytest.raises(InputError, match="cannot write the report"):
        write_page(full_page(), tmp_path / "new")


def test_unequal_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="risk ours: 3 values, but 2 coverage"):
        RiskCoverage(np.zeros(2), {"ours": np.zeros(3)})
    with pytest.raises(ValueError, match="row 0 of t: 1 values, but 2 columns"):
        Table("t", ["a", "b"], [["1"]])
