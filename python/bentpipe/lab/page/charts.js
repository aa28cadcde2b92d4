// Charts of runs: one column per run, one row per quantity, all with the same time.

import { classShade, colour, make, number } from "./format.js";

const RATE = 1e-6;

// The rows for the series of a run; `states` has label, unit and factor of each state of an AQM or a scheduler.
export function rowsOf(names, classes, states = {}) {
  const has = name => names.includes(name) || name.endsWith(".goodput");
  const line = (name, label, colour, factor = 1, dash) => ({ name, label, colour, factor, dash });
  const row = (label, unit, series) => {
    const others = Object.entries(states).filter(([, state]) => unit && state[1] === unit);
    return { label, unit, series: [...series.filter(each => has(each.name)), ...others.map(([name, state], i) => line(name, state[0], `--c${2 + (i % 4)}`, state[2], [5, 3]))] };
  };
  const rows = [
    row("Queue", "packets", [line("transmit_queue", "transmit queue", "--c0"), line("receive_queue", "receive queue", "--c1")]),
    row("Rate", "Mbit/s", [
      line("throughput", "throughput", "--c0", RATE), line("arrival_rate", "arrival rate", "--c1", RATE),
      ...(has("arrival_rate") ? [] : [line("offered_load", "offered load", "--c1", RATE)]), line("capacity", "capacity", "--c6", RATE, [6, 4]),
    ]),
    row("Delay", "ms", [line("queue_delay", "queueing delay", "--c0", 1000)]),
    row("Marks", "%", [line("mark_probability", "probability of a mark", "--c1", 100)]),
    { label: "Goodput of classes", unit: "Mbit/s", series: classes.map((name, i) => line(`${name}.goodput`, name, classShade(i), RATE)) },
  ];
  const used = new Set(rows.flatMap(each => each.series.map(series => series.name)));
  for (const unit of new Set(Object.values(states).map(state => state[1]))) {
    const rest = Object.entries(states).filter(([name, state]) => !used.has(name) && state[1] === unit);
    if (rest.length) rows.push({ label: "State", unit, series: rest.map(([name, state], i) => line(name, state[0], `--c${i % 6}`, state[2])) });
  }
  if (has("pep_buffers")) rows.push({ label: "PEP buffers", unit: "kB", series: [line("pep_buffers", "held by the PEP", "--c3", 1e-3)] });
  return rows.filter(each => each.series.length);
}

