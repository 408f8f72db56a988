#include "text/corpus.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/subjects/text.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/thread_pool.h"
#include "text/gpt_samples.h"
#include "text/passes.h"
#include "text/stream_pass.h"
#include "text/stream_samples.h"

namespace trifold {

namespace {

enum class PathKind { Indexed, Text, Stream };

PathKind kind_of(const std::string& path) {
  if (is_indexed_prefix(path)) return PathKind::Indexed;
  for (const char* suffix : {".bin", ".idx"}) {
    const std::string prefix = path.ends_with(suffix) ? path.substr(0, path.size() - 4) : "";
    if (!prefix.empty() && is_indexed_prefix(prefix))
      bad_input("--data-path {}: give the prefix of the pair, {}, without {}", path, prefix, suffix);
  }
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    bad_input(
        "--data-path {0}: not found: there is neither {0}.idx with {0}.bin nor a text file or folder {0}",
        path);
  const bool streamed =
      S_ISDIR(status.st_mode) || is_stream_name(path) || status.st_size > Corpus::kWholeText;
  return streamed ? PathKind::Stream : PathKind::Text;
}

// Megatron-LM requests half a percent more than its share of each data set of a weighted blend.
int64_t with_surplus(int64_t samples) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * 1.005));
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const DataConfig& config) {
  if (!config.arrays.empty()) return nullptr;  // arrays
  const bool documents = given_option_of_documents(config).has_value();
  const std::vector<std::string> paths = text_paths(config);
  const auto is_tokens = [](const std::string& path) { return kind_of(path) == PathKind::Indexed; };
  const bool all_tokens = std::all_of(paths.begin(), paths.end(), is_tokens);
  if (config.tokenizer_type == TokenizerType::Null && all_tokens) return nullptr;
  if (config.tokenizer_type) return make_tokenizer(config, documents);
  if (config.tokenizer_model)
    bad_input("--tokenizer-model {}: also give --tokenizer-type sentencepiece or huggingface",
              *config.tokenizer_model);
  if (all_tokens) return nullptr;
  return make_tokenizer(TokenizerType::Byte, std::nullopt, documents, config.eod_token);
}

Corpus::Corpus(const DataConfig& config, int64_t vocab_size)
    : paths_(parse_data_paths(config.data_path)),
      split_(config.split),
      vocab_size_(vocab_size),
      json_key_(config.json_key),
      bad_(std::make_shared<BadRecords>(config)),
      tokenizer_(open_tokenizer(config)) {
  if (tokenizer_ && tokenizer_->vocab_size() > vocab_size)
    bad_input("the vocabulary of {} tokens is smaller than the tokenizer's, {}; give --vocab-size {}",
              vocab_size, tokenizer_->vocab_size(), tokenizer_->vocab_size());
  find_documents(config);
  open_schedule(config);
  open_paths();
  check_json_options();
  check_ends(config);
}

void Corpus::open_schedule(const DataConfig& config) {
  if (!config.data_schedule) return;
  if (paths_.weights)
    bad_input("--data-schedule has the weights of the paths: leave out the weights of --data-path");
  if (paths_.paths.size() < 2)
    bad_input("--data-schedule has no effect on {} alone: give several paths to blend", paths_.paths.front());
  schedule_.emplace(*config.data_schedule, paths_.paths);
}

bool Corpus::lacks_ends(const IndexedDataset& dataset) const {
  constexpr int64_t kSearched = int64_t{1} << 25;  // tokens
  return tokenizer_ && tokenizer_->eod() && dataset.documents() > 1 &&
         !dataset.holds_token(*tokenizer_->eod(), kSearched);
}

