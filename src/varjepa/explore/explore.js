// The explorer: a map of points on a canvas, groups compared with the rest, rows with similar rows.

const rowCount = data.labels.length;
if (innerHeight > innerWidth) [data.x, data.y] = [data.y, data.x.map((v) => (v === null ? v : -v))]; // maps are wide
const columns = data.columns.map((column) => ({ ...column, read: reader(column.texts), match: null, bins: null }));
/** A cell as the lists show it: of a number six digits, the others in its title. */
const shown = (column, row) => (column.kind === "numeric" ? brief(column.read(row)) : column.read(row));
const placed = [...Array(rowCount).keys()].filter((i) => data.x[i] !== null && data.y[i] !== null);
const overlay = byId("overlay");

const VIRIDIS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];
const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c7a00"]; // Okabe and Ito's, a darker yellow
const OTHER = "#8b949e", FADED = "rgba(139,148,158,.22)";
const smallScreen = matchMedia("(max-width: 760px), (max-height: 520px)");
const BINS = 12, COMPARED = 40, LISTED = 8, CELLS = 5, UNUSUAL = 5, FULL_COLOUR = 4, NEAR = 14, CLICK = 6;

const state = {
  colouring: null, // a measure or a column
  colours: [], // one a row
  words: "",
  group: null, // a Uint8Array with 1 for each row of the group, or null
  row: null, // the open one
  before: null, // what was shown until the map moved for the sheet; null again when it is moved by hand
  at: null, // the one that the keyboard is at
  hover: null,
  drag: null, // where it began and is, and whether it moves the map; without that it is a brush
};

// --- places on the screen

const EDGE = 18, MOST = 50;
const px = new Float32Array(rowCount), py = new Float32Array(rowCount);
const view = { scale: 1, x: 0, y: 0, all: true }; // pixels a unit, what is in the middle, whether all rows are shown
let size = [0, 0], bounds = null, drawing = 0;

function layOut() {
  const { clientWidth: width, clientHeight: height } = byId("map");
  size = [width, height];
  for (const canvas of [byId("points"), overlay]) {
    canvas.width = width * devicePixelRatio;
    canvas.height = height * devicePixelRatio;
    canvas.getContext("2d").scale(devicePixelRatio, devicePixelRatio);
  }
  const [left, right] = ends(data.x), [bottom, top] = ends(data.y);
  const scale = Math.min(Math.max(width - 2 * EDGE, 1) / (right - left || 1), Math.max(height - 2 * EDGE, 1) / (top - bottom || 1));
  bounds = { left, right, bottom, top, scale };
  if (view.all) showAll();
  else look(view);
  redraw();
}

/** Show all rows, in one scale for both axes. */
function showAll() {
  const { left, right, bottom, top, scale } = bounds;
  look({ scale, x: (left + right) / 2, y: (bottom + top) / 2 });
  view.all = true;
}

function ends(places) {
  let low = Infinity, high = -Infinity;
  for (const i of placed) [low, high] = [Math.min(low, places[i]), Math.max(high, places[i])];
  return placed.length ? [low, high] : [0, 0];
}

/** Show a part of the map; some of it always stays in the window. */
function look({ scale, x, y }) {
  const within = (value, low, high) => Math.min(Math.max(value, low), high);
  view.scale = within(scale, bounds.scale, bounds.scale * MOST);
  const [wide, tall] = size.map((pixels) => (pixels / 2 - EDGE) / view.scale);
  view.x = within(x, bounds.left - wide, bounds.right + wide);
  view.y = within(y, bounds.bottom - tall, bounds.top + tall);
  view.all = false;
  state.before = null;
  for (const i of placed) {
    px[i] = size[0] / 2 + (data.x[i] - view.x) * view.scale;
    py[i] = size[1] / 2 - (data.y[i] - view.y) * view.scale;
  }
  leave();
  drawing ||= requestAnimationFrame(() => { drawing = 0; redraw(); });
}

const move = (right, down) => look({ ...view, x: view.x - right / view.scale, y: view.y + down / view.scale });

/** Zoom by a factor; what is at a point of the window stays there. */
function zoom(factor, x = size[0] / 2, y = size[1] / 2) {
  const scale = Math.min(Math.max(view.scale * factor, bounds.scale), bounds.scale * MOST);
  const gain = 1 / view.scale - 1 / scale;
  look({ scale, x: view.x + (x - size[0] / 2) * gain, y: view.y - (y - size[1] / 2) * gain });
}

