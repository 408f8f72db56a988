#include "zero/param_store.h"

#include "zero/flat_layout.h"

namespace trifold {

ParamStore::ParamStore(const ParamList& params, DType dtype, int versions) : params_(params) {
  check(versions >= 1, "a store of {} versions of the weights", versions);
  const FlatLayout layout(params);
  for (int i = 0; i < versions; ++i) {
    auto version = std::make_unique<Version>();
    version->buffer = Buffer(static_cast<size_t>(layout.elements()) * size_of(dtype));
    version->flat = version->buffer.tensor(dtype, {layout.elements()});
    version->views = layout.views(version->flat);
    versions_.push_back(std::move(version));
  }
}

const ParamStore::Version& ParamStore::ring(int version) const {
  return *versions_[static_cast<size_t>(first_ + version) % versions_.size()];
}

const ParamSource& ParamStore::at_version(int version) const { return ring(version); }

void ParamStore::begin_version(int version, const OpTable& ops, Stream& stream) {
  if (&ring(version) != &ring(version - 1)) ops.copy(stream, ring(version).flat, ring(version - 1).flat);
}

void ParamStore::restart_at(int version) {
  first_ = static_cast<int>(static_cast<size_t>(first_ + version) % versions_.size());
}

size_t ParamStore::bytes() const {
  size_t bytes = 0;
  for (const auto& version : versions_) bytes += version->buffer.bytes();
  return bytes;
}

void ParamStore::initialise(uint64_t seed) {
  for (int i = 0; i < params_.size(); ++i) {
    if (!params_.stored({i})) continue;
    const ParamId first = params_[{i}].tied_to.value_or(ParamId{i});  // a copy starts like its original
    trifold::initialise(params_[first], weight({i}), seed);
  }
}

}  // namespace trifold
