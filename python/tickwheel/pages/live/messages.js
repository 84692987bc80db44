// Lists of messages and dead letters, one message, and what may be done with it.
"use strict";

/* In the query, as browsers and proxies change paths: ".." and "//". */
function path_of(id, key) {
  return `/message?id=${encodeURIComponent(id)}${key === null ? "" : `&key=${encodeURIComponent(key)}`}`;
}

/* What a browser writes of a time in UTC leaves out the seconds where they are 0. */
const due_text = (local) => `${local.length === "2026-01-01T00:00".length ? `${local}:00` : local}Z`;

/* A payload over several lines: each as it can be told from others. */
const lines = (text) => text.slice(0, 20_000).split("\n").map(shown).join("\n") + (text.length > 20_000 ? "…" : "");

const REFRESH_MS = 5000;
const AT_ONCE = isWide ? 20 : 10;
const MOST_LOOKS = 10;

class Messages {
  constructor() {
    this.rows = find("rows");
    this.query = null; // of the list that is shown, without a cursor
    this.cursor = null; // of the next page
    this.pages = 0; // that are shown
    this.has_answer = false; // to the list that was asked for last, be it an error
    this.found = ""; // the first page, as text
    this.page_number = 0; // of the last list that was asked for: the answer of an earlier one is not shown
    this.shown = null; // the name of the message that is shown
    this.cell = null; // its state in the list
    this.may_control = false;
    this.on("find", "submit", (form) => this.open(form.get("id"), form.get("key") || null));
    this.on("list", "submit", (form) => this.list(form));
    this.on("reschedule", "submit", (form) => this.change("PATCH", { due: due_text(form.get("due")) }, "rescheduled"));
    this.on("more", "click", () => this.page());
    this.on("cancel", "click", () => this.change("DELETE", undefined, "cancelled"));
    this.on("requeue", "click", () => this.try_again());
    this.on("requeue-all", "click", () => this.try_all_again());
    this.on("pause", "click", () => this.pause());
    find("close").addEventListener("click", () => find("message").close());
    find("message").addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
    addEventListener("hashchange", () => this.open_linked());
    setInterval(() => this.refresh(), REFRESH_MS);
    document.addEventListener("click", ({ target }) => {
      const link = target.closest("[data-list]");
      if (link) this.show_all(link.dataset.list, link.dataset.destination);
    });
    find("list").elements.state.addEventListener("change", () => this.show_filters());
  }

  /* What a handler throws is shown where the reader looks. */
  on(id, event, handle) {
    find(id).addEventListener(event, async (happened) => {
      happened.preventDefault();
      const answer = find(id === "pause" ? "pause-answer" : find("message").open ? "message-answer" : "answer");
      this.say(answer, "");
      try {
        await handle(event === "submit" ? new FormData(happened.target) : null);
      } catch (error) {
        if (error.status === 401) find("ask-token").hidden = false;
        this.say(answer, error.name === "TimeoutError" ? "There is no answer: close other pages of this service." : error.message, true);
      }
    });
  }

  say(line, text, isBad = false) {
    line.textContent = text;
    line.classList.toggle("bad", isBad);
  }

  async list(form) {
    const state = form.get("state");
    this.query = new URLSearchParams(state === "letters" ? { limit: AT_ONCE } : { state, limit: AT_ONCE });
    if (state !== "letters") {
      for (const name of ["key", "destination", "until"]) if (form.get(name)) this.query.set(name, form.get(name));
      for (const name of ["due_from", "due_before"]) if (form.get(name)) this.query.set(name, due_text(form.get(name)));
    }
    this.state = state;
    this.cursor = null;
    this.pages = 0;
    this.rows.tBodies[0].replaceChildren();
    this.head();
    await this.page();
  }

  /* The list of this state, without filters; or what is due by now of this destination. */
  show_all(state, destination = "") {
    const form = find("list");
    form.reset();
    form.elements.state.value = state;
    form.elements.destination.value = destination;
    if (destination && state === "waiting") form.elements.due_before.value = utc(Date.now() + server.ahead_ms).slice(0, 19);
    this.show_filters();
    form.requestSubmit();
  }

  /* Those that the list can have: with its outcome a destination is forgotten, but for dead letters. */
  show_filters() {
    const { state, destination, until } = find("list").elements;
    for (const filter of document.querySelectorAll("#list .filter")) filter.hidden = state.value === "letters";
    until.closest("label").hidden = until.disabled = !["waiting", "remembered"].includes(state.value);
    destination.closest("label").hidden = destination.disabled = ["delivered", "cancelled", "letters", "remembered"].includes(state.value);
  }

