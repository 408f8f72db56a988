// ParamStore: the weights of a rank in flat buffers; layers see views. Every weight is resident (ZeRO stage
// 0).
//
// Asynchronous schedules need several versions of the weights at once (weight stashing; Narayanan et al.,
// "PipeDream", SOSP 2019). They live in a ring: version v of the running plan is in buffer (first + v) mod
// count, where `count` is the most that a plan needs at a time.
#pragma once

#include <memory>
#include <vector>

#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

class ParamStore final : public ParamSource {
 public:
  // `params` must outlive the store. Weights start at zero.
  ParamStore(const ParamList& params, DType dtype, int versions = 1);

  // Of version 0: between plans, the newest there are.
  Tensor weight(ParamId id) const override { return at_version(0).weight(id); }
  const ParamSource& at_version(int version) const override;

  // Makes version `version` a copy of the one before it, to be updated in place. With one buffer they are the
  // same already.
  void begin_version(int version, const OpTable& ops, Stream& stream);
  // The plan is over: what was `version` is version 0 of the next.
  void restart_at(int version);

  // Sets every weight to its initial value; keyed by global position, so every mesh starts from the same
  // model.
  void initialise(uint64_t seed);
  size_t bytes() const;

 private:
  struct Version final : ParamSource {
    Tensor weight(ParamId id) const override { return views[static_cast<size_t>(id.index)]; }
    Buffer buffer;
    Tensor flat;
    std::vector<Tensor> views;
  };

  const Version& ring(int version) const;

  const ParamList& params_;
  std::vector<std::unique_ptr<Version>> versions_;
  int first_ = 0;
};

}  // namespace trifold
