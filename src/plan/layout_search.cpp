#include "plan/layout_search.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "config/commands/commands.h"
#include "core/bytes_text.h"
#include "core/error.h"
#include "core/function_ref.h"
#include "core/thread_pool.h"
#include "mesh/mesh_sizes.h"
#include "models/gpt.h"
#include "models/language_family.h"
#include "models/language_model.h"
#include "plan/forecast/hardware_forecast.h"
#include "plan/layout_memory.h"
#include "plan/layout_space.h"
#include "plan/report.h"
#include "plan/resolve.h"

namespace trifold {

namespace {

constexpr size_t kSimulatedLayouts = 20;
constexpr size_t kShownLayouts = 10;
constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

// Layouts that agree in these values are variants of one layout, of which only the best is proposed.
using LayoutFamily = std::array<int64_t, 9>;
LayoutFamily family_of_layout(const Layout& layout) {
  return {layout[SearchAxis::Tensor], layout[SearchAxis::Context],      layout[SearchAxis::Pipeline],
          layout[SearchAxis::Expert], layout[SearchAxis::ExpertTensor], layout[SearchAxis::Schedule],
          layout[SearchAxis::Stages], layout[SearchAxis::HeadParts],    layout[SearchAxis::MicroBatch]};
}

using MeshKey = std::array<int64_t, 5>;
MeshKey mesh_of_layout(const Layout& layout) {
  return {layout[SearchAxis::Tensor], layout[SearchAxis::Context], layout[SearchAxis::Pipeline],
          layout[SearchAxis::Expert], layout[SearchAxis::ExpertTensor]};
}

class Searcher {
 public:
  explicit Searcher(const PlanConfig& config)
      : config_(config),
        axes_(axes_searched(config)),
        machine_(planned_machine(config)),
        space_(config_, axes_, static_cast<int64_t>(hardware().devices_per_node), schedules_searched(config)),
        is_whole_(language_family(config_.run.model).make_whole != nullptr),
        memory_(machine_.software),
        costs_(hardware(), machine_.software, machine_.expert_load) {
    const double usable = hardware().usable_bytes();
    limit_ = std::min(usable, config_.run.mesh.memory_limit.value_or(usable / kGibibyte) * kGibibyte);
    if (machine_.software.context > 1)  // another program's context ranks are not searched
      std::erase_if(
          axes_, [](SearchAxis axis) { return axis == SearchAxis::Context || axis == SearchAxis::Exchange; });
    config_.run.mesh.memory_limit.reset();  // layouts that do not fit are left out, not rejected
    config_.search = false;
    config_.search_over.clear();
    config_.search_schedules.clear();
  }

  LayoutSearch find() {
    const std::vector<LayoutCandidate> candidates = space_.candidates();
    sort_out(candidates, estimates_of(candidates));
    if (found_.layouts == 0)
      bad_input("no layout of --ranks {} can run: {}", config_.run.mesh.ranks,
                sharing_problem_.empty() ? space_.problem() : sharing_problem_);
    if (fitting_.empty()) refuse(candidates);
    found_.fitting = static_cast<int64_t>(fitting_.size());
    found_.hardware = hardware();
    found_.limit = limit_;
    found_.activations_described = machine_.software.describes_memory();
    found_.tokens = *config_.run.batch.global_batch_size * config_.run.model.seq_length;
    propose();
    return std::move(found_);
  }

 private:
  const Hardware& hardware() const { return *machine_.hardware; }

  // ---- Estimates ----

  struct Estimate {
    StepTime time;
    std::optional<size_t> bytes;  // if the layout fits
    std::string problem;          // empty if ZeRO can shard as the options request
  };

  RunSpec run_of(const Layout& layout) const {
    PretrainConfig run = config_.run;
    write_layout(layout, axes_, run);
    return run_spec(run);
  }

