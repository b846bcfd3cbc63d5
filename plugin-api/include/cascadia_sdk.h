/*
 * An engine in C11 or C++17 without the boilerplate: a few functions, and this header makes the tables of them.
 *
 * You write four functions and what belongs to them:
 *
 *   load    opens the model, with the options in place     [control]
 *   unload  gives back what load took                      [control]
 *   begin   looks at a task before it is taken             [any]
 *   step    makes the next token of each task, as a batch  [drive]
 *
 * The header keeps the rest of the contract: builder and options, places for tasks and the lock around them, prompts and
 * stop tokens copied out of what the host lends, limits, cancel and close, exactly one finish for each task, one push for
 * all of a step. plugins/examples/echo-c is a whole engine of about a hundred lines.
 *
 * Your engine and your tasks are plain structs that begin with ours, so that a pointer to one is a pointer to the other:
 *
 *   typedef struct mine { cascadia_engine base; int64_t threads; struct weights *weights; } mine;
 *   typedef struct mine_task { cascadia_slot slot; float temperature; } mine_task;
 *
 * Both come zeroed and are freed without a call (keep C++ objects behind a pointer). None of your functions is called
 * under a lock. In C++ wrap them in cascadia::guard: no exception may leave one.
 *
 * What is not here is in cascadia_plugin.h and stays open to you: CASCADIA_ENTRY takes any init and get_extension, so that
 * yours may answer further ids, or a table of its own, and pass the rest on to those below. `void *engine` is your struct
 * in every table of an engine. Include this header instead of the other. It needs -pthread.
 */
#ifndef CASCADIA_SDK_H
#define CASCADIA_SDK_H

