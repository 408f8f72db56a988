#include "pipeline/block_graphs.h"

#include <algorithm>
#include <exception>

#include "core/error.h"

namespace trifold {

namespace {

uint64_t number_of(const void* address) { return reinterpret_cast<uint64_t>(address); }

// `output` may be the same arena as `keep`.
std::array<Arena*, 4> arenas_of(const Run& run) { return {run.keep, run.flow, &run.scratch, &run.output()}; }

std::array<Arena::Mark, 4> fill_of(const Run& run) {
  return {run.keep->mark(), run.flow->mark(), run.scratch.mark(), run.output().mark()};
}

}  // namespace

BlockGraphs::BlockGraphs(const ParamList& params, Stream& stream) : stream_(stream) {
  check(stream.queue() != nullptr, "graphs need a device's queue, and the host has none");
  for (int i = 0; i < params.size(); ++i) {
    const auto block = static_cast<size_t>(params[{i}].block);
    params_.resize(std::max(params_.size(), block + 1));
    params_[block].push_back({i});
  }
}

void BlockGraphs::add(const Tensor& tensor) {
  key_.push_back(number_of(tensor.data));
  if (tensor.data == nullptr) return;
  key_.push_back(static_cast<uint64_t>(tensor.dtype));
  for (const int64_t extent : tensor.shape.extents()) key_.push_back(static_cast<uint64_t>(extent));
}

void BlockGraphs::make_key(const BlockWork& work) {
  const Run& run = work.run;
  key_.assign({static_cast<uint64_t>(work.kind), static_cast<uint64_t>(work.block), run.seed});
  for (const Arena* arena : arenas_of(run)) {
    key_.push_back(number_of(arena));
    key_.push_back(arena->mark());
  }
  if (work.through != nullptr) add(*work.through);
  for (const Tensor& tensor : work.saved.tensors()) add(tensor);
  Batch batch = *run.batch;
  for (const Tensor* tensor : batch.tensors()) add(*tensor);
  for (const Tensor& tensor : {batch.sample, batch.loss_factors, run.loss_sum, run.weight_sum, run.loss_terms,
                               run.counters, run.host_values})
    add(tensor);
  if (static_cast<size_t>(work.block) >= params_.size()) return;  // a block without parameters
  for (const ParamId id : params_[static_cast<size_t>(work.block)]) {
    if (work.reads_weights) key_.push_back(number_of(run.weight(id).data));
    if (!work.adds_gradients) continue;
    key_.push_back(number_of(run.grad(id).data));
    key_.push_back(run.grads->begun(id) ? 1 : 0);
  }
}

std::vector<ParamId> BlockGraphs::not_begun(const BlockWork& work) const {
  std::vector<ParamId> ids;
  if (!work.adds_gradients || static_cast<size_t>(work.block) >= params_.size()) return ids;
  for (const ParamId id : params_[static_cast<size_t>(work.block)])
    if (!work.run.grads->begun(id)) ids.push_back(id);
  return ids;
}

void BlockGraphs::run(const BlockWork& work, FunctionRef<void()> compute) {
  Part& part = parts_[{work.kind, work.block}];
  if (part.refused) return compute();
  make_key(work);
  const auto known = entries_.find(key_);
  if (known != entries_.end() && known->second.graph != nullptr) return launch(work, known->second);
  if (known != entries_.end()) return capture(work, part, known->second, compute);
  compute();
  if (part.entries < kMostGraphs) {
    entries_.try_emplace(key_);
    ++part.entries;
  } else if (note_.empty()) {
    note_ = fmt::format(
        "{} of block {} is called with more than {} sets of addresses: further ones are launched kernel by kernel",
        name_of(work.kind), work.block, kMostGraphs);
  }
}

namespace {

// Captures the work that `compute` enqueues. The capture has ended when this returns or throws.
std::unique_ptr<DeviceGraph> written_down(DeviceQueue& queue, FunctionRef<void()> compute) {
  queue.begin_capture();
  std::exception_ptr error;
  try {
    compute();
  } catch (...) {
    error = std::current_exception();
  }
  std::unique_ptr<DeviceGraph> graph;
  try {
    graph = queue.end_capture();
  } catch (...) {
    if (!error) error = std::current_exception();
  }
  if (error) std::rethrow_exception(error);
  return graph;
}

void restore(const Run& run, const std::array<Arena::Mark, 4>& fill) {
  const auto arenas = arenas_of(run);
  for (size_t i = 0; i < arenas.size(); ++i) arenas[i]->restore(fill[i]);
}

}  // namespace

void BlockGraphs::capture(const BlockWork& work, Part& part, Entry& entry, FunctionRef<void()> compute) {
  const Tensor through = work.through == nullptr ? Tensor{} : *work.through;
  const std::span<Tensor> saved = work.saved.tensors();
  const std::vector<Tensor> saved_before(saved.begin(), saved.end());
  const Fill fill_before = fill_of(work.run);
  const std::vector<ParamId> to_begin = not_begun(work);
  try {
    entry.graph = written_down(*stream_.queue(), compute);
  } catch (const Error& error) {
    part.refused = true;
    if (!refused_)
      note_ = fmt::format("{} of block {} is launched kernel by kernel: {}", name_of(work.kind), work.block,
                          error.what());
    refused_ = true;
    if (work.through != nullptr) *work.through = through;
    std::copy(saved_before.begin(), saved_before.end(), saved.begin());
    restore(work.run, fill_before);
    for (const ParamId id : to_begin) work.run.grads->set_begun(id, false);
    return compute();  // if the failure was not due to the capture, it happens again
  }
  if (work.through != nullptr) entry.through = *work.through;
  entry.saved.assign(saved.begin(), saved.end());
  entry.fill = fill_of(work.run);
  for (const ParamId id : to_begin)
    if (work.run.grads->begun(id)) entry.begins.push_back(id);
  stream_.queue()->launch(*entry.graph);
}

void BlockGraphs::launch(const BlockWork& work, Entry& entry) {
  stream_.queue()->launch(*entry.graph);
  if (work.through != nullptr) *work.through = entry.through;
  std::copy(entry.saved.begin(), entry.saved.end(), work.saved.tensors().begin());
  restore(work.run, entry.fill);
  for (const ParamId id : entry.begins) work.run.grads->set_begun(id, true);
}

}  // namespace trifold
