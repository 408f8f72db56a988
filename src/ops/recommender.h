// The arguments of the OpTable's recommender operations besides tensors: lookups in embedding tables, their
// order by row, and the update of touched rows. All are views; callers must keep the memory, and the lists of
// views, until the stream has passed the operation.
//
// An embedding bag is the (weighted) sum of some rows of a table (Naumov et al., arXiv 1906.00091). Bags of a
// table are given in the usual form: the `ids` of all bags one after another, and `offsets`, such that bag b
// contains ids [offsets[b], offsets[b + 1]). Ids are relative to the first row that is held here; they must
// be below the rows of the table, which the source of the ids must check.
//
// Backward needs the same lookups by row: duplicates of a row are summed first, in the order of the bags, and
// then the row is updated once. Different rows are independent, so the result does not depend on threads.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace trifold {

// Bags of one table (or of the part of it that is held here).
struct BagLookup {
  Tensor table;        // [rows, D]
  Tensor ids;          // [n] i32
  Tensor offsets;      // [B + 1] i32
  Tensor weights;      // [n] f32, or no memory: all 1
  int64_t column = 0;  // the first column in the output's rows for the D numbers of a bag
};

// The lookups of one table sorted by row. The first `count` entries of `row` are the touched rows, ascending;
// row[s] occurs begin[s + 1] - begin[s] times, in the bags bag[begin[s]..], ascending, with those weights.
struct LookupOrder {
  int64_t rows = 0;  // of the table: the limit of ids
  Tensor row;        // [n] i32
  Tensor begin;      // [n + 1] i32
  Tensor bag;        // [n] i32
  Tensor weight;     // [n] f32, or no memory: all 1
  Tensor count;      // [1] i64
  Tensor scratch;    // [2 n] i64
};

enum class SparseKind : uint8_t { Sgd, Adagrad, RowwiseAdagrad, Adam, Ftrl };

// One step of a touched row whose gradient, duplicates summed, is g (multiplied by grad_scale first):
//   Sgd             p -= lr g
//   Adagrad         s += g^2;  p -= lr g / (sqrt(s) + eps)                       s [rows, D]
//   RowwiseAdagrad  s += mean over the row of g^2;  p -= lr g / (sqrt(s) + eps)   s [rows]
//   Adam            m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
//                   p -= lr m / (1 - beta1^step) / (sqrt(v / (1 - beta2^step)) + eps)   m, v [rows, D]
//   Ftrl            FTRL-Proximal (McMahan et al., "Ad click prediction: a view from the trenches", KDD 2013):
//                   r = sqrt(n);  n += g^2;  z += g - (sqrt(n) - r) / alpha p;
//                   p = 0 where |z| <= l1, else -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2)   z, n [rows, D]
// The paper's weights begin as 0, and z with them. So that those that begin otherwise are not lost, z begins as
// -beta / alpha p, by which the first step moves p as descent at the rate alpha / (beta + sqrt(n)) does: when the first
// gradient other than 0 arrives (n is 0 until then). lr is not used.
//
// All but Ftrl multiply p by 1 - lr weight_decay first (decoupled weight decay). Rows that no bag touched keep their
// values and their state.
struct SparseRule {
  SparseKind kind = SparseKind::Sgd;
  double lr = 0;
  double eps = 1e-8;
  double beta1 = 0.9;
  double beta2 = 0.999;
  int64_t step = 1;  // counts from 1
  double grad_scale = 1;
  double weight_decay = 0;
  double alpha = 0.05;  // Ftrl: this and the next three
  double beta = 1;
  double l1 = 0;
  double l2 = 0;
  Tensor numbers = {};  // as other rules' (ops/update_rules.h)
};

// The tensors of one table's update. The gradient of bag b is in columns [column, column + D) of row b of dy.
struct RowUpdate {
  Tensor table;   // [rows, D]
  Tensor state;   // s, m or z; none for Sgd
  Tensor second;  // v of Adam, n of Ftrl
  const LookupOrder* order = nullptr;
  int64_t column = 0;
  // For a row whose columns are cut over ranks: RowwiseAdagrad needs the squares of the whole row.
  // row_squares computes this rank's part, and the caller sums the parts. [n], entry s for row[s]; no memory:
  // the row is whole.
  Tensor squares;
  int64_t whole_width = 0;  // columns of the whole row, if `squares` is given
  // [n] of the table's type: if entry s is 0, row[s] counts as not touched. No memory: all rows are touched.
  Tensor touched = {};
};

// Copies columns [from, from + width) of every row of one matrix to columns [to, to + width) of another.
struct ColumnCopy {
  int64_t to = 0;
  int64_t from = 0;
  int64_t width = 0;
  bool add = false;  // adds to the previous content
  Tensor row_scale;  // [R] of the matrices' type: row r is multiplied by row_scale[r]; no memory: 1
};
inline ColumnCopy column_copy(int64_t to, int64_t from, int64_t width, bool add = false) {
  return {to, from, width, add, {}};
}

// Loss of a click's logit z against its label y in [0, 1]:
//   Logistic  max(z, 0) - z y + log(1 + exp(-|z|)), the cross entropy of p = 1 / (1 + exp(-z))
//   Squared   (p - y)^2
enum class ClickLoss : uint8_t { Logistic, Squared };

}  // namespace trifold
