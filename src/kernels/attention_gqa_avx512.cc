#include "kernels/attention_gqa_impl.h"

namespace millrace {

extern const AttentionKernels kAttentionKernelsAvx512;
const AttentionKernels kAttentionKernelsAvx512 = make_attention_kernels("avx512");

}  // namespace millrace
