// Options of the model and its data.
#include "config/subjects/option_groups.h"

namespace trifold {

Option& add_tokenizer_type(OptionTable& table, Field type) {
  return table.add("tokenizer-type", type, "Tokenizer.");
}

Option& add_tokenizer_model(OptionTable& table, Field model) {
  return table
      .add("tokenizer-model", model,
           "File of the SentencePiece model, or the tokenizer.json of Hugging Face.")
      .reads("FILE")
      .absent("none")
      .of_all_hosts();
}

Option& add_end_token(OptionTable& table, Field token) {
  return table.add("eod-token", token, "Text of the token that ends a document, such as <|endoftext|>.")
      .takes("TOKEN")
      .absent("eos_token or eos_token_id of the files beside the tokenizer's, or the usual one");
}

void add_bad_records(OptionTable& table, Field reaction, Field most) {
  table.add("on-bad-record", reaction,
            "Reaction to an unusable JSON line: stop, or report and skip the line.");
  table.add("max-bad-records", most, "--on-bad-record skip: end after more than this many unusable lines.")
      .range(0, kMaxCount);
}

void add_data(OptionTable& table, DataConfig& data) {
  table.group("Data");
  table
      .add("data-path", &data.data_path,
           "Prefix of a .bin/.idx pair, or text to stream: plain or JSON lines, optionally compressed (.gz, "
           ".zst, "
           ".xz or .bz2), or a folder of such files. Several paths are blended, with a weight before each "
           "path or before none. "
           "BERT reads plain text files.")
      .need()
      .reads("[WEIGHT] PATH ...")
      .of_host();
  table.add("split", &data.split, "Shares of training, validation and test.").takes("A,B,C");
  add_tokenizer_type(table, &data.tokenizer_type).absent("byte for text, none for .bin/.idx");
  table.add("json-key", &data.json_key, "Field of each JSON line that holds its text.").takes("KEY");
  add_bad_records(table, &data.on_bad_record, &data.max_bad_records);
  add_tokenizer_model(table, &data.tokenizer_model);
  add_end_token(table, &data.eod_token);
}

void add_documents(OptionTable& table, DataConfig& data) {
  table.add("eod-mask-loss", &data.eod_mask_loss,
            "Leave end-of-document tokens out of the loss; the routers of experts still count them.");
  table.add("reset-attention-mask", &data.reset_attention_mask,
            "Restrict attention to tokens of the same document.");
  table.add("reset-position-ids", &data.reset_position_ids,
            "Restart positions at 0 at the beginning of each document.");
}

void add_pairs(OptionTable& table, DataConfig& data) {
  table.add("mask-prob", &data.mask_prob, "bert: fraction of tokens to mask and predict.").bounds = {
      0, 1, true, false};
  table.add("short-seq-prob", &data.short_seq_prob, "bert: fraction of samples that are shortened.")
      .fraction();
  table.add("whole-word-masking", &data.whole_word_masking, "bert: mask all tokens of a word together.");
  table.add("split-sentences", &data.split_sentences,
            "bert: split lines into sentences after '.', '!' and '?'; otherwise each line is a sentence.");
}

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
      .of_host();
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
}

}  // namespace trifold
