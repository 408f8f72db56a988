#include "core/flight/flight_recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "core/error.h"

namespace trifold {

namespace {

using Word = std::atomic<uint64_t>;
static_assert(sizeof(Word) == sizeof(uint64_t) && Word::is_always_lock_free, "words of a mapped file");

constexpr uint64_t kMagic = 0x32544847494c4654;  // "TFLIGHT2"
constexpr size_t kHostBytes = 256;
constexpr size_t kGroupWords = 8192;
constexpr size_t kEventWords = 10;
constexpr int kMaxRanks = 1 << 20;
constexpr size_t kMostMembers = size_t{4} << 20;  // members of all communicators of a file that is read

// The layout of a file: a head, the communicators, the ring.
struct Head {
  Word magic;  // written last
  Word slots;
  Word rank, ranks;
  Word pid;
  Word wall_ns;
  Word end;
  Word beat_ns;
  Word step;
  Word next;         // tickets drawn
  Word group_words;  // used words of `groups`
  std::array<Word, kHostBytes / sizeof(Word)> host;
  // Each communicator: its number of runs, then for each run of ranks the first one, the step and the count.
  std::array<Word, kGroupWords> groups;
};

using Slot = std::array<Word, kEventWords>;

constexpr size_t file_bytes(size_t slots) { return sizeof(Head) + slots * sizeof(Slot); }

// The words of an event in its slot.
struct Words {
  uint64_t ticket;  // 1 + ticket; 0 while the slot is written
  uint64_t begin_ns, end_ns, step, number, bytes;
  int32_t group, peer;
  FlightEvent::Kind kind;
  std::array<char, FlightEvent::kNameBytes> name;
  uint16_t thread;
};
static_assert(sizeof(Words) == sizeof(Slot));
constexpr size_t kBeginWord = 1, kEndWord = 2;

uint64_t load(const Word& word) { return word.load(std::memory_order_relaxed); }
int64_t load_signed(const Word& word) { return static_cast<int64_t>(load(word)); }

// The event of a slot if it has the ticket that belongs there.
std::optional<FlightEvent> read_slot(const Slot& slot, uint64_t ticket) {
  std::array<uint64_t, kEventWords> raw{};
  raw[0] = slot[0].load(std::memory_order_acquire);
  if (raw[0] != ticket + 1) return std::nullopt;
  for (size_t word = 1; word < kEventWords; ++word) raw[word] = slot[word].load(std::memory_order_acquire);
  if (load(slot[0]) != ticket + 1) return std::nullopt;  // read last: the loads before it acquire
  Words words{};
  std::memcpy(&words, raw.data(), sizeof words);
  if (words.kind > FlightEvent::Kind::Copy) return std::nullopt;
  FlightEvent event;
  event.kind = words.kind;
  event.name_bytes = words.name;
  event.thread = words.thread;
  event.group = words.group;
  event.peer = words.peer;
  event.number = static_cast<int64_t>(words.number);
  event.bytes = static_cast<int64_t>(words.bytes);
  event.ticket = ticket;
  event.step = static_cast<int64_t>(words.step);
  event.begin_ns = static_cast<int64_t>(words.begin_ns);
  event.end_ns = static_cast<int64_t>(words.end_ns);
  return event;
}

struct Run {
  uint64_t first, step, count;
};

// Ranks as arithmetic sequences.
std::vector<Run> runs_of(std::span<const int> ranks) {
  std::vector<Run> runs;
  for (size_t i = 0; i < ranks.size();) {
    size_t end = i + 1;
    const int step = end < ranks.size() ? ranks[end] - ranks[i] : 1;
    while (end < ranks.size() && step > 0 && ranks[end] - ranks[end - 1] == step) ++end;
    runs.push_back({static_cast<uint64_t>(ranks[i]), static_cast<uint64_t>(std::max(step, 1)), end - i});
    i = end;
  }
  return runs;
}

// Reads the communicators; false if they are not as a recorder writes them.
bool read_groups(const Head& head, int ranks, std::vector<std::vector<int>>& groups) {
  const auto used = head.group_words.load(std::memory_order_acquire);
  if (used > kGroupWords) return false;
  size_t all_members = 0;
  for (uint64_t at = 0; at < used;) {
    const uint64_t runs = load(head.groups[at++]);
    if (runs > (used - at) / 3) return false;
    std::vector<int> members;
    for (uint64_t run = 0; run < runs; ++run, at += 3) {
      const uint64_t first = load(head.groups[at]), step = load(head.groups[at + 1]),
                     count = load(head.groups[at + 2]);
      const auto all = static_cast<uint64_t>(ranks);
      if (first >= all || count == 0 || count > all || step == 0 || step > all ||
          first + step * (count - 1) >= all || members.size() + count > all ||
          (all_members += count) > kMostMembers)
        return false;
      for (uint64_t i = 0; i < count; ++i) members.push_back(static_cast<int>(first + step * i));
    }
    groups.push_back(std::move(members));
  }
  return true;
}

// Reads everything; false if it is not what a recorder writes.
bool read_image(const Head& head, const Slot* slots, FlightLog& log) {
  const uint64_t rank = load(head.rank), ranks = load(head.ranks);
  if (ranks < 1 || ranks > kMaxRanks || rank >= ranks) return false;
  log.rank = static_cast<int>(rank);
  log.ranks = static_cast<int>(ranks);
  log.pid = load_signed(head.pid);
  std::array<char, kHostBytes + 1> host{};
  for (size_t word = 0; word < head.host.size(); ++word) {
    const uint64_t text = load(head.host[word]);
    std::memcpy(&host[word * sizeof text], &text, sizeof text);
  }
  log.host = host.data();
  if (load(head.end) > static_cast<uint64_t>(FlightLog::End::Failed)) return false;
  log.end = static_cast<FlightLog::End>(load(head.end));
  log.wall_ns = load_signed(head.wall_ns);
  log.beat_ns = load_signed(head.beat_ns);
  log.step = load_signed(head.step);
  if (!read_groups(head, log.ranks, log.groups)) return false;
  const uint64_t next = load(head.next);
  for (uint64_t ticket = next - std::min<uint64_t>(next, FlightRecorder::kSlots); ticket < next; ++ticket)
    if (auto event = read_slot(slots[ticket % FlightRecorder::kSlots], ticket)) log.events.push_back(*event);
  return true;
}

std::byte* map(const std::string& file, size_t bytes) {
  int descriptor = -1;
  if (!file.empty()) {
    descriptor = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
    check(descriptor >= 0, "the flight recorder's file {} cannot be created: {}", file, std::strerror(errno));
    // Real blocks, because a full disk would otherwise end the process when the ring is written.
    const int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
    if (error != 0) {
      ::close(descriptor);
      ::unlink(file.c_str());
      fail("the flight recorder's file {} cannot have {} bytes: {}", file, bytes, std::strerror(error));
    }
  }
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        descriptor >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, descriptor, 0);
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  check(memory != MAP_FAILED, "the flight recorder cannot map {} bytes: {}", bytes, std::strerror(error));
  return static_cast<std::byte*>(memory);
}

// A number for the calling thread.
uint16_t this_thread() {
  static std::atomic<uint32_t> threads{0};
  static thread_local const auto kMine = static_cast<uint16_t>(
      std::min<uint32_t>(threads.fetch_add(1, std::memory_order_relaxed), FlightEvent::kUnknownThread));
  return kMine;
}

// Adds an event that begins, with what the recorder knows of it.
void add_to(FlightTrace& trace, FlightEvent event, uint64_t ticket, int64_t step, int64_t begin_ns) {
  event.ticket = ticket;
  event.step = step;
  event.begin_ns = begin_ns;
  event.thread = this_thread();
  trace.add(event);
}

Head& head_of(std::byte* memory) { return *reinterpret_cast<Head*>(memory); }
Slot* slots_of(std::byte* memory) { return reinterpret_cast<Slot*>(memory + sizeof(Head)); }

}  // namespace

