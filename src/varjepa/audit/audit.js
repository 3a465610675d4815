// The audit page: a virtual ARIA grid of the table, coloured by suspicion, and a panel for a cell.

const ROW = 30, HEAD = 44; // pixels, as in audit.css
const FIRST = innerWidth < 900 ? 128 : 176; // of the rows' numbers and worst columns
const AHEAD = 10; // rows drawn above and below the visible ones

const rowCount = data.labels.length;
// numbers are shown with six digits; the panel and a cell's title have all
const columns = data.columns.map((column) => ({ ...column, read: reader(column.texts), short: column.kind === "number" ? brief : (value) => value, match: null }));
const details = new Map(data.details.map((d) => [d.row * columns.length + d.column, d]));
const detailOf = (row, column) => details.get(row * columns.length + column);
/** For sorting: exact where there are details, which come before shades; one that is not finite first. */
function suspicionOf(row, column) {
  const detail = detailOf(row, column);
  if (detail) return detail.logOdds ?? 1e300;
  const shade = columns[column].suspicions[row];
  return shade < 0 ? null : shade / data.shades - 1e6;
}
/** Sorts cells with details: the most suspicious first. */
const worstFirst = (a, b) => a.p - b.p || (b.logOdds ?? 1e300) - (a.logOdds ?? 1e300);
const flagged = data.details.filter((d) => d.flagged);
const pairOf = ({ column, value, repair }) => (columns[column].kind === "number" ? briefPair(value, repair) : [value, repair]);
const grid = byId("grid");

/** Columns as they are shown: an identifier, which says what a row is, then the most suspicious. */
const order = (() => {
  const worst = columns.map(() => null);
  for (const d of data.details) if (!worst[d.column] || worstFirst(d, worst[d.column]) < 0) worst[d.column] = d;
  const id = columns.findIndex((c) => c.notAudited === "identifier");
  const some = [...columns.keys()].filter((c) => worst[c]).sort((a, b) => worstFirst(worst[a], worst[b]));
  const first = new Set([...(id < 0 ? [] : [id]), ...some]);
  return [...first, ...[...columns.keys()].filter((c) => !first.has(c))];
})();

/** Audited columns of a row, the most suspicious cell first. */
function byRowSuspicion(row) {
  const compare = (a, b) => {
    const [x, y] = [detailOf(row, a), detailOf(row, b)];
    if (x && y) return worstFirst(x, y);
    return x ? -1 : y ? 1 : columns[b].suspicions[row] - columns[a].suspicions[row];
  };
  return [...columns.keys()].filter((c) => columns[c].suspicions[row] >= 0).sort(compare);
}

const state = {
  words: "",
  column: null, // the chosen one
  flaggedOnly: false,
  sort: { by: "worst", column: null, down: true },
  view: [], // rows in the order shown
  shown: [], // columns in the order shown
  focus: { row: 0, place: 0 }, // row -1: the heads; place 0: the row's label, place p: shown[p - 1]
  open: null, // {row, column} whose panel is open; column null: the row's
};

// --- what is shown, and in which order

function updateView() {
  const { column, words, flaggedOnly } = state;
  const searched = column === null ? columns : [columns[column]];
  let rows = [...Array(rowCount).keys()];
  if (flaggedOnly) {
    const kept = new Set(flagged.filter((d) => column === null || d.column === column).map((d) => d.row));
    rows = rows.filter((row) => kept.has(row));
  }
  if (words) {
    const tests = searched.map((c) => (c.match ??= matcher(c.texts))(words));
    const repaired = new Set(data.details.filter((d) => (column === null || d.column === column) && d.repair?.toLowerCase().includes(words)).map((d) => d.row));
    rows = rows.filter((row) => tests.some((test) => test(row)) || repaired.has(row) || (column === null && data.labels[row].toLowerCase().includes(words)));
  }
  state.view = sortRows(rows);
  state.shown = column === null ? order : [column, ...order.filter((c) => c !== column)];
  layOut();
  state.focus = { row: Math.min(Math.max(state.focus.row, 0), state.view.length - 1), place: Math.min(state.focus.place, state.shown.length) };
  byId("shown").textContent = rows.length === rowCount ? `${count(rowCount)} rows` : `${count(rows.length)} of ${count(rowCount)} rows`;
  byId("none").hidden = rows.length > 0;
  grid.setAttribute("aria-rowcount", rows.length + 1);
  grid.setAttribute("aria-colcount", columns.length + 1);
  grid.scrollTop = 0;
  redraw();
  if (state.open) showSteps();
}

