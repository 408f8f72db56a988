// Runs of recommenders on the fake device and on the processor, and what is compared of them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/reader.h"
#include "comm/cuda_module.h"
#include "recommend/recommend.h"
#include "support/compare.h"
#include "support/start_ranks.h"

namespace trifold::test {

inline RecommendConfig on_device(RecommendConfig config) {
  config.mesh.device = ComputeDevice::Cuda;
  return config;
}

// So large that a device's rounding of small gradients does not turn the first updates.
inline constexpr double kEps = 1e-3;

// A model with tables of several shapes, and samples in which some ids are missing.
inline RecommendConfig small_recommender() {
  RecommendConfig config;
  config.data.table_rows = TableRows{NumberList{300, 57, 3, 41}};
  config.data.table_max_ids = NumberList{1, 4, 1, 2};
  config.data.dense_features = 5;
  config.data.synthetic_samples = 700;
  config.data.synthetic_missing = 0.1;
  config.data.valid_samples = 101;
  config.model.embedding_dim = 6;
  config.model.bottom_mlp = {9, 6};
  config.model.top_mlp = {11, 1};
  config.training.global_batch_size = 67;  // no number of ranks divides it
  config.training.train_iters = 6;
  config.training.eval_interval = 3;
  config.lr.lr = 0.1;
  config.mesh.threads_per_rank = 1;
  config.mesh.distributed_timeout_minutes = 1;
  return config;
}

// All numbers that a run reported.
struct Reports final : RecommendObserver {
  void on_start(const RecommendReport& report) override { operations = report.operations; }
  void on_step(const StepReport& step) override { numbers.push_back(step.loss); }
  void on_eval(const ClickEvaluation& evaluation) override {
    for (const LabelScores& label : evaluation.labels)
      for (const double number :
           {label.scores.auc.value(), label.scores.log_loss, label.scores.calibration.value()})
        numbers.push_back(number);
  }
  void on_saved(int64_t, const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_target(int64_t, double, double) override {}
  void on_rows(const RowCache::Counts& counts) override { rows = counts; }

  RowCache::Counts rows;
  std::string operations;
  std::vector<double> numbers;
};

inline Reports run(const RecommendConfig& config) {
  const RecommendJob job = prepare(config);
  Reports reports;
  const std::atomic<int> signal{0};
  start_ranks(config.mesh, [&](Communicator& world) { recommend(world, job, reports, signal); });
  return reports;
}

// Every tensor of numbers of a checkpoint by name.
inline std::map<std::string, std::vector<float>> tensors_of(const std::string& folder) {
  CheckpointReader reader(folder);
  std::map<std::string, std::vector<float>> tensors;
  std::vector<NamedTensor> wanted;
  for (const TensorInfo& tensor : reader.tensors()) {
    if (tensor.dtype == DType::I64) continue;
    std::vector<float>& values = tensors[tensor.name];
    values.resize(static_cast<size_t>(tensor.global.elements()));
    ShardSpec spec;
    spec.name = tensor.name;
    spec.global = tensor.global;
    spec.local = Rect::whole(tensor.global);
    wanted.push_back({spec, {values.data(), DType::F32, tensor.global}});
  }
  reader.load(wanted);
  return tensors;
}

// A real device rounds its sums differently.
template <class T>
void expect_equal(std::span<const T> device, std::span<const T> host) {
  if (std::string_view(cuda_ops(0).name) == "fake")
    EXPECT_EQ(first_difference<T>(device, host), kSame);
  else
    EXPECT_LT(relative_error<T>(device, host), 1e-2);
}

}  // namespace trifold::test
