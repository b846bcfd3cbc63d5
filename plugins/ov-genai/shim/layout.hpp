// Where the two structs that we fill and read by offsets have their fields, and the proof that they do.
#pragma once
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>

#include "genai.hpp"
#include "shim.h"

namespace {

using ov::genai::SchedulerConfig;

// Byte offsets in SchedulerConfig and PipelineMetrics; versions are year * 100 + minor, both ends included.
struct Layout {
    int from, to;
    size_t batched_tokens, kv_blocks, cache_size, split_fuse, max_seqs, prefix_caching;
    size_t metrics_cache_bytes;
};

// Found by probing SchedulerConfig::to_string() byte by byte in 2026.2.1, 2026.3.1 and 2026.4.1, which agree, and
// by reading get_metrics(), which gained a float before the cache's size in 2026.3.
constexpr Layout LAYOUTS[] = {
    {202602, 202602, 0, 8, 16, 48, 144, 152, 32},
    {202603, 202604, 0, 8, 16, 48, 144, 152, 40},
};
constexpr std::string_view SUPPORTED = "2026.2 to 2026.4";

int core_version() {
    int year = 0, minor = 0;
    const char* build = ov::get_openvino_version().buildNumber;
    if (std::sscanf(build, "%d.%d", &year, &minor) != 2) return 0;
    return year * 100 + minor;
}

SchedulerConfig fill(const Layout& at, const cgn_scheduler& with) {
    SchedulerConfig config;
    auto set = [&](size_t offset, auto value) { std::memcpy(config.storage + offset, &value, sizeof value); };
    set(at.batched_tokens, with.max_num_batched_tokens);
    set(at.kv_blocks, with.num_kv_blocks);
    set(at.cache_size, with.cache_size);
    set(at.split_fuse, with.dynamic_split_fuse != 0);
    set(at.max_seqs, with.max_num_seqs);
    set(at.prefix_caching, with.enable_prefix_caching != 0);
    return config;
}

// True if the library reads back what the table wrote. A wrong table does not crash: it makes the scheduler
// ignore every request, so it must be found before the first one.
bool reads_back(const Layout& at, const cgn_scheduler& wrote) {
    const std::string text = fill(at, wrote).to_string();
    auto has = [&](std::string_view name, std::string value) {
        return text.find("  " + std::string(name) + ": " + value + "\n") != std::string::npos;
    };
    auto word = [](uint32_t on) { return std::string(on ? "true" : "false"); };
    return has("max_num_batched_tokens", std::to_string(wrote.max_num_batched_tokens)) &&
           has("num_kv_blocks", std::to_string(wrote.num_kv_blocks)) &&
           has("cache_size", std::to_string(wrote.cache_size)) &&
           has("max_num_seqs", std::to_string(wrote.max_num_seqs)) &&
           has("dynamic_split_fuse", word(wrote.dynamic_split_fuse)) &&
           has("enable_prefix_caching", word(wrote.enable_prefix_caching)) &&
           has("use_cache_eviction", "false") && has("use_sparse_attention", "false");
}

// Distinct values, and each flag once alone, so that swapped fields show.
constexpr cgn_scheduler PROBES[] = {{1111, 2222, 3333, 4444, 1, 0}, {5, 6, 7, 8, 0, 1}};

// The last one where the version is none of them and that is allowed.
const Layout* known(int version, bool allow_untested) {
    for (const Layout& each : LAYOUTS)
        if (version >= each.from && version <= each.to) return &each;
    if (!allow_untested)
        throw std::runtime_error("OpenVINO " + std::string(ov::get_openvino_version().buildNumber) +
                                 " is not tested, supported are " + std::string(SUPPORTED));
    return std::end(LAYOUTS) - 1;
}

const Layout& layout(int version, bool allow_untested) {
    const Layout* found = known(version, allow_untested);
    for (const cgn_scheduler& probe : PROBES)
        if (!reads_back(*found, probe))
            throw std::runtime_error("OpenVINO GenAI " + std::string(ov::get_openvino_version().buildNumber) +
                                     " lays out SchedulerConfig in an unknown way, supported are " +
                                     std::string(SUPPORTED));
    return *found;
}

}  // namespace
