// Options of other programs: the table, and what becomes of pasted words.
#include <gtest/gtest.h>

#include <set>

#include "config/command_line/command_line.h"
#include "config/foreign/foreign_options.h"
#include "unit/config_validate_testing.h"

namespace trifold {
namespace {

using Kind = ForeignFate::Kind;

struct Taken {
  PretrainConfig config;
  Words notes;
};

// The dropouts leave no default that is another one there.
Taken take(const Words& words) {
  Words line{"trifold"};
  const Words all = complete() + Words{"--hidden-dropout", "0", "--attention-dropout", "0"} + words;
  line.insert(line.end(), all.begin(), all.end());
  Remarks remarks;
  auto config = std::get<PretrainConfig>(parse_command_line(line, {}, &remarks));
  return {std::move(config), remarks.notes};
}

void for_each_fate(const ForeignOption& option, const auto& body) {
  if (option.otherwise.kind != Kind::Unlisted) body(option.otherwise);
  for (const auto& [value, fate] : option.values) body(fate);
}

// Own options that the table names exist, and a name of the table that is an own option has values only.
TEST(ConfigForeign, TheTableLeadsToOptions) {
  std::set<std::string> own, of_pretrain;
  for (const CommandInfo& command : commands())
    if (command.with_table != nullptr)
      with_default_table(command.name, [&](const OptionTable& table) {
        for (const Option& option : table.options()) {
          own.insert(option.name);
          if (command.name == "pretrain") of_pretrain.insert(option.name);
        }
      });
  EXPECT_GT(foreign_options().size(), 500u);
  for (const ForeignOption& option : foreign_options()) {
    EXPECT_EQ(foreign_option(option.name), &option);
    if (of_pretrain.count(option.name) > 0) {
      EXPECT_FALSE(option.values.empty()) << option.name;
      EXPECT_EQ(option.otherwise.kind, Kind::Unlisted) << option.name;
    }
    for_each_fate(option, [&](const ForeignFate& fate) {
      EXPECT_TRUE(!fate.text.empty() || !fate.ours.empty()) << option.name;
      EXPECT_TRUE(fate.ours.empty() || own.count(fate.ours) > 0) << option.name << " leads to " << fate.ours;
      EXPECT_EQ(fate.unless.empty(), fate.then.empty()) << option.name;
      if (fate.kind != Kind::Ours) return;
      std::istringstream words(fate.text);
      for (std::string word; words >> word;)
        EXPECT_TRUE(!word.starts_with("--") || own.count(word.substr(2)) > 0)
            << option.name << " sets " << word;
    });
  }
  EXPECT_EQ(foreign_option("hidden-size"), nullptr);
  EXPECT_EQ(foreign_option(""), nullptr);
}

TEST(ConfigForeign, ABrokenTableIsRefused) {
  const auto refusal = [](const char* json) {
    try {
      parse_foreign_options(json);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal(R"({"a": [{"name": "x", "always": "y"}]})"), "");
  expect_contains(refusal(R"({"a": [{"name": "x"}]})"), "an entry with a fate is needed");
  expect_contains(refusal(R"({"a": [{"name": "x", "always": "y", "nothing": "z"}]})"), "one fate is needed");
  expect_contains(refusal(R"({"a": [{"name": ["x", "y", "x"], "always": "y"}]})"), "'x' is listed twice");
  expect_contains(refusal(R"({"a": [{"name": "x", "words": 2, "always": "y"}]})"), "words");
}

TEST(ConfigForeign, OptionsBecomeOwnOnes) {
  EXPECT_EQ(take({"--use-distributed-optimizer"}).config.zero.zero_stage, 1);
  EXPECT_EQ(take({"--use_torch_fsdp2"}).config.zero.zero_stage, 3);
  EXPECT_EQ(take({"--recompute-activations"}).config.mesh.recompute_granularity,
            RecomputeGranularity::Selective);
  EXPECT_EQ(take({"--virtual-pipeline-model-parallel-size=1"}).notes, Words{});
  const Taken fsdp = take({"--use-megatron-fsdp", "--data-parallel-sharding-strategy", "optim_grads_params",
                           "--use-distributed-optimizer"});
  EXPECT_EQ(fsdp.config.zero.zero_stage, 3);
  EXPECT_EQ(fsdp.notes.size(), 2u);
  // Given with the same value, once or twice.
  EXPECT_EQ(take({"--use-distributed-optimizer", "--zero-stage", "1", "--use-distributed-optimizer"})
                .config.zero.zero_stage,
            1);
  const TemporaryFile file("use-distributed-optimizer = true\nclip-grad = 2\n");
  const Taken from_file = take({"--config", file.path()});
  EXPECT_EQ(from_file.config.zero.zero_stage, 1);
  EXPECT_EQ(from_file.config.optimizer.clip_grad, 2);
  EXPECT_EQ(take({"--config", file.path(), "--zero-stage", "2"}).config.zero.zero_stage, 2);
}

TEST(ConfigForeign, OriginsShowTheWordGiven) {
  Words line{"trifold"};
  const Words all = complete() + Words{"--use-distributed-optimizer", "--print-config"};
  line.insert(line.end(), all.begin(), all.end());
  expect_contains(std::get<TextRequest>(parse_command_line(line)).text,
                  "command line, as --use-distributed-optimizer");
}

TEST(ConfigForeign, ContradictionsShowBoth) {
  for (const Words& words : {Words{"--use-distributed-optimizer", "--zero-stage", "2"},
                             Words{"--zero-stage=2", "--use-distributed-optimizer"}})
    EXPECT_EQ(refusal_of(complete() + words),
              "--use-distributed-optimizer is --zero-stage 1 here, but --zero-stage 2 is given: "
              "leave one of them out");
  EXPECT_EQ(refusal_of(complete() + Words{"--recompute-activations", "--checkpoint-activations"}),
            "--checkpoint-activations is --recompute-granularity full here, but --recompute-granularity "
            "selective is given by --recompute-activations: leave one of them out");
  const TemporaryFile file("use-distributed-optimizer = true\nzero-stage = 3\n");
  expect_contains(refusal_of(complete() + Words{"--config", file.path()}),
                  ":1: --use-distributed-optimizer is --zero-stage 1 here, but --zero-stage 3 is given");
}

// A note takes as many words as the option has.
TEST(ConfigForeign, NotesTakeTheirValues) {
  EXPECT_EQ(take({"--num-workers", "2", "--split", "1"}).config.data.split, "1");
  EXPECT_EQ(take({"--num-workers", "2"}).notes,
            Words{"--num-workers 2 has no effect: samples are read ahead by a thread of each rank"});
  EXPECT_EQ(take({"--num-workers=-1"}).notes.size(), 1u);
  EXPECT_EQ(take({"--recompute-modules", "mlp", "moe", "--zero-stage", "1"}).config.zero.zero_stage, 1);
  EXPECT_EQ(refusal_of(complete() + Words{"--num-workers"}), "--num-workers needs a value");
  EXPECT_EQ(refusal_of(complete() + Words{"--num-workers", "--zero-stage", "1"}),
            "--num-workers needs a value");
  EXPECT_EQ(refusal_of(complete() + Words{"--num-workers", "1", "2"}), "'2' belongs to no option");
  EXPECT_EQ(refusal_of(complete() + Words{"--use-distributed-optimizer", "yes"}),
            "'yes' belongs to no option");
  EXPECT_EQ(refusal_of(complete() + Words{"--use-distributed-optimizer=no"}),
            "--use-distributed-optimizer is a flag, but 'no' is given: leave it out");
}

TEST(ConfigForeign, RefusalsHaveReasons) {
  EXPECT_EQ(refusal_of(complete() + Words{"--step-batch-size-schedule", "0:16"}),
            "--step-batch-size-schedule 0:16 is not available in this version of Trifold: give "
            "--rampup-batch-size, by which the batch grows in equal parts");
  expect_contains(refusal_of(complete() + Words{"--moe-router-dtype", "fp64"}), "routers compute in f32");
  EXPECT_EQ(refusal_of(complete() + Words{"--moe-router-dtype", "f16"}),
            "--moe-router-dtype f16 is not known: give one of fp32, fp64");
  expect_contains(refusal_of(complete() + Words{"--override-opt_param-scheduler", "x"}),
                  "'x' belongs to no option");
}

// Published lines repeat options.
TEST(ConfigForeign, TheSameValueTwiceIsANote) {
  EXPECT_EQ(take({"--clip-grad", "1.0", "--clip-grad", "1.0"}).notes,
            Words{"--clip-grad is given twice, with the same value"});
  EXPECT_EQ(refusal_of(complete() + Words{"--clip-grad", "1.0", "--clip-grad", "2.0"}),
            "--clip-grad is given twice: give it once");
}

// A second value is not lost behind the own option that both set.
TEST(ConfigForeign, ValuesThatSetSeveralOptionsContradictOthers) {
  const Words yarn{"--position-embedding-type", "yarn"}, rope{"--position-embedding-type", "rope"};
  EXPECT_EQ(refusal_of(complete() + yarn + rope), "--position-embedding-type is given twice: give it once");
  EXPECT_EQ(refusal_of(complete() + rope + yarn), "--position-embedding-type is given twice: give it once");
  EXPECT_EQ(take(rope + rope).notes, Words{"--position-embedding-type is given twice, with the same value"});
}

TEST(ConfigForeign, NoPositionEmbeddingNeedsAnotherType) {
  const Words none{"--no-position-embedding"};
  EXPECT_EQ(refusal_of(complete() + none),
            "--no-position-embedding is not available in this version of Trifold: positions have learned "
            "embeddings without --position-embedding-type rope or none; give that");
  expect_contains(refusal_of(complete() + none + Words{"--position-embedding-type", "learned_absolute"}),
                  "--no-position-embedding is not available");
  for (const Words& type :
       {Words{"--position-embedding-type", "rope"}, Words{"--position-embedding-type", "none"},
        Words{"--position-embedding-type", "yarn"}, Words{"--use-rotary-position-embeddings"}})
    EXPECT_EQ(take(none + type).notes,
              Words{"--no-position-embedding has no effect: the type given has no embeddings of positions"});
}

// False is the default of every flag there.
TEST(ConfigForeign, FalseFlagsMeanNothing) {
  const TemporaryFile file(
      "rotary-interleaved = false\nfp16-lm-cross-entropy = False\nuse-torch-fsdp2 = false\n"
      "use-distributed-optimizer = true\nno-persist-layer-norm = false\n");
  const Taken taken = take({"--config", file.path()});
  EXPECT_EQ(taken.config.zero.zero_stage, 1);
  EXPECT_EQ(taken.notes, Words{});
  EXPECT_EQ(take({"--rotary-interleaved=false"}).notes, Words{});
  expect_contains(refusal_of(complete() + Words{"--rotary-interleaved=true"}), "is not available");
}

// Messages show another program's option only where its value counts.
TEST(ConfigForeign, TheCommandLinesOwnNameReplacesAFilesForeignOne) {
  const TemporaryFile file("vocab-file = v.json\n");
  const auto given_as = [&](const Words& words) {
    Words line{"trifold"};
    const Words all =
        complete() + Words{"--config", file.path(), "--tokenizer-type", "HuggingFaceTokenizer"} + words;
    line.insert(line.end(), all.begin(), all.end());
    Remarks remarks;
    parse_command_line(line, {}, &remarks);
    return remarks.given_as;
  };
  EXPECT_EQ(given_as({}).at("tokenizer-model"), "--vocab-file");
  EXPECT_FALSE(given_as({"--tokenizer-model", "t.json"}).contains("tokenizer-model"));
  EXPECT_EQ(given_as({"--vocab-file", "w.json"}).at("tokenizer-model"), "--vocab-file");
}

TEST(ConfigForeign, Fsdp2WithoutReshardingIsStage2) {
  EXPECT_EQ(take({"--torch-fsdp2-no-reshard-after-forward", "--use-torch-fsdp2"}).config.zero.zero_stage, 2);
  EXPECT_EQ(take({"--fp8-margin", "0"}).notes, Words{"--fp8-margin 0 has no effect: scales have no margin"});
  expect_contains(refusal_of(complete() + Words{"--fp8-margin", "4"}), "is not available");
}

TEST(ConfigForeign, NamesOfOtherProgramsAreAdvice) {
  EXPECT_EQ(refusal_of(complete() + Words{"--learning-rate", "1"}),
            "unknown option --learning-rate: Trifold's name for it is --lr");
  expect_contains(refusal_of(complete() + Words{"--local-rank", "1"}), "mpirun starts the ranks");
  // A command without the own option.
  expect_contains(refusal_of({"inspect", "d", "--use-distributed-optimizer"}),
                  "Trifold's name for it is --zero-stage 1, which this command does not have");
}

// Lengths in samples are whole steps, and a note says how many.
TEST(ConfigForeign, SamplesAreSteps) {
  const Words words = {"pretrain", "--num-layers", "4",  "--hidden-size",      "128", "--num-attention-heads",
                       "4",        "--seq-length", "64", "--micro-batch-size", "4",   "--lr",
                       "1",        "--data-path",  "x"};
  const auto read_line = [](const Words& line) {
    Words all{"trifold"};
    all.insert(all.end(), line.begin(), line.end());
    Remarks remarks;
    auto config = std::get<PretrainConfig>(parse_command_line(all, {}, &remarks));
    return Taken{std::move(config), remarks.notes};
  };
  const Words samples = {"--train-samples", "1000", "--lr-decay-samples", "900", "--lr-warmup-samples", "33"};
  const Taken taken = read_line(words + samples + Words{"--global-batch-size", "16"});
  EXPECT_EQ(taken.config.batch.train_iters, 62);
  EXPECT_EQ(taken.config.lr.lr_decay_iters, 56);
  EXPECT_EQ(taken.config.lr.lr_warmup_iters, 2);
  EXPECT_EQ(taken.notes,
            (Words{"--train-samples 1000 is --train-iters 62 with 16 samples a step, rounded down",
                   "--lr-warmup-samples 33 is --lr-warmup-iters 2 with 16 samples a step, rounded down",
                   "--lr-decay-samples 900 is --lr-decay-iters 56 with 16 samples a step, rounded down"}));
  // Without a global batch it is that of the mesh.
  EXPECT_EQ(read_line(words + samples + Words{"--ranks", "2"}).config.batch.train_iters, 125);
  expect_contains(std::get<TextRequest>(read(words + samples + Words{"--print-config"})).text,
                  "derived: --train-samples");
  EXPECT_EQ(refusal_of(words + Words{"--train-samples", "3"}),
            "--train-samples 3 is less than one step of 4 samples (--global-batch-size): give at least 4");
  for (const char* steps : {"5", "1"})
    expect_contains(
        refusal_of(words + samples + Words{"--train-iters", steps}),
        fmt::format("--train-samples 1000 is not possible with --train-iters {}: give one of them", steps));
  const Words warmup =
      words + Words{"--train-samples", "100", "--lr-warmup-init", "0.1", "--lr-warmup-samples"};
  EXPECT_EQ(refusal_of(warmup + Words{"3"}),
            "--lr-warmup-init 0.1 has no effect with --lr-warmup-samples 3, which is less than one step of 4 "
            "samples: leave it out, or give at least 4 samples");
  EXPECT_EQ(std::get<PretrainConfig>(read(warmup + Words{"4"})).lr.lr_warmup_iters, 1);
  expect_contains(refusal_of(words + samples + Words{"--lr-warmup-iters", "5"}),
                  "is not possible with --lr-warmup-iters 5");
  expect_contains(refusal_of(words + Words{"--train-samples", "100", "--lr-warmup-samples", "100"}),
                  "--lr-warmup-iters 25 is not below --lr-decay-iters 25");
}

TEST(ConfigForeign, ValuesOfOwnOptions) {
  const Taken bpe =
      take({"--tokenizer-type", "GPT2BPETokenizer", "--vocab-file", "v.json", "--merge-file", "m.txt"});
  EXPECT_EQ(bpe.config.data.tokenizer_type, TokenizerType::Gpt2Bpe);
  EXPECT_EQ(bpe.config.data.tokenizer_model, "v.json");
  EXPECT_EQ(bpe.config.data.tokenizer_merges, "m.txt");
  EXPECT_EQ(take({"--merge-file", "m", "--vocab-file", "v"}).config.data.tokenizer_type,
            TokenizerType::Gpt2Bpe);
  EXPECT_EQ(take({"--tokenizer-type", "NullTokenizer", "--vocab-size", "9"}).config.data.tokenizer_type,
            TokenizerType::Null);
  expect_contains(
      refusal_of(complete() + Words{"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", "t.json",
                                    "--merge-file", "m"}),
      "--merge-file m is --tokenizer-type gpt2-bpe here, but --tokenizer-type huggingface is given");
  // A value for each layer, all the same; a flag with the value that other programs give it.
  EXPECT_EQ(take({"--cp-comm-type", "p2p", "p2p", "--cp", "2", "--ranks", "2"}).config.mesh.cp_comm_type,
            ContextExchange::Ring);
  expect_contains(refusal_of(complete() + Words{"--cp-comm-type", "p2p", "a2a"}),
                  "'a2a' belongs to no option");
  expect_contains(refusal_of(complete() + Words{"--fp8", "hybrid"}), "--fp8 needs --bf16");
  expect_contains(refusal_of(complete() + Words{"--fp8", "e4m3"}), "--fp8 e4m3 is not available");
  // Of the length in complete().
  expect_contains(refusal_of(complete() + Words{"--fp8", "hybrid", "--bf16", "--fp8-recipe", "blockwise"}),
                  "every extent must be a multiple of 128");
}

TEST(ConfigForeign, DataOfParts) {
  const Words without_data = {"pretrain", "--num-layers",          "4", "--hidden-size",
                              "128",      "--num-attention-heads", "4", "--seq-length",
                              "64",       "--micro-batch-size",    "4", "--lr",
                              "1",        "--train-iters",         "3"};
  expect_contains(refusal_of(without_data), "--data-path needs a value");
  const Words random = without_data + Words{"--mock-data"};
  EXPECT_TRUE(std::get<PretrainConfig>(read(random)).data.mock_data);
  for (const Words& words :
       {Words{"--eod-mask-loss"}, Words{"--reset-attention-mask"}, Words{"--reset-position-ids"},
        Words{"--eod-token", "x"}, Words{"--json-key", "x"}})
    expect_contains(refusal_of(random + words),
                    "has no effect with --mock-data, whose tokens are random: leave it out");
  read(random + Words{"--split", "100,0,0", "--eval-interval", "2"});
  const Words parts = without_data + Words{"--train-data-path", "0.5", "a", "0.5", "b"};
  EXPECT_EQ(std::get<PretrainConfig>(read(parts)).data.train_data_path.size(), 4u);
  expect_contains(refusal_of(parts + Words{"--eval-interval", "1"}),
                  "needs data to evaluate on with --train-data-path");
  read(parts + Words{"--eval-interval", "1", "--valid-data-path", "c"});
  expect_contains(refusal_of(parts + Words{"--data-path", "c"}), "is not possible with --data-path c");
  expect_contains(refusal_of(parts + Words{"--mock-data"}), "whose tokens are random");
  expect_contains(refusal_of(without_data + Words{"--train-data-path", "x", "a", "0.5", "b"}),
                  "--train-data-path: 'x' is in the place of the weight of 'a'");
  expect_contains(refusal_of(without_data + Words{"--valid-data-path", "x", "--data-path", "y"}),
                  "needs --train-data-path");
}

}  // namespace
}  // namespace trifold
