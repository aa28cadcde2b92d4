// The run of a scenario: its page's state, what the process of the playback sends, and the controls.

import { Charts, rowsOf } from "./charts.js";
import { Columns } from "./columns.js";
import { classColour, find, make, number, say, time } from "./format.js";
import { post, Socket } from "./net.js";
import { Scene } from "./scene.js";

export class Run {
  constructor() {
    this.scene = new Scene(find("picture"));
    this.charts = new Charts(find("grid"));
    this.sides = [];
    this.settings = [];
    this.changes = [];
    this.now = this.end = 0;
    this.isRunning = false;
    this.onTime = () => {};
    // Frames that have come and are not drawn yet, at most four: each refresh of the screen shows one.
    this.queue = [];
    this.socket = new Socket((header, tables) => this.take(header, tables), () => this.lost());
    this.connect();
  }

  // ----- opening ---------------------------------------------------------------------------------------------

  // Opens a text that the server has checked, at time zero or at `at`.
  open(found, { settings, seed, changes = [], stops = [], at = 0, play = false } = {}) {
    this.file = found.file;
    this.text = found.text;
    this.found = found;
    this.settings = settings ?? found.settings.slice(0, 2);
    this.wanted = { at, play };
    find("message").hidden = true;
    this.isOpen = false;
    this.changes = changes;
    this.stops = stops;
    this.enable(true);
    this.showSettings();
    this.scene.show(found.picture);
    this.socket.send("open", { text: found.text, file: found.file, settings: this.settings, seed: seed ?? this.seed ?? null, changes, stops });
  }

  // Ends the run, as the text on the page has a mistake.
  close() {
    if (this.isRunning) this.pause();
    this.found = this.seed = null;
    this.isOpen = false;
    this.settings = [];
    this.enable(false);
  }

  enable(is) {
    find("bar").inert = find("changing").inert = !is;
  }

  reopen(rest = {}) {
    if (!this.found) return;
    this.open(this.found, { settings: this.settings, seed: this.seed, changes: this.changes, stops: this.stops, ...rest });
  }

  opened(header) {
    if (!this.found) return;
    this.isOpen = true;
    this.seed = header.seed;
    this.end = header.end;
    this.classes = header.classes;
    this.links = header.links;
    this.changes = header.changes;
    this.events = [];
    this.sliders = header.sliders;
    this.sides = header.settings.map((label, i) => ({
      label, columns: new Columns(), drops: [], served: [],
      rows: rowsOf(header.series[i], header.classes, header.states[i]),
    }));
    this.pictures = header.pictures;
    this.scene.show(header.pictures[0], header.links);
    find("seed").value = header.seed;
    find("time").max = header.end;
    find("shown").replaceChildren(...header.settings.map((label, i) => make("option", { value: i, textContent: label })));
    this.classLegend();
    this.charts.end = 0;
    this.charts.view = { seconds: Number(find("window").value), zoom: null };
    this.showChanges();
    this.showSliders();
    this.charts.show(this.sides);
    this.showServed();
    this.running(false);
    this.setTime(0);
    for (let i = 0; i < 4; i++) this.socket.send("ready");
    if (this.wanted.at) this.socket.send("seek", { time: this.wanted.at });
    if (this.wanted.play) this.play();
    this.wanted = {};
    this.onOpened?.();
  }

  // ----- what the process sends --------------------------------------------------------------------------------

  take(header, tables) {
    if (header.type === "frame") {
      this.queue.push([header, tables]);
      if (this.queue.length === 1) requestAnimationFrame(() => this.next());
      return;
    }
    while (this.queue.length) this.frame(...this.queue.shift());
    if (header.type === "opened") return this.opened(header);
    if (header.type === "rewound") return this.rewound();
    if (header.type === "changed") {
      this.changes = [...this.changes.filter(([at]) => at <= header.time), [header.time, header.key, header.value]];
      this.setSlider?.get(header.key)?.(parseFloat(header.value));
      return this.showChanges();
    }
    if (header.type === "event") {
      this.events = [[header.begin, `${header.what} begins`], [header.end, `${header.what} ends`]];
      return this.showChanges();
    }
    this.running(false);
    say(header.message, true);
    if (header.type === "error" && this.sliders) this.showSliders();
  }

  lost() {
    this.running(false);
    say("The lab has ended. Start bentpipe lab again, and open the address that it prints.", true);
  }

  rewound() {
    for (const side of this.sides) Object.assign(side, { columns: new Columns(), drops: [] });
    this.charts.runs.forEach((run, i) => Object.assign(run, { columns: this.sides[i].columns, drops: this.sides[i].drops }));
    if (!this.wanted.play) return;
    this.wanted = {};
    this.setTime(0);
    this.play();
  }

