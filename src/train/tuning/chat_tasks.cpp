#include "train/tuning/chat_tasks.h"

#include <algorithm>
#include <utility>

#include "config/subjects/model_family.h"
#include "core/error.h"
#include "tasks/chat/chat_samples.h"
#include "tasks/chat/conversations.h"
#include "tasks/chat/packing.h"
#include "tokenize/chat/chat_template.h"

namespace trifold {

namespace {

// The conversations of a file, packed into samples.
class ChatData final : public TaskData {
 public:
  ChatData(const std::string& path, std::vector<EncodedChat> chats, const TaskContext& context)
      : path_(path), packed_(std::make_shared<PackedChats>()) {
    const FinetuneConfig& config = context.config;
    packed_->seq_length = context.model.seq_length;
    packed_->pad = context.tokenizer.eod().value_or(0);
    packed_->separate = config.packing == ChatPacking::BestFit;
    for (EncodedChat& chat : chats)
      if (fit_chat(chat, context.model.seq_length, config.truncation_mode, counts_))
        packed_->chats.push_back(std::move(chat));
    if (packed_->chats.empty())
      bad_input("{}: none of its {} conversations has an answer within --seq-length {}: give a larger one",
                path, counts_.read, context.model.seq_length);
    pack(config);
  }

  int64_t samples() const override { return std::ssize(packed_->samples); }
  std::unique_ptr<DataSource> passes(int64_t passes, bool shuffled, uint64_t seed) const override {
    return std::make_unique<ChatSamples>(packed_, passes, shuffled, seed);
  }
  DataNotes notes() const override;

 private:
  void pack(const FinetuneConfig& config) {
    std::vector<int64_t> lengths;
    for (const EncodedChat& chat : packed_->chats) lengths.push_back(std::ssize(chat.tokens));
    if (config.packing == ChatPacking::BestFit) {
      packed_->samples = pack_best_fit(lengths, packed_->seq_length, config.run.seed);
      return;
    }
    for (int64_t i = 0; i < std::ssize(lengths); ++i) packed_->samples.push_back({i});
  }

  std::string path_;
  std::shared_ptr<PackedChats> packed_;
  ChatCounts counts_;
};

DataNotes ChatData::notes() const {
  int64_t tokens = 0, answers = 0;
  for (const EncodedChat& chat : packed_->chats) {
    tokens += std::ssize(chat.tokens);
    answers += chat.answer_tokens();
  }
  const int64_t room = samples() * packed_->seq_length;
  DataNotes notes;
  notes.files.push_back(fmt::format(
      "{}: {} conversations, {} truncated, {} dropped ({} without an answer that fits); {} tokens, {} of answers, in {} "
      "samples of {} ({:.1f}% full)",
      path_, counts_.read, counts_.truncated, counts_.dropped, counts_.without_answer, tokens, answers,
      samples(), packed_->seq_length, 100.0 * static_cast<double>(tokens) / static_cast<double>(room)));
  return notes;
}

template <class Record, class Encode>
std::vector<EncodedChat> encode_all(const std::vector<Record>& records, const Encode& encode) {
  std::vector<EncodedChat> encoded;
  encoded.reserve(records.size());
  for (const Record& record : records) encoded.push_back(encode(record));
  return encoded;
}

}  // namespace

bool fit_chat(EncodedChat& chat, int64_t seq_length, TruncationMode mode, ChatCounts& counts) {
  ++counts.read;
  const int64_t excess = std::ssize(chat.tokens) - seq_length;
  if (excess > 0 && mode == TruncationMode::Drop) {
    ++counts.dropped;
    return false;
  }
  if (excess > 0) {
    const bool from_start = mode == TruncationMode::KeepEnd;
    const auto cut = [&](auto& values) {
      const auto begin = from_start ? values.begin() : values.end() - excess;
      values.erase(begin, begin + excess);
    };
    cut(chat.tokens);
    cut(chat.learned);
  }
  // The first token is no label.
  const bool learns = std::find(chat.learned.begin() + std::min<std::ptrdiff_t>(1, std::ssize(chat.learned)),
                                chat.learned.end(), 1) != chat.learned.end();
  if (!learns) {
    ++counts.dropped;
    ++counts.without_answer;
  } else if (excess > 0) {
    ++counts.truncated;
  }
  return learns;
}

ModelConfig tuned_causal_model(const FinetuneConfig& config, const CheckpointModel& from) {
  if (!family_of_model(from.model).causal || !family_of_model(from.model).reads_text)
    bad_input("--task {} continues texts, which the model of {} cannot: give a GPT", name_of(*config.task),
              from.directory);
  CheckpointModel tuned = from;
  set_length(tuned, config.seq_length);
  tuned.model.hidden_dropout = config.hidden_dropout.value_or(tuned.model.hidden_dropout);
  tuned.model.attention_dropout = config.attention_dropout.value_or(tuned.model.attention_dropout);
  return tuned.model;
}

void complete_packing(FinetuneConfig& config, const Tokenizer&) {
  DataConfig& data = config.run.data;
  data.reset_attention_mask = data.reset_position_ids = config.packing == ChatPacking::BestFit;
}

void expect_template_tokens(const DataConfig& data, const std::string& reader) {
  if (data.tokenizer_type == TokenizerType::SentencePiece)
    bad_input(
        "{}: a SentencePiece model takes the special tokens that a chat template writes for plain text; give "
        "the model's tokenizer.json, --tokenizer-type huggingface --tokenizer-model FILE",
        reader);
}

void complete_chat(FinetuneConfig& config, const Tokenizer& tokenizer) {
  complete_packing(config, tokenizer);
  DataConfig& data = config.run.data;
  expect_template_tokens(data, "--task chat");
  if (!data.chat_date) data.chat_date = Day{todays_date()};
  data.chat_template_text = need_chat_template(data, tokenizer, "--task chat").joined();
}

std::unique_ptr<TaskData> read_chats(const std::string& path, const TaskContext& context) {
  const DataConfig& data = context.config.run.data;
  const ChatTemplate chat(need_chat_template(data, context.tokenizer, "--task chat"));
  const auto encode = [&](const Conversation& one) { return encode_chat(one, chat, context.tokenizer); };
  return std::make_unique<ChatData>(path, encode_all(read_conversations(path), encode), context);
}

std::unique_ptr<TaskData> read_answers(const std::string& path, const TaskContext& context) {
  const auto encode = [&](const PromptAnswer& one) { return encode_prompt(one, context.tokenizer); };
  return std::make_unique<ChatData>(path, encode_all(read_prompts(path), encode), context);
}

}  // namespace trifold
