// Low-rank adapters in training: the same curve on every mesh, with every schedule and every stage of ZeRO; exact resume;
// frozen weights without gradients and optimizer state, as planned to the byte.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "checkpoint/reader.h"
#include "files/crc32.h"
#include "files/file.h"
#include "models/folders/open_model.h"
#include "run/tensors_on_host.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/planned_memory.h"
#include "support/training.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;

// A model whose weights are frozen: trained for two steps, so that they are no initial weights.
PretrainConfig base_run(bool llama) {
  PretrainConfig config = small_run();
  set_four_steps(config);
  if (llama) make_llama(config.model, 2);
  return config;
}

PretrainConfig adapted(PretrainConfig config, bool dora = false) {
  AdapterConfig& adapters = config.model.adapters;
  adapters.lora_rank = 3;
  adapters.lora_alpha = 6;
  adapters.dora = dora;
  adapters.lora_dropout = 0.1;
  config.lr.lr = 0.03;
  config.lr.lr_warmup_iters = 0;
  return config;
}

// Trains with the weights in `base`, begun or resumed.
struct AdapterRun {
  std::vector<double> losses, norms;
};
AdapterRun train_adapters(const PretrainConfig& config, const std::string& from, LoadPart part,
                          const std::string& save = "", int64_t until = 4) {
  AdapterRun run;
  const auto data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.load(from, part);
    while (trainer.steps_done() < until)
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        run.losses.push_back(step.loss);
        run.norms.push_back(step.grad_norm);
      }
    if (!save.empty()) trainer.save(save);
  });
  return run;
}

void expect_close(const AdapterRun& run, const AdapterRun& one, const std::string& what) {
  ASSERT_EQ(run.losses.size(), one.losses.size()) << what;
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_LT(relative_error(run.losses[i], one.losses[i]), 1e-11) << what << ", step " << i + 1;
    EXPECT_LT(relative_error(run.norms[i], one.norms[i]), 1e-10) << what << ", norm of step " << i + 1;
  }
}

struct MeshOfAdapters {
  const char* name;
  PretrainConfig (*on)(PretrainConfig config);
};

PretrainConfig with_zero(PretrainConfig config, int stage, bool each = false) {
  config.zero.zero_stage = stage;
  config.zero.zero_min_unit_params = 1;
  if (each) config.zero.zero_reduce = ReducePolicy::Each;
  return config;
}

PretrainConfig with_sequence(PretrainConfig config) {
  config.mesh.sequence_parallel = true;
  return config;
}

PretrainConfig recomputed(PretrainConfig config, RecomputeGranularity what) {
  config.mesh.recompute_granularity = what;
  return config;
}

const MeshOfAdapters kMeshesOfAdapters[] = {
    {"Dp2", [](PretrainConfig c) { return on_mesh(c, 2); }},
    {"Tp2", [](PretrainConfig c) { return on_mesh(c, 1, 2); }},
    {"Tp4SharesKeys", [](PretrainConfig c) { return with_sequence(on_mesh(c, 1, 4)); }},
    {"Pp2", [](PretrainConfig c) { return on_mesh(c, 1, 1, 2); }},
    {"Cp2", [](PretrainConfig c) { return on_mesh(c, 1, 1, 1, 2); }},
    {"ZeroBubble", [](PretrainConfig c) { return scheduled(on_mesh(c, 1, 1, 2), "zb-h1"); }},
    {"ZbV", [](PretrainConfig c) { return scheduled(on_mesh(c, 1, 1, 2), "zb-v"); }},
    {"Zero1", [](PretrainConfig c) { return with_zero(on_mesh(c, 2), 1); }},
    {"Zero2Each", [](PretrainConfig c) { return with_zero(on_mesh(c, 2), 2, true); }},
    {"Zero3", [](PretrainConfig c) { return with_zero(on_mesh(c, 2), 3); }},
    {"Zero3EachTp2Pp2",
     [](PretrainConfig c) { return with_zero(with_sequence(on_mesh(c, 2, 2, 2)), 3, true); }},
    {"Dp2Tp2Cp2", [](PretrainConfig c) { return on_mesh(c, 2, 2, 1, 2); }},
    {"Selective",
     [](PretrainConfig c) { return recomputed(on_mesh(c, 1, 2), RecomputeGranularity::Selective); }},
    {"Full", [](PretrainConfig c) { return recomputed(on_mesh(c, 1, 1, 2), RecomputeGranularity::Full); }},
};

