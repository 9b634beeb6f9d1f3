// How latent attention uses its scratch memory; one place for the size and for the pointers.
//
// Files of every instruction set include this: plain types and always-inline functions only.
#pragma once

#include <cstdint>

#include "kernels/attention_mla.h"

namespace millrace {

// Nodes of the merge tree that are live at once: a leaf, and at most one subtree for each level.
inline constexpr int kMlaNodes = 5;
// Most tiles of a leaf whose weighted rows are added in one go. (On Zen 4 from 3 to 10 are equally
// fast, 1 costs 5%.)
inline constexpr int kMlaTiles = 4;

// Places in floats from the start.
struct MlaScratch {
  int64_t tile_floats = 0;  // of an expanded tile, at most
  int64_t q_floats = 0;     // of a group's queries, at most
  int64_t node_floats = 0;  // of a node's acc, all groups
  int64_t q = 0;            // [groups][q_floats]
  int64_t tiles = 0;        // [kMlaTiles][tile_floats]
  int64_t rows = 0;         // of one tile, 16 bits an element, where scores do not read tiles
  int64_t scores = 0;       // [groups][kMlaTiles][16 entries][16]
  int64_t factors = 0;      // [groups][kMlaTiles][16]
  int64_t nodes = 0;        // [kMlaNodes][node_floats]
  int64_t total = 0;
};

[[gnu::always_inline]] inline constexpr MlaScratch mla_scratch(int64_t latent, int64_t rope,
                                                               int num_heads) {
  const int64_t groups = (num_heads + kMlaLanes - 1) / kMlaLanes;
  const int64_t width = (latent + rope + 31) / 32 * 32;
  MlaScratch s;
  s.tile_floats = width * 16;
  s.q_floats = width * kMlaLanes;
  s.node_floats = groups * ((latent + 15) / 16 * 16) * kMlaLanes;
  s.tiles = s.q + groups * s.q_floats;
  s.rows = s.tiles + kMlaTiles * s.tile_floats;
  s.scores = s.rows + width * 8;
  s.factors = s.scores + groups * kMlaTiles * 16 * kMlaLanes;
  s.nodes = s.factors + groups * kMlaTiles * kMlaLanes;
  s.total = s.nodes + kMlaNodes * s.node_floats;
  return s;
}

}  // namespace millrace
