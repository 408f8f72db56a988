#include "recommend/recommend.h"

#include <limits>

#include "checkpoint/collective.h"
#include "checkpoint/reader.h"
#include "checkpoint/tensor_kind.h"
#include "config/commands/json.h"
#include "config/commands/option_tables.h"
#include "core/clock.h"
#include "core/read_json.h"
#include "optim/lr_schedule.h"
#include "recommend/click_record.h"
#include "recommend/dropped_negatives.h"
#include "recommend/grown_start.h"
#include "recommend/recommender_setup.h"
#include "recommend/run_options.h"
#include "recommend/trained_recommender.h"
#include "recommend/weights/first_weights.h"
#include "run/changed_options.h"
#include "run/checkpoint_data.h"
#include "run/rank_text.h"
#include "run/ranks.h"
#include "run/stop_poll.h"
#include "run/tensors_on_host.h"

namespace trifold {

namespace {

// In CheckpointMeta::state, with tables of keys: Recommender::key_batches. Older checkpoints lack it.
constexpr const char* kKeyBatches = "key_batches";

std::vector<uint32_t> key_batches_of(const CheckpointReader& reader) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  const JsonView state(reader.meta().state, reader.directory().string());
  std::vector<uint32_t> batches;
  if (state.has(kKeyBatches))
    state.at(kKeyBatches).each([&](const JsonView& table) {
      batches.push_back(static_cast<uint32_t>(table.integer(0, kMost)));
    });
  return batches;
}

// Without boxes of tensors that older checkpoints lack: such a run counts keys that have no entry from here on.
void leave_out_new_kinds(std::vector<NamedTensor>& boxes, const CheckpointReader& reader) {
  std::erase_if(boxes, [&](const NamedTensor& box) {
    return kind_of_tensor(box.spec.name) == kKeyCountsKind && reader.find(box.spec.name) == nullptr;
  });
}

// Evaluations predict the odds that the samples for evaluation have.
RecommenderSetup setup_of(const RecommendJob& job, int ranks) {
  RecommenderSetup setup = recommender_setup(job.config, job.data.schema(), ranks);
  const DlrmConfig& model = job.config.model;
  if (job.data.valid != nullptr)
    setup.logit_offset =
        odds_correction(job.data.train->schema(), model) - odds_correction(job.data.valid->schema(), model);
  return setup;
}

// One rank's run.
class RecommendRun final : public RecommendTraining, Savable {
 public:
  // `observer` is null on all ranks but 0.
  RecommendRun(Communicator& world, const RecommendJob& job, RecommendObserver* observer,
               const OpTable* ops = nullptr)
      : world_(world),
        job_(job),
        config_(job.config),
        observer_(observer),
        feed_(training_feed(job.config, *job.data.train)),
        rates_(config_.lr, config_.training.global_batch_size, job.limits.last_step),
        table_rates_(table_rates(config_), config_.training.global_batch_size, job.limits.last_step),
        model_(world, setup_of(job, world.size()), ops),
        losses_(config_.log.watch) {
    starts_ = {start_of(model_.setup())};
    if (job.data.valid != nullptr)
      valid_feed_.emplace(*job.data.valid, std::nullopt, config_.training.global_batch_size);
    if (config_.model.init_weights && !job.start.from) take_first_weights(*config_.model.init_weights);
  }

  Recommender& model() override { return model_; }
  Savable& state() override { return *this; }
  std::vector<std::string> load(const std::string& path, const RunStart& start) override;
  void take_first_weights(const std::string& path);
  void begin(std::vector<std::string> changes, std::vector<std::string> processes) override;
  bool advance(const std::atomic<int>& signal) override;
  ClockSpan step_time() const override { return step_time_; }
  std::optional<int64_t> failed_step() const override { return failed_step_; }
  bool evaluation_due() const override { return evaluates_after(done_); }
  Evaluation evaluate(const std::atomic<int>& signal) override;
  BestEvaluation& best() override { return best_; }
  void skip() override;
  LossWatch& losses() override { return losses_; }
  int64_t samples_of(int64_t steps) const override { return steps * config_.training.global_batch_size; }
  bool stop_agreed() const override { return stop_agreed_; }
  void poll_stop(const std::atomic<int>& signal) override {
    stop_agreed_ = any_signal(world_, model_.compute(), signal) || stop_agreed_;
  }
  void watch(StepWatch& watch) override { model_.watch(&watch); }

 private:
  int64_t steps_done() const override { return done_; }
  void check_replicas(const std::string& when) override { model_.check_replicas(when); }
  std::vector<NamedTensor> held_tensors() override {
    model_.settle();
    std::vector<NamedTensor> tensors = model_.checkpoint_tensors(true);
    model_.synchronize();
    return tensors;
  }
  std::string save(const std::string& root, const SaveOptions& options) override {
    model_.settle();
    const Recommender::AsOfLastStep keys(model_);
    TensorsOnHost host(model_.checkpoint_tensors(false), model_.ops(), model_.compute());
    host.fetch();
    return save_checkpoint(root, meta(), host.tensors(), world_, model_.mesh().coords(), options).string();
  }

