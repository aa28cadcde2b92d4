"use strict";

// Width of the text of an A4 page [px]: 210 mm less both margins, at 96 px per inch.
const PAPER = Math.floor((210 - 24) / 25.4 * 96);
const FONT = "Inter, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif";
const BUCKETS = 500;
let printing = false;
const specs = JSON.parse(document.getElementById("specs").textContent);
const charts = [...document.querySelectorAll("[data-chart]")].map((place) => (
  { place, spec: specs[Number(place.dataset.chart)], view: null }
));

// Tables: one that is wider than its place is shown in parts, each with the columns that name the rows. Parts of a group of
// rows follow each other. In a narrow window each row is a card instead, with the heads of the columns in it.

const NARROW = matchMedia("(max-width: 42rem)");
const content = document.querySelector("main");
const tables = [...document.querySelectorAll(".scroll > table")].filter((table) => table.tHead);

// The smallest widths of a table's columns, as on paper or on the screen.
function widthsOf(table, place) {
  const ruler = document.createElement("div");
  ruler.className = `${place} ruler`;
  ruler.append(table.cloneNode(true));
  ruler.firstChild.classList.remove("parted", "cards");
  content.append(ruler);
  const widths = [...ruler.querySelector("thead tr").cells].map((cell) => cell.getBoundingClientRect().width);
  ruler.remove();
  return widths;
}

// The columns of each part, or nothing if the table fits. The parts have about the same number of columns.
function parts(table, widths, room) {
  const heads = [...table.tHead.rows[0].cells];
  const values = heads.findIndex((cell) => cell.classList.contains("value"));
  const fixed = values > 0 ? values : 1;
  const sum = (some) => some.reduce((total, width) => total + width, 0);
  if (sum(widths) <= room) return [];
  const names = sum(widths.slice(0, fixed));
  const grouped = (most) => {
    const groups = [[]];
    let used = names;
    for (let column = fixed; column < widths.length; column += 1) {
      if (groups.at(-1).length && (used + widths[column] > room || groups.at(-1).length >= most)) {
        groups.push([]);
        used = names;
      }
      groups.at(-1).push(column);
      used += widths[column];
    }
    return groups;
  };
  const fewest = grouped(Infinity);
  const even = grouped(Math.ceil((widths.length - fixed) / fewest.length));
  const groups = even.length === fewest.length ? even : fewest;
  return groups.length < 2 ? [] : groups.map((group) => new Set([...Array(fixed).keys(), ...group]));
}

function part(table, body, columns, name) {
  const copy = table.cloneNode(true);
  copy.classList.remove("parted", "split");
  copy.classList.add(name);
  copy.removeAttribute("id");
  [...copy.tBodies].forEach((each, index) => index === body || each.remove());
  for (const cell of copy.querySelectorAll("[id]")) cell.removeAttribute("id");
  for (const row of copy.rows) {
    if (row.cells.length === 1) row.cells[0].colSpan = columns.size;
    else [...row.cells].forEach((cell, index) => columns.has(index) || cell.remove());
  }
  return copy;
}

function divide(table, found, name) {
  const bodies = [...table.tBodies].keys();
  table.after(...[...bodies].flatMap((body) => found.map((columns) => part(table, body, columns, name))));
}

// Every cell gets the head of its column, which only cards show.
function labelCells(table) {
  if (table.querySelector(".head")) return;
  const heads = [...table.tHead.rows[0].cells];
  for (const body of table.tBodies) {
    for (const row of body.rows) {
      if (row.cells.length < heads.length) continue;
      [...row.cells].forEach((cell, index) => {
        if (cell.tagName === "TH") return;
        const head = document.createElement("span");
        head.className = "head";
        head.append(...[...heads[index].childNodes].map((node) => node.cloneNode(true)));
        const rest = document.createElement("span");
        rest.className = "body";
        rest.append(...cell.childNodes);
        cell.append(head, rest);
      });
    }
  }
}

let room = 0;

function arrange() {
  const style = getComputedStyle(content);
  const now = content.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  if (printing || now === room) return;
  room = now;
  for (const each of document.querySelectorAll("table.screen-part")) each.remove();
  for (const table of tables) {
    table.classList.remove("parted", "cards");
    const widths = widthsOf(table, "scroll");
    if (widths.reduce((total, width) => total + width, 0) <= room) continue;
    if (NARROW.matches && !table.querySelector("[rowspan]")) {
      labelCells(table);
      table.classList.add("cards");
      continue;
    }
    const found = table.querySelector("[rowspan]") ? [] : parts(table, widths, room);
    if (!found.length) continue;
    divide(table, found, "screen-part");
    table.classList.add("parted");
  }
}

for (const table of tables) {
  if (table.querySelector("[rowspan]")) continue;
  const found = parts(table, widthsOf(table, "paper"), PAPER);
  if (!found.length) continue;
  divide(table, found, "print-part");
  table.classList.add("split");
}

