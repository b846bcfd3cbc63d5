/*
 * A plugin of the first table set, kept as it was: it repeats the prompt's words, one token a step, for several tasks at once.
 *
 * submit and cancel come from any thread while step runs: one mutex guards the slots and is never held over a push. Only
 * step frees a slot, so what a chunk points to stays in place while the host reads it. Compiles as C11 and as C++17.
 */
#include "cascadia_plugin.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOTS 8      /* tasks at once; one more is refused with QUEUE_FULL */
#define CONTEXT 4096 /* most tokens of prompt and answer together */
#define STOPS 16     /* most stop tokens of a task */

/* ---- Manifest and card: what the host knows before and after it runs us ---- */

CASCADIA_MANIFEST("frozen-v1", "0.1.0", CASCADIA_JSON({
    "description": "repeats the words of the prompt; an example of an engine in C",
    "license": "Apache-2.0",
    "engines": [{"name": "echo", "description": "one word of the prompt a token"}],
    "requires": ["cascadia.host.clock/1"],
    "uses": ["cascadia.host.log/1"],
    "options": {
        "token-delay-ms": {"type": "integer", "default": 0, "minimum": 0, "maximum": 60000,
                           "description": "time between two tokens of a task"}
    }
}));

/* No features are listed: the host refuses what an echo cannot honour. A word's token is 256 + its place in the prompt. */
static const char CARD[] = CASCADIA_JSON({
    "context_length": 4096, "max_tasks": 8, "vocab_size": 4352, "device": "none", "tokenizer": "bytes",
    "chat_template": "{% for m in messages %}{{ '' if loop.first else ' ' }}{{ m.content or '' }}{% endfor %}",
    "notes": ["frozen-v1 repeats the prompt; it is no model"]
});
CASCADIA_ASSERT(SLOTS == 8 && CONTEXT == 4096, "the card says the same");

static const cascadia_host_clock_v1 *host_clock;
static const cascadia_host_log_v1 *host_log; /* null where the host has none */

/* ---- The engine ---- */

typedef struct slot {
    int used, cancelled;
    uint64_t task;
    uint32_t token, made, limit; /* the newest token, how many there are, how many there may be */
    size_t at, len;              /* place in the prompt, and its length */
    size_t stop_count;
    uint32_t stops[STOPS];
    uint8_t text[CONTEXT];
} slot;

typedef struct engine {
    pthread_mutex_t lock;
    int closed;
    uint64_t delay_ns, due_ns; /* time between tokens, and when the next are due; step's own */
    slot slots[SLOTS];
} engine;

/* Makes the task's next chunk; 0 when there is none now. Called under the lock. */
static int advance(slot *s, int due, cascadia_chunk *c) {
    memset(c, 0, sizeof *c);
    c->task = s->task;
    c->flags = CASCADIA_CHUNK_HAS_PROMPT_TOKENS;
    c->prompt_tokens = (uint32_t)s->len;
    if (s->cancelled) {
        c->finish = CASCADIA_FINISH_CANCELLED;
        return 1;
    }
    if (!due) {
        return 0;
    }
    size_t begin = s->at, end = begin; /* a token is a word with the space before it */
    while (end < s->len && s->text[end] <= ' ') end++;
    if (end == s->len) {
        c->finish = CASCADIA_FINISH_STOP;
        return 1;
    }
    while (end < s->len && s->text[end] > ' ') end++;
    s->at = end;
    s->token = 256 + (uint32_t)begin;
    for (size_t i = 0; i < s->stop_count; i++) {
        if (s->stops[i] == s->token) { /* a stop token ends the answer and is not part of it */
            c->finish = CASCADIA_FINISH_STOP;
            c->flags |= CASCADIA_CHUNK_HAS_STOP_TOKEN;
            c->stop_token = s->token;
            return 1;
        }
    }
    c->tokens = CASCADIA_ARRAY(&s->token, 1);
    c->bytes = cascadia_str_of(s->text + begin, end - begin);
    c->finish = ++s->made == s->limit ? CASCADIA_FINISH_LENGTH : CASCADIA_FINISH_NONE;
    return 1;
}

