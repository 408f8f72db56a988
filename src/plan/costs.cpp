#include "plan/costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "core/read_json.h"
#include "mesh/mesh_sizes.h"
#include "plan/forecast/node_cores.h"
#include "plan/forecast/workload.h"

namespace trifold {

namespace {

size_t element_bytes(const RunSpec& run) { return size_of(run.dtype); }

// Positions of a micro-batch, on all context ranks.
double positions(const RunSpec& run) {
  return static_cast<double>(run.micro_batch_size) * static_cast<double>(run.model.seq_length);
}

// Elements of the activation [R, C] of a micro-batch before it is cut over the tensor axis.
double activation_elements(const RunSpec& run) {
  return positions(run) / run.mesh.context_parallel_size * static_cast<double>(run.model.hidden_size);
}

// Prices flops at one rate, and bytes at the rates of their links.
class RatePrices final : public WorkPrices {
 public:
  explicit RatePrices(const PlannedMachine& machine)
      : per_flop_(1 / machine.peak_flops),
        latency_(machine.message_latency),
        link_(machine.bytes_per_second),
        tensor_link_(machine.tensor_bytes_per_second) {}

  double seconds(const Work& work) const override {
    if (work.kind != Work::Kind::Collective) return work.flops * per_flop_;
    const bool tensor = work.group == AxisSet{Axis::Tp}.bits();
    return work.sent / (tensor ? tensor_link_ : link_) + work.hops * latency_;
  }
  double exposed(const Work&) const override { return 1; }
  double contention() const override { return 0; }

