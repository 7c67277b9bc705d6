// The page: snapshots in, figures, tree and lists out.
import { watch, useKey } from "./api.js";
import { line, curve } from "./charts.js";
import { count, duration, el, millis, percent, seconds, visible, $ } from "./format.js";
import { themed } from "./theme.js";
import { tryBox } from "./try.js";
import { TreeView } from "./tree.js";

let snapshot = null;
const tree = new TreeView($("tree"));
themed(() => tree.theme());

const modes = document.querySelectorAll(".modes [data-mode]");
for (const button of modes) {
  button.addEventListener("click", () => {
    tree.mode = button.dataset.mode;
    for (const b of modes) b.setAttribute("aria-pressed", String(b === button));
    $("ramp").parentElement.hidden = tree.mode === "space";
    $("ramp-text").textContent = tree.mode === "age" ? "longest unused … just now" : "never reused … most";
    tree.draw();
  });
}

const needKey = (message) => { $("keyform").hidden = false; $("keyform").querySelector("label").textContent = message || "This server asks for an API key."; };
$("keyform").addEventListener("submit", (e) => {
  e.preventDefault();
  $("keyform").hidden = true;
  useKey($("key").value.trim());
  $("key").value = "";
});
tryBox(() => snapshot?.server.model, needKey);

watch((s) => {
  snapshot = s;
  show(s);
}, (state, message) => {
  $("dot").className = "dot " + (state === "live" ? "live" : "lost");
  $("state").textContent = state === "live" ? message || "live" : state === "key" ? "API key needed" : "no connection, trying again";
  if (state === "key") needKey();
  if (state === "lost") trouble(message);
});
addEventListener("resize", () => { if (snapshot) show(snapshot); });

function trouble(message) { $("trouble").hidden = !message; $("trouble").textContent = message || ""; }

function show(s) {
  const v = s.server;
  $("model").textContent = v.model;
  $("note").textContent = v.note || "";
  $("note").hidden = !v.note;
  $("facts").textContent = `${v.version ? "coppice " + v.version + " · " : ""}${v.backend} · up ${seconds(v.uptime_s)}${v.redacted ? " · text hidden" : ""}`;
  trouble(v.error);
  tiles(s);
  pool(s.pool);
  tiers(s.pool.tiers);
  tree.update(s.tree);
  $("empty").hidden = s.tree.shown.length > 0;
  $("tree-sub").textContent = s.tree.nodes ? `${count(s.tree.tokens)} tokens in ${count(s.tree.nodes)} nodes, ${count(s.tree.leaves)} leaves` +
    (s.tree.namespaces > 1 ? `, ${count(s.tree.namespaces)} namespaces` : "") : "";
  lists(s);
  figures(s);
  const curved = s.curve && s.totals.prompt_tokens > 0;
  $("curve-card").hidden = !curved;
  if (curved) {
    curve(s.curve, $("curve"));
    $("curve-sub").textContent = "an estimate, of all prompts since the last flush and in whole pages, so it is not the rate above; sizes in tokens of KV";
  }
}

function big(id, value, unit) { $(id).replaceChildren(value, unit ? el("small", "", unit) : ""); }

