// What we know of libopenvino_genai's C++ interface. The wheel brings the library without its headers.
//
// Only exported symbols are called. Of the data layouts we rely on, each is stated here with its reason; the one
// that differs between versions, SchedulerConfig, is checked against the library itself before use (shim.cpp).
// Declarations follow OpenVINO GenAI's public API (Apache-2.0); checked with 2026.2.1, 2026.3.1 and 2026.4.1.
#pragma once
#include <filesystem>
#include <memory>
#include <openvino/openvino.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace ov::genai {

enum class GenerationFinishReason { NONE = 0, STOP = 1, LENGTH = 2, TOOL_CALL = 3 };
enum class GenerationStatus { RUNNING = 0, FINISHED = 1, IGNORED = 2, CANCEL = 3, STOP = 4 };

// Opaque. The library constructs it (get_config returns it through a hidden pointer), changes it, destroys it.
// Its real size was 664 to 728 bytes; never put it into a container, whose stride would be ours.
class GenerationConfig {
    alignas(16) unsigned char storage[2048];

public:
    GenerationConfig(const GenerationConfig&);
    ~GenerationConfig();
    void update_generation_config(const ov::AnyMap&);
    void validate() const;
};

// A plain struct that we fill by offsets. Zero means "off" or "unset" for every field that we do not set.
struct SchedulerConfig {
    alignas(16) unsigned char storage[512] = {};
    std::string to_string() const;
};

class Tokenizer;

// Opaque. Made from a map by the library, copied and destroyed by it; its real size was 200 to 400 bytes. ov::Any
// compares types by name, and reads the value through a virtual function of ours, so the slack does no harm.
class StructuredOutputConfig {
    alignas(16) unsigned char storage[1024];

public:
    StructuredOutputConfig(const ov::AnyMap&);
    StructuredOutputConfig(const StructuredOutputConfig&);
    ~StructuredOutputConfig();
    void validate(Tokenizer&) const;
};

// One shared_ptr in all versions; its destructor is the library's.
class Tokenizer {
    std::shared_ptr<void> impl;

public:
    Tokenizer(const Tokenizer&) = default;
    ~Tokenizer();
    const std::vector<std::string>& get_vocab_vector() const;
};

// Names the draft model for a pipeline's properties.
std::pair<std::string, ov::Any> draft_model(const std::filesystem::path& models_path, const std::string& device,
                                            const ov::AnyMap& properties);

// A prefix of the real struct: later versions appended a vector that stays empty for language models.
struct GenerationOutput {
    std::vector<int64_t> generated_ids;
    std::vector<float> generated_log_probs;
    float score;
    GenerationFinishReason finish_reason;
};
using GenerationOutputs = std::unordered_map<uint64_t, GenerationOutput>;

// Only ever behind the library's shared_ptr, so its size does not matter.
class GenerationHandleImpl {
public:
    GenerationStatus get_status();
    bool can_read();
    void cancel();
    GenerationOutputs read();
};
using GenerationHandle = std::shared_ptr<GenerationHandleImpl>;

// Opaque: returned through a hidden pointer, trivially destroyed. Readings of it are in shim.cpp.
struct PipelineMetrics {
    alignas(16) unsigned char storage[256];
    PipelineMetrics(const PipelineMetrics&);   // declared so that the calling convention matches; never called
};

// One shared_ptr in all versions; the slack costs nothing.
class ContinuousBatchingPipeline {
    std::shared_ptr<void> impl;
    unsigned char slack[64];

public:
    ContinuousBatchingPipeline(const std::filesystem::path& models_path, const SchedulerConfig&,
                               const std::string& device, const ov::AnyMap& properties,
                               const ov::AnyMap& tokenizer_properties, const ov::AnyMap& vision_properties);
    GenerationConfig get_config() const;
    Tokenizer get_tokenizer() const;
    PipelineMetrics get_metrics() const;
    GenerationHandle add_request(uint64_t id, const ov::Tensor& ids, const GenerationConfig&);
    void step();
    bool has_non_finished_requests();
};

enum class StreamingStatus { RUNNING = 0, STOP = 1, CANCEL = 2 };

// The library's own vtable has exactly these entries, in this order (read from libopenvino_genai's relocations in
// 2026.2.1, 2026.3.1 and 2026.4.1).
class __attribute__((visibility("default"))) StreamerBase {
public:
    virtual StreamingStatus write(int64_t token) = 0;
    virtual StreamingStatus write(const std::vector<int64_t>& tokens);
    virtual void end() = 0;
    virtual ~StreamerBase();
};

// What a generation came to; only ever destroyed. Its real size was below 700 bytes.
class EncodedResults {
    alignas(16) unsigned char storage[4096];

public:
    EncodedResults(const EncodedResults&);   // declared so that the calling convention matches; never called
    ~EncodedResults();
};

// The other kind of prompt. It grew once, and with it the place of the variant's index; see Prompt.
struct TokenizedInputs;

// A variant of tensor and TokenizedInputs that holds a tensor, wherever its index is: that of the first kind is 0.
class Prompt {
    union {
        ov::Tensor ids;
        alignas(16) unsigned char storage[512];
    };

public:
    explicit Prompt(const ov::Tensor& tensor) : storage{} { new (&ids) ov::Tensor(tensor); }
    Prompt(const Prompt&) = delete;
    ~Prompt() { ids.~Tensor(); }
    const std::variant<ov::Tensor, TokenizedInputs>& view() const {
        return reinterpret_cast<const std::variant<ov::Tensor, TokenizedInputs>&>(storage);
    }
};

// A unique_ptr and, in later versions, the device's name; the slack costs nothing.
class LLMPipeline {
    void* impl;
    unsigned char slack[248];

public:
    LLMPipeline(const std::filesystem::path& models_path, const std::string& device, const ov::AnyMap& properties);
    LLMPipeline(const LLMPipeline&) = delete;
    ~LLMPipeline();
    EncodedResults generate(const std::variant<ov::Tensor, TokenizedInputs>& inputs, const ov::AnyMap& settings);
};

}  // namespace ov::genai
