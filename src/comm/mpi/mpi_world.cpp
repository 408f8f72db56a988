#include "comm/mpi/mpi_world.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>

#include "comm/call.h"
#include "core/error.h"
#include "core/watchdog.h"

namespace trifold {

namespace {

constexpr size_t kPieceBytes = size_t{8} << 20;
constexpr std::chrono::seconds kFinalizeAfterFailure{3};
constexpr int kTags = 8;  // kinds of MpiTag

// The MPI library, which can be started only once in a process.
class Library {
 public:
  Library() {
    int running = 0;
    MPI_Initialized(&running);
    if (running == 0) {
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level_), "MPI_Init_thread");
      ours_ = true;
    } else {
      MPI_Query_thread(&level_);
    }
    // MPI attributes some errors of messages to these communicators, and by default would end the process.
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    check(level_ >= MPI_THREAD_SERIALIZED,
          "this MPI library allows calls from the main thread only (it gives thread level {}, "
          "MPI_THREAD_SERIALIZED is {}): communication could not overlap computation. "
          "Use an MPI built with thread support.",
          level_, MPI_THREAD_SERIALIZED);
  }
  ~Library() {
    if (!ours_) return;
    if (broken)
      try_to_finalize();
    else
      finalize();
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  std::atomic<bool> broken{false};
  // The last words of the latest world.
  LastWords last_words = nullptr;
  std::chrono::milliseconds timeout{};
  int rank = 0;

 private:
  void finalize() {
    std::optional<Watchdog> watch;
    if (last_words != nullptr) watch.emplace(timeout, [this] { end_late_finish(); });
    MPI_Finalize();
  }
  // Called on a time-out of MPI_Finalize, which waits for the other ranks without limit.
  void end_late_finish() const {
    last_words(
        fmt::format("rank {} ({}) gave up after {} in MPI_Finalize, where it waits for the other ranks to "
                    "end: ranks that do not print this message are missing",
                    rank, this_process(), to_string(timeout))
            .c_str());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }

  // After a failure, other ranks may be gone, and MPI_Finalize would wait for them. If they do arrive, all
  // processes end in their own way instead of being killed by the launcher; so MPI_Finalize gets a short
  // time, on a thread that can be left behind.
  static void try_to_finalize() {
    auto done = std::make_shared<std::promise<void>>();
    auto finished = done->get_future();
    std::thread([done] {
      MPI_Finalize();
      done->set_value();
    }).detach();
    if (finished.wait_for(kFinalizeAfterFailure) == std::future_status::timeout)
      MPI_Abort(MPI_COMM_WORLD, 1);  // otherwise the launcher would wait for missing ranks
  }

  int level_ = MPI_THREAD_SINGLE;
  bool ours_ = false;
};

Library& library() {
  static Library mpi;
  return mpi;
}

// Ranks of this host, counted by a collective call.
int count_ranks_here(MPI_Comm world) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int count = 0;
  MPI_Comm_size(host, &count);
  MPI_Comm_free(&host);
  return count;
}

// Polls often while an answer is likely, then yields the core, then sleeps: a rank that waits for a late one must not
// take cores from ranks that compute. Ranks that share cores do not yield: that would cost a time slice of any other
// program.
class Backoff {
 public:
  explicit Backoff(bool shares_cores) : yields_for_(shares_cores ? 0 : 200) {}

  void pause() {
    if (++looks_ < kLooks) return;
    const auto now = Clock::now();
    if (looks_ == kLooks) since_ = now;
    if (now - since_ < yields_for_)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  void reset() { looks_ = 0; }
  // Other ranks may ask about this wait.
  bool is_long() const { return looks_ >= kLooks; }

 private:
  static constexpr int kLooks = 50;

  const std::chrono::microseconds yields_for_;
  int looks_ = 0;
  Clock::time_point since_;
};

// Splits `bytes` at `data` into messages, and calls post(place, length) for each. An empty message is one too.
template <class Post>
void in_pieces(void* data, size_t bytes, Post post) {
  auto* at = static_cast<std::byte*>(data);
  do {
    const size_t piece = std::min(bytes, kPieceBytes);
    post(at, static_cast<int>(piece));
    at += piece;
    bytes -= piece;
  } while (bytes > 0);
}

void check_length(const MPI_Status& status, int error, const MpiRequests::Expected& expected) {
  int kind = MPI_SUCCESS;
  if (error != MPI_SUCCESS) MPI_Error_class(error, &kind);
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const bool is_longer = kind == MPI_ERR_TRUNCATE;
  if (!is_longer) check_mpi(error, "MPI_Irecv");
  check(
      !is_longer && bytes == expected.bytes,
      "a message from rank {} has {} bytes instead of {}: it was damaged in transit, or that rank runs another program",
      expected.from, is_longer ? "more" : std::to_string(bytes), expected.bytes);
}

}  // namespace

