// The order in which the two halves of a pair compute and exchange, on two ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "nn/shapes_only.h"
#include "pipeline/executor.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

// Sends a number to all ranks that differs for each exchange, and lets the other half compute meanwhile. It notes when
// it begins an exchange, "F0>" for a forward of block 0, and when it has the result, "F0".
class Exchanging final : public Layer {
 public:
  Exchanging(int number, Communicator& ranks, std::vector<std::string>& notes)
      : number_(number), ranks_(ranks), notes_(notes) {}

  Tensor forward(Run& run, Tensor, Saved& saved) const override {
    const Tensor y = run.keep->take(DType::F64, {1, 2});
    saved[SlotId{0}] = y;
    exchange(run, "F");
    return y;
  }
  Tensor backward_input(Run& run, Tensor, Saved&) const override {
    const Tensor dx = run.flow->take(DType::F64, {1, 2});
    exchange(run, "B");
    return dx;
  }
  void backward_weight(Run&, Saved&) const override {}

 private:
  void exchange(Run& run, const char* what) const {
    const Arena::Mark mark = run.scratch.mark();
    const Tensor mine = run.scratch.take(DType::F64, {1});
    const Tensor all = run.scratch.take(DType::F64, {ranks_.size()});
    const std::string note = what + std::to_string(number_);
    const double sent = number_ + (*what == 'F' ? 0.25 : 0.5);
    if (run.stream.mode() != Stream::Mode::Dry) *mine.as<double>() = sent + 100 * ranks_.rank();
    notes_.push_back(note + ">");
    Stream& on = run.after_computing(run.exchanges());
    ranks_.all_gather(all, mine, on);
    const Event arrived = run.end_of(on);
    run.yield();
    run.stream.wait(arrived);
    notes_.push_back(note);
    for (int rank = 0; rank < ranks_.size() && run.stream.mode() != Stream::Mode::Dry; ++rank)
      EXPECT_EQ(all.as<double>()[rank], sent + 100 * rank) << note;
    run.scratch.release(mark);
  }

  int number_;
  Communicator& ranks_;
  std::vector<std::string>& notes_;
};

struct Noted {
  std::vector<std::string> notes;  // of the pair
  ActivationMemory memory;
};

// Two stages of two blocks on one pipeline rank; the forward of the first stage is paired with the backward of the
// second.
Noted run_pair(Communicator& world, bool pairs, StepWatch* watch = nullptr,
               const char* pair = "(0F1;1B0)OVERLAP_F_B") {
  Noted noted;
  std::vector<std::string>& notes = noted.notes;
  const Exchanging b0(0, world, notes), b1(1, world, notes), b2(2, world, notes), b3(3, world, notes);
  PipelineRank pipeline;
  pipeline.stages = {{0, {{&b0, 1, 0}, {&b1, 1, 1}}}, {1, {{&b2, 1, 2}, {&b3, 1, 3}}}};
  pipeline.rank_of_stage = {0, 0};
  RankPlan row = parse_plan(fmt::format("0F0,1F0,{},0B0,1F1,1B1,0B1", pair)).front();
  row[2].overlaps_next = pairs;
  const ParamList params;
  ShapesOnly none(params, DType::F64);
  const Mesh mesh(MeshSizes{}, {});
  const Batch batch = batch_without_memory(1, 2);
  noted.memory = Executor::measure(pipeline, params, mesh, row, batch, DType::F64);
  OwnStream compute, exchanges(Stream::Mode::Worker);
  pipeline.exchange_stream = &exchanges.get();
  Executor executor(pipeline, mesh, cpu_ops(), none, &none, compute, compute, DType::F64, noted.memory);
  const auto give_batch = [&](int) { return batch; };
  for (int step = 0; step < 2; ++step) {
    notes.clear();
    executor.run(row, {0, 1.0, true, give_batch, Executor::kNoOthers, 0, watch});
  }
  // Each of the first two forwards, and then the pair.
  notes = {notes.begin() + 8, notes.begin() + 16};
  return noted;
}

TEST(Pairs, HalvesTakeTurnsInTheSameOrderOnAllRanks) {
  const std::vector<std::string> turns{"B3>", "F0>", "B3", "B2>", "F0", "F1>", "B2", "F1"};
  const std::vector<std::string> apart{"F0>", "F0", "F1>", "F1", "B3>", "B3", "B2>", "B2"};
  run_ranks(2, [&](Communicator& world) {
    const Noted together = run_pair(world, true);
    EXPECT_EQ(together.notes, turns);
    EXPECT_EQ(run_pair(world, false).notes, apart);
    EXPECT_EQ(together.memory.pair_scratch, together.memory.scratch) << "each half has its own temporaries";
    EXPECT_EQ(run_pair(world, false).memory.pair_scratch, 0U);
    const Noted backward_first = run_pair(world, true, nullptr, "(1B0;0F1)OVERLAP_F_B");
    EXPECT_EQ(backward_first.notes, turns) << "whichever is named first";
    EXPECT_EQ(backward_first.memory.total(), together.memory.total());
    StepWatch watch;
    EXPECT_EQ(run_pair(world, true, &watch).notes, apart) << "what is watched runs one after the other";
  });
}

class Failing final : public Layer {
 public:
  Tensor forward(Run& run, Tensor, Saved&) const override { return run.keep->take(DType::F64, {1, 2}); }
  Tensor backward_input(Run& run, Tensor, Saved&) const override {
    if (run.stream.mode() != Stream::Mode::Dry) {
      run.yield();
      fail("a backward that fails");
    }
    return run.flow->take(DType::F64, {1, 2});
  }
  void backward_weight(Run&, Saved&) const override {}
};

// The other half is left in the middle of an exchange.
TEST(Pairs, AnErrorInOneHalfEndsBoth) {
  run_ranks(1, [&](Communicator& world) {
    std::vector<std::string> notes;
    const Exchanging sends(0, world, notes);
    const Failing fails;
    PipelineRank pipeline;
    pipeline.stages = {{0, {{&sends, 1, 0}}}, {1, {{&fails, 0, 1}}}};
    pipeline.rank_of_stage = {0, 0};
    const RankPlan row = parse_plan("0F0,1F0,(0F1;1B0)OVERLAP_F_B,0B0,1F1,1B1,0B1").front();
    const ParamList params;
    ShapesOnly none(params, DType::F64);
    const Mesh mesh(MeshSizes{}, {});
    const Batch batch = batch_without_memory(1, 2);
    const ActivationMemory memory = Executor::measure(pipeline, params, mesh, row, batch, DType::F64);
    OwnStream compute, exchanges(Stream::Mode::Worker);
    pipeline.exchange_stream = &exchanges.get();
    Executor executor(pipeline, mesh, cpu_ops(), none, &none, compute, compute, DType::F64, memory);
    const auto give_batch = [&](int) { return batch; };
    try {
      executor.run(row, {0, 1.0, true, give_batch, Executor::kNoOthers, 0});
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("a backward that fails"), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("0F1 beside 1B0"), std::string::npos) << error.what();
    }
    EXPECT_EQ(notes.back(), "F0>") << "the forward had begun its exchange";
  });
}

}  // namespace
}  // namespace trifold::test
