// FiniteSearch: the first number of a step that is infinite or NaN, found among everything that the ranks of
// a run show while the step is computed once more.
//
// "First" is meant in the direction in which data flows: whoever shows tensors numbers their places in that
// direction. Nothing before the first place is bad, so the cause is there, on whatever rank and whenever it
// was computed. Of one place in the model the first sample counts.
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
  // Samples that tensors are of.
  struct Samples {
    int64_t first = -1;
    int64_t count = 0;  // 0: they are of no samples
    int micro = -1;     // the micro-batch; -1: a step has one only
  };

  // `data` is what samples are counted in: "the training data". References must outlive the object.
  FiniteSearch(Communicator& world, const Mesh& mesh, const OpTable& ops, std::string_view data);

  // Of what is looked at from now on.
  void set_samples(const Samples& samples) { samples_ = samples; }
  // The next place; each look moves one on.
  void go_to(int64_t place) { place_ = place; }
  int64_t place() const { return place_; }

  // Looks at a tensor, complete as of now on `stream`; `what` is "the output of block.1.norm1".
  void look(std::string_view what, Tensor tensor, Stream& stream);
  // The same of columns [begin, end) of a matrix that has a row for each of the samples.
  void look_at_rows(std::string_view what, Tensor matrix, int64_t begin, int64_t end, Stream& stream);
  // The same of a tensor on the host, wherever operations run.
  void look_on_host(std::string_view what, Tensor tensor);

  // What the ranks found, in a sentence or two without a full stop; the same on every rank. Collective over
  // the world.
  std::string verdict(Stream& stream);

 private:
  // A number that is not finite and where it was met. Travels between ranks as it is.
  struct Finding {
    static constexpr size_t kTextBytes = 192;

    int64_t place = 0;  // in the flow of data; later is larger
    int64_t first_sample = 0;
    int64_t samples = 0;
    int64_t rank = 0;
    int64_t found = 0;  // whether there is one
    int64_t micro = 0;
    char text[kTextBytes] = {};  // "element 3 of the output of block.1.norm1, [32, 64], is -inf"

    bool before(const Finding& other) const;
  };

  // What a number at the next place would be.
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

// "nan", "inf" or "-inf": a NaN's sign means nothing. Other numbers as they are.
std::string not_finite_text(double value);
// The same of an element of a tensor on the host.
std::string not_finite_text(const Tensor& tensor, int64_t index);
// Index of the first element that is infinite or NaN. The tensor must be complete, and the host's.
std::optional<int64_t> first_not_finite(Tensor tensor);

}  // namespace trifold