#include "cascadia_plugin.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
#define CASCADIA_SDK_NUMBER(type, value) static_cast<type>(value)
extern "C" {
#else
#define CASCADIA_SDK_NUMBER(type, value) ((type)(value))
#endif

/* ---- What you describe -------------------------------------------------------------------------------------------- */

/* An option of the manifest and the field of your engine that takes it. */
typedef enum cascadia_option_kind {
    CASCADIA_OPTION_INTEGER, /* int64_t */
    CASCADIA_OPTION_NUMBER,  /* double */
    CASCADIA_OPTION_BOOLEAN, /* int64_t: 0 or 1 */
    CASCADIA_OPTION_TEXT     /* char *: ends with NUL, is freed for you; null where the option was not given */
} cascadia_option_kind;

typedef struct cascadia_option {
    const char *name;
    cascadia_option_kind kind;
    size_t offset;
} cascadia_option;

/* An element of the list: CASCADIA_OPTION("threads", CASCADIA_OPTION_INTEGER, mine, threads). Where a compiler complains of an
 * array of negative size, the field is none of the types above. */
#define CASCADIA_OPTION(name, kind, type, field)                                                               \
    {name, kind, offsetof(type, field) + 0 * sizeof(char[sizeof(CASCADIA_CAST(type *, 0)->field) == 8 ? 1 : -1])}

/* A place for one task. begin and step read and write it; the last part is the header's own. */
typedef struct cascadia_slot {
    uint32_t index;         /* which place, below max_tasks; a task keeps it. A cache with a row for each place needs no more */
    uint32_t made;          /* tokens of the answer so far; 0 = new, so that its row of the cache is not its own yet */
    const uint32_t *prompt; /* token ids, at least one */
    size_t prompt_len;
    /* What the next push says of the task: empty at the beginning of each step, filled in by cascadia_put. You may add
     * what else you have (logprobs, cached_tokens, ...), pointing to what stays until the next step. A finish other than
     * NONE ends the task. A chunk with neither token nor finish is not pushed: the prompt is still being read. */
    cascadia_chunk chunk;

    uint64_t task;
    uint32_t *ids; /* the prompt, then the stop tokens; allocated */
    size_t stops;
    uint32_t limit, token;
    int state, cancelled;
} cascadia_slot;

/* An engine. load sets the first three; the last part is the header's own. */
typedef struct cascadia_engine {
    uint32_t max_tasks; /* places: tasks at once; one more is refused with QUEUE_FULL */
    uint32_t context;   /* most tokens of prompt and answer together */
    /* The model card: a JSON object with at least one key, without context_length and max_tasks. Read once, after load. */
    const char *card;
    void *worker; /* how the host's services know this engine (cancel flags, heartbeat, metrics, wake) */

    pthread_mutex_t lock;
    int closed;
    uint8_t *slots;        /* max_tasks of them, slot_size bytes each */
    cascadia_slot **live;  /* those of a step */
    cascadia_chunk *chunks;
    char *card_text;
} cascadia_engine;

/* The engine of the library: what it is called and how it works. */
typedef struct cascadia_engine_kind {
    const char *name, *description; /* as in the manifest */
    size_t engine_size, slot_size;  /* of your structs */
    const cascadia_option *options; /* all that the manifest names */
    size_t option_count;
    /* [control] Opens the model and sets max_tasks, context and card. Report progress, and give up with CANCELLED when
     * report answers other than 0. What the first task would otherwise pay for (a warm-up) is done here as well. */
    uint32_t (*load)(void *engine, const cascadia_shard *shard, cascadia_progress progress, cascadia_err_out err);
    /* [control] Frees what your engine holds; the last call. It comes also where load failed, or never came. */
    void (*unload)(void *engine);
    /* [any] Refuses a task, or takes what step needs of it (temperature, seed, ...) into its slot. Beside step and other
     * begins: of the engine read only what load has set. Must not block. */
    uint32_t (*begin)(void *engine, cascadia_slot *slot, const cascadia_task *task, cascadia_err_out err);
    /* [drive] Works once for the `n` tasks in `live`, at least one. For each that has come to it: cascadia_put, or a
     * finish in its chunk. `until_ns` is 0; another value (of the host's clock) asks not to be called before, unless a
     * task comes or goes. A code other than OK means that the engine as a whole failed. */
    uint32_t (*step)(void *engine, cascadia_slot *const *live, size_t n, uint64_t *until_ns, cascadia_err_out err);
} cascadia_engine_kind;

/* What this header knows of the plugin that it is in. */
typedef struct cascadia_sdk_t {
    const cascadia_engine_kind *kind;
    const cascadia_host_v1 *host;        /* for further services: cascadia_service */
    const cascadia_host_clock_v1 *clock; /* always there; put it into the manifest's `requires` */
    const cascadia_host_log_v1 *log;     /* for cascadia_log; null where the host has none */
} cascadia_sdk_t;

extern CASCADIA_HIDDEN cascadia_sdk_t cascadia_sdk;

/* `CASCADIA_ENGINE(MINE); CASCADIA_ENTRY(cascadia_sdk_init, cascadia_sdk_extension);`, once in a plugin; MINE is a constant
 * cascadia_engine_kind. */
#define CASCADIA_ENGINE(engine) cascadia_sdk_t cascadia_sdk = {&(engine), NULL, NULL, NULL}

/* ---- For step ------------------------------------------------------------------------------------------------------ */

/* Takes the task's next token, at most one a step, and its bytes if you detokenize yourself (else cascadia_str_z(NULL)).
 * The task ends where it is a stop token, which is no part of the answer, or the last that may come; its chunk tells. */
static inline void cascadia_put(cascadia_slot *s, uint32_t token, cascadia_str bytes) {
    for (size_t i = 0; i < s->stops; i++) {
        if (s->ids[s->prompt_len + i] == token) {
            s->chunk.finish = CASCADIA_FINISH_STOP;
            s->chunk.flags |= CASCADIA_CHUNK_HAS_STOP_TOKEN;
            s->chunk.stop_token = token;
            return;
        }
    }
    s->token = token;
    s->chunk.tokens = CASCADIA_ARRAY(&s->token, 1);
    s->chunk.bytes = bytes;
    if (++s->made == s->limit) s->chunk.finish = CASCADIA_FINISH_LENGTH;
}

/* ---- The engine's table. Of what follows an author names the last two functions only. ------------------------------------ */

/* States of a slot, read and changed under the lock. Submit takes a FREE one and hands it over as LIVE; only step frees it,
 * after the push, so that what a chunk points to stays in place while the host reads it. */
enum { CASCADIA_SLOT_FREE, CASCADIA_SLOT_TAKEN, CASCADIA_SLOT_LIVE };

static inline cascadia_slot *cascadia_sdk_slot(cascadia_engine *e, uint32_t index) {
    return CASCADIA_CAST(cascadia_slot *, CASCADIA_CAST(void *, e->slots + index * cascadia_sdk.kind->slot_size));
}

static inline void cascadia_sdk_free(cascadia_slot *s) {
    free(s->ids);
    s->ids = NULL;
    s->state = CASCADIA_SLOT_FREE;
}

/* A zeroed place for the task; null with the code where there is none. */
static inline cascadia_slot *cascadia_sdk_take(cascadia_engine *e, uint64_t task, uint32_t *code) {
    cascadia_slot *s = NULL;
    pthread_mutex_lock(&e->lock);
    *code = e->closed ? CASCADIA_CODE_CLOSED : CASCADIA_CODE_QUEUE_FULL;
    for (uint32_t i = 0; i < e->max_tasks && !e->closed; i++) {
        s = cascadia_sdk_slot(e, i);
        if (s->state == CASCADIA_SLOT_FREE) {
            memset(s, 0, cascadia_sdk.kind->slot_size);
            s->state = CASCADIA_SLOT_TAKEN;
            s->index = i;
            s->task = task;
            *code = CASCADIA_CODE_OK;
            break;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return *code == CASCADIA_CODE_OK ? s : NULL;
}

/* Copies what the host lends of the task. */
static inline uint32_t cascadia_sdk_fill(cascadia_engine *e, cascadia_slot *s, const cascadia_task *t) {
    const size_t prompt = t->tokens.len, stops = t->stop_tokens.len;
    const uint32_t room = e->context - CASCADIA_SDK_NUMBER(uint32_t, prompt);
    s->ids = CASCADIA_CAST(uint32_t *, calloc(prompt + stops, sizeof *s->ids));
    if (s->ids == NULL) return CASCADIA_CODE_OUT_OF_MEMORY;
    for (size_t i = 0; i < prompt; i++) s->ids[i] = cascadia_array_u32(t->tokens, i);
    for (size_t i = 0; i < stops; i++) s->ids[prompt + i] = cascadia_array_u32(t->stop_tokens, i);
    s->prompt = s->ids;
    s->prompt_len = prompt;
    s->stops = stops;
    s->limit = t->max_tokens > 0 && t->max_tokens < room ? t->max_tokens : room;
    return CASCADIA_CODE_OK;
}

static inline uint32_t cascadia_sdk_submit(void *self, const cascadia_task *t, cascadia_err_out err) {
    cascadia_engine *e = CASCADIA_CAST(cascadia_engine *, self);
    char text[64];
    if (t->struct_size < CASCADIA_SIZE(cascadia_task)) {
        return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "the host's task is older than this plugin");
    }
    if (t->grammar.kind != CASCADIA_GRAMMAR_NONE || t->adapter.len > 0 || t->attachments.len > 0) {
        return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "this engine takes no grammar, adapter or attachment");
    }
    if (t->tokens.len == 0) {
        return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "the prompt has no tokens");
    }
    if (t->tokens.len >= e->context) { /* one token of answer must fit as well */
        snprintf(text, sizeof text, "{\"have\":%zu,\"max\":%u}", t->tokens.len, e->context - 1);
        return cascadia_fail_with(err, CASCADIA_CODE_PROMPT_TOO_LONG, "the prompt does not fit; shorten it", text);
    }
    uint32_t code;
    cascadia_slot *s = cascadia_sdk_take(e, t->task, &code);
    if (code == CASCADIA_CODE_CLOSED) return cascadia_fail(err, code, "the engine is closed");
    if (s == NULL) {
        snprintf(text, sizeof text, "all %u slots are taken; try again", e->max_tasks);
        return cascadia_fail(err, code, text);
    }
    code = cascadia_sdk_fill(e, s, t);
    if (code != CASCADIA_CODE_OK) {
        cascadia_fail(err, code, "there is no memory for the prompt");
    } else {
        code = cascadia_sdk.kind->begin(e, s, t, err);
    }
    pthread_mutex_lock(&e->lock);
    if (code == CASCADIA_CODE_OK) {
        s->state = CASCADIA_SLOT_LIVE;
    } else {
        cascadia_sdk_free(s);
    }
    pthread_mutex_unlock(&e->lock);
    return code;
}

