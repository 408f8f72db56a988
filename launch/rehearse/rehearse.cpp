// `trifold rehearse` of language models: checks a run as its start would, then runs chosen ranks alone.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/options/problems.h"
#include "config/subjects/model_family.h"
#include "config/subjects/planning/plan.h"
#include "core/bytes_text.h"
#include "core/error.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/planning/plan_search.h"
#include "launch/rehearse/rehearsal_lines.h"
#include "mesh/mesh_sizes.h"
#include "plan/memory_fit.h"
#include "plan/resolve.h"
#include "rehearse/alone.h"
#include "rehearse/rehearsal_report.h"
#include "rehearse/rehearse.h"
#include "train/finetune.h"
#include "train/start/model_start.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kBytesOfGiB = 1024.0 * 1024.0 * 1024.0;

std::vector<MemoryReport>::const_iterator fullest_of(const std::vector<MemoryReport>& memory) {
  return std::max_element(memory.begin(), memory.end(), [](const auto& a, const auto& b) {
    return a.predicted_total() < b.predicted_total();
  });
}

// The ranks of the first, the fullest and the last pipeline stage, at the first place of the other axes.
std::vector<int> default_ranks(const MeshSizes& sizes, const std::vector<MemoryReport>& memory) {
  std::vector<size_t> bytes;
  for (const MemoryReport& stage : memory) bytes.push_back(stage.predicted_total());
  std::vector<int> ranks;
  for (const int place : first_fullest_last(bytes)) ranks.push_back(rank_of({{Axis::Pp, place}}, sizes));
  return ranks;
}

// Leaves the largest batch that the run reaches of a batch that grows. Returns the plans of all its sizes.
PlannedRuns take_largest_batch(PretrainJob& job) {
  PlannedRuns all = job.planned;
  BatchConfig& batch = job.config.batch;
  if (batch.rampup_batch_size.empty()) return all;
  const int64_t largest = all.all().back()->run().global_batch_size;
  batch.global_batch_size = largest;
  batch.rampup_batch_size.clear();
  // The data were opened for the smaller batches.
  if (!job.start.from)
    batch.train_iters = std::clamp<int64_t>(job.train->samples() / largest, 1, batch.train_iters);
  job.planned = PlannedRuns(run_spec_here(job.config));
  return all;
}

// The rehearsal of one job.
class LanguageRehearsal {
 public:
  // All references must outlive this object. `plan.run` is the job's configuration, `all` the plans of all sizes of the
  // run's batches.
  LanguageRehearsal(const PretrainJob& job, const PlannedRuns& all, const PlanConfig& plan,
                    const RehearseConfig& config)
      : job_(job),
        all_(all),
        config_(config),
        machine_(planned_machine(plan)),
        planned_(job.planned.first()),
        report_(make_plan_report(planned_, machine_)) {
    options_ = {.steps = config.steps,
                .micro_batches = config.micro_batches,
                .other_batch = grows(),
                .machine = machine_,
                .waits = config.wait == PeerWait::Planned,
                .expert_load = plan.moe_load_imbalance,
                .zipf_exponent = config.zipf};
  }

  // Returns the exit status.
  int run(const std::optional<std::string>& json) {
    const std::vector<MemoryReport> cut = memory_of_cut_step();
    print_head();
    const std::vector<int> ranks =
        config_.only_ranks ? config_.only_ranks->ranks : default_ranks(planned_.sizes(), report_.memory);
    std::vector<RehearsedRank> rehearsed;
    RankFailures failures;
    Json all = Json::array();
    for (const int rank : ranks) {
      ReportedRank reported = rehearse(rank, cut);
      reported.fails_as = failures.add(reported.rank);
      print_lines(rank_lines(reported));
      all.push_back(to_json(reported));
      rehearsed.push_back(reported.rank);
    }
    const auto step = simulate_rehearsed(planned_, report_, rehearsed, options_.waits);
    if (step) print_lines(step_lines(*step, report_, family_of_model(job_.config.model).unit));
    for (std::string& failure : failures_of_run()) failures.add(std::move(failure));
    print_failures(failures);
    if (json) {
      const Json whole{{"ranks", std::move(all)},
                       {"step", step ? to_json(*step, report_) : Json()},
                       {"failures", failures.all()}};
      write_file("--json", *json, marked_json(json_text(whole, 2) + "\n", "rehearse"));
    }
    return failures.empty() ? kDone : kFailed;
  }