/** Move the map where the middle of rows is out of sight: beyond its border or under the sheet of a small screen. */
function reveal(...rows) {
  const known = rows.filter((row) => data.x[row] !== null && data.y[row] !== null);
  if (!known.length) return;
  const [x, y] = [px, py].map((at) => known.reduce((sum, row) => sum + at[row], 0) / known.length);
  const sheet = byId("panel"), isSheet = panel.isOpen && getComputedStyle(sheet).position === "fixed";
  const bottom = isSheet ? Math.min(size[1], innerHeight - sheet.offsetHeight - overlay.getBoundingClientRect().top) : size[1];
  if (x >= 0 && x <= size[0] && y >= 0 && y <= bottom - NEAR) return;
  const before = isSheet ? (state.before ?? { ...view }) : null;
  move(x < 0 || x > size[0] ? size[0] / 2 - x : 0, bottom / 2 - y);
  state.before = before;
}

/** The placed row nearest to a point, or null where none is near. */
function nearest(x, y, within) {
  let best = null, least = within * within;
  for (const i of placed) {
    const far = (px[i] - x) ** 2 + (py[i] - y) ** 2;
    if (far <= least) [best, least] = [i, far];
  }
  return best;
}

// --- drawing

function drawPoints() {
  const context = byId("points").getContext("2d");
  context.clearRect(0, 0, ...size);
  const radius = placed.length > 4000 ? 2.2 : 3.2;
  const layers = new Map([[FADED, []]]); // one path a colour; faded ones first
  for (const i of placed) {
    const colour = state.group && !state.group[i] ? FADED : state.colours[i];
    if (!layers.has(colour)) layers.set(colour, []);
    layers.get(colour).push(i);
  }
  for (const [colour, rows] of layers) {
    context.fillStyle = colour;
    context.beginPath();
    for (const i of rows) {
      context.moveTo(px[i] + radius, py[i]);
      context.arc(px[i], py[i], radius, 0, 7);
    }
    context.fill();
  }
}

function drawOverlay() {
  const context = overlay.getContext("2d");
  const style = getComputedStyle(document.body);
  context.clearRect(0, 0, ...size);
  const ring = (i, radius) => {
    context.beginPath();
    context.arc(px[i], py[i], radius, 0, 7);
    context.stroke();
  };
  context.strokeStyle = style.color;
  if (state.row !== null && placed.includes(state.row)) {
    context.lineWidth = 1;
    for (const other of data.similar[state.row]) {
      if (data.x[other] === null || data.y[other] === null) continue;
      context.beginPath();
      context.moveTo(px[state.row], py[state.row]);
      context.lineTo(px[other], py[other]);
      context.stroke();
      ring(other, 5);
    }
    context.lineWidth = 2.5;
    ring(state.row, 7);
  }
  context.lineWidth = 1.5;
  for (const i of [state.hover, document.activeElement === overlay ? state.at : null]) if (i !== null) ring(i, 6);
  if (state.drag && !state.drag.moves) {
    const { x0, y0, x1, y1 } = state.drag;
    context.setLineDash([4, 3]);
    context.lineWidth = 1.5;
    context.strokeRect(x0, y0, x1 - x0, y1 - y0);
    context.setLineDash([]);
  }
}

// --- colour

