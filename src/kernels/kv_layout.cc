#include "kernels/kv_layout.h"

namespace millrace {
namespace {

constexpr int64_t round_up(int64_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

int64_t kv_layer_bytes(const KvLayout& layout, int64_t num_blocks) {
  return 2 * round_up(num_blocks * layout.block_elements() * layout.element_size()) +
         2 * round_up(num_blocks * layout.block_scales() * int64_t{sizeof(float)});
}

KvLayerView kv_layer_view(const KvLayout& layout, int64_t num_blocks, std::byte* memory) {
  KvLayerView view;
  view.layout = layout;
  if (memory == nullptr) return view;
  const int64_t elements = round_up(num_blocks * layout.block_elements() * layout.element_size());
  const int64_t scales = round_up(num_blocks * layout.block_scales() * int64_t{sizeof(float)});
  view.k = memory;
  view.v = memory + elements;
  if (layout.has_scales()) {
    view.k_scale = reinterpret_cast<float*>(memory + 2 * elements);
    view.v_scale = reinterpret_cast<float*>(memory + 2 * elements + scales);
  }
  return view;
}

}  // namespace millrace
