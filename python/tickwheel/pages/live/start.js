// Connects the parts: a service, or a timer.
"use strict";

const about = JSON.parse(find("page").textContent);
const wheel = new Wheel(find("wheel"), find("levels"), find("front"));
const lateness = new Lateness(find("lateness"), find("late-words"));
const rates = new Rates();
for (const part of document.querySelectorAll("details.fold")) part.open = about.kind === "timer" || isWide;
find("levels-part").open = about.kind === "timer";
const doubt = new Doubt();

function show_frame(frame) {
  if (frame.wheel) {
    wheel.show(frame.wheel);
    if (about.kind !== "service") show_due_of_wheel(frame.wheel);
  }
  if (frame.load) show_load(frame.load);
  if (frame.counts) {
    const show = about.kind === "service" ? show_service : show_timer;
    show(frame, rates.per_s(frame.at_ms, frame.counts));
    if (about.kind !== "service") document.body.classList.add("loaded"); // the counts come after the wheel
  }
}

function follow() {
  const messages = about.kind === "service" ? new Messages() : null;
  if (messages) {
    lateness.of = "messages";
    wheel.note = " A task of this wheel is a millisecond in which messages are due; what is due later waits in the store.";
  }
  const ask_token = find("ask-token");
  ask_token.addEventListener("click", () => ask_for_token("Give one that may read."));

  let isOutdated = false;
  const handle = (event, data) => {
    if (event === "hello") {
      isOutdated = Boolean(data.version && data.version !== about.version);
      if (isOutdated) {
        document.body.classList.add("stale", "loaded");
        return status("The service has another version now: load the page again.", "ill");
      }
      ask_token.hidden = true;
      document.body.classList.remove("stale");
      if (data.store) {
        document.querySelector("h1 bdi").textContent = shown(data.store);
        find("to").textContent = data.to ? `→ ${shown(data.to)}` : "";
        document.title = `${shown(data.store)} – tickwheel`;
      }
      rates.frames = [];
      lateness.before = null;
      if (messages) {
        messages.may_control = doubt.may_control = data.rights.includes("control");
        if (!messages.query) {
          find("list").requestSubmit();
          messages.open_linked();
        }
      }
      for (const part of document.querySelectorAll("[data-right]:not(#message *, #requeue-all)"))
        part.hidden = !data.rights.includes(part.dataset.right);
      if (about.kind === "timer") status(`Watching the timer ${data.name}.`, "well");
    } else if (isOutdated) {
      return;
    } else if (event === "gone") {
      status("The timer is shut down.", "ill");
      document.body.classList.add("loaded");
    } else if (event === "failed") {
      status(`The store can't be read: ${data.reason}.`, "ill");
      document.body.classList.add("loaded");
    } else {
      if (data.lateness_us) lateness.add(data.at_ms, data.lateness_us);
      show_frame(data);
      if (data.counts && messages?.has_answer) document.body.classList.add("loaded");
    }
  };
  const lost = async (error, again_s) => {
    document.body.classList.add("stale");
    if (error.status === 401 || error.status === 403) {
      status(`Not connected: ${error.message}.`, "ill");
      ask_token.hidden = false;
      sessionStorage.removeItem(TOKEN);
      await ask_for_token(`The server says: ${error.message}.`);
      if (sessionStorage.getItem(TOKEN)) return "now";
      return new Promise((go) => (has_token = () => go("now")));
    }
    status(`No connection: ${error.message}. The next attempt is in ${again_s} s.`, "ill");
  };
  stream("/events", handle, lost);
}

let has_token = () => {};

/* Asks until there is one, or the reader does not want to. */
function ask_for_token(words) {
  const dialog = find("token");
  if (dialog.open) return Promise.resolve();
  find("token-words").textContent = words;
  dialog.querySelector("input").value = "";
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => {
    const given = dialog.querySelector("input").value.trim();
    if (dialog.returnValue === "use" && !is_token(given)) return done(ask_for_token("A token has letters, digits and signs only: type it, or copy it again."));
    if (dialog.returnValue === "use") {
      sessionStorage.setItem(TOKEN, given);
      has_token();
    }
    done();
  }, { once: true }));
}

follow();
