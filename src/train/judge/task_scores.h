// The figures of a task from the log-likelihoods of its requests, as lm-evaluation-harness 0.4 defines them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "train/judge/likelihoods.h"
#include "train/judge/task_file.h"

namespace trifold {

// The requests of a task's items, item after item, and of a question choice after choice.
struct TaskRequests {
  std::vector<ScoringRequest> requests;
  // [request] What it belongs to; a text may have several.
  struct Owner {
    int64_t item = 0;
    int64_t choice = 0;
  };
  std::vector<Owner> owners;
};
// BadInput, naming `path` and the line, for an item that has no request.
TaskRequests requests_of(std::span<const TaskItem> items, const RequestEncoder& encoder,
                         const std::string& path);

// The result for a choice or a text.
struct JudgedText {
  TaskRequests::Owner owner;
  double log_likelihood = 0;
  int64_t tokens = 0;
  bool greedy = true;
};
// Sums the requests of a text. BadInput, naming the line, if a log-likelihood is not finite.
std::vector<JudgedText> judged_texts(std::span<const TaskItem> items, const TaskRequests& task,
                                     std::span<const Likelihood> likelihoods);

// A mean over questions and its standard error, that of a sample; none for one question.
struct MeanWithError {
  double mean = 0;
  std::optional<double> error;
};
MeanWithError mean_with_error(std::span<const double> values);

struct QuestionScores {
  MeanWithError accuracy;    // acc: the likeliest choice is right
  MeanWithError normalised;  // acc_norm: the likeliest by log-likelihood / characters of the choice is right
};
// The first of equally likely choices counts as the model's.
QuestionScores question_scores(std::span<const TaskItem> items, std::span<const JudgedText> choices);

struct TextScores {
  double log_likelihood = 0;
  int64_t tokens = 0, words = 0, bytes = 0;

  double word_perplexity() const;
  double byte_perplexity() const;
  double bits_per_byte() const;
};
TextScores text_scores(std::span<const TaskItem> items, std::span<const JudgedText> texts);

}  // namespace trifold
