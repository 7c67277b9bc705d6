// Small charts: lines of the last minutes, and the curve of hit rates.
import { svg, count, percent } from "./format.js";

// line draws columns over time into an SVG. What is null, and gaps in time, break it.
export function line(at, columns, target, { top, label, period }) {
  const w = target.clientWidth || 200, h = target.clientHeight || 44;
  target.setAttribute("viewBox", `0 0 ${w} ${h}`);
  target.setAttribute("aria-label", label);
  const end = at[at.length - 1] || 0; // the right end is now, the left one half a minute to all of it ago
  const span = Math.min(Math.max(end - (at[0] || 0), 60 * period), 300 * period);
  const max = top || Math.max(1e-9, ...columns.flatMap((c) => c.values.filter((v, i) => v != null && at[i] >= end - span))) * 1.1;
  const x = (t) => w - (end - t) / span * w, y = (v) => h - 2 - Math.min(v / max, 1) * (h - 5);
  target.replaceChildren(svg("line", { x1: 0, x2: w, y1: h - 1, y2: h - 1, stroke: "var(--line)" }));
  for (const { values, color, area } of columns) {
    let d = "", fill = "", open = false, from = 0, last = 0;
    const close = () => { if (open && area) fill += `L${last.toFixed(1)},${h - 1}L${from.toFixed(1)},${h - 1}Z`; open = false; };
    for (let i = 0; i < at.length; i++) {
      if (at[i] < end - span) continue;
      if (open && at[i] - at[i - 1] > 4 * period) close();
      if (values[i] == null) { close(); continue; }
      const p = `${x(at[i]).toFixed(1)},${y(values[i]).toFixed(1)}`;
      if (!open) { from = x(at[i]); fill += "M" + p; d += "M" + p + "h.01"; } else { d += "L" + p; fill += "L" + p; }
      open = true;
      last = x(at[i]);
    }
    close();
    if (area && fill) target.append(svg("path", { d: fill, fill: color, opacity: 0.13 }));
    if (d) target.append(svg("path", { d, fill: "none", stroke: color, "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-linecap": "round" }));
  }
}

// curve draws hit rates over capacities, and where the pool is.
export function curve(c, target) {
  const w = target.clientWidth || 800, h = 210, left = 44, right = 14, top = 12, bottom = 28;
  target.setAttribute("viewBox", `0 0 ${w} ${h}`);
  const lo = Math.log2(c.capacity_tokens[0]), hi = Math.log2(c.capacity_tokens.at(-1));
  const x = (tokens) => left + (Math.log2(tokens) - lo) / (hi - lo || 1) * (w - left - right);
  const y = (rate) => top + (1 - rate) * (h - top - bottom);
  target.replaceChildren();
  for (const rate of [0, 0.25, 0.5, 0.75, 1]) {
    target.append(svg("line", { x1: left, x2: w - right, y1: y(rate), y2: y(rate), stroke: "var(--line)" }),
      svg("text", { x: left - 8, y: y(rate) + 4, "text-anchor": "end" }, 100 * rate + " %"));
  }
  const every = w < 700 ? 4 : 2;
  c.capacity_tokens.forEach((tokens, i) => {
    if (i % every === 0) target.append(svg("text", { x: x(tokens), y: h - 9, "text-anchor": i === 0 ? "start" : i === c.capacity_tokens.length - 1 ? "end" : "middle" }, count(tokens)));
  });
  const points = c.capacity_tokens.map((t, i) => `${x(t).toFixed(1)},${y(c.hit_rate[i]).toFixed(1)}`);
  target.append(
    svg("path", { d: `M${x(c.capacity_tokens[0])},${y(0)}L${points.join("L")}L${x(c.capacity_tokens.at(-1))},${y(0)}Z`, fill: "var(--line1)", opacity: 0.1 }),
    svg("path", { d: "M" + points.join("L"), fill: "none", stroke: "var(--line1)", "stroke-width": 2, "stroke-linejoin": "round" }));
  const at = c.capacity_tokens.indexOf(c.pool_tokens);
  if (at >= 0) {
    const px = x(c.pool_tokens), rate = c.hit_rate[at];
    target.append(svg("line", { x1: px, x2: px, y1: top, y2: h - bottom, stroke: "var(--use)", "stroke-dasharray": "4 4" }),
      svg("circle", { cx: px, cy: y(rate), r: 4.5, fill: "var(--use)" }),
      svg("text", { x: px + (px > w / 2 ? -9 : 9), y: y(rate) + (rate > 0.85 ? 18 : -9), "text-anchor": px > w / 2 ? "end" : "start" }, "this pool: " + percent(rate)));
  }
  target.setAttribute("aria-label", "Hit rate by pool size in tokens: " + c.capacity_tokens.map((t, i) => count(t) + " " + percent(c.hit_rate[i])).join(", "));
}
