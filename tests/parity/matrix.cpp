#include "parity/matrix.h"

#include <gtest/gtest.h>

#include "data/read_ahead.h"
#include "parity/whole.h"
#include "support/compare.h"
#include "text/samples.h"

namespace trifold::test {

namespace {

constexpr int kSteps = kWhole ? 20 : 8;
int steps_of(const MatrixCase& c) { return c.steps > 0 ? c.steps : kSteps; }

const char* name_of(RecomputeGranularity granularity) {
  switch (granularity) {
    case RecomputeGranularity::None:
      return "none";
    case RecomputeGranularity::Selective:
      return "selective";
    case RecomputeGranularity::Full:
      return "full";
  }
  return "?";
}

// Small enough for thousands of steps a minute; heads, rows and vocabulary can be cut 8 times.
PretrainConfig config_of(const MatrixCase& c, const MatrixMesh& mesh) {
  PretrainConfig config = on_mesh(small_run(), mesh.dp, mesh.tp, mesh.pp, mesh.cp);
  config.model.num_layers = c.model.layers;
  config.model.num_attention_heads = 8;
  config.model.ffn_hidden_size = 64;
  config.model.seq_length = config.model.max_position_embeddings.emplace(c.model.positions);
  config.model.hidden_dropout = config.model.attention_dropout = c.model.dropout;
  config.model.untie_embeddings_and_output_weights = !c.model.tied;
  if (c.model.key_heads > 0) make_llama(config.model, c.model.key_heads);
  if (c.model.experts > 0) {
    config.model.num_experts = c.model.experts;
    config.model.disable_bias_linear = true;
    config.model.moe_ffn_hidden_size = 24;
    config.model.moe_shared_expert_intermediate_size = 16;
    config.model.moe_aux_loss_coeff = 0.01;
    config.model.moe_z_loss_coeff = 0.001;
    config.model.moe_input_jitter_eps = 0.1;
  }
  if (c.model.bert) config.model.model_type = ModelType::Bert;
  config.precision.f64 = c.model.f64;
  config.mesh.pipeline_vocab_parts = c.model.head_parts;
  config.mesh.sequence_parallel = mesh.sequence_parallel;
  if (mesh.cp > 1) config.mesh.cp_comm_type = mesh.exchange;
  config.mesh.expert_model_parallel_size = mesh.ep;
  config.mesh.expert_tensor_parallel_size = mesh.etp;
  config.mesh.moe_token_dispatcher_type = mesh.dispatch;
  config.mesh.distributed_timeout_minutes = 5;  // many ranks share few cores
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(steps_of(c));
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = int64_t{c.micros} * c.mesh.dp;
  config.eval.eval_iters = 2;
  return config;
}

void expect_bits(const Curve& cut, const Curve& whole) {
  EXPECT_EQ(first_difference<double>(cut.losses, whole.losses), kSame) << "losses";
  EXPECT_EQ(first_difference<double>(cut.grad_norms, whole.grad_norms), kSame) << "gradient norms";
  EXPECT_EQ(cut.valid_loss, whole.valid_loss) << "validation";
}

// Losses agree to `tolerance`; a norm is a sum of many squares that cancel less and may be off by more.
void expect_close(const Curve& mesh, const Curve& one, double tolerance) {
  ASSERT_EQ(mesh.losses.size(), one.losses.size());
  for (size_t i = 0; i < one.losses.size(); ++i) {
    EXPECT_LT(relative_error(mesh.losses[i], one.losses[i]), tolerance) << "loss of step " << i + 1;
    EXPECT_LT(relative_error(mesh.grad_norms[i], one.grad_norms[i]), 20 * tolerance)
        << "norm of step " << i + 1;
  }
  EXPECT_LT(relative_error(mesh.balances, one.balances), tolerance) << "balance of the experts";
  EXPECT_LT(relative_error(mesh.router_sizes, one.router_sizes), tolerance) << "logits of the routers";
  EXPECT_LT(relative_error(*mesh.valid_loss, *one.valid_loss), tolerance) << "validation";
}

}  // namespace

std::string name_of(const MatrixMesh& mesh) {
  const std::string exchange =
      mesh.exchange == ContextExchange::AllGather ? "" : fmt::format("_{}", name_of(mesh.exchange));
  return fmt::format("pp{}_dp{}_cp{}{}_tp{}{}{}{}", mesh.pp, mesh.dp, mesh.cp, exchange, mesh.tp,
                     mesh.sequence_parallel ? "_sequence" : "",
                     mesh.ep > 1 ? fmt::format("_ep{}", mesh.ep) : "",
                     mesh.etp > 1 ? fmt::format("_etp{}", mesh.etp) : "") +
         (mesh.dispatch == TokenDispatcher::AllGather ? "_gathered" : "");
}

namespace {

// Samples of few tokens, in which 0 ends a document.
class FewTokens final : public Samples {
 public:
  explicit FewTokens(const DataSource& data) : data_(data) {}
  int64_t count() const override { return data_.samples(); }
  void read(int64_t index, std::span<int32_t> out) const override {
    const auto length = static_cast<int64_t>(out.size()) - 1;
    BatchBuffer buffer(1, length);
    Batch batch = buffer.batch();
    data_.read(batch, index);
    std::copy_n(batch.tokens.as<int32_t>(), length, out.begin());
    out.back() = batch.labels.as<int32_t>()[length - 1];
  }

