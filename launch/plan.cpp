#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "config/command_line/commands.h"
#include "config/fields/pipeline_choice.h"
#include "core/error.h"
#include "core/input_file.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/plan_search.h"
#include "launch/progress.h"
#include "launch/stage_lines.h"
#include "mesh/mesh_sizes.h"
#include "models/language_model.h"
#include "plan/hardware_forecast.h"
#include "plan/layout_memory.h"
#include "plan/memory_fit.h"
#include "plan/report.h"
#include "plan/step_svg.h"
#include "plan/zero_table.h"
#include "schedule/torch_schedule.h"
#include "train/pretrain.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kFewRanks = 8;  // all are shown
constexpr size_t kFirstActions = 16;

std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3f} ms", 1e3 * seconds);
  return fmt::format("{:.3f} us", 1e6 * seconds);
}

// All ranks when they are few, else the first, the middle and the last, and the one that needs most memory.
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
  const auto line = [&](const auto& rank, const auto& tensor, const auto& context, const auto& pipeline,
                        const auto& data) {
    fmt::print("  {:>9}  {:>11} {}{:>11} {:>11}\n", rank, tensor,
               report.context > 1 ? fmt::format("{:>11} ", context) : "", pipeline, data);
  };
  line("rank", "tensor", "context", "pipeline", "data");
  for (const size_t rank : shown) {
    const TrafficReport& traffic = report.traffic[rank];
    const auto text = [](double bytes) { return bytes_text(static_cast<size_t>(bytes)); };
    line(rank, text(traffic.tensor), text(traffic.context), text(traffic.pipeline), text(traffic.data));
  }
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

