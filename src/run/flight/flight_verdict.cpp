#include "run/flight/flight_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "comm/call.h"
#include "core/error.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

using Kind = FlightEvent::Kind;

constexpr std::string_view kEnding = ".flight";
constexpr std::string_view kRunPrefix = "run_";  // new_flight_folder

std::vector<fs::path> flight_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == kEnding) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// A number for each communicator of the run: its ranks, and how many communicators of the same ranks were made before.
class Communicators {
 public:
  int number_of(const std::vector<int>& members, int ordinal) {
    return numbers_.try_emplace({members, ordinal}, static_cast<int>(numbers_.size())).first->second;
  }

 private:
  std::map<std::pair<std::vector<int>, int>, int> numbers_;
};

// A collective, or a message from one rank to another, of the whole run.
struct CallKey {
  int communicator = 0;
  int from = -1, to = -1;  // ranks of a message
  int64_t number = 0;

  auto operator<=>(const CallKey&) const = default;
  // All calls but the number.
  CallKey channel() const { return {communicator, from, to, 0}; }
};

// What one rank began.
class EndedRank {
 public:
  EndedRank(const FlightLog& log, Communicators& communicators) : log_(log) {
    std::map<std::vector<int>, int> seen;
    for (const auto& members : log.groups)
      communicators_.push_back(communicators.number_of(members, seen[members]++));
    for (const FlightEvent& event : log.events) {
      if (event.kind <= Kind::Action) main_thread_ = event.thread;
      const auto key = key_of(event);
      if (!key) continue;
      auto [last, is_new] = last_begun_.try_emplace(key->channel(), event.number);
      if (!is_new) last->second = std::max(last->second, event.number);
      if (event.end_ns == 0) open_.push_back(event);
    }
  }

  const FlightLog& log() const { return log_; }
  const std::vector<FlightEvent>& open() const { return open_; }
  // Whether the thread that runs the plan, and so orders all calls of the rank, is known and in no call.
  bool runs_without_call() const {
    return main_thread_ != FlightEvent::kUnknownThread &&
           std::none_of(open_.begin(), open_.end(),
                        [&](const FlightEvent& event) { return event.thread == main_thread_; });
  }
  bool has_begun(const CallKey& key) const {
    const auto last = last_begun_.find(key.channel());
    return last != last_begun_.end() && last->second >= key.number;
  }
  // The name of this rank's call; "" if the ring has it no more.
  std::string name_of(const CallKey& key) const {
    for (const FlightEvent& event : log_.events)
      if (key_of(event) == key) return std::string(event.name());
    return "";
  }
  std::optional<CallKey> key_of(const FlightEvent& event) const {
    if (!has_members(event)) return std::nullopt;
    CallKey key{communicators_[static_cast<size_t>(event.group)], -1, -1, event.number};
    if (event.kind == Kind::Send) std::tie(key.from, key.to) = std::pair(log_.rank, event.peer);
    if (event.kind == Kind::Receive) std::tie(key.from, key.to) = std::pair(event.peer, log_.rank);
    return key;
  }
  // The ranks with which this rank makes a call.
  std::vector<int> others_of(const FlightEvent& event) const {
    if (!has_members(event)) return {};
    if (event.kind != Kind::Collective) return {event.peer};
    std::vector<int> others = log_.groups[static_cast<size_t>(event.group)];
    std::erase(others, log_.rank);
    return others;
  }
  std::string group_of(const FlightEvent& event) const {
    return has_members(event) ? name_group(log_.groups[static_cast<size_t>(event.group)], log_.ranks)
                              : "a group";
  }

 private:
  bool has_members(const FlightEvent& event) const {
    return event.kind >= Kind::Collective && event.group >= 0 &&
           static_cast<size_t>(event.group) < log_.groups.size();
  }

  const FlightLog& log_;
  std::vector<int> communicators_;  // by index in log_.groups
  std::map<CallKey, int64_t> last_begun_;
  std::vector<FlightEvent> open_;
  uint16_t main_thread_ = FlightEvent::kUnknownThread;  // the thread of parts and actions
};