/* Empties the chunks of all tasks. Those that were cancelled are put into the batch, `n` of them; answers how many go on. */
static inline size_t cascadia_sdk_collect(cascadia_engine *e, size_t *n) {
    size_t live = 0;
    *n = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->max_tasks; i++) {
        cascadia_slot *s = cascadia_sdk_slot(e, i);
        if (s->state != CASCADIA_SLOT_LIVE) continue;
        memset(&s->chunk, 0, sizeof s->chunk);
        s->chunk.task = s->task;
        s->chunk.flags = CASCADIA_CHUNK_HAS_PROMPT_TOKENS;
        s->chunk.prompt_tokens = CASCADIA_SDK_NUMBER(uint32_t, s->prompt_len);
        if (s->cancelled) {
            s->chunk.finish = CASCADIA_FINISH_CANCELLED;
            e->chunks[(*n)++] = s->chunk;
        } else {
            e->live[live++] = s;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return live;
}

/* Frees the places of the tasks that have ended; answers how many are left. */
static inline size_t cascadia_sdk_release(cascadia_engine *e) {
    size_t left = 0;
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->max_tasks; i++) {
        cascadia_slot *s = cascadia_sdk_slot(e, i);
        if (s->state != CASCADIA_SLOT_LIVE) continue;
        if (s->chunk.finish != CASCADIA_FINISH_NONE) {
            cascadia_sdk_free(s);
        } else {
            left++;
        }
    }
    pthread_mutex_unlock(&e->lock);
    return left;
}

