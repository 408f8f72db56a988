// The columns that options of `trifold preprocess` named, as clicks.json records them: each option's text. Data that
// reuse a dictionary must read the same columns in the same order.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "clicks/click_layout.h"

namespace trifold {

nlohmann::json to_json(const NamedColumns& columns);
// BadInput, beginning with `where`, for a value of another form.
NamedColumns named_columns_from_json(const nlohmann::json& value, const std::string& where);

// How columns called `other` differ from those called `first`, a sentence for each option: label, dense columns, and
// texts that are missing values. Names of tables are compared by others, and separators may differ.
std::vector<std::string> column_differences(const NamedColumns& first, const std::string& first_name,
                                            const NamedColumns& other, const std::string& other_name);

}  // namespace trifold
