// C functions over OpenVINO's core: a network with paged attention, its cache, one inference at a time.
//
// Public headers only. Every exception ends here as text in the caller's buffer. Knows nothing of files' places, sequences
// or tokens: ffi.rs loads it, the scheduler says which row goes where.
#include "shim.h"
#include "../../ov-base/shim/guarded.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <openvino/openvino.hpp>
#include <openvino/opsets/opset8.hpp>
#include <openvino/pass/manager.hpp>
#include <openvino/pass/sdpa_to_paged_attention.hpp>

namespace {

// Versions, as year * 100 + minor, whose pass and kernels gave the reference's tokens.
constexpr int TESTED[] = {202604};
constexpr std::string_view TESTED_TEXT = "2026.4";

using Port = ov::Output<const ov::Node>;

struct Free {
    void operator()(void* at) const { std::free(at); }
};

// One cache input of one layer.
struct Cache {
    Port port;
    ov::Shape block;        // shape of one block
    size_t block_bytes = 0;
    size_t layer = 0;
    bool key = false;
    std::unique_ptr<void, Free> memory;
    char* at = nullptr;     // aligned
};

// Another input, and what is bound to it.
struct Input {
    Port port;
    ov::Tensor bound;
};

}  // namespace

struct ovr_model {
    ov::Core core;
    ov::CompiledModel compiled;
    ov::InferRequest request;
    std::map<std::string, Input> inputs;  // but the caches
    std::vector<Cache> caches;
    size_t blocks = 0;
    size_t rows = 0;      // bound
    size_t sampled = 0;   // of these, whose logits come
    ovr_facts facts{};
};

