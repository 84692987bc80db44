// Draws how late calls or messages were, a column for each second: the darker a cell, the more were so late.
"use strict";

const EDGES_MS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, Infinity];
const FEWEST_ROWS = 6;
const COLUMNS = 120;
const RECENT = 60;

const row_of = (bound_us) => EDGES_MS.findIndex((edge) => bound_us / 1000 <= edge);

/* The bound below which this part of a map from bounds to numbers is. */
function percentile(numbers, part) {
  const sorted = [...numbers].sort(([a], [b]) => a - b);
  let left = Math.max(1, Math.ceil(sorted.reduce((sum, [, number]) => sum + number, 0) * part));
  return sorted.find(([, number]) => (left -= number) <= 0)[0];
}

class Lateness {
  constructor(canvas, words) {
    Object.assign(this, { canvas, words, columns: [], before: null, at_ms: 0, of: "calls" });
    Object.assign(this, { usual: "–", half: "–", total: 0 });
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  /* `classes`: pairs of an upper bound in microseconds, null for none, and a count since the beginning. */
  add(at_ms, classes) {
    // For the seconds in which there was no connection.
    const gap = this.at_ms ? Math.round((at_ms - this.at_ms) / 1000) - 1 : 0;
    if (gap > 0) this.show([...this.columns, ...Array.from({ length: Math.min(gap, COLUMNS) }, () => new Map())].slice(-COLUMNS));
    this.at_ms = at_ms;
    const total = new Map(classes.map(([bound_us, number]) => [bound_us ?? Infinity, number]));
    if (this.before) {
      const column = new Map();
      for (const [bound_us, number] of total) {
        const more = number - (this.before.get(bound_us) ?? 0);
        if (more > 0) column.set(bound_us, more);
      }
      this.show([...this.columns, column].slice(-COLUMNS));
    }
    this.before = total;
  }

  /* `columns`: of each a map from an upper bound in microseconds to a number. */
  show(columns) {
    this.columns = columns;
    this.draw();
    this.say();
  }

  /* The rows that have something, with one more at both ends. */
  scale() {
    const rows = this.columns.flatMap((column) => [...column.keys()].map(row_of));
    const lowest = Math.min(Math.max(0, (rows.length ? Math.min(...rows) : 5) - 1), EDGES_MS.length - FEWEST_ROWS);
    return [lowest, Math.min(EDGES_MS.length, Math.max((rows.length ? Math.max(...rows) : 0) + 2, lowest + FEWEST_ROWS))];
  }

  draw() {
    const pixels = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    this.canvas.width = width * pixels;
    this.canvas.height = height * pixels;
    const pen = this.canvas.getContext("2d");
    const colour = (name) => getComputedStyle(this.canvas).getPropertyValue(name);
    pen.scale(pixels, pixels);
    const [left, bottom, [lowest, end]] = [58, 18, this.scale()];
    const [cell, row] = [(width - left) / COLUMNS, (height - bottom) / (end - lowest)];
    const x_of = (index) => left + cell * (COLUMNS - this.columns.length + index);
    const y_of = (edge) => height - bottom - row * (edge - lowest + 1);
    const words = (text, x, y, align, name = "--quiet") => Object.assign(pen, { textAlign: align, fillStyle: colour(name) }).fillText(text, x, y);
    pen.font = "11px system-ui, sans-serif";
    pen.strokeStyle = colour("--grid");
    pen.strokeRect(left + 0.5, 0.5, width - left - 1, height - bottom);
    EDGES_MS.slice(lowest, end).forEach((edge, index) => {
      if (row > 24 || index % 2) words(edge < Infinity ? duration(edge) : "more", left - 6, y_of(lowest + index) + 9, "right");
    });
    words("2 min ago", left, height - 4, "left");
    words("now", width, height - 4, "right");
    pen.fillStyle = colour("--bar");
    this.columns.forEach((column, index) => {
      const rows = new Map();
      for (const [bound_us, number] of column) rows.set(row_of(bound_us), (rows.get(row_of(bound_us)) ?? 0) + number);
      for (const [edge, number] of rows) {
        pen.globalAlpha = Math.min(0.8, 0.2 + 0.2 * Math.log10(number + 1));
        pen.fillRect(x_of(index), y_of(edge), Math.max(cell - 0.5, 1), row - 0.5);
      }
    });
    pen.globalAlpha = 1;
    for (const [part, name, text, x] of [[0.5, "--ink", "half", 8], [0.99, "--line2", "99 %", 40]]) {
      pen.fillStyle = colour(name);
      this.columns.forEach((column, index) => {
        if (column.size) pen.fillRect(x_of(index), y_of(row_of(percentile(column, part))), cell, 2);
      });
      words(`– ${text}`, left + x, 14, "left", name);
    }
  }

  say() {
    const all = new Map();
    for (const column of this.columns.slice(-RECENT))
      for (const [bound_us, number] of column) all.set(bound_us, (all.get(bound_us) ?? 0) + number);
    this.total = [...all.values()].reduce((sum, number) => sum + number, 0);
    const bound = (bound_us) => (bound_us === Infinity ? "more than 1 min" : duration(bound_us / 1000));
    const upTo = (part) => (percentile(all, part) === Infinity ? bound(Infinity) : `at most ${bound(percentile(all, part))}`);
    this.words.textContent = this.total
      ? `${count(this.total)} ${this.of} in the last minute. Half were late by ${upTo(0.5)}, 99 % by ${upTo(0.99)}, all by ${upTo(1)}.`
      : `No ${this.of} in the last minute.`;
    [this.half, this.usual] = [0.5, 0.99].map((part) => (this.total ? bound(percentile(all, part)) : "–"));
  }
}
