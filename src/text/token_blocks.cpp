#include "text/token_blocks.h"

#include <algorithm>
#include <exception>

#include "core/error.h"

namespace trifold {

namespace {

constexpr int kDoublings = 3;
// The most epochs of a block: a corpus of a few bytes would be opened hundreds of thousands of times for a block.
constexpr int kEpochsOfBlock = 1 << 14;
constexpr size_t kShare = size_t{1} << 16;  // bytes of text per task of a thread

template <class T>
std::vector<T> narrow(const std::vector<int32_t>& tokens) {
  return {tokens.begin(), tokens.end()};
}

}  // namespace

TokenBlock::TokenBlock(const BlockStart& start, const StreamOptions& options,
                       const std::vector<int32_t>& tokens)
    : first_sample_(start.first_sample),
      samples_(tokens.empty() ? 0 : (std::ssize(tokens) - 1) / options.seq_length),
      seq_length_(options.seq_length),
      order_key_(philox_key(options.seed, fmt::format("stream, block {}", start.block))) {
  const int64_t vocabulary = options.tokenizer->vocab_size();
  if (vocabulary <= int64_t{1} << 8) {
    tokens_ = narrow<uint8_t>(tokens);
  } else if (vocabulary <= int64_t{1} << 16) {
    tokens_ = narrow<uint16_t>(tokens);
  } else {
    tokens_ = tokens;
  }
}

size_t TokenBlock::bytes() const {
  return std::visit([](const auto& tokens) { return tokens.size() * sizeof(tokens[0]); }, tokens_);
}

void TokenBlock::read(int64_t index, std::span<int32_t> out) const {
  check(first_sample_ <= index && index < end_sample() && std::ssize(out) == seq_length_ + 1,
        "sample {} with {} tokens was asked of a block that has samples [{}, {})", index, out.size(),
        first_sample_, end_sample());
  const Permutation order(order_key_, samples_);
  const int64_t begin = order(index - first_sample_) * seq_length_;
  std::visit([&](const auto& tokens) { std::copy_n(tokens.begin() + begin, out.size(), out.begin()); },
             tokens_);
}

TokenBlocks::TokenBlocks(const StreamOptions& options)
    : options_(options),
      walker_(*options.files, options.fractions, options.split, options.seed),
      pool_(options.threads) {
  check(options.seq_length > 0, "a sample of {} tokens does not exist", options.seq_length);
  while (documents_.empty() && text_.size() < options_.first_block)
    if (!walker_.read_more(text_, documents_)) break;
  if (!documents_.empty()) {
    std::vector<int32_t> ids;
    DocumentTokens(*options.tokenizer, options.json_key, options.bad.get())
        .add(text_, documents_.front(), ids);
  }
  go_to({});
}

void TokenBlocks::go_to(const BlockStart& start) {
  start_ = start;
  walker_.go_to(start.position);
  epoch_has_documents_ = epoch_has_tokens_ = start.position.part > 0 || start.position.offset > 0;
}

// Tokenizes runs of documents of about kShare bytes; returns one list for each run, in order.
std::vector<std::vector<int32_t>> TokenBlocks::tokenize(const std::atomic<bool>& stop) {
  std::vector<size_t> cuts{0};
  size_t open = 0;
  for (size_t d = 0; d < documents_.size(); ++d) {
    open += documents_[d].end - documents_[d].begin;
    if (open < kShare && d + 1 < documents_.size()) continue;
    cuts.push_back(d + 1);
    open = 0;
  }
  std::vector<std::vector<int32_t>> lists(cuts.size() - 1);
  std::atomic<size_t> taken{0};
  std::vector<std::exception_ptr> errors(lists.size());  // the first mistake in the text is reported
  pool_.run([&](int) {
    for (size_t share = taken++; share < lists.size() && !stop; share = taken++) {
      try {
        DocumentTokens tokens(*options_.tokenizer, options_.json_key, options_.bad.get());
        for (size_t d = cuts[share]; d < cuts[share + 1]; ++d) tokens.add(text_, documents_[d], lists[share]);
      } catch (...) {
        errors[share] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return lists;
}

void TokenBlocks::refuse_empty() const {
  bad_input("{}: the corpus has no token for the {} part; change --split or give more text",
            options_.files->files().front().path, part_name(options_.split));
}

void TokenBlocks::read_documents(const std::atomic<bool>& stop) {
  text_.clear();
  documents_.clear();
  epoch_ended_ = false;
  const size_t enough = options_.first_block << std::min<int64_t>(start_.block, kDoublings);
  for (int epochs = 0; text_.size() < enough && epochs < kEpochsOfBlock && !stop;) {
    const size_t before = documents_.size();
    const bool more = walker_.read_more(text_, documents_);
    if (documents_.size() > before) epoch_has_documents_ = true;
    if (more) continue;
    epoch_ended_ = true;
    if (options_.one_pass) return;
    if (!epoch_has_documents_) refuse_empty();
    epoch_has_documents_ = false;
    ++epochs;
  }
}

// A block may have no token, because all its documents may belong to other splits, but an epoch without one is a
// mistake. All epochs have the same tokens, so checking one is enough.
void TokenBlocks::check_tokens(bool any) {
  if (any) epoch_has_tokens_ = true;
  if (any || !epoch_ended_ || options_.one_pass) return;
  if (!epoch_has_tokens_) refuse_empty();
  epoch_has_tokens_ = false;
}

std::unique_ptr<TokenBlock> TokenBlocks::next(const std::atomic<bool>& stop) {
  read_documents(stop);
  std::vector<std::vector<int32_t>> lists = tokenize(stop);
  if (stop) return nullptr;
  std::vector<int32_t> tokens = start_.carry;
  size_t count = tokens.size();
  for (const auto& list : lists) count += list.size();
  check_tokens(count > tokens.size());
  tokens.reserve(count);
  for (auto& list : lists) {
    tokens.insert(tokens.end(), list.begin(), list.end());
    list = {};
  }
  auto block = std::make_unique<TokenBlock>(start_, options_, tokens);
  const int64_t used = (block->end_sample() - block->first_sample()) * options_.seq_length;
  start_.carry.assign(tokens.begin() + used, tokens.end());
  start_.position = walker_.position();
  start_.first_sample = block->end_sample();
  ++start_.block;
  return block;
}

}  // namespace trifold
