// Draws the levels of a wheel as rings, the finest inside, and lists them in a table. The time that it is stands at twelve
// o'clock, and each ring turns towards it as a clock does.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const MOST_ARCS = 256; // of a ring: of a larger level some buckets share an arc
const FLASHES_FROM_MS = 350; // a tick that is shorter would flash more than three times a second, and is shown in whole buckets
const INNER = 46;
const OUTER = 190;

const drawn = (tag, attributes, text = "") => {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
};

class Wheel {
  constructor(svg, rows, front) {
    Object.assign(this, { svg, rows, front, rings: [], was: [], shape: "", note: "", touched: null });
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    svg.addEventListener("animationend", ({ target }) => target.classList.remove("flushed"));
    for (const event of ["pointerover", "click"]) svg.addEventListener(event, ({ target }) => this.touch(target));
    svg.addEventListener("pointerleave", () => this.touch(null));
  }

  show(frame) {
    const { now_ms, levels, front, size } = frame;
    this.frame = frame;
    const shape = levels.map((level) => [level.tick_ms, level.tasks.length]).join();
    if (shape !== this.shape) this.build(frame, shape);
    const arcs = levels.map((level, index) => this.arcs(level, this.rings[index].length));
    const most = Math.log1p(Math.max(1, ...arcs.flat()));
    const current = levels.map((level, index) => current_bucket(level, now_ms, arcs[index].length));
    levels.forEach(({ tick_ms }, index) => this.paint(index, arcs[index], current[index], most, tick_ms >= FLASHES_FROM_MS));
    levels.forEach((level, index) => this.turn(level, index, now_ms));
    this.was = levels.map((_, index) => ({ arcs: arcs[index], current: current[index] }));
    this.list(levels);
    this.say();
    this.front.textContent =
      `${count(size)} pending; ${count(front)} of them ${front === 1 ? "has" : "have"} left the wheel for the exact instant.${this.note}`;
  }

  build({ levels, now_ms }, shape) {
    Object.assign(this, { shape, was: [], touched: null, began_ms: now_ms });
    const width = (OUTER - INNER) / Math.max(levels.length, 1);
    const inner_of = (index) => INNER + width * index;
    this.rings = levels.map((level, index) => {
      const arcs = Math.min(level.tasks.length, MOST_ARCS);
      return Array.from({ length: arcs }, (_, arc) => this.arc(inner_of(index), inner_of(index) + width * 0.9, arc, arcs));
    });
    this.turning = this.rings.map((ring) => drawn("g", { class: "ring" }));
    this.turning.forEach((group, index) => group.append(...this.rings[index]));
    const names = levels.map(({ tick_ms }, index) => drawn("text", { class: "name", x: 200, y: 203 + inner_of(index) + width * 0.45 }, duration(tick_ms)));
    this.inside = [drawn("text", { class: "count", x: 200, y: 203 }), drawn("text", { x: 200, y: 219 })];
    const now = drawn("path", { class: "now", d: `M200 ${200 - INNER}V10M194 2h12l-6 9z` });
    this.svg.replaceChildren(this.svg.querySelector("title"), ...this.turning, now, ...names, ...this.inside);
    this.rows.replaceChildren(...levels.map(() =>
      make("tr", {}, make("th", { scope: "row" }), ...Array.from({ length: 3 }, () => make("td", { class: "number" })))));
  }

  /* One bucket: what is later stands to the left of what is due before it. */
  arc(inner, outer, index, of) {
    const at = (radius, turn) => {
      const angle = 2 * Math.PI * turn - Math.PI / 2;
      return `${(200 + radius * Math.cos(angle)).toFixed(2)} ${(200 + radius * Math.sin(angle)).toFixed(2)}`;
    };
    const [from, to] = [-(index + (of === 1 ? 0.9999 : 1)) / of, -index / of];
    const large = to - from > 0.5 ? 1 : 0;
    return drawn("path", { d: `M${at(outer, from)}A${outer} ${outer} 0 ${large} 1 ${at(outer, to)}L${at(inner, to)}A${inner} ${inner} 0 ${large} 0 ${at(inner, from)}Z` });
  }

  /* A ring with short ticks, and any ring for a reader who wants it calm, moves by whole buckets. */
  turn({ tick_ms, interval_ms, current_time_ms }, index, now_ms) {
    const time_ms = Math.max(now_ms, current_time_ms);
    const isSmooth = tick_ms >= FLASHES_FROM_MS && !this.calm.matches;
    const shown_ms = isSmooth ? time_ms : (Math.floor(time_ms / tick_ms) + 0.5) * tick_ms;
    const first_ms = Math.floor(this.began_ms / interval_ms) * interval_ms;
    this.turning[index].classList.toggle("smooth", isSmooth);
    this.turning[index].style.transform = `rotate(${(((shown_ms - first_ms) / interval_ms) * 360).toFixed(2)}deg)`;
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
  }

  touch(target) {
    const level = this.rings.findIndex((ring) => ring.includes(target));
    this.touched?.path.classList.remove("touched");
    this.touched = level < 0 ? null : { level, index: this.rings[level].indexOf(target), path: target };
    target?.classList.toggle("touched", level >= 0);
    if (this.frame) this.say();
  }

  /* In the middle: how many are pending; or how many are in the bucket that is touched, and when it is due. */
  say() {
    const { levels, size, now_ms } = this.frame;
    const [number, words] = this.touched ? this.bucket(levels[this.touched.level], this.touched, now_ms) : [size, "pending"];
    this.inside[0].textContent = number.toLocaleString("en", { notation: "compact" });
    this.inside[1].textContent = words;
  }

  bucket({ tick_ms, current_time_ms, tasks }, { level, index }, now_ms) {
    const each = tasks.length / this.rings[level].length;
    const first = Math.floor(Math.max(now_ms, current_time_ms) / tick_ms);
    const ahead = (Math.ceil(index * each) - (first % tasks.length) + tasks.length) % tasks.length;
    const in_ms = (first + ahead) * tick_ms - now_ms;
    return [this.was[level].arcs[index], in_ms > 0 ? `in ${duration(in_ms)}` : "now"];
  }

  list(levels) {
    levels.forEach((level, index) => {
      const used = level.tasks.filter((tasks) => tasks).length;
      const all = level.tasks.reduce((sum, tasks) => sum + tasks, 0);
      const values = [duration(level.tick_ms), duration(level.interval_ms), `${count(used)} of ${count(level.tasks.length)}`, count(all)];
      values.forEach((value, column) => (this.rows.children[index].children[column].textContent = value));
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
