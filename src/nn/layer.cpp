#include "nn/layer.h"

namespace trifold {

ParamId BlockBuilder::add(const std::string& name, const Shape& global, const Rect& local, AxisSet replicated,
                          AxisSet partial, Init init, bool decay, int tensor_copies) {
  ParamSpec spec;
  spec.shard = {name, global, local, replicated, partial, tensor_copies};
  spec.init = init;
  spec.decay = decay;
  spec.block = block_;
  return params_.add(std::move(spec));
}

ParamId BlockBuilder::replicated(const std::string& name, const Shape& shape, Init init, bool decay,
                                 bool inside) {
  const bool parts = sequence_parallel_ || (inside && mesh_.size(Axis::Tp) > 1);
  const AxisSet partial = parts ? kStageAxes : kDataAxes;
  return add(name, shape, Rect::whole(shape), kStageAxes, partial, init, decay);
}

ParamId BlockBuilder::sharded(const std::string& name, const Shape& global, int dim, Init init, bool decay,
                              int64_t pieces) {
  const int tp = mesh_.size(Axis::Tp);
  const int copies = pieces > 0 && pieces < tp ? tp / static_cast<int>(pieces) : 1;
  const Rect local = even_part(global, dim, mesh_.coord(Axis::Tp) / copies, tp / copies);
  if (copies == 1) return add(name, global, local, kDataAxes, kDataAxes, init, decay);
  return add(name, global, local, kStageAxes, kStageAxes, init, decay, copies);
}

ParamId BlockBuilder::tied(ParamId of, const std::string& use) {
  ParamSpec spec = params_[of];
  spec.shard.name += "@" + use;
  spec.block = block_;
  spec.tied_to = of;
  return params_.add(std::move(spec));
}

bool Run::adds_to(ParamId id, std::optional<ParamId> other) const {
  const bool one = grads->begun(id);
  const bool two = other ? grads->begun(*other) : one;
  grads->set_begun(id, true);
  if (other) grads->set_begun(*other, true);
  if (one != two) ops.fill(stream, grad(one ? *other : id), 0.0);
  return one || two;
}

}  // namespace trifold
