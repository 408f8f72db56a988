// Cases of graph/steps/attention.cpp.
#include "graph_differences.h"

namespace trifold::graph::lowering {

namespace {

// Queries, keys and values of 2 heads, computed from parameters; the shapes of what is given.
std::string heads(const std::string& queries, const std::string& keys, const std::string& values) {
  std::string text;
  const std::string names = "qkv", shapes[] = {queries, keys, values};
  for (size_t i = 0; i < 3; ++i) {
    const std::string name(1, names[i]), &shape = shapes[i];
    const std::string width = shape.substr(shape.rfind(' ') + 1);  // "4]"
    text += "w" + name + ": parameter [" + width + "\nx" + name + ": data " + shape + "\n" + name + " " +
            shape + " = mul.Tensor x" + name + " w" + name + "\n";
  }
  return text;
}

Case attention(const std::string& name, const std::string& text, const std::string& result) {
  return {name, text + "y " + result + "\nloss y\n"};
}

}  // namespace

std::vector<Case> attention_cases() {
  const std::string four = "[b, 2, 3, 4]", alike = heads(four, four, four);
  const std::string call = " = scaled_dot_product_attention q k v";
  const std::string fewer = heads("[b, 4, 3, 2]", "[b, 2, 3, 2]", "[b, 2, 3, 2]");
  const std::string longer = heads("[b, 2, 3, 4]", "[b, 2, 5, 4]", "[b, 2, 5, 4]");
  const std::string wider = heads(four, four, "[b, 2, 3, 6]");
  // Columns of one matrix, as the output of a single layer.
  const std::string packed =
      "w: parameter [24]\nx: data [b, 3, 24]\nr [b, 3, 24] = mul.Tensor x w\n"
      "rq [b, 3, 8], rk [b, 3, 8], rv [b, 3, 8] = split.Tensor r 8 2\n"
      "vq [b, 3, 2, 4] = view rq [b, 3, 2, 4]\nvk [b, 3, 2, 4] = view rk [b, 3, 2, 4]\n"
      "vv [b, 3, 2, 4] = view rv [b, 3, 2, 4]\nq [b, 2, 3, 4] = transpose.int vq 1 2\n"
      "k [b, 2, 3, 4] = transpose.int vk 1 2\nv [b, 2, 3, 4] = transpose.int vv 1 2\n";
  return {
      attention("attention", alike, four + call),
      attention("attention_causal", alike, four + call + " - 0.0 true"),
      attention("attention_scaled", alike, four + call + " - 0.0 false 0.7"),
      attention("attention_dropout", alike, four + call + " - 0.3"),
      attention("attention_packed", packed, four + call),
      attention("attention_packed_causal", packed, four + call + " - 0.0 true"),
      attention("attention_fewer_keys", fewer, "[b, 4, 3, 2]" + call + " - 0.0 true - true"),
      attention("attention_masked", alike + "m: data bool [b, 1, 1, 3] = 1 0 1 1 1 0 1 1 1\n",
                four + call + " m"),
      attention("attention_masked_dropout", alike + "m: data [b, 1, 3, 3]\n", four + call + " m 0.3"),
      attention("attention_trained_mask", alike + "m: parameter [2, 3, 3]\n", four + call + " m"),
      attention("attention_computed_mask",
                alike + "m: parameter [3]\nd: data [b, 1, 3, 3]\n"
                        "n [b, 1, 3, 3] = mul.Tensor d m\n",
                four + call + " n"),
      attention("attention_fewer_keys_masked", fewer + "m: data [b, 1, 3, 3]\n",
                "[b, 4, 3, 2]" + call + " m 0.0 false - true"),
      attention("attention_fewer_keys_trained_mask", fewer + "m: parameter [4, 3, 3]\n",
                "[b, 4, 3, 2]" + call + " m 0.0 false - true"),
      attention("attention_other_positions", longer, four + call),
      attention("attention_other_width", wider, "[b, 2, 3, 6]" + call),
      // A constant mask that is lower triangular: the fused attention where it can be, else as a mask.
      attention("attention_triangle",
                alike + "a [3, 3] = ones [3, 3] f64\nm [3, 3] = tril a\nn bool [3, 3] = gt.Scalar m 0\n",
                four + call + " n"),
      attention("attention_triangle_other_width",
                wider + "a [3, 3] = ones [3, 3] f64\nm [3, 3] = tril a\nn bool [3, 3] = gt.Scalar m 0\n",
                "[b, 2, 3, 6]" + call + " n"),
      // One value as queries, keys and values: their gradients are of the same memory.
      attention("attention_of_one_value", alike, four + " = scaled_dot_product_attention q q q"),
      attention("attention_of_one_value_masked", alike + "m: data [b, 1, 3, 3]\n",
                four + " = scaled_dot_product_attention q q q m"),
      attention("attention_keys_are_values_masked", alike + "m: data [b, 1, 3, 3]\n",
                four + " = scaled_dot_product_attention q k k m"),
      attention("attention_of_parameters",
                "q: parameter [1, 2, 3, 4]\nk: parameter [1, 2, 3, 4]\n"
                "v: parameter [1, 2, 3, 4]\n",
                "[1, 2, 3, 4]" + call),
  };
}

}  // namespace trifold::graph::lowering
