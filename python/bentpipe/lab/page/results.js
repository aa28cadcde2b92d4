// Results of a folder: charts of runs, the difference of two, flows and terminals, and the report.

import { Charts, rowsOf } from "./charts.js";
import { Columns } from "./columns.js";
import { find, make, number, say } from "./format.js";
import { get } from "./net.js";

export class Results {
  list(results) {
    const place = find("results");
    if (!results.length) return place.replaceChildren(make("p", { textContent: "This folder holds no results yet. bentpipe compare makes one." }));
    place.replaceChildren(make("ul", { className: "list" }, ...results.map(({ path, kind }) => make("li", {},
      make("button", { type: "button", textContent: path, onclick: () => this.open(path) }), ` ${kind}`))));
  }

  async open(path) {
    try {
      const found = await get("result", { path });
      this.path = path;
      this.found = found;
      if (found.kind !== "result") return this.report(true);
      this.seed = found.seeds[0];
      await this.show();
    } catch (error) {
      say(error.message, true);
    }
  }

  async show() {
    const { found, path } = this, place = find("result");
    const seeds = make("select", { onchange: event => ((this.seed = Number(event.target.value)), this.show()) }, ...found.seeds.map(seed => make("option", { textContent: seed, selected: seed === this.seed })));
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
        make("span", { className: "group" }, make("label", {}, "Run with seed ", seeds), make("button", { type: "button", textContent: "Report", onclick: () => this.report() }))),
      make("p", {}, "Repeat it: ", make("code", { textContent: found.command })),
      make("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": "Table of classes" }, this.table()),
      grid,
      make("div", { className: "group" }, make("label", {}, "Difference of ", one), make("label", {}, " from ", other)), difference,
      make("div", { className: "group" }, make("label", {}, "Flows of ", flowsOf), found.terminals ? make("label", {}, "Terminals of ", terminalsOf) : null), flows,
      make("div", { id: "report-frame" }));
    this.charts = new Charts(grid, { height: 120 });
    this.runs = await Promise.all(found.settings.map(async label => {
      const columns = new Columns();
      columns.append(await get("series", { path, setting: label, seed: this.seed }));
      return { label, columns, rows: rowsOf(columns.names(), [], found.states), drops: [] };
    }));
    this.charts.end = found.end;
    this.charts.show(this.runs);
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
    charts.end = this.found.end;
    charts.show([{ label: `${one} less ${other}`, columns, rows: rowsOf(names, [], this.found.states), drops: [] }]);
  }

  async flows(place, setting, name) {
    if (!setting) return;
    try {
      const table = await get("table", { path: this.path, setting, seed: this.seed, name });
      const wanted = name === "flows" ? ["traffic", "class", "opened", "completion_time", "goodput", "drops"] : ["terminal", "group", "goodput", "queue_delay_p95", "pages", "page_time_mean", "carrier_seconds"];
      const columns = wanted.filter(each => table.names.includes(each)).map(each => [each, table.getChild(each)]);
      const order = Array.from({ length: table.numRows }, (_, i) => i);
      const by = table.getChild(name === "flows" ? "completion_time" : "queue_delay_p95");
      if (by) order.sort((x, y) => (by.at(y) ?? -1) - (by.at(x) ?? -1));
      const cell = value => make("td", { className: "number", textContent: typeof value === "number" ? number(value) : String(value ?? "–") });
      place.replaceChildren(make("p", { textContent: `${table.numRows} ${name}; the ${Math.min(50, table.numRows)} slowest:` }), make("table", {},
        make("thead", {}, make("tr", {}, ...columns.map(([each]) => make("th", { scope: "col", textContent: each })))),
        make("tbody", {}, ...order.slice(0, 50).map(i => make("tr", {}, ...columns.map(([, column]) => cell(column.at(i))))))));
    } catch (error) {
      say(error.message, true);
    }
  }

  report(isOnly = false) {
    const frame = make("iframe", { src: `/report/${encodeURIComponent(this.path)}`, title: `Report of ${this.path}`, sandbox: "allow-scripts" });
    if (isOnly) find("result").replaceChildren(make("h2", { textContent: this.found.title }), frame);
    else find("report-frame").replaceChildren(frame);
    frame.scrollIntoView();
  }
}
