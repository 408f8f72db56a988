// The layers of a mixture of experts, for gradient_test.cpp.
#include "nn/experts.h"
#include "nn/recompute.h"
#include "parity/gradient_cases.h"

namespace trifold::test {
namespace {

// Of a router; the bench takes both losses as they are.
constexpr RouterLosses kRouterLosses{1, 1};

std::unique_ptr<Experts> experts(BlockBuilder& b, int64_t count, const Router& router,
                                 const ActivationForm& activation) {
  return std::make_unique<Experts>(b, "mlp", ExpertsShape{count, router, kRouterLosses}, kWidth, 10,
                                   activation, kNormal, kNormal);
}

// Of which an expert takes one of the 5 tokens of a sequence, 2 choices each.
std::unique_ptr<Experts> limited_experts(BlockBuilder& b, KeptChoices kept,
                                         const ActivationForm& activation) {
  ExpertsShape shape{4, {2, RouterGate::Chosen, 1}, kRouterLosses};
  shape.capacity = {0.4, kept};
  return std::make_unique<Experts>(b, "mlp", shape, kWidth, 10, activation, kNormal, kNormal);
}

// Losses counted over both sequences, a router that reads something else than the experts do, and tokens that
// come to the ranks of their experts in another way.
ExpertsShape jittered(int64_t count, const Router& router) {
  ExpertsShape shape{count, router, kRouterLosses};
  shape.balance = RouterBalance::AuxLoss;
  shape.jitter = 0.3;
  shape.dispatch = TokenDispatcher::AllGather;
  return shape;
}

// Losses with the counts of another batch, which the bench gives.
ExpertsShape of_last_batch() {
  ExpertsShape shape{8, {4, RouterGate::Sigmoid, 1.5, 4, 2}, kRouterLosses};
  shape.balance = RouterBalance::GlobalAuxLoss;
  return shape;
}

// gpt-oss: biases of the router and the experts, and a bounded gate. With a capacity, some choices are dropped.
ExpertsShape biased(RouterGate gate, double capacity = 0) {
  ExpertsShape shape{4, {2, gate, 1}, kRouterLosses};
  shape.bias = true;
  shape.capacity = {capacity, KeptChoices::LargestGates};
  return shape;
}

GradientCase biased_case(const ExpertsShape& shape, const ActivationForm& activation) {
  return {"Experts",
          [shape, activation](BlockBuilder& b) {
            return std::make_unique<Experts>(b, "mlp", shape, kWidth, 10, activation, kNormal, kNormal);
          },
          stream(kWidth), stream(kWidth), true};
}

// 10 tokens among 8 experts: most get one or none.
TransformerShape mixture_shape(bool selective) {
  TransformerShape shape = llama_shape(2, selective);
  shape.experts = {8, {2, RouterGate::Chosen, 1}, kRouterLosses};
  shape.ffn = 6;  // of each expert
  shape.hidden_dropout = 0.2;
  return shape;
}

TransformerShape biased_shape(bool selective) {
  TransformerShape shape = mixture_shape(selective);
  shape.mlp_bias = true;
  shape.shared_ffn = 8;
  shape.activation = kClampedSwiglu;
  return shape;
}

// With a shared network for all tokens in addition to the experts.
TransformerShape shared_shape(bool selective) {
  TransformerShape shape = mixture_shape(selective);
  shape.shared_ffn = 8;
  return shape;
}

TransformerShape limited_shape(bool selective) {
  TransformerShape shape = shared_shape(selective);
  shape.experts.capacity = {0.5, KeptChoices::LargestGates};
  return shape;
}

TransformerShape jittered_shape(bool selective) {
  TransformerShape shape = shared_shape(selective);
  shape.experts = jittered(8, {3, RouterGate::Chosen, 1});
  return shape;
}

TransformerShape last_batch_shape(bool selective) {
  TransformerShape shape = shared_shape(selective);
  shape.experts = of_last_batch();
  return shape;
}

// Which has a gate, beside projections that alone have biases.
TransformerShape gated_shape(bool selective) {
  TransformerShape shape = shared_shape(selective);
  shape.shared_gate = shape.query_key_value_bias = true;
  return shape;
}

}  // namespace

std::vector<GradientCase> expert_gradient_cases() {
  const Placed rows = stream(kWidth);
  using B = BlockBuilder;
  return {
      biased_case(biased(RouterGate::Chosen), kClampedSwiglu),
      biased_case(biased(RouterGate::All), ActivationKind::Gelu),
      biased_case(biased(RouterGate::Chosen, 0.4), kClampedSwiglu),
      {"TransformerBlock", [](B& b) { return transformer(b, biased_shape(true)); }, rows, rows, true},
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, transformer(b, biased_shape(false))); },
       rows, rows, true},
      {"Experts",
       [](B& b) {
         return experts(b, 4, {2, RouterGate::Chosen, 1}, ActivationKind::Swiglu);
       },
       rows, rows, true},
      {"Experts",
       [](B& b) {
         return experts(b, 6, {1, RouterGate::All, 1}, kClampedSwiglu);
       },
       rows, rows, true},
      {"Experts",
       [](B& b) {
         return experts(b, 6, {3, RouterGate::Sigmoid, 2.5}, ActivationKind::GeluErf);
       },
       rows, rows, true},
      {"Experts",
       [](B& b) {
         return experts(b, 4, {2, RouterGate::All, 1}, ActivationKind::SquaredRelu);
       },
       rows, rows, true},
      {"Experts",
       [](B& b) {
         return std::make_unique<Experts>(b, "mlp", jittered(4, {2, RouterGate::Sigmoid, 1.5}), kWidth, 10,
                                          ActivationKind::Swiglu, kNormal, kNormal);
       },
       rows, rows, true},
      {"Experts",
       [](B& b) {
         return std::make_unique<Experts>(b, "mlp", of_last_batch(), kWidth, 10, ActivationKind::Swiglu,
                                          kNormal, kNormal);
       },
       rows, rows, true},
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, transformer(b, last_batch_shape(false))); }, rows,
       rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, jittered_shape(true)); }, rows, rows, true},
      {"Recompute",
       [](B& b) { return std::make_unique<Recompute>(b, transformer(b, jittered_shape(false))); }, rows, rows,
       true},
      {"Experts", [](B& b) { return limited_experts(b, KeptChoices::LargestGates, ActivationKind::Swiglu); },
       rows, rows, true},
      {"Experts", [](B& b) { return limited_experts(b, KeptChoices::FirstTokens, ActivationKind::Gelu); },
       rows, rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, limited_shape(true)); }, rows, rows, true},
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, transformer(b, limited_shape(false))); },
       rows, rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, mixture_shape(false)); }, rows, rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, mixture_shape(true)); }, rows, rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, shared_shape(false)); }, rows, rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, shared_shape(true)); }, rows, rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, gated_shape(false)); }, rows, rows, true},
      {"TransformerBlock", [](B& b) { return transformer(b, gated_shape(true)); }, rows, rows, true},
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, transformer(b, shared_shape(false))); },
       rows, rows, true},
      {"Recompute", [](B& b) { return std::make_unique<Recompute>(b, transformer(b, mixture_shape(false))); },
       rows, rows, true},
  };
}

}  // namespace trifold::test
