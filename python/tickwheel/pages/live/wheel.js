// Draws the levels of a wheel as rings, the finest inside, and lists them in a table.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const MOST_ARCS = 256; // of a ring: of a larger level some buckets share an arc
const FLASHES_FROM_MS = 350; // a tick that is shorter would flash more than three times a second
const INNER = 34;
const OUTER = 196;

class Wheel {
  constructor(svg, rows, front) {
    Object.assign(this, { svg, rows, front, rings: [], outlines: [], was: [], shape: "", note: "" });
    svg.addEventListener("animationend", ({ target }) => target.classList.remove("flushed"));
  }

  show({ now_ms, levels, front, size }) {
    const shape = levels.map((level) => [level.tick_ms, level.tasks.length]).join();
    if (shape !== this.shape) this.build(levels, shape);
    const arcs = levels.map((level, index) => this.arcs(level, this.rings[index].length));
    const most = Math.log1p(Math.max(1, ...arcs.flat()));
    const current = levels.map((level, index) => current_bucket(level, now_ms, arcs[index].length));
    levels.forEach(({ tick_ms }, index) => this.paint(index, arcs[index], current[index], most, tick_ms >= FLASHES_FROM_MS));
    this.was = levels.map((_, index) => ({ arcs: arcs[index], current: current[index] }));
    this.list(levels);
    this.front.textContent =
      `${count(size)} pending; ${count(front)} of them ${front === 1 ? "has" : "have"} left the wheel for the exact instant.${this.note}`;
  }

  build(levels, shape) {
    this.shape = shape;
    this.was = [];
    const width = (OUTER - INNER) / Math.max(levels.length, 1);
    this.svg.replaceChildren(this.svg.querySelector("title"));
    this.rings = levels.map((level, index) => {
      const inner = INNER + width * index;
      const arcs = Math.min(level.tasks.length, MOST_ARCS);
      return Array.from({ length: arcs }, (_, arc) => this.svg.appendChild(this.arc(inner, inner + width * 0.9, arc, arcs)));
    });
    this.outlines = this.rings.map(() => this.svg.appendChild(document.createElementNS(SVG, "path")));
    for (const outline of this.outlines) outline.setAttribute("class", "current");
    this.rows.replaceChildren(...levels.map((level) =>
      make("tr", {}, make("th", { scope: "row" }, String(level.level)), ...Array.from({ length: 4 }, () => make("td", { class: "number" })))));
  }

  arc(inner, outer, index, of) {
    const at = (radius, turn) => {
      const angle = 2 * Math.PI * turn - Math.PI / 2;
      return `${(200 + radius * Math.cos(angle)).toFixed(2)} ${(200 + radius * Math.sin(angle)).toFixed(2)}`;
    };
    const [from, to] = [index / of, (index + (of === 1 ? 0.9999 : 1)) / of];
    const large = to - from > 0.5 ? 1 : 0;
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", `M${at(outer, from)}A${outer} ${outer} 0 ${large} 1 ${at(outer, to)}L${at(inner, to)}A${inner} ${inner} 0 ${large} 0 ${at(inner, from)}Z`);
    return path;
  }

  /* The tasks of each arc. */
  arcs(level, length) {
    const buckets = level.tasks.length;
    if (length === buckets) return level.tasks;
    const arcs = new Array(length).fill(0);
    level.tasks.forEach((tasks, bucket) => (arcs[Math.floor((bucket * length) / buckets)] += tasks));
    return arcs;
  }

  paint(level, arcs, current, most, mayFlash) {
    const [ring, was] = [this.rings[level], this.was[level]];
    ring.forEach((path, index) => {
      const tasks = arcs[index];
      path.classList.toggle("full", tasks > 0);
      path.classList.toggle("empty", !tasks);
      if (mayFlash && was && tasks === 0 && was.arcs[index] > 0 && was.current !== current) path.classList.add("flushed");
      path.setAttribute("fill-opacity", tasks ? (0.2 + (0.8 * Math.log1p(tasks)) / most).toFixed(2) : 1);
    });
    this.outlines[level].setAttribute("d", ring[current].getAttribute("d"));
  }

  list(levels) {
    levels.forEach((level, index) => {
      const used = level.tasks.filter((tasks) => tasks).length;
      const all = level.tasks.reduce((sum, tasks) => sum + tasks, 0);
      const values = [duration(level.tick_ms), duration(level.interval_ms), `${count(used)} of ${count(level.tasks.length)}`, count(all)];
      values.forEach((value, column) => (this.rows.children[index].children[column + 1].textContent = value));
    });
  }
}

/* The bucket, or the arc, of the time that it is. A level of a timer that has nothing to do stands still, the time does not. */
function current_bucket({ tick_ms, current_time_ms, tasks }, now_ms, arcs = tasks.length) {
  const bucket = Math.floor(Math.max(now_ms, current_time_ms) / tick_ms) % tasks.length;
  return Math.floor((bucket * arcs) / tasks.length);
}

/* How many tasks are in buckets that begin within a time, and in the front. */
function due_within({ now_ms, levels, front }, ms) {
  let due = front;
  for (const { tick_ms, current_time_ms, tasks } of levels) {
    const first = Math.floor(current_time_ms / tick_ms);
    tasks.forEach((_, ahead) => {
      if ((first + ahead) * tick_ms < now_ms + ms) due += tasks[(first + ahead) % tasks.length];
    });
  }
  return due;
}
