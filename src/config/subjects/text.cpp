#include "config/subjects/text.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "config/fields/number.h"
#include "config/options/bounds.h"
#include "core/error.h"

namespace trifold {

// The reason for which --mock-data makes other options useless.
constexpr std::string_view kRandomTokens = "whose tokens are random";

namespace {

constexpr std::string_view kOfFiles =
    "sentencepiece|huggingface|gpt2-bpe|wordpiece-lower|wordpiece-cased|tiktoken";

void add_tiktoken(OptionTable& table, DataConfig& data) {
  table
      .add(
          "tiktoken-pattern", &data.tiktoken_pattern,
          "tiktoken: pattern that cuts text into words, of the encodings gpt2, cl100k, o200k, of Llama 3, Qwen "
          "and Kimi K2, or one of Megatron-LM's, v1 and v2.")
      .absent("that of the file, or of tiktoken.json or tokenizer_config.json next to it");
  table
      .add("tiktoken-num-special-tokens", &data.tiktoken_num_special_tokens,
           "tiktoken: special tokens with the ids before those of the file; names that are not given are "
           "<SPECIAL_N>.")
      .range(0, kMaxCount)
      .absent("as the file says; 1000 for Megatron-LM's");
  table
      .add(
          "tiktoken-special-tokens", &data.tiktoken_special_tokens,
          "tiktoken: texts of the special tokens in the order of their ids, the first of which is 0, or the one "
          "after the file's last without --tiktoken-num-special-tokens.")
      .takes("TOKEN ...")
      .absent("those of the file, or of tiktoken.json or tokenizer_config.json next to it");
  for (const char* name : {"tiktoken-pattern", "tiktoken-num-special-tokens", "tiktoken-special-tokens"})
    table.change(name).only_with({"tokenizer-type", "tiktoken"});
}

}  // namespace

void add_tokenizer(OptionTable& table, DataConfig& data) {
  table.add("tokenizer-type", &data.tokenizer_type, "Tokenizer.")
      .needs("tokenizer-model", {}, "give the tokenizer's file")
      .only_for(kOfFiles);
  table
      .add(
          "tokenizer-model", &data.tokenizer_model,
          "File of the SentencePiece model, the tokenizer.json of Hugging Face, the vocab.json of gpt2-bpe, the "
          "vocab.txt of wordpiece-lower and wordpiece-cased, or for tiktoken a file of base64 tokens and ranks, "
          "Mistral's tekken.json or Megatron-LM's list of tokens.")
      .reads("FILE")
      .absent("none")
      .of_all_hosts()
      .only_with({"tokenizer-type", kOfFiles});
  table.add("tokenizer-merges", &data.tokenizer_merges, "gpt2-bpe: file of the merges.")
      .reads("FILE")
      .absent("merges.txt in the folder of --tokenizer-model")
      .of_all_hosts()
      .only_with({"tokenizer-type", "gpt2-bpe"});
  add_tiktoken(table, data);
  table.add("eod-token", &data.eod_token, "Text of the token that ends a document, such as <|endoftext|>.")
      .takes("TOKEN")
      .absent("eos_token or eos_token_id of the files next to the tokenizer's, or the usual one");
}

void add_chat_template(OptionTable& table, DataConfig& data) {
  table
      .add(
          "chat-template", &data.chat_template,
          "Jinja template that writes a conversation as text: a file, or the name of one of the model's templates.")
      .reads("FILE|NAME")
      .absent("the template of the model: chat_template.jinja or tokenizer_config.json next to its tokenizer")
      .of_all_hosts();
  table.add("chat-date", &data.chat_date, "The date that a chat template sees if it asks for today's.")
      .takes("YYYY-MM-DD")
      .absent("today's when a run begins; a run that resumes keeps its date");
}

void copy_tokenizer(const DataConfig& from, DataConfig& to) {
  to.tokenizer_type = from.tokenizer_type;
  to.tokenizer_model = from.tokenizer_model;
  to.tokenizer_merges = from.tokenizer_merges;
  to.tiktoken_pattern = from.tiktoken_pattern;
  to.tiktoken_num_special_tokens = from.tiktoken_num_special_tokens;
  to.tiktoken_special_tokens = from.tiktoken_special_tokens;
  to.eod_token = from.eod_token;
  to.chat_template = from.chat_template;
  to.chat_date = from.chat_date;
}

void add_special_tokens_in_text(OptionTable& table, DataConfig& data) {
  table
      .add(
          "special-tokens-in-text", &data.special_tokens_in_text,
          "Special tokens that are spelled out in a text: encode them as such, take them as text like any other, or "
          "refuse the text.")
      .absent("encode; refuse with tiktoken");
}

void add_bad_records(OptionTable& table, Field reaction, Field most) {
  table.add("on-bad-record", reaction,
            "Reaction to an unusable JSON line: stop, or report and skip the line.");
  table.add("max-bad-records", most, "--on-bad-record skip: end after more than this many unusable lines.")
      .range(0, kMaxCount)
      .only_with({"on-bad-record", "skip"});
}

void add_tokenizer_of_model(OptionTable& table, DataConfig& data) {
  table.group("Tokenizer");
  add_tokenizer(table, data);
  for (const char* name : {"tokenizer-type", "tokenizer-model", "eod-token"})
    table.change(name).absent("as the model was trained");
  add_special_tokens_in_text(table, data);
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
      .need("arrays")
      .reads("[WEIGHT] PATH ...")
      .of_host();
  table
      .add(
          "arrays", &data.arrays,
          "Arrays for the inputs of a --model by name, with the sample as first axis: .npy, .npz, .safetensors or "
          "HDF5 files. PATH alone gives all arrays of a file with names, PATH:INSIDE one of them. The prefix of a .bin/.idx "
          "pair gives tokens, cut into samples of the input's length; PREFIX:1 the same from the second token on, as labels.")
      .reads("[NAME=]PATH ...")
      .of_host();
  if (!data.arrays.empty()) table.change("data-path").optional();
  table.add("split", &data.split, "Shares of training, validation and test.").takes("A,B,C");
  table.add("json-key", &data.json_key, "Field of each JSON line that holds its text.").takes("KEY");
  add_bad_records(table, &data.on_bad_record, &data.max_bad_records);
  add_tokenizer(table, data);
  table.change("tokenizer-type").absent("byte for text, none for .bin/.idx");
  add_special_tokens_in_text(table, data);
}

void add_other_data(OptionTable& table, DataConfig& data) {
  table
      .add("mock-data", &data.mock_data,
           "Train and evaluate on random tokens, a function of --seed and the position alone.")
      .excludes("train-epochs", "because random tokens have no passes", "give --train-iters");
  table
      .add("train-data-path", &data.train_data_path,
           "Data to train on instead of the first share of --split; a blend as in --data-path.")
      .reads("[WEIGHT] PATH ...")
      .of_host();
  table
      .add("valid-data-path", &data.valid_data_path,
           "Data to evaluate on instead of the second share of --split; a blend as in --data-path.")
      .reads("[WEIGHT] PATH ...")
      .of_host()
      .needs("train-data-path", {}, "give both, or --data-path with --split");
  for (const char* name : {"data-path", "train-data-path", "valid-data-path", "arrays"})
    table.change(name).excludes("mock-data", kRandomTokens, "leave one of them out");
  for (const char* name : {"train-data-path", "arrays"})
    table.change(name).excludes("data-path", {}, "leave one of them out");
  table.change("split").no_effect_with("train-data-path", "which is the whole training data", "leave it out");
  if (data.mock_data || !data.train_data_path.empty()) table.change("data-path").optional();
  // Published lines with random tokens split them.
  table.change("split").no_effect_with("mock-data", kRandomTokens).as_note();
  for (const char* name : {"json-key", "eod-token", "special-tokens-in-text"})
    table.change(name).no_effect_with("mock-data", kRandomTokens, "leave it out");
}

void add_data_schedule(OptionTable& table, DataConfig& data) {
  table
      .add(
          "data-schedule", &data.data_schedule,
          "Weights of the training paths as a function of consumed tokens, as JSON or a file of it: "
          "{\"0\": {\"web\": 8, \"code\": 2}, \"1e9\": {\"web\": 5, \"code\": 5}}. Paths are named by their file names. With "
          "\"between\": \"lines\" weights change in lines between the points, else in steps. Evaluations on another split "
          "have the last weights.")
      .reads("FILE.json|JSON")
      .absent("the weights of --data-path")
      .excludes("train-epochs", "because a changing blend has no single pass", "give --train-iters")
      .excludes("mock-data", kRandomTokens, "leave it out")
      .excludes("arrays", "which are not blended", "leave it out");
}

void add_documents(OptionTable& table, DataConfig& data) {
  table
      .add("eod-mask-loss", &data.eod_mask_loss,
           "Leave end-of-document tokens out of the loss; the routers of experts still count them.")
      .no_effect_with("mock-data", kRandomTokens, "leave it out");
  table
      .add("reset-attention-mask", &data.reset_attention_mask,
           "Restrict attention to tokens of the same document.")
      .no_effect_with("mock-data", kRandomTokens, "leave it out");
  table
      .add("reset-position-ids", &data.reset_position_ids,
           "Restart positions at 0 at the beginning of each document.")
      .no_effect_with("mock-data", kRandomTokens, "leave it out");
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

namespace {

std::optional<double> as_number(const std::string& text) {
  try {
    return parse_double(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Checks --data-path by Megatron-LM's rule: an odd number of words is paths only; an even number is pairs of weight and
// path, unless none of the supposed weights is a number.
void check_blend(const char* option, const std::vector<std::string>& words, Problems& problems) {
  if (words.size() % 2 != 0) return;
  size_t numbers = 0;
  double sum = 0;
  for (size_t i = 0; i < words.size(); i += 2)
    if (const auto weight = as_number(words[i])) {
      ++numbers;
      sum += *weight;
      if (*weight < 0)
        problems.about(option)
            .wrong("--{}: the weight {} of '{}' is negative", option, words[i], words[i + 1])
            .right("give a number above 0");
    }
  if (numbers == 0) return;
  for (size_t i = 0; i < words.size(); i += 2)
    if (!as_number(words[i]))
      problems.about(option)
          .wrong("--{}: '{}' is in the place of the weight of '{}'", option, words[i], words[i + 1])
          .right("give a weight before every path, or before none");
  if (sum == 0) problems.about(option).wrong("--{}: all weights are 0", option).right("give numbers above 0");
}

// The shares of a split like "969,30,1", missing ones 0; empty if the text is not a split. The separators are those
// that Megatron-LM accepts.
std::vector<double> split_shares(const std::string& split) {
  constexpr std::string_view kSeparators = ", \t/:";
  std::vector<double> shares;
  double sum = 0;
  for (size_t begin = split.find_first_not_of(kSeparators); begin < split.size();) {
    const size_t end = std::min(split.find_first_of(kSeparators, begin), split.size());
    const auto share = as_number(split.substr(begin, end - begin));
    if (!share || *share < 0) return {};
    shares.push_back(*share);
    sum += *share;
    begin = split.find_first_not_of(kSeparators, end);
  }
  if (shares.size() > 3 || !(sum > 0)) return {};
  shares.resize(3, 0.0);
  return shares;
}

}  // namespace

void check_data(const DataConfig& data, Problems& problems) {
  check_blend("data-path", data.data_path, problems);
  check_blend("train-data-path", data.train_data_path, problems);
  check_blend("valid-data-path", data.valid_data_path, problems);
  if (split_shares(data.split).empty())
    problems.about("split")
        .wrong("--split '{}' is not possible", data.split)
        .right("give up to three shares that are not all 0, like 969,30,1");
}

void check_part(const DataConfig& data, Split split, const std::string& reader,
                std::vector<std::string> options, Problems& problems) {
  if (data.mock_data) return;
  const std::vector<double> shares = split_shares(data.split);
  const auto part = static_cast<size_t>(split);
  if (!shares.empty() && shares[part] == 0)
    problems.about(std::move(options))
        .wrong("{} needs data, but --split {} leaves none", reader, data.split)
        .right("its share ({} of training, validation, test) must be above 0", part == 0   ? "first"
                                                                               : part == 1 ? "second"
                                                                                           : "third");
}

std::optional<std::string> given_option_of_documents(const DataConfig& data) {
  if (data.eod_mask_loss) return "eod-mask-loss";
  if (data.reset_attention_mask) return "reset-attention-mask";
  if (data.reset_position_ids) return "reset-position-ids";
  return std::nullopt;
}

std::optional<std::string> given_option_of_pairs(const DataConfig& data) {
  const DataConfig defaults;
  if (data.mask_prob != defaults.mask_prob) return "mask-prob";
  if (data.short_seq_prob != defaults.short_seq_prob) return "short-seq-prob";
  if (data.whole_word_masking) return "whole-word-masking";
  if (data.split_sentences) return "split-sentences";
  return std::nullopt;
}

}  // namespace trifold