  next() {
    if (!this.queue.length) return;
    this.frame(...this.queue.shift());
    if (this.queue.length) requestAnimationFrame(() => this.next());
  }

  frame(header, tables) {
    this.socket.send("ready");
    this.sides.forEach((side, i) => {
      side.columns.append(tables[`${i}.series`]);
      const drops = tables[`${i}.drops`].getChild("time").toArray();
      side.newDrops = drops.length;
      for (const at of drops) side.drops.push(at);
      if (header.served) side.served = header.served[i];
    });
    this.charts.isRunning = header.running;
    this.now = header.time;
    this.running(header.running);
    this.setTime(header.time);
    this.charts.end = header.time;
    if (header.served) this.showServed();
    this.charts.refresh();
    const shown = Number(find("shown").value || 0);
    if (tables[`${shown}.packets`]) this.scene.draw(tables[`${shown}.packets`], this.sides[shown].newDrops);
    this.frames = (this.frames ?? 0) + 1;
    this.onTime(header.time);
    if (!header.running) this.onPaused?.();
  }

  setTime(now) {
    this.now = now;
    const shown = performance.now();
    if (this.isRunning && shown - (this.shownAt ?? 0) < 100) return;
    this.shownAt = shown;
    if (document.activeElement !== find("time") || !this.isDragging) find("time").value = now;
    find("clock").textContent = `${time(now)} of ${number(this.end, 4)} s`;
  }

  running(is) {
    if (is === this.isRunning && find("play").textContent) return;
    this.isRunning = is;
    find("play").textContent = is ? "Pause" : "Run";
    say(is ? "Running" : `Paused at ${time(this.now)}`);
    if (!is) this.onPaused?.();
  }

  // ----- controls --------------------------------------------------------------------------------------------

  play() {
    if (!this.isOpen) return (this.wanted.play = true);
    find("message").hidden = true;
    if (this.now >= this.end) {
      this.wanted.play = true;
      return this.socket.send("seek", { time: 0 });
    }
    this.socket.send("play", { speed: Number(find("speed").value) });
    this.running(true);
  }

  pause() {
    this.wanted.play = false;
    this.socket.send("pause");
    this.running(false);
  }

