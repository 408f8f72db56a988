#include "run/loop.h"

#include <fmt/ranges.h>

#include <array>
#include <exception>
#include <string_view>
#include <vector>

#include "run/flight/step_trace.h"
#include "run/flight/wait_limits.h"
#include "run/health/incidents.h"
#include "run/health/slow_ranks.h"
#include "run/model_folders.h"
#include "run/nodes.h"
#include "run/saver.h"

namespace trifold {

namespace {

// Passes the phases of a rank's saves to the test that observes them.
std::function<void(SavePhase)> save_listener(const RunJob& job, int rank) {
  if (job.probe == nullptr) return job.at_save_phase;
  return [&job, rank](SavePhase phase) {
    if (job.at_save_phase) job.at_save_phase(phase);
    job.probe->reach(phase, rank);
  };
}

// The names of the parts in the flight recorder.
std::string_view name_of(RunPart part) {
  switch (part) {
    case RunPart::Load:
      return "load";
    case RunPart::Evaluate:
      return "evaluate";
    case RunPart::Save:
      return "save";
    default:
      return "step";
  }
}

// Passes the parts of a run to the test that observes them, to the flight recorder and to the time-outs.
class Parts {
 public:
  Parts(Communicator& world, TrainingRun& run, const RunJob& job, const WatchConfig& watch)
      : run_(run),
        probe_(job.probe),
        rank_(world.rank()),
        recorder_(world.recorder()),
        limits_(recorder_, watch) {}

  void reach(RunPart part) {
    if (probe_ != nullptr) probe_->reach(part, rank_, run_.state());
  }
  // Runs `work`, a part of the run other than a step, and returns its result. Its waits have the time-out learned for
  // the part.
  template <class Work>
  auto run(RunPart part, Work&& work) {
    limits_.begin(part);
    const Learning learning(limits_);
    return record(part, [&] {
      reach(part);
      return work();
    });
  }
  // Runs a part whose duration says nothing about the next one.
  template <class Work>
  auto record(RunPart part, Work&& work) {
    if (recorder_ != nullptr) recorder_->set_step(run_.state().steps_done());
    const FlightScope recorded(recorder_, FlightEvent::Kind::Part, name_of(part));
    return work();
  }
  // Runs a step. Its event lasts exactly as long as the run reports.
  void train(FunctionRef<void()> work) {
    limits_.begin(RunPart::Step);
    const Learning learning(limits_);
    record_step([&] {
      reach(RunPart::Step);
      work();
      reach(RunPart::Updated);
    });
  }
  void skip() {
    record_step([&] { run_.skip(); });
  }

 private:
  // Scope guard: the duration of a part counts unless an exception ends it.
  class Learning {
   public:
    explicit Learning(WaitLimits& limits) : limits_(limits) {}
    ~Learning() {
      if (std::uncaught_exceptions() == exceptions_) limits_.end();
    }
    Learning(const Learning&) = delete;
    Learning& operator=(const Learning&) = delete;

   private:
    WaitLimits& limits_;
    int exceptions_ = std::uncaught_exceptions();
  };

  void record_step(FunctionRef<void()> work) {
    if (recorder_ != nullptr) recorder_->set_step(run_.state().steps_done() + 1);
    FlightScope recorded(recorder_, FlightEvent::Kind::Part, name_of(RunPart::Step));
    work();
    recorded.lasted(run_.step_time());
  }

  TrainingRun& run_;
  RunProbe* probe_;
  int rank_;
  FlightRecorder* recorder_;
  WaitLimits limits_;
};

// What a run does after a spike of the loss.
class Spikes {
 public:
  Spikes(Communicator& world, TrainingRun& run, const WatchConfig& watch, const CheckpointConfig& checkpoint,
         RunSaver& saver, SaveObserver* observer)
      : world_(world),
        run_(run),
        watch_(watch),
        checkpoint_(checkpoint),
        saver_(saver),
        observer_(observer) {}

