// The number of device calls of a large model's step, and their bytes, counted without computing for models of a few
// layers; every further layer adds the same.
#include <map>
#include <sstream>

#include "fake_device/runs.h"
#include "run/ranks.h"

namespace trifold::test {
namespace {

struct Count {
  int64_t calls = 0;
  double bytes = 0;
};
using Step = std::map<std::string, Count>;

Step take_counts() {
  std::istringstream lines(fake_device_function<const char*()>("fake_device_counts")());
  Step step;
  for (std::string name; lines >> name;) {
    Count count;
    lines >> count.calls >> count.bytes;
    step[name] = count;
  }
  return step;
}

constexpr int64_t kMixtureInner = 2688;

// GPT-2 1558M but for its layers, micro-batches of 16 samples, of which a step has 4.
PretrainConfig wide_model(int64_t layers) {
  PretrainConfig config = short_run();
  config.mesh.device = ComputeDevice::Cuda;
  config.model.num_layers = layers;
  config.model.hidden_size = 1600;
  config.model.num_attention_heads = 25;
  config.model.ffn_hidden_size = 6400;
  config.model.seq_length = 1024;
  config.model.max_position_embeddings = 1024;
  config.model.vocab_size = 50257;
  config.model.make_vocab_size_divisible_by = 128;
  config.model.init_method_std = 0;  // counts do not depend on weights, and initialising them takes long
  config.precision.bf16 = true;
  config.batch.micro_batch_size = 16;
  config.batch.global_batch_size = 64;
  config.batch.train_iters = 2;
  return config;
}

Step second_step(const PretrainConfig& config) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  Step counts;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.step();
    world.barrier();
    if (world.rank() == 0) take_counts();
    world.barrier();
    trainer.step();
    world.barrier();
    if (world.rank() == 0) counts = take_counts();
  });
  return counts;
}

// As of so many layers, from two counts.
Step with_layers(const Step& of_one, const Step& of_two, int64_t layers) {
  Step result = of_two;
  for (auto& [name, count] : result) {
    const auto one = of_one.find(name);
    const Count before = one == of_one.end() ? Count{} : one->second;
    count.bytes = before.bytes + (count.bytes - before.bytes) * static_cast<double>(layers - 1);
    count.calls = before.calls + (count.calls - before.calls) * (layers - 1);
  }
  return result;
}

struct CountedStep {
  Step step;
  Count all;
};

// Counts and prints the second step of the model that `model_of` makes with `layers` layers.
CountedStep counted_step(PretrainConfig (*model_of)(int64_t layers), int64_t layers) {
  const auto count_alone = fake_device_function<void(bool)>("fake_device_count_alone");
  count_alone(true);
  CountedStep counted{with_layers(second_step(model_of(1)), second_step(model_of(2)), layers), {}};
  count_alone(false);
  for (const auto& [name, count] : counted.step) {
    fmt::print("{:>28} {:>7} {:>9.2f} GB\n", name, count.calls, count.bytes / 1e9);
    counted.all.calls += count.calls;
    counted.all.bytes += count.bytes;
  }
  fmt::print("{:>28} {:>7} {:>9.2f} GB\n", "all", counted.all.calls, counted.all.bytes / 1e9);
  return counted;
}

TEST(StepCounts, Gpt2Of1558MillionParameters) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts operations and bytes";
  const CountedStep counted = counted_step(wide_model, 48);
  const Step& step = counted.step;
  const Count& all = counted.all;
  EXPECT_LT(all.calls, 3'800);
  EXPECT_LT(all.bytes, 1.02e12);
  // The first micro-batch assigns gradients: zeros are written for the two tables of the embedding alone, and
  // ones beside the losses of each micro-batch. The backward of a norm is one pass.
  EXPECT_LE(step.at("fill").calls, 2 + 4);
  EXPECT_EQ(step.at("layer_norm_backward_all").calls, 4 * 97);
  EXPECT_EQ(step.count("layer_norm_backward_weight"), 0U);
  // Two runs of each block's parameters, and a norm of them all; as many chunks of the output loss as 4 x
  // 4096 rows of each micro-batch.
  EXPECT_LE(step.at("adamw").calls, 2 * 50);
  EXPECT_LE(step.at("chunk_squares").calls, 50);
  EXPECT_EQ(step.at("cross_entropy_all").calls, 4 * 4);
}

