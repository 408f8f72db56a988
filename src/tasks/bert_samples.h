// BertSamples: pairs of sentences with masked tokens, for training BERT (Devlin et al., NAACL 2019, sections 3.1 and
// A.1). Samples are a pure function of (seed, sample index).
//
// Documents are cut into chunks of whole sentences: each has as many as reach the length of a sample or the end of the
// document. A sample is a chunk; every pass visits each chunk once, in a new order. The chunk is cut between two of its
// sentences. Half of the time the part after the cut is the second sentence of the pair; otherwise (and always if the
// chunk has only one sentence) the second is text of another document, and the rest of the chunk is skipped in this
// pass. A fraction of the samples is shorter, with a length drawn uniformly. Samples that are too long lose tokens at
// both ends of the longer sentence.
//
//   [CLS] first [SEP] second [SEP] [PAD] ...        without pairs:  [CLS] chunk [SEP] [PAD] ...
//
// Of the tokens that are not special, max(1, mask_probability x real tokens) are then chosen: 8 of 10 become [MASK], 1
// a random token, 1 is unchanged. Only their labels count. With whole-word masking, words are chosen until they have at
// least that many tokens. Every pass draws anew.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/fields/config.h"
#include "core/random.h"
#include "data/batch.h"
#include "text/training_text.h"
#include "tokenize/sentences.h"

namespace trifold {

// The four special tokens of BERT: the tokenizer's own if it has one token for each of the texts [PAD], [CLS], [SEP]
// and [MASK], or <pad>, <s>, </s> and <mask> as in RoBERTa; otherwise ids after the tokenizer's vocabulary.
struct BertTokens {
  explicit BertTokens(int64_t of_tokenizer);
  explicit BertTokens(const Tokenizer& tokenizer);
  static constexpr int64_t kCount = 4;

  int32_t ordinary;  // ids below are the tokenizer's
  int32_t pad, cls, sep, mask;
};

struct BertRules {
  int64_t seq_length = 0;
  double mask_probability = 0.15;
  double short_probability = 0.1;
  bool whole_words = false;
  bool pairs = true;
};

class BertSamples final : public DataSource {
 public:
  // Samples from the given documents of `text`, for `passes` passes. BadInput if they give no sample, or if pairs are
  // requested but there is only one document.
  BertSamples(std::shared_ptr<const SentenceTokens> text, std::vector<int64_t> documents, BertTokens special,
              BertRules rules, int64_t passes, uint64_t seed);

  int64_t seq_length() const override { return rules_.seq_length; }
  int64_t samples() const override { return passes_ * chunks(); }
  // Samples of one pass.
  int64_t chunks() const { return static_cast<int64_t>(chunks_.size()); }
  void read(Batch& batch, int64_t first_sample) const override;

 private:
  // Sentences [first, end) of document `document` of documents_.
  struct Chunk {
    int64_t document, first, end;
  };
  // Tokens [begin, begin + length) of the text.
  struct Piece {
    int64_t begin = 0, length = 0;
  };
  struct Pair {
    Piece first, second;
    bool random = false;  // the second piece does not follow the first
  };
  // The random values of one sample, drawn one after another.
  class Draws {
   public:
    Draws(PhiloxKey key, int64_t sample) : key_(key), at_(static_cast<uint64_t>(sample) << kBits) {}
    static constexpr int kBits = 24;  // bits of the counter of a sample's draws
    int64_t below(int64_t n);         // in [0, n)
    double real();                    // in [0, 1)

   private:
    PhiloxKey key_;
    uint64_t at_;
  };

  // The end of the shortest run of sentences from `first` with at least `length` tokens; at most `end`.
  int64_t enough(int64_t first, int64_t end, int64_t length) const;
  Piece piece(int64_t first, int64_t end) const;
  Pair draw_pair(int64_t index, Draws& draws) const;
  Piece draw_other(int64_t document, int64_t length, Draws& draws) const;
  void mask(std::span<int32_t> tokens, std::span<float> weights, const Pair& pair, Draws& draws) const;
  void read_one(const Batch& batch, int64_t b, int64_t index) const;

  std::shared_ptr<const SentenceTokens> text_;
  std::vector<int64_t> documents_;
  BertTokens special_;
  BertRules rules_;
  int64_t room_;  // number of tokens that are not special
  int64_t passes_;
  PhiloxKey key_, order_key_;
  std::vector<Chunk> chunks_;
};

// The data of --data-path for BERT: plain text files, read and tokenized on construction.
class BertCorpus final : public TrainingText {
 public:
  // BadInput for files that are not plain text, for weights, and for a vocabulary too small for the tokenizer.
  BertCorpus(const DataConfig& config, int64_t vocab_size, bool pairs);

  // Whether the split has a document.
  bool has(Split split) const override { return !documents_of(split).empty(); }
  // At least `samples_needed` samples of a split, in as many passes as needed.
  std::unique_ptr<DataSource> source(Split split, int64_t seq_length, int64_t samples_needed,
                                     uint64_t seed) const override;
  std::unique_ptr<DataSource> passes(Split split, int64_t seq_length, int64_t passes, uint64_t seed,
                                     int64_t most = std::numeric_limits<int64_t>::max()) const override;

 private:
  // The documents of a split: its share of every file.
  std::vector<int64_t> documents_of(Split split) const;

  SplitFractions split_;
  BertTokens special_{0};
  BertRules rules_;
  std::shared_ptr<SentenceTokens> text_;
  std::vector<Interval> files_;  // [file] its documents
};

// The vocabulary size that a BERT with this tokenizer needs.
int64_t bert_vocabulary(const Tokenizer& tokenizer);

}  // namespace trifold