/** Rows sorted by a key; missing values last, ties in the order given: worst first. */
function sortRows(rows) {
  const { by, column, down } = state.sort;
  const of = columns[column];
  const key = {
    worst: (row) => -row, // as they came
    score: (row) => data.scores[row],
    label: (row) => data.labels[row],
    suspicion: (row) => suspicionOf(row, column),
    value: (row) => (of.kind === "number" ? parse(of.read(row)) : of.read(row)),
  }[by];
  const keys = new Map(rows.map((row) => [row, key(row)]));
  const isText = by === "label" || (by === "value" && of.kind !== "number");
  const isMissing = (k) => k === null || Number.isNaN(k);
  const compare = isText ? collator.compare : (a, b) => a - b;
  const present = rows.filter((row) => !isMissing(keys.get(row)));
  present.sort((a, b) => compare(keys.get(a), keys.get(b)) * (down ? -1 : 1));
  return [...present, ...rows.filter((row) => isMissing(keys.get(row)))];
}

function sortBy(by, column, down) {
  state.sort = { by, column, down };
  byId("sort").value = column === null ? by : `${by} ${column}`;
  showDirection();
  updateView();
}

function showDirection() {
  byId("direction").textContent = state.sort.down ? "↓" : "↑";
  byId("direction").title = state.sort.down ? "Descending" : "Ascending";
}

/** A head, again and again: suspicion, value upwards, downwards; for rows: worst cell, number. */
function sortByHead(place) {
  const { sort } = state;
  const column = place === 0 ? null : state.shown[place - 1];
  const [first, second] = column === null ? ["worst", "label"] : ["suspicion", "value"];
  const isMine = sort.column === column;
  if (columns[column]?.kind === "not audited") sortBy("value", column, isMine && !sort.down);
  else if (isMine && sort.by === first) sortBy(second, column, false);
  else if (isMine && sort.by === second && !sort.down) sortBy(second, column, true);
  else sortBy(first, column, true);
}

function chooseColumn(column) {
  state.column = column;
  byId("column").value = column ?? "";
  for (const card of byId("overview").children) card.setAttribute("aria-pressed", card.dataset.column === String(column));
  grid.scrollLeft = 0;
  if (column === null) sortBy("worst", null, true);
  else if (columns[column].kind === "not audited") sortBy("value", column, false);
  else sortBy("suspicion", column, true);
}

// --- the grid: only what is visible is in the document

const drawn = { rows: new Map(), from: 0, to: 0 };
let lefts = []; // of the shown columns, and the right end
let widths = null;

function measure() {
  const longest = ({ texts, short }, share) => {
    const lengths = (texts.values ?? texts.levels).map((t) => short(t)?.length ?? 0).sort((a, b) => a - b);
    return lengths[Math.ceil((lengths.length - 1) * share)] ?? 0;
  };
  const ruler = document.createElement("canvas").getContext("2d");
  const style = getComputedStyle(grid);
  const setFont = (weight) => { ruler.font = `${weight} ${style.fontSize} ${style.fontFamily}`; };
  setFont(400);
  const wide = (t) => ruler.measureText(t.slice(0, 60)).width;
  widths = columns.map((c) => Math.max(wide("0") * longest(c, 0.95) + 22, wide(c.kind) + 22, 68));
  const before = flagged.map((d) => wide(pairOf(d)[0]));
  setFont(650);
  columns.forEach((c, i) => { widths[i] = Math.max(widths[i], wide(c.name) + 22); });
  flagged.forEach((d, k) => { if (d.repair !== null) widths[d.column] = Math.max(widths[d.column], before[k] + wide(`→ ${pairOf(d)[1]} ?`) + 36); });
  const most = Math.min(240, grid.clientWidth - FIRST);
  widths = widths.map((w) => Math.ceil(Math.min(w, most)));
}

