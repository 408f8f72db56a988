// Cases of graph/steps/elementwise.cpp.
#include "graph_differences.h"

namespace trifold::graph::lowering {

namespace {

// h and g [b, 2, 3], computed from parameters: of absolute value 0.09 to 2.25, or positive ones.
std::string two_values(bool positive = false) {
  const std::string sign = positive ? " positive\n" : "\n";
  return "w: parameter [2, 3]" + sign + "v: parameter [3]" + sign + "x: data [b, 2, 3]" + sign +
         "z: data [b, 2, 3]" + sign +
         "h [b, 2, 3] = mul.Tensor w x\n"
         "g [b, 2, 3] = mul.Tensor z v\n";
}

// y = operation(h, ...), where other arguments follow.
Case of_h(const std::string& name, const std::string& operation, bool positive = false) {
  return {name, two_values(positive) + "y [b, 2, 3] = " + operation + "\nloss y\n"};
}

}  // namespace

std::vector<Case> elementwise_cases() {
  std::vector<Case> all;
  for (const char* name :
       {"neg", "abs", "exp", "square", "cos", "sin", "erf", "tanh", "sigmoid", "relu", "silu"})
    all.push_back(of_h(name, std::string(name) + " h"));
  for (const char* name : {"log", "log1p", "sqrt", "rsqrt", "reciprocal"})
    all.push_back(of_h(name, std::string(name) + " h", true));
  // Of strided operands, and of a parameter itself.
  for (const char* name : {"neg", "sin", "exp"}) {
    all.push_back(
        {std::string(name) + "_of_transposed",
         two_values() + "t [b, 3, 2] = transpose.int h 1 2\ny [b, 3, 2] = " + name + " t\nloss y\n"});
    all.push_back(
        {std::string(name) + "_of_part",
         two_values() + "t [b, 2, 2] = slice.Tensor h 2 1 3\ny [b, 2, 2] = " + name + " t\nloss y\n"});
    all.push_back({std::string(name) + "_of_parameter",
                   "w: parameter [2, 3]\nt [3, 2] = t w\ny [3, 2] = " + std::string(name) + " t\nloss y\n"});
  }
  const std::vector<Case> more{
      of_h("gelu", "gelu h"),
      of_h("gelu_tanh", "gelu h 'tanh'"),
      of_h("power_2", "pow.Tensor_Scalar h 2"),
      of_h("power_3", "pow.Tensor_Scalar h 3"),
      of_h("power_half", "pow.Tensor_Scalar h 0.5", true),
      of_h("power_negative", "pow.Tensor_Scalar h -1.5", true),
      of_h("clamp", "clamp h -0.6 0.7"),
      of_h("clamp_below_only", "clamp h -0.6"),
      of_h("clamp_above_only", "clamp h - 0.7"),
      of_h("clamp_min", "clamp_min h 0.2"),
      of_h("clamp_max", "clamp_max h 0.2"),
      of_h("add", "add.Tensor h g 0.5"),
      of_h("add_number", "add.Tensor h 2 0.5"),
      of_h("add_scalar", "add.Scalar h 2 3"),
      of_h("add_row", "add.Tensor h v"),
      of_h("add_to_row", "add.Tensor v h 2"),
      of_h("add_same", "add.Tensor h h 3"),
      of_h("add_data", "add.Tensor x h"),
      of_h("sub", "sub.Tensor h g 2"),
      of_h("sub_scalar", "sub.Scalar h 2 3"),
      of_h("sub_same", "sub.Tensor h h 3"),
      of_h("rsub", "rsub.Tensor h g 2"),
      of_h("rsub_number", "rsub.Tensor h 2 3"),
      of_h("rsub_scalar", "rsub.Scalar h 2 3"),
      of_h("mul", "mul.Tensor h g"),
      of_h("mul_number", "mul.Tensor h 1.5"),
      of_h("mul_scalar", "mul.Scalar h 1.5"),
      of_h("mul_same", "mul.Tensor h h"),
      of_h("mul_row", "mul.Tensor v h"),
      of_h("div", "div.Tensor h g"),
      {"div_same", two_values() + "y [b, 2, 3] = div.Tensor h h\nloss y\nwithout w\n"},
      of_h("div_number", "div.Tensor h 1.5"),
      of_h("div_scalar", "div.Scalar h 1.5"),
      of_h("div_row", "div.Tensor v h"),
      of_h("minimum", "minimum h g"),
      of_h("minimum_row", "minimum v h"),
      of_h("min_other", "min.other h g"),
      of_h("maximum", "maximum h g"),
      of_h("max_other", "max.other h x"),
      of_h("dropout", "dropout h 0.4 true"),
      of_h("dropout_without_effect", "dropout h 0.4 false"),
      {"mul_same_parameter", "w: parameter [2, 3]\ny [2, 3] = mul.Tensor w w\nloss y\n"},
      {"mul_parameter_by_its_transpose",
       "w: parameter [3, 3]\nt [3, 3] = t w\ny [3, 3] = mul.Tensor w t\nloss y\n"},
      {"mul_of_columns", two_values() +
                             "c [b, 2, 1] = slice.Tensor h 2 1 2\nk [b, 1, 3] = slice.Tensor g 1 0 1\n"
                             "y [b, 2, 3] = mul.Tensor c k\nloss y\n"},
      {"mul_of_one_number", "w: parameter []\nx: data [b, 2]\ny [b, 2] = mul.Tensor x w\nloss y\n"},
      {"values_used_twice", two_values() +
                                "e [b, 2, 3] = exp h\ns [b, 2, 3] = sin h\np [b, 2, 3] = mul.Tensor e h\n"
                                "y [b, 2, 3] = div.Tensor p e\nq [b, 2, 3] = add.Tensor y s\nloss q\n"},
      {"frozen_factor",
       "f: frozen [3]\nw: parameter [3]\nx: data [b, 3]\nh [b, 3] = mul.Tensor x f\n"
       "y [b, 3] = mul.Tensor h w\ne [b, 3] = exp y\nloss e\n"},
      // The condition depends on parameters, and stops their gradients.
      {"where_self",
       two_values() +
           "c bool [b, 2, 3] = gt.Tensor h g\ny [b, 2, 3] = where.self c g v\nloss y\nwithout w\n"},
      {"where_self_of_data",
       two_values() + "m: data bool [b, 1, 3]\ny [b, 2, 3] = where.self m v h\nloss y\n"},
      {"where_scalar_other",
       two_values() + "m: data bool [b, 2, 3]\ny [b, 2, 3] = where.ScalarOther m h 1.5\nloss y\n"},
      {"where_scalar_self",
       two_values() + "m: data bool [b, 1, 3]\ny [b, 2, 3] = where.ScalarSelf m 1.5 h\nloss y\n"},
      {"masked_fill",
       two_values() + "m: data bool [b, 2, 1]\ny [b, 2, 3] = masked_fill.Scalar h m -2\nloss y\n"},
      {"masked_fill_tensor", two_values() + "m: data bool [b, 2, 1]\ns: parameter []\n"
                                            "y [b, 2, 3] = masked_fill.Tensor h m s\nloss y\n"},
      {"masked_fill_number",
       two_values() + "m: data bool [b, 2, 1]\ny [b, 2, 3] = masked_fill.Tensor h m -2\nloss y\n"},
  };
  all.insert(all.end(), more.begin(), more.end());
  // Comparisons, whose result has no gradient: of values with gradients by another way, and without one.
  for (const std::string name : {"eq", "ne", "lt", "le", "gt", "ge"}) {
    const std::string compare = "c bool [b, 2, 3] = " + name + ".Tensor ";
    const std::string choose = "\ny [b, 2, 3] = where.self c h g\nloss y\n";
    const std::string never_used = name == "eq" ? "without w\n" : name == "ne" ? "without v\n" : "";
    const bool holds = name == "eq" || name == "le" || name == "ge";  // for equal values
    all.push_back({name + "_of_used_values", two_values() + compare + "h g" + choose + never_used});
    all.push_back({name + "_of_equal_values",
                   two_values() + compare + "h h" + choose + (holds ? "without v\n" : "without w\n")});
    all.push_back({name + "_of_unused_values",
                   two_values() + "u: parameter [3]\nk [b, 2, 3] = mul.Tensor u x\n" + compare +
                       "k g\ny [b, 2, 3] = where.ScalarOther c h 1\nloss y\nwithout u, v\n" +
                       (name == "eq" ? "without w\n" : "")});
  }
  return all;
}

}  // namespace trifold::graph::lowering
