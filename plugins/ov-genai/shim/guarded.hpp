// How text and exceptions cross to C: as bytes in the caller's buffer and as -1.
#pragma once
#include <algorithm>
#include <cstring>
#include <exception>
#include <string_view>

#include "shim.h"

namespace {

void put(cgn_text* to, std::string_view text) noexcept {
    if (!to) return;
    to->len = text.size();
    if (!to->at || to->cap == 0) return;
    size_t n = std::min(text.size(), to->cap - 1);
    std::memcpy(to->at, text.data(), n);
    to->at[n] = 0;
}

template <class Body>
int guarded(cgn_text* err, Body&& body) noexcept {
    try {
        return body();
    } catch (const std::exception& e) {
        put(err, e.what());
    } catch (...) {
        put(err, "the library threw something that is no std::exception");
    }
    return -1;
}

}  // namespace
