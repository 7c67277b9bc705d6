// The box that sends a prompt, and shows which of its tokens came from the cache.
import { ask, events } from "./api.js";
import { count, duration, el, percent, $ } from "./format.js";

export function promptBox(model, refused) {
  let stop = null;
  $("stop").addEventListener("click", () => stop?.abort());
  $("prompt").addEventListener("keydown", (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) $("ask").requestSubmit(); });
  $("ask").addEventListener("submit", async (e) => {
    e.preventDefault();
    const prompt = $("prompt").value;
    if (!prompt || stop) return;
    stop = new AbortController();
    busy(true);
    try { await send(prompt, stop.signal); } catch (err) {
      if (err.status === 401) refused(err.message);
      else if (err.name !== "AbortError") fault(err.message);
    } finally { stop = null; busy(false); }
  });

  async function send(prompt, signal) {
    $("ask-error").hidden = true;
    $("tokens").replaceChildren(prompt);
    $("answer").textContent = "";
    $("prompt-sub").textContent = $("answer-sub").textContent = "";
    $("result").hidden = false;
    let pieces = pieced(prompt, signal);
    const begun = performance.now();
    const answer = await ask("v1/completions", {
      model: model(), prompt, stream: true, stream_options: { include_usage: true }, return_token_ids: true,
      max_tokens: Number($("max").value) || 64, temperature: Number($("temp").value) || 0,
    }, signal);
    let first = 0, last = 0, tokens = 0, usage = null;
    for await (const data of events(answer)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      const choice = chunk.choices?.[0];
      if (choice) {
        const n = choice.token_ids ? choice.token_ids.length : choice.text ? 1 : 0;
        if (n) { last = performance.now(); first ||= last; tokens += n; }
        $("answer").append(choice.text || "");
        $("answer").scrollTop = $("answer").scrollHeight;
        if (first) $("answer-sub").textContent = rate(tokens, begun, first, last);
      }
      if (chunk.usage) usage = chunk.usage;
    }
    if (usage) {
      const cached = usage.prompt_tokens_details?.cached_tokens || 0;
      $("prompt-sub").textContent = `${count(cached)} of ${count(usage.prompt_tokens)} tokens from the cache (${percent(cached / (usage.prompt_tokens || 1))})`;
      $("answer-sub").textContent = rate(usage.completion_tokens, begun, first, last);
      paint(await pieces, cached);
    }
  }

  // pieced shows the prompt token by token; a server without /tokenize shows it whole.
  async function pieced(prompt, signal) {
    try {
      const t = await (await ask("tokenize", { model: model(), prompt, return_token_strs: true }, signal)).json();
      const spans = t.tokens.map((id, i) => {
        const text = t.token_strs?.[i] ?? "⟨" + id + "⟩", s = el("span", "", text.replaceAll("\n", "↵\n"));
        s.title = "token " + id;
        return s;
      });
      $("tokens").replaceChildren(...spans);
      return spans;
    } catch { return []; }
  }
  function paint(spans, cached) { spans.forEach((s, i) => { s.className = i < cached ? "cached" : "computed"; }); }
  function rate(tokens, begun, first, last) {
    const after = (last - first) / 1000, speed = tokens > 1 && after > 0 ? `, ${count((tokens - 1) / after)} tokens/s` : "";
    return `${count(tokens)} tokens, first after ${duration(first - begun)}${speed}`;
  }
  function busy(on) {
    $("send").disabled = on; $("stop").hidden = !on;
    $("answer").classList.toggle("busy", on);
  }
  function fault(message) { $("ask-error").textContent = message; $("ask-error").hidden = false; }
}
