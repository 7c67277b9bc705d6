#!/usr/bin/env python3
"""Writes golden/: small models, and the logits and greedy tokens that transformers
computes for them in float64. Needs torch and transformers; go test needs neither.

    go run ./cmd/coppice make-model /tmp/nano --preset nano --seed 1
    python3 engine/cpu/testdata/golden.py /tmp/nano

A model is a directory with config.json and weights, without a tokenizer: the test
puts that of the nano preset beside them. The generated preset itself is not stored,
only the SHA-256 of its weights. Norms are 1+0.1g and every matrix is random, for
the defaults of 1 and 0 hide faults. The rotary angles are transformers' own, f32 in
a float64 model too.
"""
import hashlib, json, os, shutil, sys

import torch, transformers
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
LENGTHS = (1, 17, 70, 500)
STEPS = 16
GAP = 2e-3  # between the best two logits at every greedy step, so that f32 can't tip it

SHAPE = dict(vocab_size=320, hidden_size=32, num_hidden_layers=2, max_position_embeddings=1024,
             rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1)
# Wavelengths on both sides of 128/4 and 128/1, and between; FFN of 44 leaves half a panel.
LLAMA3 = dict(rope_theta=500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=128)
MODELS = {
    "llama3-tied-f32": (LlamaConfig(**SHAPE, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        intermediate_size=44, tie_word_embeddings=True, rope_parameters=LLAMA3), torch.float32, "80KB"),
    "mistral-bf16": (MistralConfig(**SHAPE, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
        intermediate_size=44, sliding_window=None), torch.bfloat16, None),
    "llama-tied-f16": (LlamaConfig(**SHAPE, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        intermediate_size=64, tie_word_embeddings=True), torch.float16, None),
}


def write_model(name, config, dtype, shard):
    """Saves a random model; those in one file get the config of transformers 4."""
    gen = torch.Generator().manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for _, p in model.named_parameters():
            r = torch.randn(p.shape, generator=gen)
            p.copy_(1 + 0.1 * r if p.dim() == 1 else r / p.shape[1] ** 0.5)
    d = os.path.join(OUT, name)
    shutil.rmtree(d, ignore_errors=True)
    model.to(dtype).save_pretrained(d, **({"max_shard_size": shard} if shard else {}))
    if os.path.exists(os.path.join(d, "generation_config.json")):
        os.remove(os.path.join(d, "generation_config.json"))
    if not shard:
        path = os.path.join(d, "config.json")
        with open(path) as f:
            c = json.load(f)
        c["rope_theta"] = c.pop("rope_parameters")["rope_theta"]
        c["torch_dtype"] = c.pop("dtype")
        with open(path, "w") as f:
            json.dump(c, f, indent=2)
            f.write("\n")
    return d


def expect(d, seed):
    model = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation="eager").double().eval()
    gen = torch.Generator().manual_seed(seed)
    prompts = []
    for n in LENGTHS:
        while True:
            ids = torch.randint(0, model.config.vocab_size, (n,), generator=gen)
            greedy, gap, now = [], float("inf"), ids[None]
            with torch.no_grad():
                for step in range(STEPS):
                    logits = model(now).logits[0, -1]
                    if step == 0:
                        first = logits
                    best = logits.topk(2)
                    gap = min(gap, float(best.values[0] - best.values[1]))
                    greedy.append(int(best.indices[0]))
                    now = torch.cat([now, best.indices[:1][None]], 1)
            if gap > GAP:
                break
        prompts.append({"tokens": ids.tolist(), "logits": [float(f"{x:.8g}") for x in first.tolist()], "greedy": greedy})
    return prompts


def main(nano):
    with open(os.path.join(nano, "model.safetensors"), "rb") as f:
        digest = hashlib.sha256(f.read()).hexdigest()
    models = [{"name": "nano", "generated_sha256": digest, "prompts": expect(nano, 1)}]
    for i, (name, spec) in enumerate(MODELS.items()):
        models.append({"name": name, "prompts": expect(write_model(name, *spec), i + 2)})
    out = {"torch": torch.__version__, "transformers": transformers.__version__, "models": models}
    text = json.dumps(out, separators=(",", ":")).replace('{"', '\n{"')  # a line per prompt
    with open(os.path.join(OUT, "expected.json"), "w") as f:
        f.write(text.lstrip() + "\n")


main(sys.argv[1])
