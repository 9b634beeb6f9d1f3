#include "kernels/attention_gqa_impl.h"

namespace millrace {

extern const AttentionKernels kAttentionKernelsPortable;
const AttentionKernels kAttentionKernelsPortable = make_attention_kernels("portable");

}  // namespace millrace
