#include "config/subjects/tasks.h"

#include "config/options/bounds.h"

namespace trifold {

void add_task(OptionTable& table, FinetuneConfig& config) {
  table.group("Task");
  table
      .add("task", &config.task,
           "classify predicts the class of a text or a pair of texts; squad extracts answers from a text.")
      .need();
  table
      .add("train-data", &config.train_data,
           "classify: a .tsv file whose header names the columns text, optionally text_b, and label, or JSON "
           "lines with these fields. squad: SQuAD's JSON, version 1.1 or 2.")
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
      .only_with("valid-data");
  table.add("seq-length", &config.seq_length, "Tokens of a sample.").range(1, kMaxSize).absent("the model's");
  table.add("hidden-dropout", &config.hidden_dropout, "Dropout after attention, feed-forward and embedding.")
      .fraction()
      .absent("the model's");
  table.add("attention-dropout", &config.attention_dropout, "Dropout of attention probabilities.")
      .fraction()
      .absent("the model's");
  table
      .add("doc-stride", &config.doc_stride,
           "squad: stride, in tokens, between windows over a text that exceeds --seq-length.")
      .range(1, kMaxSize)
      .no_effect_with({"task", "classify"}, {}, "leave it out");
  table
      .add("max-query-length", &config.max_query_length,
           "squad: longer questions are truncated to this many tokens.")
      .range(1, kMaxSize)
      .no_effect_with({"task", "classify"}, {}, "leave it out");
  table.add("max-answer-length", &config.max_answer_length, "squad: maximum length of an answer in tokens.")
      .range(1, kMaxSize)
      .no_effect_with({"task", "classify"}, {}, "leave it out");
  table
      .add(
          "null-score-diff-threshold", &config.null_score_diff_threshold,
          "squad version 2: predict no answer if its score exceeds that of the best answer by more than this.")
      .no_effect_with({"task", "classify"}, {}, "leave it out");
}

}  // namespace trifold
