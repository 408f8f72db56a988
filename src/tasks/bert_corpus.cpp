#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "tasks/bert_samples.h"
#include "text/blend.h"
#include "text/corpus.h"
#include "text/stream_files.h"

namespace trifold {

namespace {

std::unique_ptr<Tokenizer> tokenizer_of(const DataConfig& config) {
  std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(config);
  if (!tokenizer)
    bad_input("--model-type bert builds its pairs from plain text: name text files with --data-path");
  return tokenizer;
}

}  // namespace

BertCorpus::BertCorpus(const DataConfig& config, int64_t vocab_size, bool pairs)
    : split_(config.split),
      rules_{0, config.mask_prob, config.short_seq_prob, config.whole_word_masking, pairs},
      text_(std::make_shared<SentenceTokens>(
          SentenceTokens::Options{config.split_sentences, config.whole_word_masking})) {
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(config);
  special_ = BertTokens(*tokenizer);
  if (bert_vocabulary(*tokenizer) > vocab_size)
    bad_input(
        "the vocabulary of {} tokens is smaller than the tokenizer's and BERT's own, {}: "
        "give --vocab-size {}",
        vocab_size, bert_vocabulary(*tokenizer), bert_vocabulary(*tokenizer));
  const DataPaths paths = parse_data_paths(config.data_path);
  if (config.json_key != DataConfig().json_key)
    bad_input("--json-key {} has no effect with --model-type bert, which reads plain text", config.json_key);
  if (config.on_bad_record != DataConfig().on_bad_record)
    bad_input("--on-bad-record {} has no effect with --model-type bert, which reads plain text",
              name_of(config.on_bad_record));
  if (paths.weights)
    bad_input(
        "--data-path: weights are not possible with --model-type bert, whose pairs come from all files "
        "together: give the paths alone");
  for (const std::string& path : paths.paths) {
    if (is_indexed_prefix(path))
      bad_input(
          "--data-path {}: a .bin/.idx pair has no sentence boundaries, "
          "which --model-type bert needs: give the text",
          path);
    std::error_code ignored;
    if (is_stream_name(path) || std::filesystem::is_directory(path, ignored))
      bad_input(
          "--data-path {}: --model-type bert reads whole plain text files, no folders, JSON lines or "
          "compressed files: name the decompressed files one by one",
          path);
    const int64_t before = text_->documents();
    text_->add(path, *tokenizer);
    files_.push_back({before, text_->documents()});
  }
}

std::vector<int64_t> BertCorpus::documents_of(Split split) const {
  std::vector<int64_t> documents;
  for (const Interval& file : files_) {
    const Interval part = split_.of(split, file.size());
    for (int64_t d = part.begin; d < part.end; ++d) documents.push_back(file.begin + d);
  }
  return documents;
}

std::unique_ptr<DataSource> BertCorpus::source(Split split, int64_t seq_length, int64_t samples_needed,
                                               uint64_t seed) const {
  const auto once = passes(split, seq_length, 1, seed);
  return passes(split, seq_length,
                std::max<int64_t>(1, (samples_needed + once->samples() - 1) / once->samples()), seed);
}

std::unique_ptr<DataSource> BertCorpus::passes(Split split, int64_t seq_length, int64_t passes, uint64_t seed,
                                               int64_t /*most*/) const {
  BertRules rules = rules_;
  rules.seq_length = seq_length;
  return std::make_unique<BertSamples>(text_, documents_of(split), special_, rules, passes, seed);
}

}  // namespace trifold
