// FiniteCheck finds the origin of the first infinite or NaN value of a step. A step whose loss or gradients are not
// finite is computed again from the same weights and samples, and so with the same bits, while FiniteCheck passes every
// tensor that layers show to a FiniteSearch: weights, outputs, gradients of activations, and after every block the
// gradients of its parameters. FiniteSearch's places are the blocks forward, then backward.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data_parallel/flat_layout.h"
#include "data_parallel/gradient_buffer.h"
#include "models/model.h"
#include "pipeline/executor.h"
#include "run/checks/finite_search.h"

namespace trifold {

// The parts of a step. References must outlive the check.
struct FiniteCheckParts {
  Communicator& world;
  const Mesh& mesh;
  const OpTable& ops;
  const Model& model;
  const FlatLayout& layout;
  const GradientBuffer& grads;
  Stream& compute;
  std::string_view data;            // name of the data in which samples are counted: "the training data"
  bool names_micro_batches = true;  // false: a step has only one micro-batch
};

class FiniteCheck : public StepWatch {
 public:
  // `inner` is called before this check, for every event.
  FiniteCheck(const FiniteCheckParts& parts, StepWatch* inner);

  void begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
             Stream& stream) override;
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) final;
  void end(Stream& stream) override;

  // Call after the step. Checks the gradients summed over ranks, and returns the Error (Agreed) for all ranks to throw:
  // it says whether the loss or the norm of step `step` is not finite, and where the first such value appears.
  // `of_norm` is appended to a norm: " with the loss scale 8". Collective over the world.
  Error error(int64_t step, double loss, double norm, std::string_view of_norm = {});

 protected:
  // Checks a tensor that a layer shows.
  virtual void look(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream);
  FiniteSearch& search() { return search_; }
  // Moves the search to the places before this block's forward, of which `before` are free. Block 0: the inputs.
  void go_before(int block, int64_t before);

 private:
  // The number of ranks whose samples are computed with this parameter here: ranks that share experts exchange rows.
  int sources_of(const ShardSpec& spec) const;
  // Checks a tensor that was computed from rows of `sources` ranks.
  void look_at_exchanged(int sources, const std::string& text, Tensor tensor, Stream& stream);

  FiniteCheckParts parts_;
  FiniteSearch search_;
  std::vector<bool> bad_gradients_;  // per parameter: reported once, by the micro-batch that caused it
  Action action_{};
  int block_ = 0;
  int64_t row_samples_ = 0;  // samples of the batch if shown tensors have one row per sample; else 0
};

// Throws an Error that names the first gradient summed on this rank that is not finite, if any; `where` begins its
// text. For asynchronous schedules, whose steps cannot be repeated.
void check_sums_finite(const FiniteCheckParts& parts, const std::string& where);

}  // namespace trifold
