// The roles of columns that options name (TextColumn): of the features and labels (NamedColumns), and keep_columns and
// time_column of clicks/click_layout.h.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_layout.h"

namespace trifold {

// The origin of the names of columns, for messages.
struct HeaderPlace {
  std::string where;      // file, and line of a text
  std::string_view what;  // has the names
  bool text = false;
};

// The layout of a file with columns of these names. BadInput for a column that is not there, is there twice, or cannot have
// the roles that options give it.
TextLayout named_layout(const std::vector<std::string>& names, const NamedColumns& columns,
                        const HeaderPlace& place);

}  // namespace trifold