  std::string save_in_background(BackgroundSaver& saver, const std::string& root,
                                 const SaveOptions& options) override {
    model_.settle();
    const Recommender::AsOfLastStep keys(model_);
    TensorsOnHost host(model_.checkpoint_tensors(false), model_.ops(), model_.compute());
    host.fetch();
    return saver.start(root, meta(), host.tensors(), model_.mesh().coords(), options);
  }

  bool evaluates_after(int64_t step) const {
    if (!valid_feed_) return false;
    const int64_t interval = config_.training.eval_interval.value_or(0);
    return step == job_.limits.last_step || (interval > 0 && step % interval == 0);
  }

  CheckpointMeta meta() {
    CheckpointMeta meta;
    meta.step = done_;
    meta.consumed_samples = done_ * config_.training.global_batch_size;
    meta.model = recommender_model(config_, job_.data.schema());
    meta.mesh = {{"dp", world_.size()}};
    meta.config = to_json(config_);
    meta.state = {{"global_batch_size", config_.training.global_batch_size},
                  {"seed", config_.seed},
                  {"train_samples", job_.data.train->samples()},
                  {"clicks", click_record(job_.data.schema())},
                  {"best", best_.state()},
                  {"losses", losses_.state()},
                  {"dtype", config_.precision.f64 ? "f64" : "f32"}};
    note_order(config_, meta.state);
    if (updates_before_ > 0) meta.state[kUpdatesBefore] = updates_before_;
    note_starts(starts_, meta.state);
    if (job_.data.schema().keyed()) meta.state[kKeyBatches] = model_.key_batches();
    note_data(meta, job_.fingerprint);
    return meta;
  }

