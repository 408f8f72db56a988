#include "train/expert_loads.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "checkpoint/tensor_kind.h"
#include "nn/experts.h"

namespace trifold {

namespace {

// Calls body(element) for a reference to each element of a tensor in f32 or f64.
template <class Body>
void for_each_element(const Tensor& values, Body body) {
  for (int64_t i = 0; i < values.elements(); ++i)
    if (values.dtype == DType::F64)
      body(i, values.as<double>()[i]);
    else
      body(i, values.as<float>()[i]);
}

}  // namespace

ExpertLoads::ExpertLoads(Replica& replica, const ShardedOptimizer& optimizer, const ModelConfig& model)
    : replica_(replica),
      experts_(*model.num_experts),
      rate_(model.adapters.lora_rank ? 0 : model.moe_router_bias_update_rate),
      in_rounds_(replica.mesh().sizes().ranks(kExpertShareAxes) > 1) {
  const ReportList& reports = replica.model().reports;
  const int blocks = static_cast<int>(replica.model().blocks.size());
  for (int block = 0, index = 0; block < blocks;) {
    const auto counter = [&](const char* name) { return reports.counters.find(block, name, index); };
    const auto choices = counter(ExpertReports::kChoices), rounds = counter(ExpertReports::kRounds);
    if (choices && rounds) {
      blocks_.push_back({block, index, *choices, *rounds, counter(ExpertReports::kDropped),
                         counter(ExpertReports::kPreferred),
                         reports.host_values.find(block, ExpertReports::kLastChoices, index)});
      ++index;
    } else {
      ++block;
      index = 0;
    }
  }
  counts_.resize(blocks_.size() * static_cast<size_t>(experts_));
  rounds_of_blocks_.resize(blocks_.size());
  loads_.resize(blocks_.size(), 1.0);
  const auto any = [&](auto reported) { return std::any_of(blocks_.begin(), blocks_.end(), reported); };
  if (any([](const ExpertBlock& block) { return block.dropped.has_value(); }))
    dropped_.resize(blocks_.size());
  if (any([](const ExpertBlock& block) { return block.last_choices.has_value(); })) {
    preferred_.resize(counts_.size());
    last_.resize(counts_.size());
  }
  if (!model.moe_router_enable_expert_bias) return;
  const ParamList& params = replica.layout().params();
  for (const ShardedOptimizer::Piece& piece : optimizer.pieces()) {
    const ParamSpec& spec = params[piece.segment.id];
    if (spec.is_buffer && piece.kind == kWeightKind)
      masters_.push_back({layer_of(params, piece.segment.id.index, blocks_), piece.segment.first,
                          piece.values, replica.layout().saves(piece.segment.id)});
  }
  shares_exact_ = accumulate_type(replica.dtype()) != replica.dtype();
  copy_.resize(static_cast<size_t>(experts_));
  if (!shares_exact_) return;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].is_buffer && params.held({i}))
      exact_.push_back({layer_of(params, i, blocks_), 0, replica.weights().exact({i}), false});
}

// Layers of a block declare their biases and their reports in the same order.
size_t ExpertLoads::layer_of(const ParamList& params, int bias, std::span<const ExpertBlock> blocks) {
  const int block = params[{bias}].block;
  int index = 0;
  for (int i = 0; i < bias; ++i) index += params[{i}].is_buffer && params[{i}].block == block ? 1 : 0;
  const auto found = std::find_if(blocks.begin(), blocks.end(), [&](const ExpertBlock& each) {
    return each.block == block && each.index == index;
  });
  check(found != blocks.end(), "{} is no bias of experts", params[{bias}].shard.name);
  return static_cast<size_t>(found - blocks.begin());
}

template <class Body>
void ExpertLoads::change_each(const Tensor& values, Body body) {
  const OpTable& ops = replica_.ops();
  if (ops.device == nullptr) return for_each_element(values, body);
  Stream& stream = replica_.compute();
  const Tensor here{copy_.data(), values.dtype, values.shape};
  ops.copy(stream, here, values);
  stream.synchronize();
  for_each_element(here, body);
  ops.copy(stream, values, here);
}

void ExpertLoads::sum_over_ranks(std::span<double> table) {
  Stream host = replica_.compute().host();
  replica_.world().all_reduce({table.data(), DType::F64, {static_cast<int64_t>(table.size())}}, Reduce::Sum,
                              host);
}

