// Select a time in a plot by dragging. The plot stays there while new seconds arrive; a double click follows them again.
const held = new WeakSet();

export const zoomHooks = {
  setSelect: [(chart) => { if (chart.select.width > 0) held.add(chart); }],
  ready: [(chart) => chart.over.addEventListener("dblclick", () => held.delete(chart))],
};

export function follow(chart, data) {
  const holds = held.has(chart);
  chart.setData(data, !holds);
  if (holds) chart.redraw();
}
