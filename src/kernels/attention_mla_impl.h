// Absorbed latent attention over V16, for rows of any kind (attention_mla_tile_impl.h, Rows).
// reference_mla.h is its plain form.
//
// Tiles of 16 entries are taken leaf by leaf. Of each:
//   rows     expanded once for all groups, while the first group's scores are computed; the
//            next tile's rows are fetched meanwhile
//   scores   chains of 16 entries side by side, heads in lanes
//   softmax  every head in its lane: no sum over lanes
// Then, for some tiles of the leaf together so that sums stay in registers:
//   values   chains of 16 elements of the latent side by side, heads in lanes
// and with a leaf's last tiles the merges that it completes, in the same registers.
#pragma once

#include "kernels/attention_mla.h"
#include "kernels/attention_mla_scratch.h"
#include "kernels/attention_mla_tile_impl.h"
#include "kernels/mla_write_impl.h"

namespace millrace {
namespace {

// A subtree of leaves: m and l of each group, acc [groups][padded latent][16].
struct MlaNode {
  float m[kMlaMostGroups][16];
  float l[kMlaMostGroups][16];
  float* acc;
  int leaves;
  bool empty;
};

// One item's view of its work. Nodes are a stack; the one at num_nodes is the open leaf.
struct MlaView {
  MlaScratch places;
  int num_heads = 0;
  int groups = 0;
  int latent = 0;
  int width = 0;
  int latent_blocks = 0;
  float* q = nullptr;  // [groups][q_floats]
  float* tiles = nullptr;
  float* rows = nullptr;
  float* scores = nullptr;
  float* factors = nullptr;
  MlaRunning running[kMlaMostGroups];
  MlaNode nodes[kMlaNodes];
  int num_nodes = 0;
};

MR_INLINE int64_t group_floats(const MlaView& view) {
  return int64_t{view.latent_blocks} * kSquare;
}

void lay_out(const MlaLayerView& cache, int num_heads, std::byte* scratch, MlaView& view) {
  view.places = mla_scratch(cache.latent, cache.rope, num_heads);
  view.num_heads = num_heads;
  view.groups = (num_heads + kMlaLanes - 1) / kMlaLanes;
  view.latent = cache.latent;
  view.width = cache.latent + cache.rope;
  view.latent_blocks = (cache.latent + 15) / 16;
  float* base = reinterpret_cast<float*>(scratch);
  view.q = base + view.places.q;
  view.tiles = base + view.places.tiles;
  view.rows = base + view.places.rows;
  view.scores = base + view.places.scores;
  view.factors = base + view.places.factors;
  for (int i = 0; i < kMlaNodes; ++i) {
    view.nodes[i].acc = base + view.places.nodes + i * view.places.node_floats;
  }
}

MR_INLINE int heads_of_group(const MlaView& view, int group) {
  const int left = view.num_heads - group * kMlaLanes;
  return left < kMlaLanes ? left : kMlaLanes;
}

// Heads side by side become lanes; absent ones are zero, and so are elements beyond the width, up
// to a multiple of 32.
template <typename Rows>
void pack_queries(const float* heads, MlaView& view) {
  const int blocks = (view.width + 31) / 32 * 2;
  for (int group = 0; group < view.groups; ++group) {
    float* to = view.q + group * view.places.q_floats;
    const float* first = heads + int64_t{group} * kMlaLanes * view.width;
    const int count = heads_of_group(view, group);
    for (int block = 0; block < blocks; ++block, to += Rows::kBlock) {
      const int elements = view.width - 16 * block;
      V16 rows[16];
      for (int h = 0; h < 16; ++h) {
        const float* from = first + int64_t{h} * view.width + 16 * block;
        rows[h] = h >= count || elements <= 0 ? zero()
                  : elements >= 16            ? load(from)
                                              : load_first(from, elements);
      }
      transpose16(rows);
      Rows::store_queries(to, rows);
    }
  }
}

// Walks the tiles of a token's lists in leaves [leaf_begin, leaf_end), in order.
class MlaTileWalk {
 public:
  MlaTileWalk(const MlaArgs& args, const MlaItem& item)
      : cache_(args.cache),
        blocks_(args.sequences[item.sequence].block_table),
        row_bytes_(args.cache.row_bytes()),
        leaf_end_(item.leaf_end) {
    const AttentionSequence& sequence = args.sequences[item.sequence];
    const int64_t row = sequence.query_start + item.token;
    visible_ = sequence.num_computed + item.token + 1;
    if (args.selection.positions != nullptr) {
      selected_ = args.selection.positions + row * args.selection.stride;
      leaf_begins_ = args.selection.leaf_begin + 17 * row;
    }
    open_leaf(item.leaf_begin);
  }