void ExpertLoads::sum(Tensor counters) {
  replica_.compute().synchronize();
  const std::span<const double> all(counters.as<double>(), static_cast<size_t>(counters.elements()));
  const auto values = [&](CounterId id) {
    return all.subspan(static_cast<size_t>(id.first), static_cast<size_t>(id.count));
  };
  const auto copy = [&](CounterId from, std::span<double> to) {
    std::copy_n(values(from).begin(), from.count, to.begin());
  };
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const ExpertBlock& block = blocks_[i];
    copy(block.choices, row(counts_, i));
    rounds_of_blocks_[i] = values(block.rounds).front();
    if (block.preferred) copy(*block.preferred, row(preferred_, i));
    if (block.dropped) dropped_[i] = values(*block.dropped).front();
  }
  sum_over_ranks(counts_);
  if (keeps_choices()) sum_over_ranks(preferred_);
  if (!dropped_.empty()) sum_over_ranks(dropped_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const std::span<const double> of_block = row(counts_, i);
    const double total = std::accumulate(of_block.begin(), of_block.end(), 0.0);
    const double most = *std::max_element(of_block.begin(), of_block.end());
    loads_[i] = total > 0 ? most * static_cast<double>(experts_) / total : 1;
  }
  if (!in_rounds_) return;
  Stream host = replica_.compute().host();
  replica_.world().all_reduce(
      {rounds_of_blocks_.data(), DType::F64, {static_cast<int64_t>(rounds_of_blocks_.size())}}, Reduce::Max,
      host);
  rounds_ = static_cast<int64_t>(*std::max_element(rounds_of_blocks_.begin(), rounds_of_blocks_.end()));
}

void ExpertLoads::move_biases() {
  if (rate_ == 0) return;
  for (const std::vector<Part>* parts : {&masters_, &exact_})
    for (const Part& part : *parts) {
      const std::span<const double> counts = row(counts_, part.layer);
      const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
      change_each(part.values, [&](int64_t i, auto& bias) {
        const double count = counts[static_cast<size_t>(part.first + i)] * static_cast<double>(experts_);
        using T = std::remove_reference_t<decltype(bias)>;
        if (count < total) bias += static_cast<T>(rate_);
        if (count > total) bias -= static_cast<T>(rate_);
      });
    }
}

void ExpertLoads::keep_choices() {
  for (size_t i = 0; i < last_.size(); ++i) {
    check(preferred_[i] <= std::numeric_limits<int32_t>::max(),
          "{} choices of one expert in a global batch are too many to count: at most {} are possible",
          preferred_[i], std::numeric_limits<int32_t>::max());
    last_[i] = static_cast<int32_t>(preferred_[i]);
  }
}

void ExpertLoads::write_choices(Tensor to) const {
  for (size_t i = 0; i < blocks_.size(); ++i)
    if (const auto& choices = blocks_[i].last_choices)
      std::copy_n(last_.begin() + static_cast<int64_t>(i) * experts_, experts_,
                  to.as<int32_t>() + choices->first);
}

nlohmann::json ExpertLoads::state() const {
  nlohmann::json state = nlohmann::json::array();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto begin = last_.begin() + static_cast<int64_t>(i) * experts_;
    state.push_back(std::vector<int32_t>(begin, begin + experts_));
  }
  return state;
}

void ExpertLoads::restore(const JsonView& state) {
  if (state.size() != blocks_.size())
    state.refuse(fmt::format("a list for each of {} layers", blocks_.size()));
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const JsonView item = state.item(i);
    const std::vector<int64_t> counts = item.integers(0, std::numeric_limits<int32_t>::max());
    if (counts.size() != static_cast<size_t>(experts_))
      item.refuse(fmt::format("a list of {} numbers", experts_));
    std::transform(counts.begin(), counts.end(), last_.begin() + static_cast<int64_t>(i) * experts_,
                   [](int64_t count) { return static_cast<int32_t>(count); });
  }
}

void ExpertLoads::forget() { std::fill(last_.begin(), last_.end(), 0); }

void ExpertLoads::take_biases() {
  if (!shares_exact_) return;
  std::fill(counts_.begin(), counts_.end(), 0.0);
  for (const Part& part : masters_)
    if (part.counts)
      change_each(part.values, [&](int64_t i, auto& bias) {
        row(counts_, part.layer)[static_cast<size_t>(part.first + i)] = static_cast<double>(bias);
      });
  sum_over_ranks(counts_);
  for (const Part& part : exact_)
    change_each(part.values, [&](int64_t i, auto& bias) {
      bias = static_cast<std::remove_reference_t<decltype(bias)>>(
          row(counts_, part.layer)[static_cast<size_t>(i)]);
    });
}

}  // namespace trifold
