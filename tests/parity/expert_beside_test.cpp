// Rows travel to their experts while something else is computed.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "nn/experts.h"
#include "support/layer_bench.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using namespace std::chrono_literals;

// Experts, and beside them a number that is added. The side stream is held up until that is computed, and a while
// longer: where rows travel on that stream, nothing waits for ever, and the experts begin after it.
class HeldUp final : public Layer {
 public:
  explicit HeldUp(BlockBuilder& b)
      : experts_(b, "mlp", {4, {2, RouterGate::Chosen, 1}, {}}, kWidth, 6, ActivationKind::Swiglu,
                 {Init::Kind::Normal, 0.1}, {Init::Kind::Normal, 0.1}),
        add_(b, "add", 0.0) {}

  Tensor forward(Run& run, Tensor x, Saved& saved) const override {
    hold_up(run);
    const auto beside = [&] { return computed(run, run.scratch, x.shape); };
    const Arena::Mark mark = run.scratch.mark();
    const Tensor y = experts_.forward_added(run, add_, x, x, beside, saved);
    run.scratch.release(mark);
    EXPECT_TRUE(over_) << "the experts did not wait for the side stream: rows do not travel on it";
    return y;
  }
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {
    hold_up(run);
    const auto beside = [&] { return computed(run, *run.flow, dy.shape); };
    const Tensor dx = experts_.backward_input(run, dy, beside, saved);
    EXPECT_TRUE(over_) << "the experts did not wait for the side stream: gradients do not travel on it";
    run.ops.add(run.stream, dx, dx, dy);  // of the residual
    return dx;
  }
  void backward_weight(Run& run, Saved& saved) const override { experts_.backward_weight(run, saved); }

  static constexpr int64_t kWidth = 12;

 private:
  void hold_up(Run& run) const {
    computed_ = over_ = false;
    run.side.run([this] {
      const auto end = std::chrono::steady_clock::now() + 20s;
      while (!computed_ && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(1ms);
      EXPECT_TRUE(computed_) << "nothing was computed while rows travelled";
      std::this_thread::sleep_for(20ms);
      over_ = true;
    });
  }
  Tensor computed(Run& run, Arena& arena, const Shape& shape) const {
    const Tensor result = arena.take(run.dtype, shape);
    run.ops.fill(run.stream, result, 0.0);
    computed_ = true;
    return result;
  }

  Experts experts_;
  ResidualAdd add_;
  mutable std::atomic<bool> computed_ = false, over_ = false;
};

TEST(ExpertsBeside, RowsTravelWhileOtherThingsAreComputed) {
  for (const int parts : {1, 2})
    run_ranks(2, [&](Communicator& world) {
      const Placed rows{Placed::Cut::Stream, {10, HeldUp::kWidth}};
      LayerBench bench(
          world, true, [](BlockBuilder& b) { return std::make_unique<HeldUp>(b); }, rows, rows, 2, 5, 11,
          2 / parts, parts);
      const LayerBench::Values x = LayerBench::random(rows.global.elements(), "x");
      bench.forward(x, x);
      bench.backward(x, true);
    });
}

}  // namespace
}  // namespace trifold::test
