#include "graph/data/array_source.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "core/random.h"
#include "data/permutation.h"

namespace trifold::graph {

namespace {

std::string names_text(const std::vector<std::string>& names) {
  return printable(fmt::format("{}", fmt::join(names, ", ")));
}

}  // namespace

ArraySource::ArraySource(ArrayFiles files, const Graph& graph, const Preparation& preparation,
                         const ArrayOrder& order)
    : files_(std::move(files)), graph_(graph), preparation_(preparation), order_(order) {
  check(order.passes >= 1, "{} passes over the samples are asked for; there must be at least 1",
        order.passes);
  find_arrays();
  const int64_t all = arrays_.front().samples();
  for (const StoredArray& array : arrays_)
    if (array.samples() != all)
      bad_input("{} has {} samples, but {} has {}: they must have the same number", to_text(arrays_.front()),
                all, to_text(array), array.samples());
  const int64_t end = order.end.value_or(all);
  if (order.begin < 0 || order.begin >= end || end > all)
    bad_input("samples {} to {} are asked for, but the arrays have {}", order.begin, end - 1, all);
  count_ = end - order.begin;
  int64_t product = 0;
  if (__builtin_mul_overflow(count_, order.passes, &product))
    bad_input("{} passes over {} samples are too many", order.passes, count_);
}

// Each input has an array, and each array an input.
void ArraySource::find_arrays() {
  std::vector<std::string> missing, unknown, takes;
  for (const Input& input : preparation_.data()) {
    takes.push_back(input.name);
    const StoredArray* array = files_.find(input.name);
    if (array == nullptr)
      missing.push_back(input.name);
    else
      arrays_.push_back(*array);
  }
  check(!takes.empty(), "a model takes no arrays");
  for (const StoredArray& array : files_.arrays())
    if (std::find(takes.begin(), takes.end(), array.name) == takes.end()) unknown.push_back(array.name);
  if (!missing.empty())
    bad_input(
        "no array is given for {}; the model takes {}, and the arrays are {}", names_text(missing),
        names_text(takes), files_.arrays().empty() ? "none" : [&] {
          std::vector<std::string> names;
          for (const StoredArray& array : files_.arrays()) names.push_back(array.name);
          return names_text(names);
        }());
  if (!unknown.empty())
    bad_input("the model does not take {}, only {}; give PATH:INSIDE for single arrays of a file",
              names_text(unknown), names_text(takes));
  cut_streams();
  for (size_t i = 0; i < arrays_.size(); ++i) check_array(arrays_[i], preparation_.data()[i]);
}

// The last tokens of a stream with a smaller shift may be left over, so that inputs and labels have equally many samples.
void ArraySource::cut_streams() {
  int64_t most = 0;
  for (const StoredArray& array : arrays_) most = std::max(most, array.shift);
  for (size_t i = 0; i < arrays_.size(); ++i) {
    StoredArray& array = arrays_[i];
    if (!array.is_stream) continue;
    const std::vector<Extent>& wanted = graph_.at(preparation_.data()[i].value).dims;
    std::vector<int64_t> dims{0};
    int64_t each = 1;
    for (size_t d = 1; d < wanted.size(); ++d) {
      dims.push_back(wanted[d].value);
      if (__builtin_mul_overflow(each, wanted[d].value, &each)) each = 0;
    }
    const int64_t tokens = array.dims[0];
    dims[0] = each > 0 && tokens > most ? (tokens - most) / each : 0;
    if (dims[0] < 1)
      bad_input("{} has {} tokens, too few for a sample of {} from token {} on", to_text(array), tokens,
                to_text(wanted), most);
    array.dims = std::move(dims);
    array.data += array.shift * size_of(array.type);
  }
}

void ArraySource::check_array(const StoredArray& array, const Input& input) const {
  const Value& value = graph_.at(input.value);
  check(counts_samples(value.dims), "the input '{}' has the shape {}, without a batch", printable(input.name),
        to_text(value.dims));
  bool fits = array.dims.size() == value.dims.size();
  for (size_t d = 1; fits && d < array.dims.size(); ++d) fits = array.dims[d] == value.dims[d].value;
  if (!fits)
    bad_input("{} has shape {}, but the model takes {}", to_text(array), dims_text(array.dims),
              to_text(value.dims));
  if (!converts(array.type, value.type))
    bad_input("{} is of type {}, which does not become the model's {} without loss: save it as {}",
              to_text(array), name_of(array.type), name_of(value.type), name_of(value.type));
}

std::vector<int64_t> ArraySource::positions(int64_t first_sample, int64_t count) const {
  if (first_sample < 0 || count > samples() - first_sample)
    fail("samples {} to {} are asked for, there are {}", first_sample, first_sample + count - 1, samples());
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::optional<Permutation> shuffled;
  int64_t pass = -1;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t sample = first_sample + i;
    if (order_.seed && pass != sample / count_) {
      pass = sample / count_;
      shuffled.emplace(philox_key(*order_.seed, fmt::format("order of arrays, pass {}", pass)), count_);
    }
    const int64_t place = sample % count_;
    all[static_cast<size_t>(i)] = order_.begin + (shuffled ? (*shuffled)(place) : place);
  }
  return all;
}

void ArraySource::prepare(Batch& batch, const std::vector<int64_t>& positions) const {
  std::vector<Array> data;
  for (size_t i = 0; i < arrays_.size(); ++i) {
    std::vector<int64_t> dims = arrays_[i].dims;
    dims[0] = std::ssize(positions);
    data.push_back(make_array(graph_.at(preparation_.data()[i].value).type, std::move(dims)));
    gather_samples(arrays_[i], positions, data.back());
  }
  const std::span block(static_cast<std::byte*>(batch.arrays.data), batch.arrays.bytes());
  try {
    preparation_.write(data, batch.samples(), block, positions);
  } catch (Error& error) {
    error.add_context(fmt::format("samples {} of the arrays", dims_text(positions)));
    throw;
  }
}

void ArraySource::read(Batch& batch, int64_t first_sample) const {
  const int64_t count = batch.samples();
  check(batch.arrays.data != nullptr && static_cast<int64_t>(batch.arrays.bytes()) == array_bytes(count),
        "a batch of {} samples needs {} bytes of arrays", count, array_bytes(count));
  const auto fill = [](const Tensor& tensor, auto value) {
    auto* begin = tensor.as<decltype(value)>();
    std::fill(begin, begin + tensor.elements(), value);
  };
  batch.first_sample = first_sample;
  for (const Tensor& tensor : {batch.tokens, batch.labels, batch.positions}) fill(tensor, int32_t{0});
  fill(batch.loss_weight, 1.0F);
  prepare(batch, positions(first_sample, count));
}

}  // namespace trifold::graph
