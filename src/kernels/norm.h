// RMS norm over rows, or over each head of a row; layer norm over rows.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace millrace {

// `num_groups` runs of n elements in each row; strides in elements. One group and group_stride 0
// for an ordinary norm; heads and head_dim for the norm of q and k heads (one weight for all
// heads).
struct RmsNormArgs {
  const float* x = nullptr;  // [rows][x_stride]
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [n]
  float* out = nullptr;           // [rows][out_stride]; may be x
  int64_t out_stride = 0;
  int num_groups = 1;
  int64_t group_stride = 0;  // in x and in out
  int64_t n = 0;
  float eps = 0;
  DType dtype = DType::kF32;
};

// For each run: s = sum of x^2 over 16 slot chains (element i in slot i % 16), added by the tree;
// r = 1 / sqrt(s / n + eps); out = round(round(x * r) * weight), both roundings to `dtype`.
// Source: Zhang, Sennrich 2019; the two roundings are those of the Llama reference.
// Computes rows [row_begin, row_end).
using RmsNormFunction = void (*)(const RmsNormArgs& args, int64_t row_begin, int64_t row_end);

// Layer norm: mean and variance, with a bias. Strides in elements.
struct LayerNormArgs {
  const float* x = nullptr;  // [rows][x_stride]
  int64_t x_stride = 0;
  const float* weight = nullptr;  // [n]
  const float* bias = nullptr;    // [n]
  float* out = nullptr;           // [rows][out_stride]; may be x
  int64_t out_stride = 0;
  int64_t n = 0;
  float eps = 0;
  DType dtype = DType::kF32;
};

// Per row: mean = sum of x / n; d = x - mean; r = 1 / sqrt(sum of d^2 / n + eps), both sums over 16
// slot chains (element i in slot i % 16), added by the tree; out = round(fma(d * r, weight, bias)).
// Computes rows [row_begin, row_end).
using LayerNormFunction = void (*)(const LayerNormArgs& args, int64_t row_begin, int64_t row_end);

}  // namespace millrace