function layOut() {
  if (!widths) measure();
  lefts = [FIRST];
  for (const column of state.shown) lefts.push(lefts.at(-1) + widths[column]);
  const wide = `${lefts.at(-1)}px`;
  byId("heads").style.width = byId("rows").style.width = wide;
  byId("rows").style.height = `${state.view.length * ROW}px`;
  grid.style.setProperty("--first", `${FIRST}px`);
  grid.style.setProperty("--content", `${state.view.length * ROW + HEAD + 2}px`);
}

function redraw() {
  const hadFocus = grid.contains(document.activeElement) && document.activeElement.dataset.place !== undefined;
  for (const row of drawn.rows.values()) row.remove();
  drawn.rows.clear();
  const left = grid.scrollLeft, right = left + grid.clientWidth;
  drawn.from = Math.max(0, lefts.findIndex((x) => x > left) - 3);
  drawn.to = state.shown.findIndex((_, p) => lefts[p] > right) + 2;
  if (drawn.to < 2 || drawn.to > state.shown.length) drawn.to = state.shown.length;
  byId("heads").replaceChildren(...[0, ...places()].map(buildHead));
  draw();
  if (hadFocus) cellAt(state.focus)?.focus({ preventScroll: true });
}

/** Places of the drawn columns, the focused one among them. */
function places() {
  const drawnPlaces = [];
  for (let p = drawn.from; p < drawn.to; p++) drawnPlaces.push(p + 1);
  const { place } = state.focus;
  if (place > 0 && (place <= drawn.from || place > drawn.to)) drawnPlaces.push(place);
  return drawnPlaces;
}

function draw() {
  const left = grid.scrollLeft, right = left + grid.clientWidth;
  if (lefts[drawn.from] > left + FIRST && drawn.from > 0) return redraw();
  if (lefts[drawn.to] < right && drawn.to < state.shown.length) return redraw();
  const first = Math.max(0, Math.floor(grid.scrollTop / ROW) - AHEAD);
  const last = Math.min(state.view.length, Math.ceil((grid.scrollTop + grid.clientHeight) / ROW) + AHEAD);
  for (const [i, row] of drawn.rows)
    if ((i < first || i >= last) && i !== state.focus.row) {
      row.remove();
      drawn.rows.delete(i);
    }
  for (let i = first; i < last; i++) addRow(i);
  if (state.focus.row >= 0) addRow(state.focus.row);
  markFocus();
}

function addRow(i) {
  if (drawn.rows.has(i) || i >= state.view.length) return;
  const row = el("div", { role: "row", class: "row", "aria-rowindex": i + 2 }, [0, ...places()].map((place) => buildCell(i, place)));
  row.style.top = `${i * ROW}px`;
  // in the document in the order shown, for those who have it read to them
  const after = Math.min(...[...drawn.rows.keys()].filter((j) => j > i));
  byId("rows").insertBefore(row, drawn.rows.get(after) ?? null);
  drawn.rows.set(i, row);
}

function position(cell, place) {
  if (place === 0) return;
  cell.style.left = `${lefts[place - 1]}px`;
  cell.style.width = `${lefts[place] - lefts[place - 1]}px`;
}

const ORDERS = { worst: "worst cell", label: "number" };

