"""Runs load generators as they are shipped against a server of this repository, and compares
what they counted with the server's metrics.

    python3.12 -m venv DIR/aiperf && DIR/aiperf/bin/pip install aiperf==0.13.0
    python3.12 -m venv DIR/guidellm && DIR/guidellm/bin/pip install guidellm==0.8.1
    python3.12 -m venv DIR/inference-perf && DIR/inference-perf/bin/pip install inference-perf==0.7.0
    go run ./cmd/coppice serve --addr 127.0.0.1:8090 --model MODEL --model-name m &
    python3 tools/e2e/clients/generators.py DIR --url http://127.0.0.1:8090 --tokenizer TOKENIZER

MODEL had better be a real one: some of the tools count tokens by the text. TOKENIZER is its
directory as transformers reads it. Nothing else may use the server meanwhile. It ends with
status 1 if a count differs, or a mean time between tokens by more than 5 %.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import urllib.request


def metrics(url):
    sums = {}
    for line in urllib.request.urlopen(url + "/metrics").read().decode().splitlines():
        if line.startswith("coppice_") and "_bucket" not in line:
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            sums[name] = sums.get(name, 0) + float(value)
    return sums


def run(*command):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed:\n{done.stdout[-2000:]}")


def aiperf(a, stream, out):
    """By the server's counts of tokens: its own are of the text, without the chat template."""
    run(a.dir / "aiperf/bin/aiperf", "profile", "--model", a.model, "--tokenizer", a.tokenizer, "--url", a.url, "--endpoint-type", "chat", *(["--streaming"] if stream else []),
        "--use-server-token-count", "--extra-inputs", "ignore_eos:true", "--concurrency", 2, "--request-count", a.requests, "--synthetic-input-tokens-mean", 100,
        "--output-tokens-mean", a.output, "--artifact-dir", out)
    r = json.loads((out / "profile_export_aiperf.json").read_text())
    return r["request_count"]["avg"], r["total_isl"]["avg"], r["total_osl"]["avg"], r["inter_token_latency"]["avg"] if stream else None


def guidellm(a, stream, out):
    run(a.dir / "guidellm/bin/guidellm", "run", "--backend", f"kind=openai_http,target={a.url},model={a.model},stream={'true' if stream else 'false'}",
        "--profile", "kind=concurrent,streams=2", "--tokenizer", f"kind=hf_auto,model={a.tokenizer}", "--data", f"kind=synthetic_text,prompt_tokens=100,output_tokens={a.output}",
        "--constraint", f"kind=max_requests,count={a.requests}", "--output", f"kind=json,path={out}/report.json", "--disable-progress")
    m = json.loads((out / "report.json").read_text())["benchmarks"][0]["metrics"]
    total = lambda k: m[k]["successful"]["total_sum"]
    return m["request_totals"]["successful"], total("prompt_token_count"), total("output_token_count"), m["inter_token_latency_ms"]["successful"]["mean"] if stream else None


def inference_perf(a, stream, out):
    config = {
        "api": {"type": "completion", "streaming": stream},
        "data": {"type": "random", "input_distribution": {"min": 80, "max": 120, "mean": 100, "std_dev": 10, "total_count": 2 * a.requests},
                 "output_distribution": {"min": a.output, "max": a.output, "mean": a.output, "std_dev": 0, "total_count": 2 * a.requests}},
        "load": {"type": "constant", "stages": [{"rate": 1, "duration": a.requests}], "num_workers": 1},
        "server": {"type": "vllm", "model_name": a.model, "base_url": a.url, "ignore_eos": True},
        "tokenizer": {"pretrained_model_name_or_path": str(a.tokenizer)},
        "report": {"request_lifecycle": {"summary": True, "per_stage": False, "per_request": False}},
        "storage": {"local_storage": {"path": str(out)}},
    }
    (out / "in.yaml").write_text(json.dumps(config))  # JSON is YAML
    run(a.dir / "inference-perf/bin/inference-perf", "-c", out / "in.yaml")
    s = json.loads((out / "summary_lifecycle_metrics.json").read_text())["successes"]
    return s["count"], s["prompt_tokens"]["total"], s["output_tokens"]["total"], 1e3 * s["latency"]["inter_token_latency"]["mean"] if stream else None


TOOLS = [aiperf, guidellm, inference_perf]


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("dir", type=pathlib.Path)
    args.add_argument("--url", default="http://127.0.0.1:8090")
    args.add_argument("--model", default="m")
    args.add_argument("--tokenizer", required=True, type=pathlib.Path)
    args.add_argument("--requests", type=int, default=20)
    args.add_argument("--output", type=int, default=40)
    args.add_argument("--tool", action="append", choices=[t.__name__ for t in TOOLS], help="one of them; may be given again. Default: all")
    a = args.parse_args()
    a.dir, a.tokenizer, failed = a.dir.resolve(), a.tokenizer.resolve(), False
    for tool in (t for t in TOOLS if not a.tool or t.__name__ in a.tool):
        for stream in True, False:
            before = metrics(a.url)
            with tempfile.TemporaryDirectory() as out:
                requests, prompt, output, itl = tool(a, stream, pathlib.Path(out))
            after = metrics(a.url)
            d = {k: v - before.get(k, 0) for k, v in after.items()}
            ours = d["coppice_request_success_total"], d["coppice_prompt_tokens_total"], d["coppice_generation_tokens_total"]
            gap = 1e3 * d["coppice_inter_token_latency_seconds_sum"] / d["coppice_inter_token_latency_seconds_count"]
            ok = (requests, prompt, output) == ours and (itl is None or abs(itl / gap - 1) <= 0.05)
            failed |= not ok
            print(f"{'ok  ' if ok else 'FAIL'} {tool.__name__:<14} {'streamed' if stream else 'whole':<8} requests, prompt tokens, output tokens: {requests:g} {prompt:g} {output:g}, server {ours[0]:g} {ours[1]:g} {ours[2]:g}"
                  + (f"; between tokens {100 * (itl / gap - 1):+.2f} %" if itl else ""), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
