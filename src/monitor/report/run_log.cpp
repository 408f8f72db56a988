#include "monitor/report/run_log.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string_view>

#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/mapped_lines.h"
#include "monitor/record.h"
#include "run/log_line.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostPaths = 4096;

bool begins_like_a_log(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string begin(kLogLineBegin.size(), '\0');
  file.read(begin.data(), std::ssize(begin));
  begin.resize(static_cast<size_t>(file.gcount()));
  return !begin.empty() && begins_like_log_line(begin);
}

// The only log in a folder.
fs::path log_in(const fs::path& folder) {
  std::vector<std::string> logs;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (begins_like_a_log(entry->path())) logs.push_back(printable(entry->path().filename().string()));
  std::sort(logs.begin(), logs.end());
  if (error) bad_input("{}: the folder cannot be read: {}", folder.string(), error.message());
  if (logs.empty())
    bad_input("{}: the folder has no log of --log-json: give the log itself", folder.string());
  if (logs.size() > 1)
    bad_input("{}: the folder has {} logs ({}): give one of them", folder.string(), logs.size(),
              fmt::join(logs, ", "));
  return folder / logs.front();
}

// The part of the data that an evaluation used. The log has no mark for it, so that it follows from the names of its
// numbers, such as test_loss; scores without such a name are of validation data.
std::string part_of(const nlohmann::ordered_json& values) {
  for (const char* part : {"train", "valid", "test"})
    for (const auto& item : values.items())
      if (item.key().starts_with(part + std::string("_"))) return part;
  return "valid";
}

// The record that a line of the log stands for.
RunRecord record_of_line(const nlohmann::json& line) {
  RunRecord record{.step = line["step"].get<int64_t>()};
  bool trains = false;
  for (const auto& item : line.items()) {
    if (item.key() == "step") continue;
    if (item.key() == "event" && item.value().is_string()) {
      record.event = item.value().get<std::string>();
      continue;
    }
    trains |= item.key() == "lr";
    record.values[item.key()] = item.value();
  }
  if (record.event.empty() && !trains) record.part = part_of(record.values);
  return record;
}

class Reader {
 public:
  explicit Reader(const std::string& path) : file_(path), lines_(file_, "lines of a log are short") {
    log_.path = path;
  }

  RunLog read() {
    while (const std::optional<std::string_view> line = lines_.next())
      if (!take(*line)) break;
    const bool is_empty = log_.curves.empty() && log_.events.empty() && log_.starts == 0;
    if (is_empty && begins_like_a_log(log_.path))
      bad_input(
          "{} ends within its first line: the run is still writing it, or was killed; there is nothing to report",
          log_.path);
    if (is_empty) bad_input("{} has no lines of a log: give a file that --log-json wrote", log_.path);
    return std::move(log_);
  }

 private:
  bool is_last() const { return lines_.bytes_read() >= file_.size() && !file_.text().ends_with('\n'); }

  // Returns false at an incomplete last line.
  bool take(std::string_view text) {
    const std::string where = fmt::format("{}:{}", log_.path, lines_.number());
    nlohmann::json line;
    try {
      line = parse_json_record(text, where);
    } catch (const Error&) {
      if (is_last()) return false;
      throw;
    }
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer())
      bad_input("{}: {} is no line of a log, which would be an object with a whole number 'step'", where,
                printable(text, 60));
    add(record_of_line(line));
    return true;
  }

  void add(RunRecord record) {
    if (record.step < 0) bad_input("{}:{}: step {} is negative", log_.path, lines_.number(), record.step);
    log_.last_step = record.event.empty() ? std::max(log_.last_step, record.step) : log_.last_step;
    if (const std::optional<int64_t> step = continues_after(record)) {
      if (*step < 0) bad_input("{}:{}: step {} is negative", log_.path, lines_.number(), *step);
      log_.last_step = std::min(log_.last_step, *step);
      for (auto& [path, curve] : log_.curves) forget_after(curve, *step);
    }
    if (record.event == "start") {
      ++log_.starts;
      log_.start = record.values;
      return;
    }
    if (!record.event.empty()) {
      log_.events.push_back({record.step, record.event, record.values});
      return;
    }
    for_each_number(record, [&](const std::string& path, double value) {
      const auto found = log_.curves.find(path);
      const bool is_new = found == log_.curves.end();
      if (!is_new) forget_after(found->second, record.step - 1);
      if (std::isnan(value) || (is_new && log_.curves.size() >= kMostPaths)) return;
      log_.curves[path].push_back({record.step, value});
    });
  }
  static void forget_after(Curve& curve, int64_t step) {
    while (!curve.empty() && curve.back().step > step) curve.pop_back();
  }

  MappedFile file_;
  MappedLines lines_;
  RunLog log_;
};

}  // namespace

const Curve& RunLog::curve(const std::string& number) const {
  static const Curve kNone;
  const auto found = curves.find(number);
  return found == curves.end() ? kNone : found->second;
}

RunLog read_run_log(const std::string& run) {
  std::error_code ignored;
  const std::string path = fs::is_directory(run, ignored) ? log_in(run).string() : run;
  RunLog log = Reader(path).read();
  log.first_step = log.last_step;
  for (const auto& [name, curve] : log.curves)
    if (!curve.empty()) log.first_step = std::min(log.first_step, curve.front().step);
  return log;
}

}  // namespace trifold
