// Draw a schedule on a canvas and let the reader zoom, move and select: columns of jobs -> boxes, lines, a key.
"use strict";
const facts = JSON.parse(document.getElementById("schedule").textContent);
const column = Object.fromEntries(Object.entries(facts.columns).map(([name, text]) => [name, numbers(text)]));
const n = column.id.length;
for (const name of ["id", "submit_s"]) for (let i = 1; i < n; i++) column[name][i] += column[name][i - 1];
const start_s = column.submit_s.map((time, i) => time + column.wait_s[i]);
const end_s = start_s.map((time, i) => time + column.run_s[i]);
const firstBox = new Uint32Array(n + 1);
for (let i = 0; i < n; i++) firstBox[i + 1] = firstBox[i] + column.boxes[i];
const byStart = Uint32Array.from(start_s.keys()).sort((a, b) => start_s[a] - start_s[b] || a - b);

// Whole numbers from variable-length bytes. No shifts: times may exceed 32 bits.
function numbers(text) {
  const bytes = atob(text), values = [];
  for (let i = 0, value = 0, unit = 1; i < bytes.length; i++) {
    const byte = bytes.charCodeAt(i);
    value += (byte & 127) * unit;
    unit *= 128;
    if (byte & 128) continue;
    values.push(value % 2 ? -(value + 1) / 2 : value / 2);
    value = 0;
    unit = 1;
  }
  return Float64Array.from(values);
}

// Processors in use and jobs waiting, from each moment on; with their integrals, for means over a pixel.
function loads() {
  const events = [];
  for (let i = 0; i < n; i++) events.push([column.submit_s[i], 0, 1], [start_s[i], column.size[i], -1], [end_s[i], -column.size[i], 0]);
  events.sort((a, b) => a[0] - b[0]);
  const times = [], used = [], waiting = [], usedArea = [];
  let procs = 0, jobs = 0;
  for (const [time, more, queued] of events) {
    const last = times.length - 1;
    if (last < 0 || times[last] !== time) {
      usedArea.push(last < 0 ? 0 : usedArea[last] + procs * (time - times[last]));
      times.push(time); used.push(0); waiting.push(0);
    }
    procs += more; jobs += queued;
    used[times.length - 1] = procs; waiting[times.length - 1] = jobs;
  }
  return { times, used, waiting, usedArea };
}
const load = loads();
const mostWaiting = load.waiting.reduce((most, count) => Math.max(most, count), 1);

// The last moment at or before a time, or -1.
function momentAt(time) {
  let low = 0, high = load.times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (load.times[middle] <= time) low = middle + 1; else high = middle;
  }
  return low - 1;
}
const usedUntil = (time) => { const at = momentAt(time); return at < 0 ? 0 : load.usedArea[at] + load.used[at] * (time - load.times[at]); };

// --- colours and their key ---
const PALETTE = ["#3b82c4", "#d9713c", "#4aa564", "#b05fb5", "#c9a227", "#2fa8a8", "#d4577a", "#8a7a66", "#7a86d8", "#84a83a"];
const OTHER = "#98a1ab";
const WAITS = [[60, "at most 1 min", "#5aa9d6"], [600, "10 min", "#4aa564"], [3600, "1 h", "#a9b53a"], [21600, "6 h", "#dba32c"], [86400, "1 day", "#d9713c"], [Infinity, "longer", "#b8365f"]];
const userName = (code) => facts.users[code] ?? (code < 0 ? "unknown user" : `user ${code}`);
const area = new Map();
for (let i = 0; i < n; i++) area.set(column.user[i], (area.get(column.user[i]) ?? 0) + column.size[i] * column.run_s[i]);
const largest = [...area.keys()].sort((a, b) => area.get(b) - area.get(a)).slice(0, PALETTE.length);
const rank = new Map(largest.map((code, place) => [code, place]));
const classes = {
  user: {
    of: (i) => rank.get(column.user[i]) ?? PALETTE.length,
    entries: [...largest.map((code, place) => [PALETTE[place], userName(code)]),
      ...(area.size > largest.length ? [[OTHER, `${area.size - largest.length} other users`]] : [])],
  },
  wait: { of: (i) => WAITS.findIndex(([most]) => column.wait_s[i] <= most), entries: WAITS.map(([, name, colour]) => [colour, name]) },
};
let colouring = "user", only = -1;
let classOf = Uint8Array.from({ length: n }, (_, i) => classes.user.of(i));

