#include "run/checks/finite_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <tuple>
#include <vector>

#include "core/not_finite.h"
#include "ops/host_copy.h"

namespace trifold {

namespace {

// The first bad element of columns [begin, end) of a matrix on the host.
std::optional<int64_t> first_of_columns(const Tensor& matrix, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < matrix.row_count(); ++row) {
    const auto bad = first_not_finite(matrix.rows(row, row + 1).flat(begin, end));
    if (bad) return row * matrix.last_dim() + begin + *bad;
  }
  return std::nullopt;
}

}  // namespace

std::string not_finite_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

std::string not_finite_text(const Tensor& tensor, int64_t index) {
  return dispatch_float(tensor.dtype, [&](auto zero) {
    using T = decltype(zero);
    return not_finite_text(static_cast<double>(tensor.as<T>()[index]));
  });
}

std::optional<int64_t> first_not_finite(Tensor tensor) {
  const auto bad = first_not_finite(tensor.data, tensor.dtype, tensor.elements());
  return bad ? std::optional(bad->index) : std::nullopt;
}

bool FiniteSearch::Finding::before(const Finding& other) const {
  if (found != other.found) return found > other.found;
  return std::tie(place, first_sample, rank) < std::tie(other.place, other.first_sample, other.rank);
}

FiniteSearch::FiniteSearch(Communicator& world, const Mesh& mesh, const OpTable& ops, std::string_view data)
    : world_(world), mesh_(mesh), ops_(ops), data_(data) {
  first_.rank = world.rank();
}

FiniteSearch::Finding FiniteSearch::next() const {
  Finding finding;
  finding.place = place_;
  finding.first_sample = samples_.first;
  finding.samples = samples_.count;
  finding.rank = first_.rank;
  finding.found = 1;
  finding.micro = samples_.micro;
  finding.sources = samples_.sources;
  return finding;
}

void FiniteSearch::note(Finding finding, std::string_view what, const Tensor& tensor, int64_t index) {
  const std::string text = fmt::format("element {} of {}, {}, is {}", index, what, to_string(tensor.shape),
                                       not_finite_text(tensor, index));
  std::memcpy(finding.text, text.data(), std::min(text.size(), Finding::kTextBytes - 1));
  first_ = finding;
}

void FiniteSearch::look(std::string_view what, Tensor tensor, Stream& stream) {
  const Finding finding = next();
  ++place_;
  if (!finding.before(first_)) return;
  const HostCopy seen(ops_, stream, tensor);
  if (const auto bad = first_not_finite(seen.tensor())) note(finding, what, seen.tensor(), *bad);
}

void FiniteSearch::look_at_rows(std::string_view what, Tensor matrix, int64_t begin, int64_t end,
                                Stream& stream) {
  Finding finding = next();
  ++place_;
  if (!finding.before(first_)) return;
  const HostCopy seen(ops_, stream, matrix);
  const auto bad = first_of_columns(seen.tensor(), begin, end);
  if (!bad) return;
  finding.first_sample += *bad / matrix.last_dim();
  finding.samples = 1;
  note(finding, what, seen.tensor(), *bad);
}

void FiniteSearch::look_on_host(std::string_view what, Tensor tensor) {
  const Finding finding = next();
  ++place_;
  if (!finding.before(first_)) return;
  if (const auto bad = first_not_finite(tensor)) note(finding, what, tensor, *bad);
}

std::string FiniteSearch::describe(const Finding& finding) const {
  const std::string where = fmt::format("rank {} ({})", finding.rank,
                                        label_of(coords_of(static_cast<int>(finding.rank), mesh_.sizes())));
  const std::string_view text(finding.text);
  if (finding.samples == 0) return fmt::format("on {}, {}", where, text);
  if (finding.sources > 1)
    return fmt::format("in {}rows of {} from {} ranks on {}, {}",
                       finding.micro < 0 ? "" : fmt::format("micro-batch {}, in ", finding.micro), data_,
                       finding.sources, where, text);
  const int64_t last = finding.first_sample + finding.samples - 1;
  const std::string samples = last == finding.first_sample
                                  ? fmt::format("sample {}", last)
                                  : fmt::format("samples {} to {}", finding.first_sample, last);
  if (finding.micro < 0) return fmt::format("in {} of {} on {}, {}", samples, data_, where, text);
  return fmt::format("in micro-batch {} ({} of {}) on {}, {}", finding.micro, samples, data_, where, text);
}

std::string FiniteSearch::verdict(Stream& stream) {
  std::vector<Finding> all(static_cast<size_t>(world_.size()));
  const auto bytes = static_cast<int64_t>(sizeof(Finding));
  Stream host = stream.host();
  world_.all_gather({all.data(), DType::U8, {world_.size() * bytes}}, {&first_, DType::U8, {bytes}}, host);
  host.synchronize();
  const Finding& first = *std::min_element(all.begin(), all.end(),
                                           [](const Finding& a, const Finding& b) { return a.before(b); });
  if (first.found == 0)
    return "when computed again, every number of the step was finite: a CPU or memory failed the first "
           "time, or ranks raced";
  return fmt::format("the first number that is not finite appears {}", describe(first));
}

}  // namespace trifold
