/*
 * The plugin boundary of cascadia-host for C11 and C++17.
 *
 * The contract is the Rust crate cascadia-plugin-api; plugin-api/tests/header.rs holds this header equal to it: every
 * field's offset, size and type, every constant, the table hashes.
 *
 * A plugin is a shared library that exports one constant, `cascadia_entry` (CASCADIA_ENTRY), and carries a manifest in an
 * ELF section (CASCADIA_MANIFEST). The host finds everything else with `get_extension("name/revision")`, the plugin finds
 * the host's services with `get_service`; null means absent.
 *
 * Begin with cascadia_sdk.h, which makes all tables of an engine out of four functions; plugins/examples/echo-c is a whole
 * plugin on it. This header alone is for engines that need more than that one has.
 *
 * What always holds:
 * - Memory never changes owner. Arguments are borrowed for the call; results go out through callbacks, whose receiver
 *   copies. Keep nothing that the host lent unless a comment says how long it lives.
 * - Every table begins with its size as its writer was built. Read a field only where `struct_size` reaches past it, and
 *   never ask for equality. Function pointers of a table are never null.
 * - Elements of an array lie `stride` bytes apart: read them with cascadia_array_get, which copies.
 * - Texts are not NUL-terminated. Ids, messages and JSON are UTF-8; token text is any bytes.
 * - A call that answers another code than CASCADIA_CODE_OK calls `err.set` once, before it returns (cascadia_fail), with
 *   the same code. Where the two differ the answered one counts.
 * - No exception, longjmp or signal leaves a function; C++ authors take cascadia_plugin.hpp.
 *
 * Threads. Every function carries one tag:
 *   [control]  one call at a time per object, may block, never beside [drive] on the same engine unless it says so
 *   [drive]    one call at a time per engine, from any operating system thread
 *   [any]      beside everything, must not block. Some services of the host wait by their nature: transport for the link,
 *              up to the deadline it is given, and dlopen for the loader. Call them with no lock held that submit or cancel
 *              needs, and not from inside these two.
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

/* Optional as well, and drafts: their form may still change, their ids will not. */
#define CASCADIA_ID_KV_EVENTS "cascadia.kv-events/1"   /* cascadia_kv_events_v1 */
#define CASCADIA_ID_TOKEN_MASK "cascadia.token-mask/1" /* cascadia_token_mask_v1 */
#define CASCADIA_ID_TOKENIZE "cascadia.tokenize/1"     /* cascadia_tokenize_v1 */
#define CASCADIA_ID_EMBEDDINGS "cascadia.embeddings/1" /* cascadia_embeddings_v1 */
#define CASCADIA_ID_STAGE "cascadia.stage/1"           /* cascadia_stage_v1 */
#define CASCADIA_ID_KV_STATE "cascadia.kv-state/1"     /* cascadia_kv_state_v1 */
#define CASCADIA_ID_ADAPTERS "cascadia.adapters/1"     /* cascadia_adapters_v1 */
#define CASCADIA_ID_PAUSE "cascadia.pause/1"           /* cascadia_pause_v1 */
#define CASCADIA_ID_ASYNC_SINK "cascadia.async-sink/1" /* cascadia_async_sink_v1 */

/* Ids that the plugin asks of the host. */
#define CASCADIA_ID_HOST_LOG "cascadia.host.log/1"
#define CASCADIA_ID_HOST_METRICS "cascadia.host.metrics/1"
#define CASCADIA_ID_HOST_CLOCK "cascadia.host.clock/1"
#define CASCADIA_ID_HOST_CANCEL "cascadia.host.cancel/1"
#define CASCADIA_ID_HOST_WAKE "cascadia.host.wake/1"
#define CASCADIA_ID_HOST_HEARTBEAT "cascadia.host.heartbeat/1"
#define CASCADIA_ID_HOST_DLOPEN "cascadia.host.dlopen/1"
#define CASCADIA_ID_HOST_TRACE "cascadia.host.trace/1"
#define CASCADIA_ID_HOST_FAULT "cascadia.host.fault/1"
#define CASCADIA_ID_HOST_TRANSPORT "cascadia.host.transport/1" /* null on a host without links */

/* ---- cascadia.plugin/1: which engines the library holds ---------------------------------------------------------- */

