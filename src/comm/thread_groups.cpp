// ThreadGroups: all groups of a world of threads, and what is known of its ranks when one of them waits too long.
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "comm/thread_group.h"

namespace trifold {

ThreadGroups::ThreadGroups(int size, std::chrono::milliseconds limit, const OpTable& arithmetic)
    : world_size(size),
      timeout(limit),
      ops(arithmetic),
      oversubscribed(size > available_cores()),
      homes_(static_cast<size_t>(size), Home{this_process(), nullptr, nullptr}) {}

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

bool ThreadGroups::give_up(int world_rank, const std::string& what, WaitClock& clock) noexcept {
  const std::vector<RankReport> all = reports();
  bool outside = false;
  {
    const std::lock_guard lock(mutex_);
    const auto& host = homes_[static_cast<size_t>(world_rank)].host;
    outside = waits_outside(all, host != nullptr && host->saver.load() == std::this_thread::get_id());
    if (outside && clock.extend(kOutsideTimeouts * clock.limit())) return false;
    if (!aborted_.load()) timed_out_.store(true);
  }
  abort(time_out_text(all, world_rank, clock.limit(), what, outside));
  return true;
}

void ThreadGroups::throw_aborted() const { throw Error(why_, ErrorKind::Aborted); }

void ThreadGroups::settle(int world_rank) {
  const std::lock_guard lock(mutex_);
  homes_[static_cast<size_t>(world_rank)] = {fmt::format("{}, thread {}", this_process(), gettid()),
                                             HostThread::here(), nullptr};
}

void ThreadGroups::attach(int world_rank, std::shared_ptr<FlightRecorder> recorder) {
  const std::lock_guard lock(mutex_);
  homes_[static_cast<size_t>(world_rank)].recorder = std::move(recorder);
}

std::chrono::milliseconds ThreadGroups::limit_of(int world_rank) const {
  const std::lock_guard lock(mutex_);
  const Home& home = homes_[static_cast<size_t>(world_rank)];
  if (home.recorder == nullptr ||
      (home.host != nullptr && home.host->saver.load() == std::this_thread::get_id()))
    return timeout;
  return home.recorder->wait_limit(timeout);
}

RankReport ThreadGroups::report_of(int rank) const {
  const Home& home = homes_[static_cast<size_t>(rank)];
  RankReport report{rank, home.where, true, false, {}};
  std::string waits, hangs;
  const auto add = [](std::string& all, const std::string& text) {
    if (!text.empty()) all += (all.empty() ? "" : ", and ") + text;
  };
  std::optional<ThreadGroup::LastCall> last;
  for (const auto& group : groups_) {
    const auto& members = group->world_ranks();
    const auto found = std::find(members.begin(), members.end(), rank);
    if (found == members.end()) continue;
    const int here = static_cast<int>(found - members.begin());
    const ThreadGroup::Standing standing = group->standing(here);
    add(waits, standing.waits);
    add(hangs, standing.hangs);
    const auto call = group->last_call(here);
    if (call && (!last || call->at > last->at)) last = call;
  }
  const bool is_held_up = home.host == nullptr || home.host->waits.load() > 0;
  if (const double seconds = home.host != nullptr ? home.host->stopped() : 0; seconds > 0)
    add(hangs, stopped_text("a wait for its own work", seconds));
  report.waits = !waits.empty() && hangs.empty() && is_held_up;
  if (report.waits || !hangs.empty()) {
    report.doing = hangs;
    add(report.doing, waits);
  } else {
    report.doing = last ? idle_text(last->text, seconds_since(last->at)) : idle_text("", 0);
  }
  if (home.host != nullptr) add_outside(report, *home.host);
  if (home.recorder != nullptr) add_place(report, *home.recorder);
  return report;
}

std::vector<RankReport> ThreadGroups::reports() const {
  const std::lock_guard lock(mutex_);
  std::vector<RankReport> all;
  for (int rank = 0; rank < world_size; ++rank) all.push_back(report_of(rank));
  return all;
}

}  // namespace trifold
