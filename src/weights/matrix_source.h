// Where a packed matrix comes from: a stored matrix, or a part of one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "io/checkpoint.h"
#include "tensor/packed_matrix.h"
#include "weights/stored_matrix.h"

namespace millrace {

// Rows of a stored matrix, or of a stack of them ([.., rows, columns], the leading dimensions taken
// together).
struct MatrixSource {
  StoredMatrix stored;
  int64_t row_begin = 0;
  // The matrix is [columns, rows]: its inputs are the stored rows from row_begin on.
  bool transposed = false;
  // The matrix is packed in fp32, whatever is stored.
  bool to_f32 = false;
};

// The packed form of a matrix of n outputs and k inputs from a source; panels stay null. Floats and
// block-FP8 stay what they are also when they are transposed; other formats of blocks become fp32
// then, exactly. Error: the stored format has no form of such a matrix.
Result<PackedMatrix> packed_layout(const MatrixSource& source, int64_t n, int64_t k);

// Packs panels [panel_begin, panel_end) into dst, as pack_panels (tensor/packing.h). Any threads.
void pack_panels(const MatrixSource& source, const PackedMatrix& matrix, int64_t panel_begin,
                 int64_t panel_end, std::byte* dst);

// Lets go of the checkpoint's pages that only panels [panel_begin, panel_end) are made of.
void release_panels(const Checkpoint& checkpoint, const MatrixSource& source,
                    const PackedMatrix& matrix, int64_t panel_begin, int64_t panel_end);
// And those that the whole matrix is made of.
void release_matrix(const Checkpoint& checkpoint, const MatrixSource& source,
                    const PackedMatrix& matrix);

}  // namespace millrace
