// The tiles, the figures, the keys in doubt, the destinations, the busiest tenants, and the line of the status.
"use strict";

/* How much a count grows in a second, from the frame before. */
class Rates {
  per_s(at_ms, counts) {
    const before = this.before;
    this.before = { at_ms, counts };
    if (!before || at_ms <= before.at_ms) return {};
    const seconds = (at_ms - before.at_ms) / 1000;
    return Object.fromEntries(Object.entries(counts).map(([name, number]) => [name, (number - before.counts[name]) / seconds]));
  }
}

const LONG_OVERDUE_MS = 10_000;
const MOST_COUNTED = 10_000; // messages of a destination
const LONGEST_NAME = 200; // a longer one comes cut off

const rate = (per_s) => (per_s === undefined ? "–" : per_s > 0 && per_s < 10 ? per_s.toFixed(1) : count(per_s));

function status(text, state) {
  const line = find("status");
  if (line.textContent !== text) line.textContent = text;
  line.dataset.state = state;
}

/* One of the tiles. `state`: "ill" if it needs the reader, "well", or none. */
function tile(name, value, words, state = "") {
  const [, shown_value, shown_words] = find(`tile-${name}`).children;
  if (shown_value.textContent !== value) shown_value.textContent = value;
  if (shown_words.textContent !== words) shown_words.textContent = words;
  find(`tile-${name}`).dataset.state = state;
}

/* First of all: what an operator comes for. */
function show_tiles({ destination, destinations: named, paused, due, oldest_overdue_ms, dead_letters, counts, since_ms, at_ms }, upTo) {
  const lasts = (epoch_ms) => `for ${duration(Math.max(0, at_ms - epoch_ms))}`;
  if (paused) tile("destination", "Paused", "nothing is sent", "ill");
  else if (destination && !destination.up) tile("destination", "Down", `${lasts(destination.changed_ms)}: ${short(destination.reason, 80)}`, "ill");
  else if (named?.down) tile("destination", `${count(named.down)} down`, `of ${count(named.count)} named ones`, "ill");
  else if (destination) tile("destination", "Up", lasts(destination.changed_ms), "well");
  else if (named) tile("destination", named.paused ? `${count(named.paused)} paused` : "Up", `of ${count(named.count)} named ones, none is down`, "well");
  else tile("destination", "None", "each message has to name one, and none is set");
  const oldest = oldest_overdue_ms ? `the oldest for ${duration(oldest_overdue_ms)}` : "nothing is late";
  tile("overdue", upTo(due.now), oldest, oldest_overdue_ms >= LONG_OVERDUE_MS ? "ill" : "");
  const recent = `new since ${utc(since_ms).slice(0, 16).replace("T", " ")} UTC: ${count(counts.dead_letters)}`;
  tile("dead", count(dead_letters), recent, dead_letters ? "ill" : "");
  tile("hour", upTo(due["1h"]), `${upTo(due["1m"])} in the next minute`);
  tile("late", lateness.usual, lateness.total ? `of ${count(lateness.total)} in the last minute` : "nothing was sent in the last minute");
}

/* A timer's figures. */
function show_timer({ counts }, rates) {
  cards(find("flow"), [
    ["added a second", rate(rates.added)],
    ["moved a second", rate(rates.moved)],
    ["cancelled a second", rate(rates.cancelled)],
    ["fired a second", rate(rates.expired)],
    ["wake-ups a second", rate(rates.wake_ups)],
    ["wait for their call", count(counts.executor_depth)],
    ["running", count(counts.running)],
  ]);
}

function show_due_of_wheel(wheel) {
  const within = [["next minute", 60_000], ["next hour", 3_600_000], ["next day", 86_400_000]];
  cards(find("due"), within.map(([name, ms]) => [name, count(Math.min(due_within(wheel, ms), wheel.size))]));
  find("due-words").textContent = "Counted by whole buckets.";
}

/* The keys that fail for longest; nothing, if none fails. */
class Doubt {
  constructor() {
    this.told = "";
    this.may_control = false;
  }

