// Grouped-query attention over V16 and Wide, compiled once per instruction set by
// attention_gqa_<isa>.cc. reference_attention.h is its plain form.
//
// An item's rows (query tokens x heads of one kv head) share every loaded vector of K and V. Tiles
// of 16 positions are taken leaf by leaf, a few at a time:
//   scores   lanes are positions; for each element of the head one vector of K serves all rows
//   softmax  running maximum and slot sums; reductions over lanes are made for all rows at once
//   values   lanes are elements of the head; one vector of V serves all rows
// Finished leaves go onto a stack and are merged as the tree of 16 leaves asks.
#pragma once

#include "kernels/attention_gqa.h"
#include "kernels/attention_tile_impl.h"

namespace millrace {
namespace {

// Where a prompt has so many queries, other items have just read the same tiles; larger tiles would
// not leave the first-level cache room for a batch of them.
constexpr int kLeastQueriesNear = 32;
constexpr int64_t kMostTileBytesNear = 2048;

// A subtree's m and l (lane r: row r) and acc [rows][padded head_dim].
struct Node {
  float m[16];
  float l[16];
  float* acc;
  int leaves;
  bool empty;  // no tile at all; a row without entries has l = 0
};

// One item's view of its work; rows are padded to kRows by repeating the last one.
struct ItemView {
  int rows = 0;
  int head_dim = 0;
  int padded_dim = 0;
  bool near = false;                      // its tiles are in the second-level cache already
  int64_t last_position[kAttentionRows];  // the last position that row r sees
  float* q = nullptr;                     // [head_dim][kRows]
  float* scores = nullptr;                // [kAttentionTiles][kRows][16]
  float* slots = nullptr;                 // l of the open leaf by slot: [kRows][16]
  float m[16] = {};                       // of the open leaf, lane r: row r
  float* values = nullptr;  // a tile of V in fp32, for head sizes that are no multiple of 16
  Node nodes[kAttentionNodes];
  int num_nodes = 0;
};

// Tiles whose scores are computed together, and what becomes of them.
template <typename Element, int kRows>
struct Batch {
  Tile<Element> tiles[kAttentionTiles];
  int num_tiles = 0;
  int counts[kAttentionTiles][kRows];  // entries that a row sees; never fewer for a later row
  float c[kAttentionTiles][16];        // factors of the sums before the tile, lane r: row r
  uint32_t rescale = 0;                // bit t: some factor of tile t is not 1
  float m[kAttentionTiles][16];        // running maxima after the tile
  float l[kAttentionTiles][16];        // of the leaf that the tile closes
};

// Adds the values of tiles [first, end) of one leaf, all rows seeing all of them.
template <DType kDType, int kRows>
void add_full_tiles(ItemView& item, const Batch<typename CacheType<kDType>::Element, kRows>& batch,
                    const Batch<typename CacheType<kDType>::Element, kRows>& next, int first,
                    int end) {
  ValueRun<typename CacheType<kDType>::Element> run;
  for (int t = first; t < end; ++t) {
    run.v[t - first] = batch.tiles[t].v;
    run.ahead[t - first] = t < next.num_tiles ? next.tiles[t].k : batch.tiles[t].v;
  }
  run.near = item.near;
  run.v_stride = item.head_dim;
  run.p = item.scores + first * kRows * 16;
  run.p_stride = kRows * 16;
  run.c = batch.c[first];
  run.rescale = batch.rescale >> first;
  run.num_tiles = end - first;
  run.fresh = batch.tiles[first].opens_leaf;
  add_values<kDType, kRows>(run, item.nodes[item.num_nodes].acc, item.padded_dim);
}

// Adds the values of one tile, which rows see to different lengths.
template <DType kDType, int kRows>
void add_partial_tile(ItemView& item, const typename CacheType<kDType>::Element* v,
                      int64_t v_stride, int t, const int* counts, const float* c, bool rescale,
                      bool fresh) {
  ValueRun<typename CacheType<kDType>::Element> run;
  run.v[0] = v;
  run.ahead[0] = v;
  run.v_stride = v_stride;
  run.p = item.scores + t * kRows * 16;
  run.p_stride = kRows * 16;
  run.c = c;
  run.rescale = rescale ? 1 : 0;
  run.num_tiles = 1;
  run.fresh = fresh;
  run.counts = counts;
  add_values<kDType, kRows>(run, item.nodes[item.num_nodes].acc, item.padded_dim);
}

// True where l is not 0: also for NaN.
MR_INLINE M16 not_zero(V16 l) {
  return greater(and_bits(as_int(l), set1_int(0x7fffffff)), zero_int());
}

// Merges the top two nodes of the stack into one: m = max, l and acc = fma(right, c2, left * c1);
// an empty side is skipped.
void merge_top(ItemView& item) {
  Node& left = item.nodes[item.num_nodes - 2];
  Node& right = item.nodes[item.num_nodes - 1];
  left.leaves += right.leaves;
  --item.num_nodes;
  if (right.empty) return;
  left.empty = false;
  const V16 m1 = load(left.m);
  const V16 m2 = load(right.m);
  const V16 l1 = load(left.l);
  const V16 l2 = load(right.l);
  const M16 has1 = not_zero(l1);
  const M16 has2 = not_zero(l2);
  const V16 m = select(greater(m1, m2), m1, m2);
  float c1[16];
  float c2[16];
  store(c1, exp(m1 - m));
  store(c2, exp(m2 - m));
  const V16 l = fma(l2, load(c2), l1 * load(c1));
  store(left.m, select(has2, select(has1, m, m2), m1));
  store(left.l, select(has2, select(has1, l, l2), l1));
  const uint32_t rows1 = bits_of(has1);
  const uint32_t rows2 = bits_of(has2);
  for (int r = 0; r < item.rows; ++r) {
    if ((rows2 >> r & 1u) == 0) continue;
    float* acc1 = left.acc + int64_t{r} * item.padded_dim;
    const float* acc2 = right.acc + int64_t{r} * item.padded_dim;
    if ((rows1 >> r & 1u) == 0) {
      for (int d = 0; d < item.padded_dim; d += 16) store(acc1 + d, load(acc2 + d));
      continue;
    }
    const V16 f1 = set1(c1[r]);
    const V16 f2 = set1(c2[r]);
    for (int d = 0; d < item.padded_dim; d += 16) {
      store(acc1 + d, fma(load(acc2 + d), f2, load(acc1 + d) * f1));
    }
  }
}

// Puts the node at num_nodes (a leaf, or a subtree) onto the stack and merges what is complete.
void push_node(ItemView& item, int leaves) {
  item.nodes[item.num_nodes].leaves = leaves;
  ++item.num_nodes;
  while (item.num_nodes >= 2 &&
         item.nodes[item.num_nodes - 1].leaves == item.nodes[item.num_nodes - 2].leaves) {
    merge_top(item);
  }
}

void push_empty(ItemView& item) {
  Node& node = item.nodes[item.num_nodes];
  node.empty = true;
  store(node.m, set1(kNegativeInfinity));
  store(node.l, zero());
  push_node(item, 1);
}

// Where an item's rows are in q, out and the workspace.
MR_INLINE int64_t element_offset(const AttentionSequence& sequence, int token, int64_t stride,
                                 int head, int head_dim) {
  return (sequence.query_start + token) * stride + int64_t{head} * head_dim;
}

// Writes the finished rows: out = round(acc / l).
void write_rows(const AttentionArgs& args, const AttentionItem& work, const ItemView& item) {
  const AttentionSequence& sequence = args.sequences[work.sequence];
  const Node& root = item.nodes[0];
  for (int r = 0; r < item.rows; ++r) {
    float* out =
        args.out + element_offset(sequence, work.token_begin + r / work.num_heads, args.out_stride,
                                  work.head_begin + r % work.num_heads, item.head_dim);
    const float* acc = root.acc + int64_t{r} * item.padded_dim;
    const V16 l = set1(root.l[r]);
    for (int d = 0; d < item.head_dim; d += 16) {
      const V16 result = round_to(args.dtype, load(acc + d) / l);
      const int count = item.head_dim - d;
      if (count >= 16) {
        store(out + d, result);
      } else {
        store_first(out + d, result, count);
      }
    }
  }
}

// Leaves the roots of the item's leaves in the workspace: acc, m, l of each row.
void write_roots(const AttentionArgs& args, const AttentionItem& work, const ItemView& item) {
  const Node& root = item.nodes[0];
  const int64_t floats = attention_root_floats(item.head_dim);
  for (int r = 0; r < item.rows; ++r) {
    float* to = args.workspace + work.workspace_offset + r * floats;
    __builtin_memcpy(to, root.acc + int64_t{r} * item.padded_dim,
                     static_cast<size_t>(item.head_dim) * sizeof(float));
    to[item.head_dim] = root.m[r];
    to[item.head_dim + 1] = root.l[r];
  }
}

// Lays the item's buffers out in the scratch memory; attention_scratch_bytes() counts the same.
ItemView lay_out(int head_dim, std::byte* scratch) {
  ItemView item;
  item.head_dim = head_dim;
  item.padded_dim = (head_dim + 15) / 16 * 16;
  float* next = reinterpret_cast<float*>(scratch);
  const auto take = [&next](int64_t floats) {
    float* taken = next;
    next += floats;
    return taken;
  };
  item.q = take(int64_t{item.padded_dim} * kAttentionRows);
  item.scores = take(kAttentionTiles * kAttentionRows * 16);
  item.slots = take(kAttentionRows * 16);
  item.values = take(int64_t{item.padded_dim} * 16);
  for (Node& node : item.nodes) {
    node.acc = take(int64_t{item.padded_dim} * kAttentionRows);
  }
  return item;
}

template <int kRows>
void pack_queries(const AttentionArgs& args, const AttentionItem& work, ItemView& item) {
  const AttentionSequence& sequence = args.sequences[work.sequence];
  const float* rows[kRows];
  for (int r = 0; r < kRows; ++r) {
    // Rows beyond the item's repeat its last one; nothing of them is written.
    const int row = r < item.rows ? r : item.rows - 1;
    const int token = work.token_begin + row / work.num_heads;
    rows[r] = args.q + element_offset(sequence, token, args.q_stride,
                                      work.head_begin + row % work.num_heads, item.head_dim);
    item.last_position[r] = sequence.num_computed + token;
  }
  float* q = item.q;
  if constexpr (kRows >= kLeastRowsToTranspose) {
    transpose_rows(rows, item.head_dim, kRows, q);
  } else {
    for (int64_t d = 0; d < item.head_dim; ++d, q += kRows) {
      MR_UNROLL(16)
      for (int r = 0; r < kRows; ++r) q[r] = rows[r][d];
    }
  }
}

// Walks the tiles of leaves [leaf, leaf_end) in order.
template <DType kDType>
class TileWalk {
 public:
  using Element = typename CacheType<kDType>::Element;