using EndedRanks = std::map<int, EndedRank>;

std::string call_text(const EndedRank& rank, const FlightEvent& event) {
  if (event.kind == Kind::Collective)
    return fmt::format("{}, call {} in {}", event.name(), event.number, rank.group_of(event));
  return fmt::format("{} {} rank {} in {}, message {}", event.name(),
                     event.kind == Kind::Send ? "to" : "from", event.peer, rank.group_of(event),
                     event.number);
}

// What a rank that `rank` waits for in this event did not do.
std::string omission_text(const EndedRank& rank, const FlightEvent& event) {
  if (event.kind == Kind::Collective) return "never came to " + call_text(rank, event);
  const bool sends = event.kind == Kind::Send;
  return fmt::format("never {} message {} {} rank {} in {}", sends ? "took" : "sent", event.number,
                     sends ? "from" : "to", rank.log().rank, rank.group_of(event));
}

// Two ranks that have begun different calls with one number.
std::string different_calls(const EndedRanks& ranks) {
  for (const auto& [number, rank] : ranks)
    for (const FlightEvent& event : rank.open()) {
      const auto key = rank.key_of(event);
      if (!key || event.kind != Kind::Collective) continue;
      for (const int member : rank.others_of(event)) {
        const auto other = ranks.find(member);
        if (other == ranks.end() || !other->second.has_begun(*key)) continue;
        const std::string name = other->second.name_of(*key);
        if (!name.empty() && name != event.name())
          return fmt::format("rank {} is in {}, and rank {} called {} as its call {} there", number,
                             call_text(rank, event), member, name, event.number);
      }
    }
  return "";
}

// A process whose last heartbeat is this much older than the newest one of its host was stopped or killed before the
// others.
constexpr double kSilentSeconds = 2;

double last_sign(const FlightLog& log) { return log.wall_seconds(log.beat_ns); }

// The newest heartbeat of each host. Clocks of different hosts are not compared.
std::map<std::string, double> newest_signs(const FlightFiles& files) {
  std::map<std::string, double> newest;
  for (const FlightLog& log : files.logs) {
    const auto [at, is_new] = newest.try_emplace(log.host, last_sign(log));
    if (!is_new) at->second = std::max(at->second, last_sign(log));
  }
  return newest;
}

// Seconds for which the rank's process was stopped or dead while others of its host ran; 0: none.
double silent_seconds(const FlightLog& log, const std::map<std::string, double>& newest) {
  const double seconds = newest.at(log.host) - last_sign(log);
  return log.end == FlightLog::End::Running && seconds > kSilentSeconds ? seconds : 0;
}

std::string state_text(const FlightLog& log) {
  switch (log.end) {
    case FlightLog::End::Finished:
      return "ended";
    case FlightLog::End::Failed:
      return "ended with an error";
    default:
      return "";
  }
}

// The action or part that the rank was in, and its step.
std::string place_of(const FlightLog& log) {
  std::string text = fmt::format("step {}", log.step);
  const FlightEvent* last = nullptr;
  for (const FlightEvent& event : log.events)
    if (event.kind <= Kind::Action && (event.end_ns == 0 || last == nullptr || event.kind == Kind::Action))
      last = &event;
  if (last == nullptr) return text;
  return fmt::format("{}, {} {}", text, last->end_ns == 0 ? "in" : "after", last->name());
}