  show(found) {
    find("doubt").hidden = !found?.longest.length;
    if (find("doubt").hidden) return;
    const words =
      `${count(found.keys)} in doubt. ` +
      `${count(found.spare_places_taken)} of ${count(found.spare_places)} spare places are taken. These have failed for longest` +
      (found.is_complete ? "." : ", among the 50,000 messages that were accepted first.");
    if (find("doubt-words").textContent !== words) find("doubt-words").textContent = words;
    const told = JSON.stringify([this.may_control, found.longest]);
    if (told === this.told) return; // a button in it may have the focus
    this.told = told;
    find("doubt-rows").replaceChildren(...found.longest.map((it) => this.row(it)));
  }

  row({ key, id, since, fails, next_try, is_paused, last_error }) {
    const next = make("span", {}, is_paused ? "paused" : when(next_try, "soon"));
    const isWhole = (key ?? id).length < LONGEST_NAME;
    if (this.may_control && isWhole && !is_paused) next.append(" ", this.again(key === null ? { id } : { key }));
    const cells = [["since", when(since)], ["failed sends", count(fails)], ["next try", next], ["error", short(last_error ?? "", 300)]];
    const name = key === null ? `message ${short(id)}` : short(key);
    return make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(([title, text]) => make("td", { "data-name": title }, text)));
  }

  again(which) {
    const button = make("button", { type: "button", class: "small" }, "Try now");
    button.addEventListener("click", async () => {
      button.disabled = true;
      const answer = await ask("POST", `/again?${new URLSearchParams(which)}`).catch((error) => ({ state: error.message }));
      button.textContent = answer.state;
    });
    return button;
  }
}

/* The named destinations that need the reader first; nothing, if there are none. */
function show_destinations(found) {
  find("destinations").hidden = !found;
  document.body.classList.toggle("has-destinations", Boolean(found));
  if (!found) return;
  const all = found.count === 1 ? "There is one" : `There are ${count(found.count)}`;
  const more = found.count > found.first.length ? ` Here are ${count(found.first.length)}: first those that are down, then those that are overdue for longest.` : "";
  find("destinations-words").textContent = `${all}: ${count(found.down)} down, ${count(found.paused)} paused.${more}`;
  replace_rows(find("destination-rows"), found.first, destination_row);
}

/* Rows by name, of which only cells that differ are replaced. */
function replace_rows(table, found, row_of) {
  const told = JSON.stringify(found);
  if (told === table.dataset.told) return; // a reader may have selected some of it
  table.dataset.told = told;
  const rows = found.map(row_of);
  const name = (row) => row?.cells[0].textContent;
  if (table.rows.length !== rows.length || rows.some((row, at) => name(row) !== name(table.rows[at]))) return table.replaceChildren(...rows);
  rows.forEach((row, at) => [...row.cells].forEach((cell, index) => {
    const before = table.rows[at].cells[index];
    if (!cell.isEqualNode(before)) before.replaceWith(cell); // a link that stays keeps the focus, and a click on it counts
  }));
}

function destination_row({ name, state, down_since, failing_since, overdue, delivered, late, rate, next_try, last_error, last_error_at }) {
  const is_ill = state !== "sending";
  const to_list = (list, text, label) => make("a", { href: "#messages", "data-list": list, "data-destination": name, "aria-label": `${label} of ${name}` }, text);
  const number = overdue >= MOST_COUNTED ? `${count(overdue)} and more` : count(overdue);
  const since = down_since ? [" since ", when(down_since)] : [];
  if (failing_since) since.push(", fails since ", when(failing_since));
  const next = { down: "each second", paused: "" }[state] ?? (next_try ? when(next_try, "soon") : "");
  const error = last_error ? make("span", {}, `${short(last_error, 200)} (`, when(last_error_at), ")") : "";
  const cells = [
    ["state", make("span", is_ill ? { class: "bad" } : {}, state, ...since)],
    ["overdue", overdue ? to_list("waiting", number, `${number} overdue messages`) : number],
    ["late", delivered ? `${count(late)} of ${count(delivered)}` : ""],
    ["rate", rate ?? ""],
    ["next try", next],
    ["last error", error],
    ["given up", to_list("dead", "dead letters", "dead letters")],
  ];
  return make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(([title, text]) => make("td", { "data-name": title }, text)));
}

