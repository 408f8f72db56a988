#include "train/tuning/tuning_task.h"

#include "core/error.h"
#include "train/tuning/bert_tasks.h"
#include "train/tuning/chat_tasks.h"
#include "train/tuning/preference_task.h"

namespace trifold {

namespace {

constexpr TuningTask kTuningTasks[] = {
    {.task = FinetuneTask::Classify,
     .tuned_model = classifying_model,
     .complete = nullptr,
     .read = read_classes,
     .begins_anew = false,
     .ends_documents = false,
     .loss_unit = "samples"},
    {.task = FinetuneTask::Squad,
     .tuned_model = answering_model,
     .complete = nullptr,
     .read = read_questions,
     .begins_anew = false,
     .ends_documents = false,
     .loss_unit = "samples"},
    {.task = FinetuneTask::Chat,
     .tuned_model = tuned_causal_model,
     .complete = complete_chat,
     .read = read_chats,
     .begins_anew = true,
     .ends_documents = true,
     .loss_unit = nullptr},
    {.task = FinetuneTask::Lm,
     .tuned_model = tuned_causal_model,
     .complete = complete_packing,
     .read = read_answers,
     .begins_anew = true,
     .ends_documents = true,
     .loss_unit = nullptr},
    {.task = FinetuneTask::Dpo,
     .tuned_model = preferring_model,
     .complete = complete_preferences,
     .read = read_pairs,
     .begins_anew = true,
     .ends_documents = true,
     .loss_unit = "pairs"},
};

}  // namespace

const TuningTask& tuning_task(FinetuneTask task) {
  for (const TuningTask& entry : kTuningTasks)
    if (entry.task == task) return entry;
  fail("--task {} is not in the table of tasks", name_of(task));
}

}  // namespace trifold
