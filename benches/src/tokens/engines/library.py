"""OpenVINO GenAI in this process, driven by lines: the library without a server, as `bench engines` compares with.

Arguments: the model (a folder or a GGUF file), threads, most generations at once, and the plugin's defaults for tokens
in a step. Prints `{"ready": SECONDS}` once the model is open and has made its first tokens. Then each line of the input is
`{"prompts": [[id, ...], ...], "tokens": N}`: all prompts at once, N tokens each, greedy, whatever the model thinks of an
end. Its answer has, for each prompt, the seconds from the line's arrival to the first and to the last token.
"""

import json
import sys
import time

BEGUN = time.monotonic()

import numpy
import openvino
import openvino_genai as genai

# Nothing ends a generation early, but the library insists on ids that would.
END = 0


def open_model(model, threads, streams, batched):
    scheduler = genai.SchedulerConfig()
    # What the plugin sets too, by its own defaults: sizes 0 are "as large as needed".
    scheduler.max_num_batched_tokens = batched
    scheduler.max_num_seqs = streams
    scheduler.num_kv_blocks = 0
    scheduler.cache_size = 0
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = True
    properties = {"INFERENCE_NUM_THREADS": str(threads)}
    return genai.ContinuousBatchingPipeline(model, scheduler, "CPU", properties)


def settings(tokens):
    config = genai.GenerationConfig()
    config.max_new_tokens = tokens
    config.do_sample = False
    config.ignore_eos = True
    config.eos_token_id = END
    config.stop_token_ids = {END}
    return config


class Library:
    def __init__(self, pipeline):
        self.pipeline = pipeline
        self.next = 0

    def volley(self, prompts, tokens):
        begun = time.monotonic()
        config = settings(tokens)
        handles = []
        for ids in prompts:
            tensor = openvino.Tensor(numpy.array([ids], dtype=numpy.int64))
            handles.append(self.pipeline.add_request(self.next, tensor, config))
            self.next += 1
        made = [0] * len(prompts)
        first = [None] * len(prompts)
        last = [None] * len(prompts)
        while self.pipeline.has_non_finished_requests():
            self.pipeline.step()
            for at, handle in enumerate(handles):
                while handle.can_read():
                    for output in handle.read().values():
                        made[at] += len(output.generated_ids)
                if made[at] and first[at] is None:
                    first[at] = time.monotonic() - begun
                if made[at] >= tokens and last[at] is None:
                    last[at] = time.monotonic() - begun
        return {"tokens": made, "first": first, "last": last}


def main():
    model, threads, streams, batched = sys.argv[1], *map(int, sys.argv[2:])
    library = Library(open_model(model, threads, streams, batched))
    # The plugin's own warm-up.
    library.volley([[1] * 8], 2)
    say({"ready": time.monotonic() - BEGUN})
    for line in sys.stdin:
        asked = json.loads(line)
        say(library.volley(asked["prompts"], asked["tokens"]))


def say(value):
    print(json.dumps(value), flush=True)


if __name__ == "__main__":
    main()
