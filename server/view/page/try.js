// The box that sends prompts and turns of a chat, and shows which of their tokens came
// from the cache.
import { ask, events } from "./api.js";
import { count, duration, el, percent, $ } from "./format.js";

// What the buttons send: a beginning that is worth keeping, ends to change, and a chat.
const beginning = "In the year 1666 Newton darkened his chamber, made a small hole in the window-shuts, and let in a beam of the sun's light. " +
  "He placed a prism at its entrance, so that the light was thrown upon the opposite wall, and saw there an oblong image of many colours, " +
  "five times as long as it was broad. From this he concluded that light is not similar, but consists of rays that are refracted differently. ";
const ends = ["Why was the image oblong?", "Which of the colours was refracted most?", "What would a second prism do to one of them?", "How large should the hole be?"];
const system = "You answer questions about Newton's Opticks. Be brief and exact, name the experiment that an answer rests on, " +
  "and say so where Newton left a question open. Use the words of his time where they are still understood.";
const turns = ["What is light?", "Why do the rays part in a prism?", "Can they be joined again?", "What makes the rainbow, then?", "And the colours of thin plates?", "What did he leave open?"];

export function tryBox(model, refused) {
  let stop = null, chat = false;
  const texts = { prompt: "", chat: "" }; // of the box, while the other one is shown
  let messages = [], spoken = [], offered = 0, end = 0;

  $("stop").addEventListener("click", () => stop?.abort());
  $("prompt").addEventListener("keydown", (e) => { if (e.key === "Enter" && (e.ctrlKey || e.metaKey || chat && !e.shiftKey)) { e.preventDefault(); $("ask").requestSubmit(); } });
  $("as-prompt").addEventListener("click", () => mode(false));
  $("as-chat").addEventListener("click", () => mode(true));
  $("offer-first").addEventListener("click", () => offer(chat ? turns[offered++ % turns.length] : beginning + ends[end = 0]));
  $("offer-next").addEventListener("click", () => offer(otherEnd($("prompt").value)));
  $("fresh").addEventListener("click", () => { stop?.abort(); messages = []; spoken = []; offered = 0; $("turns").replaceChildren(); $("talk").hidden = true; });
  $("ask").addEventListener("submit", async (e) => {
    e.preventDefault();
    const text = $("prompt").value;
    if (!text.trim() || stop) return;
    stop = new AbortController();
    busy(true);
    $("ask-error").hidden = true;
    try { await (chat ? say : send)(text, stop.signal); } catch (err) {
      if (err.status === 401) refused(err.message);
      else if (err.name !== "AbortError") fault(err.message);
    } finally { stop = null; busy(false); }
  });
  mode(false);

  function mode(on) {
    texts[chat ? "chat" : "prompt"] = $("prompt").value;
    chat = on;
    $("prompt").value = texts[chat ? "chat" : "prompt"];
    $("prompt").rows = chat ? 2 : 5;
    $("prompt").placeholder = chat ? "Each turn sends all before it again: watch the part grow that comes from the cache."
      : "Send a prompt twice, or change its end, and watch what comes from the cache.";
    $("as-prompt").setAttribute("aria-pressed", String(!chat));
    $("as-chat").setAttribute("aria-pressed", String(chat));
    $("offer-first").textContent = chat ? "Next turn" : "Send this";
    $("offer-next").hidden = chat;
    $("fresh").hidden = !chat;
    $("result").hidden = chat || !$("tokens").textContent;
    $("talk").hidden = !chat || !$("turns").children.length;
    $("ask-error").hidden = true;
    $("offer-first").title = chat ? "" : beginning + ends[0];
  }

  function offer(text) {
    if (stop) return;
    $("prompt").value = text;
    $("ask").requestSubmit();
  }

  // otherEnd is a text with its last sentence changed.
  function otherEnd(text) {
    if (!text.trim()) return beginning + ends[end = 0];
    const cut = text.trimEnd().slice(0, -1).search(/[.!?…][^.!?…]*$/);
    end = (end + 1) % ends.length;
    return text.slice(0, cut + 1) + (cut < 0 ? "" : " ") + ends[end];
  }

  async function send(prompt, signal) {
    $("tokens").replaceChildren(prompt);
    $("answer").textContent = "";
    $("prompt-sub").textContent = $("answer-sub").textContent = $("why").textContent = "";
    $("result").hidden = false;
    const pieces = pieced(prompt, signal);
    $("why").textContent = await explained({ prompt }, signal);
    const got = await stream("v1/completions", { prompt, return_token_ids: true }, signal, (choice, so) => {
      $("answer").append(choice.text || "");
      $("answer").scrollTop = $("answer").scrollHeight;
      if (so.first) $("answer-sub").textContent = rate(so);
    });
    if (got.usage) {
      const cached = got.usage.prompt_tokens_details?.cached_tokens || 0;
      $("prompt-sub").textContent = share(cached, got.usage.prompt_tokens);
      $("answer-sub").textContent = rate(got);
      paint(await pieces, cached);
    }
  }

  // say sends one more turn of the chat, after all that was said.
  async function say(text, signal) {
    if (!messages.length) messages = [{ role: "system", content: system }];
    const asked = { role: "user", content: text }, list = messages;
    const answer = el("p", "answer busy"), bar = el("div", "mini", el("i", "a"), el("i", "b")), sub = el("span", "sub");
    const item = el("li", "", el("div", "said", text), bar, sub, answer);
    $("turns").append(item);
    $("talk").hidden = false;
    $("prompt").value = "";
    let words = "";
    try {
      sub.title = await explained({ messages: [...list, asked] }, signal);
      const got = await stream("v1/chat/completions", { messages: [...list, asked] }, signal, (choice) => {
        const delta = choice.delta || {};
        words += delta.content || "";
        answer.append(delta.reasoning_content || "", delta.content || "");
        answer.scrollTop = answer.scrollHeight;
        $("turns").scrollTop = $("turns").scrollHeight;
      });
      if (got.usage) {
        const cached = got.usage.prompt_tokens_details?.cached_tokens || 0;
        spoken.push({ bar, cached, all: got.usage.prompt_tokens });
        sub.textContent = share(cached, got.usage.prompt_tokens) + `, first token after ${duration(got.first - got.begun)}`;
        widths();
      }
    } finally {
      answer.classList.remove("busy");
      if (words) list.push(asked, { role: "assistant", content: words });
      else item.remove();
      $("turns").scrollTop = $("turns").scrollHeight;
    }
  }

  // widths draws the turns' bars to one scale.
  function widths() {
    const most = Math.max(1, ...spoken.map((t) => t.all));
    for (const { bar, cached, all } of spoken) {
      bar.children[0].style.width = 100 * cached / most + "%";
      bar.children[1].style.width = 100 * (all - cached) / most + "%";
      bar.title = share(cached, all);
    }
  }

  // stream asks, gives each choice to take, and returns usage and times.
  async function stream(path, body, signal, take) {
    const so = { begun: performance.now(), first: 0, last: 0, tokens: 0, usage: null };
    const given = $("temp").value;
    const answer = await ask(path, {
      model: model(), stream: true, stream_options: { include_usage: true },
      max_tokens: Number($("max").value) || 64, ...(given && { temperature: Number(given) }), ...body,
    }, signal);
    const defaults = answer.headers.get("X-Coppice-Sampling-Defaults");
    if (defaults) $("temp").parentElement.title = "Empty: the server's default. Defaults of this server: " + defaults;
    for await (const data of events(answer)) {
      if (data === "[DONE]") break;
      const chunk = JSON.parse(data);
      if (chunk.error) throw new Error(chunk.error.message);
      const choice = chunk.choices?.[0];
      if (choice) {
        const n = choice.token_ids ? choice.token_ids.length : choice.text || choice.delta?.content || choice.delta?.reasoning_content ? 1 : 0;
        if (n) { so.last = performance.now(); so.first ||= so.last; so.tokens += n; }
        take(choice, so);
      }
      if (chunk.usage) { so.usage = chunk.usage; so.tokens = chunk.usage.completion_tokens; }
    }
    return so;
  }

  // explained says how much of a prompt is cached before it runs, and why not more.
  async function explained(body, signal) {
    try { return (await (await ask("v1/cache/explain", { model: model(), ...body }, signal)).json()).text; } catch (err) {
      if (err.name === "AbortError") throw err;
      return ""; // the cache is off, or what is wrong with the prompt will be said when it runs
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
  // paint colours the tokens and scrolls to where those from the cache end.
  function paint(spans, cached) {
    spans.forEach((s, i) => { s.className = i < cached ? "cached" : "computed"; });
    const at = spans[Math.min(cached, spans.length - 1)];
    if (at) $("tokens").scrollTop = at.offsetTop - $("tokens").clientHeight / 2;
  }
  function share(cached, all) { return `${count(cached)} of ${count(all)} tokens from the cache (${percent(cached / (all || 1))})`; }
  function rate({ tokens, begun, first, last }) {
    const after = (last - first) / 1000, speed = tokens > 1 && after > 0 ? `, ${count((tokens - 1) / after)} tokens/s` : "";
    return `${count(tokens)} tokens, first after ${duration(first - begun)}${speed}`;
  }
  function busy(on) {
    $("send").disabled = on; $("stop").hidden = !on;
    for (const id of ["offer-first", "offer-next", "as-prompt", "as-chat", "fresh"]) $(id).disabled = on;
    $("answer").classList.toggle("busy", on && !chat);
  }
  function fault(message) { $("ask-error").textContent = message; $("ask-error").hidden = false; }
}
