#include "preprocess/ids/given_encoding.h"

#include <fmt/ranges.h>

#include "clicks/column_map.h"
#include "core/error.h"

namespace trifold {

namespace {

void expect_table(const ClickFolder::Table& given, const PreprocessOptions& options,
                  const ClickFolder::Table& table) {
  if (table.bag != given.bag)
    bad_input("{}: column {} belongs to --{} in {}: give it there too", options.inputs[0], table.name,
              given.bag ? "bag" : "sparse", *options.dictionaries_of);
  if (table.weighted != given.weighted)
    bad_input("{}: column {} {} --bag-weights in {}: give the same", options.inputs[0], table.name,
              given.weighted ? "belongs to" : "does not belong to", *options.dictionaries_of);
}

void expect_columns(const ClickFolder& given, const PreprocessOptions& options) {
  if (!options.columns || !given.columns) return;
  const std::vector<std::string> differences =
      column_differences(*given.columns, *options.dictionaries_of, *options.columns, "these options");
  if (!differences.empty())
    bad_input("the columns differ from those of {}:\n  {}\nWithout --label they are taken from there",
              *options.dictionaries_of, fmt::join(differences, "\n  "));
}

}  // namespace

void take_options(const ClickFolder& given, PreprocessOptions& options) {
  options.transform = given.transform;
  options.max_ind_range = given.max_ind_range;
  options.max_bag = given.max_bag;
  options.keep_keys = !given.tables.empty() && given.tables[0].keys;
  options.hash_ids = !given.tables.empty() && !given.tables[0].keys && !given.tables[0].dictionary;
}

void expect_encoding(const ClickFolder& given, const PreprocessOptions& options, bool named,
                     ClickFolder& folder) {
  const std::string& name = *options.dictionaries_of;
  for (size_t t = 0; t < folder.tables.size(); ++t) {
    ClickFolder::Table& table = folder.tables[t];
    if (named && table.name != given.tables[t].name)
      bad_input("--sparse: column {} is {} here, {} in {}: name the columns in the same order", t + 1,
                table.name, given.tables[t].name, name);
    expect_table(given.tables[t], options, table);
    table.name = given.tables[t].name;
  }
  for (const ClickFolder::Table& table : given.tables)
    if (!table.dictionary && !options.as_there)
      bad_input("{} has no dictionaries: its ids are {}, which need none: give --ids {}", name,
                table.keys ? "keys" : "hashes",
                table.keys ? "keys" : fmt::format("hash --max-ind-range {}", given.max_ind_range));
  if (given.hash_seed != folder.hash_seed)
    bad_input("{} was made with --hash-seed {}, on which its dictionaries depend: give the same one", name,
              given.hash_seed);
  if (given.transform != folder.transform || given.max_ind_range != folder.max_ind_range)
    bad_input(
        "{} was made with --dense-transform {} and --max-ind-range {}, and this is {} and {}: give the same",
        name, name_of(given.transform), given.max_ind_range, name_of(folder.transform), folder.max_ind_range);
  if (given.base != folder.base)
    bad_input("{} was made of {} ids, {} has {} ones: give --data-format", name, name_of(given.base),
              options.inputs[0], name_of(folder.base));
  expect_columns(given, options);
}

}  // namespace trifold
