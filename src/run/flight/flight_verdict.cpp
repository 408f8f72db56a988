#include "run/flight/flight_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
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

std::vector<fs::path> flight_files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == kEnding) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

// A collective, or a message from one rank to another, of the whole run.
struct CallKey {
  std::vector<int> members;  // ranks of the communicator
  int ordinal = 0;           // among the communicators of these members
  int from = -1, to = -1;    // ranks of a message
  int64_t number = 0;

  auto order() const { return std::tie(members, ordinal, from, to, number); }
  bool operator<(const CallKey& other) const { return order() < other.order(); }
  // All calls but the number.
  CallKey channel() const {
    CallKey key = *this;
    key.number = 0;
    return key;
  }
};

// What one rank began.
class EndedRank {
 public:
  explicit EndedRank(const FlightLog& log) : log_(log) {
    std::map<std::vector<int>, int> seen;
    for (const auto& members : log.groups) ordinals_.push_back(seen[members]++);
    for (const FlightEvent& event : log.events) {
      const auto key = key_of(event);
      if (!key) continue;
      auto [last, is_new] = last_begun_.try_emplace(key->channel(), event.number);
      if (!is_new) last->second = std::max(last->second, event.number);
      names_[*key] = std::string(event.name());
      if (event.end_ns == 0) open_.push_back(event);
    }
  }

  const FlightLog& log() const { return log_; }
  const std::vector<FlightEvent>& open() const { return open_; }
  bool has_begun(const CallKey& key) const {
    const auto last = last_begun_.find(key.channel());
    return last != last_begun_.end() && last->second >= key.number;
  }
  // The name of this rank's call; "" if the ring has it no more.
  std::string name_of(const CallKey& key) const {
    const auto name = names_.find(key);
    return name == names_.end() ? std::string() : name->second;
  }
  std::optional<CallKey> key_of(const FlightEvent& event) const {
    if (event.kind < Kind::Collective || event.group < 0 ||
        static_cast<size_t>(event.group) >= log_.groups.size())
      return std::nullopt;
    const auto group = static_cast<size_t>(event.group);
    CallKey key{log_.groups[group], ordinals_[group], -1, -1, event.number};
    if (event.kind == Kind::Send) std::tie(key.from, key.to) = std::pair(log_.rank, event.peer);
    if (event.kind == Kind::Receive) std::tie(key.from, key.to) = std::pair(event.peer, log_.rank);
    return key;
  }

 private:
  const FlightLog& log_;
  std::vector<int> ordinals_;
  std::map<CallKey, int64_t> last_begun_;
  std::map<CallKey, std::string> names_;
  std::vector<FlightEvent> open_;
};

using EndedRanks = std::map<int, EndedRank>;

// The ranks that have not come to this event of `rank`.
std::vector<int> missing_from(const EndedRank& rank, const FlightEvent& event, const EndedRanks& ranks) {
  const auto key = rank.key_of(event);
  if (!key) return {};
  std::vector<int> wanted = key->members;
  if (event.kind != Kind::Collective) wanted = {event.peer};
  std::vector<int> missing;
  for (const int member : wanted) {
    if (member == rank.log().rank) continue;
    const auto other = ranks.find(member);
    if (other == ranks.end() || !other->second.has_begun(*key)) missing.push_back(member);
  }
  return missing;
}

std::string call_text(const EndedRank& rank, const FlightEvent& event) {
  const auto key = rank.key_of(event);
  const std::string group = key ? name_group(key->members, rank.log().ranks) : "a group";
  if (event.kind == Kind::Collective)
    return fmt::format("{}, call {} in {}", event.name(), event.number, group);
  return fmt::format("{} {} {} in {}, message {}", event.name(), event.kind == Kind::Send ? "to" : "from",
                     name_ranks(std::array{event.peer}), group, event.number);
}

// What a rank that `rank` waits for in this event did not do.
std::string omission_text(const EndedRank& rank, const FlightEvent& event) {
  if (event.kind == Kind::Collective) return "never came to " + call_text(rank, event);
  const auto key = rank.key_of(event);
  return fmt::format("never {} message {} {} rank {} in {}", event.kind == Kind::Send ? "took" : "sent",
                     event.number, event.kind == Kind::Send ? "from" : "to", rank.log().rank,
                     key ? name_group(key->members, rank.log().ranks) : "a group");
}

// Two ranks that have begun different calls with one number.
std::string different_calls(const EndedRanks& ranks) {
  for (const auto& [number, rank] : ranks)
    for (const FlightEvent& event : rank.open()) {
      const auto key = rank.key_of(event);
      if (!key || event.kind != Kind::Collective) continue;
      for (const int member : key->members) {
        const auto other = ranks.find(member);
        const std::string name = other == ranks.end() ? "" : other->second.name_of(*key);
        if (!name.empty() && name != event.name())
          return fmt::format("rank {} is in {}, and rank {} called {} as its call {} there", number,
                             call_text(rank, event), member, name, event.number);
      }
    }
  return "";
}

// A process whose last heartbeat is this much older than the newest one was stopped or killed before the others.
constexpr double kSilentSeconds = 2;

double last_sign(const FlightLog& log) { return log.wall_seconds(log.beat_ns); }

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

