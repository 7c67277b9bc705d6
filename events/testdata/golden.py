"""Writes wire/testdata/golden.json: event batches as msgspec serialises them.

The structs are the fields, defaults and options of vLLM's and SGLang's
kv_events.py at several ages, written down anew. Run by hand, not in CI:

    pip install msgspec==0.22.0
    python3 events/testdata/golden.py events/wire/testdata/golden.json
"""

import hashlib
import json
import platform
import sys
from typing import Any, Optional, Union

import msgspec

Hash = Union[bytes, int]
NONE = object()


def struct(name, fields, tagged=True, **options):
    """A struct like theirs: defaults left out, tagged with its own name."""
    spec = [(n, t) if d is NONE else (n, t, d) for n, t, d in fields]
    return msgspec.defstruct(name, spec, omit_defaults=True, gc=False, tag=tagged or None, **options)


STORED = [
    ("block_hashes", list[Hash], NONE),
    ("parent_block_hash", Optional[Hash], NONE),
    ("token_ids", list[int], NONE),
    ("block_size", int, NONE),
    ("lora_id", Optional[int], NONE),
]
MEDIUM = [("medium", Optional[str], NONE)]
LORA = [("lora_name", Optional[str], NONE)]
EXTRA = [
    ("extra_keys", Optional[list[Optional[tuple[Any, ...]]]], None),
    ("group_idx", Optional[int], None),
    ("kv_cache_spec_kind", Optional[str], None),
    ("kv_cache_spec_sliding_window", Optional[int], None),
]
REMOVED = [("block_hashes", list[Hash], NONE)]
GROUP = [("group_idx", Optional[int], None)]
OPTIONAL_MEDIUM = [("medium", Optional[str], None)]
TS = [("ts", float, NONE), ("events", list[Any], NONE)]
RANK = [("data_parallel_rank", Optional[int], None)]

# name: fields of stored, of removed, of the batch; events as arrays; batch as array
AGES = {
    "vllm arrays, first": (STORED, REMOVED, TS, True, True),
    "vllm arrays, medium": (STORED + MEDIUM, REMOVED + MEDIUM, TS + RANK, True, True),
    "vllm arrays, last": (STORED + MEDIUM + LORA + EXTRA, REMOVED + MEDIUM + GROUP, TS + RANK, True, True),
    "vllm maps": (STORED + MEDIUM + LORA + EXTRA, REMOVED + MEDIUM + GROUP, TS + RANK, False, True),
    "vllm maps, batch too": (STORED + MEDIUM + LORA + EXTRA, REMOVED + MEDIUM + GROUP, TS + RANK, False, False),
    "sglang arrays": (STORED + OPTIONAL_MEDIUM, REMOVED + OPTIONAL_MEDIUM,
                      TS + [("attn_dp_rank", Optional[int], None)], True, True),
}


def low64(n):
    """A hash as vLLM shortens it."""
    return int.from_bytes(hashlib.sha256(b"%d" % n).digest()[-8:], "big")


def signed(n):
    """A hash as SGLang has it."""
    v = low64(n)
    return v - (1 << 64) if v >= 1 << 63 else v


def whole(n):
    return hashlib.sha256(b"%d" % n).digest()


