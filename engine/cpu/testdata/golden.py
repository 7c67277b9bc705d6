#!/usr/bin/env python3
"""Writes golden/: small models, and what transformers computes for them in float64:
logits, greedy tokens, and the residual stream after each layer. Needs torch and
transformers; go test needs neither.

    go run ./cmd/coppice make-model /tmp/nano --preset nano --seed 1
    python3 engine/cpu/testdata/golden.py /tmp/nano

A model is a directory with config.json and weights, without a tokenizer: the test
puts that of the nano preset beside them. The generated preset itself is not stored,
only the SHA-256 of its weights. Norms are 1+0.1g, biases 0.5g and every matrix is
random, for the defaults of 1 and 0 hide faults. The rotary angles are transformers'
own, f32 in a float64 model too.
"""
import hashlib, json, os, platform, shutil, sys

import torch, transformers
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
LENGTHS = (1, 17, 70)
LONG = 500  # one more, for the models in HAVE_LONG: it takes most of the test's time
HAVE_LONG = ("nano", "llama3-tied-f32", "mistral-bf16", "llama-tied-f16", "qwen3-d64-f16")
STEPS = 16
GAP = 2e-3  # between the best two logits at every greedy step, so that f32 can't tip it

SHAPE = dict(vocab_size=320, hidden_size=32, num_hidden_layers=2, max_position_embeddings=1024,
             rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1)
QWEN = dict(SHAPE, rms_norm_eps=1e-6, rope_parameters=dict(rope_theta=1e6, rope_type="default"))
# Shapes of attention by the size of a head; FFN of 44 leaves half a panel.
D16 = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=44)
D32 = dict(D16, head_dim=32)
D64 = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=64, intermediate_size=44)
D128 = dict(D64, head_dim=128)  # what most published models have
# A vocabulary that leaves part of a panel, three heads to one, sizes between.
ODD = dict(vocab_size=323, hidden_size=48, num_attention_heads=3, num_key_value_heads=1, intermediate_size=40)
# Wavelengths on both sides of 128/4 and 128/1, and between.
LLAMA3 = dict(rope_theta=500000.0, rope_type="llama3", factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=128)
# Name to config, type, largest shard, and fields to add to a config in the form of
# transformers 4 (None: the form of version 5).
MODELS = {
    "llama3-tied-f32": (LlamaConfig(**SHAPE, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        intermediate_size=44, tie_word_embeddings=True, rope_parameters=LLAMA3), torch.float32, "80KB", None),
    "mistral-bf16": (MistralConfig(**SHAPE, **D16, sliding_window=None), torch.bfloat16, None, {}),
    "llama-tied-f16": (LlamaConfig(**SHAPE, num_attention_heads=2, num_key_value_heads=2, head_dim=16,
        intermediate_size=64, tie_word_embeddings=True), torch.float16, None, {}),
    "llama3-d64-bf16": (LlamaConfig(**SHAPE, **D64, rope_parameters=LLAMA3), torch.bfloat16, None, {}),
    "llama-bias-f16": (LlamaConfig(**SHAPE, **D16, tie_word_embeddings=True, attention_bias=True, mlp_bias=True),
        torch.float16, None, None),
    "mistral-d64-f16": (MistralConfig(**SHAPE, **D64, sliding_window=1024), torch.float16, None, None),
    "qwen2-d16-bf16": (Qwen2Config(**QWEN, **D16), torch.bfloat16, None,
        dict(use_sliding_window=False, sliding_window=64, max_window_layers=1, layer_types=None)),
    "qwen2-d64-f16": (Qwen2Config(**QWEN, **D64, tie_word_embeddings=True), torch.float16, "40KB", None),
    "qwen3-d16-bf16": (Qwen3Config(**QWEN, **D16), torch.bfloat16, None, {}),
    "qwen3-d64-f16": (Qwen3Config(**QWEN, **D64, tie_word_embeddings=True, attention_bias=True), torch.float16, None, None),
    "mistral-d32-f16": (MistralConfig(**SHAPE, **D32, sliding_window=None), torch.float16, None, {}),
    "qwen2-d32-f32": (Qwen2Config(**QWEN, **D32), torch.float32, None, None),
    "qwen3-d32-bf16": (Qwen3Config(**QWEN, **D32, tie_word_embeddings=True), torch.bfloat16, None, None),
    "llama3-d128-bf16": (LlamaConfig(**SHAPE, **D128, rope_parameters=LLAMA3), torch.bfloat16, None, {}),
    "mistral-d128-bf16": (MistralConfig(**SHAPE, **D128, sliding_window=None), torch.bfloat16, None, None),
    "qwen2-d128-f16": (Qwen2Config(**QWEN, **D128, tie_word_embeddings=True), torch.float16, None, None),
    "qwen3-d128-bf16": (Qwen3Config(**QWEN, **D128), torch.bfloat16, None, {}),
    "llama-d80-f16": (LlamaConfig(**{**SHAPE, **ODD}, head_dim=80, tie_word_embeddings=True), torch.float16, None, None),
    "qwen3-d96-bf16": (Qwen3Config(**{**QWEN, **ODD}, head_dim=96), torch.bfloat16, None, None),
}


