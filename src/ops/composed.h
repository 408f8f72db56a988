// Entries for operations that ops.h defines as a sequence of other operations: they call that sequence, for tables
// without fused versions. On the CPU a product takes so long that another pass over its result is negligible.
#pragma once

#include "ops/ops.h"

namespace trifold {

// Table() is the raw table (ops/contract.h) whose entries are called, and to which the composed entries belong.
template <const OpTable& (*Table)()>
struct Composed {
  static void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
    const bool biased = bias.rank() > 0;
    if (biased) Table().fill_rows(stream, y, bias);
    Table().gemm(stream, y, x, false, w, true, 1, biased ? 1 : 0);
  }

  static void affine_add(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias) {
    Table().affine(stream, y, x, w, bias);
    Table().add(stream, y, residual, y);
  }

  static void affine_gelu(Stream& stream, const Forms& y, Tensor z, Tensor x, Tensor w, Tensor bias) {
    Table().affine(stream, z, x, w, bias);
    Table().gelu(stream, y, z);
  }

  static void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
    Table().gemm(stream, dx, dy, false, w, false, 1, beta);
  }

  static void affine_backward_gelu(Stream& stream, Tensor dz, Tensor dy, Tensor w, Tensor z) {
    Table().affine_backward_input(stream, dz, dy, w, 0);
    Table().gelu_backward(stream, dz, dz, z);
  }

  static void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                                     bool accumulate) {
    Table().gemm(stream, dw, dy.rows, true, x.rows, false, 1, accumulate ? 1 : 0);
    if (db.rank() > 0) Table().column_sum(stream, db, dy.rows, accumulate);
  }

  static void layer_norm_backward_add(Stream& stream, Tensor dx, Tensor residual, Tensor dy, Tensor x,
                                      Tensor mean, Tensor rstd, Tensor gain, double gain_offset) {
    Table().layer_norm_backward(stream, dx, dy, x, mean, rstd, gain, gain_offset);
    Table().add(stream, dx, dx, residual);
  }

  static void layer_norm_backward_all(Stream& stream, Tensor dx, Tensor dgain, Tensor dbias, Tensor residual,
                                      Tensor dy, Tensor x, Tensor mean, Tensor rstd, Tensor gain,
                                      bool accumulate, double gain_offset) {
    Table().layer_norm_backward(stream, dx, dy, x, mean, rstd, gain, gain_offset);
    if (residual.rank() > 0) Table().add(stream, dx, dx, residual);
    Table().layer_norm_backward_weight(stream, dgain, dbias, dy, x, mean, rstd, accumulate);
  }

  static void cross_entropy_all(Stream& stream, Tensor dlogits, Tensor max, Tensor sum, Tensor target,
                                Tensor logits, Tensor labels, Tensor weight, const Factor& scale,
                                int64_t first_id, int64_t vocab) {
    Table().softmax_stats(stream, max, sum, target, logits, labels, first_id, vocab);
    Table().cross_entropy_backward(stream, dlogits, logits, max, sum, labels, weight, scale, first_id, vocab);
  }

  static void rms_norm_backward_add(Stream& stream, Tensor dx, Tensor residual, Tensor dy, Tensor x,
                                    Tensor rstd, Tensor gain, double gain_offset) {
    Table().rms_norm_backward(stream, dx, dy, x, rstd, gain, gain_offset);
    Table().add(stream, dx, dx, residual);
  }

  static void rms_norm_backward_all(Stream& stream, Tensor dx, Tensor dgain, Tensor residual, Tensor dy,
                                    Tensor x, Tensor rstd, Tensor gain, bool accumulate, double gain_offset) {
    Table().rms_norm_backward(stream, dx, dy, x, rstd, gain, gain_offset);
    if (residual.rank() > 0) Table().add(stream, dx, dx, residual);
    Table().rms_norm_backward_weight(stream, dgain, dy, x, rstd, accumulate);
  }

  static void activate_choices(Stream& stream, Tensor y, Tensor x, Tensor gates, Tensor row,
                               const ActivationForm& form) {
    activate(Table(), stream, y, x, form);
    Table().gate_rows(stream, y, y, gates, row);
  }

  static void activate_choices_backward(Stream& stream, Tensor dx, Tensor y, Tensor dgates, Tensor dy,
                                        Tensor x, Tensor gates, Tensor row, const ActivationForm& form) {
    activate(Table(), stream, y, x, form);
    Table().gate_rows_backward(stream, dy, dgates, dy, y, gates, row);
    activate_backward(Table(), stream, dx, dy, x, form);
    Table().gate_rows(stream, y, y, gates, row);
  }
};

// Sets the products of linear layers that consist of a product and another pass.
template <const OpTable& (*Table)()>
void add_composed_epilogues(OpTable& ops) {
  ops.affine_add = Composed<Table>::affine_add;
  ops.affine_gelu = Composed<Table>::affine_gelu;
  ops.affine_backward_gelu = Composed<Table>::affine_backward_gelu;
}

// Sets all products of linear layers.
template <const OpTable& (*Table)()>
void add_composed_products(OpTable& ops) {
  ops.affine = Composed<Table>::affine;
  ops.affine_backward_input = Composed<Table>::affine_backward_input;
  ops.affine_backward_weight = Composed<Table>::affine_backward_weight;
  add_composed_epilogues<Table>(ops);
}

// Sets the operations over rows that combine several others.
template <const OpTable& (*Table)()>
void add_composed_rows(OpTable& ops) {
  ops.layer_norm_backward_add = Composed<Table>::layer_norm_backward_add;
  ops.layer_norm_backward_all = Composed<Table>::layer_norm_backward_all;
  ops.rms_norm_backward_add = Composed<Table>::rms_norm_backward_add;
  ops.rms_norm_backward_all = Composed<Table>::rms_norm_backward_all;
  ops.cross_entropy_all = Composed<Table>::cross_entropy_all;
  ops.activate_choices = Composed<Table>::activate_choices;
  ops.activate_choices_backward = Composed<Table>::activate_choices_backward;
}

}  // namespace trifold
