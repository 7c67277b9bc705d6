"""Writes gaps.json: small byte-level vocabularies that lack bytes or ids, and what
Hugging Face's library makes of texts with them; and the pieces that DeepSeek's
pre-tokenizer cuts.

    pip install tokenizers==0.23.3 && python gaps.py
"""

import json
import pathlib
import random

import tokenizers
from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent
PUNCTUATED = (
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
    "|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
LACKING = [0x04, 0x06, 0x0A, 0x13, 0xC0, 0xC1, 0xE4, 0xF0, 0xF1, 0xFF, ord("q"), ord("'")]


def split(regex):
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def alphabet():
    own = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    out, n = {}, 0
    for b in range(256):
        if b in own:
            out[b] = chr(b)
        else:
            out[b] = chr(0x100 + n)
            n += 1
    return out


def vocabulary(lacking, stride):
    """Every stride-th id has a token: single bytes, then merges over them."""
    names = alphabet()
    tokens = [names[b] for b in range(256) if b not in lacking]
    merges = []
    for pair in ["t h", "th e", "i n", "Ġ the", "a n", "an d", "l l", "Ã ©", "o n", "Ġ Ġ", "e e"]:
        merges.append(pair.split(" "))
        tokens.append(pair.replace(" ", ""))
    return {t: stride * i for i, t in enumerate(tokens)}, merges


def file(lacking=(), stride=1, pre=(), **model):
    vocab, merges = vocabulary(lacking, stride)
    unk = model.get("unk_token")
    if unk:
        vocab[unk] = max(vocab.values()) + stride
    vocab["<|end|>"] = max(vocab.values()) + 7  # in the vocabulary too: else the library gives it an id of its own
    return {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": vocab["<|end|>"], "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*pre, dict(BYTES, use_regex=not pre)]},
        "post_processor": None, "decoder": BYTES,
        "model": {"type": "BPE", "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocab, "merges": merges, **model},
    }


FILES = {
    "lacking": file(LACKING),
    "lacking, unknown": file(LACKING, unk_token="<unk>"),
    "lacking, unknowns fuse": file(LACKING, unk_token="<unk>", fuse_unk=True),
    "lacking, ignore_merges": file(LACKING, ignore_merges=True),
    "holes": file(stride=3),
    "holes and lacking": file(LACKING, stride=5),
    "deepseek": file(pre=[split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(PUNCTUATED)]),
}


def texts():
    fixed = [
        "", "the end", "tqhe", "a\x04b", "\x04", "\x04\x06", "qqq", "don't", "don't\n\nthe", "中文 and 日本語", "🙂 in the 🙂", "é\x13e\u0301",
        "in'in", "<|end|>the<|end|>", "q" * 70, "th" * 40 + "\x04" + "e" * 40, "12345 67", "#include <a.h>\n\treturn x;\r\n", "あゝ・カタカナ、漢字12", "\x00\x01a \u200d\u200db",
        "한국어 русский ไทย हिन्दी עברית العربية", "½Ⅷ2024年1月", "  the\t\n the", "\u2028\u3000 the", "…—“quoted”", "a.b_c$d", "\u0301\u0301x", "゛゜ ゠",
    ]
    rng = random.Random(1730)
    parts = ["the", "and", "q", "'", "\x04", "\n", " ", "  ", "é", "中", "あ", "・", "🙂", "1", "234", ".", "_x", "\u0301", "\u200d", "\x00", "Á", "ll", "\r\n", "\t"]
    return fixed + ["".join(rng.choice(parts) for _ in range(rng.randint(1, 12))) for _ in range(120)]


def main():
    all_texts = texts()
    out = {"made_with": {"tokenizers": tokenizers.__version__}, "texts": all_texts, "files": []}
    for name, spec in FILES.items():
        tok = Tokenizer.from_str(json.dumps(spec))
        ids = [tok.encode(t, add_special_tokens=False).ids for t in all_texts]
        entry = {"name": name, "file": spec, "ids": ids, "decoded": [tok.decode(i) for i in ids]}
        if name == "deepseek":
            entry["pieces"] = [[len(t[a:b].encode()) for _, (a, b) in tok.pre_tokenizer.pre_tokenize_str(t)] for t in all_texts]
        out["files"].append(entry)
    lines = json.dumps(out, ensure_ascii=True, separators=(",", ":"))
    (HERE / "gaps.json").write_text(lines + "\n", encoding="utf-8")


main()
