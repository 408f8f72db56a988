// The rules of mixtures of experts: their router, their capacity, and the ranks that share them.
#include <gtest/gtest.h>

#include "config/commands/validate.h"
#include "unit/config_validate_testing.h"

namespace trifold {
namespace {

void set_experts(PretrainConfig& config, int64_t count) {
  config.model.num_experts = count;
  config.model.disable_bias_linear = true;
}

// Two ranks of each stage share experts, and halves of pairs take turns.
void turns(PretrainConfig& config, int stages, const char* schedule) {
  set_experts(config, 4);
  config.model.num_layers = 4;
  config.mesh.ranks = 2 * stages;
  config.mesh.pipeline_model_parallel_size = stages;
  config.mesh.expert_model_parallel_size = 2;
  config.mesh.overlap_moe_expert_parallel_comm = true;
  config.pipeline.schedule = ScheduleChoice::parse(schedule);
  if (stages > 1) config.pipeline.num_virtual_stages_per_pipeline_rank = 2;
  config.batch.global_batch_size = 64;
}

const std::vector<ValidateCase>& expert_cases() {
  using C = PretrainConfig;
  static const std::vector<ValidateCase> kCases = {
      {"--moe-router-topk 3 has no effect without --num-experts N",
       [](C& c) { c.model.moe_router_topk = 3; }},
      {"--moe-aux-loss-coeff 0.01 has no effect without --num-experts N",
       [](C& c) { c.model.moe_aux_loss_coeff = 0.01; }},
      {"--moe-router-topk 5 is more than --num-experts 4",
       [](C& c) { set_experts(c, 4), c.model.moe_router_topk = 5; }},
      {"--moe-router-topk 2 is more than --num-experts 1: give more experts, or leave out --num-experts, so that one "
       "network computes all tokens",
       [](C& c) { set_experts(c, 1); }},
      {"--num-experts 1 trains no router: the softmax over one expert is always 1 and has no gradient: give more "
       "experts, --moe-router-score-function sigmoid, or leave out --num-experts",
       [](C& c) { set_experts(c, 1), c.model.moe_router_topk = 1, c.model.moe_router_pre_softmax = true; }},
      {"--moe-router-pre-softmax has no effect with --moe-router-score-function sigmoid",
       [](C& c) {
         set_experts(c, 4);
         c.model.moe_router_pre_softmax = true, c.model.moe_router_score_function = RouterScore::Sigmoid;
       }},
      {"--moe-router-topk 1 trains no router: the softmax over one chosen expert is always 1 and has no "
       "gradient: "
       "give --moe-router-pre-softmax",
       [](C& c) { set_experts(c, 4), c.model.moe_router_topk = 1; }},
      {"--moe-router-bias-update-rate 0.01 has no effect without --moe-router-enable-expert-bias",
       [](C& c) {
         set_experts(c, 4);
         c.model.moe_router_bias_update_rate = 0.01;
       }},
      {"--moe-router-enable-expert-bias needs --moe-router-score-function sigmoid, because logits "
       "have no scale with which a bias is comparable",
       [](C& c) {
         set_experts(c, 4);
         c.model.moe_router_enable_expert_bias = true;
       }},
      {"--moe-router-enable-expert-bias has no effect without --num-experts N",
       [](C& c) { c.model.moe_router_enable_expert_bias = true; }},
      {"--moe-router-bias-update-rate 0.01 has no effect without --num-experts N",
       [](C& c) { c.model.moe_router_bias_update_rate = 0.01; }},
      {"--moe-expert-capacity-factor 1.25 has no effect without --num-experts N",
       [](C& c) { c.model.moe_expert_capacity_factor = 1.25; }},
      {"--moe-token-drop-policy position has no effect without --moe-expert-capacity-factor X, "
       "because no token is dropped",
       [](C& c) {
         set_experts(c, 4);
         c.model.moe_token_drop_policy = KeptChoices::FirstTokens;
       }},
      {"--moe-expert-capacity-factor 0 ",
       [](C& c) {
         set_experts(c, 4);
         c.model.moe_expert_capacity_factor = 0;
       }},
      {"--moe-router-load-balancing-type global_aux_loss is not possible with --schedule pipedream, whose global "
       "batches overlap: none has ended when the next begins: choose a synchronous schedule, or give seq_aux_loss",
       [](C& c) {
         set_experts(c, 4), c.model.moe_router_load_balancing_type = RouterBalance::GlobalAuxLoss;
         c.mesh.ranks = c.mesh.pipeline_model_parallel_size = 2;
         c.pipeline.schedule = ScheduleChoice::parse("pipedream"), c.optimizer.clip_grad = 0;
       }},
      {"--moe-input-jitter-eps 0.1 has no effect without --num-experts N",
       [](C& c) { c.model.moe_input_jitter_eps = 0.1; }},
      {"--moe-input-jitter-eps 1.5 ",
       [](C& c) {
         set_experts(c, 4);
         c.model.moe_input_jitter_eps = 1.5;
       }},
      {"--moe-router-force-load-balancing has no effect without --num-experts N",
       [](C& c) { c.model.moe_router_force_load_balancing = true; }},
      {"--moe-router-load-balancing-type aux_loss has no effect without --num-experts N",
       [](C& c) { c.model.moe_router_load_balancing_type = RouterBalance::AuxLoss; }},
      {"--moe-aux-loss-coeff 0.1 has no effect with --moe-router-load-balancing-type none: give seq_aux_loss, "
       "aux_loss or global_aux_loss",
       [](C& c) {
         set_experts(c, 4), c.model.moe_aux_loss_coeff = 0.1;
         c.model.moe_router_load_balancing_type = RouterBalance::None;
       }},
      {"--overlap-moe-expert-parallel-comm has no effect without --expert-model-parallel-size 2 or "
       "more, or --expert-tensor-parallel-size 2 or more, because no rows are exchanged between ranks",
       [](C& c) { c.mesh.overlap_moe_expert_parallel_comm = true; }},
      {"--overlap-moe-expert-parallel-comm has no effect with --pipeline-model-parallel-size 1: give more",
       [](C& c) { turns(c, 1, "1f1b"); }},
      {"--overlap-moe-expert-parallel-comm has no effect with --schedule zb-v, which pairs no forward with a backward: "
       "give --schedule dualpipe-v",
       [](C& c) { turns(c, 2, "zb-v"); }},
      {"--overlap-moe-expert-parallel-comm is not possible with --zero-stage 3",
       [](C& c) { turns(c, 2, "dualpipe-v"), c.zero.zero_stage = 3; }},
      {"--overlap-moe-expert-parallel-comm is not possible with --zero-reduce each",
       [](C& c) {
         turns(c, 2, "dualpipe-v"), c.zero.zero_stage = 2;
         c.zero.zero_reduce = ReducePolicy::Each;
       }},
      {"--moe-router-num-groups 2 has no effect without --moe-router-group-topk N",
       [](C& c) { set_experts(c, 4), c.model.moe_router_num_groups = 2; }},
      {"--num-experts 6 is not divisible by --moe-router-num-groups 4: 4 and 8 are",
       [](C& c) {
         set_experts(c, 6);
         c.model.moe_router_num_groups = 4, c.model.moe_router_group_topk = 1;
       }},
      {"--moe-router-group-topk 3 is more than --moe-router-num-groups 2: give at most 2",
       [](C& c) {
         set_experts(c, 4);
         c.model.moe_router_num_groups = 2, c.model.moe_router_group_topk = c.model.moe_router_topk = 3;
       }},
      {"--moe-router-topk 3 is not divisible by --moe-router-group-topk 2: 2 and 4 are",
       [](C& c) {
         set_experts(c, 8), c.model.moe_router_topk = 3;
         c.model.moe_router_num_groups = 4, c.model.moe_router_group_topk = 2;
       }},
      {"--moe-router-topk 4 is more than the 2 experts of --moe-router-group-topk 1 groups",
       [](C& c) {
         set_experts(c, 8), c.model.moe_router_topk = 4;
         c.model.moe_router_num_groups = 4, c.model.moe_router_group_topk = 1;
       }},
      {"--moe-layer-freq '[1,2]' has an entry other than 0 and 1 at character 4: give a number, or a list of one 0 "
       "or 1 for each of the 4 layers",
       [](C& c) {
         c.model.num_layers = 4, set_experts(c, 4);
         c.model.moe_layer_freq = "[1,2]";
       }},
      {"--moe-layer-freq [0]*4: no layer has experts",
       [](C& c) {
         c.model.num_layers = 4, set_experts(c, 4);
         c.model.moe_layer_freq = "[0]*4";
       }},
      {"--moe-layer-freq 2 has no effect without --num-experts N",
       [](C& c) { c.model.moe_layer_freq = "2"; }},
      {"--moe-shared-expert-gate has no effect without --moe-shared-expert-intermediate-size N",
       [](C& c) { set_experts(c, 4), c.model.moe_shared_expert_gate = true; }},
      {"--fp8 is not possible with --num-experts 4",
       [](C& c) {
         set_experts(c, 4);
         c.precision.bf16 = c.precision.fp8 = true, c.mesh.device = ComputeDevice::Cuda;
       }},
      {"--expert-model-parallel-size 2 has no effect without --num-experts N",
       [](C& c) { c.mesh.ranks = c.mesh.expert_model_parallel_size = 2; }},
      {"--num-experts 6 is not divisible by --expert-model-parallel-size 4: 4 and 8 are",
       [](C& c) {
         set_experts(c, 6);
         c.mesh.ranks = c.mesh.expert_model_parallel_size = 4;
       }},
      {"--expert-model-parallel-size 4 does not divide the 2 ranks of a pipeline stage, which are "
       "data-parallel: "
       "give a divisor of them",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = 2, c.mesh.expert_model_parallel_size = 4;
       }},
      {"--expert-tensor-parallel-size 2 has no effect without --num-experts N",
       [](C& c) { c.mesh.ranks = c.mesh.expert_tensor_parallel_size = 2; }},
      {"the width of the experts, 510, is not divisible by --expert-tensor-parallel-size 4: 508 and 512 are",
       [](C& c) {
         set_experts(c, 4), c.model.moe_ffn_hidden_size = 510;
         c.mesh.ranks = c.mesh.expert_tensor_parallel_size = 4;
       }},
      {"--expert-tensor-parallel-size 4 does not divide the 2 ranks of a pipeline stage, which are data-parallel: "
       "give a divisor of them",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = 2, c.mesh.expert_tensor_parallel_size = 4;
       }},
      {"--expert-model-parallel-size 2 x --expert-tensor-parallel-size 2 does not divide the 2 ranks of a pipeline "
       "stage, which are data-parallel: give divisors of them",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = c.mesh.expert_model_parallel_size = c.mesh.expert_tensor_parallel_size = 2;
       }},
      {"--enable-cuda-graph is not possible with --expert-model-parallel-size 2, because the host "
       "must know the number of rows before it can enqueue their exchange",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = c.mesh.expert_model_parallel_size = 2, c.mesh.device = ComputeDevice::Cuda;
         c.mesh.enable_cuda_graph = true;
       }},
      {"tokens may give the experts of a rank more than 2147483647 rows: "
       "--moe-router-topk 2, --num-experts 4",
       [](C& c) {
         set_experts(c, 4);
         c.batch.micro_batch_size = int64_t{1} << 26, c.batch.global_batch_size.reset();
       }},
      {"tokens on 2 tensor ranks may give the experts of a rank more than 2147483647 rows",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 2, c.mesh.sequence_parallel = true;
         c.batch.micro_batch_size = int64_t{1} << 26, c.batch.global_batch_size.reset();
       }},
      {"--expert-model-parallel-size 4, --moe-buffer-factor 3: give a smaller --micro-batch-size or "
       "--moe-buffer-factor",
       [](C& c) {
         set_experts(c, 8);
         c.mesh.ranks = c.mesh.expert_model_parallel_size = 4, c.mesh.moe_buffer_factor = 3;
         c.batch.micro_batch_size = int64_t{1} << 23, c.batch.global_batch_size.reset();
       }},
      {"does not divide them: give a --seq-length that 2 divides, or fewer tensor ranks: experts need",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 2, c.mesh.sequence_parallel = true;
         c.model.seq_length = 63, c.batch.micro_batch_size = 1;
       }},
      {"--grad-reduce-in-bf16 is not possible with one data-parallel rank, where only tensor ranks sum",
       [](C& c) {
         set_experts(c, 4);
         c.precision.grad_reduce_in_bf16 = true;
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 2, c.mesh.sequence_parallel = true;
       }},
      {"--num-experts 4 needs --sequence-parallel with --tensor-model-parallel-size 2, because "
       "without it all tensor ranks would compute the experts of the same tokens",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 2;
       }},
      {"--moe-shared-expert-intermediate-size 510 is not divisible by --tensor-model-parallel-size 4",
       [](C& c) {
         set_experts(c, 4);
         c.model.ffn_hidden_size = 513;  // of experts, which are not cut
         c.model.moe_shared_expert_intermediate_size = 510;
         c.mesh.ranks = c.mesh.tensor_model_parallel_size = 4, c.mesh.sequence_parallel = true;
       }},
      {"--expert-model-parallel-size 4 does not divide the 2 ranks of a pipeline stage, tensor 1 x context 2 x "
       "data 1: give a divisor of them",
       [](C& c) {
         set_experts(c, 4);
         c.mesh.ranks = c.mesh.context_parallel_size = 2, c.mesh.expert_model_parallel_size = 4;
       }},
  };
  return kCases;
}

TEST(ExpertRules, ReportEachMistakeOnceWithARemedy) { expect_reported(expert_cases()); }

TEST(ExpertRules, ARankMayGetAsManyRowsAsItsBufferHas) {
  PretrainConfig config = sound();
  set_experts(config, 8);
  config.mesh.ranks = config.mesh.tensor_model_parallel_size = 2;
  config.mesh.sequence_parallel = true;
  config.batch.micro_batch_size = int64_t{1} << 24;  // 2^30 tokens, half of them on each tensor rank
  EXPECT_EQ(texts_of(problems(config)), Words{});
  config.mesh.ranks = config.mesh.expert_model_parallel_size = 4;
  config.mesh.tensor_model_parallel_size = 1;
  config.mesh.sequence_parallel = false;
  config.batch.micro_batch_size = int64_t{1} << 23;
  EXPECT_EQ(texts_of(problems(config)).size(), 1U);
  config.mesh.moe_buffer_factor = 1.5;
  EXPECT_EQ(texts_of(problems(config)), Words{});
}

}  // namespace
}  // namespace trifold
