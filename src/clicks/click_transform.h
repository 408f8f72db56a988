// Transforms from the dense values and ids in a file to those in a batch.
//
// Published results differ in these transforms, often without saying which were used. Here each transform has a name,
// which is stored with the results.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>

#include "clicks/click_batch.h"
#include "config/fields/recommend_choices.h"

namespace trifold {

// The transform called `name`. BadInput, listing the names, for an unknown one.
DenseTransform parse_dense_transform(std::string_view name);

// A transform with its parameter, m of LogMin. Schemas and checkpoints store it as text: "log1p", "logmin with the
// minimum -3".
struct AppliedTransform {
  DenseTransform transform = DenseTransform::None;
  float least = 0;

  // BadInput for a text that names no transform.
  static AppliedTransform parse(std::string_view text);
  std::string text() const;
};

// Transforms x; NaN is a missing value. `least` is m of LogMin. The result is never NaN, and finite if x is.
inline float transform_dense(DenseTransform transform, float x, float least = 0) {
  const bool missing = std::isnan(x);
  switch (transform) {
    case DenseTransform::None:
      return missing ? 0 : x;
    case DenseTransform::Log1p:
      return missing || x <= 0 ? 0 : std::log1p(x);
    case DenseTransform::Log3:
      return missing || x <= -3 ? 0 : std::log(x + 3);
    case DenseTransform::LogMin:
      return std::log(std::max((missing ? 0 : x) - least, 0.0F) + 2);
  }
  return 0;
}

// ClickTable::mapping for ids that are integers in a file.
std::string mapping_of(IdPolicy policy);

// The location of an id, for messages.
struct IdLocation {
  std::string_view file;
  std::string_view unit;  // "sample" (counted from 0) or "line" (from 1)
  int64_t number;
};

// Throws BadInput about an id outside its table; `id` is its text in the file.
[[noreturn]] void report_id(const IdLocation& place, const ClickTable& table, std::string_view id);
[[noreturn]] void report_id(const IdLocation& place, const ClickTable& table, uint64_t id);

inline int32_t bounded_id(uint64_t id, const ClickTable& table, IdPolicy policy, const IdLocation& place) {
  const auto rows = static_cast<uint64_t>(table.rows);
  if (id < rows) [[likely]]
    return static_cast<int32_t>(id);
  if (policy == IdPolicy::Error) report_id(place, table, id);
  return static_cast<int32_t>(policy == IdPolicy::Modulo ? id % rows : rows - 1);
}

}  // namespace trifold
