"""Claims about ``varjepa demo``.

1. It ends with a report, the audit's and the explorer's pages and all figures, from the smallest
   table on. The report leads to the two pages.
2. Without matplotlib the report says so in place of charts; without jinja2 there is no report. The
   first line says what to install, and the last one names a page that exists.
3. ``--quick`` is a smaller table and model; ``--rows`` and ``--epochs`` go before either.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from tests.cli.test_shell import Captured, run
from varjepa.demo import run as demo


@pytest.mark.parametrize("missing", [(), ("matplotlib",), ("matplotlib", "jinja2")], ids=str)
@pytest.mark.usefixtures("short_fits")
@pytest.mark.filterwarnings("ignore:the latents have collapsed")  # after two steps they may
def test_the_demo_ends_with_something_to_look_at(
    missing: tuple[str, ...],
    tmp_path: Path,
    capsys: Captured,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for module in missing:
        monkeypatch.setitem(sys.modules, module, None)
    assert run("demo", "--quick", "--rows", "100", "--out", str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].endswith("pip install 'varjepa[report]'") == bool(missing)
    page = tmp_path / ("audit/report.html" if "jinja2" in missing else "report.html")
    assert f"open {page};" in out
    text = page.read_text(encoding="utf-8")
    assert ('id="risk"' in text) == (not missing) or "jinja2" in missing
    assert ("no charts" in text) == (missing == ("matplotlib",))
    if "jinja2" not in missing:  # it leads to the other pages, and says nothing that is not known
        links = re.findall(r'<a href="([^"]+)"', text)
        assert sorted(links) == ["audit/report.html", "explore.html"]
        assert all((tmp_path / link).is_file() for link in links)
        assert "None" not in text
    assert (tmp_path / "audit" / "report.html").exists()
    assert "ambiguity" in (tmp_path / "explore.html").read_text(encoding="utf-8")
    figures = json.loads((tmp_path / "demo.json").read_text(encoding="utf-8"))["figures"]
    assert {"Accuracy", "Imputation", "Sampling", "Audit"} <= set(figures)
    assert all(title in out for title in figures)


@pytest.mark.parametrize(
    ("options", "rows", "epochs", "columns"),
    [
        ((), 10_000, 16, 32),
        (("--quick",), 1500, 40, 15),
        (("--quick", "--rows", "200", "--epochs", "1"), 200, 1, 15),
    ],
)
def test_sizes(
    options: tuple[str, ...],
    rows: int,
    epochs: int,
    columns: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[demo.DemoSize] = []

    def run_demo(folder: Path, size: demo.DemoSize, say: object) -> Path:
        asked.append(size)
        return folder

    monkeypatch.setattr(demo, "run_demo", run_demo)
    assert run("demo", *options, "--out", str(tmp_path)) == 0
    (size,) = asked
    assert (size.rows, size.epochs) == (rows, epochs)
    assert size.sim.numeric + size.sim.binned == columns
