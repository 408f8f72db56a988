// Opens the folder of a trained model, a checkpoint's or Hugging Face's, as a checkpoint: any boxes of its parameters
// can be read, and only their bytes are.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "checkpoint/reader.h"
#include "models/folders/hugging_face_folder.h"
#include "models/folders/tensor_rows.h"

namespace trifold {

// FolderSource reads parameters from the tensors of a HuggingFaceFolder: it takes the rows and columns of a box from
// the tensors that hold them, and transposes and converts them.
class FolderSource final : public TensorSource {
 public:
  // Uses buffers of up to `bytes` each, or of one row of a parameter (TensorRowsReader).
  explicit FolderSource(std::shared_ptr<const HuggingFaceFolder> folder, int64_t bytes = int64_t{8} << 20);

  void read(std::span<const NamedTensor> wanted) override;

 private:
  using Columns = TensorRowsReader::Columns;

  void read_box(const NamedTensor& box, size_t parameter);
  void read_rows(size_t parameter, int64_t begin, int64_t end, Columns columns, Tensor to);
  std::shared_ptr<const HuggingFaceFolder> folder_;
  int64_t bytes_;
  std::map<std::string, size_t> parameters_;  // [name in checkpoints] index in HuggingFaceFolder::maps()
  TensorRowsReader reader_;
};

// The checkpoint of step 0 that `trifold convert` would make of the folder, with the files of its tokenizer as
// attachments. Without `with_tokenizer` the state has no tokenizer, and its files are not opened.
CheckpointReader reader_of(std::shared_ptr<const HuggingFaceFolder> folder, bool with_tokenizer = true);

// Opens `named`: adapters in peft's format (models/adapters/peft_folder.h), a Hugging Face folder by
// is_hugging_face_folder, else as CheckpointReader does. `newest` is for checkpoints; `warn` as for HuggingFaceFolder.
// Adapters are opened together with their frozen weights (models/adapters/frozen_weights.h).
CheckpointReader open_model(const std::filesystem::path& named, Newest newest = Newest::OrError,
                            const std::function<void(std::string)>& warn = {});
// As open_model, for callers that read only the model and its weights: the state has no tokenizer.
CheckpointReader open_weights(const std::filesystem::path& named);

// The 'model_type' of the Hugging Face folder that a checkpoint's model came from.
std::optional<std::string> former_family(const CheckpointReader& from);

// The element type of the weights: the common type, or f32 if they have several.
DType weights_type(const HuggingFaceFolder& folder);

}  // namespace trifold
