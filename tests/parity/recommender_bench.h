// Helpers for tests of the recommender: hand-made batches, and values of a model by name.
#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "recommend/recommender.h"
#include "support/ranks.h"

namespace trifold::test {

// The samples of a global batch, as written in a test.
struct Clicks {
  std::vector<std::vector<float>> dense;                 // of each sample
  std::vector<std::vector<std::vector<int32_t>>> ids;    // of each sample and table
  std::vector<std::vector<std::vector<float>>> weights;  // like ids; empty if ids have none
  std::vector<float> labels;                             // of each sample `label_count`; NaN: missing
  int64_t label_count = 1;
  int64_t count() const { return static_cast<int64_t>(labels.size()) / label_count; }

  // Samples [first, first + samples), padded beyond the end.
  void read(int64_t first, int64_t samples, ClickBatchBuffer& out) const {
    const int64_t real = std::clamp<int64_t>(count() - first, 0, samples);
    out.fill(first, samples, real, [&](ClickPart& part) {
      for (int64_t i = 0; i < part.samples(); ++i) {
        const auto at = static_cast<size_t>(first + part.first() + i);
        for (int64_t l = 0; l < label_count; ++l) {
          const float label = labels[at * static_cast<size_t>(label_count) + static_cast<size_t>(l)];
          if (std::isnan(label))
            part.leave_out(i, l);
          else
            part.label(i, l) = label;
        }
        std::copy(dense[at].begin(), dense[at].end(), part.dense(i));
        for (size_t t = 0; t < ids[at].size(); ++t) {
          const auto n = static_cast<int>(ids[at][t].size());
          std::copy(ids[at][t].begin(), ids[at][t].end(), part.bag(static_cast<int>(t), i, n));
          if (!weights.empty())
            std::copy(weights[at][t].begin(), weights[at][t].end(), part.bag_weights(static_cast<int>(t), n));
        }
      }
    });
  }
};

// Name of a tensor ("param/top.0.weight") -> its elements, of which each rank adds what it holds.
using Values = std::map<std::string, std::vector<double>>;

inline double element(const Tensor& t, int64_t i) {
  return t.dtype == DType::F64 ? t.as<double>()[i] : static_cast<double>(t.as<float>()[i]);
}

// Visits (name, global index, local tensor, local index) of every element of the named boxes of matrices or
// vectors.
template <class Visit>
void visit_elements(const std::vector<NamedTensor>& tensors, Visit visit) {
  for (const NamedTensor& tensor : tensors) {
    const Rect& local = tensor.spec.local;
    const bool matrix = local.extent.rank() == 2;
    const int64_t columns = matrix ? local.extent[1] : 1;
    for (int64_t i = 0; i < local.elements(); ++i) {
      const int64_t row = local.offset[0] + i / columns;
      const int64_t at = matrix ? row * tensor.spec.global[1] + local.offset[1] + i % columns : row;
      visit(tensor, at, i);
    }
  }
}

// Tensors in memory, of those whose rows are stored copies.
class InMemory {
 public:
  explicit InMemory(std::vector<NamedTensor> tensors) : here_(std::move(tensors)) {
    for (NamedTensor& tensor : here_) {
      if (tensor.stored == nullptr) continue;
      memory_.emplace_back(tensor.data.bytes());
      tensor.data.data = memory_.back().data();
      tensor.stored->read(0, tensor.spec.local.extent[0], memory_.back().data());
    }
  }
  const std::vector<NamedTensor>& tensors() const { return here_; }
  // Writes the copies back.
  void store() const {
    for (const NamedTensor& tensor : here_)
      if (tensor.stored != nullptr)
        tensor.stored->write(0, tensor.spec.local.extent[0], static_cast<const std::byte*>(tensor.data.data));
  }

 private:
  std::vector<NamedTensor> here_;
  std::vector<Buffer> memory_;
};

inline void collect(Recommender& model, Values& values) {
  model.settle();
  const InMemory copies(model.checkpoint_tensors(false));
  visit_elements(copies.tensors(), [&](const NamedTensor& tensor, int64_t at, int64_t i) {
    std::vector<double>& all = values[tensor.spec.name];
    all.resize(static_cast<size_t>(tensor.spec.global.elements()), NAN);
    all[static_cast<size_t>(at)] = element(tensor.data, i);
  });
}

// Sets the parameters that are named.
inline void assign(Recommender& model, const Values& values) {
  model.settle();
  const InMemory copies(model.checkpoint_tensors(true));
  visit_elements(copies.tensors(), [&](const NamedTensor& tensor, int64_t at, int64_t i) {
    const auto found = values.find(tensor.spec.name);
    if (found == values.end()) return;
    const double value = found->second.at(static_cast<size_t>(at));
    if (tensor.data.dtype == DType::F64)
      tensor.data.as<double>()[i] = value;
    else
      tensor.data.as<float>()[i] = static_cast<float>(value);
  });
  copies.store();
  model.loaded();
}

}  // namespace trifold::test
