// Conformance of an OpTable: every entry, on several shapes and types, against the processor's table in f64.
// One list of cases serves every back end: the emulated CUDA kernels, and a real device if there is one.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/ops.h"

namespace trifold::conformance {

using Values = std::vector<double>;

// One call of one case: makes tensors for the table under test, and remembers which of them to compare. The
// same calls are made with the reference and with the table under test, so results match by order.
class OpRun {
 public:
  // Inputs are rounded to `rounded` first, so that a run in f64 sees the numbers that one in 16 bits does.
  OpRun(const OpTable& ops, Stream& stream, DType dtype, DType rounded);

  const OpTable& ops() const { return ops_; }
  Stream& stream() const { return stream_; }
  DType dtype() const { return dtype_; }
  DType wide() const { return accumulate_type(dtype_); }
  // The type under test, also while the reference runs in f64.
  DType rounded() const { return rounded_; }

  // A tensor with these values, on the table's device.
  Tensor in(DType dtype, const Shape& shape, const Values& values);
  Tensor in(const Shape& shape, const Values& values) { return in(dtype_, shape, values); }
  // The same, compared afterwards: within the tolerance of its type, or bit by bit with the processor's table
  // in the same type.
  Tensor out(DType dtype, const Shape& shape, const Values& values = {});
  Tensor out(const Shape& shape, const Values& values = {}) { return out(dtype_, shape, values); }
  Tensor exact(DType dtype, const Shape& shape, const Values& values = {});
  // In the type of sums, within the tolerance of the type under test: an entry may round parts of it to that type.
  Tensor summed(const Shape& shape, const Values& values = {});

  // Keeps a list that an entry looks at later alive.
  template <class T>
  const std::vector<T>& keep(std::vector<T> list) {
    auto held = std::make_shared<std::vector<T>>(std::move(list));
    kept_.push_back(held);
    return *held;
  }

  struct Result {
    DType dtype;
    bool exact;
    Values values;
  };
  // Waits for the stream and copies the results to the host.
  std::vector<Result> results();

 private:
  struct Placed {
    Buffer buffer;
    Tensor tensor;
    bool compared = false;
    bool exact = false;
    bool summed = false;
  };
  const OpTable& ops_;
  Stream& stream_;
  DType dtype_;
  DType rounded_;
  std::vector<std::unique_ptr<Placed>> held_;
  std::vector<std::shared_ptr<void>> kept_;
};

struct OpCase {
  std::string name;
  std::vector<size_t> entries;  // offsets in OpTable of the entries it calls
  bool wide_only = false;       // f32 and f64 only
  double slack = 1;             // times the tolerance of the type
  std::function<void(OpRun&)> body;
};

std::vector<OpCase> op_cases();              // everything a language model needs,
std::vector<OpCase> sum_op_cases();          // of which these are a part,
std::vector<OpCase> update_op_cases();       // and these,
std::vector<OpCase> attention_op_cases();    // and these,
std::vector<OpCase> experts_op_cases();      // and these,
std::vector<OpCase> latent_op_cases();       // and these,
std::vector<OpCase> strided_op_cases();      // and these,
std::vector<OpCase> recommender_op_cases();  // and those of recommenders
std::vector<OpCase> block_op_cases();        // and attention in blocks, too large for emulated kernels

template <class Member>
size_t entry(Member OpTable::*member) {
  static const OpTable kTable{};
  return static_cast<size_t>(reinterpret_cast<const char*>(&(kTable.*member)) -
                             reinterpret_cast<const char*>(&kTable));
}
template <class... Members>
std::vector<size_t> entries(Members... members) {
  return {entry(members)...};
}

using Body = std::function<void(OpRun&)>;
// Calls body(run, n) for numbers of elements that fill vectors and that do not.
Body each_count(const std::function<void(OpRun&, int64_t)>& body);

// Runs `test` with `ops` on `stream` in every type and compares; fails the current GoogleTest test.
void check_case(const OpCase& test, const OpTable& ops, Stream& stream);

// The backward of a norm has the same bits whole and in parts, in every type: schedules that compute gradients of
// inputs and of weights at different times rely on it.
void check_norms_in_parts(const OpTable& ops, Stream& stream);

// Names the entries of OpTable that no case calls: none.
void expect_every_entry_has_a_case();

// The initial values of a result: given ones if the operation accumulates, else NaNs, which it must not read.
Values before_sum(const Values& values, bool accumulate);

// Standard normal numbers, and integers below `limit`.
Values normal(int64_t count, uint64_t seed);
Values whole(int64_t count, uint64_t seed, int64_t limit);

}  // namespace trifold::conformance
