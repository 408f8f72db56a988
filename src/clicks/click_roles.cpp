#include "clicks/click_roles.h"

#include <algorithm>
#include <optional>

#include "clicks/cells/moment.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold {

namespace {

bool is_feature(TextColumn::Kind kind) {
  return kind == TextColumn::Kind::Dense || kind == TextColumn::Kind::Id;
}

// Whether a column with this role can have another one, of this kind and name: as a feature, a label would predict
// itself.
bool go_together(const TextColumn& role, TextColumn::Kind kind, const std::string& name) {
  using enum TextColumn::Kind;
  if ((role.kind == Label && is_feature(kind)) || (kind == Label && is_feature(role.kind))) return false;
  return role.kind != kind || role.name != name;
}

// Gives the column of this name, or, for a feature like time@hour, of the name before a part, a role of this kind, and
// returns the role.
TextColumn& name_column(TextLayout& layout, const std::string& name, TextColumn::Kind kind, int index,
                        std::string_view option, const HeaderLocation& place) {
  const std::string role_name(without_blanks(name));
  std::string wanted = role_name;
  const auto count_wanted = [&] {
    return std::count_if(layout.columns.begin(), layout.columns.end(),
                         [&](const TextColumn& column) { return column.name == wanted; });
  };
  auto count = count_wanted();
  std::optional<TimePart> part;
  if (const std::optional<ColumnPart> found = column_part(role_name);
      count == 0 && found && is_feature(kind)) {
    wanted = without_blanks(found->column);
    part = found->part;
    count = count_wanted();
  }
  if (count == 0) {
    std::vector<std::string> names;
    for (const TextColumn& column : layout.columns) names.push_back(column.name);
    if (place.text && names.size() == 1 && names[0].empty())
      bad_input(
          "{}: the first line is empty, but it must name the columns; if the text has no such line, name "
          "them with --columns",
          place.where);
    const char* hint = "";
    if (place.text)
      hint = names.size() == 1 ? ": give --separator if these are several names"
                               : "; --columns names those of a text without a header";
    bad_input("{}: {} names the column '{}', but {} has {}{}", place.where, option, printable(wanted),
              place.what, names.empty() ? "none" : printable(fmt::format("{}", fmt::join(names, ", "))),
              hint);
  }
  if (count > 1)
    bad_input("{}: {} has the column '{}' {} times", place.where, place.what, printable(wanted), count);
  TextColumn& column = *std::find_if(layout.columns.begin(), layout.columns.end(),
                                     [&](const TextColumn& other) { return other.name == wanted; });
  const bool fits =
      for_each_role(column, [&](const TextColumn& role) { return go_together(role, kind, role_name); });
  if (!fits)
    bad_input(
        "{} names the column '{}'{}", option, printable(name),
        kind == TextColumn::Kind::Label && column.kind == kind
            ? " twice: name each column once"
            : ", which another option names already: a column may be dense and sparse, but each only once, "
              "and a label is no feature");
  const bool is_first = column.kind == TextColumn::Kind::Ignored && !part;
  TextColumn& role = is_first ? column : column.also.emplace_back();
  role.kind = kind;
  role.index = index;
  role.name = role_name;
  role.part = part;
  return role;
}

// The role of a bag of this name.
TextColumn& bag_of(TextLayout& layout, const std::string& name) {
  for (TextColumn& column : layout.columns) {
    if (column.kind == TextColumn::Kind::Id && column.name == without_blanks(name)) return column;
    for (TextColumn& role : column.also)
      if (role.kind == TextColumn::Kind::Id && role.name == without_blanks(name)) return role;
  }
  fail("the column '{}' is no bag", name);
}

// An element of --bag-weights: the bag and, after a colon, the column of its weights, if they are not in the bag
// itself.
struct BagWeights {
  std::string bag, column;
};
BagWeights bag_weights_of(const std::string& name, const std::vector<BagColumns::Column>& bags) {
  const auto is_bag = [&](const std::string& wanted) {
    return std::any_of(bags.begin(), bags.end(),
                       [&](const auto& bag) { return without_blanks(bag.name) == without_blanks(wanted); });
  };
  if (is_bag(name)) return {name, ""};
  for (size_t colon = name.find(':'); colon != std::string::npos; colon = name.find(':', colon + 1))
    if (is_bag(name.substr(0, colon))) return {name.substr(0, colon), name.substr(colon + 1)};
  bad_input("--bag-weights names the column '{}', which --bag does not name",
            printable(name.substr(0, name.find(':'))));
}

void name_bag_weights(TextLayout& layout, const NamedColumns& columns, const HeaderLocation& place) {
  for (const std::string& name : columns.bag_weights) {
    const BagWeights weights = bag_weights_of(name, columns.bags);
    TextColumn& bag = bag_of(layout, weights.bag);
    const char separator = bag.bag;
    const int table = bag.index;
    bag.weighted = true;
    bag.paired = !weights.column.empty();
    layout.paired_bags = layout.paired_bags || bag.paired;
    if (bag.paired)
      name_column(layout, weights.column, TextColumn::Kind::BagWeights, table, "--bag-weights", place).bag =
          separator;
    else if (separator == ':')
      bad_input(
          "{}: --bag {}: the colon stands before weights, which --bag-weights declares: give the column another "
          "separator, as in {}:|",
          place.where, printable(name), printable(name));
  }
}

}  // namespace

