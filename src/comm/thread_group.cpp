#include "comm/thread_group.h"

#include <algorithm>
#include <thread>

#include "core/spin_condition.h"

namespace trifold {

namespace {

// A waiting rank spins for this long before it sleeps: longer than the gap between ranks that work in step. Ranks that
// share cores sleep at once: a spinning rank would keep the others from arriving, and one that yields instead loses a
// whole time slice to any other program on the machine.
constexpr std::chrono::microseconds kSpin{40};
constexpr uint64_t kExchange = 255;  // in place of a CallKind

}  // namespace

// ---- ThreadGroup: waiting ----

ThreadGroup::ThreadGroup(ThreadGroups& world, std::vector<int> world_ranks)
    : world_(world),
      world_ranks_(std::move(world_ranks)),
      name_(name_group(world_ranks_, world.world_size)),
      slots_(world_ranks_.size()),
      mail_(world_ranks_.size() * world_ranks_.size()) {}

// A rank counts itself as sleeping before its last check, and the rank that makes it ready checks for
// sleepers afterwards: one of them sees the other (all of these atomics are sequentially consistent).
void ThreadGroup::wake() {
  if (sleepers_.load() > 0) wake_all();
}

void ThreadGroup::wake_all() noexcept {
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

bool ThreadGroup::spin(FunctionRef<bool()> ready) const {
  if (ready() || world_.oversubscribed) return ready();
  trifold::spin(kSpin, [&] { return ready() || world_.aborted(); });
  return ready();
}

bool ThreadGroup::sleep(int rank, FunctionRef<bool()> ready, FunctionRef<std::string()> what) {
  const HeldUp waits;
  WaitClock clock(world_.limit_of(world_rank(rank)));
  std::unique_lock lock(mutex_);
  slot(rank).clock = &clock;
  slot(rank).asleep = &what;
  while (!ready() && !world_.aborted()) {
    changed_.wait_for(lock, clock.poll());
    if (!clock.expired() || ready() || world_.aborted()) continue;
    const std::string mine = what();
    lock.unlock();
    const bool over = world_.give_up(world_rank(rank), mine, clock);
    lock.lock();
    if (over) break;
  }
  slot(rank).asleep = nullptr;
  return ready();
}

bool ThreadGroup::await(int rank, FunctionRef<bool()> ready, FunctionRef<std::string()> what) {
  if (spin(ready)) return true;
  sleepers_.fetch_add(1);
  const bool came = sleep(rank, ready, what);
  sleepers_.fetch_sub(1);
  return came;
}

ThreadGroup::Standing ThreadGroup::standing(int rank) const {
  const std::lock_guard lock(mutex_);
  const Slot& mine = slots_[static_cast<size_t>(rank)];
  if (mine.asleep == nullptr) return {};
  const std::string what = (*mine.asleep)();
  const double stopped = mine.clock->stopped();
  if (stopped > 0) return {"", stopped_text(what, stopped)};
  return {waiting_text(what, mine.clock->waited()), ""};
}

void ThreadGroup::note_end(int rank, uint64_t number, uint64_t kind) {
  slot(rank).last.store(256 * number + kind, std::memory_order_relaxed);
  slot(rank).ended.store(Clock::now().time_since_epoch().count(), std::memory_order_release);
}

std::optional<ThreadGroup::LastCall> ThreadGroup::last_call(int rank) const {
  const Slot& mine = slots_[static_cast<size_t>(rank)];
  const int64_t ended = mine.ended.load(std::memory_order_acquire);
  if (ended == 0) return std::nullopt;
  const uint64_t last = mine.last.load(std::memory_order_relaxed);
  const auto at = Clock::time_point(Clock::duration(ended));
  if (last % 256 == kExchange) return LastCall{"exchange in " + name_, at};
  return LastCall{
      fmt::format("{}, call {} in {}", name_of(static_cast<CallKind>(last % 256)), last / 256, name_), at};
}

// ---- ThreadGroup: collectives ----

// While it lives, ranks that leave because of an abort wait for this rank; see leave().
class ThreadGroup::Working {
 public:
  explicit Working(Slot& slot) : slot_(slot) { slot_.working.store(true); }
  ~Working() { slot_.working.store(false); }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  Slot& slot_;
};

// A rank starts working by raising its flag and then checking whether the world is aborted; a leaving rank
// does the reverse. So either the worker sees the abort and touches nothing, or the leaving rank sees the
// flag and waits.
void ThreadGroup::leave() const {
  for (const Slot& other : slots_)
    while (other.working.load()) std::this_thread::yield();
  world_.throw_aborted();
}

bool ThreadGroup::all_arrived(uint64_t meeting) const {
  return std::all_of(slots_.begin(), slots_.end(),
                     [&](const Slot& other) { return other.arrived.load() >= meeting; });
}

void ThreadGroup::meet(int rank, const Call& call) {
  const uint64_t meeting = slot(rank).arrived.load(std::memory_order_relaxed) + 1;
  slot(rank).arrived.store(meeting);
  const auto ready = [&] { return all_arrived(meeting); };
  if (ready()) return wake();
  const auto what = [&] {
    std::vector<int> missing;
    for (int other = 0; other < size(); ++other)
      if (slot(other).arrived.load() < meeting) missing.push_back(world_rank(other));
    return fmt::format(
        "{} in {}, {}", to_string(call), name_,
        missing.empty() ? "where all ranks have come" : "for " + name_ranks(missing) + " to come");
  };
  if (!await(rank, ready, what)) leave();
}

void ThreadGroup::collective(int rank, const ThreadOffer& offer, FunctionRef<std::string()> inspect,
                             FunctionRef<void()> work) {
  if (world_.aborted()) world_.throw_aborted();
  Slot& mine = slot(rank);
  mine.offer = offer;
  mine.offer.call.number = mine.calls++;
  const Call call = mine.offer.call;
  const auto differs = [&](const Slot& other) {
    return other.offer.call.problem != CallProblem::None || !agree(other.offer.call, call);
  };
  meet(rank, call);
  std::string problem;
  try {
    const Working working(mine);
    if (!world_.aborted()) {
      if (std::any_of(slots_.begin(), slots_.end(), differs)) {
        std::vector<Call> calls;
        for (const Slot& other : slots_) calls.push_back(other.offer.call);
        problem = disagreement(calls, name_, world_ranks_).value_or("");
      } else {
        problem = inspect();
      }
      if (problem.empty()) work();
    }
  } catch (const std::exception& error) {
    world_.abort(fmt::format("rank {} failed in {} in {}: {}", world_rank(rank), to_string(call), name_,
                             error.what()));
  }
  if (world_.aborted()) leave();
  meet(rank, call);  // the others may still read the offers and tensors of this rank until here
  note_end(rank, call.number, static_cast<uint64_t>(call.kind));
  if (!problem.empty()) throw Error(problem);
}

// ---- ThreadGroup: exchange ----

struct ThreadGroup::Receive {
  int peer = 0;
  Tensor tensor;
  bool done = false;
};

struct ThreadGroup::Batch {
  SmallList<int, 4> to;            // the peer of each send
  SmallList<ThreadPost, 4> sends;  // other ranks hold pointers to these once the list is complete
  SmallList<Receive, 4> receives;
  std::string problem;  // the first disagreement about a transfer
};

namespace {

bool is_done(const ThreadPost& post) { return post.state == ThreadPost::State::Done; }

}  // namespace

std::string ThreadGroup::pending(const Batch& batch) const {
  std::string text = "exchange in " + name_;
  for (size_t i = 0; i < batch.sends.size(); ++i) {
    const Tensor& tensor = batch.sends[i].tensor;
    if (!is_done(batch.sends[i]))
      text += fmt::format(", for rank {} to take {} {}", world_rank(batch.to[i]), tensor.elements(),
                          name_of(tensor.dtype));
  }
  for (const Receive& receive : batch.receives)
    if (!receive.done)
      text += fmt::format(", for rank {} to send {} {}", world_rank(receive.peer), receive.tensor.elements(),
                          name_of(receive.tensor.dtype));
  return batch.problem.empty() ? text : text + " (" + batch.problem + ")";
}

// Completes one receive whose send has been posted, in the order listed for each peer but in any order
// between peers: a fixed order could deadlock, by waiting for a rank that waits, directly or through others,
// for another transfer of this rank.
bool ThreadGroup::take_one(int rank, Batch& batch, Copy copy) {
  std::unique_lock lock(mutex_);
  for (Receive& receive : batch.receives) {
    const auto same_peer = [&](const Receive& earlier) {
      return !earlier.done && earlier.peer == receive.peer;
    };
    if (receive.done || std::any_of(batch.receives.begin(), &receive, same_peer)) continue;
    auto& letters = mail(receive.peer, rank);
    if (letters.empty()) continue;
    ThreadPost& post = *letters.front();
    letters.erase(letters.begin());
    if (post.tensor.dtype == receive.tensor.dtype && post.tensor.elements() == receive.tensor.elements()) {
      post.state = ThreadPost::State::Taken;
      lock.unlock();
      if (receive.tensor.bytes() > 0) copy(receive.tensor.data, post.tensor.data, receive.tensor.bytes());
      lock.lock();
    } else {
      post.refusal = transfer_disagreement(name_, world_rank(receive.peer), post.tensor, world_rank(rank),
                                           receive.tensor);
      if (batch.problem.empty()) batch.problem = post.refusal;
    }
    receive.done = true;
    post.state = ThreadPost::State::Done;  // from here on the sender may be gone
    mail_changes_.fetch_add(1);
    lock.unlock();
    wake();
    return true;
  }
  return false;
}

// Withdraws sends that no rank has begun to read, and waits for the others.
void ThreadGroup::withdraw(int rank, Batch& batch) {
  std::unique_lock lock(mutex_);
  for (size_t i = 0; i < batch.sends.size(); ++i) {
    auto& letters = mail(rank, batch.to[i]);
    letters.erase(std::remove(letters.begin(), letters.end(), &batch.sends[i]), letters.end());
  }
  for (const ThreadPost& post : batch.sends) {
    while (post.state == ThreadPost::State::Taken) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  }
}

void ThreadGroup::exchange(int rank, std::span<const ThreadTransfer> transfers, Copy copy) {
  if (world_.aborted()) world_.throw_aborted();
  Batch batch;
  for (const ThreadTransfer& transfer : transfers) {
    check(transfer.peer >= 0 && transfer.peer < size(), "exchange names rank {}, which is not in {}",
          transfer.peer, name_);
    if (transfer.direction == Transfer::Direction::Receive) {
      batch.receives.push_back({transfer.peer, transfer.tensor()});
    } else {
      batch.to.push_back(transfer.peer);
      batch.sends.push_back({transfer.tensor(), ThreadPost::State::Posted, ""});
    }
  }
  if (!batch.sends.empty()) {
    {
      const std::lock_guard lock(mutex_);
      for (size_t i = 0; i < batch.sends.size(); ++i) mail(rank, batch.to[i]).push_back(&batch.sends[i]);
      mail_changes_.fetch_add(1);
    }
    wake();
  }
  while (true) {
    const uint64_t seen = mail_changes_.load();
    while (take_one(rank, batch, copy)) {
    }
    bool done =
        std::all_of(batch.receives.begin(), batch.receives.end(), [](const Receive& r) { return r.done; });
    {
      const std::lock_guard lock(mutex_);
      done = done && std::all_of(batch.sends.begin(), batch.sends.end(), is_done);
    }
    if (done) break;
    const auto ready = [&] { return mail_changes_.load() != seen; };
    if (await(rank, ready, [&] { return pending(batch); })) continue;
    withdraw(rank, batch);
    world_.throw_aborted();
  }
  note_end(rank, 0, kExchange);
  for (const ThreadPost& post : batch.sends)
    if (batch.problem.empty()) batch.problem = post.refusal;
  if (!batch.problem.empty()) throw Error(batch.problem);
}

}  // namespace trifold
