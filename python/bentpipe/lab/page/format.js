// Numbers with units, as a reader expects them.

export function number(value, digits = 3) {
  if (value == null || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 10 ** digits) return Math.round(value).toLocaleString("en");
  return String(+value.toPrecision(digits));
}

export function time(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${(seconds * 1000).toFixed(3)} ms`;
  return seconds < 100 ? `${seconds.toFixed(2)} s` : `${seconds.toFixed(1)} s`;
}

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else if (value != null) element.setAttribute(name, value);
  }
  element.append(...children.filter(child => child != null));
  return element;
}

export const find = id => document.getElementById(id);

// Colours of the style sheet; charts read them at each frame.
const colours = new Map();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.clear());

export function colour(name) {
  if (!colours.has(name)) colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return colours.get(name);
}

const CLASSES = [0, 1, 2, 3, 4, 5, 7, 8];

// Name of the colour of a class; packets without one are grey.
export const classShade = index => `--c${index < 0 ? 6 : CLASSES[index % CLASSES.length]}`;

export const classColour = index => colour(classShade(index));

export function download(name, blob) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// Buttons that save charts as pictures.
export const savers = charts => [
  make("button", { type: "button", textContent: "SVG", onclick: () => download("charts.svg", new Blob([charts().svg()], { type: "image/svg+xml" })) }),
  make("button", { type: "button", textContent: "PNG", onclick: () => charts().canvas().toBlob(blob => download("charts.png", blob)) }),
];

// Shows a state, or an error, which stays until something is opened, changed or run.
export function say(text, isError = false) {
  if (!isError) return (find("status").textContent = text);
  find("message").textContent = text;
  find("message").hidden = false;
}
