// ChatSamples: samples to finetune a causal model on. A sample holds one or several conversations, each a document of its
// own: positions restart at 0 in each, and attention does not cross its beginning (Batch::document_begin). A label counts
// if it is a token of an answer; the last token of a conversation has no label. Padding behind the last conversation is a
// document too, marked in Batch::padding.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "data/batch.h"
#include "tasks/chat/encoded_chat.h"

namespace trifold {

// Conversations and their places in samples; shared by the sources of several lengths and orders.
struct PackedChats {
  std::vector<EncodedChat> chats;
  std::vector<std::vector<int64_t>> samples;  // [sample] its chats
  int64_t seq_length = 0;
  int32_t pad = 0;
  bool separate = false;  // samples may have several documents
};

class ChatSamples final : public DataSource {
 public:
  // Repeats the samples for `passes` passes, in a new order each time if `shuffled`. Failure if there are none, or if
  // one is too long.
  ChatSamples(std::shared_ptr<const PackedChats> packed, int64_t passes, bool shuffled, uint64_t seed);

  int64_t seq_length() const override { return packed_->seq_length; }
  int64_t samples() const override { return passes_ * std::ssize(packed_->samples); }
  bool separates_documents() const override { return packed_->separate; }
  void read(Batch& batch, int64_t first_sample) const override;
  // Identifies the samples: a run resumes only with the same ones. BadInput otherwise.
  std::string bookmark(int64_t /*index*/) const override { return fingerprint_; }
  void open_at(const std::string& bookmark) const override;

 private:
  const std::vector<int64_t>& chats_of(int64_t index) const;
  void read_sample(Batch& batch, int64_t b, const std::vector<int64_t>& chats) const;

  std::shared_ptr<const PackedChats> packed_;
  int64_t passes_;
  bool shuffled_;
  PhiloxKey key_;
  std::string fingerprint_;
};

}  // namespace trifold
