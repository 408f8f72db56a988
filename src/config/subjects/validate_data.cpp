#include "config/subjects/validate_data.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "config/fields/number.h"
#include "config/options/problems.h"
#include "core/error.h"

namespace trifold {

namespace {

std::optional<double> as_number(const std::string& text) {
  try {
    return parse_double(text);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Megatron-LM's rule: an odd number of words is paths only; an even number is pairs of weight and path,
// unless none of the words in the places of weights is a number.
void check_blend(const std::vector<std::string>& words, Problems& problems) {
  if (words.size() % 2 != 0) return;
  size_t numbers = 0;
  double sum = 0;
  for (size_t i = 0; i < words.size(); i += 2)
    if (const auto weight = as_number(words[i])) {
      ++numbers;
      sum += *weight;
      if (*weight < 0)
        problems.about("data-path")
            .wrong("--data-path: the weight {} of '{}' is negative", words[i], words[i + 1])
            .right("give a number above 0");
    }
  if (numbers == 0) return;
  for (size_t i = 0; i < words.size(); i += 2)
    if (!as_number(words[i]))
      problems.about("data-path")
          .wrong("--data-path: '{}' is in the place of the weight of '{}'", words[i], words[i + 1])
          .right("give a weight before every path, or before none");
  if (sum == 0)
    problems.about("data-path").wrong("--data-path: all weights are 0").right("give numbers above 0");
}

// The shares of a split like "969,30,1", missing ones 0; empty when the text is not a split. The separators are those
// that users of Megatron-LM write.
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

void check_tokenizer(std::optional<TokenizerType> type, const std::optional<std::string>& model,
                     Problems& problems) {
  const bool has_model = type && *type != TokenizerType::Byte;
  if (has_model && !model)
    problems.about("tokenizer-type", "tokenizer-model")
        .wrong("--tokenizer-type {} needs --tokenizer-model FILE", name_of(*type))
        .right("give the tokenizer's file");
  if (!has_model && model)
    problems.about("tokenizer-model", "tokenizer-type")
        .wrong("--tokenizer-model {} has no effect", *model)
        .right("it needs --tokenizer-type sentencepiece or huggingface");
}

void check_bad_records(OnBadRecord reaction, int64_t most, Problems& problems) {
  if (reaction == OnBadRecord::Stop && most != DataConfig().max_bad_records)
    problems.about("max-bad-records", "on-bad-record")
        .wrong("--max-bad-records {} has no effect without --on-bad-record skip", most)
        .right("give both, or neither");
}

void check_data(const DataConfig& data, Problems& problems) {
  check_blend(data.data_path, problems);
  if (split_shares(data.split).empty())
    problems.about("split")
        .wrong("--split '{}' is not possible", data.split)
        .right("give up to three shares that are not all 0, like 969,30,1");
  check_tokenizer(data.tokenizer_type, data.tokenizer_model, problems);
  check_bad_records(data.on_bad_record, data.max_bad_records, problems);
}

void check_part(const DataConfig& data, Split split, const std::string& reader,
                std::vector<std::string> options, Problems& problems) {
  const std::vector<double> shares = split_shares(data.split);
  const auto part = static_cast<size_t>(split);
  if (!shares.empty() && shares[part] == 0)
    problems.about(std::move(options))
        .wrong("{} needs data, but --split {} leaves none", reader, data.split)
        .right("its share ({} of training, validation, test) must be above 0", part == 0   ? "first"
                                                                               : part == 1 ? "second"
                                                                                           : "third");
}

void check_checkpoint(const CheckpointConfig& config, Problems& problems) {
  const auto needs = [&](bool given, const char* option, const std::optional<std::string>& other,
                         const char* name) {
    if (given && !other)
      problems.about(option, name)
          .wrong("--{} has no effect without --{} DIR", option, name)
          .right("give both, or neither");
  };
  if (config.save_interval && !config.save)
    problems.about("save-interval", "save")
        .wrong("--save-interval {} has no effect without --save DIR", *config.save_interval)
        .right("give both, or neither");
  needs(config.auto_resume, "auto-resume", config.save, "save");
  needs(config.async_save, "async-save", config.save, "save");
  needs(config.save_retain.has_value(), "save-retain", config.save, "save");
  needs(config.save_best, "save-best", config.save, "save");
  needs(config.on_save_error != CheckpointConfig().on_save_error, "on-save-error", config.save, "save");
  if (config.check_replicas == 0 && !config.save)
    problems.about("check-replicas", "save")
        .wrong("--check-replicas 0 has no effect without --save DIR")
        .right("give both, or neither");
  needs(config.finetune, "finetune", config.load, "load");
  if (config.allow_changed_data && !config.auto_resume && (!config.load || config.finetune))
    problems.about("allow-changed-data", "load", "finetune", "auto-resume")
        .wrong("--allow-changed-data has no effect, because this run does not resume from a checkpoint")
        .right("give --load without --finetune, or --auto-resume");
}

void check_best(const CheckpointConfig& config, const std::optional<int64_t>& early_stop_patience,
                bool evaluates, Problems& problems) {
  if (evaluates) return;
  const std::pair<const char*, bool> options[] = {{"save-best", config.save_best},
                                                  {"early-stop-patience", early_stop_patience.has_value()}};
  for (const auto& [option, given] : options)
    if (given)
      problems.about(option, "eval-interval")
          .wrong("--{} has no effect in a run that is not evaluated while it trains", option)
          .right("give --eval-interval N, and samples to evaluate on");
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