std::string lines_of(const FlightFiles& files, const FlightVerdict& verdict, const EndedRanks& ranks) {
  const std::map<std::string, double> newest = newest_signs(files);
  std::map<int, size_t> urgency;
  for (size_t i = 0; i < verdict.never_came.size(); ++i) urgency[verdict.never_came[i]] = i;
  std::vector<RankAtEnd> order = verdict.ranks;
  std::stable_sort(order.begin(), order.end(), [&](const RankAtEnd& a, const RankAtEnd& b) {
    const auto of = [&](const RankAtEnd& rank) {
      const auto at = urgency.find(rank.rank);
      return at == urgency.end() ? urgency.size() : at->second;
    };
    return of(a) < of(b);
  });
  std::string text;
  std::vector<int> without;
  for (const RankAtEnd& at_end : order) {
    if (!at_end.has_file) {
      without.push_back(at_end.rank);
      continue;
    }
    const EndedRank& rank = ranks.at(at_end.rank);
    const FlightLog& log = rank.log();
    std::string doing = state_text(log);
    for (const FlightEvent& event : rank.open()) {
      const double seconds = 1e-9 * static_cast<double>(log.beat_ns - event.begin_ns);
      doing += fmt::format("{}{} for {:.1f} s", doing.empty() ? "" : "; ", call_text(rank, event),
                           std::max(seconds, 0.0));
    }
    if (doing.empty()) doing = "in no call";
    text += fmt::format(
        "  rank {} (host {}, pid {}) {}; {}; last heartbeat {:.1f} s before the end of its host\n", log.rank,
        log.host, log.pid, place_of(log), doing, newest.at(log.host) - last_sign(log));
  }
  std::sort(without.begin(), without.end());
  if (!without.empty()) text += fmt::format("  {} left no file\n", name_ranks(without));
  return text;
}

EndedRanks ranks_of(const FlightFiles& files, Communicators& communicators) {
  EndedRanks ranks;
  for (const FlightLog& log : files.logs)
    ranks.emplace(std::piecewise_construct, std::tuple(log.rank), std::tie(log, communicators));
  return ranks;
}

// A rank that others wait for.
struct Missing {
  enum class Proof {
    NeverBegan,  // its file shows that it has not begun the call
    Silent,      // it has begun the call, but its process was stopped or killed before the others of its host
    NoFile       // nothing is known of it
  };
  Proof proof = Proof::NeverBegan;
  double since = 0;  // begin of the earliest such wait
  std::string what;  // what it did not do
};

void note(std::map<int, Missing>& all, int rank, const Missing& missing) {
  const auto [at, is_new] = all.try_emplace(rank, missing);
  if (!is_new && std::tie(missing.proof, missing.since) < std::tie(at->second.proof, at->second.since))
    at->second = missing;
}

}  // namespace

FlightFiles read_flight_files(const std::string& folder) {
  if (!fs::is_directory(folder)) bad_input("{} is no folder; name that of --flight-dir", folder);
  fs::path chosen = folder;
  std::vector<fs::path> files = flight_files_in(chosen);
  if (files.empty()) {
    std::vector<fs::path> runs;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_directory() && entry.path().filename().string().starts_with(kRunPrefix) &&
          !flight_files_in(entry.path()).empty())
        runs.push_back(entry.path());
    if (runs.empty())
      bad_input("{} has no files of a flight recorder (rank_*{}), and no folder in it has any", folder,
                kEnding);
    chosen = *std::max_element(runs.begin(), runs.end());  // names begin with the time
    files = flight_files_in(chosen);
  }
  FlightFiles result{chosen.string(), {}, {}};
  for (const fs::path& file : files) {
    try {
      FlightLog log = read_flight_log(file.string());
      const auto same = [&](const FlightLog& other) { return other.rank == log.rank; };
      if (std::any_of(result.logs.begin(), result.logs.end(), same))
        result.problems.push_back(fmt::format("{} is a second file of rank {}", file.string(), log.rank));
      else
        result.logs.push_back(std::move(log));
    } catch (const Error& error) {
      result.problems.emplace_back(error.what());
    }
  }
  std::sort(result.logs.begin(), result.logs.end(),
            [](const FlightLog& a, const FlightLog& b) { return a.rank < b.rank; });
  return result;
}