/** Numbers take a ramp between their 2nd and 98th percentile; the commonest levels take hues. */
function colourBy(colouring) {
  state.colouring = colouring;
  const name = el("b", {}, text(colouring.name));
  if (colouring.numbers) {
    const ramp = isDark() ? VIRIDIS.slice(2) : VIRIDIS.slice(0, -2); // without the end that the ground hides
    const rows = [...Array(rowCount).keys()].filter((i) => colouring.numbers[i] !== null).sort((a, b) => colouring.numbers[a] - colouring.numbers[b]);
    const end = (share) => rows[Math.round((rows.length - 1) * share)];
    const [low, high] = rows.length ? [colouring.numbers[end(0.02)], colouring.numbers[end(0.98)]] : [0, 1];
    const step = (v) => Math.min(Math.max(Math.floor(((v - low) / (high - low || 1)) * ramp.length), 0), ramp.length - 1);
    state.colours = colouring.numbers.map((v) => (v === null ? OTHER : ramp[step(v)]));
    const word = (share) => (rows.length ? (colouring.kind === "datetime" ? text(colouring.read(end(share))) : number(colouring.numbers[end(share)])) : "–");
    const bar = el("i", {});
    bar.style.background = `linear-gradient(to right, ${ramp.join(", ")})`;
    showLegend(name, el("span", { class: "scale" }, word(0.02), bar, word(0.98)), []);
  } else {
    const counts = new Map();
    for (let i = 0; i < rowCount; i++) counts.set(colouring.read(i), (counts.get(colouring.read(i)) ?? 0) + 1);
    const levels = [...counts.keys()].filter((level) => level !== null).sort((a, b) => counts.get(b) - counts.get(a));
    const hues = new Map(levels.slice(0, HUES.length).map((level, i) => [level, HUES[i]]));
    state.colours = data.labels.map((_, i) => hues.get(colouring.read(i)) ?? OTHER);
    const keys = [...hues].map(([level, hue]) => key(text(level), hue, counts.get(level), (i) => colouring.read(i) === level));
    const rest = rowCount - [...hues.keys()].reduce((sum, level) => sum + counts.get(level), 0);
    if (rest) keys.push(key("other or missing", OTHER, rest, (i) => !hues.has(colouring.read(i))));
    showLegend(name, el("span", {}, `${count(levels.length)} ${levels.length === 1 ? "level" : "levels"}`), keys);
  }
  drawPoints();
}

function showLegend(name, summary, keys) {
  byId("legend").classList.toggle("folds", keys.length > 0);
  byId("legend").firstChild.tabIndex = keys.length ? 0 : -1;
  byId("legend").firstChild.replaceChildren(name, summary);
  byId("keys").replaceChildren(...keys);
}

function key(words, hue, rows, isMember) {
  const dot = el("i", {});
  dot.style.background = hue;
  return el("button", { type: "button", title: "Compare with the rest", click: () => openGroup(isMember) }, dot, words, el("small", {}, count(rows)));
}

// --- a group compared with the rest

/** For each row the number of its bin: levels of a category, equal widths of a number; -1: missing. */
function binsOf(column) {
  if (column.bins) return column.bins;
  if (!column.numbers) {
    const places = new Map();
    const codes = data.labels.map((_, i) => {
      const level = column.read(i);
      if (level === null) return -1;
      if (!places.has(level)) places.set(level, places.size);
      return places.get(level);
    });
    return (column.bins = { codes, names: [...places.keys()], count: places.size });
  }
  const sorted = column.numbers.filter((v) => v !== null).sort((a, b) => a - b);
  const [low, high] = [sorted[Math.floor(sorted.length * 0.01)], sorted[Math.ceil(sorted.length * 0.99) - 1]];
  const code = (v) => Math.min(Math.max(Math.floor(((v - low) / (high - low || 1)) * BINS), 0), BINS - 1);
  return (column.bins = { codes: column.numbers.map((v) => (v === null ? -1 : code(v))), low, high, count: BINS });
}

/** Shares of the bins inside and outside, and half the sum of their differences, from 0 to 1. */
function compare(column) {
  const bins = binsOf(column);
  const shares = [new Float64Array(bins.count), new Float64Array(bins.count)], sums = [0, 0], totals = [0, 0];
  for (let i = 0; i < rowCount; i++) {
    if (bins.codes[i] < 0) continue;
    const side = state.group[i] ? 0 : 1;
    shares[side][bins.codes[i]]++;
    sums[side]++;
    if (column.numbers) totals[side] += column.numbers[i];
  }
  for (const side of [0, 1]) shares[side] = shares[side].map((n) => n / Math.max(sums[side], 1));
  const difference = sums[0] && sums[1] ? shares[0].reduce((sum, share, b) => sum + Math.abs(share - shares[1][b]), 0) / 2 : 0;
  return { column, bins, shares, difference, means: totals.map((total, side) => (sums[side] ? total / sums[side] : null)) };
}

