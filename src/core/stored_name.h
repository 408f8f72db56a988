// The rule for names that can be stored. Names of tensors become paths in HDF5 files and keys in a checkpoint's
// manifest; names in data (of tables) become parts of them. The rule is also checked when data are opened, so that no
// run trains a model that it cannot save.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// Whether the name consists of parts of letters (a-z, A-Z), digits, '.', '_' and '-', separated by '/', where
// no part is empty, "." or "..".
bool is_storable_name(std::string_view name);

// Throws BadInput, which shows the name and the rule, unless `name` is one part of at most 255 bytes, without
// '/'. `what` is "table" or the like.
void check_storable_part(std::string_view what, std::string_view name);

}  // namespace trifold
