#include "parity/reshard.h"

#include <map>

#include "convert/reshard.h"
#include "core/input_file.h"

namespace trifold::test {
namespace {

TEST_F(Reshard, AFewPairs) {
  const PretrainConfig base = run();
  const Curve whole = train(config_of({1, 1, 1}, base));
  const std::vector<ReshardLayout>& all = layouts_of_8();
  for (const auto& [from, to] : {std::pair(2, 9), {9, 7}, {5, 3}, {8, 4}, {11, 2}, {6, 11}}) {
    const ReshardLayout& source = all[static_cast<size_t>(from)];
    const ReshardLayout& target = all[static_cast<size_t>(to)];
    SCOPED_TRACE(name_of(source) + " -> " + name_of(target));
    check_pair(saved_on(source, base), target, base, whole, 2e-5);
  }
}

// Whatever the type of computation, masters and moments are stored: f32, or f64.
TEST_F(Reshard, BetweenTypes) {
  const PretrainConfig base = run();
  const Curve whole = train(config_of({1, 1, 1}, base));
  const ReshardLayout bf16{2, 2, 2, 3, "1f1b", 1, false, 16, "bf16"};
  const ReshardLayout fp16{4, 1, 1, 2, "1f1b", 1, false, 16, "fp16"};
  const ReshardLayout f32{1, 2, 1, 0};
  for (const auto& [from, to] : {std::pair(bf16, fp16), {fp16, bf16}, {bf16, f32}, {f32, fp16}}) {
    SCOPED_TRACE(name_of(from) + " -> " + name_of(to));
    check_pair(saved_on(from, base), to, base, whole, 0.02);
  }
  // f32 -> f64 is exact, f64 -> f32 rounds.
  const ReshardLayout f64{2, 1, 2, 1, "1f1b", 1, false, 16, "f64"};
  const Curve to_f64 = train(config_of(f64, base), 0, saved_on(f32, base));
  const Curve to_f32 = train(config_of(f32, base), 0, saved_on(f64, base));
  for (const Curve& curve : {to_f64, to_f32}) {
    ASSERT_EQ(curve.losses.size(), static_cast<size_t>(kSteps - kSavedAfter));
    for (size_t i = 0; i < curve.losses.size(); ++i)
      EXPECT_LT(relative_error(curve.losses[i], whole.losses[i + kSavedAfter]), 2e-5);
  }
}

TEST_F(Reshard, OtherRulesHaveOtherState) {
  for (const char* optimizer : {"lamb", "lars", "sgd", "adagrad"}) {
    const PretrainConfig base = run(optimizer);
    const Curve whole = train(config_of({1, 1, 1}, base));
    SCOPED_TRACE(optimizer);
    const ReshardLayout from{2, 1, 2, 1};
    std::filesystem::remove_all(folder_);
    check_pair(saved_on(from, base), {2, 2, 1, 3, "1f1b", 1, false, 7}, base, whole, 2e-5);
  }
}

ReshardConfig tool_config(const ReshardLayout& layout, const PretrainConfig& base, const std::string& from,
                          const std::string& to) {
  const PretrainConfig run = config_of(layout, base);
  ReshardConfig config;
  config.load = from;
  config.save = to;
  config.mesh = run.mesh;
  config.pipeline = run.pipeline;
  config.zero = run.zero;
  config.max_memory = 8;
  return config;
}

std::map<std::string, std::string> hdf5_files_in(const std::string& root) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root))
    if (entry.path().extension() == ".h5")
      files[entry.path().filename().string()] = read_input_file(entry.path().string(), int64_t{1} << 30);
  return files;
}

// Resharding with `tool` writes the same bytes as a run of `config` that loads the checkpoint `from` and saves it.
void check_tool(const std::string& from, const PretrainConfig& config, const std::string& direct,
                const ReshardConfig& tool) {
  for (const std::string& path : {direct, tool.save}) std::filesystem::remove_all(path);
  const SyntheticTokens data(config.model.seq_length, 7, 11);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    trainer.load(from);
    trainer.save(direct);
  });
  CheckpointReader reader(from);
  reshard(reader, tool);
  const auto expected = hdf5_files_in(direct);
  const auto written = hdf5_files_in(tool.save);
  ASSERT_EQ(written.size(), expected.size());
  for (const auto& [name, bytes] : expected) {
    ASSERT_TRUE(written.contains(name)) << name;
    EXPECT_TRUE(written.at(name) == bytes) << name << " differs";
  }
}

TEST_F(Reshard, TheToolWritesTheFilesOfADirectSave) {
  const PretrainConfig base = run();
  const std::vector<ReshardLayout>& all = layouts_of_8();
  const std::string from = saved_on(all[5], base);
  const std::string tool = (folder_ / "tool").string();
  for (const ReshardLayout& target : all) {
    if (target.pp * target.chunks > base.model.num_layers)
      continue;  // refused for a run from the command line too
    SCOPED_TRACE(name_of(target));
    PretrainConfig config = config_of(target, base);
    config.model.make_vocab_size_divisible_by = all[5].divisible_by;  // the tool takes the checkpoint's
    check_tool(from, config, (folder_ / "direct").string(), tool_config(target, base, from, tool));
    EXPECT_TRUE(CheckpointReader(tool).verify().ok());
  }
}

