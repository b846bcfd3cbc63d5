"""Reads a GGUF file or a Hugging Face folder into a description and its weights in f64.

A description is a dict: sizes, per layer the window and the rotation, and what the family adds. Roles of weights are
named as GGUF names them.
"""

import json
import pathlib
import struct

import numpy as np

import blocks
import packed

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
HF_ROLES = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_norm": "post_attention_layernorm",
}
HF_SANDWICH = {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def load(path):
    path = pathlib.Path(path)
    return folder(path) if path.is_dir() else gguf(path)


def gguf(path):
    data = np.memmap(path, np.uint8, "r")
    view, at = memoryview(data), 4

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, view, at)[0]
        at += struct.calcsize(form)
        return value

    def text():
        nonlocal at
        length = take("Q")
        at += length
        return bytes(view[at - length:at]).decode("utf-8", "replace")

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            inner, count = take("I"), take("Q")
            return [value(inner) for _ in range(count)]
        return take(SCALARS[kind])

    take("I")
    tensors, keys = take("Q"), take("Q")
    meta = {}
    for _ in range(keys):
        name = text()
        meta[name] = value(take("I"))
    table = {}
    for _ in range(tensors):
        name = text()
        shape = [take("Q") for _ in range(take("I"))][::-1]
        table[name] = (shape, take("I"), take("Q"))
    step = meta.get("general.alignment", 32)
    base = -(-at // step) * step

    def weight(name):
        if name not in table:
            return None
        shape, kind, offset = table[name]
        raw = data[base + offset:][:blocks.size(kind, int(np.prod(shape)))]
        return blocks.dequantize(kind, np.ascontiguousarray(raw), shape)

    return describe_gguf(meta, weight), weight


def plain_rope(theta, dims):
    return theta ** (-np.arange(0, dims, 2) / dims)


def describe_gguf(meta, weight):
    arch = meta["general.architecture"]
    get = lambda key, default=None: meta.get(f"{arch}.{key}", default)
    hidden, heads, layers = get("embedding_length"), get("attention.head_count"), get("block_count")
    dim = get("attention.key_length", hidden // heads)
    dims = get("rope.dimension_count", dim)
    rope = plain_rope(get("rope.freq_base", 10000.0), dims)
    if get("rope.scaling.type") == "linear":
        rope = rope / get("rope.scaling.factor")
    factors = weight("rope_freqs.weight")
    if factors is not None:
        rope = rope / factors
    d = dict(
        hidden=hidden, heads=heads, kv=get("attention.head_count_kv", heads), dim=dim, layers=layers, dims=dims,
        eps=get("attention.layer_norm_rms_epsilon"), interleaved=arch in ("llama", "smollm3"), gelu=arch.startswith("gemma"),
        sandwich=arch in ("gemma2", "gemma3"), plus_one=False, embed_scale=1.0, scale=dim ** -0.5, cap=None,
        logit_cap=get("final_logit_softcapping"), windows=[None] * layers, ropes=[(rope, 1.0)] * layers,
    )
    if arch.startswith("gemma"):
        d["embed_scale"] = hidden ** 0.5
    if arch == "smollm3":
        d["ropes"] = [None if l % 4 == 3 else (rope, 1.0) for l in range(layers)]
    if arch == "gemma2":
        d["cap"] = get("attn_logit_softcapping", 50.0)
        d["windows"] = [get("attention.sliding_window", 4096) if l % 2 == 0 else None for l in range(layers)]
    if arch == "gemma3":
        local = [l % 6 < 5 for l in range(layers)]
        d["windows"] = [get("attention.sliding_window") if x else None for x in local]
        d["ropes"] = [(plain_rope(10000.0, dims), 1.0) if x else (rope, 1.0) for x in local]
    return d


def folder(path):
    config = json.loads((path / "config.json").read_text())
    table = {}
    for file in sorted(path.glob("*.safetensors")):
        data = np.memmap(file, np.uint8, "r")
        length = int(data[:8].view("<u8")[0])
        for name, row in json.loads(bytes(data[8:8 + length])).items():
            if name != "__metadata__":
                table[name] = (data[8 + length:], row)
    sandwich = config["model_type"] in ("gemma2", "gemma3_text")
    roles = HF_ROLES | (HF_SANDWICH if sandwich else {})

    def weight(name):
        if name.startswith("blk."):
            _, layer, role, kind = name.split(".")
            name = f"model.layers.{layer}.{roles.get(role)}.{kind}"
        else:
            name = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
                    "output.weight": "lm_head.weight"}[name]
        for part, whole in (("q_proj", "qkv_proj"), ("k_proj", "qkv_proj"), ("v_proj", "qkv_proj"),
                            ("gate_proj", "gate_up_proj"), ("up_proj", "gate_up_proj")):
            if name not in table and name.replace(part, whole) in table:
                return split(weight_of(name.replace(part, whole)), part)
        return weight_of(name)

    def split(whole, part):
        dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
        q, k = config["num_attention_heads"] * dim, config["num_key_value_heads"] * dim
        if part in ("gate_proj", "up_proj"):
            return np.split(whole, 2)[part == "up_proj"]
        return np.split(whole, [q, q + k])["qkv".index(part[0])]

    def weight_of(name):
        prefix = name.removesuffix(".weight")
        if any(f"{prefix}.{part}" in table for part in ("qweight", "weight_packed")):
            return packed.values(config["quantization_config"], prefix, part_of)
        return part_of(name)

    def part_of(name):
        if name not in table:
            return None
        data, row = table[name]
        start, end = row["data_offsets"]
        if row["dtype"] == "I32":
            return np.ascontiguousarray(data[start:end]).view("<u4").reshape(row["shape"])
        kind = {"F32": blocks.F32, "F16": blocks.F16, "BF16": blocks.BF16}[row["dtype"]]
        return blocks.dequantize(kind, np.ascontiguousarray(data[start:end]), row["shape"])

    return describe_folder(config), weight


def describe_folder(c):
    family, hidden, heads, layers = c["model_type"], c["hidden_size"], c["num_attention_heads"], c["num_hidden_layers"]
    dim = c.get("head_dim", hidden // heads)
    dims = int(dim * c.get("partial_rotary_factor", 1.0))
    rope, own = plain_rope(c.get("rope_theta", 10000.0), dims), c.get("rope_scaling") or {}
    magnitude = 1.0
    if own.get("rope_type") == "llama3":
        rope = llama3(rope, own)
    elif own.get("rope_type") == "yarn":
        rope, magnitude = yarn(rope, own, c["rope_theta"], dims)
    elif own.get("rope_type") == "linear":
        rope = rope / own["factor"]
    elif own.get("type") == "longrope":
        trained = c["original_max_position_embeddings"]
        rope = rope / own["short_factor"]
        magnitude = np.sqrt(1 + np.log(c["max_position_embeddings"] / trained) / np.log(trained))
    gemma = family.startswith("gemma")
    window = c.get("sliding_window")
    d = dict(
        hidden=hidden, heads=heads, kv=c["num_key_value_heads"], dim=dim, dims=dims, layers=layers,
        eps=c["rms_norm_eps"], interleaved=False, gelu=gemma, sandwich=family in ("gemma2", "gemma3_text"),
        plus_one=gemma, embed_scale=hidden ** 0.5 if gemma else 1.0, scale=dim ** -0.5,
        cap=c.get("attn_logit_softcapping"), logit_cap=c.get("final_logit_softcapping"), windows=[None] * layers,
        ropes=[(rope, magnitude)] * layers,
    )
    if d["sandwich"]:
        d["scale"] = c.get("query_pre_attn_scalar", 256) ** -0.5
    if family == "smollm3":
        d["ropes"] = [(rope, 1.0) if flag else None for flag in c["no_rope_layers"]]
    if family == "mistral":
        d["windows"] = [window] * layers
    if family == "gemma2":
        d["windows"] = [window if l % 2 == 0 else None for l in range(layers)]
    if family == "gemma3_text":
        local = [kind == "sliding_attention" for kind in c["layer_types"]]
        d["windows"] = [window if x else None for x in local]
        d["ropes"] = [(plain_rope(c["rope_local_base_freq"], dims), 1.0) if x else (rope, 1.0) for x in local]
    return d


def llama3(rope, own):
    low, high = (own["original_max_position_embeddings"] / own[k] for k in ("low_freq_factor", "high_freq_factor"))
    out = []
    for f in rope:
        wave = 2 * np.pi / f
        if wave < high:
            out.append(f)
        elif wave > low:
            out.append(f / own["factor"])
        else:
            smooth = (own["original_max_position_embeddings"] / wave - own["low_freq_factor"]) / (
                own["high_freq_factor"] - own["low_freq_factor"])
            out.append((1 - smooth) * f / own["factor"] + smooth * f)
    return np.array(out)


def yarn(rope, own, theta, dims):
    length = own["original_max_position_embeddings"]
    at = lambda turns: dims * np.log(length / (turns * 2 * np.pi)) / (2 * np.log(theta))
    low, high = max(np.floor(at(32.0)), 0), min(np.ceil(at(1.0)), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / max(high - low, 0.001), 0, 1)
    return rope / own["factor"] * ramp + rope * (1 - ramp), 1 + 0.1 * np.log(own["factor"])