FlightRecorder::FlightRecorder(int rank, int ranks, const std::string& file)
    : memory_(map(file, file_bytes(kSlots))), beat_(head_of(memory_).beat_ns), step_(head_of(memory_).step) {
  Head& head = head_of(memory_);
  store(head.rank, rank);
  store(head.ranks, ranks);
  store(head.pid, ::getpid());
  const int64_t wall = std::chrono::duration_cast<std::chrono::nanoseconds>(
                           std::chrono::system_clock::now().time_since_epoch())
                           .count();
  store(head.wall_ns, wall - now_ns());
  std::array<char, kHostBytes> host{};
  ::gethostname(host.data(), host.size() - 1);
  for (size_t word = 0; word < head.host.size(); ++word) {
    uint64_t text = 0;
    std::memcpy(&text, &host[word * sizeof text], sizeof text);
    head.host[word].store(text, std::memory_order_relaxed);
  }
  store(head.slots, kSlots);
  last_ns_.store(now_ns(), std::memory_order_relaxed);
  beat();
  head.magic.store(kMagic, std::memory_order_release);
}

FlightRecorder::~FlightRecorder() { ::munmap(memory_, file_bytes(kSlots)); }

int32_t FlightRecorder::add_group(std::span<const int> world_ranks) {
  Head& head = head_of(memory_);
  const std::vector<Run> runs = runs_of(world_ranks);
  // A rank splits its communicators on one thread, so that nobody else writes here.
  const uint64_t used = load(head.group_words);
  std::vector<std::vector<int>> known;
  read_groups(head, static_cast<int>(load(head.ranks)), known);
  if (used + 1 + 3 * runs.size() > kGroupWords) return -1;
  uint64_t at = used;
  store(head.groups[at++], static_cast<int64_t>(runs.size()));
  for (const Run& run : runs)
    for (const uint64_t value : {run.first, run.step, run.count})
      head.groups[at++].store(value, std::memory_order_relaxed);
  head.group_words.store(at, std::memory_order_release);
  return static_cast<int32_t>(known.size());
}

