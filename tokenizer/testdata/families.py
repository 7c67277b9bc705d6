"""Writes families.json: small tokenizers in the pipelines of the families that
are in use, trained by Hugging Face's library, and what it makes of texts.

    pip install tokenizers==0.23.3 && python families.py

With a number n and a file as arguments it writes 2n other random texts there, for
a run that is too large to keep; COPPICE_FAMILIES names that file to the test.
"""

import copy
import json
import pathlib
import random
import sys
import unicodedata

import tokenizers
from tokenizers import Tokenizer, trainers, models, pre_tokenizers, normalizers

import golden

HERE = pathlib.Path(__file__).parent
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CASED = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CASED
    + r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CASED
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LLAMA3 = golden.QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
PUNCTUATED = r"[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def split(regex, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: regex}, "behavior": behavior, "invert": invert}


def sequence(kind, field, *steps):
    return {"type": "Sequence", field: list(steps)}


def pre(*steps):
    return sequence("pre", "pretokenizers", *steps)


def normal(*steps):
    return sequence("normal", "normalizers", *steps)


def replace(old, new, kind="String"):
    return {"type": "Replace", "pattern": {kind: old}, "content": new}


def template(*around):
    single = [{"SpecialToken": {"id": a, "type_id": 0}} if a != "$A" else {"Sequence": {"id": "A", "type_id": 0}} for a in around]
    return lambda ids: {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + [{"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {a: {"id": a, "ids": [ids[a]], "tokens": [a]} for a in around if a != "$A"},
    }


BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPACED = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
CHAIN = {
    "type": "Sequence",
    "decoders": [
        replace("\u2581", " "),
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}

LLAMA_ADDED = [("<|begin_of_text|>", "special"), ("<|eot_id|>", "special")]
QWEN_ADDED = [("<|endoftext|>", "special"), ("<|im_end|>", "special"), ("<think>", ""), ("caf\u00e9", "normalized")]
MISTRAL_ADDED = [("<unk>", "special"), ("<s>", "special"), ("</s>", "special"), ("[INST]", "special"), ("[/INST]", "special")]


def families():
    """name: what to train, and what to change in the trained files: variants."""
    spm = dict(byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    return {
        "llama3": dict(
            pre_tokenizer=pre(split(LLAMA3), golden.byte_level(False)), decoder=BYTES, model={"ignore_merges": True},
            added=LLAMA_ADDED, post=[BYTES, template("<|begin_of_text|>", "$A")],
            variants={
                "llama3 behaviors": {"pre_tokenizer": pre(split(r"\s+", "MergedWithNext"), split("o", "MergedWithPrevious", kind="String"), split(r"[^a-z]", "Contiguous"), golden.byte_level(False))},
                "llama3 removed": {"pre_tokenizer": pre(split(r"\p{P}", "Removed"), split("the", "MergedWithNext", kind="String"), split(r"\d+|\p{Lu}", "MergedWithPrevious"), golden.byte_level(False))},
                "llama3 inverted": {"pre_tokenizer": pre(split(r"[\p{L}\p{M}]+", "MergedWithNext", True), split(r" ?\p{L}+", "Contiguous", True), golden.byte_level(True))},
                "llama3 digits": {"pre_tokenizer": pre({"type": "Digits", "individual_digits": True}, SPACED)},
                "llama3 numbers": {"pre_tokenizer": pre({"type": "Digits", "individual_digits": False}, SPACED), "normalizer": {"type": "NFKC"}},
                "llama3 punctuated": {"pre_tokenizer": pre(split(r"\p{N}{1,3}"), split(CJK), split(PUNCTUATED), golden.byte_level(False))},
                "llama3 forms": {"normalizer": normal({"type": "Strip", "strip_left": True, "strip_right": True}, {"type": "NFKC"}, {"type": "Lowercase"}, replace(r"[aeiou]{2,}", "<>", "Regex"))},
                "llama3 decomposed": {"normalizer": normal({"type": "NFKD"}, normal({"type": "NFD"}), replace("the", "THE"))},
            },
        ),
        "qwen2": dict(
            normalizer={"type": "NFC"}, pre_tokenizer=pre(split(golden.QWEN2), golden.byte_level(False)), decoder=BYTES,
            added=QWEN_ADDED, post=[golden.byte_level(False)], variants={},
        ),
        "gpt2": dict(
            pre_tokenizer=golden.byte_level(True), decoder=BYTES, added=[("<|endoftext|>", "special normalized")], post=[golden.byte_level(True)],
            variants={"gpt2 spaced": {"pre_tokenizer": SPACED}},
        ),
        "tekken": dict(
            pre_tokenizer=pre(split(TEKKEN), golden.byte_level(False)), decoder=BYTES, model={"ignore_merges": True},
            added=MISTRAL_ADDED, post=[template("<s>", "$A")],
            variants={"o200k": {"pre_tokenizer": pre(split(O200K), golden.byte_level(False))}},
        ),
        "mistral": dict(
            normalizer=normal({"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581")),
            pre_tokenizer=None, decoder=CHAIN, model=spm, added=MISTRAL_ADDED, post=[template("<s>", "$A")], pieces=True,
            variants={
                "mistral metaspace": {"normalizer": None, "pre_tokenizer": METASPACE},
                "mistral always": {"normalizer": None, "pre_tokenizer": dict(METASPACE, prepend_scheme="always"), "decoder": dict(METASPACE, prepend_scheme="always")},
                "mistral split": {"normalizer": None, "pre_tokenizer": dict(METASPACE, split=True), "decoder": dict(METASPACE, prepend_scheme="never")},
                "mistral suffix": {"post_processor": "suffix"},
                "mistral unknown": {"model": {"byte_fallback": False}},
                "mistral unknowns": {"model": {"byte_fallback": False, "fuse_unk": False}},
                "mistral dropped": {"model": {"byte_fallback": False, "unk_token": None}},
                "mistral flags": {"added": [("<left>", "lstrip special"), ("<right>", "rstrip special"), ("<both>", "lstrip rstrip normalized"), ("word", "single_word"), ("the light", "normalized"), ("<think>", "")]},
            },
        ),
    }


def corpus():
    text = (HERE / "../../internal/opticks/opticks.txt").read_bytes()[:120_000].decode()
    other = (HERE / "multilingual.txt").read_text(encoding="utf-8")
    code = pathlib.Path(golden.__file__).read_text(encoding="utf-8") + pathlib.Path(__file__).read_text(encoding="utf-8")
    return text + other * 15 + code * 2


def train(family):
    """A tokenizer.json of the family, its special tokens first as in Mistral's."""
    spm = family.get("pieces", False)
    tok = Tokenizer(models.BPE(**{k: v for k, v in family.get("model", {}).items() if spm}))
    names = [content for content, _ in family["added"]]
    kept, alphabet = [], []
    if spm:
        kept = ["<unk>", "<s>", "</s>", "[INST]", "[/INST]"] + [f"<0x{b:02X}>" for b in range(256)]
        tok.normalizer = normalizers.Replace(" ", "\u2581")
        tok.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=True)
        text = corpus().replace("\n", " ")
    else:
        one = Tokenizer.from_str(json.dumps(shell(family["pre_tokenizer"])))
        tok.pre_tokenizer = one.pre_tokenizer
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        text = corpus()
    trainer = trainers.BpeTrainer(
        vocab_size=1000 + len(kept), special_tokens=kept, initial_alphabet=alphabet, limit_alphabet=400, show_progress=False, min_frequency=2
    )
    tok.train_from_iterator([text], trainer)
    model = json.loads(tok.to_str())["model"]
    model.update(family.get("model", {}))
    ids = dict(model["vocab"])
    size = len(ids)
    for name in names:
        if name not in ids:
            ids[name] = len(ids)
    added = golden.added(size, *family["added"])
    for token in added:
        token["id"] = ids[token["content"]]
    steps = [p if isinstance(p, dict) else p(ids) for p in family["post"]]
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": family.get("normalizer"),
        "pre_tokenizer": family["pre_tokenizer"],
        "post_processor": steps[0] if len(steps) == 1 else {"type": "Sequence", "processors": steps},
        "decoder": family["decoder"],
        "model": model,
    }


def shell(pre_tokenizer):
    return {"version": "1.0", "added_tokens": [], "pre_tokenizer": pre_tokenizer, "model": {"type": "BPE", "vocab": {}, "merges": []}}


def patched(base, patch):
    file = copy.deepcopy(base)
    for key, value in patch.items():
        if key == "model":
            file["model"].update(value)
        elif key == "added":
            first = max(max(file["model"]["vocab"].values()), max(t["id"] for t in file["added_tokens"])) + 1
            file["added_tokens"] += golden.added(first, *value)
        elif value == "suffix":
            ids = {t["content"]: t["id"] for t in file["added_tokens"]}
            file[key] = {"type": "Sequence", "processors": [template("$A", "</s>")(ids), template("<s>", "$A")(ids)]}
        else:
            file[key] = value
    return file


MORE = [
    "camelCaseWords HTTPServer getURLs XMLHttpRequest iPhone McDonald \u01c5ungla \u02b0\u02b0Aa A\u0301b\u0301C a\u0301 \u0301A \u0301",
    "we'LL SHE'S it'sX 'Twas O'Neil's don'T'S",
    "path/to/file.go:12//x\n///\r\n/ a/\n\n/b",
    "func main() {\n\tfmt.Println(\"h\u00e9llo, \u4e16\u754c\")\n\tif x := f(y); x != nil && *x >= 0x1F {\n\t\treturn\n\t}\n}\n",
    "SELECT * FROM t WHERE a <> 'b' AND c IN (1, 22, 333, 4444);\n-- \u00a9\n",
    "<|im_end|>\n<think>\n\n</think>\n caf\u00e9 cafe\u0301<think>\u212b",
    "<s>[INST] Hi[/INST]Hello</s> [INST]a[/INST] b <unk>",
    "\u2581a\u2581\u2581b \u2581 c<0x41><0x0A>",
    "   three   spaces\u00a0and\u2009thin\u3000wide\t\ttabs \u2003\n",
    "\u00bd\u00b2\u2460\ufb03\uff21\uff42\u3392 \u0130\u0131I\u03a3\u03c2 \u1e9e\u00df \u017f",
    "\U0001f469\U0001f3fd\u200d\U0001f4bb \U0001f3f4\U000e0067\U000e0062\U000e007f \u2764\ufe0f \U0001d518\U0001d52b \U00020000\U0002a6d6",
    "\ufeff\u200b\u2060x\u00ad y\x00z\x1b[0m",
    "aaaa\u4e2d\u6587123\u4e2d45678abc\u3042\u30a2\u4e00 \u0967\u0968\u0969 1\u06602",
    "The word words the light <left> x <right>  y <both> z  word",
]


def random_unicode(n, seed):
    """Text of runes that Unicode 3.2 has: the tables of the two sides differ in age."""
    rng = random.Random(seed)
    table = unicodedata.ucd_3_2_0
    pool = [chr(c) for c in range(0x20000) if table.category(chr(c)) not in ("Cn", "Cs", "Co")]
    small = [c for c in pool if ord(c) < 0x600]
    out = []
    for _ in range(n):
        k = rng.randint(1, 16)
        parts = [rng.choice((pool, small, golden.ALPHABET, list(" \n\t'aAzZ019.-/")))  for _ in range(k)]
        out.append("".join(rng.choice(p) for p in parts))
    return out


def results(file, texts):
    tok = Tokenizer.from_str(json.dumps(file))
    ids = [tok.encode(text, add_special_tokens=False).ids for text in texts]
    return {"ids": ids, "prompt": tok.encode(texts[1]).ids, "decoded": [tok.decode(i, skip_special_tokens=True) for i in ids]}


def main():
    texts = golden.TEXTS + MORE + golden.random_texts(60) + random_unicode(100, 1730)
    path = HERE / "families.json"
    if len(sys.argv) > 1:
        texts = random_unicode(int(sys.argv[1]), 1704) + golden.random_texts(int(sys.argv[1]))
        path = pathlib.Path(sys.argv[2])
    out = {"made_with": {"tokenizers": tokenizers.__version__}, "texts": texts, "families": []}
    for name, family in families().items():
        base = train(family)
        out["families"].append({"name": name, "file": base, **results(base, texts)})
        for variant, patch in family["variants"].items():
            file = patched(base, patch)
            fields = {k: v for k, v in file.items() if k not in ("model", "version")}
            fields["model"] = {k: v for k, v in file["model"].items() if k not in ("vocab", "merges")}
            out["families"].append({"name": variant, "base": name, "file": fields, **results(file, texts)})
    written = json.dumps(out, ensure_ascii=True, separators=(",", ":"))
    path.write_text(written.replace('{"name"', '\n{"name"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