FlightVerdict judge(const FlightFiles& files) {
  FlightVerdict verdict;
  if (files.logs.empty()) {
    verdict.text = "no file can be read";
    return verdict;
  }
  Communicators communicators;
  const EndedRanks ranks = ranks_of(files, communicators);
  const std::map<std::string, double> newest = newest_signs(files);
  const auto silent = [&](int rank) {
    const auto found = ranks.find(rank);
    return found == ranks.end() ? 0.0 : silent_seconds(found->second.log(), newest);
  };
  std::map<int, Missing> missing;
  for (int number = 0; number < files.logs.front().ranks; ++number) {
    RankAtEnd at_end{number, ranks.contains(number), {}, false};
    if (at_end.has_file) {
      const EndedRank& rank = ranks.at(number);
      std::set<int> waits_for;
      for (const FlightEvent& event : rank.open()) {
        at_end.waits = true;
        const double since = rank.log().wall_seconds(event.begin_ns);
        const auto key = rank.key_of(event);
        for (const int other : rank.others_of(event)) {
          const auto its = ranks.find(other);
          if (its != ranks.end() && its->second.has_begun(*key)) {
            if (const double seconds = silent(other); seconds > 0) {
              waits_for.insert(other);
              note(missing, other,
                   {Missing::Proof::Silent, since,
                    fmt::format("fell silent {:.1f} s before the others of its host, in {}", seconds,
                                call_text(rank, event))});
            }
            continue;
          }
          waits_for.insert(other);
          note(missing, other,
               {its == ranks.end() ? Missing::Proof::NoFile : Missing::Proof::NeverBegan, since,
                omission_text(rank, event)});
        }
      }
      at_end.waits_for.assign(waits_for.begin(), waits_for.end());
    }
    verdict.ranks.push_back(std::move(at_end));
  }
  for (const RankAtEnd& rank : verdict.ranks) {
    // A process that was stopped or killed waits for nobody.
    if (missing.contains(rank.rank) && (rank.waits_for.empty() || silent(rank.rank) > 0))
      verdict.never_came.push_back(rank.rank);
  }
  // Ranks wait for each other in a circle if another thread of the one that hangs, such as that of a background save,
  // waits too. The threads that run the plan then tell which rank it is, unless several are in no call: one may hang,
  // or wait for a call of another thread of its own rank.
  if (verdict.never_came.empty()) {
    std::vector<int> without_call;
    for (const auto& [number, why] : missing)
      if (why.proof == Missing::Proof::NeverBegan && ranks.at(number).runs_without_call())
        without_call.push_back(number);
    if (without_call.size() == 1) verdict.never_came = without_call;
  }
  const auto is_first = [&](int a, int b) {
    const Missing &left = missing.at(a), &right = missing.at(b);
    return std::tie(left.proof, left.since) < std::tie(right.proof, right.since);
  };
  std::stable_sort(verdict.never_came.begin(), verdict.never_came.end(), is_first);
  if (!verdict.never_came.empty()) {
    const int first = verdict.never_came.front();
    const std::string process =
        ranks.contains(first)
            ? fmt::format(" (host {}, pid {})", ranks.at(first).log().host, ranks.at(first).log().pid)
            : " (it left no file)";
    verdict.text = fmt::format("rank {}{} {}", first, process, missing.at(first).what);
    std::vector<int> others(verdict.never_came.begin() + 1, verdict.never_came.end());
    std::sort(others.begin(), others.end());
    if (!others.empty()) verdict.text += fmt::format("; {} did not come either", name_ranks(others));
  } else if (!missing.empty()) {
    verdict.text = "every rank that others wait for waits itself";
  } else if (std::any_of(verdict.ranks.begin(), verdict.ranks.end(),
                         [](const RankAtEnd& rank) { return rank.waits; })) {
    verdict.text = "all ranks have come to the calls that did not end";
  } else {
    verdict.text = "no rank waited for another";
  }
  if (const std::string difference = different_calls(ranks); !difference.empty())
    verdict.text += "; " + difference;
  return verdict;
}

std::string flight_report(const FlightFiles& files) {
  const FlightVerdict verdict = judge(files);
  std::string text = fmt::format("{}: {} of {} ranks\n{}\n", files.folder, files.logs.size(),
                                 files.logs.empty() ? 0 : files.logs.front().ranks, verdict.text);
  for (const std::string& problem : files.problems) text += fmt::format("  {}\n", problem);
  if (files.logs.empty()) return text;
  Communicators communicators;
  return text + lines_of(files, verdict, ranks_of(files, communicators));
}

}  // namespace trifold