  // Collective. Call it after every step. Throws an Agreed Error if the run ends here. Returns whether the run has
  // returned to an earlier step.
  bool look() {
    const std::optional<LossSpike> spike = run_.losses().take_spike();
    if (!spike) return false;
    saver_.wait();  // a save in flight is needed, or must not be lost
    const auto samples = [this](int64_t steps) { return run_.samples_of(steps); };
    if (watch_.on_loss_spike == OnLossSpike::Stop)
      throw Error(
          fmt::format("{}; the run ends here because of --on-loss-spike stop, and this step is not saved",
                      text_of(*spike, samples)),
          ErrorKind::Agreed);
    roll_back(*spike);
    return true;
  }

 private:
  // So often a run may return to one checkpoint.
  static constexpr int64_t kMostReturns = 5;

  void roll_back(const LossSpike& spike) {
    const auto samples = [this](int64_t steps) { return run_.samples_of(steps); };
    const LossWatch before = run_.losses();
    const RunStart start{checkpoint_.save, LoadPart::All, true};
    LoadedStart loaded;
    try {
      loaded = load_start(start, world_, [&](const std::string& path) { return run_.load(path, start); });
    } catch (const Error& error) {
      throw Error(
          fmt::format("{}; the run cannot return to a checkpoint: {}", text_of(spike, samples), error.what()),
          error.kind() == ErrorKind::Aborted ? ErrorKind::Aborted : ErrorKind::Agreed);
    }
    if (observer_ != nullptr)
      for (const std::string& warning : loaded.warnings) observer_->on_warning(warning);
    saver_.returned_to(start);
    const int64_t step = run_.state().steps_done();
    if (step >= spike.step)
      throw Error(fmt::format("{}; the run cannot return to a checkpoint: the newest one in {} is of step {}",
                              text_of(spike, samples), *checkpoint_.save, step),
                  ErrorKind::Agreed);
    run_.losses().keep_skipped(before);
    const int64_t returns = run_.losses().times_skipped_after(step);
    if (returns >= kMostReturns)
      throw Error(
          fmt::format("{}; the run has returned to step {} {} times already: the samples alone are not the "
                      "cause; try a lower --lr",
                      text_of(spike, samples), step, returns),
          ErrorKind::Agreed);
    const int64_t first = std::max(step, spike.step - watch_.loss_spike_skip) + 1;
    run_.losses().skip(first, spike.step);
    if (observer_ != nullptr) observer_->on_incident(incident_of(spike, samples, {step, first, spike.step}));
  }

  Communicator& world_;
  TrainingRun& run_;
  const WatchConfig& watch_;
  const CheckpointConfig& checkpoint_;
  RunSaver& saver_;
  SaveObserver* observer_;
};

// Trains the next steps. If they are not finite, that is recorded for a restarted run.
void advance(TrainingRun& run, RunSaver& saver, const LoadedStart& loaded, const std::atomic<int>& signal) {
  try {
    if (run.advance(signal)) saver.step_was_finite();
  } catch (const Error& error) {
    const std::optional<int64_t> failed = run.failed_step();
    if (!failed) throw;
    throw saver.not_finite(*failed, error, loaded);
  }
}

// Returns rank 0's values on all ranks. Collective.
template <size_t N>
std::array<double, N> of_rank_0(Communicator& world, std::array<double, N> numbers) {
  ThreadPool pool(1);
  Stream host(Stream::Mode::Inline, pool);
  world.broadcast({numbers.data(), DType::F64, {N}}, 0, host);
  return numbers;
}

// Whether the run has reached its time limit, by the clock of rank 0.
bool is_late(Communicator& world, const RunJob& job) {
  const std::optional<double>& minutes = job.limits.exit_duration_in_mins;
  if (!minutes) return false;
  return of_rank_0<1>(world, {seconds_since(job.began) > 60 * *minutes ? 1.0 : 0.0})[0] > 0;
}

LoadedStart start(Communicator& world, TrainingRun& run, const RunJob& job, RunSaver& saver,
                  SaveObserver* observer) {
  LoadedStart loaded =
      load_start(job.start, world, [&](const std::string& path) { return run.load(path, job.start); });
  if (observer != nullptr)
    for (const std::string& warning : loaded.warnings) observer->on_warning(warning);
  saver.loaded(job.start);
  run.begin(std::move(loaded.changes), processes_of_ranks(world));
  return loaded;
}

// The evaluation at the start or after a step, and its consequences.
class Evaluations {
 public:
  Evaluations(Communicator& world, TrainingRun& run, const RunJob& job, const CheckpointConfig& checkpoint,
              RunSaver& saver, SaveObserver* observer)
      : world_(world),
        run_(run),
        patience_(job.limits.early_stop_patience),
        keeps_best_(checkpoint.save_best),
        saver_(saver),
        observer_(observer) {}

