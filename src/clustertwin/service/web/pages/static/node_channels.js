// The node page: one line for each channel of the node itself, with its value now.
import { bytes } from "./heatmap.js";
import { load, onSnapshot } from "./live.js";
import { UNKNOWN, css } from "./ramps.js";
import { ratioPlot } from "./ratio_plot.js";
import { follow } from "./zoom.js";

const article = document.getElementById("node-channels");
const node = encodeURIComponent(article.dataset.node);
const plots = new Map();

async function refresh() {
  const { lines, end_s: endS } = await load(`/pictures/node-channels?node=${node}`);
  article.hidden = lines.length === 0;
  for (const line of lines) {
    if (!plots.has(line.name)) plots.set(line.name, plot(line));
    const { chart, now } = plots.get(line.name);
    const values = [...bytes(line.levels)].map((level) => (level === UNKNOWN ? null : level / 254));
    follow(chart, [values.map((_, i) => endS - values.length + i), values]);
    now.textContent = line.now === null ? "unknown" : `${(line.now * 100).toFixed(1)} %`;
  }
}

function plot({ name, label, help }) {
  const holder = document.createElement("div");
  holder.className = "plot";
  holder.dataset.channel = name;
  const title = document.createElement("h3");
  title.textContent = `${label}: `;
  title.title = help;
  const now = document.createElement("strong");
  title.append(now);
  holder.append(title);
  article.querySelector(".plots").append(holder);
  const chart = ratioPlot(holder, [{ stroke: () => css("accent"), width: 1.5 }]);
  return { chart, now };
}

document.addEventListener("twin:theme", () => { for (const { chart } of plots.values()) chart.redraw(); });
refresh();
onSnapshot(refresh);
