// C functions over OpenVINO GenAI's pipelines: token ids in, token ids out.
//
// Holds no state beside its two handle types. Every exception ends here as text in the caller's buffer. Knows
// nothing of files, dlopen, tokenizers or policy: locate.rs finds the libraries, ffi.rs loads them and this.
#include "shim.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "embedder.hpp"
#include "genai.hpp"
#include "../../ov-base/shim/guarded.hpp"
#include "layout.hpp"
#include "stateful.hpp"
#include "values.hpp"
#include "words.hpp"

using namespace ov::genai;

struct cgn_pipeline {
    ContinuousBatchingPipeline inner;
    int version;
    // To end what is unfinished before closing.
    std::vector<std::weak_ptr<GenerationHandleImpl>> given;
};

struct cgn_request {
    GenerationHandle handle;
    // What the library already gave away and the caller's buffer had no room for.
    std::deque<std::pair<int64_t, float>> pending;
    GenerationFinishReason reason = GenerationFinishReason::NONE;
};

namespace {

void drain(cgn_request& request) {
    while (request.handle->can_read()) {
        // One entry: we never ask for several sequences per request.
        for (auto& [sequence, out] : request.handle->read()) {
            for (size_t i = 0; i < out.generated_ids.size(); ++i) {
                float logprob = i < out.generated_log_probs.size() ? out.generated_log_probs[i] : 0.0F;
                request.pending.emplace_back(out.generated_ids[i], logprob);
            }
            if (out.finish_reason != GenerationFinishReason::NONE) request.reason = out.finish_reason;
        }
    }
}

void cancel_running(GenerationHandleImpl& handle) {
    if (handle.get_status() == GenerationStatus::RUNNING) handle.cancel();
}

}  // namespace

