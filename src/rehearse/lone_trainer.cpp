#include "rehearse/lone_trainer.h"

#include "layout/zero_sharing.h"
#include "mesh/mesh_sizes.h"
#include "run/device.h"
#include "run/start.h"

namespace trifold {

namespace {

std::unique_ptr<Communicator> world_of(const PretrainConfig& config, int rank, const RehearseOptions& options,
                                       const AbsentPeers& peers, AbsentCallCounts& calls) {
  const MeshConfig& mesh = config.mesh;
  AbsentWorldOptions chosen;
  chosen.seed = config.seed;
  chosen.peers = &peers;
  chosen.counts = &calls;
  chosen.ops = &ops_of_threads(mesh);
  chosen.waits = options.waits;
  std::unique_ptr<Communicator> world = absent_world(rank, mesh.ranks, chosen);
  if (mesh.ranks_per_node) world->set_nodes(planned_nodes(mesh.ranks, mesh.ranks_per_node));
  return world;
}

// The plan's batch is the first step's, which --rampup-batch-size makes smaller.
RunSpec first_step_of(const PlannedRuns& planned) { return planned.first().run(); }

}  // namespace

LoneTrainer::LoneTrainer(const PretrainConfig& config, const PlannedRuns& planned, const DataSource& train,
                         const RunStart* start, int rank, const RehearseOptions& options, const OpTable* ops)
    : start_(start),
      other_batch_(options.other_batch || options.micro_batches.has_value()),
      train_iters_(config.batch.train_iters),
      peers_(first_step_of(planned), coords_of(rank, mesh_sizes(config.mesh)), options.machine,
             options.expert_load),
      recorder_(std::make_shared<FlightRecorder>(rank, config.mesh.ranks)),
      world_(world_of(config, rank, options, peers_, calls_)) {
  world_->record_in(recorder_);
  trainer_.emplace(*world_, config, planned, train, nullptr, ops);
  peers_.set_weights(trainer_->replica().weights());
  last_steps_ = trainer_->steps_at_once();
}

std::vector<std::string> LoneTrainer::load() {
  if (start_ == nullptr || !start_->from) return {};
  const std::string path =
      start_->may_fall_back ? checkpoint_of(*start_).directory().string() : *start_->from;
  std::vector<std::string> lines = trainer_->load(path, start_->part, start_->new_optimizer, other_batch_);
  last_steps_ = trainer_->steps_at_once();
  lines.insert(lines.begin(), fmt::format("{}: this rank's part of {}", path,
                                          start_->part == LoadPart::All && !start_->new_optimizer
                                              ? "the weights and of the optimizer's state"
                                              : "the weights"));
  return lines;
}

void LoneTrainer::advance() {
  const std::span<const StepReport> steps = trainer_->advance();
  last_steps_ = std::ssize(steps);
  for (const StepReport& step : steps) skipped_ += step.skipped() ? 1 : 0;
}

void LoneTrainer::settle() {
  for (Stream* stream : trainer_->replica().streams()) stream->synchronize();
}

}  // namespace trifold