  // Whether the run continues from a checkpoint that a signal caused before the evaluation of its step, although
  // decisions depend on that evaluation.
  bool lacks_evaluation_of_step() const {
    const int64_t done = run_.state().steps_done();
    return (keeps_best_ || patience_) && done > 0 && run_.evaluation_due() && run_.best().last_step() < done;
  }
  // Whether a signal prevented the evaluation of the last step, so that --save-best cannot decide about it.
  bool best_is_open() const {
    const int64_t done = run_.state().steps_done();
    return keeps_best_ && done > 0 && run_.best().left_out() == done;
  }
  // Evaluates, and returns whether that ends the run.
  bool make(const std::atomic<int>& signal) {
    Evaluation evaluation;
    if (!run_.stop_agreed()) evaluation = run_.evaluate(signal);
    if (run_.stop_agreed()) {
      if (keeps_best_) run_.best().leave_out(run_.state().steps_done());
      if (observer_ != nullptr)
        observer_->on_warning("the evaluation was skipped, because a signal asked the run to stop");
      return false;
    }
    add(evaluation);
    keep_best();
    if (evaluation.at_target) return true;
    if (!evaluation.value && (keeps_best_ || patience_) && observer_ != nullptr)
      observer_->on_warning(fmt::format("the evaluation after step {} gave no {}: {} {} not count it",
                                        run_.state().steps_done(), run_.best().metric(),
                                        fmt::join(deciding_options(), " and "),
                                        keeps_best_ && patience_ ? "do" : "does"));
    const bool early = run_.best().ends_early(patience_);
    if (early && observer_ != nullptr) observer_->on_early_stop(run_.best());
    return early;
  }
  // Saves this step as the best if it is.
  void keep_best() {
    const int64_t best = run_.best().best_step();
    if (keeps_best_ && best > 0 && best == run_.state().steps_done()) saver_.save_best();
  }

 private:
  // Adds the evaluation. Rank 0's value decides for all: an MPI library may round a sum differently on each rank, and
  // ranks that disagree about the best step would wait for each other.
  void add(Evaluation& evaluation) {
    const auto [value, has_value, at_target] = of_rank_0<3>(
        world_,
        {evaluation.value.value_or(0), evaluation.value ? 1.0 : 0.0, evaluation.at_target ? 1.0 : 0.0});
    evaluation.value = has_value > 0 ? std::optional(value) : std::nullopt;
    evaluation.at_target = at_target > 0;
    run_.best().add(run_.state().steps_done(), evaluation.value);
  }
  std::vector<std::string_view> deciding_options() const {
    std::vector<std::string_view> options;
    if (keeps_best_) options.emplace_back("--save-best");
    if (patience_) options.emplace_back("--early-stop-patience");
    return options;
  }

