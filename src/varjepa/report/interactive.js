"use strict";
// Parts that the interactive pages share. Whatever comes from the data becomes text nodes.

const byId = (id) => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);

/** An element with attributes and children; strings become text, null is left out. */
function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for SVG. */
function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") node.addEventListener(name, value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null));
  return node;
}

/** A text of the data, apart from its surroundings: its writing direction stays its own. */
const text = (value, attributes = {}) => el("bdi", attributes, value);

// --- numbers

const grouped = new Intl.NumberFormat("en", { maximumSignificantDigits: 4 });
const collator = new Intl.Collator("en", { numeric: true });

/** Four digits at most, with a real minus sign; a dash where there is no number. */
function number(value) {
  if (value === null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e9)) {
    const [digits, power] = value.toExponential(1).split("e");
    return `${digits}·10${[...String(Number(power))].map((c) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[c] ?? "⁻").join("")}`.replace("-", "−");
  }
  return grouped.format(value).replace("-", "−");
}

const count = (value) => value.toLocaleString("en");
/** Never 100 % or 0 % of what is a little less or more. */
const percent = (share) => (share === null ? "–" : share >= 0.995 && share < 1 ? "> 99 %" : share > 0 && share < 0.005 ? "< 1 %" : `${Math.round(100 * share)} %`);

/** A number with many decimals, with six digits; any other text as it is. */
function brief(value) {
  if (value === null || value.length < 10 || !/^-?\d+\.\d+(e[-+]?\d+)?$/.test(value)) return value;
  const whole = value.replace("-", "").indexOf(".");
  return String(Number(Number(value).toPrecision(Math.max(6, Math.min(whole, 21)))));
}

/** Two numbers side by side, with more digits where they would look the same. */
function briefPair(a, b) {
  const pair = [brief(a), brief(b)];
  return pair[0] === pair[1] ? [a, b] : pair;
}

/** The number that a formatted text stands for, or NaN. */
const parse = (value) => (value === null || value.trim() === "" ? NaN : Number(value.replace(/[,\u2009\u202f]/g, "").replace("−", "-")));

/** Column texts as the page holds them: plain, or levels and codes. */
function reader(texts) {
  return texts.values ? (i) => texts.values[i] : (i) => (texts.codes[i] < 0 ? null : texts.levels[texts.codes[i]]);
}

/** For each row whether its text holds the words; each level is looked at once. */
function matcher(texts) {
  const lower = (texts.values ?? texts.levels).map((t) => (t === null ? "" : t.toLowerCase()));
  return (words) => {
    const found = lower.map((t) => t.includes(words));
    return texts.values ? (i) => found[i] : (i) => texts.codes[i] >= 0 && found[texts.codes[i]];
  };
}

// --- head and theme

function fillHead() {
  byId("title").append(text(data.title));
  byId("facts").append(...data.facts.map(([name, value]) => el("div", {}, el("dt", {}, text(name)), el("dd", {}, text(value)))));
  byId("theme").addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    document.dispatchEvent(new Event("themechange"));
  });
  prefersDark.addEventListener("change", () => document.dispatchEvent(new Event("themechange")));
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (prefersDark.matches ? "dark" : "light")) === "dark";

// --- the panel: beside the page, or a sheet at the bottom of a small screen

const panel = {
  giveBack: null,
  get isOpen() {
    return !byId("panel").hidden;
  },
  /** Show content; `giveBack` puts the focus back when the panel closes. */
  open(title, subtitle, content, giveBack) {
    byId("panel-title").replaceChildren(title);
    byId("panel-subtitle").replaceChildren(subtitle);
    byId("panel-body").replaceChildren(...content.filter((node) => node !== null));
    byId("panel-body").scrollTop = 0;
    byId("panel").hidden = false;
    this.giveBack = giveBack;
    byId("panel-title").focus({ preventScroll: true });
  },
  close() {
    if (!this.isOpen) return;
    byId("panel").hidden = true;
    this.giveBack?.();
    this.giveBack = null;
  },
};

byId("panel-close").addEventListener("click", () => panel.close());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && panel.isOpen) {
    event.preventDefault();
    panel.close();
  }
});

