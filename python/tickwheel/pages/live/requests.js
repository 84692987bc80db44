// Asks the server: single requests, and the stream of what happens. A token stays in this tab.
"use strict";

const TOKEN = "tickwheel-token";

class Problem extends Error {
  constructor(status, { reason = `status ${status}`, allowed = "" } = {}) {
    super(allowed ? `${reason} (allowed: ${allowed})` : reason);
    this.status = status;
  }
}

const WITHIN_MS = 30_000;
const is_token = (text) => /^[\x21-\x7e]+$/.test(text);

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token && is_token(token) ? { authorization: `Bearer ${token}` } : {};
}

/* For payloads: numbers stay as they are written, also those with twenty digits, where the browser can do that. */
function exact(_, value, context) {
  const isOther = typeof value === "number" && context?.source !== undefined && String(value) !== context.source;
  return isOther && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

/* Below the page's own address, as a proxy may give it a prefix. */
const below = (path) => `.${path}`;

/* The answer's JSON, whatever its status below 500 says of a message. Errors: Problem, TypeError without a connection. */
async function ask(method, path, body, reviver) {
  const options = { method, headers: headers(), cache: "no-store", signal: AbortSignal.timeout(WITHIN_MS) };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const answer = await fetch(below(path), options);
  const value = parsed(await answer.text(), reviver);
  if (!answer.ok && !("state" in value)) throw new Problem(answer.status, value);
  return value;
}

function parsed(text, reviver) {
  try {
    return JSON.parse(text, reviver);
  } catch {
    return {};
  }
}

/* Resolves when the page can be seen: a browser has six connections to a server, for all pages together. */
function seen() {
  if (!document.hidden) return Promise.resolve();
  return new Promise((go) => document.addEventListener("visibilitychange", go, { once: true })).then(seen);
}

/* Calls `handle(event, data)` for each event, for ever; `lost(error, again_s)` when the connection is lost. */
async function stream(path, handle, lost) {
  for (let wait_s = 1; ; wait_s = Math.min(wait_s * 2, 10)) {
    await seen();
    const leaving = new AbortController();
    const leave = () => document.hidden && leaving.abort();
    document.addEventListener("visibilitychange", leave);
    try {
      const answer = await fetch(below(path), { headers: headers(), cache: "no-store", signal: leaving.signal });
      if (!answer.ok) throw new Problem(answer.status, parsed(await answer.text()));
      let text = "";
      for (const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const [name, data] = event.split("\n");
          handle(name.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
        }
        wait_s = 1;
      }
      throw new Error("the server has ended the connection");
    } catch (error) {
      if (leaving.signal.aborted) continue;
      if ((await lost(error, wait_s)) !== "now") await new Promise((go) => setTimeout(go, wait_s * 1000));
    } finally {
      document.removeEventListener("visibilitychange", leave);
    }
  }
}
