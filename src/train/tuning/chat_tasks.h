// The finetuning tasks for causal models: conversations that a chat template writes (chat), and prompts with answers as
// they are (lm). Both learn the answers alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tasks/chat/encoded_chat.h"
#include "train/tuning/tuning_task.h"

namespace trifold {

// What became of a file's conversations, for notes.
struct ChatCounts {
  int64_t read = 0, truncated = 0, dropped = 0;
  int64_t without_answer = 0;  // among `dropped`: no token of an answer was left
};

// Applies --truncation-mode to one conversation. False if it is left out.
bool fit_chat(EncodedChat& chat, int64_t seq_length, TruncationMode mode, ChatCounts& counts);

// BadInput, naming `reader`, if the tokenizer does not know the special tokens that a chat template writes.
void expect_template_tokens(const DataConfig& data, const std::string& reader);
// The chat template of `data`, which the run then keeps in its checkpoints, with the date of the run.
void complete_chat(FinetuneConfig& config, const Tokenizer& tokenizer);
// Documents of a sample do not see each other if several conversations are packed into one.
void complete_packing(FinetuneConfig& config, const Tokenizer& tokenizer);

std::unique_ptr<TaskData> read_chats(const std::string& path, const TaskContext& context);
std::unique_ptr<TaskData> read_answers(const std::string& path, const TaskContext& context);

}  // namespace trifold
