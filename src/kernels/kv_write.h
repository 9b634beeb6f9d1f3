// Writing keys and values of new tokens into the paged cache.
#pragma once

#include <cstdint>

#include "kernels/kv_layout.h"

namespace millrace {

// Token t's rows go to slot_mapping[t] = block * block_size + offset; a negative slot writes
// nothing (padding). Each element is rounded to the cache's type. int8: per row (token and kv head)
// scale = amax / 127, code = nearest even of x / scale, in [-127, 127]; an all-zero row has scale 0
// and codes 0; a row with a NaN or an infinity has a NaN or infinite scale, so that it stays
// visible.
struct KvWriteArgs {
  const float* k = nullptr;  // [tokens][k_stride], kv heads side by side
  int64_t k_stride = 0;
  const float* v = nullptr;  // [tokens][v_stride]
  int64_t v_stride = 0;
  const int64_t* slot_mapping = nullptr;  // [tokens]
  KvLayerView cache;
};

// Writes tokens [token_begin, token_end). Tokens may be shared out among threads.
using KvWriteFunction = void (*)(const KvWriteArgs& args, int64_t token_begin, int64_t token_end);

}  // namespace millrace
