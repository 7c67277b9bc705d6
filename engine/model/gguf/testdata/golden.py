"""Writes golden.gguf and golden.json: blocks of every type that is read, and what
PyPI's gguf makes of them; a file as its writer makes it.

    pip install gguf==0.19.0 && python golden.py
"""

import json
import pathlib

import gguf
import numpy as np
from gguf import quants

HERE = pathlib.Path(__file__).parent
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4"]
# Where the f16 scales of a block stand.
SCALES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0]}


def blocks(kind, rng):
    """Random blocks; scales are finite, and among them are zeros and subnormals."""
    values, size = gguf.GGML_QUANT_SIZES[kind]
    n = 4096 if values == 1 else 40 if values == 32 else 6
    data = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if values == 1:
        data = np.unique(data, axis=0)
        floats = quants.dequantize(data.reshape(1, -1), kind).reshape(-1)
        data = data[np.isfinite(floats)]
        n = len(data) // 32 * 32
        return data[:n].reshape(n // 32, -1), 32
    if kind == gguf.GGMLQuantizationType.MXFP4:
        data[:, 0] = np.concatenate([np.arange(8), np.arange(n - 8) * 7 + 30]) % 256
        return data, values
    for at in SCALES[kind.name]:
        scales = (rng.standard_normal(n) * 10.0 ** rng.integers(-7, 3, n)).astype(np.float16)
        scales[:3] = [0, -0.0, np.float16(6e-8)]
        data[:, at : at + 2] = scales.view(np.uint8).reshape(n, 2)
    return data, values


def main():
    rng = np.random.default_rng(1730)
    writer = gguf.GGUFWriter(HERE / "golden.gguf", "llama")
    writer.add_uint8("a.u8", 200)
    writer.add_int8("a.i8", -100)
    writer.add_uint16("a.u16", 60000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4_000_000_000)
    writer.add_int32("a.i32", -2_000_000_000)
    writer.add_float32("a.f32", 0.15625)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "größer 🙂")
    writer.add_uint64("a.u64", 2**63)
    writer.add_int64("a.i64", -(2**62))
    writer.add_float64("a.f64", 1e300)
    writer.add_array("a.strings", ["", "a", "zwei drei"])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.floats", [1.5, -2.5])
    writer.add_array("a.bools", [True, False])
    out = {"made_with": {"gguf": gguf.__version__ if hasattr(gguf, "__version__") else "0.19.0"}, "tensors": {}}
    for name in TYPES:
        kind = gguf.GGMLQuantizationType[name]
        data, row = blocks(kind, rng)
        want = quants.dequantize(data, kind).astype(np.float32).reshape(len(data), row)
        assert np.isfinite(want).all(), name
        writer.add_tensor(name, data, raw_shape=data.shape, raw_dtype=kind)
        out["tensors"][name] = {"shape": list(want.shape), "bits": want.view(np.uint32).reshape(-1).tolist()}
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    (HERE / "golden.json").write_text(json.dumps(out, separators=(",", ":")) + "\n")


main()