  TileWalk(const AttentionArgs& args, const AttentionItem& work, int64_t last_position)
      : cache_(args.cache),
        blocks_(args.sequences[work.sequence].block_table),
        kv_head_(work.head_begin / (args.num_heads / args.cache.layout.num_kv_heads)),
        leaf_(work.leaf_begin),
        leaf_end_(work.leaf_end),
        num_groups_(last_position / 16 + 1),
        group_(work.leaf_begin) {}

  // Leaves without tiles are the last ones.
  bool done() const { return leaf_ >= leaf_end_ || leaf_ >= num_groups_; }

  // The first leaf that take() has not finished.
  int next_leaf() const { return leaf_; }

  Tile<Element> take() {
    const KvLayout& layout = cache_.layout;
    const int64_t position = group_ * 16;
    const int64_t block = blocks_[position / layout.block_size];
    const int offset = static_cast<int>(position % layout.block_size);
    const int64_t element = layout.k_group(block, kv_head_, offset);
    const int64_t scale = layout.scale(block, kv_head_, offset);
    Tile<Element> tile;
    tile.k = reinterpret_cast<const Element*>(cache_.k) + element;
    tile.v = reinterpret_cast<const Element*>(cache_.v) + element;
    tile.k_scale = kDType == DType::kI8 ? cache_.k_scale + scale : nullptr;
    tile.v_scale = kDType == DType::kI8 ? cache_.v_scale + scale : nullptr;
    tile.first_position = position;
    tile.opens_leaf = group_ == leaf_;
    group_ += 16;
    tile.closes_leaf = group_ >= num_groups_;
    if (tile.closes_leaf) group_ = ++leaf_;
    return tile;
  }

