/*
 * The smallest engine that serves: it answers every task with the word ANSWER. What is wrong with it is chosen by macros,
 * so that each test compiles the one fault that it is about. Compiles as C11 and as C++17.
 *
 * ID and VERSION go into the manifest. The macros: NO_ENTRY, UNDEFINED (a symbol that nobody has), DEPENDENCY (the answer
 * comes from dep.c's library), STRANGER (the host is called for a worker that never was), INIT_FAILS, BUILD_FAILS, WARMUP_FAILS, STEP_FAILS,
 * HUGE_ABORTS (a prompt of a million tokens), CUT_ABORTS (one that ends in half a character), LITTLE_TIME_NOTHING (a step with
 * a budget under 100 us does nothing).
 */
#include "cascadia_plugin.h"

#include <pthread.h>
#include <stdlib.h>

#ifndef ID
#define ID "engine-c"
#endif
#ifndef VERSION
#define VERSION "1.0.0"
#endif
#ifndef ANSWER
#define ANSWER "sound"
#endif
#ifndef ENGINE_STEP
#define ENGINE_STEP step
#endif
#ifndef INIT
#define INIT init
#endif
#define TASKS 16

#ifndef OWN_MANIFEST
CASCADIA_MANIFEST(ID, VERSION, CASCADIA_JSON({
    "license": "Apache-2.0",
    "engines": [{"name": "word", "description": "one word for every prompt"}],
    "options": {"count": {"type": "integer", "default": 1, "minimum": 1, "description": "not looked at"}}
}));
#endif

static const char CARD[] = CASCADIA_JSON({
    "context_length": 4096, "max_tasks": 16, "device": "none", "tokenizer": "bytes",
    "chat_template": "{% for m in messages %}{{ m.content or '' }}{% endfor %}"
});

#ifdef UNDEFINED
#ifdef __cplusplus
extern "C"
#endif
void symbol_that_nobody_has(void);
#endif

#ifdef DEPENDENCY
const char *dep_answer(void);
#define THE_ANSWER dep_answer()
#else
#define THE_ANSWER ANSWER
#endif

typedef struct task {
    uint64_t id;
    uint32_t finish; /* how it will end */
    int used, trouble; /* trouble: the prompt has an exclamation mark */
} task;

typedef struct engine {
    pthread_mutex_t lock;
    task tasks[TASKS];
} engine;

static inline uint32_t step(void *self, uint32_t budget_us, cascadia_sink sink, cascadia_step_out *out, cascadia_err_out err) {
    engine *e = (engine *)self;
    cascadia_chunk chunks[TASKS];
    const uint32_t token = 256;
    const char *answer = THE_ANSWER;
    size_t n = 0;
    (void)budget_us;
#ifdef LITTLE_TIME_NOTHING
    out->state = CASCADIA_STEP_MORE;
    if (budget_us < 100) return CASCADIA_CODE_OK;
#endif
#ifdef STEP_FAILS
    for (size_t i = 0; i < TASKS; i++) {
        if (e->tasks[i].used) return cascadia_fail(err, CASCADIA_CODE_BACKEND, "the step fails by design");
    }
#endif
    (void)err;
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < TASKS; i++) {
        if (!e->tasks[i].used) continue;
        cascadia_chunk *c = &chunks[n++];
        memset(c, 0, sizeof *c);
        c->task = e->tasks[i].id;
        c->finish = e->tasks[i].finish;
        if (c->finish == CASCADIA_FINISH_STOP) {
            c->tokens = CASCADIA_ARRAY(&token, 1);
            c->bytes = cascadia_str_z(answer);
        }
        e->tasks[i].used = 0;
    }
    pthread_mutex_unlock(&e->lock);
    if (n > 0) sink.push(sink.ctx, CASCADIA_ARRAY(chunks, n));
    out->state = CASCADIA_STEP_IDLE;
    return CASCADIA_CODE_OK;
}

static uint32_t submit(void *self, const cascadia_task *t, cascadia_err_out err) {
    engine *e = (engine *)self;
    int taken = 0;
#ifdef HUGE_ABORTS
    if (t->tokens.len > 1000000) abort();
#endif
#ifdef CUT_ABORTS
    if (t->tokens.len > 0 && (cascadia_array_u32(t->tokens, t->tokens.len - 1) & 0xc0) == 0xc0) abort();
#endif
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < TASKS && !taken; i++) {
        if (e->tasks[i].used) continue;
        e->tasks[i].id = t->task;
        e->tasks[i].finish = CASCADIA_FINISH_STOP;
        e->tasks[i].used = taken = 1;
        e->tasks[i].trouble = 0;
        for (size_t k = 0; k < t->tokens.len; k++) {
            if (cascadia_array_u32(t->tokens, k) == '!') e->tasks[i].trouble = 1;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return taken ? CASCADIA_CODE_OK : cascadia_fail(err, CASCADIA_CODE_QUEUE_FULL, "all 16 places are taken");
}

static uint32_t cancel(void *self, uint64_t id) {
    engine *e = (engine *)self;
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < TASKS; i++) {
        if (e->tasks[i].id == id) e->tasks[i].finish = CASCADIA_FINISH_CANCELLED;
    }
    pthread_mutex_unlock(&e->lock);
    return CASCADIA_CODE_OK;
}