/* One engine. Its texts live as long as the library. */
typedef struct cascadia_engine_info {
    uint32_t struct_size; /* set by the host to the size it offers; fill in no field beyond it */
    uint32_t flags;       /* set by the host to 0; none is defined, leave it alone */
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
#define CASCADIA_GRAMMAR_MASK 4u /* kept by the host: ask for masks (cascadia.token-mask/1); no text */

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
    /* [control] Ends all work within the deadline. No submit comes any more, and one that did is refused (CLOSED).
     * `step` may run beside it, and pushes what is still owed. Where no step runs, tasks that are open need no finish: the host has ended them. */
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
#define CASCADIA_FEATURE_JSON_SCHEMA "json_schema" /* answers keep to a JSON Schema */
#define CASCADIA_FEATURE_REGEX "regex"             /* answers keep to a regular expression */
#define CASCADIA_FEATURE_EBNF "ebnf"               /* answers keep to a grammar in EBNF, the task's option `ebnf` */
#define CASCADIA_FEATURE_EMBEDDINGS "embeddings"   /* vectors of texts, by cascadia.embeddings/1 */
#define CASCADIA_FEATURE_NO_GENERATION "no_generation" /* every task is refused as unsupported */

/* Keys of the card, all optional: context_length, max_tasks, vocab_size, device (full name), quantization, tokenizer
 * ("bytes": ids 0..255 are bytes; "engine": the host asks the engine by cascadia.tokenize/1, which has vocab_size ids;
 * absent: from the model's files), chat_template (Jinja, where the files have none),
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

/* ---- cascadia.kv-events/1 (optional, draft) ---------------------------------------------------------------------- */

/* Which blocks of prompts an engine holds for reuse, as a numbered log.
 *
 * The host reads the log, the engine does not push it: indexing must not run on the engine's thread while a step waits;
 * the reader has its own place in the log, so that what was lost on the way can be read again; and a slow reader costs
 * the engine a bounded ring instead of an unbounded queue. A gap shows in the numbers, and `snapshot` closes it. */

/* cascadia_kv_event.kind: `blocks` can be reused from now on. */
#define CASCADIA_KV_STORED 1u
/* cascadia_kv_event.kind: `blocks` are gone from `tier`. */
#define CASCADIA_KV_REMOVED 2u
/* cascadia_kv_event.kind: every block of the engine is gone, from all tiers. */
#define CASCADIA_KV_CLEARED 3u
/* cascadia_kv_event.flags: cascadia_kv_event.parent is set; without it the first block begins a sequence. */
#define CASCADIA_KV_HAS_PARENT 1u
/* cascadia_kv_event.tier: memory of the device that computes. */
#define CASCADIA_KV_TIER_DEVICE 0u
/* cascadia_kv_event.tier: memory of the host. */
#define CASCADIA_KV_TIER_HOST 1u
/* cascadia_kv_event.tier: a local disk. */
#define CASCADIA_KV_TIER_DISK 2u
/* cascadia_kv_event.tier: a store that several engines share. */
#define CASCADIA_KV_TIER_SHARED 3u

/* A change of what is held. An element of an array, borrowed for the call. */
typedef struct cascadia_kv_event {
    uint64_t sequence; /* place in the log: 1, 2, 3, ... without a hole, per engine */
    uint32_t kind; /* one of the CASCADIA_KV_STORED, CASCADIA_KV_REMOVED, CASCADIA_KV_CLEARED values */
    uint32_t flags; /* CASCADIA_KV_HAS_PARENT */
    uint64_t parent; /* hash of the block before the first of `blocks` */
    /* Hashes (uint64_t) of whole blocks, for CASCADIA_KV_STORED each the parent of the next. A hash stands for
     * everything up to its block's end, adapter and salt included; how it is made is the engine's own affair. */
    cascadia_array blocks;
    cascadia_array tokens; /* token ids (uint32_t) of the stored blocks, `block_size` each. Empty for the other kinds */
    uint32_t block_size; /* tokens per block */
    uint32_t tier; /* one of the CASCADIA_KV_TIER_... values */
    cascadia_str adapter; /* adapter under which the blocks were computed; empty = none */
    cascadia_str cache_salt; /* salt of the prefix cache; empty = the common one */
    uint64_t timestamp_ns; /* when it happened, by the host's clock in nanoseconds; 0 = not reported */
} cascadia_kv_event;

/* Where events go. */
typedef struct cascadia_kv_events_out {
    void *ctx; /* the receiver's context */
    /* Takes an array of cascadia_kv_event; may be called several times. */
    void (*take)(void *ctx, cascadia_array events);
} cascadia_kv_events_out;

typedef struct cascadia_kv_events_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Gives at most `most` events in order, beginning with number `from` or with the oldest that is still kept. A
     * first number larger than `from` is a gap: take a snapshot. Nothing is given where `from` lies in the future.
     * Reading removes nothing. */
    uint32_t (*read)(void *engine, uint64_t from, uint32_t most, cascadia_kv_events_out out, cascadia_err_out err);
    /* [any] Gives everything held as CASCADIA_KV_STORED events, parents before children, and puts the number of the
     * last event that they include into `last` (0 = none yet). Read on from `last + 1`. The events' own number is
     * `last`. */
    uint32_t (*snapshot)(void *engine, cascadia_kv_events_out out, uint64_t *last, cascadia_err_out err);
} cascadia_kv_events_v1;

/* ---- cascadia.token-mask/1 (optional, draft) --------------------------------------------------------------------- */

/* Guided decoding. Before it samples, the engine asks which tokens may come next.
 *
 * A table of the engine that takes a filler, and not a service of the host: its presence is the claim that masks are
 * kept to, which decides whether a request is admitted at all; and no worker must be looked up in the hot path. The
 * engine asks from inside `step`, once for all tasks of the batch, and lends one matrix for the answers, which can go
 * to the device as it is.
 *
 * Asked for are the tasks whose grammar is CASCADIA_GRAMMAR_MASK, and no others. */

/* State of a row: every token may come; its bits were left alone. */
#define CASCADIA_MASK_ALL 0u
/* State of a row: the tokens whose bit is set may come, at least one. */
#define CASCADIA_MASK_SOME 1u
/* State of a row: no token of the vocabulary goes on from here. The engine ends the task with an error
 * (CASCADIA_CODE_INVALID_CONFIG). */
#define CASCADIA_MASK_DEAD_END 2u
/* State of a row: a draft token before it is not allowed, so that nothing will be sampled there. */
#define CASCADIA_MASK_UNREACHED 3u

/* What one task needs. An element of an array. It takes `1 + drafts.len` rows of the answer: one for the token after
 * what was taken, and one after each draft. */
typedef struct cascadia_mask_request {
    uint64_t task; /* the task */
    /* Token ids (uint32_t) that became part of the answer since the last request for this task, in order. Empty in its
     * first one. */
    cascadia_array taken;
    /* Token ids (uint32_t) that a draft proposes after them. They count as taken only when a later request says so. */
    cascadia_array drafts;
    /* Of the tokens told as taken before, so many of the last are withdrawn; counted before `taken`. */
    uint32_t rollback;
    uint32_t flags; /* 0 */
} cascadia_mask_request;

/* The host's side. */
typedef struct cascadia_mask_filler {
    void *ctx; /* the host's context */
    /* Called inside `step`, on its thread, while the engine holds no lock that submit or cancel needs. `requests` are
     * cascadia_mask_requests. `masks` is a matrix of `rows` times `words` words, zeroed by the engine: bit `t % 32` of
     * word `t / 32` stands for token `t`. `states` has a place for each row and takes one of the CASCADIA_MASK_...
     * values. Of a task that the host does not know the rows are CASCADIA_MASK_ALL. A code other than 0 ends every task
     * of the call with an error of that code. */
    uint32_t (*fill)(void *ctx, cascadia_array requests, uint32_t *masks, uint32_t words, uint32_t *states,
                     uint32_t rows);
} cascadia_mask_filler;

typedef struct cascadia_token_mask_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [control] Takes the filler, once, before the first submit. It lives as long as the engine. End and stop tokens
     * are tokens like others: where their bit is not set they may not be chosen. Without a filler the engine refuses
     * tasks whose grammar is a mask. */
    uint32_t (*attach)(void *engine, cascadia_mask_filler filler, cascadia_err_out err);
} cascadia_token_mask_v1;

/* ---- cascadia.tokenize/1 (optional, draft) ----------------------------------------------------------------------- */

/* The engine's own tokenizer. Chat templates are not part of it: the host renders them. */

/* cascadia_tokenize_v1.tokenize: texts of special tokens become these tokens; without it they are plain text. For
 * trusted text only: a client could otherwise write a turn of another role. */
