#include "kernels/kv_layout.h"

namespace millrace {

KvLayerView kv_layer_view(const KvLayout& layout, int64_t layer, std::byte* memory) {
  KvLayerView view;
  view.layout = layout;
  if (memory == nullptr) return view;
  const int64_t rows = layout.layer_block_rows_bytes();
  const int64_t scales = layout.layer_block_scales_bytes();
  view.k = memory + layer * 2 * (rows + scales);
  view.v = view.k + rows;
  if (layout.has_scales()) {
    view.k_scale = reinterpret_cast<float*>(view.v + rows);
    view.v_scale = reinterpret_cast<float*>(view.v + rows + scales);
  }
  return view;
}

}  // namespace millrace
