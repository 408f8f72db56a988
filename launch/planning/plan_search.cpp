#include "launch/planning/plan_search.h"
#include "core/read_json.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/mpi_module.h"
#include "config/fields/choices.h"
#include "config/fields/schedule.h"
#include "config/subjects/model_family.h"
#include "core/bytes_text.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "launch/say.h"
#include "launch/stage_lines.h"
#include "plan/pictures/step_svg.h"
#include "plan/report.h"
#include "plan/resolve.h"
#include "train/pretrain.h"

namespace trifold::launch {

namespace {

using SearchJson = nlohmann::ordered_json;

std::string step_text(double seconds) {
  return seconds >= 1 ? fmt::format("{:.3f} s", seconds) : fmt::format("{:.3f} ms", 1e3 * seconds);
}

int stages_of_rank(const FoundLayout& found) {
  return static_cast<int>(found.estimate.layout[SearchAxis::Stages]);
}

// "tp 8 x pp 4 x dp 2, interleaved x 3, micro-batch 1, zero 1, full, sp"
std::string layout_text(const FoundLayout& found) {
  const PretrainConfig& run = found.run;
  const MeshConfig& mesh = run.mesh;
  const std::string context =
      mesh.context_parallel_size > 1
          ? fmt::format(" cp {} ({})", mesh.context_parallel_size, name_of(mesh.context_exchange()))
          : "";
  std::string text =
      fmt::format("tp {}{} pp {} dp {}, {}", mesh.tensor_model_parallel_size, context,
                  mesh.pipeline_model_parallel_size, *mesh.data_parallel_size, run.pipeline.schedule->text());
  if (stages_of_rank(found) > 1) text += fmt::format(" of {} stages", stages_of_rank(found));
  std::vector<std::string> experts;
  if (mesh.expert_model_parallel_size > 1)
    experts.push_back(fmt::format("ep {}", mesh.expert_model_parallel_size));
  if (mesh.expert_tensor_parallel_size > 1)
    experts.push_back(fmt::format("etp {}", mesh.expert_tensor_parallel_size));
  if (!experts.empty()) text += fmt::format(" with {}", fmt::join(experts, " x "));
  if (mesh.pipeline_vocab_parts > 1) text += fmt::format(", head in {} parts", mesh.pipeline_vocab_parts);
  text += fmt::format(", micro-batch {}, zero {}", run.batch.micro_batch_size, run.zero.zero_stage);
  if (mesh.recompute_granularity != RecomputeGranularity::None)
    text += fmt::format(", recompute {}", name_of(mesh.recompute_granularity));
  if (mesh.sequence_parallel) text += ", sequence parallel";
  return text;
}

void print_search(const LayoutSearch& search) {
  const int ranks = search.best.front().run.mesh.ranks;
  fmt::print("search      {} layouts of {} rank{} on {}, {} fit in {:.1f} GiB a rank; {} simulated\n",
             search.layouts, ranks, ranks == 1 ? "" : "s", search.hardware.name, search.fitting,
             search.limit / (int64_t{1} << 30), search.simulated);
  if (search.activations_described)
    fmt::print("            activations are those of another program, counted from its operations\n");
  fmt::print("  {:>3}  {:>11}  {:>10}  {:>6}  {:>7}  {:>10}  {:<32}  {}\n", "", "step",
             fmt::format("{}/s", family_of_model(search.best.front().run.model).unit), "MFU", "bubble",
             "memory", "bound by", "layout");
  for (size_t place = 0; place < search.best.size(); ++place) {
    const FoundLayout& found = search.best[place];
    fmt::print("  {:>3}  {:>11}  {:>10}  {:>4.1f} %  {:>5.1f} %  {:>10}  {:<32}  {}\n", place + 1,
               step_text(found.step_seconds),
               count_text(static_cast<double>(search.tokens) / found.step_seconds), 100 * found.mfu,
               100 * found.bubble, bytes_text(found.bytes), found.bound, layout_text(found));
  }
  fmt::print("best        {}\n", fmt::join(search.best.front().words, " "));
}

// The exchange; null for one context rank, which exchanges nothing.
SearchJson exchange_name(const Layout& layout) {
  if (layout[SearchAxis::Context] == 1) return nullptr;
  const ContextExchange absent = MeshConfig().context_exchange();
  const int64_t chosen = layout[SearchAxis::Exchange];
  return std::string(name_of(chosen < 0 ? absent : static_cast<ContextExchange>(chosen)));
}

SearchJson mesh_json(const EstimatedLayout& estimate) {
  const Layout& layout = estimate.layout;
  return {{"tensor_model_parallel_size", layout[SearchAxis::Tensor]},
          {"context_parallel_size", layout[SearchAxis::Context]},
          {"cp_comm_type", exchange_name(layout)},
          {"pipeline_model_parallel_size", layout[SearchAxis::Pipeline]},
          {"data_parallel_size", estimate.data},
          {"expert_model_parallel_size", layout[SearchAxis::Expert]},
          {"expert_tensor_parallel_size", layout[SearchAxis::ExpertTensor]},
          {"pipeline_vocab_parts", layout[SearchAxis::HeadParts]},
          {"schedule", std::string(schedule_name(static_cast<Schedule>(layout[SearchAxis::Schedule])))},
          {"stages_per_rank", layout[SearchAxis::Stages]},
          {"micro_batch_size", layout[SearchAxis::MicroBatch]},
          {"zero_stage", layout[SearchAxis::Zero]},
          {"recompute_granularity",
           std::string(name_of(static_cast<RecomputeGranularity>(layout[SearchAxis::Recompute])))},
          {"sequence_parallel", layout[SearchAxis::SequenceParallel] != 0},
          {"closed_form_seconds", estimate.time.all()},
          {"estimated_bytes", estimate.bytes}};
}

SearchJson layout_json(const FoundLayout& found) {
  SearchJson all = mesh_json(found.estimate);
  for (const auto& [name, seconds] : named_parts(found.estimate.time)) all["parts"][name] = seconds;
  all["step_seconds"] = found.step_seconds;
  all["bubble"] = found.bubble;
  all["mfu"] = found.mfu;
  all["bytes"] = found.bytes;
  all["bound"] = found.bound;
  all["options"] = found.words;
  return all;
}

SearchJson search_json(const LayoutSearch& search) {
  SearchJson layouts = SearchJson::array(), meshes = SearchJson::array();
  for (const FoundLayout& found : search.best) layouts.push_back(layout_json(found));
  for (const EstimatedLayout& mesh : search.meshes) meshes.push_back(mesh_json(mesh));
  return {{"hardware", search.hardware.name}, {"limit_bytes", search.limit},
          {"candidates", search.layouts},     {"fitting", search.fitting},
          {"simulated", search.simulated},    {"activations_described", search.activations_described},
          {"layouts", std::move(layouts)},    {"meshes", std::move(meshes)}};
}

// Draws the best three layouts, one below the other.
std::string search_svg(const PlanConfig& config, const LayoutSearch& search) {
  constexpr size_t kDrawn = 3;
  std::vector<Timeline> timelines;
  for (size_t place = 0; place < std::min(kDrawn, search.best.size()); ++place) {
    const FoundLayout& found = search.best[place];
    PlanConfig one = config;
    one.search = false;
    one.search_over.clear();
    one.search_schedules.clear();
    one.run = found.run;
    const std::string subtitle =
        fmt::format("step {}, bubble {:.2f} %, {} a rank, bound by {}", step_text(found.step_seconds),
                    100 * found.bubble, bytes_text(found.bytes), found.bound);
    const PlanReport report = make_plan_report(PlannedRun(run_spec(one.run)), planned_machine(one));
    timelines.push_back(
        {report.simulation, {fmt::format("{}. {}", place + 1, layout_text(found)), subtitle}});
  }
  return timelines_svg(timelines);
}

// A description of the layout that --auto-layout chose.
std::string chosen_layout_text(const PretrainConfig& config, const FoundLayout& found) {
  return fmt::format("layout      for {}: {}\n            forecast: step {}, memory {} per rank: {}\n",
                     *config.auto_layout, layout_text(found), step_text(found.step_seconds),
                     bytes_text(found.bytes), fmt::join(found.words, " "));
}

}  // namespace

int run_search(const PlanConfig& config) {
  const LayoutSearch search = search_layouts(config);
  print_search(search);
  if (config.svg) write_file("--svg", *config.svg, marked_svg(search_svg(config, search), "plan"));
  if (config.json)
    write_file("--json", *config.json, marked_json(json_text(search_json(search), 2) + "\n", "plan"));
  return kDone;
}

PretrainConfig laid_out(const PretrainConfig& config) {
  if (!config.auto_layout) return config;
  PretrainConfig open = config;
  if (!open.model.vocab_size || open.model.model) resolve_vocabulary(open.model, open.data);
  ChosenLayout choice = choose_layout(open);
  if (mpi_launch_rank().value_or(0) == 0) say(stderr, chosen_layout_text(config, choice.found));
  choice.run.model.vocab_size = config.model.vocab_size;
  choice.run.data = config.data;  // the run resolves its tokenizer again
  return std::move(choice.run);
}

}  // namespace trifold::launch
