// Draws how late calls or messages were, a column for each second: the darker a cell, the more were so late.
"use strict";

const EDGES_MS = [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 60_000, Infinity];
const COLUMNS = 120;
const RECENT = 60;

class Lateness {
  constructor(canvas, words) {
    Object.assign(this, { canvas, words, columns: [], before: null, at_ms: 0, of: "calls" });
    Object.assign(this, { usual: "–", total: 0 });
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

  draw() {
    const scale = devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width) return;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    const pen = this.canvas.getContext("2d");
    const style = getComputedStyle(this.canvas);
    pen.scale(scale, scale);
    const [left, bottom] = [58, 18];
    const [cell, row] = [(width - left) / COLUMNS, (height - bottom) / EDGES_MS.length];
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = style.getPropertyValue("--quiet");
    pen.textAlign = "right";
    EDGES_MS.forEach((edge, index) => {
      if (index % 3 === 1 && edge < Infinity) pen.fillText(duration(edge), left - 6, height - bottom - row * (index + 1) + 4);
    });
    pen.textAlign = "left";
    pen.fillText("2 min ago", left, height - 4);
    pen.textAlign = "right";
    pen.fillText("now", width, height - 4);
    pen.strokeStyle = style.getPropertyValue("--grid");
    pen.strokeRect(left + 0.5, 0.5, width - left - 1, height - bottom);
    pen.fillStyle = style.getPropertyValue("--bar");
    this.columns.forEach((column, index) => {
      const x = left + cell * (COLUMNS - this.columns.length + index);
      const rows = new Array(EDGES_MS.length).fill(0);
      for (const [bound_us, number] of column) rows[EDGES_MS.findIndex((edge) => bound_us / 1000 <= edge)] += number;
      rows.forEach((number, at) => {
        if (!number) return;
        pen.globalAlpha = Math.min(1, 0.25 + 0.15 * Math.log10(number + 1) * 1.6);
        pen.fillRect(x, height - bottom - row * (at + 1), Math.max(cell - 0.5, 1), row - 0.5);
      });
    });
    pen.globalAlpha = 1;
  }

  say() {
    const all = new Map();
    for (const column of this.columns.slice(-RECENT))
      for (const [bound_us, number] of column) all.set(bound_us, (all.get(bound_us) ?? 0) + number);
    const sorted = [...all].sort(([a], [b]) => a - b);
    const total = sorted.reduce((sum, [, number]) => sum + number, 0);
    const at = (part) => {
      let left = Math.max(1, Math.ceil(total * part));
      return sorted.find(([, number]) => (left -= number) <= 0)[0];
    };
    const bound = (bound_us) => (bound_us === Infinity ? "more than 1 min" : duration(bound_us / 1000));
    const upTo = (bound_us) => (bound_us === Infinity ? bound(bound_us) : `at most ${bound(bound_us)}`);
    this.words.textContent = total
      ? `${count(total)} ${this.of} in the last minute. Half were late by ${upTo(at(0.5))}, 99 % by ${upTo(at(0.99))}, all by ${upTo(at(1))}.`
      : `No ${this.of} in the last minute.`;
    this.usual = total ? bound(at(0.99)) : "–";
    this.total = total;
  }
}
