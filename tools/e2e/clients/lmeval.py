"""Compares lm-eval's scores through a server of this repository with those of its own hf model.

    python3.12 -m venv DIR/hf && DIR/hf/bin/pip install 'lm-eval[hf,api]==0.4.13' gguf==0.19.0 datasets==5.2.0
    go run ./cmd/coppice serve --addr 127.0.0.1:8090 --model MODEL.gguf --model-name m &
    DIR/hf/bin/python tools/e2e/clients/lmeval.py --url http://127.0.0.1:8090 --gguf MODEL.gguf --tokenizer TOKENIZER

MODEL is a small real one of type F32, F16 or BF16, so that transformers reads the same weights.
The two tasks, a cloze and a multiple choice, are below. It ends with status 1 if a metric or a
greedy flag differs, or a log-likelihood by more than 0.001.
"""

import argparse
import json
import pathlib
import sys
import tempfile

CLOZE = [("The capital of France is", " Paris"), ("The capital of Germany is", " Berlin"), ("The opposite of hot is", " cold"), ("Two plus two equals", " four"),
         ("The sun rises in the", " east"), ("The sky is", " blue"), ("Water freezes at zero degrees", " Celsius"), ("The largest ocean on Earth is the Pacific", " Ocean"),
         ("Once upon a", " time"), ("Thank you very", " much"), ("The United States of", " America"), ("New York", " City"), ("Happy birthday to", " you"),
         ("The quick brown fox jumps over the lazy", " dog"), ("Romeo and", " Juliet"), ("She opened the door and walked into the", " room"), ("The cat sat on the", " mat"),
         ("An apple a day keeps the doctor", " away"), ("One, two, three,", " four"), ("Monday, Tuesday,", " Wednesday"), ("January, February,", " March"),
         ("Ladies and", " gentlemen"), ("The speed of", " light"), ("Isaac", " Newton"), ("The chemical symbol for gold is", " Au"), ("A triangle has three", " sides")]
CHOICE = [("What is the capital of Italy?", ["Paris", "Rome", "Madrid", "Lisbon"], 1), ("Which animal barks?", ["cat", "cow", "dog", "fish"], 2),
          ("Which of these is a fruit?", ["banana", "table", "stone", "river"], 0), ("What do bees make?", ["milk", "honey", "bread", "wine"], 1),
          ("Which planet is closest to the Sun?", ["Mars", "Venus", "Mercury", "Jupiter"], 2), ("What colour is grass?", ["red", "green", "blue", "white"], 1),
          ("How many legs has a spider?", ["four", "six", "eight", "ten"], 2), ("Which metal is liquid at room temperature?", ["iron", "gold", "mercury", "copper"], 2),
          ("Who wrote Hamlet?", ["Shakespeare", "Newton", "Mozart", "Darwin"], 0), ("What is the largest mammal?", ["elephant", "blue whale", "horse", "mouse"], 1),
          ("Which instrument has strings?", ["drum", "flute", "violin", "trumpet"], 2), ("Where do fish live?", ["in trees", "in water", "in caves", "in clouds"], 1)]


def tasks(into):
    """Writes the data and returns the tasks' configurations."""
    def task(name, rows, **more):
        path = into / (name + ".jsonl")
        path.write_text("\n".join(map(json.dumps, rows)))
        return {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(path)}}, "test_split": "test", "num_fewshot": 0, **more}

    def metric(name, aggregation="mean"):
        return {"metric": name, "aggregation": aggregation, "higher_is_better": name != "perplexity"}
    return [
        task("small_cloze", [{"ctx": a, "end": b} for a, b in CLOZE], output_type="loglikelihood", doc_to_text="{{ctx}}", doc_to_target="{{end}}", target_delimiter="",
             metric_list=[metric("acc"), metric("perplexity", "perplexity")]),
        task("small_choice", [{"q": q, "c": c, "a": a} for q, c, a in CHOICE], output_type="multiple_choice", doc_to_text="Question: {{q}} Answer:", doc_to_choice="{{c}}",
             doc_to_target="a", metric_list=[metric("acc"), metric("acc_norm")]),
    ]


def weights(gguf, tokenizer):
    """The file's weights as lm-eval's hf model, in float32."""
    import torch
    import transformers
    from lm_eval.models.huggingface import HFLM

    model = transformers.AutoModelForCausalLM.from_pretrained(str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32)
    return HFLM(pretrained=model, tokenizer=transformers.AutoTokenizer.from_pretrained(str(tokenizer)), device="cpu", dtype="float32", batch_size=4)


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--url", default="http://127.0.0.1:8090")
    args.add_argument("--model", default="m")
    args.add_argument("--gguf", required=True, type=pathlib.Path)
    args.add_argument("--tokenizer", required=True, type=pathlib.Path)
    a = args.parse_args()

    import lm_eval
    from lm_eval.models.openai_completions import LocalCompletionsAPI

    api = LocalCompletionsAPI(base_url=a.url.rstrip("/") + "/v1/completions", model=a.model, tokenizer_backend="huggingface", tokenizer=str(a.tokenizer), num_concurrent=2)
    with tempfile.TemporaryDirectory() as into:
        hf, ours = (lm_eval.simple_evaluate(model=lm, tasks=tasks(pathlib.Path(into)), log_samples=True, bootstrap_iters=0) for lm in (weights(a.gguf, a.tokenizer), api))
    failed = False
    for name in hf["results"]:
        scores = {k: (v, ours["results"][name][k]) for k, v in hf["results"][name].items() if isinstance(v, float) and "stderr" not in k}
        pairs = [(x[0], y[0]) for s, t in zip(*(sorted(r["samples"][name], key=lambda s: s["doc_id"]) for r in (hf, ours))) for x, y in zip(s["resps"], t["resps"])]
        worst, flags = max(abs(float(x[0]) - float(y[0])) for x, y in pairs), sum(bool(x[1]) != bool(y[1]) for x, y in pairs)
        greedy = sum(bool(x[1]) for x, _ in pairs)
        ok = flags == 0 and worst < 1e-3 and all(abs(x - y) < 1e-3 * max(1, abs(x)) for x, y in scores.values())
        failed |= not ok
        print(f"{'ok  ' if ok else 'FAIL'} {name}: hf and server {scores}; {len(pairs)} log-likelihoods differ by {worst:.1e} at most, {flags} greedy flags of {len(pairs)} ({greedy} greedy)")
    return failed


if __name__ == "__main__":
    sys.exit(main())