function tiles(s) {
  const h = s.history, n = s.now, t = s.totals, period = h.period_ms;
  const strong = "var(--line1)", faint = "var(--line2)";
  big("hit", percent(n.hit_rate ?? (t.prompt_tokens ? t.hit_rate : null)));
  // Two rates: of the last seconds, if prompts came in them, and of all since the start.
  const since = `${percent(t.hit_rate)} of ${count(t.prompt_tokens)} since the start`;
  $("hit-sub").textContent = !t.prompt_tokens ? "share of prompt tokens found in the cache"
    : n.hit_rate == null ? `of ${count(t.prompt_tokens)} prompt tokens since the start; none in the last ${seconds(h.window_ms / 1000)}`
    : `of prompt tokens, last ${seconds(h.window_ms / 1000)}; ${since}`;
  line(h.at_ms, [{ values: h.hit_rate, color: strong, area: true }], $("hit-line"), { top: 1, period, label: "Hit rate over the last minutes" });
  big("ttft", ...millis(n.ttft_p50_ms));
  $("ttft-sub").textContent = n.ttft_p99_ms == null ? "median" : `median, last ${seconds(h.window_ms / 1000)}; 99 %: ${duration(n.ttft_p99_ms)}`;
  line(h.at_ms, [{ values: h.ttft_p99_ms, color: faint }, { values: h.ttft_p50_ms, color: strong, area: true }], $("ttft-line"), { period, label: "Time to first token, median and 99th percentile" });
  big("itl", ...millis(n.itl_p50_ms));
  const sum = (bySource) => Object.values(bySource ?? {}).reduce((a, b) => a + b, 0), guesses = sum(t.draft_tokens);
  $("itl-sub").textContent = (n.itl_p99_ms == null ? "median" : `median, last ${seconds(h.window_ms / 1000)}; 99 %: ${duration(n.itl_p99_ms)}`)
    + (guesses ? `; ${percent(sum(t.accepted_draft_tokens) / guesses)} of ${count(guesses)} guesses right` : "");
  line(h.at_ms, [{ values: h.itl_p99_ms, color: faint }, { values: h.itl_p50_ms, color: strong, area: true }], $("itl-line"), { period, label: "Time between tokens, median and 99th percentile" });
  big("rate", count(n.output_tokens_s), "tokens/s");
  // A prompt counts as admitted at once, and may take minutes: its progress shows that the device works.
  $("rate-sub").textContent = t.prefilling ? `prompts: ${count(n.prefill_tokens_s)}/s computed, ${count(t.prefill_left_tokens)} tokens of ${count(t.prefilling)} to go`
    : n.prompt_tokens_s == null ? "" : `prompts: ${count(n.prompt_tokens_s)}/s, of them cached: ${count(n.cached_tokens_s)}/s`;
  line(h.at_ms, [{ values: h.prefill_tokens_s, color: faint }, { values: h.output_tokens_s, color: strong, area: true }], $("rate-line"), { period, label: "Output tokens and computed prompt tokens per second" });
  big("load", count(t.running), "running");
  $("load-sub").textContent = `${count(t.waiting)} waiting, ${count(t.requests)} in all`;
  line(h.at_ms, [{ values: h.waiting, color: faint }, { values: h.running, color: strong, area: true }], $("load-line"), { period, label: "Running and waiting requests" });
}

const parts = [["held_pages", "--held", "held by running requests"], ["protected_pages", "--protected", "cached, in use"], ["evictable_pages", "--evictable", "cached, evictable"], ["idle_pages", "--idle", "idle"]];

function pool(p) {
  const bar = $("pool");
  if (!bar.children.length) {
    bar.append(...parts.map(([, color]) => { const i = el("i"); i.style.background = `var(${color})`; return i; }));
    $("pool-legend").append(...parts.map(([, color, text]) => { const k = el("span", "key"); k.style.background = `var(${color})`; return el("li", "", k, el("span", "", text)); }));
  }
  parts.forEach(([field, , text], i) => {
    const share = p.pages ? p[field] / p.pages : 0;
    bar.children[i].style.width = 100 * share + "%";
    $("pool-legend").children[i].lastChild.textContent = `${text} ${percent(share)}`;
  });
  bar.setAttribute("aria-label", `${count(p.pages)} pages of ${p.page_tokens} tokens: ` + parts.map(([f, , t]) => `${count(p[f])} ${t}`).join(", "));
  bar.title = `${count(p.pages)} pages of ${p.page_tokens} tokens`;
}

// tiers lists the levels of KV memory, where there are any below the device.
function tiers(all) {
  $("tiers").hidden = all.length < 2;
  $("tiers").replaceChildren(...all.map((t) => {
    const reasons = [["late", "late"], ["busy", "refused as busy"], ["full", "without room"], ["foreign", "of another model"], ["damaged", "damaged"], ["io_errors", "with a system error"]];
    const failed = reasons.filter(([f]) => t[f]).map(([f, name]) => `, ${count(t[f])} ${name}`).join("");
    const more = (t.failing ? ", failing" : "") + (t.errors ? `, ${count(t.errors)} failed` : "");
    const item = el("li", "", el("span", "", `${t.tier} ${percent(t.pages ? t.used_pages / t.pages : 0)}, ${count(t.hit_tokens)} tokens found${more}`));
    item.title = `${count(t.used_pages)} of ${count(t.pages)} pages` + (t.reads || t.writes ? `, ${count(t.reads ?? 0)} extents read` + (t.read_ms ? ` in ${duration(t.read_ms)} each` : "") + `, ${count(t.writes ?? 0)} written` : "") + (t.lost ? `, ${count(t.lost)} lost` : "") + failed;
    return item;
  }));
}