class AdapterMeshes : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(AdapterMeshes, GiveTheCurveOfOneRank) {
  const auto [llama, dora] = GetParam();
  const TempDir folder;
  const PretrainConfig base = base_run(llama);
  train(base, 2, "", folder.file("base"));
  const PretrainConfig config = adapted(base, dora);
  const AdapterRun one = train_adapters(config, folder.file("base"), LoadPart::Weights);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (const MeshOfAdapters& mesh : kMeshesOfAdapters)
    expect_close(train_adapters(mesh.on(config), folder.file("base"), LoadPart::Weights), one, mesh.name);
}

INSTANTIATE_TEST_SUITE_P(Models, AdapterMeshes, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param) ? "Llama" : "Gpt") +
                                  (std::get<1>(test.param) ? "WithMagnitudes" : "");
                         });

// One adapter for queries, keys and values, or for gate and up, whose rows are cut group by group.
TEST(AdaptersOfPackedLayers, GiveTheCurveOfOneRank) {
  for (const bool llama : {false, true}) {
    const TempDir folder;
    const PretrainConfig base = base_run(llama);
    train(base, 2, "", folder.file("base"));
    PretrainConfig config = adapted(base, true);
    if (llama)
      config.model.adapters.lora_targets = {"gate_up", "key", "value"};
    else
      config.model.adapters.lora_targets = {"qkv"};
    const AdapterRun one = train_adapters(config, folder.file("base"), LoadPart::Weights);
    expect_close(train_adapters(on_mesh(config, 1, 2), folder.file("base"), LoadPart::Weights), one, "Tp2");
    expect_close(train_adapters(with_zero(on_mesh(config, 2, 2), 3), folder.file("base"), LoadPart::Weights),
                 one, "Tp2Zero3");
  }
}

// Blocks below the first adapter have no backward, nor do whole stages of them, and nothing of them is kept. The curve
// is that of adapters in all layers of which those below do not learn.
TEST(AdaptersOfUpperLayers, GiveTheCurveOfOneRank) {
  for (const bool llama : {false, true}) {
    const TempDir folder;
    PretrainConfig base = base_run(llama);
    base.model.num_layers = 4;
    train(base, 2, "", folder.file("base"));
    PretrainConfig config = adapted(base);
    config.optimizer.clip_grad = 0;  // the norm of the gradients is the only difference to `held` below
    config.model.adapters.lora_targets = {"block.[23].*"};
    const AdapterRun one = train_adapters(config, folder.file("base"), LoadPart::Weights);
    EXPECT_LT(one.losses.back(), one.losses.front());
    PretrainConfig all = config;
    all.model.adapters.lora_targets.clear();
    all.optimizer.lr_mult = {{"block.[01].*", 0}};
    const AdapterRun held = train_adapters(all, folder.file("base"), LoadPart::Weights);
    EXPECT_EQ(one.losses, held.losses);
    for (const MeshOfAdapters& mesh : kMeshesOfAdapters)
      expect_close(train_adapters(mesh.on(config), folder.file("base"), LoadPart::Weights), one, mesh.name);
    PretrainConfig pipeline = on_mesh(config, 1, 1, 4);
    expect_close(train_adapters(pipeline, folder.file("base"), LoadPart::Weights), one, "Pp4");
    EXPECT_EQ(train_adapters(pipeline, folder.file("base"), LoadPart::Weights).losses, one.losses);
    for (const char* schedule : {"zb-h1", "gpipe"})
      EXPECT_EQ(train_adapters(scheduled(pipeline, schedule), folder.file("base"), LoadPart::Weights).losses,
                one.losses)
          << schedule;
    PretrainConfig dual = scheduled(on_mesh(config, 1, 1, 2), "dualpipe-v");
    EXPECT_EQ(train_adapters(dual, folder.file("base"), LoadPart::Weights).losses, one.losses);
    PretrainConfig offloaded = on_mesh(config, 1, 1, 2);
    offloaded.mesh.cpu_offloading_num_layers = 1;
    offloaded.mesh.cpu_offloading_folder = fs::temp_directory_path().string();
    EXPECT_EQ(train_adapters(offloaded, folder.file("base"), LoadPart::Weights).losses, one.losses);
  }
}

TEST(AdaptersOfUpperLayers, NeedLessMemoryAsPlanned) {
  PretrainConfig config = base_run(true);
  config.model.num_layers = 4;
  config.precision.f64 = false;
  config = adapted(config);
  const auto activations = [](const PretrainConfig& run) {
    size_t most = 0;
    compare_with_plan(
        run, [&](Trainer& trainer, const MemoryReport& planned) { expect_planned_memory(trainer, planned); });
    for (const MemoryReport& rank : plan_of(run).memory) most = std::max(most, rank.predicted_activations);
    return most;
  };
  for (const int stages : {1, 2, 4}) {
    const PretrainConfig all = stages == 1 ? config : on_mesh(config, 1, 1, stages);
    PretrainConfig upper = all;
    upper.model.adapters.lora_targets = {"block.3.*"};
    if (stages == 1)
      EXPECT_LT(2 * activations(upper), activations(all));
    else
      EXPECT_LE(activations(upper), activations(all));
    for (int zero = 1; zero <= 3; ++zero)
      compare_with_plan(with_zero(on_mesh(upper, 2, 1, stages), zero), expect_planned_memory);
  }
}