uint64_t FlightRecorder::begin(const FlightEvent& event) {
  const int64_t now = now_ns();
  Head& head = head_of(memory_);
  const uint64_t ticket = head.next.fetch_add(1, std::memory_order_relaxed);
  const Words words{ticket + 1,
                    static_cast<uint64_t>(now),
                    0,
                    load(step_),
                    static_cast<uint64_t>(event.number),
                    static_cast<uint64_t>(event.bytes),
                    event.group,
                    event.peer,
                    event.kind,
                    event.name_bytes,
                    this_thread()};
  std::array<uint64_t, kEventWords> raw{};
  std::memcpy(raw.data(), &words, sizeof words);
  Slot& slot = slots_of(memory_)[ticket % kSlots];
  slot[0].store(0, std::memory_order_relaxed);  // before the other words, whose stores release
  for (size_t word = 1; word < kEventWords; ++word) slot[word].store(raw[word], std::memory_order_release);
  slot[0].store(raw[0], std::memory_order_release);
  if (event.kind <= FlightEvent::Kind::Action) action_.store(ticket + 1, std::memory_order_relaxed);
  last_ns_.store(now, std::memory_order_relaxed);
  if (FlightTrace* const trace = trace_.load(std::memory_order_acquire)) [[unlikely]]
    add_to(*trace, event, ticket, static_cast<int64_t>(words.step), now);
  return ticket;
}

// Of its own, because it runs at every event and set_times() takes 12 ns more.
void FlightRecorder::end(uint64_t ticket) {
  const int64_t now = now_ns();
  Slot& slot = slots_of(memory_)[ticket % kSlots];
  if (load(slot[0]) == ticket + 1) store(slot[kEndWord], now);
  if (FlightTrace* const trace = trace_.load(std::memory_order_acquire)) [[unlikely]]
    trace->set_times(ticket, std::nullopt, now);
  last_ns_.store(now, std::memory_order_relaxed);
}

