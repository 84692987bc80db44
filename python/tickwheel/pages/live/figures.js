// The cards: what is due, what happens now, and the line of the status.
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

const rate = (per_s) => (per_s === undefined ? "–" : per_s > 0 && per_s < 10 ? per_s.toFixed(1) : count(per_s));

function status(text, state) {
  const line = find("status");
  if (line.textContent !== text) line.textContent = text;
  line.dataset.state = state;
}

/* A timer's figures. */
function show_timer({ counts }, rates) {
  const of_calls = "running" in counts ? [["wait for their call", count(counts.executor_depth)], ["running", count(counts.running)]] : [];
  cards(find("flow"), [
    ["added a second", rate(rates.added)],
    ["moved a second", rate(rates.moved)],
    ["cancelled a second", rate(rates.cancelled)],
    ["fired a second", rate(rates.expired)],
    ["wake-ups a second", rate(rates.wake_ups)],
    ...of_calls,
  ]);
}

function show_due_of_wheel(wheel) {
  const within = [["next minute", 60_000], ["next hour", 3_600_000], ["next day", 86_400_000]];
  cards(find("due"), within.map(([name, ms]) => [name, count(Math.min(due_within(wheel, ms), wheel.size))]));
  find("due-words").textContent = "Counted by whole buckets.";
}

/* The keys that fail for longest; nothing, if none fails. */
function show_doubt(found) {
  find("doubt").hidden = !found?.longest.length;
  if (find("doubt").hidden) return;
  find("doubt-words").textContent =
    `${count(found.keys)} in doubt. ` +
    `${count(found.spare_places_taken)} of ${count(found.spare_places)} spare places are taken. These have failed for longest` +
    (found.is_complete ? "." : ", among the 50,000 messages that were accepted first.");
  find("doubt-rows").replaceChildren(...found.longest.map((it) => {
    const cells = [["since", it.since], ["failed sends", count(it.fails)], ["next try", it.is_paused ? "paused" : it.next_try], ["error", short(it.last_error ?? "", 300)]];
    const name = it.key === null ? `message ${short(it.id)}` : short(it.key);
    return make("tr", {}, make("th", { scope: "row" }, name), ...cells.map(([title, text]) => make("td", { "data-name": title }, text)));
  }));
}

/* The figures of `tickwheel serve`. */
function show_service(figures, rates) {
  const { due, due_most, states, counts } = figures;
  const upTo = (number) => (number >= due_most ? `${count(due_most)} and more` : count(number));
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
    ["dead letters", count(counts.dead_letters)],
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
  find("flow-words").textContent = `Accepted to dead letters are counted ${since(figures.since_ms)}, when this process began. The lists have what was before.`;
  show_doubt(figures.in_doubt);
  const { destination, paused, paused_keys } = figures;
  const keys = paused_keys ? ` ${count(paused_keys)} ${paused_keys === 1 ? "key is" : "keys are"} paused.` : "";
  if (paused) status(`Paused: messages are accepted, and nothing is sent.${keys}`, "ill");
  else if (!destination.up) status(`The destination is down ${since(destination.changed_ms)}: ${short(destination.reason)}.${keys}`, "ill");
  else status(`Delivering. The destination is up ${since(destination.changed_ms)}.${keys}`, "well");
  const button = find("pause");
  button.textContent = paused ? "Resume sending" : "Pause sending";
  button.dataset.path = paused ? "/resume" : "/pause";
}
