"""compare.py SOURCE FOLDER [IDS...]: runs a compiled model in OpenVINO (pip install openvino) and compares its logits
with the reference's: the whole text at once, token by token, and through paged attention where the model allows it;
counts what the CPU plugin fused."""

import collections
import json
import pathlib
import sys

import numpy as np
import openvino as ov
from openvino._offline_transformations import paged_attention_transformation

import forward
import models

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


def feed(ids, past):
    count = len(ids)
    return {
        "input_ids": np.array([ids], np.int64), "attention_mask": np.ones((1, past + count), np.int64),
        "position_ids": np.arange(past, past + count, dtype=np.int64)[None], "beam_idx": np.zeros(1, np.int32),
    }


def paged(core, folder, ids):
    """The text in two parts of one sequence, as continuous batching runs it."""
    model = core.read_model(f"{folder}/openvino_model.xml")
    paged_attention_transformation(model)
    compiled = core.compile_model(model, "CPU", EXACT)
    request = compiled.create_infer_request()
    for port in compiled.inputs:
        if "_cache." in port.any_name:
            shape = [8] + [d.get_length() for d in list(port.partial_shape)[1:]]
            request.set_tensor(port.any_name, ov.Tensor(port.element_type, ov.Shape(shape)))
    block = compiled.input("value_cache.0").partial_shape[2].get_length()
    rows, ints = [], lambda *x: np.array(x, np.int32)
    for start, end in ((0, len(ids) // 2), (len(ids) // 2, len(ids))):
        count = -(-end // block)
        feeds = {
            "input_ids": np.array(ids[start:end], np.int64), "position_ids": np.arange(start, end, dtype=np.int64),
            "past_lens": ints(start), "subsequence_begins": ints(0, end - start), "block_indices": ints(*range(count)),
            "block_indices_begins": ints(0, count), "max_context_len": np.array(end, np.int32),
        }
        rows.append(request.infer(feeds)["logits"].reshape(end - start, -1).copy())
    return np.concatenate(rows)


def main(source, folder, ids):
    core = ov.Core()
    compiled = core.compile_model(core.read_model(f"{folder}/openvino_model.xml"), "CPU", EXACT)
    request = compiled.create_infer_request()
    d, weight = models.load(source)
    ids = ids or [int(x) for x in np.random.default_rng(1).integers(0, len(weight("token_embd.weight")), 40)]
    cached = {}
    reference = forward.logits(d, lambda name: cached.setdefault(name, weight(name)), ids)
    whole = request.infer(feed(ids, 0))["logits"][0].copy()
    request.reset_state()
    single = np.concatenate([request.infer(feed([t], i))["logits"][0].copy() for i, t in enumerate(ids)])
    runs = [("whole text", whole), ("token by token", single)]
    if json.loads(pathlib.Path(folder, "cascadia-manifest.json").read_text())["model"]["paged"]:
        runs.append(("paged", paged(core, folder, ids)))
    for name, found in runs:
        kl, same, largest, decided = forward.difference(reference, found)
        print(f"{name}: KL {kl:.2e}, same best token {same} ({decided} of {len(ids)} decided), largest {largest:.2e}")
    kinds = collections.Counter()
    for op in compiled.get_runtime_model().get_ops():
        info = op.get_rt_info()
        kind = info["layerType"].astype(str)
        if kind in ("FullyConnected", "Gather", "GatherCompressed"):
            kind += "/" + str(op.input(1 if kind == "FullyConnected" else 0).get_element_type().get_type_name())
        kinds[kind] += 1
    print(dict(kinds))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [int(x) for x in sys.argv[3:]])
