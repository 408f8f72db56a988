#include "train/recommend.h"

#include <algorithm>

#include "checkpoint/collective.h"
#include "checkpoint/reader.h"
#include "config/json.h"
#include "config/option_tables.h"
#include "config/validate.h"
#include "core/clock.h"
#include "core/read_json.h"
#include "optim/click_schedule.h"
#include "train/checkpoint_data.h"
#include "train/click_record.h"
#include "train/device.h"
#include "train/nodes.h"
#include "train/output_files.h"
#include "train/ranks.h"
#include "train/recommender_setup.h"
#include "train/run_saver.h"
#include "train/stop_poll.h"
#include "train/tensors_on_host.h"

namespace trifold {

namespace {

int64_t last_step(const RecommendConfig& config, int64_t steps_per_epoch) {
  if (config.training.train_iters) return *config.training.train_iters;
  return config.training.train_epochs.value_or(1) * steps_per_epoch;
}

// What must agree for the tensors of a checkpoint to fit.
nlohmann::json model_json(const RecommendConfig& config, const ClickSchema& schema) {
  nlohmann::json tables = nlohmann::json::array();
  for (const ClickTable& table : schema.tables)
    tables.push_back({{"name", table.name}, {"rows", table.rows}});
  const DlrmConfig& model = config.model;
  return {{"kind", "dlrm"},
          {"dense", schema.dense},
          {"embedding_dim", model.embedding_dim},
          {"bottom_mlp", schema.dense > 0 ? *numbers_of(model.bottom_mlp) : std::vector<int64_t>{}},
          {"top_mlp", *numbers_of(model.top_mlp)},
          {"interaction", model.interaction},
          {"interaction_self", model.interaction_self},
          {"cross_layers", model.interaction == "cross" ? model.cross_layers : 0},
          {"cross_rank", model.interaction == "cross" ? model.cross_rank : 0},
          {"pooling", model.pooling},
          {"optimizer", config.training.optimizer},
          {"embedding_optimizer", config.training.embedding_optimizer},
          {"f64", config.training.f64},
          {"tables", tables}};
}

// What can be said about the start before any rank runs; returns the steps that are done. Which samples a
// step has follows from the seed and their number.
int64_t check_start(RecommendJob& job) {
  const RecommendConfig& config = job.config;
  const CheckpointReader reader(*job.start.from);
  const CheckpointMeta& meta = reader.meta();
  const std::string name = reader.directory().string();
  if (!meta.model.contains("kind"))
    bad_input("{} is a checkpoint of a language model: trifold pretrain --load goes on with it", name);
  check_not_marked(job.start, config.checkpoint);
  compare_with_record(reader, config.data.train_data, job.data.schema());
  compare_models(meta.model, model_json(config, job.data.schema()));
  const JsonView state(meta.state, name);
  const int64_t batch = state.has("global_batch_size") ? state.at("global_batch_size").integer(0) : 0;
  if (batch != config.training.global_batch_size)
    bad_input("{} was trained with global batches of {}: go on with --global-batch-size {}", name, batch,
              batch);
  const uint64_t seed = state.has("seed") ? state.at("seed").whole_number() : config.seed;
  if (seed != config.seed)
    bad_input(
        "{} was trained with --seed {}, which decides the order of the samples: go on with that, not with {}",
        name, seed, config.seed);
  const bool may_differ = config.checkpoint.allow_changed_data;
  check_training_data(meta, name, job.fingerprint, may_differ);
  if (const std::string changed = data_difference(meta, job.fingerprint); !changed.empty())
    job.data.notes.push_back("not those of the checkpoint: " + changed);
  const int64_t samples =
      state.has("train_samples") ? state.at("train_samples").integer(0) : job.data.train->samples();
  if (samples != job.data.train->samples() && !may_differ)
    bad_input("{} was trained on {} samples, {} has {} to train on: that is another data set", name, samples,
              config.data.train_data, job.data.train->samples());
  return meta.step;
}

}  // namespace

RecommendJob prepare(RecommendConfig config) {
  RecommendJob job;
  job.config = std::move(config);
  std::vector<std::string> problems;
  const auto attempt = [&](auto&& part) {
    try {
      part();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      problems.emplace_back(error.what());
    }
  };
  const RecommendConfig& c = job.config;
  std::optional<int64_t> first_step;  // unknown while something is wrong with the start
  attempt([&] { check_device(c.mesh); });
  attempt([&] {
    job.start = choose_start(c.checkpoint);
    if (!job.start.from) first_step = 0;
  });
  attempt([&] {
    job.data = open_clicks(c.data, c.seed);
    job.fingerprint = fingerprint_of(c.data, c.seed);
    recommender_setup(c, job.data.schema(), c.mesh.ranks);
    if (!job.start.from) return;
    first_step = check_start(job);
    const ClickFeed feed(*job.data.train, c.seed, c.training.global_batch_size);
    const int64_t last = last_step(c, feed.batches_per_epoch());
    job.is_finished = job.start.may_fall_back && *first_step >= last;
    if (*first_step >= last && !job.is_finished)
      bad_input("{} has done {} steps already: nothing is left of {}", *job.start.from, *first_step, last);
  });
  if (c.checkpoint.save) attempt([&] { check_save(c.checkpoint, job.start, first_step); });
  if (c.log.log_json) attempt([&] { check_writable_file("--log-json", *c.log.log_json); });
  throw_problems(problems);
  job.terms.add(options_of(job.config));
  job.terms.add("--train-data", job.fingerprint);
  if (c.data.valid_data) job.terms.add("--valid-data", fingerprint_of_paths({{*c.data.valid_data}}));
  if (job.start.from && !job.start.may_fall_back) job.terms.add_checkpoint(*job.start.from);
  return job;
}

namespace {

// One rank's run.
class RecommendRun final : public Savable {
 public:
  RecommendRun(Communicator& world, const RecommendJob& job, RecommendObserver& observer)
      : world_(world),
        job_(job),
        config_(job.config),
        observer_(observer),
        speaks_(world.rank() == 0),
        feed_(*job.data.train, job.config.seed, job.config.training.global_batch_size),
        model_(world, recommender_setup(job.config, job.data.schema(), world.size())),
        last_step_(last_step(job.config, feed_.batches_per_epoch())) {
    if (job.data.valid != nullptr)
      valid_feed_.emplace(*job.data.valid, std::nullopt, config_.training.global_batch_size);
    saver_.emplace(world, *this, config_.checkpoint, job.start, speaks_ ? &observer : nullptr,
                   job.at_save_phase);
    loaded_ = load_start(job.start, world, [&](const std::string& path) { return load(path); });
    for (const std::string& warning : loaded_.warnings)
      if (speaks_) observer_.on_warning(warning);
    saver_->loaded(job.start);
    const std::vector<std::string> processes = processes_of_ranks(world_);
    if (speaks_) observer_.on_start(report(processes));
  }

