// Scalar reference of the indexer: plain loops, the judge of every instruction set's build. Same
// contracts as indexer.h.
#pragma once

#include <vector>

#include "kernels/indexer.h"

namespace millrace {

// Scores of the positions 0 .. num_computed + token that a token (counted within its sequence's
// queries) sees.
std::vector<float> reference_index_scores(const IndexerArgs& args,
                                          const AttentionSequence& sequence, int token);

// The k best in ascending order: by score, then the lower position; -0 = +0, NaN = -inf. All if
// there are no more than k.
std::vector<int32_t> reference_topk(const std::vector<float>& scores, int k);

// Writes a token's selection (ascending positions) as LeafSelection asks; `row` of args.positions.
void reference_write_selection(const IndexerArgs& args, int64_t row,
                               const std::vector<int32_t>& positions);

// Scores, chooses and writes the selection of all queries of `num_sequences` sequences.
void reference_indexer(const IndexerArgs& args, int num_sequences);

void reference_index_write(const IndexWriteArgs& args, int64_t token_begin, int64_t token_end);

}  // namespace millrace
