// The tiles, the figures, the keys in doubt, the destinations, the busiest tenants, and the line of the status.
"use strict";

const RATE_OVER_MS = 10_000;

/* How much a count grows in a second, over the last ten. */
class Rates {
  frames = [];

  per_s(at_ms, counts) {
    const [before] = (this.frames = [...this.frames.filter((it) => it.at_ms > at_ms - RATE_OVER_MS - 500), { at_ms, counts }]);
    if (at_ms <= before.at_ms) return {};
    const seconds = (at_ms - before.at_ms) / 1000;
    return Object.fromEntries(Object.entries(counts).map(([name, number]) => [name, (number - before.counts[name]) / seconds]));
  }
}

const LONG_OVERDUE_MS = 10_000;
const MOST_COUNTED = 10_000; // messages of a destination
const NOTHING_MOVES = "Nothing moves.";
const FEW_KEYS = 4; // are shown at once
const LONGEST_NAME = 200; // a longer one comes cut off

const rate = (per_s) => (per_s === undefined ? "–" : per_s > 0 && per_s < 10 ? per_s.toFixed(1) : count(per_s));

/* `more`: what changes with each second, and is not read aloud. */
function status(text, state, more = "") {
  for (const [id, words] of [["status", text], ["progress", more]]) if (find(id).textContent !== words) find(id).textContent = words;
  find("state").dataset.state = state;
}

/* One of the tiles. `state`: "ill" if it needs the reader, "slow" if it takes its time, or none. */
function tile(name, value, words, state = "") {
  const [, shown_value, shown_words] = find(`tile-${name}`).children;
  if (shown_value.textContent !== value) shown_value.textContent = value;
  if (shown_words.textContent !== words) shown_words.textContent = words;
  find(`tile-${name}`).dataset.state = state;
}

let coming = []; // messages due in each minute of the next hour

/* The bars of what is due. A touch shows the number of one. */
function show_load({ at_ms, minutes, hours, waiting_for_events, remembered_events }) {
  coming = minutes;
  show_load.events = { waiting_for_events, remembered_events };
  for (const [id, numbers, step_ms, one, all] of [["minutes", minutes, 60_000, "minute", "hour"], ["hours", hours, 3_600_000, "hour", "day"]]) {
    const [bars, most] = [find(id), Math.max(1, ...numbers)];
    const sum = numbers.reduce((all, number) => all + number, 0);
    const words = sum ? `The next ${all}: ${count(sum)}, at most ${count(most)} in ${one === "hour" ? "an" : "a"} ${one}` : `Nothing is due in the next ${all}`;
    while (bars.children.length < numbers.length) bars.append(make("i"));
    numbers.forEach((number, index) => {
      const begin_ms = (Math.floor(at_ms / step_ms) + index) * step_ms;
      bars.children[index].style.setProperty("--height", number ? `${Math.max(3, (number / most) * 100)}%` : "0");
      bars.children[index].title = `${utc(begin_ms).slice(11, 16)} UTC: ${count(number)}`;
    });
    find(`${id}-words`).dataset.words = words;
    if (!bars.matches(":hover")) find(`${id}-words`).textContent = words;
    bars.onpointerover = bars.onclick = ({ target }) => (find(`${id}-words`).textContent = target.title || words);
    bars.onpointerleave = () => (find(`${id}-words`).textContent = find(`${id}-words`).dataset.words);
  }
}

/* In how many seconds so many overdue messages are sent at this rate, with those that become due meanwhile. */
function done_in_s(overdue, per_s) {
  for (let minute = 0; minute < 60; minute += 1) {
    const fewer = 60 * per_s - (coming[minute] ?? 0);
    if (fewer >= overdue) return 60 * (minute + overdue / fewer);
    overdue -= fewer;
  }
  return Infinity;
}

