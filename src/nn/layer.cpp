#include "nn/layer.h"

namespace trifold {

ParamId BlockBuilder::add(const std::string& name, const Shape& global, const Rect& local, AxisSet replicated,
                          AxisSet partial, Init init, bool decay) {
  ParamSpec spec;
  spec.shard = {name, global, local, replicated, partial};
  spec.init = init;
  spec.decay = decay;
  spec.block = block_;
  return params_.add(std::move(spec));
}

ParamId BlockBuilder::replicated(const std::string& name, const Shape& shape, Init init, bool decay) {
  const AxisSet partial = sequence_parallel_ ? AxisSet{Axis::Dp, Axis::Tp} : AxisSet{Axis::Dp};
  return add(name, shape, Rect::whole(shape), {Axis::Tp, Axis::Dp}, partial, init, decay);
}

ParamId BlockBuilder::sharded(const std::string& name, const Shape& global, int dim, Init init, bool decay) {
  const Rect local = even_part(global, dim, mesh_.coord(Axis::Tp), mesh_.size(Axis::Tp));
  return add(name, global, local, {Axis::Dp}, {Axis::Dp}, init, decay);
}

ParamId BlockBuilder::tied(ParamId of, const std::string& use) {
  ParamSpec spec = params_[of];
  spec.shard.name += "@" + use;
  spec.block = block_;
  spec.tied_to = of;
  return params_.add(std::move(spec));
}

}  // namespace trifold
