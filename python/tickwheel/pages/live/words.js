// Finds and makes elements, and writes numbers and times. Foreign text goes into a page only as text, never as markup.
"use strict";

const isWide = matchMedia("(min-width: 48rem)").matches;
const find = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const count = (number) => Math.round(number).toLocaleString("en");

/* 1500 -> "1.5 s". At most three digits of a unit. */
function duration(ms) {
  const units = [[31_557_600_000, "years"], [86_400_000, "days"], [3_600_000, "h"], [60_000, "min"], [1000, "s"], [1, "ms"]];
  const [size, name] = units.find(([size]) => ms >= size) ?? [1, "ms"];
  return `${Number((ms / size).toPrecision(3)).toLocaleString("en", { maximumSignificantDigits: 3 })} ${name}`;
}

const size = (bytes) => {
  const power = Math.min(3, Math.floor(Math.log2(Math.max(bytes, 1)) / 10));
  return `${(bytes / 1024 ** power).toFixed(power ? 1 : 0)} ${["B", "KiB", "MiB", "GiB"][power]}`;
};

/* By the clock of the server, which may differ from that of the browser. */
const server = { ahead_ms: 0 };

/* 75 -> "a minute": as people say it of what is not exact. */
function about_s(seconds) {
  const [size, name] = [[3600, "h"], [60, "min"], [1, "s"]].find(([size]) => seconds >= 1.6 * size) ?? [1, "s"];
  return size === 1 && seconds > 45 ? "a minute" : `${count(Math.max(1, seconds / size))} ${name}`;
}

/* "in 3 min", "2 h ago". */
function from_now(instant, past = "") {
  const ms = Date.parse(instant) - Date.now() - server.ahead_ms;
  const away = Math.abs(ms);
  const [size, name] = [[31_557_600_000, "years"], [86_400_000, "days"], [3_600_000, "h"], [60_000, "min"], [1000, "s"]].find(([size]) => away >= 2 * size) ?? [1000, "s"];
  const whole = `${count(Math.floor(away / size))} ${name}`;
  if (past && ms < 1000) return past;
  return away < 1000 ? "now" : ms > 0 ? `in ${whole}` : `${whole} ago`;
}

/* An instant as people say it; the exact one is shown to a pointer. `past`: what is said instead once it is over. */
function when(instant, past = "") {
  const told = Number.isNaN(Date.parse(instant)) ? instant : from_now(instant, past);
  return make("time", { datetime: instant, title: instant, "data-past": past }, told);
}

setInterval(() => {
  for (const time of document.querySelectorAll("main time[datetime]")) {
    const told = from_now(time.dateTime, time.dataset.past);
    if (told !== time.textContent) time.textContent = told;
  }
}, 1000);

const utc = (epoch_ms) => new Date(epoch_ms).toISOString();

/* A text as it can be told from others, as `pages/text.py` has it: control characters are pictures (␀); what can't be seen, or changes
   the direction of writing, is an escape. */
const NOT_SEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;
const shown = (text) => text.replace(NOT_SEEN, (sign) => {
  const code = sign.charCodeAt(0);
  if (code < 32) return String.fromCharCode(0x2400 + code);
  return code === 127 ? "\u2421" : sign.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join("");
});

/* At most so many characters of it, for a table. */
const short = (text, most = 200) => (text.length > most ? `${shown(text.slice(0, most))}…` : shown(text));

/* Fills a list of cards: pairs of a name and a value. The elements stay, so that a screen reader is not interrupted. */
function cards(list, values) {
  while (list.children.length > values.length) list.lastChild.remove();
  values.forEach(([name, value], index) => {
    const card = list.children[index] ?? list.appendChild(make("div", {}, make("dt"), make("dd")));
    if (card.firstChild.textContent !== name) card.firstChild.textContent = name;
    if (card.lastChild.textContent !== value) card.lastChild.textContent = value;
  });
}
