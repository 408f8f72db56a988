// TextSamples: a plain text file as samples. The whole file is one document.
//
// --split cuts the token stream into contiguous parts: 90,10 holds out the last tenth. A part is cut into windows of
// seq_length + 1 tokens, of which neighbours share one, and the windows are shuffled in every epoch. For training the
// cut is shifted by a pseudo-random distance each epoch, so that epochs over a small text differ: a window then starts
// anywhere, not only at multiples of seq_length. Validation and test always use the same cut, so their losses are
// comparable.
//
// This order is Trifold's own, not Megatron-LM's (which does not read text files): a pure function of the seed that
// does not depend on the number of samples requested. It needs no memory: the shuffle is a keyed permutation
// (data/permutation.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "data/permutation.h"
#include "files/mapped_file.h"
#include "text/samples.h"
#include "text/split.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// The tokens of a text file. Bytes are read from the mapped file as needed; with another tokenizer the file is encoded
// once, line by line, into 4 bytes of memory per token.
class TextTokens {
 public:
  // `tokenizer` is used only during construction; null: bytes. BadInput if the file is missing or empty, or a token is
  // outside [0, vocab_size).
  TextTokens(const std::string& path, const Tokenizer* tokenizer, int64_t vocab_size);

  const std::string& path() const { return path_; }
  int64_t count() const;
  // Copies tokens [begin, begin + out.size()) to `out`; they must exist.
  void read(int64_t begin, std::span<int32_t> out) const;

 private:
  void check_vocabulary(int64_t vocab_size) const;

  std::string path_;
  std::variant<MappedFile, std::vector<int32_t>> tokens_;
};

class TextSamples : public Samples {
 public:
  // Tokens [part.begin, part.end) of `text`; count() is at least `num_samples`, in whole epochs. BadInput if the part
  // is too short for one sample. `fixed_cut`: the cut is not shifted in training either, so that every epoch has the
  // same samples.
  TextSamples(std::shared_ptr<const TextTokens> text, Interval part, Split split, int64_t seq_length,
              int64_t num_samples, uint64_t seed, bool fixed_cut = false);

  int64_t count() const override { return epochs_ * windows_; }
  void read(int64_t index, std::span<int32_t> out) const override;
  int64_t samples_per_epoch() const { return windows_; }
  // The first token of sample `index`, counted in the whole file.
  int64_t start_of(int64_t index) const;

 private:
  // The random key of an epoch, for one purpose.
  PhiloxKey key_of_epoch(std::string_view purpose, int64_t epoch) const;

  std::shared_ptr<const TextTokens> text_;
  Interval part_;
  int64_t seq_length_;
  uint64_t seed_;
  int64_t windows_ = 0;    // windows per epoch
  int64_t max_shift_ = 0;  // an epoch's first window starts at one of the tokens 0 .. max_shift_ of the part
  int64_t epochs_ = 1;
};

}  // namespace trifold