 private:
  void print_head() const {
    const MeshSizes& sizes = planned_.sizes();
    fmt::print("mesh        dp {}{} x pp {} x tp {} = {} ranks{}\n", sizes[Axis::Dp],
               sizes[Axis::Cp] > 1 ? fmt::format(" x cp {}", sizes[Axis::Cp]) : "", sizes[Axis::Pp],
               sizes[Axis::Tp], sizes.ranks(), experts_text(sizes));
    fmt::print("schedule    {}, {} micro-batch{} of {} a step on each pipeline\n", report_.schedule,
               report_.micros, report_.micros == 1 ? "" : "es", job_.config.batch.micro_batch_size);
    if (grows())
      fmt::print("batch       {} samples, the largest of the run's; memory is planned for all {} sizes\n",
                 planned_.run().global_batch_size, all_.all().size());
    fmt::print("checks      passed, as at the start of the run: options, outputs; {}; {}\n", data_text(),
               job_.start.from ? "the checkpoint in " + *job_.start.from : "no checkpoint");
    for (const std::string& line : job_.notes.files) fmt::print("data        {}\n", line);
    for (const std::string& line : job_.notes.warnings) fmt::print("data        {}\n", line);
  }

  bool grows() const { return all_.first().run().batch_sizes.grows(); }
  std::string data_text() const {
    if (!job_.config.data.mock_data) return "data, tokenizer";
    return config_.no_data ? "random tokens (no data was named)" : "random tokens (--mock-data)";
  }

  bool is_cut() const { return config_.micro_batches.has_value(); }

  // [pipeline rank] What the step that is run needs. BadInput if a step cannot be cut so.
  std::vector<MemoryReport> memory_of_cut_step() const {
    if (!is_cut()) return report_.memory;
    const int64_t micros = *config_.micro_batches, whole = planned_.order().micros;
    if (micros > whole)
      bad_input("--micro-batches {}: a step of the run has only {}; leave it out", micros, whole);
    try {
      return memory_with(micros);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      bad_input("--micro-batches {}: {}", micros, error.what());
    }
  }

  std::vector<MemoryReport> memory_with(int64_t micro_batches) const {
    RehearseOptions options = options_;
    options.micro_batches = micro_batches;
    const RunSpec run = run_spec_here(rehearsed_config(job_.config, options));
    std::vector<MemoryReport> memory;
    for (const PlannedRank& rank : planned_ranks(PlannedRun(run, batches_to_simulate(run))))
      memory.push_back(rank.memory);
    return memory;
  }

  ReportedRank rehearse(int rank, const std::vector<MemoryReport>& memory) const {
    const int place = coords_of(rank, planned_.sizes())[Axis::Pp];
    const MemoryReport& needed = memory[static_cast<size_t>(place)];
    ReportedRank reported;
    if (const std::string misfit = misfit_alone(job_.config, needed); !misfit.empty()) {
      reported.rank.rank = rank;
      reported.rank.pipeline_rank = place;
      reported.rank.planned = needed;
      reported.rank.failure = fmt::format("it {}{}", misfit, fewer_micro_batches(place));
    } else {
      reported.rank = rehearse_rank(job_, rank, options_);
    }
    reported.planned_actions = planned_actions(planned_, report_, reported.rank, options_.waits);
    if (is_cut()) {
      reported.whole_step = report_.memory[static_cast<size_t>(place)];
      reported.whole_step_micros = report_.micros;
    }
    return reported;
  }

