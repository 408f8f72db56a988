// Notes: given options that change nothing. They end no command, and the user reads about each.
#include <gtest/gtest.h>

#include <set>

#include "config/command_line/command_line.h"
#include "unit/config_validate_testing.h"

namespace trifold {
namespace {

Words notes_of(const Words& words) {
  Words line{"trifold"};
  line.insert(line.end(), words.begin(), words.end());
  Remarks remarks;
  parse_command_line(line, {}, &remarks);
  return remarks.notes;
}

TEST(ConfigNotes, SayWhatHasNoEffect) {
  using C = PretrainConfig;
  expect_noted({
      {"--save-interval 5 has no effect without --save DIR", [](C& c) { c.checkpoint.save_interval = 5; }},
      {"--save-retain 3 has no effect without --save DIR, or --save-hf DIR",
       [](C& c) { c.checkpoint.save_retain = 3; }},
      {"--async-save has no effect without --save DIR", [](C& c) { c.checkpoint.async_save = true; }},
      {"--on-save-error continue has no effect without --save DIR, or --save-hf DIR",
       [](C& c) { c.checkpoint.on_save_error = OnSaveError::Continue; }},
      {"--check-replicas 0 has no effect without --save DIR", [](C& c) { c.checkpoint.check_replicas = 0; }},
      {"--allow-changed-data has no effect without --load DIR, or --auto-resume, "
       "because this run does not resume from a checkpoint",
       [](C& c) { c.checkpoint.allow_changed_data = true; }},
      {"--allow-changed-data has no effect with --finetune, because this run does not resume from a checkpoint",
       [](C& c) {
         c.checkpoint.allow_changed_data = c.checkpoint.finetune = true, c.checkpoint.load = std::string("d");
       }},
      {"--eval-interval 5 has no effect with --eval-iters 0, which disables evaluation",
       [](C& c) { c.eval.eval_interval = 5, c.eval.eval_iters = 0; }},
      {"--eval-iters 7 has no effect without --eval-interval N", [](C& c) { c.eval.eval_iters = 7; }},
      {"--cp-comm-type p2p has no effect without --context-parallel-size 2 or more",
       [](C& c) { c.mesh.cp_comm_type = ContextExchange::Ring; }},
      {"--sequence-parallel has no effect without --tensor-model-parallel-size 2 or more",
       [](C& c) { c.mesh.sequence_parallel = true; }},
      {"--moe-token-dispatcher-type allgather has no effect without --expert-model-parallel-size 2 or more, or "
       "--expert-tensor-parallel-size 2 or more, because every rank computes the rows of its own tokens",
       [](C& c) { c.mesh.moe_token_dispatcher_type = TokenDispatcher::AllGather; }},
      {"--moe-buffer-factor 1.5 has no effect without", [](C& c) { c.mesh.moe_buffer_factor = 1.5; }},
      {"--schedule-max-in-flight 3 has no effect without --schedule auto",
       [](C& c) { c.pipeline.schedule_max_in_flight = 3; }},
      {"--zero-reduce each has no effect without --zero-stage 2 or more, "
       "because in lower stages every rank holds all gradients",
       [](C& c) { c.zero.zero_reduce = ReducePolicy::Each; }},
  });
}

// What decides about results or files is an error: the model, the rates, a checkpoint that would not be there.
TEST(ConfigNotes, AreOfTheseOptionsAlone) {
  std::set<std::string> noted;
  for (const CommandInfo& command : commands())
    if (command.with_table != nullptr)
      with_default_table(command.name, [&](const OptionTable& table) {
        for (const Option& option : table.options())
          for (const Rule& rule : option.rules)
            if (rule.severity == Severity::Note) noted.insert(option.name);
      });
  EXPECT_EQ(noted, (std::set<std::string>{"allow-changed-data",
                                          "async-save",
                                          "check-replicas",
                                          "cp-comm-type",
                                          "eval-interval",
                                          "eval-iters",
                                          "metrics-address",
                                          "min-p",
                                          "moe-buffer-factor",
                                          "moe-token-dispatcher-type",
                                          "no-load-optim",
                                          "no-save-optim",
                                          "on-save-error",
                                          "save-interval",
                                          "save-retain",
                                          "schedule-max-in-flight",
                                          "seed",
                                          "sequence-parallel",
                                          "split",
                                          "timeout-floor-seconds",
                                          "top-k",
                                          "top-p",
                                          "trace-from",
                                          "trace-steps",
                                          "weight-decay",
                                          "zero-reduce"}));
}

TEST(ConfigNotes, AreReadFromTheCommandLine) {
  EXPECT_EQ(notes_of(complete()), Words{});
  const Words without_save = complete() + Words{"--save-interval", "500"};
  const Words expected{"--save-interval 500 has no effect without --save DIR"};
  EXPECT_EQ(notes_of(without_save), expected);
  EXPECT_EQ(notes_of(without_save + Words{"--print-config"}), expected);
  EXPECT_EQ(notes_of(without_save + Words{"--save", "d"}), Words{});
  // Rules about the model of a finetuning are checked when it is known, notes at once.
  EXPECT_EQ(notes_of({"finetune", "--task", "classify", "--load", "d", "--train-data", "t", "--lr", "1",
                      "--micro-batch-size", "4", "--sequence-parallel"}),
            Words{"--sequence-parallel has no effect without --tensor-model-parallel-size 2 or more"});
}

// An evaluation decides when such a run ends, and what it saves.
TEST(ConfigNotes, DoNotHideThatNothingIsEvaluated) {
  const Words none = complete() + Words{"--eval-interval", "5", "--eval-iters", "0"};
  EXPECT_EQ(notes_of(none).size(), 1u);
  EXPECT_EQ(refusal_of(none + Words{"--early-stop-patience", "2"}),
            "--early-stop-patience 2 has no effect with --eval-iters 0, which disables evaluation: "
            "give at least --eval-iters 1");
  expect_contains(refusal_of(none + Words{"--save", "d", "--save-best"}),
                  "--save-best has no effect with --eval-iters 0");
}

TEST(ConfigNotes, FlagsOfOtherProgramsThatAskForWhatIsAlwaysDone) {
  const Words dropout{"--hidden-dropout", "0", "--attention-dropout",
                      "0"};  // their defaults are other ones there
  EXPECT_EQ(notes_of(complete() + dropout +
                     Words{"--use-flash-attn", "--overlap_grad_reduce", "--save-interval", "5"}),
            (Words{"--use-flash-attn has no effect: attention never holds the whole matrix of scores",
                   "--overlap-grad-reduce has no effect: gradient reduction always overlaps with backward",
                   "--save-interval 5 has no effect without --save DIR"}));
  const TemporaryFile file("use-flash-attn = true\n");
  EXPECT_EQ(notes_of(complete() + dropout + Words{"--config", file.path()}),
            Words{file.path() +
                  ":1: --use-flash-attn has no effect: attention never holds the whole matrix of scores"});
  // The same note once.
  EXPECT_EQ(notes_of(complete() + Words{"--fused", "--fused=true"}),
            Words{"--fused has no effect: the update of the optimizer is always one pass"});
  // Another value asks for what is not possible.
  expect_contains(refusal_of(complete() + Words{"--use-flash-attn", "off"}), "'off' belongs to no option");
  for (const char* word : {"--use-flash-attn=off", "--use-flash-attn=false"})
    EXPECT_EQ(
        refusal_of(complete() + Words{word}),
        "--use-flash-attn has no effect: attention never holds the whole matrix of scores: leave it out");
  // Commands that neither train nor plan have no such flags.
  expect_contains(refusal_of({"inspect", "d", "--flash-attn"}), "--flash-attn has no effect: ");
  // This asks for a check that would not be there.
  expect_contains(refusal_of(complete() + Words{"--verify-integrity"}),
                  "is not available in this version of Trifold: ");
}

// Intervals that have no effect need not fit the windows of an asynchronous schedule.
TEST(ConfigNotes, IntervalsWithoutEffectDoNotBind) {
  PretrainConfig config = sound();
  config.pipeline.schedule = Schedule::PipeDream;
  config.pipeline.async_window = 4;
  config.optimizer.clip_grad = 0;
  const auto wrong = [&] {
    std::string text;
    for (const Problem& problem : problems(config)) text += text_of(problem) + "\n";
    return text;
  };
  config.checkpoint.save_interval = 3;
  config.eval.eval_interval = 3;
  config.eval.eval_iters = 0;
  EXPECT_EQ(wrong().find("--async-window"), std::string::npos) << wrong();
  config.checkpoint.save = "d";
  expect_contains(wrong(), "--save-interval 3 is not a multiple of --async-window 4");
  config.eval.eval_iters = 1;
  expect_contains(wrong(), "--eval-interval 3 is not a multiple of --async-window 4");
}

}  // namespace
}  // namespace trifold
