#include "parity/rehearsal.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "plan/memory_fit.h"
#include "rehearse/lone_trainer.h"
#include "support/compare.h"
#include "support/logged_ops.h"
#include "support/planned_memory.h"

namespace trifold::test {

namespace {

constexpr int kRehearsedSteps = 2;

// What one rank held and did.
struct RankRecord {
  MemoryReport memory, held;
  std::vector<std::string> actions, operations;
  std::map<std::string, std::vector<std::string>> calls;  // by communicator
  std::vector<bool> updated;                              // by step
};

std::string text_of(const FlightEvent& event, Depends depends) {
  const bool rows = depends == Depends::OnRows && event.name() == "all_to_all";
  return fmt::format("{} {} bytes {} peer {}", static_cast<int>(event.kind), event.name(),
                     rows ? 0 : event.bytes, event.peer);
}

void take_events(const FlightLog& log, Depends depends, RankRecord& record) {
  for (const FlightEvent& event : log.events) {
    if (event.kind == FlightEvent::Kind::Action) record.actions.emplace_back(event.name());
    if (event.group < 0) continue;
    const std::string group = fmt::format("{} of ranks {}", event.group,
                                          fmt::join(log.groups.at(static_cast<size_t>(event.group)), ","));
    record.calls[group].push_back(text_of(event, depends));
  }
}

RankRecord record_of(Trainer& trainer, FlightRecorder& recorder, Depends depends) {
  RankRecord record;
  OpsLog operations(depends == Depends::OnNothing);
  recorder.start_trace();
  for (int step = 0; step < kRehearsedSteps; ++step)
    for (const StepReport& report : trainer.advance()) record.updated.push_back(!report.skipped());
  for (Stream* stream : trainer.replica().streams()) stream->synchronize();
  take_events(recorder.take_trace(), depends, record);
  record.operations = operations.list();
  record.memory = trainer.memory();
  record.held = trainer.held();
  return record;
}

std::string difference(const std::vector<std::string>& alone, const std::vector<std::string>& real) {
  for (size_t i = 0; i < std::max(alone.size(), real.size()); ++i) {
    const std::string a = i < alone.size() ? alone[i] : "nothing", r = i < real.size() ? real[i] : "nothing";
    if (a != r) return fmt::format("number {}: {} alone, {} among ranks", i, a, r);
  }
  return "";
}

void expect_same_memory(const MemoryReport& alone, const MemoryReport& real) {
  EXPECT_EQ(alone.parameters, real.parameters);
  EXPECT_EQ(alone.gradients, real.gradients);
  EXPECT_EQ(alone.optimizer, real.optimizer);
  EXPECT_EQ(alone.predicted_activations, real.predicted_activations);
  EXPECT_EQ(alone.offloaded, real.offloaded);
  EXPECT_EQ(alone.workspace, real.workspace);
}

void expect_same_record(const RankRecord& alone, const RankRecord& real) {
  expect_same_memory(alone.memory, real.memory);
  expect_same_memory(alone.held, real.held);
  EXPECT_EQ(difference(alone.actions, real.actions), "") << "actions";
  EXPECT_FALSE(real.actions.empty());
  EXPECT_EQ(difference(alone.operations, real.operations), "") << "operations";
  EXPECT_FALSE(real.operations.empty());
  EXPECT_EQ(alone.calls.size(), real.calls.size()) << "communicators";
  EXPECT_FALSE(real.calls.empty());
  for (const auto& [group, calls] : real.calls) {
    const auto found = alone.calls.find(group);
    EXPECT_EQ(difference(found == alone.calls.end() ? std::vector<std::string>() : found->second, calls), "")
        << "calls of communicator " << group;
  }
  EXPECT_EQ(alone.updated, real.updated);
  EXPECT_TRUE(std::all_of(alone.updated.begin(), alone.updated.end(), [](bool is) { return is; }));
}

}  // namespace

void expect_same_rehearsed(const PretrainConfig& config, Depends depends) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  const PlannedRuns planned(run_spec_here(config));
  std::vector<RankRecord> real(static_cast<size_t>(config.mesh.ranks));
  std::mutex mutex;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, planned, *data, nullptr, &logged_ops());
    RankRecord record = record_of(trainer, *world.recorder(), depends);
    const std::lock_guard lock(mutex);
    real[static_cast<size_t>(world.rank())] = std::move(record);
  });
  for (int rank = 0; rank < config.mesh.ranks; ++rank) {
    SCOPED_TRACE(fmt::format("rank {}", rank));
    LoneTrainer alone(config, planned, *data, nullptr, rank, {}, &logged_ops());
    const RankRecord record = record_of(alone.trainer(), alone.recorder(), depends);
    expect_same_record(record, real[static_cast<size_t>(rank)]);
    const int place = alone.trainer().replica().mesh().coord(Axis::Pp);
    expect_same_memory(record.held, planned_rank(planned.first(), place).memory);
  }
}

}  // namespace trifold::test