TEST(AdaptersOfLatentAttention, GiveTheCurveOfOneRank) {
  for (const bool dora : {false, true}) {
    const TempDir folder;
    PretrainConfig base = base_run(false);
    make_latent(base.model, 20);
    train(base, 2, "", folder.file("base"));
    const PretrainConfig config = adapted(base, dora);
    const AdapterRun one = train_adapters(config, folder.file("base"), LoadPart::Weights);
    EXPECT_LT(one.losses.back(), one.losses.front());
    for (const MeshOfAdapters& mesh : kMeshesOfAdapters)
      expect_close(train_adapters(mesh.on(config), folder.file("base"), LoadPart::Weights), one, mesh.name);
  }
}

// Normal numbers of standard deviation 1 / rank instead of uniform ones; B is zero, so the first loss is the same.
TEST(AdaptersWithGaussianInit, BeginAsTheModel) {
  const TempDir folder;
  const PretrainConfig base = base_run(true);
  train(base, 2, "", folder.file("base"));
  PretrainConfig config = adapted(base);
  const AdapterRun uniform = train_adapters(config, folder.file("base"), LoadPart::Weights);
  config.model.adapters.lora_init = LoraInit::Gaussian;
  const AdapterRun normal = train_adapters(config, folder.file("base"), LoadPart::Weights);
  EXPECT_EQ(normal.losses.front(), uniform.losses.front());
  EXPECT_NE(normal.losses.back(), uniform.losses.back());
  expect_close(train_adapters(on_mesh(config, 1, 2), folder.file("base"), LoadPart::Weights), normal, "Tp2");
  // Adapters that exist have their values, whatever new ones would begin with.
  train_adapters(adapted(base), folder.file("base"), LoadPart::Weights, folder.file("tuned"));
  EXPECT_EQ(train_adapters(config, folder.file("tuned"), LoadPart::Weights).losses,
            train_adapters(adapted(base), folder.file("tuned"), LoadPart::Weights).losses);
}

// Muon takes the adapters' matrices alone.
TEST(AdaptersByMuon, GiveTheCurveOfOneRank) {
  const TempDir folder;
  const PretrainConfig base = base_run(true);
  train(base, 2, "", folder.file("base"));
  PretrainConfig config = adapted(base);
  config.optimizer.optimizer = OptimizerKind::Muon;
  const AdapterRun one = train_adapters(config, folder.file("base"), LoadPart::Weights);
  for (const PretrainConfig& mesh :
       {on_mesh(config, 1, 2), on_mesh(config, 1, 1, 2), with_zero(on_mesh(config, 2), 3)}) {
    const AdapterRun run = train_adapters(mesh, folder.file("base"), LoadPart::Weights);
    ASSERT_EQ(run.losses.size(), one.losses.size());
    for (size_t i = 0; i < one.losses.size(); ++i)
      EXPECT_LT(relative_error(run.losses[i], one.losses[i]), 1e-9);
  }
}

// Routers and experts are frozen; the other layers have adapters.
TEST(AdaptersBesideExperts, GiveTheCurveOfOneRank) {
  const TempDir folder;
  PretrainConfig base = base_run(true);
  base.model.num_experts = 4;
  base.model.moe_shared_expert_intermediate_size = 16;
  base.model.moe_aux_loss_coeff = 0.01;
  base.model.moe_router_enable_expert_bias = true;
  train(base, 2, "", folder.file("base"));
  const PretrainConfig config = adapted(base);
  const AdapterRun one = train_adapters(config, folder.file("base"), LoadPart::Weights);
  PretrainConfig shared = with_zero(on_mesh(config, 4), 1);
  shared.mesh.expert_model_parallel_size = 2;
  expect_close(train_adapters(shared, folder.file("base"), LoadPart::Weights), one, "Ep2");
  PretrainConfig cut = with_sequence(on_mesh(config, 1, 2));
  cut.mesh.expert_tensor_parallel_size = 2;
  expect_close(train_adapters(cut, folder.file("base"), LoadPart::Weights), one, "Etp2");
}