static uint32_t step(void *self, uint32_t budget_us, cascadia_sink sink, cascadia_step_out *out, cascadia_err_out err) {
    engine *e = (engine *)self;
    cascadia_chunk chunks[SLOTS];
    slot *from[SLOTS];
    size_t n = 0, left = 0;
    uint64_t now = host_clock->now_ns();
    int due = now >= e->due_ns;
    (void)budget_us, (void)err;

    pthread_mutex_lock(&e->lock);
    for (slot *s = e->slots; s < e->slots + SLOTS; s++) {
        if (s->used && advance(s, due, &chunks[n])) from[n++] = s;
    }
    pthread_mutex_unlock(&e->lock);
    if (n > 0) {
        sink.push(sink.ctx, CASCADIA_ARRAY(chunks, n)); /* all of them at once; we return soon, also if it says STOP */
    }
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < n; i++) {
        if (chunks[i].finish != CASCADIA_FINISH_NONE) from[i]->used = 0;
    }
    for (size_t i = 0; i < SLOTS; i++) {
        if (e->slots[i].used) left++;
    }
    pthread_mutex_unlock(&e->lock);

    if (due) e->due_ns = now + e->delay_ns;
    out->state = left == 0 ? CASCADIA_STEP_IDLE : e->delay_ns > 0 ? CASCADIA_STEP_WAIT : CASCADIA_STEP_MORE;
    out->until_ns = e->due_ns;
    return CASCADIA_CODE_OK;
}

static void fill(slot *s, const cascadia_task *t) {
    uint32_t room = CONTEXT - (uint32_t)t->tokens.len;
    memset(s, 0, offsetof(slot, text));
    s->used = 1;
    s->task = t->task;
    s->limit = t->max_tokens > 0 && t->max_tokens < room ? t->max_tokens : room;
    for (; s->stop_count < t->stop_tokens.len; s->stop_count++) {
        s->stops[s->stop_count] = cascadia_array_u32(t->stop_tokens, s->stop_count);
    }
    for (; s->len < t->tokens.len; s->len++) {
        s->text[s->len] = (uint8_t)cascadia_array_u32(t->tokens, s->len);
    }
}

static uint32_t submit(void *self, const cascadia_task *t, cascadia_err_out err) {
    engine *e = (engine *)self;
    if (t->struct_size < CASCADIA_SIZE(cascadia_task)) {
        return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "the host's task is older than this plugin");
    }
    if (t->grammar.kind != CASCADIA_GRAMMAR_NONE || t->adapter.len > 0 || t->attachments.len > 0) {
        return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "an echo takes no grammar, adapter or attachment");
    }
    if (t->stop_tokens.len > STOPS) {
        return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "stop_tokens has more than 16 ids");
    }
    if (t->tokens.len >= CONTEXT) { /* one token of answer must fit as well */
        char details[64];
        snprintf(details, sizeof details, "{\"have\":%zu,\"max\":%d}", t->tokens.len, CONTEXT - 1);
        return cascadia_fail_with(err, CASCADIA_CODE_PROMPT_TOO_LONG, "the prompt does not fit; shorten it", details);
    }
    for (size_t i = 0; i < t->tokens.len; i++) {
        if (cascadia_array_u32(t->tokens, i) > 255) {
            return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "a prompt token is above 255 and so no byte");
        }
    }
    uint32_t code = CASCADIA_CODE_QUEUE_FULL;
    pthread_mutex_lock(&e->lock);
    if (e->closed) code = CASCADIA_CODE_CLOSED;
    for (size_t i = 0; i < SLOTS && code == CASCADIA_CODE_QUEUE_FULL; i++) {
        if (!e->slots[i].used) {
            fill(&e->slots[i], t);
            code = CASCADIA_CODE_OK;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return code == CASCADIA_CODE_OK       ? code
           : code == CASCADIA_CODE_CLOSED ? cascadia_fail(err, code, "the engine is closed")
                                          : cascadia_fail(err, code, "all 8 slots are taken; try again");
}

static uint32_t cancel(void *self, uint64_t task) {
    engine *e = (engine *)self;
    pthread_mutex_lock(&e->lock);
    for (size_t i = 0; i < SLOTS; i++) {
        if (e->slots[i].task == task) e->slots[i].cancelled = 1; /* the next step tells the finish */
    }
    pthread_mutex_unlock(&e->lock);
    return CASCADIA_CODE_OK;
}

static uint32_t close_engine(void *self, uint32_t deadline_ms, cascadia_err_out err) {
    engine *e = (engine *)self;
    (void)deadline_ms, (void)err;
    pthread_mutex_lock(&e->lock);
    e->closed = 1;
    for (size_t i = 0; i < SLOTS; i++) e->slots[i].cancelled = 1;
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

static uint32_t report(void *self, cascadia_load_report *out) {
    engine *e = (engine *)self;
    if (out->struct_size < CASCADIA_SIZE(cascadia_load_report)) return CASCADIA_CODE_INVALID_CONFIG;
    pthread_mutex_lock(&e->lock);
    out->running = 0;
    for (size_t i = 0; i < SLOTS; i++) out->running += e->slots[i].used ? 1 : 0;
    pthread_mutex_unlock(&e->lock);
    out->waiting = 0;
    out->kv_blocks_used = out->kv_blocks_total = out->tokens_cached = 0;
    return CASCADIA_CODE_OK;
}

/* ---- The builder: an engine in the making ---- */

static uint32_t configure(void *self, cascadia_array options, cascadia_err_out err) {
    engine *e = *(engine **)self;
    for (size_t i = 0; i < options.len; i++) {
        cascadia_kv kv;
        cascadia_array_get(options, i, &kv, sizeof kv);
        if (!cascadia_str_eq(kv.key, CASCADIA_STR("token-delay-ms"))) {
            return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "the only option is token-delay-ms");
        }
        uint64_t ms = 0;
        int digits = kv.value.len > 0 && kv.value.len <= 5; /* the manifest's maximum has five */
        for (size_t k = 0; digits && k < kv.value.len; k++) {
            digits = kv.value.ptr[k] >= '0' && kv.value.ptr[k] <= '9';
            ms = ms * 10 + (uint64_t)(kv.value.ptr[k] - '0');
        }
        if (!digits) {
            return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "option token-delay-ms takes a whole number");
        }
        e->delay_ns = ms * 1000000;
    }
    return CASCADIA_CODE_OK;
}