#define CASCADIA_TOKENIZE_PARSE_SPECIAL 1u
/* cascadia_tokenize_v1.tokenize: put the tokens in front and behind that the model's files ask for. */
#define CASCADIA_TOKENIZE_ADD_SPECIAL 2u
/* cascadia_tokenize_v1.detokenize: special tokens show as their text; without it they are left out. */
#define CASCADIA_DETOKENIZE_SPECIAL 1u
/* Kind of a token: no token has this id. */
#define CASCADIA_TOKEN_NONE 0u
/* Kind of a token: text. */
#define CASCADIA_TOKEN_TEXT 1u
/* Kind of a token: special; its bytes are what CASCADIA_DETOKENIZE_SPECIAL shows. */
#define CASCADIA_TOKEN_SPECIAL 2u

/* Where token ids go. */
typedef struct cascadia_tokens_out {
    void *ctx; /* the receiver's context */
    /* Takes token ids (uint32_t); a second call replaces the first. */
    void (*set)(void *ctx, cascadia_array tokens);
} cascadia_tokens_out;

/* The functions work on the caller's thread, which may take as long as the text is long, and hold no lock that submit,
 * step or cancel needs. */
typedef struct cascadia_tokenize_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Token ids of a text; `flags` are CASCADIA_TOKENIZE_... bits. UTF-8 text comes back from `detokenize` byte
     * by byte; other bytes are taken the same way or refused with CASCADIA_CODE_INVALID_CONFIG. */
    uint32_t (*tokenize)(void *engine, cascadia_str text, uint32_t flags, cascadia_tokens_out out,
                         cascadia_err_out err);
    /* [any] The bytes of token ids (uint32_t); may end inside a character. `flags` are CASCADIA_DETOKENIZE_... bits. An
     * id that no token has is refused with CASCADIA_CODE_INVALID_CONFIG, naming it. */
    uint32_t (*detokenize)(void *engine, cascadia_array tokens, uint32_t flags, cascadia_str_out out,
                           cascadia_err_out err);
    /* [any] The bytes of one token as it stands inside a text, and its kind, one of the CASCADIA_TOKEN_... values. An
     * id that no token has gives CASCADIA_TOKEN_NONE, no bytes and code 0, so that a vocabulary with holes can be
     * walked. */
    uint32_t (*token)(void *engine, uint32_t token, cascadia_str_out out, uint32_t *kind, cascadia_err_out err);
} cascadia_tokenize_v1;

/* ---- cascadia.embeddings/1 (optional, draft) --------------------------------------------------------------------- */

/* Texts in, vectors out.
 *
 * An embedding is a task like a generation: submitted from any thread, worked on inside `step`, ended by cancel, and
 * finished by exactly one chunk in the step's sink. Only its vectors go another way, through the callback that was
 * attached. So everything that holds for tasks (slots, cancellation, the watch over stalled engines) holds for these. */

/* cascadia_embed_task.pooling: the model's own. */
#define CASCADIA_POOLING_DEFAULT 0u
/* cascadia_embed_task.pooling: mean over all tokens. */
#define CASCADIA_POOLING_MEAN 1u
/* cascadia_embed_task.pooling: the first token. */
#define CASCADIA_POOLING_FIRST 2u
/* cascadia_embed_task.pooling: the last token. */
#define CASCADIA_POOLING_LAST 3u
/* cascadia_embed_task.flags: vectors have length 1. */
#define CASCADIA_EMBED_NORMALIZE 1u
/* cascadia_embed_info.flags: vectors may be cut to fewer dimensions (cascadia_embed_task.dimensions). */
#define CASCADIA_EMBED_CAN_SHORTEN 1u

/* One input. An element of an array. */
typedef struct cascadia_embed_input {
    cascadia_array tokens; /* token ids (uint32_t). Empty only when the engine tokenizes `text` itself */
    cascadia_str text; /* the text; may be empty */
} cascadia_embed_input;

/* A batch of inputs, borrowed for the call. */
typedef struct cascadia_embed_task {
    uint32_t struct_size;
    uint32_t flags; /* CASCADIA_EMBED_NORMALIZE */
    uint64_t task; /* id of the task, from the same numbers as generations */
    cascadia_str request_id; /* the client-visible request id */
    cascadia_trace trace; /* trace to continue */
    cascadia_array inputs; /* cascadia_embed_input elements; at least one */
    uint32_t pooling; /* one of the CASCADIA_POOLING_... values */
    uint32_t dimensions; /* dimensions wanted; 0 = all */
    int32_t priority; /* larger runs first; 0 = normal */
    uint32_t reserved; /* no meaning yet; 0 */
    uint64_t deadline_ns; /* time of the host's clock after which the answer is of no use, in nanoseconds; 0 = none */
    cascadia_str adapter; /* adapter to apply; empty = none */
    cascadia_array options; /* engine-specific cascadia_kvs */
} cascadia_embed_task;

/* One vector. An element of an array, borrowed for the call. */
typedef struct cascadia_embedding {
    uint64_t task; /* the task it belongs to */
    uint32_t index; /* place of its input in the task */
    uint32_t tokens; /* tokens of the input, as the engine counted them */
    cascadia_array vector; /* the vector (float) */
} cascadia_embedding;

/* Where vectors go. */
typedef struct cascadia_embed_out {
    void *ctx; /* the host's context */
    /* Takes an array of cascadia_embedding. Called only inside `step`, on its thread, before the task's finish is
     * pushed; answers as a sink does (CASCADIA_SINK_STOP: return at once). */
    uint32_t (*take)(void *ctx, cascadia_array embeddings);
} cascadia_embed_out;

/* What the engine embeds. */
typedef struct cascadia_embed_info {
    uint32_t struct_size; /* set by the host to the size it offers; fill in no field beyond it */
    uint32_t flags; /* CASCADIA_EMBED_CAN_SHORTEN */
    uint32_t dimensions; /* dimensions of a whole vector */
    uint32_t max_inputs; /* most inputs of a task; 0 = no limit of its own */
    uint32_t max_tokens; /* most tokens of an input; 0 = not known */
    uint32_t pooling; /* what CASCADIA_POOLING_DEFAULT means, another of the CASCADIA_POOLING_... values */
} cascadia_embed_info;

