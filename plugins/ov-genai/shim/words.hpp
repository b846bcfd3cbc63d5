// A tokenizer that comes as two OpenVINO networks, run through the core library alone.
//
// The networks are changed before they are compiled: nothing is cut to a length, special tokens show as their text, and
// bytes that are no whole character come out as they are, so that single tokens have bytes. Knows nothing of GenAI.
#pragma once
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <openvino/op/constant.hpp>
#include <openvino/openvino.hpp>
#include <stdexcept>
#include <string>
#include <vector>

struct cgn_words {
    // Keeps the operations' library.
    ov::Core core;
    std::mutex busy;
    ov::InferRequest encoder, decoder;
    size_t vocabulary = 0;
    std::vector<int64_t> special;
    // What the networks say of chats; empty if nothing.
    std::string chat_template;

    cgn_words(const char* folder, const char* extension) {
        core.add_extension(std::string(extension));
        const std::filesystem::path path(folder);
        auto forth = core.read_model((path / "openvino_tokenizer.xml").string());
        auto back = core.read_model((path / "openvino_detokenizer.xml").string());
        drop(*forth, "Truncate");
        uncap(*forth);
        drop(*back, "UTF8Validate");
        read_vocabulary(*back);
        if (forth->has_rt_info("chat_template"))
            chat_template = forth->get_rt_info<std::string>("chat_template");
        encoder = core.compile_model(forth, "CPU").create_infer_request();
        decoder = core.compile_model(back, "CPU").create_infer_request();
    }

    size_t encode(const std::string& text, int64_t* ids, size_t cap) {
        std::lock_guard<std::mutex> lock(busy);
        ov::Tensor in(ov::element::string, ov::Shape{1});
        in.data<std::string>()[0] = text;
        encoder.set_input_tensor(0, in);
        encoder.infer();
        const ov::Tensor out = encoder.get_tensor("input_ids");
        const size_t count = out.get_size();
        for (size_t i = 0; i < std::min(count, cap); ++i)
            ids[i] = out.get_element_type() == ov::element::i32 ? out.data<int32_t>()[i] : out.data<int64_t>()[i];
        return count;
    }

    void decode(const int64_t* ids, size_t rows, size_t width, char* bytes, size_t cap, size_t* ends) {
        std::lock_guard<std::mutex> lock(busy);
        const ov::element::Type type = decoder.get_compiled_model().input().get_element_type();
        ov::Tensor in(type, ov::Shape{rows, width});
        for (size_t i = 0; i < rows * width; ++i)
            if (type == ov::element::i32)
                in.data<int32_t>()[i] = static_cast<int32_t>(ids[i]);
            else
                in.data<int64_t>()[i] = ids[i];
        decoder.set_input_tensor(in);
        decoder.infer();
        const ov::Tensor out = decoder.get_output_tensor();
        if (out.get_size() != rows) throw std::runtime_error("the detokenizer gave another number of texts");
        size_t at = 0;
        for (size_t row = 0; row < rows; ++row) {
            const std::string& text = out.data<std::string>()[row];
            if (at + text.size() <= cap) std::memcpy(bytes + at, text.data(), text.size());
            at += text.size();
            ends[row] = at;
        }
    }

private:
    // Takes every operation of that type out: what went in comes out.
    static void drop(ov::Model& model, const std::string& type) {
        for (const auto& op : model.get_ordered_ops()) {
            if (op->get_type_name() != type) continue;
            for (size_t i = 0; i < op->get_output_size(); ++i) op->output(i).replace(op->input_value(i));
        }
    }

    // The other way to cut: the number of tokens is the smaller one of what there are and a constant.
    static void uncap(ov::Model& model) {
        for (const auto& op : model.get_ordered_ops()) {
            if (std::string(op->get_type_name()) != "Minimum") continue;
            for (size_t i = 0; i < 2; ++i)
                if (std::dynamic_pointer_cast<ov::op::v0::Constant>(op->get_input_node_shared_ptr(i))) {
                    op->output(0).replace(op->input_value(1 - i));
                    break;
                }
        }
    }

    void read_vocabulary(ov::Model& back) {
        for (const auto& op : back.get_ordered_ops()) {
            if (std::string(op->get_type_name()) != "VocabDecoder") continue;
            // Ids; where each token begins and ends, and the bytes; then, in newer networks, the ids to leave out.
            vocabulary = ov::shape_size(op->input_value(1).get_shape());
            if (op->get_input_size() < 5) {
                throw std::runtime_error("openvino_detokenizer.xml is of an old form; convert the tokenizer anew");
            }
            // GenAI writes networks in which a part of the list is taken; the list itself is what we want.
            auto skipped = op->get_input_node_shared_ptr(4);
            if (std::string(skipped->get_type_name()) == "Slice") skipped = skipped->get_input_node_shared_ptr(0);
            auto skip = std::dynamic_pointer_cast<ov::op::v0::Constant>(skipped);
            if (!skip) throw std::runtime_error("openvino_detokenizer.xml computes its special tokens");
            special = skip->cast_vector<int64_t>();
            auto none = std::make_shared<ov::op::v0::Constant>(skip->get_element_type(), ov::Shape{0});
            op->input(4).replace_source_output(none->output(0));
            return;
        }
        throw std::runtime_error("openvino_detokenizer.xml has no vocabulary of a known kind (VocabDecoder)");
    }
};
