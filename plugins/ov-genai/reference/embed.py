"""Writes tests/models/bert: a tiny network that embeds, as OpenVINO's tools export one, and what numpy computes of it.

    pip install numpy openvino && python embed.py

The network is drawn with OpenVINO's operations; the vectors come from the numpy code below, in f64, which shares the
weights with it and nothing else.
"""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import openvino as ov
from openvino import opset13 as op

VOCAB, HIDDEN, HEADS, INNER, LAYERS, PLACES, EPS = 256, 16, 2, 32, 2, 48, 1e-6
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-"
FOLDER = Path(__file__).parent.parent / "tests" / "models" / "bert"


def weights():
    random = np.random.default_rng(7)

    def draw(*shape, scale=None):
        return random.normal(0, scale or shape[-1] ** -0.5, shape).astype(np.float32)

    def norm(name):
        return {f"{name}.gain": 1 + draw(HIDDEN, scale=0.1), f"{name}.shift": draw(HIDDEN, scale=0.1)}

    all = {"words": draw(VOCAB, HIDDEN, scale=1), "places": draw(PLACES, HIDDEN, scale=1)}
    all |= {"kinds": draw(2, HIDDEN, scale=1)} | norm("first")
    for layer in range(LAYERS):
        for part, (rows, columns) in {
            "query": (HIDDEN, HIDDEN),
            "key": (HIDDEN, HIDDEN),
            "value": (HIDDEN, HIDDEN),
            "out": (HIDDEN, HIDDEN),
            "up": (INNER, HIDDEN),
            "down": (HIDDEN, INNER),
        }.items():
            all[f"{layer}.{part}"] = draw(rows, columns)
            all[f"{layer}.{part}.bias"] = draw(rows, scale=0.1)
        all |= norm(f"{layer}.seen") | norm(f"{layer}.thought")
    return all


def network(w):
    """As exported: ids, mask and kinds of any batch and length; the last hidden state."""
    ids, mask, kinds = (
        op.parameter([-1, -1], np.int64, name=name) for name in ("input_ids", "attention_mask", "token_type_ids")
    )
    for node in (ids, mask, kinds):
        node.output(0).set_names({node.friendly_name})

    def constant(value, kind=np.float32):
        return op.constant(np.asarray(value, dtype=kind))

    def take(table, at):
        return op.gather(constant(table), at, constant(0, np.int64))

    def norm(x, name):
        x = op.mvn(x, constant([-1], np.int64), True, EPS, "inside_sqrt")
        return op.add(op.multiply(x, constant(w[f"{name}.gain"])), constant(w[f"{name}.shift"]))

    def linear(x, name):
        return op.add(op.matmul(x, constant(w[name]), False, True), constant(w[f"{name}.bias"]))

    length = op.gather(op.shape_of(ids), constant(1, np.int64), constant(0, np.int64))
    places = op.range(constant(0, np.int64), length, constant(1, np.int64), "i64")
    x = op.add(op.add(take(w["words"], ids), take(w["places"], places)), take(w["kinds"], kinds))
    x = norm(x, "first")
    hidden = op.unsqueeze(op.subtract(constant(1), op.convert(mask, "f32")), constant([1, 2], np.int64))
    hidden = op.multiply(hidden, constant(-1e9))
    for layer in range(LAYERS):

        def heads(part):
            y = op.reshape(linear(x, f"{layer}.{part}"), constant([0, 0, HEADS, -1], np.int64), True)
            return op.transpose(y, constant([0, 2, 1, 3], np.int64))

        seen = op.scaled_dot_product_attention(heads("query"), heads("key"), heads("value"), hidden)
        seen = op.reshape(op.transpose(seen, constant([0, 2, 1, 3], np.int64)), constant([0, 0, -1], np.int64), True)
        x = norm(op.add(x, linear(seen, f"{layer}.out")), f"{layer}.seen")
        x = norm(op.add(x, linear(op.gelu(linear(x, f"{layer}.up"), "erf"), f"{layer}.down")), f"{layer}.thought")
    x.output(0).set_names({"last_hidden_state"})
    return ov.Model([op.result(x)], [ids, mask, kinds], "bert")


def states(w, ids):
    """The last hidden state of one sequence: [tokens, hidden]."""
    w = {name: value.astype(np.float64) for name, value in w.items()}

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w[f"{name}.gain"] + w[f"{name}.shift"]

    def linear(x, name):
        return x @ w[name].T + w[f"{name}.bias"]

    x = norm(w["words"][ids] + w["places"][: len(ids)] + w["kinds"][0], "first")
    for layer in range(LAYERS):
        q, k, v = (
            linear(x, f"{layer}.{part}").reshape(len(ids), HEADS, -1).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(HIDDEN // HEADS)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        seen = (shares @ v).transpose(1, 0, 2).reshape(len(ids), HIDDEN)
        x = norm(x + linear(seen, f"{layer}.out"), f"{layer}.seen")
        up = linear(x, f"{layer}.up")
        up = up * 0.5 * (1 + np.vectorize(math.erf)(up / math.sqrt(2)))
        x = norm(x + linear(up, f"{layer}.down"), f"{layer}.thought")
    return x


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "1_Pooling").mkdir(parents=True)
    w = weights()
    ov.save_model(network(w), FOLDER / "openvino_model.xml", compress_to_fp16=False)
    config = {"model_type": "bert", "architectures": ["BertModel"], "hidden_size": HIDDEN, "vocab_size": VOCAB}
    config |= {"max_position_embeddings": PLACES, "eos_token_id": len(LETTERS) - 1}
    write("config.json", config)
    write("1_Pooling/config.json", {"word_embedding_dimension": HIDDEN, "pooling_mode_mean_tokens": True})
    bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
    vocab = {letter: at for at, letter in enumerate(LETTERS)}
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": bytes}
    tokenizer |= {"post_processor": None, "decoder": bytes, "model": {"type": "BPE", "vocab": vocab, "merges": []}}
    write("tokenizer.json", tokenizer)
    random = np.random.default_rng(11)
    cases = []
    for length in (1, 2, 7, 19, PLACES):
        ids = random.integers(0, VOCAB, length).tolist()
        x = states(w, ids)
        vectors = {"mean": x.mean(0).tolist(), "first": x[0].tolist(), "last": x[-1].tolist()}
        cases.append({"ids": ids} | vectors)
    write("cases.json", cases)


def write(name, value):
    (FOLDER / name).write_text(json.dumps(value) + "\n")


main()
