/* Prints what the helpers of the header make of older, newer and broken writers. */
#include "cascadia_plugin.h"
#include <stdio.h>
static void set(void *ctx, uint32_t code, cascadia_str message, cascadia_str details) {
    (void)ctx;
    printf("%u %.*s %.*s\n", (unsigned)code, (int)message.len, (const char *)message.ptr, (int)details.len,
           (const char *)details.ptr);
}
static uint32_t calls;
static const cascadia_str KEY = CASCADIA_STR_INIT("key");
static void write_line(uint32_t level, cascadia_str plugin, cascadia_str target, cascadia_str message, cascadia_array fields) {
    (void)plugin;
    (void)target; (void)message; (void)fields;
    calls += level;
}
static const cascadia_host_v1 *const no_host = NULL;
static cascadia_host_clock_v1 small = {8, 0, NULL};
static const void *service(cascadia_str id) { return cascadia_str_eq(id, CASCADIA_STR("small")) ? &small : NULL; }
int main(void) {
    const uint32_t ids[4] = {1, 2, 3, 4};
    const uint32_t level = CASCADIA_LEVEL_INFO;
    const cascadia_host_log_v1 log = {CASCADIA_SIZE(cascadia_host_log_v1), 0, &level, write_line};
    const cascadia_host_v1 host = {CASCADIA_SIZE(cascadia_host_v1), 0, service};
    const cascadia_err_out err = {NULL, set};
    const cascadia_array all = CASCADIA_ARRAY(ids, 4);
    const cascadia_array wide = cascadia_array_of(ids, 2, 8);
    const cascadia_array wrapping = cascadia_array_of(ids, SIZE_MAX / 2, 8);
    uint64_t pair = 99, beats = 0;
    (void)no_host;
    printf("%u %u %u %u\n", (unsigned)cascadia_array_u32(all, 3), (unsigned)cascadia_array_u32(all, 4),
           (unsigned)cascadia_array_u32(wide, 1), (unsigned)cascadia_array_u32(wrapping, 1));
    printf("%d", cascadia_array_get(all, 1, &pair, sizeof pair));
    printf(" %u\n", (unsigned)pair);
    printf("%d %d %d\n", cascadia_str_eq(KEY, cascadia_str_z("key")), cascadia_str_eq(KEY, CASCADIA_STR("keys")),
           cascadia_str_eq(cascadia_str_z(NULL), CASCADIA_STR("")));
    printf("%u\n", (unsigned)cascadia_fail(err, CASCADIA_CODE_BACKEND, "broken"));
    printf("%u\n", (unsigned)cascadia_fail_with(err, CASCADIA_CODE_QUEUE_FULL, "full", "{}"));
    printf("%d %d\n", cascadia_service(&host, "small", 8) == &small,
           cascadia_service(&host, "small", sizeof small) == NULL && cascadia_service(&host, "none", 4) == NULL);
    cascadia_log(&log, CASCADIA_LEVEL_INFO, "p", "t", "m");
    cascadia_log(&log, CASCADIA_LEVEL_DEBUG, "p", "t", "m");
    cascadia_log(NULL, CASCADIA_LEVEL_ERROR, "p", "t", "m");
    cascadia_beat(&beats);
    printf("%u %u\n", (unsigned)calls, (unsigned)beats);
    return 0;
}
