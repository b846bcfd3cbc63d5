/*
 * The plugin boundary of cascadia-host for C11 and C++17.
 *
 * The contract is the Rust crate cascadia-plugin-api; plugin-api/tests/header.rs holds this header equal to it: every
 * field's offset, size and type, every constant, the table hashes.
 *
 * A plugin is a shared library that exports one constant, `cascadia_entry` (CASCADIA_ENTRY), and carries a manifest in an
 * ELF section (CASCADIA_MANIFEST). The host finds everything else with `get_extension("name/revision")`, the plugin finds
 * the host's services with `get_service`; null means absent. plugins/examples/echo-c is a whole plugin in one file.
 *
 * What always holds:
 * - Memory never changes owner. Arguments are borrowed for the call; results go out through callbacks, whose receiver
 *   copies. Keep nothing that the host lent unless a comment says how long it lives.
 * - Every table begins with its size as its writer was built. Read a field only where `struct_size` reaches past it, and
 *   never ask for equality. Function pointers of a table are never null.
 * - Elements of an array lie `stride` bytes apart: read them with cascadia_array_get, which copies.
 * - Texts are not NUL-terminated. Ids, messages and JSON are UTF-8; token text is any bytes.
 * - A call that answers another code than CASCADIA_CODE_OK calls `err.set` once, before it returns (cascadia_fail).
 * - No exception, longjmp or signal leaves a function; C++ authors take cascadia_plugin.hpp.
 *
 * Threads. Every function carries one tag:
 *   [control]  one call at a time per object, may block, never beside [drive] on the same engine unless it says so
 *   [drive]    one call at a time per engine, from any operating system thread
 *   [any]      beside everything, must not block
 *
 * States of an engine: built -> warmup -> ready -> close -> closed -> destroy. submit, step and cancel come in ready only
 * (cancel and step also during close); destroy is the last call, when no other is running.
 */
#ifndef CASCADIA_PLUGIN_H
#define CASCADIA_PLUGIN_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define CASCADIA_ASSERT(condition, message) static_assert(condition, message)
#define CASCADIA_CAST(type, value) reinterpret_cast<type>(value)
#define CASCADIA_SIZE(type) static_cast<uint32_t>(sizeof(type))
#else
#define CASCADIA_ASSERT(condition, message) _Static_assert(condition, message)
#define CASCADIA_CAST(type, value) ((type)(value))
/* The size of a table, for its `struct_size`. */
#define CASCADIA_SIZE(type) ((uint32_t)sizeof(type))
#endif

#define CASCADIA_EXPORT __attribute__((visibility("default")))
#define CASCADIA_HIDDEN __attribute__((visibility("hidden")))

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Views and callbacks ---------------------------------------------------------------------------------------- */

/* Borrowed bytes. `ptr` may be null when `len` is 0. */
typedef struct cascadia_str {
    const uint8_t *ptr;
    size_t len;
} cascadia_str;

/* A borrowed array. `stride` is also the size of an element as its writer knows it. `ptr` may be null when `len` is 0. */
typedef struct cascadia_array {
    const void *ptr;
    size_t len;
    size_t stride;
} cascadia_array;

/* A key and its value, both UTF-8. */
typedef struct cascadia_kv {
    cascadia_str key;
    cascadia_str value;
} cascadia_kv;

/* Where a failing call says why. */
typedef struct cascadia_err_out {
    void *ctx;
    /* Takes the code, one line for people, and details as a JSON object (or nothing). */
    void (*set)(void *ctx, uint32_t code, cascadia_str message, cascadia_str details_json);
} cascadia_err_out;

/* Where a call puts a text result. */
typedef struct cascadia_str_out {
    void *ctx;
    /* Takes the text; a second call replaces the first. */
    void (*set)(void *ctx, cascadia_str text);
} cascadia_str_out;

/* Progress of a long call; also the way to give it up. */
typedef struct cascadia_progress {
    void *ctx;
    /* Reports `done` of `total` (0 = unknown) in `phase`; answers 1 when the caller wants the call to give up. */
    uint32_t (*report)(void *ctx, cascadia_str phase, uint64_t done, uint64_t total);
} cascadia_progress;

/* ---- Result codes: a plain number, so that the space can grow. An unknown one counts as BACKEND. ----------------- */

#define CASCADIA_CODE_OK 0u
#define CASCADIA_CODE_QUEUE_FULL 1u        /* the engine's own queue is full; another request may fit later */
#define CASCADIA_CODE_PROMPT_TOO_LONG 2u   /* details: {"have":9000,"max":8192} */
#define CASCADIA_CODE_INVALID_CONFIG 3u    /* an option or request field has a bad value; the message names it */
#define CASCADIA_CODE_BACKEND 4u           /* the engine or a library below it failed */
#define CASCADIA_CODE_PEER_REJECTED 5u     /* a pipeline peer refused the connection or its hello */
#define CASCADIA_CODE_BATCH_ABORTED 6u     /* the batch that held the task was given up */
#define CASCADIA_CODE_UNSUPPORTED 7u       /* the engine does not have the function */
#define CASCADIA_CODE_CANCELLED 8u         /* the call or the task was cancelled */
#define CASCADIA_CODE_CLOSED 9u            /* the object is closed */
#define CASCADIA_CODE_DEADLINE_EXCEEDED 10u
#define CASCADIA_CODE_OUT_OF_MEMORY 11u    /* of the host or of the device */
#define CASCADIA_CODE_POISONED 12u         /* failed beyond repair before; must be destroyed and built anew */
#define CASCADIA_CODE_PANIC 13u            /* a panic or exception was caught in this call */
#define CASCADIA_CODE_PLUGIN_CRASHED 14u   /* said by the host for a plugin in a process of its own that died */
#define CASCADIA_CODE_NOT_CONNECTED 15u    /* a pipeline peer cannot be reached */
#define CASCADIA_CODE_MODEL_NOT_FOUND 16u  /* the model is not there or cannot be read; the message names it */
#define CASCADIA_CODE_SHARD_REJECTED 17u   /* the shard does not fit this engine or its place in the pipeline */

