// Scalar reference of absorbed latent attention and of its cache write (docs/numerics.md,
// "Attention"): plain loops, one head at a time.
#pragma once

#include <vector>

#include "kernels/attention_mla.h"
#include "kernels/reference_attention.h"

namespace millrace {

// One head of one query token: its absorbed query (latent, then rope elements), the last position
// that it sees, and its row of the selection.
struct MlaQuery {
  const float* q = nullptr;
  int64_t position = 0;
  int64_t row = 0;
};

// Element `d` of a cached row: latent, then rope key. int8: code * scale, rounded once.
float reference_mla_element(const MlaLayerView& cache, int64_t block, int offset, int d);

// The positions of a leaf that the query attends to, ascending: the selected ones, or all that it
// sees.
std::vector<int64_t> reference_mla_list(const MlaArgs& args, const MlaQuery& query, int leaf);

// The state of one leaf; acc has latent elements. Sums of weights as in reference_attention_leaf.
// bf16_class: rows are bf16, of an even number of elements. Scores are chains of dot products of
// pairs of elements with the query rounded to bf16; values, of pairs of a tile's entries with their
// weights rounded to bf16 (and with zeros where the last pair lacks an entry).
AttentionState reference_mla_leaf(const MlaArgs& args, const AttentionSequence& sequence,
                                  const MlaQuery& query, int leaf, bool bf16_class = false);

// Computes all heads of all tokens of the first `num_sequences` sequences into args.out.
void reference_mla(const MlaArgs& args, int num_sequences, bool bf16_class = false);

void reference_mla_write(const MlaWriteArgs& args, int64_t token_begin, int64_t token_end);

}  // namespace millrace
