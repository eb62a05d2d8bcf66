// Colour scales: a name -> 256 colours as RGBA words, for the current theme. Byte 255 means "unknown".
export const UNKNOWN = 255;

// Colour stops from 0 to 1. For a score, the middle is the threshold and the end is ten times the threshold, on a
// logarithmic scale: grey below the threshold, from orange to dark (light theme) or pale (dark theme) above it.
const STOPS = {
  light: {
    busy: ["#eef2f2", "#a9d8d2", "#2f9d92", "#0b4f4b"],
    iowait: ["#eef2f2", "#fbd9a5", "#e08a1e", "#7a3e05"],
    system: ["#eef2f2", "#d3c8f5", "#8a6ee0", "#3f2a8a"],
    score: ["#eef2f2", "#dbe3e4", "#c3d0d2", "#f3b37f", "#d9531e", "#5c0f06"],
  },
  dark: {
    busy: ["#1b2629", "#1b5b56", "#37ab9e", "#8fe9de"],
    iowait: ["#1b2629", "#5f3d0c", "#dd8f22", "#ffe9c2"],
    system: ["#1b2629", "#3d3372", "#957be8", "#e8e0ff"],
    score: ["#1b2629", "#243236", "#33464b", "#8a4a1f", "#ee6a2c", "#ffe0cc"],
  },
};
STOPS.light.user = STOPS.light.busy;
STOPS.dark.user = STOPS.dark.busy;
STOPS.light.other = STOPS.light.busy;
STOPS.dark.other = STOPS.dark.busy;

const theme = () => (document.documentElement.dataset.theme === "dark" ? "dark" : "light");
const rgb = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

export function ramp(name) {
  const stops = (STOPS[theme()][name] || STOPS[theme()].busy).map(rgb);
  const words = new Uint32Array(256);
  for (let level = 0; level < 255; level += 1) {
    const place = (level / 254) * (stops.length - 1);
    const left = Math.min(Math.floor(place), stops.length - 2);
    const [r, g, b] = stops[left].map((from, i) => Math.round(from + (stops[left + 1][i] - from) * (place - left)));
    words[level] = 0xff000000 | (b << 16) | (g << 8) | r;
  }
  words[UNKNOWN] = 0; // transparent: the hatching shows through
  return words;
}

export function paint(canvas, name) {
  // The strip in the legend: 0 on the left, 1 on the right.
  canvas.width = 255;
  canvas.height = 1;
  const image = new ImageData(255, 1);
  new Uint32Array(image.data.buffer).set(ramp(name).subarray(0, 255));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// The inverse of `score_ratios` in canvas_data.py.
export const scoreOf = (level, threshold) => {
  const ratio = level / 254;
  return ratio <= 0.5 ? 2 * ratio * threshold : threshold * 10 ** (2 * ratio - 1);
};

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function hue(name) {
  // A name has the same colour on every page and on every day.
  let hash = 2166136261;
  for (const letter of String(name)) hash = Math.imul(hash ^ letter.charCodeAt(0), 16777619) >>> 0;
  // Mix the bits, so that names that differ in one letter get clearly different hues.
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d) >>> 0;
  hash = Math.imul(hash ^ (hash >>> 12), 0x297a2d39) >>> 0;
  return `hsl(${((hash ^ (hash >>> 15)) >>> 0) % 360} 55% ${theme() === "dark" ? 62 : 45}%)`;
}
