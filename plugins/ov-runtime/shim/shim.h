// The C boundary between ffi.rs and shim.cpp; ffi.rs repeats it line by line.
//
// Rules: memory never changes owner. Text goes into the caller's buffer; `len` is what the whole text needs.
// Functions returning int answer -1 after writing `err`. Nothing prints, throws or touches the environment.
// A model's functions are called by one thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>

#pragma GCC visibility push(default)   // the rest is compiled with -fvisibility=hidden

extern "C" {

struct ovr_text {
    char* at;
    size_t cap;
    size_t len;
};

// A device property; OpenVINO reads all of them from text.
struct ovr_property {
    const char* key;
    const char* value;
};

// What a compiled model turned out to be.
struct ovr_facts {
    size_t layers;        // with a cache
    size_t block_tokens;  // positions in a block of the cache
    size_t block_bytes;   // of one block, in all layers
    size_t vocabulary;    // logits in a row
    uint32_t cut;         // 1: logits are computed for the sampled rows only, 0: for all
    uint32_t reserved;
};

// One inference. `ovr_bind` copies the arrays.
struct ovr_batch {
    const int64_t* ids;             // rows
    const int64_t* positions;       // rows
    size_t rows;
    const int32_t* past;            // sequences: positions computed before
    const int32_t* row_begins;      // sequences + 1
    size_t sequences;
    const int32_t* blocks;          // all tables, one after the other
    size_t blocks_count;
    const int32_t* block_begins;    // sequences + 1
    const int64_t* sampled;         // rows whose logits are wanted; may be none
    size_t sampled_count;
    int32_t longest;                // most positions of a sequence, these rows included
    uint32_t reserved;
};

// The caller may write into them until the next `ovr_infer` of the model.
struct ovr_logits {
    float* at;      // `rows` times `columns`
    size_t rows;    // the sampled ones, in their order; all where the model is not cut
    size_t columns;
};

struct ovr_model;

uint32_t ovr_abi();
// The core library's version as year * 100 + minor, its build text into `build`.
int ovr_version(ovr_text* build);
// Refuses a version that is not in the table, unless allowed.
int ovr_check(int allow_untested, ovr_text* err);

// Reads a network, makes its attention paged and compiles it. It has no cache yet.
int ovr_open(const char* xml, const char* device, const ovr_property* properties, size_t count, ovr_model** out,
             ovr_text* err);
void ovr_close(ovr_model* model);
void ovr_read_facts(const ovr_model* model, ovr_facts* out);
// How the device has set a property, into `value`.
int ovr_property_value(ovr_model* model, const char* key, ovr_text* value, ovr_text* err);
// Name of the type that the cache is kept in, into `name`.
void ovr_cache_type(const ovr_model* model, ovr_text* name);
// Makes a cache of so many blocks, all zero; once. Memory is taken as blocks are first written.
int ovr_allocate(ovr_model* model, size_t blocks, ovr_text* err);
int ovr_bind(ovr_model* model, const ovr_batch* batch, ovr_text* err);
// Runs what was bound last.
int ovr_infer(ovr_model* model, ovr_logits* out, ovr_text* err);
// The content of one block to another, in all layers.
int ovr_copy_block(ovr_model* model, size_t from, size_t to, ovr_text* err);
// Types and shapes of a block's caches, in the order in which `ovr_read_rows` gives them, into `form`.
void ovr_cache_form(const ovr_model* model, ovr_text* form);
// Bytes of the first `rows` positions of a block, in all layers, with what the device keeps for the block as a whole.
size_t ovr_rows_bytes(const ovr_model* model, size_t rows);
// The first `rows` positions of a block, and back; `bytes` is what `ovr_rows_bytes` says.
int ovr_read_rows(const ovr_model* model, size_t block, size_t rows, char* to, size_t bytes, ovr_text* err);
int ovr_write_rows(ovr_model* model, size_t block, size_t rows, const char* from, size_t bytes, ovr_text* err);
// Fills a block with a byte, in all layers.
int ovr_fill_block(ovr_model* model, size_t block, unsigned char byte, ovr_text* err);

}  // extern "C"

#pragma GCC visibility pop
