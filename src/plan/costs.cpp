#include "plan/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/read_json.h"
#include "plan/forecast/node_cores.h"
#include "plan/forecast/workload.h"

namespace trifold {

namespace {

size_t element_bytes(const PretrainConfig& config) { return size_of(compute_type(config.precision)); }

// Positions of a micro-batch, on all context ranks.
double positions(const PretrainConfig& config) {
  return static_cast<double>(config.batch.micro_batch_size) * static_cast<double>(config.model.seq_length);
}

// Elements of the activation [R, C] of a micro-batch before it is cut over the tensor axis.
double activation_elements(const PretrainConfig& config) {
  return positions(config) / config.mesh.context_parallel_size *
         static_cast<double>(config.model.hidden_size);
}

// The bytes that a rank sends over the context axis for one micro-batch in one block: for attention, and in each pass of
// its router.
struct ContextBytes {
  double forward = 0, input = 0, router = 0;
};
ContextBytes context_bytes_of(const PretrainConfig& config, const ContextNumbers& numbers) {
  const double context = config.mesh.context_parallel_size;
  const double each = (context - 1) / context * positions(config);
  const auto bytes = static_cast<double>(element_bytes(config));
  const auto of_sums = static_cast<double>(size_of(accumulate_type(compute_type(config.precision))));
  const RouterNumbers& routers = numbers.routers;
  constexpr auto kOfCount = static_cast<double>(size_of(DType::I32));
  const double counts =
      static_cast<double>(config.batch.micro_batch_size) * routers.sample_counts + routers.micro_counts;
  return {each * numbers.forward * bytes, each * (numbers.input * bytes + numbers.sums * of_sums),
          each * routers.choices * (kOfCount + of_sums) + (context - 1) * counts * kOfCount};
}

struct ExpertParts {
  double forward = 0, input = 0, weight = 0;
};
// Bytes that a rank sends to those that share its experts, or where `load` is above 1, what the busiest of them gets: rows
// that go to experts or come back are as many times more, tokens that all ranks gather are not.
ExpertParts expert_bytes_of(const PretrainConfig& config, const ExpertNumbers& numbers, double load) {
  const auto ranks = static_cast<double>(config.mesh.expert_ranks());
  const double cut = config.mesh.tensor_model_parallel_size * config.mesh.context_parallel_size;
  const double parts = config.mesh.expert_tensor_parallel_size;  // each of which gets a row
  const double tokens = (ranks - 1) / ranks * positions(config) / cut;
  const double each = load * parts * tokens;
  const auto bytes = static_cast<double>(element_bytes(config));
  const auto of_gates = static_cast<double>(size_of(accumulate_type(compute_type(config.precision))));
  const double back = each * numbers.choices * numbers.width * bytes;
  const bool gathers = config.mesh.moe_token_dispatcher_type == TokenDispatcher::AllGather;
  const double out = gathers ? ranks * tokens * numbers.width * bytes : back;
  // The tokens of the rows are gathered with each forward, the repeated one too.
  const double tokens_of_rows =
      gathers ? ranks * tokens * numbers.choices * static_cast<double>(size_of(DType::I32)) : 0;
  // Rounds send inputs again for both halves of backward, gradients for the second, and gates each time.
  const double again = expert_rounds(config.mesh, load) > 1 ? 1 : 0;
  return {numbers.forward_out * (out + tokens_of_rows) + numbers.forward_back * back +
              each * numbers.forward_gates * of_gates,
          (numbers.input_out - 1) * tokens_of_rows + (numbers.input_out + again) * out +
              numbers.input_back * back + each * (numbers.input_gates + again * numbers.choices) * of_gates,
          (numbers.weight_out + 2 * again) * out + again * each * numbers.choices * of_gates};
}

// Flops of experts' products, of the busiest rank, beyond those that a block has where tokens spread evenly.
ExpertParts more_expert_flops(const PretrainConfig& config, const ExpertNumbers& numbers, double load) {
  const double both = numbers.first_flops + numbers.second_flops;
  const double more = (load - 1) * both;
  const double again = expert_rounds(config.mesh, load) > 1 ? load : 0;
  const bool repeats = config.mesh.recompute_granularity == RecomputeGranularity::Full;
  return {more, (repeats ? 2 : 1) * more + again * numbers.first_flops, more + again * both};
}

// Splits `seconds` of an exchange that may overlap with `attention` seconds of attention.
ContextSeconds beside_attention(const ContextNumbers& numbers, double seconds, double attention) {
  const double hidden = numbers.hidden.hidden_of(seconds, attention);
  return {hidden, seconds - hidden};
}

PlanCosts counted_costs(const PlanConfig& config, const Model& model) {
  const PretrainConfig& run = config.run;
  PlanCosts costs;
  costs.message_latency = config.link_latency * 1e-6;
  costs.bytes_per_second = config.link_bandwidth * 1e9;
  const int tensor = run.mesh.tensor_model_parallel_size;
  const int context = run.mesh.context_parallel_size;
  const double per_flop =
      static_cast<double>(run.batch.micro_batch_size) / (tensor * context) / (config.peak_gflops * 1e9);
  const double bytes = activation_elements(run) * static_cast<double>(element_bytes(run));
  const double sum = ring_seconds(bytes, tensor, config.tensor_link_bandwidth * 1e9, costs.message_latency);
  const double load = config.moe_load_imbalance;
  const int64_t rounds = expert_rounds(run.mesh, load);
  for (const Block& block : model.blocks) {
    const BlockFlops& flops = block.parts;
    const TensorSums& sums = block.tensor_sums;
    const ContextBytes moved = context_bytes_of(run, block.context);
    const double latency = (context - 1) * costs.message_latency;
    const ContextNumbers& numbers = block.context;
    // Products with weights are as many in each part; attention has twice as many products in I, and once more
    // those of F if they are repeated.
    const double attention = (flops.forward - (flops.weight - flops.shared)) * per_flop;
    const double in_input = run.mesh.recompute_granularity == RecomputeGranularity::Full ? 3 : 2;
    const ContextSeconds forward = beside_attention(
        numbers, moved.forward / costs.bytes_per_second + numbers.forward_calls * latency, attention);
    const ContextSeconds input = beside_attention(
        numbers, moved.input / costs.bytes_per_second + numbers.input_calls * latency, in_input * attention);
    const double routing =
        moved.router / costs.bytes_per_second + numbers.routers.calls * latency;  // waited for
    const double route_forward = numbers.routers.forward * routing;
    const double route_input = numbers.routers.input * routing;
    const ExpertParts rows = expert_bytes_of(run, block.experts, load);
    const ExpertParts more = more_expert_flops(run, block.experts, load);
    const auto travel_seconds = [&](double sent, int calls) {
      return sent / costs.bytes_per_second +
             static_cast<double>(rounds * calls * (run.mesh.expert_ranks() - 1)) * costs.message_latency;
    };
    const auto rows_seconds = [&](double sent, int calls, double products) {
      return travel_seconds(sent, calls) + products * per_flop;
    };
    costs.blocks.push_back({flops.forward * per_flop + sums.forward * sum + forward.exposed + route_forward +
                                rows_seconds(rows.forward, block.experts.forward_calls, more.forward),
                            flops.input * per_flop + sums.input * sum + input.exposed + route_input +
                                rows_seconds(rows.input, block.experts.input_calls, more.input),
                            flops.weight * per_flop + sums.weight * sum +
                                rows_seconds(rows.weight, block.experts.weight_calls, more.weight),
                            0});
    BlockSeconds& seconds = costs.blocks.back();
    if (rounds == 1) {  // rounds are not left to the other half of a pair, nor is a repeated forward
      const ExpertNumbers& calls = block.experts;
      seconds.f_rows = travel_seconds(rows.forward, calls.forward_calls);
      seconds.i_rows = travel_seconds(rows.input, calls.input_calls) -
                       (run.mesh.recompute_granularity == RecomputeGranularity::Full ? seconds.f_rows : 0);
      seconds.w_rows = travel_seconds(rows.weight, calls.weight_calls);
    }
    if (flops.shared > 0) {
      seconds.b = seconds.i + seconds.w - flops.shared * per_flop - sums.shared * sum;
    }
    costs.context.push_back(
        {forward.hidden + input.hidden, forward.exposed + input.exposed + route_forward + route_input});
  }
  return costs;
}

// With sharded weights a layer also waits for its weights.
BlockSeconds block_seconds(const BlockCost& cost, const GatherSeconds& gathers) {
  const PartSeconds all = cost.all();
  return {all.forward + gathers.forward,
          all.input + gathers.backward,
          all.weight,
          0,
          cost.rows.forward,
          cost.rows.input,
          cost.rows.weight};
}

// The cost of a block, of which the model's head may be several.
BlockCost cost_of(const BlockCosts& costs, const Block& block, int head_parts) {
  switch (block.kind) {
    case BlockKind::Embedding:
      return costs.embedding;
    case BlockKind::Layer:
      return block.plain ? costs.plain_layer : costs.layer;
    case BlockKind::Head:
      return costs.head.times(1.0 / head_parts);
  }
  fail("a block of kind {} has no forecast", static_cast<int>(block.kind));
}

PlanCosts forecast_costs(const PlanConfig& config, const Model& model) {
  PlanCosts costs;
  costs.forecast = make_forecast(config, model);
  const auto& [hardware, software, work, blocks, closed_form] = *costs.forecast;
  const Workload plain = work.of_plain_layers();
  for (const Block& block : model.blocks) {
    const BlockCost cost = cost_of(blocks, block, config.run.mesh.pipeline_vocab_parts);
    GatherSeconds gathers;
    if (work.pipeline == 1 && block.kind == BlockKind::Layer)
      gathers = layer_gathers(hardware, software, block.plain ? plain : work, cost);
    costs.blocks.push_back(block_seconds(cost, gathers));
    costs.context.push_back({cost.context_hidden.all(), cost.context.all()});
  }
  costs.message_latency = work.pipeline > 1 ? stage_message_seconds(hardware, software, work) : 0;
  costs.bytes_per_second =
      std::numeric_limits<double>::infinity();  // the time of the bytes is in message_latency
  if (!software.overlap_messages) costs.waited_message = costs.message_latency;
  return costs;
}

// The seconds `name` of a file. Their sums over a step must stay finite.
double seconds_from(const JsonView& json, const char* name) {
  constexpr double kMost = 1e6;
  const double seconds = json.at(name).number();
  if (!(seconds >= 0 && seconds <= kMost))
    bad_input("{} is {} s; from 0 to {} are possible", name, seconds, kMost);
  return seconds;
}

// Older files, from before B was measured, have no b.
BlockSeconds block_from(const JsonView& json) {
  return {seconds_from(json, "f"), seconds_from(json, "i"), seconds_from(json, "w"),
          json.has("b") ? seconds_from(json, "b") : 0.0};
}

void check_measured(const JsonView& json, const char* name, int64_t planned) {
  const int64_t measured = json.at(name).integer();
  if (measured != planned)
    bad_input("it was measured with {} {}, this plan has {}: measure again with the same options", name,
              measured, planned);
}

// Older files do not record the exchange that they measured, so they are rejected.
void check_exchange(const JsonView& json, ContextExchange planned) {
  const std::string measured = json.text("cp_comm_type", "an unknown cp_comm_type");
  if (measured != name_of(planned))
    bad_input("it was measured with {}, this plan has cp_comm_type {}: measure again with the same options",
              measured, name_of(planned));
}

// Older files do not record the device, and are taken for those of processors.
void check_device_measured(const JsonView& json, const MeshConfig& mesh) {
  const std::string measured = json.text("device", "cpu"),
                    planned = mesh.device == ComputeDevice::Cuda ? "cuda" : "cpu";
  if (measured != planned)
    bad_input(
        "it was measured with --device {}, this plan has --device {}: plan with --device {}, or measure again with "
        "--device {}",
        measured, planned, measured, planned);
}

// Times of ranks with other numbers of cores than this plan's ranks are scaled. Older files do not say with how many
// they were measured.
double cores_scale(const JsonView& json, const MeshConfig& mesh) {
  if (!json.has("node_cores")) return 1;
  const NodeCores measured{json.at("node_cores").number(), json.at("rank_cores").number(),
                           json.at("ranks_of_node").number()};
  if (!(measured.node >= 1 && measured.rank >= 1 && measured.ranks >= 1))
    bad_input("node_cores {}, rank_cores {} and ranks_of_node {} are not all at least 1", measured.node,
              measured.rank, measured.ranks);
  return 1 / rank_cores(measured, mesh).ratio;
}

PlanCosts read_measured(const std::string& file, const PretrainConfig& run, const Model& model) {
  const nlohmann::json whole = read_json_file(file, {int64_t{1} << 20});
  const JsonView view(whole);
  if (!view.has("blocks"))
    bad_input("it has no block times: write it with trifold bench --what blocks --json FILE");
  const JsonView blocks = view.at("blocks");
  check_measured(blocks, "hidden_size", run.model.hidden_size);
  check_measured(blocks, "seq_length", run.model.seq_length);
  check_measured(blocks, "micro_batch_size", run.batch.micro_batch_size);
  check_measured(blocks, "tensor_model_parallel_size", run.mesh.tensor_model_parallel_size);
  const int context = run.mesh.context_parallel_size;
  if (context > 1 || blocks.has("context_parallel_size"))
    check_measured(blocks, "context_parallel_size", context);
  if (context > 1) check_exchange(blocks, run.mesh.context_exchange());
  const int experts = run.mesh.expert_model_parallel_size;
  if (experts > 1 || blocks.has("expert_model_parallel_size"))
    check_measured(blocks, "expert_model_parallel_size", experts);
  const int width_parts = run.mesh.expert_tensor_parallel_size;
  if (width_parts > 1 || blocks.has("expert_tensor_parallel_size"))
    check_measured(blocks, "expert_tensor_parallel_size", width_parts);
  const int parts = run.mesh.pipeline_vocab_parts;
  if (parts > 1 || blocks.has("pipeline_vocab_parts")) check_measured(blocks, "pipeline_vocab_parts", parts);
  check_device_measured(blocks, run.mesh);
  PlanCosts costs;
  costs.message_latency = seconds_from(blocks, "message_latency");
  costs.bytes_per_second = blocks.at("bytes_per_second").number();
  costs.update_seconds = seconds_from(blocks, "update_seconds");
  if (!(costs.bytes_per_second >= 1))
    bad_input("bytes_per_second is {}, not at least 1", costs.bytes_per_second);
  const double scale = cores_scale(blocks, run.mesh);
  costs.update_seconds *= scale;
  for (const Block& block : model.blocks)
    costs.blocks.push_back(block_from(blocks.at(name_of(block.kind))).times(scale));
  return costs;
}

// `option` names the file.
PlanCosts measured_costs(const char* option, const std::string& file, const PretrainConfig& run,
                         const Model& model) {
  try {
    return read_measured(file, run, model);
  } catch (const Error& error) {
    bad_input("{} {}: {}", option, file, error.what());
  }
}

StageCost stage_cost(const CutModel& model, size_t stage, const PlanCosts& costs) {
  StageCost cost;
  cost.f = cost.i = cost.w = 0;
  for (const int block : model.blocks_of(stage)) {
    const BlockSeconds& seconds = costs.blocks[static_cast<size_t>(block)];
    cost.f += seconds.f;
    cost.i += seconds.i;
    cost.w += seconds.w;
    cost.b += seconds.whole_backward();
    cost.f_exchanges += seconds.f_rows;
    cost.i_exchanges += seconds.i_rows;
    cost.b_exchanges += seconds.i_rows + seconds.w_rows;
  }
  if (model.stages.size() > 1) {
    cost.f += costs.waited_message;
    cost.i += costs.waited_message;
    cost.b += costs.waited_message;
  }
  return cost;
}

}  // namespace

PlanCosts make_plan_costs(const PlanConfig& config, const Model& model) {
  if (config.hardware) return forecast_costs(config, model);
  return config.costs ? measured_costs("--costs", *config.costs, config.run, model)
                      : counted_costs(config, model);
}

PlanCosts make_schedule_costs(const PretrainConfig& run, const Model& model) {
  if (run.pipeline.schedule_costs)
    return measured_costs("--schedule-costs", *run.pipeline.schedule_costs, run, model);
  PlanConfig defaults;
  defaults.run = run;
  return counted_costs(defaults, model);
}

CostModel computing_costs(const PretrainConfig& run, const CutModel& model, const PlanCosts& costs) {
  CostModel all;
  if (run.mesh.overlap_moe_expert_parallel_comm) all.pairs = Together::Turns;
  all.message_seconds = costs.message_latency;
  all.bytes_per_second = costs.bytes_per_second;
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    all.stages.push_back(stage_cost(model, stage, costs));
    const Block& last = model.model.blocks[static_cast<size_t>(model.stages[stage].end) - 1];
    all.stages.back().message_bytes = boundary_bytes(run) + row_number_bytes(run, last.row_numbers);
  }
  return all;
}

