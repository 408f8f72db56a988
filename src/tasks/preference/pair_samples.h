// PairSamples: pairs of answers to finetune a causal model on. Samples 2i and 2i + 1 are the preferred and the rejected
// answer of a pair (nn/samples/pair_loss.h), each with its prompt; their order is never mixed. A label counts if it is a
// token of the answer. Padding behind an answer is marked in Batch::padding.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/batch.h"
#include "tasks/chat/encoded_chat.h"

namespace trifold {

// The tokens of an answer that are predicted; the first of a sample is not.
int64_t counted_labels(const EncodedChat& answer);

using EncodedPair = std::array<EncodedChat, 2>;  // preferred, rejected

struct PreferencePairs {
  std::vector<EncodedPair> pairs;
  int64_t seq_length = 0;
  int32_t pad = 0;
  // Labels have the weight 1 / tokens of the answer instead of 1, which makes a sum over a sample a mean.
  bool means = false;
  // The loss and its reference, in words: a run resumes only with the same.
  std::string goal;

  int64_t samples() const { return 2 * std::ssize(pairs); }
  // Identifies the samples, whatever the goal: "100 pairs" and a hash.
  std::string fingerprint() const;
};

// A number for each sample of one pass, which becomes Batch::sample_values. It is known only once all ranks have
// computed it, after the sources were made. Threads of several ranks share an object.
class PairValues {
 public:
  // The first call counts; the others, of the process's other ranks, have the same values.
  void set(std::vector<double> values);
  bool known() const;
  double of(int64_t sample) const;  // 0 as long as the values are not known

 private:
  mutable std::mutex mutex_;
  std::vector<double> values_;
};

class PairSamples final : public DataSource {
 public:
  // Repeats the pairs for `passes` passes, in a new order each time if `shuffled`. Failure if there are none, or if one is
  // too long.
  PairSamples(std::shared_ptr<const PreferencePairs> pairs, std::shared_ptr<const PairValues> values,
              int64_t passes, bool shuffled, uint64_t seed);

  int64_t seq_length() const override { return pairs_->seq_length; }
  int64_t samples() const override { return passes_ * pairs_->samples(); }
  void read(Batch& batch, int64_t first_sample) const override;
  // The fingerprint and the goal: a run resumes only with the same. BadInput otherwise.
  std::string bookmark(int64_t /*index*/) const override { return fingerprint_; }
  void open_at(const std::string& bookmark) const override;

 private:
  int64_t place_of(int64_t index) const;  // the sample's index in the list
  void read_sample(Batch& batch, int64_t b, int64_t place) const;

  std::shared_ptr<const PreferencePairs> pairs_;
  std::shared_ptr<const PairValues> values_;
  int64_t passes_;
  bool shuffled_;
  PhiloxKey key_;
  std::string fingerprint_;
};

}  // namespace trifold
