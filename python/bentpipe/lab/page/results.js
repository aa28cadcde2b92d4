// Results of a folder: charts of runs, the difference of two, flows and terminals, and the report.

import { Charts, rowsOf } from "./charts.js";
import { Columns } from "./columns.js";
import { colour, find, make, number, savers, say } from "./format.js";
import { get } from "./net.js";

// Columns of the tables of flows and terminals: name, label, and factor of the unit shown.
const COLUMNS = {
  flows: [["traffic", "traffic"], ["class", "class"], ["opened", "opened [s]"], ["completion_time", "completion time [s]"], ["goodput", "goodput [Mbit/s]", 1e-6], ["drops", "drops"]],
  terminals: [["terminal", "terminal"], ["group", "group"], ["goodput", "goodput [Mbit/s]", 1e-6], ["queue_delay_p95", "queueing delay, p95 [ms]", 1e3], ["pages", "pages"], ["page_time_mean", "page load time [s]"], ["carrier_seconds", "carrier time [s]"]],
};

// Small multiples of the points of a sweep, with one scale: `x` is a factor, other factors make lines.
function points(place, rows, found, x, label) {
  const others = found.factors.filter(each => each !== x), at = (row, factor) => row[factor];
  // Values in order, with their numbers in one unit, if they have one.
  const { values, numbers, title, log: isLog } = found.axes[x], isNumber = numbers !== null;
  const places = numbers ?? values.map((_, i) => i);
  const most = 1.08 * Math.max(0, ...rows.map(row => row.mean)), least = Math.min(0, ...rows.map(row => row.mean));
  place.replaceChildren();
  const columns = Math.max(1, Math.min(found.settings.length, Math.floor(place.clientWidth / 260)));
  place.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
  return found.settings.map(setting => {
    const own = rows.filter(row => row.setting === setting);
    const lines = [...new Set(own.map(row => others.map(other => at(row, other)).join(", ")))];
    const caption = make("figcaption", {}, make("b", { textContent: setting }), make("span", { textContent: label }));
    lines.forEach((line, i) => {
      const swatch = make("span", { className: "swatch" });
      swatch.style.background = colour(`--c${i % 6}`);
      if (line) caption.append(make("span", {}, swatch, line));
    });
    const drawn = make("div");
    place.append(make("figure", { role: "group", "aria-label": `${label}, ${setting}` }, caption, drawn));
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--grid"), width: 1 }, font: "12px system-ui, sans-serif" };
    const means = lines.map(line => values.map(value => own.find(row => at(row, x) === value && others.map(other => at(row, other)).join(", ") === line)?.mean ?? null));
    return new uPlot({
      width: Math.max(160, drawn.clientWidth), height: 170, legend: { show: false }, cursor: { sync: { key: "sweep" }, drag: { x: false, y: false } },
      scales: { x: { time: false, distr: isLog ? 3 : 1 }, y: { range: [least, most || (least < 0 ? 0 : 1)] } },
      axes: [{ ...axis, size: 40, label: title, labelSize: 16, labelFont: "12px system-ui, sans-serif", space: 60, values: (_, ticks) => ticks.map(tick => (tick == null ? "" : isNumber ? number(tick, 4) : values[tick] ?? "")) }, { ...axis, size: 52 }],
      series: [{}, ...lines.map((_, i) => ({ stroke: colour(`--c${i % 6}`), width: 1.5, points: { show: true, size: 5 }, spanGaps: true }))],
    }, [places, ...means], drawn);
  });
}

export class Results {
  list(results, older) {
    const place = find("results");
    if (!results.length) return place.replaceChildren(make("p", { textContent: "This folder holds no results yet. bentpipe compare makes one." }));
    place.replaceChildren(make("ul", { className: "list" }, ...results.map(({ path, kind }) => make("li", {},
      make("button", { type: "button", textContent: path, onclick: () => this.open(path) }), ` ${kind}`))));
    if (older) place.append(make("p", { textContent: `${older} older ones are not listed: bentpipe lab with the name of a result opens it.` }));
  }

  async open(path) {
    try {
      this.asked = path;
      const found = await get("result", { path });
      // Meanwhile another result may have been chosen.
      if (this.asked !== path) return;
      this.clear();
      this.path = path;
      this.found = found;
      if (found.kind === "sweep") return this.sweep();
      if (found.kind !== "result") return this.report(true);
      this.seed = found.seeds[0];
      await this.show();
    } catch (error) {
      say(error.message, true);
    }
  }

  // Ends the charts of what was shown before.
  clear() {
    for (const each of this.charts?.linked ?? []) each.destroy();
    for (const each of this.plots ?? []) each.destroy();
    this.charts = this.plots = null;
  }

