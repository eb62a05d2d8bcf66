// The node page: threads × seconds, and below it the chosen thread, measured and reconstructed.
import { HeatMap, bytes, clock } from "./heatmap.js";
import { load, onSnapshot } from "./live.js";
import { UNKNOWN, css, hue, paint } from "./ramps.js";
import { ratioPlot } from "./ratio_plot.js";
import { follow } from "./zoom.js";

const figure = document.getElementById("node");
const node = encodeURIComponent(figure.dataset.node);
const PLOT_S = 150;
const plots = new Map();
let channel = "busy";
let chosen = figure.dataset.cpu === undefined ? null : Number(figure.dataset.cpu);
let shown = null;

const word = () => (channel === "busy" ? "not idle" : channel);

const map = new HeatMap(figure, {
  describe: (row, column) => {
    const level = shown.levels[row * shown.columns + column];
    const at = shown.endS - shown.columns + column;
    const band = shown.bands.find(({ rows: [first, last], fromS }) => first <= row && row <= last && fromS <= at);
    const score = shown.scores[row];
    return [
      `cpu${shown.cpus[row]}  ${clock(at)}`,
      level === UNKNOWN ? `${word()} unknown` : `${word()} ${Math.round((level / 254) * 100)} %`,
      score === null ? "not scored" : `${unusual(score, shown) ? "unusual, " : ""}score ${score.toFixed(1)} (threshold ${shown.threshold.toFixed(1)})`,
      ...(band ? [`job ${band.name}`] : []),
    ].join("\n");
  },
  pick: (row) => choose(shown.cpus[row]),
});

const unusual = (score, { threshold }) => score !== null && threshold !== null && score > threshold;

async function refresh() {
  const picture = await load(`/pictures/node?node=${node}&channel=${channel}`);
  if (chosen === null || !picture.cpus.includes(chosen)) chosen = highestScore(picture);
  shown = {
    ...picture,
    labels: picture.cpus.map((cpu, row) => (unusual(picture.scores[row], picture) ? `cpu${cpu}  ${picture.scores[row].toFixed(1)}` : `cpu${cpu}`)),
    levels: bytes(picture.levels),
    endS: picture.end_s,
    stepS: picture.step_s,
    scale: channel,
    chosen: picture.cpus.indexOf(chosen),
    bands: picture.bands.map((band) => ({ ...band, fromS: band.from_s, toS: band.to_s })),
    heightPx: 520,
    alarming: picture.scores.map((score) => unusual(score, picture)),
    labelPx: 110,
  };
  map.show(shown);
  figure.dataset.end = picture.end_s;
  await redraw();
}

function highestScore({ cpus, scores }) {
  const known = scores.map((score) => (score === null ? -1 : score));
  return cpus[known.indexOf(Math.max(...known))];
}

async function choose(cpu) {
  chosen = cpu;
  map.show({ ...shown, chosen: shown.cpus.indexOf(cpu) });
  await redraw();
}

async function redraw() {
  const thread = await load(`/pictures/thread?node=${node}&cpu=${chosen}`);
  const title = document.getElementById("thread-title");
  title.textContent = `cpu${chosen}${thread.job ? `, job ${thread.job}` : ""}: measured and reconstructed`;
  for (const [name, { seen, expected }] of Object.entries(thread.channels)) {
    const last = (values) => values.slice(-PLOT_S);
    const times = last(seen).map((_, i, { length }) => thread.end_s - length + i);
    if (!plots.has(name)) plots.set(name, plot(name));
    follow(plots.get(name), [times, last(seen), last(expected)]);
  }
}

function plot(name) {
  const holder = document.createElement("div");
  holder.className = "plot";
  const title = document.createElement("h3");
  title.textContent = name === "other" ? "other: idle and stolen" : name;
  holder.append(title);
  document.getElementById("plots").append(holder);
  const colour = ["user", "system", "iowait"].includes(name) ? name : "other";
  return ratioPlot(holder, [{ stroke: () => css(colour), width: 1.5 }, { stroke: () => css("expected"), width: 1, dash: [4, 3] }]);
}

function mark() {
  for (const dot of document.querySelectorAll(".job-mark")) dot.style.background = hue(dot.dataset.job);
}

for (const button of document.querySelectorAll("[data-channel]")) {
  button.addEventListener("click", () => {
    channel = button.dataset.channel;
    for (const other of document.querySelectorAll("[data-channel]")) other.setAttribute("aria-pressed", String(other === button));
    ramp();
    refresh();
  });
}
const ramp = () => paint(document.getElementById("ramp"), channel);
document.addEventListener("twin:theme", () => { ramp(); mark(); for (const chart of plots.values()) chart.redraw(); });
document.addEventListener("htmx:afterSettle", mark);
ramp();
mark();
refresh();
onSnapshot(refresh);
