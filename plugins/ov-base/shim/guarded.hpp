// How text and exceptions cross to C, for the shims of all OpenVINO plugins: as bytes in the caller's buffer and as -1.
#pragma once
#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>

namespace {

// `Text` is a shim's own struct of `at`, `cap` and `len`.
template <class Text>
void put(Text* to, std::string_view text) noexcept {
    if (!to) return;
    to->len = text.size();
    if (!to->at || to->cap == 0) return;
    const size_t n = std::min(text.size(), to->cap - 1);
    std::memcpy(to->at, text.data(), n);
    to->at[n] = 0;
}

template <class Text, class Body>
int guarded(Text* err, Body&& body) noexcept {
    try {
        return body();
    } catch (const std::exception& e) {
        put(err, e.what());
    } catch (...) {
        put(err, "the library threw something that is no std::exception");
    }
    return -1;
}

// Where nobody asks what went wrong.
template <class Body>
void quietly(Body&& body) noexcept {
    try {
        body();
    } catch (...) {
    }
}

}  // namespace
