// Low-rank adapters in the format of Hugging Face's peft library: adapter_config.json, and adapter_model.safetensors with
// the tensors
//
//   base_model.model.<module>.lora_A.weight [r, in], .lora_B.weight [out, r], and with use_dora .lora_magnitude_vector [out]
//
// where <module> is the name that transformers gives a linear layer. Our modules are theirs if each is one tensor of
// transformers; one adapter of a packed weight whose parts are several layers there is written as several that share A.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/reader.h"
#include "config/fields/model_config.h"
#include "core/dtype.h"

namespace trifold {

inline constexpr const char* kPeftConfigName = "adapter_config.json";
inline constexpr const char* kPeftWeightsName = "adapter_model.safetensors";

// Whether the folder has peft's adapters.
bool is_peft_folder(const std::filesystem::path& folder);

// Opens such a folder together with the model that its 'base_model_name_or_path' names, a path that is absolute or
// relative to the folder or to the working directory: a model with adapters, as a checkpoint of step 0. BadInput that
// lists everything missing or unsupported.
CheckpointReader open_peft_folder(const std::filesystem::path& folder);

// BadInput unless the adapters of the model can be written, in `family` as in family_for; `former`: the family from which
// the model came.
void expect_peft_layers(const ModelConfig& model, const std::optional<std::string>& family,
                        const std::optional<std::string>& former);

struct WrittenAdapters {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

// Writes the adapters that `from` reads to the folder, which must exist, as `dtype`. `family` as in family_for. BadInput if
// transformers' layers cannot have them.
WrittenAdapters write_peft_folder(CheckpointReader& from, const std::filesystem::path& folder, DType dtype,
                                  const std::optional<std::string>& family);

}  // namespace trifold