function writeKey() {
  const key = document.getElementById("key");
  key.replaceChildren(...classes[colouring].entries.map(([colour, name], place) => {
    const button = document.createElement("button"), swatch = document.createElement("i");
    swatch.style.background = colour;
    button.type = "button";
    button.append(swatch, name);
    button.setAttribute("aria-pressed", String(only === place));
    button.addEventListener("click", () => { only = only === place ? -1 : place; writeKey(); redraw(); });
    return button;
  }));
  key.prepend(colouring === "user" ? "processors, by user: " : "processors, by wait: ");
}

// --- the view ---
const canvas = document.getElementById("chart"), context = canvas.getContext("2d");
const whole = [facts.view_s[0], Math.max(facts.view_s[1], facts.view_s[0] + 1)];
let [from, to] = whole, low = 0, high = facts.procs, selected = -1, dragged = null, due = false;
const plot = { left: 64, right: 12, top: 6, gap: 26, axis: 24 };
const box = { width: 0, height: 0, jobs: [0, 0], used: [0, 0], queue: [0, 0] };
const x = (time) => plot.left + (time - from) / (to - from) * (box.width - plot.left - plot.right);
const timeAt = (px) => from + (px - plot.left) / (box.width - plot.left - plot.right) * (to - from);
const y = (proc) => box.jobs[1] - (proc - low) / (high - low) * (box.jobs[1] - box.jobs[0]);
const procAt = (py) => low + (box.jobs[1] - py) / (box.jobs[1] - box.jobs[0]) * (high - low);

function show(first, last) {
  const span = Math.min(Math.max(last - first, 1), whole[1] - whole[0]);
  from = Math.min(Math.max((first + last - span) / 2, whole[0]), whole[1] - span);
  to = from + span;
  redraw();
}
function showProcs(first, last) {
  const span = Math.min(Math.max(last - first, Math.min(4, facts.procs)), facts.procs);
  low = Math.min(Math.max((first + last - span) / 2, 0), facts.procs - span);
  high = low + span;
  redraw();
}
const zoom = (factor, at = (from + to) / 2) => show(at - (at - from) * factor, at + (to - at) * factor);
const zoomProcs = (factor, at = (low + high) / 2) => showProcs(at - (at - low) * factor, at + (high - at) * factor);
const move = (share) => show(from + share * (to - from), to + share * (to - from));
const moveProcs = (share) => showProcs(low + share * (high - low), high + share * (high - low));

function redraw() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => { due = false; draw(); });
}

function draw() {
  const scale = window.devicePixelRatio || 1, style = getComputedStyle(document.body);
  box.width = canvas.clientWidth; box.height = canvas.clientHeight;
  canvas.width = Math.round(box.width * scale); canvas.height = Math.round(box.height * scale);
  const rest = box.height - plot.top - 2 * plot.gap - plot.axis;
  box.jobs = [plot.top, plot.top + rest * 0.66];
  box.used = [box.jobs[1] + plot.gap, box.jobs[1] + plot.gap + rest * 0.17];
  box.queue = [box.used[1] + plot.gap, box.used[1] + plot.gap + rest * 0.17];
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, box.width, box.height);
  context.font = `12px ${style.fontFamily}`;
  const ink = style.color, soft = style.getPropertyValue("--soft"), line = style.getPropertyValue("--line"), back = style.getPropertyValue("--back");
  drawTimes(soft, line);
  drawJobs(back, ink);
  drawUsed(ink, soft, line);
  drawQueue(ink, soft, line);
  if (dragged && dragged.selects) {
    context.fillStyle = "rgba(59, 130, 196, 0.25)";
    context.fillRect(Math.min(dragged.x, dragged.to), box.jobs[0], Math.abs(dragged.to - dragged.x), box.queue[1] - box.jobs[0]);
  }
}

