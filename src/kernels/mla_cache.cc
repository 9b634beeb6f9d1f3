#include "kernels/mla_cache.h"

#include "tensor/mla_layout.h"

namespace millrace {

MlaLayerView mla_layer_view(const MlaLayout& layout, int64_t layer, std::byte* memory,
                            int64_t num_blocks) {
  MlaLayerView view;
  view.dtype = layout.dtype;
  view.index_dtype = layout.index_dtype;
  view.block_size = layout.block_size;
  view.latent = layout.latent;
  view.rope = layout.rope;
  view.index_dim = layout.index_dim;
  view.rows_stride = layout.rows_bytes;
  view.index_stride = layout.index_bytes;
  if (memory == nullptr) return view;
  const MlaLayerPlaces& places = layout.layers[static_cast<size_t>(layer)];
  view.rows = memory + places.rows;
  if (places.row_scales >= 0) view.row_scales = memory + places.row_scales;
  if (places.index_array < 0) return view;
  view.index_keys =
      memory + num_blocks * (layout.rows_bytes + places.index_array * layout.index_bytes);
  if (layout.index_scales >= 0) view.index_scales = view.index_keys + layout.index_scales;
  return view;
}

}  // namespace millrace