function buildHead(place) {
  const column = place === 0 ? null : state.shown[place - 1];
  const { sort } = state;
  const isMine = sort.column === column;
  const word = isMine ? `${ORDERS[sort.by] ?? sort.by} ${sort.down ? "↓" : "↑"}` : column === null ? "worst cell" : columns[column].kind;
  const cell = el("div", {
    role: "columnheader", class: `cell ${column === null ? "first" : align(column)}`, tabindex: -1,
    "data-row": -1, "data-place": place, "aria-colindex": place + 1,
    "aria-sort": isMine && ["value", "label", "score"].includes(sort.by) ? (sort.down ? "descending" : "ascending") : null,
    title: column === null ? "Rows are counted from 0. Sort by their most suspicious cell or by number" : `${columns[column].name}: sort by suspicion or value`,
  }, column === null ? el("b", {}, "Row") : text(columns[column].name, { class: "name" }), el("small", { class: isMine ? "sorted" : null }, word));
  position(cell, place);
  return cell;
}

const align = (column) => (["number", "date"].includes(columns[column].kind) ? "right" : columns[column].kind === "not audited" ? "mute" : "");

function buildCell(i, place) {
  const row = state.view[i];
  const attributes = { tabindex: -1, "data-row": i, "data-place": place, "aria-colindex": place + 1 };
  if (place === 0) return el("div", { ...attributes, role: "rowheader", class: "cell first" }, text(data.labels[row]), besideLabel(row));
  const column = state.shown[place - 1];
  const value = columns[column].read(row);
  const suspicion = columns[column].suspicions[row];
  const detail = detailOf(row, column);
  const isFlagged = detail?.flagged ?? false;
  const cell = el("div", { ...attributes, role: "gridcell", class: `cell ${align(column)} ${isFlagged ? "flagged" : ""}` });
  const [before, after] = isFlagged && detail.repair !== null ? pairOf(detail) : [];
  if (before !== undefined) cell.append(el("del", {}, text(before)), el("ins", { class: detail.confidence >= SURE ? null : "unsure" }, text(after)));
  else if (value === null) cell.append(el("span", { class: "missing", role: "img", "aria-label": "missing" }, "·"));
  else cell.append(text(columns[column].short(value)));
  if (before !== undefined) cell.title = `${detail.value} → ${detail.repair}`;
  else if (value !== null && value.length > 9) cell.title = value;
  if (suspicion > 0) cell.style.setProperty("--heat", suspicion / data.shades);
  if (state.open?.row === row && state.open.column === column) cell.classList.add("open");
  position(cell, place);
  return cell;
}

const SURE = 0.5; // confidence from which a repair is made unless the user says otherwise

/** Beside a row's number: the column of its most suspicious cell; its score where that sorts. */
function besideLabel(row) {
  if (state.sort.by === "score") return el("small", {}, score(data.scores[row]));
  const [worst] = byRowSuspicion(row);
  return worst === undefined ? null : el("small", {}, text(columns[worst].name));
}

const largest = Math.max(...data.scores.map((s) => Math.abs(s ?? 0)));
const decimals = largest >= 100 ? 0 : largest >= 10 ? 1 : 2;
const score = (value) => (value === null ? "–" : value.toFixed(decimals).replace("-", "−"));

const cellAt = ({ row, place }) => (row < 0 ? byId("heads") : drawn.rows.get(row))?.querySelector(`[data-place="${place}"]`);

/** One cell of the grid can be reached with Tab: the focused one. */
function markFocus() {
  grid.querySelector('[tabindex="0"]')?.setAttribute("tabindex", -1);
  cellAt(state.focus)?.setAttribute("tabindex", 0);
}

function moveFocus(row, place) {
  state.focus = { row: Math.min(Math.max(row, -1), state.view.length - 1), place: Math.min(Math.max(place, 0), state.shown.length) };
  const focus = state.focus;
  if (focus.row >= 0) {
    const top = focus.row * ROW, room = grid.clientHeight - HEAD - ROW;
    if (top < grid.scrollTop) grid.scrollTop = top;
    else if (top > grid.scrollTop + room) grid.scrollTop = top - room;
  }
  if (focus.place > 0) {
    const [left, right] = [lefts[focus.place - 1], lefts[focus.place]];
    if (left - FIRST < grid.scrollLeft) grid.scrollLeft = left - FIRST;
    else if (right > grid.scrollLeft + grid.clientWidth) grid.scrollLeft = right - grid.clientWidth;
  }
  draw();
  if (!cellAt(focus)) redraw();
  cellAt(focus)?.focus({ preventScroll: true });
}