typedef struct cascadia_embeddings_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Fills `out`; answers a code. The answer does not change while the engine lives. */
    uint32_t (*info)(void *engine, cascadia_embed_info *out);
    /* [control] Says where vectors go, once, before the first submit. It lives as long as the engine. */
    uint32_t (*attach)(void *engine, cascadia_embed_out out, cascadia_err_out err);
    /* [any] Takes a batch. After OK exactly one chunk with a finish follows in the sink of a step: stop when there was
     * one vector for every input, with cascadia_chunk.prompt_tokens the sum of all inputs. After another code none.
     * Refuses a dimension or a pooling it does not have with CASCADIA_CODE_INVALID_CONFIG. */
    uint32_t (*submit)(void *engine, const cascadia_embed_task *task, cascadia_err_out err);
} cascadia_embeddings_v1;

/* ---- cascadia.stage/1 (optional, draft) -------------------------------------------------------------------------- */

/* One stage of a pipeline. Stage 0 has the tasks and plans batches; each stage computes its layers and gives the batch
 * on; the last one samples and returns tokens to stage 0 directly.
 *
 * The host drives the links, the engine does not: what is received is handed to `receive`, what a stage gives comes out
 * of its cascadia_stage_out inside `step`. A batch so travels the same way inside a process and over
 * cascadia_host_transport_v1, where it is one raw frame (everything but `payload`, in the host's own form: both ends
 * are hosts) and one tensor frame (`dtype`, dims `[rows, width]`, `payload`). Deadlines, reconnects and metrics of
 * links are the host's; attempts and epochs, which say what is still of use after a loss, are here.
 *
 * - Epoch: counts the pipeline's lives. After a link was lost the host raises it with `abort` on every stage; what
 *   bears a smaller one is dropped where it arrives.
 * - Attempt: counts how often stage 0 began a task anew. Rows of another attempt than the one a stage holds begin at
 *   position 0 or are refused; tokens of another are dropped.
 * - Window: a long prompt travels as several batches of at most cascadia_stage_info.window rows, of which only the last
 *   row of the last asks for a token. They follow each other without waiting for an answer.
 * - Refusal (NACK): a stage that cannot compute a batch refuses it whole, naming all its tasks, and keeps nothing of
 *   it. The refusal goes to stage 0, which begins these tasks anew. */

/* cascadia_stage_row.flags: the last stage samples a token from this row. */
#define CASCADIA_ROW_SAMPLED 1u
/* cascadia_stage_row.flags: the last stage tells the log-probability of this row's own token, given the rows before it.
 * Not for position 0. */
#define CASCADIA_ROW_SCORED 2u
/* cascadia_stage_token.flags: no new token, but the score of the row that was asked for (CASCADIA_ROW_SCORED). */
#define CASCADIA_STAGE_TOKEN_SCORED 1u
/* cascadia_stage_sequence.flags: its rows are part of a prompt. */
#define CASCADIA_SEQUENCE_PREFILL 1u
/* cascadia_stage_sequence.flags: the first rows of this attempt; a stage forgets what it held of the task. */
#define CASCADIA_SEQUENCE_BEGINS 2u

/* One row: a token's place in its sequence, and in the payload. An element of an array. */
typedef struct cascadia_stage_row {
    uint64_t task; /* the task */
    uint64_t position; /* place of the token in its sequence, from 0 */
    uint32_t sequence; /* index into cascadia_stage_batch.sequences */
    uint32_t flags; /* CASCADIA_ROW_... */
    uint32_t token; /* token id, for what a later stage does with ids: penalties, scores */
    uint32_t reserved; /* no meaning yet; 0 */
} cascadia_stage_row;

/* One task's part of a batch. An element of an array. */
typedef struct cascadia_stage_sequence {
    uint64_t task; /* the task */
    /* Tokens that every stage holds of it before this batch; fewer than before = the last ones were withdrawn. */
    uint64_t past;
    uint32_t attempt; /* how often the task was begun, from 1 */
    uint32_t flags; /* CASCADIA_SEQUENCE_PREFILL, CASCADIA_SEQUENCE_BEGINS */
    /* Blocks (uint32_t) of the paged cache, in order, for engines whose stage 0 owns the block table; else empty. */
    cascadia_array blocks;
    cascadia_array mask; /* bit mask (words of uint32_t) of the tokens that may be sampled; empty = all */
    cascadia_str sampling; /* how to sample, in the engine's own form; told where it begins or changes, else empty */
} cascadia_stage_sequence;

/* Rows on their way from one stage to the next, borrowed for the call. */
typedef struct cascadia_stage_batch {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    uint64_t batch; /* number of the batch, counted by stage 0 */
    uint64_t epoch; /* the pipeline's epoch */
    cascadia_array rows; /* cascadia_stage_row elements, grouped by sequence, positions rising */
    cascadia_array sequences; /* cascadia_stage_sequence elements */
    uint32_t dtype; /* type of the payload's values: one of CASCADIA_DTYPE_... */
    uint32_t width; /* values per row */
    uint64_t max_context; /* longest sequence in the batch, its new rows included */
    cascadia_str payload; /* the rows' values, row by row: `rows * width` of `dtype`, little-endian */
} cascadia_stage_batch;

/* A sampled token, or a score. An element of an array. */
typedef struct cascadia_stage_token {
    uint64_t task; /* the task */
    /* Place of the token in its sequence: one past the row it was sampled from; of a score, its row's own. */
    uint64_t position;
    uint32_t attempt; /* the attempt it belongs to */
    uint32_t token; /* token id */
    float logprob; /* its log-probability; 0 where none was asked for */
    uint32_t flags; /* CASCADIA_STAGE_TOKEN_... */
    cascadia_array top_ids; /* uint32_t: alternatives, most likely first; empty where none were asked for */
    cascadia_array top_logprobs; /* float: theirs */
} cascadia_stage_token;

/* Why a batch was not computed, borrowed for the call. */
typedef struct cascadia_stage_refusal {
    uint32_t struct_size;
    uint32_t code; /* one of CASCADIA_CODE_... */
    uint64_t batch; /* the batch */
    uint64_t epoch; /* the pipeline's epoch */
    cascadia_array tasks; /* ids (uint64_t) of the batch's tasks; they begin anew */
    cascadia_str message; /* one line for people */
} cascadia_stage_refusal;

/* Where a stage gives what it made. Called only inside `step`, on its thread, while the engine holds no lock that the
 * functions of cascadia_stage_v1 need. */
