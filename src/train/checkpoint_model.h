// A trained model read back for use: its configuration, its tokenizer and its weights.
#pragma once

#include <memory>
#include <string>

#include "checkpoint/reader.h"
#include "config/fields/config.h"
#include "run/start.h"
#include "tokenize/tokenizer.h"
#include "train/replica.h"

namespace trifold {

struct CheckpointModel {
  ModelConfig model;  // resolved
  DataConfig data;    // only the tokenizer's fields are set
  DType dtype = DType::F32;
  int64_t step = 0;
  std::string directory;
};

// Reads what the checkpoint at (or the newest one under) `path` says of itself. BadInput when there is none.
CheckpointModel describe_checkpoint(const std::string& path);

// BadInput, naming the command to use instead, where the checkpoint is one of a recommender.
void expect_language_model(const CheckpointReader& reader);

// The model of a checkpoint, resolved and valid. BadInput where it is another program's, or a recommender.
ModelConfig language_model_of(const CheckpointReader& reader);

// Sets the tokenizer's fields of `data` to what the checkpoint says. A file kept in the checkpoint
// (FileInfo::Role::Attachment) is named by its whole path. BadInput where it says nothing that is possible.
void read_tokenizer_of(const CheckpointReader& reader, DataConfig& data);

// BadInput that lists every reason why `mesh` cannot hold the model, as those of a training run.
void expect_layout(const CheckpointModel& from, const MeshConfig& mesh, int64_t micro_batch_size);

// Names the tokenizer of `from` in `data` where none is named. BadInput where that is not known either and
// `data` are text.
void inherit_tokenizer(DataConfig& data, const CheckpointModel& from, bool is_text);

// BadInput that lists the fields that differ, unless a checkpoint of the model `stored` fits the model
// `wanted`. With LoadPart::Weights the lengths of samples, dropout, the size of random weights and the range
// of rotary positions may differ; with LoadPart::Encoder the head as well. How far the vocabulary is padded
// never matters, because padding is not stored.
void compare_checkpoint_model(nlohmann::json stored, nlohmann::json wanted, LoadPart part);

// Fills the weights of `replica` from the checkpoint. Every rank reads what it holds.
void load_weights(Replica& replica, const std::string& path);

}  // namespace trifold