static uint32_t warmup(void *self, cascadia_progress progress, cascadia_err_out err) {
    (void)self, (void)progress;
#ifdef WARMUP_FAILS
    return cascadia_fail(err, CASCADIA_CODE_BACKEND, "the warm-up fails by design");
#endif
    (void)err;
    return CASCADIA_CODE_OK;
}

static uint32_t close_engine(void *self, uint32_t deadline_ms, cascadia_err_out err) {
    (void)self, (void)deadline_ms, (void)err;
    return CASCADIA_CODE_OK;
}

static void destroy_engine(void *self) { free(self); }

static uint32_t card(void *self, cascadia_str_out out, cascadia_err_out err) {
    (void)self, (void)err;
    out.set(out.ctx, cascadia_str_z(CARD));
    return CASCADIA_CODE_OK;
}

/* The builder has no state: it is its engine, until that was given away. */

#ifdef STRANGER
static const cascadia_host_v1 *the_host;

static void call_for_a_stranger(void) {
    const cascadia_host_wake_v1 *wake =
        (const cascadia_host_wake_v1 *)cascadia_service(the_host, CASCADIA_ID_HOST_WAKE, sizeof *wake);
    const cascadia_host_heartbeat_v1 *beat =
        (const cascadia_host_heartbeat_v1 *)cascadia_service(the_host, CASCADIA_ID_HOST_HEARTBEAT, sizeof *beat);
    int nobody = 0;
    if (wake != NULL) wake->wake(&nobody);
    if (beat != NULL && beat->counter(&nobody) != NULL) abort(); /* there is nothing to count with */
}
#endif

static uint32_t configure(void *self, cascadia_array options, cascadia_err_out err) {
    (void)self, (void)options, (void)err;
    return CASCADIA_CODE_OK;
}

static uint32_t no_listen(void *self, cascadia_str address, cascadia_str_out bound, cascadia_err_out err) {
    (void)self, (void)address, (void)bound;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "there is no pipeline");
}

static uint32_t no_peers(void *self, cascadia_array peers, cascadia_err_out err) {
    (void)self, (void)peers;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "there is no pipeline");
}

static uint32_t load_shard(void *self, const cascadia_shard *shard, cascadia_progress progress, cascadia_err_out err) {
    (void)self, (void)shard, (void)progress, (void)err;
    return CASCADIA_CODE_OK;
}

static uint32_t build(void *self, void **out, cascadia_err_out err) {
    engine **builder = (engine **)self;
#ifdef BUILD_FAILS
    return cascadia_fail(err, CASCADIA_CODE_OUT_OF_MEMORY, "the build fails by design");
#endif
#ifdef UNDEFINED
    symbol_that_nobody_has();
#endif
#ifdef STRANGER
    call_for_a_stranger();
#endif
    (void)err;
    *out = *builder;
    *builder = NULL;
    return CASCADIA_CODE_OK;
}

static void destroy_builder(void *self) {
    free(*(engine **)self);
    free(self);
}

static uint32_t engine_count(void) { return 1; }

static uint32_t engine_info(uint32_t index, cascadia_engine_info *out) {
    if (index != 0 || out->struct_size < CASCADIA_SIZE(cascadia_engine_info)) return CASCADIA_CODE_INVALID_CONFIG;
    out->name = cascadia_str_z("word");
    out->description = cascadia_str_z("one word for every prompt");
    return CASCADIA_CODE_OK;
}

static uint32_t score(cascadia_str name) { return cascadia_str_eq(name, cascadia_str_z("word")) ? 1 : 0; }

static void *new_builder(cascadia_str name, void *worker, cascadia_err_out err) {
    engine **builder = (engine **)malloc(sizeof *builder);
    engine *e = (engine *)calloc(1, sizeof *e);
    (void)worker;
    if (score(name) == 0 || builder == NULL || e == NULL || pthread_mutex_init(&e->lock, NULL) != 0) {
        free(builder);
        free(e);
        cascadia_fail(err, CASCADIA_CODE_BACKEND, "there is no such engine, or no memory for it");
        return NULL;
    }
    *builder = e;
    return builder;
}

static const cascadia_plugin_v1 PLUGIN = {
    CASCADIA_SIZE(cascadia_plugin_v1), 0, engine_count, engine_info, score, new_builder};
static const cascadia_builder_v1 BUILDER = {
    CASCADIA_SIZE(cascadia_builder_v1), 0, configure, no_listen, no_peers, load_shard, build, destroy_builder};
static const cascadia_engine_v1 ENGINE = {
    CASCADIA_SIZE(cascadia_engine_v1), 0, warmup, submit, ENGINE_STEP, cancel, close_engine, destroy_engine};
static const cascadia_model_card_v1 MODEL_CARD = {CASCADIA_SIZE(cascadia_model_card_v1), 0, card};

static inline const void *get_extension(cascadia_str id) {
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_PLUGIN))) return &PLUGIN;
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_BUILDER))) return &BUILDER;
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_ENGINE))) return &ENGINE;
    if (cascadia_str_eq(id, cascadia_str_z(CASCADIA_ID_MODEL_CARD))) return &MODEL_CARD;
    return NULL;
}

static inline uint32_t init(const cascadia_host_v1 *host, cascadia_err_out err) {
    (void)host;
#ifdef STRANGER
    the_host = host;
#endif
#ifdef INIT_FAILS
    return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "licence file missing");
#endif
    (void)err;
    return CASCADIA_CODE_OK;
}

#ifndef NO_ENTRY
CASCADIA_ENTRY(INIT, get_extension);
#endif
