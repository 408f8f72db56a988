// Rules about batches, the learning rate, the optimizer, precision, data, checkpoints and evaluation.
#include "config/subjects/training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/files.h"
#include "unit/config_validate_testing.h"

namespace trifold {
namespace {

const std::vector<ValidateCase>& training_cases() {
  using C = PretrainConfig;
  static const double kNan = std::nan("");
  static const std::vector<ValidateCase> kCases = {
      {"--micro-batch-size needs a value", [](C& c) { c.batch.micro_batch_size = 0; }},
      {"--global-batch-size 10 is not a multiple of --micro-batch-size 4 "
       "x data parallel size 2 = 8: 8 and 16 are",
       [](C& c) { c.batch.global_batch_size = 10, c.mesh.ranks = 2; }},
      {"--train-iters needs a value: at least 1; or give --train-epochs",
       [](C& c) { c.batch.train_iters = 0; }},
      {"--train-iters 100 and --train-epochs 2 exclude each other", [](C& c) { c.batch.train_epochs = 2; }},
      {"--exit-interval 0", [](C& c) { c.batch.exit_interval = 0; }},
      {"--lr needs a value: above 0", [](C& c) { c.lr.lr = 0; }},
      {"--lr -1 is not possible: it must be above 0", [](C& c) { c.lr.lr = -1; }},
      {"--lr nan", [](C& c) { c.lr.lr = kNan; }},
      {"--lr inf", [](C& c) { c.lr.lr = std::numeric_limits<double>::infinity(); }},
      {"--min-lr 0.01 is more than --lr 0.001: give at most 0.001", [](C& c) { c.lr.min_lr = 0.01; }},
      {"--lr-warmup-init 1 is more than --lr 0.001",
       [](C& c) { c.lr.lr_warmup_init = 1, c.lr.lr_warmup_iters = 2; }},
      {"--lr-warmup-iters 100 is not below --lr-decay-iters 100 (taken from --train-iters): give at most 99",
       [](C& c) { c.lr.lr_warmup_iters = 100; }},
      {"--lr-warmup-iters 60 is not below --lr-decay-iters 50: give at most 49",
       [](C& c) { c.lr.lr_warmup_iters = 60, c.lr.lr_decay_iters = 50; }},
      {"--lr-warmup-fraction 0.1 is not possible with --lr-warmup-iters 5",
       [](C& c) { c.lr.lr_warmup_iters = 5, c.lr.lr_warmup_fraction = 0.1; }},
      {"--lr-warmup-fraction 1", [](C& c) { c.lr.lr_warmup_fraction = 1; }},
      {"--lr-decay-style WSD needs --lr-wsd-decay-iters",
       [](C& c) { c.lr.lr_decay_style = LrDecayStyle::Wsd; }},
      {"--lr-wsd-decay-iters 101 is more than --lr-decay-iters 100",
       [](C& c) { c.lr.lr_decay_style = LrDecayStyle::Wsd, c.lr.lr_wsd_decay_iters = 101; }},
      {"--lr-wsd-decay-iters 5 has no effect", [](C& c) { c.lr.lr_wsd_decay_iters = 5; }},
      {"--lr-wsd-decay-style linear has no effect without --lr-decay-style WSD: give both, or "
       "neither",
       [](C& c) { c.lr.lr_wsd_decay_style = WsdDecayStyle::Linear; }},
      {"--min-lr 0.0001 has no effect with --lr-decay-style constant",
       [](C& c) { c.lr.lr_decay_style = LrDecayStyle::Constant, c.lr.min_lr = 1e-4; }},
      {"--adam-beta1 0.8 has no effect without --optimizer adam or lamb or muon: give both, or neither",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Sgd, c.optimizer.adam_beta1 = 0.8; }},
      {"--sgd-momentum 0 has no effect without --optimizer sgd or lars: give both, or neither",
       [](C& c) { c.optimizer.sgd_momentum = 0; }},
      {"--muon-momentum 0.9 has no effect without --optimizer muon: give both, or neither",
       [](C& c) { c.optimizer.muon_momentum = 0.9; }},
      {"--muon-num-ns-steps 0 is not possible",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Muon, c.optimizer.muon_num_ns_steps = 0; }},
      {"--optimizer muon with --offload /disk is not possible, because an update streams files through windows",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Muon, c.zero.offload = Offload::parse("/disk"); }},
      {"--exp-avg-dtype bf16 has no effect without --optimizer adam",
       [](C& c) {
         c.optimizer.optimizer = OptimizerKind::Muon, c.optimizer.exp_avg_dtype = MomentType::Bf16;
       }},
      {"--exp-avg-sq-dtype bf16 is not possible with --f64",
       [](C& c) { c.precision.f64 = true, c.optimizer.exp_avg_sq_dtype = MomentType::Bf16; }},
      {"--wd-mult *=2 has no effect without --weight-decay above 0",
       [](C& c) {
         c.optimizer.weight_decay = 0, c.optimizer.wd_mult = {{"*", 2}};
       }},
      {"--ema 1 is not possible", [](C& c) { c.optimizer.ema = 1; }},
      {"--ema 0.9 is not possible with --no-save-optim, because the average is saved with the optimizer state",
       [](C& c) {
         c.optimizer.ema = 0.9, c.checkpoint.save = "x", c.checkpoint.save_interval = 1;
         c.checkpoint.no_save_optim = true;
       }},
      {"--adagrad-eps 1e-08 has no effect without --optimizer adagrad",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Lamb, c.optimizer.adagrad_eps = 1e-8; }},
      {"--sgd-momentum 1 is not possible",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Sgd, c.optimizer.sgd_momentum = 1; }},
      {"--adagrad-eps 0 is not possible",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Adagrad, c.optimizer.adagrad_eps = 0; }},
      {"--optimizer lamb needs --weight-decay above 0",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Lamb, c.optimizer.weight_decay = 0; }},
      {"--optimizer lars needs --weight-decay above 0, because parameters without decay have no local rate",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Lars, c.optimizer.weight_decay = 0; }},
      {"--lars-eta 0.002 has no effect without --optimizer lars: give both, or neither",
       [](C& c) { c.optimizer.lars_eta = 0.002; }},
      {"--lars-eps 0.1 has no effect without --optimizer lars: give both, or neither",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Sgd, c.optimizer.lars_eps = 0.1; }},
      {"--lars-eta 0 is not possible",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Lars, c.optimizer.lars_eta = 0; }},
      {"--lars-eps -1 is not possible",
       [](C& c) { c.optimizer.optimizer = OptimizerKind::Lars, c.optimizer.lars_eps = -1; }},
      {"--fp16 is not possible with --bf16", [](C& c) { c.precision.bf16 = c.precision.fp16 = true; }},
      {"--f64 is not possible with --fp16", [](C& c) { c.precision.f64 = c.precision.fp16 = true; }},
      {"--loss-scale 8 has no effect without --fp16, or --bf16", [](C& c) { c.precision.loss_scale = 8; }},
      {"--loss-scale 0 is not possible", [](C& c) { c.precision.fp16 = true, c.precision.loss_scale = 0; }},
      {"--hysteresis 3 has no effect with --loss-scale 8",
       [](C& c) { c.precision.fp16 = true, c.precision.loss_scale = 8, c.precision.hysteresis = 3; }},
      {"--loss-scale-window 3 has no effect without --fp16", [](C& c) { c.precision.loss_scale_window = 3; }},
      {"--hysteresis 0 is not possible", [](C& c) { c.precision.fp16 = true, c.precision.hysteresis = 0; }},
      {"--initial-loss-scale 2 is less than --min-loss-scale 4",
       [](C& c) {
         c.precision.fp16 = true, c.precision.initial_loss_scale = 2, c.precision.min_loss_scale = 4;
       }},
      {"--weight-decay -1", [](C& c) { c.optimizer.weight_decay = -1; }},
      {"--clip-grad -1", [](C& c) { c.optimizer.clip_grad = -1; }},
      {"--adam-beta1 1", [](C& c) { c.optimizer.adam_beta1 = 1; }},
      {"--adam-beta2 1.5", [](C& c) { c.optimizer.adam_beta2 = 1.5; }},
      {"--adam-eps 0", [](C& c) { c.optimizer.adam_eps = 0; }},
      {"--data-path needs a value", [](C& c) { c.data.data_path.clear(); }},
      {"--data-path needs a value", [](C& c) { c.data.data_path = {""}; }},
      {"all weights are 0",
       [](C& c) {
         c.data.data_path = {"0", "a", "0", "b"};
       }},
      {"'b' is in the place of the weight of 'c'",
       [](C& c) {
         c.data.data_path = {"1", "a", "b", "c"};
       }},
      {"the weight -1 of 'a' is negative",
       [](C& c) {
         c.data.data_path = {"-1", "a", "2", "b"};
       }},
      {"--split 'x' is not possible", [](C& c) { c.data.split = std::string("x"); }},
      {"--split '1,1,1,1' is not possible", [](C& c) { c.data.split = std::string("1,1,1,1"); }},
      {"--split '0,0' is not possible", [](C& c) { c.data.split = std::string("0,0"); }},
      {"--split '2,-1' is not possible", [](C& c) { c.data.split = std::string("2,-1"); }},
      {"training needs data, but --split 0,1,0 leaves none",
       [](C& c) { c.data.split = std::string("0,1,0"); }},
      {"--tokenizer-type sentencepiece needs --tokenizer-model",
       [](C& c) { c.data.tokenizer_type = TokenizerType::SentencePiece; }},
      {"--tokenizer-model m has no effect", [](C& c) { c.data.tokenizer_model = std::string("m"); }},
      {"--save-interval 0",
       [](C& c) { c.checkpoint.save = std::string("d"), c.checkpoint.save_interval = 0; }},
      {"--save is empty", [](C& c) { c.checkpoint.save = std::string(""); }},
      {"--load is empty", [](C& c) { c.checkpoint.load = std::string(""); }},
      {"--save-best has no effect without --save DIR",
       [](C& c) { c.checkpoint.save_best = true, c.eval.eval_interval = 5; }},
      {"--auto-resume has no effect without --save DIR", [](C& c) { c.checkpoint.auto_resume = true; }},
      {"--check-replicas -1 is not possible", [](C& c) { c.checkpoint.check_replicas = -1; }},
      {"--exit-duration-in-mins 0 is not possible", [](C& c) { c.batch.exit_duration_in_mins = 0.0; }},
      {"--check-overlap 3 has no effect without --ranks 2 or more, or --device cuda, because with "
       "one rank on a CPU nothing overlaps",
       [](C& c) { c.log.check_overlap = 3; }},
      {"--lr-decay-iters 50 has no effect with --lr-decay-style constant",
       [](C& c) { c.lr.lr_decay_style = LrDecayStyle::Constant, c.lr.lr_decay_iters = 50; }},
      {"--lr-warmup-init 0.0001 has no effect without --lr-warmup-iters 1 or more, or "
       "--lr-warmup-fraction above 0, or --lr-warmup-samples 1 or more, which are the warm-up",
       [](C& c) { c.lr.lr_warmup_init = 1e-4; }},
      {"--eval-interval -3", [](C& c) { c.eval.eval_interval = -3; }},
      {"--eval-interval needs data, but --split 1,0,0 leaves none",
       [](C& c) { c.eval.eval_interval = 5, c.data.split = std::string("1,0,0"); }},
      {"--log-interval 0", [](C& c) { c.log.log_interval = 0; }},
  };
  return kCases;
}