def value(name, shape, gen):
    r = torch.randn(shape, generator=gen)
    if name.endswith(".bias"):
        return 0.5 * r
    return 1 + 0.1 * r if len(shape) == 1 else r / shape[1] ** 0.5


def write_model(name, config, dtype, shard, v4):
    """Saves a random model."""
    gen = torch.Generator().manual_seed(sum(map(ord, name)))
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for n, p in model.named_parameters():
            p.copy_(value(n, p.shape, gen))
    d = os.path.join(OUT, name)
    shutil.rmtree(d, ignore_errors=True)
    model.to(dtype).save_pretrained(d, **({"max_shard_size": shard} if shard else {}))
    if os.path.exists(os.path.join(d, "generation_config.json")):
        os.remove(os.path.join(d, "generation_config.json"))
    if v4 is not None:
        path = os.path.join(d, "config.json")
        with open(path) as f:
            c = json.load(f)
        rope = c.pop("rope_parameters")
        c["rope_theta"] = rope.pop("rope_theta")
        if rope["rope_type"] != "default":
            c["rope_scaling"] = rope
        c["torch_dtype"] = c.pop("dtype")
        for field, v in v4.items():
            c[field] = v
            if v is None:
                del c[field]
        with open(path, "w") as f:
            json.dump(c, f, indent=2)
            f.write("\n")
    for f in os.listdir(d):
        os.chmod(os.path.join(d, f), 0o644)
    return d


def digest(path):
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def brief(t, digits):
    return [float(f"{x:.{digits}g}") for x in t.tolist()]


def expect(name, d, seed):
    """The prompts with what the model in d makes of them, and the frequencies."""
    model = AutoModelForCausalLM.from_pretrained(d, dtype=torch.float32, attn_implementation="eager")
    inv_freq = brief(model.model.rotary_emb.inv_freq, 9)
    model = model.double().eval()
    states = []  # the residual stream of the last token, after the embedding and each layer
    keep = lambda module, args, out: states.append((out[0] if isinstance(out, tuple) else out)[0, -1])
    for module in [model.model.embed_tokens, *model.model.layers]:
        module.register_forward_hook(keep)
    gen = torch.Generator().manual_seed(seed)
    prompts = []
    for n in LENGTHS + ((LONG,) if name in HAVE_LONG else ()):
        while True:
            ids = torch.randint(0, model.config.vocab_size, (n,), generator=gen)
            greedy, gap, now = [], float("inf"), ids[None]
            with torch.no_grad():
                for step in range(STEPS):
                    states.clear()
                    logits = model(now).logits[0, -1]
                    if step == 0:
                        first, after = logits, [brief(s, 8) for s in states]
                    best = logits.topk(2)
                    gap = min(gap, float(best.values[0] - best.values[1]))
                    greedy.append(int(best.indices[0]))
                    now = torch.cat([now, best.indices[:1][None]], 1)
            if gap > GAP:
                break
        prompts.append({"tokens": ids.tolist(), "logits": brief(first, 8), "greedy": greedy, "states": after})
    return {"inv_freq": inv_freq, "prompts": prompts}


def main(nano):
    models = [{"name": "nano", "generated_sha256": digest(os.path.join(nano, "model.safetensors")), **expect("nano", nano, 1)}]
    for i, (name, spec) in enumerate(MODELS.items()):
        d = write_model(name, *spec)
        files = {f: digest(os.path.join(d, f)) for f in sorted(os.listdir(d))}
        models.append({"name": name, "sha256": files, **expect(name, d, i + 2)})
    out = {"python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__,
           "models": models}
    text = json.dumps(out, separators=(",", ":")).replace('{"', '\n{"')  # a line per prompt
    with open(os.path.join(OUT, "expected.json"), "w") as f:
        f.write(text.lstrip() + "\n")


main(sys.argv[1])