// Twelve layers of 8 experts, of which a token chooses 2, of width 1024; 8 samples of 1024.
PretrainConfig mixture(int64_t layers) {
  PretrainConfig config = wide_model(layers);
  config.model.position_embedding_type = PositionEmbedding::Rope;
  config.model.normalization = Normalization::RmsNorm;
  config.model.swiglu = true;
  config.model.disable_bias_linear = true;
  config.model.hidden_size = 1024;
  config.model.num_attention_heads = 16;
  config.model.ffn_hidden_size = kMixtureInner;
  config.model.num_experts = 8;
  config.model.moe_router_topk = 2;
  config.model.moe_aux_loss_coeff = 0.01;
  config.batch.micro_batch_size = 8;
  config.batch.global_batch_size = 8;
  return config;
}

// The activation of the rows of experts, with their gates, is one pass forward and one backward, from which the gradients
// of the second projection follow at once: rows of dy are gathered once.
TEST(StepCounts, MixtureOfEightExperts) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts operations and bytes";
  constexpr int64_t kLayers = 12;
  const Step step = counted_step(mixture, kLayers).step;
  for (const char* name : {"gate_rows", "gate_rows_backward", "gated", "gated_backward"})
    EXPECT_EQ(step.count(name), 0U) << name;
  const double numbers = 2.0 * 8 * 1024 * kMixtureInner * kLayers;  // of the rows' activations, in all layers
  const auto expect_passes = [&](const char* name, double arrays) {
    EXPECT_EQ(step.at(name).calls, kLayers);
    EXPECT_NEAR(step.at(name).bytes, arrays * 2 * numbers, 0.001 * arrays * 2 * numbers) << name;
  };
  expect_passes("activate_choices", 3);           // x, of two halves, and y
  expect_passes("activate_choices_backward", 6);  // dx and x, y and dy
  // Rows of x forward and for the gradients of weights, rows of dy once; the tokens of the batch.
  EXPECT_EQ(step.at("embedding").calls, 3 * kLayers + 1);
}

// In 8 bits with scales of blocks the norms, GELU and its gradient write one byte and a scale for 128 elements instead of
// two bytes, and what reads them reads as much less. The passes that round other factors are part of products, which
// count their tensors alone.
TEST(StepCounts, NarrowFactorsOf1558MillionParameters) {
  if (!is_fake_device()) GTEST_SKIP() << "only the fake device counts operations and bytes";
  const auto count_alone = fake_device_function<void(bool)>("fake_device_count_alone");
  count_alone(true);
  const auto step_of = [](Fp8Recipe recipe) {
    const auto layers = [&](int64_t count) {
      PretrainConfig config = wide_model(count);
      config.precision.fp8 = true;
      config.precision.fp8_recipe = recipe;
      return second_step(config);
    };
    return with_layers(layers(1), layers(2), 48);
  };
  const Step wide = step_of(Fp8Recipe::Tensorwise), narrow = step_of(Fp8Recipe::Blockwise);
  count_alone(false);
  const auto all = [](const Step& step) {
    Count sum;
    for (const auto& [name, count] : step) {
      sum.calls += count.calls;
      sum.bytes += count.bytes;
    }
    return sum;
  };
  fmt::print("{} calls, {:.2f} GB; narrow {} calls, {:.2f} GB\n", all(wide).calls, all(wide).bytes / 1e9,
             all(narrow).calls, all(narrow).bytes / 1e9);
  // Bytes of all rows of a step and all layers, for each narrow column.
  const double saved = 4.0 * 16 * 1024 * 48 * (2 - 1 - 4.0 / 128);
  const double norms = saved * 2 * 1600;
  EXPECT_NEAR(wide.at("layer_norm").bytes - narrow.at("layer_norm").bytes, norms, 0.01 * norms);
  // One pass over attention's output and gradient, and over the gradients of the two layers that add to the residual
  // stream, writes both forms that products read.
  const double rows = 4.0 * 16 * 1024 * 48, columns = 6.0 * 1600, sums = 5.0 * 1600 * 4 / 128;
  const Count& forms = narrow.at("write_forms");
  EXPECT_EQ(forms.calls, 4 * 4 * 48);
  EXPECT_NEAR(forms.bytes, rows * (2 * columns + 2 * columns * (1 + 4.0 / 128) + sums), 1e-3 * forms.bytes);
}

}  // namespace
}  // namespace trifold::test