/* ---- The entry -------------------------------------------------------------------------------------------------- */

#define CASCADIA_MAGIC UINT64_C(0x4149444143534143) /* the bytes "CASCADIA" */
#define CASCADIA_ABI_MAJOR 1                        /* a host refuses another one */
#define CASCADIA_ABI_MINOR 0                        /* information only: growth happens by ids */

/* What the host lends to a plugin; lives as long as the process. */
typedef struct cascadia_host_v1 {
    uint32_t struct_size;
    uint32_t flags; /* none is defined */
    /* [any] The host's table of that id (CASCADIA_ID_HOST_...), null when absent. Valid for ever. */
    const void *(*get_service)(cascadia_str id);
} cascadia_host_v1;

/* The type of the constant `cascadia_entry`; CASCADIA_ENTRY fills it in. */
typedef struct cascadia_entry_t {
    uint64_t magic;
    uint32_t struct_size;
    uint32_t abi_major;
    uint32_t abi_minor;
    uint32_t flags; /* 0 */
    /* [control] Called once, before anything but get_extension. Must be quick: no device, no model. */
    uint32_t (*init)(const cascadia_host_v1 *host, cascadia_err_out err);
    /* [any] The plugin's table of that id, null when absent. Ids compare whole. The table is valid for ever. */
    const void *(*get_extension)(cascadia_str id);
} cascadia_entry_t;

extern CASCADIA_EXPORT const cascadia_entry_t cascadia_entry;

/* Ids that the host asks of the plugin. The last two are optional. */
#define CASCADIA_ID_PLUGIN "cascadia.plugin/1"           /* cascadia_plugin_v1 */
#define CASCADIA_ID_BUILDER "cascadia.builder/1"         /* cascadia_builder_v1 */
#define CASCADIA_ID_ENGINE "cascadia.engine/1"           /* cascadia_engine_v1 */
#define CASCADIA_ID_MODEL_CARD "cascadia.model-card/1"   /* cascadia_model_card_v1 */
#define CASCADIA_ID_LOAD_REPORT "cascadia.load-report/1" /* cascadia_load_report_v1 */

/* Ids that the plugin asks of the host. */
#define CASCADIA_ID_HOST_LOG "cascadia.host.log/1"
#define CASCADIA_ID_HOST_METRICS "cascadia.host.metrics/1"
#define CASCADIA_ID_HOST_CLOCK "cascadia.host.clock/1"
#define CASCADIA_ID_HOST_CANCEL "cascadia.host.cancel/1"
#define CASCADIA_ID_HOST_WAKE "cascadia.host.wake/1"
#define CASCADIA_ID_HOST_HEARTBEAT "cascadia.host.heartbeat/1"
#define CASCADIA_ID_HOST_DLOPEN "cascadia.host.dlopen/1"
#define CASCADIA_ID_HOST_TRANSPORT "cascadia.host.transport/1" /* null on a host without links */

/* ---- cascadia.plugin/1: which engines the library holds ---------------------------------------------------------- */

/* One engine. Its texts live as long as the library. */
typedef struct cascadia_engine_info {
    uint32_t struct_size; /* set by the host to the size it offers; fill in no field beyond it */
    uint32_t flags;       /* 0 */
    cascadia_str name;    /* [a-z0-9-]+, unique in the plugin; the manifest names the same engines */
    cascadia_str description;
} cascadia_engine_info;

typedef struct cascadia_plugin_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Number of engines. */
    uint32_t (*engine_count)(void);
    /* [any] Fills `out` for engine `index`; answers a code. */
    uint32_t (*engine_info)(uint32_t index, cascadia_engine_info *out);
    /* [control] How well the engine suits this machine: larger is better, 0 = does not run here. */
    uint32_t (*score)(cascadia_str engine);
    /* [control] A new builder, null on failure. `worker` is how the host's services know the instance to come. */
    void *(*new_builder)(cascadia_str engine, void *worker, cascadia_err_out err);
} cascadia_plugin_v1;

/* ---- cascadia.builder/1: options, links, weights, then an engine ------------------------------------------------- */

/* The part of a model that this worker holds. */
typedef struct cascadia_shard {
    uint32_t struct_size;
    uint32_t flags;
    cascadia_str path;     /* file or folder on this machine; empty when the host was given none */
    cascadia_str model_id; /* the served name */
    uint32_t layer_first;  /* first layer held; 0 with layer_end 0 = all */
    uint32_t layer_end;    /* one past the last */
    uint32_t rank;         /* place in the pipeline, 0 = first */
    uint32_t stages;       /* 1 = the whole model is here */
} cascadia_shard;

/* A neighbour in the pipeline. */
typedef struct cascadia_peer {
    uint32_t rank;
    uint32_t flags;
    cascadia_str address; /* where it listens */
} cascadia_peer;

/* Calls come in this order: configure, listen?, load_shard, connect_peers?, build; destroy last. */
typedef struct cascadia_builder_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [control] Options as cascadia_kv: checked against the manifest's schema, defaults filled in. */
    uint32_t (*configure)(void *builder, cascadia_array options, cascadia_err_out err);
    /* [control] Opens the stage's listener and puts its address into `bound`. UNSUPPORTED without a pipeline. */
    uint32_t (*listen)(void *builder, cascadia_str address, cascadia_str_out bound, cascadia_err_out err);
    /* [control] Connects to cascadia_peers. UNSUPPORTED without a pipeline. */
    uint32_t (*connect_peers)(void *builder, cascadia_array peers, cascadia_err_out err);
    /* [control] Loads the weights; reports progress, gives up with CANCELLED when told to. */
    uint32_t (*load_shard)(void *builder, const cascadia_shard *shard, cascadia_progress progress,
                           cascadia_err_out err);
    /* [control] Puts the engine into `out`. The builder is used up by it: only destroy may follow. */
    uint32_t (*build)(void *builder, void **out, cascadia_err_out err);
    /* [control] Frees the builder, not the engine it built. */
    void (*destroy)(void *builder);
} cascadia_builder_v1;

