// Executor: pairs of a forward and a backward that take turns.
#include "pipeline/executor.h"

namespace trifold {

namespace {

// Switches to the other half.
class Switching final : public OtherHalf {
 public:
  Switching(Stream& stream, Fiber::Turns& turns) : OtherHalf(stream), turns_(turns) {}
  void compute() override { turns_.switch_over(); }

 private:
  Fiber::Turns& turns_;
};

// For halves that run one after the other: yielding does nothing.
class Sequential final : public OtherHalf {
 public:
  explicit Sequential(Stream& stream) : OtherHalf(stream) {}
  void compute() override {}
};

}  // namespace

void Executor::compute(const Action& action, const StepInputs& inputs, const Half& half) {
  switch (action.kind) {
    case ActionKind::F:
      return forward(action, inputs, half);
    case ActionKind::B:
      return whole_backward(action, inputs, half);
    case ActionKind::I:
      return input_backward(action, inputs, half);
    default:
      return weight_backward(action, inputs, half);
  }
}

// If both are of the same micro-batch, they run in order, because the backward needs the forward. Otherwise the
// backward begins: it soon sends the gradients of its last block, and these are in flight during the forward's first
// turn.
void Executor::execute_pair(const Action& first, const Action& second, const StepInputs& inputs) {
  const bool forward_first = first.kind == ActionKind::F;
  const Action& forward = forward_first ? first : second;
  const Action& backward = forward_first ? second : first;
  Stream& exchanges = pipeline_.exchange_stream != nullptr ? *pipeline_.exchange_stream : stream_;
  if (measuring_ || inputs.watch != nullptr || forward.micro == backward.micro) {
    Sequential other(exchanges);
    // Measures the forward first: in a run both halves have memory at the same time.
    for (const Action* action : {measuring_ ? &forward : &first, measuring_ ? &backward : &second}) {
      if (inputs.watch != nullptr) inputs.watch->before(*action);
      compute(*action, inputs, {&other, action == &forward ? &pair_scratch_ : nullptr});
      if (inputs.watch != nullptr) inputs.watch->after(*action);
    }
    return;
  }
  pair_scratch_.reset();
  if (fiber_ == nullptr) fiber_ = std::make_unique<Fiber>();
  OtherHalf* of_forward = nullptr;
  const auto body = [&] { compute(forward, inputs, {of_forward, &pair_scratch_}); };
  Fiber::Turns turns(*fiber_, body);
  Switching other(exchanges, turns);
  of_forward = &other;
  compute(backward, inputs, {&other, nullptr});
  while (!turns.ended()) turns.switch_over();
}

}  // namespace trifold
