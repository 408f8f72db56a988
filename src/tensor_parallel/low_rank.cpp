#include "tensor_parallel/low_rank.h"

#include <array>
#include <cmath>

#include "config/fields/adapter_targets.h"

namespace trifold {

namespace {

// Columns [first, first + columns) of a matrix with `width` columns, as an operand of a batched product.
MatrixBatch columns_from(int64_t first, int64_t width, bool transposed = false) {
  MatrixBatch batch;
  batch.begin = first;
  batch.row = width;
  batch.transposed = transposed;
  return batch;
}

// y [R, C] = x * row, or x + row, for every row of x; y may be x.
void combine_rows(const Run& run, MapOp op, Tensor y, Tensor x, Tensor row) {
  Map map;
  map.op = op;
  map.a = 1;
  map.box = {2, {x.row_count(), x.last_dim()}};
  map.from[0] = {0, {x.last_dim(), 1}};
  map.from[1] = {0, {0, 1}};
  const std::array<Tensor, 2> inputs{x, row};
  run.ops.map(run.stream, y, inputs, map);
}

Tensor as_matrix(Tensor weight) { return weight.reshape({weight.row_count(), weight.last_dim()}); }

}  // namespace

LowRank::LowRank(BlockBuilder& builder, const std::string& name, const ProductWeight& weight, int64_t groups,
                 Cut cut, int64_t pieces)
    : weight_(weight), cut_(cut) {
  if (builder.adapters() == nullptr) return;
  const AdapterConfig& adapters = *builder.adapters();
  const LinearModules layer = modules_of_linear(name, groups);
  const std::vector<std::string> adapted = adapted_modules(adapters, layer);
  if (adapted.empty()) return;
  const ShardSpec& shard = builder.params()[weight.id()].shard;
  const int64_t outputs = shard.global.elements() / shard.global[shard.global.rank() - 1];
  const int64_t columns = shard.local.extent.elements() / shard.local.extent[shard.local.extent.rank() - 1];
  rank_ = *adapters.lora_rank;
  columns_ = columns;
  factor_ = adapter_scale(adapters);
  dropout_ = adapters.lora_dropout;
  scales_ = adapters.dora;
  all_inputs_ = shard.global[shard.global.rank() - 1];
  first_input_ = shard.local.offset[shard.local.extent.rank() - 1];
  const bool cuts_outputs = cut == Cut::Outputs;
  row_part_ = cut == Cut::None ? builder.row_part() : 0;
  const Init random = adapters.lora_init == LoraInit::Gaussian
                          ? Init{Init::Kind::Normal, 1 / static_cast<double>(rank_)}
                          : Init{Init::Kind::Uniform, 1 / std::sqrt(static_cast<double>(all_inputs_))};
  // A parameter with a row, or an element, for each output of `count` groups.
  const auto of_outputs = [&](const std::string& parameter, int64_t count, std::optional<int64_t> width) {
    Shape shape;
    if (count > 1) shape = width ? Shape{count, outputs / groups, *width} : Shape{count, outputs / groups};
    if (count == 1) shape = width ? Shape{outputs / groups, *width} : Shape{outputs / groups};
    const Init zeros{Init::Kind::Zeros};
    const ParamId id =
        cuts_outputs ? builder.sharded(parameter, shape, count > 1 ? 1 : 0, zeros, width.has_value(), pieces)
                     : builder.replicated(parameter, shape, zeros, width.has_value(), cut == Cut::Inputs);
    builder.freeze(id, false);
    return id;
  };
  for (const std::string& each : adapted) {
    const bool whole = each == layer.whole;
    Module module;
    module.name = each;
    module.columns = whole ? columns : columns / groups;
    for (size_t part = 0; part < layer.parts.size() && !whole; ++part)
      if (layer.parts[part] == each) module.first = static_cast<int64_t>(part) * module.columns;
    module.a = cut == Cut::Inputs
                   ? builder.sharded(each + ".lora_a", {rank_, all_inputs_}, 1, random, true)
                   : builder.replicated(each + ".lora_a", {rank_, all_inputs_}, random, true, cuts_outputs);
    builder.freeze(module.a, false);
    module.b = of_outputs(each + ".lora_b", whole ? groups : 1, rank_);
    if (scales_) module.magnitude = of_outputs(each + ".magnitude", whole ? groups : 1, {});
    module.key = philox_key(builder.seed(), each + ".lora_dropout");
    module.low = builder.slot();
    module.dlow = builder.slot();
    modules_.push_back(std::move(module));
  }
  dz_ = builder.slot();
  if (!scales_) return;
  for (SlotId* slot : {&z_, &dy_, &factors_, &inverses_}) *slot = builder.slot();
}

// The mask of an element depends on its column in the whole row, so a rank with some of the columns draws whole rows.
Tensor LowRank::dropped(Run& run, const Module& module, Tensor x) const {
  if (dropout_ == 0 || !run.training) return x;
  const Tensor y = run.scratch.take(run.dtype, x.shape);
  if (x.last_dim() == all_inputs_) {
    drop_activation(run, y, x, dropout_, module.key, row_part_);
    return y;
  }
  const Arena::Mark mark = run.scratch.mark();
  const Tensor mask = run.scratch.take(run.dtype, {x.row_count(), all_inputs_});
  run.ops.fill(run.stream, mask, 1.0);
  drop_activation(run, mask, mask, dropout_, module.key, 0);
  Map map;
  map.op = MapOp::Mul;
  map.box = {2, {x.row_count(), x.last_dim()}};
  map.from[0] = contiguous_view(map.box);
  map.from[1] = {first_input_, {all_inputs_, 1}};
  const std::array<Tensor, 2> inputs{x, mask};
  run.ops.map(run.stream, y, inputs, map);
  run.scratch.release(mark);
  return y;
}

void LowRank::reserve(Run& run, int64_t rows, Saved& saved) const {
  for (const Module& module : modules_) saved[module.low] = run.keep->take(run.dtype, {rows, rank_});
  if (!scales_) return;
  saved[factors_] = run.keep->take(run.dtype, {columns_});
  saved[inverses_] = run.keep->take(accumulate_type(run.dtype), {columns_});
}

void LowRank::forward(Run& run, Tensor y, Tensor x, Saved& saved) const {
  for (const Module& module : modules_) {
    const Arena::Mark mark = run.scratch.mark();
    const Tensor low = saved[module.low];
    run.ops.gemm(run.stream, low, dropped(run, module, x), false, run.weight(module.a), true, 1.0, 0.0);
    BatchedProduct product;
    product.m = y.row_count();
    product.n = module.columns;
    product.k = rank_;
    product.a = columns_from(0, rank_);
    product.b = columns_from(0, rank_, true);
    product.c = columns_from(module.first, y.last_dim());
    product.alpha = factor_;
    product.beta = 1;
    run.ops.batched_product(run.stream, y, low, run.weight(module.b), product);
    run.show(module.name, "adapter's low-rank output", low);
    run.scratch.release(mark);
  }
}

Tensor LowRank::inverse_norms(Run& run, const Module& module) const {
  const Tensor sums = run.scratch.take(accumulate_type(run.dtype), {module.columns});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor w = as_matrix(weight_.read(run)).rows(module.first, module.first + module.columns);
  const Tensor sum = run.scratch.take(run.dtype, w.shape);
  run.ops.copy(run.stream, sum, w);
  run.ops.gemm(run.stream, sum, run.weight(module.b), false, run.weight(module.a), false, factor_, 1.0);
  // Without dy the operation reads no gain; any row has its shape.
  run.ops.rms_part_sums(run.stream, sums, sum, {}, sum.rows(0, 1).flat(), 0);
  run.scratch.release(mark);
  if (cut_ == Cut::Inputs && run.mesh.size(Axis::Tp) > 1) reduce_over_axis(run, sums, Reduce::Sum);
  run.ops.inverse_root(run.stream, sums, sums, 0);
  return sums;
}

void LowRank::scale(Run& run, Tensor y, Tensor z, Tensor bias, Saved& saved) const {
  saved[z_] = z;
  const DType wide = accumulate_type(run.dtype);
  run.ops.fill(run.stream, saved[factors_], 1.0);
  for (const Module& module : modules_) {
    const int64_t end = module.first + module.columns;
    const Arena::Mark mark = run.scratch.mark();
    const Tensor inverse = inverse_norms(run, module);
    const Tensor magnitude = run.scratch.take(wide, inverse.shape);
    run.ops.copy(run.stream, saved[inverses_].rows(module.first, end), inverse);
    run.ops.convert(run.stream, magnitude, run.weight(module.magnitude).flat());
    combine_rows(run, MapOp::Mul, magnitude.reshape({1, module.columns}),
                 magnitude.reshape({1, module.columns}), inverse);
    run.ops.convert(run.stream, saved[factors_].rows(module.first, end), magnitude);
    run.scratch.release(mark);
  }
  combine_rows(run, MapOp::Mul, y, z, saved[factors_]);
  if (bias.rank() > 0) combine_rows(run, MapOp::Add, y, y, bias.flat());
}

Tensor LowRank::begin_backward(Run& run, Tensor dy, Saved& saved) const {
  if (!any()) return dy;
  saved[dz_] = scales_ ? run.flow->take(run.dtype, dy.shape) : dy;
  for (const Module& module : modules_)
    saved[module.dlow] = run.flow->take(run.dtype, {dy.row_count(), rank_});
  if (!scales_) return dy;
  saved[dy_] = dy;
  combine_rows(run, MapOp::Mul, saved[dz_], dy, saved[factors_]);
  return saved[dz_];
}

void LowRank::add_dropped(Run& run, const Module& module, Tensor dx, Tensor dlow) const {
  const Tensor a = run.weight(module.a);
  if (dropout_ == 0 || !run.training) return run.ops.gemm(run.stream, dx, dlow, false, a, false, 1.0, 1.0);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor dropped_dx = run.scratch.take(run.dtype, dx.shape);
  run.ops.gemm(run.stream, dropped_dx, dlow, false, a, false, 1.0, 0.0);
  run.ops.add(run.stream, dx, dx, dropped(run, module, dropped_dx));
  run.scratch.release(mark);
}

void LowRank::backward_input(Run& run, Tensor dx, Saved& saved) const {
  if (!any()) return;
  const Tensor dz = saved[dz_];
  for (const Module& module : modules_) {
    const Tensor dlow = saved[module.dlow];
    BatchedProduct product;
    product.m = dz.row_count();
    product.n = rank_;
    product.k = module.columns;
    product.a = columns_from(module.first, dz.last_dim());
    product.b = columns_from(0, rank_);
    product.c = columns_from(0, rank_);
    product.alpha = factor_;
    run.ops.batched_product(run.stream, dlow, dz, run.weight(module.b), product);
    if (dx.rank() > 0) add_dropped(run, module, dx, dlow);
  }
}

void LowRank::backward_weight(Run& run, Tensor x, Saved& saved) const {
  if (!any()) return;
  const Tensor dz = saved[dz_];
  for (const Module& module : modules_) {
    const Arena::Mark mark = run.scratch.mark();
    run.ops.gemm(run.stream, run.grad(module.a), saved[module.dlow], true, dropped(run, module, x), false,
                 1.0, run.adds_to(module.a) ? 1.0 : 0.0);
    BatchedProduct product;
    product.m = module.columns;
    product.n = rank_;
    product.k = dz.row_count();
    product.a = columns_from(module.first, dz.last_dim(), true);
    product.b = columns_from(0, rank_);
    product.c = columns_from(0, rank_);
    product.alpha = factor_;
    product.beta = run.adds_to(module.b) ? 1 : 0;
    run.ops.batched_product(run.stream, run.grad(module.b), dz, saved[module.low], product);
    run.scratch.release(mark);
  }
  if (!scales_) return;
  // dmagnitude[o] = (the sum over the rows of dy[:, o] z[:, o]) / norm[o]
  const Arena::Mark mark = run.scratch.mark();
  const Tensor dy = saved[dy_];
  const Tensor products = run.scratch.take(run.dtype, dy.shape);
  const Tensor sums = run.scratch.take(accumulate_type(run.dtype), {dy.last_dim()});
  Map map;
  map.op = MapOp::Mul;
  map.box = {1, {dy.elements()}};
  map.from[0] = map.from[1] = contiguous_view(map.box);
  const std::array<Tensor, 2> factors{dy, saved[z_]};
  run.ops.map(run.stream, products, factors, map);
  run.ops.column_sum(run.stream, sums, products, false);
  combine_rows(run, MapOp::Mul, sums.reshape({1, dy.last_dim()}), sums.reshape({1, dy.last_dim()}),
               saved[inverses_]);
  for (const Module& module : modules_) {
    const Tensor mine = sums.rows(module.first, module.first + module.columns);
    const bool adds = run.adds_to(module.magnitude);
    const Tensor gradient = run.grad(module.magnitude).flat();
    if (adds)
      run.ops.add(run.stream, gradient, gradient, mine);
    else
      run.ops.copy(run.stream, gradient, mine);
  }
  run.scratch.release(mark);
}

}  // namespace trifold
