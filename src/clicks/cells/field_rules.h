// FieldRules: how the fields of a data set are read, whatever the format of its files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/recommend_choices.h"

namespace trifold {

// Values that mean a missing one, besides an empty field. Those that are numbers are compared as numbers with labels and
// dense numbers (-1 is -1.0), and by their spelling (clicks/cells/cell.h) with ids.
class MissingValues {
 public:
  MissingValues() = default;
  explicit MissingValues(const std::vector<std::string>& texts);

  bool has_text(std::string_view text) const;
  bool has_number(double number) const;
  bool has_spelling(std::string_view text) const;

 private:
  std::vector<std::string> texts_, spellings_;
  std::vector<double> numbers_;
};

// What a label has to be. Without one, a sample has kNoLabel.
enum class LabelNeed {
  Required,    // a row without any label is malformed
  Optional,    // a label may be missing
  Irrelevant,  // the same; and what is no label counts as missing
};

// Samples that need no column of labels and are kept without a label are only scored: their labels are irrelevant.
LabelNeed label_need(bool needs_labels, Unlabelled unlabelled);

struct FieldRules {
  std::vector<LabelRule> labels{LabelRule{}};
  LabelNeed need = LabelNeed::Required;
  MissingValues missing;
  uint64_t hash_seed = 0;  // of ids
  // Texts are ids as they are written, not by their spelling: the rule of data sets made before spellings.
  bool as_written = false;
};

}  // namespace trifold