  // The next tile; count 0 after the last.
  void take(MlaTile& tile) {
    tile.count = 0;
    while (entry_ == end_) {
      if (leaf_ + 1 >= leaf_end_) return;
      open_leaf(leaf_ + 1);
    }
    tile.leaf = leaf_;
    tile.opens_leaf = entry_ == begin_;
    const int64_t left = end_ - entry_;
    tile.count = left < 16 ? static_cast<int>(left) : 16;
    if (selected_ != nullptr) {
      for (int i = 0; i < tile.count; ++i) set_row(tile, i, selected_[entry_ + i]);
    } else {
      take_run(tile, entry_ * 16 + leaf_ * 16);
    }
    entry_ += tile.count;
    tile.closes_leaf = entry_ == end_;
  }

 private:
  // Dense lists have entry i of leaf j at position (i / 16) * 256 + j * 16 + i % 16.
  void open_leaf(int leaf) {
    leaf_ = leaf;
    if (selected_ != nullptr) {
      begin_ = leaf_begins_[leaf];
      end_ = leaf_begins_[leaf + 1];
    } else {
      const int64_t rest = visible_ % 256 - leaf * 16;
      begin_ = 0;
      end_ = visible_ / 256 * 16 + (rest < 0 ? 0 : rest > 16 ? 16 : rest);
    }
    entry_ = begin_;
  }

  MR_INLINE void set_row(MlaTile& tile, int i, int32_t position) const {
    const auto p = static_cast<uint32_t>(position);
    const auto size = static_cast<uint32_t>(cache_.block_size);
    const int64_t block = blocks_[p / size];
    const int64_t offset = p % size;
    tile.rows[i] = cache_.rows + block * cache_.rows_stride + offset * row_bytes_;
    if (cache_.dtype == DType::kI8) {
      tile.scales[i] = cache_.scales_of_row(block, static_cast<int>(offset));
    }
  }

  // 16 positions from a multiple of 16 are in one block.
  void take_run(MlaTile& tile, int64_t position) const {
    const int64_t block = blocks_[position / cache_.block_size];
    const int offset = static_cast<int>(position % cache_.block_size);
    const std::byte* row = cache_.row(block, offset);
    for (int i = 0; i < tile.count; ++i) {
      tile.rows[i] = row + i * row_bytes_;
      if (cache_.dtype == DType::kI8) tile.scales[i] = cache_.scales_of_row(block, offset + i);
    }
  }

