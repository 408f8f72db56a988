// Gives columns the roles (TextColumn) that options assign by name: features, labels and weights (NamedColumns). Also
// implements keep_columns and time_column of clicks/click_layout.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_layout.h"

namespace trifold {

// Where the names of columns come from, for messages.
struct HeaderLocation {
  std::string where;      // the file, for text with the line
  std::string_view what;  // what holds the names: "the header"
  bool text = false;
};

// The layout of a file whose columns have these names. BadInput for a column of `columns` that is missing, occurs
// twice, or cannot have the roles assigned to it.
TextLayout named_layout(const std::vector<std::string>& names, const NamedColumns& columns,
                        const HeaderLocation& place);

}  // namespace trifold