/** Names and values as a list of facts; pairs with a null value are left out. */
function pairs(list) {
  const shown = list.filter(([, value]) => value !== null);
  return el("dl", { class: "pairs" }, shown.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

/** A line of a list of cells: a swatch of its colour, its column, its value; a click leads on. */
function cellLine(name, value, heat, click) {
  const swatch = heat === null ? null : el("i", {});
  swatch?.style.setProperty("--heat", heat);
  const words = [swatch, text(name, { class: "name" }), value === null ? text("·") : text(value)];
  return el("li", {}, click ? el("button", { type: "button", click }, words) : el("div", {}, words));
}

// --- distributions

/** Milliseconds since 1970 as a date, with its time where a chart is that narrow. */
function date(at, range) {
  const found = new Date(at);
  if (Number.isNaN(found.getTime())) return "";
  const words = found.toISOString().replace("T", " ");
  return range < 3 * 86_400_000 ? words.slice(0, -8) : words.slice(0, -14);
}

/** A number's or date's histogram with marks at its value and repair, and the interval as a band. */
function histogram({ edges, masses, value, repair, interval, isDate }) {
  const bins = masses.map((mass, i) => ({ mass, from: edges[i], to: edges[i + 1] })).filter((b) => b.mass !== null && b.from !== null && b.to > b.from);
  if (!bins.length) return null;
  const [low, high] = domain(bins, [value?.at, repair?.at]);
  const width = 320, height = 150, foot = 24, head = 22;
  const x = (v) => 8 + ((Math.min(Math.max(v, low), high) - low) / (high - low)) * (width - 16);
  const inside = bins.filter((b) => b.to > low && b.from < high);
  const density = (b) => b.mass / (b.to - b.from);
  const top = Math.max(...inside.map(density));
  const y = (d) => height - foot - (d / top) * (height - foot - head);
  const marks = [];
  if (interval) marks.push(svg("rect", { class: "interval", x: x(interval[0]), width: Math.max(1, x(interval[1]) - x(interval[0])), y: head, height: height - foot - head }));
  for (const b of inside) {
    const left = x(b.from), wide = x(b.to) - left;
    marks.push(svg("rect", { class: "bin", x: left, y: y(density(b)), width: Math.max(0.5, wide - (wide > 3 ? 0.75 : 0)), height: height - foot - y(density(b)) }));
  }
  marks.push(svg("line", { class: "axis", x1: 8, x2: width - 8, y1: height - foot, y2: height - foot }));
  for (const [mark, name] of [[repair, "repair"], [value, "value"]]) {
    if (mark?.at === null || mark?.at === undefined) continue;
    const at = x(mark.at), beyond = mark.at > high ? " →" : mark.at < low ? "← " : "";
    const label = mark.at > high ? `${name}${beyond}` : `${beyond}${name}`;
    const anchor = at < 40 ? "start" : at > width - 40 ? "end" : "middle";
    marks.push(svg("line", { class: `mark ${name}`, x1: at, x2: at, y1: head - 4, y2: height - foot + 4 }));
    // two labels side by side would run into each other
    const crowded = name === "value" && repair?.at != null && Math.abs(at - x(repair.at)) < 62;
    marks.push(svg("text", { class: `mark ${name}`, x: at, y: crowded ? -2 : head - 8, "text-anchor": anchor }, label));
  }
  const words = (v) => (isDate ? date(v, high - low) : number(v));
  for (const [v, anchor] of [[low, "start"], [(low + high) / 2, "middle"], [high, "end"]])
    marks.push(svg("text", { class: "tick", x: x(v), y: height - 6, "text-anchor": anchor }, words(v)));
  const label = `Distribution of the cell given the others, from ${words(low)} to ${words(high)}`;
  return svg("svg", { class: "chart", viewBox: `0 -12 ${width} ${height + 12}`, role: "img", "aria-label": label }, marks);
}

/** The bins that hold all but a thousandth of the mass, and marks that are not far from them. */
function domain(bins, places) {
  const total = bins.reduce((sum, b) => sum + b.mass, 0);
  let first = 0, last = bins.length - 1, below = 0, above = 0;
  while (first < last && (below += bins[first].mass) < total / 2000) first++;
  while (last > first && (above += bins[last].mass) < total / 2000) last--;
  let [low, high] = [bins[first].from, bins[last].to];
  const reach = high - low;
  for (const place of places.filter((p) => p !== null && p !== undefined)) {
    if (place < low && place > low - reach) low = place;
    if (place > high && place < high + reach) high = place;
  }
  return [low, high];
}

/** Bars of a category's likely levels; value and repair are marked. */
function levelBars(levels, value, repair) {
  if (!levels.length) return null;
  const rest = 1 - levels.reduce((sum, [, share]) => sum + share, 0);
  const shown = [...levels];
  if (value !== null && !levels.some(([level]) => level === value)) shown.push([value, null]);
  const lines = shown.map(([level, share]) => {
    const role = level === value ? "value" : level === repair ? "repair" : null;
    const bar = el("i", {});
    bar.style.width = `${100 * (share ?? 0)}%`;
    return el("li", { class: role }, el("span", { class: "level" }, text(level), role && el("em", {}, role)), el("span", { class: "share" }, share === null ? "not likely" : percent(share)), el("span", { class: "bar" }, bar));
  });
  if (rest > 0.005) lines.push(el("li", { class: "rest" }, el("span", { class: "level" }, "other levels"), el("span", { class: "share" }, percent(rest))));
  return el("ul", { class: "levels" }, lines);
}
