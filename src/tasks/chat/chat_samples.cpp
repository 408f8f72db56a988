#include "tasks/chat/chat_samples.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/permutation.h"

namespace trifold {

namespace {

std::string digest_of(const PackedChats& packed) {
  uint64_t hash = 0;
  const auto add = [&hash](const void* data, size_t bytes) {
    const PhiloxKey key = philox_key(hash, std::string_view(static_cast<const char*>(data), bytes));
    hash = uint64_t{key.hi} << 32 | key.lo;
  };
  for (const EncodedChat& chat : packed.chats) {
    add(chat.tokens.data(), chat.tokens.size() * sizeof(int32_t));
    add(chat.learned.data(), chat.learned.size());
  }
  for (const std::vector<int64_t>& sample : packed.samples)
    add(sample.data(), sample.size() * sizeof(int64_t));
  add(&packed.seq_length, sizeof packed.seq_length);
  return fmt::format("{} conversations in {} samples {:016x}", packed.chats.size(), packed.samples.size(),
                     hash);
}

}  // namespace

ChatSamples::ChatSamples(std::shared_ptr<const PackedChats> packed, int64_t passes, bool shuffled,
                         uint64_t seed)
    : packed_(std::move(packed)),
      passes_(passes),
      shuffled_(shuffled),
      key_(philox_key(seed, "order of conversations")) {
  check(!packed_->samples.empty(), "there are no samples");
  for (const std::vector<int64_t>& sample : packed_->samples) {
    int64_t tokens = 0;
    for (const int64_t chat : sample) tokens += std::ssize(packed_->chats[static_cast<size_t>(chat)].tokens);
    check(tokens <= packed_->seq_length, "a sample has {} tokens, more than {}", tokens, packed_->seq_length);
    check(sample.size() == 1 || packed_->separate, "several conversations of a sample are not separate");
  }
  fingerprint_ = digest_of(*packed_);
}

void ChatSamples::open_at(const std::string& bookmark) const {
  if (bookmark != fingerprint_)
    bad_input(
        "the checkpoint was trained on {}, but --train-data makes {} now: give the same file, tokenizer, chat template "
        "and options (--seq-length, --packing, --truncation-mode, --seed), or start a new run from its weights",
        bookmark, fingerprint_);
}

const std::vector<int64_t>& ChatSamples::chats_of(int64_t index) const {
  const int64_t count = std::ssize(packed_->samples);
  int64_t place = index % count;
  if (shuffled_) {
    const auto words = philox(key_, static_cast<uint64_t>(index / count));
    place = Permutation(philox_key(uint64_t{words[0]} << 32 | words[1], "order of a pass"), count)(place);
  }
  return packed_->samples[static_cast<size_t>(place)];
}

void ChatSamples::read_sample(Batch& batch, int64_t b, const std::vector<int64_t>& chats) const {
  const int64_t length = packed_->seq_length, row = b * length;
  int32_t* tokens = batch.tokens.as<int32_t>() + row;
  int32_t* labels = batch.labels.as<int32_t>() + row;
  int32_t* positions = batch.positions.as<int32_t>() + row;
  float* weights = batch.loss_weight.as<float>() + row;
  int32_t* padding = batch.padding.data == nullptr ? nullptr : batch.padding.as<int32_t>() + row;
  int32_t* begins = packed_->separate ? batch.document_begin.as<int32_t>() + row : nullptr;
  int64_t begin = 0;
  const auto finish_document = [&](int64_t end, int32_t is_padding) {
    for (int64_t t = begin; t < end; ++t) {
      positions[t] = static_cast<int32_t>(t - begin);
      if (begins != nullptr) begins[t] = static_cast<int32_t>(begin);
      if (padding != nullptr) padding[t] = is_padding;
    }
    begin = end;
  };
  for (const int64_t number : chats) {
    const EncodedChat& chat = packed_->chats[static_cast<size_t>(number)];
    const int64_t end = begin + std::ssize(chat.tokens);
    std::copy(chat.tokens.begin(), chat.tokens.end(), tokens + begin);
    std::copy(chat.tokens.begin() + 1, chat.tokens.end(), labels + begin);
    std::copy(chat.learned.begin() + 1, chat.learned.end(), weights + begin);
    labels[end - 1] = packed_->pad;
    weights[end - 1] = 0;
    finish_document(end, 0);
  }
  std::fill(tokens + begin, tokens + length, packed_->pad);
  std::fill(labels + begin, labels + length, packed_->pad);
  std::fill(weights + begin, weights + length, 0.0F);
  finish_document(length, 1);
}

void ChatSamples::read(Batch& batch, int64_t first_sample) const {
  const Shape shape{batch.samples(), packed_->seq_length};
  check(batch.tokens.shape == shape && (!packed_->separate || batch.document_begin.shape == shape),
        "the batch is {}, but samples have {} positions", to_string(batch.tokens.shape), packed_->seq_length);
  check(0 <= first_sample && first_sample + batch.samples() <= samples(),
        "samples [{}, {}) were asked for, the data source has {}", first_sample,
        first_sample + batch.samples(), samples());
  batch.first_sample = first_sample;
  for (int64_t b = 0; b < batch.samples(); ++b) read_sample(batch, b, chats_of(first_sample + b));
}

}  // namespace trifold
