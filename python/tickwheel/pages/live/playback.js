// Plays the frames of a recording, from any moment, at any speed.
"use strict";

const SPEEDS = [0.01, 0.1, 1, 10, 100, 1000];
const STEP_MS = 100;

class Playback {
  constructor(frames, show) {
    Object.assign(this, { frames, show, at: 0, time_ms: 0, timer: null });
    const span_ms = frames.at(-1).at_ms - frames[0].at_ms;
    const speed = SPEEDS.find((each) => span_ms / each <= 60_000) ?? SPEEDS.at(-1); // by default it takes at most a minute
    find("speed").append(...SPEEDS.map((each) => make("option", { value: each, ...(each === speed ? { selected: "" } : {}) }, `${each} ×`)));
    find("moment").max = frames.length - 1;
    find("moment").addEventListener("input", ({ target }) => this.go_to(Number(target.value)));
    find("play").addEventListener("click", () => (this.timer ? this.stop() : this.play()));
    this.go_to(Math.max(0, frames.findIndex(({ wheel }) => wheel.levels.length)));
  }

  play() {
    if (this.at === this.frames.length - 1) this.go_to(0);
    find("play").textContent = "Stop";
    this.timer = setInterval(() => {
      this.time_ms += STEP_MS * Number(find("speed").value);
      let to = this.at;
      while (to + 1 < this.frames.length && this.frames[to + 1].at_ms <= this.time_ms) to += 1;
      if (to !== this.at) this.draw(to);
      if (this.at === this.frames.length - 1) this.stop();
    }, STEP_MS);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    find("play").textContent = "Play";
  }

  go_to(at) {
    this.time_ms = this.frames[at].at_ms;
    this.draw(at);
  }

  draw(at) {
    this.at = at;
    const { at_ms } = this.frames[at];
    find("moment").value = at;
    this.show(at);
    const words = `${utc(at_ms)}, ${duration(at_ms - this.frames[0].at_ms)} from the beginning`;
    find("shown-moment").textContent = words;
    find("moment").setAttribute("aria-valuetext", words);
  }
}
