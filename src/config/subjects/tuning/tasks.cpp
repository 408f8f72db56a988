#include "config/subjects/tuning/tasks.h"

#include <string_view>

#include "config/options/bounds.h"
#include "config/subjects/text.h"

namespace trifold {

namespace {

// The tasks of conversations, and all that read texts of a length of their own; the others are for BERT.
constexpr std::string_view kConversations = "chat|lm";
constexpr std::string_view kAnswers = "chat|lm|dpo";
constexpr std::string_view kRendered = "chat|dpo";
constexpr std::string_view kBertTasks = "classify|squad";

void add_conversations(OptionTable& table, FinetuneConfig& config) {
  add_chat_template(table, config.run.data);
  for (const char* name : {"chat-template", "chat-date"}) table.change(name).only_with({"task", kRendered});
  table
      .add(
          "packing", &config.packing,
          "chat and lm: best-fit puts several conversations into a sample, where they do not see each other; none "
          "gives every conversation a sample of its own.")
      .only_with({"task", kConversations});
  table
      .add(
          "truncation-mode", &config.truncation_mode,
          "chat, lm and dpo: of a conversation that is longer than a sample, keep the first or the last tokens, or drop "
          "it; a pair is dropped with one of its answers.")
      .only_with({"task", kAnswers});
}

void add_preferences(OptionTable& table, FinetuneConfig& config) {
  table
      .add("dpo-beta", &config.dpo.beta,
           "dpo: strength of the tie to the reference model; rewards are beta times "
           "the logarithm of how much likelier an answer has become.")
      .positive()
      .only_with({"task", "dpo"});
  table
      .add(
          "dpo-loss", &config.dpo.loss,
          "dpo: sigmoid is DPO's loss; ipo is squared, of log-likelihoods that are means over the tokens of an answer.")
      .only_with({"task", "dpo"});
  table
      .add("dpo-label-smoothing", &config.dpo.label_smoothing,
           "dpo: the probability that the answers of a pair are swapped, with --dpo-loss sigmoid.")
      .range(0, 0.5)
      .only_with({"task", "dpo"})
      .no_effect_with({"dpo-loss", "ipo"}, {}, "leave it out");
  table
      .add(
          "dpo-reference", &config.dpo_reference,
          "dpo: model makes log-likelihoods relative to those of a reference model; none takes them as they are.")
      .only_with({"task", "dpo"});
  table
      .add("dpo-reference-model", &config.dpo_reference_model,
           "dpo: the reference model, a checkpoint or a Hugging Face folder with the same tokens.")
      .names("DIR", FileUse::Loaded)
      .absent("the model of --load")
      .of_all_hosts()
      .only_with({"task", "dpo"})
      .no_effect_with({"dpo-reference", "none"}, {}, "leave it out");
  table
      .add(
          "dpo-reference-folder", &config.dpo_reference_folder,
          "dpo: the folder for the reference's log-likelihoods, which are computed once for the same samples and model.")
      .names("DIR", FileUse::Filled)
      .absent("the folder of --save")
      .of_host()
      .only_with({"task", "dpo"})
      .no_effect_with({"dpo-reference", "none"}, {}, "leave it out");
}

void add_questions(OptionTable& table, FinetuneConfig& config) {
  table
      .add("doc-stride", &config.doc_stride,
           "squad: stride, in tokens, between windows over a text that exceeds --seq-length.")
      .range(1, kMaxSize);
  table
      .add("max-query-length", &config.max_query_length,
           "squad: longer questions are truncated to this many tokens.")
      .range(1, kMaxSize);
  table.add("max-answer-length", &config.max_answer_length, "squad: maximum length of an answer in tokens.")
      .range(1, kMaxSize);
  table.add(
      "null-score-diff-threshold", &config.null_score_diff_threshold,
      "squad version 2: predict no answer if its score exceeds that of the best answer by more than this.");
  for (const char* name :
       {"doc-stride", "max-query-length", "max-answer-length", "null-score-diff-threshold"})
    table.change(name).only_with({"task", "squad"});
}

}  // namespace

void add_task(OptionTable& table, FinetuneConfig& config) {
  table.group("Task");
  table
      .add(
          "task", &config.task,
          "classify and squad, for a BERT: predict the class of a text or a pair of texts; extract answers from a "
          "text. chat and lm, for a GPT: learn the answers in conversations, written by a chat template; learn the "
          "answers to prompts, written as they are. dpo, for a GPT: learn which of two answers is preferred.")
      .need();
  table
      .add(
          "train-data", &config.train_data,
          "classify: a .tsv file whose header names the columns text, optionally text_b, and label, or JSON "
          "lines with these fields. squad: SQuAD's JSON, version 1.1 or 2. chat: JSON lines, or a JSON list, with "
          "messages, with ShareGPT's conversations, with Alpaca's instruction, input and output, or with prompt and "
          "completion. lm: the last two, or text. dpo: JSON lines, or a JSON list, with prompt, chosen and rejected, texts "
          "or lists of messages.")
      .reads("FILE")
      .absent("a tuned model is only evaluated")
      .of_all_hosts();
  table.add("valid-data", &config.valid_data, "Evaluation data in the same format.")
      .reads("FILE")
      .absent("none")
      .of_all_hosts();
  table
      .add(
          "predictions", &config.predictions,
          "Write the model's predictions for --valid-data: JSON lines of labels, or SQuAD's JSON of answers.")
      .writes("FILE", {{"{\"label\":", "\"probabilities\":{"}, json_mark("finetune")})
      .absent("nowhere")
      .of_host()
      .only_with("valid-data")
      .only_with({"task", kBertTasks});
  table.add("seq-length", &config.seq_length, "Tokens of a sample.").range(1, kMaxSize).absent("the model's");
  table.add("hidden-dropout", &config.hidden_dropout, "Dropout after attention, feed-forward and embedding.")
      .fraction()
      .absent("the model's");
  table.add("attention-dropout", &config.attention_dropout, "Dropout of attention probabilities.")
      .fraction()
      .absent("the model's");
  add_conversations(table, config);
  add_preferences(table, config);
  add_questions(table, config);
}

}  // namespace trifold
