#include "train/tuning/preference_task.h"

#include <filesystem>
#include <utility>
#include <variant>

#include "core/error.h"
#include "files/output_files.h"
#include "tasks/preference/pair_samples.h"
#include "tasks/preference/preferences.h"
#include "tokenize/chat/chat_template.h"
#include "train/tuning/chat_tasks.h"
#include "train/tuning/reference_values.h"

namespace trifold {

namespace {

// Encodes answers; opens the chat template when the first one needs it.
class AnswerEncoder {
 public:
  explicit AnswerEncoder(const TaskContext& context) : context_(context) {}

  EncodedChat operator()(const PromptAnswer& text) { return encode_prompt(text, context_.tokenizer); }
  EncodedChat operator()(const Conversation& conversation) {
    if (!chat_) open_template();
    return encode_chat(conversation, *chat_, context_.tokenizer);
  }

 private:
  void open_template() {
    constexpr const char* kReader = "--task dpo with lists of messages";
    const DataConfig& data = context_.config.run.data;
    expect_template_tokens(data, kReader);
    chat_.emplace(need_chat_template(data, context_.tokenizer, kReader));
  }

  const TaskContext& context_;
  std::optional<ChatTemplate> chat_;
};

// The pairs of a file, and the log-likelihoods of their answers under the reference model.
class PairData final : public TaskData {
 public:
  PairData(const std::string& path, const TaskContext& context);

  int64_t samples() const override { return pairs_->samples(); }
  std::unique_ptr<DataSource> passes(int64_t passes, bool shuffled, uint64_t seed) const override {
    return std::make_unique<PairSamples>(pairs_, values_, passes, shuffled, seed);
  }
  bool complete(Communicator& world, const PretrainConfig& run,
                const std::atomic<int>& signal) const override;
  DataNotes notes() const override;

 private:
  void read(const TaskContext& context);
  void find_reference(const TaskContext& context);

  std::string path_;
  std::shared_ptr<PreferencePairs> pairs_ = std::make_shared<PreferencePairs>();
  std::shared_ptr<PairValues> values_ = std::make_shared<PairValues>();
  std::optional<ReferenceModel> reference_;
  std::optional<std::string> file_;
  ChatCounts counts_;  // the numbers of answers
  int64_t read_ = 0;   // pairs in the file
};

PairData::PairData(const std::string& path, const TaskContext& context) : path_(path) {
  pairs_->seq_length = context.model.seq_length;
  pairs_->pad = context.tokenizer.eod().value_or(0);
  pairs_->means = context.config.dpo.loss == PairLossKind::Ipo;
  read(context);
  find_reference(context);
}

void PairData::read(const TaskContext& context) {
  AnswerEncoder encode(context);
  for (const Preference& preference : read_preferences(path_)) {
    ++read_;
    EncodedPair pair{std::visit(encode, preference.chosen), std::visit(encode, preference.rejected)};
    bool fits = true;
    for (EncodedChat& answer : pair)
      fits = fit_chat(answer, pairs_->seq_length, context.config.truncation_mode, counts_) && fits;
    if (fits) pairs_->pairs.push_back(std::move(pair));
  }
  if (pairs_->pairs.empty())
    bad_input("{}: none of its {} pairs has two answers within --seq-length {}: give a larger one", path_,
              read_, pairs_->seq_length);
}

void PairData::find_reference(const TaskContext& context) {
  const FinetuneConfig& config = context.config;
  if (config.dpo_reference == PairReference::Model) {
    const std::string& model =
        config.dpo_reference_model ? *config.dpo_reference_model : config.run.checkpoint.load.value();
    reference_ = reference_model(model, context.model, context.dtype);
    CheckpointModel from;
    from.model = reference_->model;
    from.model.pair_loss.reset();
    from.directory = "--dpo-reference-model " + model;
    expect_layout(from, config.run.mesh, config.run.batch.micro_batch_size);
    const std::optional<std::string>& folder =
        config.dpo_reference_folder ? config.dpo_reference_folder : config.run.checkpoint.save;
    if (folder) file_ = reference_file(*folder, *reference_, pairs_->fingerprint());
    if (config.dpo_reference_folder)
      check_writable_folder("--dpo-reference-folder", *config.dpo_reference_folder);
  }
  pairs_->goal = fmt::format("{} loss with beta {} and label smoothing {}, {}", name_of(config.dpo.loss),
                             config.dpo.beta, config.dpo.label_smoothing,
                             reference_ ? "relative to " + reference_->identity : "without a reference");
}

bool PairData::complete(Communicator& world, const PretrainConfig& run,
                        const std::atomic<int>& signal) const {
  if (!reference_) return true;
  const std::unique_ptr<DataSource> once = passes(1, false, 0);
  std::optional<std::vector<double>> values =
      reference_values(world, run.mesh, run.zero, run.precision, *reference_, *once,
                       run.batch.micro_batch_size, file_, &signal);
  if (!values) return false;
  values_->set(std::move(*values));
  world.barrier();  // before another rank's threads read what this process's first rank has set
  return true;
}

DataNotes PairData::notes() const {
  DataNotes notes;
  notes.files.push_back(fmt::format(
      "{}: {} pairs, {} dropped; of the answers {} truncated, {} too long and {} without a token that fits",
      path_, read_, read_ - std::ssize(pairs_->pairs), counts_.truncated,
      counts_.dropped - counts_.without_answer, counts_.without_answer));
  if (reference_)
    notes.files.push_back(fmt::format("the reference is {}; its log-likelihoods are {}", reference_->path,
                                      !file_ ? "computed before the first step, and not kept"
                                      : std::filesystem::exists(*file_)
                                          ? "read from " + *file_
                                          : "computed before the first step, and kept in " + *file_));
  return notes;
}

}  // namespace

ModelConfig preferring_model(const FinetuneConfig& config, const CheckpointModel& from) {
  ModelConfig model = tuned_causal_model(config, from);
  if (model.mtp_num_layers > 0)
    bad_input(
        "--task dpo trains on pairs alone, but the model of {} also predicts further tokens "
        "(--mtp-num-layers {}), which is a loss of tokens",
        from.directory, model.mtp_num_layers);
  model.moe_aux_loss_coeff = model.moe_z_loss_coeff = 0;  // losses of tokens
  model.pair_loss = config.dpo;
  return model;
}

void complete_preferences(FinetuneConfig& config, const Tokenizer& tokenizer) {
  DataConfig& data = config.run.data;
  const std::optional<ChatTemplateSource> found = find_chat_template(data, tokenizer);
  if (!found) return;
  if (!data.chat_date) data.chat_date = Day{todays_date()};
  data.chat_template_text = found->joined();
}

std::unique_ptr<TaskData> read_pairs(const std::string& path, const TaskContext& context) {
  return std::make_unique<PairData>(path, context);
}

}  // namespace trifold
