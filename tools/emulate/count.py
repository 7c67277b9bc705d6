#!/usr/bin/env python3
"""Counts the instructions that the CPU engine's kernels execute, and the bytes that they load, by qemu-user.

  tools/emulate/count.py [--kernels SUFFIX] CPU BINARY ARGS...
  tools/emulate/count.py --per-token CPU BINARY MODEL [DECODE] [PREFILL]

The first form counts one run of a binary of linux/arm64 or linux/amd64. The second runs `BINARY generate` on MODEL with
prompts and outputs of several lengths, with one thread, and prints the counts for one more token of output and for one more
token of prompt. CPU is a processor of qemu: cortex-a57, neoverse-n1, max, or Haswell.

The emulator logs each block of instructions when it translates it, and each execution of a block; only blocks of kernels
are logged, so code in Go is not counted. Blocks are counted, not sampled: two runs give the same figures. They say nothing
about time: an instruction may take a cycle or twenty, and loads may wait for memory.
"""

import argparse
import collections
import os
import re
import struct
import subprocess
import sys
import tempfile
import threading

VECTOR = {"q": 16, "d": 8, "s": 4, "h": 2, "b": 1}


def arm_load(text):
    """Returns the bytes that an instruction of arm64 loads."""
    name, _, operands = text.partition(" ")
    if name in ("ld1", "ld2", "ld3", "ld4"):
        inside = operands[operands.index("{") + 1 : operands.index("}")]
        first = inside.split(",")[0].strip()
        count = len(inside.split(","))
        if "-" in inside:
            low, high = (int(re.match(r"\s*v(\d+)", part).group(1)) for part in inside.split("-"))
            count = (high - low) % 32 + 1
        if "[" in operands[operands.index("}") :].split(",")[0]:
            return VECTOR[first.split(".")[1][-1]] * count
        return (8 if first.split(".")[1] in ("8b", "4h", "2s", "1d") else 16) * count
    if name == "ld1r":
        return {"b": 1, "h": 2, "s": 4, "d": 8}[re.search(r"\.\d*([bhsd])", operands).group(1)]
    if name in ("ldp", "ldr", "ldur"):
        kind = operands.strip()[0]
        size = {"q": 16, "d": 8, "s": 4, "h": 2, "b": 1, "x": 8, "w": 4}[kind]
        return size * (2 if name == "ldp" else 1)
    if name.startswith("ldr"):
        return {"ldrb": 1, "ldrsb": 1, "ldrh": 2, "ldrsh": 2, "ldrsw": 4}[name]
    return 0


def x86_load(text):
    """Returns the bytes that an instruction of x86 loads, in the syntax of AT&T."""
    name, _, operands = text.partition(" ")
    if "(" not in operands or name.startswith(("lea", "nop", "prefetch", "j", "call")):
        return 0
    if operands.rstrip().endswith(")") and name.startswith(("mov", "vmov", "vcvtps2ph")):
        return 0  # a store
    if not name.startswith("v"):
        return 8
    narrow = {"vbroadcastss": 4, "vmovss": 4, "vmovd": 4, "vpbroadcastd": 4, "vpbroadcastw": 2, "vmovq": 8, "vcvtsi2ssl": 4}
    for known, size in narrow.items():
        if name.startswith(known):
            return size
    if name.endswith("ss") and not name.endswith("pss"):
        return 4
    size = 64 if "%zmm" in operands else 32 if "%ymm" in operands else 16
    if name.startswith(("vcvtph2ps", "vpmovsxbw", "vpmovzxbw", "vpmovzxwd", "vpmovsxwd")):
        return size // 2
    if name.startswith(("vpmovsxbd", "vpmovzxbd")):
        return size // 4
    return size


