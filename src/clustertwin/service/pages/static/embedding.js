// The embedding as a scatter: points by job type, strange ones ringed, open events as regions; a click opens the node.
import { load, onTick } from "./live.js";
import { css, hue } from "./ramps.js";

const figure = document.getElementById("embedding");
const canvas = figure.querySelector("canvas");
const tip = figure.querySelector(".tip");
const HEIGHT = 520;
const MARGIN = 28;
let data = { points: [], regions: [] };
let bounds = null;
let lone = ""; // the group that is looked at alone
let chart = "pca";
let names = []; // where names of events stand already

const colour = (group) => (group === "no job" ? css("other") : hue(group));

// Bounds grow at once and shrink slowly, so that the picture does not breathe; a new model begins anew.
function follow(drawn) {
  const range = (values, old) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return old ? [Math.min(low, old[0] + 0.1 * (low - old[0])), Math.max(high, old[1] + 0.1 * (high - old[1]))] : [low, high];
  };
  const old = bounds && bounds.model === data.model && bounds.drawn === drawn ? bounds : {};
  bounds = { model: data.model, drawn, x: range(data.points.map(({ x }) => x), old.x), y: range(data.points.map(({ y }) => y), old.y) };
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
  names = [];
  for (const region of data.regions) halo(pen, region.rows.map((row) => place(data.points[row])), region.name);
  for (const point of data.points) {
    const [x, y] = place(point);
    pen.globalAlpha = lone && point.group !== lone ? 0.08 : 0.75;
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
}

function halo(pen, places, name) {
  // Soft discs around the event's threads, which run together where they are near.
  pen.fillStyle = css("alarm-soft");
  for (const [x, y] of places) {
    pen.beginPath();
    pen.arc(x, y, 15, 0, 7);
    pen.fill();
  }
  const top = places.reduce((best, one) => (one[1] < best[1] ? one : best));
  pen.fillStyle = css("alarm");
  pen.font = `12px ${getComputedStyle(document.body).fontFamily}`;
  const text = name.length > 40 ? `${name.slice(0, 39)}…` : name;
  const x = Math.min(top[0] + 14, canvas.clientWidth - 120);
  let y = Math.max(top[1] - 12, 12);
  while (names.some((one) => Math.abs(one.x - x) < 60 && Math.abs(one.y - y) < 12)) y += 13;
  names.push({ x, y });
  pen.fillText(text, x, y);
}

function nearest(event) {
  const box = canvas.getBoundingClientRect();
  const [px, py] = [event.clientX - box.left, event.clientY - box.top];
  let best = null;
  let least = 144;
  for (const point of data.points) {
    const [x, y] = place(point);
    const far = (x - px) ** 2 + (y - py) ** 2;
    if (far < least) [best, least] = [point, far];
  }
  return best && { point: best, px, py };
}

canvas.addEventListener("mousemove", (event) => {
  const found = nearest(event);
  tip.hidden = !found;
  if (!found) return;
  const { point } = found;
  tip.textContent = `${point.node} cpu${point.cpu}\n${point.group}${point.job && !point.group.endsWith(point.job) ? `, job ${point.job}` : ""}\nscore ${point.score.toFixed(1)} (threshold ${data.threshold.toFixed(1)})`;
  tip.style.left = `${Math.min(found.px + 14, canvas.clientWidth - tip.offsetWidth - 4)}px`;
  tip.style.top = `${found.py + 16}px`;
});
canvas.addEventListener("mouseleave", () => { tip.hidden = true; });
canvas.addEventListener("click", (event) => {
  const found = nearest(event);
  if (found) window.location.assign(`/nodes/${encodeURIComponent(found.point.node)}?cpu=${found.point.cpu}`);
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
    key.addEventListener("mouseenter", () => { lone = group; draw(); });
    key.addEventListener("mouseleave", () => { lone = ""; draw(); });
    return key;
  });
  document.getElementById("groups").replaceChildren(...keys);
}

async function refresh() {
  data = await load(`/pictures/embedding?chart=${chart}`);
  const empty = !data.points.length;
  figure.hidden = empty;
  document.getElementById("embedding-empty").hidden = !empty;
  if (empty) return;
  const told = data.told.length ? `; the two directions tell ${Math.round(100 * (data.told[0] + data.told[1]))} % of the variance` : "";
  document.getElementById("told").textContent = `${data.points.length} threads${told}${data.note ? `. ${data.note}` : ""}`;
  follow(data.told.length ? "pca" : "umap");
  if (!lone) groups();
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
