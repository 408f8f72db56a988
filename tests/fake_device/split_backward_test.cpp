// Wherever tensors lie, and whether the gradients of inputs and weights are computed together or apart, a device is
// asked for the same work: the same operations, and products of the same shapes on tensors that are aligned alike,
// because a library chooses the algorithm of a product by these, and each has its own order of sums.
#include <map>
#include <sstream>

#include "fake_device/runs.h"
#include "ops/product_tuning.h"

namespace trifold::test {
namespace {

struct Work {
  std::map<std::string, int64_t> calls;  // of each operation
  std::vector<ProductChoice> products;
};

// Adds to the parts the calls of an operation that computes several at once.
void split(Work& work, const std::string& whole, const std::vector<std::string>& parts) {
  const auto found = work.calls.find(whole);
  if (found == work.calls.end()) return;
  for (const std::string& part : parts) work.calls[part] += found->second;
  work.calls.erase(found);
}

Work work_of(const PretrainConfig& config) {
  const auto counts = fake_device_function<const char*()>("fake_device_counts");
  ProductTuning& products = *fake_device_function<ProductTuning*(int)>("trifold_cuda_products")(0);
  products.use({});
  products.measure(true);
  counts();
  train_and_evaluate(on_device(config));  // several ranks rehearse an evaluation in any case
  products.measure(false);
  Work work{.calls = {}, .products = products.choices()};
  std::istringstream lines(counts());
  int64_t bytes = 0;
  for (std::string name; lines >> name;) lines >> work.calls[name] >> bytes;
  for (const std::string norm : {"layer_norm", "rms_norm"}) {
    split(work, norm + "_backward_all", {norm + "_backward", norm + "_backward_weight"});
    split(work, norm + "_backward_add", {norm + "_backward"});
  }
  return work;
}

std::string names_of(const Work& work) {
  std::string text;
  for (const ProductChoice& choice : work.products) text += choice.product + "\n";
  return text;
}

// Operations whose results a whole backward has at hand and gradients of weights alone compute again: once more for each
// call of `each`.
struct Repeated {
  std::vector<std::string> names;
  std::string each;
};

// Uncut, and cut into two pipeline stages whose backward is together or apart.
void expect_same_work(const PretrainConfig& config, const Repeated& repeated = {}) {
  PretrainConfig uncut = config;
  uncut.mesh.ranks /= 2;
  uncut.mesh.pipeline_model_parallel_size = 1;
  const Work whole = work_of(uncut);
  const Work together = work_of(scheduled(config, "1f1b"));
  const Work apart = work_of(scheduled(config, "zb-h1"));
  EXPECT_GT(together.products.size(), 10U);
  std::map<std::string, int64_t> wanted = together.calls;
  for (const std::string& name : repeated.names) wanted[name] += wanted.at(repeated.each);
  for (const auto& [name, calls] : wanted)
    EXPECT_EQ(calls, apart.calls.contains(name) ? apart.calls.at(name) : 0) << name;
  for (const auto& [name, calls] : apart.calls) EXPECT_TRUE(together.calls.contains(name)) << name;
  EXPECT_EQ(names_of(whole), names_of(together));
  EXPECT_EQ(names_of(together), names_of(apart));
}

class SplitBackward : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts operations";
    config_ = on_mesh(short_run(), 1, 1, 2);
    config_.batch.train_iters = 2;
    config_.eval.eval_iters = 1;
    config_.model.hidden_dropout = config_.model.attention_dropout = 0.1;
  }
  PretrainConfig config_;
};

TEST_F(SplitBackward, Gpt) {
  for (const bool f64 : {false, true}) {
    config_.precision.f64 = f64;
    expect_same_work(config_);
  }
}

// Rows of a number of bytes that no vector has.
TEST_F(SplitBackward, OddWidths) {
  config_.model.hidden_size = 22;
  config_.model.num_attention_heads = 2;
  config_.model.ffn_hidden_size = 26;
  config_.model.seq_length = 13;
  config_.batch.micro_batch_size = 1;
  expect_same_work(config_);
}

TEST_F(SplitBackward, TensorRanks) {
  config_.mesh.ranks = 4;
  config_.mesh.tensor_model_parallel_size = 2;
  for (const bool sequence : {false, true}) {
    config_.mesh.sequence_parallel = sequence;
    expect_same_work(config_);
  }
}

TEST_F(SplitBackward, Llama) {
  make_llama(config_.model, 2);
  config_.precision.bf16 = true;
  expect_same_work(config_);
}

TEST_F(SplitBackward, LatentAttention) {
  make_latent(config_.model, 16);
  expect_same_work(config_);
}

TEST_F(SplitBackward, Bert) {
  config_.model.model_type = ModelType::Bert;
  expect_same_work(config_);
}

// Gradients and parameters are then elsewhere.
TEST_F(SplitBackward, StagesOfZero) {
  const PretrainConfig config = on_mesh(config_, 2);
  const std::string plain = names_of(work_of(config));
  for (const int stage : {1, 2, 3}) {
    PretrainConfig sharded = config;
    sharded.zero.zero_stage = stage;
    EXPECT_EQ(names_of(work_of(sharded)), plain) << stage;
  }
}

TEST_F(SplitBackward, Experts) {
  make_llama(config_.model, 2);
  config_.model.num_experts = 4;
  config_.model.moe_ffn_hidden_size = 24;
  config_.model.moe_shared_expert_intermediate_size = 16;
  config_.model.moe_aux_loss_coeff = 0.01;
  // Rows of dy in the order of experts, and the input of the second projection.
  expect_same_work(config_, {{"embedding", "activate_choices"}, "activate_choices_backward"});
}

}  // namespace
}  // namespace trifold::test
