// Forecasts of many runs in one process, one line of options each.
#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "config/command_line/command_info.h"
#include "core/error.h"
#include "core/input_file.h"
#include "core/read_json.h"
#include "launch/commands.h"
#include "launch/planning/goodput_lines.h"
#include "launch/planning/plan_json.h"
#include "mesh/mesh_sizes.h"
#include "models/language_model.h"
#include "plan/forecast/hardware_forecast.h"
#include "plan/layout_memory.h"
#include "plan/memory_fit.h"
#include "plan/report.h"
#include "plan/resolve.h"
#include "tokenize/unicode/unicode.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream stream(line);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

PlanConfig read_plan_line(const std::vector<std::string>& words, Remarks& remarks) {
  const CommandInfo& info = command_info("plan");
  Request request = info.read(info, words, {}, remarks);
  if (auto* config = std::get_if<PlanConfig>(&request); config != nullptr && !config->search)
    return std::move(*config);
  bad_input("a line holds the options of one plan, without --search, --help and --print-config");
}

// Time and memory in closed form. The bytes are an estimate, because no plan is made.
Json closed_form(const PlanConfig& config) {
  if (!config.hardware) bad_input("--closed-form needs --hardware on every line");
  if (config.goodput.mtbf)
    bad_input("--closed-form plans no step, from which --mtbf forecasts: leave one out");
  const RunSpec run = run_spec(config.run);
  const Model model = make_model(run.model, Mesh(mesh_sizes(run.mesh), {}), run.seed, run.mesh);
  const HardwareForecast forecast = make_forecast(run, planned_machine(config), model);
  const StepTime& time = forecast.closed_form;
  Json answer = {{"step_seconds", time.all()}, {"parts", parts_json(time)}};
  if (!run.order.schedule || run.order.is_async()) return answer;
  const size_t bytes = LayoutMemory(forecast.software).most_bytes(run, forecast.work.stages);
  answer["bytes"] = bytes;
  answer["fits"] = forecast.fits(bytes);
  return answer;
}

Json simulated(const PlanConfig& config) {
  const RunSpec run = run_spec(config.run);
  const PlannedMachine machine = planned_machine(config);
  const PlannedRun planned(run, batches_to_simulate(run));
  const PlanOutcome outcome = plan_outcome(planned, machine);
  check_memory_limit(config.run, outcome.memory);
  const size_t most = outcome.most_bytes();
  Json answer = {{"step_seconds", outcome.step_seconds}, {"bubble", outcome.bubble}, {"bytes", most}};
  if (outcome.forecast) {
    answer["closed_form_seconds"] = outcome.forecast->closed_form.all();
    answer["parts"] = parts_json(outcome.forecast->closed_form);
    answer["fits"] = outcome.forecast->fits(most);
  }
  if (config.goodput.mtbf)
    answer["goodput"] = to_json(make_goodput(config, planned, machine, outcome.step_seconds));
  return answer;
}

// An error in one line does not end the others.
Json answer_to(const std::vector<std::string>& words, bool closed) {
  try {
    Remarks remarks;  // a line writes no file
    const PlanConfig config = read_plan_line(words, remarks);
    Json answer = closed ? closed_form(config) : simulated(config);
    if (!remarks.notes.empty()) answer["notes"] = remarks.notes;
    return answer;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::BadInput) throw;
    return {{"error", error.what()}};
  }
}

}  // namespace

int run(const PlanLinesConfig& config) {
  constexpr int64_t kMostBytes = int64_t{64} << 20;
  const std::string text = read_input_file(config.lines, kMostBytes);
  if (const auto at = invalid_utf8(text))
    bad_input("{}:{}: byte {} of the file is not UTF-8", config.lines,
              1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(*at), '\n'), *at);
  std::istringstream file(text);
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = words_of(line);
    if (words.empty() || words.front().starts_with("#")) continue;
    fmt::print("{}\n", json_text(answer_to(words, config.closed_form)));
  }
  return kDone;
}

}  // namespace trifold::launch
