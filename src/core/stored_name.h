// Which names can be stored: names of tensors become paths in HDF5 files and keys in a checkpoint's manifest,
// and names that come with data (tables) become parts of them. This one rule checks them when data are
// opened, so that no run trains a model that it could not save.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// Whether parts of letters (a-z, A-Z), digits, '.', '_' and '-', separated by '/', are all there is, no part
// being empty, "." or "..".
bool is_storable_name(std::string_view name);

// BadInput that shows the name and says what would be right; `what` is "table" or the like. Of one part at
// most 255 bytes long, without '/'.
void check_storable_part(std::string_view what, std::string_view name);

}  // namespace trifold