namespace {

[[noreturn]] void fail(const std::string& text) { throw std::runtime_error(text); }

int core_version() {
    int year = 0, minor = 0;
    const char* build = ov::get_openvino_version().buildNumber;
    if (std::sscanf(build, "%d.%d", &year, &minor) != 2) return 0;
    return year * 100 + minor;
}

// The rows of the last product of matrices are those whose logits are wanted, and no others: with a vocabulary of 49 152 it
// is as much work as eight layers.
bool cut(ov::Model& model) {
    std::shared_ptr<ov::Node> node = model.output(0).get_node()->input_value(0).get_node_shared_ptr();
    // Between it and the logits there may be a change of type, of shape or of scale.
    for (int steps = 0; std::string_view(node->get_type_name()) != "MatMul"; ++steps) {
        if (steps == 8 || node->get_input_size() == 0) return false;
        node = node->input_value(0).get_node_shared_ptr();
    }
    const ov::PartialShape hidden = node->get_input_partial_shape(0);
    // After the pass a row is [1, hidden], and the rows come first.
    if (hidden.rank().is_dynamic() || hidden.size() != 3 || node->get_input_partial_shape(1).size() != 2) return false;
    auto rows = std::make_shared<ov::op::v0::Parameter>(ov::element::i64, ov::PartialShape{-1});
    rows->set_friendly_name("sampled_rows");
    rows->output(0).set_names({"sampled_rows"});
    const auto axis = ov::op::v0::Constant::create(ov::element::i64, {}, {0});
    const auto chosen = std::make_shared<ov::op::v8::Gather>(node->input_value(0), rows, axis);
    node->input(0).replace_source_output(chosen);
    model.add_parameters({rows});
    model.validate_nodes_and_infer_types();
    return true;
}

constexpr const char* FED[] = {"input_ids",     "position_ids",         "past_lens",       "subsequence_begins",
                               "block_indices", "block_indices_begins", "max_context_len", "sampled_rows"};

bool is_cache(const std::string& name) { return name.rfind("key_cache.", 0) == 0 || name.rfind("value_cache.", 0) == 0; }

size_t fixed(const ov::Dimension& dimension, const std::string& name) {
    if (dimension.is_dynamic()) fail("the device leaves the shape of " + name + " open: " + dimension.to_string());
    return static_cast<size_t>(dimension.get_length());
}

void take_cache(ovr_model& model, const Port& port, const std::string& name) {
    Cache cache;
    cache.port = port;
    cache.key = name[0] == 'k';
    cache.layer = std::stoul(name.substr(name.find('.') + 1));
    const ov::PartialShape shape = port.get_partial_shape();
    if (shape.size() != 4) fail("the cache " + name + " has the shape " + shape.to_string());
    size_t elements = 1;
    for (size_t at = 1; at < shape.size(); ++at) {
        cache.block.push_back(fixed(shape[at], name));
        elements *= cache.block.back();
    }
    cache.block_bytes = (elements * port.get_element_type().bitwidth() + 7) / 8;
    model.facts.block_bytes += cache.block_bytes;
    // Not of a key's: where those are quantized its scales are rows too.
    if (name.rfind("value_cache.", 0) == 0) {
        model.facts.layers += 1;
        model.facts.block_tokens = cache.block[1];
    }
    model.caches.push_back(std::move(cache));
}

void take_inputs(ovr_model& model) {
    for (const Port& port : model.compiled.inputs()) {
        const std::string name = port.get_any_name();
        if (is_cache(name)) {
            take_cache(model, port, name);
        } else if (std::find(std::begin(FED), std::end(FED), name) != std::end(FED)) {
            model.inputs.emplace(name, Input{port, {}});
        } else {
            fail("the network wants " + name + ", which this engine does not have");
        }
    }
    for (const char* name : FED)
        if (name != std::string_view("sampled_rows") && !model.inputs.count(name))
            fail(std::string("the network has no input ") + name);
    if (model.facts.layers == 0) fail("the network has no attention with a cache");
    // The order in which a block's bytes are told apart elsewhere; the network's own may be any.
    std::sort(model.caches.begin(), model.caches.end(), [](const Cache& a, const Cache& b) {
        return std::make_pair(a.layer, !a.key) < std::make_pair(b.layer, !b.key);
    });
    const ov::PartialShape logits = model.compiled.output(0).get_partial_shape();
    if (model.compiled.output(0).get_element_type() != ov::element::f32) fail("the logits are no f32");
    model.facts.vocabulary = fixed(logits[logits.size() - 1], "the logits");
    model.facts.cut = model.inputs.count("sampled_rows") ? 1 : 0;
}

// A run of a block's bytes in one cache.
struct Run {
    size_t from;
    size_t bytes;
};

// What the first rows of a block are in a cache: for each head, those of its scales, which come first, and those of the
// positions. Rows behind them may be of whoever had the block before.
template <typename Each>
void runs(const ovr_model& model, const Cache& cache, size_t rows, Each&& each) {
    const size_t heads = cache.block[0], all = cache.block[1], tokens = model.facts.block_tokens;
    const bool whole = rows >= tokens || all < tokens || cache.block_bytes % (heads * all) != 0;
    if (whole) return each(Run{0, cache.block_bytes});
    const size_t row = cache.block_bytes / (heads * all);
    for (size_t head = 0; head < heads; ++head) each(Run{head * all * row, (all - tokens + rows) * row});
}

size_t rows_bytes(const ovr_model& model, size_t rows) {
    size_t bytes = 0;
    for (const Cache& cache : model.caches) runs(model, cache, rows, [&](Run run) { bytes += run.bytes; });
    return bytes;
}

void check_rows(const ovr_model& model, size_t block, size_t rows, size_t bytes) {
    if (block >= model.blocks) fail("there is no block " + std::to_string(block));
    if (rows > model.facts.block_tokens || bytes != rows_bytes(model, rows))
        fail(std::to_string(bytes) + " bytes are not those of " + std::to_string(rows) + " rows");
}

std::string form(const Cache& cache) {
    std::string text = cache.port.get_element_type().get_type_name() + "[";
    for (size_t at = 0; at < cache.block.size(); ++at) text += (at ? "," : "") + std::to_string(cache.block[at]);
    return text + "]";
}

const Cache& checked(const ovr_model& model, size_t layer, size_t block) {
    if (block >= model.blocks) fail("there is no block " + std::to_string(block));
    return model.caches[layer];
}

}  // namespace