  head() {
    const names = this.state === "letters" ? ["Since", "Source", "Reason", "Record"] : ["Id", "Key", "Due", "State"];
    this.rows.tHead.rows[0].replaceChildren(...names.map((name) => make("th", { scope: "col" }, name)));
    this.names = names;
  }

  async page() {
    const number = ++this.page_number;
    find("more").disabled = true;
    this.has_answer = false;
    const found = await this.asked(this.cursor).finally(() => {
      if (number !== this.page_number) return;
      this.has_answer = true;
      find("more").disabled = false;
    });
    if (number !== this.page_number) return;
    this.pages += 1;
    if (this.pages === 1) this.found = JSON.stringify(found);
    this.put(found);
  }

  /* One look of the service may find fewer than there are: some more are made. */
  async asked(cursor) {
    const [path, name, query] = this.state === "letters" ? ["/dead", "letters", this.query] : ["/messages", "messages", this.query];
    const found = { [name]: [], next: cursor };
    for (let look = 0; look < MOST_LOOKS; look += 1) {
      const part = await ask("GET", `${path}?${query}${found.next === null ? "" : `&cursor=${encodeURIComponent(found.next)}`}`);
      found[name].push(...part[name].filter((it) => it.source !== "delivery"));
      found.next = part.next;
      if (found.next === null || found[name].length >= AT_ONCE) break;
    }
    return found;
  }

  /* Shows the first page as it is now, unless the reader is at work in it. */
  async refresh() {
    const isAtWork = this.pages > 1 || find("message").open || find("sure").open || this.rows.contains(document.activeElement);
    if (!this.has_answer || isAtWork || !find("list").elements.follow.checked || document.hidden || document.body.classList.contains("stale")) return;
    if (!this.pages) return this.page().catch(() => null); // the first answer was an error, which is still shown
    const number = this.page_number;
    const found = await this.asked(null).catch(() => null); // the line of the status says why there is no answer
    const text = JSON.stringify(found);
    if (found === null || number !== this.page_number || this.pages !== 1 || text === this.found) return;
    this.found = text;
    this.rows.tBodies[0].replaceChildren();
    this.put(found);
  }

  put(found) {
    const rows = this.state === "letters" ? found.letters.map((it) => this.letter(it)) : this.state === "dead" ? this.by_error(found.messages) : found.messages.map((it) => this.message(it));
    this.rows.tBodies[0].append(...rows);
    const all = this.rows.tBodies[0].rows.length;
    this.rows.hidden = !all;
    this.cursor = found.next;
    find("more").hidden = found.next === null;
    const what = { letters: "refused records", dead: "dead letters", remembered: "remembered events" }[this.state] ?? "messages";
    const none = found.next === null ? `There are no such ${what}.` : `None of the ${what} that were looked at so far. Show more looks at more.`;
    this.say(find("answer"), all ? `${count(all)} ${what}${found.next === null ? "." : ", and there may be more."}` : none);
    find("requeue-all").hidden = !(this.may_control && this.state === "dead" && all);
  }

  /* Dead letters with the same error stand together, and the first of them has it. */
  by_error(messages) {
    const groups = new Map();
    for (const row of messages.map((it) => this.message(it))) {
      const text = row.lastChild.firstChild.textContent;
      groups.set(text, [...(groups.get(text) ?? []), row]);
    }
    for (const [, ...others] of groups.values()) for (const row of others) row.lastChild.firstChild.replaceChildren(make("span", { class: "quiet" }, "the same"));
    for (const [first, ...others] of groups.values()) if (others.length) first.lastChild.prepend(make("b", {}, `${count(others.length + 1)} of these: `));
    return [...groups.values()].flat();
  }

  row(first, ...others) {
    const cells = others.map((value, index) => make("td", { "data-name": this.names[index + 1] }, value));
    return make("tr", {}, make("th", { scope: "row" }, first), ...cells);
  }

  message(seen) {
    const link = make("a", { href: `#${new URLSearchParams(seen.key === null ? { id: seen.id } : { id: seen.id, key: seen.key })}` }, short(seen.id));
    link.addEventListener("click", () => (this.clicked = row.lastChild));
    const more = [
      seen.event_name && `the event ${seen.event_name}`,
      seen.destination && `to ${seen.destination}`,
      seen.rule && (seen.rule.cron ? `${seen.rule.cron} in ${seen.rule.tz}` : `every ${duration(seen.rule.every)}`),
      seen.attempts && !seen.last_error?.startsWith("gave up") && `${count(seen.attempts)} ${seen.attempts === 1 ? "attempt" : "attempts"}`,
      seen.lateness_ms !== null && `${seen.lateness_ms} ms late`,
      seen.last_error,
    ].filter(Boolean);
    const state = make("span", {}, short([seen.state, ...more].join("; "), 300));
    const row = this.row(link, seen.key === null ? "none" : short(seen.key), seen.due ? when(seen.due) : "no more", state);
    if (this.may_control && ["dead", "expired"].includes(seen.state)) row.lastChild.append(" ", this.again(seen, row.lastChild));
    return row;
  }

