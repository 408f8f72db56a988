#include "pipeline/action.h"

#include <array>
#include <charconv>
#include <utility>

#include "core/error.h"

namespace trifold {

namespace {

constexpr std::array<std::pair<ActionKind, std::string_view>, 6> kNames{
    {{ActionKind::ReduceGrad, "REDUCE_GRAD"},
     {ActionKind::Step, "STEP"},
     {ActionKind::F, "F"},
     {ActionKind::I, "I"},
     {ActionKind::W, "W"},
     {ActionKind::B, "B"}}};

std::string_view name_of(ActionKind kind) {
  for (const auto& [value, name] : kNames)
    if (value == kind) return name;
  return "?";
}

bool has_micro(ActionKind kind) { return kind != ActionKind::ReduceGrad && kind != ActionKind::Step; }

// Takes a non-negative number off the front of `text`; false when there is none.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take_kind(std::string_view& text, ActionKind& kind) {
  for (const auto& [value, name] : kNames) {
    if (text.substr(0, name.size()) != name) continue;
    kind = value;
    text.remove_prefix(name.size());
    return true;
  }
  return false;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

// Calls visit(piece) for the pieces of `text` between separators.
template <class Visit>
void split(std::string_view text, char separator, Visit&& visit) {
  while (true) {
    const size_t end = text.find(separator);
    visit(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string to_string(const Action& action) {
  std::string text = fmt::format("{}{}", action.stage, name_of(action.kind));
  if (action.micro != Action::kAll) text += std::to_string(action.micro);
  if (action.block != Action::kAll) text += fmt::format("@{}", action.block);
  return text;
}

std::string to_string(const Plan& plan) {
  std::string text;
  for (const RankPlan& rank : plan) {
    for (size_t i = 0; i < rank.size(); ++i) text += (i == 0 ? "" : ",") + to_string(rank[i]);
    text += '\n';
  }
  return text;
}

Action parse_action(std::string_view text) {
  std::string_view rest = trimmed(text);
  Action action{};
  bool good = take_number(rest, action.stage) && take_kind(rest, action.kind);
  if (good && has_micro(action.kind)) good = take_number(rest, action.micro);
  if (good && !rest.empty() && rest.front() == '@') {
    rest.remove_prefix(1);
    good = take_number(rest, action.block);
  }
  if (!good || !rest.empty())
    bad_input(
        "'{}' is not an action of a plan; actions look like 0F1, 2B0, 0I3, 0W3, 0B1@4, 0REDUCE_GRAD@4, 0STEP",
        trimmed(text));
  return action;
}

Plan parse_plan(std::string_view text) {
  Plan plan;
  split(text, '\n', [&](std::string_view line) {
    if (trimmed(line).empty()) return;
    plan.emplace_back();
    split(line, ',', [&](std::string_view cell) {
      if (!trimmed(cell).empty()) plan.back().push_back(parse_action(cell));
    });
  });
  return plan;
}

}  // namespace trifold
