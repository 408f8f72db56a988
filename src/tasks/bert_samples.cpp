#include "tasks/bert_samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>

#include "core/error.h"
#include "data/permutation.h"

namespace trifold {

BertTokens::BertTokens(int64_t of_tokenizer)
    : ordinary(static_cast<int32_t>(of_tokenizer)),
      pad(ordinary),
      cls(ordinary + 1),
      sep(ordinary + 2),
      mask(ordinary + 3) {}

namespace {

// The ids of texts that are each one token of the tokenizer, and different ones; empty if they are not.
std::vector<int32_t> tokens_of_texts(const Tokenizer& tokenizer, std::span<const char* const> texts) {
  std::vector<int32_t> ids;
  for (const char* text : texts) {
    const size_t before = ids.size();
    tokenizer.encode(text, ids);
    if (ids.size() != before + 1) return {};
  }
  if (std::set<int32_t>(ids.begin(), ids.end()).size() != ids.size()) return {};
  return ids;
}

}  // namespace

BertTokens::BertTokens(const Tokenizer& tokenizer) : BertTokens(tokenizer.vocab_size()) {
  constexpr const char* kBert[] = {"[PAD]", "[CLS]", "[SEP]", "[MASK]"};
  constexpr const char* kRoberta[] = {"<pad>", "<s>", "</s>", "<mask>"};
  std::vector<int32_t> ids = tokens_of_texts(tokenizer, kBert);
  if (ids.empty()) ids = tokens_of_texts(tokenizer, kRoberta);
  if (ids.empty()) return;
  pad = ids[0];
  cls = ids[1];
  sep = ids[2];
  mask = ids[3];
}

int64_t bert_vocabulary(const Tokenizer& tokenizer) {
  const bool has_special = BertTokens(tokenizer).pad < tokenizer.vocab_size();
  return tokenizer.vocab_size() + (has_special ? 0 : BertTokens::kCount);
}

int64_t BertSamples::Draws::below(int64_t n) {
  const auto words = philox(key_, at_++);
  return static_cast<int64_t>((uint64_t{words[0]} << 32 | words[1]) % static_cast<uint64_t>(n));
}

double BertSamples::Draws::real() {
  return static_cast<double>(below(int64_t{1} << 53)) / static_cast<double>(int64_t{1} << 53);
}

BertSamples::BertSamples(std::shared_ptr<const SentenceTokens> text, std::vector<int64_t> documents,
                         BertTokens special, BertRules rules, int64_t passes, uint64_t seed)
    : text_(std::move(text)),
      documents_(std::move(documents)),
      special_(special),
      rules_(rules),
      room_(rules.seq_length - (rules.pairs ? 3 : 2)),
      passes_(passes),
      key_(philox_key(seed, "bert samples")),
      order_key_(philox_key(seed, "order of bert samples")) {
  if (room_ < 2 || rules_.seq_length >= int64_t{1} << (Draws::kBits - 3))
    bad_input("--seq-length {} is not possible for BERT: at least {}, for two tokens and the special ones",
              rules_.seq_length, rules_.seq_length - room_ + 2);
  if (documents_.empty()) bad_input("the text has no document with a token in it");
  if (rules_.pairs && documents_.size() < 2)
    bad_input(
        "pairs of unrelated sentences need a second document, but there is only one: separate documents by "
        "blank lines, or give --bert-no-binary-head");
  for (size_t d = 0; d < documents_.size(); ++d) {
    const Interval all = text_->sentences(documents_[d]);
    for (int64_t first = all.begin; first < all.end;) {
      const int64_t end = enough(first, all.end, room_);
      chunks_.push_back({static_cast<int64_t>(d), first, end});
      first = end;
    }
  }
}

int64_t BertSamples::enough(int64_t first, int64_t end, int64_t length) const {
  int64_t last = first + 1;
  while (last < end && text_->begin(last) - text_->begin(first) < length) ++last;
  return last;
}

BertSamples::Piece BertSamples::piece(int64_t first, int64_t end) const {
  return {text_->begin(first), text_->begin(end) - text_->begin(first)};
}

namespace {

// Cuts tokens off both ends so that `length` remain.
template <class Piece, class Draws>
void shorten(Piece& piece, int64_t length, Draws& draws) {
  if (piece.length <= length) return;
  piece.begin += draws.below(piece.length - length + 1);
  piece.length = length;
}

}  // namespace

BertSamples::Pair BertSamples::draw_pair(int64_t index, Draws& draws) const {
  const auto pass = static_cast<uint64_t>(index / chunks());
  const auto words = philox(order_key_, pass);
  const Permutation order(philox_key(uint64_t{words[0]} << 32 | words[1], "order of a pass"), chunks());
  const Chunk& chunk = chunks_[static_cast<size_t>(order(index % chunks()))];
  const bool is_short = draws.real() < rules_.short_probability;
  const int64_t length = is_short ? 2 + draws.below(room_ - 1) : room_;
  const int64_t end = enough(chunk.first, chunk.end, length);
  Pair pair;
  if (!rules_.pairs) {
    pair.first = piece(chunk.first, end);
    shorten(pair.first, length, draws);
    return pair;
  }
  const int64_t sentences = end - chunk.first;
  const int64_t cut = chunk.first + 1 + (sentences > 1 ? draws.below(sentences - 1) : 0);
  pair.first = piece(chunk.first, cut);
  pair.random = sentences == 1 || draws.real() < 0.5;
  pair.second = pair.random ? draw_other(chunk.document, length - pair.first.length, draws) : piece(cut, end);
  // The shorter one keeps its tokens if it has no more than half.
  const int64_t half = length / 2;
  shorten(pair.first, std::max(length - half, length - pair.second.length), draws);
  shorten(pair.second, length - pair.first.length, draws);
  return pair;
}

// Sentences of another document from a random one on; at least one, for any `length`.
BertSamples::Piece BertSamples::draw_other(int64_t document, int64_t length, Draws& draws) const {
  int64_t other = draws.below(static_cast<int64_t>(documents_.size()) - 1);
  if (other >= document) ++other;
  const Interval all = text_->sentences(documents_[static_cast<size_t>(other)]);
  const int64_t first = all.begin + draws.below(all.size());
  return piece(first, enough(first, all.end, length));
}

// Masks units, each a token or a whole word. tokens[0] is [CLS], followed by the first piece.
void BertSamples::mask(std::span<int32_t> tokens, std::span<float> weights, const Pair& pair,
                       Draws& draws) const {
  struct Unit {
    int64_t begin, length;
  };
  static thread_local std::vector<Unit> units;  // memory reused between samples
  units.clear();
  int64_t at = 1;
  for (const Piece& piece : {pair.first, pair.second}) {
    for (int64_t i = 0; i < piece.length; ++i, ++at) {
      if (rules_.whole_words && i > 0 && !text_->starts_word(piece.begin + i))
        ++units.back().length;
      else
        units.push_back({at, 1});
    }
    ++at;  // [SEP]
  }
  const auto real = static_cast<double>(tokens.size());
  int64_t left = std::max<int64_t>(1, std::llround(rules_.mask_probability * real));
  for (size_t u = 0; u < units.size() && left > 0; ++u) {
    std::swap(units[u], units[u + static_cast<size_t>(draws.below(static_cast<int64_t>(units.size() - u)))]);
    left -= units[u].length;
    for (int64_t i = units[u].begin; i < units[u].begin + units[u].length; ++i) {
      const auto place = static_cast<size_t>(i);
      weights[place] = 1;
      const int64_t what = draws.below(10);
      if (what < 8) tokens[place] = special_.mask;
      if (what == 8) tokens[place] = static_cast<int32_t>(draws.below(special_.ordinary));
    }
  }
}

void BertSamples::read_one(const Batch& batch, int64_t b, int64_t index) const {
  Draws draws(key_, index);
  const Pair pair = draw_pair(index, draws);
  const auto length = static_cast<size_t>(rules_.seq_length);
  const auto row = [&](const Tensor& tensor, auto* type) {
    return std::span(tensor.as<std::remove_pointer_t<decltype(type)>>() + b * rules_.seq_length, length);
  };
  int32_t* ids = nullptr;
  const auto tokens = row(batch.tokens, ids);
  const auto types = row(batch.token_types, ids);
  const auto positions = row(batch.positions, ids);
  const auto labels = row(batch.labels, ids);
  const auto weights = row(batch.loss_weight, static_cast<float*>(nullptr));
  std::fill(types.begin(), types.end(), 0);
  std::fill(weights.begin(), weights.end(), 0.0F);
  std::iota(positions.begin(), positions.end(), 0);
  size_t at = 0;
  tokens[at++] = special_.cls;
  const auto put = [&](const Piece& piece, int32_t type) {
    const size_t begin = at;
    const auto from =
        text_->tokens().subspan(static_cast<size_t>(piece.begin), static_cast<size_t>(piece.length));
    at = static_cast<size_t>(std::copy(from.begin(), from.end(), tokens.begin() + static_cast<int64_t>(at)) -
                             tokens.begin());
    tokens[at++] = special_.sep;
    std::fill(types.begin() + static_cast<int64_t>(begin), types.begin() + static_cast<int64_t>(at), type);
  };
  put(pair.first, 0);
  if (rules_.pairs) put(pair.second, 1);
  std::fill(tokens.begin() + static_cast<int64_t>(at), tokens.end(), special_.pad);
  std::copy(tokens.begin(), tokens.end(), labels.begin());
  mask(tokens.first(at), weights.first(at), pair, draws);
  batch.lengths.as<int32_t>()[b] = static_cast<int32_t>(at);
  batch.pair_labels.as<int32_t>()[b] = pair.random ? 1 : 0;
  batch.pair_weight.as<float>()[b] = 1;
}

void BertSamples::read(Batch& batch, int64_t first_sample) const {
  const int64_t count = batch.samples();
  check(batch.seq_length() == rules_.seq_length && batch.token_types.data != nullptr,
        "the batch is {}, but pairs have {} tokens", to_string(batch.tokens.shape), rules_.seq_length);
  check(0 <= first_sample && first_sample + count <= samples(),
        "samples [{}, {}) were asked for, the data source has {}", first_sample, first_sample + count,
        samples());
  batch.first_sample = first_sample;
  for (int64_t b = 0; b < count; ++b) read_one(batch, b, first_sample + b);
}

}  // namespace trifold
