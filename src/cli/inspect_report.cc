#include "cli/inspect_report.h"

#include <algorithm>

#include "config/engine_config.h"
#include "io/checkpoint_config.h"
#include "text/text_model.h"
#include "weights/checkpoint_sizes.h"
#include "weights/dummy_weights.h"
#include "weights/model_weights.h"
#include "weights/weights_plan.h"

namespace millrace {
namespace {

// The text side, as the commands that run the model see it.
void describe_text(const Checkpoint& checkpoint, InspectReport& report) {
  const Gguf* gguf = checkpoint.gguf();
  const auto text =
      gguf ? TextModel::from_gguf(gguf->metadata()) : TextModel::open(checkpoint.folder());
  if (!text) {
    report.tokenizer = "none: " + text.error().message;
    return;
  }
  report.tokenizer =
      fmt::format("{}, {} tokens", text->source(), text->tokenizer().vocabulary_size());
  report.chat_template = text->has_chat_template();
  report.end_tokens = text->end_ids();
}

void describe_files(const Checkpoint& checkpoint, InspectReport& report) {
  report.path = checkpoint.path();
  int files = 0;
  for (const auto& [name, tensor] : checkpoint.tensors()) files = std::max(files, tensor.file + 1);
  const std::string count = fmt::format("{} file{}", files, files == 1 ? "" : "s");
  report.has_weights = files > 0;
  if (const Gguf* gguf = checkpoint.gguf()) {
    report.kind = fmt::format("GGUF v{}, {}", gguf->version(), files > 0 ? count : "no weights");
  } else if (files == 0) {
    report.kind = "config.json, no weights";
  } else {
    report.kind = "safetensors, " + count;
  }
}

std::string human_bytes(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= 0x1p30) return fmt::format("{:.2f} GiB", value / 0x1p30);
  if (value >= 0x1p20) return fmt::format("{:.1f} MiB", value / 0x1p20);
  return fmt::format("{:.1f} KiB", value / 0x1p10);
}

std::string human_count(int64_t count) {
  const auto value = static_cast<double>(count);
  if (value >= 1e9) return fmt::format("{:.2f} B", value / 1e9);
  if (value >= 1e6) return fmt::format("{:.1f} M", value / 1e6);
  return fmt::format("{}", count);
}

std::string describe_rope(const RopeConfig& rope) {
  std::string text =
      fmt::format("{}, theta {:g}, {} dimensions, {}", name_of(rope.type), rope.theta,
                  rope.rotary_dim, rope.interleaved ? "interleaved" : "half-split");
  if (rope.type != RopeType::kDefault) text += fmt::format(", factor {:g}", rope.factor);
  if (!rope.freq_divisors.empty()) text += ", with frequency divisors";
  return text;
}

void add_line(std::string& text, std::string_view name, std::string_view value) {
  text += fmt::format("{:<20} {}\n", name, value);
}

nlohmann::ordered_json rope_json(const RopeConfig& rope) {
  return {{"type", name_of(rope.type)},
          {"theta", rope.theta},
          {"rotary_dim", rope.rotary_dim},
          {"interleaved", rope.interleaved},
          {"factor", rope.factor},
          {"original_max_position", rope.original_max_position},
          {"attention_factor", rope.attention_factor},
          {"frequency_divisors", rope.freq_divisors.size()}};
}

void describe_weights(const Checkpoint& checkpoint, InspectReport& report) {
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const int64_t parameters = num_parameters(tensor);
    FormatShare& share = report.formats[std::string(tensor.type_name())];
    ++share.tensors;
    share.parameters += parameters;
    share.bytes += static_cast<int64_t>(tensor.bytes.size());
    report.parameters += parameters;
    report.weight_memory_bytes += packed_bytes(tensor);
  }
  report.file_bytes = checkpoint.total_bytes();
  // Exactly, if the checkpoint is whole.
  if (const auto bytes = packed_bytes(checkpoint, report.config)) {
    report.weight_memory_bytes = *bytes;
  } else {
    report.fault = bytes.error().message;
  }
}

