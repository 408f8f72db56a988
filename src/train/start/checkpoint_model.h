// Reads a trained model from a checkpoint or a Hugging Face folder (models/folders/open_model.h): its configuration, tokenizer and weights.
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
  std::string attachments;  // the folder of its attached files (CheckpointReader::attachments)
};

// The description in a checkpoint. BadInput unless it is a checkpoint of a language model.
CheckpointModel describe_checkpoint(const CheckpointReader& reader);

// BadInput, naming the command to use instead, for the checkpoint of a recommender.
void expect_language_model(const CheckpointReader& reader);

// The model of a checkpoint, resolved and valid. BadInput if it belongs to another program or to a recommender.
ModelConfig language_model_of(const CheckpointReader& reader);

// Sets the tokenizer's fields of `data` from the checkpoint. A file kept in the checkpoint (FileInfo::Role::Attachment)
// is named by its full path. BadInput if the checkpoint's values are not valid.
void read_tokenizer_of(const CheckpointReader& reader, DataConfig& data);

// BadInput unless the model can continue texts: a BERT, a model from a file and one that was tuned for a task cannot.
void expect_text_model(const CheckpointModel& from);

// Sets the sequence length, if one is given, which learned positions limit and rotary embeddings do not. BadInput if it
// is too long.
void set_length(CheckpointModel& from, const std::optional<int64_t>& length);

// The tokenizer named in `given`, or else the checkpoint's. A byte tokenizer ends a text with 0, which only a model that
// was trained on documents has learned. BadInput if there is none, or if it has more tokens than the model.
std::unique_ptr<Tokenizer> tokenizer_of(const CheckpointModel& from, DataConfig given);

// BadInput that lists every reason why `mesh` cannot hold the model, with the same checks as for a training run.
void expect_layout(const CheckpointModel& from, const MeshConfig& mesh, int64_t micro_batch_size);

// Gives `data` the tokenizer of `from` if it has none. BadInput if `from` has none either and `data` are text.
void inherit_tokenizer(DataConfig& data, const CheckpointModel& from, bool is_text);

// BadInput that lists the differing fields, unless a checkpoint of the model `stored` fits the model `wanted`. With
// LoadPart::Weights the sample length, dropout, the scale of initial weights and the range of rotary positions may
// differ; with LoadPart::Encoder the head may differ too, and with LoadPart::Dense `wanted` may have experts, but not
// `stored`. The padding of the vocabulary may always differ, because it is not stored. Except with LoadPart::All,
// `wanted` may add adapters to a model without any; if both have adapters of the same modules, the way in which these are
// targeted, dropout, quantization of frozen weights and the first values of new adapters may differ.
void compare_checkpoint_model(nlohmann::json stored, nlohmann::json wanted, LoadPart part);

// Loads the weights of `replica` from the checkpoint or Hugging Face folder, or, with `averages`, their exponential
// averages from the checkpoint. Every rank reads its own part.
void load_weights(Replica& replica, const std::string& path, bool averages = false);

// Loads only the frozen weights. Adapters of the replica, which need not be in the checkpoint, keep their values.
void load_frozen_weights(Replica& replica, const std::string& path);

}  // namespace trifold
