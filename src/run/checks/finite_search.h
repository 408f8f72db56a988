// FiniteSearch finds the first infinite or NaN value of a step among all tensors that the ranks show while the step is
// repeated.
//
// "First" refers to the flow of data: callers number places in that direction. Everything before the first bad place is
// finite, so the cause is at that place, on whatever rank and at whatever time it was computed. Within a place the
// first sample counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/communicator.h"
#include "mesh/mesh.h"
#include "ops/ops.h"

namespace trifold {

class FiniteSearch {
 public:
  // The samples to which tensors belong.
  struct Samples {
    int64_t first = -1;
    int64_t count = 0;  // 0: the tensors do not belong to samples
    int micro = -1;     // the micro-batch; -1: the step has only one
    int sources = 1;    // ranks whose rows the tensors have; above 1, `first` and `count` are invalid
  };

  // `data` names the data in which samples are counted: "the training data". References must outlive the object.
  FiniteSearch(Communicator& world, const Mesh& mesh, const OpTable& ops, std::string_view data);

  // Sets the samples of the tensors checked from now on.
  void set_samples(const Samples& samples) { samples_ = samples; }
  const Samples& samples() const { return samples_; }
  // Sets the place of the next tensor; each check advances by one.
  void go_to(int64_t place) { place_ = place; }
  int64_t place() const { return place_; }

  // Checks a tensor that is complete at this point of `stream`; `what` is "the output of block.1.norm1".
  void look(std::string_view what, Tensor tensor, Stream& stream);
  // Checks columns [begin, end) of a matrix with one row per sample.
  void look_at_rows(std::string_view what, Tensor matrix, int64_t begin, int64_t end, Stream& stream);
  // Checks a tensor in host memory, on whatever device operations run.
  void look_on_host(std::string_view what, Tensor tensor);

  // The ranks' findings in a sentence or two without a full stop, the same on every rank. Collective over the world.
  std::string verdict(Stream& stream);

 private:
  // A value that is not finite, and its place. Sent between ranks as bytes.
  struct Finding {
    static constexpr size_t kTextBytes = 192;

    int64_t place = 0;  // larger: later in the flow of data
    int64_t first_sample = 0;
    int64_t samples = 0;
    int64_t rank = 0;
    int64_t found = 0;  // 1 if there is such a value, else 0
    int64_t micro = 0;
    int64_t sources = 1;
    char text[kTextBytes] = {};  // "element 3 of the output of block.1.norm1, [32, 64], is -inf"

    bool before(const Finding& other) const;
  };

  // A Finding at the next place.
  Finding next() const;
  void note(Finding finding, std::string_view what, const Tensor& tensor, int64_t index);
  std::string describe(const Finding& finding) const;

  Communicator& world_;
  const Mesh& mesh_;
  const OpTable& ops_;
  std::string data_;
  Samples samples_;
  int64_t place_ = 0;
  Finding first_;
};

// "nan", "inf" or "-inf" (the sign of a NaN is ignored); finite values as usual.
std::string not_finite_text(double value);
// not_finite_text for an element of a tensor on the host.
std::string not_finite_text(const Tensor& tensor, int64_t index);
// The index of the first element that is infinite or NaN. The tensor must be complete and on the host.
std::optional<int64_t> first_not_finite(Tensor tensor);

}  // namespace trifold