void Corpus::check_ends(const DataConfig& config) const {
  if (config.eod_token && !tokenizer_)
    bad_input("--eod-token {} has no effect without a tokenizer: give --tokenizer-type and --tokenizer-model",
              printable(*config.eod_token));
  const auto option = given_option_of_documents(config);
  if (!option) return;
  for (const File& file : files_)
    if (const auto* dataset = std::get_if<std::shared_ptr<const IndexedDataset>>(&file))
      if (lacks_ends(**dataset))
        bad_input(
            "--{} has no effect on {}: none of its {} documents ends with the token {}, the tokenizer's end of a "
            "document; write it again with 'trifold tokenize --append-eod', name another token with --eod-token, or "
            "leave the option out",
            *option, (*dataset)->prefix(), (*dataset)->documents(), *tokenizer_->eod());
}

DataNotes Corpus::notes() const {
  DataNotes notes;
  for (const File& file : files_) {
    if (const auto* stream = std::get_if<std::shared_ptr<const StreamFiles>>(&file)) {
      const std::vector<std::string>& read = (*stream)->notes();
      notes.files.insert(notes.files.end(), read.begin(), read.end());
      const std::vector<StreamFile>& all = (*stream)->files();
      const bool several = all.size() > 1 || all.front().kind == TextKind::JsonLines;
      if (several && !tokenizer_->eod())
        notes.warnings.emplace_back(
            "the tokenizer has no token that ends a document, so documents of streamed text follow each other without "
            "an end: name one with --eod-token, or with bytes give an option of documents such as --eod-mask-loss");
    } else if (const auto* dataset = std::get_if<std::shared_ptr<const IndexedDataset>>(&file)) {
      if (lacks_ends(**dataset))
        notes.warnings.push_back(fmt::format(
            "{}: none of its {} documents ends with the token {}, the tokenizer's end of a document "
            "('trifold tokenize --append-eod' writes it)",
            (*dataset)->prefix(), (*dataset)->documents(), *tokenizer_->eod()));
    }
  }
  return notes;
}

void Corpus::find_documents(const DataConfig& config) {
  const auto option = given_option_of_documents(config);
  if (!option) return;
  if (!tokenizer_)
    bad_input("--{} needs a tokenizer with an end-of-document token; give --tokenizer-type", *option);
  if (!tokenizer_->eod())
    bad_input("--{}: the tokenizer has no token that ends a document; leave it out", *option);
  documents_ = {.end = tokenizer_->eod(),
                .mask_loss = config.eod_mask_loss,
                .restart_positions = config.reset_position_ids,
                .separate_attention = config.reset_attention_mask};
}

void Corpus::check_json_options() const {
  const bool has_key = json_key_ != DataConfig().json_key;
  if (!has_key && !bad_->skips()) return;
  for (const File& file : files_)
    if (const auto* stream = std::get_if<std::shared_ptr<const StreamFiles>>(&file))
      for (const StreamFile& part : (*stream)->files())
        if (part.kind == TextKind::JsonLines) return;
  bad_input("{} has no effect: no file of --data-path is JSON lines (.jsonl, .ndjson, .json)",
            has_key ? "--json-key " + json_key_ : "--on-bad-record skip");
}

void Corpus::open_paths() {
  const std::vector<std::string>& paths = paths_.paths;
  const auto streamed = std::count_if(
      paths.begin(), paths.end(), [](const std::string& path) { return kind_of(path) == PathKind::Stream; });
  if (!weighted() && streamed == std::ssize(paths)) {
    files_.emplace_back(std::make_shared<const StreamFiles>(paths));
    return;
  }
  if (!weighted() && streamed > 0)
    bad_input(
        "--data-path: {} of {} paths are streamed (folders, JSON lines, packed files, and text larger than "
        "64 MiB), so their sizes are not known and all samples of every path cannot be mixed: put a weight "
        "before every path",
        streamed, paths.size());
  for (const std::string& path : paths) {
    switch (kind_of(path)) {
      case PathKind::Text:
        refuse_other_kinds(path);
        files_.emplace_back(std::make_shared<const TextTokens>(path, tokenizer_.get(), vocab_size_));
        break;
      case PathKind::Stream:
        files_.emplace_back(std::make_shared<const StreamFiles>(std::vector<std::string>{path}));
        break;
      case PathKind::Indexed:
        auto dataset = std::make_shared<const IndexedDataset>(path);
        if (dataset->tokens() * size_of(dataset->token_type()) <= kScanLimit)
          dataset->check_tokens(vocab_size_);
        files_.emplace_back(std::move(dataset));
        break;
    }
  }
}