// Labels of points: each takes the first place beside its point that is free at the chart's present width.

const PLACES = [
  ["left", 7, -13], ["left", 7, 14], ["right", -7, -13], ["right", -7, 14], ["center", 0, -15], ["center", 0, 17],
  ["left", 9, 1], ["right", -9, 1], ["left", 10, -24], ["left", 10, 25], ["right", -10, -24], ["right", -10, 25],
  // Further away, the colour tells whose label it is.
  ["center", 0, 30], ["center", 0, -30], ["right", -4, 38], ["left", 4, 38], ["right", -4, 52], ["left", 4, 52],
];
const pen = document.createElement("canvas").getContext("2d");

function placeLabels({ spec, view }) {
  const across = view.scale("x");
  const up = view.scale("y");
  const right = across.range()[1];
  const bottom = up.range()[0];
  const spots = spec.usermeta.labels.map(({ x, y }) => [across(x), up(y)]);
  const boxes = spots.map(([x, y]) => [x - 5, y - 5, x + 5, y + 5]);
  const labels = spec.usermeta.labels.map((label, index) => {
    pen.font = `${label.weight} ${label.size}px ${FONT}`;
    const width = pen.measureText(label.name).width;
    const [x, y] = spots[index];
    for (const [align, dx, dy] of PLACES) {
      const left = x + dx - { left: 0, center: width / 2, right: width }[align];
      const box = [left, y + dy - 8, left + width, y + dy + 8];
      const inside = box[0] >= 0 && box[2] <= right && box[1] >= 0 && box[3] <= bottom;
      const free = inside && !boxes.some((other, at) => at !== index
        && box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]);
      if (free) {
        boxes.push(box);
        return { align, dx, dy, opacity: 1 };
      }
    }
    return { align: "left", dx: 0, dy: 0, opacity: 0 };
  });
  return view.signal("labels", labels).runAsync();
}

// Time windows: the time axes of all charts follow one window, with all samples that the page has of it.

const form = document.querySelector("form.window");

function decoded(detail) {
  if (detail.arrays) return detail.arrays;
  const numbers = (text) => {
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    const { low, high } = detail;
    return Float64Array.from(bytes.length / 2 ? new Uint16Array(bytes.buffer) : [], (code) => (
      code === 65535 ? NaN : low + (code / 65534) * (high - low)
    ));
  };
  const mean = numbers(detail.mean);
  const of = (text) => (text ? numbers(text) : mean);
  detail.arrays = { mean, least: of(detail.least), most: of(detail.most) };
  return detail.arrays;
}

function inside(detail, [start, end]) {
  const { mean, least, most } = decoded(detail);
  const first = Math.max(0, Math.ceil((start - detail.start) / detail.step) - 1);
  const last = Math.min(mean.length, Math.floor((end - detail.start) / detail.step) + 2);
  const size = Math.max(1, Math.ceil((last - first) / BUCKETS));
  const rows = [];
  for (let from = first; from < last; from += size) {
    const to = Math.min(from + size, last);
    let [sum, count, low, high] = [0, 0, Infinity, -Infinity];
    for (let index = from; index < to; index += 1) {
      if (Number.isNaN(mean[index])) continue;
      sum += mean[index];
      count += 1;
      low = Math.min(low, least[index]);
      high = Math.max(high, most[index]);
    }
    const time = detail.start + detail.step * (from + to - 1) / 2;
    if (count) rows.push({ time, low, mean: sum / count, high });
  }
  return rows;
}

const linked = charts.filter(({ spec }) => spec.usermeta.time);

function describe(window) {
  const home = linked.map(({ spec }) => spec.usermeta.time.span);
  const shown = window ?? [Math.min(...home.map(([low]) => low)), Math.max(...home.map(([, high]) => high))];
  form.from.value = String(Number(shown[0].toPrecision(5)));
  form.to.value = String(Number(shown[1].toPrecision(5)));
  form.classList.toggle("chosen", window !== null);
  form.querySelector("button[type=reset]").disabled = window === null;
}

function showWindow(window) {
  if (form) describe(window);
  return Promise.all(linked.filter(({ view }) => view).map((chart) => {
    const { span, detail } = chart.spec.usermeta.time;
    for (const [name, found] of Object.entries(detail)) {
      chart.view.data(name, window ? inside(found, window) : chart.spec.datasets[name]);
    }
    return chart.view.signal("span", window ?? span).runAsync();
  }));
}