  async show() {
    const { found, path } = this, place = find("result");
    this.clear();
    const seeds = make("select", { onchange: event => ((this.seed = found.seeds[event.target.selectedIndex]), this.show().catch(error => say(error.message, true))) }, ...found.seeds.map(seed => make("option", { textContent: seed, selected: seed === this.seed })));
    const runs = found.settings.map(setting => `${setting}`);
    const pick = (id, chosen) => make("select", { id }, make("option", { value: "", textContent: "…" }), ...runs.map(name => make("option", { textContent: name, selected: name === chosen })));
    const grid = make("div", { className: "charts", id: "result-grid" }), difference = make("div", { className: "charts", id: "difference-grid" });
    const flows = make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Table of flows" });
    const one = pick("one"), other = pick("other");
    const compare = () => this.difference(difference, one.value, other.value);
    one.onchange = other.onchange = compare;
    const flowsOf = make("select", { onchange: event => this.flows(flows, event.target.value, "flows") }, make("option", { value: "", textContent: "…" }), ...runs.map(name => make("option", { textContent: name })));
    const terminalsOf = make("select", { onchange: event => this.flows(flows, event.target.value, "terminals") }, make("option", { value: "", textContent: "…" }), ...runs.map(name => make("option", { textContent: name })));
    place.replaceChildren(
      make("div", { className: "head" }, make("h2", { textContent: `${found.title}${found.engine === "live" ? " (live)" : ""}` }),
        make("span", { className: "group" }, make("label", {}, "Run with seed ", seeds), ...savers(() => this.charts), ...this.reports())),
      found.command
        ? make("p", {}, "Repeat it: ", make("code", { textContent: found.command }))
        : make("p", { textContent: `Its scenario, ${found.name}.toml, is not in this folder as it was: there is no command that repeats it.` }),
      make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Table of classes" }, this.table()),
      grid,
      make("div", { className: "group" }, make("label", {}, "Difference of ", one), make("label", {}, " from ", other)), difference,
      make("div", { className: "group" }, make("label", {}, "Flows of ", flowsOf), found.terminals ? make("label", {}, "Terminals of ", terminalsOf) : null), flows,
      make("div", { id: "report-frame" }));
    const charts = (this.charts = new Charts(grid, { height: 120 }));
    const loaded = await Promise.all(found.settings.map(async label => {
      const columns = new Columns();
      columns.append(await get("series", { path, setting: label, seed: this.seed }));
      return { label, columns, rows: rowsOf(columns.names(), [], found.states), drops: [] };
    }));
    // Meanwhile another seed or another result may have been chosen.
    if (this.charts !== charts) return;
    this.runs = loaded;
    charts.end = found.end;
    charts.show(loaded);
    history.replaceState(null, "", `#result=${encodeURIComponent(path)}`);
  }

  // The points of a sweep: a chart per setting, a line per value of the second factor.
  sweep() {
    const { found, path } = this, place = find("result");
    const choice = (id, names, label) => {
      const select = make("select", { id, onchange: () => draw() }, ...names.map(name => make("option", { textContent: name })));
      return [select, make("label", {}, `${label} `, select)];
    };
    const [metric, metricLabel] = choice("sweep-metric", found.metrics, "Metric"), [x, xLabel] = choice("sweep-factor", found.factors, "over");
    const grid = make("div", { className: "charts", id: "sweep-grid" });
    place.replaceChildren(
      make("div", { className: "head" }, make("h2", { textContent: found.title }), make("span", { className: "group" }, ...this.reports())),
      make("div", { className: "group" }, metricLabel, xLabel), grid, make("div", { id: "report-frame" }));
    const draw = () => {
      const rows = found.rows.filter(row => row.metric === metric.value && row.mean != null);
      this.clear();
      if (!rows.length) return grid.replaceChildren(make("p", { textContent: `No run has a value of ${metric.value}.` }));
      this.plots = points(grid, rows, found, x.value, `${metric.value} [${rows[0].unit}]`);
    };
    draw();
    history.replaceState(null, "", `#result=${encodeURIComponent(path)}`);
  }