export class Charts {
  // `runs` are {label, columns, rows, drops}; `marks` are {time, label}.
  constructor(place, { height = 130 } = {}) {
    this.place = place;
    this.height = height;
    this.view = { seconds: 0, zoom: null };
    this.marks = [];
    this.linked = new Set([this]);
    this.key = place.id || "charts";
    this.charts = [];
    this.visible = new Set();
    this.end = 0;
    this.dirty = false;
    this.watcher = new IntersectionObserver(seen => {
      for (const each of seen) each.isIntersecting ? this.visible.add(each.target) : this.visible.delete(each.target);
      this.draw();
    }, { rootMargin: "200px" });
    // Paper shows all charts.
    this.life = new AbortController();
    const { signal } = this.life;
    addEventListener("beforeprint", () => this.drawNow(() => true), { signal });
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show(this.runs), { signal });
  }

  // Ends what keeps charts that are no longer on the page: listeners, observers, and their common cursor.
  destroy() {
    this.life.abort();
    this.watcher.disconnect();
    this.sizes.disconnect();
    for (const { plot } of this.charts) plot.destroy();
    this.charts = [];
    this.linked.delete(this);
  }

  show(runs) {
    this.runs = runs ?? [];
    this.charts.forEach(({ plot, figure }) => (plot.destroy(), this.watcher.unobserve(figure)));
    this.charts = [];
    this.visible.clear();
    this.place.replaceChildren();
    const count = Math.max(1, this.runs.length);
    const least = count > 1 ? 220 : 0;
    this.place.style.gridTemplateColumns = `repeat(${this.columnsThatFit(count, least)}, minmax(0, 1fr))`;
    const title = row => `${row.label} ${row.unit}`;
    const labels = [...new Set(this.runs.flatMap(run => run.rows.map(title)))];
    for (const label of labels) for (const run of this.runs) {
      const row = run.rows.find(each => title(each) === label);
      if (row) this.add(run, row); else this.place.append(make("div"));
    }
    this.draw();
  }

  columnsThatFit(count, least) {
    return Math.max(1, Math.min(count, least ? Math.floor(this.place.clientWidth / least) : count));
  }

  add(run, row) {
    const caption = make("figcaption", {}, make("b", { textContent: `${row.label}${row.unit ? ` [${row.unit}]` : ""}` }), make("span", { textContent: run.label }));
    for (const each of row.series) {
      const swatch = make("span", { className: "swatch" });
      swatch.style.background = colour(each.colour);
      each.value = make("span");
      caption.append(make("span", {}, swatch, `${each.label} `, each.value));
    }
    const drawn = make("div");
    const figure = make("figure", { role: "group", "aria-label": `${row.label}, ${run.label}` }, caption, drawn);
    this.place.append(figure);
    const series = row.series.map(each => ({ label: each.label, stroke: colour(each.colour), width: 1, dash: each.dash, points: { show: false }, spanGaps: false }));
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    const plot = new uPlot({
      width: Math.max(160, figure.clientWidth), height: this.height, legend: { show: false },
      cursor: { sync: { key: this.key }, drag: { x: true, y: false, setScale: false }, points: { size: 5 } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.08 : low < 0 ? 0 : 1] } },
      axes: [{ ...axis, size: 28, values: (_, ticks) => ticks.map(tick => `${+tick.toFixed(6)} s`), space: 70 }, { ...axis, size: 52, space: 26, values: (_, ticks) => ticks.map(tick => (Math.abs(tick) >= 1e5 ? tick.toLocaleString("en", { notation: "compact" }) : number(tick, 4))) }],
      series: [{}, ...series],
      hooks: {
        draw: [u => this.drawMarks(u, run, row)],
        setSelect: [u => {
          if (u.select.width < 4) return;
          this.zoom([u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")]);
          u.setSelect({ width: 0, height: 0, left: 0, top: 0 }, false);
        }],
        setCursor: [u => this.readOut(u, row, run)],
      },
    }, [[], ...row.series.map(() => [])], drawn);
    plot.over.addEventListener("dblclick", () => this.zoom(null));
    const chart = { plot, figure, run, row };
    figure.chart = chart;
    this.charts.push(chart);
    this.watcher.observe(figure);
  }

  // Zooms these charts and all that are linked with them.
  zoom(range) {
    for (const charts of this.linked) {
      charts.view.zoom = range;
      charts.draw();
    }
  }

  // Other charts of the same time, which zoom with these; the cursor moves in all of them.
  link(other) {
    for (const each of this.linked) if (each.place === other.place) each.destroy();
    other.linked = this.linked;
    this.linked.add(other);
    other.key = this.key;
  }

  range() {
    const { zoom, seconds } = this.view;
    if (zoom) return zoom;
    return seconds && this.end > seconds ? [this.end - seconds, this.end] : [0, Math.max(this.end, 1)];
  }

  draw() {
    if (this.dirty) return;
    this.dirty = true;
    requestAnimationFrame(() => {
      this.dirty = false;
      this.refresh();
    });
  }

  // Draws what can be seen, at once.
  refresh() {
    this.drawNow(({ figure }) => this.visible.has(figure));
    this.onDrawn?.();
  }

  drawNow(isWanted) {
    const [from, to] = this.range(), now = performance.now();
    // Nobody reads numbers that change faster.
    const isRead = now - (this.readAt ?? 0) > 100 || !this.isRunning;
    if (isRead) this.readAt = now;
    for (const { plot, run, row } of this.charts.filter(isWanted)) {
      const width = Math.max(50, plot.bbox.width / devicePixelRatio);
      const data = run.columns.thinned(row.series.map(each => each.name), from, to, width, row.series.map(each => each.factor));
      plot.batch(() => {
        plot.setData(data, false);
        plot.setScale("x", { min: from, max: to });
      });
      if (isRead && (plot.cursor.left < 0 || plot.cursor.left == null)) this.readOut(plot, row, run);
    }
  }

  // Values at the cursor, or the last ones.
  readOut(plot, row, run) {
    const place = plot.cursor.idx;
    row.series.forEach((each, i) => {
      each.value.textContent = number(place != null ? plot.data[i + 1][place] : run.columns.last(each.name) * each.factor);
    });
  }

  drawMarks(u, run, row) {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const ratio = devicePixelRatio;
    this.marks.forEach((mark, i) => {
      const x = u.valToPos(mark.time, "x", true);
      ctx.strokeStyle = ctx.fillStyle = colour("--soft");
      ctx.setLineDash([4 * ratio, 3 * ratio]);
      ctx.lineWidth = ratio;
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      ctx.font = `${11 * ratio}px sans-serif`;
      ctx.fillText(String(i + 1), x + 3 * ratio, bbox.top + 11 * ratio);
    });
    if (row.label === "Queue" && run.drops?.length) {
      ctx.setLineDash([]);
      ctx.strokeStyle = colour("--bad");
      ctx.globalAlpha = 0.6;
      ctx.lineWidth = ratio;
      ctx.beginPath();
      let last = -9;
      const [from, to] = this.range();
      for (const at of run.drops) {
        if (at < from || at > to) continue;
        const x = Math.round(u.valToPos(at, "x", true));
        if (x === last) continue;
        last = x;
        ctx.moveTo(x, bbox.top + bbox.height);
        ctx.lineTo(x, bbox.top + bbox.height - 5 * ratio);
      }
      ctx.stroke();
    }
    ctx.restore();
  }

  resize() {
    if (!this.runs?.length) return;
    const wanted = this.columnsThatFit(this.runs.length, this.runs.length > 1 ? 220 : 0);
    this.place.style.gridTemplateColumns = `repeat(${wanted}, minmax(0, 1fr))`;
    for (const { plot, figure } of this.charts) {
      const width = Math.max(160, figure.clientWidth);
      if (width !== plot.width) plot.setSize({ width, height: this.height });
    }
    this.draw();
  }

  // All charts as one picture.
  canvas() {
    this.drawNow(() => true);
    const ratio = devicePixelRatio, box = this.place.getBoundingClientRect();
    const canvas = make("canvas", { width: box.width * ratio, height: box.height * ratio });
    const ctx = canvas.getContext("2d");
    ctx.fillStyle = colour("--page");
    ctx.fillRect(0, 0, canvas.width, canvas.height);
    ctx.font = `${13 * ratio}px sans-serif`;
    for (const { plot, figure, run, row } of this.charts) {
      const at = figure.getBoundingClientRect(), drawn = plot.ctx.canvas.getBoundingClientRect();
      ctx.fillStyle = colour("--text");
      ctx.fillText(`${row.label}${row.unit ? ` [${row.unit}]` : ""}, ${run.label}`, (at.left - box.left) * ratio, (at.top - box.top + 13) * ratio);
      ctx.drawImage(plot.ctx.canvas, (drawn.left - box.left) * ratio, (drawn.top - box.top) * ratio);
    }
    return canvas;
  }

  svg() {
    this.drawNow(() => true);
    const box = this.place.getBoundingClientRect(), parts = [];
    const text = value => String(value).replace(/[&<>"]/g, c => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
    const [from, to] = this.range();
    for (const { plot, figure, run, row } of this.charts) {
      const at = figure.getBoundingClientRect(), over = plot.over.getBoundingClientRect();
      const left = over.left - box.left, top = over.top - box.top, { width, height } = over;
      const [low, high] = [plot.scales.y.min ?? 0, plot.scales.y.max ?? 1];
      const x = value => (left + (width * (value - from)) / (to - from)).toFixed(1);
      const y = value => (top + height - (height * (value - low)) / (high - low)).toFixed(1);
      parts.push(`<text x="${(at.left - box.left).toFixed(0)}" y="${(at.top - box.top + 13).toFixed(0)}" font-weight="600">${text(row.label)}${row.unit ? ` [${text(row.unit)}]` : ""}, ${text(run.label)}</text>`);
      parts.push(`<rect x="${left.toFixed(1)}" y="${top.toFixed(1)}" width="${width.toFixed(1)}" height="${height.toFixed(1)}" fill="none" stroke="#999"/>`);
      for (const tick of [low, high]) parts.push(`<text x="${(left - 4).toFixed(1)}" y="${y(tick)}" text-anchor="end">${number(tick)}</text>`);
      for (const tick of [from, to]) parts.push(`<text x="${x(tick)}" y="${(top + height + 14).toFixed(1)}" text-anchor="${tick === from ? "start" : "end"}">${number(tick, 4)} s</text>`);
      row.series.forEach((each, i) => {
        // As on the page, a line ends where there is no value.
        let line = "", isOpen = false;
        plot.data[0].forEach((t, k) => {
          const value = plot.data[i + 1][k], isDrawn = value != null && t >= from && t <= to;
          if (isDrawn) line += `${isOpen ? "L" : "M"}${x(t)} ${y(value)}`;
          isOpen = isDrawn;
        });
        parts.push(`<path fill="none" stroke="${colour(each.colour)}" stroke-width="1.2"${each.dash ? ` stroke-dasharray="${each.dash}"` : ""} d="${line}"><title>${text(each.label)}</title></path>`);
      });
    }
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${box.width.toFixed(0)}" height="${box.height.toFixed(0)}" font-family="sans-serif" font-size="12" fill="${colour("--text")}"><rect width="100%" height="100%" fill="${colour("--page")}"/>${parts.join("\n")}</svg>`;
  }
}