  // The most micro-batches with which a rank at this place of the pipeline can be rehearsed here, as advice.
  std::string fewer_micro_batches(int place) const {
    for (int64_t micros = config_.micro_batches.value_or(report_.micros) / 2; micros >= 1; micros /= 2) {
      try {
        if (misfit_alone(job_.config, memory_with(micros)[static_cast<size_t>(place)]).empty())
          return fmt::format(": --micro-batches {} fits", micros);
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::BadInput) throw;  // the schedule needs more
      }
    }
    return "; fewer --micro-batches do not help; " + what_would_fit_alone(job_.config);
  }

  // What would have failed in the real run, whichever ranks were chosen.
  std::vector<std::string> failures_of_run() const {
    std::vector<std::string> failures;
    try {
      check_memory_limit(job_.config, most_memory());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      failures.emplace_back(error.what());
    }
    if (const std::string misfit = misfit_of_hardware(); !misfit.empty()) failures.push_back(misfit);
    return failures;
  }

  // [pipeline rank] What the steps of the size that needs most need: a smaller batch may have another order.
  std::vector<MemoryReport> most_memory() const {
    std::vector<MemoryReport> most = report_.memory;
    if (!grows()) return most;
    for (const auto& planned : all_.all()) {
      std::vector<MemoryReport> needed;
      for (const PlannedRank& rank : planned_ranks(*planned)) needed.push_back(rank.memory);
      if (fullest_of(needed)->predicted_total() > fullest_of(most)->predicted_total())
        most = std::move(needed);
    }
    return most;
  }

  std::string misfit_of_hardware() const {
    if (!report_.forecast) return {};
    const std::vector<MemoryReport> memory = most_memory();
    const auto most = fullest_of(memory);
    if (report_.forecast->fits(most->predicted_total())) return {};
    const Hardware& hardware = report_.forecast->hardware;
    return fmt::format("pipeline rank {} needs {}, and {} has {} that can be used: {}", most - memory.begin(),
                       bytes_text(most->predicted_total()), hardware.name,
                       bytes_text(static_cast<size_t>(hardware.usable_bytes())),
                       what_would_fit_alone(job_.config, hardware.usable_bytes() / kBytesOfGiB));
  }

  const PretrainJob& job_;
  const PlannedRuns& all_;
  const RehearseConfig& config_;
  PlannedMachine machine_;
  const PlannedRun& planned_;
  PlanReport report_;
  RehearseOptions options_;
};

// Rehearses `job`, if anything is left to train, with the costs of `plan`.
int rehearse(PretrainJob& job, PlanConfig plan, const RehearseConfig& config) {
  if (!job.finished.empty()) {
    fmt::print("trifold: {}; nothing is left to rehearse\n", job.finished);
    return kDone;
  }
  const std::optional<std::string> json = plan.json;
  const PlannedRuns all = take_largest_batch(job);
  plan.run = job.config;
  if (!plan.hardware && !plan.costs && plan.peak_gflops == PlanConfig().peak_gflops)
    fmt::print("note        planned times are of --peak-gflops {}; name the device by --hardware\n",
               plan.peak_gflops);
  return LanguageRehearsal(job, all, plan, config).run(json);
}

// BadInput if the run continues another and options give no length: how far that run came decides what is left.
void expect_length(const RehearsePretrainConfig& config) {
  if (config.plan.length_given) return;
  std::optional<RunStart> start;
  try {
    start = choose_start(config.plan.run.checkpoint, config.plan.run.model);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) throw;  // prepare reports it, with other mistakes
  }
  if (start && start->from && start->part == LoadPart::All)
    bad_input("the run continues from {}, and its length is not known: give --train-iters", *start->from);
}

// Options of the command give the load of experts; the checkpoint gives their number.
void check_loads(double load, const PretrainConfig& run) {
  Problems problems{OptionTable()};
  check_expert_load(load, run, problems);
  throw_problems(problems.take());
}

}  // namespace

int run(const RehearsePretrainConfig& config) {
  if (config.plan.json) check_writable_file("--json", *config.plan.json);
  PretrainConfig run = laid_out(config.plan.run);
  take_cores(run.mesh);
  expect_length(config);
  PretrainJob job = prepare(std::move(run), RanksHere::OneAlone);
  return rehearse(job, config.plan, config.rehearse);
}

int run(const RehearseFinetuneConfig& config) {
  if (config.plan.json) check_writable_file("--json", *config.plan.json);
  FinetuneConfig run = config.run;
  take_cores(run.run.mesh);
  FinetuneJob job = prepare(std::move(run), RanksHere::OneAlone);
  check_loads(config.plan.moe_load_imbalance, job.run->config);
  return rehearse(*job.run, config.plan, config.rehearse);
}

}  // namespace trifold::launch
