// An engine in C++ whose step throws when a prompt has an exclamation mark, and whose start throws where INIT_THROWS is
// defined. Nothing of it catches but the wall of cascadia_plugin.hpp.
#include "cascadia_plugin.hpp"

static uint32_t thrown_step(void *, uint32_t, cascadia_sink, cascadia_step_out *, cascadia_err_out) noexcept;
static uint32_t thrown_init(const cascadia_host_v1 *, cascadia_err_out) noexcept;

#define ENGINE_STEP thrown_step
#define INIT thrown_init
#include "engine.c"

static uint32_t thrown_step(void *self, uint32_t budget, cascadia_sink sink, cascadia_step_out *out,
                            cascadia_err_out err) noexcept {
    return cascadia::guard(err, [&] {
        for (const task &t : static_cast<engine *>(self)->tasks) {
            if (t.used && t.trouble) {
                throw std::runtime_error("the weights fell off the shelf");
            }
        }
        const uint32_t code = step(self, budget, sink, out, err);
        if (code != CASCADIA_CODE_OK) {
            throw cascadia::error(code, "the step failed");
        }
    });
}

static uint32_t thrown_init(const cascadia_host_v1 *host, cascadia_err_out err) noexcept {
    return cascadia::guard(err, [&] {
#ifdef INIT_THROWS
        throw std::runtime_error("the start went wrong");
#endif
        init(host, err);
    });
}
