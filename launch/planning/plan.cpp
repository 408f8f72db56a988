#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "config/subjects/model_family.h"
#include "core/bytes_text.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/planning/goodput_lines.h"
#include "launch/planning/plan_json.h"
#include "launch/planning/plan_search.h"
#include "launch/progress.h"
#include "launch/rehearse/rehearsal_lines.h"
#include "launch/size_lines.h"
#include "launch/stage_lines.h"
#include "models/language_family.h"
#include "models/width_rules.h"
#include "plan/memory_fit.h"
#include "plan/pictures/step_svg.h"
#include "plan/records.h"
#include "plan/report.h"
#include "plan/resolve.h"
#include "plan/zero_table.h"
#include "schedule/torch/torch_schedule.h"
#include "train/pretrain.h"

namespace trifold::launch {

namespace {

constexpr size_t kFewRanks = 8;  // all are shown
constexpr size_t kFirstActions = 16;

// All ranks if they are few, else the first, the middle and the last, and the one that needs most memory.
std::set<size_t> shown_ranks(const PlanReport& report) {
  std::set<size_t> ranks;
  const size_t count = report.memory.size();
  const auto most = std::max_element(
      report.memory.begin(), report.memory.end(),
      [](const auto& a, const auto& b) { return a.predicted_total() < b.predicted_total(); });
  if (count > kFewRanks)
    ranks = {0, count / 2, count - 1, static_cast<size_t>(most - report.memory.begin())};
  else
    for (size_t rank = 0; rank < count; ++rank) ranks.insert(rank);
  return ranks;
}

void print_ranks(const PlanReport& report) {
  const std::set<size_t> shown = shown_ranks(report);
  fmt::print("memory      of a rank, by place in the pipeline\n");
  fmt::print("  {:>9}  {:>11} {:>11} {:>11} {:>11} {:>12}  {}\n", "rank", "weights", "gradients", "optimizer",
             "activations", "all", report.memory[0].offloaded == 0 ? "in flight" : "in flight    off-loaded");
  for (const size_t rank : shown) {
    const MemoryReport& memory = report.memory[rank];
    fmt::print("  {:>9}  {:>11} {:>11} {:>11} {:>11} {:>12}  {}{}\n", rank, bytes_text(memory.parameters),
               bytes_text(memory.gradients), bytes_text(memory.optimizer),
               bytes_text(memory.predicted_activations), bytes_text(memory.predicted_total()),
               report.simulation.ranks[rank].peak_in_flight,
               memory.offloaded == 0 ? "" : fmt::format("{:>22}", bytes_text(memory.offloaded)));
  }
  if (report.memory[0].workspace > 0)
    fmt::print("  {} of each is work space of cuBLASLt and cuDNN on its device\n",
               bytes_text(report.memory[0].workspace));
  fmt::print("traffic     bytes that a rank sends in a step\n");
  const auto line = [&](const auto& rank, const auto& tensor, const auto& context, const auto& experts,
                        const auto& pipeline, const auto& data) {
    fmt::print("  {:>9}  {:>11} {}{}{:>11} {:>11}\n", rank, tensor,
               report.context > 1 ? fmt::format("{:>11} ", context) : "",
               report.experts_text.empty() ? "" : fmt::format("{:>11} ", experts), pipeline, data);
  };
  line("rank", "tensor", "context", "experts", "pipeline", "data");
  for (const size_t rank : shown) {
    const TrafficReport& traffic = report.traffic[rank];
    const auto text = [](double bytes) { return bytes_text(static_cast<size_t>(bytes)); };
    line(rank, text(traffic.tensor), text(traffic.context), text(traffic.experts), text(traffic.pipeline),
         text(traffic.data));
  }
}

// Prints the activations that are off-loaded to files, or from a device to its host's memory, if there are any.
void print_offloading(const PlanReport& report, bool on_device) {
  const auto moves = [](const TrafficReport& traffic) { return traffic.offloaded > 0; };
  if (std::none_of(report.traffic.begin(), report.traffic.end(), moves)) return;
  fmt::print("off-load    activations of a rank, to {} and back in a step\n",
             on_device ? "the host's memory" : "files");
  fmt::print("  {:>9}  {:>11} {:>11} {:>11} {:>11}  {}\n", "rank", "in memory", on_device ? "host" : "files",
             "written", "read", "waits");
  for (const size_t rank : shown_ranks(report)) {
    const TrafficReport& traffic = report.traffic[rank];
    fmt::print("  {:>9}  {:>11} {:>11} {:>11} {:>11}  {}\n", rank,
               bytes_text(report.memory[rank].predicted_activations),
               bytes_text(report.memory[rank].offloaded_activations),
               bytes_text(static_cast<size_t>(traffic.offloaded)),
               bytes_text(static_cast<size_t>(traffic.fetched)),
               seconds_text(report.simulation.ranks[rank].fetch_wait / report.batches));
  }
}

// Prints the exchanges of the rank that waits longest.
void print_exchanges(const PlanReport& report) {
  if (report.context == 1 || report.exchanges.empty()) return;
  const ContextSeconds& most =
      *std::max_element(report.exchanges.begin(), report.exchanges.end(),
                        [](const auto& a, const auto& b) { return a.exposed < b.exposed; });
  fmt::print("context     exchanges of a rank in a step: {} behind attention, {} that it waits for\n",
             seconds_text(most.hidden), seconds_text(most.exposed));
}

// The extents of one operation or collective.
std::string shape_text(const Work& work) {
  if (work.kind == Work::Kind::Product)
    return fmt::format("{}[{:.6g}, {:.6g}] x [{:.6g}, {:.6g}]",
                       work.batch > 1 ? fmt::format("{:.6g} of ", work.batch) : "", work.rows, work.inner,
                       work.inner, work.columns);
  if (work.kind == Work::Kind::Attention)
    return fmt::format("{:.6g} heads, [{:.6g}, {:.6g}] scores", work.batch, work.rows, work.columns);
  return to_string(work.result);
}

// Prints the work of each kind of block, part by part.
void print_records(const std::vector<RecordedBlock>& blocks) {
  if (blocks.empty()) return;
  fmt::print("records     what the first rank does with one micro-batch; bytes are of memory, or sent\n");
  const auto amount = [](double count) { return count > 0 ? count_text(count) : std::string("-"); };
  for (const RecordedBlock& block : blocks) {
    fmt::print("  {}{}\n", block.name, block.blocks > 1 ? fmt::format(" ({} like it)", block.blocks) : "");
    for (const auto& [part, records] :
         {std::pair{"F", &block.forward}, {"I", &block.input}, {"W", &block.weight}})
      for (const Record& record : *records) {
        const Work& work = record.work;
        const bool sends = work.kind == Work::Kind::Collective;
        fmt::print(
            "    {}  {:<28} {:<34} {:>6} x {:>9} FLOP {:>9} bytes  {:>11}\n", part,
            sends ? fmt::format("{} of {} {}", work.name, work.ranks, axes_text(AxisSet::of_bits(work.group)))
                  : std::string(work.name),
            shape_text(work), count_text(record.times), amount(work.flops),
            amount(sends ? work.sent : work.bytes), seconds_text(record.seconds));
      }
  }
}

// Prints the load that times assume, and which kind of dispatch sends less.
void print_dispatch(const PlanReport& report) {
  if (!report.dispatch) return;
  const ExpertReport& dispatch = *report.dispatch;
  fmt::print("experts     the busiest rank gets {:.2f} times the mean of rows{}\n", dispatch.load,
             dispatch.rounds > 1 ? fmt::format(", in {} rounds", dispatch.rounds) : "");
  const auto bytes = [](double count) { return bytes_text(static_cast<size_t>(count)); };
  const bool gathering = dispatch.all_gather < dispatch.all_to_all;
  fmt::print(
      "            it receives {} a step with --moe-token-dispatcher-type alltoall, "
      "{} with allgather: {} is cheaper{}\n",
      bytes(dispatch.all_to_all), bytes(dispatch.all_gather), gathering ? "allgather" : "alltoall",
      gathering == dispatch.gathers ? " (this plan)" : "");
}

void print_reductions(const PlanReport& report) {
  if (report.reductions.empty()) return;
  fmt::print("reduction   what --zero-reduce costs the rank it costs most, a step\n");
  fmt::print("  {:>9}  {:>11} {:>11} {:>12}\n", "", "gradients", "data sent", "all memory");
  for (const ReductionReport& cost : report.reductions)
    fmt::print("  {:>9}  {:>11} {:>11} {:>12}  {}\n", cost.policy == ReducePolicy::Each ? "each" : "once",
               bytes_text(cost.gradients), bytes_text(static_cast<size_t>(cost.sent)), bytes_text(cost.total),
               cost.chosen ? "(this plan)" : "");
}

std::string gigabytes(double bytes) { return fmt::format("{:.3g} GB", bytes / 1e9); }

// The memory under each stage of ZeRO. Decimal GB, as in the paper.
void print_zero(const ZeroTable& table) {
  if (table.shared == 1) return;
  fmt::print(
      "zero        bytes of the rank that needs most, if {} ranks shard; held: what this engine allocates, "
      "padding and gathered units included, gradients in {} bytes\n",
      table.shared, table.gradient_bytes);
  fmt::print(
      "            paper: the formula of Rajbhandari et al. 2020, {:g} bytes a weight, {:g} a gradient, {:g} "
      "of optimizer state\n",
      table.weight_bytes, table.weight_bytes, table.optimizer_bytes);
  fmt::print("  {:>9}  {:>10} {:>10} {:>10} {:>10}  {:>11}  {:>10}\n", "stage", "weights", "gradients",
             "optimizer", "held", "activations", "paper");
  for (const ZeroTableRow& row : table.rows) {
    const auto held = [](size_t bytes) { return gigabytes(static_cast<double>(bytes)); };
    const MemoryReport& memory = row.held;
    fmt::print("  {:>9}  {:>10} {:>10} {:>10} {:>10}  {:>11}  {:>10}\n", row.stage, held(memory.parameters),
               held(memory.gradients), held(memory.optimizer),
               held(memory.parameters + memory.gradients + memory.optimizer),
               held(memory.predicted_activations), gigabytes(row.formula.all()));
  }
}

void print_first_actions(const PlanReport& report) {
  fmt::print("plan        first actions; SEND_F0 is the message with the output of micro-batch 0\n");
  for (const size_t rank : shown_ranks(report)) {
    const RankPlan& row = report.plan[rank];
    std::string text;
    for (size_t i = 0; i < std::min(row.size(), kFirstActions); ++i)
      text += (i == 0 ? "" : " ") + to_string(row[i]);
    fmt::print("  {:>9}  {}{}\n", rank, text, row.size() > kFirstActions ? " ..." : "");
  }
}

void print_forecast(const PlanReport& report) {
  if (!report.forecast) return;
  const auto& [hardware, software, work, costs, closed] = *report.forecast;
  fmt::print(
      "hardware    {}: {:g} TFLOP/s, {:g} GB/s of memory, {:g} GB/s in a node of {:g}, {:g} GB/s to others\n",
      hardware.name, hardware.tflops, hardware.memory_gbytes, hardware.nvlink_gbytes,
      hardware.devices_per_node, hardware.adapter_gbytes);
  std::string parts;
  for (const auto& [name, seconds] : named_parts(closed))
    if (seconds > 0) parts += fmt::format(", {} {}", name, seconds_text(seconds));
  fmt::print("            in closed form {}{}\n", seconds_text(closed.all()), parts);
  if (software.describes_memory())
    fmt::print("            activations are those of another program, counted from its operations\n");
  fmt::print("            {:.1f} GiB can be used of {:g} GiB: the plan {}\n",
             hardware.usable_bytes() / (int64_t{1} << 30), hardware.memory_gib,
             fits_hardware(report) ? "fits" : "does not fit");
}

// A rank computes on one stream: the halves of a pair at most alternate.
void print_pairs(const PlanReport& report) {
  if (report.pairs == 0) return;
  if (report.turns > 0) {
    fmt::print(
        "pairs       {} of {} of a forward and a backward alternate, one computing while the other exchanges experts' "
        "rows;\n            one after the other a step takes {}\n",
        report.turns, report.pairs, seconds_text(report.seconds_without_turns));
    return;
  }
  fmt::print("pairs       {} of a forward and a backward (OVERLAP_F_B), each executed one after the other\n",
             report.pairs);
  if (report.overlapped_seconds)
    fmt::print(
        "            if ranks overlap both halves of a pair, "
        "so that it takes as long as the longer one, a step takes {}\n",
        seconds_text(*report.overlapped_seconds));
  else
    fmt::print("            in this order the halves of a pair would deadlock if they overlapped\n");
}

std::string automatic_text(const AutomaticChoice& choice) {
  if (choice.named)
    return fmt::format("found by search: the order of {}, the best within the activations it may keep",
                       schedule_name(*choice.named));
  if (!choice.best_named)
    return "found by search: an order of its own; no named schedule keeps as few activations";
  return fmt::format("found by search: an order of its own, {:.2f} % shorter than {} for the same costs",
                     100 * (1 - choice.seconds / choice.best_named_seconds),
                     schedule_name(*choice.best_named));
}

void print_report(const PlanConfig& config, const PlanReport& report, const ZeroTable& zero) {
  const int64_t ranks = int64_t{report.tensor} * report.context * report.data * report.pipeline;
  const std::string context = report.context > 1 ? fmt::format(" x cp {}", report.context) : "";
  const BatchConfig& batch = config.run.batch;
  fmt::print("mesh        dp {}{} x pp {} x tp {} = {} ranks{}\n", report.data, context, report.pipeline,
             report.tensor, ranks, report.experts_text);
  fmt::print(
      "model       {} parameters, {} FLOP a step (forward and backward; causal attention counted half, "
      "recomputation not counted)\n",
      count_text(static_cast<double>(report.parameters)), count_text(report.flops));
  for (const std::string& line : report.param_factors) fmt::print("parameters  {}\n", line);
  for (const std::string& line : stage_lines(report.stages, report.pipeline)) fmt::print("{}\n", line);
  fmt::print(
      "schedule    {}, {} micro-batch{} of {} a step on {} (global batch {})\n", report.schedule,
      report.micros, report.micros == 1 ? "" : "es", batch.micro_batch_size,
      report.data == 1 ? std::string("one pipeline") : fmt::format("each of {} pipelines", report.data),
      *batch.global_batch_size);
  if (report.automatic) fmt::print("            {}\n", automatic_text(*report.automatic));
  if (report.batches > 1)
    fmt::print("            times are means over {} global batches without a drain in between\n",
               report.batches);
  const double rate = static_cast<double>(report.tokens) / report.step_seconds;
  fmt::print("step        {}, {} {}/s, bubble {:.2f} %\n", seconds_text(report.step_seconds),
             rate < 100 ? rate_text(rate) : count_text(rate), family_of_model(config.run.model).unit,
             100 * report.simulation.bubble);
  if (config.costs)
    fmt::print("            with the times of blocks and messages in {}\n", *config.costs);
  else
    fmt::print("            {:.1f} % of {} FLOP/s a rank (MFU against {})\n", 100 * report.mfu,
               count_text(report.peak_flops), report.forecast ? "its peak" : "--peak-gflops");
  print_forecast(report);
  print_pairs(report);
  print_ranks(report);
  if (report.key_cache_bytes > 0)
    fmt::print("sampling    {} of keys and values for a text of {} tokens (generate, serve){}\n",
               bytes_text(report.key_cache_bytes), config.run.model.seq_length,
               report.tensor > 1 ? ", on each tensor rank" : "");
  print_exchanges(report);
  print_dispatch(report);
  print_offloading(report, config.run.mesh.device == ComputeDevice::Cuda);
  print_reductions(report);
  print_zero(zero);
  print_first_actions(report);
}

std::string schedule_text(PlanFormat format, const PlanReport& report) {
  if (format == PlanFormat::Torch) return to_torch_csv(report.computation);
  if (format == PlanFormat::TorchComms) return to_torch_comms_csv(report.computation);
  return to_string(report.plan);
}

}  // namespace

int run(const PlanConfig& given) {
  PlanConfig config = given;
  if (config.svg) check_writable_file("--svg", *config.svg);
  if (config.schedule_csv) check_writable_file("--schedule-csv", *config.schedule_csv);
  if (config.json) check_writable_file("--json", *config.json);
  if (config.run.model.model || !config.run.model.vocab_size)
    resolve_vocabulary(config.run.model, config.run.data);
  if (const auto check_micro_batch = language_family(config.run.model).check_micro_batch)
    check_micro_batch(config.run.model, config.run.batch.micro_batch_size);
  if (config.search) return run_search(config);
  CountedActivations counted;
  const PlannedMachine machine = planned_machine(config);
  const RunSpec spec = run_spec(config.run);
  const PlannedRun planned(spec, batches_to_simulate(spec));
  const PlanReport report = make_plan_report(planned, machine, &counted);
  check_memory_limit(config.run, report.memory);
  const std::vector<PlannedSize> sizes = planned_sizes(spec, machine);
  for (const PlannedSize& size : sizes) check_memory_limit(config.run, size.outcome.memory);
  const std::vector<std::string> widths = width_lines(spec.model, planned.cut().model.params);
  const ZeroTable zero = make_zero_table(planned, machine, std::move(counted));
  const std::string actions = schedule_text(config.format, report);
  const std::vector<RecordedBlock> records =
      config.records ? recorded_work(spec, machine) : std::vector<RecordedBlock>{};
  std::optional<GoodputReport> goodput;
  if (config.goodput.mtbf) goodput = make_goodput(config, planned, machine, report.step_seconds);
  print_report(config, report, zero);
  if (goodput)
    for (const std::string& line : goodput_lines(*goodput, config.goodput)) fmt::print("{}\n", line);
  for (const std::string& line : size_lines(sizes)) fmt::print("{}\n", line);
  for (const std::string& line : widths) fmt::print("width       {}\n", line);
  print_records(records);
  if (config.assume.empty()) print_rehearsal_command(config.rehearsal_words);
  if (config.schedule_csv) write_file("--schedule-csv", *config.schedule_csv, actions);
  if (config.svg)
    write_file("--svg", *config.svg,
               marked_svg(timeline_svg(report.simulation, picture_text(report)), "plan"));
  if (config.json) {
    nlohmann::ordered_json json = to_json(report, zero, records);
    if (!sizes.empty()) json["batch_sizes"] = to_json(sizes);
    if (!widths.empty()) json["width_rules"] = widths;
    if (goodput) json["goodput"] = to_json(*goodput);
    write_file("--json", *config.json, marked_json(json_text(json, 2) + "\n", "plan"));
  }
  return kDone;
}

}  // namespace trifold::launch