// Of the usual formats, the one that the weights are published in first if it is one of floats.
Result<> estimate_weights(InspectReport& report) {
  report.parameters = num_parameters(report.config);
  std::vector<WeightFormat> formats = {WeightFormat::kBF16, WeightFormat::kQ8_0,
                                       WeightFormat::kQ4_0};
  if (report.config.dtype == DType::kF32) formats.front() = WeightFormat::kF32;
  if (report.config.dtype == DType::kF16) formats.front() = WeightFormat::kF16;
  for (const WeightFormat format : formats) {
    MR_ASSIGN(const int64_t bytes, dummy_weight_bytes(report.config, format));
    report.estimates.push_back({std::string(name_of(format)), bytes});
  }
  return {};
}

}  // namespace

Result<InspectReport> inspect(const Checkpoint& checkpoint) {
  InspectReport report;
  MR_ASSIGN(report.config, read_model_config(checkpoint));
  describe_files(checkpoint, report);
  describe_text(checkpoint, report);
  if (report.has_weights) {
    describe_weights(checkpoint, report);
  } else {
    MR_TRY(estimate_weights(report));
  }
  if (!checkpoint.is_gguf()) {
    const auto& quantization = report.config.quantization;
    report.published_format =
        quantization ? name_of(quantization->method) : name_of(report.config.dtype);
  }
  const std::pair<const char*, DType> caches[] = {
      {"f32", DType::kF32}, {"f16", DType::kF16}, {"bf16", DType::kBF16}, {"int8", DType::kI8}};
  for (const auto& [name, dtype] : caches) {
    report.kv.push_back({name, 1000 * kv_bytes_per_token(report.config, {.kv = dtype})});
  }
  return report;
}

namespace {

int64_t count_of(const std::vector<uint8_t>& flags) {
  return std::count(flags.begin(), flags.end(), uint8_t{1});
}

// What sparse models have beside a dense one.
void add_sparse_lines(const ModelConfig& config, std::string& text) {
  if (config.mla) {
    add_line(text, "latent attention",
             fmt::format("latent {}, rotary {}, query {} + {}, values {}, query rank {}",
                         config.mla->kv_lora_rank, config.mla->qk_rope_head_dim,
                         config.mla->qk_nope_head_dim, config.mla->qk_rope_head_dim,
                         config.mla->v_head_dim, config.mla->q_lora_rank));
  }
  if (config.indexer) {
    add_line(text, "sparse attention",
             fmt::format("{} keys, indexers in {} layers, {} heads of {}", config.indexer->topk,
                         count_of(config.indexer->is_full), config.indexer->num_heads,
                         config.indexer->head_dim));
  }
  if (config.moe) {
    add_line(
        text, "experts",
        fmt::format("{} in {} layers, {} per token, of {}; shared: {}", config.moe->num_experts,
                    count_of(config.moe->is_sparse), config.moe->experts_per_token,
                    config.moe->intermediate_size, config.moe->shared_intermediate_size));
  }
}

void add_sparse_json(const ModelConfig& config, nlohmann::ordered_json& json) {
  if (config.mla) {
    json["mla"] = {{"q_lora_rank", config.mla->q_lora_rank},
                   {"kv_lora_rank", config.mla->kv_lora_rank},
                   {"qk_nope_head_dim", config.mla->qk_nope_head_dim},
                   {"qk_rope_head_dim", config.mla->qk_rope_head_dim},
                   {"v_head_dim", config.mla->v_head_dim}};
  }
  if (config.indexer) {
    json["indexer"] = {{"num_heads", config.indexer->num_heads},
                       {"head_dim", config.indexer->head_dim},
                       {"topk", config.indexer->topk},
                       {"full_layers", count_of(config.indexer->is_full)}};
  }
  if (config.moe) {
    json["moe"] = {{"num_experts", config.moe->num_experts},
                   {"experts_per_token", config.moe->experts_per_token},
                   {"intermediate_size", config.moe->intermediate_size},
                   {"shared_intermediate_size", config.moe->shared_intermediate_size},
                   {"sparse_layers", count_of(config.moe->is_sparse)}};
  }
}

// The formats that the file has, or, without weights, what they would take.
void add_weight_lines(const InspectReport& report, std::string& text) {
  if (!report.has_weights) {
    std::string estimates;
    for (const WeightEstimate& estimate : report.estimates) {
      estimates += fmt::format("{}{} {}", estimates.empty() ? "" : ", ", estimate.format,
                               human_bytes(estimate.bytes));
    }
    text += "\nThere are no weights here: what follows is what the configuration asks for.\n";
    if (!report.published_format.empty()) add_line(text, "published in", report.published_format);
    add_line(text, "weights in memory", estimates);
    return;
  }
  text += fmt::format("\n{:<10} {:>8} {:>12} {:>12}\n", "format", "tensors", "parameters", "size");
  for (const auto& [name, share] : report.formats) {
    text += fmt::format("{:<10} {:>8} {:>12} {:>12}\n", name, share.tensors,
                        human_count(share.parameters), human_bytes(share.bytes));
  }
  text += '\n';
  add_line(text, "weights on disk", human_bytes(report.file_bytes));
  add_line(text, "weights in memory", human_bytes(report.weight_memory_bytes));
}

// Likewise.
void add_weight_json(const InspectReport& report, nlohmann::ordered_json& json) {
  json["has_weights"] = report.has_weights;
  if (!report.published_format.empty()) json["published_format"] = report.published_format;
  for (const WeightEstimate& estimate : report.estimates) {
    json["weights_in_memory_bytes_by_format"][estimate.format] = estimate.bytes;
  }
  if (!report.has_weights) return;
  json["weights_on_disk_bytes"] = report.file_bytes;
  json["weights_in_memory_bytes"] = report.weight_memory_bytes;
  if (!report.fault.empty()) json["fault"] = report.fault;
  for (const auto& [name, share] : report.formats) {
    json["formats"][name] = {
        {"tensors", share.tensors}, {"parameters", share.parameters}, {"bytes", share.bytes}};
  }
}

}  // namespace

