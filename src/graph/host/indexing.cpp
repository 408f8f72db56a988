// Elements chosen by arrays of indices.
#include <cstring>

#include "core/error.h"
#include "graph/host/map.h"
#include "graph/host/rows.h"

namespace trifold::graph {

namespace {

// Indices of a dim as i64 in [0, extent). Negative ones count from the end if that is allowed.
Array checked_indices(const Array& given, int64_t extent, bool negative) {
  if (is_float(given.type) || given.type == ElementType::Bool)
    bad_input("indices of type {} are not supported; integers are needed", name_of(given.type));
  Array indices = converted(given, ElementType::I64);
  auto* index = indices.as<int64_t>();
  const int64_t count = indices.elements();
  for (int64_t i = 0; i < count; ++i) {
    if (index[i] < (negative ? -extent : 0) || index[i] >= extent)
      bad_input("index {} is out of range: the dim has an extent of {}", index[i], extent);
    if (index[i] < 0) index[i] += extent;
  }
  return indices;
}

// Blocks of `block` elements of `from` at the given offsets, one after another.
void copy_blocks(const Array& from, const int64_t* offsets, int64_t count, int64_t block, Array& to,
                 int64_t at) {
  dispatch_size(from.type, [&]<class T>(T) {
    const T* in = from.as<T>();
    T* out = to.as<T>() + at;
    if (block == 1)
      for (int64_t i = 0; i < count; ++i) out[i] = in[offsets[i]];
    else
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(out + i * block, in + offsets[i], static_cast<size_t>(block) * sizeof(T));
  });
}

// Indices of one dim, in any shape, which takes the place of the dim.
Array chosen_along(const Array& from, size_t dim, const Array& given) {
  if (from.dims.empty()) bad_input("an array without dims cannot be indexed");
  Array offsets = checked_indices(given, from.dims[dim], false);
  const int64_t block = row_major_strides(from.dims)[dim], count = offsets.elements();
  for (int64_t i = 0; i < count; ++i) offsets.as<int64_t>()[i] *= block;
  Dims dims(from.dims.begin(), from.dims.begin() + static_cast<std::ptrdiff_t>(dim));
  int64_t outer = 1;
  for (const int64_t extent : dims) outer *= extent;
  dims.insert(dims.end(), given.dims.begin(), given.dims.end());
  dims.insert(dims.end(), from.dims.begin() + static_cast<std::ptrdiff_t>(dim) + 1, from.dims.end());
  Array to = make_array(from.type, dims);
  if (to.elements() == 0) return to;
  for (int64_t o = 0; o < outer; ++o) {
    copy_blocks(from, offsets.as<int64_t>(), count, block, to, o * count * block);
    for (int64_t i = 0; i < count; ++i) offsets.as<int64_t>()[i] += block * from.dims[dim];
  }
  return to;
}

Array index_select(const Call& call) {
  const Array &from = call.tensor(0), &index = call.tensor(2);
  Array flat = index;
  if (flat.dims.empty()) flat.dims = {1};
  if (flat.dims.size() != 1) bad_input("the indices have shape {}; one dim is needed", dims_text(flat.dims));
  return chosen_along(from, wrapped_dim(call.integer(1), from.dims.size()), flat);
}

Array embedding(const Call& call) {
  const Array& table = call.tensor(0);
  if (table.dims.size() != 2) bad_input("the table has shape {}; two dims are needed", dims_text(table.dims));
  return chosen_along(table, 0, call.tensor(1));
}

// out[i, j, k] = from[i, index[i, j, k], k] for dim 1.
Array gather(const Call& call) {
  const Array &from = call.tensor(0), &given = call.tensor(2);
  const size_t dim = wrapped_dim(call.integer(1), from.dims.size());
  if (given.dims.size() != from.dims.size() || from.dims.empty())
    bad_input("indices of shape {} do not fit an array of shape {}", dims_text(given.dims),
              dims_text(from.dims));
  for (size_t d = 0; d < from.dims.size(); ++d)
    if (d != dim && given.dims[d] > from.dims[d])
      bad_input("indices of shape {} do not fit an array of shape {}", dims_text(given.dims),
                dims_text(from.dims));
  const Array indices = checked_indices(given, from.dims[dim], false);
  Dims strides = row_major_strides(from.dims);
  const int64_t stride = strides[dim];
  strides[dim] = 0;
  Array to = make_array(from.type, given.dims);
  const auto* index = indices.as<int64_t>();
  dispatch_size(from.type, [&]<class T>(T) {
    const T* in = from.as<T>();
    T* out = to.as<T>();
    each_run<1>(given.dims, {strides}, [&](const auto& at, int64_t count, const auto& step) {
      for (int64_t i = 0; i < count; ++i) *out++ = in[at[0] + i * step[0] + *index++ * stride];
    });
  });
  return to;
}

// index.Tensor: arrays of indices for some dims, repeated to one shape, which replaces these dims if they are
// neighbours, and otherwise comes first. Dims without indices stay as they are.
class Indexing {
 public:
  Indexing(const Array& from, const std::vector<const Array*>& indices) : from_(from) {
    if (indices.size() > from.dims.size())
      bad_input("{} arrays of indices are given for an array of {} dims", indices.size(), from.dims.size());
    const Dims strides = row_major_strides(from.dims);
    bool apart = false;
    for (size_t d = 0; d < from.dims.size(); ++d) {
      if (d >= indices.size() || indices[d] == nullptr) {
        kept_.push_back(from.dims[d]);
        kept_strides_.push_back(strides[d]);
        continue;
      }
      if (used_.empty()) first_ = kept_.size();
      apart = apart || (!used_.empty() && kept_.size() != first_);
      chosen_ = broadcast_dims(chosen_, indices[d]->dims);
      used_.push_back({checked_indices(*indices[d], from.dims[d], true), strides[d]});
    }
    if (apart) first_ = 0;
  }

