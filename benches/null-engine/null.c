/*
 * An engine that does nothing but push: a prepared batch of one-token chunks, one push a step. What its tokens cost is what
 * the boundary costs. The option tokens-per-second makes it keep a pace instead.
 *
 * submit and cancel come from any thread while step runs. They change what lies behind `n`, or a flag, under the lock;
 * step alone moves `n`, and looks under the lock only when `changed` says so.
 */
#include "cascadia_plugin.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#define SLOTS 256

CASCADIA_MANIFEST("null-c", "0.1.0", CASCADIA_JSON({
    "description": "pushes prepared tokens and does nothing else; measures the boundary",
    "license": "Apache-2.0",
    "engines": [{"name": "null", "description": "the same token for ever"}],
    "requires": ["cascadia.host.clock/1"],
    "uses": [],
    "options": {
        "tokens-per-second": {"type": "integer", "default": 0, "minimum": 0, "maximum": 1000000000,
                              "description": "pace of all tasks together; 0 = as fast as it goes"}
    }
}));

static const char CARD[] = CASCADIA_JSON({
    "max_tasks": 256, "vocab_size": 256, "device": "none", "tokenizer": "bytes",
    "chat_template": "{% for m in messages %}{{ m.content or '' }}{% endfor %}", "features": ["ignore_eos"]
});

static const cascadia_host_clock_v1 *host_clock;
static const uint32_t TOKEN[1] = {'x'};

typedef struct engine {
    pthread_mutex_t lock;
    atomic_int changed; /* there is something to look at under the lock */
    int closed;
    int pushed_last;    /* chunks with a finish were pushed and are to be removed */
    size_t tasks;       /* that are not over; one is over before its last chunk is pushed */
    size_t n, m;        /* chunks that are pushed, and with those that wait behind them */
    uint64_t made, until; /* steps since the last look, and how many there are before a task ends */
    uint64_t per_second, due_ns;
    cascadia_array batch; /* the n chunks, ready to be pushed; written for a push, it would be read back with a wait */
    cascadia_chunk chunks[2 * SLOTS];
    uint64_t left[2 * SLOTS]; /* tokens before the limit, at the last look */
    int cancelled[2 * SLOTS];
} engine;

/* Takes in what others have left, and removes what has ended. */
static void look(engine *e) {
    pthread_mutex_lock(&e->lock);
    atomic_store_explicit(&e->changed, 0, memory_order_relaxed);
    size_t kept = 0, n = e->n;
    for (size_t i = 0; i < e->m; i++) {
        if (e->pushed_last && i < n && e->chunks[i].finish != CASCADIA_FINISH_NONE) continue;
        e->chunks[kept] = e->chunks[i];
        e->left[kept] = i < n ? e->left[i] - e->made : e->left[i];
        e->cancelled[kept] = e->cancelled[i];
        kept++;
    }
    e->n = e->m = kept;
    e->batch = CASCADIA_ARRAY(e->chunks, kept);
    e->made = 0;
    e->pushed_last = 0;
    e->until = UINT64_MAX;
    for (size_t i = 0; i < kept; i++) {
        if (e->cancelled[i]) {
            e->chunks[i].finish = CASCADIA_FINISH_CANCELLED;
            e->chunks[i].tokens.len = 0;
            e->until = 1;
        } else if (e->chunks[i].finish != CASCADIA_FINISH_NONE) {
            e->until = 1;
        } else if (e->left[i] < e->until) {
            e->until = e->left[i];
        }
    }
    pthread_mutex_unlock(&e->lock);
}

/* The step after which a task is over. */
static void end(engine *e) {
    size_t over = 0;
    for (size_t i = 0; i < e->n; i++) {
        if (e->chunks[i].finish == CASCADIA_FINISH_NONE && e->left[i] == e->made) {
            e->chunks[i].finish = CASCADIA_FINISH_LENGTH;
        }
        over += e->chunks[i].finish != CASCADIA_FINISH_NONE;
    }
    pthread_mutex_lock(&e->lock);
    e->tasks -= over;
    pthread_mutex_unlock(&e->lock);
    e->pushed_last = 1;
    atomic_store_explicit(&e->changed, 1, memory_order_relaxed);
}

