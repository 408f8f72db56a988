#include "config/command_line/command_line.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "config/commands/validate.h"
#include "unit/config_testing.h"

namespace trifold {
namespace {

TEST(ConfigCommandLine, ReadsAllSpellings) {
  const PretrainConfig config =
      pretrain({"--dp=2", "--ranks", "2", "--min_lr", "1e-4", "--f64", "--lr-decay-style", "cosine", "--seed",
                "18446744073709551615", "--clip_grad=0.5"});
  EXPECT_EQ(config.model.num_layers, 4);
  EXPECT_EQ(config.mesh.data_parallel_size, 2);
  EXPECT_EQ(config.lr.min_lr, 1e-4);
  EXPECT_TRUE(config.precision.f64);
  EXPECT_EQ(config.lr.lr_decay_style, LrDecayStyle::Cosine);
  EXPECT_EQ(config.seed, 18446744073709551615u);
  EXPECT_EQ(config.optimizer.clip_grad, 0.5);
  EXPECT_EQ(config.data.data_path, Words{"t.txt"});
  EXPECT_FALSE(pretrain({"--f64=false"}).precision.f64);
  const auto wsd =
      pretrain({"--lr-decay-style", "wsd", "--lr-wsd-decay-iters=5", "--lr-wsd-decay-style", "minus-sqrt"});
  EXPECT_EQ(wsd.lr.lr_decay_style, LrDecayStyle::Wsd);
  EXPECT_EQ(wsd.lr.lr_wsd_decay_style, WsdDecayStyle::MinusSqrt);
}

TEST(ConfigCommandLine, ARecommenderRemembersItsGivenOptions) {
  const TemporaryFile file("optimizer = sgd\ndropout = 0.5\nseed = 5\n");
  const auto run = std::get<RecommendConfig>(
      read({"recommend", "--config", file.path(), "--load", "d", "--seed", "6", "--embedding-dim", "16"}));
  EXPECT_EQ(run.given, (std::set<std::string>{"load", "seed", "embedding-dim"}));
  const auto plan = std::get<PlanRecommenderConfig>(
      read({"plan-recommender", "--table-rows", "5", "--load", "d", "--pooling", "sum"}));
  EXPECT_EQ(plan.run.given, (std::set<std::string>{"table-rows", "load", "pooling"}));
}

// Its model is checked when it is known from which checkpoint it comes.
TEST(ConfigCommandLine, ChecksTheModelOfARecommenderThatBeginsAnewOnly) {
  expect_contains(refusal_of({"recommend", "--eps", "1e-6"}),
                  "--eps 1e-06 has no effect without --optimizer adagrad or adam, or --embedding-optimizer "
                  "adagrad or rowwise-adagrad or adam");
  EXPECT_EQ(
      model_problems(std::get<RecommendConfig>(read({"recommend", "--eps", "1e-6", "--load", "d"}))).size(),
      1U);
  EXPECT_EQ(model_problems(std::get<RecommendConfig>(
                               read({"recommend", "--eps", "1e-6", "--save", "d", "--auto-resume"})))
                .size(),
            1U);
}

TEST(ConfigCommandLine, ReadsEveryCommand) {
  const auto generate = std::get<GenerateConfig>(
      read({"generate", "--load", "d", "--prompt", "-h # _x", "--top-k", "5", "--temperature", "0.5"}));
  EXPECT_EQ(generate.prompt, "-h # _x");
  EXPECT_EQ(generate.top_k, 5);
  EXPECT_EQ(std::get<GenerateConfig>(read({"generate", "--load=d", "--prompt=--top_k"})).prompt, "--top_k");
  const auto evaluate = std::get<EvaluateConfig>(
      read({"evaluate", "--load", "d", "--data-path", "0.3", "a", "0.7", "b", "--part", "test"}));
  EXPECT_EQ(evaluate.data.data_path, (Words{"0.3", "a", "0.7", "b"}));
  EXPECT_EQ(evaluate.part, Split::Test);
  EXPECT_FALSE(evaluate.eval_iters);  // one pass
  for (const Words& words :
       {Words{"inspect", "d", "--verify", "--diff", "e"}, {"inspect", "--verify", "--diff", "e", "d"}}) {
    const auto inspect = std::get<InspectConfig>(read(words));
    EXPECT_EQ(inspect.directory, "d");
    EXPECT_TRUE(inspect.verify);
    EXPECT_EQ(inspect.diff, "e");
  }
  const auto bench = std::get<BenchConfig>(read({"bench", "--what", "gemm,comm", "--iters", "3"}));
  EXPECT_EQ(bench.what, (std::vector<BenchPart>{BenchPart::Gemm, BenchPart::Comm}));
  EXPECT_EQ(bench.run.model.hidden_size, 768);
  EXPECT_EQ(bench.run.batch.train_iters, 5);
  const auto plan = std::get<PlanConfig>(
      read({"plan", "--num-layers", "4", "--hidden-size", "8", "--num-attention-heads", "2", "--seq-length",
            "8", "--vocab-size", "10", "--micro-batch-size", "1", "--svg", "a.svg", "--memory-limit", "40"}));
  EXPECT_EQ(plan.svg, "a.svg");
  EXPECT_EQ(plan.run.mesh.memory_limit, 40);
  EXPECT_EQ(plan.run.pipeline.schedule.value().text(), "1f1b");
  const auto tokenize = std::get<TokenizeConfig>(read(
      {"tokenize", "--input", "a", "--output-prefix", "b", "--json-keys", "title", "text", "--append-eod"}));
  EXPECT_EQ(tokenize.json_keys, (Words{"title", "text"}));
  EXPECT_TRUE(tokenize.append_eod);
}

TEST(ConfigCommandLine, NamesTheNearestOption) {
  expect_contains(refusal_of(complete() + Words{"--num-layer", "4"}),
                  "unknown option --num-layer: the nearest known option is --num-layers");
  expect_contains(refusal_of(complete() + Words{"--laod", "x"}), "is --load");
  expect_contains(refusal_of(complete() + Words{"--hidden", "3"}), "is --hidden-size");  // no guessing
  expect_contains(refusal_of(complete() + Words{"--t", "1"}), "unknown option --t");
  const std::string text = refusal_of(complete() + Words{"--bogus-thing", "17"});
  expect_contains(text, "unknown option --bogus-thing");
  expect_contains(refusal_of(complete() + Words{"--output-format", "csv"}),
                  "unknown option --output-format: it is an option of trifold score");
  expect_contains(
      refusal_of({"inspect", "d", "--table-rows", "3"}),
      "unknown option --table-rows: it is an option of trifold rehearse-recommender, trifold recommend, "
      "trifold plan-recommender");
  expect_lacks(text, "17");
}

TEST(ConfigCommandLine, DistinguishesAGivenZeroFromAMissingValue) {
  expect_contains(refusal_of(complete() + Words{"--ffn-hidden-size", "0", "--log-interval", "0"}),
                  "2 problems");
  expect_contains(refusal_of({"evaluate"}), "--load needs a value: DIR");
  expect_contains(refusal_of({"pretrain", "--train-iters", "0"}),
                  "--train-iters 0 is not possible: it must be at least 1");
  expect_contains(refusal_of({"pretrain"}),
                  "--train-iters needs a value: at least 1; or give --train-epochs");
}

// The value is the default, so only the command line can know that it was given.
TEST(ConfigCommandLine, RejectsOptionsThatTheOptimizerDoesNotUse) {
  for (const std::string value : {"0.9", "0.8"}) {
    const std::string once = "--adam-beta1 " + value + " has no effect without --optimizer adam or lamb";
    const std::string text = refusal_of(complete() + Words{"--optimizer", "sgd", "--adam-beta1", value});
    expect_contains(text, once);
    expect_lacks(text, "problems");
  }
  expect_contains(refusal_of(complete() + Words{"--sgd-momentum", "0.9"}),
                  "--sgd-momentum 0.9 has no effect without --optimizer sgd or lars");
  expect_contains(refusal_of({"plan", "--num-layers", "2", "--hidden-size", "8", "--num-attention-heads", "2",
                              "--seq-length", "8", "--vocab-size", "64", "--micro-batch-size", "1",
                              "--optimizer", "adagrad", "--adam-eps", "1e-8"}),
                  "--adam-eps 1e-08 has no effect without --optimizer adam or lamb");
  // If the optimizer itself is wrong, its options are not reported.
  expect_lacks(refusal_of(complete() + Words{"--optimizer", "sdg", "--sgd-momentum", "0.9"}), "no effect");
  const PretrainConfig config = pretrain({"--optimizer", "sgd", "--sgd-momentum", "0"});
  EXPECT_EQ(config.optimizer.optimizer, OptimizerKind::Sgd);
  EXPECT_EQ(config.optimizer.sgd_momentum, 0);
}

TEST(ConfigCommandLine, ListsAllowedValues) {
  const std::string text = refusal_of(complete() + Words{"--lr-decay-style", "cosin"});
  expect_contains(text, "did you mean 'cosine'");
  expect_contains(text, "constant, linear, cosine, inverse-square-root, WSD");
  expect_contains(refusal_of({"bench", "--what", "step,com"}), "step, gemm, attention, comm");
  expect_contains(refusal_of({"bench", "--what", "step,"}), "'' is not known");
  const auto refused = [](const char* name, const char* value) {
    return refusal_of(complete() + Words{name, value});
  };
  expect_contains(refused("--model-type", "roberta"), "--model-type 'roberta' is not known");
  expect_contains(refused("--device", "cpu,cuda"), "--device 'cpu,cuda' is not known");
  expect_contains(refused("--optimizer", "shampoo"), "--optimizer 'shampoo' is not known");
  expect_contains(refused("--optimizer", "shampoo"), "give one of adam, lamb, lars, sgd, adagrad, muon");
  expect_contains(refused("--zero-group-size", "nodes"),
                  "--zero-group-size 'nodes' is not possible: give a number of ranks, at least 1, or node");
  expect_contains(refused("--zero-group-size", "0"), "--zero-group-size '0' is not possible");
  expect_contains(refused("--offload", ""), "--offload names no folder: give one, or none");
  expect_contains(refused("--schedule", ""), "--schedule is empty");
  const std::string schedule = refused("--schedule", "zbv");
  expect_contains(
      schedule, "--schedule 'zbv' is not known (did you mean 'zb-v'?): give one of gpipe, 1f1b, interleaved");
  expect_contains(schedule, "or a file of actions whose name ends in .csv");
}

TEST(ConfigCommandLine, RefusesMalformedValues) {
  const auto value = [](const std::string& name, const std::string& text) {
    return refusal_of(without_lr() + (name == "--lr" ? Words{} : Words{"--lr", "1"}) + Words{name, text});
  };
  expect_contains(value("--log-interval", "12x"), "--log-interval '12x' is not a whole number");
  expect_contains(value("--lr", "nan"), "--lr 'nan' is not a finite number");
  expect_contains(value("--lr", "1e400"), "--lr '1e400' is outside the range");
  expect_contains(value("--exit-interval", "9223372036854775808"), "too large");
  expect_contains(value("--exit-interval", "9223372036854775807"), "must be from 1 to 1000000000000");
  expect_contains(value("--seed", "-1"), "negative");
  expect_contains(value("--lr", "-0.5"), "--lr -0.5 is not possible: it must be above 0");
  expect_contains(value("--threads-per-rank", "0"), "must be from 1");
  expect_contains(refusal_of(complete() + Words{"--f64=maybe"}), "neither true nor false");
  expect_contains(refusal_of(complete() + Words{"--f64", "true"}), "'true' belongs to no option");
}

TEST(ConfigCommandLine, RefusesMissingRepeatedAndStrayWords) {
  expect_contains(refusal_of(complete() + Words{"--min-lr"}), "--min-lr needs a value");
  expect_contains(refusal_of(complete() + Words{"--min_lr="}), "--min-lr has no value");
  expect_contains(refusal_of(without_lr() + Words{"--lr", "--min-lr", "3"}),
                  "--lr needs a value, but --min-lr follows");
  expect_contains(refusal_of(complete() + Words{"--lr", "2"}), "--lr is given twice");
  expect_contains(refusal_of(complete() + Words{"--tp", "1", "--tensor_model_parallel_size=2"}),
                  "--tensor-model-parallel-size is given twice");
  expect_contains(refusal_of(complete() + Words{"--data-path", "x"}), "with all its values after it");
  expect_contains(refusal_of(complete() + Words{"--f64", "--f64=false"}), "--f64 is given twice");
  expect_contains(refusal_of(complete() + Words{"--f64", "stray"}), "'stray' belongs to no option");
  expect_contains(refusal_of({"inspect", "a", "b"}), "--diff OTHER");
  expect_contains(refusal_of({"inspect", "--verify"}), "trifold inspect DIR");
}

TEST(ConfigCommandLine, ReportsEveryProblemAtOnceAndNoneTwice) {
  const std::string text =
      refusal_of({"pretrain", "--num-layer", "4", "--hidden-size", "130", "--num-attention-heads", "4",
                  "--lr", "abc", "--fp8-recipe", "mxfp8", "--seq-length", "8", "--data-path", "x",
                  "--train-iters", "3", "--hidden-dropout", "1"});
  expect_contains(text, "6 problems:");
  expect_contains(text, "unknown option --num-layer");
  expect_contains(text, "--lr 'abc'");
  expect_contains(text, "--fp8-recipe mxfp8 is not available");
  expect_contains(text, "--hidden-size 130 is not divisible by --num-attention-heads 4: 128 and 132 are");
  expect_contains(text, "--micro-batch-size needs a value");
  expect_contains(text, "--hidden-dropout 1 is not possible: it must be at least 0 and below 1");
  expect_lacks(text, "--num-layers needs");
  expect_lacks(text, "--lr needs");
}

TEST(ConfigCommandLine, RefusesOtherCommands) {
  expect_contains(refusal_of({}), "name a command");
  expect_contains(refusal_of({"pretrian"}), "the nearest known command is pretrain");
  expect_contains(refusal_of({""}), "pretrain, finetune, generate");
  expect_contains(refusal_of({"--num-layers", "3", "pretrain"}), "name the command before its options");
  expect_contains(refusal_of({"completion"}), "trifold completion bash");
  expect_contains(refusal_of({"completion", "zsh"}), "bash only");
  expect_contains(refusal_of({"man-page", "plan"}), "takes no arguments, 'plan' was given");
}

TEST(ConfigCommandLine, ReadsFilesAndLetsTheCommandLineWin) {
  const TemporaryFile file(
      "lr = 0.5\nmin_lr = 0.25 # half\n[data]\ndata-path = 0.3 a 0.7 \"b c\"\nf64 = true\n");
  Words words = without_lr();
  words.resize(words.size() - 2);  // without --data-path
  const auto config =
      std::get<PretrainConfig>(read(words + Words{"--config", file.path(), "--min-lr", "0.125"}));
  EXPECT_EQ(config.lr.lr, 0.5);
  EXPECT_EQ(config.lr.min_lr, 0.125);
  EXPECT_TRUE(config.precision.f64);
  EXPECT_EQ(config.data.data_path, (Words{"0.3", "a", "0.7", "b c"}));
  EXPECT_FALSE(
      std::get<PretrainConfig>(read(words + Words{"--config=" + file.path(), "--f64=false"})).precision.f64);
}

TEST(ConfigCommandLine, NamesFileAndLineOfAMistake) {
  const TemporaryFile file(
      "lr = 1\nnum-layer = 4\nmin-lr = 3x\nlr = 2\nconfig = y\nfp8-recipe = mxfp8\nf64 = yes\nsplit = \"1\n");
  const std::string text = refusal_of(without_lr() + Words{"--config", file.path()});
  const std::string place = file.path() + ":";
  expect_contains(text, place + "2: unknown option num-layer: the nearest known option is num-layers");
  expect_contains(text, place + "3: --min-lr '3x' is not a number");
  expect_contains(text, place + "4: lr is already given in line 1");
  expect_contains(text, place + "5: --config works on the command line only");
  expect_contains(text, place + "6: --fp8-recipe mxfp8 is not available");
  expect_contains(text, place + "7: --f64 'yes' is neither");
  expect_contains(text, place + "8: a double quote is not closed");
  expect_contains(refusal_of(complete() + Words{"--config", "/nonexistent"}), "cannot be opened");
  expect_contains(refusal_of(complete() + Words{"--config", "a", "--config", "b"}),
                  "--config is given twice");
}

TEST(ConfigCommandLine, TakesRanksFromMpi) {
  const Environment mpi{.mpi_processes = 4};
  const auto config = std::get<PretrainConfig>(read(complete(), mpi));
  EXPECT_EQ(config.mesh.ranks, 4);
  EXPECT_EQ(config.mesh.data_parallel_size, 4);
  EXPECT_EQ(config.batch.global_batch_size, 48);
  EXPECT_EQ(std::get<PretrainConfig>(read(complete() + Words{"--ranks", "4"}, mpi)).mesh.ranks, 4);
  expect_contains(refusal_of(complete() + Words{"--ranks", "2"}, mpi), "leave --ranks out or give 4");
  expect_contains(refusal_of(complete() + Words{"--dp", "2"}, mpi), "--data-parallel-size 4");
}

}  // namespace
}  // namespace trifold
