// The log-likelihoods that a reference model gives to samples, which losses of pairs are relative to
// (nn/samples/pair_loss.h). They are computed once, by a forward pass over all samples before the run trains, and kept in a
// file, from which a run that resumes and other runs with the same samples and model read them.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "data/batch.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

struct ReferenceModel {
  std::string path;   // a checkpoint or a Hugging Face folder
  ModelConfig model;  // as it is trained: sample length, and the loss of pairs
  DType dtype = DType::F32;
  std::string identity;      // names the weights and the type in which they compute
  bool frozen_only = false;  // the path has no values of the model's adapters, which are zero
};

// The model of `path`, with the sample length and the loss of `tuned` and computing as the run does: if `tuned` adds
// adapters to quantized weights (AdapterConfig::quantize_base), its weights are quantized alike. BadInput if it cannot
// read the samples that `tuned` is trained on.
ReferenceModel reference_model(const std::string& path, const ModelConfig& tuned, DType dtype);

// The file in `folder` for the samples of this fingerprint.
std::string reference_file(const std::string& folder, const ReferenceModel& reference,
                           const std::string& samples);

// The log-likelihoods of all samples of `source`, whose model on this mesh takes `micro_batch_size` samples at a time:
// those in `file`, if it has them, or else computed, and written there by the first rank. nullopt if `signal` (may be null)
// stopped it. Collective. Failure, naming the file, if it exists and is not what was written.
std::optional<std::vector<double>> reference_values(Communicator& world, const MeshConfig& mesh,
                                                    const ZeroConfig& zero, const PrecisionConfig& precision,
                                                    const ReferenceModel& reference, const DataSource& source,
                                                    int64_t micro_batch_size,
                                                    const std::optional<std::string>& file,
                                                    const std::atomic<int>* signal);

}  // namespace trifold
