// Cases of graph/steps/loss.cpp, and of losses that are rewritten (graph/lower/rewrite.h).
#include "graph_differences.h"

namespace trifold::graph::lowering {

namespace {

// Scores f [2b, 4] of four classes, and labels l [2b]; one of the labels that a batch of 3 has is ignored.
const std::string kScores =
    "p: parameter [2, 4]\n"
    "x: data [b, 2, 4]\n"
    "l: data i64 [2b] = 1 3 0 -100 2 1\n"
    "h [b, 2, 4] = mul.Tensor x p\n"
    "f [2b, 4] = view h [2b, 4]\n";

// The same from a linear layer.
std::string head(const std::string& bias) {
  return "p: parameter [2, 3]\n"
         "x: data [b, 2, 3]\n"
         "l: data i64 [2b] = 1 3 0 -100 2 1\n"
         "w: parameter [4, 3]\n"
         "c: parameter [4]\n"
         "h [b, 2, 3] = mul.Tensor x p\n"
         "s [b, 2, 4] = linear h w" +
         bias + "\nf [2b, 4] = view s [2b, 4]\n";
}

// h and t [b, 2, 4], computed from parameters.
const std::string kPairs =
    "p: parameter [2, 4]\n"
    "v: parameter [4]\n"
    "x: data [b, 2, 4]\n"
    "z: data [b, 2, 4]\n"
    "h [b, 2, 4] = mul.Tensor x p\n"
    "t [b, 2, 4] = mul.Tensor z v\n";

// The loss itself, and a value that a loss is computed from.
Case is_loss(const std::string& name, const std::string& lines) { return {name, lines + "loss y\n"}; }
Case in_loss(const std::string& name, const std::string& lines) {
  return {name, lines + "twice [] = square y\nloss twice\n"};
}

}  // namespace

std::vector<Case> loss_cases() {
  const std::string bias = " c";
  return {
      is_loss("cross_entropy_mean", kScores + "y [] = cross_entropy_loss f l\n"),
      is_loss("cross_entropy_sum", kScores + "y [] = cross_entropy_loss f l - 2\n"),
      in_loss("cross_entropy_mean_squared", kScores + "y [] = cross_entropy_loss f l\n"),
      in_loss("cross_entropy_sum_squared", kScores + "y [] = cross_entropy_loss f l - 2\n"),
      is_loss("cross_entropy_class_weights",
              kScores + "k: data [4] positive\ny [] = cross_entropy_loss f l k\n"),
      is_loss("cross_entropy_ignored_class", kScores + "a i64 [2b] = clamp_min l 0\n"
                                                       "y [] = cross_entropy_loss f a - 1 1\n"),
      is_loss("cross_entropy_of_parameter",
              "w: parameter [2, 4]\nl: data i64 [2] below 4\n"
              "y [] = cross_entropy_loss w l\n"),
      {"cross_entropy_with_count", kScores +
                                       "y [] = cross_entropy_loss f l - 2\nm bool [2b] = ne.Scalar l -100\n"
                                       "n i64 [] = sum m\nloss y\ncount n\n"},
      {"loss_is_a_part", kPairs + "s [2, 4] = sum.dim_IntList h [0]\nr [4] = select.int s 0 1\n"
                                  "y [] = select.int r 0 2\nloss y\n"},
      {"loss_is_a_parameter", "x: data [b]\nw: parameter []\nloss w\n"},
      is_loss("linear_cross_entropy_mean", head(bias) + "y [] = cross_entropy_loss f l\n"),
      is_loss("linear_cross_entropy_sum", head(bias) + "y [] = cross_entropy_loss f l - 2\n"),
      is_loss("linear_cross_entropy_without_bias", head("") + "y [] = cross_entropy_loss f l\n"),
      is_loss("linear_cross_entropy_class_weights",
              head(bias) + "k: data [4] positive\ny [] = cross_entropy_loss f l k\n"),
      in_loss("linear_then_cross_entropy", head(bias) + "y [] = cross_entropy_loss f l\n"),
      is_loss("linear_cross_entropy_of_tied_table",
              "e: parameter [4, 3]\ni: data i64 [b, 2] below 4\nl: data i64 [2b] below 4\n"
              "u [b, 2, 3] = embedding e i\nh [b, 2, 3] = sin u\ns [b, 2, 4] = linear h e\n"
              "f [2b, 4] = view s [2b, 4]\ny [] = cross_entropy_loss f l\n"),
      is_loss("linear_cross_entropy_of_parameter",
              "w: parameter [4, 3]\nv: parameter [2, 3]\nl: data i64 [2] below 4\ns [2, 4] = linear v w\n"
              "y [] = cross_entropy_loss s l\n"),
      is_loss("linear_cross_entropy_frozen",
              "p: parameter [3]\nx: data [2b, 3]\nw: frozen [4, 3]\nl: data i64 [2b] below 4\n"
              "h [2b, 3] = mul.Tensor x p\ns [2b, 4] = linear h w\ny [] = cross_entropy_loss s l\n"),
      is_loss("nll_loss", kScores + "g [2b, 4] = log_softmax.int f 1\ny [] = nll_loss g l\n"),
      is_loss("nll_loss_nd", kScores + "g [2b, 4] = log_softmax.int f -1\ny [] = nll_loss_nd g l - 2\n"),
      is_loss("mse_loss", kPairs + "y [] = mse_loss h t\n"),
      is_loss("mse_loss_sum", kPairs + "y [] = mse_loss h z 2\n"),
      is_loss("mse_loss_each", kPairs + "y [b, 2, 4] = mse_loss h t 0\n"),
      in_loss("mse_loss_squared", kPairs + "y [] = mse_loss h t\n"),
      is_loss("logistic_loss", kPairs + "y [] = binary_cross_entropy_with_logits h z\n"),
      is_loss("logistic_loss_sum", kPairs + "y [] = binary_cross_entropy_with_logits h z - - 2\n"),
      is_loss("logistic_loss_each", kPairs + "y [b, 2, 4] = binary_cross_entropy_with_logits h z - - 0\n"),
      is_loss("logistic_loss_weighted", kPairs + "a: data [4] positive\nk: data [4] positive\n"
                                                 "y [] = binary_cross_entropy_with_logits h z a k\n"),
      // The padding token's row has no gradient in PyTorch, which differences of losses would have: no id is that token.
      is_loss("embedding_padded",
              "e: parameter [5, 3]\ni: data i64 [b, 2] below 4\n"
              "y [b, 2, 3] = embedding e i 4\n"),
      is_loss("gelu_spelled_out",
              kPairs + "a [b, 2, 4] = mul.Tensor h 0.5\nd [b, 2, 4] = div.Tensor h 1.4142135623730951\n"
                       "r [b, 2, 4] = erf d\no [b, 2, 4] = add.Tensor r 1\ny [b, 2, 4] = mul.Tensor a o\n"),
  };
}

}  // namespace trifold::graph::lowering
