#include "tensor/mla_layout.h"

#include <algorithm>

namespace millrace {

MlaLayout MlaLayout::make(const MlaLayout& sizes, const std::vector<uint8_t>& has_indexer) {
  MlaLayout layout = sizes;
  layout.layers.clear();
  layout.rows_bytes = 0;
  layout.index_scales = -1;
  layout.index_bytes = 0;
  const auto reserve = [](int64_t& total, int64_t bytes) {
    const int64_t begin = total;
    total += (bytes + 63) / 64 * 64;
    return begin;
  };
  const int64_t positions = layout.block_size;
  if (std::ranges::any_of(has_indexer, [](uint8_t indexed) { return indexed != 0; })) {
    reserve(layout.index_bytes, positions * layout.index_dim * size_of(layout.index_dtype));
    if (layout.index_dtype == DType::kI8) {
      layout.index_scales = reserve(layout.index_bytes, positions * int64_t{sizeof(float)});
    }
  }
  int64_t index_arrays = 0;
  for (const uint8_t indexed : has_indexer) {
    MlaLayerPlaces places;
    places.rows = reserve(layout.rows_bytes, positions * layout.row_size() * size_of(layout.dtype));
    if (layout.dtype == DType::kI8) {
      places.row_scales = reserve(layout.rows_bytes, positions * 2 * int64_t{sizeof(float)});
    }
    if (indexed != 0) places.index_array = index_arrays++;
    layout.layers.push_back(places);
  }
  layout.block_bytes = layout.rows_bytes + index_arrays * layout.index_bytes;
  return layout;
}

}  // namespace millrace
