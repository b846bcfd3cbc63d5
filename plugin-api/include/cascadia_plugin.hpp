// The wall for C++ engines: no exception may leave a function of a table. Header-only, C++17.
//
//   uint32_t step(void *engine, uint32_t, cascadia_sink sink, cascadia_step_out *out, cascadia_err_out err) noexcept {
//       return cascadia::guard(err, [&] { static_cast<Engine *>(engine)->step(sink, *out); });
//   }
#ifndef CASCADIA_PLUGIN_HPP
#define CASCADIA_PLUGIN_HPP

#include "cascadia_plugin.h"

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace cascadia {

// What an engine throws to answer a code of the boundary; `details` is a JSON object or empty.
class error : public std::runtime_error {
  public:
    error(uint32_t code, const std::string &message, std::string details = {})
        : std::runtime_error(message), code_(code), details_(std::move(details)) {}
    uint32_t code() const noexcept { return code_; }
    const std::string &details() const noexcept { return details_; }

  private:
    uint32_t code_;
    std::string details_;
};

// A view of what the host lent, and a view to lend to it.
inline std::string_view view(cascadia_str s) noexcept {
    return s.len == 0 ? std::string_view() : std::string_view(reinterpret_cast<const char *>(s.ptr), s.len);
}
inline cascadia_str str(std::string_view s) noexcept { return cascadia_str_of(s.data(), s.size()); }

// Calls `body`; what it throws becomes a code and a message. An exception that is not a cascadia::error or a lack of
// memory answers PANIC: nobody knows what it left behind.
template <class Body> uint32_t guard(cascadia_err_out err, Body &&body) noexcept {
    try {
        std::forward<Body>(body)();
        return CASCADIA_CODE_OK;
    } catch (const error &e) {
        const uint32_t code = e.code() == CASCADIA_CODE_OK ? CASCADIA_CODE_BACKEND : e.code();
        return cascadia_fail_with(err, code, e.what(), e.details().c_str());
    } catch (const std::bad_alloc &) {
        return cascadia_fail(err, CASCADIA_CODE_OUT_OF_MEMORY, "the plugin ran out of memory");
    } catch (const std::exception &e) {
        return cascadia_fail(err, CASCADIA_CODE_PANIC, e.what());
    } catch (...) {
        return cascadia_fail(err, CASCADIA_CODE_PANIC, "the plugin threw something that is no std::exception");
    }
}

// The same where there is no way to answer an error: an exception gives `fallback`.
template <class T, class Body> T guard_value(T fallback, Body &&body) noexcept {
    try {
        return std::forward<Body>(body)();
    } catch (...) {
        return fallback;
    }
}

} // namespace cascadia

#endif