  Communicator& world_;
  const RecommendJob& job_;
  const RecommendConfig& config_;
  RecommendObserver* observer_;
  ClickFeed feed_;
  std::optional<ClickFeed> valid_feed_;
  LrSchedule rates_, table_rates_;
  Recommender model_;  // after the feeds, from which it fetches
  int64_t done_ = 0;
  int64_t updates_before_ = 0;      // in runs before this one, from which --finetune took the state
  std::vector<TableStart> starts_;  // starts of the tables, in this run and earlier ones
  bool is_fetched_ = false;         // the batch of the next step
  bool stop_agreed_ = false;
  ClockSpan step_time_;
  std::optional<int64_t> failed_step_;
  BestEvaluation best_{"AUC", BestEvaluation::Better::Higher};
  LossWatch losses_;
};

std::vector<std::string> RecommendRun::load(const std::string& path, const RunStart& start) {
  is_fetched_ = false;
  std::vector<std::string> changes;
  std::vector<uint32_t> key_batches;
  gather_texts(world_, "loading " + path, [&]() -> std::string {
    CheckpointReader reader(path);
    const bool begins = start.part == LoadPart::State;
    const ClickSchema schema = job_.data.schema();
    compare_models(model_to_go_on(reader, start.part, config_.data.train_data, schema),
                   recommender_model(config_, schema));
    std::vector<NamedTensor> boxes = model_.checkpoint_tensors(true);
    if (begins) boxes = stored_parts(std::move(boxes), reader, schema);
    leave_out_new_kinds(boxes, reader);
    // Rows that the checkpoint lacks keep what is in the file.
    if (begins && !growth_notes(reader, schema).empty()) model_.settle();
    TensorsOnHost host(std::move(boxes), model_.ops(), model_.compute());
    reader.load(host.tensors());
    host.put_back();
    const JsonView state(reader.meta().state, reader.directory().string());
    updates_before_ = updates_before(reader);
    key_batches = key_batches_of(reader);
    model_.check_keys(key_batches, updates_before_ + reader.meta().step);
    const TableStart own = starts_.back();
    starts_ = starts_of(reader);
    if (starts_.empty() || starts_.back() != own) starts_.push_back(own);
    if (begins) {
      updates_before_ += reader.meta().step;
      changes = {fmt::format("weights and optimizer state were taken from {}", reader.directory().string())};
      return {};
    }
    done_ = reader.meta().step;
    if (state.has("best")) best_.restore(state.at("best"), done_);
    if (state.has("losses")) losses_.restore(state.at("losses"));
    RecommendConfig config = config_;
    changes = changed_options(reader.meta().config, to_json(config_), options_of(config));
    return {};
  });
  model_.set_updates_before(updates_before_);
  model_.loaded(key_batches);
  return changes;
}

void RecommendRun::take_first_weights(const std::string& path) {
  gather_texts(world_, "loading " + path, [&]() -> std::string {
    const FirstWeights weights(path, recommender_setup(config_, job_.data.schema(), world_.size()));
    model_.settle();
    std::vector<NamedTensor> boxes = model_.checkpoint_tensors(true);
    std::erase_if(boxes, [](const NamedTensor& box) {
      return !is_of_model(box.spec.name) || kind_of_tensor(box.spec.name) == kKeysKind;
    });
    TensorsOnHost host(std::move(boxes), model_.ops(), model_.compute());
    weights.load(host.tensors());
    host.put_back();
    return {};
  });
  model_.loaded();
}

// Reports what the run is.
void RecommendRun::begin(std::vector<std::string> changes, std::vector<std::string> processes) {
  RecommendReport report;
  report.processes = std::move(processes);
  report.changes = std::move(changes);
  report.mesh = ranks_text(world_, model_.threads());
  report.operations = model_.ops().name;
  report.parameters = model_.parameters();
  report.train_flops_per_sample = model_.flops_per_sample();
  report.first_step = done_ + 1;
  report.last_step = job_.limits.last_step;
  report.steps_per_epoch = feed_.batches_per_epoch();
  report.train_samples = job_.data.train->samples();
  report.valid_samples = job_.data.valid == nullptr ? 0 : job_.data.valid->samples();
  report.best_auc = job_.data.best_auc;
  report.memory = model_.memory();
  report.planned_bytes = static_cast<size_t>(report.memory.total());
  report.notes = job_.data.notes;
  const auto tables = model_.placement().tables();
  const auto choice = model_.placement().choice();
  report.tables.assign(tables.begin(), tables.end());
  report.placement.assign(choice.begin(), choice.end());
  report.loads = loads_of(model_.placement(), placement_input(config_, job_.data.schema(), world_.size()));
  if (observer_ != nullptr) observer_->on_start(report);
}

bool RecommendRun::advance(const std::atomic<int>& signal) {
  if (!is_fetched_) model_.fetch(feed_, done_, true);
  const auto start = Clock::now();
  StepReport step;
  step.step = done_ + 1;
  step.samples = feed_.real_samples(done_);
  step.consumed_samples = step.step * config_.training.global_batch_size;
  step.lr = rates_.at(done_);
  // An evaluation between two steps needs the buffer of the next batch.
  // The next step may be skipped, or the run may return to another one.
  is_fetched_ = step.step < job_.limits.last_step && !evaluates_after(step.step) &&
                !losses_.skips(step.step + 1) && !losses_.may_roll_back();
  try {
    step.loss = model_.train(step.samples, step.step, step.lr, table_rates_.at(done_), [&] {
      if (is_fetched_) model_.fetch(feed_, step.step, true);
    });
  } catch (const Error& error) {
    // An Agreed error means that the step is not finite.
    if (error.kind() == ErrorKind::Agreed) failed_step_ = step.step;
    throw;
  }
  step.grad_norm = model_.grad_norm();
  done_ = step.step;
  losses_.add(step.step, step.loss);
  step_time_ = {start, Clock::now()};
  step.step_seconds = step_time_.seconds();
  if (observer_ != nullptr) {
    if (model_.cached_rows().wanted > 0) observer_->on_rows(model_.cached_rows());
    observer_->on_step(step);
  }
  poll_stop(signal);
  return true;
}

void RecommendRun::skip() {
  step_time_.begin = step_time_.end = Clock::now();
  StepReport step;
  step.step = done_ + 1;
  step.samples = feed_.real_samples(done_);
  step.consumed_samples = step.step * config_.training.global_batch_size;
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.lr = rates_.at(done_);
  step.skip = StepSkip::Asked;
  done_ = step.step;
  if (observer_ != nullptr) observer_->on_step(step);
}

Evaluation RecommendRun::evaluate(const std::atomic<int>& signal) {
  const auto start = Clock::now();
  LabelMetrics metrics(job_.data.schema());
  const auto take = [&](const Recommender::Scored& scored) { metrics.add(scored); };
  OtherRows means(world_, model_, starts_);
  stop_agreed_ = !score_feed(world_, model_, *valid_feed_, signal, take);
  means.restore();
  if (stop_agreed_) return {};
  Stream host = model_.compute().host();
  ClickEvaluation evaluation{done_, metrics.finish(world_, host), 0};
  evaluation.seconds = seconds_since(start);
  if (observer_ != nullptr) observer_->on_eval(evaluation);
  const std::optional<double> auc = mean_auc(evaluation.labels);
  const auto& target = config_.training.target_auc;
  if (!target || !auc || *auc < *target) return {auc};
  if (observer_ != nullptr) observer_->on_target(done_, *auc, *target);
  return {auc, true};
}

}  // namespace

std::unique_ptr<RecommendTraining> recommend_run(Communicator& world, const RecommendJob& job,
                                                 RecommendObserver* observer, const OpTable* ops) {
  return std::make_unique<RecommendRun>(world, job, observer, ops);
}

RunEnd recommend(Communicator& world, const RecommendJob& job, RecommendObserver& observer,
                 const std::atomic<int>& signal) {
  RecommendObserver* const mine = world.rank() == 0 ? &observer : nullptr;
  RunEnd end = RunEnd::Done;
  abort_on_error(world, [&] {
    RecommendRun run(world, job, mine);
    end = run_loop(world, run, job, job.config.log.watch, job.config.checkpoint, mine, signal);
  });
  return end;
}

}  // namespace trifold