  RunEnd run(const std::atomic<int>& signal) {
    fetch_training();
    while (done_ < last_step_) {
      train();
      bool stop = agree(signal.load() != 0);
      const bool evaluating = evaluation_due();
      if (evaluating && !stop && evaluate(signal, stop)) break;
      if (evaluating && stop && speaks_)
        observer_.on_warning("the evaluation was left out, as a signal asks the run to stop");
      saver_->poll();
      saver_->check_when_due();
      if (config_.checkpoint.save_interval && done_ % *config_.checkpoint.save_interval == 0) {
        saver_->save();
        // A save may take long: do not begin another step, and save once more.
        stop = stop || agree(signal.load() != 0);
      }
      if (stop && done_ < last_step_) {
        saver_->finish();
        return RunEnd::Interrupted;
      }
      if (evaluating && done_ < last_step_) fetch_training();
    }
    saver_->finish();
    return RunEnd::Done;
  }

  int64_t steps_done() const override { return done_; }
  void check_replicas(const std::string& when) override { model_.check_replicas(when); }

  std::string save(const std::string& root, const SaveOptions& options) override {
    TensorsOnHost host(model_.checkpoint_tensors(false), model_.ops(), model_.compute());
    host.fetch();
    return save_checkpoint(root, meta(), host.tensors(), world_, model_.mesh().coords(), options).string();
  }

  std::string save_in_background(BackgroundSaver& saver, const std::string& root,
                                 const SaveOptions& options) override {
    TensorsOnHost host(model_.checkpoint_tensors(false), model_.ops(), model_.compute());
    host.fetch();
    return saver.start(root, meta(), host.tensors(), model_.mesh().coords(), options);
  }

 private:
  bool evaluation_due() const {
    if (!valid_feed_) return false;
    const int64_t interval = config_.training.eval_interval.value_or(0);
    return done_ == last_step_ || (interval > 0 && done_ % interval == 0);
  }

  void fetch(const ClickFeed& feed, int64_t step) {
    model_.fetch([this, &feed, step](ClickBatchBuffer& out) {
      feed.read(step, world_.rank(), model_.samples(), out);
    });
  }
  void fetch_training() { fetch(feed_, done_); }

  void train() {
    const auto start = Clock::now();
    const ClickTrainingConfig& training = config_.training;
    const ClickSchedule schedule{training.lr_warmup_iters, training.lr_decay_start, training.lr_decay_iters};
    ClickStep step;
    step.step = ++done_;
    step.samples = feed_.real_samples(done_ - 1);
    step.lr = schedule.rate(training.lr, done_);
    const double table_lr = schedule.rate(training.embedding_lr.value_or(training.lr), done_);
    // An evaluation between two steps needs the place that the next batch would take.
    const bool ahead = done_ < last_step_ && !evaluation_due();
    try {
      step.loss = model_.train(step.samples, done_, step.lr, table_lr, [&] {
        if (ahead) fetch_training();
      });
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::Agreed) throw;  // what all ranks find together is that it is not finite
      throw saver_->not_finite(done_, error, loaded_);
    }
    saver_->step_was_finite();
    step.seconds = seconds_since(start);
    if (speaks_) observer_.on_step(step);
  }