bool Corpus::streams() const {
  return std::any_of(files_.begin(), files_.end(), [](const File& file) {
    return std::holds_alternative<std::shared_ptr<const StreamFiles>>(file);
  });
}

StreamOptions Corpus::stream_options(std::shared_ptr<const StreamFiles> files, Split split,
                                     int64_t seq_length, uint64_t seed) const {
  static const int kMostThreads = 8;
  StreamOptions options;
  options.files = std::move(files);
  options.tokenizer = tokenizer_;
  options.json_key = json_key_;
  options.bad = bad_;
  options.fractions = split_;
  options.split = split;
  options.seq_length = seq_length;
  options.seed = seed;
  // Each stream has its own threads.
  options.threads = std::clamp(available_cores() / 2 / static_cast<int>(files_.size()), 1, kMostThreads);
  return options;
}

int64_t Corpus::tokens(Split split) const {
  check(!streams(), "the tokens of text that is streamed are not counted");
  int64_t total = 0;
  for (const File& file : files_) {
    if (const auto* text = std::get_if<std::shared_ptr<const TextTokens>>(&file)) {
      total += split_.of(split, (*text)->count()).size();
      continue;
    }
    const IndexedDataset& dataset = *std::get<std::shared_ptr<const IndexedDataset>>(file);
    const Interval part = split_.of(split, dataset.sequences());
    const auto start_of = [&](int64_t sequence) {
      return sequence == dataset.sequences() ? dataset.tokens() : dataset.first_token(sequence);
    };
    total += start_of(part.end) - start_of(part.begin);
  }
  return total;
}

std::unique_ptr<Samples> Corpus::samples_of(const File& file, Split split, int64_t seq_length,
                                            std::optional<int64_t> samples_needed, uint64_t seed,
                                            bool fixed_cut) const {
  if (const auto* text = std::get_if<std::shared_ptr<const TextTokens>>(&file))
    return std::make_unique<TextSamples>(*text, split_.of(split, (*text)->count()), split, seq_length,
                                         samples_needed.value_or(0), seed, fixed_cut);
  if (const auto* stream = std::get_if<std::shared_ptr<const StreamFiles>>(&file))
    return std::make_unique<StreamSamples>(stream_options(*stream, split, seq_length, seed),
                                           StreamSamples::kMemory / files_.size());
  const auto& dataset = std::get<std::shared_ptr<const IndexedDataset>>(file);
  return std::make_unique<GptSamples>(dataset, split_.of(split, dataset->sequences()), split, seq_length,
                                      samples_needed, seed, vocab_size_);
}

std::unique_ptr<Samples> Corpus::by_weight(Split split, int64_t seq_length, int64_t samples_needed,
                                           uint64_t seed, const std::vector<double>& weights) const {
  std::vector<std::unique_ptr<Samples>> parts;
  int64_t total = 0;
  for (size_t k = 0; k < files_.size(); ++k) {
    const auto share = static_cast<int64_t>(std::ceil(static_cast<double>(samples_needed) * weights[k]));
    total += share;
    parts.push_back(samples_of(files_[k], split, seq_length, with_surplus(share), seed));
  }
  return std::make_unique<BlendedSamples>(std::move(parts), blend_by_weight(weights, total));
}

