"""Claims about the audit page as a file.

1. What is given is in the page's data, and comes back from it cell by cell: values, missing cells,
   suspicions, details; numbers that are not finite become none.
2. Hostile texts change neither the elements of the page nor its policy, and come back as they are;
   characters that do not show are written as their codes, long texts are cut.
3. The page asks for nothing from elsewhere: its policy allows no source but its own script.
4. 10,000 rows × 30 columns stay under 6 MB, and the same data gives the same bytes.
5. It is written whole or not at all, without jinja2; a folder that refuses is one sentence.
6. The small form lists the ten most suspicious cells, worst first, escaped.
7. A confidence below 1 is never shown as 100 %.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.test_page import HOSTILE
from varjepa.audit.page import (
    SHADES,
    CellDetail,
    PageColumn,
    PageData,
    PageRow,
    small_form,
    write_page,
)
from varjepa.errors import InputError
from varjepa.report.interactive import LONGEST, visible

CITIES = ("birmingham", "leeds", "london")
EDGES = tuple(float(edge) for edge in np.linspace(50, 150, 21))
MASSES = tuple(float(m) for m in np.exp(-((np.arange(20) - 9.5) ** 2) / 20) / 8)


class Elements(HTMLParser):
    """The elements of a page and the text inside each kind."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.tags[-1][0] if self.tags else "", data))


def number_detail(value: str, at: float, flagged: bool = True, **changes: Any) -> CellDetail:
    detail = CellDetail(
        value,
        8.25,
        1e-6,
        flagged,
        "100",
        0.9,
        "80",
        "120",
        (),
        EDGES,
        MASSES,
        at,
        100.0,
        (80.0, 120.0),
    )
    return replace(detail, **changes)


def level_detail(value: str, flagged: bool = True, **changes: Any) -> CellDetail:
    levels = (("birmingham", 0.94), ("leeds", 0.03))
    detail = CellDetail(
        value, 9.5, 1e-7, flagged, "birmingham", 0.94, None, None, levels, (), (), None, None
    )
    return replace(detail, **changes)


def example(rows: int = 60, extra: int = 0, seed: int = 0) -> PageData:
    """Rows r0, r1, …: a wrong city in row 0, a wrong price in rows 1 and 5, a suspicious but not
    flagged date in row 2, missing cells, and a column that is not audited.
    """
    rng = np.random.default_rng(seed)
    names = [("city", "category"), ("price", "number"), ("built", "date"), ("note", "not audited")]
    names += [(f"more {i}", "number") for i in range(extra)]
    values: list[list[str | None]] = [
        [
            str(rng.choice(CITIES)),
            f"{100 + 10 * rng.normal():.1f}",
            f"20{rng.integers(10, 24)}-0{rng.integers(1, 10)}-15",
            f"free text {i}",
            *(f"{x:.4f}" for x in rng.normal(size=extra)),
        ]
        for i in range(rows)
    ]
    suspicions = rng.uniform(0, 0.2, size=(rows, len(names)))
    details = {
        (0, 0): level_detail("birmingxam"),
        (1, 1): number_detail("1,000", 1000.0),
        (5, 1): number_detail("60", 60.0, log_odds=5.5, p_value=1e-4),
        (2, 2): number_detail("2099-01-15", 149.0, flagged=False, repair=None, confidence=None),
    }
    for (row, column), detail in details.items():
        values[row][column] = detail.value
        suspicions[row, column] = detail.log_odds / 10
    values[3][1] = values[4][0] = None
    flagged = [
        sum(c == i and d.flagged for (_, c), d in details.items()) for i in range(len(names))
    ]
    return PageData(
        title="Houses",
        facts=(("rows", f"{rows:,}"), ("false discovery rate", "5 %")),
        columns=tuple(
            PageColumn(name, kind, 0.8, flagged[i], 0.01 * i)
            if kind != "not audited"
            else PageColumn(name, kind, None, 0, None)
            for i, (name, kind) in enumerate(names)
        ),
        rows=tuple(
            PageRow(
                f"r{i}",
                20.0 - 20 * i / rows,
                10.0 ** -(6 - 6 * i / rows),
                tuple(row),
                tuple(
                    None if row[c] is None or names[c][1] == "not audited" else float(shade)
                    for c, shade in enumerate(suspicions[i])
                ),
            )
            for i, row in enumerate(values)
        ),
        details=details,
    )


def hostile_example() -> PageData:
    """Every text of the example is hostile."""
    texts = [
        *HOSTILE,
        "=cmd|' /C calc'!A0",
        "a\0b",
        "\u202egpj.exe",
        "\u2028alert(1)",
        "<!--<script>",
    ]

    def text(i: int) -> str:
        return f"{i} {texts[i % len(texts)]}"

    data = example(rows=len(texts))
    return replace(
        data,
        title=text(1),
        facts=((text(2), text(3)),),
        columns=tuple(replace(c, name=text(i)) for i, c in enumerate(data.columns)),
        rows=tuple(
            replace(r, label=text(i), values=tuple(text(i + c) for c in range(len(r.values))))
            for i, r in enumerate(data.rows)
        ),
        details={
            place: replace(d, value=text(i), repair=text(i + 1), levels=((text(i + 1), 0.9),))
            for i, (place, d) in enumerate(data.details.items())
        },
    )


def page_of(data: PageData, folder: Path) -> str:
    write_page(data, folder / "report.html")
    return (folder / "report.html").read_text(encoding="utf-8")


def data_of(page: str) -> dict[str, Any]:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
    return dict(json.loads(block))