static uint32_t step(void *self, uint32_t budget_us, cascadia_sink sink, cascadia_step_out *out, cascadia_err_out err) {
    engine *e = (engine *)self;
    (void)budget_us, (void)err;
    if (atomic_load_explicit(&e->changed, memory_order_acquire)) look(e);
    if (e->n == 0) {
        out->state = CASCADIA_STEP_IDLE;
        return CASCADIA_CODE_OK;
    }
    out->state = CASCADIA_STEP_MORE;
    if (e->per_second > 0) {
        uint64_t now = host_clock->now_ns(), period = e->n * UINT64_C(1000000000) / e->per_second;
        out->state = CASCADIA_STEP_WAIT;
        if (now < e->due_ns) {
            out->until_ns = e->due_ns;
            return CASCADIA_CODE_OK;
        }
        /* What it is late it makes up for, up to a tenth of a second. */
        e->due_ns = (e->due_ns + 100000000 > now ? e->due_ns : now) + period;
        out->until_ns = e->due_ns;
    }
    if (++e->made >= e->until) end(e);
    sink.push(sink.ctx, e->batch);
    return CASCADIA_CODE_OK;
}

static uint32_t submit(void *self, const cascadia_task *t, cascadia_err_out err) {
    engine *e = (engine *)self;
    uint32_t code = CASCADIA_CODE_QUEUE_FULL;
    if (t->struct_size < CASCADIA_SIZE(cascadia_task)) {
        return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "the host's task is older than this plugin");
    }
    if (t->grammar.kind != CASCADIA_GRAMMAR_NONE || t->adapter.len > 0 || t->attachments.len > 0) {
        return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "takes no grammar, adapter or attachment");
    }
    pthread_mutex_lock(&e->lock);
    if (e->closed) {
        code = CASCADIA_CODE_CLOSED;
    } else if (e->tasks < SLOTS) {
        cascadia_chunk *c = &e->chunks[e->m];
        memset(c, 0, sizeof *c);
        c->task = t->task;
        c->tokens = CASCADIA_ARRAY(TOKEN, 1);
        for (size_t i = 0; i < t->stop_tokens.len; i++) {
            if (cascadia_array_u32(t->stop_tokens, i) != TOKEN[0]) continue;
            c->finish = CASCADIA_FINISH_STOP; /* its first token would be the stop token */
            c->tokens.len = 0;
        }
        e->left[e->m] = t->max_tokens > 0 ? t->max_tokens : UINT64_MAX / 2;
        e->cancelled[e->m] = 0;
        e->m++;
        e->tasks++;
        atomic_store_explicit(&e->changed, 1, memory_order_release);
        code = CASCADIA_CODE_OK;
    }
    pthread_mutex_unlock(&e->lock);
    return code == CASCADIA_CODE_OK       ? code
           : code == CASCADIA_CODE_CLOSED ? cascadia_fail(err, code, "the engine is closed")
                                          : cascadia_fail(err, code, "all 256 slots are taken; try again");
}

static uint32_t cancel(void *self, uint64_t task) {
    engine *e = (engine *)self;
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < e->m; i++) {
        if (e->chunks[i].task == task) e->cancelled[i] = 1;
    }
    atomic_store_explicit(&e->changed, 1, memory_order_release);
    pthread_mutex_unlock(&e->lock);
    return CASCADIA_CODE_OK;
}

static uint32_t close_engine(void *self, uint32_t deadline_ms, cascadia_err_out err) {
    engine *e = (engine *)self;
    (void)deadline_ms, (void)err;
    pthread_mutex_lock(&e->lock);
    e->closed = 1;
    for (size_t i = 0; i < e->m; i++) e->cancelled[i] = 1;
    atomic_store_explicit(&e->changed, 1, memory_order_release);
    pthread_mutex_unlock(&e->lock);
    return CASCADIA_CODE_OK;
}

static void destroy_engine(void *self) {
    pthread_mutex_destroy(&((engine *)self)->lock);
    free(self);
}

static uint32_t warmup(void *self, cascadia_progress progress, cascadia_err_out err) {
    (void)self, (void)progress, (void)err;
    return CASCADIA_CODE_OK;
}

