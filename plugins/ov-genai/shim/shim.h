// The C boundary between ffi.rs and shim.cpp; ffi.rs repeats it line by line.
//
// Rules: memory never changes owner. Text goes into the caller's buffer; `len` is what the whole text needs.
// Functions returning int answer -1 after writing `err`. Nothing prints, throws or touches the environment.
// A pipeline's functions are called by one thread at a time, and so are a request's, which may run beside the
// pipeline's: the library locks what the two share.
#pragma once
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)   // the rest is compiled with -fvisibility=hidden

extern "C" {

struct cgn_text {
    char* at;
    size_t cap;
    size_t len;
};

// ov::Any compares types exactly: a count given as int64 is refused where the library reads size_t.
// CGN_GRAMMAR is the library's own configuration of structured output: the text is of the kind that the key names, one
// of json_schema, regex and grammar (EBNF); at most one a request.
enum cgn_kind : uint32_t {
    CGN_BOOL = 0,
    CGN_INT = 1,
    CGN_SIZE = 2,
    CGN_FLOAT = 3,
    CGN_TEXT = 4,
    CGN_IDS = 5,
    CGN_GRAMMAR = 6
};

struct cgn_value {
    const char* key;
    uint32_t kind;        // cgn_kind
    float real;           // CGN_FLOAT
    int64_t integer;      // CGN_BOOL, CGN_INT, CGN_SIZE
    const char* text;     // CGN_TEXT, CGN_GRAMMAR
    const int64_t* ids;   // CGN_IDS, a set: order and repeats are lost
    size_t count;
};

struct cgn_scheduler {
    size_t max_num_batched_tokens;
    size_t num_kv_blocks;   // wins over cache_size; both 0: the cache grows on demand
    size_t cache_size;      // GB
    size_t max_num_seqs;
    uint32_t dynamic_split_fuse;
    uint32_t enable_prefix_caching;
};

// The numbers of ov::genai::GenerationStatus and GenerationFinishReason, equal in all supported versions.
struct cgn_progress {
    size_t count;      // tokens written by this call
    size_t left;       // tokens that did not fit: call again
    int32_t status;    // 0 running, 1 finished, 2 ignored (out of cache), 3 cancelled, 4 stopped
    int32_t reason;    // 0 none, 1 stop, 2 length, 3 tool call
};

struct cgn_metrics {
    size_t requests;             // known to the pipeline after the last step
    size_t scheduled_requests;   // of these, part of the last step
    float cache_usage;           // percent of the blocks that exist now
    float max_cache_usage;
    float step_us;               // duration of the last inference
    uint32_t reserved;
    size_t cache_bytes;          // allocated
};

struct cgn_pipeline;
struct cgn_request;
struct cgn_stateful;
struct cgn_embedder;
struct cgn_words;

uint32_t cgn_abi();
// The core library's version as year * 100 + minor, its build text into `build`.
int cgn_version(cgn_text* build);
// Refuses a version that is not in the table (unless allowed) or whose SchedulerConfig is laid out otherwise.
int cgn_check(int allow_untested, cgn_text* err);
// The library's own reading of a SchedulerConfig that was filled by the table: for a person and for tests.
int cgn_sched_selftest(cgn_text* dump, cgn_text* err);

// With `draft` a second model, a folder with both networks of its tokenizer, proposes tokens; it runs on `draft_device`
// with the same device properties. The main model then needs its tokenizer too.
int cgn_open(const char* path, const char* device, const cgn_scheduler* scheduler, const cgn_value* properties,
             size_t count, const char* draft, const char* draft_device, int allow_untested, cgn_pipeline** out,
             cgn_text* err);
// 1 if the pipeline has a vocabulary, without which it cannot keep to a grammar.
int cgn_has_vocabulary(cgn_pipeline* pipeline, cgn_text* err);
void cgn_close(cgn_pipeline* pipeline);   // requests may outlive it
int cgn_add(cgn_pipeline* pipeline, uint64_t id, const int64_t* ids, size_t count, const cgn_value* settings,
            size_t settings_count, cgn_request** out, cgn_text* err);
int cgn_step(cgn_pipeline* pipeline, cgn_text* err);
int cgn_busy(cgn_pipeline* pipeline, cgn_text* err);   // 1 while a request is unfinished
int cgn_read_metrics(cgn_pipeline* pipeline, cgn_metrics* out, cgn_text* err);

int cgn_poll(cgn_request* request, int64_t* ids, float* logprobs, size_t cap, cgn_progress* out, cgn_text* err);
int cgn_cancel(cgn_request* request, cgn_text* err);   // the pipeline lets go of it in its next step
void cgn_drop(cgn_request* request);                   // at any time; an unfinished one is cancelled

// A model in one piece: its cache is the state of one inference, so one generation runs at a time. Any device, and all
// there is for NPU. Nothing is kept from one generation to the next.
int cgn_stateful_open(const char* path, const char* device, const cgn_value* properties, size_t count,
                      int allow_untested, cgn_stateful** out, cgn_text* err);
// Tokens as they come, on whatever thread the library likes, one call at a time; other than 0 ends the generation, and
// no call comes after the run has returned.
typedef int (*cgn_take)(void* ctx, const int64_t* ids, size_t count);
// A whole generation; returns when it has ended. By one thread at a time.
int cgn_stateful_run(cgn_stateful* pipeline, const int64_t* ids, size_t count, const cgn_value* settings,
                     size_t settings_count, cgn_take take, void* ctx, cgn_text* err);
void cgn_stateful_close(cgn_stateful* pipeline);

// How the states of all tokens become one vector.
enum cgn_pooling : uint32_t { CGN_MEAN = 1, CGN_FIRST = 2, CGN_LAST = 3 };

// A network that embeds: `openvino_model.xml` of `folder`, with an output last_hidden_state. By one thread at a time.
int cgn_embedder_open(const char* folder, const char* device, const cgn_value* properties, size_t count,
                      int allow_untested, cgn_embedder** out, cgn_text* err);
size_t cgn_embedder_dimensions(const cgn_embedder* embedder);
// The vector of one sequence, as long as there are dimensions; at least one id.
int cgn_embedder_run(cgn_embedder* embedder, const int64_t* ids, size_t count, uint32_t pooling, float* vector,
                     cgn_text* err);
void cgn_embedder_close(cgn_embedder* embedder);

// A tokenizer as two OpenVINO networks, openvino_tokenizer.xml and openvino_detokenizer.xml of `folder`; `extension` is
// the library with their operations. Its calls may come from any thread, one at a time each.
int cgn_words_open(const char* folder, const char* extension, cgn_words** out, cgn_text* err);
void cgn_words_close(cgn_words* words);
size_t cgn_words_vocabulary(const cgn_words* words);
void cgn_words_template(const cgn_words* words, cgn_text* text);   // of chats; empty if none
// Ids of special tokens; as many as fit. Answers how many there are.
size_t cgn_words_special(const cgn_words* words, int64_t* ids, size_t cap);
// Ids of a text (UTF-8), with what the network puts in front and behind. `count` is how many there are; where more than
// `cap`, call again.
int cgn_words_encode(cgn_words* words, const char* text, size_t len, int64_t* ids, size_t cap, size_t* count,
                     cgn_text* err);
// The bytes of `rows` rows of `width` ids each, special tokens as their text, broken characters as they are. All of
// them lie one after the other in `bytes`, and `ends` has where each ends; where the last is beyond `cap`, call again.
int cgn_words_decode(cgn_words* words, const int64_t* ids, size_t rows, size_t width, char* bytes, size_t cap,
                     size_t* ends, cgn_text* err);

}  // extern "C"

#pragma GCC visibility pop
