#include "train/task_scores.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/options/file_use.h"
#include "core/read_json.h"
#include "tasks/squad_score.h"
#include "tasks/squad_windows.h"

namespace trifold {

namespace {

using nlohmann::ordered_json;

class ClassData final : public TaskData {
 public:
  ClassData(const std::vector<LabeledText>& texts, const ModelConfig& model, const Tokenizer& tokenizer)
      : classes_(model.class_names),
        samples_(class_samples(texts, classes_, tokenizer, BertTokens(tokenizer), model.seq_length)) {}
  const std::vector<TaskSample>& samples() const override { return samples_; }

  Scores scores(std::span<const double> logits) const override {
    int64_t right = 0;
    for (size_t i = 0; i < samples_.size(); ++i)
      if (likeliest(logits, i) == static_cast<size_t>(samples_[i].label)) ++right;
    return {{"accuracy", static_cast<double>(right) / static_cast<double>(samples_.size())}};
  }

  // A line for each text: {"label": "...", "probabilities": {"...": 0.9, ...}}
  std::string predictions(std::span<const double> logits) const override {
    std::string lines;
    for (size_t i = 0; i < samples_.size(); ++i) {
      const auto sample_logits = logits.subspan(i * classes_.size(), classes_.size());
      const double most = sample_logits[likeliest(logits, i)];
      double sum = 0;
      for (const double logit : sample_logits) sum += std::exp(logit - most);
      ordered_json line{{"label", classes_[likeliest(logits, i)]}};
      for (size_t c = 0; c < classes_.size(); ++c)
        line["probabilities"][classes_[c]] = std::exp(sample_logits[c] - most) / sum;
      lines += json_text(line) + "\n";
    }
    return lines;
  }

 private:
  size_t likeliest(std::span<const double> logits, size_t sample) const {
    const auto sample_logits = logits.subspan(sample * classes_.size(), classes_.size());
    return static_cast<size_t>(std::max_element(sample_logits.begin(), sample_logits.end()) -
                               sample_logits.begin());
  }

  std::vector<std::string> classes_;
  std::vector<TaskSample> samples_;
};

class SquadData final : public TaskData {
 public:
  SquadData(const std::string& path, const FinetuneConfig& config, const ModelConfig& model,
            const Tokenizer& tokenizer)
      : squad_(read_squad(path)),
        windows_(squad_, tokenizer, BertTokens(tokenizer),
                 {model.seq_length, config.doc_stride, config.max_query_length}),
        seq_length_(model.seq_length),
        longest_(config.max_answer_length),
        null_threshold_(config.null_score_diff_threshold) {}
  const std::vector<TaskSample>& samples() const override { return windows_.samples(); }

  Scores scores(std::span<const double> logits) const override {
    const SquadScore score = score_answers(squad_, texts(logits));
    Scores scores{{"exact_match", score.exact}, {"f1", score.f1}};
    if (squad_.has_unanswerable) {
      scores.emplace_back("answerable_f1", score.answerable_f1);
      scores.emplace_back("no_answer_f1", score.no_answer_f1);
    }
    return scores;
  }

  // The format that SQuAD's own script reads: {"id": "text", ...}
  std::string predictions(std::span<const double> logits) const override {
    const nlohmann::json all = texts(logits);
    return marked_json(json_text(all, 1) + "\n", "finetune");
  }

 private:
  // The answer text for each question's id. If questions may be unanswerable, the answer is empty if the null score
  // exceeds the best by more than the threshold.
  std::map<std::string, std::string> texts(std::span<const double> logits) const {
    std::map<std::string, std::string> texts;
    const std::vector<BestAnswer> answers = best_answers(squad_, windows_, logits, seq_length_, longest_);
    for (size_t i = 0; i < answers.size(); ++i) {
      const BestAnswer& best = answers[i];
      const bool none = squad_.has_unanswerable && best.null_score - best.score > null_threshold_;
      texts[squad_.questions[i].id] = best.found && !none ? best.text : "";
    }
    return texts;
  }

  Squad squad_;
  SquadWindows windows_;
  int64_t seq_length_, longest_;
  double null_threshold_;
};

}  // namespace

std::unique_ptr<TaskData> read_task(const std::string& path, const FinetuneConfig& config,
                                    const ModelConfig& model, const Tokenizer& tokenizer) {
  if (config.task == FinetuneTask::Squad) return std::make_unique<SquadData>(path, config, model, tokenizer);
  const std::vector<LabeledText> texts = read_labeled_texts(path);
  try {
    return std::make_unique<ClassData>(texts, model, tokenizer);
  } catch (Error& error) {
    error.add_context(path);
    throw;
  }
}

}  // namespace trifold
