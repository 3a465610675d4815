"""Claims: a real browser, at desktop and at phone width, light and dark, shows every part; its
policy blocks nothing that the page needs; names from the data run nothing. A table of figures fits
a phone: long names of its columns break, the figures do not.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.browser import chromium as browser_in
from tests.report.test_page import HOSTILE, Reader, full_page
from varjepa.report.page import ReportPage, write_page
from varjepa.report.tables import Table


def chromium(folder: Path, *arguments: str) -> str:
    """Run the browser headless on ``report.html``, without network chatter; return its output."""
    program = next(
        (p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))),
        None,
    )
    if program is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on this machine")
    command = [
        program,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--hide-scrollbars",
        "--enable-logging=stderr",
        f"--user-data-dir={folder / 'profile'}",
        *arguments,
        (folder / "report.html").as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True)
    # what the policy refuses is said on the console
    assert "Content Security Policy" not in done.stderr
    assert "CONSOLE" not in done.stderr
    return done.stdout


def screenshot(folder: Path, width: int, height: int, *arguments: str) -> np.ndarray:
    from matplotlib.image import imread

    path = folder / "page.png"
    chromium(folder, f"--window-size={width},{height}", f"--screenshot={path}", *arguments)
    return np.asarray(imread(path))[..., :3]  # (height, width, 3) in [0, 1]


def test_the_browser_builds_every_part(tmp_path: Path) -> None:
    write_page(full_page(), tmp_path / "report.html")
    reader = Reader(chromium(tmp_path, "--dump-dom"))
    for heading in ("At a glance", "The model", "Risk and coverage"):
        assert heading in reader.text
    for text in ("0.81 ± 0.02", "name 10", "name 12", "VarTJEPA"):
        assert text in reader.text


def test_hostile_names_run_nothing(tmp_path: Path) -> None:
    names = [f"{i:02} {HOSTILE[i % len(HOSTILE)]}" for i in range(13)]
    write_page(full_page(name=names.__getitem__), tmp_path / "report.html")
    reader = Reader(chromium(tmp_path, "--dump-dom"))
    assert not {"script", "img"} & {tag for tag, _ in reader.elements}
    assert set(names) <= set(reader.text)


def test_the_screenshot_shows_something_everywhere(tmp_path: Path) -> None:
    write_page(full_page(), tmp_path / "report.html")
    image = screenshot(tmp_path, 1200, 3000)
    assert image.shape == (3000, 1200, 3)
    for top in range(0, 1500, 250):
        assert image[top : top + 250].std() > 0.02, top
    # curves are drawn: colours far from grey
    colourful = np.ptp(image, axis=-1) > 0.3
    assert colourful.sum() > 1000


def test_dark_mode_is_dark_around_light_figures(tmp_path: Path) -> None:
    write_page(full_page(), tmp_path / "report.html")
    light = screenshot(tmp_path, 1200, 2400)
    dark = screenshot(tmp_path, 1200, 2400, "--blink-settings=preferredColorScheme=0")
    assert light[5, 5].min() > 0.9
    assert dark[5, 5].max() < 0.2
    assert (dark.min(axis=-1) > 0.9).mean() > 0.2  # the figures' cards


def test_nothing_sticks_out_on_a_phone(tmp_path: Path) -> None:
    """Headless windows are never narrower than 500 px, so the phone is a frame inside one."""
    write_page(full_page(name=lambda i: f"{i:02}_a_rather_long_name" * 3), tmp_path / "page.html")
    frame = (
        '<body style="margin:0"><iframe src="page.html" style="width:390px;height:7000px;border:0">'
    )
    (tmp_path / "report.html").write_text(frame, encoding="utf-8")
    image = screenshot(tmp_path, 500, 7000)
    assert image[:3000, :390].std() > 0.02
    # the outermost 8 px of the right margin are empty: no part is cut off or scrolls the page
    assert np.ptp(image[:, 382:390], axis=(0, 1)).max() < 0.01


def test_a_table_with_long_names_fits_a_phone(tmp_path: Path) -> None:
    columns = ["uncertainty", "Spearman", "AUROC of the most ambiguous quarter"]
    rows = [[name, "0.963", "0.974 ± 0.001"] for name in ("unpredictable", "posterior")]
    write_page(ReportPage("demo", tables=[Table("T", columns, rows)]), tmp_path / "report.html")
    with browser_in(tmp_path) as browser:
        browser.open(tmp_path / "report.html", 390)
        box = "document.querySelector('.scroll')"
        assert browser.evaluate(f"{box}.scrollWidth <= {box}.clientWidth")
        heights = browser.evaluate("[...document.querySelectorAll('td')].map(e => e.offsetHeight)")
        assert max(heights) < 45
