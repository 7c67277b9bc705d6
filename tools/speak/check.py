"""Checks a file of speak.py: the bits a byte that it needs for text that it has not learnt, and that it recites nothing.

    python3 tools/speak/check.py TEXTS MODEL.gguf

It has coppice generate write 256 tokens for each of 100 seeds, from questions and from the beginnings of held-out paragraphs, and looks for the
longest run of tokens that the training text has too. It fails if one has 64 tokens or more.
"""

import pathlib
import subprocess
import sys
import tempfile

import speak
from speak import gguf, tokenizers, torch

SEEDS, TOKENS, RECITED = 100, 256, 64


def main(texts: str, file: str) -> None:
    model, words = read(file)
    learnt, held = speak.split(texts)
    for name, stretches in held.items():
        print(f"held out of {name}: {speak.bits(model, words, stretches):.3f} bits a byte")
    grams = set()
    for stretches in learnt.values():
        for s in stretches:
            ids = words.encode("\n".join(s)).ids
            grams.update(tuple(ids[i : i + 8]) for i in range(len(ids) - 7))
    known = [g for stretches in learnt.values() for s in stretches for g in (words.encode("\n".join(s)).ids,)]
    text = " ".join(" ".join(map(str, ids)) for ids in known) + " "
    longest, where = 0, ""
    for seed, ids in enumerate(written(file, words, held)):
        for i in range(len(ids) - 7):
            n = 8
            if tuple(ids[i : i + n]) not in grams:
                continue
            while i + n < len(ids) and " " + " ".join(map(str, ids[i : i + n + 1])) + " " in text:
                n += 1
            if n > longest:
                longest, where = n, f"seed {seed}: {words.decode(ids[i : i + n])!r}"
    print(f"longest run of tokens that the training text has too: {longest}, {where}")
    if longest >= RECITED:
        sys.exit(f"want less than {RECITED}")


def read(file: str):
    """Returns the model of a file, with the values of its quantised weights, and its tokenizer."""
    r = gguf.GGUFReader(file)
    values = {t.name: torch.tensor(gguf.quants.dequantize(t.data, t.tensor_type)) for t in r.tensors}
    model = speak.Model()
    with torch.no_grad():
        for name, p in speak.tensors(model):
            p.copy_(values[name].view(p.shape))
    tokens, merges = ([str(bytes(f.parts[i]), "utf-8") for i in f.data] for f in (r.fields["tokenizer.ggml.tokens"], r.fields["tokenizer.ggml.merges"]))
    t = tokenizers.Tokenizer(tokenizers.models.BPE({w: i for i, w in enumerate(tokens)}, [tuple(m.split(" ")) for m in merges]))
    t.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = tokenizers.decoders.ByteLevel()
    t.add_special_tokens([speak.END, speak.OPEN, speak.CLOSE])
    return model, t


def written(file: str, words, held: dict):
    """Yields the tokens that the model writes, seed by seed, by coppice generate with its defaults."""
    openings = [s[0][:80] for stretches in held.values() for s in stretches]
    subjects = ["light", "the prism", "colours", "a mirror", "the eye", "water", "glass", "heat", "the Sun", "a ray"]
    with tempfile.TemporaryDirectory() as dir:
        subprocess.run(["go", "build", "-o", f"{dir}/coppice", "./cmd/coppice"], check=True, cwd=pathlib.Path(__file__).parents[2])
        for seed in range(SEEDS):
            flags, prompt = [], openings[seed // 2 % len(openings)]
            if seed % 2 == 0:
                flags, prompt = ["--chat"], speak.ASKS[seed // 2 % len(speak.ASKS)].format(subjects[seed // 2 % len(subjects)])
            command = [f"{dir}/coppice", "generate", "--model", file, "--max-tokens", str(TOKENS), "--seed", str(seed), *flags, prompt]
            yield words.encode(subprocess.run(command, check=True, capture_output=True, text=True).stdout).ids


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    torch.set_grad_enabled(False)
    assert pathlib.Path(sys.argv[2]).exists(), f"{sys.argv[2]} is not there"
    main(sys.argv[1], sys.argv[2])