 private:
  double per_flop_, latency_, link_, tensor_link_;
};

// The other half of a pair cannot hide exchanges in several rounds, nor exchanges of a repeated forward.
void add_row_seconds(const RunSpec& run, double load, const ListSeconds& f, const ListSeconds& i,
                     const ListSeconds& w, BlockSeconds& seconds) {
  if (expert_rounds(run.mesh, load) > 1) return;
  const bool repeats = run.mesh.recompute_granularity == RecomputeGranularity::Full;
  seconds.f_rows = f.rows;
  seconds.i_rows = i.rows - (repeats ? f.rows : 0);
  seconds.w_rows = w.rows;
}

PlanCosts counted_costs(const RunSpec& run, const PlannedMachine& machine, const CutModel& cut) {
  const Model& model = cut.model;
  PlanCosts costs;
  costs.message_latency = machine.message_latency;
  costs.bytes_per_second = machine.bytes_per_second;
  const double load = machine.expert_load;
  const WalkedModel work = walk_run(run, model, load);
  const RatePrices prices(machine);
  const double per_flop = static_cast<double>(run.micro_batch_size) /
                          (run.mesh.tensor_model_parallel_size * run.mesh.context_parallel_size) /
                          machine.peak_flops;
  for (size_t index = 0; index < model.blocks.size(); ++index) {
    const WalkedBlock& walked = work.of_block(index);
    const ListSeconds f = seconds_of(walked.forward, prices), i = seconds_of(walked.input, prices),
                      w = seconds_of(walked.weight, prices);
    BlockSeconds seconds{f.all(), i.all(), w.all(), seconds_of(walked.backward, prices).all()};
    add_row_seconds(run, load, f, i, w, seconds);
    seconds.f_calls = f.tensor + f.context;
    seconds.i_calls = i.tensor + i.context;
    seconds.w_calls = w.tensor + w.context;
    if (model.blocks[index].kind == BlockKind::Embedding) {  // its rows are moved, which is no product
      const double moves = cut.flops.moving() * per_flop;
      seconds.f += moves;
      seconds.w += moves;
      seconds.b += moves;
    }
    costs.blocks.push_back(seconds);
    costs.context.push_back({f.context_hidden + i.context_hidden, f.context + i.context});
  }
  return costs;
}

// A layer with sharded weights also waits for gathering them.
BlockSeconds block_seconds(const BlockCost& cost, const GatherSeconds& gathers) {
  const PartSeconds all = cost.all();
  return {all.forward + gathers.forward,
          all.input + gathers.backward,
          all.weight,
          0,
          cost.rows.forward,
          cost.rows.input,
          cost.rows.weight,
          cost.tensor.forward + cost.context.forward + gathers.forward,
          cost.tensor.input + cost.context.input + gathers.backward,
          cost.tensor.weight + cost.context.weight};
}

// The cost of a block; the head may consist of several blocks.
BlockCost cost_of(const BlockCosts& costs, const Block& block, int head_parts) {
  switch (block.kind) {
    case BlockKind::Embedding:
      return costs.embedding;
    case BlockKind::Layer:
      return costs.layers.at(block.layer_kind);
    case BlockKind::Head:
      return costs.head.times(1.0 / head_parts);
  }
  fail("a block of kind {} has no forecast", static_cast<int>(block.kind));
}

PlanCosts forecast_costs(const RunSpec& run, const PlannedMachine& machine, const Model& model,
                         CostsOfModel* known) {
  PlanCosts costs;
  costs.forecast = make_forecast(run, machine, model, known);
  const auto& [hardware, software, work, blocks, closed_form] = *costs.forecast;
  for (const Block& block : model.blocks) {
    BlockCost cost = cost_of(blocks, block, run.mesh.pipeline_vocab_parts);
    GatherSeconds gathers;
    if (work.pipeline == 1 && block.kind == BlockKind::Layer)
      gathers = layer_gathers(hardware, software, work, cost);
    if (block.backward == BlockBackward::None) {
      cost = cost.forward_only();
      gathers.backward = 0;
    }
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

// Older files do not record the device; they were measured on processors.
void check_device_measured(const JsonView& json, const MeshConfig& mesh) {
  const std::string measured = json.text("device", "cpu"),
                    planned = mesh.device == ComputeDevice::Cuda ? "cuda" : "cpu";
  if (measured != planned)
    bad_input(
        "it was measured with --device {}, this plan has --device {}: plan with --device {}, or measure again with "
        "--device {}",
        measured, planned, measured, planned);
}

// Scales times that were measured with another number of cores per rank than this plan has. Older files do not record
// the number.
double cores_scale(const JsonView& json, const MeshConfig& mesh) {
  if (!json.has("node_cores")) return 1;
  const NodeCores measured{json.at("node_cores").number(), json.at("rank_cores").number(),
                           json.at("ranks_of_node").number()};
  if (!(measured.node >= 1 && measured.rank >= 1 && measured.ranks >= 1))
    bad_input("node_cores {}, rank_cores {} and ranks_of_node {} are not all at least 1", measured.node,
              measured.rank, measured.ranks);
  return 1 / rank_cores(measured, mesh).ratio;
}

PlanCosts read_measured(const std::string& file, const RunSpec& run, const Model& model) {
  const nlohmann::json whole = read_json_file(file, {int64_t{1} << 20});
  const JsonView view(whole);
  if (!view.has("blocks"))
    bad_input("it has no block times: write it with trifold bench --what blocks --json FILE");
  const JsonView blocks = view.at("blocks");
  check_measured(blocks, "hidden_size", run.model.hidden_size);
  check_measured(blocks, "seq_length", run.model.seq_length);
  check_measured(blocks, "micro_batch_size", run.micro_batch_size);
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
PlanCosts measured_costs(const char* option, const std::string& file, const RunSpec& run,
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

WalkedModel walk_run(const RunSpec& run, const Model& model, double load, FusedOps fused) {
  const MeshSizes sizes = mesh_sizes(run.mesh);
  Batch batch = batch_without_memory(run.micro_batch_size, run.model.seq_length, model.later_labels);
  cut_rows(batch, rows_here(model.row_cut, run.model.seq_length, sizes, {}));
  return walk_work(model, Mesh(sizes, {}), batch, run.layer_type(), counting_ops(fused), load);
}

std::unique_ptr<WorkPrices> rate_prices(const PlannedMachine& machine) {
  return std::make_unique<RatePrices>(machine);
}

PlanCosts make_plan_costs(const RunSpec& run, const PlannedMachine& machine, const CutModel& model,
                          CostsOfModel* costs) {
  if (machine.hardware) return forecast_costs(run, machine, model.model, costs);
  return machine.costs_file.empty() ? counted_costs(run, machine, model)
                                    : measured_costs("--costs", machine.costs_file, run, model.model);
}

PlanCosts make_schedule_costs(const RunSpec& run, const CutModel& model) {
  if (!run.order.costs_file.empty())
    return measured_costs("--schedule-costs", run.order.costs_file, run, model.model);
  return counted_costs(run, PlannedMachine(), model);
}

CostModel computing_costs(const RunSpec& run, const CutModel& model, const PlanCosts& costs) {
  CostModel all;
  if (run.mesh.overlap_moe_expert_parallel_comm) all.pairs = PairExecution::Alternating;
  all.message_seconds = costs.message_latency;
  all.bytes_per_second = costs.bytes_per_second;
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    all.stages.push_back(stage_cost(model, stage, costs));
    const Block& last = model.model.blocks[static_cast<size_t>(model.stages[stage].end) - 1];
    all.stages.back().message_bytes = last.output.bytes(
        run.micro_batch_size, run.model.seq_length / run.mesh.context_parallel_size, run.dtype);
  }
  return all;
}

std::vector<StageCalls> waited_calls(const CutModel& model, const PlanCosts& costs) {
  std::vector<StageCalls> all;
  for (size_t stage = 0; stage < model.stages.size(); ++stage) {
    StageCalls calls;
    for (const int block : model.blocks_of(stage)) {
      const BlockSeconds& seconds = costs.blocks[static_cast<size_t>(block)];
      calls.f += seconds.f_calls;
      calls.i += seconds.i_calls;
      calls.w += seconds.w_calls;
    }
    if (model.stages.size() > 1) {
      calls.f += costs.waited_message;
      calls.i += costs.waited_message;
    }
    all.push_back(calls);
  }
  return all;
}

SentBytes sent_bytes(const RunSpec& run, const Model& model, double load) {
  const WalkedModel work = walk_run(run, model, load);
  SentBytes sent;
  for (size_t index = 0; index < work.blocks(); ++index) {
    const WalkedBlock& block = work.of_block(index);
    const auto over = [&](AxisSet axes) {
      double bytes = 0;
      for (const std::span<const Work> list :
           {std::span<const Work>(block.forward), {block.input}, {block.weight}})
        for (const Work& each : list)
          if (each.kind == Work::Kind::Collective && each.group == axes.bits())
            bytes += each.times * each.sent;
      return bytes;
    };
    sent.tensor.push_back(over({Axis::Tp}));
    sent.context.push_back(over({Axis::Cp}));
    sent.experts.push_back(over(kExpertShareAxes));
  }
  return sent;
}

size_t boundary_bytes(const RunSpec& run) {
  const auto all = static_cast<size_t>(activation_elements(run)) * element_bytes(run);
  return run.mesh.sequence_parallel ? all / static_cast<size_t>(run.mesh.tensor_model_parallel_size) : all;
}

double ring_seconds(double bytes, int ranks, double bytes_per_second, double latency) {
  if (ranks < 2) return 0;
  return 2.0 * (ranks - 1) / ranks * bytes / bytes_per_second + 2.0 * (ranks - 1) * latency;
}

}  // namespace trifold
