// Cases of graph/steps/movement.cpp, and of views (graph/lower/view.cpp), which are no steps.
#include "graph_differences.h"

namespace trifold::graph::lowering {

namespace {

// h [b, 2, 6], computed from parameters.
const std::string kValue =
    "w: parameter [2, 6]\n"
    "x: data [b, 2, 6]\n"
    "h [b, 2, 6] = mul.Tensor w x\n";

Case moved(const std::string& name, const std::string& lines) { return {name, kValue + lines}; }

// A view of h, or of w, as the operand of an operation.
Case viewed(const std::string& name, const std::string& dims, const std::string& operation) {
  return moved(name, "v " + dims + " = " + operation + "\ny " + dims + " = sin v\nloss y\n");
}

}  // namespace

std::vector<Case> movement_cases() {
  return {
      // A reshape that merges transposed axes copies (`dense`).
      moved("dense",
            "t [b, 6, 2] = transpose.int h 1 2\nv [b, 12] = reshape t [b, 12]\ny [b, 12] = sin v\nloss y\n"),
      moved("dense_of_parameter", "t [6, 2] = t w\nv [12] = reshape t [12]\ny [12] = sin v\nloss y\n"),
      // A loss that does not change with what is detached, so that differences are its gradients.
      moved("detach",
            "u: parameter [6]\ng [b, 2, 6] = mul.Tensor u x\nd [b, 2, 6] = detach h\n"
            "c bool [b, 2, 6] = gt.Tensor d g\ny [b, 2, 6] = where.self c h g\nloss y\n"),
      moved("detach_of_unused_value",
            "u: parameter [6]\nk [b, 2, 6] = mul.Tensor u x\nd [b, 2, 6] = detach k\n"
            "c bool [b, 2, 6] = gt.Tensor d x\ny [b, 2, 6] = where.ScalarOther c h 2\nloss y\nwithout u\n"),
      moved("cat", "y [b, 4, 6] = cat {h, x} 1\nloss y\n"),
      moved("cat_last", "t [b, 2, 4] = slice.Tensor h 2 1 5\ny [b, 2, 16] = cat {h, t, h} -1\nloss y\n"),
      moved("cat_transposed",
            "t [b, 6, 2] = transpose.int h 1 2\nf [b, 6, 2] = transpose.int x 1 2\n"
            "y [b, 6, 4] = cat {t, f} 2\nloss y\n"),
      moved("cat_of_parameters", "v: parameter [3, 6]\ny [7, 6] = cat {w, v, w} 0\nloss y\n"),
      moved("cat_of_repeated",
            "s: parameter [1, 1, 6]\ne [b, 1, 6] = expand s [b, 1, 6]\n"
            "y [b, 3, 6] = cat {e, h} 1\nloss y\n"),
      moved("stack", "y [b, 3, 2, 6] = stack {h, x, h} 1\nloss y\n"),
      moved("stack_last", "k [b, 2, 6] = exp h\ny [b, 2, 6, 2] = stack {h, k} -1\nloss y\n"),
      moved("slice_scatter",
            "s [b, 2, 3] = slice.Tensor h 2 0 3\nk [b, 2, 3] = exp s\n"
            "y [b, 2, 6] = slice_scatter h k 2 3 6\nloss y\n"),
      moved("slice_scatter_with_steps",
            "s [b, 2, 3] = slice.Tensor h 2 0 3\nk [b, 2, 3] = exp s\n"
            "y [b, 2, 6] = slice_scatter h k 2 1 6 2\nloss y\n"),
      moved("slice_scatter_into_data",
            "s [b, 2, 2] = slice.Tensor h 2 -2\ny [b, 2, 6] = slice_scatter x s 2 1 3\nloss y\n"),
      moved("slice_scatter_of_data", "s: data [b, 2, 2]\ny [b, 2, 6] = slice_scatter h s 2 1 3\nloss y\n"),
      moved("slice_scatter_into_strided",
            "t [b, 6, 2] = transpose.int h 1 2\ns [b, 1, 2] = slice.Tensor t 1 0 1\n"
            "k [b, 1, 2] = exp s\ny [b, 6, 2] = slice_scatter t k 1 4 5\nloss y\n"),
      moved("select_scatter",
            "s [b, 6] = select.int h 1 0\nk [b, 6] = exp s\n"
            "y [b, 2, 6] = select_scatter h k 1 1\nloss y\n"),
      moved("select_scatter_last",
            "s [b, 2] = select.int h 2 0\nk [b, 2] = exp s\n"
            "y [b, 2, 6] = select_scatter h k -1 -1\nloss y\n"),
  };
}

std::vector<Case> view_cases() {
  return {
      viewed("view", "[b, 3, 4]", "view h [b, 3, 4]"),
      viewed("view_merges_samples", "[2b, 6]", "view h [2b, 6]"),
      viewed("view_of_parameter", "[3, 4]", "view w [3, 4]"),
      viewed("reshape", "[b, 12]", "reshape h [b, 12]"),
      viewed("flatten", "[b, 12]", "flatten.using_ints h 1"),
      viewed("unsqueeze", "[b, 1, 2, 6]", "unsqueeze h 1"),
      moved("squeeze_dim",
            "u [b, 1, 2, 6] = unsqueeze h 1\nv [b, 2, 6] = squeeze.dim u 1\ny [b, 2, 6] = sin v\nloss y\n"),
      viewed("transpose", "[b, 6, 2]", "transpose.int h 1 -1"),
      viewed("transposed_samples", "[2, b, 6]", "transpose.int h 0 1"),
      viewed("t", "[6, 2]", "t w"),
      viewed("permute", "[6, b, 2]", "permute h [2, 0, 1]"),
      viewed("expand", "[4, b, 2, 6]", "expand h [4, b, 2, 6]"),
      viewed("expand_parameter", "[b, 2, 6]", "expand w [b, 2, 6]"),
      viewed("expand_as", "[b, 2, 6]", "expand_as w x"),
      viewed("slice", "[b, 2, 3]", "slice.Tensor h 2 1 6 2"),
      viewed("slice_from_end", "[b, 1, 6]", "slice.Tensor h 1 -1"),
      viewed("slice_of_parameter", "[1, 6]", "slice.Tensor w 0 1 2"),
      viewed("select", "[b, 6]", "select.int h 1 -1"),
      moved("split",
            "p [b, 2, 4], q [b, 2, 2] = split.Tensor h 4 2\ns [b, 2, 2] = slice.Tensor p 2 0 2\n"
            "y [b, 2, 2] = mul.Tensor s q\nloss y\n"),
      moved("split_with_sizes",
            "p [b, 2, 1], q [b, 2, 3], r [b, 2, 2] = split_with_sizes h [1, 3, 2] -1\n"
            "s [b, 2, 3] = mul.Tensor p q\nloss s\n"),
      moved("chunk", "p [b, 2, 3], q [b, 2, 3] = chunk h 2 2\ny [b, 2, 3] = mul.Tensor p q\nloss y\n"),
      moved("unbind", "p [b, 6], q [b, 6] = unbind.int h 1\ny [b, 6] = mul.Tensor p q\nloss y\n"),
      moved("copy", "z: data [b, 2, 6]\nc [b, 2, 6] = copy z w\ny [b, 2, 6] = mul.Tensor c h\nloss y\n"),
      moved("views_of_views",
            "p [b, 6, 2] = transpose.int h 1 2\nq [b, 3, 2] = slice.Tensor p 1 0 6 2\n"
            "u [b, 2] = select.int q 1 1\ne [b, 3, 2] = exp q\nc [b, 1, 2] = unsqueeze u 1\n"
            "y [b, 3, 2] = mul.Tensor e c\nloss y\n"),
      moved("conversions",
            "s f32 [b, 2, 6] = to.dtype h f32\nd [b, 2, 6] = to.dtype s f64\n"
            "y [b, 2, 6] = sin d\nloss y\n"),
  };
}

}  // namespace trifold::graph::lowering
