// What blocks report through an executor that does not know it.
#include <gtest/gtest.h>

#include <memory>

#include "nn/shapes_only.h"
#include "pipeline/executor.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

// Adds its host value plus 1 to its counter, and a batch value to a loss term, in each forward of a training step.
class Reporting final : public Layer {
 public:
  explicit Reporting(BlockBuilder& builder)
      : term_(builder.loss_term("term")),
        factor_(builder.batch_value("factor")),
        counter_(builder.counter("forwards", 1)),
        given_(builder.host_value("given", 1)) {}

  Tensor forward(Run& run, Tensor, Saved&) const override {
    if (run.stream.mode() != Stream::Mode::Dry && run.has_backward()) {
      *run.loss_term(term_).as<double>() += run.batch_value(factor_);
      if (run.counts()) *run.counter(counter_).as<double>() += 1 + *run.host_value(given_).as<int32_t>();
    }
    return run.keep->take(DType::F64, {1, 2});
  }
  Tensor backward_input(Run& run, Tensor, Saved&) const override {
    return run.flow->take(DType::F64, {1, 2});
  }
  void backward_weight(Run&, Saved&) const override {}

 private:
  LossTermId term_;
  BatchValueId factor_;
  CounterId counter_;
  HostValueId given_;
};

// Two blocks, two micro-batches.
class ReportingModel {
 public:
  ReportingModel() {
    pipeline_.stages = {{0, {{&first_, 0, 0}, {&second_, 0, 1}}}};
    pipeline_.rank_of_stage = {0};
    const ActivationMemory memory =
        Executor::measure(pipeline_, params_, mesh_, row_, batch_without_memory(1, 2), DType::F64);
    executor = std::make_unique<Executor>(pipeline_, mesh_, cpu_ops(), none_, &none_, compute_.get(),
                                          compute_.get(), DType::F64, memory);
  }
  double run_for_term(double factor) {
    const auto give_batch = [&](int) {
      Batch batch = batch_without_memory(1, 2);
      batch.values.fill(factor);
      return batch;
    };
    const LossSums sums = executor->run(row_, {0, 1.0, true, give_batch, Executor::kNoOthers}).front();
    return sums.term(*reports.loss_terms.find("term"));
  }
  double counted(int block) const {
    return executor->counters().as<double>()[reports.counters.find(block, "forwards")->first];
  }

  ReportList reports;

 private:
  ParamList params_;
  Mesh mesh_{MeshSizes{}, {}};
  BlockBuilder first_builder_{params_, reports, mesh_, 0, 1}, second_builder_{params_, reports, mesh_, 1, 1};
  Reporting first_{first_builder_}, second_{second_builder_};
  PipelineRank pipeline_;
  RankPlan row_ = parse_plan("0F0,0F1,0B0,0B1").front();
  ShapesOnly none_{params_, DType::F64};
  OwnStream compute_;

 public:
  std::unique_ptr<Executor> executor;
};

TEST(Reports, AreThoseOfOneCall) {
  ReportingModel model;
  model.executor->collect(model.reports);
  for (int step = 0; step < 2; ++step) {
    EXPECT_EQ(model.run_for_term(0.5), 2.0) << "two blocks, two micro-batches";
    EXPECT_EQ(model.counted(0), 2.0);
    EXPECT_EQ(model.counted(1), 2.0);
  }
  model.executor->host_values().as<int32_t>()[model.reports.host_values.find(1, "given")->first] = 3;
  EXPECT_EQ(model.run_for_term(1), 4.0);
  EXPECT_EQ(model.counted(0), 2.0);
  EXPECT_EQ(model.counted(1), 8.0);
}

TEST(Reports, AreNotCountedUnlessCollected) {
  ReportingModel model;
  EXPECT_EQ(model.run_for_term(1), 4.0);
  EXPECT_EQ(model.executor->counters().rank(), 0);
}

}  // namespace
}  // namespace trifold::test
