// Arguments, other than tensors, of the OpTable's recommender operations: lookups in embedding tables, their
// order by row, and the update of touched rows. All are views; callers must keep the memory, and the lists of
// views, until the stream has executed the operation.
//
// An embedding bag is the (weighted) sum of some rows of a table (Naumov et al., arXiv 1906.00091). Bags of a
// table are given in the usual form: the `ids` of all bags one after another, and `offsets`, such that bag b
// contains ids [offsets[b], offsets[b + 1]). Ids are relative to the first row on this rank; they must
// be below the rows of the table, which operations do not check.
//
// Backward needs the same lookups sorted by row: the gradients of a row's duplicates are summed first, in the order of
// the bags, and then the row is updated once. Rows are independent, so the result does not depend on threads.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace trifold {

// Bags of one table, or of this rank's part of it.
struct BagLookup {
  Tensor table;        // [rows, D]
  Tensor ids;          // [n] i32
  Tensor offsets;      // [B + 1] i32
  Tensor weights;      // [n] f32, or no memory: all 1
  int64_t column = 0;  // the first of the D columns of the output that receive a bag's sum
};

// The n lookups of one table, sorted by row. The first `count` entries of `row` are the touched rows, ascending.
// Lookups [begin[s], begin[s + 1]) look up row[s]: lookup i is in bag[i], ascending, with weight[i].
struct LookupOrder {
  int64_t rows = 0;  // rows of the table, the limit of ids
  Tensor row;        // [n] i32
  Tensor begin;      // [n + 1] i32
  Tensor bag;        // [n] i32
  Tensor weight;     // [n] f32, or no memory: all 1
  Tensor count;      // [1] i64
  Tensor scratch;    // [2 n] i64, for sort_lookups
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
// FTRL in the paper starts with p = z = 0. For other initial weights, z is set to -beta / alpha p at the first gradient
// other than 0 (n is 0 until then); the first step is then gradient descent at the rate alpha / (beta + sqrt(n)). FTRL
// does not use lr.
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
  double alpha = 0.05;  // alpha, beta, l1 and l2: only for Ftrl
  double beta = 1;
  double l1 = 0;
  double l2 = 0;
  Tensor numbers = {};  // see ops/update_rules.h
};

// The tensors of one table's update. The gradient of bag b is in columns [column, column + D) of row b of dy.
struct RowUpdate {
  Tensor table;   // [rows, D]
  Tensor state;   // s, m or z; none for Sgd
  Tensor second;  // v of Adam, n of Ftrl
  const LookupOrder* order = nullptr;
  int64_t column = 0;
  // For RowwiseAdagrad of a table whose columns are sharded, which needs the squares of whole rows: row_squares
  // computes this rank's part, and the caller sums the parts. [n], entry s for row[s]; no memory: rows are whole.
  Tensor squares;
  int64_t whole_width = 0;  // columns of the whole row, if `squares` is given
  // [n] of the table's type: if entry s is 0, row[s] is not updated. No memory: all rows are.
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
