#include "comm/rank_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "comm/call.h"

namespace trifold {

namespace {

std::string state_text(const RankReport& report) {
  if (!report.answers) return "does not answer: it is stopped, has died or is cut off";
  return report.doing;
}

std::string outside_text(const HostThread::Outside& outside) {
  return fmt::format("has waited {:.1f} s for {}", seconds_since(outside.since), outside.what);
}

std::string line_of(const RankReport& report) {
  return fmt::format("rank {} ({}) {}", report.rank, report.where, state_text(report));
}

// "; in step 12, 0B1; last event 0.3 s ago"
std::string sign_text(const RankReport& report) {
  std::string text;
  if (!report.place.empty()) text += "; in " + report.place;
  if (report.last_sign)
    text += fmt::format("; last {} {:.1f} s ago", report.answers ? "event" : "heartbeat", *report.last_sign);
  return text;
}

}  // namespace

std::string waiting_text(const std::string& what, double seconds) {
  return fmt::format("waits {:.1f} s in {}", seconds, what);
}

std::string stopped_text(const std::string& what, double seconds) {
  return fmt::format("hangs: its thread has not run for {:.1f} s, in {}", seconds, what);
}

std::string idle_text(const std::string& last_call, double seconds) {
  if (last_call.empty()) return "waits for no other rank; it has not called any yet";
  return fmt::format("waits for no other rank; its last call was {:.1f} s ago: {}", seconds, last_call);
}

void add_outside(RankReport& report, const HostThread& thread) {
  if (const auto outside = thread.outside()) {
    report.outside = true;
    report.doing = outside_text(*outside);
  }
  if (const auto outside = thread.saver_outside()) {
    report.saver_outside = true;
    report.doing += "; its save in the background " + outside_text(*outside);
  }
}

void add_place(RankReport& report, const FlightRecorder& recorder) {
  report.place = recorder.place();
  report.last_sign = recorder.idle_seconds();
}

bool waits_outside(const std::vector<RankReport>& reports, bool of_saver) {
  bool any = false;
  for (const RankReport& report : reports) {
    const bool outside = of_saver ? report.saver_outside : report.outside;
    if (!report.answers || !(of_saver || report.waits || outside)) return false;
    any = any || outside;
  }
  return any;
}

std::string rank_table(std::vector<RankReport> reports) {
  const auto order = [](const RankReport& report) {
    return !report.answers ? 0 : report.waits ? 3 : report.outside ? 2 : 1;
  };
  std::stable_sort(reports.begin(), reports.end(),
                   [&](const RankReport& a, const RankReport& b) { return order(a) < order(b); });
  std::string text;
  for (const RankReport& report : reports)
    text += fmt::format("{}  {}{}", text.empty() ? "" : "\n", line_of(report), sign_text(report));
  return text;
}

std::string time_out_text(const std::vector<RankReport>& reports, int teller,
                          std::chrono::milliseconds timeout, const std::string& what, bool outside) {
  std::vector<int> silent, dead, held_up;
  for (const RankReport& report : reports) {
    if (!report.answers)
      dead.push_back(report.rank);
    else if (report.outside || (outside && report.saver_outside))
      held_up.push_back(report.rank);
    else if (!report.waits)
      silent.push_back(report.rank);
  }
  // A rank that does not answer explains why others compute or hang, but not vice versa.
  const bool by_outside = dead.empty() && (outside || silent.empty());
  const std::vector<int>& guilty = !dead.empty() ? dead : by_outside ? held_up : silent;
  std::string text;
  if (guilty.empty())
    text = "every rank waits for another";
  else if (guilty.size() == 1)
    text = line_of(*std::find_if(reports.begin(), reports.end(),
                                 [&](const RankReport& report) { return report.rank == guilty.front(); }));
  else
    text = name_ranks(guilty) + (!dead.empty() ? " do not answer"
                                 : by_outside  ? " wait for the disk or for data"
                                               : " are missing: they wait for no other rank");
  std::string after = to_string(timeout);
  if (outside)
    after =
        fmt::format("{} ({} times the time-out of {}, the limit while ranks wait for the disk or for data)",
                    to_string(kOutsideTimeouts * timeout), kOutsideTimeouts, after);
  return fmt::format("{}. Rank {} gave up after {} in {}. What each rank does:\n{}", text, teller, after,
                     what, rank_table(reports));
}

std::string this_process() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("host {}, pid {}", host.data(), getpid());
}

}  // namespace trifold
