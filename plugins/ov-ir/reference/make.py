"""make.py FOLDER: writes tiny random models of each family with their reference logits, the same in every run.

Each gets a folder of its own: `model.gguf`, or `config.json` with safetensors, and `case.json` (token ids, rows) and
`logits.bin` (f32). Needs numpy.
"""

import json
import pathlib
import struct
import sys

import numpy as np

import blocks as b
import forward
import models
import packed

LENGTH = 24
# Tokens of the sequence that a greedy answer follows, and tokens of that answer.
PROMPT, ANSWER = 8, 16
BASE = {"general.alignment": 32}


def kinds_of_value(value):
    if isinstance(value, bool):
        return 7, struct.pack("<?", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    raw = value.encode()
    return 8, struct.pack("<Q", len(raw)) + raw


def write_gguf(path, meta, tensors):
    """Tensors are (name, shape, kind, bytes)."""
    text = lambda s: struct.pack("<Q", len(s)) + s.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta))
    for name, value in meta.items():
        kind, raw = kinds_of_value(value)
        head += text(name) + struct.pack("<I", kind) + raw
    data = b""
    for name, shape, kind, raw in tensors:
        data += bytes(-len(data) % 32)
        dims = struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        head += text(name) + dims + struct.pack("<IQ", kind, len(data))
        data += raw.tobytes()
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_safetensors(path, tensors):
    names, table, data = {b_: n for n, b_ in (("F32", b.F32), ("F16", b.F16), ("BF16", b.BF16), ("I32", packed.I32), ("I64", packed.I64))}, {}, b""
    for name, shape, kind, raw in tensors:
        table[name] = {"dtype": names[kind], "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw.tobytes()
    head = json.dumps(table).encode()
    head += b" " * (-len(head) % 8)
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


class Maker:
    """Random tensors under GGUF's names; `kinds` gives the storage of matrices by role."""

    def __init__(self, seed, kinds, gain=1.0):
        self.random, self.kinds, self.gain, self.tensors = np.random.default_rng(seed), kinds, gain, []

    def matrix(self, name, role, shape, deviation=None):
        kind = self.kinds.get(role, self.kinds["all"])
        raw = b.random_blocks(self.random, kind, shape, deviation or 1.5 * shape[1] ** -0.5)
        self.tensors.append((name, shape, kind, raw))

    def vector(self, name, length, mean):
        values = mean + 0.2 * self.random.standard_normal(length)
        kind = self.kinds.get("vector", b.F32)
        raw = values.astype("<f4")
        if kind == b.BF16:
            self.tensors.append((name, [length], kind, (raw.view("<u4") >> 16).astype("<u2").view(np.uint8)))
        else:
            self.tensors.append((name, [length], b.F32, raw.view(np.uint8)))

    def model(self, hidden, heads, kv, dim, ffn, layers, vocab, tied, norms=False, sandwich=False, bias=False):
        self.matrix("token_embd.weight", "embd", [vocab, hidden], 2.0 * hidden ** -0.5)
        for layer in range(layers):
            at = f"blk.{layer}."
            self.vector(at + "attn_norm.weight", hidden, self.gain)
            for role, rows, columns in (("attn_q", heads * dim, hidden), ("attn_k", kv * dim, hidden),
                                        ("attn_v", kv * dim, hidden), ("attn_output", hidden, heads * dim)):
                self.matrix(f"{at}{role}.weight", role, [rows, columns])
                if bias and role != "attn_output":
                    self.vector(f"{at}{role}.bias", rows, 0.0)
            if norms:
                self.vector(at + "attn_q_norm.weight", dim, self.gain)
                self.vector(at + "attn_k_norm.weight", dim, self.gain)
            self.vector(at + "ffn_norm.weight", hidden, self.gain)
            if sandwich:
                self.vector(at + "post_attention_norm.weight", hidden, self.gain)
                self.vector(at + "post_ffw_norm.weight", hidden, self.gain)
            self.matrix(at + "ffn_gate.weight", "ffn_gate", [ffn, hidden])
            self.matrix(at + "ffn_up.weight", "ffn_up", [ffn, hidden])
            self.matrix(at + "ffn_down.weight", "ffn_down", [hidden, ffn])
        self.vector("output_norm.weight", hidden, self.gain)
        if not tied:
            self.matrix("output.weight", "output", [vocab, hidden])
        return self.tensors


def gguf(folder, arch, sizes, kinds, seed, meta=None, extra=(), **features):
    hidden, heads, kv, dim, ffn, layers, vocab = sizes
    maker = Maker(seed, kinds)
    tensors = maker.model(*sizes, **features)
    tensors += [(name, [len(x)], b.F32, np.array(x, "<f4").view(np.uint8)) for name, x in extra]
    keys = {"general.architecture": arch} | BASE | {f"{arch}.{k}": v for k, v in {
        "block_count": layers, "embedding_length": hidden, "feed_forward_length": ffn, "context_length": 512,
        "attention.head_count": heads, "attention.head_count_kv": kv, "attention.key_length": dim,
        "attention.value_length": dim, "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 10000.0,
        **(meta or {})}.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_gguf(folder / "model.gguf", keys, tensors)
    case(folder, folder / "model.gguf", vocab)


def hf(folder, family, sizes, kind, seed, config=None, shards=1, gain=1.0, packing=None, **features):
    hidden, heads, kv, dim, ffn, layers, vocab = sizes
    tensors = Maker(seed, {"all": kind, "vector": b.BF16 if kind == b.BF16 else b.F32}, gain).model(*sizes, **features)
    config = {
        "model_type": family, "hidden_size": hidden, "num_attention_heads": heads, "num_key_value_heads": kv,
        "head_dim": dim, "intermediate_size": ffn, "num_hidden_layers": layers, "vocab_size": vocab,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "max_position_embeddings": 512,
        "tie_word_embeddings": features["tied"], **(config or {}),
    }
    roles = models.HF_ROLES | (models.HF_SANDWICH if features.get("sandwich") else {})
    named = []
    for name, *rest in tensors:
        if name.startswith("blk."):
            _, layer, role, tail = name.split(".")
            name = f"model.layers.{layer}.{roles[role]}.{tail}"
        else:
            name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                    "output.weight": "lm_head.weight"}[name]
        named.append((name, *rest))
    if family == "phi3":
        named = fuse(named)
    if packing:
        config["quantization_config"], pack = packing
        named = pack(np.random.default_rng(seed), named)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if shards == 1:
        write_safetensors(folder / "model.safetensors", named)
    else:
        names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
        for i, name in enumerate(names):
            write_safetensors(folder / name, named[i::shards])
        index = {row[0]: names[i % shards] for i, row in enumerate(named)}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}, indent=1) + "\n")
    case(folder, folder, vocab)