function followPointer({ place, view }) {
  place.classList.add("linked");
  const brush = document.createElement("div");
  let from = null;
  const at = (event) => {
    const svg = place.querySelector("svg");
    const box = svg.getBoundingClientRect();
    const scale = svg.width.baseVal.value / box.width;
    const range = view.scale("x").range();
    const left = view.origin()[0];
    const x = Math.min(Math.max((event.clientX - box.left) * scale - left, range[0]), range[1]);
    return { x, page: (x + left) / scale + box.left - place.getBoundingClientRect().left };
  };
  place.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    from = at(event);
  });
  place.addEventListener("pointermove", (event) => {
    if (!(event.buttons & 1)) from = null;
    if (!from) return;
    const to = at(event);
    if (!place.hasPointerCapture(event.pointerId)) {
      // A captured pointer clicks on nothing in the chart: only a drag captures it.
      if (Math.abs(to.x - from.x) < 4) return;
      place.setPointerCapture(event.pointerId);
    }
    brush.className = "brush";
    brush.style.cssText = `left:${Math.min(from.page, to.page)}px;width:${Math.abs(to.page - from.page)}px;top:0;bottom:0`;
    place.append(brush);
  });
  place.addEventListener("pointerup", (event) => {
    if (!from) return;
    const ends = [from.x, at(event).x].sort((a, b) => a - b);
    from = null;
    brush.remove();
    if (ends[1] - ends[0] >= 4) showWindow(ends.map((x) => view.scale("x").invert(x)));
  });
  place.addEventListener("pointercancel", () => {
    from = null;
    brush.remove();
  });
  place.addEventListener("dblclick", () => showWindow(null));
}

if (form) {
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    showWindow([form.from.valueAsNumber, form.to.valueAsNumber]);
  });
  form.addEventListener("change", () => {
    const wrong = !(form.from.valueAsNumber < form.to.valueAsNumber);
    form.to.setCustomValidity(wrong ? "The end must be after the begin." : "");
    form.requestSubmit();
  });
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    showWindow(null);
  });
}

// One terminal over time: a click on a heat map, or the list above the curves, chooses it.

const singles = charts.filter(({ spec }) => spec.usermeta.terminal);

function showTerminal(name) {
  for (const { spec, view } of singles) {
    const { step, values } = spec.usermeta.terminal;
    if (!view || !(name in values)) continue;
    view.data(spec.data.name, Object.entries(values[name]).flatMap(([setting, found]) => (
      found.map((value, number) => ({ time: number * step, value, setting }))
    )));
    view.signal("terminal", name).runAsync();
  }
  for (const list of document.querySelectorAll("select.terminal")) list.value = name;
}

function offerTerminals() {
  if (!singles.length) return;
  const label = document.createElement("label");
  label.className = "terminal";
  const list = document.createElement("select");
  list.className = "terminal";
  for (const name of Object.keys(singles[0].spec.usermeta.terminal.values)) list.add(new Option(name));
  list.addEventListener("change", () => showTerminal(list.value));
  label.append("Terminal, by delay: ", list);
  singles[0].place.parentElement.before(label);
}

// Drawing, and printing: on paper charts are as wide as their column there, and details are open.

function columnsOf(place) {
  const found = /columns-(\d)/.exec(place.parentElement.className);
  return found ? Number(found[1]) : 1;
}

function fit(chart) {
  const columns = columnsOf(chart.place);
  const width = printing ? (PAPER - 32 * (columns - 1)) / columns : chart.place.clientWidth;
  if (width <= 0) return Promise.resolve();
  const done = chart.view.width(width).runAsync();
  return chart.spec.usermeta.labels ? done.then(() => placeLabels(chart)) : done;
}

function print(on) {
  if (printing === on) return;
  printing = on;
  for (const each of document.querySelectorAll("details")) {
    if (on && !each.open) each.dataset.closed = "";
    if (on) each.open = true;
    else if ("closed" in each.dataset) {
      each.open = false;
      delete each.dataset.closed;
    }
  }
  for (const chart of charts) if (chart.view) fit(chart);
}

offerTerminals();
arrange();
new ResizeObserver(arrange).observe(content);
addEventListener("beforeprint", () => print(true));
addEventListener("afterprint", () => print(false));
matchMedia("print").addEventListener("change", (event) => print(event.matches));

async function draw(chart) {
  const options = { renderer: "svg", actions: false, mode: "vega-lite" };
  chart.view = (await vegaEmbed(chart.place, chart.spec, options)).view;
  const { labels, time } = chart.spec.usermeta;
  if (time) followPointer(chart);
  if (chart.spec.usermeta.terminals) {
    chart.view.addEventListener("click", (event, item) => {
      if (item?.datum?.terminal) showTerminal(item.datum.terminal);
    });
  }
  if (!labels) return;
  await placeLabels(chart);
  let width = chart.place.clientWidth;
  new ResizeObserver(() => {
    if (printing || width === chart.place.clientWidth) return;
    width = chart.place.clientWidth;
    fit(chart);
  }).observe(chart.place);
}

Promise.allSettled(charts.map(draw)).then((outcomes) => {
  outcomes.forEach((outcome, index) => {
    if (outcome.status === "rejected") {
      charts[index].place.textContent = "This chart could not be drawn: " + outcome.reason;
      console.error(outcome.reason);
    }
  });
  if (form) describe(null);
  document.documentElement.dataset.charts = "drawn";
});
