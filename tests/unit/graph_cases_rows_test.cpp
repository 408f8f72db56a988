// Cases of graph/steps/rows.cpp.
#include "graph_differences.h"

namespace trifold::graph::lowering {

namespace {

// h [b, 2, 4], computed from parameters.
const std::string kRows =
    "p: parameter [2, 4]\n"
    "x: data [b, 2, 4]\n"
    "h [b, 2, 4] = mul.Tensor x p\n";

Case of_rows(const std::string& name, const std::string& lines) { return {name, kRows + lines + "loss y\n"}; }

const std::string kTable =
    "e: parameter [5, 3]\n"
    "i: data i64 [b, 2] below 5\n";

Case of_table(const std::string& name, const std::string& lines) {
  return {name, kTable + lines + "loss y\n"};
}

}  // namespace

std::vector<Case> row_cases() {
  return {
      of_rows("layer_norm", "g: parameter [4]\nc: parameter [4]\ny [b, 2, 4] = layer_norm h [4] g c\n"),
      of_rows("layer_norm_eps",
              "g: parameter [4]\nc: parameter [4]\ny [b, 2, 4] = layer_norm h [4] g c 0.5\n"),
      of_rows("layer_norm_gain_only", "g: parameter [4]\ny [b, 2, 4] = layer_norm h [4] g\n"),
      of_rows("layer_norm_bias_only", "c: parameter [4]\ny [b, 2, 4] = layer_norm h [4] - c\n"),
      of_rows("layer_norm_plain", "y [b, 2, 4] = layer_norm h [4]\n"),
      of_rows("layer_norm_frozen_gain",
              "g: frozen [4]\nc: parameter [4]\ny [b, 2, 4] = layer_norm h [4] g c\n"),
      of_rows("layer_norm_gain_of_data", "g: data [4]\nc: data [4]\ny [b, 2, 4] = layer_norm h [4] g c\n"),
      // A gain without a gradient that the block computes: backward reads it.
      of_rows("layer_norm_gain_without_gradient",
              "g: parameter [4]\nt: data [4]\nc bool [4] = gt.Tensor g t\nd [4] = add.Scalar c 0.5\n"
              "k [b, 2, 4] = mul.Tensor h g\ny [b, 2, 4] = layer_norm k [4] d\n"),
      of_rows("layer_norm_of_data",
              "g: parameter [4]\nc: parameter [4]\nn [b, 2, 4] = layer_norm x [4] g c\n"
              "y [b, 2, 4] = mul.Tensor n h\n"),
      of_rows("layer_norm_transposed",
              "t [b, 4, 2] = transpose.int h 1 2\ng: parameter [2]\nc: parameter [2]\n"
              "y [b, 4, 2] = layer_norm t [2] g c 0.1\n"),
      of_rows("layer_norm_of_parameter",
              "g: parameter [4]\nn [2, 4] = layer_norm p [4] g\n"
              "y [b, 2, 4] = mul.Tensor n x\n"),
      of_rows("layer_norm_weights_used_twice",
              "g: parameter [4]\nc: parameter [4]\nn [b, 2, 4] = layer_norm h [4] g c\n"
              "m [b, 2, 4] = mul.Tensor n g\ny [b, 2, 4] = layer_norm m [4] g c\n"),
      of_rows("layer_norm_gain_is_bias", "g: parameter [4]\ny [b, 2, 4] = layer_norm h [4] g g\n"),
      of_rows("rms_norm", "g: parameter [4]\ny [b, 2, 4] = rms_norm h [4] g 0.1\n"),
      of_rows("rms_norm_plain", "y [b, 2, 4] = rms_norm h [4] - 0.01\n"),
      of_rows("rms_norm_without_eps", "g: parameter [4]\ny [b, 2, 4] = rms_norm h [4] g\n"),
      of_rows("rms_norm_frozen_gain", "g: frozen [4]\ny [b, 2, 4] = rms_norm h [4] g 0.1\n"),
      // Spelled out: x rsqrt(mean(x^2) + eps) gain.
      of_rows("rms_norm_spelled_out",
              "g: parameter [4]\ns [b, 2, 4] = pow.Tensor_Scalar h 2\nm [b, 2, 1] = mean.dim s [-1] true\n"
              "a [b, 2, 1] = add.Tensor m 0.1\nr [b, 2, 1] = rsqrt a\nn [b, 2, 4] = mul.Tensor h r\n"
              "y [b, 2, 4] = mul.Tensor g n\n"),
      of_rows("softmax", "y [b, 2, 4] = softmax.int h -1\n"),
      of_rows("softmax_transposed", "t [b, 4, 2] = transpose.int h 1 2\ny [b, 4, 2] = softmax.int t 2\n"),
      of_rows("log_softmax", "y [b, 2, 4] = log_softmax.int h -1\n"),
      of_rows("log_softmax_of_parameter", "l [2, 4] = log_softmax.int p 1\ny [b, 2, 4] = mul.Tensor l x\n"),

      of_table("embedding", "y [b, 2, 3] = embedding e i\n"),
      of_table("embedding_of_part_of_the_ids", "s i64 [b] = select.int i 1 1\ny [b, 3] = embedding e s\n"),
      of_table("embedding_twice",
               "j: data i64 [b, 2] below 5\nu [b, 2, 3] = embedding e i\n"
               "v [b, 2, 3] = embedding e j\ny [b, 2, 3] = mul.Tensor u v\n"),
      of_table("embedding_of_positions",
               "n i64 [5] = arange 5\nu [b, 2, 3] = embedding e i\n"
               "s [5, 3] = embedding e n\nt [2, 3] = slice.Tensor s 0 3\n"
               "y [b, 2, 3] = mul.Tensor u t\n"),
      of_table("embedding_tied_to_a_linear_layer",
               "u [b, 2, 3] = embedding e i\nf [b, 2, 3] = sin u\ny [b, 2, 5] = linear f e\n"),
      of_table(
          "embedding_also_in_a_sum",
          "u [b, 2, 3] = embedding e i\nr [2, 3] = slice.Tensor e 0 1 3\ny [b, 2, 3] = mul.Tensor u r\n"),
      of_table("index_by_ids", "y [b, 2, 3] = index.Tensor e {i}\n"),
      of_table("index_select", "f i64 [2b] = view i [2b]\ny [2b, 3] = index_select e 0 f\n"),

      of_rows("sum", "e [b, 2, 4] = exp h\ny [] = sum e\n"),
      of_rows("sum_of_transposed", "t [b, 4, 2] = transpose.int h 1 2\ny [] = sum t\n"),
      of_rows("sum_of_parameter", "y [] = sum p\n"),
      of_rows("sum_of_sums", "a [] = sum h\ne [b, 2, 4] = exp h\nc [] = sum e\ny [] = mul.Tensor a c\n"),
      of_rows("mean", "e [b, 2, 4] = exp h\ny [] = mean e\n"),
      of_rows("mean_used_again", "m [] = mean h\ne [b, 2, 4] = mul.Tensor h m\ny [b, 2, 4] = exp e\n"),
      of_rows("sum_dim", "y [b, 4] = sum.dim_IntList h [1]\n"),
      of_rows("sum_dim_kept", "s [b, 1, 4] = sum.dim_IntList h [1] true\ny [b, 2, 4] = mul.Tensor h s\n"),
      of_rows("sum_dims", "y [2] = sum.dim_IntList h [0, -1]\n"),
      of_rows("sum_samples", "y [2, 4] = sum.dim_IntList h [0]\n"),
      of_rows("mean_dim", "y [b, 2] = mean.dim h [-1]\n"),
      of_rows("mean_dim_kept", "s [b, 1, 1] = mean.dim h [1, 2] true\ny [b, 2, 4] = sub.Tensor h s\n"),
      of_rows("mean_samples",
              "s [1, 2, 4] = mean.dim h [0] true\nd [b, 2, 4] = sub.Tensor h s\n"
              "y [b, 2, 4] = exp d\n"),
      of_rows("mean_of_slice", "t [b, 2, 2] = slice.Tensor h 2 0 4 2\ny [b, 2] = mean.dim t [2]\n"),
  };
}

}  // namespace trifold::graph::lowering
