"""Decoding with drafts off and on, by HTTP: coppice serve and llama.cpp's llama-server, the same model file, in turns.

    python3 tools/speculate/peers.py --model MODEL.gguf --coppice coppice --llama llama-server --out results.jsonl
    python3 tools/speculate/peers.py ... --sides llama-off,llama-ngram-mod --loads rewrite --tasks 2 --runs 1

The loads are those of `coppice bench speculate`. Each run of a load has a server of its own, so that no draft comes from an
answer of an earlier run. The servers answer as the model wants, at temperature 0, and at most as long as the load's outputs. A
prompt is computed before the time begins: the script asks for one token of each first. The time then goes from the first
token to the last one of all answers that run at a time, and a rate is the tokens after the first of each answer by that time.
llama.cpp's drafts come from n-grams; the name of the side has the value of its flag --spec-type, and may have more flags
after a colon: llama-ngram-mod:--spec-ngram-mod-n-match=12.

On a machine that is not quiet, compare the processors' time for a token (CPU ms) rather than the rates, and set
OMP_WAIT_POLICY=passive, without which the threads of llama.cpp wait for each other by spinning. Do not set it on a quiet
machine: it takes half of llama.cpp's rate with a small model.

It prints a table in Markdown: medians over the runs. --out has a JSON object a line for each run, and a run that stands there
is not repeated.
"""

import argparse
import concurrent.futures
import hashlib
import http.client
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARALLEL = {"streams": 16}


def tasks(name, most):
    path = pathlib.Path(name) if name.endswith(".jsonl") else ROOT / f"bench/speculate/loads/{name}.jsonl"
    lines = path.read_text().splitlines()
    return [json.loads(line) for line in lines[: most or len(lines)]]


def lengths(args, load):
    """The most tokens of each answer: those of the load's output, by the tokenizer of the model, as coppice counts them."""
    with server("coppice-count", [args.coppice, "serve", "--model", args.model, "--addr", f"127.0.0.1:{args.port}", "--kv-tokens", "4096"], args):
        return [min(args.output_tokens or 1 << 20, len(post(args, "/tokenize", {"prompt": t["output"], "add_special_tokens": False})["tokens"])) for t in load]


def command(args, side, parallel):
    if side.startswith("coppice-"):
        words = [args.coppice, "serve", "--model", args.model, "--addr", f"127.0.0.1:{args.port}", "--threads", str(args.threads),
                 "--kv-type", "f16", "--kv-tokens", str(args.kv_tokens)]
        how = side.removeprefix("coppice-")
        return words if how == "plain" else [*words, "--speculate", how]
    kind, _, more = side.removeprefix("llama-").partition(":")
    words = [args.llama, "-m", args.model, "--host", "127.0.0.1", "--port", str(args.port), "-t", str(args.threads), "-tb", str(args.threads),
             "-np", str(parallel), "-c", str(args.kv_tokens), "--jinja", "--no-webui",
             *(["--kv-unified"] if parallel > 1 else [])]  # else each slot has its share of -c, and a source file does not fit
    return words if kind == "off" else [*words, "--spec-type", kind, *(w for flag in more.split() for w in flag.split("=", 1))]


TICKS = os.sysconf("SC_CLK_TCK")