function drawJobs(back, ink) {
  const right = box.width - plot.right, colours = classes[colouring].entries.map(([colour]) => colour);
  context.save();
  context.beginPath();
  context.rect(plot.left, box.jobs[0], right - plot.left, box.jobs[1] - box.jobs[0]);
  context.clip();
  const edges = 0.3 * (box.jobs[1] - box.jobs[0]) / (high - low) > 1 ? 1 : 0;
  for (let i = 0; i < n; i++) {
    if (end_s[i] < from || start_s[i] > to) continue;
    const left = x(start_s[i]), width = Math.max(x(end_s[i]) - left, 0.5);
    context.fillStyle = colours[classOf[i]];
    context.globalAlpha = only >= 0 && classOf[i] !== only ? 0.12 : 1;
    for (let b = firstBox[i]; b < firstBox[i + 1]; b++) {
      const top = y(column.first[b] + column.count[b]), height = y(column.first[b]) - top;
      // A light edge separates neighbours where there is room for it.
      const edge = width > 4 ? edges : 0;
      context.fillRect(left, top, width - edge, height - edge);
    }
  }
  context.globalAlpha = 1;
  if (selected >= 0) {
    context.strokeStyle = ink;
    context.lineWidth = 2;
    for (let b = firstBox[selected]; b < firstBox[selected + 1]; b++) {
      const left = x(start_s[selected]), top = y(column.first[b] + column.count[b]);
      context.strokeRect(left, top, Math.max(x(end_s[selected]) - left, 2), y(column.first[b]) - top);
      const middle = y(column.first[b] + column.count[b] / 2);
      context.setLineDash([3, 3]);
      context.beginPath(); context.moveTo(x(column.submit_s[selected]), middle); context.lineTo(left, middle); context.stroke();
      context.setLineDash([]);
    }
  }
  context.restore();
  context.fillStyle = ink;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (const proc of ticks(low, high, 6)) context.fillText(proc.toLocaleString("en"), plot.left - 6, Math.min(Math.max(y(proc), 8), box.jobs[1]));
  sideLabel("processors", box.jobs);
}

function frame(panel, soft, line) {
  context.strokeStyle = line;
  context.lineWidth = 1;
  context.strokeRect(plot.left, panel[0], box.width - plot.right - plot.left, panel[1] - panel[0]);
}

// The mean over each pixel, so that a short gap stays as visible as it is long.
function drawUsed(ink, soft, line) {
  frame(box.used, soft, line);
  context.fillStyle = "#3b82c4";
  const height = box.used[1] - box.used[0];
  let before = usedUntil(from);
  for (let px = plot.left; px < box.width - plot.right; px++) {
    const begin = timeAt(px), end = timeAt(px + 1), after = usedUntil(end);
    const share = Math.min((after - before) / (end - begin) / facts.procs, 1);
    context.fillRect(px, box.used[1] - share * height, 1, share * height);
    before = after;
  }
  scaleOf(box.used, ["0", "100 %"], ink);
  panelTitle("utilisation", box.used, soft);
}

// The highest number in each pixel, so that no peak disappears.
function drawQueue(ink, soft, line) {
  frame(box.queue, soft, line);
  context.strokeStyle = context.fillStyle = "#d9713c";
  const height = box.queue[1] - box.queue[0];
  let at = Math.max(momentAt(from), 0);
  for (let px = plot.left; px < box.width - plot.right; px++) {
    const end = timeAt(px + 1);
    let most = load.times[at] <= end ? load.waiting[at] : 0;
    while (at + 1 < load.times.length && load.times[at + 1] <= end) most = Math.max(most, load.waiting[++at]);
    context.fillRect(px, box.queue[1] - most / mostWaiting * height, 1, most / mostWaiting * height);
  }
  scaleOf(box.queue, ["0", mostWaiting.toLocaleString("en")], ink);
  panelTitle("waiting jobs", box.queue, soft);
}