  Array result() const {
    if (used_.empty()) return from_;
    const Array offsets = sum_of_offsets();
    const auto split = static_cast<std::ptrdiff_t>(first_);
    Dims dims(kept_.begin(), kept_.begin() + split);
    dims.insert(dims.end(), chosen_.begin(), chosen_.end());
    dims.insert(dims.end(), kept_.begin() + split, kept_.end());
    Array to = make_array(from_.type, dims);
    if (to.elements() == 0) return to;
    // Each array of offsets is repeated over the kept dims, and these over it.
    Dims own(dims.size()), index(dims.size());
    const Dims offset_strides = row_major_strides(chosen_);
    for (size_t d = 0; d < dims.size(); ++d) {
      const bool inside = d >= first_ && d < first_ + chosen_.size();
      if (inside) index[d] = offset_strides[d - first_];
      if (!inside) own[d] = kept_strides_[d < first_ ? d : d - chosen_.size()];
    }
    const auto* offset = offsets.as<int64_t>();
    dispatch_size(from_.type, [&]<class T>(T) {
      const T* in = from_.as<T>();
      T* out = to.as<T>();
      each_run<2>(dims, {own, index}, [&](const auto& at, int64_t count, const auto& step) {
        const int64_t* indices = offset + at[1];
        const T* base = in + at[0];
        if (step[1] == 0)
          for (int64_t i = 0; i < count; ++i) out[i] = base[*indices + i * step[0]];
        else
          for (int64_t i = 0; i < count; ++i) out[i] = base[indices[i * step[1]] + i * step[0]];
        out += count;
      });
    });
    return to;
  }

 private:
  struct Used {
    Array indices;
    int64_t stride = 0;
  };

  Array sum_of_offsets() const {
    Array sum = zero_array(ElementType::I64, chosen_);
    for (const Used& used : used_) {
      Array next = make_array(ElementType::I64, chosen_);
      map_pairs<int64_t, int64_t>(sum, used.indices, next,
                                  [stride = used.stride](int64_t a, int64_t i) { return a + i * stride; });
      sum = std::move(next);
    }
    return sum;
  }

  const Array& from_;
  Dims chosen_;               // the common shape of the indices
  Dims kept_, kept_strides_;  // dims without indices
  size_t first_ = 0;          // kept dims before the chosen ones in the result
  std::vector<Used> used_;
};

Array index_tensor(const Call& call) { return Indexing(call.tensor(0), call.tensors(1)).result(); }

}  // namespace

void add_index_rows(std::vector<HostRow>& rows) {
  const std::vector<HostRow> own{
      {"index.Tensor", index_tensor},
      {"index_select", index_select},
      {"gather", gather},
      {"embedding", embedding},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace trifold::graph
