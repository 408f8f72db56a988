#include "comm/thread_group.h"

#include <algorithm>
#include <thread>

namespace trifold {

namespace {

using Clock = std::chrono::steady_clock;

// A waiting rank spins for this long before it sleeps: longer than the gap between ranks that work in step.
constexpr std::chrono::microseconds kSpin{40};
constexpr int kPausesPerLook = 16;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

// ---- ThreadGroups ----

ThreadGroups::ThreadGroups(int size, std::chrono::milliseconds limit, const OpTable& arithmetic)
    : world_size(size), timeout(limit), ops(arithmetic), oversubscribed(size > available_cores()) {}

ThreadGroup& ThreadGroups::add(std::vector<int> world_ranks) {
  auto group = std::make_unique<ThreadGroup>(*this, std::move(world_ranks));
  const std::lock_guard lock(mutex_);
  groups_.push_back(std::move(group));
  return *groups_.back();
}

void ThreadGroups::abort(std::string_view why) noexcept {
  const std::lock_guard lock(mutex_);
  if (aborted_.load()) return;
  try {
    why_ = why;
  } catch (...) {  // no memory for the reason; waking the others matters more
  }
  aborted_.store(true);
  for (const auto& group : groups_) group->wake_all();
}

void ThreadGroups::throw_aborted() const { throw Error(why_, ErrorKind::Aborted); }

std::string ThreadGroups::status() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (int rank = 0; rank < world_size; ++rank) {
    std::string waits;
    for (const auto& group : groups_) {
      const auto& members = group->world_ranks();
      const auto found = std::find(members.begin(), members.end(), rank);
      if (found == members.end()) continue;
      const std::string here = group->waiting(static_cast<int>(found - members.begin()));
      if (!here.empty()) waits += (waits.empty() ? "" : ", and ") + here;
    }
    text += fmt::format("{}rank {} {}", rank == 0 ? "" : "\n", rank,
                        waits.empty() ? "waits for no other rank" : "waits in " + waits);
  }
  return text;
}

// ---- ThreadGroup: waiting ----

ThreadGroup::ThreadGroup(ThreadGroups& world, std::vector<int> world_ranks)
    : world_(world),
      world_ranks_(std::move(world_ranks)),
      name_(name_group(world_ranks_, world.world_size)),
      slots_(world_ranks_.size()),
      mail_(world_ranks_.size() * world_ranks_.size()) {}

// A sleeper counts itself before it looks for the last time, and whoever makes it ready looks for sleepers
// after that: one of the two sees the other (all of these atomics are sequentially consistent).
void ThreadGroup::wake() {
  if (sleepers_.load() > 0) wake_all();
}

void ThreadGroup::wake_all() noexcept {
  { const std::lock_guard lock(mutex_); }
  changed_.notify_all();
}

bool ThreadGroup::spin(FunctionRef<bool()> ready) const {
  if (ready()) return true;
  const auto end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (ready()) return true;
      if (world_.oversubscribed)
        std::this_thread::yield();
      else
        pause();
    }
  } while (Clock::now() < end && !world_.aborted());
  return ready();
}

bool ThreadGroup::sleep(int rank, FunctionRef<bool()> ready, FunctionRef<std::string()> what) {
  const auto deadline = Clock::now() + world_.timeout;
  std::unique_lock lock(mutex_);
  slot(rank).asleep = &what;
  while (!ready() && !world_.aborted()) {
    if (changed_.wait_until(lock, deadline) == std::cv_status::no_timeout || ready() || world_.aborted())
      continue;
    const std::string mine = what();
    lock.unlock();
    world_.abort(fmt::format("rank {} gave up after {} in {}. What each rank of the world does:\n{}", rank,
                             to_string(world_.timeout), mine, world_.status()));
    lock.lock();
    break;
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

std::string ThreadGroup::waiting(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto* what = slots_[static_cast<size_t>(rank)].asleep;
  return what != nullptr ? (*what)() : "";
}

// ---- ThreadGroup: collectives ----

// While it lives, others that leave because of an abort wait for this rank; see leave().
class ThreadGroup::Working {
 public:
  explicit Working(Slot& slot) : slot_(slot) { slot_.working.store(true); }
  ~Working() { slot_.working.store(false); }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  Slot& slot_;
};

// A rank starts working by raising its flag and then looking whether the world is aborted; a leaving rank
// does it the other way round. So either the worker sees the abort and touches nothing, or the leaver sees
// the flag and waits.
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
      if (slot(other).arrived.load() < meeting) missing.push_back(other);
    return fmt::format("{} in {}, for {} to come", to_string(call), name_, name_ranks(missing));
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
        problem = disagreement(calls, name_).value_or("");
      } else {
        problem = inspect();
      }
      if (problem.empty()) work();
    }
  } catch (const std::exception& error) {
    world_.abort(fmt::format("rank {} of {} failed in {}: {}", rank, name_, to_string(call), error.what()));
  }
  if (world_.aborted()) leave();
  meet(rank, call);  // the others may still read the offers and tensors of this rank until here
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
  SmallList<ThreadPost, 4> sends;  // others hold pointers to these, once it is complete
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
      text +=
          fmt::format(", for rank {} to take {} {}", batch.to[i], tensor.elements(), name_of(tensor.dtype));
  }
  for (const Receive& receive : batch.receives)
    if (!receive.done)
      text += fmt::format(", for rank {} to send {} {}", receive.peer, receive.tensor.elements(),
                          name_of(receive.tensor.dtype));
  return batch.problem.empty() ? text : text + " (" + batch.problem + ")";
}

// Completes one receive whose send is there, in the order listed for each peer but in any order between
// peers: a fixed order could wait for a rank that itself waits, further up the chain, for one of our other
// transfers.
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
      post.refusal = transfer_disagreement(name_, receive.peer, post.tensor, rank, receive.tensor);
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

// Takes back what nobody has begun to read, and waits for those who have.
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
  for (const ThreadPost& post : batch.sends)
    if (batch.problem.empty()) batch.problem = post.refusal;
  if (!batch.problem.empty()) throw Error(batch.problem);
}

}  // namespace trifold
