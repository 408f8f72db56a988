// Cases of graph/lower/decompose.h.
#include "graph_differences.h"

namespace trifold::graph::lowering {

namespace {

// h and g [b, 2, 6], computed from parameters; t [b, 2, 6] is data.
const std::string kTwoValues =
    "w: parameter [2, 6]\n"
    "v: parameter [6]\n"
    "x: data [b, 2, 6]\n"
    "t: data [b, 2, 6]\n"
    "h [b, 2, 6] = mul.Tensor w x\n"
    "g [b, 2, 6] = mul.Tensor t v\n";
// Probabilities p [b, 2, 4] and logarithms of probabilities l; those of q and t [b, 2, 4] are data.
const std::string kProbabilities =
    "w: parameter [2, 4]\n"
    "x: data [b, 2, 4]\n"
    "h [b, 2, 4] = mul.Tensor w x\n"
    "p [b, 2, 4] = sigmoid h\n"
    "l [b, 2, 4] = log_softmax.int h -1\n"
    "z: data [b, 2, 4]\n"
    "t [b, 2, 4] = softmax.int z -1\n"
    "q [b, 2, 4] = log_softmax.int z -1\n";
// Scores f [2b, 4] of four classes, labels i [2b], of which one is ignored, and probabilities s [2b, 4].
const std::string kScoresAndLabels =
    "w: parameter [2, 4]\n"
    "x: data [b, 2, 4]\n"
    "i: data i64 [2b] = 1 3 0 -100 2 1\n"
    "z: data [2b, 4]\n"
    "s [2b, 4] = softmax.int z -1\n"
    "h [b, 2, 4] = mul.Tensor w x\n"
    "f [2b, 4] = view h [2b, 4]\n";

Case decomposed_case(const std::string& text, const std::string& name, const std::string& lines) {
  return {name, text + lines + "loss y\n"};
}
Case sine_of(const std::string& name, const std::string& dims, const std::string& operation) {
  return decomposed_case(kTwoValues, name, "d " + dims + " = " + operation + "\ny " + dims + " = sin d\n");
}

}  // namespace

std::vector<Case> decomposed_cases() {
  return {
      decomposed_case(kTwoValues, "squeeze",
                      "u [b, 1, 2, 1, 6] = view h [b, 1, 2, 1, 6]\nd [b, 2, 6] = squeeze u\n"
                      "y [b, 2, 6] = sin d\n"),
      decomposed_case(kTwoValues, "squeeze_dims",
                      "u [b, 1, 2, 1, 6] = view h [b, 1, 2, 1, 6]\n"
                      "d [b, 2, 6] = squeeze.dims u [1, -2]\ny [b, 2, 6] = sin d\n"),
      sine_of("unflatten", "[b, 2, 3, 2]", "unflatten.int h -1 [3, 2]"),
      sine_of("numpy_T", "[6, 2]", "numpy_T w"),
      sine_of("numpy_T_of_three_axes", "[6, 2, b]", "numpy_T h"),
      sine_of("mT", "[b, 6, 2]", "mT h"),
      decomposed_case(kTwoValues, "broadcast_tensors",
                      "a [b, 2, 6], c [b, 2, 6] = broadcast_tensors {h, v}\n"
                      "y [b, 2, 6] = mul.Tensor a c\n"),
      sine_of("repeat", "[b, 2, 12]", "repeat h [1, 1, 2]"),
      sine_of("repeat_all_axes", "[3, 2b, 4, 12]", "repeat h [3, 2, 2, 2]"),
      sine_of("repeat_of_parameter", "[4, 6]", "repeat w [2, 1]"),
      sine_of("repeat_interleave", "[b, 6, 6]", "repeat_interleave.self_int h 3 1"),
      sine_of("repeat_interleave_last", "[b, 2, 12]", "repeat_interleave.self_int h 2 -1"),
      sine_of("repeat_interleave_samples", "[2b, 2, 6]", "repeat_interleave.self_int h 2 0"),
      sine_of("repeat_interleave_all", "[24]", "repeat_interleave.self_int w 2"),
      decomposed_case(kTwoValues, "baddbmm",
                      "m [b, 6, 2] = transpose.int g 1 2\nc: parameter [2, 2]\n"
                      "y [b, 2, 2] = baddbmm c h m\n"),
      decomposed_case(kTwoValues, "baddbmm_scaled",
                      "m [b, 6, 2] = transpose.int g 1 2\nc: parameter [2]\n"
                      "y [b, 2, 2] = baddbmm c h m 0.5 2\n"),
      decomposed_case(kTwoValues, "baddbmm_without_self",
                      "m [b, 6, 2] = transpose.int g 1 2\nc: data [2]\n"
                      "y [b, 2, 2] = baddbmm c h m 0 2\n"),
      decomposed_case(kTwoValues, "l1_loss", "y [] = l1_loss h g\n"),
      decomposed_case(kTwoValues, "l1_loss_each", "y [b, 2, 6] = l1_loss h t 0\n"),
      decomposed_case(kTwoValues, "smooth_l1_loss", "y [] = smooth_l1_loss h g\n"),
      decomposed_case(kTwoValues, "smooth_l1_loss_beta", "y [] = smooth_l1_loss h t 2 0.7\n"),
      decomposed_case(kTwoValues, "smooth_l1_loss_without_beta", "y [] = smooth_l1_loss h t 1 0.0\n"),
      decomposed_case(kTwoValues, "huber_loss", "y [] = huber_loss h g 2 0.7\n"),
      decomposed_case(kTwoValues, "mse_loss_of_a_row", "y [] = mse_loss h v\n"),
      decomposed_case(kProbabilities, "kl_div", "y [] = kl_div l t\n"),
      decomposed_case(kProbabilities, "kl_div_sum", "y [] = kl_div l t 2\n"),
      decomposed_case(kProbabilities, "kl_div_of_logarithms", "y [] = kl_div l q 2 true\n"),
      decomposed_case(kProbabilities, "kl_div_of_trained_target", "y [] = kl_div q p 2\n"),
      decomposed_case(kProbabilities, "binary_cross_entropy", "y [] = binary_cross_entropy p t\n"),
      decomposed_case(kProbabilities, "binary_cross_entropy_weighted",
                      "k: data [4] positive\ny [] = binary_cross_entropy p t k 2\n"),
      decomposed_case(kScoresAndLabels, "cross_entropy_smoothed",
                      "y [] = cross_entropy_loss f i - 1 -100 0.2\n"),
      decomposed_case(kScoresAndLabels, "cross_entropy_smoothed_sum",
                      "y [] = cross_entropy_loss f i - 2 -100 0.2\n"),
      decomposed_case(kScoresAndLabels, "cross_entropy_of_probabilities", "y [] = cross_entropy_loss f s\n"),
      decomposed_case(kScoresAndLabels, "cross_entropy_of_smoothed_probabilities",
                      "y [] = cross_entropy_loss f s - 2 -100 0.2\n"),
  };
}

}  // namespace trifold::graph::lowering