class Count:
    """Executions of blocks, by kernel."""

    def __init__(self):
        self.instructions = collections.Counter()
        self.bytes = collections.Counter()
        self.mnemonics = collections.Counter()

    def minus(self, other, by):
        """Returns a by-th of what this run has more than another."""
        diff = Count()
        for name in ("instructions", "bytes", "mnemonics"):
            for key, n in getattr(self, name).items():
                more = (n - getattr(other, name)[key]) / by
                if more:
                    getattr(diff, name)[key] = more
        return diff


def kernels_of(binary, suffix):
    """Returns the kernels as (address, end, name), ascending."""
    listed = subprocess.run(["go", "tool", "nm", "-size", "-sort", "address", binary], check=True, capture_output=True, text=True).stdout
    found = []
    for line in listed.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[3].startswith("github.com/coppice-llm/coppice/engine/cpu.") and re.search(suffix + r"(\.abi0)?$", fields[3]) and fields[2] in "Tt":
            at = int(fields[0], 16)
            found.append((at, at + int(fields[1]), fields[3].rsplit(".", 2 if fields[3].endswith(".abi0") else 1)[1]))
    if not found:
        sys.exit(f"{binary} has no kernels whose names end in {suffix}")
    return found


def run(cpu, binary, args, suffix):
    """Runs a binary and returns the counts."""
    with open(binary, "rb") as f:
        arm = struct.unpack("<H", f.read(20)[18:])[0] == 183
    suffix = suffix or ("NEON(DOT)?" if arm else "AVX2")
    kernels = kernels_of(binary, suffix)
    names = {}
    with tempfile.TemporaryDirectory() as dir:
        log = os.path.join(dir, "log")
        os.mkfifo(log)
        ranges = ",".join(f"{lo:#x}..{hi - 1:#x}" for lo, hi, _ in kernels)
        command = ["qemu-aarch64" if arm else "qemu-x86_64", "-cpu", cpu, "-d", "in_asm,exec,nochain", "-dfilter", ranges, "-D", log, binary] + args
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "GOMAXPROCS": "1", "GODEBUG": "asyncpreemptoff=1"})
        threading.Thread(target=lambda: setattr(process, "output", process.communicate()), daemon=True).start()
        executed, blocks, current = collections.Counter(), {}, None
        with open(log) as lines:
            for line in lines:
                if line.startswith("Trace "):
                    executed[line.split("/", 2)[1]] += 1
                elif line.startswith("IN:"):
                    current = None
                elif line.startswith("0x"):
                    at, _, rest = line.partition(":")
                    if current is None:
                        current = []
                        blocks[int(at, 16)] = current
                    current.append(" ".join(rest.split()))
        if process.wait() != 0:
            sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
    count = Count()
    for pc, n in executed.items():
        at = int(pc, 16)
        name = next((name for lo, hi, name in kernels if lo <= at < hi), None)
        if name is None or at not in blocks:
            continue
        for text in blocks[at]:
            text = re.sub(r"^([0-9a-f]{2,8} )+", "", text) if arm else text
            count.instructions[name] += n
            count.bytes[name] += n * (arm_load if arm else x86_load)(text)
            count.mnemonics[text.split(" ")[0]] += n
    return count


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", default="", help="regular expression that the kernels' names end in; by default NEON and NEONDOT, or AVX2")
    parser.add_argument("--per-token", action="store_true")
    parser.add_argument("--mnemonics", type=int, default=0, metavar="N", help="also print the N most executed mnemonics")
    parser.add_argument("cpu")
    parser.add_argument("binary")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.per_token:
        show("run", run(options.cpu, options.binary, options.args, options.kernels), options.mnemonics)


def show(what, count, mnemonics):
    print(f"{what}: {sum(count.instructions.values()):,.0f} instructions, {sum(count.bytes.values()):,.0f} bytes loaded")
    for name, n in count.instructions.most_common():
        print(f"  {name:24} {n:16,.0f} {count.bytes[name]:16,.0f}")
    for name, n in count.mnemonics.most_common(mnemonics):
        print(f"  {name:24} {n:16,.0f}")


if __name__ == "__main__":
    main()
