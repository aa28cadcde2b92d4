// Columns that grow, and their extremes for drawing: of many samples a chart shows the least and the greatest of
// each step of its width.

const STEP = 32;

class Column {
  constructor() {
    this.values = new Float64Array(1024);
    this.least = new Float64Array(32);
    this.greatest = new Float64Array(32);
    this.length = 0;
  }

  append(added) {
    const needed = this.length + added.length;
    if (needed > this.values.length) {
      const room = Math.max(needed, 2 * this.values.length);
      this.values = grown(this.values, room);
      this.least = grown(this.least, Math.ceil(room / STEP));
      this.greatest = grown(this.greatest, Math.ceil(room / STEP));
    }
    for (const value of added) {
      const v = value ?? NaN, place = this.length++, step = Math.floor(place / STEP);
      this.values[place] = v;
      if (place % STEP === 0) this.least[step] = Infinity, this.greatest[step] = -Infinity;
      if (v < this.least[step]) this.least[step] = v;
      if (v > this.greatest[step]) this.greatest[step] = v;
    }
  }

  // Least and greatest value from one place to before another.
  extremes(from, to) {
    let least = Infinity, greatest = -Infinity, place = from;
    while (place < to) {
      const step = Math.floor(place / STEP);
      if (place % STEP === 0 && place + STEP <= to) {
        if (this.least[step] < least) least = this.least[step];
        if (this.greatest[step] > greatest) greatest = this.greatest[step];
        place += STEP;
      } else {
        const v = this.values[place++];
        if (v < least) least = v;
        if (v > greatest) greatest = v;
      }
    }
    return [least, greatest];
  }
}

function grown(values, room) {
  const larger = new Float64Array(room);
  larger.set(values);
  return larger;
}

export class Columns {
  constructor() {
    this.columns = new Map();
  }

  get length() {
    return this.columns.get("time")?.length ?? 0;
  }

  names() {
    return [...this.columns.keys()];
  }

  append(table) {
    for (const name of table.names) {
      if (!this.columns.has(name)) this.columns.set(name, new Column());
      this.columns.get(name).append(table.getChild(name).toArray());
    }
  }

  last(name) {
    const column = this.columns.get(name);
    return column && column.length ? column.values[column.length - 1] : NaN;
  }

  // Number of the first sample not before a time.
  place(time) {
    const column = this.columns.get("time");
    let low = 0, high = this.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (column.values[middle] < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  // Times and series between two times for a chart of a width: [times, values, ...].
  thinned(names, from, to, width, factors) {
    const first = Math.max(0, this.place(from) - 1), last = Math.min(this.length, this.place(to) + 1);
    const time = this.columns.get("time");
    if (!time || last <= first) return [[], ...names.map(() => [])];
    const count = last - first, known = names.map(name => this.columns.get(name));
    if (count <= 2 * width) {
      const plain = (column, factor) => Array.from(column.values.subarray(first, last), v => (v === v ? v * factor : null));
      return [Array.from(time.values.subarray(first, last)), ...known.map((c, i) => (c ? plain(c, factors[i]) : Array(count).fill(null)))];
    }
    // Steps begin at multiples of their length, so that they stay where they are when the view moves.
    let length = 1;
    while (count / length > width / 2) length *= 2;
    const times = [], values = names.map(() => []);
    for (let place = Math.floor(first / length) * length; place < last; place += length) {
      const end = Math.min(place + length, this.length), middle = Math.min(place + (length >> 1), end - 1);
      times.push(time.values[place], time.values[middle]);
      known.forEach((column, i) => {
        if (!column) return values[i].push(null, null);
        const [least, greatest] = column.extremes(place, end);
        values[i].push(finite(least * factors[i]), finite(greatest * factors[i]));
      });
    }
    return [times, ...values];
  }
}

const finite = value => (Number.isFinite(value) ? value : null);
