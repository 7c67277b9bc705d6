"""Writes golden.json: what Hugging Face's tokenizers library makes of texts.

Run beside tokenizer.json (which `go test ./tokenizer/trainer -run TestTrainWrites -args -update` writes):

    pip install tokenizers==0.23.3 && python golden.py

Each variant is tokenizer.json with some top-level fields, or fields of its
model, replaced; the Go test applies the same replacements. Random texts come
from a fixed seed.
"""

import json
import pathlib
import platform
import random

import tokenizers
from tokenizers import Tokenizer, trainers, models, pre_tokenizers

HERE = pathlib.Path(__file__).parent
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def byte_level(use_regex):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def sequence(regex):
    split = {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level(False)]}


def added(first, *tokens):
    out = []
    for i, (content, flags) in enumerate(tokens):
        token = dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized", "special"], False)
        token.update(id=first + i, content=content, **{flag: True for flag in flags.split()})
        out.append(token)
    return out


def variants(base):
    size = len(base["model"]["vocab"])
    own = base["added_tokens"]
    pairs = [merge.split(" ") for merge in base["model"]["merges"]]
    end = size + len(own)
    return {
        "llama3": {},
        "llama3 ignore_merges": {"model": {"ignore_merges": True}},
        # The last merge first: most tokens are in the vocabulary but out of reach.
        "llama3 reversed": {"model": {"merges": base["model"]["merges"][::-1]}},
        "qwen2": {"pre_tokenizer": sequence(QWEN2), "post_processor": None, "model": {"merges": pairs}},
        "qwen2 nfc": {
            "normalizer": {"type": "NFC"},
            "pre_tokenizer": sequence(QWEN2),
            "post_processor": byte_level(False),
            "added_tokens": own + added(end, ("<think>", ""), ("caf\u00e9", "normalized")),
        },
        "gpt2": {"pre_tokenizer": byte_level(True), "post_processor": byte_level(True)},
        "gpt2 split": {"pre_tokenizer": sequence(GPT2)},
        "added": {
            "added_tokens": own
            + added(
                end,
                ("<think>", ""),
                ("<left>", "lstrip special"),
                ("<right>", "rstrip special"),
                ("<both>", "lstrip rstrip normalized"),
                ("word", "single_word"),
                ("<thinking>", "normalized"),
                ("<th", "normalized"),
            ),
        },
    }


TEXTS = [
    "",
    "Hello, world!",
    "  leading and trailing  ",
    "Do not Bodies act upon Light at a distance, and by their action bend its Rays?",
    "can't CAN'T it's IT'S we'll WE'LL they'Re I'M she'D 've 'VE 'sx 'lL 'l 'r '",
    "it'\u017f '\u017fx \u017f don\u2019t",
    "\n\t\n",
    " \n",
    "a\n\t\n b\r\n\r\nc\n \n\n  d\te\t\tf   g\u00a0h\u00a0\u00a0i\u3000\u3000j\u2028k\u0085l\x0b\x0cm",
    "x = 1;\n\n\n\n    y = 22;\t// note\n",
    "for i in range(100):\n\tprint(f\"{i:>03}\")  # ok\n\n\nif __name__ == '__main__':\n    main()\n",
    "1 12 123 1234 12345 1234567 3.14159 1e-10 0x1F \u0663\u0664\u0665\u0666 \u2167\u2168\u2169\u216a \u00bd\u00bc\u00be\u2153 \u4e00\u4e8c",
    "!!! ... ??\n\n!?\r\n--- === ->>> \"quoted\" (parens) [b] {c} #tag @name $5 50% a/b\\c",
    "....\n\n ....\n ...",
    "\u5b88\u706f\u5854\u7684\u4eba\u6570\u7740\u8239\uff0c\u628a\u540d\u5b57\u5199\u5728\u4e00\u672c\u5927\u4e66\u91cc\u3002",
    "\u706f\u53f0\u5b88\u306f\u8239\u3092\u6570\u3048\u3066\u3001\u5927\u304d\u306a\u672c\u306b\u540d\u524d\u3092\u66f8\u304d\u307e\u3059\u3002",
    "\u0634\u0627\u0647\u062f \u062d\u0627\u0631\u0633 \u0627\u0644\u0645\u0646\u0627\u0631\u0629 \u0627\u0644\u0633\u0641\u0646\u060c \u0648\u0643\u064e\u062a\u064e\u0628\u064e",
    "\u05e9\u05d5\u05de\u05e8 \u05d4\u05de\u05d2\u05d3\u05dc\u05d5\u05e8",
    "\u092a\u094d\u0930\u0915\u093e\u0936\u0938\u094d\u0924\u0902\u092d \u0915\u093e \u0930\u0916\u0935\u093e\u0932\u093e \u0917\u093f\u0928\u0924\u093e \u0939\u0948\u0964",
    "\u0e1c\u0e39\u0e49\u0e14\u0e39\u0e41\u0e25\u0e1b\u0e23\u0e30\u0e20\u0e32\u0e04\u0e32\u0e23\u0e19\u0e31\u0e1a\u0e40\u0e23\u0e37\u0e2d",
    "\ub4f1\ub300\uc9c0\uae30\ub294 \ubc30\ub97c \uc138\uace0 \u1103\u1173\u11bc\u1103\u1162",
    "caf\u00e9 cafe\u0301 e\u0301\u0302\u0323 \u0301 a\u0328\u0301 \u212b \u2126 \ufb01 \u00c5 A\u030a \u1e9b\u0323",
    "\U0001f642\U0001f642 \U0001f680 \U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f\U0001f44d\U0001f3fd ok",
    "zero\u200bwidth \u200djoin \ufeffbom soft\u00adhyphen \u0000nul \u0007bell \ufffd",
    "Mr_Smith snake_case camelCase kebab-case https://example.org/a?b=c&d=%20#e user@example.org",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "the" * 60,
    "ininiinnninininniiinninininininnniiininnniniinininnininininniinninnininiininn",
    "<|begin_of_text|>Hello<|eot_id|>\n\n<|end_of_text|>",
    "<|eot|><|eot_id|<|eot_id|>><|unknown|> <|eot_id|> a<|eot_id|>b",
    "<think>\nhm <thinking> <thing></think> <th> a <left> b <right> c <both> d <left><right> \n<both>\n\n e",
    "word words sword a word, word_ \u00e9word word\u00e9 word",
    " <both> ",
    "<right>   <left>   <both>   <think>  ",
    "caf\u00e9<think>cafe\u0301",
]

