// Work over the panels of many matrices, in pieces that threads claim.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/thread_team.h"
#include "tensor/packed_matrix.h"

namespace millrace {

// A run of panels of one of the matrices.
struct PanelPiece {
  size_t matrix = 0;  // index
  int64_t begin = 0;
  int64_t end = 0;
};

// Runs of about 1 MiB.
inline std::vector<PanelPiece> panel_pieces(const std::vector<PackedMatrix*>& matrices) {
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  std::vector<PanelPiece> pieces;
  for (size_t i = 0; i < matrices.size(); ++i) {
    const int64_t panels = matrices[i]->num_panels();
    const int64_t run =
        std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, matrices[i]->panel_bytes()));
    for (int64_t begin = 0; begin < panels; begin += run) {
      pieces.push_back({i, begin, std::min(begin + run, panels)});
    }
  }
  return pieces;
}

// Calls body(piece) for every piece, in any order, on all threads of the team. The body returns
// false to have no more pieces begun.
template <typename Body>
void for_pieces(ThreadTeam& team, const std::vector<PanelPiece>& pieces, const Body& body) {
  std::atomic<size_t> next{0};
  std::atomic<bool> stopped{false};
  team.run([&](int) {
    for (size_t p = next.fetch_add(1); p < pieces.size(); p = next.fetch_add(1)) {
      if (stopped.load(std::memory_order_relaxed)) return;
      if (!body(pieces[p])) stopped.store(true, std::memory_order_relaxed);
    }
  });
}

}  // namespace millrace
