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

class Messages {
  constructor() {
    this.rows = find("rows");
    this.query = null; // the list that is shown
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
    find("list").elements.state.addEventListener("change", ({ target }) => {
      for (const filter of document.querySelectorAll("#list .filter")) filter.hidden = target.value === "letters";
    });
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
        if (error.status === 401) find("ask-token").hidden = find("ask-token").parentElement.hidden = false;
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
    this.query = new URLSearchParams(state === "letters" ? { limit: 50 } : { state, limit: 50 });
    if (state !== "letters") {
      if (form.get("key")) this.query.set("key", form.get("key"));
      for (const name of ["due_from", "due_before"]) if (form.get(name)) this.query.set(name, due_text(form.get(name)));
    }
    this.state = state;
    this.rows.tBodies[0].replaceChildren();
    this.head();
    await this.page();
  }

  head() {
    const names = this.state === "letters" ? ["Since", "Source", "Reason", "Record"] : ["Id", "Key", "Due", "State"];
    this.rows.tHead.rows[0].replaceChildren(...names.map((name) => make("th", { scope: "col" }, name)));
    this.names = names;
  }

  async page() {
    const number = ++this.page_number;
    find("more").disabled = true;
    const found = await ask("GET", `${this.state === "letters" ? "/dead" : "/messages"}?${this.query}`).finally(() => (find("more").disabled = false));
    if (number !== this.page_number) return;
    const rows = this.state === "letters" ? found.letters.map((it) => this.letter(it)) : found.messages.map((it) => this.message(it));
    this.rows.tBodies[0].append(...rows);
    const all = this.rows.tBodies[0].rows.length;
    this.rows.hidden = !all;
    find("more").hidden = found.next === null;
    if (found.next !== null) this.query.set("cursor", found.next);
    const what = this.state === "letters" ? "dead letters" : "messages";
    const none = found.next === null ? `There are no such ${what}.` : `None of the ${what} that were looked at so far. Show more looks at more.`;
    this.say(find("answer"), all ? `${count(all)} ${what}${found.next === null ? "." : ", and there may be more."}` : none);
    find("requeue-all").hidden = !(this.may_control && this.state === "dead" && all);
  }

  row(first, ...others) {
    const cells = others.map((value, index) => make("td", { "data-name": this.names[index + 1] }, value));
    return make("tr", {}, make("th", { scope: "row" }, first), ...cells);
  }

  message(seen) {
    const open = make("button", { type: "button" }, short(seen.id));
    open.addEventListener("click", () => this.open(seen.id, seen.key, row.lastChild).catch((error) => this.say(find("answer"), error.message, true)));
    const more = [
      seen.rule && (seen.rule.cron ? `${seen.rule.cron} in ${seen.rule.tz}` : `every ${duration(seen.rule.every)}`),
      seen.attempts && `${count(seen.attempts)} ${seen.attempts === 1 ? "attempt" : "attempts"}`,
      seen.lateness_ms !== null && `${seen.lateness_ms} ms late`,
      seen.last_error,
    ].filter(Boolean);
    const row = this.row(open, seen.key === null ? "none" : short(seen.key), seen.due ?? "no more", short([seen.state, ...more].join("; "), 300));
    return row;
  }

  letter(seen) {
    return this.row(seen.at, `${seen.source}, ${count(seen.line)}`, short(`${seen.reason} (allowed: ${seen.allowed})`, 400), short(seen.record, 300));
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
    const which = Object.fromEntries([...this.query].filter(([name]) => ["key", "due_from", "due_before"].includes(name)));
    const words = Object.entries(which).map(([name, value]) => `${name.replace("_", " ")} ${short(value)}`);
    if (!(await this.is_sure(`Try all messages again that were given up${words.length ? `: ${words.join(", ")}` : ""}?`))) return;
    const { id } = await ask("POST", "/actions", { kind: "requeue", ...(words.length ? which : { all: true }) });
    this.say(find("answer"), `The action ${id} has begun. It goes on beside delivery: show the list again to see what is left.`);
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
