#include "checkpoint/reader.h"
#include "config/commands/json.h"
#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "core/read_json.h"
#include "optim/lr_schedule.h"
#include "recommend/check_bags.h"
#include "recommend/dropped_negatives.h"
#include "recommend/grown_start.h"
#include "recommend/planning/host_fit.h"
#include "recommend/recommend.h"
#include "recommend/recommender_setup.h"
#include "recommend/run_options.h"
#include "recommend/trained_recommender.h"
#include "recommend/weights/first_weights.h"
#include "run/checkpoint_data.h"
#include "run/device.h"

namespace trifold {

namespace {

// BadInput that lists the fields in which `stored`, the model of the checkpoint, is not that of the options.
void expect_model(const CheckpointReader& reader, const nlohmann::json& stored, const RecommendConfig& config,
                  const ClickSchema& schema) {
  const std::vector<std::string> fields =
      differing_fields(stored, recommender_model(config, schema), "in the checkpoint", "requested");
  if (fields.empty()) return;
  bad_input(
      "{} holds a model other than the options describe:\n  {}\nModel options that are left out are taken from it",
      reader.directory().string(), fmt::join(fields, "\n  "));
}

void expect_recommender(const CheckpointReader& reader) {
  if (!is_recommender(reader))
    bad_input("{} is a checkpoint of a language model: trifold pretrain --load continues it",
              reader.directory().string());
}

// Takes model options that were not given from the checkpoint with which the run begins.
void take_model(RecommendConfig& config, const CheckpointReader& reader) {
  if (!is_recommender(reader)) return;  // check_start says so
  try {
    inherit_model(reader.meta().config, config);
    RecommendConfig stored;
    recommender_from_json(reader.meta().config, stored);
    const ClickSchema no_tables;  // for checks of options only, before the data are opened
    expect_model(reader, recommender_model(stored, no_tables), config, no_tables);
    RecommendConfig checked = config;
    const JsonView model(reader.meta().model, reader.directory().string());
    if (!checked.data.dense_features) checked.data.dense_features = model.at("dense").integer(0, 1 << 20);
    throw_problems(model_problems(checked));
  } catch (Error& error) {
    const std::string name = reader.directory().string();
    if (!std::string_view(error.what()).starts_with(name)) error.add_context(name);
    throw;
  }
}

// Checks the start before any rank runs; returns the number of steps done. The samples of a step follow from the seed
// and their number.
int64_t check_start(RecommendJob& job) {
  const RecommendConfig& config = job.config;
  const CheckpointReader reader = checkpoint_of(job.start);
  const CheckpointMeta& meta = reader.meta();
  const std::string name = reader.directory().string();
  expect_recommender(reader);
  check_not_marked(job.start, config.checkpoint);
  const ClickSchema schema = job.data.schema();
  expect_model(reader, model_to_go_on(reader, job.start.part, config.data.train_data, schema), config,
               schema);
  if (job.start.part == LoadPart::State) {
    for (std::string& note : growth_notes(reader, schema)) job.data.notes.push_back(std::move(note));
    return 0;
  }
  const JsonView state(meta.state, name);
  const int64_t batch = state.has("global_batch_size") ? state.at("global_batch_size").integer(0) : 0;
  if (batch != config.training.global_batch_size)
    bad_input("{} was trained with global batches of {}: continue with --global-batch-size {}", name, batch,
              batch);
  check_order(config, meta.state, name);
  const bool may_differ = config.checkpoint.allow_changed_data;
  check_training_data(meta, name, job.fingerprint, may_differ);
  if (const std::string changed = data_difference(meta, job.fingerprint); !changed.empty())
    job.data.notes.push_back("not those of the checkpoint: " + changed);
  const int64_t samples =
      state.has("train_samples") ? state.at("train_samples").integer(0) : job.data.train->samples();
  if (samples != job.data.train->samples() && !may_differ)
    bad_input("{} was trained on {} samples, {} has {} to train on: they are different data sets", name,
              samples, config.data.train_data, job.data.train->samples());
  return meta.step;
}

}  // namespace

RecommendConfig with_model_of_start(RecommendConfig config) {
  const RunStart start = choose_start(config.checkpoint);
  if (!start.from) {
    throw_problems(model_problems(config));
    return config;
  }
  const CheckpointReader reader = checkpoint_of(start);
  const std::string name = reader.directory().string();
  expect_recommender(reader);
  take_model(config, reader);
  if (!config.data.dense_features)
    config.data.dense_features = JsonView(reader.meta().model, name).at("dense").integer(0, 1 << 20);
  return config;
}

RecommendJob prepare(RecommendConfig config, RanksHere ranks) {
  RecommendJob job;
  job.config = std::move(config);
  const RecommendConfig& c = job.config;
  Preparation files;
  std::optional<int64_t> first_step;  // unknown if the start has mistakes
  files.attempt([&] { check_device(c.mesh); });
  files.attempt([&] {
    job.start = choose_start(c.checkpoint);
    if (job.start.part == LoadPart::Weights) job.start.part = LoadPart::State;
    if (!job.start.from) first_step = 0;
  });
  files.attempt([&] {
    if (job.start.from)
      take_model(job.config, checkpoint_of(job.start));
    else if (first_step)
      throw_problems(model_problems(c));
    job.data = open_clicks(c.data, c.seed);
    job.fingerprint = fingerprint_of(c.data, c.seed);
    const RecommenderSetup setup = recommender_setup(c, job.data.schema(), c.mesh.ranks);
    check_table_folder(setup, c.mesh.ranks);
    const int64_t share = (c.training.global_batch_size + c.mesh.ranks - 1) / c.mesh.ranks;
    for (const ClickSource* source : {job.data.train, job.data.valid})
      if (source != nullptr) check_bags(*source, share);
    const ClickFeed feed = training_feed(c, *job.data.train);
    job.limits = {last_step(c, feed.batches_per_epoch()), c.training.exit_interval,
                  c.training.exit_duration_in_mins, c.training.early_stop_patience};
    for (std::string note : {check_short_batch(c, feed, job.data.train->samples(), job.limits.last_step),
                             odds_note(job.data.train->schema(), c.model)})
      if (!note.empty()) job.data.notes.push_back(std::move(note));
    LrSchedule(c.lr, c.training.global_batch_size, job.limits.last_step);  // checks that there is one
    if (!job.start.from) {
      if (c.model.init_weights) FirstWeights(*c.model.init_weights, setup);
      if (ranks == RanksHere::All) check_host_fits(c, setup);
      return;
    }
    if (c.model.init_weights && !job.start.may_fall_back)
      bad_input(
          "--init-weights {}: a run that continues from {} takes its weights from there: leave one of them out",
          *c.model.init_weights, *job.start.from);
    first_step = check_start(job);
    const int64_t last = job.limits.last_step;
    const bool is_done = *first_step >= last && !lacks_evaluation(job.start, c.checkpoint);
    if (job.start.may_fall_back && is_done) job.finished = all_steps_done(last);
    if (job.finished.empty()) job.finished = ended_early(job.start, job.limits);
    if (is_done && job.finished.empty())
      bad_input("{} has done {} steps already: nothing is left of {}", *job.start.from, *first_step, last);
    if (job.finished.empty() && ranks == RanksHere::All) check_host_fits(c, setup);
  });
  files.check_outputs(job.start, c.checkpoint, c.log, first_step);
  files.finish();
  job.add_terms(options_of(job.config));
  job.terms.add("--train-data", job.fingerprint);
  if (c.data.valid_data) job.terms.add("--valid-data", fingerprint_of_paths({{*c.data.valid_data}}));
  return job;
}

}  // namespace trifold
