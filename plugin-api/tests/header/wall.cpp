// Prints what each exception becomes at the wall.
#include "cascadia_plugin.hpp"
#include <cstdio>
static void set(void *, uint32_t code, cascadia_str message, cascadia_str details) {
    std::printf("%u %s %s\n", code, std::string(cascadia::view(message)).c_str(), std::string(cascadia::view(details)).c_str());
}
int main() {
    const cascadia_err_out err = {nullptr, set};
    std::printf("%u\n", cascadia::guard(err, [] {}));
    cascadia::guard(err, [] { throw cascadia::error(CASCADIA_CODE_PROMPT_TOO_LONG, "too long", "{\"have\":2}"); });
    cascadia::guard(err, [] { throw cascadia::error(CASCADIA_CODE_OK, "no error"); });
    cascadia::guard(err, [] { throw std::bad_alloc(); });
    cascadia::guard(err, [] { throw std::logic_error("a bug"); });
    cascadia::guard(err, [] { throw 7; });
    std::printf("%u\n", cascadia::guard_value(5u, []() -> unsigned { throw 7; }));
}
