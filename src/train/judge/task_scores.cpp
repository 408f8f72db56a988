#include "train/judge/task_scores.h"

#include <cmath>
#include <numbers>
#include <numeric>

#include "core/error.h"

namespace trifold {

TaskRequests requests_of(std::span<const TaskItem> items, const RequestEncoder& encoder,
                         const std::string& path) {
  TaskRequests task;
  for (size_t i = 0; i < items.size(); ++i) {
    const TaskItem& item = items[i];
    const auto add = [&](ScoringRequest request, size_t choice) {
      task.requests.push_back(std::move(request));
      task.owners.push_back({static_cast<int64_t>(i), static_cast<int64_t>(choice)});
    };
    size_t choice = 0;
    try {
      for (; choice < item.choices.size(); ++choice)
        add(encoder.pair(item.context, item.delimiter + item.choices[choice]), choice);
      if (!item.is_question())
        for (ScoringRequest& request : encoder.rolling(item.text)) add(std::move(request), 0);
    } catch (const Error& error) {
      const std::string part = item.is_question() ? fmt::format(", choices[{}]", choice) : "";
      bad_input("{}, line {}{}: {}", path, item.line, part, error.what());
    }
  }
  return task;
}

std::vector<JudgedText> judged_texts(std::span<const TaskItem> items, const TaskRequests& task,
                                     std::span<const Likelihood> likelihoods) {
  std::vector<JudgedText> texts;
  for (size_t i = 0; i < likelihoods.size(); ++i) {
    const TaskRequests::Owner& owner = task.owners[i];
    if (!std::isfinite(likelihoods[i].log_likelihood))
      bad_input("line {}: the model gives the log-likelihood {}: its weights may not be finite",
                items[static_cast<size_t>(owner.item)].line, likelihoods[i].log_likelihood);
    const bool continues =
        !texts.empty() && texts.back().owner.item == owner.item && texts.back().owner.choice == owner.choice;
    if (!continues) texts.push_back({owner});
    JudgedText& text = texts.back();
    text.log_likelihood += likelihoods[i].log_likelihood;
    text.tokens += task.requests[i].scored;
    text.greedy = text.greedy && likelihoods[i].greedy();
  }
  return texts;
}

MeanWithError mean_with_error(std::span<const double> values) {
  const auto count = static_cast<double>(values.size());
  MeanWithError result{std::accumulate(values.begin(), values.end(), 0.0) / count, std::nullopt};
  if (values.size() < 2) return result;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.error = std::sqrt(squares / (count - 1)) / std::sqrt(count);
  return result;
}

QuestionScores question_scores(std::span<const TaskItem> items, std::span<const JudgedText> choices) {
  std::vector<double> right, right_normalised;
  for (size_t first = 0; first < choices.size();) {
    const TaskItem& item = items[static_cast<size_t>(choices[first].owner.item)];
    size_t best = 0, best_normalised = 0;
    const auto likelihood = [&](size_t choice) { return choices[first + choice].log_likelihood; };
    const auto normalised = [&](size_t choice) {
      return likelihood(choice) / static_cast<double>(count_characters(item.choices[choice]));
    };
    for (size_t choice = 1; choice < item.choices.size(); ++choice) {
      if (likelihood(choice) > likelihood(best)) best = choice;
      if (normalised(choice) > normalised(best_normalised)) best_normalised = choice;
    }
    right.push_back(static_cast<int64_t>(best) == item.answer ? 1 : 0);
    right_normalised.push_back(static_cast<int64_t>(best_normalised) == item.answer ? 1 : 0);
    first += item.choices.size();
  }
  return {mean_with_error(right), mean_with_error(right_normalised)};
}

double TextScores::word_perplexity() const { return std::exp(-log_likelihood / static_cast<double>(words)); }
double TextScores::byte_perplexity() const { return std::exp(-log_likelihood / static_cast<double>(bytes)); }
double TextScores::bits_per_byte() const {
  return -log_likelihood / static_cast<double>(bytes) / std::numbers::ln2;
}

TextScores text_scores(std::span<const TaskItem> items, std::span<const JudgedText> texts) {
  TextScores scores;
  for (const JudgedText& text : texts) {
    const TaskItem& item = items[static_cast<size_t>(text.owner.item)];
    scores.log_likelihood += text.log_likelihood;
    scores.tokens += text.tokens;
    scores.words += count_words(item.text);
    scores.bytes += static_cast<int64_t>(item.text.size());
  }
  return scores;
}

}  // namespace trifold
