#!/usr/bin/env python3
"""Writes golden/hidden.json: the final hidden states that transformers computes in float64 for some of the
models that golden.py wrote, at the last token and as the mean over all tokens. Needs torch and transformers;
go test needs neither.

    python3 engine/cpu/testdata/golden_hidden.py
"""
import json, os

import torch, transformers
from transformers import AutoModel

GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
MODELS = ("llama3-tied-f32", "mistral-bf16", "llama-bias-f16", "qwen2-d32-f32", "qwen3-d64-f16")
LENGTHS = (1, 33)


def brief(t):
    return [float(f"{x:.8g}") for x in t.tolist()]


def main():
    models = []
    for i, name in enumerate(MODELS):
        model = AutoModel.from_pretrained(os.path.join(GOLDEN, name), dtype=torch.float32, attn_implementation="eager").double().eval()
        gen, prompts = torch.Generator().manual_seed(i), []
        for n in LENGTHS:
            ids = torch.randint(0, model.config.vocab_size, (n,), generator=gen)
            with torch.no_grad():
                states = model(ids[None]).last_hidden_state[0]
            prompts.append({"tokens": ids.tolist(), "last": brief(states[-1]), "mean": brief(states.mean(0))})
        models.append({"name": name, "prompts": prompts})
    text = json.dumps({"torch": torch.__version__, "transformers": transformers.__version__, "models": models}, separators=(",", ":"))
    with open(os.path.join(GOLDEN, "hidden.json"), "w") as f:
        f.write(text.replace('{"', '\n{"').lstrip() + "\n")


main()
