#include "nn/layer.h"

#include <algorithm>

namespace trifold {

ParamId BlockBuilder::add(const std::string& name, const Shape& global, const Rect& local, AxisSet replicated,
                          AxisSet partial, Init init, bool decay, int tensor_copies) {
  ParamSpec spec;
  spec.shard = {name, global, local, replicated, partial, tensor_copies};
  spec.init = init;
  spec.decay = decay;
  spec.frozen = adapters_ != nullptr;
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

ParamId BlockBuilder::sharded_part(const std::string& name, const Shape& global, int part, int parts,
                                   Init init, bool decay) {
  Rect local = even_part(global, 0, part, parts);
  const Rect rank_part = even_part(local.extent, 0, mesh_.coord(Axis::Tp), mesh_.size(Axis::Tp));
  local.offset[0] += rank_part.offset[0];
  local.extent = rank_part.extent;
  ParamSpec spec;
  spec.shard = {name, global, local, kDataAxes, kDataAxes};
  spec.shard.parts = parts;
  spec.init = init;
  spec.decay = decay;
  spec.frozen = adapters_ != nullptr;
  spec.block = block_;
  return params_.add(std::move(spec));
}

ParamId BlockBuilder::of_experts(const std::string& name, const Shape& global, std::optional<int> inner,
                                 Init init, bool decay) {
  Rect local = even_part(global, 0, mesh_.coord(Axis::Ep), mesh_.size(Axis::Ep));
  if (!inner) {
    const AxisSet replicated = kExpertDataAxes | AxisSet{Axis::Etp};
    return add(name, global, local, replicated, kExpertDataAxes, init, decay);
  }
  const Rect part = even_part(global, *inner, mesh_.coord(Axis::Etp), mesh_.size(Axis::Etp));
  local.offset[*inner] = part.offset[*inner];
  local.extent[*inner] = part.extent[*inner];
  return add(name, global, local, kExpertDataAxes, kExpertDataAxes, init, decay);
}

ParamId BlockBuilder::buffer(const std::string& name, const Shape& shape) {
  const ParamId id = add(name, shape, Rect::whole(shape), kStageAxes, kDataAxes, {}, false);
  params_.set_buffer(id);
  params_.set_frozen(id, false);
  return id;
}

ParamId BlockBuilder::tied(ParamId of, const std::string& use) {
  ParamSpec spec = params_[of];
  spec.shard.name += "@" + use;
  spec.block = block_;
  spec.tied_to = of;
  return params_.add(std::move(spec));
}

void for_each_dropout(const Run& run, double probability, PhiloxKey key, int row_part, const Tensor& x,
                      FunctionRef<void(int64_t, int64_t, const Dropout&)> body) {
  const int64_t width = x.last_dim();
  const int64_t first = row_part * x.row_count();  // the first of this rank's rows
  const int64_t last = first + x.row_count();
  const SequenceRows rows = run.batch->held_rows();
  const auto call = [&](int64_t begin, int64_t end, int64_t row_of_whole) {
    body(begin - first, end - first,
         sample_dropout(run, probability, key, row_of_whole * width, rows.length() * width));
  };
  if (rows.whole()) return call(first, last, first);
  for (int64_t sample = first / rows.rows(); sample * rows.rows() < last; ++sample)
    for (const RowRun& piece : rows.runs()) {
      const int64_t row = sample * rows.rows() + piece.row;
      const int64_t begin = std::max(first, row);
      const int64_t end = std::min(last, row + piece.count);
      if (begin < end) call(begin, end, sample * rows.length() + piece.begin + begin - row);
    }
}

void drop_activation(const Run& run, Tensor y, Tensor x, double probability, PhiloxKey key, int row_part) {
  for_each_dropout(run, probability, key, row_part, x,
                   [&](int64_t begin, int64_t end, const Dropout& dropout) {
                     run.ops.dropout(run.stream, y.rows(begin, end), x.rows(begin, end), dropout);
                   });
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