void check_mpi(int code, const char* function) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail("{} failed: {}", function, std::string_view(text.data(), static_cast<size_t>(length)));
}

MpiWorld::MpiWorld(const MpiModuleHost& host)
    : timeout_(host.timeout_ms), ops_(*host.ops), host_(host.thread), last_words_(host.last_words) {
  library().last_words = last_words_;
  library().timeout = timeout_;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  MPI_Comm_rank(comm_, &rank_);
  library().rank = rank_;
  MPI_Comm_size(comm_, &size_);
  int* highest = nullptr;
  int known = 0;
  MPI_Comm_get_attr(comm_, MPI_TAG_UB, &highest, &known);
  highest_tag_ = known != 0 ? *highest : 32'767;  // the minimum that the standard guarantees
  learn_places();
  beat_ = std::make_unique<News>();
  beat_->kind = News::Kind::Beat;
  beat_->from = rank_;
  // Not the cores that this process may use: a launcher may bind each rank to one.
  shares_cores_ = count_ranks_here(comm_) > sysconf(_SC_NPROCESSORS_ONLN);
  expect_news();
  watch_ = std::thread([this] { watch_loop(); });
}

MpiWorld::~MpiWorld() {
  {
    const std::lock_guard ending(watch_mutex_);
    ending_ = true;
  }
  watch_ends_.notify_all();
  watch_.join();
  const auto held = lock();
  if (broken()) {
    news_in_.release();  // NOLINT: MPI may still write to it
    beat_.release();     // NOLINT: MPI may still read it
    return;
  }
  // Without waiting for the last heartbeat: the next rank may have ended.
  int sent = 1;
  if (beat_request_ != MPI_REQUEST_NULL) MPI_Test(&beat_request_, &sent, MPI_STATUS_IGNORE);
  if (sent == 0) {
    MPI_Request_free(&beat_request_);
    beat_.release();  // NOLINT: MPI may still read it
  }
  MPI_Cancel(&news_request_);
  MPI_Wait(&news_request_, MPI_STATUS_IGNORE);
  MPI_Comm_free(&comm_);
}

int MpiWorld::tag_of(int context, MpiTag tag) const { return context * kTags + static_cast<int>(tag); }

void MpiWorld::use_context(int context) {
  check(context >= 0, "the number of a communicator is {}: a message was damaged in transit", context);
  check(context <= (highest_tag_ - static_cast<int>(MpiTag::News)) / kTags,
        "too many communicators: this MPI library has tags up to {}, enough for {} splits", highest_tag_,
        highest_tag_ / kTags);
  next_context_.store(std::max(next_context_.load(), context + 1));
}

void MpiWorld::send(MpiRequests& requests, const void* data, size_t bytes, int world_rank, int context,
                    MpiTag tag) {
  in_pieces(const_cast<void*>(data), bytes, [&](void* piece, int length) {
    MPI_Request& request = requests.sends.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Isend(piece, length, MPI_BYTE, world_rank, tag_of(context, tag), comm_, &request),
              "MPI_Isend");
  });
}

void MpiWorld::receive(MpiRequests& requests, void* data, size_t bytes, int world_rank, int context,
                       MpiTag tag) {
  in_pieces(data, bytes, [&](void* piece, int length) {
    requests.expected.push_back({world_rank, length});
    MPI_Request& request = requests.receives.emplace_back(MPI_REQUEST_NULL);
    check_mpi(MPI_Irecv(piece, length, MPI_BYTE, world_rank, tag_of(context, tag), comm_, &request),
              "MPI_Irecv");
  });
}

