// Cases of graph/steps/products.cpp.
#include "graph_differences.h"

namespace trifold::graph::lowering {

namespace {

// h [b, 2, 3] and k [b, 3, 4], computed from parameters.
const std::string kFactors =
    "p: parameter [3]\n"
    "q: parameter [4]\n"
    "x: data [b, 2, 3]\n"
    "z: data [b, 3, 4]\n"
    "h [b, 2, 3] = mul.Tensor x p\n"
    "k [b, 3, 4] = mul.Tensor z q\n";

Case of_factors(const std::string& name, const std::string& lines) {
  return {name, kFactors + lines + "loss y\n"};
}

}  // namespace

std::vector<Case> product_cases() {
  return {
      of_factors("linear", "w: parameter [4, 3]\nc: parameter [4]\ny [b, 2, 4] = linear h w c\n"),
      of_factors("linear_without_bias", "w: parameter [4, 3]\ny [b, 2, 4] = linear h w\n"),
      of_factors("linear_of_data", "w: parameter [4, 3]\nc: parameter [4]\ny [b, 2, 4] = linear x w c\n"),
      of_factors("linear_frozen", "w: frozen [4, 3]\nc: frozen [4]\ny [b, 2, 4] = linear h w c\n"),
      of_factors("linear_frozen_weight", "w: frozen [4, 3]\nc: parameter [4]\ny [b, 2, 4] = linear h w c\n"),
      of_factors("linear_frozen_bias", "w: parameter [4, 3]\nc: frozen [4]\ny [b, 2, 4] = linear h w c\n"),
      of_factors("linear_bias_of_data", "w: parameter [4, 3]\nc: data [4]\ny [b, 2, 4] = linear h w c\n"),
      of_factors("linear_transposed_weight",
                 "w: parameter [3, 4]\nt [4, 3] = t w\nc: parameter [4]\ny [b, 2, 4] = linear h t c\n"),
      of_factors("linear_square_transposed",
                 "w: parameter [3, 3]\nt [3, 3] = t w\ny [b, 2, 3] = linear h t\n"),
      of_factors("linear_transposed_input",
                 "g [b, 3, 2] = transpose.int h 1 2\nw: parameter [4, 2]\nc: parameter [4]\n"
                 "y [b, 3, 4] = linear g w c\n"),
      // A weight that is a part of a parameter, or computed.
      of_factors("linear_rows_of_parameter",
                 "w: parameter [6, 3]\ns [4, 3] = slice.Tensor w 0 1 5\nc: parameter [4]\n"
                 "y [b, 2, 4] = linear h s c\n"),
      of_factors("linear_columns_of_parameter",
                 "w: parameter [4, 5]\ns [4, 3] = slice.Tensor w 1 2\nc: parameter [4]\n"
                 "y [b, 2, 4] = linear h s c\n"),
      of_factors("linear_first_rows_of_parameter",
                 "w: parameter [6, 3]\ns [4, 3] = slice.Tensor w 0 0 4\ny [b, 2, 4] = linear h s\n"),
      of_factors(
          "linear_view_of_parameter",
          "w: parameter [2, 6]\ns [4, 3] = view w [4, 3]\nc: parameter [4]\ny [b, 2, 4] = linear h s c\n"),
      of_factors("linear_one_of_stacked_parameters",
                 "w: parameter [2, 4, 3]\ns [4, 3] = select.int w 0 1\nc: parameter [4]\n"
                 "y [b, 2, 4] = linear h s c\n"),
      of_factors("linear_computed_weight",
                 "w: parameter [4, 3]\ns [4, 3] = exp w\nc: parameter [4]\ny [b, 2, 4] = linear h s c\n"),
      of_factors("linear_weight_of_data", "w: data [4, 3]\nc: parameter [4]\ny [b, 2, 4] = linear h w c\n"),
      of_factors(
          "linear_view_of_bias",
          "w: parameter [4, 3]\nc: parameter [2, 2]\nf [4] = view c [4]\ny [b, 2, 4] = linear h w f\n"),
      // A parameter as the input: backward_input adds to its gradient.
      {"linear_of_parameter",
       "v: parameter [2, 3]\nw: parameter [4, 3]\nc: parameter [4]\ny [2, 4] = linear v w c\nloss y\n"},
      {"linear_of_itself", "w: parameter [3, 3]\ny [3, 3] = linear w w\nloss y\n"},
      // One parameter that several rules use, in both orders.
      of_factors("linear_weight_used_twice",
                 "w: parameter [3, 3]\nc: parameter [3]\ng [b, 2, 3] = linear h w c\ne [b, 2, 3] = sin g\n"
                 "y [b, 2, 3] = linear e w c\n"),
      of_factors("linear_weight_also_in_a_sum",
                 "w: parameter [2, 3]\ng [b, 2, 2] = linear h w\ns [b, 2, 3] = mul.Tensor x w\n"
                 "y [b, 2, 5] = cat {g, s} 2\n"),
      of_factors("linear_weight_in_a_sum_before",
                 "w: parameter [2, 3]\ns [b, 2, 3] = mul.Tensor h w\ny [b, 2, 2] = linear s w\n"),
      of_factors("linear_weight_also_as_a_factor",
                 "w: parameter [3, 3]\ng [b, 2, 3] = linear h w\ne [b, 2, 3] = tanh g\n"
                 "y [b, 2, 3] = matmul e w\n"),
      of_factors("linear_bias_also_in_a_sum",
                 "w: parameter [3, 3]\nc: parameter [3]\ng [b, 2, 3] = linear h w c\n"
                 "y [b, 2, 3] = mul.Tensor g c\n"),
      of_factors("linear_input_used_twice",
                 "w: parameter [3, 3]\nv: parameter [3, 3]\ng [b, 2, 3] = linear h w\n"
                 "f [b, 2, 3] = linear h v\ns [b, 2, 3] = add.Tensor g f\ny [b, 2, 3] = add.Tensor s h\n"),
      of_factors("linear_of_tied_weights",
                 "w: parameter [3, 3]\nv: parameter [3, 3] tied w\ng [b, 2, 3] = linear h w\n"
                 "y [b, 2, 3] = linear g v\n"),

      of_factors("addmm",
                 "w: parameter [3, 4]\nc: parameter [4]\nf [2b, 3] = view h [2b, 3]\n"
                 "y [2b, 4] = addmm c f w\n"),
      of_factors("addmm_transposed_weight",
                 "w: parameter [4, 3]\nt [3, 4] = t w\nc: parameter [4]\n"
                 "f [2b, 3] = view h [2b, 3]\ny [2b, 4] = addmm c f t\n"),
      of_factors("addmm_part_of_parameter",
                 "w: parameter [5, 4]\ns [3, 4] = slice.Tensor w 0 1 4\nc: parameter [4]\n"
                 "f [2b, 3] = view h [2b, 3]\ny [2b, 4] = addmm c f s\n"),
      of_factors("addmm_computed_weight",
                 "w: parameter [3, 4]\ns [3, 4] = exp w\nc: parameter [4]\n"
                 "f [2b, 3] = view h [2b, 3]\ny [2b, 4] = addmm c f s\n"),
      {"addmm_of_parameters",
       "u: parameter [2, 3]\nw: parameter [3, 4]\nc: parameter [4]\n"
       "y [2, 4] = addmm c u w\nloss y\n"},

      of_factors("matmul", "y [b, 2, 4] = matmul h k\n"),
      of_factors("matmul_by_weight", "w: parameter [3, 4]\ny [b, 2, 4] = matmul h w\n"),
      of_factors("matmul_by_transposed_weight",
                 "w: parameter [4, 3]\nt [3, 4] = t w\ny [b, 2, 4] = matmul h t\n"),
      of_factors("matmul_by_part_of_parameter",
                 "w: parameter [3, 6]\ns [3, 4] = slice.Tensor w 1 2\ny [b, 2, 4] = matmul h s\n"),
      of_factors("matmul_of_weight", "w: parameter [5, 3]\ny [b, 5, 4] = matmul w k\n"),
      {"matmul_of_weights", "w: parameter [5, 3]\nv: parameter [3, 4]\ny [5, 4] = matmul w v\nloss y\n"},
      of_factors("matmul_by_itself", "t [b, 3, 2] = transpose.int h 1 2\ny [b, 2, 2] = matmul h t\n"),
      of_factors("matmul_of_squares", "s [b, 3, 3] = slice.Tensor k 2 0 3\ny [b, 3, 3] = matmul s s\n"),
      of_factors("matmul_of_columns", "s [b, 3, 2] = slice.Tensor k 2 0 4 2\ny [b, 2, 2] = matmul h s\n"),
      of_factors("matmul_over_two_axes",
                 "w: parameter [2, 1, 2, 3]\ng [2, b, 2, 4] = matmul w k\ny [2, b, 2, 4] = sin g\n"),
      of_factors("matmul_of_heads",
                 "v: parameter [4]\nd: data [b, 2, 3, 4]\ne [b, 2, 3, 4] = mul.Tensor d v\n"
                 "f [b, 3, 2, 4] = transpose.int e 1 2\ng [b, 3, 4, 2] = transpose.int f 2 3\n"
                 "y [b, 3, 2, 2] = matmul f g\n"),
      of_factors("mm", "f [2b, 3] = view h [2b, 3]\nw: parameter [3, 4]\ny [2b, 4] = mm f w\n"),
      of_factors("mm_of_samples", "f [2b, 3] = view h [2b, 3]\ng [3, 2b] = t f\ny [3, 3] = mm g f\n"),
      of_factors("bmm", "y [b, 2, 4] = bmm h k\n"),
      of_factors("bmm_transposed",
                 "t [b, 4, 3] = transpose.int k 1 2\nu [b, 3, 2] = transpose.int h 1 2\n"
                 "y [b, 4, 2] = bmm t u\n"),
  };
}

}  // namespace trifold::graph::lowering
