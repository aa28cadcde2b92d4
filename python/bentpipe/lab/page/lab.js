// The lab's page: its views, and what they open.

import { Editor } from "./editor.js";
import { find, make, savers, say } from "./format.js";
import { get } from "./net.js";
import { Results } from "./results.js";
import { Run } from "./run.js";
import { Stories } from "./stories.js";

const run = new Run(), editor = new Editor(run), results = new Results();

function view(name) {
  for (const tab of document.querySelectorAll(".tab")) tab.dataset.view === name ? tab.setAttribute("aria-current", "page") : tab.removeAttribute("aria-current");
  for (const each of document.querySelectorAll(".view")) each.hidden = each.id !== `${name}-view`;
  if (name === "run") run.charts.resize();
}

async function open({ name, file }, options = {}) {
  find("message").hidden = true;
  try {
    const found = await get("scenario", name ? { name } : file ? { file } : { new: 1 });
    run.name = name ?? null;
    run.path = file ?? null;
    run.isEdited = false;
    find("scenario").value = name ? `name:${name}` : file ? `file:${file}` : "";
    find("text").value = found.text;
    run.file = found.file;
    if (found.error) {
      run.close();
      editor.part = null;
      find("part").hidden = true;
      find("source").open = true;
      return editor.error(found.error);
    }
    run.seed = options.seed ?? null;
    run.open(found, options);
    editor.part = null;
    find("part").hidden = true;
    editor.show(found);
  } catch (error) {
    say(error.message, true);
  }
}

const stories = new Stories(run, open);

// True if a file or a shipped scenario is what runs.
const isSaved = () => Boolean(run.found && !run.isEdited && (run.name || run.path));

function remember() {
  if (isSaved() && !find("run-view").hidden) history.replaceState(null, "", `#${encodeURIComponent(JSON.stringify(run.state()))}`);
}

async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    say(`${what} copied`);
    find("message").hidden = true;
  } catch {
    say(text, true);
  }
}

async function begin() {
  const start = await get("start");
  run.limits = start.limits;
  const group = (label, kind, names) => (names.length ? [make("optgroup", { label }, ...names.map(each => make("option", { value: `${kind}:${each}`, textContent: each })))] : []);
  find("scenario").replaceChildren(...group("This folder", "file", start.files), ...group("Shipped", "name", start.scenarios));
  find("scenario").onchange = event => {
    const [kind, ...rest] = event.target.value.split(":");
    stories.leave();
    view("run");
    open({ [kind]: rest.join(":") });
  };
  find("new").onclick = () => {
    stories.leave();
    view("run");
    find("save-name").value = "new-scenario.toml";
    open({}).then(() => (run.isEdited = true));
  };
  stories.list(start.stories, () => view("run"));
  results.list(start.results, start.older_results);
  for (const tab of document.querySelectorAll(".tab")) tab.onclick = () => view(tab.dataset.view);
  run.onTime = now => stories.at(now);
  run.onPaused = remember;
  run.onEdited = () => stories.leave();
  run.onOpened = () => (editor.dress(), remember());
  find("copy-link").before(...savers(() => run.charts));
  const ifSaved = action => () => (isSaved() ? action() : say("Save the scenario first: only its file can be opened or run again.", true));
  find("copy-link").onclick = ifSaved(() => (remember(), copy(location.href, "Link")));
  find("copy-command").onclick = ifSaved(() => copy(run.command(), "Command"));
  const hash = location.hash.slice(1);
  let state = null, result = null, isDamaged = false;
  try {
    if (hash.startsWith("result=")) result = decodeURIComponent(hash.slice(7));
    else if (hash) state = JSON.parse(decodeURIComponent(hash));
  } catch {
    isDamaged = true;
  }
  if (!state) result ??= start.open.result ?? null;
  if (result !== null) {
    view("results");
    // Opening a scenario hides messages: that of a result comes after it.
    await open({ name: "byun2007-gateway" });
    return results.open(result);
  }
  if (state) return open(state, state);
  const options = start.settings ? { settings: start.settings } : {};
  await open(start.open.scenario ? { name: start.open.scenario } : { file: start.open.file }, options);
  if (isDamaged) say("The link is damaged: the scenario is opened from its begin.", true);
}

// What tests wait for.
window.lab = { run, stories, results };
begin().then(() => document.body.dataset.ready = "true", error => say(error.message, true));