void MpiWorld::test_some(std::vector<MPI_Request>& requests,
                         std::span<const MpiRequests::Expected> expected) {
  if (requests.empty()) return;
  int finished = 0;
  std::vector<int> indices(requests.size());
  std::vector<MPI_Status> statuses(requests.size());
  const int code = MPI_Testsome(static_cast<int>(requests.size()), requests.data(), &finished, indices.data(),
                                statuses.data());
  int kind = MPI_SUCCESS;
  if (code != MPI_SUCCESS) MPI_Error_class(code, &kind);
  const bool in_status = kind == MPI_ERR_IN_STATUS;  // otherwise MPI_ERROR of the statuses is not set
  if (!in_status) check_mpi(code, "MPI_Testsome");
  if (finished == MPI_UNDEFINED) return;
  finished_ += static_cast<uint64_t>(finished);
  for (size_t i = 0; i < static_cast<size_t>(finished); ++i) {
    const int error = in_status ? statuses[i].MPI_ERROR : MPI_SUCCESS;
    if (expected.empty())
      check_mpi(error, "MPI_Isend");
    else
      check_length(statuses[i], error, expected[static_cast<size_t>(indices[i])]);
  }
}

bool MpiWorld::test(MpiRequests& requests) {
  test_some(requests.receives, requests.expected);
  test_some(requests.sends, {});
  const auto over = [](MPI_Request request) { return request == MPI_REQUEST_NULL; };
  return std::all_of(requests.receives.begin(), requests.receives.end(), over) &&
         std::all_of(requests.sends.begin(), requests.sends.end(), over);
}

void MpiWorld::cancel(MpiRequests& requests) {
  for (MPI_Request& request : requests.receives) {
    if (request == MPI_REQUEST_NULL) continue;
    MPI_Cancel(&request);
    int over = 0;  // a receive whose message is already arriving cannot be cancelled but ends soon
    for (int tries = 0; tries < 1000 && over == 0; ++tries) MPI_Test(&request, &over, MPI_STATUS_IGNORE);
  }
}

void MpiWorld::set_broken(std::string_view why, ErrorKind kind) {
  if (broken()) return;
  why_ = why;
  why_kind_ = kind;
  broken_at_ = Clock::now();
  library().broken = true;
  broken_.store(true);
}

void MpiWorld::throw_if_broken() {
  const auto held = lock();
  look_for_news();
  if (broken()) throw Error(why_, why_kind_);
}

// A wait of a thread, which others may ask about once it is listed.
class MpiWorld::Waiting {
 public:
  explicit Waiting(MpiWorld& world) : world_(world) {}
  ~Waiting() {
    if (!listed_) return;
    const auto held = world_.lock();
    world_.waits_.erase(at_);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  // Makes the wait visible to other ranks. The lock must be held.
  void list(FunctionRef<std::string()> what, const WaitClock& clock) {
    if (listed_) return;
    at_ = world_.waits_.insert(world_.waits_.end(), {what, clock});
    held_up_.emplace(std::this_thread::get_id() == world_.host_id_ ? world_.host_ : nullptr);
    listed_ = true;
  }

 private:
  MpiWorld& world_;
  std::list<Wait>::iterator at_;
  std::optional<HeldUp> held_up_;
  bool listed_ = false;
};

// A message that is not as expected, or an error of MPI, is one for all ranks: they would wait for this one.
bool MpiWorld::done_or_broken(FunctionRef<bool()> done) {
  try {
    return done();
  } catch (const Error& error) {
    tell_others(fmt::format("rank {}: {}", rank_, error.what()));
    why_is_ours_ = true;
    set_broken(error.what(), error.kind());  // whichever thread of this rank ends first reports it
    throw;
  }
}

void MpiWorld::await(FunctionRef<bool()> done, FunctionRef<std::string()> what) {
  WaitClock clock = [&] {
    const auto held = lock();
    return WaitClock(limit());
  }();
  Backoff backoff(shares_cores_);
  Waiting waiting(*this);
  for (uint64_t seen = 0;; backoff.pause()) {
    auto held = lock();
    look_for_news();
    if (broken()) throw Error(why_, why_kind_);
    if (done_or_broken(done)) return;
    if (backoff.is_long()) waiting.list(what, clock);
    if (finished_ != seen) backoff.reset();
    seen = finished_;
    if (!clock.expired() || leaves_it_to_another()) continue;
    give_up(held, done, what(), clock);
  }
}

void MpiWorld::wait(MpiRequests& requests, FunctionRef<std::string()> what) {
  try {
    await([&] { return test(requests); }, what);
  } catch (...) {
    const auto held = lock();
    cancel(requests);
    throw;
  }
}

void MpiWorld::abort(std::string_view why) noexcept {
  try {
    const auto held = lock();
    if (broken()) return;
    tell_others(why);
    why_is_ours_ = true;
    set_broken(why);
  } catch (...) {  // nothing more can be done: the other ranks have their time-outs
  }
}

}  // namespace trifold
