// The layout of a text file of clicks (data/click_text.h): Criteo's, or what the header of a CSV file says.
#pragma once

#include <string>
#include <string_view>

#include "data/click_text.h"
#include "files/mapped_file.h"

namespace trifold {

// Criteo's columns: label, I1 .. I13, C1 .. C26.
TextLayout criteo_layout(bool labels);

// The layout of a file. `format` is "tsv", Criteo's with labels unless the first lines clearly have none;
// "csv", or "csv-hex"; or "auto": csv where the first line has commas and no tab, else tsv. BadInput for an
// empty file; one that is compressed or no UTF-8; a header without a column of ids, with a gap in the
// numbering (I1, I3) or a column twice; a csv whose ids look hexadecimal; or a first line that is too long.
TextLayout find_layout(const MappedFile& file, std::string_view format = "auto");

// BadInput, naming the columns there are, unless there are labels.
void check_labels(const TextLayout& layout, const std::string& path);

// What a file says, behind its byte order mark.
std::string_view text_of(const MappedFile& file);

}  // namespace trifold
