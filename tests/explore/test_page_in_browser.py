"""Claims about the explorer in a real browser.

1. The map shows every row with a place, coloured by a measure, a number, a date or a category. At
   first it is a category of few levels, one that the model does not use before others; and beside
   the map are the rows with the highest outlier score, which a click opens.
2. Dragging over a group compares its columns with the rest, the largest difference first; so does
   a click on a level of the legend, and a search.
   Enter opens what is found: a row, or a list of rows with that of an exact number first.
3. A click on a point opens its row: its cells, the least likely first and of many the first few,
   and five similar rows.
   Numbers have a scale: a percentile, a cell's surprise as text, a distance and what differs most.
   Of many decimals six digits are shown, and more where two would look the same.
   Columns that the model does not use are marked.
4. The keyboard moves from point to point, opens a row, closes it and has the focus again.
5. 10,000 points are drawn and searched without freezing.
6. Hostile texts run nothing and are shown as text.
7. Nothing covers a point of the map. Both axes have one scale, and an open panel moves no point.
8. Wheel, pinch, keys and buttons zoom, and what is under the pointer stays there; 0 shows all rows
   again. Dragging with Shift or after "Move" moves the map, and so do Shift and arrow keys.
9. On a phone nothing sticks out and the panel is a sheet at the bottom; dark and light work.
   The map moves so that the sheet hides neither the row nor the middle of a group, and back when
   the sheet closes.
10. Nothing is said on the console, and no request leaves the page.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.browser import SHIFT, Browser, chromium
from tests.explore.test_page import example, hostile_example
from varjepa.explore.page import ExploreData, write_page
from varjepa.report.interactive import visible

NAMES = "[...document.querySelectorAll('.difference .name')].map(e => e.textContent)"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


class Page:
    """The explorer in the browser."""

    def __init__(self, browser: Browser, folder: Path) -> None:
        self.browser, self.path = browser, folder / "page.html"

    def open(self, data: ExploreData, *size: int, dark: bool = False) -> None:
        write_page(data, self.path)
        self.browser.open(self.path, *size, dark=dark)
        self.browser.settle()

    def js(self, script: str) -> Any:
        return self.browser.evaluate(script)

    def text(self, selector: str) -> str:
        return str(self.js(f"document.querySelector('{selector}').innerText"))

    def place(self, row: int) -> tuple[float, float]:
        """Where a row is in the window."""
        x, y = self.js(
            f"(b => [b.x + px[{row}], b.y + py[{row}]])(overlay.getBoundingClientRect())"
        )
        return x, y

    def painted(self, colour: tuple[int, int, int]) -> int:
        """Pixels of a colour on the map, counted on a copy: reading the map itself slows it."""
        return int(
            self.js(
                """(() => {
                  const { width, height } = byId("points");
                  const copy = new OffscreenCanvas(width, height);
                  const context = copy.getContext("2d", { willReadFrequently: true });
                  context.drawImage(byId("points"), 0, 0);
                  const { data } = context.getImageData(0, 0, width, height);
                  let pixels = 0;
                  for (let i = 0; i < data.length; i += 4)
                    pixels += COLOUR.every((part, k) => data[i + k] === part);
                  return pixels;
                })()""".replace("COLOUR", str([*colour, 255]))
            )
        )

    def choose(self, name: str) -> None:
        self.js(
            "(e => { e.value = [...e.options].find(o => o.text === "
            f"{name!r}).value; e.dispatchEvent(new Event('change')); }})(byId('colour'))"
        )


@pytest.fixture
def page(running: Browser, tmp_path: Path) -> Iterator[Page]:
    running.events.clear()
    page = Page(running, tmp_path)
    yield page
    assert not running.complaints()
    assert set(running.requests()) <= {page.path.as_uri()}


def test_the_map_shows_every_row_in_colour(page: Page) -> None:
    data = example()
    page.open(replace(data, x=(math.nan, *data.x[1:])))
    assert page.js("placed.length") == 299
    assert page.text("#legend b") == "colour"
    assert page.js("byId('colour').selectedOptions[0].text") == "colour"
    page.choose("uncertainty")
    assert page.text("#legend b") == "uncertainty"
    page.choose("colour")
    blue, orange = page.painted((0, 114, 178)), page.painted((230, 159, 0))
    assert min(blue, orange) > 1000
    keys = page.js("[...document.querySelectorAll('#legend button')].map(e => e.innerText)")
    assert [key.split() for key in keys] == [["red", "150"], ["blue", "150"]]
    page.choose("price")
    assert page.painted((0, 114, 178)) == 0
    assert page.painted((68, 1, 84)) > 100  # viridis from its dark end, but not to its bright one
    assert page.painted((110, 206, 88)) > 100
    assert page.painted((253, 231, 37)) == 0
    page.browser.click("#theme")
    assert page.painted((68, 1, 84)) == 0
    assert page.painted((253, 231, 37)) > 100
    page.choose("built")
    assert page.text("#legend .scale").split() == ["2010-01-15", "2019-01-15"]


def test_the_first_colour_is_a_label_and_the_first_rows_are_outliers(page: Page) -> None:
    data = example()
    label = replace(data.columns[0], name="label", is_used=False)
    page.open(replace(data, columns=(*data.columns, label)))
    assert page.text("#legend b") == "label"
    name, scores = data.measures[-1]
    assert page.text("#unusual h2").startswith(f"Highest {name}")
    row = max(range(300), key=lambda i: scores[i] or 0.0)
    page.browser.click("#unusual button")
    assert page.text("#panel-title") == f"Row r{row}"
    page.open(replace(data, columns=data.columns[1:]))
    assert page.text("#legend b") == name  # without categories


def test_of_many_cells_the_first_are_shown(page: Page) -> None:
    page.open(example(extra=20))
    page.js("openRow(7)")
    cells = "[...document.querySelectorAll('.row-cells li')]"
    shown = f"{cells}.filter(e => e.checkVisibility()).length"
    assert page.js(shown) == 5
    page.browser.click(".more summary")
    assert page.js(shown) == 24


@pytest.mark.parametrize("size", [(1300, 900), (390, 844), (844, 390)])
def test_nothing_covers_a_point(page: Page, size: tuple[int, int]) -> None:
    page.open(example(), *size)
    free = (
        "placed.every(i => (b => document.elementFromPoint(b.x + px[i], b.y + py[i]) === overlay)"
        "(overlay.getBoundingClientRect()))"
    )
    for column in ("colour", "price"):
        page.choose(column)
        assert page.js(free)
    page.choose("colour")
    shown = page.js("byId('legend').open")
    assert shown == (size == (1300, 900))  # folded where space is short
    page.browser.click("#legend summary")
    page.browser.settle()
    assert page.js("byId('legend').open") != shown
    assert page.js(free)


def test_both_axes_have_one_scale_and_the_panel_moves_no_point(page: Page) -> None:
    page.open(example())
    scales = page.js(
        "[Math.abs(px[1] - px[0]) / Math.abs(data.x[1] - data.x[0]),"
        " Math.abs(py[1] - py[0]) / Math.abs(data.y[1] - data.y[0])]"
    )
    assert scales[0] == pytest.approx(scales[1], rel=1e-3)
    before = page.js("[...px, ...py]")
    page.js("openRow(7)")
    page.browser.settle()
    assert page.js("panel.isOpen && [...px, ...py]") == before
    row = min(range(300), key=lambda i: example().x[i])
    page.browser.click_at(*page.place(row))  # the next click hits too
    assert page.text("#panel-title") == f"Row r{row}"


def test_wheel_keys_and_buttons_zoom(page: Page) -> None:
    page.open(example())
    all_rows, row = page.js("[...px, ...py]"), 7
    x, y = page.place(row)
    wheel = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0}
    page.browser.call("Input.dispatchMouseEvent", **wheel, deltaY=-600)
    page.browser.wait_for("view.scale > 1.5 * bounds.scale")
    page.browser.settle()
    assert page.place(row) == pytest.approx((x, y), abs=1.0)
    page.browser.click_at(*page.place(row))
    assert page.text("#panel-title") == f"Row r{row}"
    page.browser.call("Input.dispatchMouseEvent", **wheel, deltaY=6000)
    page.browser.wait_for("view.scale === bounds.scale")  # all rows, and no less
    for key, larger in (("+", True), ("-", False)):  # the panel has the focus
        before = page.js("view.scale")
        page.browser.press(key)
        assert (page.js("view.scale") > before) == larger
    page.browser.click("#zoom-in")
    assert page.js("[...px, ...py]") != all_rows
    page.browser.press("0")
    assert page.js("[...px, ...py]") == all_rows
    page.browser.click("#words")
    page.browser.press("+")
    assert page.js("view.all")  # in a field it is a letter


def test_two_fingers_zoom(page: Page) -> None:
    page.open(example(), 390, 844)
    middle = page.place(7)

    def touch(kind: str, apart: float) -> None:
        points = [
            {"x": middle[0] + s * apart, "y": middle[1], "id": i} for i, s in ((0, -1), (1, 1))
        ]
        page.browser.call(
            "Input.dispatchTouchEvent", type=kind, touchPoints=points if apart else []
        )

    touch("touchStart", 20)
    for apart in (30, 40, 60):
        touch("touchMove", apart)
    touch("touchEnd", 0)
    page.browser.settle()
    assert page.js("view.scale / bounds.scale") == pytest.approx(3.0, rel=0.05)
    assert page.place(7) == pytest.approx(middle, abs=3.0)
    assert page.js("panel.isOpen || state.drag !== null || fingers.size > 0") is False


def test_the_map_moves(page: Page) -> None:
    page.open(example())
    page.js("(zoom(4), overlay.focus())")
    start, end = (300.0, 300.0), (380.0, 340.0)

    def moved(action: Any) -> tuple[float, float]:
        x, y = page.place(7)
        action()
        page.browser.settle()
        return page.place(7)[0] - x, page.place(7)[1] - y

    far = pytest.approx((80, 40), abs=8)  # less what tells dragging from a click
    assert moved(lambda: page.browser.drag(start, end, SHIFT)) == far
    page.browser.click("#move")
    assert moved(lambda: page.browser.drag(end, start)) == pytest.approx((-80, -40), abs=8)
    page.browser.click("#move")
    assert moved(lambda: page.browser.drag(start, end)) == (0, 0)  # a brush again
    assert page.js("panel.isOpen && state.group !== null")
    page.browser.press("Escape")
    right, down = moved(lambda: page.browser.press("ArrowRight", modifiers=SHIFT))
    assert right < -50
    assert down == 0
    for _ in range(20):
        page.browser.press("ArrowRight", modifiers=SHIFT)
    assert page.js("Math.max(...px) >= 0")  # some of it stays in the window
    page.js("(overlay.focus(), state.at = 7, zoom(100))")
    page.browser.press("ArrowLeft")
    at = page.js("[px[state.at] / size[0], py[state.at] / size[1]]")
    assert 0 <= min(at) <= max(at) <= 1  # the map follows the keyboard


def test_dragging_compares_a_group_with_the_rest(page: Page) -> None:
    page.open(example())
    box = page.js("(b => [b.x, b.y, b.width, b.height])(overlay.getBoundingClientRect())")
    left, top, width, height = box
    page.choose("colour")
    page.browser.drag((left + 2, top + 2), (left + width / 2, top + height - 2))
    assert page.text("#panel-title") == "Group of 150 rows"
    assert page.painted((0, 114, 178)) > 1000
    assert page.painted((230, 159, 0)) == 0  # the others are faded
    assert set(page.js(NAMES)[:2]) == {"colour", "price"}
    differences = page.js(
        "[...document.querySelectorAll('.difference .line:first-child span')].map(e => e.innerText)"
    )
    assert differences[0] == "difference 1.00"
    shares = page.js("[...document.querySelectorAll('.paired .share')].map(e => e.innerText)")
    assert shares == ["100 %", "0 %", "0 %", "100 %"]
    assert "mean 100" in page.text("#panel-body")
    page.browser.press("Escape")
    assert page.js("panel.isOpen || state.group !== null") is False


def test_a_level_and_a_search_are_groups_too(page: Page) -> None:
    page.open(example())
    page.choose("colour")
    page.browser.click("#legend button:nth-of-type(2)")
    assert page.text("#panel-title") == "Group of 150 rows"
    page.browser.press("Escape")
    assert page.js("byId('compare').disabled")
    page.browser.click("#words")
    page.browser.type("2013-")
    page.browser.wait_for("state.words === '2013-'")
    assert page.text("#shown") == "30 of 300 rows"
    page.browser.click("#compare")
    assert page.text("#panel-title") == "Group of 30 rows"
    assert page.js(NAMES)[0] == "built"


def test_enter_opens_what_is_found(page: Page) -> None:
    data = example()
    page.open(replace(data, labels=data.labels[::-1]))
    page.browser.click("#words")
    page.browser.type(str(data.columns[1].values[7]))  # the price of one row
    page.browser.press("Enter")
    assert page.text("#panel-title") == "Row r292"
    page.js("byId('words').value = ''")
    page.browser.click("#words")
    page.browser.type("R29")
    page.browser.press("Enter")
    assert page.text("#panel-title") == "11 rows found"
    found = page.js("[...document.querySelectorAll('.found .name')].map(e => e.textContent)")
    assert found == ["Row r29", *(f"Row r29{i}" for i in range(9, 2, -1))]
    page.browser.press("Enter")  # the first has the focus
    assert page.text("#panel-title") == "Row r29"
    page.browser.click("#words")
    page.browser.press("Enter", "Escape")
    assert page.js("!panel.isOpen && document.activeElement === byId('words')")


def test_a_click_opens_a_row_and_its_similar_rows(page: Page) -> None:
    data = example()
    page.open(data)
    # the leftmost point has no other one near it
    row = min(range(300), key=lambda i: data.x[i])
    page.browser.click_at(*page.place(row))
    assert page.text("#panel-title") == f"Row r{row}"
    similar = "[...document.querySelectorAll('.similar .name')].map(e => e.textContent)"
    assert page.js(similar) == [f"r{i}" for i in data.similar[row]]
    cells = page.js("[...document.querySelectorAll('.row-cells li')].map(e => e.innerText)")
    atypical = data.columns[1].atypical
    assert atypical is not None
    # it alone has a score
    assert cells[0].split() == [f"{atypical[row]:.1f}", "price", data.columns[1].values[row]]
    assert [c.split()[0] for c in cells if "not used" in c] == ["not"]
    assert "built" in next(c for c in cells if "not used" in c)
    measure = data.measures[0][1]
    below = sum(v < measure[row] for v in measure)  # type: ignore[operator]
    assert f"higher than {100 * below // 300} % of the rows" in page.text(".pairs")
    other = data.similar[row][0]
    line = page.text(".similar li")
    assert "distance 0.25" in line
    noise = data.columns[3].values
    assert f"noise 0 {noise[row]} → {noise[other]}" in line.replace("\n", " ")
    assert "built" not in line  # distances are of the columns that the model uses
    groups = page.js("[...document.querySelectorAll('optgroup')].map(e => e.innerText.trim())")
    assert groups[-1] == "built"
    assert len(cells) == len(data.columns)
    page.browser.click(".similar button")
    assert page.text("#panel-title") == f"Row r{data.similar[row][0]}"
    page.browser.click("#panel-close")
    assert page.js("panel.isOpen") is False


def test_the_keyboard_moves_opens_and_closes(page: Page) -> None:
    page.open(example())
    page.browser.press("Tab")
    page.js("overlay.focus()")
    page.browser.press("ArrowRight")
    here = page.js("[state.at, px[state.at]]")
    page.browser.press("ArrowRight")
    there = page.js("[state.at, px[state.at]]")
    assert there[1] > here[1]
    page.browser.press("ArrowLeft", "ArrowUp", "ArrowDown")
    row = page.js("state.at")
    assert page.text("#said") == f"Row r{row}"
    page.browser.press("Enter")
    assert page.text("#panel-title") == f"Row r{row}"
    assert page.js("byId('panel').contains(document.activeElement)")
    page.browser.press("Escape")
    assert page.js("!panel.isOpen && document.activeElement === overlay")


def test_ten_thousand_points_do_not_freeze(page: Page) -> None:
    page.open(example(10_000, extra=26))
    for action in (
        "(zoom(1.1), redraw())",
        "openRow(7)",
        "openGroup((i) => i % 3 === 0)",
        "(state.words = 'r99', search())",
    ):
        took = page.js(
            "[1, 2, 3, 4, 5].map(() => (s => { "
            f"{action}; return performance.now() - s; }})(performance.now()))"
        )
        assert min(took) < 250, action


def test_hostile_texts_are_inert(page: Page) -> None:
    data = hostile_example()
    page.open(data)
    for row in (5, 6, 7):
        page.js(f"openRow({row})")
        assert visible(data.labels[row]) in page.text("#panel-title")
    for k in range(len(data.columns)):
        page.js(f"colourBy(columns[{k}])")
    page.js("openGroup((i) => i % 2)")
    page.browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=400, y=300)
    assert page.js("document.querySelectorAll('img, script, iframe, a').length") == 2  # our scripts


def test_of_many_decimals_six_digits_are_shown(page: Page) -> None:
    data = example()
    row, other = 0, data.similar[0][0]
    texts = list(data.columns[1].values)
    texts[row], texts[other] = "-1234.5678901234", "1234.00000000001"
    ids = tuple(f"1.{i:012d}" for i in range(300))  # categories stay as they are
    columns = (
        replace(data.columns[0], values=ids),
        replace(data.columns[1], values=tuple(texts)),
        *data.columns[2:],
    )
    page.open(replace(data, columns=columns))
    page.js(f"openRow({row})")
    assert page.text(".row-cells").split("\n")[:3][-1] == "-1234.57"
    assert ids[row] in page.text(".row-cells")
    assert "-1234.57 → 1234" in page.text(".similar li").replace("\n", " ")
    assert page.js("briefPair('0.1234567891', '0.1234567892')") == ["0.1234567891", "0.1234567892"]
    shown = {
        "1234567.8901234": "1234568",
        "1e-12": "1e-12",
        "0.1e5": "0.1e5",
        "12345678901": "12345678901",
    }
    for text, short in shown.items():
        assert page.js(f"brief({text!r})") == short


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_sticks_out_on_a_phone(page: Page, dark: bool) -> None:
    data = replace(example(), title="a_rather_long_title" * 5, facts=(("n" * 90, "v" * 90),))
    page.open(data, 390, 844, dark=dark)
    assert page.js("[document.documentElement.scrollWidth, innerWidth]") == [390, 390]
    assert page.js("overlay.clientHeight") > 250
    page.browser.click_at(*page.place(min(range(300), key=lambda i: data.x[i])))
    page.js("Promise.all(document.getAnimations().map(a => a.finished)).then(() => 0)")
    box = page.js("(b => [b.left, b.right, b.bottom])(byId('panel').getBoundingClientRect())")
    assert box == [0, 390, 844]
    lightness = page.js("Number(getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0])")
    assert (lightness < 128) == dark


def test_the_sheet_does_not_hide_its_row(page: Page) -> None:
    data = example()
    page.open(data, 390, 844)
    before = page.js("[...px, ...py]")
    lowest = page.js("placed.reduce((a, b) => (py[a] > py[b] ? a : b))")
    page.browser.click_at(*page.place(lowest))
    assert page.text("#panel-title") == f"Row r{lowest}"
    sheet = "byId('panel').offsetTop"
    for row in (lowest, data.similar[lowest][0]):
        page.js(f"openRow({row})")
        page.browser.settle()
        top, left = page.js("(b => [b.y, b.x])(overlay.getBoundingClientRect())")
        x, y = page.place(row)
        assert top < y < page.js(sheet)
        assert left < x < 390
    page.browser.press("Escape")
    assert page.js("[...px, ...py]") == before
    page.js(f"openGroup((i) => py[i] > py[{lowest}] - 60)")
    page.browser.settle()
    top = page.js("overlay.getBoundingClientRect().y")
    middle = page.js(
        "(g => g.reduce((s, i) => s + py[i], 0) / g.length)(placed.filter(i => state.group[i]))"
    )
    assert top < top + middle < page.js(sheet)
    page.browser.press("Escape")
    assert page.js("[...px, ...py]") == before
    page.js(f"(openRow({lowest}), zoom(2))")  # moved by hand: it stays
    page.browser.press("Escape")
    assert page.js("view.scale / bounds.scale") == 2
