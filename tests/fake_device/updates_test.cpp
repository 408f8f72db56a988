// Replayed updates follow the numbers of each step: these are in device memory (optim/step_numbers.h), none is an
// argument of a launch.

#include <cmath>
#include <memory>
#include <vector>

#include "fake_device/runs.h"
#include "optim/step_numbers.h"

namespace trifold::test {
namespace {

constexpr int64_t kElements = 3 * kNormChunk + 5;
constexpr int kSteps = 5;

// Memory of a table's device, or of the host.
struct Memory {
  Memory(const OpTable& ops, Stream& stream, DType dtype, std::vector<float> values)
      : buffer(values.size() * size_of(dtype), ops.device),
        tensor(buffer.tensor(dtype, {static_cast<int64_t>(values.size())})) {
    if (dtype == DType::F32) ops.copy(stream, tensor, {values.data(), dtype, tensor.shape});
    stream.synchronize();
  }
  Buffer buffer;
  Tensor tensor;
};

std::vector<float> wave(float frequency) {
  std::vector<float> values(kElements);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(frequency * static_cast<float>(i + 1));
  return values;
}

StepValues values_of(int step) {
  return {.lr = 0.1 / step, .step = step, .grad_scale = 1.0 / (step + 1), .trust_ratio = 0.5 + 0.1 * step};
}

// The weights after some steps. On a device the second is captured, and launched from then on.
std::vector<float> weights_after_steps(const UpdateRule& rule, const OpTable& ops) {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool, ops.device);
  const double decay = 0.1;
  const Memory weights(ops, stream, DType::F32, wave(0.3F));
  const Memory gradients(ops, stream, DType::F32, wave(1.7F));
  const Memory squares(ops, stream, DType::F64, std::vector<float>(2 * (kElements / kNormChunk + 1)));
  const int64_t chunks = squares.tensor.elements() / 2;
  std::vector<Memory> state;
  for (size_t i = 0; i < rule.state_names().size(); ++i)
    state.emplace_back(ops, stream, DType::F32, std::vector<float>(kElements));
  StepNumbers numbers(ops, 1);
  Slice slice{.master = weights.tensor,
              .weight = {},
              .grad = gradients.tensor,
              .state = {},
              .weight_decay = decay,
              .numbers = numbers.row(0)};
  for (const Memory& each : state) slice.state.push_back(each.tensor);
  std::unique_ptr<DeviceGraph> graph;
  for (int step = 1; step <= kSteps; ++step) {
    const StepValues values = values_of(step);
    numbers.send(stream, [&](int64_t) { return rule.numbers(decay, values); });
    if (step == 2 && ops.device != nullptr) stream.queue()->begin_capture();
    if (!graph) {
      if (rule.needs_norms())
        rule.measure(slice, values, {squares.tensor.flat(0, chunks), squares.tensor.flat(chunks, 2 * chunks)},
                     ops, stream);
      rule.update(slice, values, ops, stream);
    }
    if (step == 2 && ops.device != nullptr) graph = stream.queue()->end_capture();
    if (graph) stream.queue()->launch(*graph);
  }
  std::vector<float> result(kElements);
  ops.copy(stream, {result.data(), DType::F32, {kElements}}, weights.tensor);
  stream.synchronize();
  return result;
}

TEST(Updates, WrittenDownAreGoodForLaterSteps) {
  for (const char* name : {"adam", "lamb", "lars", "sgd", "adagrad"}) {
    SCOPED_TRACE(name);
    OptimizerConfig config;
    config.optimizer = value_named<OptimizerKind>(name).value();
    const auto rule = make_update_rule(config);
    const std::vector<float> host = weights_after_steps(*rule, cpu_ops());
    EXPECT_NE(host, wave(0.3F));
    const std::vector<float> device = weights_after_steps(*rule, cuda_ops(0));
    if (is_fake_device())
      EXPECT_EQ(device, host);
    else
      EXPECT_LT(relative_error(device, host), 1e-4);
  }
}

}  // namespace
}  // namespace trifold::test
