/* Drives an engine of cascadia_sdk.h through its tables, as a host does, and prints what came of each call. */
#include "cascadia_sdk.h"

typedef struct mine {
    cascadia_engine base;
    int64_t threads, fast;
    double share;
    char *device;
    int fails; /* in the next step */
} mine;

typedef struct mine_task {
    cascadia_slot slot;
    float temperature;
} mine_task;

static const cascadia_option OPTIONS[] = {
    CASCADIA_OPTION("threads", CASCADIA_OPTION_INTEGER, mine, threads),
    CASCADIA_OPTION("fast", CASCADIA_OPTION_BOOLEAN, mine, fast),
    CASCADIA_OPTION("share", CASCADIA_OPTION_NUMBER, mine, share),
    CASCADIA_OPTION("device", CASCADIA_OPTION_TEXT, mine, device),
};

static uint32_t load(void *self, const cascadia_shard *shard, cascadia_progress progress, cascadia_err_out err) {
    mine *m = (mine *)self;
    if (progress.report(progress.ctx, CASCADIA_STR("weights"), 1, 2) != 0) {
        return cascadia_fail(err, CASCADIA_CODE_CANCELLED, "given up");
    }
    printf("load %.*s rank %u threads %d fast %d share %.2f device %s\n", (int)shard->path.len, (const char *)shard->path.ptr,
           shard->rank, (int)m->threads, (int)m->fast, m->share, m->device);
    m->base.max_tasks = 2;
    m->base.context = 6;
    m->base.card = "{\"vocab_size\":9}";
    return CASCADIA_CODE_OK;
}

static void unload(void *self) { printf("unload %s\n", ((mine *)self)->device ? "configured" : "empty"); }

static uint32_t begin(void *self, cascadia_slot *s, const cascadia_task *t, cascadia_err_out err) {
    (void)self;
    if (s->prompt[0] == 9) return cascadia_fail(err, CASCADIA_CODE_UNSUPPORTED, "no nines");
    ((mine_task *)s)->temperature = t->temperature;
    return CASCADIA_CODE_OK;
}

/* The answer counts up from the prompt's last token; a first step of a warm task gives none. */
static uint32_t step(void *self, cascadia_slot *const *live, size_t n, uint64_t *until_ns, cascadia_err_out err) {
    mine *m = (mine *)self;
    if (m->fails) return cascadia_fail(err, CASCADIA_CODE_BACKEND, "broken");
    for (size_t i = 0; i < n; i++) {
        mine_task *t = (mine_task *)live[i];
        if (t->temperature > 0) {
            t->temperature = 0;
            *until_ns = 77;
            continue;
        }
        cascadia_put(&t->slot, t->slot.prompt[t->slot.prompt_len - 1] + t->slot.made + 1, CASCADIA_STR("x"));
    }
    return CASCADIA_CODE_OK;
}

static const cascadia_engine_kind MINE = {"mine", "counts", sizeof(mine), sizeof(mine_task), OPTIONS, 4,
                                          load, unload, begin, step};
CASCADIA_ENGINE(MINE);

static const void *extension(cascadia_str id) {
    return cascadia_str_eq(id, CASCADIA_STR("mine/1")) ? &MINE : cascadia_sdk_extension(id);
}
CASCADIA_ENTRY(cascadia_sdk_init, extension);

/* ---- The host ---- */

static uint64_t now(void) { return 1; }
static const cascadia_host_clock_v1 CLOCK = {CASCADIA_SIZE(cascadia_host_clock_v1), 0, now};
static const void *services(cascadia_str id) { return cascadia_str_eq(id, CASCADIA_STR(CASCADIA_ID_HOST_CLOCK)) ? &CLOCK : NULL; }
static const void *no_services(cascadia_str id) { return (void)id, CASCADIA_CAST(const void *, NULL); }

static void print(void *ctx, cascadia_str text) {
    (void)ctx;
    printf("%.*s\n", (int)text.len, (const char *)text.ptr);
}
static void complain(void *ctx, uint32_t code, cascadia_str message, cascadia_str details) {
    (void)ctx;
    printf("  %u %.*s%s%.*s\n", code, (int)message.len, (const char *)message.ptr, details.len > 0 ? " " : "", (int)details.len,
           (const char *)details.ptr);
}
static uint32_t report(void *ctx, cascadia_str phase, uint64_t done, uint64_t total) {
    (void)phase, (void)done, (void)total;
    return *(uint32_t *)ctx;
}

static const cascadia_builder_v1 *builders;
static const cascadia_engine_v1 *engines;
static const cascadia_err_out ERR = {NULL, complain};