TEST(ConfigValidateTraining, ReportsEachMistakeOnceWithARemedy) { expect_reported(training_cases()); }

// A resolved configuration is one that a user might have given: it can be resolved again.
TEST(ConfigValidateTraining, AConstantRateHasNoEndOfDecay) {
  PretrainConfig config = sound();
  config.lr.lr_decay_style = LrDecayStyle::Constant;
  const PretrainConfig full = resolve(config);
  EXPECT_FALSE(full.lr.lr_decay_iters);
  EXPECT_EQ(texts_of(problems(full)), Words{});
  config.lr.lr_warmup_fraction = 0.1;
  EXPECT_EQ(texts_of(problems(resolve(config))), Words{});
  config.lr.lr_decay_iters = 50;
  EXPECT_EQ(texts_of(problems(config)), Words{});  // the warm-up is a tenth of them
}

TEST(ConfigValidateTraining, NoEvaluationIsPossible) {
  PretrainConfig config = sound();
  config.eval.eval_iters = 0;
  EXPECT_EQ(texts_of(problems(config)), Words{});
}

TEST(ConfigValidateTraining, EpochsDetermineTheLength) {
  PretrainConfig config = sound();
  config.batch.train_iters = 0;
  config.batch.train_epochs = 2;
  config.lr.lr_warmup_iters = 30;
  const PretrainConfig open = resolve(config);
  EXPECT_EQ(open.batch.train_iters, 0);
  EXPECT_FALSE(open.lr.lr_decay_iters);
  const PretrainConfig known = resolve_length(open, 4 * 40 + 1, {});
  EXPECT_EQ(known.batch.train_iters, 41);
  EXPECT_EQ(known.batch.pass_samples, 161);
  EXPECT_EQ(known.lr.lr_decay_iters, 41);
  EXPECT_EQ(resolve_length(open, 161, {10, 38}).batch.train_iters, 10 + 31);  // resumed after a short batch
  try {
    resolve_length(open, 4 * 30, {});
    ADD_FAILURE() << "warm-up is longer than the run";
  } catch (const Error& error) {
    expect_contains(error.what(), "--lr-warmup-iters 30 is not below --lr-decay-iters 30");
  }
}

TEST(ParamFactor, IsAPatternAndAFactor) {
  EXPECT_EQ(ParamFactor::parse("*.bias=0.5"), (ParamFactor{"*.bias", 0.5}));
  EXPECT_EQ(ParamFactor::parse("a=b=2").pattern, "a=b");
  EXPECT_EQ(ParamFactor::parse("*=0").text(), "*=0");
  for (const char* text : {"", "*", "=2", "*=", "*=x", "*=-1", "*=inf", "*=nan"})
    EXPECT_NE(test::error_of([&] { ParamFactor::parse(text); }).find("give a pattern of names"),
              std::string::npos)
        << text;
}

}  // namespace
}  // namespace trifold
