// Numbers and elements as the page shows them.

export function count(n) {
  if (n == null) return "–";
  if (n < 10000) return Math.round(n).toLocaleString("en");
  for (const [unit, size] of [["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (n >= size) return (n / size).toFixed(n / size < 100 ? 1 : 0) + " " + unit;
  }
  return String(n);
}

export function millis(v) {
  if (v == null) return ["–", ""];
  if (v < 1) return [(v * 1000).toFixed(0), "µs"];
  if (v < 1000) return [v.toFixed(v < 10 ? 1 : 0), "ms"];
  return [(v / 1000).toFixed(v < 10000 ? 2 : 1), "s"];
}

export const duration = (v) => millis(v).filter(Boolean).join(" ");
export const percent = (v) => v == null ? "–" : (100 * v).toFixed(v > 0.9995 || v === 0 ? 0 : 1) + " %";
export const seconds = (v) => v < 60 ? (Number.isInteger(v) ? v : v.toFixed(1)) + " s" : v < 3600 ? Math.floor(v / 60) + " min" : v < 172800 ? (v / 3600).toFixed(1) + " h" : Math.floor(v / 86400) + " d";
export const visible = (text) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥");

// el makes an element: el("p", "class", child, "text", ...).
export function el(tag, cls, ...children) {
  const e = document.createElement(tag);
  if (cls) e.className = cls;
  e.append(...children.filter((c) => c != null));
  return e;
}

export function svg(tag, attributes, text) {
  const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
  if (text != null) e.textContent = text;
  return e;
}

export const $ = (id) => document.getElementById(id);