void FlightRecorder::set_times(uint64_t ticket, std::optional<int64_t> begin_ns,
                               std::optional<int64_t> end_ns) {
  Slot& slot = slots_of(memory_)[ticket % kSlots];
  if (load(slot[0]) == ticket + 1) {
    if (begin_ns) store(slot[kBeginWord], *begin_ns);
    if (end_ns) store(slot[kEndWord], *end_ns);
  }
  if (FlightTrace* const trace = trace_.load(std::memory_order_acquire)) [[unlikely]]
    trace->set_times(ticket, begin_ns, end_ns);
  last_ns_.store(end_ns ? *end_ns : now_ns(), std::memory_order_relaxed);
}

void FlightRecorder::start_trace() {
  check(kept_trace_ == nullptr, "a flight recorder keeps one trace");
  kept_trace_ = std::make_unique<FlightTrace>();
  trace_.store(kept_trace_.get(), std::memory_order_release);
}

FlightLog FlightRecorder::take_trace() {
  check(trace_.exchange(nullptr) != nullptr, "a flight recorder has no trace to take");
  FlightLog all = log();
  all.events = kept_trace_->take();
  return all;
}

void FlightRecorder::finish(FlightLog::End end) {
  beat();
  store(head_of(memory_).end, static_cast<int64_t>(end));
}

std::string FlightRecorder::place() const {
  const uint64_t last = action_.load(std::memory_order_relaxed);
  if (last == 0) return "";
  const auto event = read_slot(slots_of(memory_)[(last - 1) % kSlots], last - 1);
  std::string text = fmt::format("step {}", load(step_));
  if (event && event->name() != "step") text += fmt::format(", {}", event->name());
  return text;
}

double FlightRecorder::idle_seconds() const {
  return 1e-9 * static_cast<double>(now_ns() - last_ns_.load(std::memory_order_relaxed));
}

FlightLog FlightRecorder::log() const {
  FlightLog log;
  check(read_image(head_of(memory_), slots_of(memory_), log), "the flight recorder's memory was overwritten");
  return log;
}

FlightLog read_flight_log(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a pipe must not block
  if (descriptor < 0) bad_input("{} cannot be read: {}", file, std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    bad_input("{} is no file of a flight recorder", file);
  }
  const size_t bytes = file_bytes(FlightRecorder::kSlots);
  // A copy: the file of a run that is alive changes, and one that is shortened must not end this process.
  std::vector<uint64_t> image(bytes / sizeof(uint64_t) + 1);
  size_t read = 0;
  for (ssize_t more = 1; more > 0 && read <= bytes;) {
    more = ::read(descriptor, reinterpret_cast<char*>(image.data()) + read,
                  std::min(image.size() * sizeof(uint64_t) - read, bytes + 1 - read));
    if (more > 0) read += static_cast<size_t>(more);
  }
  ::close(descriptor);
  auto* memory = reinterpret_cast<std::byte*>(image.data());
  FlightLog log;
  if (read != bytes || load(head_of(memory).magic) != kMagic ||
      load(head_of(memory).slots) != FlightRecorder::kSlots ||
      !read_image(head_of(memory), slots_of(memory), log))
    bad_input(
        "{} is no file of this version's flight recorder: it has {}{} bytes, or its content was changed",
        file, read > bytes ? "more than " : "", std::min(read, bytes));
  return log;
}

FlightScope::FlightScope(FlightRecorder* recorder, const FlightEvent& event)
    : recorder_(recorder), exceptions_(std::uncaught_exceptions()) {
  if (recorder_ != nullptr) ticket_ = recorder_->begin(event);
}

FlightScope::FlightScope(FlightRecorder* recorder, FlightEvent::Kind kind, std::string_view name)
    : recorder_(recorder), exceptions_(std::uncaught_exceptions()) {
  if (recorder_ == nullptr) return;
  FlightEvent event;
  event.kind = kind;
  event.set_name(name);
  ticket_ = recorder_->begin(event);
}

FlightScope::~FlightScope() {
  if (recorder_ == nullptr || std::uncaught_exceptions() != exceptions_) return;
  if (span_)
    recorder_->end(ticket_, *span_);
  else
    recorder_->end(ticket_);
}

}  // namespace trifold
