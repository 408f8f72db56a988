#include "rehearse/lone_recommender.h"

#include <fmt/core.h>

#include "recommend/recommender_setup.h"
#include "recommend/run_options.h"
#include "run/device.h"
#include "run/start.h"
#include "schedule/table_step.h"

namespace trifold {

namespace {

std::unique_ptr<Communicator> world_of(const RecommendConfig& config, int rank, bool waits,
                                       const AbsentPeers& peers, AbsentCallCounts& calls) {
  AbsentWorldOptions how;
  how.seed = config.seed;
  how.peers = &peers;
  how.counts = &calls;
  how.ops = &ops_of_threads(config.mesh);
  how.waits = waits;
  return absent_world(rank, config.mesh.ranks, how);
}

RecommenderSetup setup_of(const RecommendJob& job) {
  return recommender_setup(job.config, job.data.schema(), job.config.mesh.ranks);
}

}  // namespace

MemoryReport as_report(const RecommenderMemory& memory) {
  MemoryReport report;
  report.parameters = memory.tables + memory.dense;
  report.optimizer = memory.table_state;
  report.predicted_activations = memory.exchange + memory.activations;
  report.workspace = memory.workspace;
  report.offloaded = memory.files;
  return report;
}

LoneRecommender::LoneRecommender(const RecommendJob& job, int rank, const AbsentClicksOptions& peers,
                                 bool waits)
    : job_(job),
      peers_(setup_of(job), rank, job.config.mesh.ranks, training_feed(job.config, *job.data.train), peers),
      recorder_(std::make_shared<FlightRecorder>(rank, job.config.mesh.ranks)),
      world_(world_of(job.config, rank, waits, peers_, calls_)) {
  world_->record_in(recorder_);
  run_ = recommend_run(*world_, job, nullptr);
  actions_ = table_step(step_shape(run_->model().setup()));
}

std::vector<std::string> LoneRecommender::load() {
  const RunStart& start = job_.start;
  if (!start.from) return {};
  const std::string path = start.may_fall_back ? checkpoint_of(start).directory().string() : *start.from;
  std::vector<std::string> lines = run_->load(path, start);
  lines.insert(lines.begin(),
               fmt::format("{}: the MLPs, this rank's part of the tables, and their optimizer state", path));
  return lines;
}

MemoryReport LoneRecommender::held() const { return as_report(run_->model().memory()); }

}  // namespace trifold
