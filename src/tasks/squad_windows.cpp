#include "tasks/squad_windows.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace trifold {

namespace {

// Tokens [first, last] of a text that hold its bytes [begin, end); empty (last before first) if none do.
Interval tokens_of_bytes(const TokenSpans& tokens, int64_t begin, int64_t end) {
  const auto& places = tokens.bytes;
  const auto first =
      std::find_if(places.begin(), places.end(), [&](const Interval& i) { return i.end > begin; });
  const auto past = std::find_if(first, places.end(), [&](const Interval& i) { return i.begin >= end; });
  return {first - places.begin(), past - places.begin() - 1};
}

// The amount of a token's surroundings in a window: the shorter side counts, longer windows win ties.
double shown_around(const AnswerWindow& window, int64_t token) {
  constexpr double kTie = 0.01;
  const int64_t before = token - window.first;
  const int64_t behind = window.first + window.count - 1 - token;
  return static_cast<double>(std::min(before, behind)) + kTie * static_cast<double>(window.count);
}

// Marks the best window of each token, for the windows of one question.
void mark_best(std::span<AnswerWindow> windows) {
  for (AnswerWindow& window : windows)
    for (int64_t token = window.first; token < window.first + window.count; ++token) {
      const AnswerWindow* best = nullptr;
      for (const AnswerWindow& other : windows) {
        if (token < other.first || token >= other.first + other.count) continue;
        if (best == nullptr || shown_around(other, token) > shown_around(*best, token)) best = &other;
      }
      window.best.push_back(best == &window);
    }
}

}  // namespace

SquadWindows::SquadWindows(const Squad& squad, const Tokenizer& tokenizer, const BertTokens& special,
                           const WindowRules& rules) {
  for (const std::string& context : squad.contexts)
    contexts_.push_back(tokenize_with_spans(context, tokenizer));
  std::vector<int32_t> query;
  for (size_t i = 0; i < squad.questions.size(); ++i) {
    query.clear();
    tokenizer.encode(squad.questions[i].question, query);
    const auto tokens = std::min<size_t>(query.size(), static_cast<size_t>(rules.max_query));
    add_question(squad, i, std::span(query).first(tokens), special, rules);
  }
}

void SquadWindows::add_question(const Squad& squad, size_t index, std::span<const int32_t> query,
                                const BertTokens& special, const WindowRules& rules) {
  const SquadQuestion& question = squad.questions[index];
  const TokenSpans& context = contexts_[question.context];
  const int64_t offset = static_cast<int64_t>(query.size()) + 2;
  const int64_t room = rules.seq_length - offset - 1;
  if (room < 1)
    bad_input(
        "--seq-length {} leaves no room for a text after a question of {} tokens: give more, or a smaller "
        "--max-query-length",
        rules.seq_length, query.size());
  Interval answer{0, -1};
  if (!question.answers.empty())
    answer = tokens_of_bytes(context, question.answers[0].begin, question.answers[0].end);
  const size_t before = windows_.size();
  for (int64_t first = 0;; first += std::min(room, rules.stride)) {
    const int64_t count = std::min(room, context.size() - first);
    windows_.push_back({index, first, count, offset, {}});
    const auto part =
        std::span<const int32_t>(context.ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
    samples_.push_back(join_texts(query, &part, special));
    if (answer.end >= answer.begin && answer.begin >= first && answer.end < first + count) {
      samples_.back().begin = static_cast<int32_t>(offset + answer.begin - first);
      samples_.back().end = static_cast<int32_t>(offset + answer.end - first);
    }
    if (first + count >= context.size()) break;
  }
  mark_best(std::span(windows_).subspan(before));
}

std::string SquadWindows::text(const Squad& squad, size_t question, int64_t first, int64_t last) const {
  const size_t context = squad.questions[question].context;
  const auto& places = contexts_[context].bytes;
  const int64_t begin = places[static_cast<size_t>(first)].begin;
  const int64_t end = places[static_cast<size_t>(last)].end;
  return squad.contexts[context].substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
}

std::vector<BestAnswer> best_answers(const Squad& squad, const SquadWindows& windows,
                                     std::span<const double> logits, int64_t seq_length, int64_t longest) {
  std::vector<BestAnswer> answers(squad.questions.size());
  constexpr double kNone = std::numeric_limits<double>::infinity();
  for (BestAnswer& answer : answers) {
    answer.null_score = kNone;
    answer.score = -kNone;
  }
  for (size_t w = 0; w < windows.windows().size(); ++w) {
    const AnswerWindow& window = windows.windows()[w];
    BestAnswer& answer = answers[window.question];
    const double* begins = logits.data() + static_cast<int64_t>(w) * 2 * seq_length;
    const double* ends = begins + seq_length;
    answer.null_score = std::min(answer.null_score, begins[0] + ends[0]);
    for (int64_t i = 0; i < window.count; ++i) {
      if (!window.best[static_cast<size_t>(i)]) continue;
      for (int64_t j = i; j < std::min(window.count, i + longest); ++j) {
        const double score = begins[window.offset + i] + ends[window.offset + j];
        if (!(score > answer.score)) continue;
        answer.score = score;
        answer.found = true;
        answer.text = windows.text(squad, window.question, window.first + i, window.first + j);
      }
    }
  }
  return answers;
}

}  // namespace trifold
