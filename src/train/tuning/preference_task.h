// The finetuning task dpo: a causal model learns from pairs of answers, of which one is preferred
// (nn/samples/pair_loss.h), relative to a reference model (train/tuning/reference_values.h).
#pragma once

#include <memory>
#include <string>

#include "train/tuning/tuning_task.h"

namespace trifold {

// A causal model with the loss of pairs. BadInput for a model with further losses of tokens.
ModelConfig preferring_model(const FinetuneConfig& config, const CheckpointModel& from);

// Keeps the chat template, if there is one.
void complete_preferences(FinetuneConfig& config, const Tokenizer& tokenizer);

std::unique_ptr<TaskData> read_pairs(const std::string& path, const TaskContext& context);

}  // namespace trifold