/* ---- A task: one generation as the host asks for it. Chat, template and stop *strings* stay in the host. ---------- */

/* cascadia_task.flags */
#define CASCADIA_TASK_IGNORE_EOS 1u      /* end-of-text tokens do not end the generation */
#define CASCADIA_TASK_HAS_SEED 2u        /* `seed` is set */
#define CASCADIA_TASK_LOGPROBS 4u        /* log-probabilities are wanted, with `top_logprobs` alternatives */
#define CASCADIA_TASK_PROMPT_LOGPROBS 8u /* ... of the prompt, with `prompt_top_logprobs` alternatives */

/* cascadia_grammar.kind */
#define CASCADIA_GRAMMAR_NONE 0u
#define CASCADIA_GRAMMAR_JSON_SCHEMA 1u
#define CASCADIA_GRAMMAR_REGEX 2u
#define CASCADIA_GRAMMAR_LARK 3u /* a context-free grammar in Lark form */

/* W3C trace context; all zero = none. */
typedef struct cascadia_trace {
    uint8_t trace_id[16]; /* big-endian, as in the header */
    uint8_t span_id[8];   /* of the parent */
    uint64_t flags;       /* bit 0 = sampled */
} cascadia_trace;

/* What the output must match. */
typedef struct cascadia_grammar {
    uint32_t kind;
    uint32_t flags;
    cascadia_str text;
} cascadia_grammar;

/* An addition to one token's logit before sampling. */
typedef struct cascadia_logit_bias {
    uint32_t token;
    float bias; /* -100 to 100 */
} cascadia_logit_bias;

/* Input that is not text. No kind is defined today. */
typedef struct cascadia_attachment {
    cascadia_str kind; /* media type */
    cascadia_str bytes;
} cascadia_attachment;

/* Neutral values mean "off" and are what the host sends for what a client left out. */
typedef struct cascadia_task {
    uint32_t struct_size;
    uint32_t flags;           /* CASCADIA_TASK_... */
    uint64_t task;            /* unique among all tasks that this engine ever sees */
    uint64_t group;           /* shared by the tasks of one request */
    cascadia_str request_id;  /* as the client sees it */
    cascadia_str session_id;  /* for affinity; empty = none */
    cascadia_trace trace;     /* to continue */
    cascadia_str model;       /* the served name */
    cascadia_array tokens;    /* uint32_t: the prompt; empty only when the engine tokenizes `text` itself */
    cascadia_str text;        /* the prompt as text; may be empty */
    uint32_t max_tokens;      /* 0 = up to the window */
    uint32_t min_tokens;      /* fewest tokens before an end token counts */
    float temperature;        /* 0 = greedy */
    float top_p;              /* 1 = off */
    float min_p;              /* relative to the most likely token; 0 = off */
    float typical_p;          /* 1 = off */
    uint32_t top_k;           /* 0 = off */
    float repetition_penalty; /* 1 = off */
    float frequency_penalty;  /* 0 = off */
    float presence_penalty;   /* 0 = off */
    uint64_t seed;            /* with HAS_SEED */
    cascadia_array logit_bias;    /* cascadia_logit_bias */
    cascadia_array banned;        /* uint32_t: ids never to be chosen */
    cascadia_array allowed;       /* uint32_t: where not empty, no other id may be chosen */
    cascadia_array stop_tokens;   /* uint32_t: ids that end the generation and are not part of it */
    uint32_t top_logprobs;        /* alternatives per generated token, with LOGPROBS */
    uint32_t prompt_top_logprobs; /* alternatives per prompt token, with PROMPT_LOGPROBS */
    uint64_t generated_from;      /* index into `tokens` where generated text begins: their number, unless resumed */
    cascadia_grammar grammar;
    int32_t priority;           /* larger runs first; 0 = normal */
    uint32_t reserved;          /* no meaning yet; 0 */
    uint64_t deadline_ns;       /* by the host's clock; after it the answer is of no use. 0 = none */
    cascadia_str cache_salt;    /* prefix-cache entries are shared between equal salts only */
    cascadia_str adapter;       /* adapter (LoRA) to apply; empty = none */
    cascadia_array attachments; /* cascadia_attachment */
    cascadia_array options;     /* cascadia_kv: the engine's own */
} cascadia_task;

/* ---- A chunk: a piece of one generation -------------------------------------------------------------------------- */

/* cascadia_chunk.finish */
#define CASCADIA_FINISH_NONE 0u      /* more will follow */
#define CASCADIA_FINISH_STOP 1u      /* an end token or a stop token came */
#define CASCADIA_FINISH_LENGTH 2u    /* max_tokens or the window is used up */
#define CASCADIA_FINISH_CANCELLED 3u /* ended by cancel or close */
#define CASCADIA_FINISH_ERROR 4u     /* the engine failed on this task; `error` says how */

/* cascadia_chunk.flags */
#define CASCADIA_CHUNK_NAN_SEEN 1u          /* logits held a not-a-number */
#define CASCADIA_CHUNK_HAS_PROMPT_TOKENS 2u /* `prompt_tokens` is reported */
#define CASCADIA_CHUNK_HAS_CACHED_TOKENS 4u /* `cached_tokens` is reported */
#define CASCADIA_CHUNK_HAS_STOP_TOKEN 8u    /* `stop_token` is set */

