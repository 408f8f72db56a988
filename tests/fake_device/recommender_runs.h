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
#include "run/ranks.h"
#include "support/compare.h"

namespace trifold::test {

inline RecommendConfig on_device(RecommendConfig config) {
  config.mesh.device = ComputeDevice::Cuda;
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
  run_on_ranks(config.mesh, [&](Communicator& world) { recommend(world, job, reports, signal); });
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