 private:
  const DataSource& data_;
};

Curve curve_of(const PretrainConfig& config, bool documents) {
  if (!documents) return train_and_evaluate(config);
  const std::unique_ptr<DataSource> tokens = few_tokens(config.model);
  const SampleSource data(
      std::make_unique<FewTokens>(*tokens), config.model.seq_length,
      {.end = 0, .mask_loss = true, .restart_positions = true, .separate_attention = true});
  return train(config, data, {.evaluate = true});
}

std::string kind_of(const MatrixModel& model) {
  if (model.bert) return "bert";
  if (model.experts > 0) return fmt::format("{} experts", model.experts);
  if (model.key_heads > 0) return fmt::format("llama with {} key heads", model.key_heads);
  if (model.head_parts > 1) return fmt::format("head in {} parts", model.head_parts);
  return model.tied ? "tied" : "untied";
}

}  // namespace

std::string name_of(const MatrixCase& c) {
  return fmt::format("{} {} chunks {} micros {} layers {} dropout {} {} {}{} recompute {} zero {}",
                     name_of(c.mesh), c.schedule, c.chunks, c.micros, c.model.layers, c.model.dropout,
                     c.model.f64 ? "f64" : "f32", kind_of(c.model), c.model.documents ? " documents" : "",
                     name_of(c.recompute), c.zero_stage);
}

const Curve& Matrix::reference(const MatrixCase& c, const MatrixMesh& mesh) {
  const Key key{mesh.dp,
                mesh.cp,
                mesh.exchange,
                mesh.ep,
                mesh.etp,
                mesh.tp,
                mesh.sequence_parallel,
                c.micros * c.mesh.dp,
                c.model.layers,
                c.model.dropout,
                c.model.f64,
                c.model.tied,
                c.model.key_heads,
                c.model.bert,
                c.model.experts,
                c.model.head_parts,
                c.model.positions,
                c.model.documents,
                steps_of(c)};
  const auto found = known_.find(key);
  if (found != known_.end()) return found->second;
  return known_.emplace(key, curve_of(config_of(c, mesh), c.model.documents)).first->second;
}

void Matrix::check(const MatrixCase& c) {
  SCOPED_TRACE(name_of(c));
  PretrainConfig config = scheduled(config_of(c, c.mesh), c.schedule, c.chunks);
  config.mesh.recompute_granularity = c.recompute;
  config.zero.zero_stage = c.zero_stage;
  config.mesh.device = device_;
  Curve curve;
  ASSERT_NO_THROW(curve = curve_of(config, c.model.documents));
  ASSERT_EQ(curve.losses.size(), static_cast<size_t>(steps_of(c)));
  MatrixCase whole = c;
  whole.model.head_parts = 1;
  const Curve& one = reference(whole, {});
  expect_close(curve, one, c.model.f64 ? 1e-11 : 2e-5);
  expect_bits(curve, reference(c, {1, c.mesh.dp, c.mesh.tp, c.mesh.sequence_parallel, c.mesh.cp,
                                   c.mesh.exchange, c.mesh.ep, c.mesh.etp}));
  // A few steps of a model with dropout need not show it.
  if (kWhole && c.steps == 0) {
    EXPECT_LT(curve.losses.back(), 0.95 * curve.losses.front()) << "nothing was learnt";
  }
}

}  // namespace trifold::test