/* Borrowed for the push. Every field that is zero reads as absent: begin with memset. */
typedef struct cascadia_chunk {
    uint64_t task;
    uint32_t finish;                /* CASCADIA_FINISH_... */
    uint32_t flags;                 /* CASCADIA_CHUNK_... */
    cascadia_array tokens;          /* uint32_t: new ids in order, without stop tokens */
    cascadia_str bytes;             /* their bytes, when the engine detokenizes; may end inside a character */
    cascadia_array logprobs;        /* float: one per token, or empty */
    cascadia_array top_ids;         /* uint32_t: `top_k` alternatives per token, most likely first */
    cascadia_array top_logprobs;    /* float: theirs */
    uint32_t top_k;                 /* alternatives per token */
    uint32_t error;                 /* for FINISH_ERROR: a code */
    cascadia_array prompt_logprobs; /* float: one per prompt token, the first is NaN; in one chunk, once */
    uint32_t prompt_tokens;         /* as the engine counts them: the whole number, not what is new */
    uint32_t cached_tokens;         /* of these, taken from a prefix cache */
    uint32_t stop_token;            /* the stop token that ended the generation */
    uint32_t reserved;              /* no meaning yet; 0 */
    cascadia_str error_message;     /* one line for people */
    cascadia_str error_details;     /* a JSON object, or empty */
    uint64_t timestamp_ns;          /* by the host's clock, when the engine had the tokens; 0 = not reported */
} cascadia_chunk;

/* ---- cascadia.engine/1: the host submits tasks and drives; the engine pushes chunks from inside step --------------- */

/* cascadia_step_out.state */
#define CASCADIA_STEP_MORE 0u /* there is more to do now */
#define CASCADIA_STEP_IDLE 1u /* nothing to do until the next submit or wake */
#define CASCADIA_STEP_WAIT 2u /* nothing to do before `until_ns`, a submit or a wake */

/* What cascadia_sink.push answers. */
#define CASCADIA_SINK_GO_ON 0u
#define CASCADIA_SINK_STOP 1u /* the host is closing: return from step at once */

/* Where the engine delivers. */
typedef struct cascadia_sink {
    void *ctx;
    /* Takes cascadia_chunks, borrowed for the call; one call for the whole batch is the cheap way. Called only inside
     * step, on its thread, while the engine holds no lock that submit or cancel needs. */
    uint32_t (*push)(void *ctx, cascadia_array chunks);
} cascadia_sink;

/* What a step left. */
typedef struct cascadia_step_out {
    uint32_t state;    /* CASCADIA_STEP_... */
    uint32_t flags;    /* 0 */
    uint64_t until_ns; /* for WAIT: time of the host's clock */
} cascadia_step_out;

typedef struct cascadia_engine_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [control] Runs what the first request would otherwise pay for. */
    uint32_t (*warmup)(void *engine, cascadia_progress progress, cascadia_err_out err);
    /* [any] Takes a task, borrowed for the call. After OK exactly one chunk with a finish follows, after another code
     * none. Its chunks may be pushed before this call has returned. */
    uint32_t (*submit)(void *engine, const cascadia_task *task, cascadia_err_out err);
    /* [drive] Does a piece of work. `budget_us` is a hint to engines that can split theirs. A code other than OK means
     * that the engine as a whole failed; a task that failed gets a chunk with FINISH_ERROR. */
    uint32_t (*step)(void *engine, uint32_t budget_us, cascadia_sink sink, cascadia_step_out *out,
                     cascadia_err_out err);
    /* [any] Asks for the end of a task; its finish is still pushed. Unknown and ended ids are fine. The host owes at
     * least one more step, whatever the last one answered. */
    uint32_t (*cancel)(void *engine, uint64_t task);
    /* [control] Ends all work within the deadline. No submit comes any more; `step` may run beside it, and pushes what is
     * still owed. Where no step runs, tasks that are open need no finish: the host has ended them. */
    uint32_t (*close)(void *engine, uint32_t deadline_ms, cascadia_err_out err);
    /* [control] Frees the engine; the last call on it, nothing else is running. */
    void (*destroy)(void *engine);
} cascadia_engine_v1;

/* ---- cascadia.model-card/1 (optional): what the loaded model is and can do ---------------------------------------- */

/* Names for the card's `features`. The host refuses what is not listed, naming the request's field. */
#define CASCADIA_FEATURE_SAMPLING "sampling" /* temperature, top_p, top_k; without it only greedy decoding */
#define CASCADIA_FEATURE_MIN_P "min_p"
#define CASCADIA_FEATURE_TYPICAL_P "typical_p"
#define CASCADIA_FEATURE_PENALTIES "penalties" /* frequency and presence */
#define CASCADIA_FEATURE_REPETITION_PENALTY "repetition_penalty"
#define CASCADIA_FEATURE_SEED "seed" /* at temperatures above 0 */
#define CASCADIA_FEATURE_LOGIT_BIAS "logit_bias"
#define CASCADIA_FEATURE_TOKEN_LISTS "token_lists" /* `banned` and `allowed` */
#define CASCADIA_FEATURE_LOGPROBS "logprobs"       /* of the chosen token */
#define CASCADIA_FEATURE_TOP_LOGPROBS "top_logprobs"
#define CASCADIA_FEATURE_PROMPT_LOGPROBS "prompt_logprobs"
#define CASCADIA_FEATURE_MIN_TOKENS "min_tokens"
#define CASCADIA_FEATURE_IGNORE_EOS "ignore_eos"

/* Keys of the card, all optional: context_length, max_tasks, vocab_size, device (full name), quantization, tokenizer
 * ("bytes": ids 0..255 are bytes; absent: from the model's files), chat_template (Jinja, where the files have none),
 * features (array of names), notes (array of lines that an operator should read once). */
typedef struct cascadia_model_card_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Puts a JSON object into `out`. The answer does not change while the engine lives. */
    uint32_t (*card)(void *engine, cascadia_str_out out, cascadia_err_out err);
} cascadia_model_card_v1;

/* ---- cascadia.load-report/1 (optional) ----------------------------------------------------------------------------- */