  // True when the target was reached. Abandoned within seconds, on all ranks, once one of them sees its
  // signal: `stop` is true then.
  bool evaluate(const std::atomic<int>& signal, bool& stop) {
    const auto start = Clock::now();
    ClickMetrics metrics;
    StopPoll poll(world_, model_.compute(), &signal);
    for (int64_t step = 0; step < valid_feed_->batches_per_epoch(); ++step) {
      if ((stop = poll.stops())) return false;
      fetch(*valid_feed_, step);
      const Recommender::Scored scored = model_.score();
      metrics.add(scored.logits.flat(), scored.batch->labels, scored.batch->weights,
                  scored.batch->first_sample);
    }
    Stream host = model_.compute().host();
    ClickEvaluation evaluation{done_, metrics.finish(world_, host), 0};
    evaluation.seconds = seconds_since(start);
    if (speaks_) observer_.on_eval(evaluation);
    const auto& target = config_.training.target_auc;
    if (!target || !evaluation.scores.auc || *evaluation.scores.auc < *target) return false;
    if (speaks_) observer_.on_target(done_, *evaluation.scores.auc, *target);
    return true;
  }

  bool agree(bool requested) {
    double count = requested ? 1 : 0;
    Stream host = model_.compute().host();
    world_.all_reduce({&count, DType::F64, {1}}, Reduce::Sum, host);
    return count > 0;
  }

  CheckpointMeta meta() const {
    CheckpointMeta meta;
    meta.step = done_;
    meta.consumed_samples = done_ * config_.training.global_batch_size;
    meta.model = model_json(config_, job_.data.schema());
    meta.mesh = {{"dp", world_.size()}};
    meta.config = to_json(config_);
    meta.state = {{"global_batch_size", config_.training.global_batch_size},
                  {"seed", config_.seed},
                  {"train_samples", job_.data.train->samples()},
                  {"clicks", click_record(job_.data.schema())},
                  {"dtype", config_.training.f64 ? "f64" : "f32"}};
    note_data(meta, job_.fingerprint);
    return meta;
  }

  std::vector<std::string> load(const std::string& path) {
    gather_texts(world_, "loading " + path, [&]() -> std::string {
      CheckpointReader reader(path);
      compare_with_record(reader, config_.data.train_data, job_.data.schema());
      compare_models(reader.meta().model, model_json(config_, job_.data.schema()));
      TensorsOnHost host(model_.checkpoint_tensors(true), model_.ops(), model_.compute());
      reader.load(host.tensors());
      host.put_back();
      done_ = reader.meta().step;
      return {};
    });
    model_.loaded();
    return {};
  }

  RecommendReport report(std::vector<std::string> processes) {
    RecommendReport report;
    report.processes = std::move(processes);
    report.mesh =
        fmt::format("{} {} rank{}, {} thread{} each", world_.size(), world_.backend(),
                    world_.size() == 1 ? "" : "s", model_.threads(), model_.threads() == 1 ? "" : "s");
    report.operations = model_.ops().name;
    report.parameters = model_.parameters();
    report.flops_per_sample = model_.flops_per_sample();
    report.first_step = done_ + 1;
    report.last_step = last_step_;
    report.steps_per_epoch = feed_.batches_per_epoch();
    report.train_samples = job_.data.train->samples();
    report.valid_samples = job_.data.valid == nullptr ? 0 : job_.data.valid->samples();
    report.best_auc = job_.data.best_auc;
    report.memory = model_.memory();
    report.notes = job_.data.notes;
    const auto tables = model_.placement().tables();
    const auto choice = model_.placement().choice();
    report.tables.assign(tables.begin(), tables.end());
    report.placement.assign(choice.begin(), choice.end());
    report.loads = loads_of(model_.placement(), placement_input(config_, world_.size()));
    return report;
  }

  Communicator& world_;
  const RecommendJob& job_;
  const RecommendConfig& config_;
  RecommendObserver& observer_;
  bool speaks_;
  ClickFeed feed_;
  std::optional<ClickFeed> valid_feed_;
  Recommender model_;  // after the feeds: what it fetches reads from them
  int64_t last_step_;
  int64_t done_ = 0;
  LoadedStart loaded_;
  std::optional<RunSaver> saver_;  // last: a save in the background ends before what it saves
};

}  // namespace

RunEnd recommend(Communicator& world, const RecommendJob& job, RecommendObserver& observer,
                 const std::atomic<int>& signal) {
  RunEnd end = RunEnd::Done;
  abort_on_error(world, [&] { end = RecommendRun(world, job, observer).run(signal); });
  return end;
}

}  // namespace trifold
