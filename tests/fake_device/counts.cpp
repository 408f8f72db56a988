#include "fake_device/counts.h"

#include <fmt/format.h>

namespace trifold::test {

namespace {

// "fill" of "... Entry = &trifold::OpTable::fill; ..."
std::string entry_of(std::string_view signature) {
  constexpr std::string_view kTable = "OpTable::";
  const size_t at = signature.rfind("&trifold::OpTable::");
  if (at == std::string_view::npos) return std::string(signature);
  const std::string_view rest = signature.substr(signature.find(kTable, at) + kTable.size());
  return std::string(rest.substr(0, rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789")));
}

// The tensors of an operation, in the order of its arguments, that it reads as well as writes.
unsigned updated_by(std::string_view name) {
  constexpr std::pair<std::string_view, unsigned> kUpdates[] = {
      {"scale", 1}, {"reduce", 1},  {"weighted_sum", 1},  {"adamw", 13},
      {"sgd", 5},   {"adagrad", 5}, {"lamb_moments", 12}, {"lamb", 1}};
  for (const auto& [known, bits] : kUpdates)
    if (name == known) return bits;
  return 0;
}

// The same of those that a call either adds to or assigns.
unsigned added_to_by(std::string_view name) {
  constexpr std::pair<std::string_view, unsigned> kSums[] = {{"gemm", 1},
                                                             {"affine_backward_input", 1},
                                                             {"affine_backward_weight", 3},
                                                             {"layer_norm_backward_weight", 3},
                                                             {"layer_norm_backward_all", 6},
                                                             {"rms_norm_backward_weight", 1},
                                                             {"rms_norm_backward_all", 2},
                                                             {"column_sum", 1},
                                                             {"relu_backward", 2}};
  for (const auto& [known, bits] : kSums)
    if (name == known) return bits;
  return 0;
}

}  // namespace

Counts& Counts::instance() {
  static auto& counts = *new Counts();
  return counts;
}

Counts::Operation::Operation(std::string_view signature)
    : name_(entry_of(signature)),
      twice_(updated_by(name_)),
      adding_(added_to_by(name_)),
      by_rows_(name_ == "embedding" || name_ == "embedding_backward"),
      small_is_done_(name_ == "fill" || name_ == "weighted_sum" || name_ == "exact_sum") {
  Counts& all = instance();
  const std::lock_guard lock(all.mutex_);
  all.operations_.push_back(this);
}

bool Counts::Operation::call(std::span<const Tensor> tensors, bool adds) {
  const auto bytes_of = [](const Tensor& tensor) { return tensor.data == nullptr ? 0 : tensor.bytes(); };
  size_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i)
    bytes += bytes_of(tensors[i]) * (((adds ? twice_ | adding_ : twice_) >> i & 1U) != 0 ? 2 : 1);
  // Of a table as many rows are read, and written where it is its gradient, as the other tensor has.
  if (by_rows_) bytes = (name_ == "embedding" ? 2 : 3) * bytes_of(tensors[name_ == "embedding" ? 0 : 1]);
  ++calls_;
  bytes_ += bytes;
  const Counts& all = instance();
  return !all.alone_ || (small_is_done_ && bytes <= kSmall);
}

std::string Counts::take() {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (Operation* operation : operations_) {
    const int64_t calls = operation->calls_.exchange(0);
    const size_t bytes = operation->bytes_.exchange(0);
    if (calls > 0) text += fmt::format("{} {} {}\n", operation->name_, calls, bytes);
  }
  return text;
}

}  // namespace trifold::test