/* A worker's load at one moment. */
typedef struct cascadia_load_report {
    uint32_t struct_size;     /* set by the host to the size it offers; fill in no field beyond it */
    uint32_t running;         /* tasks being generated */
    uint32_t waiting;         /* tasks accepted and not begun */
    uint32_t flags;           /* 0 */
    uint64_t kv_blocks_used;  /* KV-cache blocks in use */
    uint64_t kv_blocks_total; /* 0 = the engine has no blocks */
    uint64_t tokens_cached;   /* held for reuse by a prefix cache */
} cascadia_load_report;

typedef struct cascadia_load_report_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Fills `out`; answers a code. */
    uint32_t (*report)(void *engine, cascadia_load_report *out);
} cascadia_load_report_v1;

/* ---- Services of the host. All are [any] and valid for ever. `worker` is what new_builder was given; name it no more
 *      after destroy of its engine. ------------------------------------------------------------------------------- */

#define CASCADIA_LEVEL_ERROR 1u /* someone must act */
#define CASCADIA_LEVEL_WARN 2u  /* recovered by itself */
#define CASCADIA_LEVEL_INFO 3u  /* what an operator must know */
#define CASCADIA_LEVEL_DEBUG 4u /* per request */
#define CASCADIA_LEVEL_TRACE 5u /* per token */

/* cascadia.host.log/1: lines in the host's log. No prompt or answer text belongs there. */
typedef struct cascadia_host_log_v1 {
    uint32_t struct_size;
    uint32_t flags;
    const uint32_t *level; /* the most detailed level that is on; changes at any time: cascadia_load_u32 */
    /* [any] Writes a line. `plugin` is the writer's id, `target` a part of it; `fields` are cascadia_kv. */
    void (*log)(uint32_t level, cascadia_str plugin, cascadia_str target, cascadia_str message,
                cascadia_array fields);
} cascadia_host_log_v1;

#define CASCADIA_METRIC_COUNTER 1u   /* only grows */
#define CASCADIA_METRIC_GAUGE 2u     /* goes up and down */
#define CASCADIA_METRIC_HISTOGRAM 3u /* a distribution */

/* cascadia.host.metrics/1: series on the host's /metrics, named cascadia_plugin_<plugin id>_<name>. */
typedef struct cascadia_host_metrics_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] A handle for the series, 0 on failure. `labels` are cascadia_kv, `buckets` are double upper bounds. The
     * same name and labels give the same handle. */
    uint64_t (*series)(void *worker, uint32_t kind, cascadia_str name, cascadia_str help, cascadia_array labels,
                          cascadia_array buckets, cascadia_err_out err);
    /* [any] Adds to a counter or gauge; a negative value on a counter is ignored. */
    void (*add)(uint64_t handle, double value);
    /* [any] Sets a gauge. */
    void (*set)(uint64_t handle, double value);
    /* [any] Adds a sample to a histogram. */
    void (*observe)(uint64_t handle, double value);
} cascadia_host_metrics_v1;

/* cascadia.host.clock/1: the clock of every time at this boundary. */
typedef struct cascadia_host_clock_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] Monotonic nanoseconds since an arbitrary point, never 0. */
    uint64_t (*now_ns)(void);
} cascadia_host_clock_v1;

/* cascadia.host.cancel/1: the fast path of cancel, for engines that look between kernels. */
typedef struct cascadia_host_cancel_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] A word that turns non-zero when the task is cancelled: cascadia_load_u32. Valid from submit until the push
     * of the task's finish returns; null for an unknown task. */
    const uint32_t *(*flag)(void *worker, uint64_t task);
} cascadia_host_cancel_v1;

/* cascadia.host.wake/1: ends the wait that a step asked for. */
typedef struct cascadia_host_wake_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] step will be called soon. Also from inside step. */
    void (*wake)(void *worker);
} cascadia_host_wake_v1;

/* cascadia.host.heartbeat/1: how an engine in a long step says that it is alive. */
typedef struct cascadia_host_heartbeat_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] A counter of this worker to add to (cascadia_beat); null for an unknown worker. */
    uint64_t *(*counter)(void *worker);
} cascadia_host_heartbeat_v1;

#define CASCADIA_DLOPEN_GLOBAL 1u /* symbols become visible to libraries opened later */

/* cascadia.host.dlopen/1: opens a plugin's own dependency under the host's loader lock. */
typedef struct cascadia_host_dlopen_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] A handle, null on failure. Symbols are bound at once; never closed. A second build of a library that is
     * already loaded under the same SONAME is refused, naming both files. `flags`: CASCADIA_DLOPEN_GLOBAL. */
    void *(*open)(cascadia_str path, uint32_t flags, cascadia_err_out err);
    /* [any] Address of a symbol, null when absent. */
    void *(*symbol)(void *library, cascadia_str name);
} cascadia_host_dlopen_v1;

#define CASCADIA_FRAME_TENSOR 1u /* activations with a tensor header */
#define CASCADIA_FRAME_RAW 2u    /* control bytes */

/* Part of a frame to send. */
typedef struct cascadia_iovec {
    const uint8_t *ptr;
    size_t len;
} cascadia_iovec;

/* Where a received frame goes. */
typedef struct cascadia_frame_out {
    void *ctx;
    /* Takes the frame, borrowed for the call. For raw frames `dtype` and `dims` (uint64_t) are empty. */
    void (*set)(void *ctx, uint32_t kind, uint32_t dtype, cascadia_array dims, cascadia_str payload);
} cascadia_frame_out;

