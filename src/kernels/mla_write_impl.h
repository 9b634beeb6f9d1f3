// Writing rows of the latent cache, over V16. For files of one instruction set only, like simd.h;
// reference_mla.h has its plain form.
#pragma once

#include "kernels/cache_rows_impl.h"
#include "kernels/mla_cache.h"

namespace millrace {
namespace {

template <DType kDType, typename Element>
void write_mla_part(const float* x, int n, Element* to) {
  Element chunk[16];
  for (int d = 0; d < n; d += 16) {
    const int count = n - d < 16 ? n - d : 16;
    convert_chunk<kDType>(x + d, count, chunk);
    copy_chunk(chunk, count, 1, to + d);
  }
}

template <DType kDType, typename Element>
void write_mla_row(const MlaLayerView& cache, const float* latent, const float* rope_key,
                   std::byte* row) {
  auto* to = reinterpret_cast<Element*>(row);
  write_mla_part<kDType>(latent, cache.latent, to);
  write_mla_part<kDType>(rope_key, cache.rope, to + cache.latent);
}

void write_mla_row_int8(const MlaLayerView& cache, const float* latent, const float* rope_key,
                        std::byte* row, float* scales) {
  auto* to = reinterpret_cast<int8_t*>(row);
  scales[0] = int8_scale(latent, cache.latent);
  scales[1] = int8_scale(rope_key, cache.rope);
  write_int8(latent, cache.latent, scales[0], 1, to);
  write_int8(rope_key, cache.rope, scales[1], 1, to + cache.latent);
}

void write_mla_rows(const MlaWriteArgs& args, int64_t token_begin, int64_t token_end) {
  const MlaLayerView& cache = args.cache;
  for (int64_t token = token_begin; token < token_end; ++token) {
    const int64_t slot = args.slot_mapping[token];
    if (slot < 0) continue;
    const int64_t block = slot / cache.block_size;
    const int offset = static_cast<int>(slot % cache.block_size);
    const float* latent = args.latent + token * args.latent_stride;
    const float* rope_key = args.rope_key + token * args.rope_stride;
    std::byte* row = cache.row(block, offset);
    switch (cache.dtype) {
      case DType::kF16:
        write_mla_row<DType::kF16, uint16_t>(cache, latent, rope_key, row);
        break;
      case DType::kBF16:
        write_mla_row<DType::kBF16, uint16_t>(cache, latent, rope_key, row);
        break;
      case DType::kI8:
        write_mla_row_int8(cache, latent, rope_key, row, cache.scales_of_row(block, offset));
        break;
      default:
        write_mla_row<DType::kF32, float>(cache, latent, rope_key, row);
        break;
    }
  }
}

}  // namespace
}  // namespace millrace
