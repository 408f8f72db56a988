#include "graph/steps/step.h"

namespace trifold::graph {

namespace {

// The tensors of a call, by base; one block at a time runs on a thread.
template <class Entry>
std::vector<Entry>& of_thread(size_t count) {
  thread_local std::vector<Entry> entries;
  entries.assign(count, Entry{});
  return entries;
}

}  // namespace

Frame::Frame(Run& of_run, std::span<const BlockBase> bases, const LoweredGraph& lowered, Tensor x)
    : run(of_run),
      batch(of_run.batch->samples()),
      bases_(bases),
      arrays_(lowered.arrays(accumulate_type(of_run.dtype))),
      x_(x.rank() > 0 ? x.flat() : x),
      values_(of_thread<Tensor>(bases.size())),
      sums_(of_thread<Sum>(bases.size())) {}

DType Frame::type_of(int base) const {
  const Base& whole = *of(base).base;
  if (whole.kind == Base::Kind::Prepared) return arrays_.entry(static_cast<size_t>(whole.index)).dtype;
  return whole.is_sum ? accumulate_type(run.dtype) : run.dtype;
}

Tensor Frame::value(int base) const {
  const BlockBase& here = of(base);
  if (here.base->kind == Base::Kind::Parameter) return run.weight(here.param).flat();
  if (here.base->kind == Base::Kind::Prepared) return prepared(*here.base);
  if (here.enters) {
    const int64_t begin = here.entering.at(batch);
    return x_.flat(begin, begin + here.base->elements().at(batch));
  }
  return values_[static_cast<size_t>(base)];
}

Tensor Frame::prepared(const Base& base) const {
  const auto index = static_cast<size_t>(base.index);
  Tensor array{nullptr, arrays_.entry(index).dtype, {base.elements().at(batch)}};
  if (auto* const memory = static_cast<std::byte*>(run.batch->arrays.data))
    array.data = memory + arrays_.offset(index, batch);
  return array;
}

void Frame::set_value(int base, Tensor tensor) { values_[static_cast<size_t>(base)] = tensor; }

Tensor Frame::dense(const Operand& operand, DType dtype) {
  const StridedTensor from = strided(operand, dtype);
  const int64_t count = operand.view.elements(batch);
  if (operand.view.is_dense()) return from.tensor.flat(from.view.begin, from.view.begin + count);
  const Tensor copy = temporary(dtype, {count});
  const Box box = operand.view.box(batch);
  run.ops.strided_copy(run.stream, copy, contiguous_view(box), from.tensor, from.view, box);
  return copy;
}

StridedTensor Frame::strided(const Operand& operand, DType dtype) {
  return {converted(value(operand.base), dtype), operand.view.strided(batch)};
}

Tensor Frame::converted(Tensor tensor, DType dtype) const {
  if (tensor.dtype == dtype) return tensor;
  const Tensor copy = temporary(dtype, tensor.shape);
  run.ops.convert(run.stream, copy, tensor);
  return copy;
}

void Frame::set_gradient(int base, Tensor tensor, bool begun) {
  sums_[static_cast<size_t>(base)] = {tensor, begun};
}

bool Frame::is_whole(const Operand& operand) const {
  return operand.view.begin == Size{} && operand.view.is_dense() &&
         operand.view.covers(of(operand.base).base->elements());
}

Frame::Target Frame::gradient(const Operand& operand, bool can_add) {
  if (of(operand.base).base->kind != Base::Kind::Parameter && is_whole(operand)) {
    Sum& sum = sums_[static_cast<size_t>(operand.base)];
    if (!sum.lent && (!sum.begun || can_add)) {
      sum.lent = true;
      return {sum.tensor, true, sum.begun};
    }
  }
  return {temporary(type_of(operand), {operand.view.elements(batch)})};
}

void Frame::give(const Operand& operand, const Target& target) {
  const BlockBase& here = of(operand.base);
  Sum& sum = sums_[static_cast<size_t>(operand.base)];
  if (target.in_place) {
    sum.begun = true;
    sum.lent = false;
    return;
  }
  const bool parameter = here.base->kind == Base::Kind::Parameter;
  const Tensor whole = parameter ? run.grad(here.param).flat() : sum.tensor;
  bool adds = parameter ? run.adds_to(here.param) : sum.begun;
  if (!adds && !operand.view.covers(here.base->elements())) {
    run.ops.fill(run.stream, whole, 0.0);
    adds = true;
  }
  const Box box = operand.view.box(batch);
  run.ops.strided_sum(run.stream, whole, operand.view.strided(batch), target.tensor, contiguous_view(box),
                      box, 1.0, adds);
  sum.begun = true;
}

}  // namespace trifold::graph
