// The embedding page: a scatter plot coloured by job type. Unusual threads have a ring, events a region. A click
// opens the node or the event.
import { load, onTick } from "./live.js";
import { css, hue } from "./ramps.js";

const figure = document.getElementById("embedding");
const canvas = figure.querySelector("canvas");
const tip = figure.querySelector(".tip");
const HEIGHT = 520;
const MARGIN = 28;
const REACH = 16; // radius of a closed event's region around each of its threads
const VERDICT_COLOUR = { confirmed: "alarm", dismissed: "good", "new-normal": "accent" };
let data = { points: [], regions: [], judged: [] };
let bounds = null;
let highlighted = ""; // the group under the mouse in the legend
let chart = "pca";
let labels = []; // positions of the labels drawn so far

const colour = (group) => (group === "no job" ? css("other") : hue(group));

// Bounds grow at once and shrink slowly, so that the picture stays steady. A new model resets them.
function follow(drawn) {
  const range = (values, old) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return old ? [Math.min(low, old[0] + 0.1 * (low - old[0])), Math.max(high, old[1] + 0.1 * (high - old[1]))] : [low, high];
  };
  const old = bounds && bounds.model === data.model && bounds.drawn === drawn ? bounds : {};
  const places = [...data.points.map(({ x, y }) => [x, y]), ...data.judged.flatMap(({ at }) => at)];
  bounds = { model: data.model, drawn, x: range(places.map(([x]) => x), old.x), y: range(places.map(([, y]) => y), old.y) };
}
const scale = ([low, high], size, value) => MARGIN + ((value - low) / Math.max(high - low, 1e-9)) * (size - 2 * MARGIN);
const place = ({ x, y }) => [scale(bounds.x, canvas.clientWidth, x), HEIGHT - scale(bounds.y, HEIGHT, y)];

function draw() {
  if (!data.points.length || !canvas.clientWidth) return;
  const dots = window.devicePixelRatio || 1;
  canvas.style.height = `${HEIGHT}px`;
  canvas.width = canvas.clientWidth * dots;
  canvas.height = HEIGHT * dots;
  const pen = canvas.getContext("2d");
  pen.scale(dots, dots);
  labels = [];
  for (const event of data.judged) region(pen, event);
  const open = data.regions.map(({ name, rows }) => ({ name, places: rows.map((row) => place(data.points[row])) }));
  for (const { places } of open) halo(pen, places);
  for (const point of data.points) {
    const [x, y] = place(point);
    pen.globalAlpha = highlighted && point.group !== highlighted ? 0.08 : 0.75;
    pen.fillStyle = colour(point.group);
    pen.beginPath();
    pen.arc(x, y, 3.2, 0, 7);
    pen.fill();
    if (point.score <= data.threshold) continue;
    pen.strokeStyle = css("alarm");
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(x, y, 5.5, 0, 7);
    pen.stroke();
  }
  pen.globalAlpha = 1;
  for (const { name, places } of open) label(pen, places, name);
}

function region(pen, { at, verdict }) {
  // Discs around the threads of a closed event, drawn as one shape: the fill covers the strokes inside it.
  const shape = new Path2D();
  for (const [x, y] of at.map(([x, y]) => place({ x, y }))) {
    shape.moveTo(x + REACH, y);
    shape.arc(x, y, REACH, 0, 7);
  }
  pen.strokeStyle = css(VERDICT_COLOUR[verdict]);
  pen.lineWidth = 2;
  pen.setLineDash([5, 4]);
  pen.stroke(shape);
  pen.setLineDash([]);
  pen.fillStyle = css("sheet");
  pen.fill(shape);
  pen.fillStyle = pen.strokeStyle;
  pen.globalAlpha = 0.1;
  pen.fill(shape);
  pen.globalAlpha = 1;
}

function halo(pen, places) {
  // Soft discs around the event's threads; discs that overlap merge.
  pen.fillStyle = css("alarm-soft");
  for (const [x, y] of places) {
    pen.beginPath();
    pen.arc(x, y, 15, 0, 7);
    pen.fill();
  }
}

function label(pen, places, name) {
  // Beside the uppermost thread, below labels that are already there, with an outline that keeps it readable.
  const top = places.reduce((best, place) => (place[1] < best[1] ? place : best));
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const text = name.length > 40 ? `${name.slice(0, 39)}…` : name;
  const x = Math.min(top[0] + 14, canvas.clientWidth - 120);
  let y = Math.max(top[1] - 12, 12);
  while (labels.some((other) => Math.abs(other.x - x) < 60 && Math.abs(other.y - y) < 12)) y += 13;
  labels.push({ x, y });
  pen.strokeStyle = css("sheet");
  pen.lineWidth = 3;
  pen.strokeText(text, x, y);
  pen.fillStyle = css("alarm");
  pen.fillText(text, x, y);
}

