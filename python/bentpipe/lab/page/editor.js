// The text of a scenario and the forms of its parts: either changes the other.

import { find, make, say } from "./format.js";
import { post } from "./net.js";

export class Editor {
  constructor(run) {
    this.run = run;
    this.part = null;
    find("text").addEventListener("input", () => {
      run.isEdited = true;
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.typed(), 350);
    });
    find("save").onclick = () => this.save();
    find("adding").onsubmit = event => {
      event.preventDefault();
      const kind = find("add-kind").value, name = find("add-name").value;
      const ends = ["add-from", "add-to"].map(find).filter(each => !each.parentElement.hidden).map(each => each.value);
      const part = { hosts: `host.${name}`, gateway: "gateway" }[kind] ?? `${kind}.${name}`;
      this.ask("add", { kind, name, ends }, kind === "router" ? null : part).then(() => (find("add-name").value = ""));
    };
    find("add-kind").onchange = () => this.ends();
    find("picture").addEventListener("click", event => this.chosen(event.target));
    find("picture").addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") {
        if (this.chosen(event.target)) event.preventDefault();
      }
    });
  }

  // Offers the nodes that the part to add may join.
  ends(nodes = this.nodes) {
    this.nodes = nodes ?? [];
    const kind = find("add-kind").value, isOne = kind === "hosts" || kind === "router";
    const hosts = this.nodes.filter(node => find("text").value.includes(`[host.${node}]`));
    const offered = kind === "traffic" ? hosts : this.nodes;
    find("from-word").textContent = isOne ? "at" : "from";
    find("add-to").parentElement.hidden = isOne;
    for (const [id, place] of [["add-from", 0], ["add-to", 1]]) {
      const chosen = find(id).value;
      find(id).replaceChildren(...offered.map(node => make("option", { textContent: node })));
      find(id).value = offered.includes(chosen) ? chosen : offered[Math.min(place, offered.length - 1)] ?? "";
    }
  }

  // Shows a scenario that has been opened.
  show(found) {
    this.ends(found.nodes);
    find("text").value = found.text;
    this.error(null);
    this.dress();
    if (this.part) this.form(this.part);
  }

  // The parts of the picture can be reached by keyboard.
  dress() {
    for (const part of find("picture").querySelectorAll("[data-part]")) {
      part.setAttribute("tabindex", "0");
      part.setAttribute("role", "button");
      part.setAttribute("aria-label", `Keys of ${part.dataset.part}`);
    }
    find("picture").querySelector("svg")?.setAttribute("role", "group");
  }

  error(text) {
    find("text-error").hidden = !text;
    find("text-error").textContent = text ?? "";
  }

  async typed() {
    const text = find("text").value;
    let found;
    try {
      found = await post("check", { text, file: this.run.file });
    } catch (error) {
      return this.error(error.message);
    }
    if (find("text").value !== text) return;
    this.error(found.error);
    if (found.nodes) this.ends(found.nodes);
    if (!found.error) this.take({ ...found, text, file: this.run.file });
  }

  // A text that is right is opened at once.
  take(found) {
    this.run.onEdited?.();
    const settings = this.run.settings.filter(name => found.setting_names.includes(name));
    const seed = found.seed === this.run.found?.seed ? this.run.seed : found.seed;
    this.run.open(found, { settings: settings.length ? settings : found.settings.slice(0, 2), seed });
    this.run.isEdited = true;
    this.dress();
  }

  chosen(target) {
    const part = target.closest("[data-part]")?.dataset.part;
    if (part) this.form(part);
    return Boolean(part);
  }

  async form(part) {
    this.part = part;
    const place = find("part");
    // The form of another part takes no more clicks.
    place.inert = place.dataset.shown !== part;
    try {
      const { rows } = await post("form", { text: find("text").value, file: this.run.file, part });
      // Meanwhile another part may have been chosen, or another scenario opened.
      if (this.part !== part) return;
      place.replaceChildren(
        make("div", { className: "head" }, make("h3", { textContent: part }), make("span", { className: "group" },
          /^(traffic|host|link|router)\.|^gateway$/.test(part) ? make("button", { type: "button", textContent: "Remove", onclick: () => this.ask("remove", { part }, null) }) : null,
          make("button", { type: "button", textContent: "Close", onclick: () => this.close() }))),
        ...rows.map((row, i) => this.row(part, row, i)),
      );
      place.dataset.shown = part;
      place.hidden = place.inert = false;
      place.querySelector("input, select")?.focus({ preventScroll: false });
    } catch (error) {
      place.hidden ||= place.inert;
      say(error.message, true);
    }
  }

  close() {
    const part = this.part;
    this.part = null;
    find("part").hidden = true;
    if (part) find("picture").querySelector(`[data-part="${CSS.escape(part)}"]`)?.focus();
  }

  row(part, row, i) {
    const id = `key-${i}`, isGiven = row.origin !== "default";
    const send = value => this.edit(row.key, value);
    const shown = row.value === "none" ? "" : row.value;
    const field = row.choices
      ? make("select", { id, onchange: event => send(event.target.value) }, ...row.choices.map(choice => make("option", { value: choice, textContent: choice, selected: String(choice) === shown })))
      : make("input", { id, type: "text", value: shown, placeholder: row.value === "none" ? "none" : "", onchange: event => send(event.target.value.trim() === "" ? null : event.target.value) });
    const notes = [row.help, row.allowed && `Allowed: ${row.allowed}.`, row.note && `${row.note}.`].filter(Boolean).join(" ");
    return make("div", { className: isGiven ? "key given" : "key" },
      make("label", { htmlFor: id, textContent: `${row.key.slice(part.length + 1) || row.key}${isGiven ? "" : " (default)"}` }), field, make("p", { textContent: notes }));
  }

  edit(key, value) {
    return this.ask("edit", { key, value }, this.part);
  }

  // Asks for a change of the text, and shows the form of a part after it.
  async ask(name, change, part) {
    try {
      const found = await post(name, { text: find("text").value, file: this.run.file, ...change });
      find("message").hidden = true;
      find("text").value = found.text;
      this.ends(found.nodes ?? this.nodes);
      this.error(found.error);
      if (found.error) return say(found.error, true);
      this.take({ ...found, file: this.run.file });
      const focused = document.activeElement?.id;
      if (!part) return this.close();
      await this.form(part);
      if (focused?.startsWith("key-")) find(focused)?.focus();
    } catch (error) {
      say(error.message, true);
    }
  }

  async save() {
    try {
      const saved = await post("save", { path: find("save-name").value, text: find("text").value, replace: find("replace").checked });
      this.run.path = saved.path;
      this.run.name = null;
      this.run.file = saved.file;
      this.run.isEdited = false;
      say(`Saved as ${saved.path}`);
      find("message").hidden = true;
      this.error(null);
    } catch (error) {
      this.error(error.message);
    }
  }
}