std::unique_ptr<Samples> Corpus::by_schedule(int64_t seq_length, int64_t samples_needed,
                                             uint64_t seed) const {
  const BlendShares shares = schedule_->shares(seq_length);
  BlendOrder order(shares, samples_needed, {}, true);
  std::vector<std::unique_ptr<Samples>> parts;
  for (size_t k = 0; k < files_.size(); ++k) {
    const auto due = static_cast<int64_t>(std::ceil(shares.due(k, samples_needed)));
    const int64_t needed = std::max({int64_t{1}, with_surplus(due), order.taken(k, samples_needed)});
    parts.push_back(samples_of(files_[k], Split::Train, seq_length, needed, seed));
  }
  return std::make_unique<BlendedSamples>(std::move(parts), std::move(order), schedule_->names());
}

std::unique_ptr<Samples> Corpus::blend(Split split, int64_t seq_length, int64_t samples_needed,
                                       uint64_t seed) const {
  if (paths_.weights) return by_weight(split, seq_length, samples_needed, seed, *paths_.weights);
  if (schedule_)
    return split == Split::Train ? by_schedule(seq_length, samples_needed, seed)
                                 : by_weight(split, seq_length, samples_needed, seed, schedule_->last());
  std::vector<std::unique_ptr<Samples>> parts;
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const File& file : files_) {
    parts.push_back(samples_of(file, split, seq_length, std::nullopt, seed));
    sizes.push_back(parts.back()->count());
    total += sizes.back();
  }
  if (samples_needed <= total)
    return std::make_unique<BlendedSamples>(std::move(parts), blend_exhaustive(sizes));
  std::vector<double> weights;
  for (int64_t size : sizes) weights.push_back(static_cast<double>(size) / static_cast<double>(total));
  return by_weight(split, seq_length, samples_needed, seed, weights);
}

void Corpus::check_part(Split split) const {
  if (!has(split)) bad_input("--split gives no tokens to the {} part, which is needed", part_name(split));
}

std::unique_ptr<DataSource> Corpus::passes(Split split, int64_t seq_length, int64_t passes, uint64_t seed,
                                           int64_t most) const {
  check_part(split);
  if (weighted()) bad_input("--data-path: a blend with weights has no single pass; leave out the weights");
  if (streams()) {
    if (passes > 1) bad_input("--data-path: several passes over text that is streamed cannot be counted");
    const auto& files = std::get<std::shared_ptr<const StreamFiles>>(files_.front());
    return std::make_unique<SampleSource>(
        std::make_unique<StreamPass>(stream_options(files, split, seq_length, seed), most), seq_length,
        documents_);
  }
  std::vector<std::unique_ptr<Samples>> parts;
  std::vector<int64_t> sizes;
  for (const File& file : files_) {
    parts.push_back(samples_of(file, split, seq_length, std::nullopt, seed, true));
    sizes.push_back(parts.back()->count());
  }
  std::unique_ptr<Samples> once;
  if (parts.size() == 1)
    once = std::move(parts.front());
  else
    once = std::make_unique<BlendedSamples>(std::move(parts), blend_exhaustive(sizes));
  return std::make_unique<SampleSource>(std::make_unique<RepeatedSamples>(std::move(once), passes, seed),
                                        seq_length, documents_);
}

std::unique_ptr<DataSource> Corpus::source(Split split, int64_t seq_length, int64_t samples_needed,
                                           uint64_t seed) const {
  check_part(split);
  std::unique_ptr<Samples> samples = files_.size() == 1
                                         ? samples_of(files_[0], split, seq_length, samples_needed, seed)
                                         : blend(split, seq_length, samples_needed, seed);
  return std::make_unique<SampleSource>(std::move(samples), seq_length, documents_);
}

std::unique_ptr<DataSource> open_data(const DataConfig& config, Split split, int64_t seq_length,
                                      int64_t samples_needed, uint64_t seed, int64_t vocab_size) {
  return Corpus(config, vocab_size).source(split, seq_length, samples_needed, seed);
}

}  // namespace trifold