ALPHABET = (
    list("aZstTSrReEvVmMlLdD''' ''  \n\n\r\t09.,-_<|")
    + ["\u00a0", "\u0085", "\u2028", "\u3000", "\u017f", "\u0130", "\u2167", "\u00bd", "\u0663"]
    + ["\u4e2d", "\u3042", "\ud55c", "\u0639", "\u05d0", "\u0301", "\u094d", "\u0915", "\U0001f642", "\u200d", "\ufffd"]
    + ["<|eot_id|>", "<th", "<think>", "<left>", "<right>", "<both>", "word", "the", "123"]
)


def random_texts(n):
    rng = random.Random(1730)
    return ["".join(rng.choices(ALPHABET, k=rng.randint(1, 14))) for _ in range(n)]


def pieces(tok, text):
    """The lengths in bytes of what the splitter makes of text, specials ignored."""
    return [len(piece) for piece, _ in tok.pre_tokenizer.pre_tokenize_str(text)]


def variant(tok, texts):
    ids = [tok.encode(text, add_special_tokens=False).ids for text in texts]
    return {
        "pieces": [pieces(tok, text) for text in texts],
        "ids": ids,
        "prompt": tok.encode(texts[1]).ids,
        "decoded": [tok.decode(i, skip_special_tokens=True) for i in ids],
    }


def decodes(tok, size):
    """Streams of single bytes that are no UTF-8, as text."""
    rng = random.Random(1704)
    some = [0x41, 0x7F, 0x80, 0xBF, 0xC0, 0xC2, 0xC3, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF4, 0xF5, 0xFF, 0x9F, 0xA0, 0x8F, 0x90, 0xBD]
    byte_ids = {b: tok.token_to_id(c) for b, c in byte_alphabet().items()}
    out = []
    for _ in range(size):
        data = rng.choices(some, k=rng.randint(1, 9))
        ids = [byte_ids[b] for b in data]
        out.append({"ids": ids, "decoded": tok.decode(ids)})
    return out


def byte_alphabet():
    keep = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    out = {b: chr(b) for b in keep}
    for n, b in enumerate(b for b in range(256) if b not in out):
        out[b] = chr(256 + n)
    return out


def check_training(base):
    """The library's own trainer must find the same merges in the same corpus."""
    corpus = (HERE / "../../internal/opticks/opticks.txt").read_bytes()[:150_000].decode()
    corpus += (HERE / "multilingual.txt").read_text(encoding="utf-8") * 20
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = Tokenizer.from_str(json.dumps(base)).pre_tokenizer
    trainer = trainers.BpeTrainer(
        vocab_size=len(base["model"]["vocab"]),
        min_frequency=0,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tok.train_from_iterator([corpus], trainer)
    theirs = [" ".join(pair) for pair in json.loads(tok.to_str())["model"]["merges"]]
    ours = base["model"]["merges"]
    for n, (a, b) in enumerate(zip(theirs, ours, strict=True)):
        assert a == b, f"merge {n}: the library has {a!r}, tokenizer.json has {b!r}"


def main():
    base = json.loads((HERE / "tokenizer.json").read_text(encoding="utf-8"))
    check_training(base)
    texts = TEXTS + random_texts(150)
    out = {
        "made_with": {"python": platform.python_version(), "tokenizers": tokenizers.__version__},
        "texts": texts,
        "variants": [],
    }
    known = {}
    for name, patch in variants(base).items():
        merged = dict(base, **{k: v for k, v in patch.items() if k != "model"})
        merged["model"] = dict(base["model"], **patch.get("model", {}))
        results = variant(Tokenizer.from_str(json.dumps(merged)), texts)
        if "nfc" in name:  # the library decodes the added token as if it were in the byte alphabet
            del results["decoded"]
        for field in results.keys() & {"pieces", "decoded"}:  # kept only where they are new
            if results[field] in known.setdefault(field, []):
                del results[field]
            else:
                known[field].append(results[field])
        if "merges" in patch.get("model", {}):  # the test builds them itself
            patch = dict(patch, model={"merges": "pairs" if "qwen2" in name else "reversed"})
        out["variants"].append({"name": name, "patch": patch, **results})
    out["decodes"] = decodes(Tokenizer.from_file(str(HERE / "tokenizer.json")), 200)
    golden = json.dumps(out, ensure_ascii=True, separators=(",", ":"))
    (HERE / "golden.json").write_text(golden.replace('{"name"', '\n{"name"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