// Asynchronous schedules have several versions of the adapters, and one of the frozen weights.
TEST(AdapterVersions, AreOfTheAdaptersAlone) {
  const TempDir folder;
  PretrainConfig base = base_run(true);
  base.precision.f64 = false;
  train(base, 2, "", folder.file("base"));
  PretrainConfig config = scheduled(on_mesh(adapted(base), 1, 1, 2), "pipedream-2bw");
  config.optimizer.clip_grad = 0;
  config.pipeline.async_window = 2;
  const AdapterRun run = train_adapters(config, folder.file("base"), LoadPart::Weights);
  for (const double loss : run.losses) EXPECT_NEAR(loss, run.losses.front(), 0.5);
  compare_with_plan(config, expect_planned_memory);
}

// The checksums of all files below a folder.
std::map<std::string, uint32_t> sums_of_files(const fs::path& folder) {
  std::map<std::string, uint32_t> sums;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    const std::string bytes = first_bytes(entry.path(), size_t{1} << 26);
    sums[entry.path().string()] = crc32_of(0, bytes.data(), bytes.size());
  }
  return sums;
}

TEST(AdapterCheckpoints, ResumeExactlyAndHoldNoFrozenWeights) {
  for (const bool bf16 : {false, true}) {
    const TempDir folder;
    PretrainConfig base = base_run(true);
    base.precision.f64 = false;
    base.precision.bf16 = bf16;
    train(base, 2, "", folder.file("base"));
    const PretrainConfig config = with_zero(on_mesh(adapted(base), 2), 1);
    const auto before = sums_of_files(folder.file("base"));
    const AdapterRun whole = train_adapters(config, folder.file("base"), LoadPart::Weights);
    train_adapters(config, folder.file("base"), LoadPart::Weights, folder.file("saved"), 2);
    const AdapterRun rest = train_adapters(config, folder.file("saved"), LoadPart::All);
    ASSERT_EQ(rest.losses.size(), 2U);
    EXPECT_EQ(rest.losses[0], whole.losses[2]);
    EXPECT_EQ(rest.losses[1], whole.losses[3]);
    EXPECT_EQ(sums_of_files(folder.file("base")), before);
    const CheckpointReader saved(folder.file("saved"));
    for (const TensorInfo& tensor : saved.tensors())
      EXPECT_NE(tensor.name.find(".lora_"), std::string::npos) << tensor.name;

    // A reader sees the frozen weights too, and the bits they have in the base.
    CheckpointReader joined = open_weights(folder.file("saved"));
    CheckpointReader frozen(folder.file("base"));
    const std::string name = "param/block.1.mlp.down.weight";
    const auto bytes_of = [&](CheckpointReader& reader) {
      const TensorInfo& info = *reader.find(name);
      std::vector<std::byte> bytes(static_cast<size_t>(info.bytes()));
      NamedTensor tensor;
      tensor.spec.name = name;
      tensor.spec.global = info.global;
      tensor.spec.local = Rect::whole(info.global);
      tensor.data = {bytes.data(), info.dtype, info.global};
      reader.load({&tensor, 1});
      return bytes;
    };
    EXPECT_EQ(bytes_of(joined), bytes_of(frozen));

    // The adapters do not fit other frozen weights.
    PretrainConfig other = base;
    other.seed = 77;
    fs::remove_all(folder.file("base"));
    train(other, 2, "", folder.file("base"));
    EXPECT_THROW(open_weights(folder.file("saved")), Error);
    fs::remove_all(folder.file("base"));
    EXPECT_THROW(open_weights(folder.file("saved")), Error);
  }
}

TEST(AdapterMemory, IsAsPlannedAndHasNoStateOfFrozenWeights) {
  for (const bool bf16 : {false, true})
    for (int stage = 0; stage <= 3; ++stage) {
      PretrainConfig config = with_zero(on_mesh(adapted(base_run(true)), 2, 1, 2), stage);
      config.precision.f64 = false;
      config.precision.bf16 = bf16;
      compare_with_plan(config, expect_planned_memory);
    }
  const PretrainConfig config = adapted(base_run(false));
  compare_with_plan(config, [](Trainer& trainer, const MemoryReport& planned) {
    const FlatLayout& layout = trainer.replica().layout().flat();
    EXPECT_LT(5 * layout.trained_elements(), layout.elements());
    EXPECT_EQ(planned.gradients, static_cast<size_t>(layout.trained_elements()) * sizeof(double));
    EXPECT_EQ(planned.optimizer, 2 * static_cast<size_t>(layout.trained_elements()) * sizeof(double));
  });
}

// The work of a frozen layer has no product for the gradient of its weight.
TEST(AdapterCosts, LeaveOutGradientsOfFrozenWeights) {
  const ModelConfig plain = base_run(false).model;
  const ModelConfig with = adapted(base_run(false)).model;
  const double all = sample_flops(plain, 1).all(), left = sample_flops(with, 1).all();
  EXPECT_LT(left, 0.9 * all);
  EXPECT_GT(left, 0.6 * all);
}

}  // namespace
}  // namespace trifold::test