  /* The button that tries this dead letter again. */
  again({ id, key }, cell) {
    const button = make("button", { type: "button", class: "small" }, "Try again");
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        cell.textContent = (await ask("POST", "/requeue", { id, key })).state;
      } catch (error) {
        button.disabled = false;
        this.say(find("answer"), error.message, true);
      }
    });
    return button;
  }

  letter(seen) {
    return this.row(when(seen.at), `${seen.source}, ${count(seen.line)}`, short(`${seen.reason} (allowed: ${seen.allowed})`, 400), short(seen.record, 300));
  }

  /* The message that the address names. */
  async open_linked() {
    const named = new URLSearchParams(location.hash.slice(1));
    const [cell, id] = [this.clicked ?? null, named.get("id")];
    this.clicked = null;
    if (id === null) return;
    this.say(find("answer"), "");
    await this.open(id, named.get("key"), cell).catch((error) => this.say(find("answer"), error.message, true));
  }

  async open(id, key, cell = null) {
    const found = await ask("GET", path_of(id, key), undefined, exact);
    this.shown = { id, key };
    this.cell = cell;
    find("message-title").textContent = short(id);
    const values = Object.entries(found).filter(([name, value]) => value !== null && name !== "id" && (name !== "redelivered" || value));
    const text = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 1));
    find("details").replaceChildren(...values.map(([name, value]) => make("div", {},
      make("dt", {}, name.replaceAll("_", " ")), make("dd", {}, name === "payload" ? make("pre", {}, lines(text(value))) : short(text(value), 2000)))));
    this.say(find("message-answer"), found.state === "unknown" ? "There is no such message. One with a key is found by its id and its key." : "");
    const waits = ["waiting", "recurring"].includes(found.state);
    find("cancel").hidden = !(this.may_control && waits);
    find("reschedule").hidden = !(this.may_control && found.state === "waiting");
    find("requeue").hidden = !(this.may_control && ["dead", "expired"].includes(found.state));
    if (found.due) find("reschedule").elements.due.value = found.due.replace("Z", "");
    if (!find("message").open) find("message").showModal();
  }

  async change(method, body, done) {
    const { id, key } = this.shown;
    if (method === "DELETE" && !(await this.is_sure(`Cancel the message ${short(id)}?`))) return;
    const { state } = await ask(method, path_of(id, key), body);
    await this.after(state, done);
  }

  async try_again() {
    const { state } = await ask("POST", "/requeue", this.shown);
    await this.after(state, "requeued");
  }

  /* The answer, and the message as it is now. */
  async after(state, done) {
    if (this.cell) this.cell.textContent = state;
    await this.open(this.shown.id, this.shown.key, this.cell);
    if (!find("message").contains(document.activeElement)) find("close").focus();
    this.say(find("message-answer"), state === done ? `It is ${state}.` : `Too late, or not possible: it is ${state}.`, state !== done);
  }

  async try_all_again() {
    const which = Object.fromEntries([...this.query].filter(([name]) => ["key", "destination", "due_from", "due_before"].includes(name)));
    const words = Object.entries(which).map(([name, value]) => `${name.replace("_", " ")} ${short(value)}`);
    if (!(await this.is_sure(`Try all messages again that were given up${words.length ? `: ${words.join(", ")}` : ""}?`))) return;
    const { id } = await ask("POST", "/actions", { kind: "requeue", ...(words.length ? which : { all: true }) });
    this.say(find("answer"), `The action ${id} has begun. It goes on beside delivery.`);
  }

  async pause() {
    const path = find("pause").dataset.path ?? "/pause";
    if (path === "/pause" && !(await this.is_sure("Pause sending? Messages are accepted, and wait until sending is resumed, also after a restart."))) return;
    await ask("POST", path);
  }

  is_sure(question) {
    const sure = find("sure");
    find("sure-words").textContent = question;
    sure.returnValue = "no";
    sure.showModal();
    return new Promise((answer) => sure.addEventListener("close", () => answer(sure.returnValue === "yes"), { once: true }));
  }
}
