#include "rehearse/lone_recommender.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "recommend/recommender_setup.h"
#include "recommend/run_options.h"
#include "run/device.h"
#include "run/start.h"
#include "schedule/table_step.h"

namespace trifold {

namespace {

std::unique_ptr<Communicator> world_of(const RecommendConfig& config, int rank, bool waits,
                                       const AbsentPeers& peers, AbsentCallCounts& calls) {
  AbsentWorldOptions chosen;
  chosen.seed = config.seed;
  chosen.peers = &peers;
  chosen.counts = &calls;
  chosen.ops = &ops_of_threads(config.mesh);
  chosen.waits = waits;
  return absent_world(rank, config.mesh.ranks, chosen);
}

RecommenderSetup setup_of(const RecommendJob& job) {
  return recommender_setup(job.config, job.data.schema(), job.config.mesh.ranks);
}

constexpr std::pair<const char*, size_t RecommenderMemory::*> kCategories[] = {
    {"tables", &RecommenderMemory::tables},
    {"table state", &RecommenderMemory::table_state},
    {"exchange", &RecommenderMemory::exchange},
    {"dense", &RecommenderMemory::dense},
    {"activations", &RecommenderMemory::activations},
    {"workspace", &RecommenderMemory::workspace},
    {"pinned", &RecommenderMemory::pinned},
    {"host", &RecommenderMemory::host},
    {"files", &RecommenderMemory::files}};

}  // namespace

std::vector<MemoryPart> memory_parts(const RecommenderMemory& planned) {
  std::vector<MemoryPart> parts;
  for (const auto& [name, bytes] : kCategories) parts.push_back({name, planned.*bytes, 0});
  return parts;
}

LoneRecommender::LoneRecommender(const RecommendJob& job, int rank, const AbsentClicksOptions& peers,
                                 bool waits, const OpTable* ops)
    : job_(job),
      peers_(setup_of(job), rank, job.config.mesh.ranks, training_feed(job.config, *job.data.train), peers),
      recorder_(std::make_shared<FlightRecorder>(rank, job.config.mesh.ranks)),
      world_(world_of(job.config, rank, waits, peers_, calls_)) {
  world_->record_in(recorder_);
  run_ = recommend_run(*world_, job, nullptr, ops);
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

void LoneRecommender::note_held(RehearsedRank& result) const {
  const RecommenderMemory memory = run_->model().memory();
  for (size_t i = 0; i < std::min(result.parts.size(), std::size(kCategories)); ++i)
    result.parts[i].held = memory.*kCategories[i].second;
}

}  // namespace trifold
