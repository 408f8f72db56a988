#include "train/plan_costs.h"

#include <fmt/format.h>

#include <limits>

#include "core/error.h"
#include "core/read_json.h"
#include "models/block_flops.h"
#include "models/gpt.h"

namespace trifold {

namespace {

// The three kinds of blocks a GPT has.
enum class BlockKind { Embedding, Layer, Head };

BlockKind kind_of(const Model& model, size_t block) {
  if (block == 0) return BlockKind::Embedding;
  return block + 1 == model.blocks.size() ? BlockKind::Head : BlockKind::Layer;
}

size_t element_bytes(const PretrainConfig& config) { return size_of(compute_type(config.precision)); }

// Elements of the activation [R, C] of a micro-batch before it is cut over the tensor axis.
double activation_elements(const PretrainConfig& config) {
  return static_cast<double>(config.batch.micro_batch_size) * static_cast<double>(config.model.seq_length) *
         static_cast<double>(config.model.hidden_size);
}

// Whole activations that are summed over the tensor axis in each part of a block. Each linear pair has one
// sum in forward (of its output) and one in backward (of the gradient of its input). Sequence parallelism
// makes a gather and a scatter of each, which move as much, and gathers the inputs of the two column-parallel
// layers once more for their weight gradients (half a sum each).
struct Sums {
  double f = 0;
  double i = 0;
  double w = 0;
};

Sums sums_of(BlockKind kind, const MeshConfig& mesh) {
  Sums sums;
  if (kind == BlockKind::Embedding) sums = {1, 0, 0};
  if (kind == BlockKind::Head) sums = {1, 0, 0};
  if (kind == BlockKind::Layer) {
    sums = {2, 2, mesh.sequence_parallel ? 1.0 : 0.0};
    if (mesh.recompute_granularity == RecomputeGranularity::Full) sums.i += 2;
  }
  return sums;
}

// An embedding has no products; its moves are counted as its share of a stage is (models/model.h).
BlockFlops counted_flops(const PretrainConfig& config, const Model& model, size_t block) {
  const BlockKind kind = kind_of(model, block);
  if (kind == BlockKind::Embedding) return {model.blocks[block].cost, 0, model.blocks[block].cost};
  if (kind == BlockKind::Layer) return flops_of_layer(config.model, config.mesh.recompute_granularity);
  return flops_of_head(config.model, padded_vocab_size(config.model, config.mesh.tensor_model_parallel_size));
}

PlanCosts counted_costs(const PlanConfig& config, const Model& model) {
  const PretrainConfig& run = config.run;
  PlanCosts costs;
  costs.message_latency = config.link_latency * 1e-6;
  costs.bytes_per_second = config.link_bandwidth * 1e9;
  const int tensor = run.mesh.tensor_model_parallel_size;
  const double per_flop =
      static_cast<double>(run.batch.micro_batch_size) / tensor / (config.peak_gflops * 1e9);
  const double bytes = activation_elements(run) * static_cast<double>(element_bytes(run));
  const double sum = ring_seconds(bytes, tensor, config.tensor_link_bandwidth * 1e9, costs.message_latency);
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    const BlockFlops flops = counted_flops(run, model, block);
    const Sums sums = sums_of(kind_of(model, block), run.mesh);
    costs.blocks.push_back({flops.forward * per_flop + sums.f * sum, flops.input * per_flop + sums.i * sum,
                            flops.weight * per_flop + sums.w * sum, 0});
  }
  return costs;
}

// A layer waits for its weights where they are sharded, beside its own computation.
BlockSeconds block_seconds(const BlockCost& cost, const GatherSeconds& gathers = {}) {
  const PartSeconds all = cost.all();
  return {all.forward + gathers.forward, all.input + gathers.backward, all.weight, 0};
}

PlanCosts forecast_costs(const PlanConfig& config, const Model& model) {
  PlanCosts costs;
  costs.forecast = make_forecast(config, model);
  const auto& [hardware, software, work, blocks, closed_form] = *costs.forecast;
  const GatherSeconds gathers =
      work.pipeline == 1 ? layer_gathers(hardware, software, work, blocks.layer) : GatherSeconds{};
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    const BlockKind kind = kind_of(model, block);
    costs.blocks.push_back(kind == BlockKind::Embedding ? block_seconds(blocks.embedding)
                           : kind == BlockKind::Layer   ? block_seconds(blocks.layer, gathers)
                                                        : block_seconds(blocks.head));
  }
  costs.message_latency = work.pipeline > 1 ? stage_message_seconds(hardware, software, work) : 0;
  costs.bytes_per_second = std::numeric_limits<double>::infinity();  // the bytes are in message_latency
  if (!software.overlap_messages) costs.waited_message = costs.message_latency;
  return costs;
}

