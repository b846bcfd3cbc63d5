/*
 * A plugin of a time to come, on top of today's header: everything that may grow has grown. Its tables have functions
 * behind the known ones, its chunks a field behind the known ones, its entry and its view of a task are larger; it has an
 * extension that no host knows, asks for a service that no host has, and its manifest has keys, a table and a minor number
 * from later. It answers what it found: how large a task came, and whether the host had the service.
 */
#define NO_ENTRY
#define OWN_MANIFEST
#define ENGINE_STEP later_step
#include "cascadia_plugin.h"
static uint32_t later_step(void *, uint32_t, cascadia_sink, cascadia_step_out *, cascadia_err_out);
#include "../../c/engine.c"

#include <stdio.h>

CASCADIA_MANIFEST_AS("{\"manifest\":1,\"id\":\"from-later\",\"version\":\"9.0.0\",\"abi\":[1,9],\"tables\":{" CASCADIA_TABLE_HASHES
                     ",\"cascadia_later_v1\":\"0123456789abcdef\"},\"later\":{\"why\":\"not\"},\"about\":" CASCADIA_JSON({
    "license": "Apache-2.0",
    "engines": [{"name": "word", "description": "one word for every prompt", "later": 1}],
    "uses": ["cascadia.host.log/1", "cascadia.host.later/1"],
    "options": {"count": {"type": "integer", "default": 1, "description": "not looked at", "later": true}},
    "later": ["a key of the author's part"]
}) "}");

/* ---- What has grown ---- */

typedef struct later_task {
    cascadia_task known;
    uint64_t later; /* read only where the host's task reaches so far */
} later_task;

typedef struct later_chunk {
    cascadia_chunk known;
    uint64_t later[3];
} later_chunk;

typedef struct later_engine {
    cascadia_engine_v1 known;
    uint32_t (*later)(void *engine);
} later_engine;

typedef struct later_builder {
    cascadia_builder_v1 known;
    uint32_t (*later)(void *builder);
} later_builder;

typedef struct later_plugin {
    cascadia_plugin_v1 known;
    uint32_t (*later)(void);
} later_plugin;

typedef struct later_entry {
    cascadia_entry_t known;
    uint64_t later;
} later_entry;

static const void *later_service;
static int task_was_larger;

static uint32_t later_submit(void *self, const cascadia_task *t, cascadia_err_out err) {
    if (t->struct_size < CASCADIA_SIZE(cascadia_task)) {
        return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "the host's task is too old");
    }
    task_was_larger = t->struct_size >= CASCADIA_SIZE(later_task);
    return submit(self, t, err);
}

/* As the engine's own step, with larger chunks: several in one push show that the stride is kept to. */
static uint32_t later_step(void *self, uint32_t budget_us, cascadia_sink sink, cascadia_step_out *out,
                           cascadia_err_out err) {
    static const uint32_t TOKEN = 256;
    engine *e = (engine *)self;
    later_chunk chunks[3];
    char words[64];
    uint64_t id = 0;
    (void)budget_us, (void)err;
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < TASKS && id == 0; i++) {
        if (e->tasks[i].used) {
            id = e->tasks[i].id;
            e->tasks[i].used = 0;
        }
    }
    pthread_mutex_unlock(&e->lock);
    out->state = id == 0 ? CASCADIA_STEP_IDLE : CASCADIA_STEP_MORE;
    if (id == 0) return CASCADIA_CODE_OK;
    snprintf(words, sizeof words, "task %s, service %s", task_was_larger ? "larger" : "known",
             later_service == NULL ? "absent" : "there");
    memset(chunks, 0xff, sizeof chunks); /* what is behind the known part is no zero */
    for (size_t i = 0; i < 3; i++) {
        memset(&chunks[i].known, 0, sizeof chunks[i].known);
        chunks[i].known.task = id;
    }
    chunks[0].known.tokens = chunks[1].known.tokens = CASCADIA_ARRAY(&TOKEN, 1);
    chunks[0].known.bytes = cascadia_str_z("later: ");
    chunks[1].known.bytes = cascadia_str_z(words);
    chunks[2].known.finish = CASCADIA_FINISH_STOP;
    sink.push(sink.ctx, CASCADIA_ARRAY(chunks, 3));
    return CASCADIA_CODE_OK;
}

static uint32_t no_engine(void *engine) { return (void)engine, CASCADIA_CODE_UNSUPPORTED; }
static uint32_t no_plugin(void) { return CASCADIA_CODE_UNSUPPORTED; }

static const later_plugin LATER_PLUGIN = {
    {CASCADIA_SIZE(later_plugin), 0, engine_count, engine_info, score, new_builder}, no_plugin};
static const later_builder LATER_BUILDER = {
    {CASCADIA_SIZE(later_builder), 0, configure, no_listen, no_peers, load_shard, build, destroy_builder}, no_engine};
static const later_engine LATER_ENGINE = {
    {CASCADIA_SIZE(later_engine), 0, warmup, later_submit, later_step, cancel, close_engine, destroy_engine}, no_engine};
static const struct {
    uint32_t struct_size, flags;
    uint32_t (*later)(void *engine);
} LATER_EXTENSION = {16, 0, no_engine};

static const void *later_get_extension(cascadia_str id) {
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_PLUGIN))) return &LATER_PLUGIN;
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_BUILDER))) return &LATER_BUILDER;
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_ENGINE))) return &LATER_ENGINE;
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_MODEL_CARD))) return &MODEL_CARD;
    if (cascadia_str_eq(id, cascadia_str_z("cascadia.later/1"))) return &LATER_EXTENSION;
    return NULL;
}

static uint32_t later_init(const cascadia_host_v1 *host, cascadia_err_out err) {
    later_service = host->get_service(cascadia_str_z("cascadia.host.later/1"));
    return init(host, err);
}

CASCADIA_EXPORT extern const later_entry cascadia_later_entry __asm__("cascadia_entry");
const later_entry cascadia_later_entry = {{CASCADIA_MAGIC, CASCADIA_SIZE(later_entry), CASCADIA_ABI_MAJOR, 9, 0, later_init,
                                           later_get_extension}, 0};