function onKey(event) {
  const place = Number(event.target.dataset.place), row = Number(event.target.dataset.row);
  if (Number.isNaN(place) || event.altKey || event.metaKey) return;
  const page = Math.max(1, Math.floor((grid.clientHeight - HEAD) / ROW) - 1);
  const end = state.view.length - 1, far = event.ctrlKey;
  const moves = {
    ArrowUp: [far ? 0 : row - 1, place], ArrowDown: [far ? end : row + 1, place],
    ArrowLeft: [row, far ? 0 : place - 1], ArrowRight: [row, far ? state.shown.length : place + 1],
    Home: [far ? 0 : row, 0], End: [far ? end : row, state.shown.length],
    PageUp: [Math.max(row - page, 0), place], PageDown: [row + page, place],
  };
  if (event.key in moves) moveFocus(...moves[event.key]);
  else if (event.key === "Enter" || event.key === " ") activate(row, place);
  else return;
  event.preventDefault();
}

function activate(i, place) {
  if (i < 0) {
    state.focus = { row: -1, place };
    sortByHead(place);
    moveFocus(-1, place);
  } else openCell(state.view[i], place === 0 ? null : state.shown[place - 1]);
}

// --- the panel

/** Open a cell's panel, or a row's where the column is null. */
function openCell(row, column) {
  state.open = { row, column };
  state.focus = { row: state.view.indexOf(row), place: column === null ? 0 : state.shown.indexOf(column) + 1 };
  const close = () => {
    state.open = null;
    grid.querySelector(".open")?.classList.remove("open");
    moveFocus(state.focus.row, state.focus.place);
  };
  grid.querySelector(".open")?.classList.remove("open");
  byId("steps").hidden = false;
  if (column === null) panel.open(el("span", {}, "Row ", text(data.labels[row])), "", aboutRow(row), close);
  else panel.open(text(columns[column].name), el("button", { type: "button", class: "link", click: () => openCell(row, null) }, "Row ", text(data.labels[row])), aboutCell(row, column), close);
  showSteps();
  moveFocus(state.focus.row, state.focus.place); // the grid may be narrower now
  cellAt(state.focus)?.classList.add("open");
  byId("panel-title").focus({ preventScroll: true });
}

function aboutCell(row, column) {
  const { kind, read } = columns[column];
  const detail = detailOf(row, column);
  const value = detail?.value ?? read(row);
  const shade = columns[column].suspicions[row];
  const box = (name, content) => el("div", { class: name }, el("span", {}, name), content === null ? el("i", {}, "missing") : text(content));
  const values = el("div", { class: "values" }, box("value", value), detail?.repair != null ? box("repair", detail.repair) : null);
  if (!detail) {
    const why = kind === "not audited" ? `This column is not audited${columns[column].notAudited ? `: ${columns[column].notAudited}` : ""}.` : value === null ? "A missing cell has no score." : "Distributions are kept for the most suspicious cells only.";
    return [values, pairs([["Suspicion, 0 to 100", shade < 0 ? null : String(Math.round((100 * shade) / data.shades))], ["Row score", score(data.scores[row])]]), el("p", { class: "note" }, why)];
  }
  const chart = detail.masses.length
    ? histogram({ edges: data.edges[detail.edges], masses: detail.masses, value: { at: detail.at }, repair: { at: detail.repairAt }, interval: detail.ends, isDate: kind === "date" })
    : levelBars(detail.levels, value, detail.repair);
  return [
    values,
    chart && el("figure", {}, el("figcaption", {}, "Expected, given the rest of the row"), chart),
    pairs([
      ["Interval of 90 %", detail.lower === null || detail.upper === null ? null : el("span", {}, text(detail.lower), " to ", text(detail.upper))],
      ["Confidence: wrong, and this repair right", detail.confidence === null ? null : percent(detail.confidence)],
      ["Log odds of an error", number(detail.logOdds)],
      ["p-value", number(detail.p)],
      ["Row score", score(data.scores[row])],
      ["Status", detail.flagged ? "flagged" : "not flagged"],
    ]),
    el("p", { class: "note" }, whyFlagged(detail)),
  ];
}

