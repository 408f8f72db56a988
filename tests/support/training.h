// Small training runs over thread ranks, for parity tests.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "models/language_family.h"
#include "support/start_ranks.h"
#include "text/synthetic.h"
#include "train/trainer.h"

namespace trifold::test {

// A GPT small enough to train in milliseconds, every optional field set: 2 layers of width 32, global
// batch 8.
inline PretrainConfig small_run() {
  PretrainConfig config;
  config.model.num_layers = 2;
  config.model.hidden_size = 32;
  config.model.num_attention_heads = 4;
  config.model.ffn_hidden_size = 128;
  config.model.seq_length = 16;
  config.model.max_position_embeddings = 16;
  config.model.vocab_size = 50;
  config.model.make_vocab_size_divisible_by = 16;
  config.mesh.data_parallel_size = 1;
  config.mesh.threads_per_rank = 1;
  config.mesh.distributed_timeout_minutes = 1;
  config.batch.micro_batch_size = 2;
  config.batch.global_batch_size = 8;
  config.batch.train_iters = 20;
  config.lr.lr = 3e-3;
  config.lr.min_lr = 3e-4;
  config.lr.lr_decay_style = LrDecayStyle::Cosine;
  config.lr.lr_decay_iters = 20;
  config.lr.lr_warmup_iters = 3;
  config.optimizer.weight_decay = 0.1;
  return config;
}

// Four steps of one sample a micro-batch, in f64 or f32, and evaluations of two batches.
inline void set_four_steps(PretrainConfig& config, bool f64 = true) {
  config.precision.f64 = f64;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.eval.eval_iters = 2;
}

// Changes a model of small_run to a Llama of similar size with `key_heads` key heads.
inline void make_llama(ModelConfig& model, int64_t key_heads) {
  model.ffn_hidden_size = 48;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.group_query_attention = true;
  model.num_query_groups = key_heads;
  model.qk_layernorm = true;
  model.normalization = Normalization::RmsNorm;
  model.swiglu = true;
  model.disable_bias_linear = true;
  model.untie_embeddings_and_output_weights = true;
}

// Changes a model of small_run to a Llama with multi-head latent attention. Queries are computed from a latent vector
// of width `query_rank`; 0: directly.
inline void make_latent(ModelConfig& model, int64_t query_rank) {
  make_llama(model, 1);
  model.group_query_attention = false;
  model.multi_latent_attention = true;
  if (query_rank > 0) model.q_lora_rank = query_rank;
  model.kv_lora_rank = 12;
  model.qk_head_dim = 8;
  model.qk_pos_emb_head_dim = 4;
  model.v_head_dim = 6;
}

inline PretrainConfig on_mesh(PretrainConfig config, int dp, int tp = 1, int pp = 1, int cp = 1) {
  config.mesh.ranks = dp * tp * pp * cp;
  config.mesh.context_parallel_size = cp;
  config.mesh.data_parallel_size = dp;
  config.mesh.tensor_model_parallel_size = tp;
  config.mesh.pipeline_model_parallel_size = pp;
  return config;
}

// Sets a schedule, and `chunks` stages on each pipeline rank.
inline PretrainConfig scheduled(PretrainConfig config, const std::string& schedule, int chunks = 1) {
  config.pipeline.schedule = ScheduleChoice::parse(schedule);
  if (chunks > 1) config.pipeline.num_virtual_stages_per_pipeline_rank = chunks;
  return config;
}

// The results of a run, from rank 0.
struct Curve {
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::vector<double> balances, router_sizes;  // router losses, if the model has routers
  std::vector<double> later_losses;            // losses of modules that predict further tokens
  std::optional<double> valid_loss;            // after the last step, if requested
};

// Further options of a run.
struct TrainOptions {
  int64_t stop_after = 0;  // total steps; 0: as configured
  std::string load = {};   // folder or checkpoint to load, if any
  std::string save = {};
  bool evaluate = false;  // at the end
};

// Sets the device to TRIFOLD_TEST_DEVICE ("cuda"), if that is set and the test does not choose a device. tests/gpu.sh
// thus repeats CPU tests on a GPU.
inline PretrainConfig on_test_device(PretrainConfig config) {
  const char* device = std::getenv("TRIFOLD_TEST_DEVICE");
  if (device != nullptr && config.mesh.device == ComputeDevice::Auto)
    config.mesh.device = value_named<ComputeDevice>(device).value();
  return config;
}

// Data with few distinct tokens, so that there is something to learn.
inline std::unique_ptr<DataSource> few_tokens(ModelConfig model) {
  model.vocab_size = 7;
  return synthetic_data(model, 11);
}

inline Curve train(const PretrainConfig& asked, const DataSource& data, const TrainOptions& options) {
  const PretrainConfig config = on_test_device(asked);
  const int64_t last = options.stop_after == 0 ? config.batch.train_iters : options.stop_after;
  Curve curve;
  start_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &data);
    if (!options.load.empty()) trainer.load(options.load);
    while (trainer.steps_done() < last) {
      for (const StepReport& step : trainer.advance()) {
        if (world.rank() != 0) continue;
        curve.losses.push_back(step.loss);
        curve.grad_norms.push_back(step.grad_norm);
        curve.later_losses.insert(curve.later_losses.end(), step.later_losses.begin(),
                                  step.later_losses.begin() + step.later_losses_count);
        if (!step.router_balance) continue;
        curve.balances.push_back(*step.router_balance);
        curve.router_sizes.push_back(step.router_z);
      }
    }
    if (!options.save.empty()) trainer.save(options.save);
    if (!options.evaluate) return;
    const double loss = trainer.evaluate().loss;
    if (world.rank() == 0) curve.valid_loss = loss;
  });
  return curve;
}

inline Curve train(const PretrainConfig& config, const TrainOptions& options) {
  return train(config, *few_tokens(config.model), options);
}

// Trains until `stop_after` steps are done (0: all), loading from and saving to `load` and `save` if given.
inline Curve train(const PretrainConfig& config, int64_t stop_after = 0, const std::string& load = "",
                   const std::string& save = "") {
  return train(config, TrainOptions{stop_after, load, save, false});
}

inline Curve train_and_evaluate(const PretrainConfig& config) { return train(config, {.evaluate = true}); }

}  // namespace trifold::test
