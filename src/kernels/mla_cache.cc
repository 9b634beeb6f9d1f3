#include "kernels/mla_cache.h"

#include "tensor/mla_layout.h"

namespace millrace {

MlaLayerView mla_layer_view(const MlaLayout& layout, int64_t layer, std::byte* memory) {
  MlaLayerView view;
  view.dtype = layout.dtype;
  view.index_dtype = layout.index_dtype;
  view.block_size = layout.block_size;
  view.latent = layout.latent;
  view.rope = layout.rope;
  view.index_dim = layout.index_dim;
  view.block_stride = layout.block_bytes;
  if (memory == nullptr) return view;
  const MlaLayerPlaces& places = layout.layers[static_cast<size_t>(layer)];
  const auto at = [memory](int64_t place) { return place < 0 ? nullptr : memory + place; };
  view.rows = at(places.rows);
  view.row_scales = at(places.row_scales);
  view.index_keys = at(places.index_keys);
  view.index_scales = at(places.index_scales);
  return view;
}

}  // namespace millrace