std::string to_text(const InspectReport& report) {
  const ModelConfig& config = report.config;
  std::string text;
  add_line(text, "model", report.path);
  add_line(text, "files", report.kind);
  add_line(text, "architecture", name_of(config.architecture));
  add_line(text, "parameters", human_count(report.parameters));
  add_line(text, "layers", std::to_string(config.num_layers));
  add_line(text, "hidden size", std::to_string(config.hidden_size));
  add_line(text, "intermediate size", std::to_string(config.intermediate_size));
  add_line(text, "heads",
           fmt::format("{} ({} KV heads, head_dim {})", config.num_heads, config.num_kv_heads,
                       config.head_dim));
  add_sparse_lines(config, text);
  add_line(text, "vocabulary", std::to_string(config.vocab_size));
  add_line(text, "context length", std::to_string(config.max_position_embeddings));
  add_line(text, "RoPE", describe_rope(config.rope));
  add_line(text, "head", config.tie_word_embeddings ? "tied to the embedding" : "its own matrix");
  add_line(text, "tokenizer", report.tokenizer);
  add_line(text, "chat template", report.chat_template ? "yes" : "no");
  add_line(text, "end tokens", fmt::format("{}", fmt::join(report.end_tokens, ", ")));
  add_weight_lines(report, text);
  std::string kv;
  for (const KvCost& cost : report.kv) {
    kv += fmt::format("{}{} {}", kv.empty() ? "" : ", ", cost.dtype,
                      human_bytes(cost.bytes_per_1000_tokens));
  }
  add_line(text, "KV per 1,000 tokens", kv);
  return text;
}

nlohmann::ordered_json to_json(const InspectReport& report) {
  const ModelConfig& config = report.config;
  nlohmann::ordered_json json = {{"model", report.path},
                                 {"files", report.kind},
                                 {"architecture", name_of(config.architecture)},
                                 {"parameters", report.parameters},
                                 {"num_layers", config.num_layers},
                                 {"hidden_size", config.hidden_size},
                                 {"intermediate_size", config.intermediate_size},
                                 {"num_heads", config.num_heads},
                                 {"num_kv_heads", config.num_kv_heads},
                                 {"head_dim", config.head_dim},
                                 {"vocab_size", config.vocab_size},
                                 {"max_position_embeddings", config.max_position_embeddings},
                                 {"tie_word_embeddings", config.tie_word_embeddings},
                                 {"dtype", name_of(config.dtype)},
                                 {"rope", rope_json(config.rope)},
                                 {"tokenizer", report.tokenizer},
                                 {"chat_template", report.chat_template},
                                 {"eos_token_ids", report.end_tokens}};
  add_weight_json(report, json);
  add_sparse_json(config, json);
  for (const KvCost& cost : report.kv) {
    json["kv_bytes_per_1000_tokens"][cost.dtype] = cost.bytes_per_1000_tokens;
  }
  return json;
}

}  // namespace millrace