  // Calls each(index) for 0 to count - 1 on all cores.
  static void on_all_cores(size_t count, size_t at_once, FunctionRef<void(size_t)> each) {
    std::atomic<size_t> next{0};
    const size_t portions = (count + at_once - 1) / at_once;
    ThreadPool pool(
        static_cast<int>(std::clamp<size_t>(portions, 1, static_cast<size_t>(available_cores()))));
    pool.run([&](int) {
      for (size_t begin = next.fetch_add(at_once); begin < count; begin = next.fetch_add(at_once))
        for (size_t index = begin; index < std::min(begin + at_once, count); ++index) each(index);
    });
  }

  // LayoutMemory counts with stages of few layers, which a model that is made as a whole does not have: it is planned.
  size_t most_bytes(const RunSpec& run, const StageCounts& stages) {
    if (!is_whole_) return memory_.most_bytes(run, stages);
    return plan_outcome(PlannedRun(run), machine_, &costs_).most_bytes();
  }

  std::vector<Estimate> estimates_of(const std::vector<LayoutCandidate>& candidates) {
    constexpr size_t kAtOnce = 64;  // neighbours share dry runs, for which two cores would wait
    std::vector<Estimate> estimates(candidates.size());
    on_all_cores(candidates.size(), kAtOnce,
                 [&](size_t index) { estimates[index] = estimate_of(candidates[index]); });
    return estimates;
  }

  // Weights, gradients and optimizer alone exclude many layouts before a dry run.
  Estimate estimate_of(const LayoutCandidate& candidate) {
    const RunSpec run = run_of(candidate.layout);
    Estimate estimate;
    try {
      const auto fits = [&](size_t bytes) { return static_cast<double>(bytes) <= limit_; };
      if (is_whole_ || fits(memory_.least_bytes(run, *candidate.stages)))
        if (const size_t bytes = most_bytes(run, *candidate.stages); fits(bytes)) estimate.bytes = bytes;
      estimate.time = time_of(run, *candidate.stages);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      estimate.problem = error.what();
    }
    return estimate;
  }

  void sort_out(const std::vector<LayoutCandidate>& candidates, const std::vector<Estimate>& estimates) {
    for (size_t index = 0; index < candidates.size(); ++index) {
      const Estimate& estimate = estimates[index];
      const Layout& layout = candidates[index].layout;
      if (!estimate.problem.empty()) {
        if (sharing_problem_.empty()) sharing_problem_ = estimate.problem;
        continue;
      }
      ++found_.layouts;
      if (estimate.bytes) {
        fitting_.push_back({layout, space_.data(layout), estimate.time, *estimate.bytes});
        continue;
      }
      double& fastest = fastest_not_fitting_.try_emplace(mesh_of_layout(layout), kNever).first->second;
      fastest = std::min(fastest, estimate.time.all());
    }
  }

  // Reports that nothing fits, with the layout that needs least.
  [[noreturn]] void refuse(const std::vector<LayoutCandidate>& candidates) {
    std::vector<size_t> bytes(candidates.size(), std::numeric_limits<size_t>::max());
    on_all_cores(candidates.size(), 1, [&](size_t index) {
      try {
        bytes[index] = most_bytes(run_of(candidates[index].layout), *candidates[index].stages);
      } catch (const Error& error) {  // ZeRO cannot shard like that
        if (error.kind() != ErrorKind::BadInput) throw;
      }
    });
    const auto least = std::min_element(bytes.begin(), bytes.end());
    const Layout& layout = candidates[static_cast<size_t>(least - bytes.begin())].layout;
    const std::vector<std::string> words = layout_words(layout, axes_, config_.run);
    bad_input("none of {} layouts fits in {} per rank: the smallest needs {}{}{}", found_.layouts,
              bytes_text(static_cast<size_t>(limit_)), bytes_text(*least), words.empty() ? "" : ", with ",
              fmt::join(words, " "));
  }

  StepTime time_of(const RunSpec& run, const StageCounts& stages) {
    const int tensor = run.mesh.tensor_model_parallel_size;
    Workload work = make_workload(run, static_cast<double>(padded_vocab_size(run.model, tensor)));
    assume_context(machine_.software, work);
    work.stages = stages;
    return step_time(hardware(), machine_.software, work, costs_.of(run, run.order.splits_backward()));
  }

