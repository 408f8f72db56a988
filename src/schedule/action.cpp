#include "schedule/action.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "core/error.h"
#include "core/trimmed.h"

namespace trifold {

namespace {

// The names in the order of ActionKind.
constexpr std::array<std::string_view, 22> kNames{
    "F",       "I",       "W",       "B",     "SEND_F",      "RECV_F",      "SEND_B", "RECV_B",
    "UNSHARD", "RESHARD", "OFFLOAD", "FETCH", "REDUCE_TIED", "REDUCE_GRAD", "STEP",   "READ",
    "LOOKUP",  "COLLECT", "RETURN",  "LOSS",  "NORM",        "UPDATE_ROWS"};

constexpr std::string_view kOverlap = "OVERLAP_F_B";

// Removes a non-negative number from the front of `text`; false if there is none.
bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

bool take(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

// Removes the longest name with which the text begins: F begins FETCH as well.
bool take_kind(std::string_view& text, ActionKind& kind) {
  size_t longest = 0;
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (!text.starts_with(kNames[i]) || kNames[i].size() <= longest) continue;
    longest = kNames[i].size();
    kind = static_cast<ActionKind>(i);
  }
  text.remove_prefix(longest);
  return longest > 0;
}

bool may_have_block(ActionKind kind) {
  return is_compute(kind) || is_offload(kind) || kind == ActionKind::ReduceGrad;
}

// Calls visit(piece) for each piece of `text` between separators.
template <class Visit>
void split(std::string_view text, char separator, Visit&& visit) {
  while (true) {
    const size_t end = text.find(separator);
    visit(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

// "(0F7;7B3)OVERLAP_F_B": a forward and a backward, in the order in which they are to run.
void parse_overlap(std::string_view cell, RankPlan& row) {
  std::string_view rest = cell;
  const size_t close = rest.find(')');
  const size_t middle = rest.find(';');
  if (close == std::string_view::npos || middle > close || rest.substr(close + 1) != kOverlap)
    bad_input("'{}' is not an overlapped pair; one looks like (0F7;7B3)OVERLAP_F_B", cell);
  Action first = parse_action(rest.substr(1, middle - 1));
  const Action second = parse_action(rest.substr(middle + 1, close - middle - 1));
  const bool forward_first = first.kind == ActionKind::F && is_backward(second.kind);
  const bool forward_last = is_backward(first.kind) && second.kind == ActionKind::F;
  if (!forward_first && !forward_last)
    bad_input("'{}' overlaps {} with {}; one forward and one backward can be overlapped", cell,
              name_of(first.kind), name_of(second.kind));
  first.overlaps_next = true;
  row.push_back(first);
  row.push_back(second);
}

void parse_cell(std::string_view cell, RankPlan& row) {
  if (cell.empty()) return;
  if (cell.front() == '(') return parse_overlap(cell, row);
  row.push_back(parse_action(cell));
}

}  // namespace

bool is_compute(ActionKind kind) { return kind <= ActionKind::B; }
bool is_backward(ActionKind kind) { return is_compute(kind) && kind != ActionKind::F; }
bool is_message(ActionKind kind) { return ActionKind::SendF <= kind && kind <= ActionKind::RecvB; }
bool is_send(ActionKind kind) { return kind == ActionKind::SendF || kind == ActionKind::SendB; }
bool is_residency(const Action& action) {
  return action.kind == ActionKind::Unshard || action.kind == ActionKind::Reshard;
}
bool is_offload(ActionKind kind) { return kind == ActionKind::Offload || kind == ActionKind::Fetch; }
bool has_micro(ActionKind kind) { return is_compute(kind) || is_message(kind) || is_offload(kind); }
bool adds_to_gradients(ActionKind kind, bool adds_in_forward, bool adds_in_backward_input) {
  return kind == ActionKind::B || kind == ActionKind::W || (kind == ActionKind::F && adds_in_forward) ||
         (kind == ActionKind::I && adds_in_backward_input);
}
bool is_of_tables(ActionKind kind) { return kind >= ActionKind::Read; }
std::string_view name_of(ActionKind kind) { return kNames.at(static_cast<size_t>(kind)); }

std::string to_string(const Action& action) {
  std::string text = fmt::format("{}{}", action.stage, name_of(action.kind));
  if (action.micro != Action::kAll) text += std::to_string(action.micro);
  if (action.block != Action::kAll) text += fmt::format("@{}", action.block);
  if (action.version != 0) text += fmt::format("v{}", action.version);
  return text;
}

std::string to_string(const Plan& plan) {
  std::string text;
  for (const RankPlan& rank : plan) {
    for (size_t i = 0; i < rank.size(); ++i) {
      if (i > 0) text += ',';
      if (rank[i].overlaps_next && i + 1 < rank.size()) {
        text += fmt::format("({};{}){}", to_string(rank[i]), to_string(rank[i + 1]), kOverlap);
        ++i;
      } else {
        text += to_string(rank[i]);
      }
    }
    text += '\n';
  }
  return text;
}

Action parse_action(std::string_view text) {
  std::string_view rest = trimmed(text);
  Action action{};
  bool good = take_number(rest, action.stage) && take_kind(rest, action.kind);
  if (good && has_micro(action.kind)) good = take_number(rest, action.micro);
  if (good && action.kind == ActionKind::ReduceGrad && !take_number(rest, action.micro))
    action.micro = Action::kAll;
  if (good && may_have_block(action.kind) && take(rest, "@")) good = take_number(rest, action.block);
  if (good && is_compute(action.kind) && take(rest, "v")) good = take_number(rest, action.version);
  if (!good || !rest.empty())
    bad_input(
        "'{}' is not an action of a plan; actions look like 0F1, 2B0, 0I3, 0W3, 0SEND_F1, 1RECV_F1, "
        "0REDUCE_GRAD, 0REDUCE_GRAD2, 0STEP, with a block 0B1@4, with a weight version 0F1v2",
        trimmed(text));
  return action;
}

Plan parse_plan(std::string_view text) {
  Plan plan;
  int line_number = 0;
  split(text, '\n', [&](std::string_view line) {
    ++line_number;
    if (trimmed(line).empty()) return;
    plan.emplace_back();
    int cell_number = 0;
    split(line, ',', [&](std::string_view cell) {
      ++cell_number;
      try {
        parse_cell(trimmed(cell), plan.back());
      } catch (Error& error) {
        error.add_context(fmt::format("row {}, cell {}", line_number, cell_number));
        throw;
      }
    });
  });
  return plan;
}

}  // namespace trifold