static uint32_t push(void *ctx, cascadia_array chunks) {
    for (size_t i = 0; i < chunks.len; i++) {
        cascadia_chunk c;
        cascadia_array_get(chunks, i, &c, sizeof c);
        printf("  task %u:", (unsigned)c.task);
        for (size_t k = 0; k < c.tokens.len; k++) printf(" token %u", cascadia_array_u32(c.tokens, k));
        printf(" finish %u stop %u of %u\n", c.finish, c.stop_token, c.prompt_tokens);
    }
    if (ctx != NULL) { /* another thread's cancel: nothing is held over a push */
        engines->cancel(ctx, 12);
    }
    return CASCADIA_SINK_GO_ON;
}
static void drive(void *engine) {
    const cascadia_sink sink = {engine, push};
    cascadia_step_out out = {9, 0, 0};
    const uint32_t code = engines->step(engine, 0, sink, &out, ERR);
    printf("step %u state %u until %u\n", code, out.state, (unsigned)out.until_ns);
}
static void submit(void *engine, uint64_t id, uint32_t first, size_t len, uint32_t max_tokens, float temperature) {
    const uint32_t prompt[7] = {first, first, first, first, first, first, first}, stops[1] = {4};
    cascadia_task t;
    memset(&t, 0, sizeof t);
    t.struct_size = CASCADIA_SIZE(cascadia_task);
    t.task = id;
    t.tokens = CASCADIA_ARRAY(prompt, len);
    t.stop_tokens = CASCADIA_ARRAY(stops, 1);
    t.max_tokens = max_tokens;
    t.temperature = temperature;
    printf("submit %u: %u\n", (unsigned)id, engines->submit(engine, &t, ERR));
}
static void *builder_with(const char *key, const char *value) {
    const cascadia_kv kv[4] = {{CASCADIA_STR("fast"), CASCADIA_STR("true")}, {CASCADIA_STR("share"), CASCADIA_STR("0.25")},
                               {CASCADIA_STR("device"), CASCADIA_STR("none")}, {cascadia_str_z(key), cascadia_str_z(value)}};
    const cascadia_plugin_v1 *plugin = (const cascadia_plugin_v1 *)cascadia_entry.get_extension(CASCADIA_STR(CASCADIA_ID_PLUGIN));
    void *builder = plugin->new_builder(CASCADIA_STR("mine"), NULL, ERR);
    printf("configure %s=%s: %u\n", key, value, builders->configure(builder, CASCADIA_ARRAY(kv, 4), ERR));
    return builder;
}

int main(void) {
    const cascadia_host_v1 bare = {CASCADIA_SIZE(cascadia_host_v1), 0, no_services};
    const cascadia_host_v1 host = {CASCADIA_SIZE(cascadia_host_v1), 0, services};
    uint32_t give_up = 1;
    const cascadia_progress progress = {&give_up, report};
    const cascadia_str_out out = {NULL, print};
    cascadia_shard shard;
    void *engine = NULL;
    memset(&shard, 0, sizeof shard);
    shard.path = CASCADIA_STR("/weights");
    shard.rank = 3;
    shard.struct_size = (uint32_t)offsetof(cascadia_shard, rank); /* an older host: what lies behind is not read */
    builders = (const cascadia_builder_v1 *)cascadia_entry.get_extension(CASCADIA_STR(CASCADIA_ID_BUILDER));
    engines = (const cascadia_engine_v1 *)cascadia_entry.get_extension(CASCADIA_STR(CASCADIA_ID_ENGINE));
    printf("init %u\n", cascadia_entry.init(&bare, ERR));
    printf("init %u\n", cascadia_entry.init(&host, ERR));
    printf("own table %d\n", cascadia_entry.get_extension(CASCADIA_STR("mine/1")) == &MINE);

    builders->destroy(builder_with("threads", "four"));
    builders->destroy(builder_with("threads", ""));
    builders->destroy(builder_with("share", "1.5 GB"));
    builders->destroy(builder_with("fast", "maybe"));
    builders->destroy(builder_with("speed", "1"));

    void *builder = builder_with("threads", "-4");
    printf("load %u\n", builders->load_shard(builder, &shard, progress, ERR));
    printf("build %u\n", builders->build(builder, &engine, ERR));
    give_up = 0;
    printf("load %u\n", builders->load_shard(builder, &shard, progress, ERR));
    printf("build %u\n", builders->build(builder, &engine, ERR));
    printf("build %u\n", builders->build(builder, &engine, ERR));
    builders->destroy(builder);
    ((const cascadia_model_card_v1 *)cascadia_entry.get_extension(CASCADIA_STR(CASCADIA_ID_MODEL_CARD)))->card(engine, out, ERR);

    drive(engine);
    submit(engine, 1, 9, 1, 0, 0); /* begin refuses it, and its place is free again */
    submit(engine, 2, 1, 0, 0, 0);
    submit(engine, 3, 1, 6, 0, 0);
    submit(engine, 10, 2, 1, 0, 0); /* 3, then the stop token */
    submit(engine, 11, 6, 3, 2, 1); /* none, then two */
    submit(engine, 4, 1, 1, 0, 0);
    drive(engine);
    drive(engine);
    submit(engine, 12, 5, 5, 0, 1); /* one token fits; cancelled in the push */
    drive(engine);
    submit(engine, 13, 6, 5, 0, 0);
    ((mine *)engine)->fails = 1;
    drive(engine);
    ((mine *)engine)->fails = 0;
    drive(engine);
    submit(engine, 14, 1, 1, 0, 0);
    engines->close(engine, 0, ERR);
    submit(engine, 5, 1, 1, 0, 0);
    drive(engine);
    submit(engine, 6, 1, 1, 0, 0);
    engines->destroy(engine);
    return 0;
}
