/*
 * A host of the first table set, kept as it was: the smallest that speaks with a plugin. `host LIBRARY WORDS` builds the
 * library's first engine, gives it the words' bytes as a prompt and prints the answer's bytes.
 *
 * It is what an old host is to a newer plugin: it knows these tables at these sizes, lends a clock and a log and nothing
 * else, offers structs no larger than it was built with, and looks at no more of an array's element than it knows.
 */
#include "cascadia_plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void failed(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

/* ---- What it lends ---- */

static uint64_t now_ns(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void write_log(uint32_t level, cascadia_str plugin, cascadia_str target, cascadia_str message,
                      cascadia_array fields) {
    (void)level, (void)plugin, (void)target, (void)message, (void)fields;
}

static const uint32_t LEVEL = CASCADIA_LEVEL_INFO;
static const cascadia_host_clock_v1 CLOCK = {CASCADIA_SIZE(cascadia_host_clock_v1), 0, now_ns};
static const cascadia_host_log_v1 LOG = {CASCADIA_SIZE(cascadia_host_log_v1), 0, &LEVEL, write_log};

static const void *get_service(cascadia_str id) {
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_HOST_CLOCK))) return &CLOCK;
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_HOST_LOG))) return &LOG;
    return NULL;
}

static const cascadia_host_v1 HOST = {CASCADIA_SIZE(cascadia_host_v1), 0, get_service};

/* ---- What comes back ---- */

static void set_error(void *ctx, uint32_t code, cascadia_str message, cascadia_str details) {
    (void)ctx, (void)details;
    fprintf(stderr, "code %u: %.*s\n", code, (int)message.len, (const char *)message.ptr);
}

static const cascadia_err_out ERR = {NULL, set_error};

static uint32_t going_on(void *ctx, cascadia_str phase, uint64_t done, uint64_t total) {
    (void)ctx, (void)phase, (void)done, (void)total;
    return 0;
}

static const cascadia_progress PROGRESS = {NULL, going_on};

static uint32_t push(void *ctx, cascadia_array chunks) {
    for (size_t i = 0; i < chunks.len; i++) {
        cascadia_chunk c;
        cascadia_array_get(chunks, i, &c, sizeof c);
        fwrite(c.bytes.ptr, 1, c.bytes.len, stdout);
        if (c.finish != CASCADIA_FINISH_NONE) *(uint32_t *)ctx = c.finish;
    }
    return CASCADIA_SINK_GO_ON;
}

/* ---- What it finds ---- */

static const void *table(const cascadia_entry_t *entry, const char *id, size_t size) {
    const void *found = entry->get_extension(cascadia_str_z(id));
    uint32_t have = 0;
    if (found == NULL) failed("a table is missing");
    memcpy(&have, found, sizeof have);
    if (have < size) failed("a table is smaller than this host knows it");
    return found;
}

static cascadia_task task_of(const uint32_t *tokens, size_t n) {
    cascadia_task t;
    memset(&t, 0, sizeof t);
    t.struct_size = CASCADIA_SIZE(cascadia_task);
    t.task = t.group = 1;
    t.request_id = cascadia_str_z("first");
    t.model = cascadia_str_z("model");
    t.tokens = CASCADIA_ARRAY(tokens, n);
    t.top_p = t.typical_p = t.repetition_penalty = 1;
    t.generated_from = n;
    return t;
}

int main(int argc, char **argv) {
    if (argc != 3) failed("usage: host LIBRARY WORDS");
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) failed(dlerror());
    const cascadia_entry_t *entry = (const cascadia_entry_t *)dlsym(library, "cascadia_entry");
    if (entry == NULL || entry->magic != CASCADIA_MAGIC || entry->abi_major != CASCADIA_ABI_MAJOR ||
        entry->struct_size < sizeof *entry) {
        failed("the entry is none that this host knows");
    }
    if (entry->init(&HOST, ERR) != CASCADIA_CODE_OK) failed("init");
    const cascadia_plugin_v1 *plugin = table(entry, CASCADIA_ID_PLUGIN, sizeof *plugin);
    const cascadia_builder_v1 *builders = table(entry, CASCADIA_ID_BUILDER, sizeof *builders);
    const cascadia_engine_v1 *engines = table(entry, CASCADIA_ID_ENGINE, sizeof *engines);

    cascadia_engine_info info = {CASCADIA_SIZE(cascadia_engine_info), 0, {NULL, 0}, {NULL, 0}};
    if (plugin->engine_count() == 0 || plugin->engine_info(0, &info) != CASCADIA_CODE_OK) failed("engine_info");
    if (plugin->score(info.name) == 0) failed("score");
    int worker = 0;
    void *builder = plugin->new_builder(info.name, &worker, ERR);
    if (builder == NULL) failed("new_builder");
    cascadia_shard shard;
    memset(&shard, 0, sizeof shard);
    shard.struct_size = CASCADIA_SIZE(cascadia_shard);
    shard.model_id = cascadia_str_z("model");
    shard.stages = 1;
    void *engine = NULL;
    if (builders->configure(builder, cascadia_array_of(NULL, 0, sizeof(cascadia_kv)), ERR) != CASCADIA_CODE_OK ||
        builders->load_shard(builder, &shard, PROGRESS, ERR) != CASCADIA_CODE_OK ||
        builders->build(builder, &engine, ERR) != CASCADIA_CODE_OK) {
        failed("the build");
    }
    builders->destroy(builder);
    if (engines->warmup(engine, PROGRESS, ERR) != CASCADIA_CODE_OK) failed("warmup");

    uint32_t tokens[256];
    size_t n = 0;
    for (; argv[2][n] != 0 && n < 256; n++) tokens[n] = (uint8_t)argv[2][n];
    cascadia_task task = task_of(tokens, n);
    if (engines->submit(engine, &task, ERR) != CASCADIA_CODE_OK) failed("submit");
    uint32_t finish = CASCADIA_FINISH_NONE;
    const cascadia_sink sink = {&finish, push};
    for (int steps = 0; finish == CASCADIA_FINISH_NONE; steps++) {
        cascadia_step_out out = {CASCADIA_STEP_MORE, 0, 0};
        if (engines->step(engine, 1000, sink, &out, ERR) != CASCADIA_CODE_OK) failed("step");
        if (steps == 10000) failed("no finish in 10000 steps");
    }
    if (finish != CASCADIA_FINISH_STOP) failed("another finish than stop");
    if (engines->close(engine, 1000, ERR) != CASCADIA_CODE_OK) failed("close");
    engines->destroy(engine);
    return 0;
}