function scaleOf(panel, [bottom, top], ink) {
  context.fillStyle = ink;
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillText(bottom, plot.left - 6, panel[1]);
  context.fillText(top, plot.left - 6, panel[0] + 4);
}
function panelTitle(text, panel, soft) {
  context.fillStyle = soft;
  context.textAlign = "left";
  context.textBaseline = "bottom";
  context.fillText(text, plot.left, panel[0] - 4);
}
function sideLabel(text, panel) {
  context.save();
  context.translate(12, (panel[0] + panel[1]) / 2);
  context.rotate(-Math.PI / 2);
  context.textAlign = "center";
  context.fillText(text, 0, 0);
  context.restore();
}

function drawTimes(soft, line) {
  context.strokeStyle = line;
  context.fillStyle = soft;
  context.textAlign = "center";
  context.textBaseline = "top";
  context.lineWidth = 1;
  const every = timeStep((to - from) / Math.max((box.width - plot.left) / 130, 2)), offset = facts.epoch_s ? zoneOffset() : 0;
  for (let time = Math.ceil((from + offset) / every) * every - offset; time <= to; time += every) {
    context.beginPath(); context.moveTo(x(time), box.jobs[0]); context.lineTo(x(time), box.queue[1]); context.stroke();
    context.fillText(clock(time, every), Math.min(Math.max(x(time), plot.left + 20), box.width - 50), box.queue[1] + 6);
  }
}

function ticks(least, most, count) {
  const raw = (most - least) / count, power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.max([1, 2, 5, 10].map((unit) => unit * power).find((unit) => unit >= raw), 1);
  const values = [];
  for (let value = Math.ceil(least / step) * step; value <= most; value += step) values.push(value);
  return values;
}
function timeStep(raw) {
  const steps = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 1209600, 2592000, 7776000];
  return steps.find((step) => step >= raw) ?? 31536000;
}