/** Show how the columns of a group differ from the others. */
function openGroup(isMember) {
  state.group = Uint8Array.from(data.labels, (_, i) => (isMember(i) ? 1 : 0));
  state.row = null;
  const members = state.group.reduce((sum, one) => sum + one, 0);
  const compared = columns.map(compare).sort((a, b) => b.difference - a.difference);
  const content = members === 0 || members === rowCount
    ? [el("p", { class: "note" }, members ? "Every row is in the group: there is nothing to compare it with." : "No row is in the group.")]
    : [
        el("div", { class: "key" }, el("span", { class: "group" }, el("i", {}), "group"), el("span", {}, el("i", {}), "others")),
        ...compared.slice(0, COMPARED).map(aboutDifference),
        compared.length > COMPARED ? el("p", { class: "note" }, `${count(compared.length - COMPARED)} more columns differ less.`) : null,
      ];
  panel.open(`Group of ${count(members)} ${members === 1 ? "row" : "rows"}`, `compared with the other ${count(rowCount - members)}, the largest differences first`, content, clear);
  reveal(...placed.filter((i) => state.group[i]));
  redraw();
}

function aboutDifference({ column, bins, shares, difference, means }) {
  const head = el("div", { class: "line" }, text(column.name, { class: "name" }), unused(column), el("span", {}, `difference ${difference.toFixed(2)}`));
  if (column.numbers) {
    const note = column.kind === "datetime" ? null : el("div", { class: "line" }, el("span", {}, `mean ${number(means[0])}`), el("span", {}, `others ${number(means[1])}`));
    return el("div", { class: "difference" }, head, note, pairedBars(shares, bins, column.kind !== "datetime"));
  }
  const order = [...shares[0].keys()].sort((a, b) => Math.abs(shares[0][b] - shares[1][b]) - Math.abs(shares[0][a] - shares[1][a])).slice(0, 4);
  const bar = (share, name) => {
    const inner = el("i", {});
    inner.style.width = `${100 * share}%`;
    return [el("span", { class: `bar ${name}` }, inner), el("span", { class: "share" }, percent(share))];
  };
  const lines = order.map((b) => el("li", {}, text(bins.names[b]), el("span", {}), bar(shares[0][b], "group"), bar(shares[1][b], "others")));
  return el("div", { class: "difference" }, head, el("ul", { class: "paired" }, lines));
}

function pairedBars(shares, { low, high }, isNumber) {
  const width = 320, height = 58, top = Math.max(...shares[0], ...shares[1], 1e-9), wide = width / BINS;
  const bars = [];
  for (let b = 0; b < BINS; b++)
    for (const [side, name] of [[0, "group"], [1, "others"]]) {
      const tall = (shares[side][b] / top) * height;
      bars.push(svg("rect", { class: name, x: b * wide + side * (wide / 2 - 1) + 1, y: height - tall, width: wide / 2 - 1.5, height: tall }));
    }
  const ticks = isNumber ? [svg("text", { x: 0, y: height + 12 }, number(low)), svg("text", { x: width, y: height + 12, "text-anchor": "end" }, number(high))] : [];
  return svg("svg", { class: "chart", viewBox: `0 0 ${width} ${height + (isNumber ? 16 : 2)}`, role: "img", "aria-label": "Shares of the group and of the others by value" }, bars, ticks);
}

// --- a row

function openRow(row) {
  state.row = state.at = row;
  const about = data.measures.map(({ name, numbers }) => [text(name), el("span", {}, number(numbers[row]), el("small", {}, rank(numbers, row)))]);
  const cells = columns.map((c) => ({ c, heat: c.atypical ? c.atypical[row] : null })).sort((a, b) => (b.heat ?? -1) - (a.heat ?? -1));
  const similar = data.similar[row].map((other, k) => similarLine(row, other, data.distances[row][k]));
  const lines = cells.map(({ c, heat }) => ownCell(c, row, heat));
  const more = lines.splice(lines.length > CELLS + 1 ? CELLS : lines.length);
  panel.open(el("span", {}, "Row ", text(data.labels[row])), "", [
    about.length ? pairs(about) : null,
    el("h3", {}, "Cells", el("small", {}, columns.some((c) => c.atypical) ? "the least likely first; 1 is usual" : "")),
    el("ul", { class: "cells row-cells" }, lines),
    more.length ? el("details", { class: "more" }, el("summary", {}, `${count(more.length)} more cells`), el("ul", { class: "cells row-cells" }, more)) : null,
    similar.length ? el("h3", {}, "Similar rows", el("small", {}, "random rows are about 1 apart")) : null,
    similar.length ? el("ul", { class: "cells similar" }, similar) : null,
  ], clear);
  reveal(row);
  redraw();
}