  Communicator& world_;
  TrainingRun& run_;
  std::optional<int64_t> patience_;
  bool keeps_best_;
  RunSaver& saver_;
  SaveObserver* observer_;
};

}  // namespace

RunEnd run_loop(Communicator& world, TrainingRun& run, const RunJob& job, const WatchConfig& watch,
                const CheckpointConfig& checkpoint, SaveObserver* observer, const std::atomic<int>& signal) {
  const int rank = world.rank();
  Parts parts(world, run, job, watch);
  if (StepWatch* const probing = job.probe != nullptr ? job.probe->watch(rank) : nullptr) run.watch(*probing);
  RunSaver saver(world, run.state(), checkpoint, job.start, observer, save_listener(job, rank));
  const LoadedStart loaded =
      parts.run(RunPart::Load, [&] { return start(world, run, job, saver, observer); });
  ModelFolders models(world, run.state(), checkpoint, saver.run_id(), job.start.computation, job.write_model,
                      observer, save_listener(job, rank));
  const auto finish_saves = [&] {
    saver.finish();  // first: a model that fails must not cost the checkpoint
    models.finish();
  };
  const auto is_over = [&] { return run.state().steps_done() >= job.limits.last_step; };
  const auto due = [&](const std::optional<int64_t>& interval) {
    return interval && run.state().steps_done() % *interval == 0;
  };
  if (!is_over() && !run.wait_for_data(signal)) return RunEnd::NotBegun;
  const bool continues = job.start.from && job.start.part == LoadPart::All;
  if (continues && run.state().steps_done() > 0 && due(checkpoint.save_hf_interval))
    parts.record(RunPart::Save, [&] { models.save_if_missing(); });  // a kill may have prevented it
  Evaluations evaluations(world, run, job, checkpoint, saver, observer);
  const auto evaluation_ends_run = [&] {
    return parts.run(RunPart::Evaluate, [&] { return evaluations.make(signal); });
  };
  evaluations.keep_best();  // a kill may have prevented marking the folder
  if (evaluations.lacks_evaluation_of_step() && evaluation_ends_run()) {
    finish_saves();
    return RunEnd::Done;
  }
  const auto save_model = [&] {
    if (due(checkpoint.save_hf_interval)) parts.record(RunPart::Save, [&] { models.save(); });
  };
  SlowRanks slow_ranks(world, watch.straggler_interval, run.work_groups(), observer);
  Spikes spikes(world, run, watch, checkpoint, saver, observer);
  StepTrace trace(world, watch, run.state().steps_done(), job.limits.last_step, observer);
  while (!is_over()) {
    if (run.stop_agreed()) {
      parts.record(RunPart::Save, finish_saves);
      trace.finish();
      return RunEnd::Interrupted;
    }
    trace.before_step(run.state().steps_done(), run.steps_at_once());
    const bool skips = run.losses().skips(run.state().steps_done() + 1);
    if (skips) {
      parts.skip();
      run.poll_stop(signal);
    } else {
      slow_ranks.begin_step();
      parts.train([&] { advance(run, saver, loaded, signal); });
      slow_ranks.end_step(run.state().steps_done());
    }
    if (spikes.look()) continue;
    // The model before is waited for ahead of this step's checkpoint: a killed run that continues from the checkpoint
    // does not write it again.
    if (due(checkpoint.save_hf_interval)) parts.record(RunPart::Save, [&] { models.finish(); });
    if (run.evaluation_due() && evaluation_ends_run()) {
      save_model();
      break;
    }
    saver.poll();
    models.poll();
    saver.check_when_due();
    if (due(checkpoint.save_interval)) {
      // A save in the background may wait for the one before it.
      if (checkpoint.async_save) {
        parts.record(RunPart::Save, [&] {
          parts.reach(RunPart::Save);
          saver.save();
        });
      } else {
        parts.run(RunPart::Save, [&] { saver.save(); });
      }
      run.poll_stop(
          signal);  // a save may take long: a signal during it must not start another step and a second save
    }
    save_model();  // after the checkpoint, from which a killed run continues and knows its models
    if (run.stop_agreed()) continue;
    if (due(job.limits.exit_interval) || is_late(world, job)) break;
  }
  parts.record(RunPart::Save, finish_saves);
  trace.finish();
  return evaluations.best_is_open() ? RunEnd::Interrupted : RunEnd::Done;
}

}  // namespace trifold