  connect() {
    find("play").onclick = () => (this.isRunning ? this.pause() : this.play());
    find("restart").onclick = () => this.reopen({ changes: [] });
    find("back").onclick = () => this.socket.send("seek", { time: Math.max(0, this.now - 5) });
    find("step").onclick = () => this.socket.send("step");
    find("second").onclick = () => this.socket.send("step", { seconds: 1 });
    find("speed").onchange = () => this.isRunning && this.play();
    find("jump").onchange = event => {
      if (event.target.value) this.socket.send("jump", { what: event.target.value });
      event.target.value = "";
    };
    find("time").oninput = () => (this.isDragging = true);
    find("time").onchange = event => {
      this.isDragging = false;
      this.socket.send("seek", { time: Number(event.target.value) });
    };
    find("window").onchange = event => {
      this.charts.view = { seconds: Number(event.target.value), zoom: null };
      this.charts.draw();
    };
    find("seed").onchange = event => {
      if (!event.target.checkValidity() || event.target.value === "") {
        say(`seed: found ${event.target.value || "nothing"}; allowed: a whole number from 0`, true);
        return (event.target.value = this.seed);
      }
      // Above 2^53 numbers are rounded: such a seed stays a text.
      const seed = Number(event.target.value);
      this.seed = Number.isSafeInteger(seed) ? seed : event.target.value;
      this.reopen();
    };
    find("shown").onchange = event => {
      this.scene.show(this.pictures[Number(event.target.value)], this.links);
      this.onOpened?.();
      this.socket.send("show", { side: Number(event.target.value) });
    };
    find("add-setting").onchange = event => {
      const name = event.target.value, isFirst = !this.settings.length;
      if (name) this.compare([...this.settings, name]);
      if (name && isFirst) say(`The scenario names no settings: ${name} runs in place of the scenario as it is. Add the name of its AQM to compare both.`, true);
    };
    addEventListener("keydown", event => {
      const isTyping = /^(INPUT|TEXTAREA|SELECT|BUTTON|SUMMARY)$/.test(event.target.tagName) || event.target.closest?.("[role=button]");
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || find("run-view").hidden || find("bar").inert) return;
      const button = { " ": "play", ArrowRight: "second", ArrowLeft: "back", ".": "step" }[event.key];
      if (button) event.preventDefault(), find(button).click();
    });
  }

  compare(settings) {
    this.settings = settings;
    this.reopen();
  }

  showSettings() {
    const most = this.limits?.settings ?? 4;
    find("settings").replaceChildren(...this.settings.map(name => make("span", { className: "chip" }, name,
      this.settings.length > 1 ? make("button", { type: "button", textContent: "×", "aria-label": `Without ${name}`, onclick: () => this.compare(this.settings.filter(each => each !== name)) }) : null)));
    const others = this.found.setting_names.filter(name => !this.settings.includes(name));
    find("add-setting").replaceChildren(make("option", { value: "", textContent: "…" }), ...others.map(name => make("option", { textContent: name })));
    find("add-setting").disabled = this.settings.length >= most;
  }

  classLegend() {
    find("legend").replaceChildren(...this.classes.map((name, i) => {
      const dot = make("span", { className: "swatch dot" });
      dot.style.background = classColour(i);
      return make("span", {}, dot, name);
    }), ...(this.sides.length ? [make("span", { textContent: "Red ticks: drops. Drag to zoom, double-click for all." })] : []));
  }

  showServed() {
    const classes = this.sides.find(side => side.served.length)?.served ?? [];
    const head = make("tr", {}, make("th", { scope: "col", textContent: "Class" }), make("th", { scope: "col", textContent: "Figure" }), ...this.sides.map(side => make("th", { scope: "col", textContent: side.label })));
    const rows = classes.map((row, i) => make("tr", {},
      make("th", { scope: "row", textContent: row.class }), make("td", { textContent: `${row.label}${row.unit ? ` [${row.unit}]` : ""}` }),
      ...this.sides.map(side => {
        const cell = side.served[i] ?? {};
        return make("td", { className: `number ${cell.grade ?? ""}`, textContent: `${number(cell.value)}${cell.grade ? ` ${cell.grade}` : ""}` });
      })));
    if (!rows.length) rows.push(make("tr", {}, make("td", { colSpan: 2 + this.sides.length, textContent: "Run it to see." })));
    find("served").replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows));
  }

  // ----- changes ---------------------------------------------------------------------------------------------

  showSliders() {
    this.setSlider = new Map();
    const last = new Map(this.changes.map(([, key, value]) => [key, value]));
    find("sliders").replaceChildren(...this.sliders.map((slider, i) => {
      const given = last.has(slider.key) ? parseFloat(last.get(slider.key)) : slider.value;
      const toPlace = value => (slider.log ? (1000 * Math.log(value / slider.low)) / Math.log(slider.high / slider.low) : (1000 * (value - slider.low)) / (slider.high - slider.low));
      const toValue = place => {
        const value = slider.log ? slider.low * (slider.high / slider.low) ** (place / 1000) : slider.low + ((slider.high - slider.low) * place) / 1000;
        return slider.whole ? Math.round(value) : +value.toPrecision(3);
      };
      const text = value => `${value}${slider.unit ? ` ${slider.unit}` : ""}`;
      const output = make("output", { textContent: text(given), htmlFor: `slider-${i}` });
      const input = make("input", {
        type: "range", id: `slider-${i}`, min: 0, max: 1000, step: 1, value: toPlace(given),
        "aria-valuetext": text(given),
        oninput: () => {
          output.textContent = text(toValue(Number(input.value)));
          input.setAttribute("aria-valuetext", output.textContent);
        },
        onchange: () => this.change(slider.key, text(toValue(Number(input.value)))),
      });
      this.setSlider.set(slider.key, value => {
        input.value = toPlace(value);
        output.textContent = text(value);
        input.setAttribute("aria-valuetext", text(value));
      });
      return make("div", { className: "slider" }, make("label", { htmlFor: `slider-${i}`, textContent: slider.label, title: slider.key }), input, output);
    }));
  }

  change(key, value) {
    find("message").hidden = true;
    this.socket.send("change", { key, value });
  }

  showChanges() {
    const marks = [...this.changes.map(([at, key, value]) => [at, `${key} = ${value}`]), ...(this.events ?? [])].sort((a, b) => a[0] - b[0]);
    this.charts.marks = marks.map(([at, label]) => ({ time: at, label }));
    find("changes").replaceChildren(...marks.map(([at, label]) => make("li", { textContent: `${time(at)}: ${label}` })));
    this.charts.draw();
  }

  // The state that a link restores.
  state() {
    const state = { settings: this.settings, seed: this.seed, changes: this.changes, at: this.now };
    return this.name ? { name: this.name, ...state } : { file: this.path, ...state };
  }

  command() {
    const words = ["bentpipe", "compare", this.name ?? this.path];
    if (this.settings.length) words.push("--settings", this.settings.join(","));
    words.push("--seed", this.seed, "--runs", "1");
    for (const [, key, value] of this.changes) words.push("--set", `${key}=${value}`);
    return words.map(word => (/^[\w./,=:-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`)).join(" ");
  }

  async check(text) {
    return post("check", { text, file: this.file });
  }
}