def cell(column: dict[str, Any], row: int) -> str | None:
    texts = column["texts"]
    if "values" in texts:
        return texts["values"][row]
    return None if texts["codes"][row] < 0 else texts["levels"][texts["codes"][row]]


def test_what_is_given_comes_back(tmp_path: Path) -> None:
    data = example()
    read = data_of(page_of(data, tmp_path))
    assert [c["name"] for c in read["columns"]] == ["city", "price", "built", "note"]
    assert "codes" in read["columns"][0]["texts"]
    assert "values" in read["columns"][3]["texts"]
    for i, row in enumerate(data.rows):
        assert read["labels"][i] == row.label
        assert [cell(c, i) for c in read["columns"]] == list(row.values)
        for c, shade in zip(read["columns"], row.suspicions, strict=True):
            assert c["suspicions"][i] == (-1 if shade is None else round(SHADES * shade))
    (found,) = (d for d in read["details"] if (d["row"], d["column"]) == (1, 1))
    assert found["value"] == "1,000"
    assert (found["repair"], found["confidence"], found["p"]) == ("100", 0.9, 1e-6)
    assert read["edges"][found["edges"]] == pytest.approx(EDGES)
    assert found["masses"] == pytest.approx(MASSES, rel=1e-2)


def test_equal_edges_are_held_once(tmp_path: Path) -> None:
    read = data_of(page_of(example(), tmp_path))
    assert len(read["edges"]) == 2  # none for the category, and one for three numbers


def test_numbers_that_are_not_finite_become_none(tmp_path: Path) -> None:
    data = example()
    bad = number_detail("x", math.inf, log_odds=math.inf, p_value=math.nan, masses=(math.nan,) * 20)
    rows = (replace(data.rows[0], score=math.nan, suspicions=(math.inf, math.nan, -3.0, None)),)
    read = data_of(page_of(replace(data, rows=rows, details={(0, 1): bad}), tmp_path))
    (detail,) = read["details"]
    assert (detail["logOdds"], detail["p"], detail["at"], detail["masses"][0]) == (None,) * 4
    assert read["scores"] == [None]
    assert [c["suspicions"] for c in read["columns"]] == [[SHADES], [-1], [0], [-1]]


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    calm, hostile = page_of(example(13), tmp_path), page_of(hostile_example(), tmp_path)
    assert [t for t, _ in Elements(calm).tags] == [t for t, _ in Elements(hostile).tags]
    names = [c.name for c in hostile_example().columns]
    assert [c["name"] for c in data_of(hostile)["columns"]] == [visible(name) for name in names]
    assert "\0" not in hostile
    assert "\u202e" not in hostile
    assert "⟨U+202E⟩gpj.exe" in hostile
    block = hostile.split('id="data">')[1].split("</script>")[0]
    assert not set("<>&\u2028\u2029") & set(block)


@pytest.mark.parametrize("text", ["\ud800", "\x1b[2J", "\ufeff", "\U000e0041"])
def test_characters_that_do_not_show_are_codes(text: str) -> None:
    assert visible(f"a{text[0]}b") == f"a⟨U+{ord(text[0]):04X}⟩b"
    assert visible("é 中 👍🏽 ‌ ") == "é 中 👍🏽 ‌ "


def test_long_texts_are_cut() -> None:
    assert visible("é" * LONGEST) == "é" * LONGEST
    assert len(visible("é" * (LONGEST + 1))) == LONGEST


def test_the_policy_allows_its_own_script_alone(tmp_path: Path) -> None:
    page = page_of(example(), tmp_path)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'"
    )
    assert not [a for _, a in Elements(page).tags if {"src", "href", "action"} & a.keys()]
    assert not re.search(r"innerHTML|insertAdjacentHTML|document\.write|eval\(", page)


def test_a_large_page_is_small_and_the_same_each_time(tmp_path: Path) -> None:
    data = example(10_000, extra=26)
    page = page_of(data, tmp_path)
    assert len(page.encode()) < 6_000_000
    assert page == page_of(data, tmp_path)


def test_it_needs_no_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("jinja2", "markupsafe", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "Houses" in page_of(example(), tmp_path)


def test_a_folder_that_refuses_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(InputError, match="cannot write to the folder"):
        write_page(example(), tmp_path / "file" / "report.html")


def test_it_replaces_the_page_whole(tmp_path: Path) -> None:
    page_of(example(), tmp_path)
    assert "Flats" in page_of(replace(example(), title="Flats"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_the_small_form_lists_the_ten_most_suspicious_cells() -> None:
    data = example()
    details = {(i, 1): number_detail(f"v{i}", 0.0, p_value=10.0**-i) for i in range(12)}
    texts = [t for _, t in Elements(small_form(replace(data, details=details))).texts]
    assert [t for t in texts if re.fullmatch(r"v\d+", t)] == [f"v{i}" for i in range(11, 1, -1)]
    assert {"Houses", "r11", "price", "90%", "1e-11", "100"} <= set(texts)


def test_nothing_is_rounded_to_certainty(tmp_path: Path) -> None:
    details = {(0, 1): number_detail("60", 60.0, confidence=0.9996)}
    data = replace(example(), details=details)
    assert "&gt; 99%" in small_form(data)
    assert data_of(page_of(data, tmp_path))["details"][0]["confidence"] < 1.0


def test_the_small_form_escapes() -> None:
    tags = {tag for tag, _ in Elements(small_form(hostile_example())).tags}
    assert tags == {"div", "p", "b", "span", "table", "tr", "th", "td", "bdi"}
    assert small_form(replace(example(), details={})).count("<tr>") == 1
