// The script of every page: follow new snapshots, show times in the reader's time zone, handle keyboard shortcuts.

// twin:snapshot comes with every snapshot; twin:tick at most every two seconds, for blocks that are loaded again.
export const onSnapshot = (act) => document.body.addEventListener("twin:snapshot", oneAtATime(act));
export const onTick = (act) => document.body.addEventListener("twin:tick", act);
const TICK_MS = 2000;

// A snapshot that comes while its picture is still loading is drawn afterwards, once: requests do not pile up.
function oneAtATime(act) {
  let busy = false;
  let again = false;
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    try {
      while (again) {
        again = false;
        await act();
      }
    } finally {
      busy = false;
    }
  };
}

export async function load(path) {
  const answer = await fetch(path, { headers: { Accept: "application/json" } });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

export function toast(text) {
  const place = document.getElementById("toast");
  place.textContent = text;
  place.hidden = false;
  clearTimeout(toast.timer);
  toast.timer = setTimeout(() => { place.hidden = true; }, 4000);
}

// --- times: the server writes UTC, the page shows local time ---
const FORMS = {
  clock: { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
  both: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" },
};
function localise(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    if (!time.dateTime || time.dataset.done === time.dateTime) continue;
    time.textContent = new Date(time.dateTime).toLocaleString([], FORMS[time.dataset.form] || FORMS.both);
    time.title = time.dateTime;
    time.dataset.done = time.dateTime;
  }
}

// A tick that comes too soon is delayed, not dropped, so the last snapshot of a burst is shown.
let ticked = -TICK_MS;
let later = 0;
function tick() {
  const wait = ticked + TICK_MS - performance.now();
  if (wait > 0) {
    later ||= setTimeout(() => { later = 0; tick(); }, wait);
    return;
  }
  ticked = performance.now();
  document.body.dispatchEvent(new Event("twin:tick"));
}

function showProblems(problems) {
  const place = document.getElementById("problems");
  if (problems.join("\n") === [...place.children].map((notice) => notice.textContent).join("\n")) return;
  place.replaceChildren(...problems.map((text) => {
    const notice = document.createElement("article");
    notice.className = "notice";
    notice.textContent = text;
    return notice;
  }));
}

function showEnded(ended) {
  const place = document.getElementById("ended");
  if (Boolean(place.firstElementChild) === ended) return;
  const notice = document.createElement("article");
  notice.className = "notice calm";
  notice.textContent = "The replay has ended. The pages show the last second of the recording.";
  place.replaceChildren(...(ended ? [notice] : []));
  if (ended) document.getElementById("replay")?.remove();
}

function phaseOf(snapshot) {
  return snapshot.shadow && snapshot.phase === "watching" ? "shadow" : snapshot.phase;
}

// --- the stream of snapshots: a page that loses it says so ---
function listen() {
  const phase = document.getElementById("phase");
  const stream = new EventSource("/api/v1/stream");
  stream.addEventListener("snapshot", (message) => {
    const snapshot = JSON.parse(message.data);
    const now = document.getElementById("now");
    phase.dataset.state = snapshot.replay_ended ? "replay-ended" : phaseOf(snapshot);
    phase.textContent = snapshot.replay_ended ? "replay ended" : snapshot.phase === "warming-up" && snapshot.ready_in_s !== null ? `warming up, ${snapshot.ready_in_s} s` : phaseOf(snapshot).replace("-", " ");
    now.dateTime = new Date(snapshot.now_s * 1000).toISOString();
    const count = document.getElementById("open-count");
    count.textContent = snapshot.open_events;
    count.hidden = !snapshot.open_events;
    showProblems(snapshot.problems);
    showEnded(snapshot.replay_ended);
    if (!snapshot.shadow) document.getElementById("shadow")?.remove();
    localise(document);
    document.body.dispatchEvent(new Event("twin:snapshot"));
    tick();
  });
  stream.addEventListener("error", () => {
    phase.dataset.state = "lost";
    phase.textContent = "connection lost";
  });
  window.addEventListener("pagehide", () => stream.close());
}

// --- rows and keys ---
const rows = () => [...document.querySelectorAll("tbody tr[data-href]")];
function move(step) {
  const all = rows();
  if (!all.length) return;
  const at = all.findIndex((row) => row.classList.contains("here"));
  const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
  all[at]?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
}

let before = "";
function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const link = document.querySelector(`nav a[data-key="${CSS.escape(before)} ${CSS.escape(event.key)}"]`);
  const here = document.querySelector("tbody tr.here");
  const first = before;
  before = event.key;
  if (link && first === "g") link.click();
  else if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
  else if (event.key === "Enter" && here) window.location.assign(here.dataset.href);
  else if (event.key === "x" && here) here.querySelector("input[type=checkbox]")?.click();
  else if (event.key === "t") document.querySelector("[data-theme-switch]").click();
  else if (event.key === "?") document.getElementById("help").showModal();
  else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
  else {
    const button = document.querySelector(`button[data-press="${CSS.escape(event.key)}"]:not([disabled])`);
    if (!button) return;
    button.click();
  }
  event.preventDefault();
}

function click(event) {
  if (event.target.closest("[data-help]")) document.getElementById("help").showModal();
  if (event.target.closest("[data-close]")) event.target.closest("dialog").close();
  if (event.target.matches("[data-mark-all]")) {
    for (const box of document.querySelectorAll("tbody input[name=event]")) box.checked = event.target.checked;
    document.body.dispatchEvent(new Event("twin:marked"));
  }
  const row = event.target.closest("tr[data-href]");
  if (row && !event.target.closest("a, button, input, label")) window.location.assign(row.dataset.href);
}

document.addEventListener("keydown", press);
document.addEventListener("click", click);
// A text that its column cuts is shown whole under the pointer.
document.addEventListener("mouseover", ({ target }) => {
  const cut = target.closest?.(".cut:not([title])");
  if (cut && cut.scrollWidth > cut.clientWidth) cut.title = cut.textContent;
});
document.addEventListener("htmx:afterSettle", (event) => localise(event.target.parentElement || document));
// An error with HTML is the block that was asked for, with a sentence in it: show it in its place. A 404 is a page: the
// job or the node of this page has gone, and the page keeps its last state.
document.addEventListener("htmx:beforeSwap", (event) => {
  const { xhr } = event.detail;
  if (xhr.status < 400 || xhr.status === 404 || !(xhr.getResponseHeader("Content-Type") || "").startsWith("text/html")) return;
  event.detail.shouldSwap = true;
  event.detail.isError = false;
});
document.addEventListener("htmx:responseError", (event) => {
  const { status } = event.detail.xhr;
  let reason = status === 404 ? "no longer there; the page shows its last state" : `the service answered ${status}`;
  try { reason = JSON.parse(event.detail.xhr.responseText).detail || reason; } catch { /* not JSON: show the status */ }
  toast(typeof reason === "string" ? reason : JSON.stringify(reason));
});
document.addEventListener("htmx:sendError", () => toast("the service does not answer"));
localise(document);
listen();
