// A model whose cache is the state of one inference: one generation at a time, its tokens handed out as they come.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "genai.hpp"
#include "shim.h"

namespace {

class Forward final : public ov::genai::StreamerBase {
    cgn_take take;
    void* ctx;

    ov::genai::StreamingStatus give(const int64_t* ids, size_t count) {
        using Status = ov::genai::StreamingStatus;
        return take(ctx, ids, count) == 0 ? Status::RUNNING : Status::CANCEL;
    }

public:
    Forward(cgn_take take, void* ctx) : take(take), ctx(ctx) {}
    ov::genai::StreamingStatus write(int64_t token) override { return give(&token, 1); }
    ov::genai::StreamingStatus write(const std::vector<int64_t>& tokens) override {
        return give(tokens.data(), tokens.size());
    }
    void end() override {}
};

}  // namespace

struct cgn_stateful {
    ov::genai::LLMPipeline inner;

    cgn_stateful(const char* path, const char* device, ov::AnyMap properties)
        : inner(std::filesystem::path(path), std::string(device), stateful(std::move(properties))) {}

    void run(const int64_t* ids, size_t count, ov::AnyMap settings, cgn_take take, void* ctx) {
        ov::Tensor tensor(ov::element::i64, ov::Shape{1, count});
        std::copy_n(ids, count, tensor.data<int64_t>());
        const ov::genai::Prompt prompt(tensor);
        settings["streamer"] = std::shared_ptr<ov::genai::StreamerBase>(std::make_shared<Forward>(take, ctx));
        inner.generate(prompt.view(), settings);
    }

private:
    // Left to itself the library takes paged attention where the device has it.
    static ov::AnyMap stateful(ov::AnyMap properties) {
        properties["ATTENTION_BACKEND"] = std::string("SDPA");
        return properties;
    }
};
