#include "tensor/mla_layout.h"

namespace millrace {

MlaLayout MlaLayout::make(const MlaLayout& sizes, const std::vector<uint8_t>& has_indexer) {
  MlaLayout layout = sizes;
  layout.layers.clear();
  layout.block_bytes = 0;
  const auto reserve = [&layout](int64_t bytes) {
    const int64_t begin = layout.block_bytes;
    layout.block_bytes += (bytes + 63) / 64 * 64;
    return begin;
  };
  const int64_t positions = layout.block_size;
  for (const uint8_t indexed : has_indexer) {
    MlaLayerPlaces places;
    places.rows = reserve(positions * layout.row_size() * size_of(layout.dtype));
    if (layout.dtype == DType::kI8) {
      places.row_scales = reserve(positions * 2 * int64_t{sizeof(float)});
    }
    if (indexed != 0) {
      places.index_keys = reserve(positions * layout.index_dim * size_of(layout.index_dtype));
      if (layout.index_dtype == DType::kI8) {
        places.index_scales = reserve(positions * int64_t{sizeof(float)});
      }
    }
    layout.layers.push_back(places);
  }
  return layout;
}

}  // namespace millrace