  const MlaLayerView& cache_;
  const int32_t* blocks_;
  int64_t row_bytes_;
  int64_t visible_ = 0;
  const int32_t* selected_ = nullptr;
  const int32_t* leaf_begins_ = nullptr;
  int leaf_ = 0;
  int leaf_end_;
  int64_t begin_ = 0;
  int64_t end_ = 0;
  int64_t entry_ = 0;
};

// m and l of two nodes' parent into m1 and l1, and the factors of their sums.
MR_INLINE void merge_sums(float* m1, float* l1, const float* m2, const float* l2,
                          MlaMergeStep& step) {
  const V16 left = load(m1);
  const V16 right = load(m2);
  const V16 m = max(left, right);
  const V16 c1 = exp(left - m);
  const V16 c2 = exp(right - m);
  store(step.left_factor, c1);
  store(step.right_factor, c2);
  store(m1, m);
  store(l1, fma(load(l2), c2, load(l1) * c1));
}

MR_INLINE void swap_acc(MlaNode& a, MlaNode& b) {
  float* acc = a.acc;
  a.acc = b.acc;
  b.acc = acc;
}

// Merges the top two nodes of the stack into one; an empty one is skipped.
void merge_top(MlaView& view) {
  MlaNode& left = view.nodes[view.num_nodes - 2];
  MlaNode& right = view.nodes[view.num_nodes - 1];
  left.leaves += right.leaves;
  --view.num_nodes;
  if (right.empty) return;
  if (left.empty) {
    swap_acc(left, right);
    __builtin_memcpy(left.m, right.m, sizeof(left.m));
    __builtin_memcpy(left.l, right.l, sizeof(left.l));
    left.empty = false;
    return;
  }
  for (int group = 0; group < view.groups; ++group) {
    MlaMergeStep step{};
    merge_sums(left.m[group], left.l[group], right.m[group], right.l[group], step);
    const V16 c1 = load(step.left_factor);
    const V16 c2 = load(step.right_factor);
    float* acc1 = left.acc + group * group_floats(view);
    const float* acc2 = right.acc + group * group_floats(view);
    for (int64_t i = 0; i < int64_t{view.latent} * kMlaLanes; i += kMlaLanes) {
      store(acc1 + i, fma(load(acc2 + i), c2, load(acc1 + i) * c1));
    }
  }
}

// Puts the node at num_nodes onto the stack and merges what is complete.
void push_node(MlaView& view) {
  ++view.num_nodes;
  while (view.num_nodes >= 2 &&
         view.nodes[view.num_nodes - 1].leaves == view.nodes[view.num_nodes - 2].leaves) {
    merge_top(view);
  }
}

void push_empty(MlaView& view) {
  view.nodes[view.num_nodes].leaves = 1;
  view.nodes[view.num_nodes].empty = true;
  push_node(view);
}

// Tiles of one leaf whose rows are expanded and whose weights are known.
struct MlaBatch {
  int num_tiles = 0;
  int counts[kMlaTiles];
  uint32_t rescale[kMlaMostGroups] = {};  // bit t: some factor of tile t is not 1
  bool opens_leaf = false;
  bool closes_leaf = false;
};

// Takes the closed leaf, whose acc is about to be completed, onto the stack: m, l and the merges
// that it completes, which are left to whoever completes acc. Returns the merges; an empty
// neighbour makes none.
int push_leaf(MlaView& view, MlaMergeStep (*steps)[kMlaNodes]) {
  MlaNode leaf;
  leaf.leaves = 1;
  for (int group = 0; group < view.groups; ++group) {
    __builtin_memcpy(leaf.m[group], view.running[group].m, sizeof(leaf.m[group]));
    store(leaf.l[group], slots_tree(view.running[group]));
  }
  int num_steps = 0;
  while (view.num_nodes > 0 && view.nodes[view.num_nodes - 1].leaves == leaf.leaves) {
    MlaNode& left = view.nodes[--view.num_nodes];
    leaf.leaves *= 2;
    if (left.empty) continue;
    for (int group = 0; group < view.groups; ++group) {
      MlaMergeStep& step = steps[group][num_steps];
      step.left = left.acc + group * group_floats(view);
      merge_sums(left.m[group], left.l[group], leaf.m[group], leaf.l[group], step);
    }
    __builtin_memcpy(leaf.m, left.m, sizeof(leaf.m));
    __builtin_memcpy(leaf.l, left.l, sizeof(leaf.l));
    ++num_steps;
  }
  MlaNode& node = view.nodes[view.num_nodes++];
  __builtin_memcpy(node.m, leaf.m, sizeof(leaf.m));
  __builtin_memcpy(node.l, leaf.l, sizeof(leaf.l));
  node.leaves = leaf.leaves;
  node.empty = false;
  return num_steps;
}

// Adds the batch's weighted rows to the open leaf.
template <typename Rows>
void add_batch(MlaView& view, const MlaBatch& batch) {
  const float* open = batch.opens_leaf ? nullptr : view.nodes[view.num_nodes].acc;
  MlaMergeStep steps[kMlaMostGroups][kMlaNodes];
  const int num_steps = batch.closes_leaf ? push_leaf(view, steps) : 0;
  float* to = view.nodes[batch.closes_leaf ? view.num_nodes - 1 : view.num_nodes].acc;
  MlaValues values[kMlaMostGroups];
  for (int group = 0; group < view.groups; ++group) {
    const int64_t offset = group * group_floats(view);
    MlaValues& v = values[group];
    v.tiles = view.tiles;
    v.tile_stride = view.places.tile_floats;
    v.p = view.scores + group * kMlaTiles * kSquare;
    v.c = view.factors + group * kMlaTiles * kMlaLanes;
    v.rescale = batch.rescale[group];
    v.counts = batch.counts;
    v.num_tiles = batch.num_tiles;
    v.from = open == nullptr ? nullptr : open + offset;
    v.to = to + offset;
    v.steps = steps[group];
    v.num_steps = num_steps;
  }
  for (int block = 0; block < view.latent_blocks; ++block) {
    add_block<Rows, true>(values[0], block);
    for (int group = 1; group < view.groups; ++group) {
      add_block<Rows, false>(values[group], block);
    }
  }
}

// Rows, scores and weights of one tile, the next of the batch.
template <typename Rows>
void score_into_batch(const MlaArgs& args, const MlaTile& tile, const MlaTile& next, MlaView& view,
                      MlaBatch& batch) {
  const int t = batch.num_tiles++;
  const MlaExpansion expansion{.tile = tile,
                               .next = next,
                               .latent = view.latent,
                               .width = view.width,
                               .values = view.tiles + t * view.places.tile_floats,
                               .rows = view.rows};
  const typename Rows::Expander expand(expansion);
  expand.begin();
  for (int group = 0; group < view.groups; ++group) {
    const int64_t at = int64_t{group} * kMlaTiles + t;
    const MlaScores scores{.expansion = expansion,
                           .q = view.q + group * view.places.q_floats,
                           .scale = args.scale,
                           .scores = view.scores + at * kSquare};
    if (group == 0) {
      Rows::score(scores, expand);
    } else {
      Rows::score(scores, NoExpander{});
    }
    const bool grown = weigh_tile(tile.count, tile.opens_leaf, scores.scores,
                                  view.factors + at * kMlaLanes, view.running[group]);
    Rows::pack_weights(tile.count, scores.scores);
    if (grown && !tile.opens_leaf) batch.rescale[group] |= 1u << t;
  }
  batch.counts[t] = tile.count;
  batch.closes_leaf = tile.closes_leaf;
}

// Asks for the rows of an item's first tile; later ones are asked for in time.
template <typename Rows>
void fetch_first(const MlaTile& tile, int width) {
  const int bytes = width * Rows::kElementBytes;
  for (int i = 0; i < tile.count; ++i) {
    for (int at = 0; at < bytes; at += kCacheLine) prefetch_tile(tile.rows[i] + at);
  }
}

template <typename Rows>
void run_tiles(const MlaArgs& args, const MlaItem& item, MlaView& view) {
  MlaTileWalk walk(args, item);
  MlaTile tiles[2];
  walk.take(tiles[0]);
  fetch_first<Rows>(tiles[0], view.width);
  const int64_t row = args.sequences[item.sequence].query_start + item.token;
  pack_queries<Rows>(args.q + row * args.q_stride + int64_t{item.head_begin} * view.width, view);
  int leaf = item.leaf_begin;
  for (int turn = 0; tiles[turn].count > 0;) {
    for (; leaf < tiles[turn].leaf; ++leaf) push_empty(view);
    MlaBatch batch;
    batch.opens_leaf = tiles[turn].opens_leaf;
    while (batch.num_tiles < kMlaTiles && !batch.closes_leaf) {
      walk.take(tiles[turn ^ 1]);
      score_into_batch<Rows>(args, tiles[turn], tiles[turn ^ 1], view, batch);
      turn ^= 1;
    }
    add_batch<Rows>(view, batch);
    if (batch.closes_leaf) ++leaf;
  }
  for (; leaf < item.leaf_end; ++leaf) push_empty(view);
}

// Writes the finished heads: out = acc / l.
void write_heads(const MlaArgs& args, int64_t row, int head_begin, const MlaView& view) {
  const MlaNode& root = view.nodes[0];
  float* out = args.out + row * args.out_stride + int64_t{head_begin} * view.latent;
  for (int group = 0; group < view.groups; ++group) {
    const float* acc = root.acc + group * group_floats(view);
    // A token without any entry has no result: NaN.
    const V16 l = root.empty ? zero() : load(root.l[group]);
    const int count = heads_of_group(view, group);
    for (int block = 0; block < view.latent_blocks; ++block, acc += kSquare) {
      V16 rows[16];
      for (int d = 0; d < 16; ++d) rows[d] = (root.empty ? zero() : load(acc + d * 16)) / l;
      transpose16(rows);
      const int elements = view.latent - 16 * block;
      for (int h = 0; h < count; ++h) {
        float* to = out + (int64_t{group} * kMlaLanes + h) * view.latent + 16 * block;
        if (elements >= 16) {
          store(to, rows[h]);
        } else {
          store_first(to, rows[h], elements);
        }
      }
    }
  }
}

// Leaves the roots of the item's leaves in the workspace; l = 0 says that there is none.
void write_roots(const MlaArgs& args, const MlaItem& item, const MlaView& view) {
  const MlaNode& root = view.nodes[0];
  float* to = args.workspace + item.workspace_offset;
  const int64_t acc_floats = int64_t{view.latent} * kMlaLanes;
  for (int group = 0; group < view.groups; ++group, to += mla_root_floats(view.latent)) {
    if (root.empty) {
      for (int64_t i = 0; i < acc_floats; i += kMlaLanes) store(to + i, zero());
      store(to + acc_floats, set1(kNegativeInfinity));
      store(to + acc_floats + kMlaLanes, zero());
      continue;
    }
    __builtin_memcpy(to, root.acc + group * group_floats(view),
                     static_cast<size_t>(acc_floats) * sizeof(float));
    store(to + acc_floats, load(root.m[group]));
    store(to + acc_floats + kMlaLanes, load(root.l[group]));
  }
}

template <typename Rows>
void run_rows(const MlaArgs& args, const MlaItem& item, std::byte* scratch) {
  MlaView view;
  lay_out(args.cache, item.num_heads, scratch, view);
  run_tiles<Rows>(args, item, view);
  if (item.leaf_end - item.leaf_begin == 16) {
    const int64_t row = args.sequences[item.sequence].query_start + item.token;
    write_heads(args, row, item.head_begin, view);
  } else {
    write_roots(args, item, view);
  }
}

// One part's roots as a node; whether a part is empty is the same for all its heads.
void load_roots(const float* from, MlaView& view) {
  MlaNode& node = view.nodes[view.num_nodes];
  const int64_t acc_floats = int64_t{view.latent} * kMlaLanes;
  node.leaves = 1;
  node.empty = true;
  for (int group = 0; group < view.groups; ++group, from += mla_root_floats(view.latent)) {
    const V16 l = load(from + acc_floats + kMlaLanes);
    // Not 0, or NaN.
    const I16 magnitude = and_bits(as_int(l), set1_int(0x7fffffff));
    if (bits_of(greater(magnitude, zero_int())) != 0) node.empty = false;
    store(node.m[group], load(from + acc_floats));
    store(node.l[group], l);
    __builtin_memcpy(node.acc + group * group_floats(view), from,
                     static_cast<size_t>(acc_floats) * sizeof(float));
  }
}

void merge_parts(const MlaArgs& args, const MlaMerge& merge, std::byte* scratch) {
  MlaView view;
  lay_out(args.cache, merge.num_heads, scratch, view);
  const float* from = args.workspace + merge.workspace_offset;
  for (int part = 0; part < merge.num_parts; ++part) {
    load_roots(from + int64_t{part} * view.groups * mla_root_floats(view.latent), view);
    push_node(view);
  }
  const int64_t row = args.sequences[merge.sequence].query_start + merge.token;
  write_heads(args, row, merge.head_begin, view);
}

}  // namespace
}  // namespace millrace