extern "C" {

uint32_t ovr_abi() { return 2; }

int ovr_version(ovr_text* build) {
    return guarded(build, [&] {
        put(build, ov::get_openvino_version().buildNumber);
        return core_version();
    });
}

int ovr_check(int allow_untested, ovr_text* err) {
    return guarded(err, [&] {
        const bool tested = std::find(std::begin(TESTED), std::end(TESTED), core_version()) != std::end(TESTED);
        if (!tested && !allow_untested)
            fail("OpenVINO " + std::string(ov::get_openvino_version().buildNumber) + " is not tested, supported is " +
                 std::string(TESTED_TEXT) + "; allow-untested takes it all the same");
        return 0;
    });
}

int ovr_open(const char* xml, const char* device, const ovr_property* properties, size_t count, ovr_model** out,
             ovr_text* err) {
    return guarded(err, [&] {
        auto model = std::make_unique<ovr_model>();
        ov::AnyMap map;
        for (size_t at = 0; at < count; ++at) map[properties[at].key] = std::string(properties[at].value);
        std::shared_ptr<ov::Model> network = model->core.read_model(std::string(xml));
        if (network->outputs().size() != 1) fail("the network has " + std::to_string(network->outputs().size()) + " outputs");
        ov::pass::Manager passes;
        passes.register_pass<ov::pass::SDPAToPagedAttention>();
        passes.run_passes(network);
        cut(*network);
        model->compiled = model->core.compile_model(network, std::string(device), map);
        take_inputs(*model);
        model->request = model->compiled.create_infer_request();
        *out = model.release();
        return 0;
    });
}

void ovr_close(ovr_model* model) {
    quietly([&] {
        delete model;
    });
}

void ovr_read_facts(const ovr_model* model, ovr_facts* out) { *out = model->facts; }

int ovr_property_value(ovr_model* model, const char* key, ovr_text* value, ovr_text* err) {
    return guarded(err, [&] {
        put(value, model->compiled.get_property(key).as<std::string>());
        return 0;
    });
}

void ovr_cache_type(const ovr_model* model, ovr_text* name) {
    quietly([&] {
        put(name, model->caches.front().port.get_element_type().get_type_name());
    });
}

int ovr_allocate(ovr_model* model, size_t blocks, ovr_text* err) {
    return guarded(err, [&] {
        if (model->blocks != 0 || blocks == 0) fail("the cache is made once, of at least one block");
        constexpr size_t ALIGN = 64;
        for (Cache& cache : model->caches) {
            if (blocks > (SIZE_MAX - ALIGN) / cache.block_bytes) fail("the cache is larger than memory can be");
            const size_t bytes = blocks * cache.block_bytes;
            // Zero from the start: a kernel multiplies what lies behind a sequence's end by zero, and no number must come
            // of it. Pages that calloc has from the system are zero without being touched.
            cache.memory.reset(std::calloc(1, bytes + ALIGN));
            if (!cache.memory) fail("no memory for a cache of " + std::to_string(blocks) + " blocks");
            size_t room = bytes + ALIGN;
            void* at = cache.memory.get();
            cache.at = static_cast<char*>(std::align(ALIGN, bytes, at, room));
            ov::Shape shape{blocks};
            shape.insert(shape.end(), cache.block.begin(), cache.block.end());
            model->request.set_tensor(cache.port, ov::Tensor(cache.port.get_element_type(), shape, cache.at));
        }
        model->blocks = blocks;
        return 0;
    });
}

int ovr_bind(ovr_model* model, const ovr_batch* batch, ovr_text* err) {
    return guarded(err, [&] {
        if (model->blocks == 0) fail("the model has no cache yet");
        model->rows = 0;
        auto set = [&](const char* name, ov::element::Type type, const ov::Shape& shape, const void* at) {
            // To give a request a tensor costs more than to write a few numbers into the one that it has: from one step that
            // decodes to the next the shapes are mostly the same.
            Input& input = model->inputs.at(name);
            if (!input.bound || input.bound.get_shape() != shape) {
                ov::Tensor fresh(type, shape);
                model->request.set_tensor(input.port, fresh);
                input.bound = fresh;
            }
            if (const size_t bytes = input.bound.get_byte_size()) std::memcpy(input.bound.data(), at, bytes);
        };
        const size_t ends = batch->sequences + 1;
        set("input_ids", ov::element::i64, {batch->rows}, batch->ids);
        set("position_ids", ov::element::i64, {batch->rows}, batch->positions);
        set("past_lens", ov::element::i32, {batch->sequences}, batch->past);
        set("subsequence_begins", ov::element::i32, {ends}, batch->row_begins);
        set("block_indices", ov::element::i32, {batch->blocks_count}, batch->blocks);
        set("block_indices_begins", ov::element::i32, {ends}, batch->block_begins);
        set("max_context_len", ov::element::i32, {}, &batch->longest);
        if (model->facts.cut) set("sampled_rows", ov::element::i64, {batch->sampled_count}, batch->sampled);
        model->rows = batch->rows;
        model->sampled = model->facts.cut ? batch->sampled_count : batch->rows;
        return 0;
    });
}

int ovr_infer(ovr_model* model, ovr_logits* out, ovr_text* err) {
    return guarded(err, [&] {
        if (std::exchange(model->rows, 0) == 0) fail("nothing is bound");
        model->request.infer();
        *out = {nullptr, 0, model->facts.vocabulary};
        if (model->sampled == 0) return 0;
        ov::Tensor logits = model->request.get_output_tensor(0);
        if (logits.get_size() != model->sampled * model->facts.vocabulary)
            fail("the network gave " + std::to_string(logits.get_size()) + " logits for " +
                 std::to_string(model->sampled) + " rows");
        *out = {logits.data<float>(), model->sampled, model->facts.vocabulary};
        return 0;
    });
}

int ovr_copy_block(ovr_model* model, size_t from, size_t to, ovr_text* err) {
    return guarded(err, [&] {
        for (size_t layer = 0; layer < model->caches.size(); ++layer) {
            checked(*model, layer, from);
            const Cache& cache = checked(*model, layer, to);
            if (from != to)
                std::memcpy(cache.at + to * cache.block_bytes, cache.at + from * cache.block_bytes, cache.block_bytes);
        }
        return 0;
    });
}

void ovr_cache_form(const ovr_model* model, ovr_text* out) {
    quietly([&] {
        // Like layers that follow each other are told once, with their number.
        std::string text, last;
        size_t count = 0;
        auto tell = [&] {
            if (count) text += (text.empty() ? "" : " ") + std::to_string(count) + "x" + last;
        };
        for (size_t at = 0; at < model->caches.size();) {
            const size_t layer = model->caches[at].layer;
            std::string now;
            for (; at < model->caches.size() && model->caches[at].layer == layer; ++at)
                now += (now.empty() ? "" : "+") + form(model->caches[at]);
            if (now != last) {
                tell();
                count = 0;
                last = now;
            }
            ++count;
        }
        tell();
        put(out, text);
    });
}

size_t ovr_rows_bytes(const ovr_model* model, size_t rows) {
    size_t bytes = 0;
    quietly([&] { bytes = rows_bytes(*model, rows); });
    return bytes;
}

int ovr_read_rows(const ovr_model* model, size_t block, size_t rows, char* to, size_t bytes, ovr_text* err) {
    return guarded(err, [&] {
        check_rows(*model, block, rows, bytes);
        for (const Cache& cache : model->caches)
            runs(*model, cache, rows, [&](Run run) {
                std::memcpy(to, cache.at + block * cache.block_bytes + run.from, run.bytes);
                to += run.bytes;
            });
        return 0;
    });
}

int ovr_write_rows(ovr_model* model, size_t block, size_t rows, const char* from, size_t bytes, ovr_text* err) {
    return guarded(err, [&] {
        check_rows(*model, block, rows, bytes);
        for (const Cache& cache : model->caches)
            runs(*model, cache, rows, [&](Run run) {
                std::memcpy(cache.at + block * cache.block_bytes + run.from, from, run.bytes);
                from += run.bytes;
            });
        return 0;
    });
}

int ovr_fill_block(ovr_model* model, size_t block, unsigned char byte, ovr_text* err) {
    return guarded(err, [&] {
        for (size_t layer = 0; layer < model->caches.size(); ++layer) {
            const Cache& cache = checked(*model, layer, block);
            std::memset(cache.at + block * cache.block_bytes, byte, cache.block_bytes);
        }
        return 0;
    });
}

}  // extern "C"