/** Where a row's number is among those of all rows. */
function rank(numbers, row) {
  const known = numbers.filter((v) => v !== null);
  if (numbers[row] === null) return "";
  return `higher than ${Math.floor((100 * known.filter((v) => v < numbers[row]).length) / known.length)} % of the rows`;
}

/** A cell with its number; a column that the model does not use has none. */
function ownCell(column, row, score) {
  const line = cellLine(column.name, shown(column, row), column.atypical ? Math.min(Math.max((score ?? 0) / FULL_COLOUR, 0), 1) : null, null);
  const note = column.atypical ? el("span", { class: "score" }, score === null ? "–" : score.toFixed(1).replace("-", "−")) : unused(column);
  line.querySelector(".name").before(note ?? "");
  line.title = column.read(row) ?? "";
  return line;
}

const unused = (column) => (column.used ? null : el("small", { class: "unused", title: "The model does not use this column." }, "not used"));

/** A similar row: its distance, its value of the colour, and where it differs most. */
function similarLine(row, other, distance) {
  const { name, read, numbers } = state.colouring;
  const line = cellLine(data.labels[other], "", null, () => openRow(other));
  const differing = columns.filter((c) => c.used).map((c) => ({ c, far: apart(c, row, other) })).filter(({ far }) => far > 0).sort((a, b) => b.far - a.far).slice(0, 3);
  const pair = (c) => (c.kind === "numeric" ? briefPair(c.read(row), c.read(other)) : [c.read(row), c.read(other)]).map((value) => text(value ?? "·"));
  const words = differing.map(({ c }) => {
    const [mine, its] = pair(c);
    return el("span", {}, text(c.name), " ", mine, " → ", its);
  });
  line.firstChild.lastChild.replaceWith(
    el("span", {}, `distance ${number(distance)}`),
    el("span", { class: "colour" }, text(name), " ", text((read ? read(other) : number(numbers[other])) ?? "·")),
    el("span", { class: "differs" }, words.length ? ["differs in", ...words] : "the same in every column that the model uses"),
  );
  return line;
}

/** How far apart two cells of a column are, from 0 to 1. */
function apart(column, a, b) {
  if (!column.numbers || column.numbers[a] === null || column.numbers[b] === null) return column.read(a) === column.read(b) ? 0 : 1;
  const { low, high } = binsOf(column);
  return Math.min(Math.abs(column.numbers[a] - column.numbers[b]) / (high - low || 1), 1);
}

/** What closing the panel leaves: no row, no group but that of the search. */
function clear() {
  state.row = null;
  state.group = null;
  if (state.before?.all) showAll();
  else if (state.before) look(state.before);
  if (state.words) search();
  overlay.focus({ preventScroll: true });
  redraw();
}

function redraw() {
  drawPoints();
  drawOverlay();
}

// --- search

function search() {
  byId("compare").disabled = !state.words;
  if (!state.words) state.group = null;
  else {
    const tests = columns.map((c) => (c.match ??= matcher(c.texts))(state.words));
    state.group = Uint8Array.from(data.labels, (label, i) => (label.toLowerCase().includes(state.words) || tests.some((test) => test(i)) ? 1 : 0));
  }
  const found = state.group ? state.group.reduce((sum, one) => sum + one, 0) : rowCount;
  byId("shown").textContent = state.group ? `${count(found)} of ${count(rowCount)} rows` : `${count(rowCount)} rows`;
  drawPoints();
}

/** Open the row that was found; of several rows list the first, one with that number before the others. */
function openFound() {
  if (!state.words) return;
  const isExact = (i) => data.labels[i].toLowerCase() === state.words;
  const found = [...state.group.keys()].filter((i) => state.group[i]).sort((a, b) => isExact(b) - isExact(a));
  if (!found.length) return;
  if (found.length === 1) return openRow(found[0]);
  const line = (i) => {
    const column = columns.find((c) => c.match(state.words)(i));
    return cellLine(`Row ${data.labels[i]}`, column ? `${column.name}: ${column.read(i)}` : "", null, () => openRow(i));
  };
  state.row = null;
  panel.open(`${count(found.length)} rows found`, "", [
    el("ul", { class: "cells found" }, found.slice(0, LISTED).map(line)),
    found.length > LISTED ? el("p", { class: "note" }, `${count(found.length - LISTED)} more are coloured on the map. “Compare with the rest” says how they differ.`) : null,
  ], () => { clear(); byId("words").focus(); });
  byId("panel-body").querySelector("button").focus();
  redraw();
}