std::vector<double> tensor_bytes(const PretrainConfig& config, const Model& model) {
  const int tensor = config.mesh.tensor_model_parallel_size;
  const double sum =
      2.0 * (tensor - 1) / tensor * activation_elements(config) * static_cast<double>(element_bytes(config));
  std::vector<double> bytes;
  for (const Block& block : model.blocks) {
    const TensorSums& sums = block.tensor_sums;
    const double gathered = (tensor - 1.0) / tensor * positions(config) *
                            (block.experts.tensor_forward + block.experts.tensor_input) *
                            static_cast<double>(size_of(accumulate_type(compute_type(config.precision))));
    bytes.push_back((sums.forward + sums.input + sums.weight) * sum + gathered);
  }
  return bytes;
}

std::vector<double> context_bytes(const PretrainConfig& config, const Model& model) {
  std::vector<double> bytes;
  for (const Block& block : model.blocks) {
    const ContextBytes moved = context_bytes_of(config, block.context);
    const RouterNumbers& routers = block.context.routers;
    bytes.push_back(moved.forward + moved.input + (routers.forward + routers.input) * moved.router);
  }
  return bytes;
}

std::vector<double> expert_bytes(const PretrainConfig& config, const Model& model, double load) {
  std::vector<double> bytes;
  for (const Block& block : model.blocks) {
    const ExpertParts moved = expert_bytes_of(config, block.experts, load);
    bytes.push_back(moved.forward + moved.input + moved.weight);
  }
  return bytes;
}

size_t boundary_bytes(const PretrainConfig& config) {
  const auto all = static_cast<size_t>(activation_elements(config)) * element_bytes(config);
  return config.mesh.sequence_parallel ? all / static_cast<size_t>(config.mesh.tensor_model_parallel_size)
                                       : all;
}

size_t row_number_bytes(const PretrainConfig& config, int numbers) {
  const double rows = positions(config) / config.mesh.context_parallel_size;
  return static_cast<size_t>(rows) * static_cast<size_t>(numbers) *
         size_of(accumulate_type(compute_type(config.precision)));
}

double ring_seconds(double bytes, int ranks, double bytes_per_second, double latency) {
  if (ranks < 2) return 0;
  return 2.0 * (ranks - 1) / ranks * bytes / bytes_per_second + 2.0 * (ranks - 1) * latency;
}

}  // namespace trifold