/* cascadia.host.transport/1: links between pipeline stages, with the host's deadlines (by its clock) and metrics. */
typedef struct cascadia_host_transport_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] A link to a peer, null on failure. */
    void *(*open)(void *worker, cascadia_str peer, uint64_t deadline_ns, cascadia_err_out err);
    /* [any] Sends one frame made of cascadia_iovecs; returns when the link has taken all of it (this one waits). */
    uint32_t (*send)(void *link, uint32_t kind, uint32_t dtype, cascadia_array dims, cascadia_array parts,
                     uint64_t deadline_ns, cascadia_err_out err);
    /* [any] Receives one frame (this one waits). */
    uint32_t (*recv)(void *link, uint64_t deadline_ns, cascadia_frame_out out, cascadia_err_out err);
    /* [any] A descriptor that is readable when a frame waits; -1 = none. */
    int32_t (*poll_fd)(void *link);
    /* [any] Closes the link. */
    void (*close)(void *link);
} cascadia_host_transport_v1;

/* ---- Helpers ------------------------------------------------------------------------------------------------------- */

/* A view of a string literal: as an expression, and as the initializer of a constant. */
#define CASCADIA_STR(literal) cascadia_str_of("" literal, sizeof("" literal) - 1)
#define CASCADIA_STR_INIT(literal) {CASCADIA_CAST(const uint8_t *, "" literal), sizeof("" literal) - 1}

static inline cascadia_str cascadia_str_of(const void *ptr, size_t len) {
    cascadia_str s;
    s.ptr = CASCADIA_CAST(const uint8_t *, ptr);
    s.len = len;
    return s;
}

/* A view of a NUL-terminated text; null reads as empty. */
static inline cascadia_str cascadia_str_z(const char *text) {
    return cascadia_str_of(text, text ? strlen(text) : 0);
}