// --- times as text: dates in the zone of the log if it has dates, else days and hours since its first second ---
let zone = facts.timezone;
try { new Intl.DateTimeFormat("en", { timeZone: zone }); } catch { zone = "UTC"; }
const dates = new Intl.DateTimeFormat("en-CA", { timeZone: zone, year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
function parts(time) { return Object.fromEntries(dates.formatToParts(new Date((facts.epoch_s + time) * 1000)).map(({ type, value }) => [type, value])); }
function zoneOffset() {
  const { year, month, day, hour, minute, second } = parts(from);
  return Date.UTC(year, month - 1, day, hour, minute, second) / 1000 - Math.floor(from);
}
function clock(time, every) {
  if (facts.epoch_s) {
    const { year, month, day, hour, minute, second } = parts(time);
    const date = `${year}-${month}-${day}`;
    return every >= 86400 ? date : every >= 60 ? `${date} ${hour}:${minute}` : `${hour}:${minute}:${second}`;
  }
  const days = Math.floor(time / 86400), hour = Math.floor(time % 86400 / 3600), minute = Math.floor(time % 3600 / 60);
  const pad = (value) => String(value).padStart(2, "0");
  return every >= 86400 ? `day ${days}` : `day ${days} ${pad(hour)}:${pad(minute)}${every < 60 ? `:${pad(Math.floor(time % 60))}` : ""}`;
}
function duration(seconds) {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(1)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}

// --- selection ---
function select(job, bringIntoView = false) {
  selected = job;
  const text = document.getElementById("job");
  if (job < 0) text.textContent = "No job is selected.";
  else {
    const name = document.createElement("b");
    name.textContent = `Job ${column.id[job]}`;
    const limit = column.request_s[job] > 0 ? `, limit ${duration(column.request_s[job])}` : "";
    text.replaceChildren(name, ` of ${userName(column.user[job])}: ${column.size[job].toLocaleString("en")} processors, submitted ${clock(column.submit_s[job], 60)}, waited ${duration(column.wait_s[job])}, ran ${duration(column.run_s[job])}${limit}`);
    if (bringIntoView && (end_s[job] < from || start_s[job] > to)) { const middle = (start_s[job] + end_s[job]) / 2, half = (to - from) / 2; show(middle - half, middle + half); }
  }
  redraw();
}
function jobAt(px, py) {
  const proc = procAt(py), near = 3 * (to - from) / box.width, time = timeAt(px);
  let best = -1, bestDistance = near;
  for (let i = 0; i < n; i++) {
    const distance = Math.max(start_s[i] - time, time - end_s[i], 0);
    if (distance > bestDistance || (distance === bestDistance && best >= 0)) continue;
    for (let b = firstBox[i]; b < firstBox[i + 1]; b++)
      if (proc >= column.first[b] && proc < column.first[b] + column.count[b]) { best = i; bestDistance = distance; }
  }
  return best;
}
function step(by) {
  const place = selected < 0 ? byStart.findIndex((job) => start_s[job] >= from) - (by > 0 ? 1 : 0) : byStart.indexOf(selected);
  const next = byStart[Math.min(Math.max(place + by, 0), n - 1)];
  if (next !== undefined) select(next, true);
}
function zoomToJob() {
  if (selected < 0) return;
  const margin = Math.max(end_s[selected] - column.submit_s[selected], 60) * 0.2;
  show(column.submit_s[selected] - margin, end_s[selected] + margin);
}
const everything = () => { [low, high] = [0, facts.procs]; show(...whole); };

// --- mouse, touch, keys, buttons ---
canvas.addEventListener("wheel", (event) => {
  event.preventDefault();
  const factor = Math.exp(Math.sign(event.deltaY || event.deltaX) * 0.2);
  if (event.shiftKey) zoomProcs(factor, procAt(event.offsetY)); else zoom(factor, timeAt(event.offsetX));
}, { passive: false });
canvas.addEventListener("pointerdown", (event) => {
  canvas.setPointerCapture(event.pointerId);
  dragged = { x: event.offsetX, y: event.offsetY, to: event.offsetX, from, until: to, low, high, moved: false, selects: !event.shiftKey && event.pointerType !== "touch" };
});
canvas.addEventListener("pointermove", (event) => {
  if (!dragged) return;
  dragged.to = event.offsetX;
  dragged.moved ||= Math.hypot(event.offsetX - dragged.x, event.offsetY - dragged.y) > 4;
  if (!dragged.selects && dragged.moved) {
    const time = (dragged.x - event.offsetX) / (box.width - plot.left - plot.right) * (to - from);
    const procs = (event.offsetY - dragged.y) / (box.jobs[1] - box.jobs[0]) * (high - low);
    show(dragged.from + time, dragged.until + time);
    showProcs(dragged.low + procs, dragged.high + procs);
  }
  redraw();
});
canvas.addEventListener("pointerup", (event) => {
  const drag = dragged;
  dragged = null;
  if (!drag) return;
  if (!drag.moved) select(jobAt(event.offsetX, event.offsetY));
  else if (drag.selects) show(...[timeAt(drag.x), timeAt(event.offsetX)].sort((a, b) => a - b));
});
canvas.addEventListener("pointercancel", () => { dragged = null; redraw(); });
canvas.addEventListener("dblclick", everything);
const actions = {
  in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25), whole: everything,
};
const keys = {
  "+": actions.in, "=": actions.in, "-": actions.out, ArrowLeft: actions.left, ArrowRight: actions.right,
  ArrowUp: () => moveProcs(0.25), ArrowDown: () => moveProcs(-0.25), "]": () => zoomProcs(0.5), "[": () => zoomProcs(2),
  n: () => step(1), p: () => step(-1), z: zoomToJob, 0: everything, Home: everything, Escape: () => select(-1),
};
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});
for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", actions[button.dataset.do]);
document.getElementById("colour").addEventListener("change", (event) => {
  colouring = event.target.value;
  only = -1;
  classOf = Uint8Array.from({ length: n }, (_, i) => classes[colouring].of(i));
  writeKey();
  redraw();
});
document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const job = column.id.indexOf(Number(event.target.elements.id.value));
  if (job < 0) document.getElementById("job").textContent = "This chart has no such job.";
  else { select(job); zoomToJob(); canvas.focus(); }
});
new ResizeObserver(redraw).observe(canvas);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
writeKey();
draw();
