// Finds the layout of a text file of clicks (clicks/click_text.h): Criteo's, or the layout that a CSV header defines.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_text.h"
#include "files/mapped_file.h"

namespace trifold {

// Assigns roles to the columns of a CSV file by their names in the header. A column may have several roles, but a label
// cannot be a feature.
struct NamedColumns {
  std::vector<LabelRule> labels;           // one or more
  std::vector<std::string> dense, sparse;  // in the order of features and tables
  std::vector<BagColumns::Column> bags;    // their tables follow the tables of `sparse`
  std::vector<std::string> bag_weights;    // bags whose texts have weights
  char separator = ',';
  std::vector<std::string> missing;
  uint64_t hash_seed = 0;
  bool needs_labels = true;          // else a file may lack all columns of labels
  std::vector<std::string> of_text;  // all columns of texts without a header, in order; empty: texts have one
  Quoting quoting = Quoting::Auto;   // how fields are quoted; Auto: see quoting_of
  bool as_written = false;           // see FieldRules; no option
  std::string weight = {};           // column with the samples' weights; empty: all weigh 1
};

// Judges by the first lines of a text whether its fields are quoted: Quotes if a quoted field holds a separator or
// doubled quotes; else None if some quote cannot enclose a field, as in "Weird" Al; else Auto, undecided.
Quoting quoting_of(std::string_view text, char separator);

// Criteo's columns: label, I1 .. I13, C1 .. C26.
TextLayout criteo_layout(bool labels);

// The layout of a file, whose header may stand after blank lines. `format` is "tsv", Criteo's with labels unless the
// first lines clearly have none; "csv", or "csv-hex"; or "auto": csv if the first line has commas and no tab, else tsv.
// BadInput for an empty file; one that is compressed or not UTF-8; a header without a column of ids, with a gap in the
// numbering (I1, I3) or a duplicate column; a csv whose ids look hexadecimal; or a first line that is too long.
TextLayout find_layout(const MappedFile& file, std::string_view format = "auto");

// Finds the layout from the beginning `text` of the file `path`, after its byte order mark. With `columns` the file
// must have a header with these names, unless columns->of_text names the columns of a file without header. BadInput as
// above, and if the header lacks one of the names, has it twice, or uses another separator.
TextLayout find_layout(const std::string& path, std::string_view text, std::string_view format,
                       const std::optional<NamedColumns>& columns);

// The layout of a file that is not text but whose columns have names, by the same rules. Without `columns` its ids are
// decimal.
TextLayout layout_of_names(const std::string& path, const std::vector<std::string>& names,
                           const std::optional<NamedColumns>& columns);

// Adds the role Kept, in this order, to the columns of these names. BadInput, naming `path`, for a name that no column
// has.
void keep_columns(TextLayout& layout, const std::vector<std::string>& names, const std::string& path);

// Adds the role Time to the column called `name`. BadInput, naming `path`, if there is none.
void time_column(TextLayout& layout, const std::string& name, const std::string& path);

// The table name for a column: characters that names of tables cannot have (core/stored_name.h) are replaced by '_'.
std::string table_name_of(std::string_view column);

// BadInput, listing the columns, if the layout has no labels.
void check_labels(const TextLayout& layout, const std::string& path);

// The text without a leading byte order mark.
std::string_view text_of(const MappedFile& file);
std::string_view without_mark(std::string_view text);

}  // namespace trifold
