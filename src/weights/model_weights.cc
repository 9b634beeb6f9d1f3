#include "weights/model_weights.h"

#include <algorithm>
#include <set>

#include "base/log.h"
#include "weights/packer.h"
#include "weights/tensor_names.h"
#include "weights/weights_plan.h"

namespace millrace {
namespace {

// The projection of a layer of multi-token prediction, from hidden state and token: other layers
// have none. Hugging Face and GGUF name it alike.
constexpr std::string_view kDraftProjection = ".eh_proj.";

// Tensors that a checkpoint may hold and that decoding does not use: layers of multi-token
// prediction, and indexers of layers that take another layer's selection.
class Extras {
 public:
  Extras(const ModelConfig& config, NameStyle style, const Checkpoint& checkpoint)
      : config_(config), style_(style) {
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      const bool drafts = name.find(kDraftProjection) != std::string::npos;
      if (const auto layer = drafts ? layer_of(style, name) : std::nullopt) {
        drafting_layers_.insert(*layer);
      }
    }
  }

  // True if `name` is one of them; remembers it for the log.
  bool take(const std::string& name) {
    const std::optional<int64_t> layer = layer_of(style_, name);
    if (!layer) return false;
    const bool may_have_mtp =
        config_.num_mtp_layers > 0 || config_.mla || config_.architecture == Architecture::kGlm4Moe;
    // One layer where the configuration does not say how many; more are a wrong number of layers.
    const int64_t mtp_end = config_.num_layers + std::max(1, config_.num_mtp_layers);
    // A layer that does not draft is one of the decoder's, which num_layers would cut off.
    if (may_have_mtp && *layer >= config_.num_layers && *layer < mtp_end &&
        drafting_layers_.contains(*layer)) {
      mtp_layers_.insert(*layer);
      return true;
    }
    const bool shared = config_.indexer && *layer < config_.num_layers && is_of_indexer(name) &&
                        config_.indexer->is_full[static_cast<size_t>(*layer)] == 0;
    if (shared) indexer_layers_.insert(*layer);
    return shared;
  }

  void log(const std::string& path) const {
    if (mtp_layers_.empty() && indexer_layers_.empty()) return;
    std::string what;
    if (!mtp_layers_.empty()) {
      what = fmt::format("layers of multi-token prediction ({})", fmt::join(mtp_layers_, ", "));
    }
    if (!indexer_layers_.empty()) {
      what += fmt::format("{}indexers of layers that share another's selection ({})",
                          what.empty() ? "" : " and ", fmt::join(indexer_layers_, ", "));
    }
    log::info("{}: not used: {}", path, what);
  }

 private:
  const ModelConfig& config_;
  const NameStyle style_;
  std::set<int64_t> drafting_layers_;
  std::set<int64_t> mtp_layers_;
  std::set<int64_t> indexer_layers_;
};

// GGUF files of a time of transition hold kv_b in one piece and in halves as well.
bool is_repeated_half(const CheckpointTensor& tensor, const ModelConfig& config, NameStyle style) {
  const std::optional<int64_t> layer = layer_of(style, tensor.name);
  return style == NameStyle::kGguf && config.mla && layer &&
         (tensor.name == tensor_name(style, LayerTensor::kKUp, *layer) ||
          tensor.name == tensor_name(style, LayerTensor::kVUp, *layer));
}

// Some writers of GPTQ add a bias of zeros to every matrix.
bool is_empty_bias(const CheckpointTensor& tensor, const ModelConfig& config) {
  return config.quantization && config.quantization->method == QuantizationMethod::kGptq &&
         tensor.name.ends_with(".bias") &&
         std::ranges::all_of(tensor.bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// What the checkpoint holds beside the weights that the packer takes. Error: a bias or norm that
// the configuration does not tell of, which would be left out of the arithmetic.
Result<Extras> find_extras(const Checkpoint& checkpoint, const ModelConfig& config,
                           const Packer& packer) {
  const NameStyle style = packer.style();
  const std::string head = module_name(style, ModelTensor::kHead) + ".";
  Extras extras(config, style, checkpoint);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (packer.takes(tensor) || is_constant(name) || !is_in_decoder(style, name)) continue;
    // Some exports store the tied matrix twice.
    if (config.tie_word_embeddings && name == head + "weight") continue;
    if (extras.take(name) || is_empty_bias(tensor, config) ||
        is_repeated_half(tensor, config, style)) {
      continue;
    }
    return fail(
        "tensor {} is there, but the configuration has no place for it, and without it the model "
        "may compute something else; check {}",
        name,
        checkpoint.is_gguf() ? "the file's architecture and block_count"
                             : "num_hidden_layers, attention_bias and mlp_bias in config.json");
  }
  return extras;
}

// Finds and checks all weights. Errors name the checkpoint and the tensor.
Result<Extras> plan_all(const Checkpoint& checkpoint, const ModelConfig& config, Packer& packer,
                        ModelWeights& weights) {
  if (auto planned = plan_weights(config, packer, weights); !planned) {
    return fail_in(checkpoint.path(), planned.error());
  }
  auto extras = find_extras(checkpoint, config, packer);
  if (!extras) return fail_in(checkpoint.path(), extras.error());
  return extras;
}

}  // namespace

Result<ModelWeights> load_model_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                        ThreadTeam& team, Progress& progress) {
  ModelWeights weights;
  Packer packer(checkpoint, config.quantization);
  MR_ASSIGN(const Extras extras, plan_all(checkpoint, config, packer, weights));
  extras.log(checkpoint.path());
  auto storage = packer.run(team, progress);
  if (!storage) return fail_in(checkpoint.path(), storage.error());
  weights.storage = std::move(*storage);
  if (config.tie_word_embeddings) weights.head = weights.embedding;
  return weights;
}

Result<int64_t> packed_bytes(const Checkpoint& checkpoint, const ModelConfig& config) {
  ModelWeights weights;
  Packer packer(checkpoint, config.quantization);
  MR_TRY(plan_all(checkpoint, config, packer, weights));
  return packer.reserved_bytes();
}

}  // namespace millrace
