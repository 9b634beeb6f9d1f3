#include "kernels/attention_gqa_impl.h"

namespace millrace {

extern const AttentionKernels kAttentionKernelsAvx2;
const AttentionKernels kAttentionKernelsAvx2 = make_attention_kernels("avx2");

}  // namespace millrace
