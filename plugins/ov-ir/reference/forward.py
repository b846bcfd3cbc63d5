"""The logits of a model at every position, in f64 and step by step as the papers have it."""

import numpy as np


def logits(d, weight, ids):
    table = weight("token_embd.weight")
    x = table[ids] * d["embed_scale"]
    for layer in range(d["layers"]):
        w = lambda role: weight(f"blk.{layer}.{role}.weight")
        y = attention(d, layer, w, lambda role: weight(f"blk.{layer}.{role}.bias"), rms(d, x, w("attn_norm")))
        x = x + (rms(d, y, w("post_attention_norm")) if d["sandwich"] else y)
        y = rms(d, x, w("ffn_norm"))
        gate = y @ w("ffn_gate").T
        y = (activate(d, gate) * (y @ w("ffn_up").T)) @ w("ffn_down").T
        x = x + (rms(d, y, w("post_ffw_norm")) if d["sandwich"] else y)
    head = weight("output.weight")
    y = rms(d, x, weight("output_norm.weight")) @ (table if head is None else head).T
    return capped(y, d["logit_cap"])


def rms(d, x, gain):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + d["eps"]) * (gain + 1.0 if d["plus_one"] else gain)


def capped(x, cap):
    return np.tanh(x / cap) * cap if cap else x


def activate(d, x):
    if d["gelu"]:
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    return x / (1 + np.exp(-x))


def attention(d, layer, w, bias, x):
    count, dim = len(x), d["dim"]

    def heads(role, number):
        y = x @ w(role).T
        if bias(role) is not None:
            y = y + bias(role)
        return y.reshape(count, number, dim)

    q, k, v = heads("attn_q", d["heads"]), heads("attn_k", d["kv"]), heads("attn_v", d["kv"])
    if w("attn_q_norm") is not None:
        q, k = rms(d, q, w("attn_q_norm")), rms(d, k, w("attn_k_norm"))
    q, k = rotate(d, layer, q), rotate(d, layer, k)
    group = d["heads"] // d["kv"]
    scores = np.einsum("ihd,jhd->hij", q, np.repeat(k, group, 1)) * d["scale"]
    scores = capped(scores, d["cap"])
    back = np.arange(count)[:, None] - np.arange(count)[None]
    window = d["windows"][layer]
    scores[:, (back < 0) | (back >= (window or count))] = -np.inf
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    y = np.einsum("hij,jhd->ihd", scores, np.repeat(v, group, 1)).reshape(count, -1)
    y = y @ w("attn_output").T
    return y if bias("attn_output") is None else y + bias("attn_output")


def rotate(d, layer, x):
    if d["ropes"][layer] is None:
        return x
    rope, magnitude = d["ropes"][layer]
    angle = np.arange(len(x))[:, None, None] * rope
    cos, sin = np.cos(angle) * magnitude, np.sin(angle) * magnitude
    y, dims = x.copy(), d["dims"]
    first, second = (slice(0, dims, 2), slice(1, dims, 2)) if d["interleaved"] else (slice(0, dims // 2), slice(dims // 2, dims))
    y[..., first] = x[..., first] * cos - x[..., second] * sin
    y[..., second] = x[..., second] * cos + x[..., first] * sin
    return y


def difference(reference, found):
    """Mean KL divergence, and whether the best token is the same wherever the reference's margin decides it."""
    log = lambda x: x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
    p, q = log(reference), log(np.asarray(found, np.float64))
    largest = np.abs(reference - found).max()
    ordered = np.sort(reference, -1)
    decided = ordered[:, -1] - ordered[:, -2] > 2 * largest
    same = reference.argmax(-1) == np.asarray(found).argmax(-1)
    return (np.exp(p) * (p - q)).sum(-1).mean(), bool(same[decided].all()), largest, int(decided.sum())