def fuse(tensors):
    """Query, key and value in one matrix, gate and up in another."""
    table, out = dict((row[0], row) for row in tensors), []
    for name, shape, kind, raw in tensors:
        parts = None
        if name.endswith("q_proj.weight"):
            parts, new = ("q_proj", "k_proj", "v_proj"), name.replace("q_proj", "qkv_proj")
        elif name.endswith("gate_proj.weight"):
            parts, new = ("gate_proj", "up_proj"), name.replace("gate_proj", "gate_up_proj")
        elif any(part in name for part in ("k_proj", "v_proj", "up_proj")):
            continue
        if parts:
            rows = [table[name.replace(parts[0], part)] for part in parts]
            shape, raw = [sum(row[1][0] for row in rows), shape[1]], np.concatenate([row[3] for row in rows])
            name = new
        out.append((name, shape, kind, raw))
    return out


def case(folder, source, vocab):
    ids = [(7 * i * i + 3 * i + 1) % vocab for i in range(LENGTH)]
    d, weight = models.load(source)
    logits = forward.logits(d, weight, ids)
    greedy, margin = answer(d, weight, ids[:PROMPT])
    (folder / "case.json").write_text(
        json.dumps({"ids": ids, "vocab": vocab, "prompt": PROMPT, "greedy": greedy}) + "\n")
    (folder / "logits.bin").write_bytes(logits.astype("<f4").tobytes())
    top = np.sort(logits, -1)
    print(f"{folder.name}: deviation {logits.std():.2f}, smallest margin {(top[:, -1] - top[:, -2]).min():.3f}, "
          f"of the answer {margin:.3f}")


def answer(d, weight, ids):
    """The likeliest token, again and again, and the smallest distance of one from the second."""
    ids, margin = list(ids), np.inf
    for _ in range(ANSWER):
        row = forward.logits(d, weight, ids)[-1]
        second, first = np.argsort(row)[-2:]
        margin = min(margin, row[first] - row[second])
        ids.append(int(first))
    return ids[-ANSWER:], margin


