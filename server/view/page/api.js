// What talks to the server: the key, requests, and streams of events. EventSource is not
// used: it can send no key, and does not say why it was refused.

export const key = {
  get() { return sessionStorage.getItem("coppice-key") || ""; },
  set(value) { sessionStorage.setItem("coppice-key", value); },
};

export class Refused extends Error {
  constructor(status, message) { super(message); this.status = status; }
}

// ask fetches, with the key if there is one; a body is sent as JSON.
export async function ask(path, body, signal) {
  const headers = {};
  if (key.get()) headers.Authorization = "Bearer " + key.get();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, {
    method: body === undefined ? "GET" : "POST", headers, signal, cache: "no-store",
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  if (answer.ok) return answer;
  let message = answer.status + " " + answer.statusText;
  try { message = (await answer.json()).error.message || message; } catch { /* no JSON: the status says it */ }
  throw new Refused(answer.status, message);
}

// events yields the data of each server-sent event of an answer.
export async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "", from = 0;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      text += value;
      for (let end; (end = text.indexOf("\n\n", from)) >= 0;) {
        const event = text.slice(0, end);
        text = text.slice(end + 2);
        from = 0;
        const data = event.split("\n").filter((l) => l.startsWith("data:")).map((l) => l.slice(5).trimStart());
        if (data.length) yield data.join("\n");
      }
      from = Math.max(0, text.length - 1); // what was looked through
    }
  } finally { reader.cancel().catch(() => {}); }
}

const pause = (ms) => new Promise((done) => setTimeout(done, ms));

// watch gives each snapshot to show. Streams that break are opened again; where two of
// them bring nothing, something between holds streams back, and it polls.
export async function watch(show, state) {
  let barren = 0, wait = 500;
  for (;;) {
    if (document.hidden) { // no viewer
      await new Promise((done) => document.addEventListener("visibilitychange", done, { once: true }));
      continue;
    }
    const stop = new AbortController();
    const hide = () => { if (document.hidden) stop.abort(); };
    document.addEventListener("visibilitychange", hide);
    let opened = false, got = 0;
    const alarm = setTimeout(() => { if (!got) stop.abort(); }, 5000);
    try {
      if (barren < 2) {
        const stream = await ask("v1/view/stream", undefined, stop.signal);
        opened = true;
        for await (const data of events(stream)) {
          got++; wait = 500; barren = 0;
          state("live");
          show(JSON.parse(data));
        }
      } else {
        show(await (await ask("v1/view", undefined, stop.signal)).json());
        got++; wait = 1000;
        state("live", "polling");
      }
    } catch (err) {
      if (err.status === 401) { state("key", err.message); await keyGiven(); continue; }
      if (!document.hidden) state("lost", err.status ? err.message : "");
      wait = Math.min(wait * 2, 8000);
    } finally {
      clearTimeout(alarm);
      document.removeEventListener("visibilitychange", hide);
      if (opened && !got && !document.hidden) barren++;
    }
    await pause(wait);
  }
}

let given = () => {};
const keyGiven = () => new Promise((done) => { given = done; });
export function useKey(value) { key.set(value); given(); }