  // ---- The best layouts ----

  std::vector<EstimatedLayout> ordered(const std::vector<EstimatedLayout>& layouts) const {
    std::vector<LayoutRank> ranks;
    for (const EstimatedLayout& one : layouts)
      ranks.push_back({one.time.all(), static_cast<double>(one.bytes), one.layout[SearchAxis::Tensor]});
    std::vector<EstimatedLayout> result;
    for (const size_t index : order_of_layouts(ranks, limit_)) result.push_back(layouts[index]);
    return result;
  }

  // The first layout of each group with the same `key_of`.
  template <class KeyOf>
  static std::vector<EstimatedLayout> first_of_each(const std::vector<EstimatedLayout>& layouts,
                                                    KeyOf key_of) {
    std::set<decltype(key_of(layouts.front().layout))> seen;
    std::vector<EstimatedLayout> result;
    for (const EstimatedLayout& one : layouts)
      if (seen.insert(key_of(one.layout)).second) result.push_back(one);
    return result;
  }

  void propose() {
    const std::vector<EstimatedLayout> all = ordered(fitting_);
    found_.meshes = first_of_each(all, mesh_of_layout);
    const std::vector<EstimatedLayout> families = first_of_each(all, family_of_layout);
    std::vector<FoundLayout> exact;
    // Estimates of memory may be slightly too low; then the next layouts are tried.
    for (size_t begin = 0; begin < families.size() && exact.empty(); begin += kSimulatedLayouts) {
      const size_t end = std::min(families.size(), begin + kSimulatedLayouts);
      simulate_each({families.begin() + static_cast<std::ptrdiff_t>(begin),
                     families.begin() + static_cast<std::ptrdiff_t>(end)},
                    exact);
    }
    if (exact.empty())
      bad_input("none of {} layouts fits in {} a rank when planned exactly", found_.layouts,
                bytes_text(static_cast<size_t>(limit_)));
    std::vector<LayoutRank> ranks;
    for (const FoundLayout& one : exact)
      ranks.push_back(
          {one.step_seconds, static_cast<double>(one.bytes), one.estimate.layout[SearchAxis::Tensor]});
    for (const size_t index : order_of_layouts(ranks, limit_))
      if (found_.best.size() < kShownLayouts) found_.best.push_back(std::move(exact[index]));
  }

  // Adds the layouts that fit to `fitting`.
  void simulate_each(const std::vector<EstimatedLayout>& layouts, std::vector<FoundLayout>& fitting) {
    std::vector<std::optional<FoundLayout>> results(layouts.size());
    on_all_cores(layouts.size(), 1, [&](size_t index) { results[index] = simulated_layout(layouts[index]); });
    found_.simulated += static_cast<int64_t>(layouts.size());
    for (std::optional<FoundLayout>& result : results)
      if (result && static_cast<double>(result->bytes) <= limit_) fitting.push_back(std::move(*result));
  }

  std::optional<FoundLayout> simulated_layout(const EstimatedLayout& estimate) {
    PlanConfig one = config_;
    write_layout(estimate.layout, axes_, one.run);
    try {
      one = resolve(std::move(one));
      const PlanOutcome outcome = plan_outcome(PlannedRun(run_spec(one.run)), machine_, &costs_);
      FoundLayout found;
      found.estimate = estimate;
      found.words = layout_words(estimate.layout, axes_, config_.run);
      found.step_seconds = outcome.step_seconds;
      found.bubble = outcome.bubble;
      found.bytes = outcome.most_bytes();
      found.mfu = mfu_of(one.run, outcome.step_seconds);
      found.bound = bound_of(estimate, outcome.bubble);
      found.run = std::move(one.run);
      return found;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      return std::nullopt;  // excluded by a check that the rules of the space do not cover
    }
  }