function whyFlagged(detail) {
  const rate = percent(data.fdr);
  if (detail.flagged) return `About ${rate} of the flagged cells are expected to be right after all (the false discovery rate).`;
  const outside = detail.ends && detail.at !== null && (detail.at < detail.ends[0] || detail.at > detail.ends[1]);
  const why = data.limit === null ? "its p-value, as that of every cell, is too large" : `its p-value is above ${number(data.limit)}, which is too large`;
  return [
    `Not flagged: ${why} for a false discovery rate of ${rate}. Among ${count(data.tests)} cells, some right ones look like this by chance.`,
    outside ? "One right value in ten is outside its interval." : null,
  ].filter(Boolean).join(" ");
}

function aboutRow(row) {
  const lines = byRowSuspicion(row).map((column) => cellLine(columns[column].name, columns[column].short(columns[column].read(row)), columns[column].suspicions[row] / data.shades, () => openCell(row, column)));
  return [pairs([["Row score", score(data.scores[row])], ["p-value of the score", number(data.ps[row])]]), el("h3", {}, "Cells, the most suspicious first"), el("ul", { class: "cells" }, lines)];
}

/** Flagged cells of the view, row by row. */
function flaggedInView() {
  const byRow = new Map();
  for (const d of flagged) byRow.set(d.row, [...(byRow.get(d.row) ?? []), d]);
  return state.view.flatMap((row) => byRow.get(row) ?? []);
}

function showSteps() {
  const cells = flaggedInView();
  const at = cells.findIndex((d) => d.row === state.open.row && d.column === state.open.column);
  // from a cell that is not flagged, the steps start at its row
  const ranks = new Map(state.view.map((row, i) => [row, i]));
  const after = cells.findIndex((d) => ranks.get(d.row) >= ranks.get(state.open.row));
  const [before, next] = at >= 0 ? [at - 1, at + 1] : [after < 0 ? cells.length - 1 : after - 1, after < 0 ? cells.length : after];
  byId("step").textContent = at >= 0 ? `flagged ${count(at + 1)} of ${count(cells.length)}` : `${count(cells.length)} flagged`;
  for (const [id, target] of [["previous", cells[before]], ["next", cells[next]]]) {
    byId(id).disabled = !target;
    byId(id).onclick = target ? () => { openCell(target.row, target.column); byId(id).focus(); } : null;
  }
}

// --- columns overview and controls

function fillOverview() {
  const order = [...columns.keys()].sort((a, b) => columns[b].flagged - columns[a].flagged);
  const cards = order.filter((i) => columns[i].kind !== "not audited").map((i) => {
    const { name, flagged, predictable, drift } = columns[i];
    const bar = el("i", {});
    bar.style.width = `${100 * Math.min(Math.max(predictable ?? 0, 0), 1)}%`;
    return el("button", { type: "button", class: "card", "data-column": i, "aria-pressed": "false", title: `${name}: ${count(flagged)} flagged cells`, click: () => chooseColumn(state.column === i ? null : i) },
      el("span", { class: "line" }, text(name, { class: "name" }), el("b", { class: flagged ? "some" : null }, count(flagged), el("span", { class: "hidden" }, " flagged"))),
      el("span", { class: "bar" }, bar),
      el("small", { class: "line" }, el("span", {}, predictable === null ? "predictable –" : `predictable ${percent(Math.max(predictable, 0))}`), drift === null ? null : el("span", {}, `drift ${drift.toFixed(2)}`)));
  });
  byId("overview").append(...cards);
}