static inline uint32_t cascadia_sdk_step(void *self, uint32_t budget_us, cascadia_sink sink, cascadia_step_out *out,
                                         cascadia_err_out err) {
    cascadia_engine *e = CASCADIA_CAST(cascadia_engine *, self);
    size_t n;
    const size_t live = cascadia_sdk_collect(e, &n);
    uint64_t until_ns = 0;
    (void)budget_us;
    if (live > 0) {
        const uint32_t code = cascadia_sdk.kind->step(e, e->live, live, &until_ns, err);
        if (code != CASCADIA_CODE_OK) return code;
    }
    for (size_t i = 0; i < live; i++) {
        const cascadia_chunk *c = &e->live[i]->chunk;
        if (c->tokens.len > 0 || c->finish != CASCADIA_FINISH_NONE) e->chunks[n++] = *c;
    }
    if (n > 0) {
        sink.push(sink.ctx, CASCADIA_ARRAY(e->chunks, n)); /* we return at once, also where it does not say STOP */
    }
    out->state = cascadia_sdk_release(e) == 0 ? CASCADIA_STEP_IDLE : until_ns > 0 ? CASCADIA_STEP_WAIT : CASCADIA_STEP_MORE;
    out->until_ns = until_ns;
    return CASCADIA_CODE_OK;
}

static inline uint32_t cascadia_sdk_cancel(void *self, uint64_t task) {
    cascadia_engine *e = CASCADIA_CAST(cascadia_engine *, self);
    pthread_mutex_lock(&e->lock);
    for (uint32_t i = 0; i < e->max_tasks; i++) {
        cascadia_slot *s = cascadia_sdk_slot(e, i);
        if (s->task == task) s->cancelled = 1; /* the next step tells the finish */
    }
    pthread_mutex_unlock(&e->lock);
    return CASCADIA_CODE_OK;
}

static inline uint32_t cascadia_sdk_close(void *self, uint32_t deadline_ms, cascadia_err_out err) {
    cascadia_engine *e = CASCADIA_CAST(cascadia_engine *, self);
    (void)deadline_ms, (void)err;
    pthread_mutex_lock(&e->lock);
    e->closed = 1;
    for (uint32_t i = 0; i < e->max_tasks; i++) cascadia_sdk_slot(e, i)->cancelled = 1;
    pthread_mutex_unlock(&e->lock);
    return CASCADIA_CODE_OK;
}