TEST_F(Reshard, ExpertsMoveBetweenRanks) {
  PretrainConfig base = run();
  base.model.num_experts = 8;
  base.model.disable_bias_linear = true;
  base.model.moe_ffn_hidden_size = 24;
  const auto with = [&](int ep, int parts = 1) {
    PretrainConfig config = base;
    config.mesh.expert_model_parallel_size = ep;
    config.mesh.expert_tensor_parallel_size = parts;
    return config;
  };
  const ReshardLayout f64{8, 1, 1, 1, "1f1b", 1, false, 16, "f64"};
  const Curve whole = train(config_of({1, 1, 1, 0, "1f1b", 1, false, 16, "f64"}, base));
  const std::string from = (folder_ / "ep4").string();
  train(config_of(f64, with(4)), kSavedAfter, "", from);
  struct Target {
    ReshardLayout layout;
    int ep, parts = 1;
  };
  const Target targets[] = {
      {{1, 1, 1, 0, "1f1b", 1, false, 16, "f64"}, 1},    {{2, 1, 2, 3, "1f1b", 1, false, 16, "f64"}, 2},
      {{8, 1, 1, 2, "1f1b", 1, false, 16, "f64"}, 8},    {{4, 1, 2, 1, "zb-v", 2, false, 16, "f64"}, 4},
      {{2, 1, 1, 1, "1f1b", 1, false, 16, "f64"}, 1, 2}, {{4, 2, 1, 3, "1f1b", 1, true, 16, "f64"}, 2, 4},
      {{4, 1, 2, 2, "zb-h1", 1, false, 16, "f64"}, 1, 4}};
  for (const Target& target : targets) {
    SCOPED_TRACE(name_of(target.layout) + fmt::format(" ep{} etp{}", target.ep, target.parts));
    check_pair(from, target.layout, with(target.ep, target.parts), whole, 1e-11);
  }
  const std::string cut = (folder_ / "cut").string();
  train(config_of(f64, with(4, 2)), kSavedAfter, "", cut);
  for (const Target& target : {targets[0], targets[2], targets[5]}) {
    SCOPED_TRACE("cut -> " + name_of(target.layout) + fmt::format(" ep{} etp{}", target.ep, target.parts));
    check_pair(cut, target.layout, with(target.ep, target.parts), whole, 1e-11);
  }
}

TEST_F(Reshard, TheToolSpreadsExperts) {
  PretrainConfig base = run();
  base.model.num_experts = 8;
  base.model.disable_bias_linear = true;
  base.model.moe_ffn_hidden_size = 24;
  const auto saved_with = [&](int ep, int parts, const ReshardLayout& layout) {
    base.mesh.expert_model_parallel_size = ep;
    base.mesh.expert_tensor_parallel_size = parts;
    return saved_on(layout, base);
  };
  const std::string spread = saved_with(4, 1, {4, 1, 2, 1});
  const std::string cut = saved_with(2, 2, {8, 1, 1, 2});
  const std::tuple<std::string, ReshardLayout, int, int> targets[] = {
      {spread, {1, 1, 1}, 1, 1},    {spread, {8, 1, 1, 0}, 2, 1}, {spread, {8, 1, 1, 3}, 4, 1},
      {spread, {8, 1, 1, 1}, 8, 1}, {spread, {8, 1, 1, 3}, 2, 4}, {spread, {2, 1, 4, 1, "zb-h1"}, 2, 1},
      {spread, {4, 1, 2, 1}, 1, 2}, {cut, {4, 1, 2, 1}, 4, 1},    {cut, {8, 1, 1, 3}, 1, 4}};
  for (const auto& [from, target, ep, parts] : targets) {
    SCOPED_TRACE(name_of(target) + fmt::format(" ep{} etp{}", ep, parts));
    base.mesh.expert_model_parallel_size = ep;
    base.mesh.expert_tensor_parallel_size = parts;
    const PretrainConfig config = config_of(target, base);
    check_tool(from, config, (folder_ / "direct").string(),
               tool_config(target, base, from, (folder_ / "tool").string()));
  }
}

TEST_F(Reshard, TheToolCutsIntoFilesChangesTypesAndDropsTheOptimizer) {
  const PretrainConfig base = run();
  const std::string from = saved_on(layouts_of_8()[9], base);
  CheckpointReader reader(from);
  ReshardConfig config;
  config.save = (folder_ / "five").string();
  config.files = 5;
  reshard(reader, config);
  CheckpointReader five(config.save);
  EXPECT_EQ(five.manifest().files.size(), 6U);
  EXPECT_TRUE(difference(reader, five).bitwise_equal());
  config.save = (folder_ / "weights").string();
  config.files = 1;
  config.dtype = DType::BF16;
  config.no_save_optim = true;
  reshard(reader, config);
  CheckpointReader weights(config.save);
  for (const TensorInfo& tensor : weights.tensors()) {
    EXPECT_TRUE(tensor.name.starts_with("param/")) << tensor.name;
    EXPECT_EQ(tensor.dtype, DType::BF16);
  }
  const CheckpointDifference found = difference(reader, weights);
  for (const TensorDifference& tensor : found.tensors) EXPECT_LE(tensor.max_rel, 1.0 / 256) << tensor.name;
}

// Padding is zero from the start and never stored. Rounding may differ: a product's kernel depends on its
// width.
TEST_F(Reshard, PaddingIsNotStored) {
  const PretrainConfig base = run();
  for (const int64_t divisible_by : {1, 128}) {
    ReshardLayout layout{1, 1, 1};
    layout.divisible_by = divisible_by;
    train(config_of(layout, base), 1, "", (folder_ / std::to_string(divisible_by)).string());
  }
  CheckpointReader left(folder_ / "1");
  CheckpointReader right(folder_ / "128");
  EXPECT_EQ(left.find("param/embedding.tokens.weight")->global, (Shape{50, 32}));
  const CheckpointDifference found = difference(left, right);
  EXPECT_TRUE(found.only_left.empty() && found.only_right.empty());
  for (const TensorDifference& tensor : found.tensors) EXPECT_LE(tensor.max_abs, 1e-6) << tensor.name;
}

}  // namespace
}  // namespace trifold::test