// What each stage of ZeRO would hold. Decimal GB, as in the paper.
void print_zero(const ZeroTable& table) {
  if (table.shared == 1) return;
  fmt::print(
      "zero        bytes of the rank that needs most, if {} ranks shard; held: what this engine allocates, "
      "padding and gathered units included, gradients in {} bytes\n",
      table.shared, table.gradient_bytes);
  fmt::print(
      "            paper: the formula of Rajbhandari et al. 2020, {:g} bytes a weight, {:g} a gradient, {:g} "
      "of "
      "optimizer state\n",
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

Json zero_json(const ZeroTable& table) {
  Json rows = Json::array();
  for (const ZeroTableRow& row : table.rows)
    rows.push_back({{"stage", row.stage},
                    {"weight_bytes", row.held.parameters},
                    {"gradient_bytes", row.held.gradients},
                    {"optimizer_bytes", row.held.optimizer},
                    {"activation_bytes", row.held.predicted_activations},
                    {"paper_bytes", row.formula.all()}});
  return {{"ranks", table.shared}, {"stages", std::move(rows)}};
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

bool fits(const PlanReport& report) {
  return std::all_of(report.memory.begin(), report.memory.end(), [&](const MemoryReport& memory) {
    return static_cast<double>(memory.predicted_total()) <= report.forecast->hardware.usable_bytes();
  });
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
  fmt::print("            {:.1f} GiB can be used of {:g} GiB: the plan {}\n",
             hardware.usable_bytes() / (int64_t{1} << 30), hardware.memory_gib,
             fits(report) ? "fits" : "does not fit");
}

// A rank computes on one stream: neither the step above nor the run overlaps anything of a pair.
void print_pairs(const PlanReport& report) {
  if (report.pairs == 0) return;
  fmt::print("pairs       {} of a forward and a backward (OVERLAP_F_B), each executed one after the other\n",
             report.pairs);
  if (report.overlapped_seconds)
    fmt::print(
        "            if ranks overlap both halves of a pair, so that it takes as long as the longer one, a "
        "step takes {}\n",
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
  fmt::print("mesh        dp {}{} x pp {} x tp {} = {} ranks\n", report.data, context, report.pipeline,
             report.tensor, ranks);
  fmt::print(
      "model       {} parameters, {} FLOP a step (forward and backward; causal attention counted half, "
      "recomputation not counted)\n",
      count_text(static_cast<double>(report.parameters)), count_text(report.flops));
  for (const std::string& line : stage_lines(report.stages, report.pipeline)) fmt::print("{}\n", line);
  fmt::print("schedule    {}, {} micro-batches of {} a step on each of {} pipelines (global batch {})\n",
             report.schedule, report.micros, batch.micro_batch_size, report.data, *batch.global_batch_size);
  if (report.automatic) fmt::print("            {}\n", automatic_text(*report.automatic));
  if (report.batches > 1)
    fmt::print("            times are means over {} global batches without a drain in between\n",
               report.batches);
  fmt::print("step        {}, {} tokens/s, bubble {:.2f} %\n", seconds_text(report.step_seconds),
             count_text(static_cast<double>(report.tokens) / report.step_seconds),
             100 * report.simulation.bubble);
  if (config.costs)
    fmt::print("            with the times of blocks and messages in {}\n", *config.costs);
  else
    fmt::print("            {:.1f} % of {} FLOP/s a rank (MFU against {})\n", 100 * report.mfu,
               count_text(report.peak_flops), report.forecast ? "its peak" : "--peak-gflops");
  print_forecast(report);
  print_pairs(report);
  print_ranks(report);
  print_reductions(report);
  print_zero(zero);
  print_first_actions(report);
}

Json parts_json(const StepTime& time) {
  Json parts;
  for (const auto& [name, seconds] : named_parts(time)) parts[name] = seconds;
  return parts;
}

Json rank_json(const PlanReport& report, size_t rank) {
  const MemoryReport& memory = report.memory[rank];
  const TrafficReport& traffic = report.traffic[rank];
  const SimulatedRank& simulated = report.simulation.ranks[rank];
  return {{"busy_seconds", simulated.busy},
          {"idle_seconds", simulated.idle},
          {"peak_in_flight", simulated.peak_in_flight},
          {"weight_versions", simulated.versions},
          {"weight_bytes", memory.parameters},
          {"gradient_bytes", memory.gradients},
          {"optimizer_bytes", memory.optimizer},
          {"activation_bytes", memory.predicted_activations},
          {"workspace_bytes", memory.workspace},
          {"bytes", memory.predicted_total()},
          {"offloaded_bytes", memory.offloaded},
          {"sent_bytes",
           {{"tensor", traffic.tensor},
            {"context", traffic.context},
            {"pipeline", traffic.pipeline},
            {"data", traffic.data}}}};
}

Json automatic_json(const std::optional<AutomaticChoice>& choice) {
  if (!choice) return {};
  const auto name = [](const std::optional<Schedule>& schedule) {
    return schedule ? Json(schedule_name(*schedule)) : Json();
  };
  Json json = {{"order_of", name(choice->named)},
               {"seconds", choice->seconds},
               {"best_named", name(choice->best_named)}};
  if (choice->best_named) json["best_named_seconds"] = choice->best_named_seconds;
  return json;
}

Json to_json(const PlanReport& report, const ZeroTable& zero) {
  Json stages = Json::array();
  for (const StageReport& stage : report.stages)
    stages.push_back({{"rank", stage.rank},
                      {"blocks", {stage.blocks.begin, stage.blocks.end}},
                      {"layers", stage.layers},
                      {"parameters", stage.parameters},
                      {"cost_share", stage.cost_share}});
  Json ranks = Json::array();
  for (size_t rank = 0; rank < report.memory.size(); ++rank) ranks.push_back(rank_json(report, rank));
  Json reductions = Json::object();
  for (const ReductionReport& cost : report.reductions)
    reductions[cost.policy == ReducePolicy::Each ? "each" : "once"] = {{"chosen", cost.chosen},
                                                                       {"gradient_bytes", cost.gradients},
                                                                       {"sent_bytes", cost.sent},
                                                                       {"bytes", cost.total}};
  Json forecast;
  if (report.forecast) {
    for (const auto& [name, seconds] : named_parts(report.forecast->closed_form))
      forecast["parts"][name] = seconds;
    forecast["hardware"] = report.forecast->hardware.name;
    forecast["step_seconds"] = report.forecast->closed_form.all();
    forecast["fits"] = fits(report);
  }
  Json all = {
      {"tensor_model_parallel_size", report.tensor},
      {"context_parallel_size", report.context},
      {"data_parallel_size", report.data},
      {"pipeline_model_parallel_size", report.pipeline},
      {"parameters", report.parameters},
      {"schedule", report.schedule},
      {"automatic", automatic_json(report.automatic)},
      {"stages_per_rank", report.stages_per_rank},
      {"micro_batches", report.micros},
      {"step_seconds", report.step_seconds},
      {"bubble", report.simulation.bubble},
      {"overlap_pairs", report.pairs},
      {"overlapped_step_seconds", report.overlapped_seconds ? Json(*report.overlapped_seconds) : Json()},
      {"flops", report.flops},
      {"mfu", report.mfu},
      {"tokens", report.tokens},
      {"stages", std::move(stages)},
      {"reductions", std::move(reductions)},
      {"zero", zero_json(zero)},
      {"pipeline_ranks", std::move(ranks)}};
  if (report.forecast) all["closed_form"] = std::move(forecast);
  return all;
}

std::string schedule_text(PlanFormat format, const PlanReport& report) {
  if (format == PlanFormat::Torch) return to_torch_csv(report.computation);
  if (format == PlanFormat::TorchComms) return to_torch_comms_csv(report.computation);
  return to_string(report.plan);
}

PictureText picture_text(const PlanReport& report) {
  std::string title = fmt::format("{}: {} pipeline rank{}, {} micro-batches", report.schedule,
                                  report.pipeline, report.pipeline == 1 ? "" : "s", report.micros);
  if (report.stages_per_rank > 1) title += fmt::format(", {} stages a rank", report.stages_per_rank);
  if (report.batches > 1) title += fmt::format(", {} global batches", report.batches);
  return {title,
          fmt::format("step {}, bubble {:.2f} %, {} parameters", seconds_text(report.step_seconds),
                      100 * report.simulation.bubble, count_text(static_cast<double>(report.parameters)))};
}

// ---- Many plans, one a line ----

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

PlanConfig read_plan_line(const std::vector<std::string>& words) {
  const CommandInfo& info = command_info("plan");
  Request request = info.read(info, words, {});
  if (auto* config = std::get_if<PlanConfig>(&request); config != nullptr && !config->search)
    return std::move(*config);
  bad_input("a line holds the options of one plan, without --search, --help and --print-config");
}

bool fits(size_t bytes, const HardwareForecast& forecast) {
  return static_cast<double>(bytes) <= forecast.hardware.usable_bytes();
}

// Bytes are an estimate: nothing is planned.
Json closed_form(const PlanConfig& config) {
  if (!config.hardware) bad_input("--closed-form needs --hardware on every line");
  const PretrainConfig& run = config.run;
  const Model model = make_model(run.model, Mesh(mesh_sizes(run.mesh), {}), run.seed, run.mesh);
  const HardwareForecast forecast = make_forecast(config, model);
  const StepTime& time = forecast.closed_form;
  Json answer = {{"step_seconds", time.all()}, {"parts", parts_json(time)}};
  const auto schedule = chosen_schedule(run.pipeline);
  if (!schedule || is_async(*schedule)) return answer;
  const size_t bytes = LayoutMemory().most_bytes(run, forecast.work.stage_layers);
  answer["bytes"] = bytes;
  answer["fits"] = fits(bytes, forecast);
  return answer;
}

Json simulated(const PlanConfig& config) {
  const PlanOutcome outcome = plan_outcome(config);
  check_memory_limit(config.run, outcome.memory);
  const size_t most = outcome.most_bytes();
  Json answer = {{"step_seconds", outcome.step_seconds}, {"bubble", outcome.bubble}, {"bytes", most}};
  if (outcome.forecast) {
    answer["closed_form_seconds"] = outcome.forecast->closed_form.all();
    answer["parts"] = parts_json(outcome.forecast->closed_form);
    answer["fits"] = fits(most, *outcome.forecast);
  }
  return answer;
}

// What is wrong with one line does not end the others.
Json answer_to(const std::vector<std::string>& words, bool closed) {
  try {
    const PlanConfig config = read_plan_line(words);
    return closed ? closed_form(config) : simulated(config);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) throw;
    return {{"error", error.what()}};
  }
}

}  // namespace

int run(const PlanConfig& given) {
  PlanConfig config = given;
  if (config.svg) check_writable_file("--svg", *config.svg);
  if (config.schedule_csv) check_writable_file("--schedule-csv", *config.schedule_csv);
  if (config.json) check_writable_file("--json", *config.json);
  if (!config.run.model.vocab_size) resolve_vocabulary(config.run.model, config.run.data);
  if (config.search) return run_search(config);
  const PlanReport report = make_plan_report(config);
  const ZeroTable zero = make_zero_table(config);
  const std::string actions = schedule_text(config.format, report);
  print_report(config, report, zero);
  if (config.schedule_csv) write_file("--schedule-csv", *config.schedule_csv, actions);
  if (config.svg) write_file("--svg", *config.svg, timeline_svg(report.simulation, picture_text(report)));
  if (config.json) write_file("--json", *config.json, to_json(report, zero).dump(2) + "\n");
  return kDone;
}

int run(const PlanLinesConfig& config) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  std::istringstream file(read_input_file(config.lines, kMostBytes));
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty() || words.front().starts_with("#")) continue;
    fmt::print("{}\n", answer_to(words, config.closed_form).dump());
  }
  return kDone;
}

}  // namespace trifold::launch