class server:
    """A server process that has come up, and is ended at the end of the block."""

    def __init__(self, name, words, args):
        self.name, self.words, self.args = name, words, args

    def __enter__(self):
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", self.args.port)) == 0:
                raise SystemExit(f"a process listens at port {self.args.port} already: end it, or choose another --port")
        self.log = open(self.args.log, "ab") if self.args.log else subprocess.DEVNULL
        self.process = subprocess.Popen(self.words, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 120
        while True:
            if self.process.poll() is not None:
                raise SystemExit(f"{self.name} has ended with status {self.process.returncode}: {' '.join(self.words)}")
            try:
                if get(self.args, "/health") == 200:
                    return self
            except OSError:
                pass
            if time.monotonic() > deadline:
                self.__exit__()
                raise SystemExit(f"{self.name} does not come up")
            time.sleep(0.1)

    def cpu(self):
        """The processors' time of the process so far, in seconds, from Linux's /proc."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.log is not subprocess.DEVNULL:
            self.log.close()


def get(args, path):
    c = http.client.HTTPConnection("127.0.0.1", args.port, timeout=10)
    c.request("GET", path)
    status = c.getresponse().status
    c.close()
    return status


def post(args, path, body):
    c = http.client.HTTPConnection("127.0.0.1", args.port, timeout=900)
    c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = c.getresponse()
    data = answer.read()
    c.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: status {answer.status}: {data[:500]!r}")
    return json.loads(data)


def body(task, most):
    b = {"messages": task["messages"], "max_tokens": most, "temperature": 0}
    if "schema" in task:
        b["response_format"] = {"type": "json_schema", "json_schema": {"name": "call", "strict": True, "schema": task["schema"]}}
    return b


def ask(args, task, most):
    """Streams an answer. Returns its text, tokens, times of the first and the last output, and drafts as the server counts them."""
    c = http.client.HTTPConnection("127.0.0.1", args.port, timeout=900)
    asked = {**body(task, most), "stream": True, "stream_options": {"include_usage": True}}
    c.request("POST", "/v1/chat/completions", json.dumps(asked), {"Content-Type": "application/json"})
    answer = c.getresponse()
    if answer.status != 200:
        raise SystemExit(f"{task['name']}: status {answer.status}: {answer.read()[:500]!r}")
    text, tokens, first, last, drafted, accepted = "", 0, None, None, 0, 0
    for line in answer:
        if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
            continue
        event = json.loads(line[6:])
        now = time.monotonic()
        for choice in event.get("choices", []):
            if piece := choice["delta"].get("content"):
                text, first, last = text + piece, first or now, now
        if usage := event.get("usage"):
            tokens = usage["completion_tokens"]
            details = usage.get("completion_tokens_details") or {}
            accepted = details.get("accepted_prediction_tokens") or 0
            drafted = accepted + (details.get("rejected_prediction_tokens") or 0)
        if timings := event.get("timings"):  # of llama.cpp
            drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    c.close()
    if first is None:
        raise SystemExit(f"{task['name']}: the answer is empty")
    return text, tokens, first, last, drafted, accepted


def play(args, side, load, most, parallel):
    """One run of a load on a server of its own."""
    answers, seconds, cpu = [], 0.0, 0.0
    with server(side, command(args, side, parallel), args) as at, concurrent.futures.ThreadPoolExecutor(parallel) as pool:
        for lo in range(0, len(load), parallel):
            wave, limits = load[lo : lo + parallel], most[lo : lo + parallel]
            list(pool.map(lambda t: post(args, "/v1/chat/completions", body(t, 1)), wave))
            cpu -= at.cpu()
            got = list(pool.map(lambda t, n: ask(args, t, n), wave, limits))
            cpu += at.cpu()
            seconds += max(a[3] for a in got) - min(a[2] for a in got)
            answers += got
    tokens = sum(a[1] for a in answers)
    return {"tokens": tokens, "seconds": seconds, "rate": (tokens - len(answers)) / seconds, "cpu_ms": 1000 * cpu / tokens, "drafted": sum(a[4] for a in answers),
            "accepted": sum(a[5] for a in answers), "texts": hashlib.sha256("\0".join(a[0] for a in answers).encode()).hexdigest()[:16]}


def table(runs, loads, sides):
    print("| load | side | tokens/s | of off | CPU ms/token | of off | drafted | accepted | same texts as off |\n|---|---|---:|---:|---:|---:|---:|---:|---|")
    for load in loads:
        for side in sides:
            mine = [r for r in runs if r["load"] == load and r["side"] == side]
            if not mine:
                continue
            program = side.split("-")[0]
            off = [r for r in runs if r["load"] == load and r["side"] in (f"{program}-off", f"{program}-plain")]
            cells = []
            for figure, shown in (("rate", "{:.1f}"), ("cpu_ms", "{:.1f}")):
                median = statistics.median(r[figure] for r in mine)
                cells += [shown.format(median), f"{median / statistics.median(r[figure] for r in off):.2f}" if off and off[0]["side"] != side else "–"]
            same = "–" if not off or off[0]["side"] == side else "yes" if {r["texts"] for r in mine} == {r["texts"] for r in off} else "no"
            print(f"| {load} | {side} | {' | '.join(cells)} | {mine[-1]['drafted']} | {mine[-1]['accepted']} | {same} |")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--coppice", default="coppice")
    p.add_argument("--llama", default="llama-server")
    p.add_argument("--sides", default="coppice-off,coppice-auto,llama-off,llama-ngram-simple,llama-ngram-mod,llama-ngram-cache")
    p.add_argument("--loads", default="rewrite,records,calls,chat,streams")
    p.add_argument("--tasks", type=int, default=5, help="of each load, but all of streams")
    p.add_argument("--output-tokens", type=int, default=0, help="cut each answer after this many tokens")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--kv-tokens", type=int, default=32768)
    p.add_argument("--port", type=int, default=18931)
    p.add_argument("--out", default="", help="file for a line for each run")
    p.add_argument("--log", default="", help="file for the servers' output")
    args = p.parse_args()
    out, runs = pathlib.Path(args.out) if args.out else None, []
    if out and out.exists():
        runs = [json.loads(line) for line in out.read_text().splitlines()]
    loads, sides = args.loads.split(","), args.sides.split(",")
    for name in loads:
        load = tasks(name, 0 if name in PARALLEL else args.tasks)
        most = None
        for n in range(args.runs):
            for side in sides if n % 2 == 0 else reversed(sides):
                key = {"load": name, "side": side, "run": n, "tasks": len(load), "output_tokens": args.output_tokens, "model": pathlib.Path(args.model).name}
                if any(key.items() <= r.items() for r in runs):
                    continue
                most = most or lengths(args, load)
                r = {**key, **play(args, side, load, most, PARALLEL.get(name, 1))}
                runs.append(r)
                print(f"{name} {side} run {n}: {r['rate']:.2f} tokens/s, {r['drafted']} drafted, {r['accepted']} accepted", file=sys.stderr, flush=True)
                if out:
                    with out.open("a") as f:
                        f.write(json.dumps(r) + "\n")
    table(runs, loads, sides)


if __name__ == "__main__":
    main()
