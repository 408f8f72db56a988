// SQuAD's questions as samples: a context longer than a sample becomes several that overlap, each with the
// whole question before it (Devlin et al., NAACL 2019).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tasks/squad.h"
#include "tasks/task_samples.h"
#include "tokenize/text_places.h"

namespace trifold {

struct WindowRules {
  int64_t seq_length = 384;
  int64_t stride = 128;    // tokens between the beginnings of two windows
  int64_t max_query = 64;  // tokens of a question that are kept
};

// A question with a part of its context.
struct AnswerWindow {
  size_t question = 0;     // index into Squad::questions
  int64_t first = 0;       // token of the context that stands first in the window
  int64_t count = 0;       // of the context's tokens
  int64_t offset = 0;      // where in the sample the first stands
  std::vector<bool> best;  // of each, whether no other window shows more of what is around it
};

class SquadWindows {
 public:
  // A sample's answer is the first that people gave, in the tokens that hold it; [CLS] where the window does
  // not hold all of it, and where there is none.
  SquadWindows(const Squad& squad, const Tokenizer& tokenizer, const BertTokens& special,
               const WindowRules& rules);

  const std::vector<AnswerWindow>& windows() const { return windows_; }
  // One for each window.
  const std::vector<TaskSample>& samples() const { return samples_; }
  // The text of the context that tokens [first, last] of it stand for.
  std::string text(const Squad& squad, size_t question, int64_t first, int64_t last) const;

 private:
  void add_question(const Squad& squad, size_t index, std::span<const int32_t> query,
                    const BertTokens& special, const WindowRules& rules);
  std::vector<PlacedTokens> contexts_;
  std::vector<AnswerWindow> windows_;
  std::vector<TaskSample> samples_;
};

// The best answer of a question: the pair of a first token and a last, not before it and at most `longest`
// tokens in all, with the largest sum of logits over all windows in which the first is shown best.
struct BestAnswer {
  std::string text;
  double score = 0;       // sum of its two logits
  double null_score = 0;  // the least sum of [CLS]'s logits of a window
  bool found = false;     // some pair was possible
};

// `logits` holds 2 x seq_length numbers for each window: those of the beginnings, then of the ends.
std::vector<BestAnswer> best_answers(const Squad& squad, const SquadWindows& windows,
                                     std::span<const double> logits, int64_t seq_length, int64_t longest);

}  // namespace trifold
