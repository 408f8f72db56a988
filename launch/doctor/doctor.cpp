// `trifold doctor`: reports what this host and this build have, what is missing and how to get it.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "comm/mpi_module.h"
#include "config/command_line/command_line.h"
#include "core/printable.h"
#include "core/program_folder.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/doctor/checks.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kTableWidth = 100;
constexpr size_t kTextColumn = 22;  // where texts begin, after title and state

const char* state_text(Check::State state) {
  switch (state) {
    case Check::State::Ok:
      return "ok";
    case Check::State::Absent:
      return "absent";
    case Check::State::Broken:
      break;
  }
  return "BROKEN";
}

// Lines that begin with `line` and continue with `text`, broken between words; paths stay whole.
std::string table_entry(std::string line, const std::string& text) {
  std::string result;
  line.resize(std::max(line.size(), kTextColumn), ' ');
  std::istringstream words(printable_message(text));
  bool is_first = true;
  for (std::string word; words >> word; is_first = false) {
    if (!is_first && line.size() + 1 + word.size() > kTableWidth) {
      result += line + "\n";
      line.assign(kTextColumn, ' ');
    } else if (!is_first) {
      line += ' ';
    }
    line += word;
  }
  return result + line + "\n";
}

std::string table_of(const std::vector<Check>& checks) {
  std::string text = fmt::format("{}, {}\n\n", version_text(), (program_folder() / "trifold").string());
  for (const Check& check : checks) {
    text += table_entry(fmt::format("{:<14}{:<8}", check.title, state_text(check.state)), check.found);
    if (!check.advice.empty()) text += table_entry("", "-> " + check.advice);
  }
  std::vector<std::string> broken;
  for (const Check& check : checks)
    if (check.state == Check::State::Broken) broken.push_back(check.title);
  return text + (broken.empty() ? "\nEverything that this installation has can be used.\n"
                                : fmt::format("\nBroken: {}\n", fmt::join(broken, ", ")));
}

std::string json_of(const std::vector<Check>& checks, bool sound) {
  Json json{{"version", version_text().substr(version_text().find(' ') + 1)},
            {"program", (program_folder() / "trifold").string()},
            {"sound", sound},
            {"checks", Json::object()}};
  for (const Check& check : checks) {
    Json& entry = json["checks"][check.key];
    entry = {{"state", check.state == Check::State::Broken ? "broken" : state_text(check.state)},
             {"found", check.found},
             {"advice", check.advice}};
    entry.update(check.values);
  }
  return marked_json(json_text(json, 2) + "\n", "doctor");
}

}  // namespace

Check checked(std::string_view key, std::string_view title, void (*look)(Check&)) {
  Check check;
  check.key = key;
  check.title = title;
  try {
    look(check);
  } catch (const std::exception& error) {
    check.state = Check::State::Broken;
    check.found = error.what();
  }
  return check;
}

// Under an MPI launcher, which starts the command on every rank, the first one reports. MPI itself is not started.
int run(const DoctorConfig& config) {
  if (mpi_launch_rank().value_or(0) != 0) return kDone;
  const bool prints_json = config.json == "-";
  if (config.json && !prints_json) check_writable_file("--json", *config.json);
  std::vector<Check> checks = check_host();
  for (Check& check : check_modules()) checks.push_back(std::move(check));
  const bool sound = std::none_of(checks.begin(), checks.end(),
                                  [](const Check& check) { return check.state == Check::State::Broken; });
  fmt::print("{}", prints_json ? json_of(checks, sound) : table_of(checks));
  if (config.json && !prints_json) write_file("--json", *config.json, json_of(checks, sound));
  return sound ? kDone : kFailed;
}

}  // namespace trifold::launch
