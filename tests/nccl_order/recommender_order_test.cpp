// The order of NCCL's calls of recommenders, and the numbers of thread ranks on the processor.
#include "fake_device/recommender_runs.h"
#include "nccl_order/over_nccl.h"

namespace trifold::test {
namespace {

void expect_same_recommender(const RecommendConfig& config) {
  const Reports host = run(config);
  const Reports device = run(on_device(config));
  expect_ordered(config.mesh.ranks);
  EXPECT_NE(device.operations, host.operations);
  EXPECT_EQ(device.numbers, host.numbers);
}

TEST(RecommenderOrder, EveryPlacement) {
  for (const char* placement : {"table", "row", "column", "replicated", "row,column,replicated,table"}) {
    SCOPED_TRACE(placement);
    RecommendConfig config = small_recommender();
    config.mesh.ranks = 8;
    config.placement.placement = TablePlacements::parse(placement);
    config.training.embedding_optimizer = TableOptimizer::RowwiseAdagrad;
    config.training.eps = kEps;
    expect_same_recommender(config);
  }
}

TEST(RecommenderOrder, BatchNormalisationAndShardedMlps) {
  RecommendConfig config = small_recommender();
  config.mesh.ranks = 4;
  config.model.batch_norm = true;
  expect_same_recommender(config);
}

}  // namespace
}  // namespace trifold::test