def scripts():
    """name, age, time, rank, events as (kind, fields)."""
    tokens = [0, 1, 127, 128, 255, 256, 65535, 65536, 151935, 7, 8, 9, 10, 11, 12, 13]
    for age in AGES:
        h = signed if age.startswith("sglang") else low64
        yield age + ": a root of two blocks", age, 1751000000.25, None, [
            ("BlockStored", dict(block_hashes=[h(1), h(2)], parent_block_hash=None, token_ids=tokens,
                                 block_size=8, lora_id=None)),
        ]
        yield age + ": a child, what goes, all goes", age, 1751000001.0, 3, [
            ("BlockStored", dict(block_hashes=[h(n) for n in range(3, 20)], parent_block_hash=h(2),
                                 token_ids=tokens * 17, block_size=16, lora_id=7, medium="GPU", lora_name="sql")),
            ("BlockRemoved", dict(block_hashes=[h(19), h(18)], medium="CPU")),
            ("AllBlocksCleared", {}),
        ]
        yield age + ": nothing", age, 0.0, 0, []
        yield age + ": small hashes", age, 5.5, 1, [
            ("BlockStored", dict(block_hashes=[0, 1, 127, 128, 65536, 1 << 32], parent_block_hash=5, token_ids=[1] * 6,
                                 block_size=1, lora_id=None)),
            ("BlockRemoved", dict(block_hashes=[-1, -33, -129, -40000, -(1 << 40)] if age.startswith("sglang") else [1])),
        ]
    for age in ("vllm arrays, last", "vllm maps"):
        yield age + ": all fields", age, 2.0, 0, [
            ("BlockStored", dict(block_hashes=[low64(1), low64(2), low64(3)], parent_block_hash=None, token_ids=[5] * 12,
                                 block_size=4, lora_id=None, medium="GPU", lora_name="tuned",
                                 extra_keys=[("tuned", ("a" * 64, 3), "tenant"), None, (b"\x01\x02", 9)],
                                 group_idx=1, kv_cache_spec_kind="sliding_window", kv_cache_spec_sliding_window=4096)),
            ("BlockRemoved", dict(block_hashes=[low64(2)], medium=None, group_idx=1)),
        ]
        yield age + ": hashes as bytes", age, 2.0, 0, [
            ("BlockStored", dict(block_hashes=[whole(1), whole(2)], parent_block_hash=whole(0), token_ids=[5] * 8,
                                 block_size=4, lora_id=None, medium="GPU", lora_name=None)),
            ("BlockRemoved", dict(block_hashes=[whole(2)], medium="GPU")),
        ]


def plain(v):
    if isinstance(v, bytes):
        return str(int.from_bytes(v[-8:], "big"))
    return str(v % (1 << 64)) if isinstance(v, int) else v


def main(path):
    goldens = []
    for name, age, ts, rank, events in scripts():
        stored, removed, batch, arrays, batch_array = AGES[age]
        kinds = {
            "BlockStored": struct("BlockStored", stored, array_like=arrays),
            "BlockRemoved": struct("BlockRemoved", removed, array_like=arrays),
            "AllBlocksCleared": struct("AllBlocksCleared", [], array_like=arrays),
        }
        made, told = [], []
        for kind, fields in events:
            known = kinds[kind].__struct_fields__
            fields = {k: v for k, v in fields.items() if k in known}
            if "medium" in known:
                fields.setdefault("medium", None)
            if "lora_name" in known:
                fields.setdefault("lora_name", None)
            made.append(kinds[kind](**fields))
            told.append({
                "kind": kind,
                "hashes": [plain(h) for h in fields.get("block_hashes", [])],
                "parent": plain(fields.get("parent_block_hash")),
                "tokens": fields.get("token_ids", []),
                "block_size": fields.get("block_size", 0),
                "lora_id": fields.get("lora_id"),
                "medium": fields.get("medium"),
                "lora_name": fields.get("lora_name"),
                "group": fields.get("group_idx"),
            })
        outer = struct("KVEventBatch", batch, tagged=False, array_like=batch_array)
        args = [ts, made] + ([rank] if len(batch) > 2 and rank is not None else [])
        data = msgspec.msgpack.encode(outer(*args))
        goldens.append({"name": name, "arrays": arrays, "time": ts, "rank": rank if len(batch) > 2 else None,
                        "events": told, "hex": data.hex()})
    made_by = f"msgspec {msgspec.__version__}, Python {platform.python_version()}"
    with open(path, "w") as f:
        f.write('{"made_by": %s, "goldens": [\n' % json.dumps(made_by))
        f.write(",\n".join(json.dumps(g) for g in goldens))
        f.write("\n]}\n")


main(sys.argv[1])
