// Named values as the library takes them: each with the type that it reads.
#pragma once
#include <set>
#include <stdexcept>
#include <string>

#include "genai.hpp"
#include "shim.h"

namespace {

ov::AnyMap any_map(const cgn_value* values, size_t count) {
    ov::AnyMap map;
    for (const cgn_value* v = values; v != values + count; ++v) {
        ov::Any& slot = map[v->key];
        switch (v->kind) {
        case CGN_BOOL: slot = v->integer != 0; break;
        case CGN_INT: slot = v->integer; break;
        case CGN_SIZE: slot = static_cast<size_t>(v->integer); break;
        case CGN_FLOAT: slot = v->real; break;
        case CGN_TEXT: slot = std::string(v->text); break;
        case CGN_IDS: slot = std::set<int64_t>(v->ids, v->ids + v->count); break;
        case CGN_GRAMMAR: {
            map.erase(v->key);
            const ov::AnyMap kind{{v->key, std::string(v->text)}};
            map["structured_output_config"] = ov::genai::StructuredOutputConfig(kind);
            break;
        }
        default: throw std::invalid_argument("value kind " + std::to_string(v->kind) + " of " + v->key);
        }
    }
    return map;
}

}  // namespace
