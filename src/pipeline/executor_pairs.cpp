// A forward and a backward that take turns.
#include "pipeline/executor.h"

namespace trifold {

namespace {

// Gives the turn to the half that does not have it.
class Turning final : public OtherHalf {
 public:
  Turning(Stream& exchanges, Fiber::Turns& turns) : OtherHalf(exchanges), turns_(turns) {}
  void compute() override { turns_.switch_over(); }

 private:
  Fiber::Turns& turns_;
};

// For halves that run one after the other.
class Waiting final : public OtherHalf {
 public:
  explicit Waiting(Stream& exchanges) : OtherHalf(exchanges) {}
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

// Of one micro-batch, the backward needs the forward. Otherwise the backward begins: it sends the gradients of its last
// block before it computes much, and they are under way in the forward's first turn.
void Executor::execute_pair(const Action& first, const Action& second, const StepInputs& inputs) {
  const bool forward_first = first.kind == ActionKind::F;
  const Action& forward = forward_first ? first : second;
  const Action& backward = forward_first ? second : first;
  Stream& exchanges = place_.exchange_stream != nullptr ? *place_.exchange_stream : stream_;
  if (measuring_ || inputs.watch != nullptr || forward.micro == backward.micro) {
    Waiting other(exchanges);
    // In turns the forward begins before the backward has ended, so the memory of both at once is measured.
    for (const Action* action : {measuring_ ? &forward : &first, measuring_ ? &backward : &second}) {
      if (inputs.watch != nullptr) inputs.watch->before(*action);
      compute(*action, inputs, {&other, action == &forward ? &beside_ : nullptr});
      if (inputs.watch != nullptr) inputs.watch->after(*action);
    }
    return;
  }
  beside_.reset();
  if (fiber_ == nullptr) fiber_ = std::make_unique<Fiber>();
  OtherHalf* of_forward = nullptr;
  const auto body = [&] { compute(forward, inputs, {of_forward, &beside_}); };
  Fiber::Turns turns(*fiber_, body);
  Turning other(exchanges, turns);
  of_forward = &other;
  compute(backward, inputs, {&other, nullptr});
  while (!turns.ended()) turns.switch_over();
}

}  // namespace trifold