  double mfu_of(const PretrainConfig& run, double seconds) const {
    const double flops = sample_flops(run.model, run.mesh.tensor_model_parallel_size).all() *
                         static_cast<double>(*run.batch.global_batch_size);
    const double peak = 1e12 * (run.precision.fp8 ? hardware().tflops_8bit : hardware().tflops);
    return flops / (seconds * run.mesh.ranks * peak);
  }

  // "memory" if the same mesh has a faster layout that does not fit, and the largest part of the step other than
  // computation, if it is significant.
  std::string bound_of(const EstimatedLayout& estimate, double bubble) const {
    constexpr double kWorthSaying = 0.05;
    const StepTime& time = estimate.time;
    std::vector<std::string> bounds;
    const auto not_fitting = fastest_not_fitting_.find(mesh_of_layout(estimate.layout));
    if (not_fitting != fastest_not_fitting_.end() && not_fitting->second < (1 - kSearchTie) * time.all())
      bounds.emplace_back("memory");
    const double all = time.all();
    const Layout& layout = estimate.layout;
    const bool exchanges = layout[SearchAxis::Expert] * layout[SearchAxis::ExpertTensor] > 1;
    const std::pair<const char*, double> parts[] = {
        // One pipeline rank waits for collectives and the update alone.
        {"bubble", layout[SearchAxis::Pipeline] > 1 ? bubble : 0},
        {exchanges ? "tensor and expert collectives" : "tensor collectives", time.tensor / all},
        {"context collectives", time.context / all},
        {"data-parallel collectives", (time.data + time.weights) / all},
        {"messages", time.messages / all},
        {"update", time.update / all}};
    const auto most = std::max_element(std::begin(parts), std::end(parts),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most->second >= kWorthSaying)
      bounds.push_back(fmt::format("{} {:.0f} %", most->first, 100 * most->second));
    return bounds.empty() ? "computation" : fmt::format("{}", fmt::join(bounds, ", "));
  }

  static constexpr double kNever = std::numeric_limits<double>::infinity();

  PlanConfig config_;
  std::vector<SearchAxis> axes_;
  PlannedMachine machine_;
  LayoutSpace space_;
  double limit_ = 0;
  bool is_whole_;
  LayoutMemory memory_;
  CostsOfModel costs_;
  std::vector<EstimatedLayout> fitting_;
  std::map<MeshKey, double> fastest_not_fitting_;  // seconds
  std::string sharing_problem_;
  LayoutSearch found_;
};

}  // namespace

std::vector<size_t> order_of_layouts(const std::vector<LayoutRank>& ranks, double limit) {
  std::vector<size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranks[a].seconds < ranks[b].seconds; });
  const auto key = [&](size_t index) {
    const LayoutRank& rank = ranks[index];
    return std::tuple{std::floor(rank.bytes / (kSearchTie * limit)), rank.tensor, rank.seconds};
  };
  for (auto begin = order.begin(); begin != order.end();) {
    const double slowest = (1 + kSearchTie) * ranks[*begin].seconds;
    const auto end =
        std::find_if(begin, order.end(), [&](size_t index) { return ranks[index].seconds > slowest; });
    std::stable_sort(begin, end, [&](size_t a, size_t b) { return key(a) < key(b); });
    begin = end;
  }
  return order;
}

LayoutSearch search_layouts(const PlanConfig& config) { return Searcher(config).find(); }

ChosenLayout choose_layout(const PretrainConfig& config) {
  find_hardware(config.auto_layout.value(), DeviceFigures::Own, "auto-layout");  // an error names this option
  PlanConfig plan;
  plan.run = config;
  plan.run.auto_layout.reset();
  plan.hardware = config.auto_layout;
  plan.search = true;
  FoundLayout found = std::move(search_layouts(resolve(std::move(plan))).best.front());
  ChosenLayout chosen{config, std::move(found)};
  chosen.run.auto_layout.reset();
  write_layout(chosen.found.estimate.layout, all_search_axes(), chosen.run);
  chosen.run = resolve(std::move(chosen.run));
  return chosen;
}

}  // namespace trifold
