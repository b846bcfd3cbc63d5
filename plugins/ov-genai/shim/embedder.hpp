// A network that embeds, run through the core library alone: token ids in, one vector out.
//
// GenAI's TextEmbeddingPipeline takes texts only and pools one way for its whole life; whoever calls here has token ids
// and says each time how they become one vector. One sequence an inference, so that no padding changes a vector.
#pragma once
#include <algorithm>
#include <filesystem>
#include <numeric>
#include <openvino/core/preprocess/pre_post_process.hpp>
#include <openvino/openvino.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "shim.h"

struct cgn_embedder {
    ov::Core core;
    ov::InferRequest request;
    // Names of the inputs beside the ids, in the network's order.
    std::vector<std::string> inputs;
    size_t dimensions = 0;

    cgn_embedder(const char* folder, const char* device, const ov::AnyMap& properties) {
        auto model = core.read_model((std::filesystem::path(folder) / "openvino_model.xml").string());
        for (const auto& input : model->inputs()) {
            const std::string name = input.get_any_name();
            if (name != "input_ids" && name != "attention_mask" && name != "token_type_ids" && name != "position_ids")
                throw std::runtime_error("the network wants " + name + ", which no embedding network has");
            if (input.get_element_type() != ov::element::i64)
                throw std::runtime_error("the network's " + name + " is of another type than i64");
            inputs.push_back(name);
        }
        const auto& shape = model->output("last_hidden_state").get_partial_shape();
        if (shape.rank() != 3 || shape[2].is_dynamic())
            throw std::runtime_error("the network's last_hidden_state is not [batch, tokens, dimensions]");
        dimensions = static_cast<size_t>(shape[2].get_length());
        ov::preprocess::PrePostProcessor as(model);
        as.output("last_hidden_state").tensor().set_element_type(ov::element::f32);
        request = core.compile_model(as.build(), device, properties).create_infer_request();
    }

    void run(const int64_t* ids, size_t count, uint32_t pooling, float* vector) {
        for (const std::string& name : inputs) {
            ov::Tensor in(ov::element::i64, ov::Shape{1, count});
            int64_t* at = in.data<int64_t>();
            if (name == "input_ids")
                std::copy_n(ids, count, at);
            else if (name == "position_ids")
                std::iota(at, at + count, int64_t{0});
            else
                std::fill_n(at, count, name == "attention_mask" ? 1 : 0);
            request.set_tensor(name, in);
        }
        request.infer();
        const ov::Tensor out = request.get_tensor("last_hidden_state");
        if (out.get_shape() != ov::Shape{1, count, dimensions})
            throw std::runtime_error("the network gave another number of states than it had tokens");
        const float* states = out.data<float>();
        switch (pooling) {
        case CGN_FIRST: std::copy_n(states, dimensions, vector); break;
        case CGN_LAST: std::copy_n(states + (count - 1) * dimensions, dimensions, vector); break;
        case CGN_MEAN:
            for (size_t d = 0; d < dimensions; ++d) {
                double sum = 0;
                for (size_t token = 0; token < count; ++token) sum += states[token * dimensions + d];
                vector[d] = static_cast<float>(sum / static_cast<double>(count));
            }
            break;
        default: throw std::invalid_argument("pooling " + std::to_string(pooling));
        }
    }
};