/* The state in a sentence: its words, how it is, and its figures. Green only after something was accepted, red where nothing moves. */
function told_state({ destination, destinations: named, paused, paused_until, paused_keys, tenants, in_doubt, due, oldest_overdue_ms, counts, rate_per_s, since_ms, at_ms }, rates, upTo) {
  const since = (epoch_ms) => `since ${utc(epoch_ms).slice(0, 19)} UTC`;
  const isLate = oldest_overdue_ms >= LONG_OVERDUE_MS;
  const overdue = due.now ? ` ${upTo(due.now)} overdue.` : "";
  if (paused) return [`Paused${paused_until ? ` until ${paused_until.slice(0, 19)} UTC` : ""}: messages are accepted, and nothing is sent.`, isLate ? "ill" : "slow", overdue];
  if (destination && !destination.up) return [`The destination is down ${since(destination.changed_ms)}: ${short(destination.reason)}.`, "ill", overdue];
  const down = named?.down ? `${count(named.down)} of ${count(named.count)} destinations ${named.down === 1 ? "is" : "are"} down.` : "";
  if (down && named.down === named.count) return [down, "ill", overdue];
  const per_s = rates.delivered || (rate_per_s < 1 ? rate_per_s : 0);
  const held = down || in_doubt || named?.paused || paused_keys || tenants.some((it) => it.paused);
  const keys = paused_keys ? ` ${count(paused_keys)} ${paused_keys === 1 ? "key is" : "keys are"} paused.` : "";
  if (isLate && per_s && (rate_per_s || !held)) {
    const done_s = done_in_s(due.now, per_s);
    const end = done_s < Infinity ? `done in about ${about_s(done_s)}` : "not done within an hour";
    return [`Delivering${down ? `; ${down}` : ""}`, "slow", `; ${upTo(due.now)} overdue, ${end} at ${rate(per_s)}/s.${keys}`];
  }
  if (isLate && !per_s && !held) return [NOTHING_MOVES, "ill", `${overdue} The oldest has waited for ${duration(oldest_overdue_ms)}.`];
  const next = coming.findIndex((number) => number);
  const soon = isLate ? ` ${upTo(due.now)} overdue, which wait for a key, a destination or a tenant.` : next > 0 ? ` The next message is due in about ${about_s(60 * next)}.` : "";
  if (!counts.delivered) return [`Ready.${down && ` ${down}`}`, held ? "slow" : "", ` Nothing was delivered ${since(since_ms).slice(0, -7)} UTC.${soon}${keys}`];
  return [`Delivering.${down && ` ${down}`}`, held ? "slow" : "well", `${rates.delivered ? ` ${rate(rates.delivered)}/s.` : ""}${soon}${keys}`];
}

