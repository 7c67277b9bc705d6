// The page of a fleet: a state a second in, figures, workers and requests out.
import { count, duration, el, percent, seconds, $ } from "./format.js";
import { themed } from "./theme.js";

const period = 1000;
let key = sessionStorage.getItem("coppice-key") || "";
let before = null; // the state before, for rates

const share = (part, all) => percent(all ? part / all : null);
const age = (s) => seconds(Math.round(s));
function big(id, text) {
  const [, number, unit] = /^([^ ]*) ?(.*)$/.exec(text);
  $(id).replaceChildren(number, unit ? el("small", "", unit) : "");
}

themed();

$("keyform").addEventListener("submit", (e) => {
  e.preventDefault();
  key = $("key").value.trim();
  sessionStorage.setItem("coppice-key", key);
  $("key").value = "";
  $("keyform").hidden = true;
});

function state(cls, text) { $("dot").className = "dot " + cls; $("state").textContent = text; }

async function look() {
  try {
    const answer = await fetch("v1/fleet/view", { headers: key ? { Authorization: "Bearer " + key } : {}, cache: "no-store", signal: AbortSignal.timeout(10000) });
    if (answer.status === 401 || answer.status === 403) {
      state("lost", "key needed");
      $("keyform").hidden = false;
      return;
    }
    if (!answer.ok) throw new Error("status " + answer.status);
    const now = await answer.json();
    state("live", "live");
    $("keyform").hidden = true;
    show(now);
    before = now;
  } catch {
    state("lost", "no connection, trying again");
  }
}

function show(s) {
  $("facts").textContent = `${s.version ? "coppice " + s.version + " · " : ""}policy ${s.policy} · prompts compared by ${s.prompts} · up ${age(s.uptime_s)}`;
  $("troubles").replaceChildren(...s.troubles.map((t) => el("p", "card notice bad", t)));
  tiles(s);
  $("no-workers").hidden = s.workers.length > 0;
  $("workers").replaceChildren(...s.workers.map(worker));
  $("no-recent").hidden = s.recent.length > 0;
  $("recent").replaceChildren(...s.recent.slice(0, 24).map(routed));
}

function tiles(s) {
  const ready = s.workers.filter((w) => w.state === "healthy").length;
  big("ready", `${ready} of ${s.workers.length}`);
  $("ready-sub").textContent = ready === s.workers.length ? "all healthy" : `${s.workers.length - ready} not healthy`;
  const past = before && before.uptime_s < s.uptime_s ? before : null;
  const span = past ? s.uptime_s - past.uptime_s : 0;
  big("rate", past ? ((s.fleet.requests - past.fleet.requests) / span).toFixed(1) : "–");
  $("rate-sub").textContent = `${count(s.open_requests)} open, ${count(s.queued_requests)} waiting; ${count(s.fleet.requests)} in all` + (s.fleet.failed ? `, ${count(s.fleet.failed)} failed` : "");
  const f = s.fleet;
  big("hit", share(f.cached_tokens, f.confirmed_tokens));
  $("hit-sub").textContent = `${count(f.cached_tokens)} of ${count(f.confirmed_tokens)}, by the answers' usage`;
  big("predicted", share(f.predicted_tokens, f.confirmed_tokens));
  $("predicted-sub").textContent = `${count(f.predicted_tokens)} of the same ${count(f.confirmed_tokens)}`;
  const first = s.recent.map((r) => r.ttft_ms).filter((v) => v != null).sort((a, b) => a - b);
  big("ttft", first.length ? duration(first[first.length >> 1]) : "–");
  $("ttft-sub").textContent = first.length ? `median of the last ${first.length}; longest ${duration(first[first.length - 1])}` : "of streamed answers";
}

const dots = { healthy: "live", waiting: "wait", joining: "wait" };

function worker(w) {
  const list = el("dl");
  const line = (name, value) => list.append(el("dt", "", name), el("dd", "", value));
  line("requests now", `${count(w.active_requests)}`);
  line("prompt tokens to compute", count(w.active_prefill_tokens));
  line("tokens known to be cached", count(w.held_tokens));
  line("requests so far", count(w.sums.requests) + (w.sums.failed ? ` (${count(w.sums.failed)} failed)` : ""));
  line("cached / predicted", `${share(w.sums.cached_tokens, w.sums.confirmed_tokens)} / ${share(w.sums.predicted_tokens, w.sums.confirmed_tokens)}`);
  return el("article", "worker",
    el("h3", "", el("span", "dot " + (dots[w.state] || "lost")), w.name || w.url, el("span", "sub", w.state + (w.pool ? " · " + w.pool : ""))),
    el("p", "", `${w.models.join(", ") || "no model yet"} · cache known by ${w.mode === "events" ? "events" : w.mode === "approximate" ? "what was sent there" : w.mode === "outdated" ? "its last events, none arrive now" : "nothing yet"}`),
    w.error ? el("p", "bad", w.error) : null, list);
}

const reasons = {
  cost: "least cost", tie: "equal costs, one chosen", chance: "drawn by its cost", session: "its session's worker", pin: "the worker that it named",
};

function routed(r) {
  const bar = el("div", "bar"), all = Math.max(1, r.prompt_tokens);
  const part = (cls, tokens) => { const i = el("i", cls); i.style.width = 100 * Math.min(1, tokens / all) + "%"; bar.append(i); };
  if (r.prompt_tokens === 0) bar.style.visibility = "hidden";
  else if (r.cached_tokens == null) part("c", all);
  else { part("a", r.cached_tokens); part("b", all - r.cached_tokens); }
  const mark = el("i", "mark");
  mark.style.left = 100 * Math.min(1, r.predicted_tokens / all) + "%";
  bar.append(mark);
  const gone = r.status === 499, failed = r.status === 429 || r.status >= 500, refused = r.status >= 400 && !gone && !failed;
  return el("li", "",
    el("span", "when", age(r.age_s)),
    el("b", failed ? "bad" : "", r.worker || "no worker"),
    bar,
    el("span", "tokens", r.prompt_tokens === 0 ? "" : r.cached_tokens == null ? `${count(r.prompt_tokens)} tokens, ${count(r.predicted_tokens)} predicted` : `${count(r.cached_tokens)} of ${count(r.prompt_tokens)} cached, ${count(r.predicted_tokens)} predicted`),
    el("span", "times", `${r.ttft_ms == null ? "" : duration(r.ttft_ms) + " to first, "}${duration(r.total_ms)}`),
    el("span", failed ? "why bad" : "why", [gone ? "the client left" : failed || refused ? `${refused ? "refused, " : ""}status ${r.status}${r.error ? ": " + r.error : ""}` : reasons[r.reason] || "", r.attempts > 1 ? `${r.attempts} workers asked` : "", r.model].filter(Boolean).join(" · ")));
}

async function forever() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((done) => setTimeout(done, period));
  }
}
forever();