def main(out):
    small, wide = (32, 4, 2, 16, 64, 2, 64), (128, 4, 2, 32, 128, 1, 64)
    gguf(out / "llama-gguf", "llama", (*wide[:5], 2, 64), {
        "all": b.Q8_0, "attn_q": b.Q4_0, "attn_k": b.Q4_1, "attn_v": b.F32, "attn_output": b.Q5_1,
        "ffn_gate": b.IQ4_NL, "ffn_up": b.Q5_0, "ffn_down": b.Q4_1}, 1, tied=False,
        extra=[("rope_freqs.weight", [1] * 8 + [2, 2, 4, 4, 8, 8, 8, 8])])
    gguf(out / "qwen2-gguf", "qwen2", (256, 2, 1, 32, 256, 1, 48), {
        "all": b.Q8_0, "embd": b.Q6_K, "attn_q": b.Q4_K, "attn_k": b.Q2_K, "attn_v": b.Q3_K, "ffn_gate": b.Q5_K,
        "ffn_up": b.IQ4_XS, "ffn_down": b.Q4_K}, 2, tied=True, bias=True)
    gguf(out / "qwen3-gguf", "qwen3", (32, 4, 2, 16, 64, 2, 64), {"all": b.BF16, "ffn_up": b.F16, "embd": b.Q8_0}, 3, tied=True, norms=True)
    gemma = dict(tied=True, sandwich=True)
    gguf(out / "gemma2-gguf", "gemma2", wide, {"all": b.Q8_0}, 4, {
        "attention.sliding_window": 8, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 4.0}, **gemma)
    gguf(out / "gemma3-gguf", "gemma3", (64, 2, 1, 32, 64, 7, 64), {"all": b.Q4_0, "embd": b.Q8_0}, 5, {
        "attention.sliding_window": 8, "rope.freq_base": 1000000.0, "rope.scaling.type": "linear",
        "rope.scaling.factor": 8.0}, norms=True, **gemma)
    hf(out / "llama-hf", "llama", small, b.BF16, 6, {"rope_theta": 500000.0, "rope_scaling": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64}}, shards=2, tied=False)
    hf(out / "mistral-hf", "mistral", small, b.F16, 7, {"sliding_window": 6}, tied=False)
    hf(out / "qwen2-hf", "qwen2", small, b.BF16, 8, tied=True, bias=True)
    hf(out / "qwen3-hf", "qwen3", small, b.BF16, 9, {"rope_scaling": {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}}, tied=True, norms=True)
    hf(out / "phi3-hf", "phi3", small, b.BF16, 10, {
        "partial_rotary_factor": 0.5, "original_max_position_embeddings": 256, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0, 1.1, 1.5, 2.0], "long_factor": [2.0, 4.0, 8.0, 16.0]}},
        tied=False)
    hf(out / "gemma-hf", "gemma", small, b.BF16, 11, gain=0.0, tied=True)
    hf(out / "gemma2-hf", "gemma2", small, b.BF16, 12, {
        "sliding_window": 8, "query_pre_attn_scalar": 32, "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 4.0}, gain=0.0, **gemma)
    hf(out / "gemma3-hf", "gemma3_text", (32, 2, 1, 16, 64, 3, 64), b.BF16, 13, {
        "sliding_window": 8, "query_pre_attn_scalar": 24, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}, gain=0.0, norms=True, **gemma)
    gguf(out / "smollm3-gguf", "smollm3", (32, 4, 2, 16, 32, 4, 64), {"all": b.Q8_0}, 14, tied=True)
    hf(out / "llama-gptq-hf", "llama", small, b.F16, 16, packing=packed.gptq(16, symmetric=False), tied=False)
    hf(out / "mistral-gptq-hf", "mistral", small, b.BF16, 17, packing=packed.gptq(32, symmetric=True), tied=False)
    hf(out / "qwen2-awq-hf", "qwen2", small, b.F16, 18, packing=packed.awq(16), tied=True, bias=True)
    hf(out / "qwen3-packed-hf", "qwen3", small, b.BF16, 19, packing=packed.compressed(16), tied=True, norms=True)
    hf(out / "smollm3-hf", "smollm3", small, b.BF16, 15, {"no_rope_layers": [0, 1]}, tied=True)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
