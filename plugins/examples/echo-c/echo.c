/*
 * An engine in one file: it repeats the prompt's words, one token a step, for several tasks at once. cascadia_sdk.h makes
 * the plugin's tables of the four functions in ECHO and says when each is called. Compiles as C11 and as C++17.
 */
#include "cascadia_sdk.h"

#define CONTEXT 4096 /* most tokens of prompt and answer together */

/* ---- Manifest and card: what the host knows before and after it runs us ---- */

CASCADIA_MANIFEST("echo-c", "0.1.0", CASCADIA_JSON({
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
    "vocab_size": 4352, "device": "none", "tokenizer": "bytes",
    "chat_template": "{% for m in messages %}{{ '' if loop.first else ' ' }}{{ m.content or '' }}{% endfor %}",
    "notes": ["echo-c repeats the prompt; it is no model"]
});

/* ---- The engine and its tasks ---- */

typedef struct echo {
    cascadia_engine base;
    int64_t delay_ms; /* time between two tokens */
    uint64_t due_ns;  /* when the next are due; step's own */
} echo;

typedef struct echo_task {
    cascadia_slot slot;
    size_t at; /* place in the prompt */
    uint8_t text[CONTEXT];
} echo_task;

static const cascadia_option OPTIONS[] = {CASCADIA_OPTION("token-delay-ms", CASCADIA_OPTION_INTEGER, echo, delay_ms)};

static uint32_t load(void *self, const cascadia_shard *shard, cascadia_progress progress, cascadia_err_out err) {
    echo *e = (echo *)self;
    (void)shard; /* the model is at shard->path */
    if (progress.report(progress.ctx, CASCADIA_STR("nothing to load"), 1, 1) != 0) {
        return cascadia_fail(err, CASCADIA_CODE_CANCELLED, "the host gave the load up");
    }
    e->base.max_tasks = 8;
    e->base.context = CONTEXT;
    e->base.card = CARD;
    cascadia_log(cascadia_sdk.log, CASCADIA_LEVEL_INFO, "echo-c", "echo", "an echo engine was loaded");
    return CASCADIA_CODE_OK;
}

static void unload(void *self) { (void)self; /* nothing was loaded */ }

static uint32_t begin(void *self, cascadia_slot *s, const cascadia_task *t, cascadia_err_out err) {
    (void)self, (void)t; /* sampling and the rest of what a client may ask for is in `t` */
    for (size_t i = 0; i < s->prompt_len; i++) {
        if (s->prompt[i] > 255) {
            return cascadia_fail(err, CASCADIA_CODE_INVALID_CONFIG, "a prompt token is above 255 and so no byte");
        }
        ((echo_task *)s)->text[i] = (uint8_t)s->prompt[i];
    }
    return CASCADIA_CODE_OK;
}

/* A token is a word with the space before it. */
static void next(echo_task *t) {
    size_t first = t->at, end = first, len = t->slot.prompt_len;
    while (end < len && t->text[end] <= ' ') end++;
    if (end == len) {
        t->slot.chunk.finish = CASCADIA_FINISH_STOP;
        return;
    }
    while (end < len && t->text[end] > ' ') end++;
    t->at = end;
    cascadia_put(&t->slot, 256 + (uint32_t)first, cascadia_str_of(t->text + first, end - first));
}

static uint32_t step(void *self, cascadia_slot *const *live, size_t n, uint64_t *until_ns, cascadia_err_out err) {
    echo *e = (echo *)self;
    uint64_t now = cascadia_sdk.clock->now_ns();
    (void)err;
    if (now >= e->due_ns) {
        for (size_t i = 0; i < n; i++) next((echo_task *)live[i]); /* a model computes all of them together */
        e->due_ns = now + (uint64_t)e->delay_ms * 1000000;
    }
    *until_ns = e->delay_ms > 0 ? e->due_ns : 0;
    return CASCADIA_CODE_OK;
}

static const cascadia_engine_kind ECHO = {"echo", "one word of the prompt a token", sizeof(echo), sizeof(echo_task),
                                     OPTIONS, sizeof OPTIONS / sizeof *OPTIONS, load, unload, begin, step};

CASCADIA_ENGINE(ECHO);
CASCADIA_ENTRY(cascadia_sdk_init, cascadia_sdk_extension);
