// Measurements in the browser for the tests of pages.

// Containers whose content does not fit.
function overflowing() {
  return [...document.querySelectorAll(".scroll, pre")]
    .filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1)
    .map((box) => [box.querySelector("table")?.className, box.scrollWidth, box.clientWidth]);
}

function numbers(colour) {
  return colour.match(/[\d.]+/g).map(Number);
}

// Relative luminance and contrast of WCAG 2.2.
function luminance(colour) {
  const [red, green, blue] = numbers(colour).slice(0, 3).map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function contrast(one, other) {
  const [high, low] = [luminance(one), luminance(other)].sort((a, b) => b - a);
  return (high + 0.05) / (low + 0.05);
}

function behind(element) {
  // The number in a cell of a map lies on the cell.
  const marks = element.closest(".mark-text.role-mark")?.querySelectorAll("text");
  const cells = marks && [...element.closest(".chart").querySelectorAll(".mark-rect.role-mark path")].slice(-marks.length);
  if (marks && cells.length === marks.length) return getComputedStyle(cells[[...marks].indexOf(element)]).fill;
  for (let each = element; each; each = each.parentElement) {
    const colour = getComputedStyle(each).backgroundColor;
    if ((numbers(colour)[3] ?? 1) === 1) return colour;
  }
  return "rgb(255, 255, 255)";
}

// Texts with a contrast below 4.5:1 to what lies behind them (WCAG 2.2, 1.4.3).
function faint() {
  const found = [];
  const texts = "p, li, th, td, dt, dd, h1, h2, h3, a, span, summary, figcaption, pre, code, label, button, svg text";
  for (const element of document.querySelectorAll(texts)) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && /[\p{L}\p{N}]/u.test(node.data));
    if (!own || !element.checkVisibility({ opacityProperty: true })) continue;
    const style = getComputedStyle(element);
    const colour = element.closest("svg") ? style.fill : style.color;
    if (!colour.startsWith("rgb")) continue;
    const ratio = contrast(colour, behind(element));
    if (ratio < 4.5) found.push([element.textContent.slice(0, 30), colour, behind(element), ratio]);
  }
  return found;
}

// The visible labels of a figure's points, and the pairs that overlap.
function labels(figure) {
  const boxes = [...document.querySelectorAll(`#${figure} .mark-text text`)]
    .filter((text) => text.textContent && Number(text.getAttribute("opacity") ?? 1) > 0)
    .map((text) => [text.textContent, text.getBoundingClientRect()]);
  const pairs = [];
  boxes.forEach(([name, a], index) => boxes.slice(index + 1).forEach(([other, b]) => {
    const beside = a.right <= b.left + 1 || b.right <= a.left + 1;
    if (!beside && !(a.bottom <= b.top + 2 || b.bottom <= a.top + 2)) pairs.push([name, other]);
  }));
  return { names: boxes.map(([name]) => name), pairs };
}

// Number of parts of details that cannot be seen.
function folded() {
  return [...document.querySelectorAll("details > :not(summary)")].filter((part) => !part.checkVisibility()).length;
}

// Number of cells that could cover others; on paper, such a cell is drawn over its neighbour.
function sticky() {
  return [...document.querySelectorAll("th, th > span")]
    .filter((cell) => getComputedStyle(cell).position === "sticky").length;
}

// Values of tables that no visible table shows: parts and cards hold all of them.
function missing() {
  const text = (cell) => (cell.querySelector(":scope > .body") ?? cell).textContent.trim();
  return [...document.querySelectorAll(".scroll")].filter((box) => box.checkVisibility()).flatMap((box) => {
    const tables = [...box.querySelectorAll("table")].filter((table) => table.checkVisibility());
    const values = (some) => some.flatMap((table) => [...table.querySelectorAll("td.value")].map(text));
    const shown = values(tables);
    const left = values([box.querySelector("table")]).filter((value) => !shown.includes(value) || !shown.splice(shown.indexOf(value), 1));
    // A row of a part, and a line of a card, has its name beside it.
    const unnamed = tables.flatMap((table) => [...table.tBodies].flatMap((body) => [...body.rows]))
      .filter((row) => !row.querySelector("th")?.checkVisibility());
    return [...left, ...unnamed.map((row) => row.textContent)];
  });
}

// Right edges of all charts.
function edges() {
  return [...document.querySelectorAll(".chart svg")].map((svg) => svg.getBoundingClientRect().right);
}

// The rows that the first chart of a figure draws of its series.
function drawn(figure) {
  const { view, spec } = charts.find(({ place }) => place.closest(`#${figure}`));
  return view.data(Object.keys(spec.usermeta.time.detail)[0]);
}

// The ends of all time axes.
function spans() {
  return charts.filter(({ spec }) => spec.usermeta.time).map(({ view }) => view.scale("x").domain());
}
