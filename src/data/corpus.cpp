#include "data/corpus.h"

#include <sys/stat.h>

#include <cmath>
#include <utility>

#include "core/error.h"
#include "data/gpt_samples.h"
#include "data/passes.h"

namespace trifold {

namespace {

enum class PathKind { Indexed, Text };

PathKind kind_of(const std::string& path) {
  if (is_indexed_prefix(path)) return PathKind::Indexed;
  for (const char* suffix : {".bin", ".idx"}) {
    const std::string prefix = path.ends_with(suffix) ? path.substr(0, path.size() - 4) : "";
    if (!prefix.empty() && is_indexed_prefix(prefix))
      bad_input("--data-path {}: give the prefix of the pair, {}, without {}", path, prefix, suffix);
  }
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    bad_input("--data-path {0}: not found: there is neither {0}.idx with {0}.bin nor a text file {0}", path);
  if (S_ISDIR(status.st_mode))
    bad_input("--data-path {}: is a folder; give a text file or the prefix of a .bin/.idx pair", path);
  return PathKind::Text;
}

// Megatron-LM asks each data set of a weighted blend for half a percent more than its share.
int64_t with_surplus(int64_t samples) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(samples) * 1.005));
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const DataConfig& config) {
  if (config.tokenizer_type) return make_tokenizer(*config.tokenizer_type, config.tokenizer_model);
  if (config.tokenizer_model)
    bad_input("--tokenizer-model {}: also say --tokenizer-type sentencepiece", *config.tokenizer_model);
  for (const std::string& path : parse_data_paths(config.data_path).paths) {
    if (kind_of(path) == PathKind::Text) return std::make_unique<ByteTokenizer>();
  }
  return nullptr;
}

Corpus::Corpus(const DataConfig& config, int64_t vocab_size)
    : paths_(parse_data_paths(config.data_path)), split_(config.split), vocab_size_(vocab_size) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(config);
  if (tokenizer && tokenizer->vocab_size() > vocab_size)
    bad_input("the vocabulary of {} tokens is smaller than the tokenizer's, {}; give --vocab-size {}",
              vocab_size, tokenizer->vocab_size(), tokenizer->vocab_size());
  if (config.eod_mask_loss) {
    if (!tokenizer)
      bad_input(
          "--eod-mask-loss needs a tokenizer that says which token ends a document; give --tokenizer-type");
    mask_after_ = tokenizer->eod();
    if (!mask_after_)
      bad_input("--eod-mask-loss: the tokenizer has no token that ends a document; leave it out");
  }
  for (const std::string& path : paths_.paths) {
    if (kind_of(path) == PathKind::Text) {
      files_.emplace_back(std::make_shared<const TextTokens>(path, tokenizer.get(), vocab_size));
      continue;
    }
    auto dataset = std::make_shared<const IndexedDataset>(path);
    if (dataset->tokens() * size_of(dataset->token_type()) <= kScanLimit) dataset->check_tokens(vocab_size);
    files_.emplace_back(std::move(dataset));
  }
}

int64_t Corpus::tokens(Split split) const {
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

std::unique_ptr<Samples> Corpus::blend(Split split, int64_t seq_length, int64_t samples_needed,
                                       uint64_t seed) const {
  if (paths_.weights) return by_weight(split, seq_length, samples_needed, seed, *paths_.weights);
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
  if (!has(split)) bad_input("--split gives no tokens to the {} part, which is needed", name_of(split));
}

std::unique_ptr<DataSource> Corpus::passes(Split split, int64_t seq_length, int64_t passes,
                                           uint64_t seed) const {
  check_part(split);
  if (weighted()) bad_input("--data-path: a blend with weights has no single pass; leave out the weights");
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
                                        seq_length, mask_after_);
}

std::unique_ptr<DataSource> Corpus::source(Split split, int64_t seq_length, int64_t samples_needed,
                                           uint64_t seed) const {
  check_part(split);
  std::unique_ptr<Samples> samples = files_.size() == 1
                                         ? samples_of(files_[0], split, seq_length, samples_needed, seed)
                                         : blend(split, seq_length, samples_needed, seed);
  return std::make_unique<SampleSource>(std::move(samples), seq_length, mask_after_);
}

std::unique_ptr<DataSource> open_data(const DataConfig& config, Split split, int64_t seq_length,
                                      int64_t samples_needed, uint64_t seed, int64_t vocab_size) {
  return Corpus(config, vocab_size).source(split, seq_length, samples_needed, seed);
}

}  // namespace trifold