// --- pointer and keyboard

const place = (event) => {
  const box = overlay.getBoundingClientRect();
  return [event.clientX - box.x, event.clientY - box.y];
};

const fingers = new Map(); // where each is that touches the map

function onPress(event) {
  if (event.button !== 0) return;
  const [x, y] = place(event);
  overlay.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [x, y]);
  state.drag = fingers.size > 1 ? null : { x0: x, y0: y, x1: x, y1: y, moves: event.shiftKey || overlay.classList.contains("moves") };
}

/** Two fingers: the map follows their middle and their distance. */
function pinch(event) {
  const about = ([[ax, ay], [bx, by]]) => [(ax + bx) / 2, (ay + by) / 2, Math.hypot(ax - bx, ay - by)];
  const [x0, y0, wide0] = about([...fingers.values()]);
  fingers.set(event.pointerId, place(event));
  const [x1, y1, wide1] = about([...fingers.values()]);
  move(x1 - x0, y1 - y0);
  zoom(wide1 / (wide0 || 1), x1, y1);
}

function onWheel(event) {
  // in a notebook the wheel scrolls until the page is clicked
  if (window !== top && !document.hasFocus() && !event.ctrlKey) return;
  event.preventDefault();
  const unit = [0.002, 0.05, 1][event.deltaMode];
  zoom(2 ** (-event.deltaY * unit * (event.ctrlKey ? 10 : 1)), ...place(event)); // a pinch on a touchpad comes with Control
}

/** The pointer is on no row any more. */
function leave() {
  state.hover = null;
  byId("tip").hidden = true;
}

function onMove(event) {
  if (fingers.size > 1) return fingers.has(event.pointerId) && pinch(event);
  const [x, y] = place(event), drag = state.drag;
  if (drag?.moves && Math.hypot(x - drag.x0, y - drag.y0) >= CLICK) move(x - drag.x1, y - drag.y1);
  if (drag) Object.assign(drag, { x1: x, y1: y });
  state.hover = drag ? null : nearest(x, y, NEAR);
  const tip = byId("tip");
  tip.hidden = state.hover === null;
  if (state.hover !== null) {
    const { name, read, numbers } = state.colouring;
    tip.replaceChildren(text(data.labels[state.hover]), " ", el("span", {}, text(name), " ", read ? text(read(state.hover) ?? "·") : number(numbers[state.hover])));
    tip.style.left = `${Math.max(0, Math.min(px[state.hover] + 10, size[0] - tip.offsetWidth - 4))}px`;
    tip.style.top = `${Math.max(0, py[state.hover] - tip.offsetHeight - 8)}px`;
  }
  drawOverlay();
}

function onRelease(event) {
  if (state.drag) onMove(event);
  fingers.delete(event.pointerId);
  if (!state.drag) return;
  const { x0, y0, x1, y1, moves } = state.drag;
  state.drag = null;
  if (Math.hypot(x1 - x0, y1 - y0) < CLICK) {
    const row = nearest(x1, y1, NEAR);
    if (row !== null) openRow(row);
    else drawOverlay();
    return;
  }
  if (moves) return;
  const isOn = new Set(placed);
  const within = (v, a, b) => v >= Math.min(a, b) && v <= Math.max(a, b);
  openGroup((i) => isOn.has(i) && within(px[i], x0, x1) && within(py[i], y0, y1));
}

function onKey(event) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [0, 0];
  if ((dx || dy) && event.shiftKey) move((-dx * size[0]) / 8, (-dy * size[1]) / 8);
  else if (dx || dy) {
    if (state.at === null) state.at = nearest(size[0] / 2, size[1] / 2, Infinity);
    else state.at = next(state.at, dx, dy);
    if (state.at !== null) {
      byId("said").textContent = `Row ${data.labels[state.at]}`;
      reveal(state.at);
    }
    drawOverlay();
  } else if ((event.key === "Enter" || event.key === " ") && state.at !== null) openRow(state.at);
  else return;
  event.preventDefault();
}

const zooms = { "+": () => zoom(1.5), "=": () => zoom(1.5), "-": () => zoom(1 / 1.5), "0": showAll };