typedef struct cascadia_stage_out {
    void *ctx; /* the host's context */
    /* A batch for the next stage. Answers a code: with another than OK the link is gone, and the tasks of the batch are
     * begun anew in the next epoch. */
    uint32_t (*batch)(void *ctx, const cascadia_stage_batch *batch);
    /* Tokens (cascadia_stage_token) of the last stage, for stage 0. Answers a code. */
    uint32_t (*tokens)(void *ctx, uint64_t epoch, cascadia_array tokens);
    /* A refused batch, for stage 0. Answers a code. */
    uint32_t (*refuse)(void *ctx, const cascadia_stage_refusal *refusal);
} cascadia_stage_out;

/* What a stage is. */
typedef struct cascadia_stage_info {
    uint32_t struct_size; /* set by the host to the size it offers; fill in no field beyond it */
    uint32_t flags; /* 0 */
    uint32_t rank; /* place in the pipeline, 0 = first */
    uint32_t stages; /* number of stages */
    uint32_t dtype; /* type of the values between stages: one of the CASCADIA_DTYPE_... values */
    uint32_t width; /* values per row between stages */
    uint32_t max_rows; /* most rows of a batch */
    uint32_t window; /* most rows of one prompt in a batch */
} cascadia_stage_info;

/* Tasks are submitted to and cancelled at stage 0 only, which pushes their chunks. */
typedef struct cascadia_stage_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Fills `out`; answers a code. */
    uint32_t (*info)(void *engine, cascadia_stage_info *out);
    /* [control] Says where batches, tokens and refusals go, once, before the first step. */
    uint32_t (*attach)(void *engine, cascadia_stage_out out, cascadia_err_out err);
    /* [any] Takes a batch of the stage before, by copy; a later step computes it. CASCADIA_CODE_QUEUE_FULL = give it
     * again after the next step. A batch of an older epoch is dropped with OK. One that is malformed (rows, widths and
     * payload do not fit together) is refused with CASCADIA_CODE_INVALID_CONFIG. */
    uint32_t (*receive)(void *engine, const cascadia_stage_batch *batch, cascadia_err_out err);
    /* [any] Stage 0: tokens (cascadia_stage_token) that the last stage sampled. */
    uint32_t (*tokens)(void *engine, uint64_t epoch, cascadia_array tokens, cascadia_err_out err);
    /* [any] Stage 0: a batch was refused. The named tasks begin anew with the next attempt: their prompt and what was
     * generated is computed again, and nothing of it is pushed twice. */
    uint32_t (*refused)(void *engine, const cascadia_stage_refusal *refusal, cascadia_err_out err);
    /* [any] Forgets what is held of the tasks (ids, uint64_t), and raises the epoch where it is larger than the stage's
     * own: then batches of older ones are dropped, and stage 0 begins all its tasks anew. After the finish of a task
     * the host calls it on every later stage; what is queued of it by then may still be computed, and is forgotten
     * with it. Stage 0 passes over the ids: its tasks end by cancel. */
    uint32_t (*abort)(void *engine, uint64_t epoch, cascadia_array tasks, cascadia_err_out err);
} cascadia_stage_v1;

/* ---- cascadia.kv-state/1 (optional, draft) ----------------------------------------------------------------------- */

/* The state of one running sequence, to go on with it on another engine without computing it anew (disaggregated
 * prefill, migration, a drain).
 *
 * The bytes are the engine's own; what they are is told beside them in a descriptor, a JSON object. Its keys: `layout`
 * (name and revision of the form), `dtype` (of the stored values), `model` (a digest of the weights that made them),
 * `tokens` (number of positions), `bytes` (their whole length), `digest` (of the bytes), and what else the layout
 * needs. An engine that cannot take a state refuses it with the name of the key that does not fit. */

/* Where a saved state goes. */
typedef struct cascadia_kv_state_out {
    void *ctx; /* the receiver's context */
    /* Takes the descriptor, before the first chunk. 1 = give up. */
    uint32_t (*describe)(void *ctx, cascadia_str descriptor_json);
    /* Takes the next bytes, in order and without a hole. 1 = give up. */
    uint32_t (*chunk)(void *ctx, cascadia_str bytes);
} cascadia_kv_state_out;

/* Where a state to be restored comes from. */
typedef struct cascadia_kv_state_in {
    void *ctx; /* the giver's context */
    cascadia_str descriptor_json; /* the descriptor, for the call */
    /* Puts up to `most` bytes from `offset` on into `out`; none = the end. A code other than 0: they are lost, and the
     * restore fails with that code. */
    uint32_t (*read)(void *ctx, uint64_t offset, uint64_t most, cascadia_str_out out);
} cascadia_kv_state_in;

typedef struct cascadia_kv_state_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [control] Gives the state of a running task, as it is between two steps. The task goes on; the host cancels it
     * when the state has arrived. A task that is unknown, over or not begun is refused with
     * CASCADIA_CODE_INVALID_CONFIG. */
    uint32_t (*save)(void *engine, uint64_t task, cascadia_kv_state_out out, cascadia_err_out err);
    /* [control] Takes a task as `submit` does, with the state of its tokens: cascadia_task.tokens are the prompt and
     * what was generated, cascadia_task.generated_from says where that begins, and limits count from there. After OK
     * the generation goes on with the next token, and exactly one finish follows. A state that does not fit is refused
     * with CASCADIA_CODE_INVALID_CONFIG, the key of the descriptor named in the message and in the details as
     * `{"key":...}`; then nothing is kept. */
    uint32_t (*restore)(void *engine, const cascadia_task *task, cascadia_kv_state_in state, cascadia_err_out err);
} cascadia_kv_state_v1;

/* ---- cascadia.adapters/1 (optional, draft) ----------------------------------------------------------------------- */

/* Low-rank adapters (LoRA), loaded and unloaded while the engine runs. A task names the one it wants in
 * cascadia_task.adapter. */

/* An adapter to load. */
typedef struct cascadia_adapter_spec {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    cascadia_str name; /* name that tasks use */
    cascadia_str path; /* file or folder */
    float scale; /* factor on what it adds; 0 reads as 1 */
    uint32_t reserved; /* no meaning yet; 0 */
} cascadia_adapter_spec;

/* A loaded adapter. An element of an array. */
typedef struct cascadia_adapter_info {
    cascadia_str name; /* name that tasks use */
    cascadia_str path; /* where it was loaded from */
    float scale; /* factor on what it adds */
    uint32_t rank; /* its rank; 0 = not known */
    uint32_t tasks; /* tasks that use it at this moment */
    uint32_t flags; /* 0 */
} cascadia_adapter_info;

/* Where the list goes. */
typedef struct cascadia_adapters_out {
    void *ctx; /* the receiver's context */
    /* Takes an array of cascadia_adapter_info; a second call replaces the first. */
    void (*set)(void *ctx, cascadia_array adapters);
} cascadia_adapters_out;

