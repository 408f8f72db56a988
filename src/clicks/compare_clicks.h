// Compatibility of two sources of clicks: a model that was trained on one can be trained on, or evaluated
// with, another only if row k of a table means the same value in both.
//
// ClickTable::mapping describes how values were mapped to the ids of a table:
//   ""                     the integers in the file are the ids
//   "modulo", "clip"       the integers in the file, mapped into the range of ids by this policy
//   "keys of ..."          ids are keys of texts or integers, which get rows while a model trains
//   "dictionary 1c291ca3"  numbered by a dictionary with that CRC-32
//   "unknown"              a folder whose dictionary is missing: not compared
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_batch.h"

namespace trifold {

inline constexpr std::string_view kUnknownMapping = "unknown";

struct NamedSchema {
  std::string name;  // for messages: a path
  const ClickSchema& schema;
};

// Whether table `data` is compatible with table `model` of a trained model: the same rows and mapping, or an older
// dictionary, from which that of `model` was grown.
bool can_read(const ClickTable& model, const ClickTable& data);

// Whether a model with table `stored` can continue with `data`, whose table has more rows: the first ones mean the
// same.
bool can_grow(const ClickTable& stored, const ClickTable& data);

// A sentence for each difference that keeps a model trained on `first` from reading `other`: labels, dense features and
// their transform, the number of tables, and for each table its rows and its mapping, unless can_read, its name if the
// same tables come in another order, and a larger max_ids in `other` than in `first`.
std::vector<std::string> click_differences(const NamedSchema& first, const NamedSchema& other);

}  // namespace trifold