  table() {
    const { found } = this, first = found.served[0] ?? [];
    return make("table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col", textContent: "Class" }), make("th", { scope: "col", textContent: "Figure" }), ...found.settings.map(name => make("th", { scope: "col", textContent: name })))),
      make("tbody", {}, ...first.map((row, i) => make("tr", {}, make("th", { scope: "row", textContent: row.class }), make("td", { textContent: `${row.label}${row.unit ? ` [${row.unit}]` : ""}` }),
        ...found.served.map(of => make("td", { className: `number ${of[i].grade ?? ""}`, textContent: `${number(of[i].value)}${of[i].grade ? ` ${of[i].grade}` : ""}` }))))));
  }

  // Charts of one run less another, sample by sample.
  difference(place, one, other) {
    const [a, b] = [one, other].map(name => this.runs.find(run => run.label === name));
    if (!a || !b) return;
    const columns = new Columns(), names = a.columns.names().filter(name => b.columns.columns.has(name));
    const length = Math.min(a.columns.length, b.columns.length), of = (run, name) => run.columns.columns.get(name).values;
    columns.append({
      names,
      getChild: name => ({ toArray: () => Array.from({ length }, (_, i) => (name === "time" ? of(a, name)[i] : of(a, name)[i] - of(b, name)[i])) }),
    });
    const charts = new Charts(place, { height: 110 });
    this.charts.link(charts);
    charts.view.zoom = this.charts.view.zoom;
    charts.end = this.found.end;
    charts.show([{ label: `${one} less ${other}`, columns, rows: rowsOf(names, [], this.found.states), drops: [] }]);
  }

  async flows(place, setting, name) {
    if (!setting) return;
    try {
      const table = await get("table", { path: this.path, setting, seed: this.seed, name });
      const columns = COLUMNS[name].filter(([each]) => table.names.includes(each)).map(([each, label, factor]) => [label, table.getChild(each), factor]);
      const order = Array.from({ length: table.numRows }, (_, i) => i);
      const by = table.getChild(name === "flows" ? "completion_time" : "queue_delay_p95");
      if (by) order.sort((x, y) => (by.at(y) ?? -1) - (by.at(x) ?? -1));
      const cell = (value, factor = 1) => make("td", { className: "number", textContent: typeof value === "number" ? number(value * factor) : String(value ?? "–") });
      place.replaceChildren(make("p", { textContent: `${table.numRows} ${name}; the ${Math.min(50, table.numRows)} slowest${name === "flows" ? ", those not completed last" : ""}:` }), make("table", {},
        make("thead", {}, make("tr", {}, ...columns.map(([each]) => make("th", { scope: "col", textContent: each })), make("th", { scope: "col", textContent: "in charts" }))),
        make("tbody", {}, ...order.slice(0, 50).map(i => make("tr", {}, ...columns.map(([, column, factor]) => cell(column.at(i), factor)), make("td", {}, this.shower(place, table, i, setting, name)))))));
    } catch (error) {
      say(error.message, true);
    }
  }

  // A button that shows a flow's time, or a terminal, in charts.
  shower(place, table, row, setting, name) {
    const at = column => table.getChild(column)?.at(row);
    if (name === "terminals") return make("button", { type: "button", textContent: "Show", "aria-label": `Show terminal ${at("terminal")}`, onclick: () => this.terminal(place, setting, String(at("terminal"))) });
    const [opened, closed] = [at("opened"), at("closed") ?? this.found.end];
    return make("button", { type: "button", textContent: "Show", "aria-label": `Show flow ${at("flow")}`, onclick: () => {
      const room = Math.max(0.5, (closed - opened) / 4);
      for (const charts of this.charts.linked) charts.marks = [{ time: opened, label: "opened" }, { time: closed, label: "closed" }];
      this.charts.zoom([opened - room, closed + room]);
      this.charts.place.scrollIntoView({ block: "nearest" });
    } });
  }

  // Charts of one terminal.
  async terminal(place, setting, terminal) {
    try {
      const columns = new Columns();
      columns.append(await get("table", { path: this.path, setting, seed: this.seed, name: "terminal_series", terminal }));
      let grid = find("terminal-grid");
      if (!grid) place.before((grid = make("div", { className: "charts", id: "terminal-grid" })));
      const charts = new Charts(grid, { height: 110 });
      this.charts.link(charts);
      charts.end = this.found.end;
      const line = (name, label, factor) => ({ name, label, colour: "--c0", factor });
      const rows = [["queue_delay", "Queueing delay", "ms", 1e3], ["throughput", "Throughput", "Mbit/s", 1e-6]]
        .filter(([name]) => columns.names().includes(name))
        .map(([name, label, unit, factor]) => ({ label, unit, series: [line(name, label.toLowerCase(), factor)] }));
      charts.show([{ label: `terminal ${terminal}, ${setting}`, columns, rows, drops: [] }]);
      grid.scrollIntoView({ block: "nearest" });
    } catch (error) {
      say(error.message, true);
    }
  }

  get address() {
    return `/report/${encodeURIComponent(this.path)}`;
  }

  // A button that shows the report, and a link that saves it.
  reports() {
    return [
      make("button", { type: "button", textContent: "Report", onclick: () => this.report() }),
      make("a", { href: this.address, download: "report.html", textContent: "Save the report" }),
    ];
  }

  report(isOnly = false) {
    const frame = make("iframe", { src: this.address, title: `Report of ${this.path}`, sandbox: "allow-scripts" });
    if (isOnly) find("result").replaceChildren(make("div", { className: "head" }, make("h2", { textContent: this.found.title }), make("span", { className: "group" }, this.reports()[1])), frame);
    else find("report-frame").replaceChildren(frame);
    frame.scrollIntoView();
  }
}