function fillControls() {
  byId("column").append(el("option", { value: "" }, "all columns"), ...columns.map((c, i) => el("option", { value: i }, c.name)));
  const audited = [...columns.keys()].filter((i) => columns[i].kind !== "not audited");
  const options = (by, list) => el("optgroup", { label: by[0].toUpperCase() + by.slice(1) }, list.map((i) => el("option", { value: `${by} ${i}` }, `${columns[i].name}, ${by}`)));
  byId("sort").append(el("option", { value: "worst" }, "worst cell"), el("option", { value: "score" }, "row score"), el("option", { value: "label" }, "row number"), options("suspicion", audited), options("value", [...columns.keys()]));

  byId("column").addEventListener("change", (event) => chooseColumn(event.target.value === "" ? null : Number(event.target.value)));
  byId("sort").addEventListener("change", (event) => {
    const [by, column] = event.target.value.split(" ");
    sortBy(by, column === undefined ? null : Number(column), ["worst", "score", "suspicion"].includes(by));
  });
  byId("direction").addEventListener("click", () => sortBy(state.sort.by, state.sort.column, !state.sort.down));
  byId("flagged").addEventListener("change", (event) => {
    state.flaggedOnly = event.target.checked;
    updateView();
  });
  let waiting = null;
  byId("words").addEventListener("input", (event) => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      state.words = event.target.value.trim().toLowerCase();
      updateView();
    }, 100);
  });
  byId("reset").addEventListener("click", () => {
    byId("words").value = state.words = "";
    byId("flagged").checked = state.flaggedOnly = false;
    chooseColumn(null);
    moveFocus(0, 0);
  });
}

/** What the words of the page mean. */
function showTerms() {
  const rate = percent(data.fdr);
  const terms = [
    ["Suspicion", "How badly a cell fits the other cells of its row: the colour. It is the p-value, on a logarithmic scale."],
    ["p-value", "The share of right cells in the column that look this suspicious."],
    ["Flagged", `So suspicious that, of all flagged cells, only about ${rate} are expected to be right after all. That share is the false discovery rate.`],
    ["Log odds of an error", "How many times likelier the value is as an error than as a right value, as a natural logarithm: 0 is even, 7 is a thousand to one."],
    ["Confidence", `The probability that the cell is wrong and the repair right. Below ${percent(SURE)} the repair has a question mark.`],
    ["Predictable", "The share of what varies in a column that the other columns explain: at 0 % they say hardly anything about its cells."],
    columns.some((c) => c.drift !== null) ? ["Drift", "How far a column is from the rows that the model learned from: 0 the same, 1 nothing in common."] : null,
    ["Row score", "The mean suspicion of a row's cells. Rows are sorted by their worst cell, since one wrong cell hardly moves the mean of many columns."],
    ["Row", "Its number in the table, counted from 0."],
  ].filter(Boolean);
  state.open = null;
  grid.querySelector(".open")?.classList.remove("open");
  byId("steps").hidden = true;
  panel.open("What the words mean", "", [el("dl", { class: "terms" }, terms.flatMap(([word, meaning]) => [el("dt", {}, word), el("dd", {}, meaning)]))], () => byId("terms").focus());
}

function start() {
  fillHead();
  fillOverview();
  fillControls();
  showDirection();
  let waiting = false;
  const later = () => {
    if (!waiting) requestAnimationFrame(() => { waiting = false; draw(); });
    waiting = true;
  };
  byId("terms").addEventListener("click", showTerms);
  grid.addEventListener("scroll", later, { passive: true });
  grid.addEventListener("keydown", onKey);
  grid.addEventListener("click", (event) => {
    const cell = event.target.closest("[data-place]");
    if (cell) activate(Number(cell.dataset.row), Number(cell.dataset.place));
  });
  updateView();
  new ResizeObserver(later).observe(grid);
}

start();
