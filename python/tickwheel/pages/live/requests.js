// Asks the server: single requests, and the stream of what happens. A token stays in this tab.
"use strict";

const TOKEN = "tickwheel-token";

class Problem extends Error {
  constructor(status, { reason = `status ${status}`, allowed = "" } = {}) {
    super(allowed ? `${reason} (allowed: ${allowed})` : reason);
    this.status = status;
  }
}

function headers() {
  const token = sessionStorage.getItem(TOKEN);
  return token ? { authorization: `Bearer ${token}` } : {};
}

/* The answer's JSON, whatever its status below 500 says of a message. Errors: Problem, TypeError without a connection. */
async function ask(method, path, body) {
  const options = { method, headers: headers(), cache: "no-store" };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  const answer = await fetch(path, options);
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok && !("state" in value)) throw new Problem(answer.status, value);
  return value;
}

/* Calls `handle(event, data)` for each event, for ever; `lost(error, again_s)` when the connection is lost. */
async function stream(path, handle, lost) {
  for (let wait_s = 1; ; wait_s = Math.min(wait_s * 2, 10)) {
    try {
      const answer = await fetch(path, { headers: headers(), cache: "no-store" });
      if (!answer.ok) throw new Problem(answer.status, await answer.json().catch(() => ({})));
      let text = "";
      for (const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader(); ; ) {
        const { value, done } = await reader.read();
        if (done) break;
        text += value;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const [, name, data] = /^event: (.*)\ndata: (.*)$/.exec(event);
          handle(name, JSON.parse(data));
        }
        wait_s = 1;
      }
      throw new Error("the server has ended the connection");
    } catch (error) {
      if ((await lost(error, wait_s)) !== "now") await new Promise((go) => setTimeout(go, wait_s * 1000));
    }
  }
}