double newest_sign(const FlightFiles& files) {
  double newest = -std::numeric_limits<double>::infinity();
  for (const FlightLog& log : files.logs) newest = std::max(newest, last_sign(log));
  return newest;
}

// Whether the rank's process was stopped or killed while others ran.
bool is_silent(const FlightLog& log, double newest) {
  return log.end == FlightLog::End::Running && newest - last_sign(log) > kSilentSeconds;
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

std::string lines_of(const FlightFiles& files, const FlightVerdict& verdict, const EndedRanks& ranks) {
  const double newest = newest_sign(files);
  std::vector<RankAtEnd> order = verdict.ranks;
  const auto urgency = [&](const RankAtEnd& rank) {
    const auto at = std::find(verdict.never_came.begin(), verdict.never_came.end(), rank.rank);
    return at - verdict.never_came.begin();
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const RankAtEnd& a, const RankAtEnd& b) { return urgency(a) < urgency(b); });
  std::string text;
  for (const RankAtEnd& at_end : order) {
    if (!at_end.has_file) {
      text += fmt::format("  rank {} left no file\n", at_end.rank);
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
    text += fmt::format("  rank {} (host {}, pid {}) {}; {}; last heartbeat {:.1f} s before the end\n",
                        log.rank, log.host, log.pid, place_of(log), doing, newest - last_sign(log));
  }
  return text;
}

EndedRanks ranks_of(const FlightFiles& files) {
  EndedRanks ranks;
  for (const FlightLog& log : files.logs) ranks.try_emplace(log.rank, log);
  return ranks;
}

}  // namespace

FlightFiles read_flight_files(const std::string& folder) {
  if (!fs::is_directory(folder)) bad_input("{} is no folder; name that of --flight-dir", folder);
  fs::path chosen = folder;
  std::vector<fs::path> files = flight_files_in(chosen);
  if (files.empty()) {
    std::vector<fs::path> runs;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.is_directory() && !flight_files_in(entry.path()).empty()) runs.push_back(entry.path());
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
  const EndedRanks ranks = ranks_of(files);
  const int count = files.logs.front().ranks;
  const double newest = newest_sign(files);
  std::map<int, double> missed_since;    // by missing rank
  std::map<int, std::string> missed_in;  // what it did not do
  for (int number = 0; number < count; ++number) {
    RankAtEnd at_end{number, ranks.contains(number), {}, false};
    if (at_end.has_file) {
      const EndedRank& rank = ranks.at(number);
      std::set<int> missing;
      for (const FlightEvent& event : rank.open()) {
        at_end.waits = true;
        const double since = rank.log().wall_seconds(event.begin_ns);
        std::vector<int> others = missing_from(rank, event, ranks);
        for (const int member : rank.key_of(event).value_or(CallKey{}).members)
          if (const auto other = ranks.find(member);
              member != number && other != ranks.end() && is_silent(other->second.log(), newest))
            others.push_back(member);
        for (const int other : others) {
          missing.insert(other);
          if (auto [at, is_new] = missed_since.try_emplace(other, since); is_new || since < at->second) {
            at->second = since;
            missed_in[other] = omission_text(rank, event);
          }
        }
      }
      at_end.waits_for.assign(missing.begin(), missing.end());
    }
    verdict.ranks.push_back(std::move(at_end));
  }
  for (const RankAtEnd& rank : verdict.ranks) {
    if (!missed_since.contains(rank.rank)) continue;
    // A process that is silent waits for nobody: it was stopped or killed.
    if (rank.waits_for.empty() || is_silent(ranks.at(rank.rank).log(), newest))
      verdict.never_came.push_back(rank.rank);
  }
  const auto is_missed_before = [&](int a, int b) { return missed_since.at(a) < missed_since.at(b); };
  std::stable_sort(verdict.never_came.begin(), verdict.never_came.end(), is_missed_before);
  const std::string difference = different_calls(ranks);
  if (!verdict.never_came.empty()) {
    const int first = verdict.never_came.front();
    const std::string host =
        ranks.contains(first)
            ? fmt::format(" (host {}, pid {})", ranks.at(first).log().host, ranks.at(first).log().pid)
            : " (it left no file)";
    verdict.text = fmt::format("rank {}{} {}", first, host, missed_in.at(first));
    if (verdict.never_came.size() > 1)
      verdict.text +=
          fmt::format("; {} did not come either", name_ranks(std::span(verdict.never_came).subspan(1)));
  } else if (!missed_since.empty()) {
    verdict.text = "every rank that others wait for waits itself";
  } else if (std::any_of(verdict.ranks.begin(), verdict.ranks.end(),
                         [](const RankAtEnd& rank) { return rank.waits; })) {
    verdict.text = "all ranks have come to the calls that did not end";
  } else {
    verdict.text = "no rank waited for another";
  }
  if (!difference.empty()) verdict.text += "; " + difference;
  return verdict;
}

std::string flight_report(const FlightFiles& files) {
  const FlightVerdict verdict = judge(files);
  std::string text = fmt::format("{}: {} of {} ranks\n{}\n", files.folder, files.logs.size(),
                                 files.logs.empty() ? 0 : files.logs.front().ranks, verdict.text);
  for (const std::string& problem : files.problems) text += fmt::format("  {}\n", problem);
  if (files.logs.empty()) return text;
  return text + lines_of(files, verdict, ranks_of(files));
}

}  // namespace trifold