extern "C" {

uint32_t cgn_abi() { return 3; }

int cgn_version(cgn_text* build) {
    return guarded(build, [&] {
        put(build, ov::get_openvino_version().buildNumber);
        return core_version();
    });
}

int cgn_check(int allow_untested, cgn_text* err) {
    return guarded(err, [&] {
        layout(core_version(), allow_untested != 0);
        return 0;
    });
}

int cgn_sched_selftest(cgn_text* dump, cgn_text* err) {
    return guarded(err, [&] {
        put(dump, fill(layout(core_version(), true), PROBES[0]).to_string());
        return 0;
    });
}

int cgn_open(const char* path, const char* device, const cgn_scheduler* scheduler, const cgn_value* properties,
             size_t count, const char* draft, const char* draft_device, int allow_untested, cgn_pipeline** out,
             cgn_text* err) {
    return guarded(err, [&] {
        const int version = core_version();
        const SchedulerConfig config = fill(layout(version, allow_untested != 0), *scheduler);
        ov::AnyMap map = any_map(properties, count);
        if (draft) {
            const ov::AnyMap own = map;
            map.insert(draft_model(std::filesystem::path(draft), std::string(draft_device), own));
        }
        // Whoever keeps the networks that the library makes of a GGUF wants those of its tokenizer too.
        ov::AnyMap words;
        if (const auto save = map.find("enable_save_ov_model"); save != map.end()) words.insert(*save);
        *out = new cgn_pipeline{
            ContinuousBatchingPipeline(std::filesystem::path(path), config, std::string(device), map, words, {}),
            version,
            {}};
        return 0;
    });
}

int cgn_has_vocabulary(cgn_pipeline* pipeline, cgn_text* err) {
    return guarded(err, [&] {
        try {
            return pipeline->inner.get_tokenizer().get_vocab_vector().empty() ? 0 : 1;
        } catch (const ov::Exception&) {
            // That is how the library says that it has no tokenizer.
            return 0;
        }
    });
}

void cgn_close(cgn_pipeline* pipeline) {
    // The library prints an error for each request that still holds cache blocks when it goes; so none may.
    quietly([&] {
        for (auto& weak : pipeline->given)
            if (auto handle = weak.lock()) cancel_running(*handle);
        // One step lets go of them; a second would be a fault of the library, and closing must end.
        if (pipeline->inner.has_non_finished_requests()) pipeline->inner.step();
    });
    quietly([&] {
        delete pipeline;
    });
}

int cgn_add(cgn_pipeline* pipeline, uint64_t id, const int64_t* ids, size_t count, const cgn_value* settings,
            size_t settings_count, cgn_request** out, cgn_text* err) {
    return guarded(err, [&] {
        ov::Tensor prompt(ov::element::i64, ov::Shape{1, count});
        std::copy_n(ids, count, prompt.data<int64_t>());
        // A grammar that does not compile would fail in a step, and take every request with it.
        for (const cgn_value* v = settings; v != settings + settings_count; ++v) {
            if (v->kind != CGN_GRAMMAR) continue;
            Tokenizer tokenizer = pipeline->inner.get_tokenizer();
            StructuredOutputConfig(ov::AnyMap{{v->key, std::string(v->text)}}).validate(tokenizer);
        }
        // From the pipeline's own, as a GenerationConfig can only be made by the library.
        GenerationConfig config = pipeline->inner.get_config();
        config.update_generation_config(any_map(settings, settings_count));
        config.validate();
        auto& given = pipeline->given;
        given.erase(std::remove_if(given.begin(), given.end(), [](auto& weak) { return weak.expired(); }), given.end());
        given.reserve(given.size() + 1);
        auto request = std::make_unique<cgn_request>();
        request->handle = pipeline->inner.add_request(id, prompt, config);
        given.push_back(request->handle);
        *out = request.release();
        return 0;
    });
}

int cgn_step(cgn_pipeline* pipeline, cgn_text* err) {
    return guarded(err, [&] {
        pipeline->inner.step();
        return 0;
    });
}

int cgn_busy(cgn_pipeline* pipeline, cgn_text* err) {
    return guarded(err, [&] { return pipeline->inner.has_non_finished_requests() ? 1 : 0; });
}

int cgn_read_metrics(cgn_pipeline* pipeline, cgn_metrics* out, cgn_text* err) {
    return guarded(err, [&] {
        const PipelineMetrics metrics = pipeline->inner.get_metrics();
        auto get = [&](size_t offset, auto& value) { std::memcpy(&value, metrics.storage + offset, sizeof value); };
        *out = {};
        get(0, out->requests);
        get(8, out->scheduled_requests);
        get(16, out->cache_usage);
        get(20, out->max_cache_usage);
        get(28, out->step_us);
        get(layout(pipeline->version, true).metrics_cache_bytes, out->cache_bytes);
        return 0;
    });
}

int cgn_poll(cgn_request* request, int64_t* ids, float* logprobs, size_t cap, cgn_progress* out, cgn_text* err) {
    return guarded(err, [&] {
        // The status first: tokens that come after it was read are then left for the next call, never lost.
        const GenerationStatus status = request->handle->get_status();
        drain(*request);
        const size_t n = std::min(cap, request->pending.size());
        for (size_t i = 0; i < n; ++i) {
            ids[i] = request->pending[i].first;
            logprobs[i] = request->pending[i].second;
        }
        request->pending.erase(request->pending.begin(), request->pending.begin() + static_cast<ptrdiff_t>(n));
        *out = {n, request->pending.size(), static_cast<int32_t>(status), static_cast<int32_t>(request->reason)};
        return 0;
    });
}

int cgn_cancel(cgn_request* request, cgn_text* err) {
    return guarded(err, [&] {
        request->handle->cancel();
        return 0;
    });
}

void cgn_drop(cgn_request* request) {
    quietly([&] {
        // Older libraries noticed a dropped handle by themselves; saying so is right for all.
        cancel_running(*request->handle);
        delete request;
    });
}

int cgn_stateful_open(const char* path, const char* device, const cgn_value* properties, size_t count,
                      int allow_untested, cgn_stateful** out, cgn_text* err) {
    return guarded(err, [&] {
        known(core_version(), allow_untested != 0);
        *out = new cgn_stateful(path, device, any_map(properties, count));
        return 0;
    });
}

int cgn_stateful_run(cgn_stateful* pipeline, const int64_t* ids, size_t count, const cgn_value* settings,
                     size_t settings_count, cgn_take take, void* ctx, cgn_text* err) {
    return guarded(err, [&] {
        pipeline->run(ids, count, any_map(settings, settings_count), take, ctx);
        return 0;
    });
}

void cgn_stateful_close(cgn_stateful* pipeline) {
    quietly([&] {
        delete pipeline;
    });
}

int cgn_embedder_open(const char* folder, const char* device, const cgn_value* properties, size_t count,
                      int allow_untested, cgn_embedder** out, cgn_text* err) {
    return guarded(err, [&] {
        known(core_version(), allow_untested != 0);
        *out = new cgn_embedder(folder, device, any_map(properties, count));
        return 0;
    });
}

size_t cgn_embedder_dimensions(const cgn_embedder* embedder) { return embedder->dimensions; }

int cgn_embedder_run(cgn_embedder* embedder, const int64_t* ids, size_t count, uint32_t pooling, float* vector,
                     cgn_text* err) {
    return guarded(err, [&] {
        if (count == 0) throw std::invalid_argument("there are no tokens");
        embedder->run(ids, count, pooling, vector);
        return 0;
    });
}

void cgn_embedder_close(cgn_embedder* embedder) {
    quietly([&] {
        delete embedder;
    });
}

int cgn_words_open(const char* folder, const char* extension, cgn_words** out, cgn_text* err) {
    return guarded(err, [&] {
        *out = new cgn_words(folder, extension);
        return 0;
    });
}

void cgn_words_close(cgn_words* words) {
    quietly([&] {
        delete words;
    });
}

size_t cgn_words_vocabulary(const cgn_words* words) { return words->vocabulary; }

void cgn_words_template(const cgn_words* words, cgn_text* text) { put(text, words->chat_template); }

size_t cgn_words_special(const cgn_words* words, int64_t* ids, size_t cap) {
    std::copy_n(words->special.begin(), std::min(cap, words->special.size()), ids);
    return words->special.size();
}

int cgn_words_encode(cgn_words* words, const char* text, size_t len, int64_t* ids, size_t cap, size_t* count,
                     cgn_text* err) {
    return guarded(err, [&] {
        *count = words->encode(std::string(text, len), ids, cap);
        return 0;
    });
}

int cgn_words_decode(cgn_words* words, const int64_t* ids, size_t rows, size_t width, char* bytes, size_t cap,
                     size_t* ends, cgn_text* err) {
    return guarded(err, [&] {
        words->decode(ids, rows, width, bytes, cap, ends);
        return 0;
    });
}

}  // extern "C"