static uint32_t card(void *self, cascadia_str_out out, cascadia_err_out err) {
    (void)self, (void)err;
    out.set(out.ctx, cascadia_str_z(CARD));
    return CASCADIA_CODE_OK;
}

/* ---- The builder: an engine in the making ---- */

static uint32_t configure(void *self, cascadia_array options, cascadia_err_out err) {
    engine *e = *(engine **)self;
    for (size_t i = 0; i < options.len; i++) {
        cascadia_kv kv;
        cascadia_array_get(options, i, &kv, sizeof kv);
        uint64_t n = 0;
        int known = cascadia_str_eq(kv.key, CASCADIA_STR("tokens-per-second")) && kv.value.len > 0 && kv.value.len <= 10;
        for (size_t k = 0; known && k < kv.value.len; k++) {
            known = kv.value.ptr[k] >= '0' && kv.value.ptr[k] <= '9';
            n = n * 10 + (uint64_t)(kv.value.ptr[k] - '0');
        }
        if (!known) {
            return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "the only option is tokens-per-second, a whole number");
        }
        e->per_second = n;
    }
    return CASCADIA_CODE_OK;
}

static uint32_t listen_at(void *self, cascadia_str address, cascadia_str_out bound, cascadia_err_out err) {
    (void)self, (void)address, (void)bound;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "has no pipeline");
}

static uint32_t connect_peers(void *self, cascadia_array peers, cascadia_err_out err) {
    (void)self, (void)peers;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "has no pipeline");
}

static uint32_t load_shard(void *self, const cascadia_shard *shard, cascadia_progress progress, cascadia_err_out err) {
    (void)self, (void)shard, (void)progress, (void)err;
    return CASCADIA_CODE_OK;
}

static uint32_t build(void *self, void **out, cascadia_err_out err) {
    engine **builder = (engine **)self;
    if (*builder == NULL) return cascadia_fail(err, CASCADIA_CODE_CLOSED, "the builder is used up");
    *out = *builder;
    *builder = NULL;
    return CASCADIA_CODE_OK;
}

static void destroy_builder(void *self) {
    if (*(engine **)self != NULL) destroy_engine(*(engine **)self);
    free(self);
}

static uint32_t engine_count(void) { return 1; }

static uint32_t engine_info(uint32_t index, cascadia_engine_info *out) {
    if (index != 0 || out->struct_size < CASCADIA_SIZE(cascadia_engine_info)) return CASCADIA_CODE_INVALID_CONFIG;
    out->name = CASCADIA_STR("null");
    out->description = CASCADIA_STR("the same token for ever");
    return CASCADIA_CODE_OK;
}

static uint32_t score(cascadia_str name) { return cascadia_str_eq(name, CASCADIA_STR("null")) ? 1 : 0; }

static void *new_builder(cascadia_str name, void *worker, cascadia_err_out err) {
    (void)worker;
    engine **builder = (engine **)malloc(sizeof *builder);
    engine *e = (engine *)calloc(1, sizeof *e);
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
static const cascadia_builder_v1 BUILDER = {CASCADIA_SIZE(cascadia_builder_v1), 0, configure, listen_at, connect_peers,
                                            load_shard, build, destroy_builder};
static const cascadia_engine_v1 ENGINE = {CASCADIA_SIZE(cascadia_engine_v1), 0, warmup, submit, step, cancel,
                                          close_engine, destroy_engine};
static const cascadia_model_card_v1 MODEL_CARD = {CASCADIA_SIZE(cascadia_model_card_v1), 0, card};

static const void *get_extension(cascadia_str id) {
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_PLUGIN))) return &PLUGIN;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_BUILDER))) return &BUILDER;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_ENGINE))) return &ENGINE;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_MODEL_CARD))) return &MODEL_CARD;
    return NULL;
}

static uint32_t init(const cascadia_host_v1 *host, cascadia_err_out err) {
    host_clock = (const cascadia_host_clock_v1 *)cascadia_service(host, CASCADIA_ID_HOST_CLOCK, sizeof *host_clock);
    if (host_clock == NULL) return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "needs the host's clock");
    return CASCADIA_CODE_OK;
}

CASCADIA_ENTRY(init, get_extension);