function under(event) {
  // What is under the mouse: the nearest thread, else the regions of closed events.
  const box = canvas.getBoundingClientRect();
  const [px, py] = [event.clientX - box.left, event.clientY - box.top];
  let [point, least] = [null, 144];
  for (const candidate of data.points) {
    const [x, y] = place(candidate);
    const squared = (x - px) ** 2 + (y - py) ** 2;
    if (squared < least) [point, least] = [candidate, squared];
  }
  const inside = ([x, y]) => Math.hypot(x - px, y - py) < REACH;
  const judged = point ? [] : data.judged.filter(({ at }) => at.some(([x, y]) => inside(place({ x, y }))));
  return { px, py, point, judged };
}

function tooltip({ point, judged }) {
  if (judged.length) {
    const lines = judged.slice(0, 5).map(({ name, verdict }) => `${name}: ${verdict.replace("-", " ")}`);
    return [...lines, judged.length > 5 ? `and ${judged.length - 5} more` : "", "click to open the event"].filter(Boolean).join("\n");
  }
  const job = point.job && !point.group.endsWith(point.job) ? `, job ${point.job}` : "";
  return `${point.node} cpu${point.cpu}\n${point.group}${job}\nscore ${point.score.toFixed(1)} (threshold ${data.threshold.toFixed(1)})`;
}

canvas.addEventListener("mousemove", (event) => {
  const target = under(event);
  tip.hidden = !target.point && !target.judged.length;
  canvas.style.cursor = tip.hidden ? "" : "pointer";
  if (tip.hidden) return;
  tip.textContent = tooltip(target);
  tip.style.left = `${Math.min(target.px + 14, canvas.clientWidth - tip.offsetWidth - 4)}px`;
  tip.style.top = `${target.py + 16}px`;
});
canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
canvas.addEventListener("click", (event) => {
  const { point, judged } = under(event);
  if (point) window.location.assign(`/nodes/${encodeURIComponent(point.node)}?cpu=${point.cpu}`);
  else if (judged.length) window.location.assign(`/events/${encodeURIComponent(judged[0].id)}`);
});

function groups() {
  const counts = new Map();
  for (const { group } of data.points) counts.set(group, (counts.get(group) || 0) + 1);
  const keys = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 30).map(([group, count]) => {
    const key = document.createElement("span");
    key.className = "key";
    const dot = document.createElement("i");
    dot.style.background = colour(group);
    key.append(dot, `${group} ${count}`);
    key.addEventListener("mouseenter", () => { highlighted = group; draw(); });
    key.addEventListener("mouseleave", () => { highlighted = ""; draw(); });
    return key;
  });
  document.getElementById("groups").replaceChildren(...keys);
}

function legend() {
  // The number of closed events with each verdict; the label links to their list.
  for (const key of document.querySelectorAll("[data-verdict]")) {
    const count = data.judged.filter(({ verdict }) => verdict === key.dataset.verdict).length;
    key.hidden = !count;
    key.querySelector("b").textContent = count;
  }
}

async function refresh() {
  data = await load(`/pictures/embedding?chart=${chart}`);
  const empty = !data.points.length;
  figure.hidden = empty;
  const none = document.getElementById("embedding-empty");
  none.hidden = !empty;
  if (empty) {
    none.querySelector("strong").textContent = data.title;
    none.querySelector(".reason").textContent = data.reason;
    return;
  }
  const variance = data.told.length ? `; the axes explain ${Math.round(100 * (data.told[0] + data.told[1]))} % of the variance` : "";
  document.getElementById("summary").textContent = `${data.points.length} threads${variance}${data.note ? `. ${data.note}` : ""}`;
  follow(data.told.length ? "pca" : "umap");
  if (!highlighted) groups();
  legend();
  draw();
}

for (const button of document.querySelectorAll("[data-chart]")) {
  button.addEventListener("click", () => {
    chart = button.dataset.chart;
    for (const other of document.querySelectorAll("[data-chart]")) other.setAttribute("aria-pressed", String(other === button));
    refresh();
  });
}
new ResizeObserver(draw).observe(figure);
document.addEventListener("twin:theme", () => { groups(); draw(); });
refresh();
onTick(refresh);