/* The fields of an engine that options fill. */
static inline void *cascadia_sdk_field(void *engine, const cascadia_option *option) {
    return CASCADIA_CAST(uint8_t *, engine) + option->offset;
}

static inline void cascadia_sdk_destroy(void *self) {
    cascadia_engine *e = CASCADIA_CAST(cascadia_engine *, self);
    const cascadia_engine_kind *kind = cascadia_sdk.kind;
    kind->unload(e);
    for (uint32_t i = 0; i < e->max_tasks && e->slots != NULL; i++) free(cascadia_sdk_slot(e, i)->ids);
    for (size_t i = 0; i < kind->option_count; i++) {
        const cascadia_option *option = &kind->options[i];
        if (option->kind == CASCADIA_OPTION_TEXT) free(*CASCADIA_CAST(char **, cascadia_sdk_field(e, option)));
    }
    pthread_mutex_destroy(&e->lock);
    free(e->slots);
    free(e->live);
    free(e->chunks);
    free(e->card_text);
    free(e);
}

static inline uint32_t cascadia_sdk_warmup(void *self, cascadia_progress progress, cascadia_err_out err) {
    (void)self, (void)progress, (void)err; /* load has done it */
    return CASCADIA_CODE_OK;
}

static inline uint32_t cascadia_sdk_card(void *self, cascadia_str_out out, cascadia_err_out err) {
    (void)err;
    out.set(out.ctx, cascadia_str_z(CASCADIA_CAST(cascadia_engine *, self)->card_text));
    return CASCADIA_CODE_OK;
}

static inline uint32_t cascadia_sdk_report(void *self, cascadia_load_report *out) {
    cascadia_engine *e = CASCADIA_CAST(cascadia_engine *, self);
    if (out->struct_size < CASCADIA_SIZE(cascadia_load_report)) return CASCADIA_CODE_INVALID_CONFIG;
    pthread_mutex_lock(&e->lock);
    out->running = 0;
    for (uint32_t i = 0; i < e->max_tasks; i++) out->running += cascadia_sdk_slot(e, i)->state != CASCADIA_SLOT_FREE;
    pthread_mutex_unlock(&e->lock);
    out->waiting = 0;
    out->kv_blocks_used = out->kv_blocks_total = out->tokens_cached = 0;
    return CASCADIA_CODE_OK;
}

/* ---- The builder's table: an engine in the making ---------------------------------------------------------------------- */

typedef struct cascadia_sdk_builder {
    cascadia_engine *engine; /* null when it is built */
} cascadia_sdk_builder;

/* Puts the text of an option into its field; 0 where it has another type. */
static inline int cascadia_sdk_parse(cascadia_option_kind kind, const char *text, void *field) {
    char *end = NULL;
    errno = 0;
    if (kind == CASCADIA_OPTION_INTEGER) {
        const int64_t value = strtoll(text, &end, 10);
        memcpy(field, &value, sizeof value);
    } else if (kind == CASCADIA_OPTION_NUMBER) {
        const double value = strtod(text, &end);
        memcpy(field, &value, sizeof value);
    } else {
        const int64_t value = strcmp(text, "true") == 0;
        memcpy(field, &value, sizeof value);
        return value || strcmp(text, "false") == 0;
    }
    return *text != '\0' && *end == '\0' && errno == 0;
}

