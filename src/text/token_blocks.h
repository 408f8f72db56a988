// TokenBlocks: a streamed corpus as samples, block by block.
//
// A block is a run of documents in the order of the walker (text/text_walker.h), a few megabytes of text; a small
// corpus is repeated within a block. Several threads tokenize the documents. All tokens form one row, with the end of
// each document marked if the tokenizer has a token for it, and the row is cut into windows of seq_length + 1 tokens,
// of which neighbours share one. The windows of a block are shuffled. Tokens that do not fill a window are prepended to
// the next block, so no token is lost. Blocks grow from 1 to 8 MiB: the first is ready quickly, later ones mix samples
// well. Every sample is a pure function of (seed, files, tokenizer, seq_length); `first_block` is for tests, which have
// less text.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "core/thread_pool.h"
#include "data/permutation.h"
#include "text/document_tokens.h"
#include "text/text_walker.h"

namespace trifold {

struct StreamOptions {
  std::shared_ptr<const StreamFiles> files;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::string json_key = "text";
  std::shared_ptr<BadRecords> bad;  // null: a bad record ends the stream
  SplitFractions fractions{"1"};
  Split split = Split::Train;
  int64_t seq_length = 0;
  uint64_t seed = 0;
  int threads = 1;        // threads that tokenize
  bool one_pass = false;  // a block ends with the epoch
  // Bytes of text in the first block; the size doubles three times, or fewer for a tiny corpus repeated many times.
  size_t first_block = size_t{1} << 20;
};

// The start of a block: everything needed to make it.
struct BlockStart {
  StreamPosition position;
  int64_t block = 0;           // index over all epochs
  int64_t first_sample = 0;    // first sample of the block
  std::vector<int32_t> carry;  // tokens left over from earlier blocks, less than a sample
};

class TokenBlock {
 public:
  // Stores `tokens` in as few bytes as `vocab_size` allows.
  TokenBlock(const BlockStart& start, const StreamOptions& options, const std::vector<int32_t>& tokens);

  int64_t first_sample() const { return first_sample_; }
  int64_t end_sample() const { return first_sample_ + samples_; }
  size_t bytes() const;
  // Copies sample `index`, counted over all blocks, to `out`.
  void read(int64_t index, std::span<int32_t> out) const;

 private:
  int64_t first_sample_;
  int64_t samples_;
  int64_t seq_length_;
  PhiloxKey order_key_;
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<int32_t>> tokens_;
};

class TokenBlocks {
 public:
  // Reads and tokenizes a first document, so that mistakes in files and options are reported at once.
  explicit TokenBlocks(const StreamOptions& options);

  // The start of the block that `next` makes.
  const BlockStart& start() const { return start_; }
  void go_to(const BlockStart& start);

  // The next block, which may have no sample; null if `stop` was set meanwhile. BadInput if this split has no token.
  // After an Error, call `go_to` before the next call.
  std::unique_ptr<TokenBlock> next(const std::atomic<bool>& stop);
  // Whether the last block reached the end of an epoch.
  bool epoch_ended() const { return epoch_ended_; }

 private:
  std::vector<std::vector<int32_t>> tokenize(const std::atomic<bool>& stop);
  void read_documents(const std::atomic<bool>& stop);
  void check_tokens(bool any);
  [[noreturn]] void refuse_empty() const;

  StreamOptions options_;
  TextWalker walker_;
  ThreadPool pool_;
  BlockStart start_;
  bool epoch_ended_ = false;
  // Whether documents of the current epoch have been read; true if its beginning was skipped.
  bool epoch_has_documents_ = false;
  bool epoch_has_tokens_ = false;
  std::string text_;
  std::vector<RawDocument> documents_;
};

}  // namespace trifold
