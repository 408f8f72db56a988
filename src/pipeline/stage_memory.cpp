#include "pipeline/stage_memory.h"

#include <algorithm>

namespace trifold {

size_t ActivationMemory::total() const {
  size_t bytes = static_cast<size_t>(flows) * flow + scratch + pair_scratch +
                 message * static_cast<size_t>(messages) + kept_blocks;
  for (const StageMemory& stage : stages) bytes += stage.total();
  return bytes;
}

size_t ActivationMemory::file_bytes() const {
  size_t bytes = 0;
  for (const StageMemory& stage : stages)
    for (const size_t kept_block : stage.kept_blocks) bytes += kept_block * static_cast<size_t>(stage.slots);
  return bytes;
}

size_t ActivationMemory::largest_kept_block() const {
  size_t most = 0;
  for (const StageMemory& stage : stages)
    for (const size_t kept_block : stage.kept_blocks) most = std::max(most, kept_block);
  return most;
}

Messages::Messages(size_t bytes, int count, Device* device) {
  for (int i = 0; i < count; ++i) {
    all_.push_back(std::make_unique<Message>(Arena(bytes, device)));
    free_.push_back(all_.back().get());
  }
}

Messages Messages::measuring() {
  Messages messages(0, 0);
  messages.measuring_ = true;
  return messages;
}

Message& Messages::take(Message::Role role, int stage, int micro, DType dtype, const Shape& shape,
                        Stream& stream) {
  if (free_.empty()) {
    check(measuring_, "the plan has more messages in flight than the {} measured for it", all_.size());
    all_.push_back(std::make_unique<Message>(Arena::measuring()));
    free_.push_back(all_.back().get());
  }
  Message& message = *free_.front();
  free_.erase(free_.begin());
  stream.wait(message.spare);
  message.memory.reset();
  message.tensor = message.memory.take(dtype, shape);
  message.role = role;
  message.stage = stage;
  message.micro = micro;
  message.ready = message.spare = {};
  return message;
}

Message* Messages::find(Message::Role role, int stage, int micro) {
  for (const auto& message : all_)
    if (message->role == role && message->stage == stage && message->micro == micro) return message.get();
  return nullptr;
}

void Messages::release(Message& message, const Event& spare) {
  message.role = Message::Role::Free;
  message.spare = spare;
  free_.push_back(&message);
}

// Frees messages in the order of their creation, so that every step takes them in the same order.
void Messages::release_all() {
  free_.clear();
  for (auto& message : all_) {
    message->role = Message::Role::Free;
    free_.push_back(message.get());
  }
}

size_t Messages::bytes() const {
  size_t most = 0;
  for (const auto& message : all_) most = std::max(most, message->memory.peak());
  return most;
}

size_t Messages::allocated() const {
  size_t bytes = 0;
  for (const auto& message : all_) bytes += message->memory.capacity();
  return bytes;
}

StageSlots::StageSlots(const StageMemory& memory, Device* device, size_t& offset) {
  for (int i = 0; i < memory.slots; ++i) {
    Slot& slot = *slots_.emplace_back(std::make_unique<Slot>(Arena(memory.keep, device)));
    for (const size_t bytes : memory.kept_blocks) {
      slot.kept_blocks.push_back(bytes > 0 ? std::make_unique<KeptBlock>(Arena(device == nullptr ? bytes : 0))
                                           : nullptr);
      if (bytes > 0) slot.kept_blocks.back()->offset = offset;
      offset += bytes;
    }
  }
  for (int i = 0; i < memory.pending; ++i)
    pending_.push_back(std::make_unique<PendingWeightGrad>(Arena(memory.held, device)));
}

StageSlots StageSlots::measuring() {
  StageSlots slots;
  slots.measuring_ = true;
  return slots;
}

void StageSlots::add_kept_block(int block) {
  const auto index = static_cast<size_t>(block);
  if (offloaded_.size() <= index) offloaded_.resize(index + 1, false);
  offloaded_[index] = true;
}

namespace {

// The first entry that no micro-batch uses. A measuring instance adds one if there is none.
template <class Entry>
Entry& free_entry(std::vector<std::unique_ptr<Entry>>& entries, bool measuring, const char* what) {
  for (auto& entry : entries)
    if (entry->micro == Action::kAll) return *entry;
  check(measuring, "the plan has more micro-batches {} than the {} measured for it", what, entries.size());
  entries.push_back(std::make_unique<Entry>(Arena::measuring()));
  return *entries.back();
}

}  // namespace

Slot& StageSlots::take(int micro, Stream& stream) {
  Slot& slot = free_entry(slots_, measuring_, "in flight");
  stream.wait(slot.sent);
  slot.sent = {};
  slot.micro = micro;
  slot.keep.reset();
  while (slot.kept_blocks.size() < offloaded_.size())
    slot.kept_blocks.push_back(
        offloaded_[slot.kept_blocks.size()] ? std::make_unique<KeptBlock>(Arena::measuring()) : nullptr);
  slot.forwarded = 0;
  slot.finished = false;
  slot.output = slot.gradient = {};
  return slot;
}

Slot* StageSlots::find(int micro) {
  for (auto& slot : slots_)
    if (slot->micro == micro) return slot.get();
  return nullptr;
}

Slot& StageSlots::of(int micro) {
  if (Slot* slot = find(micro)) return *slot;
  fail("micro-batch {} is not in flight", micro);
}

PendingWeightGrad& StageSlots::add_pending(int micro) {
  PendingWeightGrad& pending = free_entry(pending_, measuring_, "between I and W");
  pending.micro = micro;
  pending.memory.reset();
  return pending;
}

PendingWeightGrad* StageSlots::find_pending(int micro) {
  for (auto& pending : pending_)
    if (pending->micro == micro) return pending.get();
  return nullptr;
}

void StageSlots::release_all() {
  for (auto& slot : slots_) slot->micro = Action::kAll;
  for (auto& pending : pending_) pending->micro = Action::kAll;
}

StageMemory StageSlots::measured() const {
  StageMemory memory;
  memory.slots = static_cast<int>(slots_.size());
  memory.pending = static_cast<int>(pending_.size());
  for (const auto& slot : slots_) {
    memory.keep = std::max(memory.keep, slot->keep.peak());
    memory.kept_blocks.resize(std::max(memory.kept_blocks.size(), slot->kept_blocks.size()), 0);
    for (size_t block = 0; block < slot->kept_blocks.size(); ++block)
      if (slot->kept_blocks[block] != nullptr)
        memory.kept_blocks[block] =
            std::max(memory.kept_blocks[block], slot->kept_blocks[block]->own_memory.peak());
  }
  for (const auto& pending : pending_) memory.held = std::max(memory.held, pending->memory.peak());
  return memory;
}

size_t StageSlots::allocated() const {
  size_t bytes = 0;
  for (const auto& slot : slots_) bytes += slot->keep.capacity();
  for (const auto& pending : pending_) bytes += pending->memory.capacity();
  return bytes;
}

}  // namespace trifold