static uint32_t listen_at(void *self, cascadia_str address, cascadia_str_out bound, cascadia_err_out err) {
    (void)self, (void)address, (void)bound;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "an echo has no pipeline");
}

static uint32_t connect_peers(void *self, cascadia_array peers, cascadia_err_out err) {
    (void)self, (void)peers;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "an echo has no pipeline");
}

static uint32_t load_shard(void *self, const cascadia_shard *shard, cascadia_progress progress, cascadia_err_out err) {
    (void)self, (void)shard;
    if (progress.report(progress.ctx, CASCADIA_STR("nothing to load"), 1, 1) != 0) {
        return cascadia_fail(err, CASCADIA_CODE_CANCELLED, "the host gave the load up");
    }
    return CASCADIA_CODE_OK;
}

static uint32_t build(void *self, void **out, cascadia_err_out err) {
    engine **builder = (engine **)self;
    if (*builder == NULL) return cascadia_fail(err, CASCADIA_CODE_CLOSED, "the builder is used up");
    *out = *builder;
    *builder = NULL;
    cascadia_log(host_log, CASCADIA_LEVEL_INFO, "frozen-v1", "echo", "an echo engine was built");
    return CASCADIA_CODE_OK;
}

static void destroy_builder(void *self) {
    if (*(engine **)self != NULL) destroy_engine(*(engine **)self);
    free(self);
}

/* ---- Plugin and entry ---- */

static uint32_t engine_count(void) { return 1; }

static uint32_t engine_info(uint32_t index, cascadia_engine_info *out) {
    if (index != 0 || out->struct_size < CASCADIA_SIZE(cascadia_engine_info)) return CASCADIA_CODE_INVALID_CONFIG;
    out->name = CASCADIA_STR("echo");
    out->description = CASCADIA_STR("one word of the prompt a token");
    return CASCADIA_CODE_OK;
}

static uint32_t score(cascadia_str name) { return cascadia_str_eq(name, CASCADIA_STR("echo")) ? 1 : 0; }

static void *new_builder(cascadia_str name, void *worker, cascadia_err_out err) {
    (void)worker; /* kept by engines that ask the host for metrics, cancel flags or a heartbeat */
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
static const cascadia_load_report_v1 LOAD_REPORT = {CASCADIA_SIZE(cascadia_load_report_v1), 0, report};

static const void *get_extension(cascadia_str id) {
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_PLUGIN))) return &PLUGIN;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_BUILDER))) return &BUILDER;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_ENGINE))) return &ENGINE;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_MODEL_CARD))) return &MODEL_CARD;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_LOAD_REPORT))) return &LOAD_REPORT;
    return NULL;
}

static uint32_t init(const cascadia_host_v1 *host, cascadia_err_out err) {
    host_clock = (const cascadia_host_clock_v1 *)cascadia_service(host, CASCADIA_ID_HOST_CLOCK, sizeof *host_clock);
    host_log = (const cascadia_host_log_v1 *)cascadia_service(host, CASCADIA_ID_HOST_LOG, sizeof *host_log);
    if (host_clock == NULL) return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "needs the host's clock");
    return CASCADIA_CODE_OK;
}

CASCADIA_ENTRY(init, get_extension);