/* 1 where both hold the same bytes. Ids compare like this: whole. */
static inline int cascadia_str_eq(cascadia_str a, cascadia_str b) {
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* A view of `len` elements at `ptr`, and of none. */
#define CASCADIA_ARRAY(ptr, len) cascadia_array_of((ptr), (len), sizeof *(ptr))

static inline cascadia_array cascadia_array_of(const void *ptr, size_t len, size_t stride) {
    cascadia_array a;
    a.ptr = ptr;
    a.len = len;
    a.stride = stride;
    return a;
}

/* Copies element `i` into `out`, which has room for `size` bytes. Of a shorter element (an older writer) the rest reads
 * as zero, of a longer one (a newer writer) the rest is left out. 0 where there is no such element. */
static inline int cascadia_array_get(cascadia_array a, size_t i, void *out, size_t size) {
    memset(out, 0, size);
    if (a.ptr == NULL || a.stride == 0 || i >= a.len || a.len > PTRDIFF_MAX / a.stride) {
        return 0;
    }
    memcpy(out, CASCADIA_CAST(const uint8_t *, a.ptr) + i * a.stride, a.stride < size ? a.stride : size);
    return 1;
}

/* Element `i` of an array of uint32_t (token ids); 0 where there is none. */
static inline uint32_t cascadia_array_u32(cascadia_array a, size_t i) {
    uint32_t value;
    cascadia_array_get(a, i, &value, sizeof value);
    return value;
}

/* Says why a call fails and answers the code: `return cascadia_fail(err, CASCADIA_CODE_BACKEND, "the disk is full");`.
 * Messages: one line, lower case, no full stop; name the value and the way out. */
static inline uint32_t cascadia_fail(cascadia_err_out err, uint32_t code, const char *message) {
    err.set(err.ctx, code, cascadia_str_z(message), cascadia_str_z(NULL));
    return code;
}

/* The same with details: a JSON object. */
static inline uint32_t cascadia_fail_with(cascadia_err_out err, uint32_t code, const char *message,
                                          const char *details_json) {
    err.set(err.ctx, code, cascadia_str_z(message), cascadia_str_z(details_json));
    return code;
}

/* The host's table of that id; null where it is absent or smaller than `size`, the size that you know it with. */
static inline const void *cascadia_service(const cascadia_host_v1 *host, const char *id, size_t size) {
    const void *table = host->get_service(cascadia_str_z(id));
    uint32_t have = 0;
    if (table != NULL) {
        memcpy(&have, table, sizeof have);
    }
    return have >= size ? table : NULL;
}

/* Reads a word that the host changes at any time: the log's level, a cancel flag. */
static inline uint32_t cascadia_load_u32(const uint32_t *word) {
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Counts a heartbeat. */
static inline void cascadia_beat(uint64_t *counter) {
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

/* Writes a line of the plugin of that id to the host's log where its level is on; `log` may be null. */
static inline void cascadia_log(const cascadia_host_log_v1 *log, uint32_t level, const char *plugin,
                                const char *target, const char *message) {
    if (log != NULL && level <= cascadia_load_u32(log->level)) {
        log->log(level, cascadia_str_z(plugin), cascadia_str_z(target), cascadia_str_z(message), cascadia_array_of(NULL, 0, 0));
    }
}

#ifdef __cplusplus
}
#endif

/* ---- What a plugin's file says --------------------------------------------------------------------------------------- */

/* Defines the one exported constant: `CASCADIA_ENTRY(init, get_extension);`, once in a plugin. */
#define CASCADIA_ENTRY(init_fn, get_extension_fn)                                                              \
    const cascadia_entry_t cascadia_entry = {                                                                  \
        CASCADIA_MAGIC, CASCADIA_SIZE(cascadia_entry_t), CASCADIA_ABI_MAJOR, CASCADIA_ABI_MINOR, 0, init_fn,   \
        get_extension_fn}

/* Text of the JSON between the parentheses, so that it needs no escapes: CASCADIA_JSON({"license": "MIT"}). It must be
 * made of C tokens: double quotes, and no \u escapes. */
#define CASCADIA_JSON(...) #__VA_ARGS__

/* Puts the manifest into the library: `CASCADIA_MANIFEST("my-engine", "1.0.0", CASCADIA_JSON({...}));`, once in a plugin.
 *
 * The host reads it without running a line of the plugin. `id` is [a-z0-9-]+. The last argument is the author's part, a
 * JSON object: engines (array of {name, description}), description, license (SPDX), requires and uses (ids of host
 * services), options (object: name -> {type, default, enum, minimum, maximum, description, secret, restart}, a subset of
 * JSON Schema), env (variables that the host must set before its first thread). */
#define CASCADIA_MANIFEST(id, version, about_json)                                                             \
    CASCADIA_MANIFEST_AS(CASCADIA_MANIFEST_TEXT(id, version, about_json))

#define CASCADIA_MANIFEST_TEXT(id, version, about_json)                                                        \
    "{\"manifest\":1,\"id\":\"" id "\",\"version\":\"" version "\",\"abi\":[" CASCADIA_DIGITS(                 \
        CASCADIA_ABI_MAJOR) "," CASCADIA_DIGITS(CASCADIA_ABI_MINOR) "],\"tables\":{" CASCADIA_TABLE_HASHES     \
    "},\"about\":" about_json "}"
#define CASCADIA_DIGITS(number) CASCADIA_DIGITS_OF(number)
#define CASCADIA_DIGITS_OF(number) #number

/* `retain` keeps the section under --gc-sections; external linkage makes a second manifest an error of the linker. */
#if defined(__has_attribute)
#if __has_attribute(retain)
#define CASCADIA_RETAIN , retain
#endif
#if __has_attribute(nonstring) && !defined(__cplusplus)
#define CASCADIA_NONSTRING , nonstring
#endif
#endif
#ifndef CASCADIA_RETAIN
#define CASCADIA_RETAIN
#endif
#ifndef CASCADIA_NONSTRING
#define CASCADIA_NONSTRING
#endif
#define CASCADIA_MANIFEST_PLACE                                                                                \
    __attribute__((section(".cascadia.manifest"), used CASCADIA_RETAIN CASCADIA_NONSTRING))

/* An array without the literal's NUL: C lets the initializer drop it, C++ needs a constant that is computed. */
#ifdef __cplusplus
template <size_t N> struct cascadia_text {
    char at[N - 1];
    constexpr cascadia_text(const char (&literal)[N]) : at() {
        for (size_t i = 0; i < N - 1; i++) {
            at[i] = literal[i];
        }
    }
};
#define CASCADIA_MANIFEST_AS(text)                                                                             \
    extern CASCADIA_HIDDEN const cascadia_text<sizeof(text)> cascadia_manifest;                                \
    CASCADIA_MANIFEST_PLACE constexpr cascadia_text<sizeof(text)> cascadia_manifest(text)
#else
#define CASCADIA_MANIFEST_AS(text)                                                                             \
    __extension__ CASCADIA_HIDDEN CASCADIA_MANIFEST_PLACE const char cascadia_manifest[sizeof(text) - 1] = text
#endif

/* The layout that this header was written for, as hashes and as asserts. While the tables are drafts, a host refuses a
 * plugin that was built with another draft of a table both know. Written by
 * `ABI_BLESS=1 cargo test -p cascadia-plugin-api --test header`. */
/* generated: begin */
#define CASCADIA_TABLE_HASHES \
    "\"cascadia_str\":\"a862d04e12e65754\"," \
    "\"cascadia_array\":\"bbc37973a7b6a45d\"," \
    "\"cascadia_kv\":\"d2aa23e95cf6e294\"," \
    "\"cascadia_err_out\":\"dbfec498cd25d457\"," \
    "\"cascadia_str_out\":\"90bccd49f6079c44\"," \
    "\"cascadia_progress\":\"2e0c4f2d49c422ea\"," \
    "\"cascadia_entry_t\":\"6e1f381b07a22581\"," \
    "\"cascadia_host_v1\":\"34edf0706424bdb9\"," \
    "\"cascadia_engine_info\":\"7a554407f62a97ad\"," \
    "\"cascadia_plugin_v1\":\"5110e690467475c7\"," \
    "\"cascadia_shard\":\"a2e1371d7abde73d\"," \
    "\"cascadia_peer\":\"b9889e6c4839c489\"," \
    "\"cascadia_builder_v1\":\"7a9ddff7996bb120\"," \
    "\"cascadia_sink\":\"c6b6407b6251b977\"," \
    "\"cascadia_step_out\":\"7f013bcbb49ed9e7\"," \
    "\"cascadia_engine_v1\":\"2fac1c384a4912c1\"," \
    "\"cascadia_trace\":\"d50468cc8e208226\"," \
    "\"cascadia_grammar\":\"acdfb789dd2135e5\"," \
    "\"cascadia_logit_bias\":\"a7a5120a398f1733\"," \
    "\"cascadia_attachment\":\"a3eb40a16d16c297\"," \
    "\"cascadia_task\":\"30346a94b95b9c0a\"," \
    "\"cascadia_chunk\":\"e05216b7a71db7e9\"," \
    "\"cascadia_host_log_v1\":\"ac4ba186301375bc\"," \
    "\"cascadia_host_metrics_v1\":\"70b47bcb33878361\"," \
    "\"cascadia_host_clock_v1\":\"88b82048814f2a4e\"," \
    "\"cascadia_host_cancel_v1\":\"01f1cbde0aa151d2\"," \
    "\"cascadia_host_wake_v1\":\"a9a2b4e38d20d10a\"," \
    "\"cascadia_host_heartbeat_v1\":\"176f1e6e92ca4b66\"," \
    "\"cascadia_host_dlopen_v1\":\"042cd3a12a892483\"," \
    "\"cascadia_iovec\":\"bdc1aa233cf65b29\"," \
    "\"cascadia_frame_out\":\"0564da2e2682f661\"," \
    "\"cascadia_host_transport_v1\":\"472005b6e9a5138a\"," \
    "\"cascadia_model_card_v1\":\"01f9933bd864e915\"," \
    "\"cascadia_load_report\":\"f528f6a9242d766b\"," \
    "\"cascadia_load_report_v1\":\"a2b54e9eb4885d21\""

CASCADIA_ASSERT(sizeof(cascadia_str) == 16 && offsetof(cascadia_str, len) == 8, "cascadia_str");
CASCADIA_ASSERT(sizeof(cascadia_array) == 24 && offsetof(cascadia_array, stride) == 16, "cascadia_array");
CASCADIA_ASSERT(sizeof(cascadia_kv) == 32 && offsetof(cascadia_kv, value) == 16, "cascadia_kv");
CASCADIA_ASSERT(sizeof(cascadia_err_out) == 16 && offsetof(cascadia_err_out, set) == 8, "cascadia_err_out");
CASCADIA_ASSERT(sizeof(cascadia_str_out) == 16 && offsetof(cascadia_str_out, set) == 8, "cascadia_str_out");
CASCADIA_ASSERT(sizeof(cascadia_progress) == 16 && offsetof(cascadia_progress, report) == 8, "cascadia_progress");
CASCADIA_ASSERT(sizeof(cascadia_entry_t) == 40 && offsetof(cascadia_entry_t, get_extension) == 32, "cascadia_entry_t");
CASCADIA_ASSERT(sizeof(cascadia_host_v1) == 16 && offsetof(cascadia_host_v1, get_service) == 8, "cascadia_host_v1");
CASCADIA_ASSERT(sizeof(cascadia_engine_info) == 40 && offsetof(cascadia_engine_info, description) == 24, "cascadia_engine_info");
CASCADIA_ASSERT(sizeof(cascadia_plugin_v1) == 40 && offsetof(cascadia_plugin_v1, new_builder) == 32, "cascadia_plugin_v1");
CASCADIA_ASSERT(sizeof(cascadia_shard) == 56 && offsetof(cascadia_shard, stages) == 52, "cascadia_shard");
CASCADIA_ASSERT(sizeof(cascadia_peer) == 24 && offsetof(cascadia_peer, address) == 8, "cascadia_peer");
CASCADIA_ASSERT(sizeof(cascadia_builder_v1) == 56 && offsetof(cascadia_builder_v1, destroy) == 48, "cascadia_builder_v1");
CASCADIA_ASSERT(sizeof(cascadia_sink) == 16 && offsetof(cascadia_sink, push) == 8, "cascadia_sink");
CASCADIA_ASSERT(sizeof(cascadia_step_out) == 16 && offsetof(cascadia_step_out, until_ns) == 8, "cascadia_step_out");
CASCADIA_ASSERT(sizeof(cascadia_engine_v1) == 56 && offsetof(cascadia_engine_v1, destroy) == 48, "cascadia_engine_v1");
CASCADIA_ASSERT(sizeof(cascadia_trace) == 32 && offsetof(cascadia_trace, flags) == 24, "cascadia_trace");
CASCADIA_ASSERT(sizeof(cascadia_grammar) == 24 && offsetof(cascadia_grammar, text) == 8, "cascadia_grammar");
CASCADIA_ASSERT(sizeof(cascadia_logit_bias) == 8 && offsetof(cascadia_logit_bias, bias) == 4, "cascadia_logit_bias");
CASCADIA_ASSERT(sizeof(cascadia_attachment) == 32 && offsetof(cascadia_attachment, bytes) == 16, "cascadia_attachment");
CASCADIA_ASSERT(sizeof(cascadia_task) == 424 && offsetof(cascadia_task, options) == 400, "cascadia_task");
CASCADIA_ASSERT(sizeof(cascadia_chunk) == 216 && offsetof(cascadia_chunk, timestamp_ns) == 208, "cascadia_chunk");
CASCADIA_ASSERT(sizeof(cascadia_host_log_v1) == 24 && offsetof(cascadia_host_log_v1, log) == 16, "cascadia_host_log_v1");
CASCADIA_ASSERT(sizeof(cascadia_host_metrics_v1) == 40 && offsetof(cascadia_host_metrics_v1, observe) == 32, "cascadia_host_metrics_v1");
CASCADIA_ASSERT(sizeof(cascadia_host_clock_v1) == 16 && offsetof(cascadia_host_clock_v1, now_ns) == 8, "cascadia_host_clock_v1");
CASCADIA_ASSERT(sizeof(cascadia_host_cancel_v1) == 16 && offsetof(cascadia_host_cancel_v1, flag) == 8, "cascadia_host_cancel_v1");
CASCADIA_ASSERT(sizeof(cascadia_host_wake_v1) == 16 && offsetof(cascadia_host_wake_v1, wake) == 8, "cascadia_host_wake_v1");
CASCADIA_ASSERT(sizeof(cascadia_host_heartbeat_v1) == 16 && offsetof(cascadia_host_heartbeat_v1, counter) == 8, "cascadia_host_heartbeat_v1");
CASCADIA_ASSERT(sizeof(cascadia_host_dlopen_v1) == 24 && offsetof(cascadia_host_dlopen_v1, symbol) == 16, "cascadia_host_dlopen_v1");
CASCADIA_ASSERT(sizeof(cascadia_iovec) == 16 && offsetof(cascadia_iovec, len) == 8, "cascadia_iovec");
CASCADIA_ASSERT(sizeof(cascadia_frame_out) == 16 && offsetof(cascadia_frame_out, set) == 8, "cascadia_frame_out");
CASCADIA_ASSERT(sizeof(cascadia_host_transport_v1) == 48 && offsetof(cascadia_host_transport_v1, close) == 40, "cascadia_host_transport_v1");
CASCADIA_ASSERT(sizeof(cascadia_model_card_v1) == 16 && offsetof(cascadia_model_card_v1, card) == 8, "cascadia_model_card_v1");
CASCADIA_ASSERT(sizeof(cascadia_load_report) == 40 && offsetof(cascadia_load_report, tokens_cached) == 32, "cascadia_load_report");
CASCADIA_ASSERT(sizeof(cascadia_load_report_v1) == 16 && offsetof(cascadia_load_report_v1, report) == 8, "cascadia_load_report_v1");
/* generated: end */

#endif