/* `load` and `unload` may run beside step, submit and cancel: serving goes on. */
typedef struct cascadia_adapters_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [control] Loads an adapter; when it returns, tasks may name it. A name that is loaded is refused with
     * CASCADIA_CODE_INVALID_CONFIG, a file that is not there with CASCADIA_CODE_MODEL_NOT_FOUND, one that does not fit
     * the model with CASCADIA_CODE_SHARD_REJECTED. */
    uint32_t (*load)(void *engine, const cascadia_adapter_spec *adapter, cascadia_progress progress,
                     cascadia_err_out err);
    /* [control] Unloads an adapter. Tasks that have it keep it to their end; new ones are refused from now on. An
     * unknown name is refused with CASCADIA_CODE_MODEL_NOT_FOUND. */
    uint32_t (*unload)(void *engine, cascadia_str name, cascadia_err_out err);
    /* [any] Gives all loaded adapters. A task that names another is refused by `submit` with
     * CASCADIA_CODE_MODEL_NOT_FOUND. */
    uint32_t (*list)(void *engine, cascadia_adapters_out out, cascadia_err_out err);
} cascadia_adapters_v1;

/* ---- cascadia.pause/1 (optional, draft) -------------------------------------------------------------------------- */

/* Push-back for one task. The stream of a slow client is held, the others go on. */

/* Both functions answer OK for ids that are unknown or over, and may be called twice. */
typedef struct cascadia_pause_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Nothing more is generated for the task, from the next step on at the latest; what was under way may still
     * come. It keeps its slot and its state; cancel and close end it as ever. A step that has nothing but paused tasks
     * answers idle. */
    uint32_t (*pause)(void *engine, uint64_t task);
    /* [any] The task goes on. The host owes a step, as after a submit. */
    uint32_t (*resume)(void *engine, uint64_t task);
} cascadia_pause_v1;

/* ---- cascadia.async-sink/1 (optional, draft) --------------------------------------------------------------------- */

/* For engines with threads of their own, which would have to queue what they have until the next step. */

typedef struct cascadia_async_sink_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [control] Takes the sink, once, before the first submit. From then on the engine works by itself and pushes from
     * any thread: never two pushes with chunks of one task at once, a task's chunks in order, no lock held that submit
     * or cancel needs. `step` is still called, pushes nothing and answers idle. The sink is valid until `close`
     * returns: open tasks get their finish before that, and no push runs or begins afterwards. Where it answers stop,
     * the engine pushes nothing more. What other
     * extensions call inside step is then called from the engine's own threads too. */
    uint32_t (*attach)(void *engine, cascadia_sink sink, cascadia_err_out err);
} cascadia_async_sink_v1;

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

/* cascadia.host.trace/1: spans and events of a plugin in the host's traces, at debug level under the target `plugin`.
 */
typedef struct cascadia_host_trace_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] Opens a span; a handle, 0 where none is kept (the level is off, the worker is unknown, or it has too many
     * open ones). It stands in the trace `parent` (all zero = none) and, where `under` is the handle of an open span of
     * the same worker, inside that. `fields` are cascadia_kvs; no prompt or answer text. */
    uint64_t (*span_start)(void *worker, cascadia_trace parent, uint64_t under, cascadia_str name,
                           cascadia_array fields);
    /* [any] Ends a span. A handle that is unknown, 0 or ended is ignored. */
    void (*span_end)(void *worker, uint64_t span);
    /* [any] Something happened, inside a span or (0) outside of any. In a span that is unknown or ended: ignored. */
    void (*event)(void *worker, uint64_t span, cascadia_str name, cascadia_array fields);
} cascadia_host_trace_v1;

/* cascadia.host.fault/1: how a plugin says that an engine is lost although no call of it fails. */
typedef struct cascadia_host_fault_v1 {
    uint32_t struct_size;
    uint32_t flags; /* 0 */
    /* [any] A thread that the worker's engine cannot do without has died, for the reason in one line. The host treats
     * it as a failed step: the worker's tasks fail, and it is built anew. Of several reports the first counts. */
    void (*report)(void *worker, cascadia_str message);
} cascadia_host_fault_v1;

#define CASCADIA_FRAME_TENSOR 1u /* activations with a tensor header */
#define CASCADIA_FRAME_RAW 2u    /* control bytes */

/* Element types of tensor frames: little-endian, row-major, without gaps. An unknown number is refused. */
#define CASCADIA_DTYPE_F32 1u
#define CASCADIA_DTYPE_F16 2u
#define CASCADIA_DTYPE_BF16 3u
#define CASCADIA_DTYPE_I8 4u
#define CASCADIA_DTYPE_U8 5u
#define CASCADIA_DTYPE_I32 6u
#define CASCADIA_DTYPE_I64 7u
#define CASCADIA_DTYPE_U32 8u

/* Part of a frame to send. */
typedef struct cascadia_iovec {
    const uint8_t *ptr; /* may be null when len is 0 */
    size_t len;
} cascadia_iovec;

/* Where a received frame goes. */
typedef struct cascadia_frame_out {
    void *ctx;
    /* Takes the frame, borrowed for the call. For raw frames `dtype` is 0 and `dims` (uint64_t) are empty. Any function of
     * the transport may be called from inside it. */
    void (*set)(void *ctx, uint32_t kind, uint32_t dtype, cascadia_array dims, cascadia_str payload);
} cascadia_frame_out;

/* cascadia.host.transport/1: links between pipeline stages, with the host's deadlines, bounds and metrics.
 *
 * Handles are never 0 and never used again: a call with the handle of something closed answers CLOSED. Links and listeners
 * belong to the worker that made them; the host closes them when its engine is destroyed or was never built.
 *
 * Addresses: host:port is TCP (IPv6 in brackets); :port means this machine only; port 0 of a listener is any free one.
 * unix:/path is a Unix socket of mode 0600, removed when its listener is closed. Nothing is encrypted or signed.
 *
 * Deadlines are moments of the host's clock, at most an hour ahead; one that has passed lets the call do what can be done at
 * once. 0 is the host's default: 60 s from now, and where bytes move 60 s after the last one moved, 10 minutes in all. A call
 * that runs out answers DEADLINE_EXCEEDED. accept, open, send and recv wait: not for submit or cancel.
 *
 * Frames come whole or not at all, in the order in which their sends began to write. One send and one recv works on a link at
 * a time, beside each other; further callers wait within their deadlines. A tensor frame has at most 8 dimensions and 512
 * MiB, and exactly the bytes of its type and dimensions; a raw frame has at most 1 MiB.
 *
 * A link that the peer closed, that broke, or on which the peer broke these rules, answers NOT_CONNECTED from then on, with the
 * reason. Whole frames that came before an orderly close can still be received. A dead machine is found within about a
 * minute on an idle link, by TCP's keep-alive; with bytes on their way to it, or where a process hangs, by deadlines. */
