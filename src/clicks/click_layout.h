// The layout of a text file of clicks (clicks/click_text.h): Criteo's, or that of a CSV file's header.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_text.h"
#include "files/mapped_file.h"

namespace trifold {

// The roles of columns of a CSV file, by the names in its header. A column may have several roles, but that of a label
// goes with no feature.
struct NamedColumns {
  std::vector<LabelRule> labels;           // one or more
  std::vector<std::string> dense, sparse;  // in the order of the features and of the tables
  std::vector<BagColumns::Column> bags;    // whose tables follow
  std::vector<std::string> bag_weights;    // of the bags, those whose texts have weights
  char separator = ',';
  std::vector<std::string> missing;
  uint64_t hash_seed = 0;
  bool needs_labels = true;          // else a file may lack all columns of labels
  std::vector<std::string> of_text;  // all columns of texts without a header, in order; empty: texts have one
  Quoting quoting = Quoting::Auto;   // of texts; Auto: see quoting_of
  bool as_written = false;           // see FieldRules; no option
  std::string weight = {};           // of the samples; empty: all count the same
};

// Whether fields of a text are quoted, by its first lines: Quotes where a quoted field holds a separator or doubled
// quotes, None where a quote cannot be one around a field, as in "Weird" Al, Auto where nothing tells.
Quoting quoting_of(std::string_view text, char separator);

// Criteo's columns: label, I1 .. I13, C1 .. C26.
TextLayout criteo_layout(bool labels);

// The layout of a file, whose header may stand after blank lines. `format` is "tsv", Criteo's with labels unless the
// first lines clearly have none; "csv", or "csv-hex"; or "auto": csv if the first line has commas and no tab, else tsv.
// BadInput for an empty file; one that is compressed or not UTF-8; a header without a column of ids, with a gap in the
// numbering (I1, I3) or a duplicate column; a csv whose ids look hexadecimal; or a first line that is too long.
TextLayout find_layout(const MappedFile& file, std::string_view format = "auto");

// The same for the beginning of the text of the file `path`, after its byte order mark. With `columns` the file has a
// header with these names, unless they list those of a file without one; BadInput if the header lacks one of them, has
// it twice, or uses another separator.
TextLayout find_layout(const std::string& path, std::string_view text, std::string_view format,
                       const std::optional<NamedColumns>& columns);

// The layout of a file that is not text but has columns with these names, by the same rules; its ids are decimal where
// no options name its columns.
TextLayout layout_of_names(const std::string& path, const std::vector<std::string>& names,
                           const std::optional<NamedColumns>& columns);

// Adds the role Kept, in this order, to the columns of these names. BadInput, naming `path`, for one that is not there.
void keep_columns(TextLayout& layout, const std::vector<std::string>& names, const std::string& path);

// Adds the role Time to a column.
void time_column(TextLayout& layout, const std::string& name, const std::string& path);

// The name of the table of a column: characters that names of tables cannot have (core/stored_name.h) become
// '_'.
std::string table_name_of(std::string_view column);

// BadInput, listing the columns, unless there are labels.
void check_labels(const TextLayout& layout, const std::string& path);

// The text of a file after its byte order mark.
std::string_view text_of(const MappedFile& file);
std::string_view without_mark(std::string_view text);

}  // namespace trifold