/* First of all: what an operator comes for. */
function show_tiles({ due, oldest_overdue_ms, dead_letters, counts }, moves, upTo) {
  const oldest = oldest_overdue_ms ? `the oldest for ${duration(oldest_overdue_ms)}` : "nothing is late";
  tile("overdue", upTo(due.now), oldest, oldest_overdue_ms < LONG_OVERDUE_MS ? "" : moves ? "slow" : "ill");
  tile("dead", count(dead_letters), `${count(counts.dead_letters)} new since the start`, dead_letters ? "ill" : "");
  tile("late", lateness.usual, lateness.total ? `99 % of ${count(lateness.total)} in the last minute; half: ${lateness.half}` : "nothing was sent in the last minute");
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

/* The keys that fail for longest, by their error; nothing, if none fails. */
class Doubt {
  constructor() {
    this.parts = new Map(); // by error
    this.may_control = false;
  }

  show(found) {
    find("doubt").hidden = !found?.groups.length;
    const groups = found?.groups ?? [];
    for (const [error, part] of this.parts) if (!groups.some((it) => it.error === error)) this.parts.delete(error) && part.remove();
    if (!groups.length) return;
    const words =
      `${count(found.keys)} in doubt. ${count(found.spare_places_taken)} of ${count(found.spare_places)} spare places are taken.` +
      (found.errors > groups.length ? ` Here are ${groups.length} of ${count(found.errors)} errors.` : "") +
      (found.is_complete ? "" : " They are among the 50,000 messages that were accepted first.");
    if (find("doubt-words").textContent !== words) find("doubt-words").textContent = words;
    for (const group of groups) this.show_group(group);
  }

  show_group({ error, keys, first }) {
    const part = this.parts.get(error) ?? this.part(error, keys);
    const told = make("summary", {}, make("b", {}, `${count(keys)} ${keys === 1 ? "key" : "keys"}: `), short(error ?? "no answer", 300), ", first ", when(first[0].since));
    if (!told.isEqualNode(part.firstChild)) part.firstChild.replaceChildren(...told.childNodes);
    replace_rows(part.querySelector("tbody"), first.map((it) => ({ ...it, may_control: this.may_control })), (it) => this.row(it));
    part.querySelector("p").textContent = keys > first.length ? `These ${first.length} have failed for longest.` : "";
  }

  part(error, keys) {
    const names = ["key", "since", "failed sends", "next try"].map((name) => make("th", { scope: "col" }, name));
    const table = make("table", { class: "stack" }, make("thead", {}, make("tr", {}, ...names)), make("tbody"));
    const part = make("details", keys < FEW_KEYS ? { open: "" } : {}, make("summary"), table, make("p", { class: "quiet" }));
    this.parts.set(error, part);
    return find("doubt-groups").appendChild(part);
  }

  row({ key, id, since, fails, next_try, is_paused, may_control }) {
    const next = make("span", {}, is_paused ? "paused" : when(next_try, "soon"));
    const isWhole = (key ?? id).length < LONGEST_NAME;
    if (may_control && isWhole && !is_paused) next.append(" ", this.again(key === null ? { id } : { key }));
    const cells = [["since", when(since)], ["failed sends", count(fails)], ["next try", next]];
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

function destination_row({ name, state, paused_until, down_since, failing_since, overdue, delivered, late, rate, next_try, last_error, last_error_at }) {
  const to_list = (list, text, label) => make("a", { href: "#messages", "data-list": list, "data-destination": name, "aria-label": `${label} of ${name}` }, text);
  const number = overdue >= MOST_COUNTED ? `${count(overdue)} and more` : count(overdue);
  const since = down_since ? [" since ", when(down_since)] : paused_until ? [" until ", when(paused_until)] : [];
  if (failing_since) since.push(", fails since ", when(failing_since));
  const next = { down: "each second", paused: "" }[state] ?? (next_try ? when(next_try, "soon") : "");
  const error = last_error ? make("span", {}, `${short(last_error, 200)} (`, when(last_error_at), ")") : "";
  const cells = [
    ["state", make("span", { class: { down: "bad", paused: "slow" }[state] ?? "" }, state, ...since)],
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
  const [words, state, more] = told_state(figures, rates, upTo);
  status(words, state, more);
  document.body.classList.toggle("wrong", state === "ill" || Boolean(figures.in_doubt || figures.destinations?.down || figures.dead_letters));
  show_tiles(figures, words !== NOTHING_MOVES, upTo);
  const { waiting_for_events = 0, remembered_events = 0 } = show_load.events ?? {};
  cards(find("flow"), [
    ["accepted a second", rate(rates.accepted)],
    ["delivered a second", rate(rates.delivered)],
    ["accepted", count(counts.accepted)],
    ["delivered", count(counts.delivered)],
    ["cancelled", count(counts.cancelled)],
    ["expired", count(counts.expired)],
    ["new dead letters", count(counts.dead_letters)],
    ["without an outcome", count(Object.values(states).reduce((sum, number) => sum + number, 0))],
    ["being sent", count(states.in_flight)],
    ["wait for a retry", count(states.retrying)],
    ["recurring", count(states.recurring)],
    ["wait for an event", count(waiting_for_events)],
    ["remembered events", count(remembered_events)],
    ["in memory", count(figures.window.messages)],
    ["memory of these", size(figures.window.bytes)],
    ["last commit", `${duration(Math.max(0, figures.at_ms - figures.last_commit_ms))} ago`],
    ["store", size(figures.store_bytes)],
    ["its log", size(figures.store_log_bytes)],
  ]);
  find("flow-words").textContent = `Accepted to new dead letters are counted since ${utc(figures.since_ms).slice(0, 19)} UTC, when this process began. The lists have what was before.`;
  doubt.show(figures.in_doubt);
  show_destinations(figures.destinations);
  show_tenants(figures);
  const button = find("pause");
  button.textContent = figures.paused ? "Resume sending" : "Pause sending";
  button.dataset.path = figures.paused ? "/resume" : "/pause";
}
