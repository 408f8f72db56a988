#include "graph/operations.h"

#include <algorithm>

namespace trifold::graph {

namespace {

constexpr auto kStops = Gradient::Stops;
constexpr auto kFlows = Gradient::Flows;

// The schema `own` with the parameters that many schemas end with.
std::string typed(const std::string& own) {
  return own + "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None";
}
std::string like(const std::string& own) { return typed(own) + ", MemoryFormat? memory_format=None"; }
std::string converted(const std::string& own) {
  return own + "bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None";
}

// A row of each kind.
Operation view(std::string_view name, const std::string& schema) {
  return {name, schema, kFlows, Memory::View};
}
Operation check_only(std::string_view name, const std::string& schema) {
  return {name, schema, kStops, Memory::New, Form::Check};
}
Operation same(std::string_view name, const std::string& schema, Memory memory) {
  return {name, schema, kFlows, memory, Form::Identity};
}
Operation no_gradient(std::string_view name, const std::string& schema) { return {name, schema, kStops}; }

// Comparisons and logic.
void add_masks(std::vector<Operation>& all) {
  for (const char* name :
       {"eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "__and__.Tensor",
        "__or__.Tensor", "bitwise_and.Tensor", "bitwise_or.Tensor", "logical_and", "logical_or"})
    all.push_back(no_gradient(name, "Tensor self, Tensor other"));
  for (const char* name : {"eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar", "gt.Scalar", "ge.Scalar",
                           "__and__.Scalar", "__or__.Scalar"})
    all.push_back(no_gradient(name, "Tensor self, Scalar other"));
  for (const char* name : {"bitwise_not", "logical_not", "isnan", "isinf", "any", "all"})
    all.push_back(no_gradient(name, "Tensor self"));
  all.push_back(no_gradient("any.dim", "Tensor self, int dim, bool keepdim=False"));
  all.push_back(no_gradient("all.dim", "Tensor self, int dim, bool keepdim=False"));
}

void add_elementwise(std::vector<Operation>& all) {
  for (const char* name : {"neg", "abs", "log", "log1p", "exp", "sqrt", "rsqrt", "reciprocal", "square",
                           "cos", "sin", "erf", "tanh", "sigmoid", "relu", "silu"})
    all.push_back({name, "Tensor self"});
  const std::vector<Operation> rows{
      {"gelu", "Tensor self, *, str approximate='none'"},
      {"add.Tensor", "Tensor self, Tensor other, *, Scalar alpha=1"},
      {"add.Scalar", "Tensor self, Scalar other, Scalar alpha=1"},
      {"sub.Tensor", "Tensor self, Tensor other, *, Scalar alpha=1"},
      {"sub.Scalar", "Tensor self, Scalar other, Scalar alpha=1"},
      {"rsub.Tensor", "Tensor self, Tensor other, *, Scalar alpha=1"},
      {"rsub.Scalar", "Tensor self, Scalar other, Scalar alpha=1"},
      {"mul.Tensor", "Tensor self, Tensor other"},
      {"mul.Scalar", "Tensor self, Scalar other"},
      {"div.Tensor", "Tensor self, Tensor other"},
      {"div.Scalar", "Tensor self, Scalar other"},
      {"pow.Tensor_Scalar", "Tensor self, Scalar exponent"},
      {"pow.Scalar", "Scalar self, Tensor exponent"},
      {"remainder.Scalar", "Tensor self, Scalar other"},
      {"clamp", "Tensor self, Scalar? min=None, Scalar? max=None"},
      {"clamp_min", "Tensor self, Scalar min"},
      {"clamp_max", "Tensor self, Scalar max"},
      {"minimum", "Tensor self, Tensor other"},
      {"maximum", "Tensor self, Tensor other"},
      {"min.other", "Tensor self, Tensor other"},
      {"max.other", "Tensor self, Tensor other"},
      {"where.self", "Tensor condition, Tensor self, Tensor other"},
      {"where.ScalarOther", "Tensor condition, Tensor self, Scalar other"},
      {"where.ScalarSelf", "Tensor condition, Scalar self, Tensor other"},
      {"where.Scalar", "Tensor condition, Scalar self, Scalar other"},
      {"masked_fill.Scalar", "Tensor self, Tensor mask, Scalar value"},
      {"masked_fill.Tensor", "Tensor self, Tensor mask, Tensor value"},
      {"copy", "Tensor self, Tensor src, bool non_blocking=False"},
      {"fill.Scalar", "Tensor self, Scalar value"},
      {"fill.Tensor", "Tensor self, Tensor value"},
      {"zero", "Tensor self"},
      {"dropout", "Tensor input, float p, bool train", kFlows, Memory::Either},
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

// Products, norms, attention, losses.
void add_large(std::vector<Operation>& all) {
  const std::vector<Operation> rows{
      {"linear", "Tensor input, Tensor weight, Tensor? bias=None"},
      {"addmm", "Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1"},
      {"matmul", "Tensor self, Tensor other"},
      {"mm", "Tensor self, Tensor mat2"},
      {"bmm", "Tensor self, Tensor mat2"},
      {"baddbmm", "Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1"},
      {"embedding",
       "Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False"},
      {"layer_norm",
       "Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, "
       "bool cudnn_enable=True"},
      {"rms_norm", "Tensor input, SymInt[] normalized_shape, Tensor? weight=None, float? eps=None"},
      {"scaled_dot_product_attention",
       "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0., bool is_causal=False, *, "
       "float? scale=None, bool enable_gqa=False"},
      // Only in graphs: a lookup whose `trained_indices` say which rows get gradients, and the sum of weighted losses.
      {"embedding_padded", "Tensor weight, Tensor indices, Tensor trained_indices"},
      {"cross_entropy_sum", "Tensor self, Tensor target, Tensor weight"},
      // The model's loss: cross_entropy_sum of a linear layer's outputs, over a divisor.
      {"linear_cross_entropy",
       "Tensor input, Tensor weight, Tensor? bias, Tensor target, Tensor row_weight, Tensor? divisor"},
      {"softmax.int", "Tensor self, int dim, ScalarType? dtype=None"},
      {"log_softmax.int", "Tensor self, int dim, ScalarType? dtype=None"},
      {"cross_entropy_loss",
       "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100, "
       "float label_smoothing=0."},
      {"nll_loss",
       "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100"},
      {"nll_loss_nd",
       "Tensor self, Tensor target, Tensor? weight=None, int reduction=1, SymInt ignore_index=-100"},
      {"mse_loss", "Tensor self, Tensor target, int reduction=1"},
      {"l1_loss", "Tensor self, Tensor target, int reduction=1"},
      {"smooth_l1_loss", "Tensor self, Tensor target, int reduction=1, float beta=1.0"},
      {"huber_loss", "Tensor self, Tensor target, int reduction=1, float delta=1.0"},
      {"kl_div", "Tensor self, Tensor target, int reduction=1, *, bool log_target=False"},
      {"binary_cross_entropy", "Tensor self, Tensor target, Tensor? weight=None, int reduction=1"},
      {"binary_cross_entropy_with_logits",
       "Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=1"},
      {"sum", "Tensor self, *, ScalarType? dtype=None"},
      {"sum.dim_IntList", "Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None"},
      {"mean", "Tensor self, *, ScalarType? dtype=None"},
      {"mean.dim", "Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None"},
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

// Shapes, views and selection.
void add_shapes(std::vector<Operation>& all) {
  const std::vector<Operation> rows{
      view("view", "Tensor(a) self, SymInt[] size"),
      view("unsqueeze", "Tensor(a) self, int dim"),
      view("squeeze.dim", "Tensor(a) self, int dim"),
      view("squeeze", "Tensor(a) self"),
      view("squeeze.dims", "Tensor(a) self, int[] dim"),
      view("unflatten.int", "Tensor(a) self, int dim, SymInt[] sizes"),
      view("numpy_T", "Tensor(a) self"),
      view("mT", "Tensor(a) self"),
      {"broadcast_tensors", "Tensor[] tensors"},
      view("transpose.int", "Tensor(a) self, int dim0, int dim1"),
      view("t", "Tensor(a) self"),
      view("permute", "Tensor(a) self, int[] dims"),
      view("expand", "Tensor(a) self, SymInt[] size, *, bool implicit=False"),
      view("expand_as", "Tensor(a) self, Tensor other"),
      view("slice.Tensor", "Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1"),
      view("select.int", "Tensor(a) self, int dim, SymInt index"),
      view("split.Tensor", "Tensor(a -> *) self, SymInt split_size, int dim=0"),
      view("split_with_sizes", "Tensor(a -> *) self, SymInt[] split_sizes, int dim=0"),
      view("chunk", "Tensor(a -> *) self, int chunks, int dim=0"),
      view("unbind.int", "Tensor(a -> *) self, int dim=0"),
      {"reshape", "Tensor(a) self, SymInt[] shape", kFlows, Memory::Either},
      {"flatten.using_ints", "Tensor(a) self, int start_dim=0, int end_dim=-1", kFlows, Memory::Either},
      // Only in graphs: a view's new content put into the whole.
      {"slice_scatter",
       "Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1"},
      {"select_scatter", "Tensor self, Tensor src, int dim, SymInt index"},
      // Only in graphs: a copy whose elements are in order.
      {"dense", "Tensor self"},
      {"repeat", "Tensor self, SymInt[] repeats"},
      {"repeat_interleave.self_int",
       "Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None"},
      {"cat", "Tensor[] tensors, int dim=0"},
      {"stack", "Tensor[] tensors, int dim=0"},
      {"pad", "Tensor self, SymInt[] pad, str mode='constant', float? value=None"},
      {"index.Tensor", "Tensor self, Tensor?[] indices"},
      {"index_select", "Tensor self, int dim, Tensor index"},
      {"gather", "Tensor self, int dim, Tensor index, *, bool sparse_grad=False"},
      {"tril", "Tensor self, SymInt diagonal=0"},
      {"triu", "Tensor self, SymInt diagonal=0"},
      {"cumsum", "Tensor self, int dim, *, ScalarType? dtype=None"},
      {"diff", "Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None"},
      no_gradient("argmax", "Tensor self, int? dim=None, bool keepdim=False"),
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

// Tensors made from nothing.
void add_makers(std::vector<Operation>& all) {
  const std::vector<Operation> rows{
      no_gradient("arange", typed("Scalar end, *, ")),
      no_gradient("arange.start", typed("Scalar start, Scalar end, *, ")),
      no_gradient("arange.start_step", typed("Scalar start, Scalar end, Scalar step=1, *, ")),
      no_gradient("zeros", typed("SymInt[] size, *, ")),
      no_gradient("ones", typed("SymInt[] size, *, ")),
      no_gradient("full", typed("SymInt[] size, Scalar fill_value, *, ")),
      no_gradient("scalar_tensor", typed("Scalar s, *, ")),
      no_gradient("zeros_like", like("Tensor self, *, ")),
      no_gradient("ones_like", like("Tensor self, *, ")),
      no_gradient("full_like", like("Tensor self, Scalar fill_value, *, ")),
      no_gradient("new_zeros", typed("Tensor self, SymInt[] size, *, ")),
      no_gradient("new_ones", typed("Tensor self, SymInt[] size, *, ")),
      no_gradient("new_full", typed("Tensor self, SymInt[] size, Scalar fill_value, *, ")),
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

// What leaves no node in a graph, and the conversion that some of it becomes.
void add_identities(std::vector<Operation>& all) {
  const std::vector<Operation> rows{
      same("alias", "Tensor(a) self", Memory::View),
      same("lift_fresh_copy", "Tensor self", Memory::New),
      same("clone", "Tensor self, *, MemoryFormat? memory_format=None", Memory::New),
      same("contiguous", "Tensor(a) self, *, MemoryFormat memory_format=contiguous_format", Memory::Either),
      same("to.dtype", converted("Tensor(a) self, ScalarType dtype, "), Memory::Either),
      same("to.dtype_layout", converted(typed("Tensor(a) self, *, ") + ", "), Memory::Either),
      same("to.device", converted("Tensor(a) self, Device device, ScalarType dtype, "), Memory::Either),
      same("to.other", converted("Tensor(a) self, Tensor other, "), Memory::Either),
      same("type_as", "Tensor self, Tensor other", Memory::Either),
      {"detach", "Tensor(a) self", kStops, Memory::View},  // stops gradients, which a graph must show
      check_only("_assert_tensor_metadata",
                 "Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None, *, "
                 "Device? device=None, Layout? layout=None"),
      check_only("_assert_async.msg", "Tensor self, str assert_msg"),
      check_only("_assert_scalar", "Scalar self, str assert_msg"),
      check_only("sym_constrain_range_for_size", "Scalar size, *, int? min=None, int? max=None"),
  };
  all.insert(all.end(), rows.begin(), rows.end());
}

std::vector<Operation> sorted_rows() {
  std::vector<Operation> all;
  for (auto* const add : {add_large, add_elementwise, add_masks, add_shapes, add_makers, add_identities})
    add(all);
  std::sort(all.begin(), all.end(), [](const Operation& a, const Operation& b) { return a.name < b.name; });
  return all;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> kAll = sorted_rows();
  return kAll;
}

const Operation* find_operation(std::string_view name) {
  const auto& all = operations();
  const auto at =
      std::lower_bound(all.begin(), all.end(), name,
                       [](const Operation& row, std::string_view wanted) { return row.name < wanted; });
  return at != all.end() && at->name == name ? &*at : nullptr;
}

}  // namespace trifold::graph
