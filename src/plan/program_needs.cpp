#include "plan/program_needs.h"

#include <algorithm>

#include "models/gpt.h"
#include "plan/forecast/kept_activations.h"
#include "plan/forecast/workload.h"

namespace trifold {

BlockNeeds program_needs(const Software& software, const RunSpec& run, bool split) {
  const int tensor = run.mesh.tensor_model_parallel_size;
  Workload work = make_workload(run, static_cast<double>(padded_vocab_size(run.model, tensor)));
  assume_context(software, work);
  const KeptBytes kept = kept_bytes(software, work);
  BlockNeeds needs;
  // The input of a stage is kept until its backward: as its first layer's input, or in addition.
  needs.middle = {{kept.boundary - kept.input, kept.layer},
                  {0, split ? kept.held - kept.freed : 0},
                  {kept.boundary, 0},
                  {kept.passing, 0},
                  {}};  // no halves take turns
  needs.first = needs.last = needs.middle;
  needs.first.keep.none = kept.embedding;
  needs.last.keep.none += kept.head;
  needs.last.scratch.none = std::max(kept.passing, kept.loss / run.mesh.pipeline_vocab_parts);
  needs.message = kept.boundary;
  needs.parts = run.mesh.pipeline_vocab_parts;
  return needs;
}

}  // namespace trifold
