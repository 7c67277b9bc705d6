// The prefix tree as an icicle that lies on its side: tokens go right, each leaf has a
// row, and a node stands left of all that begins with it.
import { count, el, visible, $ } from "./format.js";

const spaces = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8f7cc3", "#7a8b2a"]; // Okabe and Ito's, nearly
const still = matchMedia("(prefers-reduced-motion: reduce)");
const axis = 20; // px below the picture

export class TreeView {
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d");
    this.mode = "reuse";
    this.nodes = [];
    this.byID = new Map();
    this.focus = 0; // the id that fills the picture, 0 for all
    this.hover = null;
    this.theme();
    new ResizeObserver(() => this.draw()).observe(canvas);
    canvas.addEventListener("pointermove", (e) => this.point(this.find(e.offsetX, e.offsetY), e.offsetX, e.offsetY));
    canvas.addEventListener("pointerleave", () => this.point(null));
    canvas.addEventListener("click", (e) => this.zoom(this.find(e.offsetX, e.offsetY)));
    canvas.addEventListener("keydown", (e) => this.press(e));
    canvas.addEventListener("blur", () => this.point(null));
  }

  theme() {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(name).trim();
    this.ramp = [0, 1, 2, 3, 4].map((i) => rgb(read("--c" + i)));
    this.ink = read("--ink"); this.muted = read("--muted"); this.card = read("--card"); this.use = read("--use"); this.grid = read("--line");
    this.dark = document.documentElement.dataset.theme === "dark";
    this.draw();
  }

  // update takes a tree of a snapshot.
  update(tree) {
    const old = this.byID;
    this.byID = new Map();
    const root = { kids: [], start: 0, tokens: 0, id: 0, node: null };
    this.byID.set(0, root);
    this.nodes = [];
    for (const n of tree.shown) {
      const up = this.byID.get(n.parent);
      if (!up) continue;
      const v = { node: n, up, kids: [], id: n.more ? "m" + n.parent : n.id, start: n.start, tokens: n.more ? Math.max(1, Math.round(n.tokens / n.more)) : n.tokens };
      up.kids.push(v);
      if (!n.more || !this.byID.has(v.id)) this.byID.set(v.id, v);
      this.nodes.push(v);
    }
    this.top = Math.max(1, ...this.nodes.map((v) => v.node.more ? 0 : v.node.reuses));
    // A leaf is one row high; what stands for many is higher, but by octaves.
    const rows = (v) => v.rows = v.kids.length ? v.kids.reduce((sum, k) => sum + rows(k), 0) : v.node?.more ? Math.min(1 + Math.log2(v.node.more), 5) : 1;
    const place = (v, y) => {
      v.y = y; v.h = v.rows; v.x = v.start; v.w = v.tokens; v.end = v.start + v.tokens;
      for (const k of v.kids) { place(k, y); y += k.rows; v.end = Math.max(v.end, k.end); }
    };
    rows(root); place(root, 0);
    this.root = root;
    if (!this.byID.has(this.focus)) this.focus = 0;
    const total = Math.max(root.rows, 1), before = this.total || total;
    let moved = this.nodes.length + 1 !== old.size;
    for (const v of this.nodes) { // from where it was, in shares of the height
      const o = old.get(v.id);
      if (o && !o.now) o.now = o; // never drawn
      v.from = o ? { y: o.now.y / before * total, h: o.now.h / before * total, x: o.now.x, w: o.now.w, a: 1 } : { y: v.y, h: v.h, x: v.x, w: v.w, a: 0 };
      moved ||= !v.from.a || v.from.y !== v.y || v.from.h !== v.h || v.from.w !== v.w;
    }
    this.total = total;
    if (this.hover) this.hover = this.byID.get(this.hover.id) || null;
    if (moved) this.animate(); else this.draw();
    this.crumbs();
  }

  animate() {
    this.begun = performance.now();
    this.viewFrom = this.view || this.aim();
    if (still.matches || !this.nodes.length) { this.begun = -1e9; }
    if (!this.frame) this.frame = requestAnimationFrame(() => this.tick());
  }
  tick() {
    this.frame = 0;
    this.draw();
    if (performance.now() - this.begun < 350) this.frame = requestAnimationFrame(() => this.tick());
  }

  // aim is the part of the tree that fills the picture: tokens and rows.
  aim() {
    const v = this.byID.get(this.focus) || this.root;
    if (!v) return { x0: 0, x1: 1, y0: 0, y1: 1 };
    return { x0: v.start, x1: Math.max(v.end, v.start + 1), y0: v.y, y1: v.y + Math.max(v.rows, 1e-6) };
  }

  draw() {
    const { canvas, ctx } = this, ratio = devicePixelRatio || 1;
    const W = canvas.clientWidth, H = canvas.clientHeight;
    if (!W || !this.root) return;
    if (canvas.width !== Math.round(W * ratio) || canvas.height !== Math.round(H * ratio)) {
      canvas.width = Math.round(W * ratio); canvas.height = Math.round(H * ratio);
    }
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, W, H);
    const t = Math.min(1, (performance.now() - this.begun) / 350), e = 1 - (1 - t) ** 3;
    const mix = (a, b) => a + (b - a) * e, aim = this.aim(), f = this.viewFrom || aim;
    const view = this.view = { x0: mix(f.x0, aim.x0), x1: mix(f.x1, aim.x1), y0: mix(f.y0, aim.y0), y1: mix(f.y1, aim.y1) };
    if (!this.nodes.length) return;
    const sx = W / (view.x1 - view.x0), sy = (H - axis) / (view.y1 - view.y0);
    this.drawAxis(W, H, view, sx);
    ctx.save();
    ctx.beginPath(); ctx.rect(0, 0, W, H - axis); ctx.clip();
    ctx.font = "11.5px ui-monospace, Menlo, 'DejaVu Sans Mono', monospace";
    ctx.textBaseline = "middle";
    for (const v of this.nodes) {
      const n = v.now = { y: mix(v.from.y, v.y), h: mix(v.from.h, v.h), x: mix(v.from.x, v.x), w: mix(v.from.w, v.w) };
      let x = (n.x - view.x0) * sx, y = (n.y - view.y0) * sy, w = n.w * sx, h = n.h * sy;
      if (x + w < 0 || x > W || y + h < 0 || y > H - axis || h < 0.2) { v.box = null; continue; }
      const gap = h > 5 ? 1 : h > 2.5 ? 0.5 : 0;
      y += gap / 2; h = Math.max(h - gap, 0.5); w = Math.max(w - (w > 4 ? 1 : 0), 1.5);
      v.box = { x, y, w, h };
      ctx.globalAlpha = mix(v.from.a, 1);
      this.drawNode(v, Math.max(x, 0), y, Math.max(w + Math.min(x, 0), 0.5), h);
    }
    ctx.globalAlpha = 1;
    const v = this.hover;
    if (v && v.box) { // the way from the root
      ctx.strokeStyle = this.ink; ctx.lineWidth = 1.5;
      for (let u = v; u && u.box; u = u.up) ctx.strokeRect(u.box.x + 0.75, u.box.y + 0.75, Math.max(u.box.w - 1.5, 1), Math.max(u.box.h - 1.5, 1));
    }
    ctx.restore();
  }

  drawNode(v, x, y, w, h) {
    const { ctx } = this, n = v.node, color = this.color(n);
    ctx.fillStyle = css(color);
    if (n.more) ctx.fillStyle = this.hatch(color);
    ctx.beginPath();
    ctx.roundRect(x, y, w, h, Math.min(3, w / 2, h / 2));
    ctx.fill();
    if (n.tail && w > 6) { // a page that is not full: an open end
      ctx.fillStyle = this.card;
      for (let dy = y; dy < y + h; dy += 4) ctx.fillRect(x + w - 2, dy, 2, 2);
    }
    if (n.pins > 0 && !n.more) {
      ctx.fillStyle = this.use;
      ctx.fillRect(x, y, Math.min(3.5, w), h);
      if (n.pins > 1 && w > 12) ctx.fillRect(x + w - 3.5, y, 3.5, h);
    }
    if (h < 13 || w < 46) return;
    const ground = n.more ? this.mixed(color) : color;
    ctx.fillStyle = luminance(ground) > 0.36 ? "#13201a" : "#f3faf5";
    const room = Math.floor((w - 12) / 6.95);
    const text = n.more ? `…and ${count(n.more)} more` : n.text ? visible(n.text) : `${count(n.tokens)} tokens`;
    const lines = wrapped(text, room, Math.max(1, Math.min(Math.floor((h - 4) / 16), 6)));
    lines.forEach((l, i) => ctx.fillText(l, x + 7, y + h / 2 + 0.5 + (i - (lines.length - 1) / 2) * 16));
  }

  drawAxis(W, H, view, sx) {
    const { ctx } = this, span = view.x1 - view.x0;
    let step = 10 ** Math.floor(Math.log10(span / (W / 130)));
    for (const m of [1, 2, 5, 10]) if (step * m * sx >= 90) { step *= m; break; }
    step = Math.max(1, Math.round(step));
    ctx.fillStyle = this.muted; ctx.strokeStyle = this.grid; ctx.lineWidth = 1;
    ctx.font = "11px system-ui, 'DejaVu Sans', sans-serif"; ctx.textBaseline = "alphabetic";
    for (let t = Math.ceil(view.x0 / step) * step; t <= view.x1; t += step) {
      const x = Math.round((t - view.x0) * sx) + 0.5;
      ctx.beginPath(); ctx.moveTo(x, 0); ctx.lineTo(x, H - axis + 4); ctx.stroke();
      const label = count(t) + (t === Math.ceil(view.x0 / step) * step ? " tokens" : ""), wide = ctx.measureText(label).width;
      ctx.fillText(label, Math.max(0, Math.min(W - wide, x < 8 ? x : x - wide / 2)), H - 4);
    }
  }

  color(n) {
    if (this.mode === "space") return rgb(spaces[n.space % spaces.length]);
    const share = this.mode === "age" ? n.heat : Math.log1p(n.more ? n.reuses / n.more : n.reuses) / Math.log1p(this.top);
    const at = Math.min(Math.max(share, 0), 1) * 4, i = Math.min(Math.floor(at), 3), r = at - i;
    return this.ramp[i].map((c, k) => c + (this.ramp[i + 1][k] - c) * r);
  }

  hatch(color) {
    const name = css(color) + this.card;
    if (!this.hatches) this.hatches = new Map();
    if (this.hatches.has(name)) return this.hatches.get(name);
    if (this.hatches.size > 100) this.hatches.clear();
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const c = tile.getContext("2d");
    c.fillStyle = css(this.mixed(color)); c.fillRect(0, 0, 6, 6);
    c.strokeStyle = css(color); c.lineWidth = 1.5;
    for (const d of [-6, 0, 6]) { c.beginPath(); c.moveTo(d, 6); c.lineTo(d + 6, 0); c.stroke(); }
    const pattern = this.ctx.createPattern(tile, "repeat");
    this.hatches.set(name, pattern);
    return pattern;
  }

  mixed(color) { const card = rgb(this.card); return color.map((v, k) => v + (card[k] - v) * 0.55); }

  find(x, y) {
    let best = null;
    for (const v of this.nodes) {
      const b = v.box;
      if (b && x >= b.x && x <= b.x + Math.max(b.w, 3) && y >= b.y && y <= b.y + b.h) best = v;
    }
    return best;
  }

  point(v, x, y) {
    const tip = $("tip");
    if (v !== this.hover) { this.hover = v; this.draw(); }
    this.canvas.style.cursor = v ? "pointer" : "default";
    if (!v) { tip.hidden = true; return; }
    const n = v.node, lines = n.more
      ? [`${many(n.more, "node")}, ${many(n.tokens, "token")}, ${many(n.pages, "page")}`, many(n.reuses, "reuse")]
      : [`tokens [${n.start.toLocaleString("en")}, ${(n.start + n.tokens).toLocaleString("en")}) · ${many(n.pages, "page")}`,
        `${many(n.reuses, "reuse")} through it, ${count(n.hits)} ended here`,
        n.pins > 1 ? "in use now, by several" : n.pins ? "in use now" : n.tail ? "its last page is not full" : ""];
    const title = n.more ? `…and ${count(n.more)} more` : n.text ? n.text + (n.text_total ? "" : "…") : `${count(n.tokens)} tokens`;
    tip.replaceChildren(el("b", "", title), ...lines.filter(Boolean).map((l) => el("span", "", l)));
    tip.hidden = false;
    const box = this.canvas.getBoundingClientRect();
    if (x == null) { x = v.box ? Math.max(v.box.x, 0) + 20 : 0; y = v.box ? v.box.y + v.box.h : 0; }
    tip.style.left = Math.max(0, Math.min(x + 14, box.width - tip.offsetWidth - 4)) + "px";
    tip.style.top = (y + 18 + tip.offsetHeight > box.height ? Math.max(0, y - tip.offsetHeight - 10) : y + 18) + "px";
  }

  zoom(v) {
    if (!v || v.node.more) v = v ? v.up : this.root;
    if (!v) return;
    this.focus = v.id === this.focus ? (v.up ? v.up.id : 0) : v.id;
    this.animate();
    this.crumbs();
  }

  press(e) {
    const at = this.hover || this.byID.get(this.focus);
    if (!at) return;
    const kin = at.up ? at.up.kids : [], i = kin.indexOf(at);
    const next = { ArrowRight: at.kids[0], ArrowLeft: at.up, ArrowDown: kin[i + 1], ArrowUp: kin[i - 1] }[e.key];
    if (e.key === "Enter") this.zoom(this.hover);
    else if (e.key === "Escape") { this.focus = this.byID.get(this.focus)?.up?.id || 0; this.animate(); this.crumbs(); }
    else if (!e.key.startsWith("Arrow")) return;
    else if (next && next.node) this.point(next);
    e.preventDefault();
  }

  crumbs() {
    const way = [];
    for (let v = this.byID.get(this.focus); v && v.node; v = v.up) way.unshift(v);
    const to = (id, text) => {
      const b = el("button", "", text);
      b.type = "button";
      b.addEventListener("click", () => { this.focus = id; this.animate(); this.crumbs(); });
      return b;
    };
    const sign = way.map((v) => v.id).join();
    if (sign === this.sign) return; // a button that is pressed just now stays
    this.sign = sign;
    $("crumbs").replaceChildren(...(way.length ? [to(0, "all"), ...way.flatMap((v) => [" › ", to(v.id, v.node.text ? visible(v.node.text).slice(0, 40) : `${count(v.tokens)} tokens`)])] : []));
  }
}

// wrapped breaks text into at most this many lines, at spaces where there are some.
function wrapped(text, room, most) {
  const lines = [];
  while (text && lines.length < most) {
    if (text.length <= room) { lines.push(text); break; }
    if (lines.length === most - 1) { lines.push(text.slice(0, Math.max(room - 1, 0)) + "…"); break; }
    const space = text.lastIndexOf(" ", room), at = space > room / 3 ? space : room;
    lines.push(text.slice(0, at));
    text = text.slice(at).trimStart();
  }
  return lines;
}

const many = (n, what) => count(n) + " " + what + (n === 1 ? "" : "s");

function rgb(hex) {
  const n = parseInt(hex.slice(1, 7), 16);
  return [n >> 16 & 255, n >> 8 & 255, n & 255];
}
const css = (c) => `rgb(${c.map(Math.round).join(" ")})`;
const luminance = (c) => { const [r, g, b] = c.map((v) => (v / 255) ** 2.2); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
