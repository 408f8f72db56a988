#include "nccl_order/recorder.h"

#include <fmt/format.h>

namespace trifold::test {

using Kind = OrderEntry::Kind;

OrderRecorder& OrderRecorder::instance() {
  static auto& recorder = *new OrderRecorder();
  return recorder;
}

void OrderRecorder::begin(int ranks) {
  FakeDevice::watch(this);
  const std::lock_guard lock(mutex_);
  record_ = {};
  record_.ranks.resize(static_cast<size_t>(ranks));
  ranks_.assign(static_cast<size_t>(ranks), {});
  comms_.clear();
  active_ = true;
}

OrderRecord OrderRecorder::take() {
  const std::lock_guard lock(mutex_);
  active_ = false;
  ranks_.clear();
  return std::exchange(record_, {});
}

int OrderRecorder::comm(const std::string& key, const std::string& kind,
                        const std::vector<int>& world_ranks) {
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = comms_.try_emplace(key, static_cast<int>(record_.comms.size()));
  if (is_new) record_.comms.push_back({fmt::format("{} {}", kind, found->second), world_ranks});
  return found->second;
}

OrderRecorder::StreamState& OrderRecorder::stream(RankState& rank, const FakeDeviceQueue& queue) {
  const auto [found, is_new] = rank.streams.try_emplace(&queue);
  if (is_new) found->second.number = rank.streams_made++;
  return found->second;
}

OrderRecorder::RankState* OrderRecorder::rank_of(FakeDeviceQueue& queue) {
  const auto index = static_cast<size_t>(queue.device().index());
  return active_ && index < ranks_.size() ? &ranks_[index] : nullptr;
}

void OrderRecorder::put(int rank, RankState& state, OrderEntry entry) {
  entry.thread = state.threads.try_emplace(std::this_thread::get_id(), static_cast<int>(state.threads.size()))
                     .first->second;
  record_.ranks[static_cast<size_t>(rank)].push_back(std::move(entry));
}

void OrderRecorder::add(int rank, OrderEntry entry, const FakeDeviceQueue* queue) {
  const std::lock_guard lock(mutex_);
  if (!active_) return;
  RankState& state = ranks_[static_cast<size_t>(rank)];
  StreamState* on = queue == nullptr ? nullptr : &stream(state, *queue);
  if (on != nullptr) entry.stream = on->number;
  put(rank, state, std::move(entry));
  if (on != nullptr) on->end = static_cast<int64_t>(record_.ranks[static_cast<size_t>(rank)].size());
}

void OrderRecorder::on_record(FakeDeviceQueue& queue, uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  RankState* state = rank_of(queue);
  if (state == nullptr) return;
  StreamState& of = stream(*state, queue);
  if (of.end > 0) of.marked[ticket] = of.end;
}

// Waits for streams without entries order nothing.
void OrderRecorder::on_wait(FakeDeviceQueue& queue, FakeDeviceQueue& other, uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  RankState* state = rank_of(queue);
  if (state == nullptr) return;
  const StreamState& waited = stream(*state, other);
  const auto marked = waited.marked.find(ticket);
  if (marked == waited.marked.end()) return;
  OrderEntry entry;
  entry.kind = Kind::StreamWait;
  entry.other = waited.number;
  entry.until = marked->second;
  StreamState& waiting = stream(*state, queue);
  entry.stream = waiting.number;
  const int rank = queue.device().index();
  put(rank, *state, std::move(entry));
  waiting.end = static_cast<int64_t>(record_.ranks[static_cast<size_t>(rank)].size());
}

void OrderRecorder::wait_on_host(FakeDeviceQueue& queue, const uint64_t* ticket) {
  const std::lock_guard lock(mutex_);
  RankState* state = rank_of(queue);
  if (state == nullptr) return;
  const StreamState& waited = stream(*state, queue);
  int64_t until = waited.end;
  if (ticket != nullptr) {
    const auto marked = waited.marked.find(*ticket);
    until = marked == waited.marked.end() ? 0 : marked->second;
  }
  const int thread =
      state->threads.try_emplace(std::this_thread::get_id(), static_cast<int>(state->threads.size()))
          .first->second;
  int64_t& awaited = state->awaited[{thread, waited.number}];
  if (until <= awaited) return;
  awaited = until;
  OrderEntry entry;
  entry.kind = Kind::HostWait;
  entry.other = waited.number;
  entry.until = until;
  put(queue.device().index(), *state, std::move(entry));
}

void OrderRecorder::on_await(FakeDeviceQueue& queue, uint64_t ticket) { wait_on_host(queue, &ticket); }
void OrderRecorder::on_synchronize(FakeDeviceQueue& queue) { wait_on_host(queue, nullptr); }

void OrderRecorder::on_end(FakeDeviceQueue& queue) {
  const std::lock_guard lock(mutex_);
  if (RankState* state = rank_of(queue)) state->streams.erase(&queue);
}

}  // namespace trifold::test