// figures lists every figure that the server has, by its name in JSON.
function figures(s) {
  if (!$("all").open) return;
  const rows = [];
  const add = (name, value) => rows.push(el("div", "", el("dt", "", name.replaceAll("_", " ")), el("dd", "", Number.isInteger(value) ? count(value) : value.toPrecision(4))));
  for (const [group, values] of [["", s.totals], ["pool", s.pool], ["tree", s.tree], ...s.pool.tiers.map((t) => [t.tier, t])]) {
    for (const [name, value] of Object.entries(values)) {
      if (typeof value === "number") add(`${group} ${name}`, value);
      else if (value && !Array.isArray(value)) for (const [of, n] of Object.entries(value)) if (typeof n === "number") add(`${group} ${name}: ${of}`, n);
    }
  }
  $("figures").replaceChildren(...rows);
}
$("all").addEventListener("toggle", () => { if (snapshot) figures(snapshot); });

function fill(id, items, none) { $(id).replaceChildren(...(items.length ? items : [el("li", "none", none)])); }
const name = (r) => `#${r.request}${r.sample ? "." + r.sample : ""}`;
function share(width, cls) { const i = el("i", cls); i.style.width = 100 * Math.max(0, Math.min(1, width)) + "%"; return i; }

function lists(s) {
  const hidden = s.server.redacted && "For admins.";
  $("running-sub").textContent = s.totals.running ? count(s.totals.running) : "";
  fill("running", s.running.map((r) => {
    const all = Math.max(r.prompt_tokens + r.output_tokens, 1), prefill = r.computed_tokens < r.prompt_tokens;
    const bar = el("div", "mini", share(r.cached_tokens / all, "a"), share((Math.min(r.computed_tokens, r.prompt_tokens) - r.cached_tokens) / all, "b"), share(r.output_tokens / all, "c"));
    bar.title = `${r.cached_tokens} cached, ${r.prompt_tokens - r.cached_tokens} to compute, ${r.output_tokens} output`;
    return el("li", "", el("div", "line", el("b", "", name(r)), el("span", "", r.tenant || ""),
      el("span", "", prefill ? `prompt ${count(r.computed_tokens)}/${count(r.prompt_tokens)}` : `${count(r.prompt_tokens)} + ${count(r.output_tokens)} tokens · ${seconds(r.age_s)}`)), bar);
  }), hidden || "Nothing runs.");
  $("waiting-sub").textContent = s.totals.waiting ? count(s.totals.waiting) : "";
  fill("waiting", s.waiting.map((w) => el("li", "", el("div", "line", el("b", "", name(w)), el("span", "", w.cause)),
    el("div", "why", w.why.replace(/^request \d+( \(sample \d+\))? /, "").replace(w.cause, "").replace(/^: /, "") || `${count(w.cached_tokens)} tokens cached`))), hidden || "Nothing waits.");
  fill("finished", s.finished.slice(0, 20).map((r) => {
    const bar = el("div", "mini", share(r.cached_tokens / (r.prompt_tokens || 1), "a"), share(1 - r.cached_tokens / (r.prompt_tokens || 1), "b"));
    bar.title = `${r.cached_tokens} of ${r.prompt_tokens} prompt tokens came from the cache; ended by ${r.reason}`;
    return el("li", "", el("div", "line", el("b", "", `${percent(r.cached_tokens / (r.prompt_tokens || 1))} of ${count(r.prompt_tokens)}`), el("span", "", r.tenant || ""),
      el("span", "", `+ ${count(r.output_tokens)} · first ${duration(r.ttft_ms)}`)), bar,
      ...(r.prefix_break ? [el("div", "why", `the client changed its own prefix: ${r.prefix_break}`)] : []));
  }), hidden || "Nothing yet.");
  const best = s.tree.shown.filter((n) => !n.more && n.reuses > 0).sort((a, b) => b.reuses - a.reuses || a.start - b.start).slice(0, 12);
  const most = best.length ? best[0].reuses : 1;
  fill("best", best.map((n) => {
    const item = el("li", "", el("div", "line", el("span", "text", n.text ? visible(n.text) : `tokens ${n.start} to ${n.start + n.tokens}`), el("span", "", `${count(n.reuses)} × ${count(n.tokens)}`)),
      el("div", "mini", share(n.reuses / most, "a")));
    item.title = `${n.reuses} reuses of ${n.tokens} tokens, from token ${n.start} on`;
    return item;
  }), "No prefix was reused yet.");
}
