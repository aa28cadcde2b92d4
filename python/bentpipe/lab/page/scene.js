// Packets on the picture of the network: dots on links, bars at queues, crosses for drops.

import { classColour, colour, make } from "./format.js";

const SAMPLES = 64;

// Points at equal distances along a line, x and y in turn: the browser's own answer is slow for each packet.
function sampled(path) {
  const length = path.getTotalLength(), points = new Float32Array(2 * SAMPLES + 2);
  for (let i = 0; i <= SAMPLES; i++) {
    const { x, y } = path.getPointAtLength((length * i) / SAMPLES);
    points[2 * i] = x, points[2 * i + 1] = y;
  }
  return points;
}

export class Scene {
  constructor(place) {
    this.place = place;
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.lines = new Map();
    this.drops = [];
    this.box = { width: 0, height: 0 };
    new ResizeObserver(() => this.measure()).observe(place);
  }

  measure() {
    if (this.svg) this.box = this.svg.getBoundingClientRect();
  }

  // A picture without packets. `links` are the names of directions of links, to which packets refer.
  show(svg, links = []) {
    this.canvas.getContext("2d").reset();
    if (svg !== this.shown) this.replace(svg);
    this.links = links;
    this.ways = links.map(name => this.way(name));
  }

  // An equal picture stays: a click on a part that is replaced between press and release would be lost.
  replace(svg) {
    this.shown = svg;
    this.place.innerHTML = svg;
    this.place.append(this.canvas);
    this.svg = this.place.querySelector("svg");
    this.measure();
    this.lines.clear();
    for (const path of this.svg.querySelectorAll("path[data-link]")) this.lines.set(path.dataset.link, { path, points: sampled(path) });
  }

  // The line of a direction of a link: "NAME", "NAME.3", "NAME reverse".
  way(name) {
    const isReverse = name.endsWith(" reverse"), plain = isReverse ? name.slice(0, -8) : name;
    const line = this.lines.get(plain) ?? this.lines.get(plain.replace(/\.\d+$/, ""));
    return line && { ...line, isReverse, isUp: line.path.dataset.up === "true" };
  }

  draw(packets, dropped = 0) {
    if (!this.svg) return;
    const box = this.box, ratio = devicePixelRatio, view = this.svg.viewBox.baseVal;
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    if (this.canvas.width !== width || this.canvas.height !== height) [this.canvas.width, this.canvas.height] = [width, height];
    const ctx = this.canvas.getContext("2d"), scale = (box.width / view.width) * ratio;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.clearRect(0, 0, this.canvas.width, this.canvas.height);
    ctx.setTransform(scale, 0, 0, scale, 0, 0);
    const at = packets.getChild("at").toArray(), place = packets.getChild("place").toArray(), share = packets.getChild("share").toArray();
    const kind = packets.getChild("class").toArray(), payload = packets.getChild("payload"), number = packets.getChild("packet").toArray();
    const waiting = new Map(), dots = new Map();
    for (let i = 0; i < at.length; i++) {
      if (at[i] === 0) {
        const way = this.ways[place[i]];
        if (!way) continue;
        const along = (way.isReverse !== way.isUp ? 1 - share[i] : share[i]) * SAMPLES, step = Math.min(SAMPLES - 1, Math.floor(along));
        const rest = along - step, points = way.points, hasPayload = payload.at(i);
        const x = points[2 * step] + rest * (points[2 * step + 2] - points[2 * step]);
        const y = points[2 * step + 1] + rest * (points[2 * step + 3] - points[2 * step + 1]);
        // Neighbours lie beside each other, acknowledgements on the other side.
        const aside = ((number[i] * 7) % 5) * 1.6 * (hasPayload ? 1 : -1) + (hasPayload ? 2 : -2);
        const key = 2 * kind[i] + (hasPayload ? 1 : 0);
        if (!dots.has(key)) dots.set(key, new Path2D());
        const radius = hasPayload ? 3 : 1.6, dot = dots.get(key);
        dot.moveTo(x + aside + radius, y);
        dot.arc(x + aside, y, radius, 0, 7);
      } else {
        const key = at[i] === 1 ? `link ${this.links[place[i]]}` : `gateway ${place[i]}`;
        if (!waiting.has(key)) waiting.set(key, new Map());
        const counts = waiting.get(key);
        counts.set(kind[i], (counts.get(kind[i]) ?? 0) + 1);
      }
    }
    for (const [key, dot] of dots) {
      ctx.fillStyle = classColour(Math.floor(key / 2));
      ctx.fill(dot);
    }
    this.bars(ctx, waiting);
    if (dropped) this.drops.push({ count: dropped, until: performance.now() + 700 });
    this.drops = this.drops.filter(drop => drop.until > performance.now());
    if (this.drops.length) this.cross(ctx);
  }

  // A bar of the packets that wait, by class.
  bars(ctx, waiting) {
    const gateways = [...this.svg.querySelectorAll("[data-bar]")];
    for (const [key, counts] of waiting) {
      let target = null;
      if (key.startsWith("gateway ")) target = gateways.filter(each => each.dataset.bar === "gateway")[Number(key.slice(8))];
      else {
        const way = this.way(key.slice(5));
        target = way && (gateways.find(each => each.dataset.bar === `link ${way.path.dataset.link}`) ?? (way.path.classList.contains("satellite") && !key.endsWith(" reverse") ? gateways.find(each => each.dataset.bar === "transmit") : null));
      }
      if (!target) continue;
      const x = Number(target.dataset.x), y = Number(target.dataset.y), total = [...counts.values()].reduce((a, b) => a + b, 0);
      const width = Math.min(150, 10 * Math.log2(1 + total));
      let left = x;
      for (const [kind, count] of [...counts].sort((a, b) => a[0] - b[0])) {
        ctx.fillStyle = classColour(kind);
        ctx.fillRect(left, y, (width * count) / total, 7);
        left += (width * count) / total;
      }
      ctx.fillStyle = colour("--text");
      ctx.font = "11px sans-serif";
      ctx.fillText(String(total), left + 4, y + 7);
    }
  }

  cross(ctx) {
    const target = this.svg.querySelector('[data-bar="drop"]') ?? this.svg.querySelector("[data-bar]");
    if (!target) return;
    const x = Number(target.dataset.x) - 14, y = Number(target.dataset.y) + 3;
    ctx.strokeStyle = colour("--bad");
    ctx.lineWidth = 2.5;
    ctx.beginPath();
    ctx.moveTo(x - 5, y - 5); ctx.lineTo(x + 5, y + 5); ctx.moveTo(x + 5, y - 5); ctx.lineTo(x - 5, y + 5);
    ctx.stroke();
  }
}