 private:
  const KvLayerView& cache_;
  const int32_t* blocks_;
  int kv_head_;
  int leaf_;
  int leaf_end_;
  int64_t num_groups_;
  int64_t group_;
};

// Weights, running maxima, factors and, for leaves that close, m and l of a batch with scores.
template <DType kDType, int kRows>
void softmax_batch(const AttentionArgs& args, ItemView& item,
                   Batch<typename CacheType<kDType>::Element, kRows>& batch) {
  constexpr bool kScaled = kDType == DType::kI8;
  V16 largest[kAttentionTiles];
  for (int t = 0; t < batch.num_tiles; ++t) {
    const auto& tile = batch.tiles[t];
    int* counts = batch.counts[t];
    for (int r = 0; r < kRows; ++r) {
      const int64_t visible = item.last_position[r] - tile.first_position + 1;
      counts[r] = visible >= 16 ? 16 : visible < 0 ? 0 : static_cast<int>(visible);
    }
    largest[t] = scale_scores<kScaled, kRows>(args.scale, tile.k_scale, counts,
                                              item.scores + t * kRows * 16);
  }
  batch.rescale = 0;
  V16 m = load(item.m);
  for (int t = 0; t < batch.num_tiles; ++t) {
    if (batch.tiles[t].opens_leaf) m = set1(kNegativeInfinity);
    const V16 before = m;
    m = max(largest[t], before);
    const M16 grown = greater(m, before);
    // Where m has not grown c is exactly 1: also in rows that see nothing yet, whose m is -inf.
    store(batch.c[t], select(grown, exp(before - m), set1(1.0f)));
    store(batch.m[t], m);
    const bool any = (bits_of(grown) & ((1u << kRows) - 1u)) != 0;
    if (any && !batch.tiles[t].opens_leaf) batch.rescale |= 1u << t;
  }
  store(item.m, m);
  for (int t = 0; t < batch.num_tiles; ++t) {
    const auto& tile = batch.tiles[t];
    if (tile.opens_leaf) {
      for (int r = 0; r < kRows; ++r) store(item.slots + r * 16, zero());
    }
    weigh_tile<kScaled, kRows>(batch.m[t], batch.c[t], tile.v_scale, batch.counts[t],
                               item.scores + t * kRows * 16, item.slots);
    if (!tile.closes_leaf) continue;
    V16 slots[kRows];
    MR_UNROLL(16)
    for (int r = 0; r < kRows; ++r) slots[r] = load(item.slots + r * 16);
    store(batch.l[t], reduce_rows<kRows>(slots, AddLanes{}));
  }
}

// Adds one tile's values where the head size is no multiple of 16: from an fp32 copy with padded
// rows.
template <DType kDType, int kRows>
void add_odd_tile(ItemView& item, const Batch<typename CacheType<kDType>::Element, kRows>& batch,
                  int t) {
  const int most = batch.counts[t][kRows - 1];
  for (int i = 0; i < most; ++i) {
    for (int d = 0; d < item.head_dim; ++d) {
      item.values[i * item.padded_dim + d] =
          cache_value<kDType>(batch.tiles[t].v + int64_t{i} * item.head_dim + d);
    }
  }
  add_partial_tile<DType::kF32, kRows>(item, item.values, item.padded_dim, t, batch.counts[t],
                                       batch.c[t], (batch.rescale >> t & 1u) != 0,
                                       batch.tiles[t].opens_leaf);
}

template <DType kDType, int kRows>
void add_batch_values(ItemView& item,
                      const Batch<typename CacheType<kDType>::Element, kRows>& batch,
                      const Batch<typename CacheType<kDType>::Element, kRows>& next) {
  for (int t = 0; t < batch.num_tiles;) {
    // Rows are in order of tokens: if the first row sees all of a tile, all rows do.
    int end = t;
    while (end < batch.num_tiles && batch.counts[end][0] == 16 && item.head_dim % 16 == 0 &&
           (end == t || !batch.tiles[end].opens_leaf)) {
      ++end;
    }
    if (end > t) {
      add_full_tiles<kDType, kRows>(item, batch, next, t, end);
      t = end;
    } else {
      if (item.head_dim % 16 == 0) {
        add_partial_tile<kDType, kRows>(item, batch.tiles[t].v, item.head_dim, t, batch.counts[t],
                                        batch.c[t], (batch.rescale >> t & 1u) != 0,
                                        batch.tiles[t].opens_leaf);
      } else {
        add_odd_tile<kDType, kRows>(item, batch, t);
      }
      ++t;
    }
    if (!batch.tiles[t - 1].closes_leaf) continue;
    Node& node = item.nodes[item.num_nodes];
    node.empty = false;
    store(node.m, load(batch.m[t - 1]));
    store(node.l, load(batch.l[t - 1]));
    push_node(item, 1);
  }
}

template <DType kDType, int kRows>
void run_rows(const AttentionArgs& args, const AttentionItem& work, ItemView& item) {
  pack_queries<kRows>(args, work, item);
  TileWalk<kDType> walk(args, work, item.last_position[kRows - 1]);
  using ItemBatch = Batch<typename CacheType<kDType>::Element, kRows>;
  const auto collect = [&walk](ItemBatch& batch) {
    batch.num_tiles = 0;
    while (batch.num_tiles < kAttentionTiles && !walk.done()) {
      batch.tiles[batch.num_tiles++] = walk.take();
    }
  };
  ItemBatch batches[2];
  collect(batches[0]);
  for (int turn = 0; batches[turn].num_tiles > 0; turn ^= 1) {
    ItemBatch& batch = batches[turn];
    ItemBatch& next = batches[turn ^ 1];
    collect(next);
    score_batch<kDType, kRows>(item.q, item.head_dim, batch.tiles, batch.num_tiles, item.near,
                               item.scores);
    softmax_batch<kDType, kRows>(args, item, batch);
    add_batch_values<kDType, kRows>(item, batch, next);
  }
  for (int leaf = walk.next_leaf(); leaf < work.leaf_end; ++leaf) push_empty(item);
}

template <DType kDType>
void run_typed(const AttentionArgs& args, const AttentionItem& work, ItemView& item) {
  const int rows = item.rows;
  if (rows <= 1) return run_rows<kDType, 1>(args, work, item);
  if constexpr (kHasRegisters) {
    if (rows <= 2) return run_rows<kDType, 2>(args, work, item);
    if (rows <= 3) return run_rows<kDType, 3>(args, work, item);
    if (rows <= 4) return run_rows<kDType, 4>(args, work, item);
    if (rows <= 6) return run_rows<kDType, 6>(args, work, item);
    if (rows <= 8) return run_rows<kDType, 8>(args, work, item);
  } else {
    if (rows <= 4) return run_rows<kDType, 4>(args, work, item);
  }
  run_rows<kDType, 12>(args, work, item);
}

void run_item(const AttentionArgs& args, const AttentionItem& work, std::byte* scratch) {
  const KvLayout& layout = args.cache.layout;
  ItemView item = lay_out(layout.head_dim, scratch);
  item.rows = work.num_tokens * work.num_heads;
  item.near = args.sequences[work.sequence].query_len >= kLeastQueriesNear &&
              int64_t{layout.head_dim} * kKvGroup * size_of(layout.dtype) <= kMostTileBytesNear;
  switch (layout.dtype) {
    case DType::kF16:
      run_typed<DType::kF16>(args, work, item);
      break;
    case DType::kBF16:
      run_typed<DType::kBF16>(args, work, item);
      break;
    case DType::kI8:
      run_typed<DType::kI8>(args, work, item);
      break;
    default:
      run_typed<DType::kF32>(args, work, item);
      break;
  }
  if (work.leaf_end - work.leaf_begin == 16) {
    write_rows(args, work, item);
  } else {
    write_roots(args, work, item);
  }
}

void merge_parts(const AttentionArgs& args, const AttentionMerge& merge, std::byte* scratch) {
  ItemView item = lay_out(args.cache.layout.head_dim, scratch);
  item.rows = merge.num_tokens * merge.num_heads;
  const int64_t floats = attention_root_floats(item.head_dim);
  for (int part = 0; part < merge.num_parts; ++part) {
    Node& node = item.nodes[item.num_nodes];
    store(node.m, set1(kNegativeInfinity));
    store(node.l, zero());
    node.empty = false;
    for (int r = 0; r < item.rows; ++r) {
      const float* from =
          args.workspace + merge.workspace_offset + (int64_t{part} * item.rows + r) * floats;
      __builtin_memcpy(node.acc + int64_t{r} * item.padded_dim, from,
                       static_cast<size_t>(item.head_dim) * sizeof(float));
      node.m[r] = from[item.head_dim];
      node.l[r] = from[item.head_dim + 1];
    }
    push_node(item, 1);
  }
  const AttentionItem rows{merge.sequence, merge.token_begin, merge.num_tokens, merge.head_begin,
                           merge.num_heads};
  write_rows(args, rows, item);
}

constexpr AttentionKernels make_attention_kernels(const char* name) {
  return {name, run_item, merge_parts};
}

}  // namespace
}  // namespace millrace
