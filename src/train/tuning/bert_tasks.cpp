#include "train/tuning/bert_tasks.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "config/options/file_use.h"
#include "config/subjects/model_family.h"
#include "core/read_json.h"
#include "tasks/labeled_text.h"
#include "tasks/squad_score.h"
#include "tasks/squad_windows.h"
#include "tasks/task_samples.h"
#include "train/task_logits.h"

namespace trifold {

namespace {

using nlohmann::ordered_json;

// Data whose metrics and predictions follow from the logits of the head.
class BertData : public TaskData {
 public:
  explicit BertData(const TaskContext& context)
      : model_(context.model), pad_(BertTokens(context.tokenizer).pad) {}

  virtual const std::vector<TaskSample>& all() const = 0;
  virtual Scores scores(std::span<const double> logits) const = 0;
  virtual std::string predictions(std::span<const double> logits) const = 0;

  int64_t samples() const override { return std::ssize(all()); }
  std::unique_ptr<DataSource> passes(int64_t passes, bool shuffled, uint64_t seed) const override {
    return std::make_unique<TaskSamples>(all(), pad_, model_.seq_length, passes, shuffled, seed);
  }
  std::unique_ptr<TaskMeasure> measure(Replica& replica) const override;

 private:
  ModelConfig model_;
  int32_t pad_;
};

class LogitMeasure final : public TaskMeasure {
 public:
  LogitMeasure(Replica& replica, const ModelConfig& model, const BertData& data)
      : data_(data), logits_(replica, model, data.samples()) {}
  StepWatch& watch() override { return logits_; }
  void gather() override { all_ = logits_.gather(); }
  Scores scores() const override { return data_.scores(all_); }
  std::string predictions() const override { return data_.predictions(all_); }

 private:
  const BertData& data_;
  TaskLogits logits_;
  std::vector<double> all_;
};

std::unique_ptr<TaskMeasure> BertData::measure(Replica& replica) const {
  return std::make_unique<LogitMeasure>(replica, model_, *this);
}

class ClassData final : public BertData {
 public:
  ClassData(const std::vector<LabeledText>& texts, const TaskContext& context)
      : BertData(context),
        classes_(context.model.class_names),
        samples_(class_samples(texts, classes_, context.tokenizer, BertTokens(context.tokenizer),
                               context.model.seq_length)) {}
  const std::vector<TaskSample>& all() const override { return samples_; }

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

class SquadData final : public BertData {
 public:
  SquadData(const std::string& path, const TaskContext& context)
      : BertData(context),
        squad_(read_squad(path)),
        windows_(squad_, context.tokenizer, BertTokens(context.tokenizer),
                 {context.model.seq_length, context.config.doc_stride, context.config.max_query_length}),
        seq_length_(context.model.seq_length),
        longest_(context.config.max_answer_length),
        null_threshold_(context.config.null_score_diff_threshold) {}
  const std::vector<TaskSample>& all() const override { return windows_.samples(); }

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

// The BERT of `from` with the head of the task.
ModelConfig bert_with_head(const FinetuneConfig& config, const CheckpointModel& from, HeadKind head) {
  ModelConfig model = from.model;
  if (!family_of_model(model).has_tasks)
    bad_input("{} is not a BERT: --load needs one from `pretrain --model-type bert`", from.directory);
  if (has_task_head(model) && model.bert_head != head)
    bad_input("{} was tuned for a task other than --task {}", from.directory, name_of(*config.task));
  if (!has_task_head(model) && !config.train_data)
    bad_input("{} was not tuned for a task: give --train-data FILE to do so", from.directory);
  model.seq_length = config.seq_length.value_or(model.seq_length);
  if (model.seq_length > *model.max_position_embeddings)
    bad_input("--seq-length {} is more than the model's {} positions", model.seq_length,
              *model.max_position_embeddings);
  model.hidden_dropout = config.hidden_dropout.value_or(model.hidden_dropout);
  model.attention_dropout = config.attention_dropout.value_or(model.attention_dropout);
  model.bert_head = head;
  return model;
}

}  // namespace

ModelConfig classifying_model(const FinetuneConfig& config, const CheckpointModel& from) {
  ModelConfig model = bert_with_head(config, from, HeadKind::Classes);
  if (from.model.bert_head == HeadKind::Classes) return model;
  model.class_names = classes_of(read_labeled_texts(*config.train_data));
  if (model.class_names.size() < 2)
    bad_input("{}: all texts have the label '{}'; at least two classes are needed", *config.train_data,
              model.class_names[0]);
  return model;
}

ModelConfig answering_model(const FinetuneConfig& config, const CheckpointModel& from) {
  return bert_with_head(config, from, HeadKind::Span);
}

std::unique_ptr<TaskData> read_classes(const std::string& path, const TaskContext& context) {
  const std::vector<LabeledText> texts = read_labeled_texts(path);
  try {
    return std::make_unique<ClassData>(texts, context);
  } catch (Error& error) {
    error.add_context(path);
    throw;
  }
}

std::unique_ptr<TaskData> read_questions(const std::string& path, const TaskContext& context) {
  return std::make_unique<SquadData>(path, context);
}

}  // namespace trifold