static inline uint32_t cascadia_sdk_option(cascadia_engine *e, const cascadia_kv *kv, cascadia_err_out err) {
    const cascadia_engine_kind *kind = cascadia_sdk.kind;
    const cascadia_option *option = kind->options, *end = option + kind->option_count;
    char message[128];
    while (option < end && !cascadia_str_eq(kv->key, cascadia_str_z(option->name))) option++;
    if (option == end) {
        const int shown = kv->key.len < 64 ? CASCADIA_SDK_NUMBER(int, kv->key.len) : 64;
        snprintf(message, sizeof message, "there is no option %.*s", shown, CASCADIA_CAST(const char *, kv->key.ptr));
        return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, message);
    }
    char *text = CASCADIA_CAST(char *, calloc(kv->value.len + 1, 1));
    if (text == NULL) return cascadia_fail(err, CASCADIA_CODE_OUT_OF_MEMORY, "there is no memory for the options");
    if (kv->value.len > 0) memcpy(text, kv->value.ptr, kv->value.len);
    if (option->kind == CASCADIA_OPTION_TEXT) {
        char **field = CASCADIA_CAST(char **, cascadia_sdk_field(e, option));
        free(*field);
        *field = text;
        return CASCADIA_CODE_OK;
    }
    const int read = cascadia_sdk_parse(option->kind, text, cascadia_sdk_field(e, option));
    free(text);
    if (read) return CASCADIA_CODE_OK;
    snprintf(message, sizeof message, "option %.64s takes %s", option->name,
             option->kind == CASCADIA_OPTION_INTEGER  ? "a whole number"
             : option->kind == CASCADIA_OPTION_NUMBER ? "a number"
                                               : "true or false");
    return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, message);
}

static inline uint32_t cascadia_sdk_configure(void *self, cascadia_array options, cascadia_err_out err) {
    uint32_t code = CASCADIA_CODE_OK;
    for (size_t i = 0; i < options.len && code == CASCADIA_CODE_OK; i++) {
        cascadia_kv kv;
        cascadia_array_get(options, i, &kv, sizeof kv);
        code = cascadia_sdk_option(CASCADIA_CAST(cascadia_sdk_builder *, self)->engine, &kv, err);
    }
    return code;
}

static inline uint32_t cascadia_sdk_listen(void *self, cascadia_str address, cascadia_str_out bound, cascadia_err_out err) {
    (void)self, (void)address, (void)bound;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "this engine has no pipeline");
}

static inline uint32_t cascadia_sdk_connect(void *self, cascadia_array peers, cascadia_err_out err) {
    (void)self, (void)peers;
    return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "this engine has no pipeline");
}

static inline uint32_t cascadia_sdk_load(void *self, const cascadia_shard *shard, cascadia_progress progress,
                                         cascadia_err_out err) {
    cascadia_shard known;
    memset(&known, 0, sizeof known);
    memcpy(&known, shard, shard->struct_size < sizeof known ? shard->struct_size : sizeof known);
    return cascadia_sdk.kind->load(CASCADIA_CAST(cascadia_sdk_builder *, self)->engine, &known, progress, err);
}

static inline uint32_t cascadia_sdk_build(void *self, void **out, cascadia_err_out err) {
    cascadia_sdk_builder *builder = CASCADIA_CAST(cascadia_sdk_builder *, self);
    cascadia_engine *e = builder->engine;
    if (e == NULL) return cascadia_fail(err, CASCADIA_CODE_CLOSED, "the builder is used up");
    if (e->max_tasks == 0 || e->context < 2 || e->card == NULL) {
        return cascadia_fail(err, CASCADIA_CODE_BACKEND, "load has not set max_tasks, context and card");
    }
    const size_t room = strlen(e->card) + sizeof "{\"context_length\":4294967295,\"max_tasks\":4294967295,";
    e->slots = CASCADIA_CAST(uint8_t *, calloc(e->max_tasks, cascadia_sdk.kind->slot_size));
    e->live = CASCADIA_CAST(cascadia_slot **, calloc(e->max_tasks, sizeof *e->live));
    e->chunks = CASCADIA_CAST(cascadia_chunk *, calloc(e->max_tasks, sizeof *e->chunks));
    e->card_text = CASCADIA_CAST(char *, malloc(room));
    if (e->slots == NULL || e->live == NULL || e->chunks == NULL || e->card_text == NULL) {
        return cascadia_fail(err, CASCADIA_CODE_OUT_OF_MEMORY, "there is no memory for the tasks");
    }
    snprintf(e->card_text, room, "{\"context_length\":%u,\"max_tasks\":%u,%s", e->context, e->max_tasks, e->card + 1);
    builder->engine = NULL;
    *out = e;
    return CASCADIA_CODE_OK;
}

static inline void cascadia_sdk_destroy_builder(void *self) {
    cascadia_sdk_builder *builder = CASCADIA_CAST(cascadia_sdk_builder *, self);
    if (builder->engine != NULL) cascadia_sdk_destroy(builder->engine);
    free(builder);
}

