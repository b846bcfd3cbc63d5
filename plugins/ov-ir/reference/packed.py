"""Matrices of 4-bit integers as GPTQ, AWQ and compressed-tensors pack them: random ones, and their values in f64.

A matrix W [out, in] has integers q, a scale and a zero point per group of inputs: W = (q - zero) * scale.
"""

import numpy as np

import blocks as b

I32, I64 = 26, 27
# What AWQ keeps in each of a word's eight places, from the lowest bits on.
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]


def words(values, order=range(8)):
    """Eight neighbours of the last dimension in a word."""
    eights = values.reshape(*values.shape[:-1], -1, 8).astype(np.uint32)
    return sum(eights[..., which] << np.uint32(4 * place) for place, which in enumerate(order))


def numbers(words, order=range(8)):
    out = np.zeros((*words.shape, 8), np.int64)
    for place, which in enumerate(order):
        out[..., which] = (words >> np.uint32(4 * place)) & 15
    return out.reshape(*words.shape[:-1], -1)


def row(name, array, kind):
    raw = np.ascontiguousarray(array)
    return name, list(array.shape), kind, raw.view(np.uint8).reshape(-1)


def random_matrices(random, named, group, zeros):
    """Each projection as (name, integers [out, in], scales and zero points [out, groups]); other tensors as they are."""
    for name, shape, kind, raw in named:
        if not name.endswith("_proj.weight"):
            yield name, shape, kind, raw
            continue
        groups = [shape[0], shape[1] // group]
        scale = (random.uniform(0.5, 1.5, groups) * 0.3 * shape[1] ** -0.5).astype("<f2")
        yield name.removesuffix(".weight"), random.integers(0, 16, shape), scale, zeros(random, groups)


def gptq(group, symmetric):
    """Zero points less one in the first version of the format, as they are in the second."""
    def pack(random, named):
        zeros = (lambda r, s: np.full(s, 8)) if symmetric else (lambda r, s: r.integers(1, 16, s))
        for name, q, scale, zero in random_matrices(random, named, group, zeros):
            if isinstance(q, list):
                yield name, q, scale, zero
                continue
            yield row(name + ".qweight", words(q).T, I32)
            yield row(name + ".qzeros", words(zero.T - (0 if symmetric else 1)), I32)
            yield row(name + ".scales", scale.T, b.F16)
            yield row(name + ".g_idx", np.arange(q.shape[1], dtype="<i4") // group, I32)
    form = "gptq_v2" if symmetric else "gptq"
    config = {"quant_method": "gptq", "bits": 4, "group_size": group, "sym": symmetric, "desc_act": False,
              "checkpoint_format": form}
    return config, lambda *args: list(pack(*args))


def awq(group):
    def pack(random, named):
        for name, q, scale, zero in random_matrices(random, named, group, lambda r, s: r.integers(0, 16, s)):
            if isinstance(q, list):
                yield name, q, scale, zero
                continue
            yield row(name + ".qweight", words(q.T, AWQ), I32)
            yield row(name + ".qzeros", words(zero.T, AWQ), I32)
            yield row(name + ".scales", scale.T, b.F16)
    config = {"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": True, "version": "gemm"}
    return config, lambda *args: list(pack(*args))


def compressed(group):
    """Scales in bf16, as most of them are."""
    def pack(random, named):
        for name, q, scale, zero in random_matrices(random, named, group, lambda r, s: np.full(s, 8)):
            if isinstance(q, list):
                yield name, q, scale, zero
                continue
            short = (scale.astype("<f4").view("<u4") >> 16).astype("<u2")
            yield row(name + ".weight_packed", words(q), I32)
            yield row(name + ".weight_scale", short, b.BF16)
            yield row(name + ".weight_shape", np.array(q.shape, "<i8"), I64)
    weights = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": group, "actorder": None}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head"], "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": weights, "input_activations": None}}}
    return config, lambda *args: list(pack(*args))


def values(config, prefix, part):
    """The matrix of a prefix in f64; `part` gives a tensor by its name as an array, or none."""
    method = config["quant_method"]
    if method == "compressed-tensors":
        q, scale = numbers(part(prefix + ".weight_packed")), part(prefix + ".weight_scale")
        zero = np.full(scale.shape, 8)
    else:
        order = AWQ if method == "awq" else range(8)
        packed, zero = part(prefix + ".qweight"), numbers(part(prefix + ".qzeros"), order).T
        q = numbers(packed, order).T if method == "awq" else numbers(packed.T)
        scale = part(prefix + ".scales").T
        if method == "gptq" and config["checkpoint_format"] == "gptq":
            zero = zero + 1
    group = q.shape[1] // scale.shape[1]
    return (q - zero.repeat(group, 1)) * scale.repeat(group, 1)