typedef struct cascadia_host_transport_v1 {
    uint32_t struct_size;
    uint32_t flags;
    /* [any] A listener, 0 on failure; the bound address, as open takes it, goes to `bound`. Only a peer that opens with the same
     * `purpose` (at most 512 bytes: protocol, version, model) is let in. At most 8 a worker. */
    uint64_t (*listen)(void *worker, cascadia_str address, cascadia_str purpose, cascadia_str_out bound,
                       cascadia_err_out err);
    /* [any] A link to the next peer with the right hello, 0 on failure (this one waits). Strangers are sent away and the wait
     * goes on. At most 64 links a worker. */
    uint64_t (*accept)(uint64_t listener, uint64_t deadline_ns, cascadia_err_out err);
    /* [any] A link to the peer that listens there, 0 on failure (this one waits). A peer that is not there yet is tried again
     * until the deadline, then NOT_CONNECTED; DEADLINE_EXCEEDED when it is there and does not accept; PEER_REJECTED when it
     * speaks another version, has another purpose, or is something else. */
    uint64_t (*open)(void *worker, cascadia_str address, cascadia_str purpose, uint64_t deadline_ns,
                     cascadia_err_out err);
    /* [any] Sends one frame made of cascadia_iovecs; returns when the system has taken all of it (this one waits).
     * INVALID_CONFIG for a frame against the rules. A deadline that passes before the first byte leaves the link as it was;
     * one that passes inside the frame ends the link. `dims` are uint64_t; 0 and empty for raw frames. */
    uint32_t (*send)(uint64_t link, uint32_t kind, uint32_t dtype, cascadia_array dims, cascadia_array parts,
                     uint64_t deadline_ns, cascadia_err_out err);
    /* [any] Receives one frame (this one waits). What has come of a frame when the deadline passes is kept for the next call;
     * a frame that has begun and stands still for 30 s ends the link. */
    uint32_t (*recv)(uint64_t link, uint64_t deadline_ns, cascadia_frame_out out, cascadia_err_out err);
    /* [any] A descriptor to poll for reading: (a part of) a frame or the link's end waits. -1 for a closed link. Only to
     * poll, and not after close. */
    int32_t (*poll_fd)(uint64_t link);
    /* [any] Closes a link or listener; calls that wait on it answer CLOSED. */
    void (*close)(uint64_t handle);
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
    "\"cascadia_host_trace_v1\":\"9c24cb652a48be57\"," \
    "\"cascadia_host_fault_v1\":\"0c48ef405f894ef8\"," \
    "\"cascadia_iovec\":\"bdc1aa233cf65b29\"," \
    "\"cascadia_frame_out\":\"0564da2e2682f661\"," \
    "\"cascadia_host_transport_v1\":\"ffc13f15a8be0faf\"," \
    "\"cascadia_model_card_v1\":\"01f9933bd864e915\"," \
    "\"cascadia_load_report\":\"f528f6a9242d766b\"," \
    "\"cascadia_load_report_v1\":\"a2b54e9eb4885d21\"," \
    "\"cascadia_kv_event\":\"da192c64fdce5e34\"," \
    "\"cascadia_kv_events_out\":\"e3e74093699d1285\"," \
    "\"cascadia_kv_events_v1\":\"cbe28e147997765a\"," \
    "\"cascadia_mask_request\":\"3ba7a5e3816ee4b0\"," \
    "\"cascadia_mask_filler\":\"e960d80bde0803a9\"," \
    "\"cascadia_token_mask_v1\":\"d8800644fb978123\"," \
    "\"cascadia_tokens_out\":\"3deb6749a258ec58\"," \
    "\"cascadia_tokenize_v1\":\"be00e45008bf5350\"," \
    "\"cascadia_embed_input\":\"4850cf5308b221f1\"," \
    "\"cascadia_embed_task\":\"83b40a7414977d90\"," \
    "\"cascadia_embedding\":\"8c932cf2c89d7020\"," \
    "\"cascadia_embed_out\":\"5a5980b1103b7a09\"," \
    "\"cascadia_embed_info\":\"6176e3907ebe5241\"," \
    "\"cascadia_embeddings_v1\":\"f3dba2921da290fa\"," \
    "\"cascadia_stage_row\":\"0c827a4895227f43\"," \
    "\"cascadia_stage_sequence\":\"191d9a17b83347e6\"," \
    "\"cascadia_stage_batch\":\"d6bf71def3001f6d\"," \
    "\"cascadia_stage_token\":\"fc1a2151a4a3833d\"," \
    "\"cascadia_stage_refusal\":\"32d37aabd456072a\"," \
    "\"cascadia_stage_out\":\"f74044e45e5d26fe\"," \
    "\"cascadia_stage_info\":\"ef7a37553bf212f8\"," \
    "\"cascadia_stage_v1\":\"84b62bad8c5c5736\"," \
    "\"cascadia_kv_state_out\":\"507d58ffab94c4bf\"," \
    "\"cascadia_kv_state_in\":\"6cdfdd8a3b9bd7de\"," \
    "\"cascadia_kv_state_v1\":\"b8bc4a23c5e07645\"," \
    "\"cascadia_adapter_spec\":\"0582b051bf576989\"," \
    "\"cascadia_adapter_info\":\"2e7e25259d7655dc\"," \
    "\"cascadia_adapters_out\":\"93a0225e0f169c98\"," \
    "\"cascadia_adapters_v1\":\"1aa2302daa40bb5c\"," \
    "\"cascadia_pause_v1\":\"580e9647c8eea8cd\"," \
    "\"cascadia_async_sink_v1\":\"c4dafc24d291d8c3\""

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
CASCADIA_ASSERT(sizeof(cascadia_host_trace_v1) == 32 && offsetof(cascadia_host_trace_v1, event) == 24, "cascadia_host_trace_v1");
CASCADIA_ASSERT(sizeof(cascadia_host_fault_v1) == 16 && offsetof(cascadia_host_fault_v1, report) == 8, "cascadia_host_fault_v1");
CASCADIA_ASSERT(sizeof(cascadia_iovec) == 16 && offsetof(cascadia_iovec, len) == 8, "cascadia_iovec");
CASCADIA_ASSERT(sizeof(cascadia_frame_out) == 16 && offsetof(cascadia_frame_out, set) == 8, "cascadia_frame_out");
CASCADIA_ASSERT(sizeof(cascadia_host_transport_v1) == 64 && offsetof(cascadia_host_transport_v1, close) == 56, "cascadia_host_transport_v1");
CASCADIA_ASSERT(sizeof(cascadia_model_card_v1) == 16 && offsetof(cascadia_model_card_v1, card) == 8, "cascadia_model_card_v1");
CASCADIA_ASSERT(sizeof(cascadia_load_report) == 40 && offsetof(cascadia_load_report, tokens_cached) == 32, "cascadia_load_report");
CASCADIA_ASSERT(sizeof(cascadia_load_report_v1) == 16 && offsetof(cascadia_load_report_v1, report) == 8, "cascadia_load_report_v1");
CASCADIA_ASSERT(sizeof(cascadia_kv_event) == 120 && offsetof(cascadia_kv_event, timestamp_ns) == 112, "cascadia_kv_event");
CASCADIA_ASSERT(sizeof(cascadia_kv_events_out) == 16 && offsetof(cascadia_kv_events_out, take) == 8, "cascadia_kv_events_out");
CASCADIA_ASSERT(sizeof(cascadia_kv_events_v1) == 24 && offsetof(cascadia_kv_events_v1, snapshot) == 16, "cascadia_kv_events_v1");
CASCADIA_ASSERT(sizeof(cascadia_mask_request) == 64 && offsetof(cascadia_mask_request, flags) == 60, "cascadia_mask_request");
CASCADIA_ASSERT(sizeof(cascadia_mask_filler) == 16 && offsetof(cascadia_mask_filler, fill) == 8, "cascadia_mask_filler");
CASCADIA_ASSERT(sizeof(cascadia_token_mask_v1) == 16 && offsetof(cascadia_token_mask_v1, attach) == 8, "cascadia_token_mask_v1");
CASCADIA_ASSERT(sizeof(cascadia_tokens_out) == 16 && offsetof(cascadia_tokens_out, set) == 8, "cascadia_tokens_out");
CASCADIA_ASSERT(sizeof(cascadia_tokenize_v1) == 32 && offsetof(cascadia_tokenize_v1, token) == 24, "cascadia_tokenize_v1");
CASCADIA_ASSERT(sizeof(cascadia_embed_input) == 40 && offsetof(cascadia_embed_input, text) == 24, "cascadia_embed_input");
CASCADIA_ASSERT(sizeof(cascadia_embed_task) == 152 && offsetof(cascadia_embed_task, options) == 128, "cascadia_embed_task");
CASCADIA_ASSERT(sizeof(cascadia_embedding) == 40 && offsetof(cascadia_embedding, vector) == 16, "cascadia_embedding");
CASCADIA_ASSERT(sizeof(cascadia_embed_out) == 16 && offsetof(cascadia_embed_out, take) == 8, "cascadia_embed_out");
CASCADIA_ASSERT(sizeof(cascadia_embed_info) == 24 && offsetof(cascadia_embed_info, pooling) == 20, "cascadia_embed_info");
CASCADIA_ASSERT(sizeof(cascadia_embeddings_v1) == 32 && offsetof(cascadia_embeddings_v1, submit) == 24, "cascadia_embeddings_v1");
CASCADIA_ASSERT(sizeof(cascadia_stage_row) == 32 && offsetof(cascadia_stage_row, reserved) == 28, "cascadia_stage_row");
CASCADIA_ASSERT(sizeof(cascadia_stage_sequence) == 88 && offsetof(cascadia_stage_sequence, sampling) == 72, "cascadia_stage_sequence");
CASCADIA_ASSERT(sizeof(cascadia_stage_batch) == 104 && offsetof(cascadia_stage_batch, payload) == 88, "cascadia_stage_batch");
CASCADIA_ASSERT(sizeof(cascadia_stage_token) == 80 && offsetof(cascadia_stage_token, top_logprobs) == 56, "cascadia_stage_token");
CASCADIA_ASSERT(sizeof(cascadia_stage_refusal) == 64 && offsetof(cascadia_stage_refusal, message) == 48, "cascadia_stage_refusal");
CASCADIA_ASSERT(sizeof(cascadia_stage_out) == 32 && offsetof(cascadia_stage_out, refuse) == 24, "cascadia_stage_out");
CASCADIA_ASSERT(sizeof(cascadia_stage_info) == 32 && offsetof(cascadia_stage_info, window) == 28, "cascadia_stage_info");
CASCADIA_ASSERT(sizeof(cascadia_stage_v1) == 56 && offsetof(cascadia_stage_v1, abort) == 48, "cascadia_stage_v1");
CASCADIA_ASSERT(sizeof(cascadia_kv_state_out) == 24 && offsetof(cascadia_kv_state_out, chunk) == 16, "cascadia_kv_state_out");
CASCADIA_ASSERT(sizeof(cascadia_kv_state_in) == 32 && offsetof(cascadia_kv_state_in, read) == 24, "cascadia_kv_state_in");
CASCADIA_ASSERT(sizeof(cascadia_kv_state_v1) == 24 && offsetof(cascadia_kv_state_v1, restore) == 16, "cascadia_kv_state_v1");
CASCADIA_ASSERT(sizeof(cascadia_adapter_spec) == 48 && offsetof(cascadia_adapter_spec, reserved) == 44, "cascadia_adapter_spec");
CASCADIA_ASSERT(sizeof(cascadia_adapter_info) == 48 && offsetof(cascadia_adapter_info, flags) == 44, "cascadia_adapter_info");
CASCADIA_ASSERT(sizeof(cascadia_adapters_out) == 16 && offsetof(cascadia_adapters_out, set) == 8, "cascadia_adapters_out");
CASCADIA_ASSERT(sizeof(cascadia_adapters_v1) == 32 && offsetof(cascadia_adapters_v1, list) == 24, "cascadia_adapters_v1");
CASCADIA_ASSERT(sizeof(cascadia_pause_v1) == 24 && offsetof(cascadia_pause_v1, resume) == 16, "cascadia_pause_v1");
CASCADIA_ASSERT(sizeof(cascadia_async_sink_v1) == 16 && offsetof(cascadia_async_sink_v1, attach) == 8, "cascadia_async_sink_v1");
/* generated: end */

#endif
