// The finetuning tasks for BERT: the heads of their models, their samples, metrics and predictions.
#pragma once

#include <memory>
#include <string>

#include "train/tuning/tuning_task.h"

namespace trifold {

// The model of a text classifier, and of one that finds answers. A finetuned model keeps its classes; otherwise the
// training data define them.
ModelConfig classifying_model(const FinetuneConfig& config, const CheckpointModel& from);
ModelConfig answering_model(const FinetuneConfig& config, const CheckpointModel& from);

std::unique_ptr<TaskData> read_classes(const std::string& path, const TaskContext& context);
std::unique_ptr<TaskData> read_questions(const std::string& path, const TaskContext& context);

}  // namespace trifold
