"""ggml's blocks as numbers, written from the format's description and not from the Rust code.

`dequantize` gives f64 of the values that ggml defines; `random_blocks` makes blocks of roughly unit variance.
"""

import numpy as np

F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 = 0, 1, 2, 3, 6, 7, 8
Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, BF16 = 10, 11, 12, 13, 14, 20, 23, 30

# Elements, bytes, and where the f16 scale and the f16 minimum lie.
LAYOUT = {
    Q4_0: (32, 18, 0, None), Q4_1: (32, 20, 0, 2), Q5_0: (32, 22, 0, None), Q5_1: (32, 24, 0, 2),
    Q8_0: (32, 34, 0, None), Q2_K: (256, 84, 80, 82), Q3_K: (256, 110, 108, None), Q4_K: (256, 144, 0, 2),
    Q5_K: (256, 176, 0, 2), Q6_K: (256, 210, 208, None), IQ4_NL: (32, 18, 0, None), IQ4_XS: (256, 136, 0, None),
}
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float64)


def size(kind, elements):
    if kind in (F16, BF16):
        return 2 * elements
    if kind == F32:
        return 4 * elements
    block, length = LAYOUT[kind][:2]
    return elements // block * length


def dequantize(kind, raw, shape):
    if kind == F32:
        return raw.view("<f4").astype(np.float64).reshape(shape)
    if kind == F16:
        return raw.view("<f2").astype(np.float64).reshape(shape)
    if kind == BF16:
        return (raw.view("<u2").astype("<u4") << 16).view("<f4").astype(np.float64).reshape(shape)
    block, length, scale_at, min_at = LAYOUT[kind]
    b = raw.reshape(-1, length)
    half = lambda at: b[:, at:at + 2].copy().view("<f2").astype(np.float64)
    d = half(scale_at)
    m = half(min_at) if min_at is not None else None
    return VALUES[kind](b, d, m).reshape(shape)


def _halves(q):
    """Low nibbles first, then the high ones."""
    return np.concatenate([q & 15, q >> 4], -1)


def _fifth(b, at):
    word = b[:, at:at + 4].copy().view("<u4")
    return ((word >> np.arange(32, dtype=np.uint32)) & 1).astype(np.uint8) << 4


def _pairs(s):
    """Eight six-bit scales and minima of twelve bytes."""
    low = [(s[:, j] & 63, s[:, j + 4] & 63) for j in range(4)]
    high = [((s[:, j + 8] & 15) | (s[:, j] >> 6) << 4, (s[:, j + 8] >> 4) | (s[:, j + 4] >> 6) << 4) for j in range(4)]
    scales, minima = zip(*(low + high))
    return np.stack(scales, 1).astype(np.float64), np.stack(minima, 1).astype(np.float64)


def _k45(b, d, m, q):
    scales, minima = _pairs(b[:, 4:16])
    return q.reshape(-1, 8, 32) * (d * scales)[..., None] - (m * minima)[..., None]


def _q4_k(b, d, m):
    return _k45(b, d, m, _halves(b[:, 16:].reshape(-1, 4, 32)))


def _q5_k(b, d, m):
    low = _halves(b[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    high = (b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    return _k45(b, d, m, low | high << 4)


def _q6_k(b, d, m):
    low, high = b[:, :128].reshape(-1, 2, 64), b[:, 128:192].reshape(-1, 2, 1, 32)
    low = np.concatenate([low & 15, low >> 4], -1).reshape(-1, 2, 4, 32)
    high = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    q = (low | high << 4).astype(np.int64) - 32
    scales = b[:, 192:208].copy().view(np.int8).astype(np.float64)
    return q.reshape(-1, 16, 16) * (d * scales)[..., None]


def _q2_k(b, d, m):
    q = (b[:, 16:80].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    s = b[:, :16]
    return q.reshape(-1, 16, 16) * (d * (s & 15))[..., None] - (m * (s >> 4))[..., None]


def _q3_k(b, d, m):
    low = (b[:, 32:96].reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    high = (b[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    q = low.reshape(-1, 8, 32).astype(np.int64) - 4 * (1 - high.astype(np.int64))
    s = b[:, 96:108]
    low = np.concatenate([s[:, :8] & 15, s[:, :8] >> 4], 1)
    high = np.concatenate([(s[:, 8:] >> shift) & 3 for shift in (0, 2, 4, 6)], 1)
    scales = (low | high << 4).astype(np.float64) - 32
    return q.reshape(-1, 16, 16) * (d * scales)[..., None]


def _iq4_xs(b, d, m):
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], -1).reshape(-1, 8)
    high = (b[:, 2:4].copy().view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)) & 3
    scales = (low | high.astype(np.uint8) << 4).astype(np.float64) - 32
    return IQ4[_halves(b[:, 8:].reshape(-1, 8, 16))] * (d * scales)[..., None]


VALUES = {
    Q4_0: lambda b, d, m: (_halves(b[:, 2:]) - 8.0) * d,
    Q4_1: lambda b, d, m: _halves(b[:, 4:]) * d + m,
    Q5_0: lambda b, d, m: ((_halves(b[:, 6:]) | _fifth(b, 2)) - 16.0) * d,
    Q5_1: lambda b, d, m: (_halves(b[:, 8:]) | _fifth(b, 4)) * d + m,
    Q8_0: lambda b, d, m: b[:, 2:].copy().view(np.int8) * d,
    IQ4_NL: lambda b, d, m: IQ4[_halves(b[:, 2:])] * d,
    Q2_K: _q2_k, Q3_K: _q3_k, Q4_K: _q4_k, Q5_K: _q5_k, Q6_K: _q6_k, IQ4_XS: _iq4_xs,
}


def random_blocks(random, kind, shape, deviation):
    """Random blocks whose values deviate by about `deviation`, with means near zero."""
    elements = int(np.prod(shape))
    if kind == F32:
        return (random.standard_normal(elements) * deviation).astype("<f4").view(np.uint8)
    if kind == F16:
        return (random.standard_normal(elements) * deviation).astype("<f2").view(np.uint8)
    if kind == BF16:
        wide = (random.standard_normal(elements) * deviation).astype("<f4").view("<u4")
        return (wide >> 16).astype("<u2").view(np.uint8)
    block, length, scale_at, min_at = LAYOUT[kind]
    b = random.integers(0, 256, (elements // block, length), np.uint8)
    def fill(at, value):
        if at is not None:
            b[:, at:at + 2] = np.broadcast_to(value, (len(b), 1)).astype("<f2").view(np.uint8)

    def values():
        return dequantize(kind, b.reshape(-1), (len(b), block))

    fill(scale_at, 1.0), fill(min_at, 0.0)
    steps = values()
    unit = deviation / steps.std()
    spread = random.uniform(0.7, 1.4, (len(b), 1))
    if min_at is not None:
        fill(scale_at, 0.0), fill(min_at, 1.0)
        fill(min_at, -unit * spread * steps.mean() / values().mean())
    fill(scale_at, unit * spread)
    return b.reshape(-1)