TextLayout named_layout(const std::vector<std::string>& names, const NamedColumns& columns,
                        const HeaderLocation& place) {
  TextLayout layout;
  layout.dense = layout.tables = 0;
  layout.separator = columns.separator;
  layout.base = IdBase::Text;
  layout.header = true;
  layout.named = true;
  layout.quotes = columns.quoting != Quoting::None;
  layout.rules.labels = columns.labels;
  layout.rules.missing = MissingValues(columns.missing);
  layout.rules.hash_seed = columns.hash_seed;
  layout.rules.as_written = columns.as_written;
  for (const std::string& name : names)
    layout.columns.push_back({TextColumn::Kind::Ignored, 0, std::string(without_blanks(name))});
  const auto is_there = [&](const LabelRule& label) {
    return std::any_of(layout.columns.begin(), layout.columns.end(),
                       [&](const TextColumn& column) { return column.name == without_blanks(label.column); });
  };
  layout.labels = static_cast<int>(columns.labels.size());
  layout.labeled =
      columns.needs_labels || std::any_of(columns.labels.begin(), columns.labels.end(), is_there);
  for (int l = 0; layout.labeled && l < layout.labels; ++l) {
    const LabelRule& label = columns.labels[static_cast<size_t>(l)];
    if (columns.needs_labels || is_there(label))
      name_column(layout, label.column, TextColumn::Kind::Label, l, "--label", place);
  }
  for (const std::string& name : columns.dense)
    name_column(layout, name, TextColumn::Kind::Dense, layout.dense++, "--dense", place);
  for (const std::string& name : columns.sparse)
    name_column(layout, name, TextColumn::Kind::Id, layout.tables++, "--sparse", place);
  for (const BagColumns::Column& bag : columns.bags) {
    if (place.text && bag.separator == '\0')
      bad_input("--bag {} has no separator, which the values of a text field need: give {}:| or {}:space",
                bag.name, bag.name, bag.name);
    name_column(layout, bag.name, TextColumn::Kind::Id, layout.tables++, "--bag", place).bag = bag.separator;
  }
  layout.bags = static_cast<int>(columns.bags.size());
  name_bag_weights(layout, columns, place);
  if (!columns.weight.empty()) {
    name_column(layout, columns.weight, TextColumn::Kind::Weight, 0, "--weight", place);
    layout.sample_weights = true;
  }
  layout.least_fields = layout.columns.size();
  return layout;
}

void keep_columns(TextLayout& layout, const std::vector<std::string>& names, const std::string& path) {
  const HeaderLocation place{path, layout.header ? "the header" : "it"};
  for (const std::string& name : names)
    name_column(layout, name, TextColumn::Kind::Kept, layout.kept++, "--keep", place);
}

void time_column(TextLayout& layout, const std::string& name, const std::string& path) {
  name_column(layout, name, TextColumn::Kind::Time, 0, "--split-by",
              {path, layout.header ? "the header" : "it"});
  layout.times = true;
}

}  // namespace trifold
