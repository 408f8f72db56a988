// SQuAD's questions as samples. A context longer than a sample becomes several overlapping windows, each preceded by
// the whole question (Devlin et al., NAACL 2019).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tasks/squad.h"
#include "tasks/task_samples.h"
#include "tokenize/token_spans.h"

namespace trifold {

struct WindowRules {
  int64_t seq_length = 384;
  int64_t stride = 128;    // tokens between the beginnings of two windows
  int64_t max_query = 64;  // most tokens of a question
};

// A question with part of its context.
struct AnswerWindow {
  size_t question = 0;     // index into Squad::questions
  int64_t first = 0;       // the first context token in the window
  int64_t count = 0;       // number of context tokens
  int64_t offset = 0;      // position of that token in the sample
  std::vector<bool> best;  // [token] no other window has more of its surroundings
};

class SquadWindows {
 public:
  // The answer of a sample is the question's first reference answer, as the tokens that contain it; [CLS] if there is
  // none or the window does not contain all of it.
  SquadWindows(const Squad& squad, const Tokenizer& tokenizer, const BertTokens& special,
               const WindowRules& rules);

  const std::vector<AnswerWindow>& windows() const { return windows_; }
  // One sample per window.
  const std::vector<TaskSample>& samples() const { return samples_; }
  // The text of context tokens [first, last].
  std::string text(const Squad& squad, size_t question, int64_t first, int64_t last) const;

 private:
  void add_question(const Squad& squad, size_t index, std::span<const int32_t> query,
                    const BertTokens& special, const WindowRules& rules);
  std::vector<TokenSpans> contexts_;
  std::vector<AnswerWindow> windows_;
  std::vector<TaskSample> samples_;
};

// The best answer of a question: the span of at most `longest` tokens with the largest sum of begin and end logits,
// over all windows in which its first token is `best`.
struct BestAnswer {
  std::string text;
  double score = 0;       // sum of its two logits
  double null_score = 0;  // the smallest sum of [CLS] logits over the windows
  bool found = false;     // there was a valid span
};

// `logits` has 2 x seq_length values for each window: the begin logits, then the end logits.
std::vector<BestAnswer> best_answers(const Squad& squad, const SquadWindows& windows,
                                     std::span<const double> logits, int64_t seq_length, int64_t longest);

}  // namespace trifold