/** Anywhere but in a field: after a click the panel has the focus. */
function onZoomKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
  if (!(event.key in zooms)) return;
  zooms[event.key]();
  event.preventDefault();
}

/** The nearest row in a direction, within a quarter of the compass; the same one at the end. */
function next(from, dx, dy) {
  let best = from, least = Infinity;
  for (const i of placed) {
    const x = px[i] - px[from], y = py[i] - py[from];
    const ahead = x * dx + y * dy, aside = Math.abs(x * dy) + Math.abs(y * dx);
    if (ahead > 0 && aside <= ahead && x * x + y * y < least) [best, least] = [i, x * x + y * y];
  }
  return best;
}

/** Where to begin, beside the map: the rows whose last measure, the outlier score, is highest. */
function showUnusual() {
  const measure = data.measures.at(-1);
  if (!measure) return;
  const { name, numbers } = measure;
  const rows = [...Array(rowCount).keys()].filter((i) => numbers[i] !== null).sort((a, b) => numbers[b] - numbers[a]);
  const line = (row) => {
    const least = columns.filter((c) => c.atypical && c.atypical[row] !== null).sort((a, b) => b.atypical[row] - a.atypical[row])[0];
    return cellLine(`Row ${data.labels[row]}`, least ? `${least.name} ${shown(least, row) ?? "·"}` : number(numbers[row]), null, () => openRow(row));
  };
  byId("unusual").append(el("h2", {}, "Highest ", text(name), el("small", {}, "and the least likely cell")), el("ul", { class: "cells" }, rows.slice(0, UNUSUAL).map(line)));
}

/** A category of few levels shows most at first sight; one that the model does not use comes first. */
function firstColouring(choices) {
  const isFew = (c) => !c.numbers && binsOf(c).count >= 2 && binsOf(c).count <= HUES.length;
  return columns.find((c) => !c.used && isFew(c)) ?? columns.find(isFew) ?? choices[0];
}

function start() {
  fillHead();
  const used = (is) => columns.filter((c) => c.used === is);
  const groups = [["Measures", data.measures], ["Columns", used(true)], ["Columns that the model does not use", used(false)]].filter(([, list]) => list.length);
  const choices = groups.flatMap(([, list]) => list);
  byId("colour").append(...groups.map(([label, list]) => el("optgroup", { label }, list.map((c) => el("option", { value: choices.indexOf(c) }, c.name)))));
  byId("colour").addEventListener("change", (event) => colourBy(choices[event.target.value]));
  byId("compare").addEventListener("click", () => {
    const found = state.group;
    openGroup((i) => found[i] === 1);
  });
  let waiting = null;
  const read = () => {
    clearTimeout(waiting);
    state.words = byId("words").value.trim().toLowerCase();
    search();
  };
  byId("words").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(read, 100);
  });
  byId("words").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    read();
    openFound();
  });
  overlay.addEventListener("pointerdown", onPress);
  overlay.addEventListener("pointermove", onMove);
  overlay.addEventListener("pointerup", onRelease);
  overlay.addEventListener("pointercancel", (event) => { fingers.delete(event.pointerId); state.drag = null; drawOverlay(); });
  overlay.addEventListener("pointerleave", () => { leave(); drawOverlay(); });
  overlay.addEventListener("wheel", onWheel, { passive: false });
  document.addEventListener("keydown", onZoomKey);
  for (const [name, key] of [["zoom-in", "+"], ["zoom-out", "-"], ["zoom-all", "0"]]) byId(name).addEventListener("click", zooms[key]);
  byId("move").addEventListener("click", () => byId("move").setAttribute("aria-pressed", overlay.classList.toggle("moves")));
  overlay.addEventListener("keydown", onKey);
  for (const name of ["focus", "blur"]) overlay.addEventListener(name, drawOverlay);
  document.addEventListener("themechange", () => {
    if (state.colouring) colourBy(state.colouring);
    drawOverlay();
  });
  const fold = () => { byId("legend").open = !smallScreen.matches; };
  smallScreen.addEventListener("change", fold);
  fold();
  search();
  showUnusual();
  if (choices.length) {
    const first = firstColouring(choices);
    byId("colour").value = choices.indexOf(first);
    colourBy(first);
  }
  layOut();
  new ResizeObserver(layOut).observe(byId("map"));
}

start();