/* The busiest tenants, with what arrived for each since the figures before; nothing, if there are none. */
function show_tenants({ tenants, at_ms }) {
  find("tenants").hidden = !tenants.length;
  const [before, passed_s] = [show_tenants.before ?? new Map(), (at_ms - (show_tenants.at_ms ?? at_ms)) / 1000];
  const rate_of = ({ name, delivered }) => (passed_s > 0 && delivered >= before.get(name) ? (delivered - before.get(name)) / passed_s : null);
  const told = tenants.map((it) => ({ ...it, rate: rate_of(it) }));
  replace_rows(find("tenant-rows"), told, tenant_row);
  show_tenants.before = new Map(tenants.map((it) => [it.name, it.delivered]));
  show_tenants.at_ms = at_ms;
}

function tenant_row({ name, paused, waiting, overdue, failing, delivered, late, lateness_us, failed_attempts, rate }) {
  const cells = [
    ["state", paused ? "paused" : ""],
    ["waiting", count(waiting)],
    ["overdue", count(overdue)],
    ["failing", count(failing)],
    ["a second", rate === null ? "" : count(Math.round(rate))],
    ["late", delivered ? `${count(late)} of ${count(delivered)}` : ""],
    ["mean lateness", delivered ? duration(lateness_us / 1000 / delivered) : ""],
    ["failed", count(failed_attempts)],
  ];
  return make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(([title, text]) => make("td", { "data-name": title }, text)));
}

/* The figures of `tickwheel serve`. */
function show_service(figures, rates) {
  const { due, due_most, states, counts } = figures;
  server.ahead_ms = figures.at_ms - Date.now();
  const upTo = (number) => (number >= due_most ? `${count(due_most)} and more` : count(number));
  show_tiles(figures, upTo);
  cards(find("due"), [
    ["due by now", upTo(due.now)],
    ["in the next minute", upTo(due["1m"])],
    ["in the next hour", upTo(due["1h"])],
    ["in the next day", upTo(due["1d"])],
    ["without an outcome", count(Object.values(states).reduce((sum, number) => sum + number, 0))],
  ]);
  find("due-words").textContent = figures.oldest_overdue_ms
    ? `The oldest has been due for ${duration(figures.oldest_overdue_ms)}. Each figure has the overdue ones too.`
    : "Nothing is overdue.";
  cards(find("flow"), [
    ["accepted a second", rate(rates.accepted)],
    ["delivered a second", rate(rates.delivered)],
    ["accepted", count(counts.accepted)],
    ["delivered", count(counts.delivered)],
    ["cancelled", count(counts.cancelled)],
    ["expired", count(counts.expired)],
    ["new dead letters", count(counts.dead_letters)],
    ["being sent", count(states.in_flight)],
    ["wait for a retry", count(states.retrying)],
    ["recurring", count(states.recurring)],
    ["in memory", count(figures.window.messages)],
    ["memory of these", size(figures.window.bytes)],
    ["last commit", `${duration(Math.max(0, figures.at_ms - figures.last_commit_ms))} ago`],
    ["store", size(figures.store_bytes)],
    ["its log", size(figures.store_log_bytes)],
  ]);
  const since = (epoch_ms) => `since ${utc(epoch_ms).slice(0, 19)} UTC`;
  find("flow-words").textContent = `Accepted to new dead letters are counted ${since(figures.since_ms)}, when this process began. The lists have what was before.`;
  doubt.show(figures.in_doubt);
  show_destinations(figures.destinations);
  show_tenants(figures);
  const { destination, paused, paused_keys } = figures;
  const keys = paused_keys ? ` ${count(paused_keys)} ${paused_keys === 1 ? "key is" : "keys are"} paused.` : "";
  if (paused) status(`Paused: messages are accepted, and nothing is sent.${keys}`, "ill");
  else if (destination && !destination.up) status(`The destination is down ${since(destination.changed_ms)}: ${short(destination.reason)}.${keys}`, "ill");
  else status(`Delivering.${destination ? ` The destination is up ${since(destination.changed_ms)}.` : ""}${keys}`, "well");
  const button = find("pause");
  button.textContent = paused ? "Resume sending" : "Pause sending";
  button.dataset.path = paused ? "/resume" : "/pause";
}