// Files of before B was measured have no b.
BlockSeconds block_from(const JsonView& json) {
  const BlockSeconds seconds{json.at("f").number(), json.at("i").number(), json.at("w").number(),
                             json.has("b") ? json.at("b").number() : 0.0};
  if (!(seconds.f >= 0 && seconds.i >= 0 && seconds.w >= 0 && seconds.b >= 0))
    bad_input("a time is negative");
  return seconds;
}

void check_measured(const JsonView& json, const char* name, int64_t planned) {
  const int64_t measured = json.at(name).integer();
  if (measured != planned)
    bad_input("it was measured with {} {}, this plan has {}: measure again with the same options", name,
              measured, planned);
}

PlanCosts measured_costs(const PlanConfig& config, const Model& model) {
  const nlohmann::json whole = read_json_file(*config.costs, {int64_t{1} << 20});
  const JsonView view(whole);
  if (!view.has("blocks"))
    bad_input("it holds no times of blocks: write it with trifold bench --what blocks --json FILE");
  const JsonView blocks = view.at("blocks");
  const PretrainConfig& run = config.run;
  check_measured(blocks, "hidden_size", run.model.hidden_size);
  check_measured(blocks, "seq_length", run.model.seq_length);
  check_measured(blocks, "micro_batch_size", run.batch.micro_batch_size);
  check_measured(blocks, "tensor_model_parallel_size", run.mesh.tensor_model_parallel_size);
  PlanCosts costs;
  costs.message_latency = blocks.at("message_latency").number();
  costs.bytes_per_second = blocks.at("bytes_per_second").number();
  costs.update_seconds = blocks.at("update_seconds").number();
  if (!(costs.bytes_per_second > 0)) bad_input("bytes_per_second is not above 0");
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    const BlockKind kind = kind_of(model, block);
    costs.blocks.push_back(block_from(blocks.at(kind == BlockKind::Embedding ? "embedding"
                                                : kind == BlockKind::Layer   ? "layer"
                                                                             : "head")));
  }
  return costs;
}

}  // namespace

PlanCosts make_plan_costs(const PlanConfig& config, const Model& model) {
  if (config.hardware) return forecast_costs(config, model);
  if (!config.costs) return counted_costs(config, model);
  try {
    return measured_costs(config, model);
  } catch (const Error& error) {
    bad_input("--costs {}: {}", *config.costs, error.what());
  }
}

std::vector<double> tensor_bytes(const PretrainConfig& config, const Model& model) {
  const int tensor = config.mesh.tensor_model_parallel_size;
  const double sum =
      2.0 * (tensor - 1) / tensor * activation_elements(config) * static_cast<double>(element_bytes(config));
  std::vector<double> bytes;
  for (size_t block = 0; block < model.blocks.size(); ++block) {
    const Sums sums = sums_of(kind_of(model, block), config.mesh);
    bytes.push_back((sums.f + sums.i + sums.w) * sum);
  }
  return bytes;
}

size_t boundary_bytes(const PretrainConfig& config) {
  const auto all = static_cast<size_t>(activation_elements(config)) * element_bytes(config);
  return config.mesh.sequence_parallel ? all / static_cast<size_t>(config.mesh.tensor_model_parallel_size)
                                       : all;
}

double ring_seconds(double bytes, int ranks, double bytes_per_second, double latency) {
  if (ranks < 2) return 0;
  return 2.0 * (ranks - 1) / ranks * bytes / bytes_per_second + 2.0 * (ranks - 1) * latency;
}

}  // namespace trifold