/* ---- The plugin's table and the entry ----------------------------------------------------------------------------------- */

static inline uint32_t cascadia_sdk_engine_count(void) { return 1; }

static inline uint32_t cascadia_sdk_engine_info(uint32_t index, cascadia_engine_info *out) {
    if (index != 0 || out->struct_size < CASCADIA_SIZE(cascadia_engine_info)) return CASCADIA_CODE_INVALID_CONFIG;
    out->name = cascadia_str_z(cascadia_sdk.kind->name);
    out->description = cascadia_str_z(cascadia_sdk.kind->description);
    return CASCADIA_CODE_OK;
}

static inline uint32_t cascadia_sdk_score(cascadia_str name) {
    return cascadia_str_eq(name, cascadia_str_z(cascadia_sdk.kind->name)) ? 1 : 0;
}

static inline void *cascadia_sdk_new_builder(cascadia_str name, void *worker, cascadia_err_out err) {
    cascadia_sdk_builder *builder = CASCADIA_CAST(cascadia_sdk_builder *, malloc(sizeof *builder));
    cascadia_engine *e = CASCADIA_CAST(cascadia_engine *, calloc(1, cascadia_sdk.kind->engine_size));
    if (cascadia_sdk_score(name) == 0 || builder == NULL || e == NULL || pthread_mutex_init(&e->lock, NULL) != 0) {
        free(builder);
        free(e);
        cascadia_fail(err, CASCADIA_CODE_BACKEND, "there is no such engine, or no memory for it");
        return NULL;
    }
    e->worker = worker;
    builder->engine = e;
    return builder;
}

/* The tables, for CASCADIA_ENTRY; your own get_extension may answer more ids and call this one for the rest. */
static inline const void *cascadia_sdk_extension(cascadia_str id) {
    static const cascadia_plugin_v1 plugin = {
        CASCADIA_SIZE(cascadia_plugin_v1), 0, cascadia_sdk_engine_count, cascadia_sdk_engine_info, cascadia_sdk_score,
        cascadia_sdk_new_builder};
    static const cascadia_builder_v1 builder = {
        CASCADIA_SIZE(cascadia_builder_v1), 0, cascadia_sdk_configure, cascadia_sdk_listen, cascadia_sdk_connect,
        cascadia_sdk_load, cascadia_sdk_build, cascadia_sdk_destroy_builder};
    static const cascadia_engine_v1 engine = {
        CASCADIA_SIZE(cascadia_engine_v1), 0, cascadia_sdk_warmup, cascadia_sdk_submit, cascadia_sdk_step,
        cascadia_sdk_cancel, cascadia_sdk_close, cascadia_sdk_destroy};
    static const cascadia_model_card_v1 card = {CASCADIA_SIZE(cascadia_model_card_v1), 0, cascadia_sdk_card};
    static const cascadia_load_report_v1 report = {CASCADIA_SIZE(cascadia_load_report_v1), 0, cascadia_sdk_report};
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_PLUGIN))) return &plugin;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_BUILDER))) return &builder;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_ENGINE))) return &engine;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_MODEL_CARD))) return &card;
    if (cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_LOAD_REPORT))) return &report;
    return NULL;
}

/* Looks for the services, for CASCADIA_ENTRY; your own init calls this one first. */
static inline uint32_t cascadia_sdk_init(const cascadia_host_v1 *host, cascadia_err_out err) {
    const void *clock = cascadia_service(host, CASCADIA_ID_HOST_CLOCK, sizeof *cascadia_sdk.clock);
    const void *log = cascadia_service(host, CASCADIA_ID_HOST_LOG, sizeof *cascadia_sdk.log);
    cascadia_sdk.host = host;
    cascadia_sdk.clock = CASCADIA_CAST(const cascadia_host_clock_v1 *, clock);
    cascadia_sdk.log = CASCADIA_CAST(const cascadia_host_log_v1 *, log);
    if (clock == NULL) return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "needs the host's clock");
    return CASCADIA_CODE_OK;
}

#ifdef __cplusplus
}
#endif

#endif
